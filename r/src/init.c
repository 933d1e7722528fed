/* What R learns of this package when it is loaded. */
#include <R_ext/Rdynload.h>
#include <R_ext/Visibility.h>

#include "entries.h"
#include "remanent_r.h"

#define ENTRY(name, arguments) {"rem_" #name, (DL_FUNC)&rem_##name, arguments}

static const R_CallMethodDef entries[] = {
    ENTRY(create, 2),    ENTRY(open, 2),      ENTRY(find, 2),      ENTRY(close, 1),     ENTRY(is_open, 1),
    ENTRY(remove, 2),    ENTRY(rename, 4),    ENTRY(grow, 3),      ENTRY(gc, 1),        ENTRY(refresh, 1),
    ENTRY(verify, 1),    ENTRY(prefault, 2),  ENTRY(info, 1),      ENTRY(list, 2),
    ENTRY(names, 1),     ENTRY(persist, 6),   ENTRY(restore, 5),   ENTRY(read, 4),      ENTRY(counters, 1),
    ENTRY(points_somewhere, 1), ENTRY(selfref, 1),  ENTRY(check_names, 1),
    {NULL, NULL, 0}};

void attribute_visible R_init_remanent(DllInfo *dll) {
    R_registerRoutines(dll, NULL, entries, NULL, NULL);
    R_useDynamicSymbols(dll, FALSE);
    R_forceSymbols(dll, TRUE);
    make_classes(dll);
    watch_forks();
}
