/* The functions that R calls; init.c registers them. */
#ifndef REMANENT_ENTRIES_H
#define REMANENT_ENTRIES_H

#include "remanent_r.h"

SEXP rem_create(SEXP path, SEXP size);
SEXP rem_open(SEXP path, SEXP writes);
SEXP rem_find(SEXP path, SEXP writes);
SEXP rem_close(SEXP pool);
SEXP rem_is_open(SEXP pool);
SEXP rem_remove(SEXP pool, SEXP names);
SEXP rem_rename(SEXP pool, SEXP old_name, SEXP new_name, SEXP replace);
SEXP rem_grow(SEXP pool, SEXP size, SEXP part);
SEXP rem_gc(SEXP pool);
SEXP rem_refresh(SEXP pool);
SEXP rem_verify(SEXP pool);
SEXP rem_prefault(SEXP pool, SEXP wait);
SEXP rem_info(SEXP pool);
SEXP rem_names(SEXP pool);
SEXP rem_list(SEXP pool, SEXP prefix);
SEXP rem_persist(SEXP pool, SEXP names, SEXP values, SEXP threads, SEXP checksum, SEXP bar_after_s);
SEXP rem_restore(SEXP pool, SEXP names, SEXP as, SEXP is_int64, SEXP envir);
SEXP rem_read(SEXP pool, SEXP name, SEXP as, SEXP is_int64);
SEXP rem_counters(SEXP reset);
SEXP rem_points_somewhere(SEXP x);
SEXP rem_selfref(SEXP x);
SEXP rem_check_names(SEXP names);

#endif
