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

# What cannot be an argument is told in the same way.
for (size in list("many", "1.2.3MB", -1, NA, Inf, 1e30, c(1, 2))) fails("BadArgument", pmem_create(tempfile(), size))
for (path in list("", NA_character_, 1, c("a", "b"))) {
  fails("BadArgument", pmem_create(path, "8MiB"))
  fails("BadArgument", pmem_ls(path))
}
for (prefix in list(1, NA, NULL, character(), NA_character_)) fails("BadArgument", pmem_ls(file, prefix = prefix))
for (threads in list(-1, NA, "abc", integer(), 1.5)) fails("BadArgument", pmem_persist(a = 1, file = file, threads = threads))
for (checksum in list("maybe", NA, logical())) fails("BadArgument", pmem_persist(a = 1, file = file, checksum = checksum))
fails("BadArgument", pmem_persist(list = "", file = file))
fails("BadArgument", pmem_persist(list = "nowhere", file = file))
fails("BadArgument", pmem_close(file))
fails("BadArgument", pmem_close(NULL))
fails("BadArgument", pmem_prefault(file))
fails("BadArgument", pmem_open(file, "w"))
fails("BadArgument", pmem_open(file, prefault = "soon"))
fails("BadArgument", pmem_read(file, "a", as = "list"))
fails("BadArgument", pmem_read(file, 1))
fails("BadArgument", pmem_restore(file, envir = 1))
fails("BadArgument", pmem_rename(file, "a", "b", replace = NA))
fails("BadArgument", pmem_persist(no_such_object, file = file))
fails("BadArgument", pmem_persist(1 + 1, file = file))
fails("BadArgument", pmem_persist(a = 1, a = 2, file = file))
fails("BadArgument", pmem_ls(structure(1, class = "remanent_pool")))
bytes <- "\xe9"
fails("BadName", pmem_rm(file, bytes))
Encoding(bytes) <- "bytes"
fails("BadName", pmem_rm(file, bytes))
fails("BadName", pmem_read(file, bytes))
stopifnot(nrow(pmem_ls(file)) == 0)

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
before <- pmem_ls(pool)
error <- fails("PoolFull", pmem_persist(large = numeric(4e6), file = pool))
stopifnot(identical(error$element, "large"))
fails("PoolFull", pmem_persist(x = 99, large = numeric(4e6), file = pool))
stopifnot(identical(pmem_ls(pool), before), identical(pool$x, x))
stopifnot(identical(utils:::.DollarNames(pool, "^x"), c("x", "x2")))
close(pool)
close(pool)
print(pool)
fails("Closed", pool$x)
stopifnot(length(utils:::.DollarNames(pool, "")) == 0)
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
# However the path is written, and however long it is.
pool <- pmem_open(replaced)
pmem_persist(c = 3, file = file.path(dirname(replaced), ".", basename(replaced)))
other <- tempfile(fileext = ".pool")
stopifnot(file.link(replaced, other), pool$c == 3)
pmem_persist(d = 4, file = other)
stopifnot(pool$d == 4)
close(pool)
unlink(other)
folder <- file.path(tempfile(), strrep("f", 200))
dir.create(folder, recursive = TRUE)
distant <- file.path(normalizePath(folder), strrep("p", 200))
pmem_create(distant, "8MiB")
pool <- pmem_open(distant)
stopifnot(identical(pmem_info(pool)$file, distant), grepl(distant, format(pool), fixed = TRUE))
close(pool)
stopifnot(identical(pmem_info(distant)$file, distant))
unlink(distant)

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
element_of <- function(value) fails("UnknownType", pmem_persist(value, file = pool))$element
stopifnot(identical(element_of(hidden), "value"), identical(element_of(list(a = 1, fit = list(sum, f = hidden))), "value$fit$f"))
setClass("holder", representation(held = "ANY"))
stopifnot(identical(element_of(list(mean, new("holder", held = pool))), "value[[2]]"))
stopifnot(identical(element_of(list(structure(list(), to = list2env(list(p = pool))))), "attr(value[[1]], \"to\")"))
# Too deep for R's own stack.
endless <- 1
for (i in 1:2e5) endless <- list(endless)
stopifnot(identical(element_of(list(a = endless)), paste0("value$a", strrep("[[1]]", 35))))
rm(endless)
# What cannot become a variable is told before any is one.
target <- new.env()
target$z <- "mine"
lockBinding("z", target)
error <- fails("BadArgument", pmem_restore(pool, envir = target))
stopifnot(identical(error$element, "z"), identical(ls(target), "z"), identical(target$z, "mine"))
target <- new.env()
lockEnvironment(target)
fails("BadArgument", pmem_restore(pool, envir = target))
stopifnot(length(ls(target)) == 0)
close(pool)
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
fails("BadArgument", pmem_persist(large, file = file, progress = "yes"))
# A call that an error ends is not one that was interrupted; and nothing is changed. R looks at the time at some of the times
# when it is asked, and in steps of a millisecond: so one thread copies for several, and asks all the time.
thrice <- c(large, large, large)
ended <- tryCatch({
  setTimeLimit(elapsed = 1e-6, transient = TRUE)
  pmem_persist(ended = thrice, file = file, threads = 1)
}, error = function(e) "error", interrupt = function(e) "interrupt")
setTimeLimit()
stopifnot(identical(ended, "error"), !"ended" %in% pmem_ls(file)$name)
# One that was interrupted is: the signal is there before the call is.
ended <- tryCatch({
  tools::pskill(Sys.getpid(), tools::SIGINT)
  pmem_persist(ended = large, file = file)
  "done"
}, error = function(e) "error", interrupt = function(e) "interrupt")
stopifnot(identical(ended, "interrupt"), !"ended" %in% pmem_ls(file)$name)
pool <- pmem_open(file)
stopifnot(identical(pmem_prefault(pool, wait = TRUE), pool))
close(pool)
unlink(c(elsewhere, Sys.glob(paste0(file, "*"))))
