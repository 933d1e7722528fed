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
  deep = Reduce(function(inner, i) list(inner), 1:80, 1)
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
}
if (requireNamespace("data.table", quietly = TRUE)) {
  library(data.table)
  flights <- data.table(id = 1:3, v = c(2.5, 1, 3), key = "v")
  pmem_persist(flights, file = pool)
  found <- pool$flights
  stopifnot(all.equal(found, flights), identical(key(found), "v"))
  found[, w := v * 2]
  stopifnot(found$w == found$v * 2, is.null(pool$flights$w))
}
if (requireNamespace("tibble", quietly = TRUE)) {
  tidy <- tibble::tibble(a = 1:2, b = list(1, "x"))
  pmem_persist(tidy, file = pool)
  stopifnot(identical(pool$tidy, tidy))
}
close(pool)
unlink(file)
