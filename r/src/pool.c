/* Open pools as external pointers, and what is asked of them. */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entries.h"
#include "remanent_r.h"

/* The pools that this session has open, so that a path leads to the one that is open already, and so that a forked child
 * can let go of their locks. R runs in one thread, so there is no lock. */
struct entry {
    struct entry *next;
    remanent_store *store;
    /* What it was opened by. What is at the path now may be another file, so the file is told by its numbers, which no
     * other one gets while this one is open. */
    char *path;
    dev_t device;
    ino_t inode;
    int is_writer;
    /* A forked child opens its own. */
    pid_t process_id;
};

static struct entry *entries;

static void forget(remanent_store *store) {
    for (struct entry **at = &entries; *at; at = &(*at)->next) {
        if ((*at)->store == store) {
            struct entry *gone = *at;
            *at = gone->next;
            free(gone->path);
            free(gone);
            return;
        }
    }
}

static void remember(remanent_store *store, const char *path, int is_writer) {
    struct stat file = {0};
    struct entry *made = malloc(sizeof *made);
    if (!made)
        return;
    /* A link is no pool, and a path that leads nowhere any more has the numbers of no file. */
    (void)lstat(path, &file);
    *made = (struct entry){entries, store, strdup(path), file.st_dev, file.st_ino, is_writer, getpid()};
    entries = made;
}

/* The path of an open pool in full, where there was memory for it. */
static const char *path_of(const remanent_store *store) {
    for (const struct entry *at = entries; at; at = at->next)
        if (at->store == store)
            return at->path;
    return NULL;
}

static void settle(void) {
    for (struct entry *at = entries; at; at = at->next)
        remanent_store_settle_in_child(at->store);
}

void watch_forks(void) { pthread_atfork(NULL, NULL, settle); }

static SEXP tag(void) { return Rf_install("remanent_pool"); }

/* The last pointer to a store that nobody closed closes it. */
static void finalize(SEXP pool) {
    remanent_store *store = R_ExternalPtrAddr(pool);
    if (!store)
        return;
    R_ClearExternalPtr(pool);
    if (R_ExternalPtrProtected(pool) == R_NilValue)
        forget(store);
    remanent_store_release(store);
}

/* borrowed: the pointer shares a store that another one has opened. */
static SEXP wrap(remanent_store *store, int borrowed) {
    SEXP mark = PROTECT(borrowed ? Rf_ScalarLogical(TRUE) : R_NilValue);
    SEXP made = PROTECT(R_MakeExternalPtr(store, tag(), mark));
    R_RegisterCFinalizerEx(made, finalize, TRUE);
    UNPROTECT(2);
    return made;
}

static int is_pool(SEXP pool) { return TYPEOF(pool) == EXTPTRSXP && R_ExternalPtrTag(pool) == tag(); }

static const struct step POOL = {.name = "pool"};

/* The store that a pool leads to; NULL when it is closed. */
static remanent_store *pointer_of(SEXP pool) {
    if (!is_pool(pool))
        refuse(REMANENT_BAD_ARGUMENT, &POOL, "is no open pool, as pmem_open() gives one");
    return R_ExternalPtrAddr(pool);
}

remanent_store *store_of(SEXP pool) {
    remanent_store *store = pointer_of(pool);
    if (!store)
        refuse(REMANENT_CLOSED, &POOL, "is closed, or comes from another session; open it again");
    return store;
}

static const char *utf8(SEXP text) { return Rf_translateCharUTF8(STRING_ELT(text, 0)); }

SEXP rem_create(SEXP path, SEXP size) {
    remanent_create_options how = {.size_bytes = sizeof how, .file_bytes = (uint64_t)Rf_asReal(size)};
    remanent_store *store;
    check(remanent_store_create(Rf_translateChar(STRING_ELT(path, 0)), &how, &store));
    int code = remanent_store_close(store);
    remanent_store_release(store);
    check(code);
    return R_NilValue;
}

SEXP rem_open(SEXP path, SEXP writes) {
    /* Made first, so that nothing is lost if there is no memory for it. */
    SEXP pool = PROTECT(wrap(NULL, 0));
    const char *file = Rf_translateChar(STRING_ELT(path, 0));
    remanent_store *store;
    check(remanent_store_open(file, Rf_asLogical(writes) ? REMANENT_WRITER : REMANENT_READER, &store));
    R_SetExternalPtrAddr(pool, store);
    remember(store, file, Rf_asLogical(writes));
    UNPROTECT(1);
    return pool;
}

/* The pool that this process has open of the file at a path: its writer, or else a reader if that will do. */
static struct entry *entry_at(const char *path, int writes) {
    struct entry *found = NULL;
    struct stat file;
    if (lstat(path, &file) != 0)
        return NULL;
    for (struct entry *at = entries; at; at = at->next) {
        int is_here = at->inode == file.st_ino && at->device == file.st_dev && at->process_id == getpid();
        if (is_here && at->is_writer)
            return at;
        if (is_here && !writes && !found)
            found = at;
    }
    return found;
}

/* A pool that is open in this session, by its path; NULL when there is none that fits. What is read by a path is as new as
 * it would be from a pool that is opened now, so a reader moves on. */
SEXP rem_find(SEXP path, SEXP writes) {
    /* Made first: R may run finalizers then, and these may close what was found. */
    SEXP pool = PROTECT(wrap(NULL, 1));
    const struct entry *found = entry_at(Rf_translateChar(STRING_ELT(path, 0)), Rf_asLogical(writes));
    if (!found) {
        UNPROTECT(1);
        return R_NilValue;
    }
    remanent_store_retain(found->store);
    R_SetExternalPtrAddr(pool, found->store);
    if (!found->is_writer)
        check(remanent_store_refresh(found->store, NULL));
    UNPROTECT(1);
    return pool;
}

SEXP rem_close(SEXP pool) {
    remanent_store *store = pointer_of(pool);
    if (!store)
        return R_NilValue;
    int is_own = R_ExternalPtrProtected(pool) == R_NilValue;
    R_ClearExternalPtr(pool);
    int code = REMANENT_OK;
    if (is_own) {
        forget(store);
        code = remanent_store_close(store);
    }
    remanent_store_release(store);
    check(code);
    return R_NilValue;
}

SEXP rem_is_open(SEXP pool) { return Rf_ScalarLogical(is_pool(pool) && R_ExternalPtrAddr(pool) != NULL); }

SEXP rem_remove(SEXP pool, SEXP names) {
    /* Whatever R may leave by a jump comes before there is a batch. */
    const char **texts = (const char **)R_alloc((size_t)XLENGTH(names) + 1, sizeof *texts);
    for (R_xlen_t i = 0; i < XLENGTH(names); i++)
        texts[i] = Rf_translateCharUTF8(STRING_ELT(names, i));
    remanent_batch *batch;
    check(remanent_batch_new(store_of(pool), &batch));
    int code = REMANENT_OK;
    for (R_xlen_t i = 0; i < XLENGTH(names) && code == REMANENT_OK; i++)
        code = remanent_batch_remove(batch, texts[i]);
    if (code == REMANENT_OK)
        code = remanent_batch_commit(batch, NULL, NULL);
    const struct failure failure = failure_of(code);
    remanent_batch_release(batch);
    check_failure(&failure, XLENGTH(names) == 1 ? texts[0] : NULL);
    return R_NilValue;
}

SEXP rem_rename(SEXP pool, SEXP old_name, SEXP new_name, SEXP replace) {
    check(remanent_store_rename(store_of(pool), utf8(old_name), utf8(new_name), Rf_asLogical(replace) == TRUE));
    return R_NilValue;
}

/* part: a path, or NULL for a file beside the pool's first. */
SEXP rem_grow(SEXP pool, SEXP size, SEXP part) {
    remanent_create_options how = {.size_bytes = sizeof how, .file_bytes = (uint64_t)Rf_asReal(size)};
    const char *file = part == R_NilValue ? NULL : Rf_translateChar(STRING_ELT(part, 0));
    check(remanent_store_grow(store_of(pool), file, &how));
    return R_NilValue;
}

/* A vector that nobody has any more keeps what was replaced until R collects it. */
SEXP rem_gc(SEXP pool) {
    uint64_t freed = 0;
    R_gc();
    check(remanent_store_gc(store_of(pool), &freed));
    return Rf_ScalarReal((double)freed);
}

SEXP rem_refresh(SEXP pool) {
    uint64_t generation = 0;
    check(remanent_store_refresh(store_of(pool), &generation));
    return Rf_ScalarReal((double)generation);
}

SEXP rem_verify(SEXP pool) {
    remanent_verified found;
    check(remanent_store_verify(store_of(pool), &found));
    const char *names[] = {"matching", "without_checksum", ""};
    SEXP made = PROTECT(Rf_mkNamed(INTSXP, names));
    INTEGER(made)[0] = (int)found.matching;
    INTEGER(made)[1] = (int)found.without_checksum;
    UNPROTECT(1);
    return made;
}

SEXP rem_prefault(SEXP pool, SEXP wait) {
    check(remanent_store_prefault(store_of(pool), Rf_asLogical(wait)));
    return R_NilValue;
}

static SEXP text(const char *said) { return Rf_ScalarString(Rf_mkCharCE(said, CE_UTF8)); }

SEXP rem_info(SEXP pool) {
    remanent_info info = {.size_bytes = sizeof info};
    check(remanent_store_info(store_of(pool), &info));
    const char *names[] = {"file",        "uuid",       "objects",   "generation", "total_bytes", "free_bytes",
                           "largest_free_bytes", "retired_bytes", "parts", "is_clean", "has_writer", "created",
                           "durability",  "granularity", "provenance", "filesystem", "reason", ""};
    SEXP made = PROTECT(Rf_mkNamed(VECSXP, names));
    int at = 0;
    const char *file = path_of(store_of(pool));
    SET_VECTOR_ELT(made, at++, file ? Rf_mkString(file) : text(info.file));
    SET_VECTOR_ELT(made, at++, text(info.uuid));
    const uint64_t numbers[] = {info.objects,   info.generation, info.total_bytes, info.free_bytes,
                                info.largest_free_bytes, info.retired_bytes, info.parts};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        SET_VECTOR_ELT(made, at++, Rf_ScalarReal((double)numbers[i]));
    SET_VECTOR_ELT(made, at++, Rf_ScalarLogical(info.is_clean != 0));
    SET_VECTOR_ELT(made, at++, Rf_ScalarLogical(info.has_writer != 0));
    SET_VECTOR_ELT(made, at++, Rf_ScalarReal((double)info.created_s));
    const char *texts[] = {info.durability, info.granularity, info.provenance, info.filesystem, info.reason};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        SET_VECTOR_ELT(made, at++, text(texts[i]));
    UNPROTECT(1);
    return made;
}

/* "f8", "i4", "M8": the class's letter as in NumPy, and the size. */
static SEXP type_name(const remanent_dtype *dtype) {
    static const char letters[] = "?biufcSUVMmV";
    if (!dtype)
        return NA_STRING;
    char made[32];
    if (dtype->type_class >= REMANENT_CLASS_STRUCT)
        return Rf_mkChar("struct");
    snprintf(made, sizeof made, "%c%.0f", letters[dtype->type_class], (double)dtype->item_bytes);
    return Rf_mkChar(made);
}

static SEXP dim_name(const remanent_object *object) {
    if (!object->dtype)
        return NA_STRING;
    char made[256] = "";
    size_t used = 0;
    for (uint64_t i = 0; i < object->dimensions && used < sizeof made - 32; i++)
        used += (size_t)snprintf(made + used, sizeof made - used, "%s%.0f", i ? "x" : "", (double)object->shape[i]);
    return Rf_mkChar(made);
}

static void release_list(SEXP pointer) {
    remanent_list_release(R_ExternalPtrAddr(pointer));
    R_ClearExternalPtr(pointer);
}

/* A list, and in holder what releases it, also when R leaves by a jump. */
static remanent_list *list_of(SEXP pool, const char *prefix, SEXP holder) {
    R_RegisterCFinalizer(holder, release_list);
    remanent_list *list;
    check(remanent_store_list(store_of(pool), prefix, &list));
    R_SetExternalPtrAddr(holder, list);
    return list;
}

/* The names alone, which every restore of all objects asks for: to describe each takes longer than to restore it. */
SEXP rem_names(SEXP pool) {
    SEXP holder = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, R_NilValue));
    remanent_list *list = list_of(pool, "", holder);
    SEXP made = PROTECT(Rf_allocVector(STRSXP, (R_xlen_t)remanent_list_count(list)));
    for (R_xlen_t i = 0; i < XLENGTH(made); i++) {
        const remanent_object *object;
        check(remanent_list_object(list, (uint64_t)i, &object));
        SET_STRING_ELT(made, i, Rf_mkCharCE(object->name, CE_UTF8));
    }
    release_list(holder);
    UNPROTECT(2);
    return made;
}

/* Columns of the data frame that pmem_ls makes. */
SEXP rem_list(SEXP pool, SEXP prefix) {
    SEXP holder = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, R_NilValue));
    remanent_list *list = list_of(pool, utf8(prefix), holder);
    R_xlen_t count = (R_xlen_t)remanent_list_count(list);
    const char *names[] = {"name", "kind", "type", "dim", "bytes", "pool_bytes", "checksum", "generation", ""};
    const SEXPTYPE types[] = {STRSXP, STRSXP, STRSXP, STRSXP, REALSXP, REALSXP, LGLSXP, REALSXP};
    SEXP made = PROTECT(Rf_mkNamed(VECSXP, names));
    SEXP columns[8];
    for (int i = 0; i < 8; i++) {
        columns[i] = Rf_allocVector(types[i], count);
        SET_VECTOR_ELT(made, i, columns[i]);
    }
    static const char *kinds[] = {"unknown", "array", "bytes", "text", "value"};
    for (R_xlen_t i = 0; i < count; i++) {
        const remanent_object *object;
        check(remanent_list_object(list, (uint64_t)i, &object));
        int is_known = object->is_known && object->kind <= REMANENT_VALUE;
        SET_STRING_ELT(columns[0], i, Rf_mkCharCE(object->name, CE_UTF8));
        SET_STRING_ELT(columns[1], i, Rf_mkChar(kinds[is_known ? object->kind : 0]));
        SET_STRING_ELT(columns[2], i, type_name(object->dtype));
        SET_STRING_ELT(columns[3], i, dim_name(object));
        REAL(columns[4])[i] = is_known ? (double)object->payload_bytes : NA_REAL;
        REAL(columns[5])[i] = (double)object->extent_bytes;
        /* A value tells only when it is read. */
        LOGICAL(columns[6])[i] = is_known && object->kind != REMANENT_VALUE ? object->has_checksum != 0 : NA_LOGICAL;
        REAL(columns[7])[i] = (double)object->generation;
    }
    release_list(holder);
    UNPROTECT(2);
    return made;
}
