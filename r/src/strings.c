/* Character vectors: as a dictionary when they repeat, and as they are else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"
#include "remanent_r.h"

/* Fewer strings than this are never looked at for repetitions. */
#define DICTIONARY_FROM 32
/* After so many strings it is decided whether to go on looking. */
#define SAMPLE 65536

/* ---- out ---- */

/* Whether bytes are UTF-8 (RFC 3629): no surrogates, nothing longer than it need be. */
int is_utf8(const char *text, size_t bytes) {
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
    while (at < end) {
        if (*at < 0x80) {
            at++;
            continue;
        }
        int more = *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : 1;
        if (*at < 0xc2 || *at > 0xf4 || end - at <= more)
            return 0;
        unsigned second = at[1];
        if ((*at == 0xe0 && second < 0xa0) || (*at == 0xed && second > 0x9f) || (*at == 0xf0 && second < 0x90) ||
            (*at == 0xf4 && second > 0x8f))
            return 0;
        for (int i = 1; i <= more; i++)
            if ((at[i] & 0xc0) != 0x80)
                return 0;
        at += more + 1;
    }
    return 1;
}

static int is_ascii(const char *text, size_t bytes) {
    unsigned char all = 0;
    for (size_t i = 0; i < bytes; i++)
        all |= (unsigned char)text[i];
    return all < 0x80;
}

/* The bytes of a string as they are kept, in UTF-8 where that can be, and how they are marked where it cannot: 2 for what
 * is bytes, 0 for what is no UTF-8 although it should be; 1 for UTF-8. */
static const char *bytes_of(SEXP item, size_t *bytes, uint8_t *mark) {
    const char *text = CHAR(item);
    *bytes = (size_t)LENGTH(item);
    *mark = 1;
    if (is_ascii(text, *bytes))
        return text;
    cetype_t encoding = Rf_getCharCE(item);
    if (encoding == CE_BYTES) {
        *mark = 2;
        return text;
    }
    if (encoding == CE_LATIN1) {
        text = Rf_translateCharUTF8(item);
        *bytes = strlen(text);
    }
    /* What belongs to a locale that is not UTF-8 stays as it is, for the same locale. */
    int is_native = encoding == CE_NATIVE && Rf_translateCharUTF8(item) != text;
    if (is_native || !is_utf8(text, *bytes))
        *mark = 0;
    return text;
}

/* Whether a string comes back as it is from its text in UTF-8, so that it can be a key, a name or a level. */
int is_text(SEXP item) {
    size_t bytes;
    uint8_t mark;
    if (item == NA_STRING)
        return 0;
    const void *allocated = vmaxget();
    bytes_of(item, &bytes, &mark);
    vmaxset(allocated);
    return mark == 1;
}

/* Refuses names that are no texts. */
SEXP rem_check_names(SEXP names) {
    for (R_xlen_t i = 0; i < XLENGTH(names); i++) {
        struct step at = {.name = label_of(STRING_ELT(names, i))};
        if (!is_text(STRING_ELT(names, i)))
            refuse(REMANENT_BAD_NAME, &at, "is no name: it is no text in UTF-8, or that can be made into UTF-8");
    }
    return R_NilValue;
}

/* A string for a message: in UTF-8, what is no text as R would print it. */
const char *label_of(SEXP item) {
    if (Rf_getCharCE(item) != CE_BYTES || is_ascii(CHAR(item), (size_t)LENGTH(item)))
        return Rf_translateCharUTF8(item);
    char *made = R_alloc((size_t)LENGTH(item) * 4 + 1, 1), *to = made;
    for (const unsigned char *at = (const unsigned char *)CHAR(item); *at; at++) {
        if (*at < 0x80)
            *to++ = (char)*at;
        else
            to += snprintf(to, 5, "\\x%02x", *at);
    }
    *to = 0;
    return made;
}

/* Strings that were seen already: open addressing over R's own pointers, for equal strings are one object. */
struct seen {
    uint32_t *slots;
    size_t mask;
    SEXP *values;
    uint32_t count, room;
};

static size_t slot_of(const struct seen *seen, SEXP item) {
    size_t at = (size_t)(((uintptr_t)item >> 4) * 0x9e3779b97f4a7c15u >> 20) & seen->mask;
    while (seen->slots[at] && seen->values[seen->slots[at] - 1] != item)
        at = (at + 1) & seen->mask;
    return at;
}

static void grow(struct writer *w, struct seen *seen) {
    uint32_t room = seen->room ? seen->room * 4 : 1024;
    SEXP *values = keep_bytes(w, room * sizeof *values);
    if (seen->count)
        memcpy(values, seen->values, seen->count * sizeof *values);
    seen->values = values;
    seen->room = room;
    size_t slots = (size_t)room * 2;
    seen->slots = keep_bytes(w, slots * sizeof *seen->slots);
    memset(seen->slots, 0, slots * sizeof *seen->slots);
    seen->mask = slots - 1;
    for (uint32_t i = 0; i < seen->count; i++)
        seen->slots[slot_of(seen, values[i])] = i + 1;
}

/* Finds the strings' places, unless more than half of them differ. */
static int find_places(struct writer *w, const SEXP *items, R_xlen_t count, uint32_t *places, struct seen *seen) {
    grow(w, seen);
    for (R_xlen_t i = 0; i < count; i++) {
        if (items[i] == NA_STRING) {
            places[i] = 0;
            continue;
        }
        size_t at = slot_of(seen, items[i]);
        if (i == SAMPLE && seen->count > SAMPLE / 4 * 3)
            return 0;
        if (!seen->slots[at]) {
            if (seen->count > (uint64_t)count / 2 || seen->count > UINT32_MAX / 8)
                return 0;
            if (seen->count == seen->room) {
                grow(w, seen);
                at = slot_of(seen, items[i]);
            }
            seen->values[seen->count++] = items[i];
            seen->slots[at] = seen->count;
        }
        places[i] = seen->slots[at];
    }
    return 1;
}

/* Makes places as small as they can be, where they are: each is read before it is written over. */
static int narrow(uint32_t *places, R_xlen_t count, uint32_t largest) {
    if (largest <= UINT8_MAX) {
        uint8_t *to = (uint8_t *)places;
        for (R_xlen_t i = 0; i < count; i++)
            to[i] = (uint8_t)places[i];
        return 1;
    }
    if (largest <= UINT16_MAX) {
        uint16_t *to = (uint16_t *)places;
        for (R_xlen_t i = 0; i < count; i++)
            memcpy(to + i, &(uint16_t){(uint16_t)places[i]}, 2);
        return 2;
    }
    return 4;
}

static uint8_t *marks_of(struct writer *w, const SEXP *items, R_xlen_t count) {
    uint8_t *marks = NULL;
    const void *allocated = vmaxget();
    for (R_xlen_t i = 0; i < count; i++) {
        size_t bytes;
        uint8_t mark = 1;
        if (items[i] != NA_STRING)
            bytes_of(items[i], &bytes, &mark);
        if (mark != 1 && !marks) {
            marks = keep_bytes(w, (size_t)count);
            memset(marks, 1, (size_t)count);
        }
        if (marks)
            marks[i] = mark;
        vmaxset(allocated);
    }
    return marks;
}

struct strings plan_strings(struct writer *w, SEXP x) {
    struct strings plan = {0};
    const SEXP *items = STRING_PTR_RO(x);
    R_xlen_t count = XLENGTH(x);
    if (count >= DICTIONARY_FROM) {
        struct seen seen = {0};
        uint32_t *places = keep_bytes(w, (size_t)count * sizeof *places);
        if (find_places(w, items, count, places, &seen)) {
            plan.place_bytes = narrow(places, count, seen.count);
            plan.places = places;
            plan.values = seen.values;
            plan.value_count = seen.count;
        }
    }
    plan.marks = plan.places ? marks_of(w, plan.values, plan.value_count) : marks_of(w, items, count);
    return plan;
}

static void write_items(struct writer *w, const struct step *at, const SEXP *items, R_xlen_t count, int is_text) {
    uint64_t *offsets = keep_bytes(w, ((size_t)count + 1) * sizeof *offsets);
    const void *allocated = vmaxget();
    size_t bytes, total = 0, bits_bytes = ((size_t)count + 7) / 8;
    uint8_t mark, *bits = NULL;
    for (R_xlen_t i = 0; i < count; i++) {
        if (items[i] == NA_STRING) {
            if (!bits) {
                bits = keep_bytes(w, bits_bytes);
                memset(bits, 0xff, bits_bytes);
            }
            bits[i / 8] &= (uint8_t)~(1u << i % 8);
        } else {
            bytes_of(items[i], &bytes, &mark);
            total += bytes;
            vmaxset(allocated);
        }
    }
    char *data = keep_bytes(w, total);
    size_t used = 0;
    for (R_xlen_t i = 0; i < count; i++) {
        offsets[i] = used;
        if (items[i] != NA_STRING) {
            const char *text = bytes_of(items[i], &bytes, &mark);
            memcpy(data + used, text, bytes);
            used += bytes;
            vmaxset(allocated);
        }
    }
    offsets[count] = used;
    check_at(remanent_batch_strings(w->batch, (uint64_t)count, offsets, data, used, bits, is_text), at);
}

void write_flat_strings(struct writer *w, const struct step *at, const SEXP *items, R_xlen_t count) {
    write_items(w, at, items, count, 1);
}

void write_strings(struct writer *w, const struct step *at, SEXP x, struct strings *plan) {
    if (!plan->places) {
        write_items(w, at, STRING_PTR_RO(x), XLENGTH(x), plan->marks == NULL);
        return;
    }
    remanent_dtype dtype = {.type_class = REMANENT_CLASS_UINT, .item_bytes = (uint64_t)plan->place_bytes};
    uint64_t count = (uint64_t)XLENGTH(x);
    check_at(remanent_batch_begin_dictionary(w->batch, 1, false), at);
    check_at(remanent_batch_array(w->batch, &dtype, &count, 1, false, plan->places, count * dtype.item_bytes), at);
    write_items(w, at, plan->values, plan->value_count, plan->marks == NULL);
    check_at(remanent_batch_end(w->batch), at);
}

/* ---- in ---- */

SEXP read_strings(const struct reader *r, const struct step *at, const remanent_node *node, const struct hints *hints) {
    uint64_t offsets_bytes, data_bytes, bits_bytes, marks_bytes = 0;
    const uint64_t *offsets = buffer_of(r, at, node, 0, &offsets_bytes);
    const char *data = buffer_of(r, at, node, 1, &data_bytes);
    const uint8_t *bits = node->buffer_count > 2 ? buffer_of(r, at, node, 2, &bits_bytes) : NULL;
    const uint8_t *marks = hints->encoding ? buffer_of(r, at, hints->encoding, 0, &marks_bytes) : NULL;
    R_xlen_t count = (R_xlen_t)node->length;
    if (marks && marks_bytes != node->length)
        refuse(REMANENT_CORRUPT, at, "has not as many marks as strings; restore the file from a copy");
    SEXP made = PROTECT(Rf_allocVector(STRSXP, count));
    for (R_xlen_t i = 0; i < count; i++) {
        if (bits && !(bits[i / 8] >> i % 8 & 1)) {
            SET_STRING_ELT(made, i, NA_STRING);
            continue;
        }
        uint64_t start = offsets[i], end = offsets[i + 1];
        if (start > end || end > data_bytes)
            refuse(REMANENT_CORRUPT, at, "has damaged strings; restore the file from a copy");
        if (end - start > INT32_MAX)
            refuse(REMANENT_UNKNOWN_TYPE, at, "has a string of more than 2 GiB, which R cannot hold");
        if (memchr(data + start, 0, end - start))
            refuse(REMANENT_UNKNOWN_TYPE, at, "has a string with a NUL in it, which R cannot hold");
        cetype_t encoding = node->flags & REMANENT_FLAG_UTF8 ? CE_UTF8 : CE_BYTES;
        if (marks)
            encoding = marks[i] == 1 ? CE_UTF8 : marks[i] == 2 ? CE_BYTES : CE_NATIVE;
        else if (encoding == CE_BYTES && is_ascii(data + start, end - start))
            encoding = CE_NATIVE;
        SET_STRING_ELT(made, i, Rf_mkCharLenCE(data + start, (int)(end - start), encoding));
    }
    UNPROTECT(1);
    return made;
}

/* A character vector from its dictionary: each different string is made once. */
SEXP read_character_dictionary(const struct reader *r, const struct step *at, const remanent_node *node,
                               const struct hints *hints) {
    const remanent_node *places = node_at(r, node->first_child), *values = node_at(r, node->first_child + 1);
    if (values->kind != REMANENT_NODE_STRINGS || places->kind != REMANENT_NODE_ARRAY ||
        places->dtype->type_class != REMANENT_CLASS_UINT || places->dtype->item_bytes > 4 ||
        places->dtype->byte_order == REMANENT_ORDER_BIG || node->integer != 1)
        refuse(REMANENT_UNKNOWN_TYPE, at, "is a dictionary in a form that this version cannot read");
    SEXP strings = PROTECT(read_strings(r, at, values, hints));
    uint64_t bytes, largest = values->length;
    const void *data = buffer_of(r, at, places, 0, &bytes);
    R_xlen_t count = (R_xlen_t)places->length;
    SEXP made = PROTECT(Rf_allocVector(STRSXP, count));
    const SEXP *found = STRING_PTR_RO(strings);
#define LOOK_UP(type)                                                                                                  \
    for (R_xlen_t i = 0; i < count; i++) {                                                                             \
        type place = ((const type *)data)[i];                                                                          \
        if (place > largest)                                                                                           \
            refuse(REMANENT_CORRUPT, at, "has a damaged dictionary; restore the file from a copy");                    \
        SET_STRING_ELT(made, i, place ? found[place - 1] : NA_STRING);                                                 \
    }
    if (places->dtype->item_bytes == 1)
        LOOK_UP(uint8_t)
    else if (places->dtype->item_bytes == 2)
        LOOK_UP(uint16_t)
    else
        LOOK_UP(uint32_t)
    UNPROTECT(2);
    return made;
}
