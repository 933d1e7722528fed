/*
 * Remanent's C interface: named objects that survive restarts. The book's page "The C interface" explains it.
 *
 * This file is made from crates/capi/src by `./run fix`; change it there.
 * Licence: MIT OR Apache-2.0.
 */

#ifndef REMANENT_H
#define REMANENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * What a function returns when all went well.
 */
#define REMANENT_OK 0

/**
 * The version of this interface. Functions that are added raise it; a program that was built for a smaller number works
 * with a larger one.
 */
#define REMANENT_ABI_VERSION 1

/**
 * Strings: all of them are UTF-8.
 */
#define REMANENT_FLAG_UTF8 1

/**
 * Dictionaries: the values have an order.
 */
#define REMANENT_FLAG_ORDERED 2

/**
 * Large integers: below zero.
 */
#define REMANENT_FLAG_NEGATIVE 4

/**
 * Arrays: the first index varies fastest.
 */
#define REMANENT_FLAG_COLUMN_MAJOR 8

/**
 * What a function returns else. The numbers and names are the same in every language; the book's page "Errors" says what
 * each of them means and what can be done.
 */
enum remanent_error
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    REMANENT_IO = 1,
    REMANENT_NOT_FOUND = 2,
    REMANENT_ALREADY_EXISTS = 3,
    REMANENT_IS_DIRECTORY = 4,
    REMANENT_NOT_A_FILE = 5,
    REMANENT_SYMLINK = 6,
    REMANENT_ACCESS_DENIED = 7,
    REMANENT_WORLD_WRITABLE = 8,
    REMANENT_READ_ONLY = 9,
    REMANENT_FILE_SYSTEM_FULL = 10,
    REMANENT_BAD_SIZE = 11,
    REMANENT_MISALIGNED = 12,
    REMANENT_NOT_A_POOL = 20,
    REMANENT_NEWER_VERSION = 21,
    REMANENT_UNKNOWN_FEATURE = 22,
    REMANENT_WRONG_LAYOUT = 23,
    REMANENT_SUPERBLOCK_LOST = 24,
    REMANENT_TRUNCATED = 25,
    REMANENT_FOREIGN_PART = 26,
    REMANENT_MISSING_PART = 27,
    REMANENT_NOT_FIRST_PART = 28,
    REMANENT_BAD_BLOCK = 29,
    REMANENT_CORRUPT = 30,
    REMANENT_POOL_BUSY = 40,
    REMANENT_POOL_FULL = 41,
    REMANENT_WRITES_REFUSED = 42,
    REMANENT_NOT_WRITABLE = 43,
    REMANENT_USED_AFTER_FORK = 44,
    REMANENT_NO_SUCH_NAME = 45,
    REMANENT_BAD_NAME = 46,
    REMANENT_TOO_LARGE = 47,
    REMANENT_UNSUPPORTED = 48,
    REMANENT_IN_USE = 49,
    REMANENT_UNKNOWN_TYPE = 60,
    REMANENT_SHAPE_OVERFLOW = 61,
    REMANENT_CHECKSUM_MISMATCH = 62,
    REMANENT_NOT_AN_ARRAY = 63,
    REMANENT_LENGTH_MISMATCH = 64,
    REMANENT_CANCELLED = 65,
    REMANENT_CLOSED = 66,
    REMANENT_BAD_ARGUMENT = 67,
    REMANENT_INTERNAL = 68,
    REMANENT_SOURCE_CHANGED = 69,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum remanent_error remanent_error;
#else
typedef int32_t remanent_error;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How a pool is opened: remanent_store_open.
 */
enum remanent_mode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Any number of processes, beside the writer.
     */
    REMANENT_READER = 0,
    /**
     * One process at a time.
     */
    REMANENT_WRITER = 1,
    /**
     * Without a lock and without recovery: to look at what others have open.
     */
    REMANENT_INSPECT = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum remanent_mode remanent_mode;
#else
typedef uint32_t remanent_mode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What an object is: remanent_object.kind.
 */
enum remanent_object_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    REMANENT_ARRAY = 1,
    REMANENT_BYTES = 2,
    /**
     * UTF-8.
     */
    REMANENT_TEXT = 3,
    /**
     * A tree of parts.
     */
    REMANENT_VALUE = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum remanent_object_kind remanent_object_kind;
#else
typedef uint32_t remanent_object_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What an item is: remanent_dtype.type_class.
 */
enum remanent_class
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    REMANENT_CLASS_BOOL = 1,
    REMANENT_CLASS_INT = 2,
    REMANENT_CLASS_UINT = 3,
    REMANENT_CLASS_FLOAT = 4,
    /**
     * Two floating-point numbers, real part first.
     */
    REMANENT_CLASS_COMPLEX = 5,
    /**
     * A string of bytes, padded with zeros.
     */
    REMANENT_CLASS_BYTES = 6,
    /**
     * A string of 4-byte code points, padded with zeros.
     */
    REMANENT_CLASS_UNICODE = 7,
    /**
     * Bytes without a meaning.
     */
    REMANENT_CLASS_VOID = 8,
    /**
     * Steps since 1970-01-01 UTC in 8 bytes; the least number is "not a time".
     */
    REMANENT_CLASS_DATETIME = 9,
    /**
     * A number of steps in 8 bytes; the least number is "not a time".
     */
    REMANENT_CLASS_TIMEDELTA = 10,
    /**
     * Named fields.
     */
    REMANENT_CLASS_STRUCT = 11,
    /**
     * A small array within a structure, in C order; its items' type is the only field.
     */
    REMANENT_CLASS_SUB_ARRAY = 12,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum remanent_class remanent_class;
#else
typedef uint32_t remanent_class;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Order of the bytes within a number: remanent_dtype.byte_order.
 */
enum remanent_byte_order
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * It has none; where a number has one this means little-endian to functions that write.
     */
    REMANENT_ORDER_NONE = 0,
    REMANENT_ORDER_LITTLE = 1,
    REMANENT_ORDER_BIG = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum remanent_byte_order remanent_byte_order;
#else
typedef uint32_t remanent_byte_order;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Units of time: remanent_dtype.variant of times.
 */
enum remanent_unit
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    REMANENT_UNIT_GENERIC = 0,
    REMANENT_UNIT_YEAR = 1,
    REMANENT_UNIT_MONTH = 2,
    REMANENT_UNIT_WEEK = 3,
    REMANENT_UNIT_DAY = 4,
    REMANENT_UNIT_HOUR = 5,
    REMANENT_UNIT_MINUTE = 6,
    REMANENT_UNIT_SECOND = 7,
    REMANENT_UNIT_MILLISECOND = 8,
    REMANENT_UNIT_MICROSECOND = 9,
    REMANENT_UNIT_NANOSECOND = 10,
    REMANENT_UNIT_PICOSECOND = 11,
    REMANENT_UNIT_FEMTOSECOND = 12,
    REMANENT_UNIT_ATTOSECOND = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum remanent_unit remanent_unit;
#else
typedef uint32_t remanent_unit;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a node is: remanent_node.kind.
 */
enum remanent_node_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Python's None, R's NULL.
     */
    REMANENT_NODE_NOTHING = 0,
    /**
     * integer is 0 or 1.
     */
    REMANENT_NODE_BOOL = 1,
    /**
     * integer.
     */
    REMANENT_NODE_INT = 2,
    /**
     * text holds the magnitude, the lowest byte first; a flag tells the sign.
     */
    REMANENT_NODE_LARGE_INT = 3,
    /**
     * real.
     */
    REMANENT_NODE_FLOAT = 4,
    /**
     * real and imaginary.
     */
    REMANENT_NODE_COMPLEX = 5,
    /**
     * text, in UTF-8 as it was written; a long one has a buffer too.
     */
    REMANENT_NODE_TEXT = 6,
    /**
     * text holds the bytes; many have a buffer too.
     */
    REMANENT_NODE_BYTES = 7,
    /**
     * dtype, shape, dimensions, length; buffer 0 holds the items.
     */
    REMANENT_NODE_ARRAY = 8,
    /**
     * One child, the items; buffer 0 has a bit for each, set where it is there.
     */
    REMANENT_NODE_NULLABLE = 9,
    /**
     * length strings; buffers 0 offsets (8 bytes each, one more than strings), 1 bytes, 2 (if it is there) bits as above.
     */
    REMANENT_NODE_STRINGS = 10,
    /**
     * Two children, places and values; integer is the place of the first value.
     */
    REMANENT_NODE_DICTIONARY = 11,
    /**
     * Children.
     */
    REMANENT_NODE_LIST = 12,
    /**
     * Children; not to be changed.
     */
    REMANENT_NODE_TUPLE = 13,
    /**
     * Children: key, value, key, value.
     */
    REMANENT_NODE_MAPPING = 14,
    /**
     * length rows; children: name, column, name, column.
     */
    REMANENT_NODE_TABLE = 15,
    /**
     * text is the owner; children: the value, then its attributes, each with a name.
     */
    REMANENT_NODE_ATTRIBUTED = 16,
    /**
     * text is the codec; buffer 0 holds its stream, further ones what it keeps beside.
     */
    REMANENT_NODE_FOREIGN = 17,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum remanent_node_kind remanent_node_kind;
#else
typedef uint32_t remanent_node_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Edits of a store that become true together: objects that are put, value by value, and names that are removed.
 *
 * remanent_batch_put begins an object; its value follows, node by node: either one leaf, or a container that is begun,
 * filled and ended. Memory that is handed over as a pointer and a length is lent until the batch is committed or
 * released, and must stay as it is until then. A call that fails leaves the batch as it was; only a value whose parts do
 * not fit together is dropped with its name, by the call that completes it.
 */
typedef struct remanent_batch remanent_batch;

/**
 * The objects of one generation.
 */
typedef struct remanent_list remanent_list;

/**
 * A private mapping of a buffer; see remanent_view_private.
 */
typedef struct remanent_mapping remanent_mapping;

/**
 * An open pool of named objects. Any thread may use it.
 */
typedef struct remanent_store remanent_store;

/**
 * An object of a store, as a commit left it: what others commit later does not change it. It outlives the store's handle.
 * Any thread may use it.
 */
typedef struct remanent_view remanent_view;

/**
 * How a pool is made, or a further file of it.
 */
typedef struct remanent_create_options {
    /**
     * sizeof(remanent_create_options).
     */
    uint64_t size_bytes;
    /**
     * Bytes of each file: a multiple of 4096, at least 4 MiB.
     */
    uint64_t file_bytes;
    /**
     * Further files, usually on other devices, over which it is striped; null for none.
     */
    const char *const *more_files;
    /**
     * How many further files.
     */
    uint64_t more_count;
    /**
     * Bytes of a stripe chunk, a multiple of 2 MiB; 0 for 2 MiB.
     */
    uint64_t chunk_bytes;
} remanent_create_options;

/**
 * What a verification found.
 */
typedef struct remanent_verified {
    /**
     * Objects whose bytes are what their checksums say.
     */
    uint64_t matching;
    /**
     * Objects without a checksum.
     */
    uint64_t without_checksum;
} remanent_verified;

/**
 * A field of a structure.
 */
typedef struct remanent_field {
    /**
     * Its name in UTF-8; unused in a sub-array.
     */
    const char *name;
    /**
     * Its first byte, from the start of the structure.
     */
    uint64_t offset_bytes;
    /**
     * Its type.
     */
    const struct remanent_dtype *dtype;
} remanent_field;

/**
 * The type of an item. For a plain number the class and the size are enough:
 * `remanent_dtype f8 = {.type_class = REMANENT_CLASS_FLOAT, .item_bytes = 8};`
 */
typedef struct remanent_dtype {
    /**
     * What it is: a remanent_class.
     */
    uint32_t type_class;
    /**
     * Order of its bytes: a remanent_byte_order.
     */
    uint32_t byte_order;
    /**
     * Floating-point and complex numbers: 1 for x87 extended, else 0. Times: a remanent_unit. Structures: 1 when they are
     * aligned as in C. Else 0.
     */
    uint32_t variant;
    /**
     * Times: units in one step, at least 1. Else 0.
     */
    uint32_t multiple;
    /**
     * Size of one item.
     */
    uint64_t item_bytes;
    /**
     * Structures: the fields. Sub-arrays: one, whose type is that of the items.
     */
    const struct remanent_field *fields;
    /**
     * How many fields.
     */
    uint64_t field_count;
    /**
     * Sub-arrays: length of each dimension.
     */
    const uint64_t *shape;
    /**
     * Sub-arrays: how many dimensions.
     */
    uint64_t dimensions;
} remanent_dtype;

/**
 * An object. What it points to lives as long as the list or the view that it was asked from.
 */
typedef struct remanent_object {
    /**
     * Its name in UTF-8.
     */
    const char *name;
    /**
     * What it is: a remanent_object_kind, or a number that a later version has given.
     */
    uint32_t kind;
    /**
     * 1 when its items lie in column-major order.
     */
    uint32_t is_column_major;
    /**
     * 1 when the payload has a checksum; for values that is not known before they are read.
     */
    uint32_t has_checksum;
    /**
     * 1 when this version can read it.
     */
    uint32_t is_known;
    /**
     * The generation of the commit that made it.
     */
    uint64_t generation;
    /**
     * Bytes that it takes in the pool.
     */
    uint64_t extent_bytes;
    /**
     * Bytes of its payload.
     */
    uint64_t payload_bytes;
    /**
     * Of an array: the type of its items; else null.
     */
    const struct remanent_dtype *dtype;
    /**
     * Of an array: length of each dimension.
     */
    const uint64_t *shape;
    /**
     * Of an array: how many dimensions.
     */
    uint64_t dimensions;
} remanent_object;

/**
 * What a pool is and how full it is. Texts are in UTF-8; what does not fit is cut.
 */
typedef struct remanent_info {
    /**
     * To be set before the call: sizeof(remanent_info).
     */
    uint64_t size_bytes;
    /**
     * Seconds since 1970-01-01 UTC.
     */
    uint64_t created_s;
    /**
     * Of the newest commit that is seen.
     */
    uint64_t generation;
    /**
     * How many objects there are.
     */
    uint64_t objects;
    /**
     * Bytes of all files.
     */
    uint64_t total_bytes;
    /**
     * Bytes that can be used.
     */
    uint64_t free_bytes;
    /**
     * The largest that fits in one piece.
     */
    uint64_t largest_free_bytes;
    /**
     * Bytes that wait for readers.
     */
    uint64_t retired_bytes;
    /**
     * How many parts it has grown to.
     */
    uint64_t parts;
    /**
     * 1 when it was closed in order.
     */
    uint32_t is_clean;
    /**
     * 1 when a writer has it open, this handle included.
     */
    uint32_t has_writer;
    /**
     * Identity of the pool.
     */
    char uuid[40];
    /**
     * What a commit is worth: "power-fail safe", "mapped, persistence unknown", "process-crash safe" or "volatile".
     */
    char durability[40];
    /**
     * The unit in which stores become durable: "byte", "cache line" or "page".
     */
    char granularity[40];
    /**
     * How figures measured on it are to be labelled: "measured" or "emulated".
     */
    char provenance[40];
    /**
     * Type of the file system, or "device-dax".
     */
    char filesystem[40];
    /**
     * Why the durability is what it is, in a sentence.
     */
    char reason[256];
    /**
     * The first file.
     */
    char file[256];
} remanent_info;

/**
 * Told now and then by the thread that commits, with bytes copied and bytes in all. What is not 0 gives the commit up.
 */
typedef int32_t (*remanent_progress_fn)(void *user, uint64_t done_bytes, uint64_t total_bytes);

/**
 * How a batch is committed.
 */
typedef struct remanent_commit_options {
    /**
     * sizeof(remanent_commit_options).
     */
    uint64_t size_bytes;
    /**
     * Threads that copy, at most the CPUs; 0 for as many as there are, at most 8.
     */
    uint32_t threads;
    /**
     * 1 to sum every payload (CRC-32C), for remanent_store_verify; this costs another pass over it.
     */
    uint32_t checksum;
    /**
     * Null for none.
     */
    remanent_progress_fn progress;
    /**
     * Handed to progress.
     */
    void *user;
} remanent_commit_options;

/**
 * A part of an object. What it points to lives as long as the view.
 */
typedef struct remanent_node {
    /**
     * What it is: a remanent_node_kind.
     */
    uint32_t kind;
    /**
     * REMANENT_FLAG_*.
     */
    uint32_t flags;
    /**
     * Number of the first child; the others follow it.
     */
    uint32_t first_child;
    /**
     * How many children.
     */
    uint32_t child_count;
    /**
     * See remanent_node_kind.
     */
    int64_t integer;
    /**
     * See remanent_node_kind.
     */
    double real;
    /**
     * See remanent_node_kind.
     */
    double imaginary;
    /**
     * Items of an array, strings, rows of a table; else 0.
     */
    uint64_t length;
    /**
     * See remanent_node_kind. A short one ends with a NUL, which is not counted.
     */
    const char *text;
    /**
     * Bytes of text.
     */
    uint64_t text_bytes;
    /**
     * Of an attribute: its name, which ends with a NUL; else null.
     */
    const char *name;
    /**
     * Bytes of name.
     */
    uint64_t name_bytes;
    /**
     * Of an array: the type of its items.
     */
    const struct remanent_dtype *dtype;
    /**
     * Of an array: length of each dimension.
     */
    const uint64_t *shape;
    /**
     * Of an array: how many dimensions.
     */
    uint64_t dimensions;
    /**
     * Numbers of its buffers.
     */
    const uint32_t *buffers;
    /**
     * How many buffers.
     */
    uint64_t buffer_count;
} remanent_node;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The number of this thread's last failure; 0 before the first. Calls that go well leave it as it is.
 */
int32_t remanent_error_code(void);

/**
 * What happened at this thread's last failure and what can be done, in UTF-8; empty before the first. It is there until
 * the thread's next failure.
 */
const char *remanent_error_message(void);

/**
 * The file that this thread's last failure is about, or null. It is there until the thread's next failure.
 */
const char *remanent_error_path(void);

/**
 * The system's own number (errno) of this thread's last failure; 0 when no call to the system failed.
 */
int32_t remanent_error_errno(void);

/**
 * The stable name of an error, for example "pool-full"; null for a number that this version does not know.
 */
const char *remanent_error_name(int32_t code);

/**
 * The version of this library, for example "0.1.0".
 */
const char *remanent_version(void);

/**
 * The version of the interface that this library has: at least the REMANENT_ABI_VERSION that a program was built with.
 */
uint32_t remanent_abi_version(void);

/**
 * Makes a pool and opens it as its writer. Nothing that exists is replaced.
 */
int32_t remanent_store_create(const char *file, const struct remanent_create_options *how, struct remanent_store **out);

/**
 * Opens a pool; mode is a remanent_mode.
 */
int32_t remanent_store_open(const char *file, uint32_t mode, struct remanent_store **out);

/**
 * Counts the handle once more.
 */
void remanent_store_retain(const struct remanent_store *store);

/**
 * Counts the handle down. The last count closes the pool, and no error is told. Null is allowed.
 */
void remanent_store_release(struct remanent_store *store);

/**
 * Marks the pool clean and lets others write to it. Waits for the calls of other threads; the handle then answers
 * REMANENT_CLOSED, and is still to be released. Views stay valid. A pool that is closed is closed again without an error.
 */
int32_t remanent_store_close(const struct remanent_store *store);

/**
 * To be called in a child of fork(2) that lives on: leaves the writer's lock to the parent. In the child everything else
 * on the handle answers REMANENT_USED_AFTER_FORK, but for its release; views that it inherited stay readable. Without
 * this, a child that outlives its parent keeps the next writer out.
 */
int32_t remanent_store_settle_in_child(const struct remanent_store *store);

/**
 * Adds a file to the pool: beside the first one when file is null.
 */
int32_t remanent_store_grow(const struct remanent_store *store,
                            const char *file,
                            const struct remanent_create_options *how);

/**
 * Tells whether there is an object of that name.
 */
int32_t remanent_store_contains(const struct remanent_store *store, const char *name, bool *out);

/**
 * Removes an object, in a commit of its own.
 */
int32_t remanent_store_remove(const struct remanent_store *store, const char *name);

/**
 * Gives an object another name, in one atomic step and without a copy. REMANENT_ALREADY_EXISTS when the name is taken,
 * unless what has it is to be replaced.
 */
int32_t remanent_store_rename(const struct remanent_store *store,
                              const char *old_name,
                              const char *new_name,
                              bool replace);

/**
 * Frees what was replaced or removed and that nobody views any more; tells its bytes, unless that is null. Every commit does
 * so too.
 */
int32_t remanent_store_gc(const struct remanent_store *store,
                          uint64_t *freed_bytes);

/**
 * Moves a reader on to the newest commit; views keep what they have. Tells its generation, unless that is null.
 */
int32_t remanent_store_refresh(const struct remanent_store *store, uint64_t *generation);

/**
 * Compares every object that has a checksum with it. REMANENT_CHECKSUM_MISMATCH for the first that differs.
 */
int32_t remanent_store_verify(const struct remanent_store *store, struct remanent_verified *found);

/**
 * Has the system allocate the pool's pages ahead of use, in threads of its own; waits for them if it is asked to.
 */
int32_t remanent_store_prefault(const struct remanent_store *store, bool wait);

/**
 * Lists the objects whose names begin with prefix, by name; all of them when it is null.
 */
int32_t remanent_store_list(const struct remanent_store *store, const char *prefix, struct remanent_list **out);

/**
 * How many objects the list has.
 */
uint64_t remanent_list_count(const struct remanent_list *list);

/**
 * One object of the list, which lives as long as the list.
 */
int32_t remanent_list_object(const struct remanent_list *list, uint64_t index, const struct remanent_object **out);

/**
 * Counts the list once more.
 */
void remanent_list_retain(const struct remanent_list *list);

/**
 * Counts the list down. Null is allowed.
 */
void remanent_list_release(struct remanent_list *list);

/**
 * Tells what the pool is and how full it is. The caller sets size_bytes of what is filled in.
 */
int32_t remanent_store_info(const struct remanent_store *store, struct remanent_info *out);

/**
 * Makes an empty batch, which holds the store.
 */
int32_t remanent_batch_new(const struct remanent_store *store, struct remanent_batch **out);

/**
 * Gives the batch up. Null is allowed.
 */
void remanent_batch_release(struct remanent_batch *batch);

/**
 * Removes a name at the commit, when it must be there.
 */
int32_t remanent_batch_remove(const struct remanent_batch *batch, const char *name);

/**
 * Begins an object: the next node is its value. It replaces what has the name.
 */
int32_t remanent_batch_put(const struct remanent_batch *batch, const char *name);

/**
 * Begins a list; end it with remanent_batch_end.
 */
int32_t remanent_batch_begin_list(const struct remanent_batch *batch);

/**
 * Begins a list that is not to be changed.
 */
int32_t remanent_batch_begin_tuple(const struct remanent_batch *batch);

/**
 * Begins pairs: key, value, key, value.
 */
int32_t remanent_batch_begin_mapping(const struct remanent_batch *batch);

/**
 * Begins a table: name, column, name, column; each column has as many items as there are rows.
 */
int32_t remanent_batch_begin_table(const struct remanent_batch *batch, uint64_t rows);

/**
 * Begins items by their places among few values: an array of places, then the values. first is the place of the first
 * value, 0 or 1; a smaller place is a missing item.
 */
int32_t remanent_batch_begin_dictionary(const struct remanent_batch *batch, uint32_t first, bool is_ordered);

/**
 * Begins items of which some are missing: one node. validity has a bit for each item, the lowest first, set where it is
 * there.
 */
int32_t remanent_batch_begin_nullable(const struct remanent_batch *batch,
                                      const void *validity,
                                      uint64_t validity_bytes);

/**
 * Begins a value with what its owner, a language or library, keeps beside it: the value, then each attribute, named by
 * remanent_batch_attribute.
 */
int32_t remanent_batch_begin_attributed(const struct remanent_batch *batch, const char *owner);

/**
 * Names the attribute that the next node is the value of.
 */
int32_t remanent_batch_attribute(const struct remanent_batch *batch, const char *name);

/**
 * Ends what was begun last.
 */
int32_t remanent_batch_end(const struct remanent_batch *batch);

/**
 * Nothing: R's NULL, Python's None.
 */
int32_t remanent_batch_nothing(const struct remanent_batch *batch);

/**
 * A truth value.
 */
int32_t remanent_batch_bool(const struct remanent_batch *batch, bool value);

/**
 * A number of 64 bits.
 */
int32_t remanent_batch_int(const struct remanent_batch *batch, int64_t value);

/**
 * A larger one: its sign, and its magnitude with the lowest byte first, which is copied.
 */
int32_t remanent_batch_large_int(const struct remanent_batch *batch,
                                 bool is_negative,
                                 const uint8_t *magnitude,
                                 uint64_t magnitude_bytes);

/**
 * A binary64 number.
 */
int32_t remanent_batch_float(const struct remanent_batch *batch, double value);

/**
 * A complex number.
 */
int32_t remanent_batch_complex(const struct remanent_batch *batch, double real, double imaginary);

/**
 * A text in UTF-8; lent.
 */
int32_t remanent_batch_text(const struct remanent_batch *batch, const char *data, uint64_t len_bytes);

/**
 * Bytes; lent.
 */
int32_t remanent_batch_bytes(const struct remanent_batch *batch, const void *data, uint64_t len_bytes);

/**
 * Items of one type in a grid, side by side; lent. Without dimensions it is a single item.
 */
int32_t remanent_batch_array(const struct remanent_batch *batch,
                             const struct remanent_dtype *dtype,
                             const uint64_t *shape,
                             uint64_t dimensions,
                             bool is_column_major,
                             const void *data,
                             uint64_t len_bytes);

/**
 * Strings of any length, as in Arrow's large layout: string i has the bytes from offsets[i] to offsets[i + 1] of data.
 * There is one offset more than strings. validity has a bit for each string, the lowest first, set where it is there;
 * null when all are. is_utf8 tells that all strings are UTF-8. All three are lent.
 */
int32_t remanent_batch_strings(const struct remanent_batch *batch,
                               uint64_t count,
                               const uint64_t *offsets,
                               const void *data,
                               uint64_t data_bytes,
                               const void *validity,
                               bool is_utf8);

/**
 * What only one language can read: a stream of its codec, and further buffers that it keeps beside it; all lent.
 */
int32_t remanent_batch_foreign(const struct remanent_batch *batch,
                               const char *codec,
                               const void *stream,
                               uint64_t stream_bytes,
                               const void *const *buffers,
                               const uint64_t *buffer_bytes,
                               uint64_t buffer_count);

/**
 * Makes all edits true and durable in one atomic step; tells the generation, unless that is null. The batch is empty
 * afterwards, also when the commit fails and nothing is changed. options may be null.
 */
int32_t remanent_batch_commit(const struct remanent_batch *batch,
                              const struct remanent_commit_options *options,
                              uint64_t *generation);

/**
 * Looks an object up.
 */
int32_t remanent_store_get(const struct remanent_store *store, const char *name, struct remanent_view **out);

/**
 * Looks several objects up in one generation: what one commit made visible together is seen together. out has room for
 * count views; all of them are null when this fails.
 */
int32_t remanent_store_get_many(const struct remanent_store *store,
                                const char *const *names,
                                uint64_t count,
                                struct remanent_view **out);

/**
 * Counts the view once more.
 */
void remanent_view_retain(const struct remanent_view *view);

/**
 * Counts the view down. Null is allowed.
 */
void remanent_view_release(struct remanent_view *view);

/**
 * What the object is; extent_bytes is not told here. It lives as long as the view.
 */
int32_t remanent_view_object(const struct remanent_view *view, const struct remanent_object **out);

/**
 * How many nodes the object has: node 0 is the whole, and the children of each node have numbers in a row.
 */
uint32_t remanent_view_node_count(const struct remanent_view *view);

/**
 * A node, which lives as long as the view. Arrays, texts and bytes that are objects of their own are one node.
 */
int32_t remanent_view_node(const struct remanent_view *view, uint32_t number, const struct remanent_node **out);

/**
 * A buffer where it lies, at a multiple of 64: readable as long as the view lives, and never to be written to. On
 * persistent memory a page that is lost is a signal (SIGBUS) when it is read; remanent_view_guard makes it an error.
 */
int32_t remanent_view_buffer(const struct remanent_view *view, uint32_t number, const void **data, uint64_t *len_bytes);

/**
 * Touches the pages of a buffer, so that what is lost is an error here. This costs what a first pass over it would.
 */
int32_t remanent_view_guard(const struct remanent_view *view, uint32_t number);

/**
 * Copies a buffer to where there are len_bytes of room, which must be its length; large ones with several threads.
 */
int32_t remanent_view_copy(const struct remanent_view *view, uint32_t number, void *to, uint64_t len_bytes);

/**
 * Maps a buffer privately: readable and writable, and what is written stays in this process and costs memory by the page.
 * The mapping holds the object; the pointer lives as long as the mapping. room_bytes of writable memory lie directly
 * before the data, for programs that need a header there.
 *
 * The mapping is null, without an error, where there is none: a buffer that shares its pages with others, being smaller
 * than 1 MiB, or empty. REMANENT_UNSUPPORTED on device-DAX.
 */
int32_t remanent_view_private(const struct remanent_view *view,
                              uint32_t number,
                              uint64_t room_bytes,
                              struct remanent_mapping **out,
                              void **data);

/**
 * As remanent_view_private, but mapped when remanent_mapping_data is first asked for it. Until then it holds the object's
 * bytes, and costs the process nothing else.
 */
int32_t remanent_view_private_late(const struct remanent_view *view,
                                   uint32_t number,
                                   struct remanent_mapping **out);

/**
 * Compares the object with its checksum; tells whether it has one.
 */
int32_t remanent_view_verify(const struct remanent_view *view, bool *has_checksum);

/**
 * The CRC-32C of bytes, which the pool's own checksums are too: begun with the sum 0, or gone on with from the sum of the
 * bytes before. Null is no bytes. For streams that a language cannot read safely when they are damaged.
 */
uint32_t remanent_crc32c(uint32_t sum,
                         const void *data,
                         uint64_t len_bytes);

/**
 * Where the buffer is, which is mapped now if it was not: readable and writable as long as the mapping lives.
 *
 * REMANENT_IO with ENOMEM when the process has as many mappings as it may; remanent_mapping_copy has the bytes all the same.
 */
int32_t remanent_mapping_data(const struct remanent_mapping *mapping,
                              void **data);

/**
 * Copies a buffer that is mapped late to where there are len_bytes of room, which must be its length.
 */
int32_t remanent_mapping_copy(const struct remanent_mapping *mapping, void *to, uint64_t len_bytes);

/**
 * Counts the mapping once more.
 */
void remanent_mapping_retain(const struct remanent_mapping *mapping);

/**
 * Counts the mapping down; the last count unmaps it. Null is allowed.
 */
void remanent_mapping_release(struct remanent_mapping *mapping);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REMANENT_H */
