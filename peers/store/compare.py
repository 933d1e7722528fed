"""Large arrays persisted and restored beside pickle, NumPy, joblib and Arrow and beside a raw copy, on the same medium.

All are as durable when a persist returns: on a disk the peers' files and their folder are synced; in shared memory
there is nothing to sync and the figures are emulated. In each round every way is measured once with data that is new,
one after the other, forwards and backwards by turns. What was persisted is compared with what should have been, every
time. A figure is the median, with its quartiles; a ratio is taken round by round, because what disturbs the machine
disturbs both sides of a round. Rounds begin when other work rests, if it does within half a minute.

    ./run bench                             # this and the other comparisons
    python peers/store/compare.py --help    # this one alone, with an environment that has the packages

The peers write a file that is new each time, as one does who keeps the old version until the new one is whole, and one
that is there already, which `open(..., "wb")` cuts to nothing first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np

import changes
import huge
import objects
import persists
import quiet
import remanent
import restored
from formats import bytes_of

SHARED_MEMORY = Path("/dev/shm")
HUGE = "huge"
MB = 1_000_000

#: The exit code by which `./run bench` is told that something is missing here, and that this is no failure.
NOT_RUN = 77

#: What is measured, in this order.
PARTS = ("persist", "objects", "work", "changes")


def run(parent: Path, parts: list[str], size_mb: int, rounds: int) -> bool:
    """Measures in a folder; tells whether it could."""
    random = np.random.default_rng(1)
    arrays = {name: random.standard_normal(size_mb * MB // 8) for name in ("a", "b")}
    with tempfile.TemporaryDirectory(prefix="remanent-peers-store-", dir=parent) as text:
        folder = Path(text)
        needed_bytes, free_bytes = 11 * bytes_of(arrays), shutil.disk_usage(folder).free
        if free_bytes < needed_bytes:
            print(f"{parent}: not run: {needed_bytes / MB:.0f} MB are needed, {free_bytes / MB:.0f} MB are free")
            return False
        print_place(folder, parent)
        print(f"# 2 arrays of {size_mb} MB; {rounds} rounds in turn; {os.cpu_count()} CPUs")
        others = quiet.Others()
        is_whole = "persist" not in parts or persists.run(folder, arrays, rounds)
    with tempfile.TemporaryDirectory(prefix="remanent-peers-store-", dir=parent) as text:
        folder = Path(text)
        if "objects" in parts:
            objects.run(folder, rounds)
        if "work" in parts:
            restored.run(folder, arrays, rounds)
        if "changes" in parts:
            changes.run(folder, arrays["a"], rounds)
    print(f"# meanwhile other work had {others.share():.2f} of {os.cpu_count()} CPUs\n", flush=True)
    return is_whole


def print_place(folder: Path, parent: Path) -> None:
    with remanent.create(folder / "probed", "8MiB") as pool:
        durability = pool.durability
    (folder / "probed").unlink()
    synced = "files and folder synced" if durability.granularity == "page" else "nothing to sync"
    print(f"# {parent} ({durability.filesystem}): {durability}; {durability.granularity} granularity; peers: {synced}")


def run_with_huge_pages(parts: list[str], size_mb: int, rounds: int) -> bool:
    """Measures where pages have 2 MiB; tells whether it could."""
    command = [sys.executable, __file__, "--size-mb", str(size_mb), "--rounds", str(rounds)]
    command += [f"--only={part}" for part in parts]
    try:
        code = huge.run(command)
    except OSError as error:
        print(f"2 MiB pages: not run: no such tmpfs can be mounted: {error}")
        return False
    if code not in (0, NOT_RUN):
        sys.exit(code)
    return code == 0


def default_places() -> list[Path | str]:
    """Shared memory, with its usual pages and with huge ones, and the caches' folder, which is on a disk nearly everywhere."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    disk = Path(os.environ.get("REMANENT_CACHE") or Path(caches) / "remanent") / "bench"
    disk.mkdir(parents=True, exist_ok=True)
    return [SHARED_MEMORY, HUGE, disk]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "places",
        nargs="*",
        help=f"folders, or {HUGE!r} for a tmpfs of 2 MiB pages (default: shared memory, {HUGE}, the caches' folder)",
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="what to measure (default: all)")
    parser.add_argument("--size-mb", type=int, default=100, help="MB of each of the two arrays (default: 100)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default: 7)")
    parser.add_argument("--restore", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.restore:
        persists.restore_and_tell(options.restore[0], Path(options.restore[1]))
        return
    # Ended by others it still takes its gigabytes of shared memory back.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parts = options.only or PARTS
    ran = []
    for place in options.places or default_places():
        if place == HUGE:
            ran.append(run_with_huge_pages(parts, options.size_mb, options.rounds))
        else:
            ran.append(run(Path(place), parts, options.size_mb, options.rounds))
    if not all(ran):
        sys.exit(NOT_RUN)


if __name__ == "__main__":
    main()
