"""A program that is restarted as soon as its data is prepared, in three ways, as in Imamura and Yoshida's evaluation.

Retry prepares the data anew; disk-restart has pickled it into a file, synced; pmem-restart has persisted it into a
pool. Each way is two processes: the first prepares and keeps the data, the second gets it back and works with it. What
they spend on loading Python and libraries is not counted. The file lies in one folder and the pool in another, a disk
and persistent memory (or what stands in for it).
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bars
import numpy as np

import remanent

Arrays = dict[str, np.ndarray]
Seconds = dict[str, float]

RETRY, DISK, PMEM = "Retry", "disk-restart", "pmem-restart"
WAYS = (RETRY, DISK, PMEM)

#: The exit code by which `./run demo` is told that something is missing here, and that this is no failure.
NOT_RUN = 77

MIB = 1 << 20
MB = 10**6
SHARED_MEMORY = Path("/dev/shm")


@dataclass
class Scene:
    """What is restarted."""

    title: str
    #: What making the data is called, and what is done with it.
    preparing: str
    working: str
    #: Adds what can be set.
    add_arguments: Callable[[argparse.ArgumentParser], None]
    #: Makes the data.
    prepare: Callable[[argparse.Namespace], Arrays]
    #: Works with it; the answer must not depend on where the data came from.
    work: Callable[[argparse.Namespace, Arrays], Any]
    #: Bytes of the data at most.
    data_bytes: Callable[[argparse.Namespace], int]
    #: Makes ready what is not to be timed, in each process; tells what it lacks to run here.
    missing: Callable[[argparse.Namespace], str | None] = lambda options: None


# The two processes of a way.


def first_process(scene: Scene, options: argparse.Namespace, way: str, folder: Path) -> Seconds:
    """Prepares the data and keeps it; what that took."""
    if way == RETRY:
        return {}  # what it would prepare is lost
    if way == DISK:
        data = scene.prepare(options)
        return {"persist": seconds(lambda: pickle_to(folder / "pickle", data))}
    size = scene.data_bytes(options) + 64 * MIB
    # A program makes its pool when it starts, and the system allocates the pages while the data is prepared.
    with remanent.create(folder / "pool", size, prefault=True) as pool:
        data = scene.prepare(options)
        pool.prefault(wait=True)
        return {"persist": seconds(lambda: pool.persist(data))}


def second_process(scene: Scene, options: argparse.Namespace, way: str, folder: Path) -> tuple[Seconds, Any]:
    """Gets the data back and works with it; what that took, and the answer."""
    gets = {
        RETRY: (scene.preparing, lambda: scene.prepare(options)),
        DISK: ("restore", lambda: pickle_from(folder / "pickle")),
        PMEM: ("restore", lambda: remanent.restore(folder / "pool")),
    }
    phase, get = gets[way]
    started = time.perf_counter()
    data = get()
    got = time.perf_counter()
    answer = scene.work(options, data)
    return {phase: got - started, scene.working: time.perf_counter() - got}, answer


def pickle_to(path: Path, data: Arrays) -> None:
    with open(path, "wb") as file:
        pickle.dump(data, file, protocol=5)
        file.flush()
        os.fsync(file.fileno())


def pickle_from(path: Path) -> Arrays:
    with open(path, "rb") as file:
        return pickle.load(file)


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def run_process(number: str, way: str, folder: Path) -> Any:
    """Runs this program again, as one of the processes of a way."""
    words = [sys.executable, *sys.argv, "--process", number, way, str(folder)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


# What runs them.


def run_way(way: str, place: Path) -> tuple[Seconds, Any]:
    with tempfile.TemporaryDirectory(prefix="remanent-restart-", dir=place) as text:
        kept = run_process("first", way, Path(text))
        got, answer = run_process("second", way, Path(text))
    return {**kept, **got}, answer


def run_all(options: argparse.Namespace) -> tuple[dict[str, Seconds], Any]:
    """The medians of all rounds, in which the ways take turns."""
    rounds: dict[str, list[Seconds]] = {way: [] for way in WAYS}
    answers = []
    for _ in range(options.rounds):
        for way in WAYS:
            took, answer = run_way(way, options.pmem if way == PMEM else options.disk)
            rounds[way].append(took)
            answers.append(answer)
    if any(answer != answers[0] for answer in answers):
        raise SystemExit(f"FAILED: the ways have different answers: {answers}")
    medians = {
        way: {phase: statistics.median(one[phase] for one in several) for phase in several[0]}
        for way, several in rounds.items()
    }
    return medians, answers[0]


def print_table(phases: list[str], medians: dict[str, Seconds]) -> None:
    print(f"  {'seconds':<14}" + "".join(f"{phase:>14}" for phase in [*phases, "in all"]))
    for way, took in medians.items():
        cells = [f"{took[phase]:>14.4f}" if phase in took else f"{'':>14}" for phase in phases]
        print(f"  {way:<14}" + "".join(cells) + f"{sum(took.values()):>14.4f}")
    kept = {way: sum(medians[way].get(phase, 0.0) for phase in ("persist", "restore")) for way in (DISK, PMEM)}
    print(f"  persist and restore: {PMEM} takes 1/{kept[DISK] / kept[PMEM]:.1f} of {DISK}")


def label(place: Path) -> str:
    """Where the figures come from."""
    with tempfile.TemporaryDirectory(prefix="remanent-restart-", dir=place) as folder:
        with remanent.create(Path(folder) / "pool", 4 * MIB) as pool:
            return f"{pool.durability.provenance}; pool on {pool.durability.filesystem}, {pool.durability.level}"


def main(scene: Scene) -> None:
    parser = argparse.ArgumentParser(description=scene.title)
    scene.add_arguments(parser)
    parser.add_argument(
        "--disk", type=Path, default=default_place(), help="folder for the pickle (default: %(default)s)"
    )
    parser.add_argument("--pmem", type=Path, default=SHARED_MEMORY, help="folder for the pool (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="how often to run all three ways (default: 1)")
    parser.add_argument("--svg", type=Path, help="draw the bars into this file")
    parser.add_argument("--process", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    reason = scene.missing(options)
    if reason is not None:
        print(f"not run: {reason}")
        sys.exit(NOT_RUN)
    if options.process:
        number, way, folder = options.process
        run = first_process if number == "first" else second_process
        print(json.dumps(run(scene, options, way, Path(folder))))
        return
    source = label(options.pmem)
    print(scene.title)
    print(f"  figures are {source}; pickle in {options.disk}, synced; {options.rounds} round(s)", flush=True)
    medians, answer = run_all(options)
    print_table([scene.preparing, "persist", "restore", scene.working], medians)
    print(f"  answer of all three: {answer}")
    if options.svg:
        options.svg.write_text(bars.chart(scene.title, source, medians))
        print(f"  drawn: {options.svg}")


def default_place() -> Path:
    """The caches' folder, which is on a disk nearly everywhere."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(os.environ.get("REMANENT_CACHE") or Path(caches) / "remanent") / "demo"
    place.mkdir(parents=True, exist_ok=True)
    return place
