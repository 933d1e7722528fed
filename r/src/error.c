/* Errors as R's conditions: one class for each code of the library, and remanent_error for all. */
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

static void NORET raise(int code, const char *message, const char *path, const char *element) {
    SEXP name = PROTECT(text_or_null(remanent_error_name(code)));
    SEXP number = PROTECT(Rf_ScalarInteger(code));
    SEXP said = PROTECT(text_or_null(message));
    SEXP file = PROTECT(text_or_null(path));
    SEXP part = PROTECT(text_or_null(element));
    call_own("raise", Rf_list5(name, number, said, file, part));
    Rf_error("%s", message);
}

void check(int code) {
    if (code != REMANENT_OK)
        raise(code, remanent_error_message(), remanent_error_path(), NULL);
}

/* The place of a part as a user would write it: x$fit, x[[3]], attr(x, "ptr"). */
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

void check_at(int code, const struct step *at) {
    if (code == REMANENT_OK)
        return;
    const char *element = place(at), *message = remanent_error_message();
    size_t room = strlen(element) + strlen(message) + 8;
    char *made = R_alloc(room, 1);
    snprintf(made, room, "'%s': %s", element, message);
    raise(code, made, remanent_error_path(), element);
}

void NORET refuse(int code, const struct step *at, const char *reason) {
    const char *element = place(at);
    size_t room = strlen(element) + strlen(reason) + 8;
    char *made = R_alloc(room, 1);
    snprintf(made, room, "'%s' %s", element, reason);
    raise(code, made, NULL, element);
}
