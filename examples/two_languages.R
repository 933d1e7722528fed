# R's part of two_languages.py beside this: writes real data, and checks what Python has made of it.
# Rscript writes a space in the file's name as ~+~.
here <- dirname(gsub("~+~", " ", sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)), fixed = TRUE))
source(file.path(here, "restarts.R"))
needs("data.table", "remanent")

words <- commandArgs(TRUE)
file <- words[2]

# What each column is to R.
classes <- function(frame) vapply(frame, function(column) class(column)[1], "")

# The flight records with R's types, and the earthquakes that come with R.
write_data <- function(csv) {
  records <- fread(csv, data.table = FALSE, showProgress = FALSE)
  flights <- data.frame(
    day = as.Date(ISOdate(records$year, records$month, records$day)),
    time_hour = records$time_hour,
    carrier = factor(records$carrier),
    tailnum = replace(records$tailnum, records$tailnum == "", NA),
    dep_delay = records$dep_delay,
    arr_delay = records$arr_delay,
    distance = as.numeric(records$distance)
  )
  columns <- data.frame(name = names(flights), in_r = classes(flights))
  took <- seconds(pmem_persist(flights, quakes, columns, file = file))
  cat(sprintf("  R       persists flights, %d rows, and quakes, %d rows; %.4f s\n", nrow(flights), nrow(quakes), took))
}

# Whether what Python has computed is what R computes, and of the types that it should be.
check_answer <- function() {
  found <- new.env()
  took <- seconds(pmem_restore(file, envir = found))
  late <- found$late
  kinds <- paste(names(late), classes(late), sep = " ", collapse = ", ")
  cat(sprintf("  R       restores all of it: late has %d rows (%s); %.4f s\n", nrow(late), kinds, took))
  own <- tapply(found$flights$arr_delay, found$flights$carrier, mean, na.rm = TRUE)
  last <- tapply(found$flights$day, found$flights$carrier, max)
  stopifnot(
    is.factor(late$carrier), inherits(late$last_day, "POSIXct"),
    setequal(as.character(late$carrier), names(own)),
    isTRUE(all.equal(late$mean_delay, as.vector(own[as.character(late$carrier)]), tolerance = 1e-12)),
    identical(as.numeric(as.Date(late$last_day)), as.vector(last[as.character(late$carrier)])),
    identical(late$flights, as.vector(table(found$flights$carrier)[as.character(late$carrier)])),
    all.equal(found$depth_of_magnitude, unname(coef(lm(depth ~ mag, quakes))))
  )
  cat("  R       agrees with Python: means, counts, days and the line through the earthquakes\n")
}

switch(words[1], write = write_data(words[3]), check = check_answer())
