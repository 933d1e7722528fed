# Multiple linear regression of a CSV file's records, in R; regression.py beside this runs it, and tells what it is about.
# Rscript writes a space in the file's name as ~+~.
here <- dirname(gsub("~+~", " ", sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)), fixed = TRUE))
source(file.path(here, "restarts.R"))
needs("data.table", "remanent")

# What is explained and by what: each column with the names that it has had, in lower case. New York's taxi commission has
# renamed some from year to year.
MODELS <- list(
  taxi = list(
    response = list(total_amount = c("total_amount", "total_amt")),
    regressors = list(
      passenger_count = "passenger_count",
      trip_distance = "trip_distance",
      extra = c("extra", "surcharge"),
      tip_amount = c("tip_amount", "tip_amt"),
      tolls_amount = c("tolls_amount", "tolls_amt")
    )
  ),
  flights = list(
    response = list(arr_delay = "arr_delay"),
    regressors = list(
      dep_delay = "dep_delay", distance = "distance", air_time = "air_time", hour = "hour", month = "month"
    )
  )
)

# All records of a file; the columns of the model have the model's names.
read_records <- function(file, model) {
  columns <- c(model$response, model$regressors)
  # Before the file is read, which takes long.
  header <- scan(file, "", sep = ",", nlines = 1L, strip.white = TRUE, quiet = TRUE)
  places <- places_of(columns, tolower(header), file)
  # The files of some years have an empty line below the header.
  records <- fread(file, blank.lines.skip = TRUE, showProgress = FALSE)
  setnames(records, places, names(columns))
  for (name in names(columns)) {
    if (!is.numeric(records[[name]])) {
      stop(file, ": the column ", name, " does not hold numbers", call. = FALSE)
    }
  }
  records
}

# Where each column is.
places_of <- function(columns, found, file) {
  vapply(columns, function(names) {
    place <- match(names, found)
    if (all(is.na(place))) {
      stop(file, " has no column ", paste(names, collapse = " or "), "; it has: ", paste(found, collapse = ", "),
           call. = FALSE)
    }
    place[!is.na(place)][1]
  }, 1L)
}

regression <- function(records, model) {
  coef(lm(reformulate(names(model$regressors), names(model$response)), records))
}

given <- settings()
model <- MODELS[[given$model]]
# As the comparison is about time, reading has all processors that there are.
setDTthreads(0L)

run_process(
  "read", "regress",
  prepare = function() read_records(given$input, model),
  work = function(records) regression(records, model),
  # In memory numbers take more than their digits did, where these are few.
  data_bytes = function() 1.5 * file.size(given$input)
)
