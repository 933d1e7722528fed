"""Restores what write.R beside this has written and persists it into a pool of its own, for carried.R."""

import sys

import remanent

NAMES = ["x", "whole", "flags", "grid", "matrix", "repeated", "kind", "frame", "raw", "turn", "day", "moment", "span", "level"]


def carried(value):
    """A value in a form that Python's package keeps: categories are a column."""
    if type(value).__name__ == "Categorical":
        import pandas as pd

        return pd.Series(value)
    return value


with remanent.open(sys.argv[1], "r") as pool, remanent.create(sys.argv[1] + ".carried", "64MiB") as other:
    other.persist({name: carried(pool[name]) for name in [*NAMES, "nothing", "large", "table"] if name in pool})
