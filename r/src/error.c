/* Errors as R's conditions: one class for each code of the library, and remanent_error for all. */
#include <stdio.h>
#include <string.h>

#include "remanent_r.h"

SEXP call_own(const char *function, SEXP arguments) {
    PROTECT(arguments);
    /* A call or a symbol is a value here, and is not to be evaluated. */
    for (SEXP cell = arguments; cell != R_NilValue; cell = CDR(cell)) {
        SEXPTYPE type = TYPEOF(CAR(cell));
        if (type == LANGSXP || type == SYMSXP || type == PROMSXP || type == BCODESXP)
            SETCAR(cell, Rf_lang2(Rf_install("quote"), CAR(cell)));
    }
    SEXP name = PROTECT(Rf_mkString("remanent"));
    SEXP space = PROTECT(R_FindNamespace(name));
    SEXP call = PROTECT(Rf_lcons(Rf_install(function), arguments));
    SEXP answer = Rf_eval(call, space);
    UNPROTECT(4);
    return answer;
}

static SEXP text_or_null(const char *text) { return text ? Rf_ScalarString(Rf_mkCharCE(text, CE_UTF8)) : R_NilValue; }

/* An error with what is said of it. R may run finalizers whenever it makes something, and these may call the library, which
 * then has another last failure: so the texts are taken before, to where R has no part in it. */
static void NORET raise(const struct failure *failure, const char *element) {
    SEXP name = PROTECT(text_or_null(remanent_error_name(failure->code)));
    SEXP number = PROTECT(Rf_ScalarInteger(failure->code));
    SEXP said = PROTECT(text_or_null(failure->message));
    SEXP file = PROTECT(text_or_null(*failure->path ? failure->path : NULL));
    SEXP part = PROTECT(text_or_null(element));
    call_own("raise", Rf_list5(name, number, said, file, part));
    Rf_error("%s", failure->message);
}

struct failure failure_of(int code) {
    struct failure made = {.code = code};
    if (code != REMANENT_OK) {
        const char *path = remanent_error_path();
        snprintf(made.message, sizeof made.message, "%s", remanent_error_message());
        snprintf(made.path, sizeof made.path, "%s", path ? path : "");
    }
    return made;
}

void check_failure(const struct failure *failure, const char *element) {
    if (failure->code != REMANENT_OK)
        raise(failure, element);
}

void check(int code) {
    if (code == REMANENT_OK)
        return;
    const struct failure failure = failure_of(code);
    raise(&failure, NULL);
}

/* The place of a part as a user would write it. */
static const char *place(const struct step *at) {
    if (!at->above)
        return at->name;
    const char *above = place(at->above);
    const char *name = at->name ? at->name : "";
    size_t room = strlen(above) + strlen(name) + 48;
    char *made = R_alloc(room, 1);
    if (at->is_attribute)
        snprintf(made, room, "attr(%s, \"%s\")", above, name);
    else if (at->name && *at->name)
        snprintf(made, room, "%s$%s", above, name);
    else
        snprintf(made, room, "%s[[%.0f]]", above, (double)at->index + 1);
    return made;
}

SEXP place_of(const struct step *at) { return Rf_ScalarString(Rf_mkCharCE(place(at), CE_UTF8)); }

void check_at(int code, const struct step *at) {
    if (code == REMANENT_OK)
        return;
    struct failure failure = failure_of(code);
    const char *element = place(at);
    char said[sizeof failure.message];
    memcpy(said, failure.message, sizeof said);
    /* What does not fit is cut: the element has a field of its own. */
    int written = snprintf(failure.message, sizeof failure.message, "'%.1000s': ", element);
    snprintf(failure.message + written, sizeof failure.message - (size_t)written, "%s", said);
    raise(&failure, element);
}

void NORET refuse(int code, const struct step *at, const char *reason) {
    struct failure failure = {.code = code};
    const char *element = place(at);
    snprintf(failure.message, sizeof failure.message, "'%.1000s' %s", element, reason);
    raise(&failure, element);
}
