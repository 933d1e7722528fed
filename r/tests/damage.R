# Files that are not what they were: each is told by its error, and what is whole can be restored.
library(remanent)

fails <- function(code, expression) {
  error <- tryCatch({
    expression
    NULL
  }, remanent_error = function(e) e)
  if (!inherits(error, paste0("remanent_", code))) stop("expected ", code, ", got ", paste(class(error), collapse = " "))
  invisible(error)
}

file <- tempfile(fileext = ".pool")
pmem_create(file, "8MiB")
objects <- list(
  numbers = runif(1000), kinds = rep(c("u", "v"), 100), greet = function() "the greeting",
  nested = list(a = 1, b = list(sum = function() "the sum"))
)
pmem_persist(list = names(objects), file = file, envir = list2env(objects))
blob <- as.raw(rep(c(222, 173, 190, 239), 100))
pmem_persist(blob, file = file, checksum = TRUE)
whole <- readBin(file, "raw", file.size(file))
others_are_whole <- function(damaged) {
  for (name in setdiff(names(objects), damaged)) stopifnot(all.equal(pmem_read(file, name), objects[[name]]))
}

put <- function(bytes) {
  writeBin(bytes, file)
  Sys.chmod(file, "600")
}
put_damaged <- function(at, byte) {
  bytes <- whole
  bytes[at] <- as.raw(byte)
  put(bytes)
}
found_at <- function(pattern) {
  at <- grepRaw(pattern, whole, fixed = TRUE)
  stopifnot(length(at) == 1)
  at
}
# The stream that holds a text: "B" and a line feed begin it.
stream_of <- function(text) max(Filter(function(at) at < found_at(text), grepRaw("B\n", whole, fixed = TRUE, all = TRUE)))

# The file itself.
put(whole[1:4096])
stopifnot(identical(fails("Truncated", pmem_read(file, "numbers"))$path, file))
fails("Truncated", pmem_persist(a = 1, file = file))
put(whole[seq_len(4 * 2^20)])
fails("Truncated", pmem_open(file))
put(rev(whole))
fails("NotAPool", pmem_ls(file))
put(raw(0))
fails("NotAPool", pmem_open(file))
# Both copies of the format's version.
put_damaged(c(0, 2^20) + 9, 9)
fails("NewerVersion", pmem_restore(file))

# One object. Those beside it are what they were.
put_damaged(found_at(as.raw(rep(1:2, 50))) + 10, 200)
error <- fails("Corrupt", pmem_read(file, "kinds"))
stopifnot(identical(error$element, "kinds"))
others_are_whole("kinds")
put_damaged(stream_of("the greeting"), 0)
error <- fails("Corrupt", pmem_read(file, "greet"))
stopifnot(identical(error$element, "greet"))
kept <- new.env()
fails("Corrupt", pmem_restore(file, c("numbers", "greet"), envir = kept))
stopifnot(length(ls(kept)) == 0)
others_are_whole("greet")
put_damaged(stream_of("the sum"), 0)
stopifnot(grepl("nested", fails("Corrupt", pmem_read(file, "nested"))$element, fixed = TRUE))
others_are_whole("nested")
# R would take this stream for a good one, and crash.
put_damaged(stream_of("the greeting") + 14 + 0:3, 255)
stopifnot(identical(fails("Corrupt", pmem_read(file, "greet"))$element, "greet"))
# What R itself finds, in a stream without a checksum of its own.
stopifnot(identical(fails("Corrupt", remanent:::unserialise(as.raw(0:9), "a$b", FALSE))$element, "a$b"))
# With one, what R says is no damage.
stopifnot(!inherits(tryCatch(remanent:::unserialise(as.raw(0:9), "a$b", TRUE), error = identity), "remanent_error"))
put_damaged(found_at(blob[1:100]) + 40, 0)
fails("ChecksumMismatch", pmem_verify(file))
others_are_whole(character())

put(whole)
stopifnot(pmem_verify(file)[["matching"]] == 1, identical(pmem_read(file, "blob"), blob))
others_are_whole(character())
unlink(file)
