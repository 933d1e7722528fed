# Reads what write.py beside this has written.
library(remanent)

file <- commandArgs(TRUE)[1]
names <- pmem_ls(file)$name
v <- new.env()
refused <- c(large_int = "large_int[[1]]", nul_in_bytes = "nul_in_bytes", nul_in_text = "nul_in_text")
pmem_restore(file, setdiff(names, names(refused)), envir = v, int64 = "numeric")
same <- function(got, expected) {
  if (!isTRUE(all.equal(got, expected))) {
    stop(deparse(substitute(got)), " is ", paste(deparse(got), collapse = ""), ": ", all.equal(got, expected))
  }
  stopifnot(identical(typeof(got), typeof(expected)))
}
same(v$plain, c(0, 1, 2, 3, 4))
same(v$flags, c(TRUE, FALSE))
same(v$small, c(1L, -2L))
same(v$middle, c(1L, 65535L))
same(v$int32, c(1L, .Machine$integer.max))
same(v$uint32, 2^32 - 1)
same(v$int64, c(1, 2^53))
same(v$half, c(0.5, Inf, 5.960464477539063e-08))
same(round(v$single, 6), 0.1)
same(v$big, 1:2)
same(v$bytes_array, as.raw(c(0, 255)))
same(v$complex, 1+2i)
same(v$by_rows, matrix(c(0, 1, 2, 3, 4, 5), 2, byrow = TRUE))
same(v$by_columns, matrix(0:5, 2, byrow = TRUE))
same(v$cube, aperm(array(0:23, 4:2)))
same(v$large, matrix(as.double(0:599999), 600, byrow = TRUE))
same(v$moments, as.POSIXct(c(1709208000, NA, -0.5), origin = "1970-01-01", tz = "UTC"))
same(v$days, as.Date("2024-02-29") + 0)
same(v$months, as.Date(c("1969-01-01", "2024-02-01")))
same(v$spans, as.difftime(c(1.5, -0.001), units = "secs"))
same(v$strings, c("gr\u00f6\u00dfe", "a"))
same(v$records, data.frame(id = 1:2, at = c(2.5, -1), raw = c("ab", "c"), text = c("gr\u00f6", "")))
same(v$scalar, 2.5)
same(as.numeric(v$number), 7)
same(v$text, "gr\u00f6\u00dfe")
same(v$blob, as.raw(0:1))
same(v$nothing, list(NULL))
same(v$mapping, list(a = 1L, b = list(TRUE, NULL, "x"), c = list(d = 2.5)))
same(v$tuple, list(1L, 2^40, 1+2i))
same(v$keys, list(`1` = "one", `2.5` = "two"))
same(v$masked, matrix(c(1L, NA, 3L, 4L, 5L, 6L), 2, byrow = TRUE))
same(v$masked_bytes, c(1L, NA))
same(v$masked_records, data.frame(a = c(NA, 4L), b = c(2.5, NA), c = c(3L, NA)))
same(v$padded, c("ab", ""))
same(v$range$range, c(2L, 5L, 8L))
for (name in names(refused)) {
  error <- tryCatch(pmem_read(file, name), remanent_UnknownType = function(e) e)
  stopifnot(identical(error$element, refused[[name]]))
}
error <- tryCatch(pmem_read(file, "mapping", int64 = "other"), error = function(e) "refused")
stopifnot(identical(error, "refused"))
if (requireNamespace("bit64", quietly = TRUE)) {
  stopifnot(identical(pmem_read(file, "int64"), bit64::as.integer64(c("1", "9007199254740992"))))
}
if ("frame" %in% names) {
  frame <- v$frame
  stopifnot(is.data.frame(frame), identical(row.names(frame), c("x", "y")))
  same(frame$number, c(1.5, NA))
  same(frame$whole, c(1L, NA))
  same(frame$kind, factor(c("u", NA), c("u", "v")))
  same(frame$text, c("gr\u00f6", NA))
  same(frame$at, as.POSIXct(c("2024-02-29 12:00", NA), tz = "Europe/Berlin"))
  same(frame$object, list(list(a = 1L), "x"))
  same(v$binned$bin, c("[0,1)", "[1,2)"))
  same(v$binned$kind, factor(c("[1,2)", NA), c("[0,1)", "[1,2)")))
  stopifnot(is.data.frame(v$pickled_index), identical(v$pickled_index$x, c(1, 2)))
  same(v$series, c(a = 1, b = 2))
  same(v$plain_series, 1:2)
}
