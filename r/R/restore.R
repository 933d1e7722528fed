# Objects out of a pool.

pmem_restore <- function(file, names = NULL, envir = parent.frame(), as = c("native", "altrep", "dram"), int64 = NULL) {
  as <- one_of(as, "as", ways)
  if (!is.environment(envir)) {
    bad_argument("'envir' is an environment")
  }
  found <- with_pool(file, FALSE, function(pool) {
    names <- wanted_names(pool, names)
    .Call(C_rem_restore, pool, names, form_of(as), is_int64(int64), envir)
    names
  })
  invisible(found)
}

pmem_read <- function(file, name, as = c("native", "altrep", "dram"), int64 = NULL) {
  as <- one_of(as, "as", ways)
  check_one(name)
  with_pool(file, FALSE, function(pool) .Call(C_rem_read, pool, name, form_of(as), is_int64(int64)))
}

wanted_names <- function(pool, names) if (is.null(names)) names(pool) else unique(check_names(names))

# What large vectors can become, the default first.
ways <- c("native", "altrep", "dram")

form_of <- function(as) match(as, c("altrep", "native", "dram")) - 1L

# What integers of 64 bits become that another language wrote; NA when nobody has said it.
is_int64 <- function(int64) {
  if (is.null(int64)) {
    return(NA)
  }
  wanted <- one_of(int64, "int64", c("integer64", "numeric")) == "integer64"
  if (wanted && !has_bit64()) {
    bad_argument("int64 = \"integer64\" needs the package bit64: install it, or ask for \"numeric\"")
  }
  wanted
}

# Called by the C code too: integer64 only where its package is, for without it the bits would be taken for doubles.
has_bit64 <- function() requireNamespace("bit64", quietly = TRUE)

pmem_counters <- function(reset = FALSE) .Call(C_rem_counters, check_flag(reset, "reset"))
