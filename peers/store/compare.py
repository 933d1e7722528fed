"""Two large arrays persisted and restored beside pickle, NumPy, joblib and Arrow, on the same medium.

All are as durable when a persist returns: on a disk the peers' files and their folder are synced; in shared memory
there is nothing to sync and the figures are emulated. In each round every method persists the same new data, one after
the other, forwards and backwards by turns; then a new process for each method restores it and sums it up. What comes
back is compared with what went in, every time. A figure is the median, with its quartiles; a ratio is taken round by
round, because what disturbs the machine disturbs both sides of a round.

    ./run bench                             # this and the other comparisons
    python peers/store/compare.py --help    # this one alone, with an environment that has the packages
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import pandas as _  # pyarrow looks for it at its first conversion, which is none of the time to restore
import pyarrow as pa

import remanent

Arrays = dict[str, np.ndarray]

SHARED_MEMORY = Path("/dev/shm")
MB = 1_000_000
MIB = 1 << 20
ALIGNMENT = 64

#: The exit code by which `./run bench` is told that something is missing here, and that this is no failure.
NOT_RUN = 77


# Persisting, as users would.


def sync(path: Path) -> None:
    """Makes a file or a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_pickle(folder: Path, arrays: Arrays) -> list[Path]:
    with open(folder / "pickle", "wb") as file:
        pickle.dump(arrays, file, protocol=5)
    return [folder / "pickle"]


def save_out_of_band(folder: Path, arrays: Arrays) -> list[Path]:
    """The pickle in one file, the arrays' bytes side by side in another, aligned so that they can be mapped."""
    buffers: list[pickle.PickleBuffer] = []
    described = pickle.dumps(arrays, protocol=5, buffer_callback=buffers.append)
    places, end = [], 0
    with open(folder / "buffers", "wb") as file:
        for buffer in buffers:
            raw = buffer.raw()
            places.append((end, len(raw)))
            file.seek(end)
            file.write(raw)
            end += -(-len(raw) // ALIGNMENT) * ALIGNMENT
    (folder / "described").write_bytes(pickle.dumps((described, places)))
    return [folder / "buffers", folder / "described"]


def save_numpy(folder: Path, arrays: Arrays) -> list[Path]:
    paths = [folder / f"{name}.npy" for name in arrays]
    for path, array in zip(paths, arrays.values(), strict=True):
        np.save(path, array)
    return paths


def save_joblib(folder: Path, arrays: Arrays) -> list[Path]:
    joblib.dump(arrays, folder / "joblib")
    return [folder / "joblib"]


def save_arrow(folder: Path, arrays: Arrays) -> list[Path]:
    table = pa.record_batch([pa.array(array) for array in arrays.values()], names=list(arrays))
    with pa.OSFile(str(folder / "arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_batch(table)
    return [folder / "arrow"]


def durable(save: Callable[[Path, Arrays], list[Path]], folder: Path, arrays: Arrays, is_disk: bool) -> None:
    paths = save(folder, arrays)
    if is_disk:
        for path in [*paths, folder]:
            sync(path)


# Restoring, in a process of its own.


def load_pickle(folder: Path) -> Arrays:
    with open(folder / "pickle", "rb") as file:
        return pickle.load(file)


def load_out_of_band(folder: Path) -> Arrays:
    described, places = pickle.loads((folder / "described").read_bytes())
    with open(folder / "buffers", "rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return pickle.loads(described, buffers=[mapped[at : at + length] for at, length in places])


def load_numpy(folder: Path, mmap_mode: str | None = None) -> Arrays:
    return {file.stem: np.load(file, mmap_mode=mmap_mode) for file in sorted(folder.glob("*.npy"))}


def load_arrow(folder: Path) -> Arrays:
    batch = pa.ipc.open_file(pa.memory_map(str(folder / "arrow"))).get_batch(0)
    return {name: batch.column(name).to_numpy(zero_copy_only=True) for name in batch.schema.names}


#: By name, how to restore. The first is what the others are compared with.
RESTORES: dict[str, Callable[[Path], Arrays]] = {
    "remanent.restore": lambda folder: remanent.restore(folder / "pool"),
    "remanent.restore, mode r": lambda folder: remanent.restore(folder / "pool", mode="r"),
    "pickle 5": load_pickle,
    "pickle 5 out-of-band, mmap": load_out_of_band,
    "numpy.load": load_numpy,
    "numpy.load, mmap_mode r": lambda folder: load_numpy(folder, "r"),
    "joblib.load": lambda folder: joblib.load(folder / "joblib"),
    "joblib.load, mmap_mode r": lambda folder: joblib.load(folder / "joblib", mmap_mode="r"),
    "Arrow IPC file, mapped": load_arrow,
}


def restore_and_tell(method: str, folder: Path) -> None:
    """Prints the seconds to restore, those to the end of the first sums, and what the bytes are."""
    restore = RESTORES[method]
    started = time.perf_counter()
    arrays = restore(folder)
    restored = time.perf_counter()
    sums = {name: float(array.sum()) for name, array in arrays.items()}
    used = time.perf_counter()
    print(json.dumps([restored - started, used - started, sums, fingerprints(arrays)]))


def restore_elsewhere(method: str, folder: Path) -> list:
    words = [sys.executable, __file__, "--restore", method, str(folder)]
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)


def fingerprints(arrays: Arrays) -> dict[str, int]:
    return {name: zlib.crc32(array.reshape(-1).view(np.uint8)) for name, array in sorted(arrays.items())}


# The rounds.


@dataclass(frozen=True)
class Bench:
    """Where it is measured, with a pool and files kept mapped as a program that persists repeatedly has them."""

    folder: Path
    pool: remanent.Pool
    mapped: Arrays
    is_disk: bool

    def persists(self, arrays: Arrays) -> dict[str, Callable[[], object]]:
        """By name, how to persist. The first is what the others are compared with."""

        def peer(save: Callable[[Path, Arrays], list[Path]]) -> Callable[[], None]:
            return lambda: durable(save, self.folder, arrays, self.is_disk)

        return {
            "remanent, warm pool": lambda: self.pool.persist(arrays),
            "remanent, warm pool, 1 thread": lambda: self.pool.persist(arrays, threads=1),
            "remanent, untouched pool": lambda: self.into_new_pool(arrays),
            "remanent, create and persist": lambda: self.create_and_persist(arrays),
            "pickle 5": peer(save_pickle),
            "pickle 5 out-of-band": peer(save_out_of_band),
            "numpy.save": peer(save_numpy),
            "joblib.dump": peer(save_joblib),
            "Arrow IPC file": peer(save_arrow),
            "numpy.memmap, not atomic": lambda: self.into_mapped(arrays),
        }

    def new_pool(self, arrays: Arrays) -> remanent.Pool:
        path = self.folder / "new pool"
        path.unlink(missing_ok=True)
        return remanent.create(path, bytes_of(arrays) + 16 * MIB)

    def into_new_pool(self, arrays: Arrays) -> float:
        """The pool is made before the clock starts: the system still has to give it its pages."""
        with self.new_pool(arrays) as pool:
            return seconds(lambda: pool.persist(arrays))

    def create_and_persist(self, arrays: Arrays) -> None:
        with self.new_pool(arrays) as pool:
            pool.persist(arrays)

    def into_mapped(self, arrays: Arrays) -> None:
        """Files that stay mapped, the fastest there is without a pool: a crash leaves a mixture of two versions."""
        for name, array in arrays.items():
            self.mapped[name][:] = array
            if self.is_disk:
                self.mapped[name].flush()


@contextmanager
def bench(folder: Path, arrays: Arrays) -> Iterator[Bench]:
    with remanent.create(folder / "pool", 2 * bytes_of(arrays) + 64 * MIB) as pool:
        pool.prefault(wait=True)
        for _ in range(2):  # both places that versions alternate between
            pool.persist(arrays)
        mapped = {
            name: np.memmap(folder / f"{name}.map", array.dtype, "w+", shape=array.shape) for name, array in arrays.items()
        }
        made = Bench(folder, pool, mapped, pool.durability.granularity == "page")
        made.into_mapped(arrays)
        yield made


def seconds(action: Callable[[], object]) -> float:
    """How long it takes, unless it says so itself."""
    started = time.perf_counter()
    told = action()
    return told if isinstance(told, float) else time.perf_counter() - started


def in_turn(names: list[str], round_: int) -> list[str]:
    return names if round_ % 2 == 0 else names[::-1]


Figures = dict[str, list[float]]


def measure(place: Bench, arrays: Arrays, rounds: int) -> tuple[Figures, Figures, Figures]:
    """Seconds of each method's rounds: persisting, restoring, restoring and summing. The first round is thrown away."""
    persists = place.persists(arrays)
    persist_s, restore_s, used_s = ({name: [] for name in names} for names in (persists, RESTORES, RESTORES))
    for round_ in range(rounds + 1):
        for array in arrays.values():
            array[round_ :: len(array) // 7] += 1.0  # other bytes each time, so that what is left over is noticed
        wanted = [{name: float(array.sum()) for name, array in arrays.items()}, fingerprints(arrays)]
        for name in in_turn(list(persists), round_):
            persist_s[name].append(seconds(persists[name]))
        check(fingerprints(place.mapped) == wanted[1], "the mapped files hold something else")
        for name in in_turn(list(RESTORES), round_):
            restored, used, *found = restore_elsewhere(name, place.folder)
            check(found == wanted, f"{name} restored something else")
            restore_s[name].append(restored)
            used_s[name].append(used)
    return tuple({name: values[1:] for name, values in all_.items()} for all_ in (persist_s, restore_s, used_s))


def bytes_of(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise SystemExit(f"FAILED: {otherwise}")


# Printing, in the form of the crate `report`.


def line(name: str, values: list[float], unit: str, provenance: str) -> str:
    median = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [median] * 3
    spread = f"[{low:.4f} .. {high:.4f}]"
    return f"{name:<32} {median:>14.4f} {spread:>28} {unit:<8} {provenance}"


def print_figures(title: str, figures: Figures, provenance: str) -> None:
    (base, base_s), *others = figures.items()
    print(f"\n{title}", flush=True)
    for name, values in figures.items():
        print(line(name, [value * 1e3 for value in values], "ms", provenance))
    print(f"{title}, in times of {base}")
    for name, values in others:
        ratios = [value / first for value, first in zip(values, base_s, strict=True)]
        print(line(name, ratios, "times", provenance), flush=True)


def run(parent: Path, size_mb: int, rounds: int) -> bool:
    """Measures in a folder; tells whether it could."""
    random = np.random.default_rng(1)
    arrays = {name: random.standard_normal(size_mb * MB // 8) for name in ("a", "b")}
    with tempfile.TemporaryDirectory(prefix="remanent-peers-store-", dir=parent) as text:
        folder = Path(text)
        needed_bytes, free_bytes = 11 * bytes_of(arrays), shutil.disk_usage(folder).free
        if free_bytes < needed_bytes:
            print(f"{parent}: not run: {needed_bytes / MB:.0f} MB are needed, {free_bytes / MB:.0f} MB are free")
            return False
        with bench(folder, arrays) as place:
            durability = place.pool.durability
            print(f"# {parent} ({durability.filesystem}): {durability}; {durability.granularity} granularity")
            synced = "files and folder synced" if place.is_disk else "nothing to sync"
            print(f"# 2 arrays of {size_mb} MB; {rounds} rounds in turn; {os.cpu_count()} CPUs; peers: {synced}")
            figures = measure(place, arrays, rounds)
        titles = ("persist", "restore, in a new process", "restore and first sum, in a new process")
        for title, values in zip(titles, figures, strict=True):
            print_figures(title, values, durability.provenance)
        print(flush=True)
    return True


def default_places() -> list[Path]:
    """The caches' folder, which is on a disk nearly everywhere, and shared memory."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    disk = Path(os.environ.get("REMANENT_CACHE") or Path(caches) / "remanent") / "bench"
    disk.mkdir(parents=True, exist_ok=True)
    return [SHARED_MEMORY, disk]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("places", nargs="*", type=Path, help="folders (default: shared memory, the folder for caches)")
    parser.add_argument("--size-mb", type=int, default=100, help="MB of each of the two arrays (default: 100)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default: 7)")
    parser.add_argument("--restore", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.restore:
        restore_and_tell(options.restore[0], Path(options.restore[1]))
        return
    ran = [run(place, options.size_mb, options.rounds) for place in options.places or default_places()]
    if not all(ran):
        sys.exit(NOT_RUN)


if __name__ == "__main__":
    main()
