/* What the test programs share: to stop with the place and the reason when something is not as it should be. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remanent.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n  last error: %d %s\n", __FILE__, __LINE__, #condition,                        \
                    remanent_error_code(), remanent_error_message());                                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define OK(call) CHECK((call) == REMANENT_OK)

/* The call fails with this code, which is the last error then, and has a text. */
#define FAILS(code, call)                                                                                              \
    do {                                                                                                               \
        CHECK((call) == (code));                                                                                       \
        CHECK(remanent_error_code() == (code));                                                                        \
        CHECK(strlen(remanent_error_message()) > 10);                                                                  \
    } while (0)

static const remanent_dtype F8 = {.type_class = REMANENT_CLASS_FLOAT, .item_bytes = 8};
static const remanent_dtype I4 = {.type_class = REMANENT_CLASS_INT, .item_bytes = 4};

/* A path in the folder that the program was given. */
static inline const char *in_folder(char **argv, const char *name) {
    static char place[4096];
    snprintf(place, sizeof place, "%s/%s", argv[1], name);
    return place;
}

static inline remanent_store *create(const char *path, uint64_t bytes) {
    remanent_create_options how = {.size_bytes = sizeof how, .file_bytes = bytes};
    remanent_store *store;
    OK(remanent_store_create(path, &how, &store));
    CHECK(store);
    return store;
}

#endif
