# Objects into a pool.

pmem_persist <- function(..., list = character(), file, envir = parent.frame(), threads = 0L, checksum = FALSE,
                         progress = if (interactive()) 0.5 else Inf) {
  if (!is.numeric(progress) || length(progress) != 1L || is.na(progress)) {
    bad_argument("'progress' is a number of seconds")
  }
  if (!is.numeric(threads) || length(threads) != 1L || !threads %in% 0:4096) {
    bad_argument("'threads' is a number of threads, or 0")
  }
  if (!is.environment(envir)) {
    bad_argument("'envir' is an environment")
  }
  check_flag(checksum, "checksum")
  given <- as.list(substitute(list(...)))[-1L]
  labels <- names(given)
  if (is.null(labels)) {
    labels <- character(length(given))
  }
  is_symbol <- vapply(given, function(x) is.symbol(x) || is.character(x), NA)
  if (any(!is_symbol & labels == "")) {
    bad_argument("... are names of objects, or name = value")
  }
  named <- labels != ""
  symbols <- c(vapply(unname(given[!named]), as.character, ""), check_names(list))
  is_there <- vapply(symbols, function(symbol) nzchar(symbol) && exists(symbol, envir = envir), NA)
  if (!all(is_there)) {
    bad_argument("there is no object '", symbols[!is_there][1], "'")
  }
  values <- lapply(symbols, get, envir = envir, inherits = TRUE)
  if (any(named)) {
    values <- c(values, eval(as.call(c(quote(base::list), given[named])), envir))
  }
  names <- check_names(c(symbols, labels[named]))
  if (anyDuplicated(names)) {
    bad_argument("two objects have the name '", names[anyDuplicated(names)], "'")
  }
  with_pool(file, TRUE, function(pool) persist_all(pool, names, unname(values), threads, checksum, progress))
  invisible(names)
}

persist_all <- function(pool, names, values, threads = 0L, checksum = FALSE, progress = Inf) {
  if (length(names) && !.Call(C_rem_persist, pool, names, values, as.integer(threads), checksum, progress)) {
    interrupt()
  }
}

# Called by the C code: what has no node, in R's own form. Either one object and its name, or a list of parts of one and the
# place of each.
serialise <- function(x, places) {
  tryCatch(stream_of(x), error = function(together) {
    # One by one they tell which of them it is.
    parts <- if (length(places) > 1L) x else list(x)
    for (i in seq_along(parts)) {
      tryCatch(stream_of(parts[[i]]), error = function(alone) refuse_part(places[i], alone))
    }
    refuse_part(places[1], together)
  })
}

# A pointer within would be nothing after a restart, and is refused. But data.table keeps one to the table itself in each
# table, and makes it anew.
stream_of <- function(x) {
  selfref <- NULL
  serialize(x, NULL, xdr = FALSE, version = 3L, refhook = function(part) {
    if (!is.environment(part) && !identical(part, selfref)) {
      if (.Call(C_rem_points_somewhere, part)) {
        stop(structure(class = c("remanent_pointer", "error", "condition"), list(message = "a pointer", call = NULL)))
      }
      selfref <<- .Call(C_rem_selfref, part)
    }
    NULL
  })
}

refuse_part <- function(place, error) {
  why <- if (inherits(error, "remanent_pointer")) {
    paste("holds an external pointer or weak reference within a function, an environment or an S4 object;",
          "it leads nowhere in another session")
  } else {
    paste("cannot be serialised by R:", conditionMessage(error))
  }
  raise("unknown-type", 60L, paste0("'", place, "' ", why), element = place)
}

# A stream with a checksum is what was written, so that what R says of it is something else, such as want of memory.
unserialise <- function(stream, place, is_whole) {
  tryCatch(unserialize(stream), error = function(e) {
    if (is_whole) {
      stop(e)
    }
    raise("corrupt", 30L, paste0("'", place, "' is damaged, R cannot unserialise it (", conditionMessage(e),
          "); restore the file from a copy"), element = place)
  })
}
