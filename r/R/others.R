# What other languages keep beside their values: read here as what R has in their place.

# Called by the C code: a value whose attributes belong to another language or library.
rebuild <- function(owner, value, attributes, by_rows) {
  switch(owner,
    python = from_python(value, attributes),
    numpy = from_numpy(value, attributes, by_rows),
    pandas = from_pandas(value, attributes),
    value
  )
}

from_python <- function(value, attributes) {
  if (identical(attributes$type, "range")) range_of(value) else value
}

# Python's range, which leaves its end out.
range_of <- function(steps) {
  steps <- lapply(steps, as.numeric)
  count <- max(0, ceiling((steps[[2]] - steps[[1]]) / steps[[3]]))
  made <- steps[[1]] + steps[[3]] * (seq_len(count) - 1)
  if (all(abs(made) <= .Machine$integer.max)) as.integer(made) else made
}

from_numpy <- function(value, attributes, by_rows) {
  if (!is.null(attributes$ml_dtype)) {
    raise("unknown-type", 60L, paste0("there are items of the type ", attributes$ml_dtype, ", which R cannot read"))
  }
  # Not by $, which would take "masked" for it.
  if (!is.null(attributes[["mask"]])) {
    value <- without_masked(value, attributes[["mask"]])
  }
  shape <- attributes$shape
  if (length(shape) < 2L || !is.null(dim(value))) {
    return(value)
  }
  shape <- as.integer(unlist(shape))
  if (by_rows) aperm(array(value, rev(shape))) else array(value, shape)
}

# A structured array has a mask for each field.
without_masked <- function(value, mask) {
  if (!is.data.frame(value) || !is.data.frame(mask) || !identical(names(value), names(mask))) {
    raise("unknown-type", 60L, "there is a mask in a form that this version cannot read")
  }
  for (i in seq_along(value)) {
    if (is.data.frame(value[[i]])) {
      value[[i]] <- without_masked(value[[i]], mask[[i]])
    } else if (any(mask[[i]])) {
      # R's bytes cannot be missing.
      if (is.raw(value[[i]])) {
        mode(value[[i]]) <- "integer"
      }
      is.na(value[[i]]) <- mask[[i]]
    }
  }
  value
}

from_pandas <- function(value, attributes) {
  switch(attributes$type,
    frame = frame_of(value, attributes),
    series = series_of(value, attributes),
    zoned = structure(value, tzone = attributes$zone),
    object = simplified(value),
    single = value,
    "NA" = NA,
    NaT = .POSIXct(NA_real_),
    interval = labels_of(value, attributes$closed),
    range_index = structure(range_of(value), remanent_range = unlist(value)),
    multi_index = value,
    value
  )
}

# Intervals, as cut() names them.
labels_of <- function(value, closed) {
  from <- if (closed %in% c("left", "both")) "[" else "("
  to <- if (closed %in% c("right", "both")) "]" else ")"
  labels <- paste0(from, as.character(value$left), ",", as.character(value$right), to)
  labels[is.na(value$left)] <- NA
  labels
}

# Whether an index only counts the rows.
counts_rows <- function(index) {
  steps <- attr(index, "remanent_range")
  !is.null(steps) && steps[1] == 0 && steps[3] == 1
}

frame_of <- function(value, attributes) {
  index <- attributes$index
  # What is no vector, a multi-index, or has repetitions cannot name rows; it stands beside the frame.
  # Neither can one in a form of another language's own, which is NULL here.
  if (!is.null(index) && is.atomic(index) && !counts_rows(index) && !anyNA(index) && !anyDuplicated(index)) {
    attr(index, "remanent_range") <- NULL
    row.names(value) <- if (is.integer(index)) index else as.character(index)
  } else if (!counts_rows(index)) {
    attr(value, "pandas.index") <- index
  }
  if (length(attributes$attrs)) {
    attr(value, "pandas.attrs") <- attributes$attrs
  }
  value
}

series_of <- function(value, attributes) {
  if (!is.null(attributes$index) && is.atomic(attributes$index) && !counts_rows(attributes$index)) {
    names(value) <- as.character(attributes$index)
  }
  value
}

# A list of Python's objects, as a vector when all are single ones of a kind, or missing.
simplified <- function(value) {
  is_missing <- vapply(value, function(x) is.null(x) || (is.atomic(x) && length(x) == 1L && is.na(x)), NA)
  there <- value[!is_missing]
  if (!length(there) || !all(lengths(there) == 1L)) {
    return(value)
  }
  for (is_kind in list(is.character, is.logical, is.numeric)) {
    if (all(vapply(there, function(x) is_kind(x) && is.null(attributes(x)), NA))) {
      made <- rep(there[[1]][NA], length(value))
      made[!is_missing] <- unlist(there)
      return(made)
    }
  }
  value
}

# Called by the C code: a dictionary that R has not written.
factor_of <- function(places, first, values, is_ordered) {
  places <- as.integer(places) - first + 1L
  places[!is.na(places) & (places < 1L | places > length(values))] <- NA
  attr(values, "remanent_range") <- NULL
  labels <- as.character(if (is.list(values)) unlist(values) else values)
  if (anyDuplicated(labels)) {
    return(values[places])
  }
  structure(places, levels = labels, class = c(if (is_ordered) "ordered", "factor"))
}

# Called by the C code: the name that a key of several parts gives an element.
key_of <- function(key) paste(vapply(key, function(part) as.character(part)[1], ""), collapse = ".")

# Called by the C code: the columns of a matrix.
bind_columns <- function(columns) do.call(cbind, columns)
