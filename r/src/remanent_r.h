/* What the parts of the package share. */
#ifndef REMANENT_R_H
#define REMANENT_R_H

#define R_NO_REMAP
#include <R.h>
#include <Rinternals.h>

#include "remanent.h"

/* From this size on a vector is a mapping of its own; below it a copy costs less. */
#define SMALL_BYTES (64 << 10)

/* ---- error.c: conditions with a class for each code ---- */

/* Where a part of a value is, for messages: a chain on the C stack, the innermost first. */
struct step {
    const struct step *above;
    /* The root's name, an element's name, an attribute's name; NULL for an element without a name. */
    const char *name;
    R_xlen_t index;
    int is_attribute;
};

/* What the library says of an error, in memory that neither it nor R changes. What does not fit is cut. */
struct failure {
    int code;
    char message[8192];
    char path[4096];
};

/* The last error of the library, or none when code is 0. */
struct failure failure_of(int code);
/* Raises it, if it is one. element: what it is about, or NULL. */
void check_failure(const struct failure *failure, const char *element);
/* Raises the last error of the library when code is not 0. */
void check(int code);
/* The same, about a part of a value. */
void check_at(int code, const struct step *at);
/* Raises an error of that code about a part of a value. */
void NORET refuse(int code, const struct step *at, const char *reason);
/* The place of a part as a user would write it: x$fit, x[[3]], attr(x, "ptr"). */
SEXP place_of(const struct step *at);
/* Calls a function of the package. */
SEXP call_own(const char *function, SEXP arguments);

/* ---- pool.c: external pointers to open pools ---- */

remanent_store *store_of(SEXP pool);
void watch_forks(void);

/* ---- vector.c: vectors over a pool's memory ---- */

enum restore_as { AS_ALTREP, AS_NATIVE, AS_DRAM };

/* What is known of a vector's items. */
struct known {
    int no_na;
    int sortedness;
};

void make_classes(DllInfo *dll);
/* A vector of a type from a buffer that holds its items as R does. */
SEXP vector_of(remanent_view *view, uint32_t buffer, SEXPTYPE type, R_xlen_t length, enum restore_as as,
               struct known known);
size_t item_bytes(SEXPTYPE type);

/* ---- persist.c, write.c ---- */

/* What is kept while a batch is filled: the memory that it was lent. */
struct writer {
    remanent_batch *batch;
    /* A pairlist whose rest are vectors of this package's own. */
    SEXP keep;
    /* What goes to R's own serialisation, in a pairlist, the last first; the tag of each is its place. */
    SEXP blobs;
    int blob_count;
};

/* Puts an object into the batch, or refuses what no file can hold. */
void write_object(struct writer *w, const char *name, SEXP x);
/* Whether the items of a factor are places among so many levels, or NA. */
int fits_levels(SEXP places, R_xlen_t levels);
/* Memory that lives until the batch is committed. */
void *keep_bytes(struct writer *w, size_t bytes);
void write_array(struct writer *w, const struct step *at, remanent_dtype dtype, SEXP x, const void *data);

/* ---- strings.c: character vectors out and in ---- */

/* How strings are written, found out before it is told what is beside them. */
struct strings {
    /* Of a dictionary: places from 1, and which strings they lead to; else NULL. */
    void *places;
    int place_bytes;
    const SEXP *values;
    R_xlen_t value_count;
    /* One byte a string where some are no UTF-8; else NULL. */
    uint8_t *marks;
};

struct strings plan_strings(struct writer *w, SEXP x);
void write_strings(struct writer *w, const struct step *at, SEXP x, struct strings *plan);
void write_flat_strings(struct writer *w, const struct step *at, const SEXP *items, R_xlen_t count);
int is_utf8(const char *text, size_t bytes);
int is_text(SEXP item);
const char *label_of(SEXP item);

/* ---- restore.c, read.c ---- */

struct reader {
    remanent_view *view;
    enum restore_as as;
    /* Whether 64-bit integers become integer64; NA_LOGICAL: where the package bit64 is. */
    int is_int64;
    /* Whether it is; NA_LOGICAL before it was asked. */
    int has_bit64;
    /* What R's own serialisation has kept of this value. */
    SEXP serialised;
};

/* What stands beside a node and has to be known to read it. */
struct hints {
    int is_r;
    int is_logical;
    int is_character;
    int is_factor;
    int na_in_place;
    int in_nullable;
    const remanent_node *encoding;
    struct known known;
};

/* The value that a view holds. */
SEXP read_object(struct reader *r, const struct step *at);
const remanent_node *node_at(const struct reader *r, uint32_t number);
const void *buffer_of(const struct reader *r, const struct step *at, const remanent_node *node, uint64_t which,
                      uint64_t *bytes);
/* Each gives a vector that is not protected. */
SEXP read_strings(const struct reader *r, const struct step *at, const remanent_node *node, const struct hints *hints);
SEXP read_character_dictionary(const struct reader *r, const struct step *at, const remanent_node *node,
                               const struct hints *hints);
void set_class(SEXP x, const char *first, const char *second);

/* ---- convert.c: items that R has no type for ---- */

SEXP convert_items(const struct step *at, const remanent_dtype *dtype, const char *from, size_t stride, R_xlen_t count,
                   int is_int64, int no_raw);
/* The type that holds such items as they are; NILSXP when none does. */
SEXPTYPE direct_type(const remanent_dtype *dtype, int is_int64);

#endif
