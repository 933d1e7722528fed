/* A view's nodes as R's values. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"
#include "remanent_r.h"

static SEXP read_node(struct reader *r, const struct step *at, uint32_t number, struct hints hints);

const remanent_node *node_at(const struct reader *r, uint32_t number) {
    const remanent_node *node;
    check(remanent_view_node(r->view, number, &node));
    return node;
}

const void *buffer_of(const struct reader *r, const struct step *at, const remanent_node *node, uint64_t which,
                      uint64_t *bytes) {
    const void *data;
    if (which >= node->buffer_count)
        refuse(REMANENT_CORRUPT, at, "lacks a part; restore the file from a copy");
    /* What is lost is an error here, where it would be a signal when it is read. */
    check_at(remanent_view_guard(r->view, node->buffers[which]), at);
    check_at(remanent_view_buffer(r->view, node->buffers[which], &data, bytes), at);
    return data;
}

static int is_named(const remanent_node *node, const char *name) { return node->name && strcmp(node->name, name) == 0; }

static SEXP text_of(const struct step *at, const char *text, uint64_t bytes) {
    if (bytes > INT_MAX)
        refuse(REMANENT_UNKNOWN_TYPE, at, "has a text of more than 2 GiB, which R cannot hold");
    if (memchr(text, 0, bytes))
        refuse(REMANENT_UNKNOWN_TYPE, at, "has a text with a NUL in it, which R cannot hold");
    return Rf_mkCharLenCE(text, (int)bytes, CE_UTF8);
}

/* ---- arrays ---- */

/* Whether the order in which the items lie is not R's. */
static int is_row_major(const remanent_node *node) {
    int longer_than_one = 0;
    for (uint64_t i = 0; i < node->dimensions; i++)
        longer_than_one += node->shape[i] != 1;
    return longer_than_one > 1 && node->length > 0 && !(node->flags & REMANENT_FLAG_COLUMN_MAJOR);
}

/* Copies items from row-major to column-major order. A plane of the two outermost dimensions at a time would read each
 * line once; squares keep lines in the cache and are simple. */
static void transpose(const remanent_node *node, const char *from, char *to) {
    size_t item = node->dtype->item_bytes, last = (size_t)node->shape[node->dimensions - 1];
    size_t rows = (size_t)node->length / last;
    enum { SIDE = 64 };
    if (node->dimensions == 2) {
        for (size_t r0 = 0; r0 < rows; r0 += SIDE)
            for (size_t c0 = 0; c0 < last; c0 += SIDE)
                for (size_t c = c0; c < c0 + SIDE && c < last; c++)
                    for (size_t row = r0; row < r0 + SIDE && row < rows; row++)
                        memcpy(to + (c * rows + row) * item, from + (row * last + c) * item, item);
        return;
    }
    size_t index[64] = {0}, step[64], stride = 1;
    for (uint64_t i = 0; i < node->dimensions; i++) {
        step[i] = stride;
        stride *= (size_t)node->shape[i];
    }
    size_t place = 0;
    for (uint64_t n = 0; n < node->length; n++) {
        memcpy(to + place * item, from + n * item, item);
        for (uint64_t i = node->dimensions; i-- > 0;) {
            place += step[i];
            if (++index[i] < node->shape[i])
                break;
            place -= step[i] * (size_t)node->shape[i];
            index[i] = 0;
        }
    }
}

static void set_dim(const struct step *at, SEXP x, const remanent_node *node) {
    if (node->dimensions < 2 || Rf_inherits(x, "data.frame"))
        return;
    SEXP dim = PROTECT(Rf_allocVector(INTSXP, (R_xlen_t)node->dimensions));
    for (uint64_t i = 0; i < node->dimensions; i++) {
        if (node->shape[i] > INT_MAX)
            refuse(REMANENT_UNKNOWN_TYPE, at, "has a dimension longer than 2^31 - 1, which R cannot have");
        INTEGER(dim)[i] = (int)node->shape[i];
    }
    Rf_setAttrib(x, R_DimSymbol, dim);
    UNPROTECT(1);
}

/* Loads the package bit64, if it is there: without its methods R takes such integers for doubles. Asked when the first of them
 * are there, for to look for a package takes far longer than to restore. */
static int has_bit64(struct reader *r) {
    if (r->has_bit64 == NA_LOGICAL)
        r->has_bit64 = Rf_asLogical(call_own("has_bit64", R_NilValue)) == TRUE;
    return r->has_bit64;
}

static int wants_int64(struct reader *r) { return r->is_int64 != NA_LOGICAL ? r->is_int64 : has_bit64(r); }

/* Whether items of a type are, or may hold, integers of 64 bits. */
static int may_be_int64(const remanent_dtype *dtype) {
    int is_integer = dtype->type_class == REMANENT_CLASS_INT || dtype->type_class == REMANENT_CLASS_UINT;
    return (is_integer && dtype->item_bytes == 8) || dtype->type_class >= REMANENT_CLASS_STRUCT;
}

static SEXP read_array(struct reader *r, const struct step *at, const remanent_node *node, const struct hints *hints) {
    if (node->length > R_XLEN_T_MAX)
        refuse(REMANENT_UNKNOWN_TYPE, at, "has more items than a vector of R");
    R_xlen_t count = (R_xlen_t)node->length;
    int is_int64 = hints->is_r || (may_be_int64(node->dtype) && wants_int64(r));
    SEXPTYPE type = direct_type(node->dtype, is_int64);
    if (type == RAWSXP && hints->in_nullable)
        type = NILSXP;
    if (type == INTSXP && hints->is_logical)
        type = LGLSXP;
    int turned = is_row_major(node);
    SEXP made;
    if (type != NILSXP && !turned) {
        enum restore_as as = hints->in_nullable ? AS_DRAM : r->as;
        made = PROTECT(vector_of(r->view, node->buffers[0], type, count, as, hints->known));
    } else {
        uint64_t bytes = 0;
        const char *data = count ? buffer_of(r, at, node, 0, &bytes) : NULL;
        if (type != NILSXP) {
            made = PROTECT(Rf_allocVector(type, count));
            transpose(node, data, DATAPTR(made));
        } else {
            SEXP copy = PROTECT(turned ? Rf_allocVector(RAWSXP, (R_xlen_t)bytes) : R_NilValue);
            if (turned) {
                transpose(node, data, (char *)RAW(copy));
                data = (const char *)RAW(copy);
            }
            made = convert_items(at, node->dtype, data, (size_t)node->dtype->item_bytes, count, is_int64,
                                 hints->in_nullable);
            UNPROTECT(1);
            PROTECT(made);
        }
    }
    /* R's own integers of 64 bits bring their class with them. */
    if (type == REALSXP && node->dtype->type_class == REMANENT_CLASS_INT && !hints->is_r)
        set_class(made, "integer64", NULL);
    set_dim(at, made, node);
    UNPROTECT(1);
    return made;
}

/* ---- what may be missing ---- */

static void set_missing(const struct step *at, SEXP x, R_xlen_t i) {
    switch (TYPEOF(x)) {
    case LGLSXP:
        LOGICAL(x)[i] = NA_LOGICAL;
        break;
    case INTSXP:
        INTEGER(x)[i] = NA_INTEGER;
        break;
    case REALSXP:
        if (Rf_inherits(x, "integer64"))
            memcpy(REAL(x) + i, &(int64_t){INT64_MIN}, 8);
        else
            REAL(x)[i] = NA_REAL;
        break;
    case CPLXSXP:
        COMPLEX(x)[i] = (Rcomplex){.r = NA_REAL, .i = NA_REAL};
        break;
    case STRSXP:
        SET_STRING_ELT(x, i, NA_STRING);
        break;
    case VECSXP:
        SET_VECTOR_ELT(x, i, R_NilValue);
        break;
    default:
        refuse(REMANENT_UNKNOWN_TYPE, at, "has missing items of a type that has no NA");
    }
}

/* The place in R's order of an item that lies elsewhere in the store's. */
static R_xlen_t turned_place(const remanent_node *node, uint64_t lies_at) {
    R_xlen_t place = 0;
    uint64_t rest = lies_at, stride = node->length;
    for (uint64_t i = node->dimensions; i-- > 0;) {
        stride /= node->shape[i];
        place += (R_xlen_t)(rest % node->shape[i] * stride);
        rest /= node->shape[i];
    }
    return place;
}

static SEXP read_nullable(struct reader *r, const struct step *at, const remanent_node *node, struct hints hints) {
    const remanent_node *items = node_at(r, node->first_child);
    hints.in_nullable = !hints.na_in_place;
    SEXP made = PROTECT(read_node(r, at, node->first_child, hints));
    if (Rf_inherits(made, "data.frame"))
        refuse(REMANENT_UNKNOWN_TYPE, at, "has missing structures, which a data frame cannot hold");
    if (!hints.na_in_place) {
        uint64_t bytes;
        const uint8_t *bits = buffer_of(r, at, node, 0, &bytes);
        int turned = items->kind == REMANENT_NODE_ARRAY && is_row_major(items);
        for (R_xlen_t i = 0; i < XLENGTH(made); i++)
            if (i / 8 < (R_xlen_t)bytes && !(bits[i / 8] >> i % 8 & 1))
                set_missing(at, made, turned ? turned_place(items, (uint64_t)i) : i);
    }
    UNPROTECT(1);
    return made;
}

/* ---- dictionaries ---- */

/* Whether a dictionary is a factor as it is. One that this package has written need not be looked at item by item. */
static int is_whole(const struct hints *hints, const remanent_node *node, SEXP places, SEXP values) {
    if (TYPEOF(places) != INTSXP || TYPEOF(values) != STRSXP || node->integer != 1 || ATTRIB(values) != R_NilValue)
        return 0;
    for (R_xlen_t i = 0; i < XLENGTH(values); i++)
        if (STRING_ELT(values, i) == NA_STRING)
            return 0;
    return Rf_any_duplicated(values, FALSE) == 0 && (hints->is_factor || fits_levels(places, XLENGTH(values)));
}

static SEXP read_dictionary(struct reader *r, const struct step *at, const remanent_node *node, struct hints hints) {
    if (hints.is_character)
        return read_character_dictionary(r, at, node, &hints);
    const struct hints plain = {.is_r = hints.is_r};
    SEXP values = PROTECT(read_node(r, at, node->first_child + 1, plain));
    SEXP places = PROTECT(read_node(r, at, node->first_child, plain));
    int is_ordered = (node->flags & REMANENT_FLAG_ORDERED) != 0;
    if (!is_whole(&hints, node, places, values)) {
        SEXP first = PROTECT(Rf_ScalarInteger((int)node->integer));
        SEXP ordered = PROTECT(Rf_ScalarLogical(is_ordered));
        SEXP made = call_own("factor_of", Rf_list4(places, first, values, ordered));
        UNPROTECT(4);
        return made;
    }
    Rf_setAttrib(places, R_LevelsSymbol, values);
    set_class(places, is_ordered ? "ordered" : "factor", is_ordered ? "factor" : NULL);
    UNPROTECT(2);
    return places;
}

/* ---- containers ---- */

/* The name that a key gives an element. */
static SEXP key_of(struct reader *r, const struct step *at, uint32_t number) {
    const remanent_node *key = node_at(r, number);
    char made[64];
    switch (key->kind) {
    case REMANENT_NODE_TEXT:
        return text_of(at, key->text, key->text_bytes);
    case REMANENT_NODE_NOTHING:
        return NA_STRING;
    case REMANENT_NODE_BOOL:
        return Rf_mkChar(key->integer ? "TRUE" : "FALSE");
    case REMANENT_NODE_INT:
        snprintf(made, sizeof made, "%lld", (long long)key->integer);
        return Rf_mkChar(made);
    case REMANENT_NODE_FLOAT:
        snprintf(made, sizeof made, "%.15g", key->real);
        return Rf_mkChar(made);
    default: {
        SEXP value = PROTECT(read_node(r, at, number, (struct hints){0}));
        SEXP text = PROTECT(call_own("key_of", Rf_list1(value)));
        SEXP found = STRING_ELT(text, 0);
        UNPROTECT(2);
        return found;
    }
    }
}

static SEXP read_list(struct reader *r, const struct step *at, const remanent_node *node) {
    SEXP made = PROTECT(Rf_allocVector(VECSXP, node->child_count));
    for (uint32_t i = 0; i < node->child_count; i++) {
        struct step inner = {.above = at, .index = i};
        SET_VECTOR_ELT(made, i, read_node(r, &inner, node->first_child + i, (struct hints){0}));
    }
    UNPROTECT(1);
    return made;
}

static SEXP read_pairs(struct reader *r, const struct step *at, const remanent_node *node) {
    uint32_t count = node->child_count / 2;
    SEXP made = PROTECT(Rf_allocVector(VECSXP, count));
    SEXP names = PROTECT(Rf_allocVector(STRSXP, count));
    for (uint32_t i = 0; i < count; i++) {
        SET_STRING_ELT(names, i, key_of(r, at, node->first_child + 2 * i));
        struct step inner = {.above = at, .name = CHAR(STRING_ELT(names, i)), .index = i};
        SET_VECTOR_ELT(made, i, read_node(r, &inner, node->first_child + 2 * i + 1, (struct hints){0}));
    }
    Rf_setAttrib(made, R_NamesSymbol, names);
    UNPROTECT(2);
    return made;
}

static SEXP read_table(struct reader *r, const struct step *at, const remanent_node *node) {
    SEXP made = PROTECT(read_pairs(r, at, node));
    if (node->length > INT_MAX)
        refuse(REMANENT_UNKNOWN_TYPE, at, "has more rows than a data frame can");
    SEXP rows = PROTECT(Rf_allocVector(INTSXP, 2));
    INTEGER(rows)[0] = NA_INTEGER;
    INTEGER(rows)[1] = -(int)node->length;
    Rf_setAttrib(made, R_RowNamesSymbol, rows);
    set_class(made, "data.frame", NULL);
    UNPROTECT(2);
    return made;
}

/* ---- leaves ---- */

static SEXP read_int(struct reader *r, const struct step *at, int64_t value) {
    if (value > INT_MIN && value <= INT_MAX)
        return Rf_ScalarInteger((int)value);
    if (value >= -9007199254740992 && value <= 9007199254740992)
        return Rf_ScalarReal((double)value);
    if (!wants_int64(r))
        refuse(REMANENT_UNKNOWN_TYPE, at,
               "is an integer beyond 2^53, which a double cannot hold; ask for int64 = \"integer64\"");
    SEXP made = PROTECT(Rf_allocVector(REALSXP, 1));
    memcpy(REAL(made), &value, 8);
    set_class(made, "integer64", NULL);
    UNPROTECT(1);
    return made;
}

static SEXP read_raw(struct reader *r, const remanent_node *node) {
    if (node->buffer_count)
        return vector_of(r->view, node->buffers[0], RAWSXP, (R_xlen_t)node->text_bytes, r->as,
                         (struct known){0, UNKNOWN_SORTEDNESS});
    SEXP made = Rf_allocVector(RAWSXP, (R_xlen_t)node->text_bytes);
    memcpy(RAW(made), node->text, (size_t)node->text_bytes);
    return made;
}

static SEXP read_foreign(struct reader *r, const struct step *at, const remanent_node *node) {
    if (strcmp(node->text, "r.serialize-3") != 0) {
        size_t room = (size_t)node->text_bytes + 80;
        char *reason = R_alloc(room, 1);
        snprintf(reason, room, "is in the form \"%s\", which only another language can read", node->text);
        refuse(REMANENT_UNKNOWN_TYPE, at, reason);
    }
    uint64_t bytes, sum_bytes;
    const void *data = buffer_of(r, at, node, 0, &bytes);
    /* R may take a damaged stream for a good one, and crash. */
    if (node->buffer_count > 1) {
        const void *beside = buffer_of(r, at, node, 1, &sum_bytes);
        uint32_t sum = remanent_crc32c(0, data, bytes);
        if (sum_bytes != sizeof sum || memcmp(beside, &sum, sizeof sum) != 0)
            refuse(REMANENT_CORRUPT, at, "is damaged, its serialisation fails its check; restore the file from a copy");
    }
    SEXP stream = PROTECT(Rf_allocVector(RAWSXP, (R_xlen_t)bytes));
    memcpy(RAW(stream), data, (size_t)bytes);
    SEXP place = PROTECT(place_of(at));
    SEXP is_whole = PROTECT(Rf_ScalarLogical(node->buffer_count > 1));
    SEXP made = call_own("unserialise", Rf_list3(stream, place, is_whole));
    UNPROTECT(3);
    return made;
}

/* ---- attributes ---- */

/* What this package's own marks tell of a value. */
static struct hints hints_of(struct reader *r, const struct step *at, const remanent_node *node) {
    struct hints hints = {.is_r = 1, .known = {0, UNKNOWN_SORTEDNESS}};
    for (uint32_t i = 1; i < node->child_count; i++) {
        const remanent_node *mark = node_at(r, node->first_child + i);
        if (is_named(mark, "type") && mark->kind == REMANENT_NODE_TEXT) {
            hints.is_logical = mark->text_bytes == 7 && memcmp(mark->text, "logical", 7) == 0;
            hints.is_character = mark->text_bytes == 9 && memcmp(mark->text, "character", 9) == 0;
            hints.is_factor = mark->text_bytes == 6 && memcmp(mark->text, "factor", 6) == 0;
        } else if (is_named(mark, "r:na")) {
            hints.na_in_place = 1;
        } else if (is_named(mark, "r:no_na")) {
            hints.known.no_na = 1;
        } else if (is_named(mark, "r:sorted")) {
            hints.known.sortedness = (int)mark->integer;
        } else if (is_named(mark, "r:encoding") && mark->kind == REMANENT_NODE_ARRAY) {
            hints.encoding = mark;
        } else if (is_named(mark, "r:serialised") && mark->kind == REMANENT_NODE_FOREIGN) {
            r->serialised = read_foreign(r, at, mark);
            R_PreserveObject(r->serialised);
        }
    }
    return hints;
}

static int is_own_mark(const char *name) {
    return strcmp(name, "type") == 0 || (strncmp(name, "r:", 2) == 0 && strcmp(name, "r:type") != 0 &&
                                         strncmp(name, "r:r:", 4) != 0);
}

static SEXP read_serialised(const struct reader *r, const struct step *at, const remanent_node *node) {
    const remanent_node *mark = node->child_count > 1 ? node_at(r, node->first_child + 1) : NULL;
    if (!mark || !is_named(mark, "r:serialised") || mark->kind != REMANENT_NODE_INT)
        return NULL;
    if (TYPEOF(r->serialised) != VECSXP || mark->integer < 0 || mark->integer >= XLENGTH(r->serialised))
        refuse(REMANENT_CORRUPT, at, "lacks what R has serialised; restore the file from a copy");
    return VECTOR_ELT(r->serialised, mark->integer);
}

static SEXP read_of_r(struct reader *r, const struct step *at, const remanent_node *node) {
    SEXP whole = read_serialised(r, at, node);
    if (whole)
        return whole;
    struct hints hints = hints_of(r, at, node);
    SEXP made = PROTECT(read_node(r, at, node->first_child, hints));
    for (uint32_t i = 1; i < node->child_count; i++) {
        const remanent_node *attribute = node_at(r, node->first_child + i);
        if (!attribute->name || is_own_mark(attribute->name))
            continue;
        const char *name = attribute->name;
        if (strncmp(name, "r:", 2) == 0)
            name += 2;
        struct step inner = {.above = at, .name = name, .is_attribute = 1};
        SEXP value = PROTECT(read_node(r, &inner, node->first_child + i, (struct hints){0}));
        SEXP symbol = Rf_installTrChar(PROTECT(Rf_mkCharCE(name, CE_UTF8)));
        Rf_setAttrib(made, symbol, value);
        UNPROTECT(2);
    }
    if (TYPEOF(made) == REALSXP && Rf_inherits(made, "integer64"))
        has_bit64(r);
    if (Rf_inherits(made, "data.table")) {
        /* What data.table finds in a table that comes from a file, and then makes anew without a warning. */
        SEXP pointer = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, R_NilValue));
        Rf_setAttrib(made, Rf_install(".internal.selfref"), pointer);
        UNPROTECT(1);
    }
    UNPROTECT(1);
    return made;
}

/* A value with what a library of another language keeps beside it: this package's R code knows those. */
static SEXP read_of_others(struct reader *r, const struct step *at, const remanent_node *node, struct hints hints) {
    SEXP value = PROTECT(read_node(r, at, node->first_child, hints));
    uint32_t count = node->child_count - 1;
    SEXP attributes = PROTECT(Rf_allocVector(VECSXP, count));
    SEXP names = PROTECT(Rf_allocVector(STRSXP, count));
    for (uint32_t i = 0; i < count; i++) {
        const remanent_node *attribute = node_at(r, node->first_child + 1 + i);
        struct step inner = {.above = at, .name = attribute->name, .is_attribute = 1};
        SET_STRING_ELT(names, i, Rf_mkCharCE(attribute->name, CE_UTF8));
        /* What cannot be read beside a value must not hide the value. */
        int is_foreign = attribute->kind == REMANENT_NODE_FOREIGN;
        SET_VECTOR_ELT(attributes, i,
                       is_foreign ? R_NilValue : read_node(r, &inner, node->first_child + 1 + i, (struct hints){0}));
    }
    Rf_setAttrib(attributes, R_NamesSymbol, names);
    SEXP owner = PROTECT(Rf_mkString(node->text));
    /* Which of the shapes below tells how the items lie. */
    const remanent_node *inner = node_at(r, node->first_child);
    if (inner->kind == REMANENT_NODE_NULLABLE)
        inner = node_at(r, inner->first_child);
    SEXP by_rows = PROTECT(Rf_ScalarLogical(!(inner->flags & REMANENT_FLAG_COLUMN_MAJOR)));
    SEXP made = call_own("rebuild", Rf_list4(owner, value, attributes, by_rows));
    UNPROTECT(5);
    return made;
}

/* ---- all of them ---- */

static SEXP read_node(struct reader *r, const struct step *at, uint32_t number, struct hints hints) {
    const remanent_node *node = node_at(r, number);
    switch (node->kind) {
    case REMANENT_NODE_NOTHING:
        return R_NilValue;
    case REMANENT_NODE_BOOL:
        return Rf_ScalarLogical(node->integer != 0);
    case REMANENT_NODE_INT:
        return read_int(r, at, node->integer);
    case REMANENT_NODE_LARGE_INT:
        refuse(REMANENT_UNKNOWN_TYPE, at, "is an integer of more than 64 bits, which R has no type for");
    case REMANENT_NODE_FLOAT:
        return Rf_ScalarReal(node->real);
    case REMANENT_NODE_COMPLEX:
        return Rf_ScalarComplex((Rcomplex){.r = node->real, .i = node->imaginary});
    case REMANENT_NODE_TEXT:
        if (node->buffer_count)
            check_at(remanent_view_guard(r->view, node->buffers[0]), at);
        return Rf_ScalarString(text_of(at, node->text, node->text_bytes));
    case REMANENT_NODE_BYTES:
        return read_raw(r, node);
    case REMANENT_NODE_ARRAY:
        return read_array(r, at, node, &hints);
    case REMANENT_NODE_NULLABLE:
        return read_nullable(r, at, node, hints);
    case REMANENT_NODE_STRINGS:
        return read_strings(r, at, node, &hints);
    case REMANENT_NODE_DICTIONARY:
        return read_dictionary(r, at, node, hints);
    case REMANENT_NODE_LIST:
    case REMANENT_NODE_TUPLE:
        return read_list(r, at, node);
    case REMANENT_NODE_MAPPING:
        return read_pairs(r, at, node);
    case REMANENT_NODE_TABLE:
        return read_table(r, at, node);
    case REMANENT_NODE_ATTRIBUTED:
        return strcmp(node->text, "r") == 0 ? read_of_r(r, at, node) : read_of_others(r, at, node, hints);
    case REMANENT_NODE_FOREIGN:
        return read_foreign(r, at, node);
    default:
        refuse(REMANENT_UNKNOWN_TYPE, at, "has a part that this version cannot read");
    }
}

SEXP read_object(struct reader *r, const struct step *at) { return read_node(r, at, 0, (struct hints){0}); }
