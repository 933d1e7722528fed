# Pools: made, opened, and used like a list that stays.

pmem_create <- function(file, size) {
  .Call(C_rem_create, path_of(file), bytes_of(size))
  invisible(file)
}

pmem_open <- function(file, mode = c("r+", "r"), prefault = FALSE) {
  writes <- one_of(mode, "mode", c("r+", "r")) == "r+"
  if (!identical(prefault, "wait")) {
    check_flag(prefault, "prefault")
  }
  pool <- open_at(path_of(file), writes)
  if (!identical(prefault, FALSE)) {
    pmem_prefault(pool, wait = identical(prefault, "wait"))
  }
  pool
}

pmem_prefault <- function(pool, wait = FALSE) {
  .Call(C_rem_prefault, pool, check_flag(wait, "wait"))
  invisible(pool)
}

pmem_close <- function(pool) {
  .Call(C_rem_close, pool)
  invisible(NULL)
}

pmem_refresh <- function(pool) {
  .Call(C_rem_refresh, pool)
  invisible(pool)
}

open_at <- function(path, writes) {
  structure(.Call(C_rem_open, path, writes), class = "remanent_pool")
}

# Runs something on a pool: on one that was handed over, on the one that this session has open at a path, or on one that is
# open for that long.
with_pool <- function(file, writes, action) {
  if (inherits(file, "remanent_pool")) {
    return(action(file))
  }
  path <- path_of(file)
  pool <- .Call(C_rem_find, path, writes)
  if (is.null(pool)) {
    pool <- open_at(path, writes)
  }
  on.exit(pmem_close(pool))
  action(pool)
}

path_of <- function(file) {
  if (!is.character(file) || length(file) != 1L || is.na(file) || !nzchar(file)) {
    bad_argument("'file' is a path, or a pool from pmem_open()")
  }
  # The same pool has one path, whether it is there already or not.
  file <- path.expand(file)
  file.path(normalizePath(dirname(file), mustWork = FALSE), basename(file))
}

units_of_size <- c(B = 1, KB = 1e3, MB = 1e6, GB = 1e9, TB = 1e12, KIB = 2^10, MIB = 2^20, GIB = 2^30, TIB = 2^40)

# A number of bytes from a number or a text such as "512MB" or "1.5GiB", in whole pages.
bytes_of <- function(size) {
  if (is.character(size) && length(size) == 1L) {
    parts <- regmatches(size, regexec("^\\s*([0-9.]+)\\s*([A-Za-z]*)\\s*$", size))[[1]]
    unit <- if (length(parts) == 3L) toupper(parts[3]) else "?"
    size <- suppressWarnings(as.numeric(parts[2])) * if (unit == "") 1 else units_of_size[unit]
  }
  # A larger number of bytes is not a whole one any more.
  if (!is.numeric(size) || length(size) != 1L || is.na(size) || size < 0 || size > 2^53) {
    bad_argument("'size' is a number of bytes, or a text such as \"512MB\" or \"1GiB\"")
  }
  ceiling(unname(size) / 4096) * 4096
}

check_names <- function(names) {
  if (!is.character(names) || anyNA(names)) {
    bad_argument("names are texts")
  }
  .Call(C_rem_check_names, names)
  names
}

names.remanent_pool <- function(x) .Call(C_rem_names, x)

length.remanent_pool <- function(x) as.integer(.Call(C_rem_info, x)$objects)

`[[.remanent_pool` <- function(x, i, ...) pmem_read(x, i)

# As in a list, NULL removes an object; pmem_persist() keeps it as one.
`[[<-.remanent_pool` <- function(x, i, ..., value) {
  name <- check_one(i)
  if (is.null(value)) {
    tryCatch(.Call(C_rem_remove, x, name), remanent_NoSuchName = function(e) NULL)
  } else {
    persist_all(x, name, list(value))
  }
  x
}

`$.remanent_pool` <- function(x, name) pmem_read(x, name)

`$<-.remanent_pool` <- `[[<-.remanent_pool`

# What is offered after pool$ and the tabulator key.
.DollarNames.remanent_pool <- function(x, pattern = "") {
  if (.Call(C_rem_is_open, x)) grep(pattern, names(x), value = TRUE) else character()
}

check_one <- function(name) {
  if (length(check_names(name)) != 1L) {
    bad_argument("a pool's object has one name")
  }
  name
}

check_flag <- function(flag, name) {
  if (!is.logical(flag) || length(flag) != 1L || is.na(flag)) {
    bad_argument("'", name, "' is TRUE or FALSE")
  }
  flag
}

# One of some words, of which the default is all: the first.
one_of <- function(given, name, words) {
  if (identical(given, words)) {
    return(words[1])
  }
  at <- if (is.character(given) && length(given) == 1L) pmatch(given, words) else NA
  if (is.na(at)) {
    bad_argument("'", name, "' is one of ", paste0("\"", words, "\"", collapse = ", "))
  }
  words[at]
}

as.list.remanent_pool <- function(x, ...) {
  .Call(C_rem_restore, x, names(x), form_of("native"), is_int64(NULL), NULL)
}

close.remanent_pool <- function(con, ...) pmem_close(con)

format.remanent_pool <- function(x, ...) {
  if (!.Call(C_rem_is_open, x)) {
    return("<remanent pool, closed>")
  }
  info <- .Call(C_rem_info, x)
  sprintf("<remanent pool '%s': %d objects, %s free of %s, %s>", info$file, as.integer(info$objects),
          in_units(info$free_bytes), in_units(info$total_bytes), info$durability)
}

print.remanent_pool <- function(x, ...) {
  cat(format(x), "\n", sep = "")
  invisible(x)
}

in_units <- function(bytes) format(structure(bytes, class = "object_size"), units = "auto", standard = "IEC")
