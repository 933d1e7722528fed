# Objects out of a pool.

pmem_restore <- function(file, names = NULL, envir = parent.frame(), as = c("altrep", "native", "dram"), int64 = NULL) {
  as <- match.arg(as)
  found <- with_pool(file, FALSE, function(pool) restore_all(pool, names, as, int64))
  list2env(found, envir = envir)
  invisible(names(found))
}

pmem_read <- function(file, name, as = c("altrep", "native", "dram"), int64 = NULL) {
  as <- match.arg(as)
  check_one(name)
  with_pool(file, FALSE, function(pool) restore_all(pool, name, as, int64))[[1L]]
}

restore_all <- function(pool, names, as, int64) {
  is_all <- is.null(names)
  names <- if (is_all) names(pool) else unique(check_names(names))
  .Call(C_rem_restore, pool, names, match(as, c("altrep", "native", "dram")) - 1L, is_int64(int64))
}

# Integers of 64 bits that another language wrote: integer64 where its package is, for without it the bits would be taken
# for doubles.
is_int64 <- function(int64) {
  if (is.null(int64)) {
    return(requireNamespace("bit64", quietly = TRUE))
  }
  match.arg(int64, c("integer64", "numeric")) == "integer64"
}

pmem_counters <- function(reset = FALSE) .Call(C_rem_counters, reset)
