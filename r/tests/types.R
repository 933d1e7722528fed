# Every kind of value goes into a pool and comes back identical, in each form.
library(remanent)

file <- tempfile(fileext = ".pool")
pmem_create(file, "64MiB")
pool <- pmem_open(file)

set.seed(1)
bytes <- "\xe9"
Encoding(bytes) <- "bytes"
latin1 <- "gr\xfc\xdfe"
Encoding(latin1) <- "latin1"
# Of no encoding that is told, and no text in this one.
unknown <- "\xe9"
setClass("measured", representation(value = "numeric", note = "ANY"))
table <- data.frame(
  id = 1:3, text = c("a", NA, "gr\u00fc\u00dfe"), flag = c(TRUE, NA, FALSE), kind = factor(c("u", "v", "u")),
  day = as.Date("2024-02-29") + 0:2, row.names = c("x", "y", "z")
)
table$parts <- I(list(1, 2:3, "x"))
table$grid <- matrix(1:6, 3)

values <- list(
  numbers = c(runif(2e5), NA, NaN, Inf), integers = c(1:3, NA), many = c(NA, seq_len(3e5) * 2L), flags = c(TRUE, NA, FALSE),
  complex = complex(real = 1:3, imaginary = c(NA, 2, 3)), raw = as.raw(0:255), nothing = NULL,
  text = c("a", NA, "gr\u00fc\u00dfe", "", bytes, latin1), repeated = sample(c("x", "yy", NA, "gr\u00fc\u00dfe"), 5000, TRUE),
  wide = sample(sprintf("value %d", 1:1000), 5000, TRUE), repeated_bytes = rep(c("a", bytes), 100),
  factor = factor(sample(c("u", "v", NA), 1000, TRUE)), ordered = factor(c("lo", "hi"), c("lo", "hi"), ordered = TRUE),
  own_factor = structure(c(1L, 2L), levels = c("a", "b"), class = c("mine", "factor")),
  date = as.Date("2024-02-29") + 0:2, moment = as.POSIXct("2024-02-29 12:00:00", tz = "Europe/Berlin") + 0:1,
  parts_of_time = as.POSIXlt("2024-02-29 12:00:00", tz = "UTC"), span = as.difftime(c(1, NA), units = "mins"),
  matrix = matrix(runif(12), 3, dimnames = list(letters[1:3], NULL)), array = array(1:24, 2:4),
  gaps = matrix(c(1L, NA, 3:6), 2), letters = matrix(letters[1:4], 2), one_dimension = array(1:3, 3),
  empty_matrix = matrix(double(), 0, 3), list = list(1, "a", NULL, list(b = 2)), named = list(a = 1, b = list(c = 2)),
  twice = list(a = 1, a = 2), empty = list(), empty_named = setNames(list(), character()), no_text = character(),
  no_integers = integer(), of_class = structure(list(a = 1), class = "mine"), list_matrix = matrix(list(1, 2, "a", NULL), 2),
  iris = iris, table = table, no_rows = iris[0, ], no_columns = data.frame(), unclear_rows = iris[c(3, 1), ],
  formula = y ~ x, symbol = quote(a), call = quote(f(x)), expression = expression(a, b), pairs = pairlist(a = 1, b = 2),
  class = getClass("numeric"), series = ts(1:10, start = 2000, frequency = 4), names = c(a = 1, b = 2),
  own_marks = structure(1:2, type = "logical", `r:type` = "x", `r:na` = 2), counted = 1:1e5, sorted = sort(runif(1e5)),
  deep = Reduce(function(inner, i) list(inner), 1:80, 1),
  deep_attributes = Reduce(function(inner, i) structure(1, inner = inner), 1:1000, 1),
  # Names, levels and names of columns that are no text.
  attribute_unknown = local({
    x <- 1:3
    attr(x, unknown) <- "of a name that is no text"
    list(x)
  }),
  names_of_bytes = setNames(list(1, 2), c("a", bytes)), numbers_of_bytes = setNames(1:2, c(bytes, unknown)),
  names_unknown = setNames(list(1, 2), c("a", unknown)), names_latin1 = setNames(list(1, 2), c("a", latin1)),
  levels_of_bytes = structure(c(1L, NA, 2L), levels = c(bytes, "a"), class = "factor"),
  levels_unknown = structure(1:2, levels = c("a", unknown), class = "factor"),
  columns_of_bytes = structure(list(1:2, 3:4), names = c("a", bytes), class = "data.frame", row.names = c(NA, -2L)),
  columns_unknown = structure(list(1:2, 3:4), names = c("a", unknown), class = "data.frame", row.names = c(NA, -2L)),
  # Factors that R itself would not make.
  places_outside = structure(c(0L, 5L, NA), levels = "a", class = "factor"),
  levels_twice = structure(c(1L, 2L), levels = c("a", "a"), class = "factor"), level_na = addNA(factor(c("a", NA))),
  no_levels = structure(c(NA, NA) + 0L, levels = character(), class = "factor"),
  odd_grid = data.frame(a = 1:2, b = I(structure(c(0L, 1L), levels = "a", class = "factor", dim = 2:1))),
  s4 = new("measured", value = c(1, NA), note = list(1)), s4_in_list = list(a = 1, b = list(new("measured", value = 2, note = y ~ x)))
)
pmem_persist(list = names(values), file = pool, envir = list2env(values), checksum = TRUE)
stopifnot(setequal(names(pool), names(values)), length(pool) == length(values))

for (as in c("altrep", "native", "dram")) {
  found <- new.env()
  stopifnot(setequal(pmem_restore(pool, envir = found, as = as), names(values)))
  for (name in names(values)) {
    if (!identical(found[[name]], values[[name]])) {
      stop(name, " as ", as, ": ", paste(all.equal(found[[name]], values[[name]]), collapse = "; "))
    }
  }
  stopifnot(Encoding(found$text)[c(3, 5)] == c("UTF-8", "bytes"), .row_names_info(found$iris) == -150L)
}
stopifnot(pmem_verify(pool)[["matching"]] > 30)

# A data frame whose number of rows is NA is readable, at least.
rows_na <- structure(list(), names = character(), class = "data.frame", row.names = c(NA, NA_integer_))
pmem_persist(rows_na, file = pool)
stopifnot(identical(.row_names_info(pool$rows_na, 0L), c(NA_integer_, NA_integer_)))

# A factor is a view of the pool, as other integers are.
kinds <- factor(rep(c("u", "v", NA), length.out = 1e6))
pmem_persist(kinds, file = pool)
pmem_counters(reset = TRUE)
found <- pool$kinds
stopifnot(pmem_counters()[["mapped"]] == 1, pmem_counters()[["copied"]] == 0, identical(found, kinds))

# NULL removes an object from a pool, as it does from a list; it is kept as one by pmem_persist.
pool$gone <- 1
pool[["gone"]] <- NULL
pool$gone <- NULL
pmem_persist(kept = NULL, file = pool)
stopifnot(!"gone" %in% names(pool), "kept" %in% names(pool), is.null(pool$kept))

# Functions and environments are equal, and what they share stays shared.
counter <- local({
  count <- 0
  list(up = function() count <<- count + 1, get = function() count, large = runif(1e5))
})
pmem_persist(counter, file = pool)
pmem_persist(fit = lm(mpg ~ wt, mtcars), file = pool)
found <- pool$counter
found$up()
stopifnot(found$get() == 1, counter$get() == 0, identical(found$large, counter$large))
stopifnot(all.equal(predict(pool$fit), predict(lm(mpg ~ wt, mtcars))))

# Packages that need not be there.
if (requireNamespace("bit64", quietly = TRUE)) {
  large <- bit64::as.integer64(c("9007199254740993", NA, "-5"))
  pmem_persist(large, file = pool)
  stopifnot(identical(pool$large, large))
  # In a session that has not loaded the package, they are what they are too.
  close(pool)
  fresh <- tempfile(fileext = ".R")
  writeLines(c("library(remanent)", "file <- commandArgs(TRUE)[1]", "found <- pmem_read(file, 'large')",
               "stopifnot(isNamespaceLoaded('bit64'), identical(format(found[1]), '9007199254740993'))"), fresh)
  stopifnot(system2(file.path(R.home("bin"), "Rscript"), c("--vanilla", shQuote(c(fresh, file)))) == 0)
  pool <- pmem_open(file)
}
if (requireNamespace("data.table", quietly = TRUE)) {
  library(data.table)
  flights <- data.table(id = 1:3, v = c(2.5, 1, 3), key = "v")
  pmem_persist(flights, file = pool)
  found <- pool$flights
  stopifnot(all.equal(found, flights), identical(key(found), "v"))
  found[, w := v * 2]
  stopifnot(found$w == found$v * 2, is.null(pool$flights$w))
  # Also where R serialises it: in functions, environments, models, S4 objects and deep lists.
  fitted <- function(table) lm(v ~ id, data = table)
  held <- list(get = local({
    inner <- copy(flights)
    function() inner
  }), fit = fitted(flights), s4 = new("measured", value = 1, note = flights),
  deep = Reduce(function(inner, i) list(inner), 1:40, flights))
  pmem_persist(held, environment = list2env(list(table = flights)), empty = data.table(), file = pool)
  found <- pool$held
  stopifnot(all.equal(found$get(), flights), all.equal(coef(found$fit), coef(held$fit)), all.equal(found$s4@note, flights),
            all.equal(unlist(found$deep), unlist(held$deep)), all.equal(pool$environment$table, flights))
  stopifnot(identical(dim(pool$empty), c(0L, 0L)), is.data.table(pool$empty))
}
if (requireNamespace("tibble", quietly = TRUE)) {
  tidy <- tibble::tibble(a = 1:2, b = list(1, "x"))
  pmem_persist(tidy, file = pool)
  stopifnot(identical(pool$tidy, tidy))
}
close(pool)
unlink(file)
