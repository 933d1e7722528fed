# Compares what carry.py beside this has carried from one pool to another with what write.R has written.
library(remanent)

file <- commandArgs(TRUE)[1]
before <- pmem_open(file, "r")
after <- pmem_open(paste0(file, ".carried"), "r")
plain <- c("x", "whole", "flags", "grid", "matrix", "repeated", "raw", "turn", "day", "nothing")
for (name in setdiff(names(after), "table")) {
  got <- after[[name]]
  expected <- before[[name]]
  if (inherits(expected, "difftime")) units(expected) <- "secs"
  # What has a form of Python's own is equal, and all else is the same to the bit.
  is_same <- if (name %in% plain) identical(got, expected) else isTRUE(all.equal(got, expected))
  if (!is_same) stop(name, " is ", paste(deparse(got), collapse = ""), ", was ", paste(deparse(expected), collapse = ""))
}
stopifnot(is.na(after$x[2]), !is.nan(after$x[2]), length(names(after)) >= 15)
if ("table" %in% names(after)) stopifnot(all.equal(after$table, as.data.frame(before$table), check.attributes = FALSE))
