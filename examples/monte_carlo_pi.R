# Pi by the Monte Carlo method, in R; monte_carlo_pi.py beside this runs it: --language r.
# Rscript writes a space in the file's name as ~+~.
here <- dirname(gsub("~+~", " ", sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)), fixed = TRUE))
source(file.path(here, "restarts.R"))
needs("remanent")

SEED <- 1L
# Numbers that are looked at together, so that what lies between is small beside the data.
STEP <- 2^20

count <- as.numeric(settings()$size) * 1e6 / 8

# The coordinates of random points in a square.
prepare <- function() {
  set.seed(SEED)
  list(x = runif(count), y = runif(count))
}

# Four times the share of the points that lie in the quarter of a circle.
pi_of <- function(points) {
  x <- points$x
  y <- points$y
  inside <- 0
  for (at in seq(1, count, by = STEP)) {
    step <- at:min(at + STEP - 1, count)
    inside <- inside + sum(x[step]^2 + y[step]^2 <= 1)
  }
  c(pi = 4 * inside / count)
}

run_process("generate", "compute", prepare, pi_of, function() 2 * 8 * count)
