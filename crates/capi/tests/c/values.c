/* Every kind of node goes in and comes out: what is written, mapped, copied, and privately changed. */
#include "check.h"

static const remanent_node *node(const remanent_view *view, uint32_t number) {
    const remanent_node *found;
    OK(remanent_view_node(view, number, &found));
    return found;
}

static const void *data_of(const remanent_view *view, const remanent_node *of, uint64_t which, uint64_t *len) {
    const void *data;
    CHECK(which < of->buffer_count);
    OK(remanent_view_buffer(view, of->buffers[which], &data, len));
    return data;
}

static remanent_view *get(const remanent_store *store, const char *name) {
    remanent_view *view;
    OK(remanent_store_get(store, name, &view));
    const remanent_object *object;
    OK(remanent_view_object(view, &object));
    CHECK(strcmp(object->name, name) == 0 && object->is_known == 1 && object->generation > 0);
    return view;
}

static void arrays(remanent_store *store) {
    double items[6] = {1, 2, 3, 4, 5, 6};
    uint64_t shape[2] = {2, 3};
    remanent_batch *batch;
    OK(remanent_batch_new(store, &batch));
    OK(remanent_batch_put(batch, "matrix"));
    OK(remanent_batch_array(batch, &F8, shape, 2, true, items, sizeof items));
    OK(remanent_batch_put(batch, "scalar"));
    OK(remanent_batch_array(batch, &I4, NULL, 0, false, &(int){42}, 4));
    OK(remanent_batch_put(batch, "empty"));
    OK(remanent_batch_array(batch, &F8, &(uint64_t){0}, 1, false, NULL, 0));
    OK(remanent_batch_put(batch, "words"));
    OK(remanent_batch_text(batch, "größe", strlen("größe")));
    OK(remanent_batch_put(batch, "blob"));
    OK(remanent_batch_bytes(batch, "\0\1\2", 3));
    uint64_t generation = 0;
    OK(remanent_batch_commit(batch, NULL, &generation));
    CHECK(generation > 0);
    remanent_batch_release(batch);

    remanent_view *view = get(store, "matrix");
    CHECK(remanent_view_node_count(view) == 1);
    const remanent_node *root = node(view, 0);
    CHECK(root->kind == REMANENT_NODE_ARRAY && root->length == 6 && root->dimensions == 2);
    CHECK(root->shape[0] == 2 && root->shape[1] == 3 && root->flags == REMANENT_FLAG_COLUMN_MAJOR);
    CHECK(root->dtype->type_class == REMANENT_CLASS_FLOAT && root->dtype->item_bytes == 8);
    CHECK(root->dtype->byte_order == REMANENT_ORDER_LITTLE);
    uint64_t len;
    CHECK(memcmp(data_of(view, root, 0, &len), items, sizeof items) == 0 && len == sizeof items);
    double copied[6];
    OK(remanent_view_guard(view, 0));
    OK(remanent_view_copy(view, 0, copied, sizeof copied));
    CHECK(memcmp(copied, items, sizeof items) == 0);
    FAILS(REMANENT_LENGTH_MISMATCH, remanent_view_copy(view, 0, copied, 8));
    FAILS(REMANENT_BAD_ARGUMENT, remanent_view_copy(view, 1, copied, 8));
    bool has_sum = true;
    OK(remanent_view_verify(view, &has_sum));
    CHECK(!has_sum);
    remanent_view_release(view);

    view = get(store, "scalar");
    root = node(view, 0);
    CHECK(root->dimensions == 0 && root->length == 1 && *(const int *)data_of(view, root, 0, &len) == 42);
    remanent_view_release(view);
    view = get(store, "empty");
    CHECK(node(view, 0)->length == 0 && node(view, 0)->shape[0] == 0);
    remanent_view_release(view);
    view = get(store, "words");
    root = node(view, 0);
    CHECK(root->kind == REMANENT_NODE_TEXT && root->text_bytes == strlen("größe"));
    CHECK(memcmp(root->text, "größe", root->text_bytes) == 0);
    remanent_view_release(view);
    view = get(store, "blob");
    CHECK(node(view, 0)->kind == REMANENT_NODE_BYTES && memcmp(node(view, 0)->text, "\0\1\2", 3) == 0);
    remanent_view_release(view);
}

static void containers(remanent_store *store) {
    static char many[10000];
    memset(many, 'x', sizeof many);
    int places[4] = {1, 2, 0, 1};
    uint64_t offsets[3] = {0, 1, 3};
    const void *beside[1] = {"kept"};
    uint64_t beside_bytes[1] = {4};
    remanent_batch *batch;
    OK(remanent_batch_new(store, &batch));
    OK(remanent_batch_put(batch, "tree"));
    OK(remanent_batch_begin_attributed(batch, "me"));
    OK(remanent_batch_begin_mapping(batch));
    OK(remanent_batch_text(batch, "leaves", 6));
    OK(remanent_batch_begin_list(batch));
    OK(remanent_batch_nothing(batch));
    OK(remanent_batch_bool(batch, true));
    OK(remanent_batch_int(batch, -7));
    OK(remanent_batch_large_int(batch, true, (const uint8_t *)"\1\2\3\4\5\6\7\10\11", 9));
    OK(remanent_batch_float(batch, 0.5));
    OK(remanent_batch_complex(batch, 1, -2));
    OK(remanent_batch_text(batch, many, sizeof many));
    OK(remanent_batch_bytes(batch, many, 5));
    OK(remanent_batch_foreign(batch, "my.codec", "stream", 6, beside, beside_bytes, 1));
    OK(remanent_batch_end(batch));
    OK(remanent_batch_text(batch, "table", 5));
    OK(remanent_batch_begin_table(batch, 4));
    OK(remanent_batch_text(batch, "kind", 4));
    OK(remanent_batch_begin_dictionary(batch, 1, true));
    OK(remanent_batch_array(batch, &I4, &(uint64_t){4}, 1, false, places, sizeof places));
    OK(remanent_batch_strings(batch, 2, offsets, "abc", 3, NULL, true));
    OK(remanent_batch_end(batch));
    OK(remanent_batch_text(batch, "some", 4));
    OK(remanent_batch_begin_nullable(batch, "\5", 1));
    OK(remanent_batch_array(batch, &I4, &(uint64_t){4}, 1, false, places, sizeof places));
    OK(remanent_batch_end(batch));
    OK(remanent_batch_end(batch));
    OK(remanent_batch_int(batch, 3));
    OK(remanent_batch_begin_tuple(batch));
    OK(remanent_batch_strings(batch, 2, offsets, "abc", 3, "\2", false));
    OK(remanent_batch_end(batch));
    OK(remanent_batch_end(batch));
    OK(remanent_batch_attribute(batch, "note"));
    OK(remanent_batch_text(batch, "beside", 6));
    OK(remanent_batch_attribute(batch, "count"));
    OK(remanent_batch_int(batch, 2));
    OK(remanent_batch_end(batch));
    remanent_commit_options how = {.size_bytes = sizeof how, .checksum = 1, .threads = 1};
    OK(remanent_batch_commit(batch, &how, NULL));
    remanent_batch_release(batch);

    remanent_view *view = get(store, "tree");
    const remanent_node *root = node(view, 0);
    CHECK(root->kind == REMANENT_NODE_ATTRIBUTED && strcmp(root->text, "me") == 0 && root->child_count == 3);
    const remanent_node *note = node(view, root->first_child + 1), *count = node(view, root->first_child + 2);
    CHECK(strcmp(note->name, "note") == 0 && strcmp(note->text, "beside") == 0);
    CHECK(strcmp(count->name, "count") == 0 && count->integer == 2);
    const remanent_node *mapping = node(view, root->first_child);
    CHECK(mapping->kind == REMANENT_NODE_MAPPING && mapping->child_count == 6 && mapping->name == NULL);
    const remanent_node *list = node(view, mapping->first_child + 1);
    CHECK(list->kind == REMANENT_NODE_LIST && list->child_count == 9);
    uint32_t at = list->first_child;
    CHECK(node(view, at)->kind == REMANENT_NODE_NOTHING);
    CHECK(node(view, at + 1)->kind == REMANENT_NODE_BOOL && node(view, at + 1)->integer == 1);
    CHECK(node(view, at + 2)->kind == REMANENT_NODE_INT && node(view, at + 2)->integer == -7);
    CHECK(node(view, at + 3)->kind == REMANENT_NODE_LARGE_INT && node(view, at + 3)->flags == REMANENT_FLAG_NEGATIVE);
    CHECK(node(view, at + 3)->text_bytes == 9 && node(view, at + 3)->text[8] == 9);
    CHECK(node(view, at + 4)->real == 0.5);
    CHECK(node(view, at + 5)->real == 1 && node(view, at + 5)->imaginary == -2);
    CHECK(node(view, at + 6)->text_bytes == sizeof many && node(view, at + 6)->buffer_count == 1);
    CHECK(memcmp(node(view, at + 6)->text, many, sizeof many) == 0);
    CHECK(node(view, at + 7)->kind == REMANENT_NODE_BYTES && node(view, at + 7)->buffer_count == 0);
    const remanent_node *foreign = node(view, at + 8);
    uint64_t len;
    CHECK(foreign->kind == REMANENT_NODE_FOREIGN && strcmp(foreign->text, "my.codec") == 0);
    CHECK(memcmp(data_of(view, foreign, 0, &len), "stream", 6) == 0 && len == 6);
    CHECK(memcmp(data_of(view, foreign, 1, &len), "kept", 4) == 0 && len == 4);
    const remanent_node *table = node(view, mapping->first_child + 3);
    CHECK(table->kind == REMANENT_NODE_TABLE && table->length == 4 && table->child_count == 4);
    const remanent_node *dictionary = node(view, table->first_child + 1);
    CHECK(dictionary->kind == REMANENT_NODE_DICTIONARY && dictionary->integer == 1);
    CHECK(dictionary->flags == REMANENT_FLAG_ORDERED && dictionary->child_count == 2);
    CHECK(node(view, dictionary->first_child)->kind == REMANENT_NODE_ARRAY);
    const remanent_node *values = node(view, dictionary->first_child + 1);
    CHECK(values->kind == REMANENT_NODE_STRINGS && values->length == 2 && values->buffer_count == 2);
    CHECK(values->flags == REMANENT_FLAG_UTF8);
    CHECK(((const uint64_t *)data_of(view, values, 0, &len))[2] == 3 && len == 24);
    const remanent_node *nullable = node(view, table->first_child + 3);
    CHECK(nullable->kind == REMANENT_NODE_NULLABLE && *(const char *)data_of(view, nullable, 0, &len) == 5);
    const remanent_node *tuple = node(view, mapping->first_child + 5);
    CHECK(tuple->kind == REMANENT_NODE_TUPLE && node(view, mapping->first_child + 4)->integer == 3);
    CHECK(node(view, tuple->first_child)->buffer_count == 3 && node(view, tuple->first_child)->flags == 0);
    bool has_sum = false;
    OK(remanent_view_verify(view, &has_sum));
    CHECK(has_sum);
    remanent_view_release(view);
}

static void structures(remanent_store *store) {
    struct row {
        int32_t id;
        double at[2];
    } rows[2] = {{1, {2, 3}}, {4, {5, 6}}};
    uint64_t two = 2;
    remanent_field base = {.name = NULL, .dtype = &F8};
    remanent_dtype pair = {.type_class = REMANENT_CLASS_SUB_ARRAY, .item_bytes = 16, .fields = &base, .field_count = 1,
                           .shape = &two, .dimensions = 1};
    remanent_field fields[2] = {{"id", 0, &I4}, {"at", 8, &pair}};
    remanent_dtype row = {.type_class = REMANENT_CLASS_STRUCT, .item_bytes = sizeof(struct row), .variant = 1,
                          .fields = fields, .field_count = 2};
    remanent_dtype moment = {.type_class = REMANENT_CLASS_DATETIME, .item_bytes = 8,
                             .variant = REMANENT_UNIT_NANOSECOND, .multiple = 1};
    remanent_batch *batch;
    OK(remanent_batch_new(store, &batch));
    OK(remanent_batch_put(batch, "rows"));
    OK(remanent_batch_array(batch, &row, &two, 1, false, rows, sizeof rows));
    OK(remanent_batch_put(batch, "moment"));
    OK(remanent_batch_array(batch, &moment, NULL, 0, false, &(int64_t){9}, 8));
    OK(remanent_batch_commit(batch, NULL, NULL));
    remanent_batch_release(batch);

    remanent_view *view = get(store, "rows");
    const remanent_dtype *found = node(view, 0)->dtype;
    CHECK(found->type_class == REMANENT_CLASS_STRUCT && found->field_count == 2 && found->variant == 1);
    CHECK(strcmp(found->fields[1].name, "at") == 0 && found->fields[1].offset_bytes == 8);
    const remanent_dtype *inner = found->fields[1].dtype;
    CHECK(inner->type_class == REMANENT_CLASS_SUB_ARRAY && inner->dimensions == 1 && inner->shape[0] == 2);
    CHECK(inner->fields[0].dtype->type_class == REMANENT_CLASS_FLOAT);
    remanent_view_release(view);
    view = get(store, "moment");
    CHECK(node(view, 0)->dtype->variant == REMANENT_UNIT_NANOSECOND && node(view, 0)->dtype->multiple == 1);
    remanent_view_release(view);
}

/* Private mappings: writable, apart from one another and from the pool, and alive after everything else is closed. */
static void private_mappings(remanent_store *store, const char *path) {
    uint64_t count = 1 << 18;
    double *items = malloc(count * sizeof *items);
    for (uint64_t i = 0; i < count; i++)
        items[i] = (double)i;
    remanent_batch *batch;
    OK(remanent_batch_new(store, &batch));
    OK(remanent_batch_put(batch, "plain"));
    OK(remanent_batch_array(batch, &F8, &count, 1, false, items, count * sizeof *items));
    OK(remanent_batch_put(batch, "part"));
    OK(remanent_batch_begin_list(batch));
    OK(remanent_batch_array(batch, &F8, &count, 1, false, items, count * sizeof *items));
    OK(remanent_batch_array(batch, &F8, &(uint64_t){2}, 1, false, items, 16));
    OK(remanent_batch_end(batch));
    OK(remanent_batch_commit(batch, NULL, NULL));
    remanent_batch_release(batch);

    const char *names[2] = {"plain", "part"};
    remanent_view *views[2];
    OK(remanent_store_get_many(store, names, 2, views));
    OK(remanent_store_close(store));
    OK(remanent_store_close(store));
    FAILS(REMANENT_CLOSED, remanent_store_gc(store, NULL));
    remanent_store_release(store);
    for (int which = 0; which < 2; which++) {
        for (uint64_t room = 0; room <= 8192; room += 100) {
            remanent_mapping *mapping, *other;
            void *data, *other_data;
            OK(remanent_view_private(views[which], 0, room, &mapping, &data));
            OK(remanent_view_private(views[which], 0, 0, &other, &other_data));
            memset((char *)data - room, 0x5a, room);
            CHECK(memcmp(data, items, count * sizeof *items) == 0);
            ((double *)data)[3] = -1;
            CHECK(((double *)other_data)[3] == 3);
            remanent_mapping_retain(mapping);
            remanent_mapping_release(mapping);
            CHECK(((double *)data)[3] == -1);
            remanent_mapping_release(mapping);
            remanent_mapping_release(other);
        }
    }
    remanent_mapping *kept, *small;
    void *data;
    OK(remanent_view_private(views[1], 1, 0, &small, &data));
    CHECK(small == NULL && data == NULL);
    OK(remanent_view_private_late(views[1], 1, &small));
    CHECK(small == NULL);
    remanent_mapping *late[2];
    for (int which = 0; which < 2; which++)
        OK(remanent_view_private_late(views[which], 0, &late[which]));
    double *copy = malloc(count * sizeof *copy);
    OK(remanent_mapping_copy(late[0], copy, count * sizeof *copy));
    CHECK(memcmp(copy, items, count * sizeof *copy) == 0);
    FAILS(REMANENT_LENGTH_MISMATCH, remanent_mapping_copy(late[0], copy, 8));
    OK(remanent_view_private(views[0], 0, 0, &kept, &data));
    remanent_view_release(views[0]);
    remanent_view_release(views[1]);
    /* Somebody else writes to the pool; what is mapped stays. */
    OK(remanent_store_open(path, REMANENT_WRITER, &store));
    OK(remanent_store_remove(store, "plain"));
    OK(remanent_store_gc(store, NULL));
    CHECK(memcmp(data, items, count * sizeof *items) == 0);
    remanent_store_release(store);
    remanent_mapping_release(kept);
    void *late_data, *again;
    for (int which = 0; which < 2; which++) {
        OK(remanent_mapping_data(late[which], &late_data));
        CHECK(memcmp(late_data, items, count * sizeof *items) == 0);
        ((double *)late_data)[0] = -5;
        OK(remanent_mapping_data(late[which], &again));
        OK(remanent_mapping_copy(late[which], copy, count * sizeof *copy));
        CHECK(late_data == again && copy[0] == -5);
        remanent_mapping_release(late[which]);
    }
    free(copy);
    free(items);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    const char *path = in_folder(argv, "values.pool");
    remanent_store *store = create(path, 32 << 20);
    arrays(store);
    containers(store);
    structures(store);
    private_mappings(store, path);
    /* RFC 3720, B.4, and the check value of the catalogue of CRCs. */
    CHECK(remanent_crc32c(0, "123456789", 9) == 0xe3069283 && remanent_crc32c(0, NULL, 0) == 0);
    CHECK(remanent_crc32c(remanent_crc32c(0, "1234", 4), "56789", 5) == 0xe3069283);
    return 0;
}
