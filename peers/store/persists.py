"""Two large arrays persisted, and restored and summed up by a new process for each way."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import quiet
import remanent
from figures import Figures, added, check, in_turn, print_figures, seconds
from floor import BUILD, LIBRARY, Floor
from formats import RESTORES, SAVES, Arrays, are_same, bytes_of, fingerprints, sync

MIB = 1 << 20

WARM = "remanent, warm pool"
#: Items that are changed in each array before it is persisted again.
CHANGED = 7
#: Rounds beside the floor for each of the others: they are short, and both sides are near each other.
FLOOR_ROUNDS = 4


@dataclass(frozen=True)
class Way:
    """How to persist, and how to have a look at what was."""

    persist: Callable[[], object]
    look: Callable[[], Arrays]


@dataclass(frozen=True)
class Place:
    """Where it is measured, with a pool and files kept mapped as a program that persists repeatedly has them."""

    folder: Path
    pool: remanent.Pool
    mapped: Arrays
    floor: Floor | None
    is_disk: bool

    def ways(self, arrays: Arrays) -> dict[str, Way]:
        """By name. The first is what the others are compared with."""

        def from_pool() -> Arrays:
            return self.pool.restore(mode="r")

        ways = {
            WARM: Way(lambda: self.pool.persist(arrays), from_pool),
            f"{WARM}, 1 thread": Way(lambda: self.pool.persist(arrays, threads=1), from_pool),
            "remanent, untouched pool": Way(lambda: self.into_new_pool(arrays), self.from_new_pool),
            "remanent, create and persist": Way(lambda: self.create_and_persist(arrays), self.from_new_pool),
        }
        for name in SAVES:
            ways[f"{name}, new file"] = self.peer(name, arrays, self.remove)
            ways[f"{name}, file rewritten"] = self.peer(name, arrays, lambda name: None)
        ways["numpy.memmap, not atomic"] = Way(lambda: self.into_mapped(arrays), lambda: self.mapped)
        return ways

    def beside_floor(self, floor: Floor, arrays: Arrays, threads: int) -> dict[str, Way]:
        """The warm pool, and both orders of the raw copy: neither is the faster one everywhere."""

        def fill(is_interleaved: bool) -> Way:
            return Way(lambda: self.into_floor(floor, arrays, threads, is_interleaved), lambda: floor.arrays(arrays))

        pool = Way(lambda: self.pool.persist(arrays, threads=threads), lambda: self.pool.restore(mode="r"))
        return {"raw copy": fill(False), WARM: pool, "raw copy, four pages": fill(True)}

    def peer(self, name: str, arrays: Arrays, prepare: Callable[[str], None]) -> Way:
        save, load = SAVES[name]

        def persist() -> float:
            prepare(name)
            return seconds(lambda: self.durable(save(self.folder, arrays)))

        return Way(persist, lambda: RESTORES[load](self.folder))

    def durable(self, paths: list[Path]) -> None:
        if self.is_disk:
            for path in [*paths, self.folder]:
                sync(path)

    def remove(self, name: str) -> None:
        """Takes a peer's files away, before its clock starts: what freeing their pages takes is not counted."""
        patterns = {"numpy.save": "*.npy", "pickle 5": "pickle", "joblib.dump": "joblib", "Arrow IPC file": "arrow"}
        for path in self.folder.glob(patterns.get(name, "buffers")):
            path.unlink()

    def new_pool(self, arrays: Arrays) -> remanent.Pool:
        path = self.folder / "new pool"
        path.unlink(missing_ok=True)
        return remanent.create(path, bytes_of(arrays) + 16 * MIB)

    def into_new_pool(self, arrays: Arrays) -> float:
        """The pool is made before the clock starts: the system still has to give it its pages."""
        with self.new_pool(arrays) as pool:
            return seconds(lambda: pool.persist(arrays))

    def create_and_persist(self, arrays: Arrays) -> float:
        """Without what freeing the pool before it takes, which is not counted for the peers either."""
        (self.folder / "new pool").unlink(missing_ok=True)

        def persist() -> None:
            with self.new_pool(arrays) as pool:
                pool.persist(arrays)

        return seconds(persist)

    def from_new_pool(self) -> Arrays:
        return remanent.restore(self.folder / "new pool", mode="r")

    def into_mapped(self, arrays: Arrays) -> None:
        """Files that stay mapped, the fastest there is without a pool: a crash leaves a mixture of two versions."""
        for name, array in arrays.items():
            self.mapped[name][:] = array
            if self.is_disk:
                self.mapped[name].flush()

    def into_floor(self, floor: Floor, arrays: Arrays, threads: int, is_interleaved: bool) -> None:
        floor.fill(arrays, threads, is_interleaved)
        if self.is_disk:
            floor.sync()


@contextmanager
def placed(folder: Path, arrays: Arrays) -> Iterator[Place]:
    """The pool and the files, warm. They end with the folder."""
    with remanent.create(folder / "pool", 2 * bytes_of(arrays) + 64 * MIB) as pool:
        pool.prefault(wait=True)
        for _ in range(2):  # both places that versions alternate between
            pool.persist(arrays)
        mapped = {
            name: np.memmap(folder / f"{name}.map", array.dtype, "w+", shape=array.shape) for name, array in arrays.items()
        }
        floor = Floor(LIBRARY, folder / "floor", arrays) if LIBRARY.exists() else None
        place = Place(folder, pool, mapped, floor, pool.durability.granularity == "page")
        place.into_mapped(arrays)
        yield place


def restore_and_tell(method: str, folder: Path) -> None:
    """In a process of its own: prints the seconds to restore, to the end of the first sums, and what the bytes are."""
    restore = RESTORES[method]
    started = time.perf_counter()
    arrays = restore(folder)
    restored = time.perf_counter()
    totals = {name: float(array.sum()) for name, array in arrays.items()}
    used = time.perf_counter()
    print(json.dumps([restored - started, used - started, totals, fingerprints(arrays)]))


def restore_elsewhere(method: str, folder: Path) -> list:
    words = [sys.executable, str(Path(__file__).with_name("compare.py")), "--restore", method, str(folder)]
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measure_persists(place: Place, arrays: Arrays, rounds: int) -> Figures:
    """Seconds of each way's rounds. The first round is thrown away."""
    ways = place.ways(arrays)
    figures: Figures = {name: [] for name in ways}
    for round_ in range(rounds + 1):
        quiet.wait_for_rest()
        for name in in_turn(list(ways), round_):
            figures[name].append(persist_new_data(name, ways[name], arrays))
    return without_first(figures)


def measure_restores(place: Place, arrays: Arrays, rounds: int) -> tuple[Figures, Figures]:
    """Seconds of restoring, and of restoring and summing. The first round is thrown away.

    After all that persists, not in turn with it: the memory of each process goes back to the system, of a virtual machine
    even to its host, and for seconds that slows down whoever copies.
    """
    restore_s, used_s = ({name: [] for name in RESTORES} for _ in range(2))
    for round_ in range(rounds + 1):
        change(arrays)
        persist_everywhere(place, arrays)
        wanted = [{name: float(array.sum()) for name, array in arrays.items()}, fingerprints(arrays)]
        quiet.wait_for_rest()
        for name in in_turn(list(RESTORES), round_):
            restored, used, *found = restore_elsewhere(name, place.folder)
            check(found == wanted, f"{name} restored something else")
            restore_s[name].append(restored)
            used_s[name].append(used)
    return without_first(restore_s), without_first(used_s)


def without_first(figures: Figures) -> Figures:
    return {name: values[1:] for name, values in figures.items()}


def change(arrays: Arrays) -> None:
    """A few items: the bytes are other ones each time, so that what is left over is noticed."""
    for array in arrays.values():
        array[:: len(array) // CHANGED] += 1.0


def persist_new_data(name: str, way: Way, arrays: Arrays) -> float:
    """Seconds."""
    change(arrays)
    taken = seconds(way.persist)
    check(are_same(way.look(), arrays), f"{name} persisted something else")
    return taken


def measure_floor(place: Place, floor: Floor, arrays: Arrays, threads: int, rounds: int) -> Figures:
    """Seconds of the better order of the raw copy, and of the warm pool."""
    ways = place.beside_floor(floor, arrays, threads)
    figures: Figures = {name: [] for name in ways}
    for round_ in range(rounds + 1):
        quiet.wait_for_rest()
        for name in in_turn(list(ways), round_):
            figures[name].append(persist_new_data(name, ways[name], arrays))
    plain, ours, interleaved = (values[1:] for values in figures.values())
    return {"best raw copy": min(plain, interleaved, key=statistics.median), WARM: ours}


def persist_everywhere(place: Place, arrays: Arrays) -> None:
    """What the processes restore is the newest, whichever way came last."""
    place.pool.persist(arrays)
    for save, _ in SAVES.values():
        place.durable(save(place.folder, arrays))


def run(folder: Path, arrays: Arrays, rounds: int) -> bool:
    """Measures and prints; tells whether all could be measured."""
    with placed(folder, arrays) as place:
        provenance = place.pool.durability.provenance
        persist_s = measure_persists(place, arrays, rounds)
        print(f"# {huge_mb():.0f} MB of this machine's shared memory lie in huge pages")
        print_figures("persist", persist_s, provenance)
        if place.floor is not None:
            # As many threads as a pool takes unless it is told.
            for threads in sorted({min(8, len(os.sched_getaffinity(0))), 1}, reverse=True):
                figures = measure_floor(place, place.floor, arrays, threads, FLOOR_ROUNDS * rounds)
                print_figures(f"persist beside its floor, {threads} threads", figures, provenance)
        restore_s, used_s = measure_restores(place, arrays, rounds)
    print_figures("restore, in a new process", restore_s, provenance)
    print_figures("restore and first sum, in a new process", used_s, provenance)
    both = {"remanent": added(persist_s[WARM], used_s["remanent.restore"])}
    for name in ("pickle 5, new file", "pickle 5, file rewritten"):
        both[name] = added(persist_s[name], used_s["pickle 5"])
    print_figures("persist, restore in a new process and first sum", both, provenance)
    if place.floor is None:
        print(f"raw copy: not run: there is no {LIBRARY}; make it by {BUILD}")
    return place.floor is not None


def huge_mb() -> float:
    """Of shared memory, tmpfs too; from /proc/meminfo, see proc_meminfo(5)."""
    for text in Path("/proc/meminfo").read_text().splitlines():
        if text.startswith("ShmemHugePages:"):
            return int(text.split()[1]) / 1000
    return 0.0

