# What there is in a pool, and its space.

pmem_ls <- function(file, prefix = "") {
  columns <- with_pool(file, FALSE, function(pool) .Call(C_rem_list, pool, check_one(prefix)))
  structure(columns, class = "data.frame", row.names = .set_row_names(length(columns$name)))
}

pmem_rm <- function(file, names) {
  with_pool(file, TRUE, function(pool) .Call(C_rem_remove, pool, check_names(names)))
  invisible(names)
}

pmem_rename <- function(file, old, new, replace = FALSE) {
  check_flag(replace, "replace")
  with_pool(file, TRUE, function(pool) .Call(C_rem_rename, pool, check_one(old), check_one(new), replace))
  invisible(new)
}

pmem_grow <- function(file, size, part = NULL) {
  if (!is.null(part)) {
    part <- path_of(part)
  }
  with_pool(file, TRUE, function(pool) .Call(C_rem_grow, pool, bytes_of(size), part))
  invisible(file)
}

pmem_gc <- function(file) with_pool(file, TRUE, function(pool) .Call(C_rem_gc, pool))

pmem_info <- function(file) {
  info <- with_pool(file, FALSE, function(pool) .Call(C_rem_info, pool))
  info$created <- .POSIXct(info$created)
  info
}

pmem_verify <- function(file) with_pool(file, FALSE, function(pool) .Call(C_rem_verify, pool))
