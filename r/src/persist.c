/* Values into a pool in one atomic step, and what the user sees of it meanwhile. */
#include <string.h>
#include <time.h>

#include "entries.h"
#include "remanent_r.h"

static void release_batch(SEXP pointer) {
    remanent_batch_release(R_ExternalPtrAddr(pointer));
    R_ClearExternalPtr(pointer);
}

/* Fewer bytes than this are copied without asking whether the user has interrupted the call. */
#define ASKS_FROM_BYTES (1 << 20)

/* What is asked while bytes are copied. */
struct progress {
    /* When a bar is shown first; never when it is infinite. */
    double bar_from_s;
    /* What it shows, in percent; -1 before it is there. */
    int shown;
    uint64_t done_bytes, total_bytes;
    int was_interrupted;
    /* Holds the condition of an error meanwhile, if there was one: a time limit (setTimeLimit), or what the bar is shown in. */
    SEXP error;
};

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* In the manner of utils::txtProgressBar(style = 3). */
static void draw_bar(struct progress *p) {
    static const char full[] = "==================================================";
    enum { WIDTH = sizeof full - 1 };
    int percent = p->total_bytes ? (int)((double)p->done_bytes / (double)p->total_bytes * 100) : 100;
    if (percent == p->shown)
        return;
    p->shown = percent;
    int filled = percent * WIDTH / 100;
    Rprintf("\r  |%.*s%*s| %3d%%", filled, full, WIDTH - filled, "", percent);
    R_FlushConsole();
}

static SEXP talk(void *data) {
    struct progress *p = data;
    if (now_s() >= p->bar_from_s)
        draw_bar(p);
    R_CheckUserInterrupt();
    return R_NilValue;
}

static SEXP keep_error(SEXP condition, void *data) {
    struct progress *p = data;
    SETCAR(p->error, condition);
    return R_NilValue;
}

static void talk_to_user(void *data) { R_tryCatchError(talk, data, keep_error, data); }

/* R leaves by a jump when it is interrupted, which must not cross the library: so it jumps within this only. */
static int32_t copied_so_far(void *user, uint64_t done_bytes, uint64_t total_bytes) {
    struct progress *p = user;
    p->done_bytes = done_bytes;
    p->total_bytes = total_bytes;
    /* To ask R takes longer than to copy little. */
    if (total_bytes < ASKS_FROM_BYTES && now_s() < p->bar_from_s)
        return 0;
    p->was_interrupted = !R_ToplevelExec(talk_to_user, p);
    return p->was_interrupted || CAR(p->error) != R_NilValue;
}

static void write_objects(struct writer *w, SEXP names, SEXP values) {
    for (R_xlen_t i = 0; i < XLENGTH(names); i++)
        write_object(w, Rf_translateCharUTF8(STRING_ELT(names, i)), VECTOR_ELT(values, i));
}

/* Persists values under names in one atomic step. TRUE, or FALSE if the user has interrupted it. */
SEXP rem_persist(SEXP pool, SEXP names, SEXP values, SEXP threads, SEXP checksum, SEXP bar_after_s) {
    remanent_store *store = store_of(pool);
    SEXP holder = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, R_NilValue));
    R_RegisterCFinalizer(holder, release_batch);
    struct writer w = {.keep = PROTECT(Rf_cons(R_NilValue, R_NilValue)),
                       .blobs = PROTECT(Rf_cons(R_NilValue, R_NilValue))};
    /* While the batch lives, so does what it was lent. */
    R_SetExternalPtrProtected(holder, w.keep);
    check(remanent_batch_new(store, &w.batch));
    R_SetExternalPtrAddr(holder, w.batch);
    write_objects(&w, names, values);
    struct progress progress = {.bar_from_s = now_s() + Rf_asReal(bar_after_s),
                                .shown = -1,
                                .error = PROTECT(Rf_cons(R_NilValue, R_NilValue))};
    remanent_commit_options how = {.size_bytes = sizeof how,
                                   .threads = (uint32_t)Rf_asInteger(threads),
                                   .checksum = Rf_asLogical(checksum) == TRUE,
                                   .progress = copied_so_far,
                                   .user = &progress};
    int code = remanent_batch_commit(w.batch, &how, NULL);
    if (code == REMANENT_POOL_FULL) {
        /* Restored vectors that nobody has any more keep what was replaced until R collects them, and R, which does not
         * count their items, sees no reason to. */
        R_gc();
        SETCDR(w.keep, R_NilValue);
        write_objects(&w, names, values);
        code = remanent_batch_commit(w.batch, &how, NULL);
    }
    const struct failure failure = failure_of(code);
    release_batch(holder);
    int was_stopped = code == REMANENT_CANCELLED && (progress.was_interrupted || CAR(progress.error) != R_NilValue);
    if (was_stopped && CAR(progress.error) != R_NilValue)
        call_own("stop", Rf_list1(CAR(progress.error)));
    if (progress.shown >= 0) {
        /* Other threads may have copied the last bytes. */
        if (code == REMANENT_OK)
            progress.done_bytes = progress.total_bytes;
        draw_bar(&progress);
        Rprintf("\n");
    }
    if (!was_stopped)
        check_failure(&failure, XLENGTH(names) == 1 ? label_of(STRING_ELT(names, 0)) : NULL);
    UNPROTECT(4);
    return Rf_ScalarLogical(!was_stopped);
}
