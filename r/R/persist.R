# Objects into a pool.

pmem_persist <- function(..., list = character(), file, envir = parent.frame(), threads = 0L, checksum = FALSE,
                         progress = if (interactive()) 0.5 else Inf) {
  if (!is.numeric(progress) || length(progress) != 1L || is.na(progress)) {
    stop("'progress' is a number of seconds", call. = FALSE)
  }
  given <- as.list(substitute(list(...)))[-1L]
  labels <- names(given)
  if (is.null(labels)) {
    labels <- character(length(given))
  }
  is_symbol <- vapply(given, function(x) is.symbol(x) || is.character(x), NA)
  if (any(!is_symbol & labels == "")) {
    stop("... are names of objects, or name = value", call. = FALSE)
  }
  named <- labels != ""
  symbols <- c(vapply(unname(given[!named]), as.character, ""), check_names(list))
  values <- lapply(symbols, get, envir = envir, inherits = TRUE)
  if (any(named)) {
    values <- c(values, eval(as.call(c(quote(base::list), given[named])), envir))
  }
  names <- c(symbols, labels[named])
  if (anyDuplicated(names)) {
    stop("two objects have the name '", names[anyDuplicated(names)], "'", call. = FALSE)
  }
  with_pool(file, TRUE, function(pool) persist_all(pool, names, unname(values), threads, checksum, progress))
  invisible(names)
}

persist_all <- function(pool, names, values, threads = 0L, checksum = FALSE, progress = Inf) {
  if (length(names) && !.Call(C_rem_persist, pool, names, values, as.integer(threads), checksum, progress)) {
    interrupt()
  }
}

# Called by the C code: what has no node, in R's own form. A pointer within would be nothing after a restart.
serialise <- function(x, element) {
  serialize(x, NULL, xdr = FALSE, version = 3L, refhook = function(part) {
    if (!is.environment(part) && .Call(C_rem_points_somewhere, part)) {
      raise("unknown-type", 60L, paste0("'", element, "' holds an external pointer or weak reference within a function, ",
            "an environment or an S4 object; it leads nowhere in another session"), element = element)
    }
    NULL
  })
}

unserialise <- function(stream) unserialize(stream)
