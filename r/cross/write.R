# Writes a pool with R's values, for read.py beside this.
library(remanent)

file <- commandArgs(TRUE)[1]
pmem_create(file, "64MiB")
x <- c(1.5, NA, 3)
whole <- c(1L, NA, 3L)
flags <- c(TRUE, NA, FALSE)
grid <- matrix(c(1L, NA, 3L, 4L, 5L, 6L), 2)
matrix <- matrix(as.double(1:6), 2)
text <- c("gr\u00f6\u00dfe", NA, "a")
repeated <- rep(c("u", NA, "gr\u00f6"), 20)
kind <- factor(c("u", NA, "v"), c("u", "v"))
values <- list(a = 1, b = list("x", NULL))
frame <- data.frame(id = 1:2, name = c("a", "b"))
raw <- as.raw(0:3)
turn <- 1+2i
pmem_persist(x, whole, flags, grid, matrix, text, repeated, kind, values, frame, raw, turn, file = file)
day <- as.Date(c("2024-02-29", NA))
moment <- as.POSIXct(c("2024-02-29 12:00:00.5", NA), tz = "Europe/Berlin")
span <- as.difftime(c(1.5, NA), units = "mins")
level <- factor(c("hi", "lo", NA), c("lo", "hi"), ordered = TRUE)
# No dictionary can say this one: its places lead to no level.
odd <- structure(c(0L, 5L), levels = "a", class = "factor")
nothing <- NULL
unnamed <- list(1, "two", NULL)
pmem_persist(day, moment, span, level, odd, nothing, unnamed, file = file)
if (requireNamespace("bit64", quietly = TRUE)) pmem_persist(large = bit64::as.integer64(c("9007199254740993", NA)), file = file)
if (requireNamespace("data.table", quietly = TRUE)) {
  pmem_persist(table = data.table::data.table(id = 1:2, name = c("a", NA), key = "id"), file = file)
}
pmem_persist(fit = lm(mpg ~ wt, mtcars), file = file)
