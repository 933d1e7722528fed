# The two processes of a program in R that is restarted. restarts.py beside this runs them, and tells what the ways are.
#
# A program sources this file and calls run_process(). Its words are those that restarts.py gives it: which process, which
# way, a folder, and what is set, as name=value.

# The exit code by which `./run demo` is told that something is missing here, and that this is no failure.
NOT_RUN <- 77L

# Loads packages before anything is timed.
needs <- function(...) {
  for (package in c(...)) {
    if (!suppressPackageStartupMessages(require(package, character.only = TRUE, quietly = TRUE))) {
      message("not run: R's package ", package, " is not installed")
      quit(status = NOT_RUN)
    }
  }
}

# What is set, by name, as texts.
settings <- function() {
  pairs <- regmatches(commandArgs(TRUE)[-(1:3)], regexpr("=", commandArgs(TRUE)[-(1:3)]), invert = TRUE)
  setNames(lapply(pairs, `[`, 2), vapply(pairs, `[`, "", 1))
}

# Runs the process that is asked for, and prints what it took, and what the second one has found, as JSON.
#
# prepare: makes the data. work: works with it; a named vector of numbers that must not depend on where the data came from.
# data_bytes: bytes of the data at most. preparing, working: what these are called.
run_process <- function(preparing, working, prepare, work, data_bytes) {
  words <- commandArgs(TRUE)
  way <- words[2]
  folder <- words[3]
  if (words[1] == "first") {
    cat(as_json(first_process(way, folder, prepare, data_bytes)), "\n", sep = "")
  } else {
    found <- second_process(way, folder, preparing, working, prepare, work)
    cat("[", as_json(found$took), ", ", as_json(found$answer), "]\n", sep = "")
  }
}

# Prepares the data and keeps it.
first_process <- function(way, folder, prepare, data_bytes) {
  if (way == "Retry") {
    return(NULL)  # what it would prepare is lost
  }
  if (way == "disk-restart") {
    data <- prepare()
    return(c(persist = seconds(save_synced(data, file.path(folder, "saved")))))
  }
  file <- file.path(folder, "pool")
  pmem_create(file, data_bytes() + 64 * 2^20)
  # A program makes its pool when it starts, and the system allocates the pages while the data is prepared.
  pool <- pmem_open(file, prefault = TRUE)
  on.exit(close(pool))
  data <- prepare()
  pmem_prefault(pool, wait = TRUE)
  c(persist = seconds(pmem_persist(data, file = pool)))
}

# Gets the data back and works with it.
second_process <- function(way, folder, preparing, working, prepare, work) {
  got <- seconds(data <- switch(way,
    Retry = prepare(),
    "disk-restart" = {
      load(file.path(folder, "saved"))
      data
    },
    "pmem-restart" = pmem_read(file.path(folder, "pool"), "data")
  ))
  worked <- seconds(answer <- work(data))
  phase <- if (way == "Retry") preparing else "restore"
  list(took = setNames(c(got, worked), c(phase, working)), answer = answer)
}

# Uncompressed, which is many times as fast.
save_synced <- function(data, file) {
  save(data, file = file, compress = FALSE)
  if (system2("sync", shQuote(file)) != 0L) {
    stop("sync has failed on ", file)
  }
}

# R evaluates an argument when it is first asked for.
seconds <- function(action) {
  gc(FALSE)
  started <- Sys.time()
  force(action)
  as.numeric(difftime(Sys.time(), started, units = "secs"))
}

# Every digit, so that answers which are printed equal are equal.
as_json <- function(numbers) {
  pairs <- sprintf('"%s": %s', names(numbers), vapply(numbers, format, "", digits = 17))
  paste0("{", paste(pairs, collapse = ", "), "}")
}
