/* Items that R has no type of its own for, as those of the type that holds them without a loss. */
#include <math.h>
#include <string.h>

#include "remanent_r.h"

SEXPTYPE direct_type(const remanent_dtype *dtype, int is_int64) {
    if (dtype->byte_order == REMANENT_ORDER_BIG)
        return NILSXP;
    switch (dtype->type_class) {
    case REMANENT_CLASS_INT:
        return dtype->item_bytes == 4 ? INTSXP : dtype->item_bytes == 8 && is_int64 ? REALSXP : NILSXP;
    case REMANENT_CLASS_UINT:
        return dtype->item_bytes == 1 ? RAWSXP : NILSXP;
    case REMANENT_CLASS_FLOAT:
        return dtype->item_bytes == 8 ? REALSXP : NILSXP;
    case REMANENT_CLASS_COMPLEX:
        return dtype->item_bytes == 16 ? CPLXSXP : NILSXP;
    default:
        return NILSXP;
    }
}

/* The bytes of a number, with the lowest first. */
static void load(const remanent_dtype *dtype, const char *from, size_t bytes, void *to) {
    if (dtype->byte_order != REMANENT_ORDER_BIG) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        ((char *)to)[i] = from[bytes - 1 - i];
}

static int64_t load_int(const remanent_dtype *dtype, const char *from) {
    int8_t i1;
    int16_t i2;
    int32_t i4;
    int64_t i8;
    switch (dtype->item_bytes) {
    case 1:
        load(dtype, from, 1, &i1);
        return i1;
    case 2:
        load(dtype, from, 2, &i2);
        return i2;
    case 4:
        load(dtype, from, 4, &i4);
        return i4;
    default:
        load(dtype, from, 8, &i8);
        return i8;
    }
}

static uint64_t load_uint(const remanent_dtype *dtype, const char *from) {
    uint64_t made = 0;
    load(dtype, from, dtype->item_bytes, &made);
    return made;
}

/* IEEE 754 binary16. */
static double from_half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double made = exponent == 0    ? ldexp(fraction, -24)
                  : exponent == 31 ? (fraction ? R_NaN : R_PosInf)
                                   : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -made : made;
}

/* A floating-point number of that many bytes; the type's own size is that of two in a complex one. */
static double load_float(const struct step *at, const remanent_dtype *dtype, const char *from, size_t bytes) {
    uint16_t f2;
    float f4;
    double f8;
    if (bytes == 2) {
        load(dtype, from, 2, &f2);
        return from_half(f2);
    }
    if (bytes == 4) {
        load(dtype, from, 4, &f4);
        return f4;
    }
    if (bytes == 8) {
        load(dtype, from, 8, &f8);
        return f8;
    }
#if defined(__x86_64__)
    if (dtype->variant == 1 && bytes == sizeof(long double)) {
        long double made;
        load(dtype, from, bytes, &made);
        return (double)made;
    }
#endif
    refuse(REMANENT_UNKNOWN_TYPE, at, "has floating-point numbers of a size that R on this machine cannot read");
}

/* Days from 1970-01-01 to the first of a month, in the Gregorian calendar (Howard Hinnant's days_from_civil). */
static double days_to_month(int64_t month) {
    int64_t year = 1970 + (month >= 0 ? month / 12 : -((11 - month) / 12));
    int64_t m = month - (year - 1970) * 12 + 1;
    year -= m <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400, of_era = year - era * 400;
    int64_t of_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5;
    return (double)(era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468);
}

/* Seconds in a unit of time that has a fixed length; 0 for the others. */
static double unit_s(uint32_t unit) {
    static const double seconds[] = {0,    0,    0,    604800, 86400, 3600,  60,
                                     1,    1e-3, 1e-6, 1e-9,   1e-12, 1e-15, 1e-18};
    return unit < sizeof seconds / sizeof *seconds ? seconds[unit] : 0;
}

void set_class(SEXP x, const char *first, const char *second) {
    SEXP class = PROTECT(Rf_allocVector(STRSXP, second ? 2 : 1));
    SET_STRING_ELT(class, 0, Rf_mkChar(first));
    if (second)
        SET_STRING_ELT(class, 1, Rf_mkChar(second));
    Rf_setAttrib(x, R_ClassSymbol, class);
    UNPROTECT(1);
}

static void set_text(SEXP x, const char *name, const char *text) {
    SEXP value = PROTECT(Rf_mkString(text));
    Rf_setAttrib(x, Rf_install(name), value);
    UNPROTECT(1);
}

/* Points in time: Date for days and coarser units, POSIXct for finer ones. */
static SEXP moments(const struct step *at, const remanent_dtype *dtype, const char *from, size_t stride,
                    R_xlen_t count) {
    int months = dtype->variant == REMANENT_UNIT_YEAR ? 12 : dtype->variant == REMANENT_UNIT_MONTH ? 1 : 0;
    double unit = unit_s(dtype->variant);
    if (!months && unit == 0)
        refuse(REMANENT_UNKNOWN_TYPE, at, "has points in time without a unit");
    int is_date = months || unit >= 86400;
    SEXP made = PROTECT(Rf_allocVector(REALSXP, count));
    for (R_xlen_t i = 0; i < count; i++) {
        int64_t steps = load_int(dtype, from + (size_t)i * stride);
        double multiple = (double)dtype->multiple;
        if (steps == INT64_MIN)
            REAL(made)[i] = NA_REAL;
        else if (months)
            REAL(made)[i] = days_to_month(steps * dtype->multiple * months);
        else if (unit < 1) /* a division is exact where a product with 1e-9 is not */
            REAL(made)[i] = (double)steps * multiple / (1 / unit);
        else
            REAL(made)[i] = (double)steps * multiple * (is_date ? unit / 86400 : unit);
    }
    if (is_date) {
        set_class(made, "Date", NULL);
    } else {
        set_class(made, "POSIXct", "POSIXt");
        set_text(made, "tzone", "UTC");
    }
    UNPROTECT(1);
    return made;
}

static SEXP durations(const struct step *at, const remanent_dtype *dtype, const char *from, size_t stride,
                      R_xlen_t count) {
    double unit = unit_s(dtype->variant);
    if (unit == 0)
        refuse(REMANENT_UNKNOWN_TYPE, at, "has durations in months, years or no unit, which difftime does not know");
    const char *name = unit == 604800  ? "weeks"
                       : unit == 86400 ? "days"
                       : unit == 3600  ? "hours"
                       : unit == 60    ? "mins"
                                       : "secs";
    SEXP made = PROTECT(Rf_allocVector(REALSXP, count));
    for (R_xlen_t i = 0; i < count; i++) {
        int64_t steps = load_int(dtype, from + (size_t)i * stride);
        double all = (double)steps * (double)dtype->multiple;
        REAL(made)[i] = steps == INT64_MIN ? NA_REAL : unit < 1 ? all / (1 / unit) : all;
    }
    set_class(made, "difftime", NULL);
    set_text(made, "units", name);
    UNPROTECT(1);
    return made;
}

static SEXP fixed_bytes(const struct step *at, const remanent_dtype *dtype, const char *from, size_t stride,
                        R_xlen_t count) {
    SEXP made = PROTECT(Rf_allocVector(STRSXP, count));
    for (R_xlen_t i = 0; i < count; i++) {
        const char *text = from + (size_t)i * stride;
        size_t bytes = strnlen(text, dtype->item_bytes);
        for (size_t j = bytes; j < dtype->item_bytes; j++)
            if (text[j])
                refuse(REMANENT_UNKNOWN_TYPE, at, "has a string with a NUL in it, which R cannot hold");
        cetype_t encoding = is_utf8(text, bytes) ? CE_UTF8 : CE_BYTES;
        SET_STRING_ELT(made, i, Rf_mkCharLenCE(text, (int)bytes, encoding));
    }
    UNPROTECT(1);
    return made;
}

/* A code point in UTF-8; how many bytes. */
static size_t put_utf8(uint32_t c, char *to) {
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    for (int i = more; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | c);
    return (size_t)more + 1;
}

static SEXP fixed_unicode(const struct step *at, const remanent_dtype *dtype, const char *from, size_t stride,
                          R_xlen_t count) {
    SEXP made = PROTECT(Rf_allocVector(STRSXP, count));
    size_t points = dtype->item_bytes / 4;
    char *text = R_alloc(points + 1, 4);
    for (R_xlen_t i = 0; i < count; i++) {
        size_t bytes = 0, zeros = 0;
        for (size_t j = 0; j < points; j++) {
            uint32_t c;
            load(dtype, from + (size_t)i * stride + j * 4, 4, &c);
            if (c == 0) {
                zeros++;
                continue;
            }
            if (zeros)
                refuse(REMANENT_UNKNOWN_TYPE, at, "has a string with a NUL in it, which R cannot hold");
            if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
                refuse(REMANENT_UNKNOWN_TYPE, at, "has a string with half a character, which is no text");
            bytes += put_utf8(c, text + bytes);
        }
        SET_STRING_ELT(made, i, Rf_mkCharLenCE(text, (int)bytes, CE_UTF8));
    }
    UNPROTECT(1);
    return made;
}

/* A structured array: a data frame of its fields. */
static SEXP fields_of(const struct step *at, const remanent_dtype *dtype, const char *from, size_t stride,
                      R_xlen_t count, int is_int64) {
    R_xlen_t fields = (R_xlen_t)dtype->field_count;
    SEXP made = PROTECT(Rf_allocVector(VECSXP, fields));
    SEXP names = PROTECT(Rf_allocVector(STRSXP, fields));
    for (R_xlen_t i = 0; i < fields; i++) {
        const remanent_field *field = &dtype->fields[i];
        struct step inner = {.above = at, .name = field->name};
        SET_STRING_ELT(names, i, Rf_mkCharCE(field->name, CE_UTF8));
        SET_VECTOR_ELT(made, i,
                       convert_items(&inner, field->dtype, from + field->offset_bytes, stride, count, is_int64, 0));
    }
    Rf_setAttrib(made, R_NamesSymbol, names);
    SEXP rows = PROTECT(Rf_allocVector(INTSXP, 2));
    INTEGER(rows)[0] = NA_INTEGER;
    INTEGER(rows)[1] = -(int)count;
    Rf_setAttrib(made, R_RowNamesSymbol, rows);
    set_class(made, "data.frame", NULL);
    UNPROTECT(3);
    return made;
}

/* Small arrays within structures: a matrix with a row an item, for any number of dimensions. */
static SEXP grids_of(const struct step *at, const remanent_dtype *dtype, const char *from, size_t stride,
                     R_xlen_t count, int is_int64) {
    const remanent_dtype *base = dtype->fields[0].dtype;
    R_xlen_t columns = base->item_bytes ? (R_xlen_t)(dtype->item_bytes / base->item_bytes) : 0;
    SEXP parts = PROTECT(Rf_allocVector(VECSXP, columns));
    for (R_xlen_t i = 0; i < columns; i++)
        SET_VECTOR_ELT(parts, i,
                       convert_items(at, base, from + (size_t)i * base->item_bytes, stride, count, is_int64, 0));
    SEXP made = call_own("bind_columns", Rf_list1(parts));
    UNPROTECT(1);
    return made;
}

static SEXP integers(const struct step *at, const remanent_dtype *dtype, const char *from, size_t stride,
                     R_xlen_t count, int is_int64) {
    int is_signed = dtype->type_class == REMANENT_CLASS_INT;
    if (dtype->item_bytes == 8 || (dtype->item_bytes == 4 && !is_signed)) {
        int as_bits = is_int64 && dtype->item_bytes == 8;
        SEXP made = PROTECT(Rf_allocVector(REALSXP, count));
        for (R_xlen_t i = 0; i < count; i++) {
            int64_t value = is_signed ? load_int(dtype, from + (size_t)i * stride)
                                      : (int64_t)load_uint(dtype, from + (size_t)i * stride);
            if (dtype->item_bytes == 8 && !is_signed && value < 0)
                refuse(REMANENT_UNKNOWN_TYPE, at, "has unsigned numbers from 2^63 on, which R has no type for");
            if (!as_bits && value != INT64_MIN && (value > 9007199254740992 || value < -9007199254740992))
                refuse(REMANENT_UNKNOWN_TYPE, at,
                       "has integers beyond 2^53, which a double cannot hold; ask for int64 = \"integer64\"");
            if (as_bits)
                memcpy(REAL(made) + i, &value, 8);
            else
                REAL(made)[i] = value == INT64_MIN ? NA_REAL : (double)value;
        }
        if (as_bits)
            set_class(made, "integer64", NULL);
        UNPROTECT(1);
        return made;
    }
    SEXP made = PROTECT(Rf_allocVector(INTSXP, count));
    for (R_xlen_t i = 0; i < count; i++)
        INTEGER(made)[i] = is_signed ? (int)load_int(dtype, from + (size_t)i * stride)
                                     : (int)load_uint(dtype, from + (size_t)i * stride);
    UNPROTECT(1);
    return made;
}

SEXP convert_items(const struct step *at, const remanent_dtype *dtype, const char *from, size_t stride, R_xlen_t count,
                   int is_int64, int no_raw) {
    SEXP made;
    switch (dtype->type_class) {
    case REMANENT_CLASS_BOOL:
        made = Rf_allocVector(LGLSXP, count);
        for (R_xlen_t i = 0; i < count; i++)
            LOGICAL(made)[i] = from[(size_t)i * stride] != 0;
        return made;
    case REMANENT_CLASS_UINT:
        if (dtype->item_bytes == 1 && !no_raw) {
            made = Rf_allocVector(RAWSXP, count);
            for (R_xlen_t i = 0; i < count; i++)
                RAW(made)[i] = (Rbyte)from[(size_t)i * stride];
            return made;
        }
        return integers(at, dtype, from, stride, count, is_int64);
    case REMANENT_CLASS_INT:
        return integers(at, dtype, from, stride, count, is_int64);
    case REMANENT_CLASS_FLOAT:
        made = PROTECT(Rf_allocVector(REALSXP, count));
        for (R_xlen_t i = 0; i < count; i++)
            REAL(made)[i] = load_float(at, dtype, from + (size_t)i * stride, dtype->item_bytes);
        UNPROTECT(1);
        return made;
    case REMANENT_CLASS_COMPLEX: {
        size_t half = dtype->item_bytes / 2;
        made = PROTECT(Rf_allocVector(CPLXSXP, count));
        for (R_xlen_t i = 0; i < count; i++) {
            COMPLEX(made)[i].r = load_float(at, dtype, from + (size_t)i * stride, half);
            COMPLEX(made)[i].i = load_float(at, dtype, from + (size_t)i * stride + half, half);
        }
        UNPROTECT(1);
        return made;
    }
    case REMANENT_CLASS_BYTES:
        return fixed_bytes(at, dtype, from, stride, count);
    case REMANENT_CLASS_UNICODE:
        return fixed_unicode(at, dtype, from, stride, count);
    case REMANENT_CLASS_DATETIME:
        return moments(at, dtype, from, stride, count);
    case REMANENT_CLASS_TIMEDELTA:
        return durations(at, dtype, from, stride, count);
    case REMANENT_CLASS_STRUCT:
        return fields_of(at, dtype, from, stride, count, is_int64);
    case REMANENT_CLASS_SUB_ARRAY:
        return grids_of(at, dtype, from, stride, count, is_int64);
    default:
        refuse(REMANENT_UNKNOWN_TYPE, at, "has items that are bytes without a meaning, which R has no type for");
    }
}
