/* Pools: making, opening, listing, naming, space, checks, commits that are given up, threads and forks. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void put_text(remanent_store *store, const char *name, const char *text) {
    remanent_batch *batch;
    OK(remanent_batch_new(store, &batch));
    OK(remanent_batch_put(batch, name));
    OK(remanent_batch_text(batch, text, strlen(text)));
    OK(remanent_batch_commit(batch, NULL, NULL));
    remanent_batch_release(batch);
}

static bool contains(remanent_store *store, const char *name) {
    bool answer;
    OK(remanent_store_contains(store, name, &answer));
    return answer;
}

static void opening(char **argv) {
    const char *path = in_folder(argv, "opening.pool");
    remanent_store *store = create(path, 8 << 20), *other = store;
    remanent_create_options how = {.size_bytes = sizeof how, .file_bytes = 8 << 20};
    FAILS(REMANENT_ALREADY_EXISTS, remanent_store_create(path, &how, &other));
    CHECK(other == NULL && strcmp(remanent_error_path(), path) == 0);
    FAILS(REMANENT_POOL_BUSY, remanent_store_open(path, REMANENT_WRITER, &other));
    OK(remanent_store_open(path, REMANENT_READER, &other));
    FAILS(REMANENT_NOT_WRITABLE, remanent_store_gc(other, NULL));
    put_text(store, "x", "1");
    CHECK(!contains(other, "x"));
    uint64_t generation = 0;
    OK(remanent_store_refresh(other, &generation));
    CHECK(generation > 0 && contains(other, "x"));
    remanent_store_release(other);
    OK(remanent_store_open(path, REMANENT_INSPECT, &other));
    remanent_store_retain(other);
    remanent_store_release(other);
    remanent_info info = {.size_bytes = sizeof info};
    OK(remanent_store_info(other, &info));
    CHECK(info.objects == 1 && info.parts == 1 && info.total_bytes == 8 << 20 && info.has_writer == 1);
    CHECK(strlen(info.uuid) == 36 && strlen(info.durability) > 5 && strlen(info.reason) > 5);
    CHECK(strcmp(info.file, path) == 0);
    remanent_store_release(other);
    OK(remanent_store_close(store));
    remanent_store_release(store);
    FAILS(REMANENT_NOT_FOUND, remanent_store_open(in_folder(argv, "nothing"), REMANENT_READER, &store));
    FAILS(REMANENT_IS_DIRECTORY, remanent_store_open(argv[1], REMANENT_READER, &store));
}

static void names_and_space(char **argv) {
    remanent_store *store = create(in_folder(argv, "names.pool"), 8 << 20);
    put_text(store, "a.1", "one");
    put_text(store, "a.2", "two");
    put_text(store, "b", "three");
    remanent_list *list;
    OK(remanent_store_list(store, "a.", &list));
    CHECK(remanent_list_count(list) == 2);
    const remanent_object *object;
    OK(remanent_list_object(list, 1, &object));
    CHECK(strcmp(object->name, "a.2") == 0 && object->kind == REMANENT_TEXT && object->payload_bytes == 3);
    FAILS(REMANENT_BAD_ARGUMENT, remanent_list_object(list, 2, &object));
    remanent_list_retain(list);
    remanent_list_release(list);
    remanent_list_release(list);
    FAILS(REMANENT_ALREADY_EXISTS, remanent_store_rename(store, "a.1", "b", false));
    OK(remanent_store_rename(store, "a.1", "b", true));
    CHECK(!contains(store, "a.1"));
    FAILS(REMANENT_NO_SUCH_NAME, remanent_store_remove(store, "a.1"));
    OK(remanent_store_remove(store, "b"));

    /* A batch is all or nothing. */
    remanent_batch *batch;
    OK(remanent_batch_new(store, &batch));
    OK(remanent_batch_put(batch, "c"));
    OK(remanent_batch_int(batch, 1));
    OK(remanent_batch_remove(batch, "missing"));
    FAILS(REMANENT_NO_SUCH_NAME, remanent_batch_commit(batch, NULL, NULL));
    CHECK(!contains(store, "c"));
    OK(remanent_batch_put(batch, "d"));
    OK(remanent_batch_int(batch, 1));
    OK(remanent_batch_remove(batch, "a.2"));
    OK(remanent_batch_commit(batch, NULL, NULL));
    CHECK(contains(store, "d") && !contains(store, "c") && !contains(store, "a.2"));

    char *large = calloc(1, 16 << 20);
    OK(remanent_batch_put(batch, "large"));
    OK(remanent_batch_bytes(batch, large, 16 << 20));
    FAILS(REMANENT_POOL_FULL, remanent_batch_commit(batch, NULL, NULL));
    remanent_create_options how = {.size_bytes = sizeof how, .file_bytes = 32 << 20};
    OK(remanent_store_grow(store, NULL, &how));
    OK(remanent_batch_put(batch, "large"));
    OK(remanent_batch_bytes(batch, large, 16 << 20));
    remanent_commit_options sum = {.size_bytes = sizeof sum, .checksum = 1};
    OK(remanent_batch_commit(batch, &sum, NULL));
    free(large);
    remanent_verified found;
    OK(remanent_store_verify(store, &found));
    CHECK(found.matching == 1 && found.without_checksum == 1);
    uint64_t freed;
    OK(remanent_store_gc(store, &freed));
    OK(remanent_store_prefault(store, true));
    remanent_batch_release(batch);
    remanent_store_release(store);
}

struct told {
    remanent_store *store;
    pthread_t thread;
    int calls, wrong, close_code;
};

static int32_t give_up(void *user, uint64_t done_bytes, uint64_t total_bytes) {
    struct told *told = user;
    told->calls++;
    if (!pthread_equal(told->thread, pthread_self()) || done_bytes > total_bytes)
        told->wrong++;
    told->close_code = remanent_store_close(told->store);
    bool there;
    if (remanent_store_contains(told->store, "x", &there))
        told->wrong++;
    return 1;
}

static void progress(char **argv) {
    remanent_store *store = create(in_folder(argv, "progress.pool"), 64 << 20);
    char *large = calloc(1, 20 << 20);
    struct told told = {.store = store, .thread = pthread_self()};
    remanent_batch *batch;
    OK(remanent_batch_new(store, &batch));
    OK(remanent_batch_put(batch, "x"));
    OK(remanent_batch_bytes(batch, large, 20 << 20));
    remanent_commit_options how = {.size_bytes = sizeof how, .progress = give_up, .user = &told};
    FAILS(REMANENT_CANCELLED, remanent_batch_commit(batch, &how, NULL));
    CHECK(told.calls > 0 && told.wrong == 0 && told.close_code == REMANENT_BAD_ARGUMENT);
    CHECK(!contains(store, "x"));
    remanent_batch_release(batch);
    free(large);
    remanent_store_release(store);
}

static void *work(void *user) {
    remanent_store *store = user;
    for (int round = 0; round < 50; round++) {
        bool there;
        int code = remanent_store_contains(store, "x", &there);
        CHECK(code == REMANENT_OK || code == REMANENT_CLOSED);
    }
    /* The last error is each thread's own. */
    FAILS(REMANENT_BAD_ARGUMENT, remanent_store_open(NULL, 0, &store));
    return NULL;
}

static void threads(char **argv) {
    remanent_store *store = create(in_folder(argv, "threads.pool"), 8 << 20);
    FAILS(REMANENT_NO_SUCH_NAME, remanent_store_remove(store, "x"));
    pthread_t other[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&other[i], NULL, work, store);
    OK(remanent_store_close(store));
    for (int i = 0; i < 4; i++)
        pthread_join(other[i], NULL);
    CHECK(remanent_error_code() == REMANENT_NO_SUCH_NAME);
    remanent_store_release(store);
}

static void forks(char **argv) {
    remanent_store *store = create(in_folder(argv, "forks.pool"), 8 << 20);
    put_text(store, "x", "inherited");
    remanent_view *view;
    OK(remanent_store_get(store, "x", &view));
    pid_t child = fork();
    if (child == 0) {
        OK(remanent_store_settle_in_child(store));
        remanent_list *list;
        FAILS(REMANENT_USED_AFTER_FORK, remanent_store_list(store, NULL, &list));
        FAILS(REMANENT_USED_AFTER_FORK, remanent_store_close(store));
        const remanent_node *node;
        OK(remanent_view_node(view, 0, &node));
        CHECK(memcmp(node->text, "inherited", 9) == 0);
        remanent_view_release(view);
        remanent_store_release(store);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    put_text(store, "y", "the parent goes on");
    remanent_view_release(view);
    OK(remanent_store_close(store));
    remanent_store_release(store);
}

static void put_numbers(remanent_store *store, const double *numbers, uint64_t count) {
    remanent_batch *batch;
    OK(remanent_batch_new(store, &batch));
    OK(remanent_batch_put(batch, "numbers"));
    OK(remanent_batch_array(batch, &F8, &count, 1, false, numbers, count * sizeof *numbers));
    OK(remanent_batch_commit(batch, NULL, NULL));
    remanent_batch_release(batch);
}

/* What a child has inherited stays as it was, though the parent maps it, changes it and persists its pages before the child
 * maps it. */
static void changes_after_a_fork(char **argv) {
    enum { COUNT = 1 << 18 };
    remanent_store *store = create(in_folder(argv, "changes.pool"), 32 << 20);
    double *zeros = calloc(COUNT, sizeof *zeros);
    for (int late = 0; late < 2; late++) {
        put_numbers(store, zeros, COUNT);
        remanent_view *view;
        remanent_mapping *mapping = NULL;
        void *data;
        int go[2];
        CHECK(pipe(go) == 0);
        OK(remanent_store_get(store, "numbers", &view));
        if (late) {
            OK(remanent_view_private_late(view, 0, &mapping));
            remanent_view_release(view);
        }
        pid_t child = fork();
        if (child == 0) {
            char byte;
            CHECK(read(go[0], &byte, 1) == 1);
            OK(late ? remanent_mapping_data(mapping, &data) : remanent_view_private(view, 0, 0, &mapping, &data));
            CHECK(memcmp(data, zeros, COUNT * sizeof *zeros) == 0);
            _exit(0);
        }
        OK(late ? remanent_mapping_data(mapping, &data) : remanent_view_private(view, 0, 0, &mapping, &data));
        if (!late)
            remanent_view_release(view);
        for (int i = 1; i < 4; i++) {
            ((double *)data)[i * 1000] = 42;
            put_numbers(store, data, COUNT);
        }
        CHECK(write(go[1], "", 1) == 1);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        remanent_mapping_release(mapping);
        close(go[0]);
        close(go[1]);
    }
    free(zeros);
    OK(remanent_store_close(store));
    remanent_store_release(store);
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && remanent_abi_version() >= REMANENT_ABI_VERSION && strchr(remanent_version(), '.'));
    CHECK(strcmp(remanent_error_name(REMANENT_POOL_FULL), "pool-full") == 0 && remanent_error_name(12345) == NULL);
    CHECK(remanent_error_code() == 0 && strcmp(remanent_error_message(), "") == 0 && remanent_error_path() == NULL);
    opening(argv);
    names_and_space(argv);
    progress(argv);
    threads(argv);
    forks(argv);
    changes_after_a_fork(argv);
    return 0;
}
