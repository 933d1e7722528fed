# The R package beside what users would pick instead: save(), saveRDS(), serialize(). Both sides run in one process, one
# after the other, and medians of the ratios are printed. A folder to work in may be given; else it is tmpfs, whose figures
# are emulated.
library(remanent)

arguments <- commandArgs(TRUE)
folder <- if (length(arguments)) arguments[1] else if (dir.exists("/dev/shm")) "/dev/shm" else tempdir()
runs <- 5L
folder <- tempfile("remanent-compare-", folder)
dir.create(folder)
file <- file.path(folder, "pool")
peer <- file.path(folder, "peer")
pmem_create(file, "1.5GiB")
pool <- pmem_open(file, prefault = "wait")

elapsed <- function(expression) {
  gc(FALSE)
  system.time(expression)[["elapsed"]]
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

restored <- pmem_read(pool, "x")
invisible(sum(restored))
work <- list(mean = mean, sort = function(v) sort(v[1:5e6]), "v + 1" = function(v) v + 1, quantile = quantile)
for (name in names(work)) {
  compare(sprintf("%s of a restored vector; of its own", name), function() work[[name]](restored),
          function() work[[name]](x))
}
close(pool)
unlink(folder, recursive = TRUE)
