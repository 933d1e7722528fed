/* Objects out of a pool: all of one commit, as a list or as variables. */
#include "entries.h"
#include "remanent_r.h"

struct restoring {
    SEXP names, made;
    remanent_view **views;
    uint64_t count;
    struct reader reader;
};

static SEXP read_all(void *data) {
    struct restoring *all = data;
    for (uint64_t i = 0; i < all->count; i++) {
        struct step at = {.name = Rf_translateCharUTF8(STRING_ELT(all->names, (R_xlen_t)i))};
        struct reader *r = &all->reader;
        r->view = all->views[i];
        SET_VECTOR_ELT(all->made, (R_xlen_t)i, read_object(r, &at));
        if (r->serialised != R_NilValue)
            R_ReleaseObject(r->serialised);
        r->serialised = R_NilValue;
    }
    return all->made;
}

static void clean_up(void *data) {
    struct restoring *all = data;
    if (all->reader.serialised != R_NilValue)
        R_ReleaseObject(all->reader.serialised);
    for (uint64_t i = 0; i < all->count; i++)
        remanent_view_release(all->views[i]);
}

/* Refuses what cannot become a variable, before any variable is one. */
static void check_bindings(SEXP names, SEXP envir) {
    for (R_xlen_t i = 0; i < XLENGTH(names); i++) {
        struct step at = {.name = Rf_translateCharUTF8(STRING_ELT(names, i))};
        if (!*at.name)
            refuse(REMANENT_BAD_NAME, &at, "has no name that a variable can have");
        SEXP symbol = Rf_installTrChar(STRING_ELT(names, i));
        int is_there = Rf_findVarInFrame3(envir, symbol, FALSE) != R_UnboundValue;
        if (is_there && R_BindingIsLocked(symbol, envir))
            refuse(REMANENT_BAD_ARGUMENT, &at, "is a locked variable there; nothing was restored");
        if (!is_there && R_EnvironmentIsLocked(envir))
            refuse(REMANENT_BAD_ARGUMENT, &at, "cannot be a variable of a locked environment; nothing was restored");
    }
}

/* The objects of these names, all of one commit, as a list; or as variables of an environment, if there is one. A vector
 * that a list holds as well would be copied when it is first written to, so the list lets go of each. */
SEXP rem_restore(SEXP pool, SEXP names, SEXP as, SEXP is_int64, SEXP envir) {
    remanent_store *store = store_of(pool);
    if (TYPEOF(envir) == ENVSXP)
        check_bindings(names, envir);
    struct restoring all = {.names = names, .count = (uint64_t)XLENGTH(names)};
    all.reader = (struct reader){.as = (enum restore_as)Rf_asInteger(as),
                                 .is_int64 = Rf_asLogical(is_int64),
                                 .has_bit64 = NA_LOGICAL,
                                 .serialised = R_NilValue};
    all.made = PROTECT(Rf_allocVector(VECSXP, XLENGTH(names)));
    Rf_setAttrib(all.made, R_NamesSymbol, names);
    const char **wanted = (const char **)R_alloc(all.count + 1, sizeof *wanted);
    all.views = (remanent_view **)R_alloc(all.count + 1, sizeof *all.views);
    for (uint64_t i = 0; i < all.count; i++)
        wanted[i] = Rf_translateCharUTF8(STRING_ELT(names, (R_xlen_t)i));
    check(remanent_store_get_many(store, wanted, all.count, all.views));
    struct restoring *pointer = &all;
    SEXP made = R_ExecWithCleanup(read_all, pointer, clean_up, pointer);
    if (TYPEOF(envir) == ENVSXP) {
        for (R_xlen_t i = 0; i < XLENGTH(names); i++) {
            SEXP value = PROTECT(VECTOR_ELT(made, i));
            SET_VECTOR_ELT(made, i, R_NilValue);
            Rf_defineVar(Rf_installTrChar(STRING_ELT(names, i)), value, envir);
            UNPROTECT(1);
        }
    }
    UNPROTECT(1);
    return made;
}

/* One object. */
SEXP rem_read(SEXP pool, SEXP name, SEXP as, SEXP is_int64) {
    SEXP made = PROTECT(rem_restore(pool, name, as, is_int64, R_NilValue));
    SEXP value = PROTECT(VECTOR_ELT(made, 0));
    SET_VECTOR_ELT(made, 0, R_NilValue);
    UNPROTECT(2);
    return value;
}
