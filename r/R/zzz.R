.onUnload <- function(libpath) library.dynam.unload("remanent", libpath)
