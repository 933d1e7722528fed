/* What a calling program can do wrong: each is an error with a text, and nothing is changed by it. */
#include "check.h"

#define BAD(call) FAILS(REMANENT_BAD_ARGUMENT, call)

static void nulls(remanent_store *store, char **argv) {
    remanent_store *made;
    remanent_create_options how = {.size_bytes = sizeof how, .file_bytes = 8 << 20};
    remanent_batch *batch;
    remanent_list *list;
    remanent_view *view;
    bool answer;
    const remanent_object *object;
    const remanent_node *node;
    const void *data;
    void *room;
    uint64_t len;
    remanent_mapping *mapping;
    remanent_info info = {.size_bytes = sizeof info};
    remanent_verified verified;
    BAD(remanent_store_create(NULL, &how, &made));
    BAD(remanent_store_create(in_folder(argv, "x"), NULL, &made));
    BAD(remanent_store_create(in_folder(argv, "x"), &how, NULL));
    BAD(remanent_store_open(NULL, REMANENT_READER, &made));
    BAD(remanent_store_open(in_folder(argv, "x"), REMANENT_READER, NULL));
    BAD(remanent_store_open(in_folder(argv, "x"), 99, &made));
    how.size_bytes = 3;
    BAD(remanent_store_create(in_folder(argv, "x"), &how, &made));
    BAD(remanent_store_close(NULL));
    BAD(remanent_store_settle_in_child(NULL));
    BAD(remanent_store_grow(NULL, NULL, NULL));
    BAD(remanent_store_contains(NULL, "x", &answer));
    BAD(remanent_store_contains(store, NULL, &answer));
    BAD(remanent_store_contains(store, "x", NULL));
    BAD(remanent_store_contains(store, "\xff\xfe", &answer));
    BAD(remanent_store_remove(NULL, "x"));
    BAD(remanent_store_rename(store, NULL, "x", false));
    BAD(remanent_store_gc(NULL, NULL));
    BAD(remanent_store_refresh(NULL, NULL));
    BAD(remanent_store_verify(NULL, &verified));
    BAD(remanent_store_prefault(NULL, false));
    BAD(remanent_store_info(store, NULL));
    BAD(remanent_store_info(NULL, &info));
    info.size_bytes = 0;
    BAD(remanent_store_info(store, &info));
    BAD(remanent_store_list(NULL, NULL, &list));
    BAD(remanent_store_list(store, NULL, NULL));
    BAD(remanent_list_object(NULL, 0, &object));
    CHECK(remanent_list_count(NULL) == 0 && remanent_view_node_count(NULL) == 0);
    BAD(remanent_store_get(NULL, "x", &view));
    BAD(remanent_store_get(store, NULL, &view));
    BAD(remanent_store_get(store, "x", NULL));
    FAILS(REMANENT_NO_SUCH_NAME, remanent_store_get(store, "x", &view));
    BAD(remanent_store_get_many(store, NULL, 1, &view));
    BAD(remanent_view_object(NULL, &object));
    BAD(remanent_view_node(NULL, 0, &node));
    BAD(remanent_view_buffer(NULL, 0, &data, &len));
    BAD(remanent_view_guard(NULL, 0));
    BAD(remanent_view_copy(NULL, 0, &room, 1));
    BAD(remanent_view_private(NULL, 0, 0, &mapping, &room));
    BAD(remanent_view_private_late(NULL, 0, &mapping));
    BAD(remanent_mapping_data(NULL, &room));
    BAD(remanent_mapping_copy(NULL, &room, 1));
    BAD(remanent_view_verify(NULL, &answer));
    BAD(remanent_batch_new(NULL, &batch));
    BAD(remanent_batch_new(store, NULL));
    BAD(remanent_batch_put(NULL, "x"));
    BAD(remanent_batch_end(NULL));
    BAD(remanent_batch_commit(NULL, NULL, NULL));
    remanent_store_retain(NULL);
    remanent_store_release(NULL);
    remanent_batch_release(NULL);
    remanent_list_release(NULL);
    remanent_view_release(NULL);
    remanent_mapping_release(NULL);
}

static void wrong_values(remanent_store *store) {
    remanent_batch *batch;
    OK(remanent_batch_new(store, &batch));
    BAD(remanent_batch_int(batch, 1));
    BAD(remanent_batch_end(batch));
    FAILS(REMANENT_BAD_NAME, remanent_batch_put(batch, ""));
    FAILS(REMANENT_BAD_NAME, remanent_batch_put(batch, "a\nb"));
    BAD(remanent_batch_put(batch, "\xff"));
    OK(remanent_batch_put(batch, "x"));
    BAD(remanent_batch_put(batch, "y"));
    BAD(remanent_batch_commit(batch, &(remanent_commit_options){.size_bytes = 1}, NULL));
    BAD(remanent_batch_text(batch, "\xff", 1));
    BAD(remanent_batch_text(batch, NULL, 1));
    BAD(remanent_batch_bytes(batch, NULL, 1));
    BAD(remanent_batch_bytes(batch, "x", UINT64_MAX));
    BAD(remanent_batch_array(batch, NULL, NULL, 0, false, "12345678", 8));
    FAILS(REMANENT_LENGTH_MISMATCH, remanent_batch_array(batch, &F8, NULL, 0, false, "1234", 4));
    FAILS(REMANENT_LENGTH_MISMATCH, remanent_batch_array(batch, &F8, &(uint64_t){3}, 1, false, "12345678", 8));
    FAILS(REMANENT_SHAPE_OVERFLOW, remanent_batch_array(batch, &F8, &(uint64_t){UINT64_MAX}, 1, false, NULL, 0));
    BAD(remanent_batch_array(batch, &F8, NULL, 3, false, NULL, 0));
    remanent_dtype wrong[] = {{.type_class = 0, .item_bytes = 8},
                              {.type_class = 99, .item_bytes = 8},
                              {.type_class = REMANENT_CLASS_FLOAT, .item_bytes = 8, .byte_order = 7},
                              {.type_class = REMANENT_CLASS_FLOAT, .item_bytes = 8, .variant = 7},
                              {.type_class = REMANENT_CLASS_DATETIME, .item_bytes = 8, .variant = 99, .multiple = 1},
                              {.type_class = REMANENT_CLASS_STRUCT, .item_bytes = 8, .field_count = 1},
                              {.type_class = REMANENT_CLASS_SUB_ARRAY, .item_bytes = 8}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        BAD(remanent_batch_array(batch, &wrong[i], NULL, 0, false, "12345678", 8));
    remanent_dtype odd = {.type_class = REMANENT_CLASS_FLOAT, .item_bytes = 7};
    FAILS(REMANENT_UNKNOWN_TYPE, remanent_batch_array(batch, &odd, NULL, 0, false, "1234567", 7));
    /* A type that leads to itself. */
    remanent_field loop_field = {.name = "me"};
    remanent_dtype loop = {.type_class = REMANENT_CLASS_STRUCT, .item_bytes = 8, .fields = &loop_field, .field_count = 1};
    loop_field.dtype = &loop;
    BAD(remanent_batch_array(batch, &loop, NULL, 0, false, "12345678", 8));
    BAD(remanent_batch_strings(batch, 1, NULL, "x", 1, NULL, true));
    BAD(remanent_batch_strings(batch, UINT64_MAX, &(uint64_t){0}, "x", 1, NULL, true));
    BAD(remanent_batch_foreign(batch, NULL, "x", 1, NULL, NULL, 0));
    BAD(remanent_batch_foreign(batch, "c", "x", 1, NULL, NULL, 2));
    BAD(remanent_batch_begin_dictionary(batch, 2, false));
    BAD(remanent_batch_begin_attributed(batch, NULL));
    BAD(remanent_batch_attribute(batch, "x"));
    BAD(remanent_batch_end(batch));
    /* The object is still waiting for its value. */
    OK(remanent_batch_begin_mapping(batch));
    OK(remanent_batch_int(batch, 1));
    BAD(remanent_batch_end(batch));
    OK(remanent_batch_begin_dictionary(batch, 0, false));
    BAD(remanent_batch_end(batch));
    OK(remanent_batch_array(batch, &I4, &(uint64_t){1}, 1, false, "1234", 4));
    OK(remanent_batch_begin_list(batch));
    OK(remanent_batch_end(batch));
    BAD(remanent_batch_int(batch, 1));
    OK(remanent_batch_end(batch));
    OK(remanent_batch_text(batch, "k", 1));
    OK(remanent_batch_begin_attributed(batch, "me"));
    BAD(remanent_batch_attribute(batch, "too early"));
    BAD(remanent_batch_end(batch));
    OK(remanent_batch_nothing(batch));
    BAD(remanent_batch_nothing(batch));
    OK(remanent_batch_attribute(batch, "a"));
    BAD(remanent_batch_attribute(batch, "b"));
    BAD(remanent_batch_end(batch));
    OK(remanent_batch_nothing(batch));
    OK(remanent_batch_end(batch));
    OK(remanent_batch_end(batch));
    OK(remanent_batch_commit(batch, NULL, NULL));

    /* Parts that do not fit together are found by the call that completes the value. */
    OK(remanent_batch_put(batch, "z"));
    OK(remanent_batch_begin_table(batch, 5));
    OK(remanent_batch_text(batch, "k", 1));
    OK(remanent_batch_int(batch, 1));
    FAILS(REMANENT_UNKNOWN_TYPE, remanent_batch_end(batch));
    OK(remanent_batch_put(batch, "z"));
    int depth = 0;
    while (remanent_batch_begin_list(batch) == REMANENT_OK)
        CHECK(++depth < 1000);
    CHECK(remanent_error_code() == REMANENT_BAD_ARGUMENT && depth > 100);
    BAD(remanent_batch_commit(batch, NULL, NULL));
    remanent_batch_release(batch);
    bool there;
    OK(remanent_store_contains(store, "z", &there));
    CHECK(!there);

    remanent_view *view;
    OK(remanent_store_get(store, "x", &view));
    const remanent_node *node;
    const void *data;
    void *room;
    uint64_t len;
    remanent_mapping *mapping;
    BAD(remanent_view_node(view, 12345, &node));
    BAD(remanent_view_node(view, 0, NULL));
    BAD(remanent_view_buffer(view, 12345, &data, &len));
    BAD(remanent_view_buffer(view, 0, NULL, &len));
    BAD(remanent_view_private_late(view, 12345, &mapping));
    BAD(remanent_view_private_late(view, 0, NULL));
    BAD(remanent_view_private(view, 0, UINT64_MAX, &mapping, &room));
    BAD(remanent_view_copy(view, 0, NULL, 4));
    remanent_view_release(view);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    remanent_store *store = create(in_folder(argv, "mistakes.pool"), 8 << 20);
    nulls(store, argv);
    wrong_values(store);
    OK(remanent_store_close(store));
    remanent_store_release(store);
    return 0;
}
