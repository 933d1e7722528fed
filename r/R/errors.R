# Conditions: one class for each error code, and remanent_error for all of them.

# "pool-full" as "PoolFull".
camel_case <- function(name) {
  words <- strsplit(name, "-", fixed = TRUE)[[1]]
  paste0(toupper(substring(words, 1, 1)), substring(words, 2), collapse = "")
}

# Called by the C code. The condition's call is that of the function which the user has called.
raise <- function(code, number, message, path = NULL, element = NULL) {
  classes <- c(paste0("remanent_", camel_case(code)), "remanent_error", "error", "condition")
  stop(structure(
    class = classes,
    list(message = message, call = users_call(), code = code, number = number, path = path, element = element)
  ))
}

# What the user has handed over is not what a function takes.
bad_argument <- function(...) raise("bad-argument", 67L, paste0(...))

# The outermost call of a function of this package.
users_call <- function() {
  own <- environment(raise)
  for (frame in seq_len(sys.nframe())) {
    if (identical(environment(sys.function(frame)), own)) {
      return(sys.call(frame))
    }
  }
  NULL
}

# What R does after Ctrl-C, which the C code has turned into a persist that was given up.
interrupt <- function() {
  condition <- structure(class = c("interrupt", "condition"), list(message = "", call = NULL))
  signalCondition(condition)
  invokeRestart("abort")
}
