"""Makes a CSV file with the columns of New York's yellow-cab records, for the example of a regression in R.

The second use case of Imamura and Yoshida's paper reads one month of them, about 2.6 GB. The columns are those of the
files from 2015 on that still have coordinates; the rows are random but hang together as real ones do: fares follow
distances, and totals are the sums of their parts. The same size and seed give the same bytes.

    python examples/taxi_csv.py taxi.csv --size 2600     # megabytes
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

COLUMNS = (
    "VendorID tpep_pickup_datetime tpep_dropoff_datetime passenger_count trip_distance pickup_longitude "
    "pickup_latitude RateCodeID store_and_fwd_flag dropoff_longitude dropoff_latitude payment_type fare_amount extra "
    "mta_tax tip_amount tolls_amount improvement_surcharge total_amount"
).split()

MB = 10**6
ROWS = 200_000
MONTH = np.datetime64("2015-01-01T00:00:00"), 31 * 86400


def rows(random: np.random.Generator, count: int) -> pa.Table:
    """So many trips."""
    begins = MONTH[0] + random.integers(0, MONTH[1], count).astype("m8[s]")
    miles = np.round(random.lognormal(0.6, 0.9, count), 2).clip(0.1, 60)
    minutes = miles * random.normal(5.5, 1.5, count).clip(1.5, 20)
    ends = begins + (minutes * 60).astype("m8[s]")
    is_card = random.random(count) < 0.62
    fare = np.round((2.5 + 1.56 * miles + 0.49 * minutes) * 2) / 2
    extra = random.choice([0.0, 0.5, 1.0], count, p=[0.5, 0.33, 0.17])
    tolls = np.where(random.random(count) < 0.05, 5.33, 0.0)
    tip = np.where(is_card, np.round(fare * random.normal(0.2, 0.05, count).clip(0, 0.5), 2), 0.0)
    west, south = random.normal(-73.974, 0.035, count), random.normal(40.75, 0.027, count)
    contents = [
        random.integers(1, 3, count),
        pa.array(begins),
        pa.array(ends),
        random.choice([1, 2, 3, 4, 5, 6], count, p=[0.71, 0.14, 0.04, 0.02, 0.055, 0.035]),
        miles,
        places(west),
        places(south),
        np.where(random.random(count) < 0.02, 2, 1),
        pa.array(["N", "Y"]).take(pa.array((random.random(count) < 0.008).astype("i1"))),
        places(west + random.normal(0, 0.007, count) * miles),
        places(south + random.normal(0, 0.006, count) * miles),
        np.where(is_card, 1, 2),
        fare,
        extra,
        np.full(count, 0.5),
        tip,
        tolls,
        np.full(count, 0.3),
        np.round(fare + extra + 0.5 + tip + tolls + 0.3, 2),
    ]
    return pa.table(contents, names=COLUMNS)


def places(degrees: np.ndarray) -> pa.Array:
    """Coordinates with as many digits as the real files have."""
    return pa.array(degrees.astype("f4").astype("f8").round(14))


def write(path: Path, size_bytes: int, seed: int) -> int:
    """Writes whole rows until the file has the size, under another name until it is whole; how many there are."""
    random = np.random.default_rng(seed)
    options = csv.WriteOptions(include_header=False, quoting_style="none")
    temporary = path.with_name(path.name + ".part")
    written = 0
    with open(temporary, "wb") as file:
        file.write((",".join(COLUMNS) + "\n").encode())
        while (left := size_bytes - file.tell()) > 0:
            table = rows(random, ROWS)
            if written:
                row_bytes = file.tell() / written
                table = table.slice(0, min(ROWS, int(left / row_bytes) + 1))
            elif left < ROWS * 150:
                table = table.slice(0, left // 150 + 1)
            csv.write_csv(table, file, options)
            file.flush()
            written += len(table)
    os.replace(temporary, path)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--size", type=int, default=2600, help="megabytes of the file, about (default: 2600)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    count = write(options.path, options.size * MB, options.seed)
    print(f"{options.path}: {count} rows, {options.path.stat().st_size / MB:.0f} MB")


if __name__ == "__main__":
    main()
