# Restored vectors: nothing is copied to work with them, and what is written to them stays in this session.
library(remanent)

file <- tempfile(fileext = ".pool")
pmem_create(file, "256MiB")
set.seed(1)
x <- runif(3e5)
y <- 2 * x + rnorm(3e5)
whole <- sample(3e5)
flags <- x > 0.5
turns <- complex(real = x, imaginary = y)
bytes <- as.raw(rep(0:255, 5000))
pmem_persist(x, y, whole, flags, turns, bytes, file = file)
original <- list(x = x, y = y, whole = whole, flags = flags, turns = turns, bytes = bytes)

is_mapped <- function(v) any(grepl("remanent", capture.output(.Internal(inspect(v)))))
for (as in c("altrep", "native")) {
  rm(x, y, whole, flags, turns, bytes)
  pmem_counters(reset = TRUE)
  pmem_restore(file, as = as)
  # ALTREP vectors are mapped when they are first looked into.
  stopifnot(pmem_counters()[["mapped"]] == if (as == "native") 6 else 0, length(x) == 3e5, typeof(whole) == "integer")
  stopifnot(x[3e5] == original$x[3e5], pmem_counters()[["mapped"]] == if (as == "native") 6 else 1)
  if (as == "altrep") stopifnot(is_mapped(x), is_mapped(turns), is_mapped(bytes), is_mapped(whole))
  stopifnot(
    identical(sort(x), sort(original$x)), identical(order(x), order(original$x)),
    identical(quantile(x), quantile(original$x)), identical(crossprod(x), crossprod(original$x)),
    identical(which(x > 0.999), which(original$x > 0.999)), identical(x, original$x), identical(unique(x), unique(original$x)),
    all.equal(coef(lm(y ~ x)), coef(lm(y ~ x, original[c("x", "y")]))), identical(var(x), var(original$x)),
    identical(cumsum(x), cumsum(original$x)), identical(range(x), range(original$x)), identical(x[5:9], original$x[5:9]),
    identical(x[c(-1, -2)], original$x[c(-1, -2)]), identical(x[c(1.5, NA, 1e9)], original$x[c(1.5, NA, 1e9)]),
    identical(x[flags], original$x[original$flags]), identical(whole[whole], original$whole[original$whole]),
    identical(turns[3:1], original$turns[3:1]), identical(bytes[c(2, 1e9)], original$bytes[c(2, 1e9)]),
    identical(turns[c(1, NA)], original$turns[c(1, NA)]), identical(flags[c(NA, 2L)], original$flags[c(NA, 2L)]),
    identical(sum(whole), sum(original$whole)), identical(sum(flags), sum(original$flags)), !anyNA(x)
  )

  # Written in place, without a copy of the vector, and never into the pool. R has nothing else that refers to it.
  rm(x)
  pmem_restore(file, "x", as = as)
  # A primitive function: an argument of any other would count as something that refers to the vector.
  at <- tracemem(x)
  pmem_counters(reset = TRUE)
  x[5] <- -1
  stopifnot(tracemem(x) == at, pmem_counters()[["duplicated"]] == 0, x[5] == -1)
  untracemem(x)
  z <- x
  z[6] <- -2
  stopifnot(x[6] == original$x[6], z[5] == -1)
  again <- pmem_read(file, "x")
  stopifnot(identical(again, original$x))

  # By value into a file and back; the pool is not needed there.
  stream <- serialize(x, NULL)
  stopifnot(length(stream) > 8 * length(x), identical(unserialize(stream), x))
}

# What each function makes of restored vectors, beside what it makes of R's own: no vector more, of those that are as large. Of
# ALTREP vectors it is also known what was asked: quantile and median sort a copy, which is what R has duplicated.
reads <- list(
  sum = function(v) sum(v$x), mean = function(v) mean(v$x), var = function(v) var(v$x), range = function(v) range(v$x),
  which = function(v) which(v$x > 0.999), identical = function(v) identical(v$x, original$x), order = function(v) order(v$x),
  crossprod = function(v) crossprod(v$x, v$y), product = function(v) v$x %*% v$y, cumsum = function(v) cumsum(v$x),
  unique = function(v) unique(v$whole), lm = function(v) lm(y ~ x, v[c("x", "y")]), sort = function(v) sort(v$x),
  quantile = function(v) quantile(v$x), median = function(v) median(v$x), subset = function(v) v$x[v$flags],
  serialize = function(v) serialize(v$x, NULL)
)
duplicates <- c(quantile = 1, median = 1)
large_vectors <- function(read, v) {
  log <- tempfile()
  Rprofmem(log, threshold = 1e6)
  on.exit(Rprofmem(NULL))
  read(v)
  Rprofmem(NULL)
  sum(grepl("^[0-9]{7,} :", readLines(log)))
}
if (capabilities("profmem")) stopifnot(large_vectors(function(v) v$x + 1, original) == 1)
for (as in c("altrep", "native")) {
  found <- new.env()
  pmem_restore(file, envir = found, as = as)
  for (name in names(reads)) {
    pmem_counters(reset = TRUE)
    reads[[name]](as.list(found))
    counted <- pmem_counters()
    expected <- if (as == "altrep" && name %in% names(duplicates)) duplicates[[name]] else 0
    if (!identical(unname(counted[c("duplicated", "materialised", "copied")]), c(expected, 0, 0))) {
      stop(name, " as ", as, ": ", paste(names(counted), counted, collapse = ", "))
    }
    if (capabilities("profmem")) {
      made <- c(large_vectors(reads[[name]], as.list(found)), large_vectors(reads[[name]], original))
      if (made[1] != made[2]) stop(name, " as ", as, " makes ", made[1], " large vectors, and ", made[2], " of R's own")
    }
  }
}
rm(found)
# What shares its pages with others cannot be a view, and is counted.
pmem_persist(beside = list(runif(2e4)), file = file)
for (as in c("altrep", "native")) {
  pmem_counters(reset = TRUE)
  beside <- pmem_read(file, "beside", as = as)
  stopifnot(pmem_counters()[c("mapped", "copied", "materialised")] == c(0, 1, 1), !is_mapped(beside))
}
pmem_rm(file, "beside")

# A vector outlives its pool, whether it was looked into or not.
v <- pmem_read(file, "y")
untouched <- pmem_read(file, "y", as = "altrep")
pool <- pmem_open(file)
pmem_rm(pool, "y")
pmem_gc(pool)
pmem_persist(filler = runif(3e5), file = pool)
close(pool)
gc()
stopifnot(identical(v, original$y), pmem_counters(reset = TRUE)[["mapped"]] == 1)
stopifnot(identical(untouched, original$y), pmem_counters()[["mapped"]] == 1)
rm(untouched)

# A finalizer of what has such a vector may still look at it, and may keep it.
for (as in c("altrep", "native")) {
  holder <- new.env()
  holder$x <- pmem_read(file, "x", as = as)
  reg.finalizer(holder, function(holder) {
    total <<- sum(holder$x)
    kept <<- holder$x
  })
  total <- kept <- NULL
  rm(holder)
  invisible(gc())
  stopifnot(identical(total, sum(original$x)), identical(kept, original$x))
  rm(kept)
  invisible(gc())
}

# A child sees it too, and does not keep its parent's pool.
if (.Platform$OS.type == "unix") {
  pool <- pmem_open(file)
  v <- pool$x
  untouched <- pmem_read(pool, "x", as = "altrep")
  sums <- parallel::mclapply(1:2, function(i) {
    code <- tryCatch(names(pool), remanent_UsedAfterFork = function(e) e$code)
    list(sum(v), code, sum(pmem_read(file, "x")), sum(untouched))
  }, mc.cores = 2)
  stopifnot(vapply(sums, function(s) identical(s, list(sum(v), "used-after-fork", sum(v), sum(v))), NA))
  pmem_persist(after = 1, file = pool)
  close(pool)
}

# What was sorted is known to be.
sorted <- sort(original$x)
pmem_persist(sorted, file = file)
stopifnot(identical(pmem_read(file, "sorted"), sorted), !is.unsorted(pmem_read(file, "sorted")))
unlink(file)

# A native vector is no part of R's own heap: it starts no collection and raises no limit, however large it is.
pmem_create(file, "256MiB")
# In a child, so that the heap of this process has never been that large.
parallel::mccollect(parallel::mcparallel(pmem_persist(large = numeric(2e7), file = file)))
limit <- gc(FALSE)["Vcells", 3]
native <- pmem_read(file, "large", as = "native")
stopifnot(limit < 2e7, length(native) == 2e7, gc(FALSE)["Vcells", 3] <= limit, gc(FALSE)["Vcells", 1] < 1e7)
native[2e7] <- 1
stopifnot(sum(native) == 1, pmem_read(file, "large")[2e7] == 0)
copy <- native + 0
stopifnot(identical(copy, native), identical(unserialize(serialize(native, NULL)), copy))
rm(native)
invisible(gc())
stopifnot(pmem_rm(file, "large") == "large", pmem_gc(file) >= 0, sum(copy) == 1)
unlink(file)

# A session that restores again and again lets go of what it has no more; else its mappings would run out.
pmem_create(file, "64MiB")
several <- lapply(1:200, function(i) runif(1e4))
names(several) <- sprintf("x%d", 1:200)
pmem_persist(list = names(several), file = file, envir = list2env(several))
pool <- pmem_open(file, "r")
for (as in c("native", "altrep")) {
  pmem_counters(reset = TRUE)
  for (i in 1:250) {
    found <- new.env()
    pmem_restore(pool, names(several), envir = found, as = as)
    for (name in names(several)) found[[name]][1]
  }
  stopifnot(pmem_counters()[["mapped"]] == 50000, pmem_counters()[["copied"]] == 0)
}
close(pool)
unlink(file)

# What is restored, changed and persisted again and again needs the room of two, for R collects what it has no more when the
# pool is full.
pmem_create(file, "16MiB")
state <- numeric(5e5)
pool <- pmem_open(file)
pmem_persist(state, file = pool)
for (i in 1:40) {
  pmem_restore(pool, "state", as = c("native", "altrep")[i %% 2 + 1])
  state <- state + 1
  pmem_persist(state, file = pool)
}
stopifnot(state == 40, identical(pool$state, state))
for (i in 1:2) {
  old <- pmem_read(pool, "state")
  pmem_persist(state, file = pool)
}
rm(old)
stopifnot(pmem_gc(pool) > 0)
close(pool)
unlink(file)

# A session that has restored nothing but ALTREP vectors collects them.
collected <- local({
  code <- c("library(remanent)", sprintf("v <- pmem_read('%s', 'x', as = 'altrep')", file), "rm(v)",
            "l <- list(); for (i in 1:2e4) l[[i]] <- numeric(200)", "cat('collected')")
  pmem_create(file, "16MiB")
  pmem_persist(x = runif(1e5), file = file)
  lines <- system2(file.path(R.home("bin"), "Rscript"), c("--vanilla", "-e", shQuote(paste(code, collapse = "; "))),
                   stdout = TRUE, stderr = TRUE, env = c("_R_GC_FAIL_ON_ERROR_=true", paste0("R_LIBS=", shQuote(paste(.libPaths(), collapse = ":")))))
  unlink(file)
  lines
})
stopifnot(identical(collected, "collected"))

# They outlive the package too: its library stays loaded, for it gives their memory back.
pmem_create(file, "16MiB")
x <- runif(1e5)
pmem_persist(x, file = file)
kept <- list(pmem_read(file, "x", as = "native"), pmem_read(file, "x", as = "altrep"))
unloadNamespace("remanent")
stopifnot(identical(kept[[1]], x), identical(kept[[2]], x))
rm(kept)
invisible(gc())
library(remanent)
stopifnot(identical(pmem_read(file, "x"), x))
unlink(file)
