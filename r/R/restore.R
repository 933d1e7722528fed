# Objects out of a pool.

pmem_restore <- function(file, names = NULL, envir = parent.frame(), as = c("native", "altrep", "dram"), int64 = NULL) {
  as <- match.arg(as)
  stopifnot(is.environment(envir))
  found <- with_pool(file, FALSE, function(pool) {
    names <- wanted_names(pool, names)
    .Call(C_rem_restore, pool, names, form_of(as), is_int64(int64), envir)
    names
  })
  invisible(found)
}

pmem_read <- function(file, name, as = c("native", "altrep", "dram"), int64 = NULL) {
  as <- match.arg(as)
  check_one(name)
  with_pool(file, FALSE, function(pool) .Call(C_rem_read, pool, name, form_of(as), is_int64(int64)))
}

wanted_names <- function(pool, names) if (is.null(names)) names(pool) else unique(check_names(names))

form_of <- function(as) match(as, c("altrep", "native", "dram")) - 1L

# What integers of 64 bits become that another language wrote; NA when nobody has said it.
is_int64 <- function(int64) {
  if (is.null(int64)) {
    return(NA)
  }
  match.arg(int64, c("integer64", "numeric")) == "integer64"
}

# Called by the C code: integer64 only where its package is, for without it the bits would be taken for doubles.
has_bit64 <- function() requireNamespace("bit64", quietly = TRUE)

pmem_counters <- function(reset = FALSE) .Call(C_rem_counters, reset)
