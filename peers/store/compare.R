# The R package beside what users would pick instead, save() and saveRDS(), and restored vectors beside R's own. All sides
# run in one process, one after the other, and medians of the ratios are printed. A folder to work in may be given; else it is tmpfs, whose figures
# are emulated.
library(remanent)
# Figures belong to the package that is installed, which need not be the source beside this file.
cat("package built", packageDescription("remanent", fields = "Built"), "in", find.package("remanent"), "\n")

arguments <- commandArgs(TRUE)
folder <- if (length(arguments)) arguments[1] else if (dir.exists("/dev/shm")) "/dev/shm" else tempdir()
runs <- 5L
folder <- tempfile("remanent-compare-", folder)
dir.create(folder)
file <- file.path(folder, "pool")
peer <- file.path(folder, "peer")
pmem_create(file, "1.5GiB")
pool <- pmem_open(file, prefault = "wait")

# R evaluates an argument when it is first asked for. Its own clock has milliseconds only.
elapsed <- function(expression) {
  gc(FALSE)
  started <- Sys.time()
  force(expression)
  as.numeric(difftime(Sys.time(), started, units = "secs"))
}

# Runs both sides in turn; prints their medians, the spread and the median of the ratios.
compare <- function(what, ours, theirs) {
  ours()
  theirs()
  seconds <- replicate(runs, c(elapsed(ours()), elapsed(theirs())))
  ratios <- seconds[2, ] / pmax(seconds[1, ], 1e-4)
  cat(sprintf("%-44s %8.4f s  %8.4f s  %7.1f times as fast (%.1f to %.1f)\n", what, median(seconds[1, ]),
              median(seconds[2, ]), median(ratios), min(ratios), max(ratios)))
}

cat(sprintf("%s, %s (%s); %d runs\n", pmem_info(pool)$filesystem, pmem_info(pool)$durability, pmem_info(pool)$provenance,
            runs))
set.seed(1)
x <- runif(5e7)
compare("persist 400 MB; save(compress = FALSE)", function() pmem_persist(x, file = pool),
        function() save(x, file = peer, compress = FALSE))
save(x, file = peer, compress = FALSE)
compare("restore and sum 400 MB; load()", function() sum(pmem_read(pool, "x")), function() {
  load(peer)
  sum(x)
})
compare("both, one after the other", function() {
  pmem_persist(x, file = pool)
  sum(pmem_read(pool, "x"))
}, function() {
  save(x, file = peer, compress = FALSE)
  load(peer)
  sum(x)
})
few <- sample(sprintf("vehicle %d", 1:200), 2e6, TRUE)
many <- sprintf("vehicle %d", sample(5e5, 2e6, TRUE))
pmem_persist(few, many, file = pool)
for (strings in c("few", "many")) {
  saveRDS(get(strings), peer, compress = FALSE)
  what <- if (strings == "few") "2e6 strings of 200; readRDS()" else "2e6 strings of 500,000; readRDS()"
  compare(what, function() pmem_read(pool, strings), function() readRDS(peer))
}
frame <- as.data.frame(lapply(1:20, function(i) runif(5e5)))
pmem_persist(frame, file = pool)
saveRDS(frame, peer, compress = FALSE)
compare("a frame of 20 columns, 80 MB; readRDS()", function() pmem_read(pool, "frame"), function() readRDS(peer))

# ---- what is restored beside R's own, from the second pass on ----

# Each form takes its turn in each run, so that what else the machine does hits all of them.
own <- x[1:1e7] + 0
rm(x)
loop <- function(v) {
  s <- 0
  for (i in seq_along(v)) s <- s + v[i]
  s
}
pmem_persist(own, file = pool)
square <- matrix(own, ncol = 10)
table <- as.data.frame(square[, 1:6])
pmem_persist(square, table, file = pool)
rm(square, table)
work <- list(
  sum = sum, mean = mean, sort = sort, order = order, quantile = quantile, cumsum = cumsum, unique = unique,
  "which(v > 0.99)" = function(v) which(v > 0.99), "v + 1" = function(v) v + 1, "loop over v[i]" = loop,
  crossprod = crossprod, lm = function(v) lm(V1 ~ ., v)
)
# What each works on, where that is no vector.
object_of <- function(name) switch(name, crossprod = "square", lm = "table", "own")
forms <- c("native", "altrep", "dram")

cat(sprintf("\n%-18s %9s   %s\n", "1e7 doubles", "R's own", "times as long: median (least to greatest); first pass"))
for (name in names(work)) {
  action <- work[[name]]
  read <- function(as) pmem_read(pool, object_of(name), as = as)
  first <- vapply(c(native = "native", altrep = "altrep"), function(as) median(replicate(3L, {
    value <- read(as)
    elapsed(action(value))
  })), 0)
  values <- lapply(setNames(forms, forms), read)
  for (value in values) action(value)
  # More of them where each says little.
  rounds <- min(25, max(runs, round(1 / elapsed(action(value)))))
  seconds <- vapply(seq_len(rounds), function(run) {
    turns <- forms[(seq_along(forms) + run) %% length(forms) + 1L]
    vapply(turns, function(as) elapsed(action(values[[as]])), 0)[forms]
  }, numeric(length(forms)))
  own_s <- median(seconds["dram", ])
  for (as in c("native", "altrep")) {
    ratios <- seconds[as, ] / seconds["dram", ]
    cat(sprintf("%-18s %7.4f s   %-6s %5.2f (%.2f to %.2f); %5.2f\n", if (as == "native") name else "", own_s, as,
                median(ratios), min(ratios), max(ratios), first[[as]] / own_s))
  }
}
rm(values, value, own)

# ---- many objects ----

many <- lapply(1:100, function(i) runif(1e6))
names(many) <- sprintf("object %d", 1:100)
pmem_persist(list = names(many), file = pool, envir = list2env(many))
labels <- names(many)
rm(many)
report <- function(what, seconds) {
  cat(sprintf("%-60s %6.0f us (%.0f to %.0f)\n", what, median(seconds) * 1e6, min(seconds) * 1e6, max(seconds) * 1e6))
}
# Where what was restored before is collected when R likes to, which is in the greatest times.
elapsed_as_is <- function(expression) {
  started <- Sys.time()
  force(expression)
  as.numeric(difftime(Sys.time(), started, units = "secs"))
}
look <- function(found) for (label in labels) found[[label]][1]
restored <- function(from, as, look_at = function(found) NULL) {
  found <- new.env()
  pmem_restore(from, labels, envir = found, as = as)
  look_at(found)
}
measure <- function(place, from) {
  for (as in c("altrep", "native")) {
    what <- sprintf("100 objects of 8 MB, %s, from %s", as, place)
    report(what, replicate(101L, elapsed_as_is(restored(from, as))))
    report("  and the first item of each", replicate(101L, elapsed_as_is(restored(from, as, look))))
    report("  right after a garbage collection", replicate(101L, elapsed(restored(from, as))))
  }
}
cat("\n")
measure("an open pool", pool)
close(pool)
measure("a file", file)
unlink(folder, recursive = TRUE)
