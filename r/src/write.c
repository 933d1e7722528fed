/* R's values as nodes of a batch. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"
#include "remanent_r.h"

/* Lists, and values with attributes, that are deeper than this go to R's own serialisation: each may take three nodes of the
 * 128 that a tree is deep. */
#define MAX_LISTS 36

static const remanent_dtype F8 = {.type_class = REMANENT_CLASS_FLOAT, .item_bytes = 8};
static const remanent_dtype I4 = {.type_class = REMANENT_CLASS_INT, .item_bytes = 4};
static const remanent_dtype I8 = {.type_class = REMANENT_CLASS_INT, .item_bytes = 8};
static const remanent_dtype C16 = {.type_class = REMANENT_CLASS_COMPLEX, .item_bytes = 16};
static const remanent_dtype U1 = {.type_class = REMANENT_CLASS_UINT, .item_bytes = 1};

/* What a node says already of an object, so that it is no attribute. */
struct implied {
    int names, dim, levels, class, row_names;
};

static void write_value(struct writer *w, const struct step *at, SEXP x, int depth, int is_column);

void *keep_bytes(struct writer *w, size_t bytes) {
    SEXP made = Rf_allocVector(RAWSXP, (R_xlen_t)bytes);
    SETCDR(w->keep, Rf_cons(made, CDR(w->keep)));
    return RAW(made);
}

/* ---- what is what ---- */

static int is_data(SEXP x) {
    if (IS_S4_OBJECT(x))
        return 0;
    switch (TYPEOF(x)) {
    case NILSXP:
    case LGLSXP:
    case INTSXP:
    case REALSXP:
    case CPLXSXP:
    case RAWSXP:
    case STRSXP:
    case VECSXP:
        break;
    default:
        return 0;
    }
    /* The name of an attribute is a text there. */
    for (SEXP a = ATTRIB(x); a != R_NilValue; a = CDR(a))
        if (!is_text(PRINTNAME(TAG(a))))
            return 0;
    return 1;
}

static int is_foreign(SEXP x, int depth) {
    return !is_data(x) || (depth >= MAX_LISTS && (TYPEOF(x) == VECSXP || ATTRIB(x) != R_NilValue));
}

/* data.table keeps a pointer to the table itself, of no use in another session; it makes a new one. */
static int is_left_out(SEXP tag) { return strcmp(CHAR(PRINTNAME(tag)), ".internal.selfref") == 0; }

/* A pointer whose target matters: one to nothing is the same after a restart. */
static int points_somewhere(SEXP x) {
    void *address = R_ExternalPtrAddr(x);
    return address != NULL && address != (void *)R_NilValue;
}

SEXP rem_points_somewhere(SEXP x) { return Rf_ScalarLogical(TYPEOF(x) != EXTPTRSXP || points_somewhere(x)); }

/* data.table's pointer to the table itself: to nothing, with one to the table as what it protects. R serialises that too. */
SEXP rem_selfref(SEXP x) {
    if (TYPEOF(x) != EXTPTRSXP || R_ExternalPtrAddr(x) != (void *)R_NilValue)
        return R_NilValue;
    SEXP inner = R_ExternalPtrProtected(x);
    int is_selfref = TYPEOF(inner) == EXTPTRSXP && R_ExternalPtrTag(inner) == R_NilValue &&
                     R_ExternalPtrProtected(inner) == R_NilValue;
    return is_selfref ? inner : R_NilValue;
}

/* Refuses what no file can hold, and counts what goes to R's own serialisation. */
static int examine(const struct step *at, SEXP x, int depth) {
    if (TYPEOF(x) == EXTPTRSXP && points_somewhere(x))
        refuse(REMANENT_UNKNOWN_TYPE, at, "is an external pointer, which leads nowhere in another session");
    if (TYPEOF(x) == WEAKREFSXP)
        refuse(REMANENT_UNKNOWN_TYPE, at, "is a weak reference, which leads nowhere in another session");
    if (Rf_inherits(x, "connection"))
        refuse(REMANENT_UNKNOWN_TYPE, at, "is a connection, which another session does not have open");
    if (is_foreign(x, depth))
        return 1;
    int found = 0;
    for (SEXP a = ATTRIB(x); a != R_NilValue; a = CDR(a)) {
        struct step inner = {.above = at, .name = CHAR(PRINTNAME(TAG(a))), .is_attribute = 1};
        if (!is_left_out(TAG(a)))
            found += examine(&inner, CAR(a), depth + 1);
    }
    if (TYPEOF(x) == VECSXP) {
        SEXP names = PROTECT(Rf_getAttrib(x, R_NamesSymbol));
        for (R_xlen_t i = 0; i < XLENGTH(x); i++) {
            struct step inner = {.above = at, .index = i};
            inner.name = TYPEOF(names) == STRSXP ? label_of(STRING_ELT(names, i)) : NULL;
            found += examine(&inner, VECTOR_ELT(x, i), depth + 1);
        }
        UNPROTECT(1);
    }
    return found;
}

/* ---- attributes ---- */

static int is_compact_row_names(SEXP x) {
    return TYPEOF(x) == INTSXP && XLENGTH(x) == 2 && INTEGER(x)[0] == NA_INTEGER && INTEGER(x)[1] <= 0 &&
           INTEGER(x)[1] != NA_INTEGER;
}

static int is_implied(const struct implied *implied, SEXP a) {
    SEXP tag = TAG(a);
    return is_left_out(tag) || (implied->names && tag == R_NamesSymbol) || (implied->dim && tag == R_DimSymbol) ||
           (implied->levels && tag == R_LevelsSymbol) || (implied->class && tag == R_ClassSymbol) ||
           (implied->row_names && tag == R_RowNamesSymbol && is_compact_row_names(CAR(a)));
}

static int has_attributes(SEXP x, const struct implied *implied) {
    for (SEXP a = ATTRIB(x); a != R_NilValue; a = CDR(a))
        if (!is_implied(implied, a))
            return 1;
    return 0;
}

/* Writes the attributes that the node does not say. Names of this package's own begin with "r:", or are "type"; one of the
 * object's own that looks so has another "r:" before it. */
static void write_attributes(struct writer *w, const struct step *at, SEXP x, int depth,
                             const struct implied *implied) {
    for (SEXP a = ATTRIB(x); a != R_NilValue; a = CDR(a)) {
        if (is_implied(implied, a))
            continue;
        const char *name = Rf_translateCharUTF8(PRINTNAME(TAG(a)));
        struct step inner = {.above = at, .name = name, .is_attribute = 1};
        if (strcmp(name, "type") == 0 || strncmp(name, "r:", 2) == 0) {
            size_t room = strlen(name) + 3;
            char *marked = R_alloc(room, 1);
            snprintf(marked, room, "r:%s", name);
            name = marked;
        }
        check_at(remanent_batch_attribute(w->batch, name), &inner);
        write_value(w, &inner, CAR(a), depth + 1, 0);
    }
}

static void begin_attributed(struct writer *w, const struct step *at) {
    check_at(remanent_batch_begin_attributed(w->batch, "r"), at);
}

static void end(struct writer *w, const struct step *at) { check_at(remanent_batch_end(w->batch), at); }

static void write_text(struct writer *w, const struct step *at, const char *text) {
    check_at(remanent_batch_text(w->batch, text, strlen(text)), at);
}

static void write_type(struct writer *w, const struct step *at, const char *type) {
    check_at(remanent_batch_attribute(w->batch, "type"), at);
    write_text(w, at, type);
}

/* What R knows of the items without looking at them. */
static struct known known_of(SEXP x) {
    struct known known = {0, UNKNOWN_SORTEDNESS};
    if (!ALTREP(x) || (size_t)XLENGTH(x) * 4 < SMALL_BYTES)
        return known;
    if (TYPEOF(x) == INTSXP)
        known = (struct known){INTEGER_NO_NA(x), INTEGER_IS_SORTED(x)};
    else if (TYPEOF(x) == REALSXP)
        known = (struct known){REAL_NO_NA(x), REAL_IS_SORTED(x)};
    return known;
}

static int is_known(struct known known) { return known.no_na || KNOWN_SORTED(known.sortedness); }

static void write_known(struct writer *w, const struct step *at, struct known known) {
    if (known.no_na) {
        check_at(remanent_batch_attribute(w->batch, "r:no_na"), at);
        check_at(remanent_batch_bool(w->batch, true), at);
    }
    if (KNOWN_SORTED(known.sortedness)) {
        check_at(remanent_batch_attribute(w->batch, "r:sorted"), at);
        check_at(remanent_batch_int(w->batch, known.sortedness), at);
    }
}

/* ---- vectors ---- */

/* Whether the shape of the array says what dim does. One dimension says nothing of dim. */
static int is_grid(SEXP x) {
    SEXP dim = Rf_getAttrib(x, R_DimSymbol);
    return TYPEOF(dim) == INTSXP && XLENGTH(dim) >= 2 && XLENGTH(dim) <= 64;
}

void write_array(struct writer *w, const struct step *at, remanent_dtype dtype, SEXP x, const void *data) {
    uint64_t shape[64] = {(uint64_t)XLENGTH(x)}, dimensions = 1;
    int grid = is_grid(x);
    if (grid) {
        SEXP dim = Rf_getAttrib(x, R_DimSymbol);
        dimensions = (uint64_t)XLENGTH(dim);
        for (uint64_t i = 0; i < dimensions; i++)
            shape[i] = (uint64_t)INTEGER(dim)[i];
    }
    uint64_t bytes = (uint64_t)XLENGTH(x) * dtype.item_bytes;
    check_at(remanent_batch_array(w->batch, &dtype, shape, dimensions, grid, bytes ? data : NULL, bytes), at);
}

/* Whether an item is NA. In blocks without a branch inside, which the compiler makes into vector instructions. */
static int has_na(const int *items, R_xlen_t count) {
    enum { BLOCK = 4096 };
    R_xlen_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK) {
        int least = 0;
        for (int j = 0; j < BLOCK; j++)
            least = items[i + j] < least ? items[i + j] : least;
        if (least == NA_INTEGER)
            return 1;
    }
    for (; i < count; i++)
        if (items[i] == NA_INTEGER)
            return 1;
    return 0;
}

/* Integers and logicals, with a bit for each when some are NA. */
static void write_integers(struct writer *w, const struct step *at, SEXP x, int depth) {
    const struct implied implied = {.dim = is_grid(x)};
    const int is_logical = TYPEOF(x) == LGLSXP;
    const struct known known = known_of(x);
    const int *items = DATAPTR_RO(x);
    R_xlen_t count = XLENGTH(x);
    int missing = !known.no_na && has_na(items, count);
    int attributed = is_logical || missing || is_known(known) || has_attributes(x, &implied);
    if (attributed)
        begin_attributed(w, at);
    if (missing) {
        size_t bytes = ((size_t)count + 7) / 8;
        uint8_t *bits = keep_bytes(w, bytes);
        for (size_t byte = 0; byte < bytes; byte++) {
            uint8_t made = 0;
            for (R_xlen_t i = (R_xlen_t)byte * 8, j = 0; j < 8 && i + j < count; j++)
                made |= (uint8_t)((items[i + j] != NA_INTEGER) << j);
            bits[byte] = made;
        }
        check_at(remanent_batch_begin_nullable(w->batch, bits, bytes), at);
    }
    write_array(w, at, I4, x, items);
    if (missing)
        end(w, at);
    if (!attributed)
        return;
    if (is_logical)
        write_type(w, at, "logical");
    if (missing) {
        /* The missing items have the bytes of NA, so the vector needs no second look when it is restored. */
        check_at(remanent_batch_attribute(w->batch, "r:na"), at);
        check_at(remanent_batch_bool(w->batch, true), at);
    }
    write_known(w, at, known);
    write_attributes(w, at, x, depth, &implied);
    end(w, at);
}

static void write_numbers(struct writer *w, const struct step *at, SEXP x, int depth, remanent_dtype dtype) {
    const struct implied implied = {.dim = is_grid(x)};
    const struct known known = known_of(x);
    int attributed = is_known(known) || has_attributes(x, &implied);
    if (attributed)
        begin_attributed(w, at);
    write_array(w, at, dtype, x, DATAPTR_RO(x));
    if (!attributed)
        return;
    write_known(w, at, known);
    write_attributes(w, at, x, depth, &implied);
    end(w, at);
}

static void write_characters(struct writer *w, const struct step *at, SEXP x, int depth) {
    const struct implied implied = {0};
    struct strings plan = plan_strings(w, x);
    int attributed = plan.places || plan.marks || has_attributes(x, &implied);
    if (attributed)
        begin_attributed(w, at);
    write_strings(w, at, x, &plan);
    if (!attributed)
        return;
    if (plan.places)
        write_type(w, at, "character");
    if (plan.marks) {
        check_at(remanent_batch_attribute(w->batch, "r:encoding"), at);
        uint64_t count = (uint64_t)(plan.places ? plan.value_count : XLENGTH(x));
        check_at(remanent_batch_array(w->batch, &U1, &count, 1, false, plan.marks, count), at);
    }
    write_attributes(w, at, x, depth, &implied);
    end(w, at);
}

int fits_levels(SEXP places, R_xlen_t levels) {
    const int *items = INTEGER_RO(places);
    int is_outside = 0;
    /* Without a branch inside, which the compiler makes into vector instructions. */
    for (R_xlen_t i = 0; i < XLENGTH(places); i++)
        is_outside |= ((unsigned)items[i] - 1 >= (unsigned)levels) & (items[i] != NA_INTEGER);
    return !is_outside;
}

/* Whether a dictionary says all of it: places among levels that are texts and differ. Another one is kept as what it is made
 * of. */
static int is_factor(SEXP x) {
    SEXP levels = Rf_getAttrib(x, R_LevelsSymbol);
    if (TYPEOF(x) != INTSXP || !Rf_inherits(x, "factor") || TYPEOF(levels) != STRSXP || ATTRIB(levels) != R_NilValue)
        return 0;
    for (R_xlen_t i = 0; i < XLENGTH(levels); i++)
        if (!is_text(STRING_ELT(levels, i)))
            return 0;
    return Rf_any_duplicated(levels, FALSE) == 0 && fits_levels(x, XLENGTH(levels));
}

static void write_factor(struct writer *w, const struct step *at, SEXP x, int depth) {
    SEXP class = Rf_getAttrib(x, R_ClassSymbol), levels = Rf_getAttrib(x, R_LevelsSymbol);
    int is_ordered = Rf_inherits(x, "ordered");
    int is_usual = is_ordered ? XLENGTH(class) == 2 && strcmp(CHAR(STRING_ELT(class, 0)), "ordered") == 0
                              : XLENGTH(class) == 1;
    const struct implied implied = {.levels = 1, .class = is_usual};
    begin_attributed(w, at);
    check_at(remanent_batch_begin_dictionary(w->batch, 1, is_ordered), at);
    uint64_t count = (uint64_t)XLENGTH(x);
    check_at(remanent_batch_array(w->batch, &I4, &count, 1, false, count ? DATAPTR_RO(x) : NULL, count * 4), at);
    write_flat_strings(w, at, STRING_PTR_RO(levels), XLENGTH(levels));
    end(w, at);
    /* So that whoever restores it need not look at the places. */
    write_type(w, at, "factor");
    write_attributes(w, at, x, depth, &implied);
    end(w, at);
}

/* ---- lists ---- */

/* Whether the names can be keys: all there, all texts, all different. */
static int are_keys(SEXP names) {
    if (TYPEOF(names) != STRSXP || ATTRIB(names) != R_NilValue || Rf_any_duplicated(names, FALSE) != 0)
        return 0;
    for (R_xlen_t i = 0; i < XLENGTH(names); i++)
        if (!is_text(STRING_ELT(names, i)))
            return 0;
    return 1;
}

/* Whether a node of it has as many items as a table has rows. */
static int fits_rows(SEXP x, R_xlen_t rows) {
    if (!is_data(x) || x == R_NilValue)
        return 0;
    if (Rf_inherits(x, "data.frame"))
        return 0;
    if (TYPEOF(x) != VECSXP && TYPEOF(x) != STRSXP && is_grid(x) && !is_factor(x))
        return INTEGER(Rf_getAttrib(x, R_DimSymbol))[0] == rows;
    return XLENGTH(x) == rows;
}

static SEXP raw_row_names(SEXP x) {
    for (SEXP a = ATTRIB(x); a != R_NilValue; a = CDR(a))
        if (TAG(a) == R_RowNamesSymbol)
            return CAR(a);
    return R_NilValue;
}

/* The rows of a data frame that a table can hold, or -1. */
static R_xlen_t table_rows(SEXP x, int depth) {
    SEXP names = Rf_getAttrib(x, R_NamesSymbol), row_names = raw_row_names(x);
    if (!Rf_inherits(x, "data.frame") || TYPEOF(names) != STRSXP || ATTRIB(names) != R_NilValue)
        return -1;
    if (depth + 2 >= MAX_LISTS)
        return -1;
    R_xlen_t rows = Rf_xlength(row_names);
    /* R's compact form: nothing, and the number of rows, below zero when they have no names of their own. */
    if (TYPEOF(row_names) == INTSXP && rows == 2 && INTEGER(row_names)[0] == NA_INTEGER)
        rows = INTEGER(row_names)[1] == NA_INTEGER ? -1 : abs(INTEGER(row_names)[1]);
    for (R_xlen_t i = 0; i < XLENGTH(x) && rows >= 0; i++)
        if (!is_text(STRING_ELT(names, i)) || !fits_rows(VECTOR_ELT(x, i), rows))
            return -1;
    return rows;
}

static void write_elements(struct writer *w, const struct step *at, SEXP x, int depth, int with_names, int is_table) {
    SEXP names = PROTECT(Rf_getAttrib(x, R_NamesSymbol));
    for (R_xlen_t i = 0; i < XLENGTH(x); i++) {
        struct step inner = {.above = at, .index = i};
        inner.name = TYPEOF(names) == STRSXP ? label_of(STRING_ELT(names, i)) : NULL;
        if (with_names)
            write_text(w, &inner, inner.name);
        write_value(w, &inner, VECTOR_ELT(x, i), depth + 1, is_table);
    }
    UNPROTECT(1);
}

static void write_table(struct writer *w, const struct step *at, SEXP x, int depth, R_xlen_t rows) {
    SEXP class = Rf_getAttrib(x, R_ClassSymbol);
    const struct implied implied = {.names = 1, .class = XLENGTH(class) == 1, .row_names = 1};
    int attributed = has_attributes(x, &implied);
    if (attributed)
        begin_attributed(w, at);
    check_at(remanent_batch_begin_table(w->batch, (uint64_t)rows), at);
    write_elements(w, at, x, depth, 1, 1);
    end(w, at);
    if (attributed) {
        write_attributes(w, at, x, depth, &implied);
        end(w, at);
    }
}

static void write_list(struct writer *w, const struct step *at, SEXP x, int depth, int is_column) {
    R_xlen_t rows = is_column ? -1 : table_rows(x, depth);
    if (rows >= 0) {
        write_table(w, at, x, depth, rows);
        return;
    }
    struct implied implied = {.names = 1};
    /* A column has as many items as rows, which a mapping does not tell. */
    int is_mapping = !is_column && !has_attributes(x, &implied) && are_keys(Rf_getAttrib(x, R_NamesSymbol));
    implied.names = is_mapping;
    int attributed = has_attributes(x, &implied);
    if (attributed)
        begin_attributed(w, at);
    check_at(is_mapping ? remanent_batch_begin_mapping(w->batch) : remanent_batch_begin_list(w->batch), at);
    write_elements(w, at, x, depth, is_mapping, 0);
    end(w, at);
    if (attributed) {
        write_attributes(w, at, x, depth, &implied);
        end(w, at);
    }
}

/* ---- what only R can read ---- */

/* Notes a part that R serialises. All of one object go into one stream, so that what they share stays shared. */
static void write_blob(struct writer *w, const struct step *at, SEXP x) {
    SETCDR(w->blobs, Rf_cons(x, CDR(w->blobs)));
    SET_TAG(CDR(w->blobs), place_of(at));
    begin_attributed(w, at);
    check_at(remanent_batch_nothing(w->batch), at);
    check_at(remanent_batch_attribute(w->batch, "r:serialised"), at);
    check_at(remanent_batch_int(w->batch, w->blob_count++), at);
    end(w, at);
}

static void write_stream(struct writer *w, const struct step *at, SEXP x, SEXP places) {
    SEXP stream = PROTECT(call_own("serialise", Rf_list2(x, places)));
    SETCDR(w->keep, Rf_cons(stream, CDR(w->keep)));
    uint64_t bytes = (uint64_t)XLENGTH(stream), sum_bytes = sizeof(uint32_t);
    uint32_t *sum = keep_bytes(w, sizeof *sum);
    *sum = remanent_crc32c(0, RAW(stream), bytes);
    const void *beside = sum;
    check_at(remanent_batch_foreign(w->batch, "r.serialize-3", RAW(stream), bytes, &beside, &sum_bytes, 1), at);
    UNPROTECT(1);
}

/* All parts of an object that R serialises, in one stream. */
static void write_blobs(struct writer *w, const struct step *at) {
    SEXP parts = PROTECT(Rf_allocVector(VECSXP, w->blob_count));
    SEXP places = PROTECT(Rf_allocVector(STRSXP, w->blob_count));
    int i = w->blob_count;
    for (SEXP cell = CDR(w->blobs); cell != R_NilValue; cell = CDR(cell)) {
        SET_VECTOR_ELT(parts, --i, CAR(cell));
        SET_STRING_ELT(places, i, STRING_ELT(TAG(cell), 0));
    }
    write_stream(w, at, parts, places);
    UNPROTECT(2);
}

/* ---- all of them ---- */

static void write_value(struct writer *w, const struct step *at, SEXP x, int depth, int is_column) {
    if (is_foreign(x, depth)) {
        write_blob(w, at, x);
        return;
    }
    switch (TYPEOF(x)) {
    case NILSXP:
        check_at(remanent_batch_nothing(w->batch), at);
        break;
    case LGLSXP:
        write_integers(w, at, x, depth);
        break;
    case INTSXP:
        if (is_factor(x))
            write_factor(w, at, x, depth);
        else
            write_integers(w, at, x, depth);
        break;
    case REALSXP:
        write_numbers(w, at, x, depth, Rf_inherits(x, "integer64") ? I8 : F8);
        break;
    case CPLXSXP:
        write_numbers(w, at, x, depth, C16);
        break;
    case RAWSXP:
        write_numbers(w, at, x, depth, U1);
        break;
    case STRSXP:
        write_characters(w, at, x, depth);
        break;
    default:
        write_list(w, at, x, depth, is_column);
    }
}

void write_object(struct writer *w, const char *name, SEXP x) {
    const struct step at = {.name = name};
    int blobs = examine(&at, x, 0);
    check_at(remanent_batch_put(w->batch, name), &at);
    if (is_foreign(x, 0)) {
        SEXP place = PROTECT(place_of(&at));
        write_stream(w, &at, x, place);
        UNPROTECT(1);
        return;
    }
    SETCDR(w->blobs, R_NilValue);
    w->blob_count = 0;
    if (blobs)
        begin_attributed(w, &at);
    write_value(w, &at, x, 0, 0);
    if (blobs) {
        check_at(remanent_batch_attribute(w->batch, "r:serialised"), &at);
        write_blobs(w, &at);
        end(w, &at);
    }
}
