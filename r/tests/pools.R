# Pools: made, opened, listed, emptied; and what is told when something cannot be.
library(remanent)

fails <- function(code, expression) {
  class <- paste0("remanent_", code)
  error <- tryCatch({
    expression
    NULL
  }, remanent_error = function(e) e)
  if (!inherits(error, class)) stop("expected ", class, ", got ", paste(class(error), collapse = " "))
  stopifnot(is.character(error$code), is.numeric(error$number), nchar(conditionMessage(error)) > 10)
  invisible(error)
}

file <- tempfile(fileext = ".pool")
fails("NotFound", pmem_ls(file))
pmem_create(file, "8MiB")
fails("AlreadyExists", pmem_create(file, "8MiB"))
fails("BadSize", pmem_create(tempfile(), 100))
stopifnot(inherits(try(pmem_create(tempfile(), "many"), silent = TRUE), "try-error"))

x <- 1:10
y <- "text"
stopifnot(identical(pmem_persist(x, y, z = list(1), list = "x2", file = file, envir = list2env(list(x = x, y = y, x2 = 2))),
                    c("x", "y", "x2", "z")))
found <- pmem_ls(file)
stopifnot(identical(found$name, c("x", "x2", "y", "z")), found$kind[1] == "array", found$type[1] == "i4")
stopifnot(identical(pmem_ls(file, prefix = "x")$name, c("x", "x2")))
rm(x, y)
stopifnot(identical(pmem_restore(file, c("x", "y")), c("x", "y")), identical(x, 1:10), identical(y, "text"))
error <- fails("NoSuchName", pmem_restore(file, c("x", "nope")))
stopifnot(grepl("nope", conditionMessage(error)))

# An open pool is used like a list, and by its path too.
pool <- pmem_open(file)
pool$a <- 1
pool[["b"]] <- c(first = 2)
stopifnot(pool$a == 1, identical(pool[["b"]], c(first = 2)), length(pool) == 6L, "a" %in% names(pool))
pmem_persist(x, file = file)
stopifnot(identical(as.list(pool)$x, x), pmem_info(pool)$objects == 6)
print(pool)
pmem_rm(pool, c("a", "b"))
fails("NoSuchName", pmem_rm(pool, "a"))
stopifnot(pmem_gc(pool) >= 0)
error <- fails("PoolFull", pmem_persist(large = numeric(4e6), file = pool))
close(pool)
close(pool)
print(pool)
fails("Closed", pool$x)
stopifnot(grepl("NotWritable", class(fails("NotWritable", {
  reader <- pmem_open(file, "r")
  pmem_persist(x, file = reader)
}))[1]))
stopifnot(identical(reader$x, x))
close(reader)

# A path leads to the file that is there now, not to one that was there when a pool was opened.
replaced <- tempfile(fileext = ".pool")
pmem_create(replaced, "8MiB")
pool <- pmem_open(replaced)
pool$a <- 1
unlink(replaced)
fails("NotFound", pmem_persist(b = 2, file = replaced))
pmem_create(replaced, "8MiB")
pmem_persist(b = 2, file = replaced)
stopifnot(identical(names(pool), "a"), identical(pmem_ls(replaced)$name, "b"))
close(pool)
stopifnot(identical(pmem_ls(replaced)$name, "b"), pmem_read(replaced, "b") == 2)
# However the path is written.
pool <- pmem_open(replaced)
pmem_persist(c = 3, file = file.path(dirname(replaced), ".", basename(replaced)))
other <- tempfile(fileext = ".pool")
stopifnot(file.link(replaced, other), pool$c == 3)
pmem_persist(d = 4, file = other)
stopifnot(pool$d == 4)
close(pool)
unlink(other)

# A reader stays where it is until it is moved on; by the path, what is newest is read.
reader <- pmem_open(replaced, "r")
pmem_persist(e = 5, file = replaced)
fails("NoSuchName", reader$e)
stopifnot(identical(pmem_refresh(reader), reader), reader$e == 5)
pmem_persist(e = 6, file = replaced)
stopifnot(reader$e == 5, pmem_read(replaced, "e") == 6, "e" %in% pmem_ls(replaced)$name)
close(reader)
fails("Closed", pmem_refresh(reader))
unlink(replaced)

# What cannot be kept is named, and nothing of the call is kept.
inner <- list(fit = list(coef = 1, ptr = NULL))
inner$fit$ptr <- pool <- pmem_open(file)
error <- fails("UnknownType", pmem_persist(kept = 1, inner, file = pool))
stopifnot(identical(error$element, "inner$fit$ptr"), !"kept" %in% names(pool))
error <- fails("UnknownType", pmem_persist(con = list(1, stdin()), file = pool))
stopifnot(identical(error$element, "con[[2]]"))
error <- fails("UnknownType", pmem_persist(tagged = structure(1, to = pool), file = pool))
stopifnot(identical(error$element, "attr(tagged, \"to\")"))
hidden <- local({
  secret <- pool
  function() secret
})
fails("UnknownType", pmem_persist(hidden, file = pool))
close(pool)
stopifnot(inherits(try(pmem_persist(1 + 1, file = file), silent = TRUE), "try-error"))
unlink(file)

# Names are changed, and space is added, without a copy.
file <- tempfile(fileext = ".pool")
pmem_create(file, "8MiB")
pmem_persist(a = 1, b = 2, file = file)
stopifnot(identical(pmem_rename(file, "a", "c"), "c"), setequal(pmem_ls(file)$name, c("b", "c")))
fails("AlreadyExists", pmem_rename(file, "c", "b"))
fails("NoSuchName", pmem_rename(file, "a", "d"))
pmem_rename(file, "c", "b", replace = TRUE)
stopifnot(identical(pmem_ls(file)$name, "b"), pmem_read(file, "b") == 1)
large <- runif(2e6)
fails("PoolFull", pmem_persist(large, file = file))
before <- pmem_info(file)$total_bytes
stopifnot(identical(pmem_grow(file, "96MiB"), file), pmem_info(file)$total_bytes > before, pmem_info(file)$parts == 2)
pmem_persist(large, file = file)
elsewhere <- tempfile(fileext = ".part")
pmem_grow(file, "8MiB", part = elsewhere)
stopifnot(file.exists(elsewhere), identical(pmem_read(file, "large"), large), pmem_info(file)$parts == 3)
fails("AlreadyExists", pmem_grow(file, "8MiB", part = elsewhere))

# A bar tells how far a persist is, when it is asked to.
bar <- capture.output(pmem_persist(large, file = file, progress = 0))
stopifnot(grepl("100%", bar[length(bar)], fixed = TRUE), grepl("|====", paste(bar, collapse = ""), fixed = TRUE))
stopifnot(length(capture.output(pmem_persist(large, file = file))) == 0)
stopifnot(inherits(try(pmem_persist(large, file = file, progress = "yes"), silent = TRUE), "try-error"))
pool <- pmem_open(file)
stopifnot(identical(pmem_prefault(pool, wait = TRUE), pool))
close(pool)
unlink(c(elsewhere, Sys.glob(paste0(file, "*"))))
