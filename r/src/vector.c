/* Vectors over a pool's memory.
 *
 * Each large vector is a private mapping of its own, an ALTREP vector from when it is first looked into: the pages are the
 * pool's until they are written to, and a page that is written to is copied by the kernel. So the address is the same for
 * reading and for writing, what is mapped is never copied to give out a pointer, and what is written never reaches the pool. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"
#include "remanent_r.h"

/* After R's own headers, which they need. */
#include <R_ext/Altrep.h>
#include <R_ext/Rallocators.h>

/* What an ALTREP vector has: its items, wherever they lie. */
struct items {
    /* NULL until they are asked for. */
    void *data;
    R_xlen_t length;
    /* NULL where they had to be copied. */
    remanent_mapping *mapping;
    struct known known;
};

enum counter { MAPPED, COPIED, MATERIALISED, DUPLICATED, POINTERS, WRITABLE_POINTERS, REGIONS, SUBSETS, COUNTERS };

static double counters[COUNTERS];

static R_altrep_class_t real_class, integer_class, logical_class, complex_class, raw_class;

size_t item_bytes(SEXPTYPE type) {
    switch (type) {
    case REALSXP:
        return 8;
    case CPLXSXP:
        return 16;
    case RAWSXP:
        return 1;
    default:
        return 4;
    }
}

/* Where R has a vector's items, from where its allocation starts, its own record of the allocator included. */
static size_t header_bytes;

static void measure_header(void) {
    SEXP probe = PROTECT(Rf_allocVector(REALSXP, 1000));
    header_bytes = (size_t)((char *)REAL(probe) - (char *)probe) + sizeof(R_allocator_t);
    UNPROTECT(1);
}

/* Vectors that live, and when R is to look for those that nobody has any more: R does not know what their mappings cost. */
static double live, collect_at = 8192;

static void make_room_for_mapping(void) {
    if (live < collect_at)
        return;
    R_gc();
    /* Who keeps that many is not to wait for a collection at each. */
    collect_at = live * 2 > 8192 ? live * 2 : 8192;
}

/* How many ranges of memory this process has mapped for vectors, and how many it may have, with some left for others: when a
 * process has as many as the kernel allows, it can allocate nothing any more. */
static double ranges, most_ranges;

static void count_most_ranges(void) {
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    double most = 65530;
    if (file) {
        if (fscanf(file, "%lf", &most) != 1)
            most = 65530;
        fclose(file);
    }
    most_ranges = most * 0.75;
}

/* One for the items; a native vector has one more for what is before them, and parts what was one. */
enum { LATE_RANGES = 1, NATIVE_RANGES = 3 };

static SEXP copied(remanent_view *view, uint32_t buffer, SEXPTYPE type, R_xlen_t length) {
    SEXP made = PROTECT(Rf_allocVector(type, length));
    if (length > 0)
        check(remanent_view_copy(view, buffer, DATAPTR(made), (uint64_t)length * item_bytes(type)));
    counters[COPIED]++;
    UNPROTECT(1);
    return made;
}

static SEXP materialised(remanent_view *view, uint32_t buffer, SEXPTYPE type, R_xlen_t length) {
    SEXP made = copied(view, buffer, type, length);
    counters[MATERIALISED]++;
    return made;
}

/* Whether there is a mapping; 0 where the process can have no more. */
static int is_mapped(int code) {
    if (code != REMANENT_OK && remanent_error_errno() != ENOMEM)
        check(code);
    return code == REMANENT_OK;
}

/* ---- what an ALTREP vector has ---- */

/* The bytes that R keeps for it, which are given back when R sweeps the vector away: a finalizer would be too early, for R
 * runs those of everything that one collection finds in any order, and another one may still look at the vector, or keep
 * it. */
static struct items *items_of(SEXP x) { return (struct items *)RAW(R_altrep_data1(x)); }

static void *allocate(R_allocator_t *allocator, size_t bytes) {
    (void)allocator;
    return calloc(1, bytes);
}

static void release_items(R_allocator_t *allocator, void *memory) {
    (void)allocator;
    struct items *items = (struct items *)((char *)memory + header_bytes);
    live--;
    if (items->data && items->mapping)
        ranges -= LATE_RANGES;
    remanent_mapping_release(items->mapping);
    free(memory);
}

/* Maps what nobody has looked at yet: what is restored and not used costs no mapping. */
static void find(SEXP x) {
    struct items *items = items_of(x);
    if (ranges + LATE_RANGES <= most_ranges && is_mapped(remanent_mapping_data(items->mapping, &items->data))) {
        counters[MAPPED]++;
        ranges += LATE_RANGES;
        return;
    }
    PROTECT(x);
    SEXP copy = PROTECT(Rf_allocVector(TYPEOF(x), items->length));
    /* A finalizer that ran for the memory may have looked at the same vector. */
    if (!items->data) {
        check(remanent_mapping_copy(items->mapping, DATAPTR(copy), (uint64_t)items->length * item_bytes(TYPEOF(x))));
        counters[COPIED]++;
        counters[MATERIALISED]++;
        R_set_altrep_data2(x, copy);
        items->data = DATAPTR(copy);
        remanent_mapping_release(items->mapping);
        items->mapping = NULL;
    }
    UNPROTECT(2);
}

static void *data_of(SEXP x) {
    struct items *items = items_of(x);
    if (!items->data)
        find(x);
    return items->data;
}

/* ---- methods of all classes ---- */

static R_xlen_t length_of(SEXP x) { return items_of(x)->length; }

static void *pointer_to(SEXP x, Rboolean writable) {
    if (writable) {
        counters[WRITABLE_POINTERS]++;
        /* Whoever may write may break what was known. */
        items_of(x)->known = (struct known){0, UNKNOWN_SORTEDNESS};
    } else {
        counters[POINTERS]++;
    }
    return data_of(x);
}

static const void *pointer_or_null(SEXP x) {
    counters[POINTERS]++;
    return data_of(x);
}

/* R makes the copy itself, by value. */
static SEXP duplicate(SEXP x, Rboolean deep) {
    (void)x, (void)deep;
    counters[DUPLICATED]++;
    return NULL;
}

static Rboolean inspect(SEXP x, int pre, int deep, int pvec, void (*inspect_subtree)(SEXP, int, int, int)) {
    (void)pre, (void)deep, (void)pvec, (void)inspect_subtree;
    Rprintf(" remanent mapping (len=%.0f, data=%p)\n", (double)length_of(x), items_of(x)->data);
    return TRUE;
}

/* By value: a file that is read elsewhere, or a worker on another machine, has no such pool. */
static SEXP serialized_state(SEXP x) {
    (void)x;
    return NULL;
}

#define SUBSET(type, missing)                                                                                          \
    do {                                                                                                               \
        const type *from = data_of(x);                                                                    \
        type *to = DATAPTR(made);                                                                                      \
        const type none = missing;                                                                                     \
        if (TYPEOF(places) == INTSXP) {                                                                                \
            const int *at = INTEGER_RO(places);                                                                        \
            for (R_xlen_t i = 0; i < count; i++)                                                                       \
                to[i] = at[i] > 0 && at[i] <= length ? from[at[i] - 1] : none;                                         \
        } else {                                                                                                       \
            const double *at = REAL_RO(places);                                                                        \
            for (R_xlen_t i = 0; i < count; i++)                                                                       \
                to[i] = at[i] >= 1 && at[i] < (double)length + 1 ? from[(R_xlen_t)at[i] - 1] : none;                   \
        }                                                                                                              \
    } while (0)

static SEXP extract_subset(SEXP x, SEXP places, SEXP call) {
    (void)call;
    if (TYPEOF(places) != INTSXP && TYPEOF(places) != REALSXP)
        return NULL;
    counters[SUBSETS]++;
    R_xlen_t count = XLENGTH(places), length = length_of(x);
    SEXP made = PROTECT(Rf_allocVector(TYPEOF(x), count));
    switch (TYPEOF(x)) {
    case REALSXP:
        SUBSET(double, NA_REAL);
        break;
    case CPLXSXP: {
        SUBSET(Rcomplex, ((Rcomplex){.r = NA_REAL, .i = NA_REAL}));
        break;
    }
    case RAWSXP:
        SUBSET(Rbyte, 0);
        break;
    default:
        SUBSET(int, NA_INTEGER);
    }
    UNPROTECT(1);
    return made;
}

/* ---- methods of each class ---- */

#define ITEMS_OF(name, type)                                                                                           \
    /* Not counted: loops ask for millions. */                                                                         \
    static type name##_item(SEXP x, R_xlen_t i) { return ((const type *)data_of(x))[i]; }                 \
    static R_xlen_t name##_region(SEXP x, R_xlen_t start, R_xlen_t count, type *to) {                                  \
        counters[REGIONS]++;                                                                                           \
        R_xlen_t length = length_of(x), there = length - start < count ? length - start : count;                       \
        memcpy(to, (const type *)data_of(x) + start, (size_t)there * sizeof(type));                       \
        return there;                                                                                                  \
    }

ITEMS_OF(real, double)
ITEMS_OF(integer, int)
ITEMS_OF(complex, Rcomplex)
ITEMS_OF(raw, Rbyte)

/* The least and the greatest item. R's own loops are left to settle what is NaN, and vectors without items. */
#define EXTREMES_OF(name, type, is_none, make)                                                                         \
    static SEXP name##_extreme(SEXP x, int wants_greatest) {                                                           \
        const type *items = data_of(x);                                                                   \
        R_xlen_t length = length_of(x);                                                                                \
        type least = items[0], greatest = items[0];                                                                    \
        int none = 0;                                                                                                  \
        for (R_xlen_t i = 0; i < length; i++) {                                                                        \
            none |= is_none(items[i]);                                                                                 \
            least = items[i] < least ? items[i] : least;                                                               \
            greatest = items[i] > greatest ? items[i] : greatest;                                                      \
        }                                                                                                              \
        return none ? NULL : make(wants_greatest ? greatest : least);                                                  \
    }                                                                                                                  \
    static SEXP name##_min(SEXP x, Rboolean narm) {                                                                    \
        (void)narm;                                                                                                    \
        return name##_extreme(x, 0);                                                                                   \
    }                                                                                                                  \
    static SEXP name##_max(SEXP x, Rboolean narm) {                                                                    \
        (void)narm;                                                                                                    \
        return name##_extreme(x, 1);                                                                                   \
    }

#define IS_NAN(item) ((item) != (item))
#define IS_NA(item) ((item) == NA_INTEGER)
EXTREMES_OF(real, double, IS_NAN, Rf_ScalarReal)
EXTREMES_OF(integer, int, IS_NA, Rf_ScalarInteger)

static int no_na(SEXP x) { return items_of(x)->known.no_na; }
static int is_sorted(SEXP x) { return items_of(x)->known.sortedness; }

static void add_methods(R_altrep_class_t class) {
    R_set_altrep_Length_method(class, length_of);
    R_set_altrep_Duplicate_method(class, duplicate);
    R_set_altrep_Inspect_method(class, inspect);
    R_set_altrep_Serialized_state_method(class, serialized_state);
    R_set_altvec_Dataptr_method(class, pointer_to);
    R_set_altvec_Dataptr_or_null_method(class, pointer_or_null);
    R_set_altvec_Extract_subset_method(class, extract_subset);
}

void make_classes(DllInfo *dll) {
    measure_header();
    count_most_ranges();
    real_class = R_make_altreal_class("remanent_real", "remanent", dll);
    integer_class = R_make_altinteger_class("remanent_integer", "remanent", dll);
    logical_class = R_make_altlogical_class("remanent_logical", "remanent", dll);
    complex_class = R_make_altcomplex_class("remanent_complex", "remanent", dll);
    raw_class = R_make_altraw_class("remanent_raw", "remanent", dll);
    add_methods(real_class);
    add_methods(integer_class);
    add_methods(logical_class);
    add_methods(complex_class);
    add_methods(raw_class);
    R_set_altreal_Min_method(real_class, real_min);
    R_set_altreal_Max_method(real_class, real_max);
    R_set_altinteger_Min_method(integer_class, integer_min);
    R_set_altinteger_Max_method(integer_class, integer_max);
    R_set_altreal_Elt_method(real_class, real_item);
    R_set_altreal_Get_region_method(real_class, real_region);
    R_set_altreal_No_NA_method(real_class, no_na);
    R_set_altreal_Is_sorted_method(real_class, is_sorted);
    R_set_altinteger_Elt_method(integer_class, integer_item);
    R_set_altinteger_Get_region_method(integer_class, integer_region);
    R_set_altinteger_No_NA_method(integer_class, no_na);
    R_set_altinteger_Is_sorted_method(integer_class, is_sorted);
    R_set_altlogical_Elt_method(logical_class, integer_item);
    R_set_altlogical_Get_region_method(logical_class, integer_region);
    R_set_altlogical_No_NA_method(logical_class, no_na);
    R_set_altcomplex_Elt_method(complex_class, complex_item);
    R_set_altcomplex_Get_region_method(complex_class, complex_region);
    R_set_altraw_Elt_method(raw_class, raw_item);
    R_set_altraw_Get_region_method(raw_class, raw_region);
}

static R_altrep_class_t class_of(SEXPTYPE type) {
    switch (type) {
    case REALSXP:
        return real_class;
    case INTSXP:
        return integer_class;
    case LGLSXP:
        return logical_class;
    case CPLXSXP:
        return complex_class;
    default:
        return raw_class;
    }
}

/* ---- vectors of R's own kind, whose data are the mapping ---- */

/* A vector that is being made, and then what its allocator gives back. */
struct native {
    remanent_mapping *mapping;
    void *data;
    SEXPTYPE type;
    R_xlen_t length;
    /* There is a vector that gives it back. */
    int is_taken;
};

static void release_native(struct native *native) {
    live--;
    ranges -= NATIVE_RANGES;
    remanent_mapping_release(native->mapping);
    free(native);
}

static void *take_mapping(R_allocator_t *allocator, size_t bytes) {
    (void)bytes;
    struct native *native = allocator->data;
    native->is_taken = 1;
    return (char *)native->data - header_bytes;
}

static void release_mapping(R_allocator_t *allocator, void *memory) {
    (void)memory;
    /* The allocator itself lies in the mapping that goes. */
    release_native(allocator->data);
}

/* A size that R gives its allocator for every type, and that is too small to start a collection. */
#define ANNOUNCED_BYTES 4096

/* R would make room in its own heap for all of the items, though none of them lies there: collect first, then let as much
 * garbage gather as the vector is large, or fail where the heap has a limit. So it is told of a few, and of the others when
 * the vector is there. R does not count vectors with an allocator of their own after that. */
static SEXP native_vector(void *data) {
    struct native *native = data;
    R_allocator_t allocator = {take_mapping, release_mapping, NULL, native};
    SEXP made = Rf_allocVector3(native->type, ANNOUNCED_BYTES / item_bytes(native->type), &allocator);
    if (DATAPTR(made) != native->data)
        Rf_error("this version of R lays vectors out in a way that as = \"native\" does not know");
    SETLENGTH(made, native->length);
    return made;
}

/* When R has left by a jump before there was a vector that gives the mapping back. */
static void release_without_vector(void *data) {
    struct native *native = data;
    if (!native->is_taken)
        release_native(native);
}

/* ---- making them ---- */

static SEXP mapped_native(remanent_view *view, uint32_t buffer, SEXPTYPE type, R_xlen_t length) {
    if (ranges + NATIVE_RANGES > most_ranges)
        return materialised(view, buffer, type, length);
    struct native *native = malloc(sizeof *native);
    if (!native)
        Rf_error("there is no memory for a vector's description");
    *native = (struct native){.type = type, .length = length};
    int code = remanent_view_private(view, buffer, header_bytes, &native->mapping, &native->data);
    if (!native->mapping) {
        free(native);
        if (code != REMANENT_UNSUPPORTED)
            (void)is_mapped(code);
        return materialised(view, buffer, type, length);
    }
    counters[MAPPED]++;
    live++;
    ranges += NATIVE_RANGES;
    void *data = native;
    return R_ExecWithCleanup(native_vector, data, release_without_vector, data);
}

static SEXP mapped_when_used(remanent_view *view, uint32_t buffer, SEXPTYPE type, R_xlen_t length, struct known known) {
    R_allocator_t allocator = {allocate, release_items, NULL, NULL};
    SEXP bytes = PROTECT(Rf_allocVector3(RAWSXP, sizeof(struct items), &allocator));
    live++;
    struct items *items = (struct items *)RAW(bytes);
    *items = (struct items){.length = length, .known = known};
    int code = remanent_view_private_late(view, buffer, &items->mapping);
    SEXP made;
    if (items->mapping) {
        made = R_new_altrep(class_of(type), bytes, R_NilValue);
    } else {
        if (code != REMANENT_UNSUPPORTED)
            (void)is_mapped(code);
        made = materialised(view, buffer, type, length);
    }
    UNPROTECT(1);
    return made;
}

/* Small buffers share their pages with others, and a device-DAX device has no private mappings: these are copied at once, so
 * that what is lost is an error of the restore. */
SEXP vector_of(remanent_view *view, uint32_t buffer, SEXPTYPE type, R_xlen_t length, enum restore_as as,
               struct known known) {
    if (as == AS_DRAM || (uint64_t)length * item_bytes(type) < SMALL_BYTES)
        return copied(view, buffer, type, length);
    make_room_for_mapping();
    return as == AS_NATIVE ? mapped_native(view, buffer, type, length)
                           : mapped_when_used(view, buffer, type, length, known);
}

/* How often what happened to restored vectors since the session began, or since the last reset. */
SEXP rem_counters(SEXP reset) {
    const char *names[] = {"mapped",   "copied", "materialised", "duplicated", "pointers", "writable_pointers",
                           "regions", "subsets", ""};
    SEXP made = PROTECT(Rf_mkNamed(REALSXP, names));
    memcpy(REAL(made), counters, sizeof counters);
    if (Rf_asLogical(reset))
        memset(counters, 0, sizeof counters);
    UNPROTECT(1);
    return made;
}
