"""A program that is restarted as soon as its data is prepared, in three ways, as in Imamura and Yoshida's evaluation.

Retry prepares the data anew; disk-restart has written it into a file, synced, by pickle or by R's save(); pmem-restart
has persisted it into a pool. Each way is two processes: the first prepares and keeps the data, the second gets it back and
works with it. What they spend on loading a language and libraries is not counted. The file lies in one folder and the pool
in another, a disk and persistent memory (or what stands in for it).

The processes of a scene are in Python, which this module runs too, or in R, for which restarts.R beside it does so.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
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
class InPython:
    """What is restarted is in Python."""

    #: Makes the data.
    prepare: Callable[[argparse.Namespace], Arrays]
    #: Works with it; the answer must not depend on where the data came from.
    work: Callable[[argparse.Namespace, Arrays], Any]
    #: Bytes of the data at most.
    data_bytes: Callable[[argparse.Namespace], int]

    file = "pickle"
    command = sys.executable

    def words(self, options: argparse.Namespace, number: str, way: str, folder: Path) -> list[str]:
        """What runs this program again, as one of the processes of a way."""
        return [self.command, *sys.argv, "--process", number, way, str(folder)]


@dataclass
class InR:
    """What is restarted is in R: a script beside this one."""

    script: str
    #: What it is told.
    settings: Callable[[argparse.Namespace], dict[str, object]]

    file = "file of save()"
    command = "Rscript"

    def words(self, options: argparse.Namespace, number: str, way: str, folder: Path) -> list[str]:
        """What runs the script as one of the processes of a way."""
        script = Path(__file__).with_name(self.script)
        given = [f"{name}={value}" for name, value in self.settings(options).items()]
        return [self.command, "--vanilla", str(script), number, way, str(folder), *given]


@dataclass
class Scene:
    """What is restarted."""

    title: str
    #: What making the data is called, and what is done with it.
    preparing: str
    working: str
    #: Adds what can be set.
    add_arguments: Callable[[argparse.ArgumentParser], None]
    in_python: InPython | None = None
    in_r: InR | None = None
    #: Makes ready what is not to be timed, in each process in Python; tells what it lacks to run here.
    missing: Callable[[argparse.Namespace], str | None] = lambda options: None

    def languages(self) -> dict[str, InPython | InR]:
        there = {"python": self.in_python, "r": self.in_r}
        return {name: program for name, program in there.items() if program is not None}


# The two processes of a way.


def first_process(program: InPython, options: argparse.Namespace, way: str, folder: Path) -> Seconds:
    """Prepares the data and keeps it; what that took."""
    if way == RETRY:
        return {}  # what it would prepare is lost
    if way == DISK:
        data = program.prepare(options)
        return {"persist": seconds(lambda: pickle_to(folder / "pickle", data))}
    size = program.data_bytes(options) + 64 * MIB
    # A program makes its pool when it starts, and the system allocates the pages while the data is prepared.
    with remanent.create(folder / "pool", size, prefault=True) as pool:
        data = program.prepare(options)
        pool.prefault(wait=True)
        return {"persist": seconds(lambda: pool.persist(data))}


def second_process(scene: Scene, options: argparse.Namespace, way: str, folder: Path) -> tuple[Seconds, Any]:
    """Gets the data back and works with it; what that took, and the answer."""
    program = scene.in_python
    gets = {
        RETRY: (scene.preparing, lambda: program.prepare(options)),
        DISK: ("restore", lambda: pickle_from(folder / "pickle")),
        PMEM: ("restore", lambda: remanent.restore(folder / "pool")),
    }
    phase, get = gets[way]
    started = time.perf_counter()
    data = get()
    got = time.perf_counter()
    answer = program.work(options, data)
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


# What runs them.


def run_process(words: list[str]) -> Any:
    """Runs one of the processes of a way; what it tells."""
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


def run_way(program: InPython | InR, options: argparse.Namespace, way: str) -> tuple[Seconds, Any]:
    place = options.pmem if way == PMEM else options.disk
    with tempfile.TemporaryDirectory(prefix="remanent-restart-", dir=place) as folder:
        kept = run_process(program.words(options, "first", way, Path(folder)))
        got, answer = run_process(program.words(options, "second", way, Path(folder)))
    return {**kept, **got}, answer


def run_all(program: InPython | InR, options: argparse.Namespace) -> tuple[dict[str, Seconds], Any]:
    """The medians of all rounds, in which the ways take turns."""
    rounds: dict[str, list[Seconds]] = {way: [] for way in WAYS}
    answers = []
    for _ in range(options.rounds):
        for way in WAYS:
            took, answer = run_way(program, options, way)
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


def shortened(answer: Any) -> Any:
    """An answer as it is shown; all of its digits were compared."""
    return {name: float(f"{value:.6g}") for name, value in answer.items()} if isinstance(answer, dict) else answer


def label(place: Path) -> str:
    """Where the figures come from."""
    with tempfile.TemporaryDirectory(prefix="remanent-restart-", dir=place) as folder:
        with remanent.create(Path(folder) / "pool", 4 * MIB) as pool:
            return f"{pool.durability.provenance}; pool on {pool.durability.filesystem}, {pool.durability.level}"


def main(scene: Scene) -> None:
    languages = scene.languages()
    parser = argparse.ArgumentParser(description=scene.title)
    scene.add_arguments(parser)
    if len(languages) > 1:
        parser.add_argument("--language", choices=languages, default=next(iter(languages)), help="(default: %(default)s)")
    parser.add_argument(
        "--disk", type=Path, default=default_place(), help="folder for the file on a disk (default: %(default)s)"
    )
    parser.add_argument("--pmem", type=Path, default=SHARED_MEMORY, help="folder for the pool (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="how often to run all three ways (default: 1)")
    parser.add_argument("--svg", type=Path, help="draw the bars into this file")
    parser.add_argument("--process", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        print(json.dumps(process(scene, options)))
        return
    program = languages[getattr(options, "language", next(iter(languages)))]
    reason = scene.missing(options)
    if reason is None and shutil.which(program.command) is None:
        reason = f"{program.command} is not installed"
    if reason is not None:
        print(f"not run: {reason}")
        sys.exit(NOT_RUN)
    source = label(options.pmem)
    print(scene.title)
    print(
        f"  figures are {source}; {program.file} in {options.disk}, synced; {options.rounds} round(s)",
        flush=True,
    )
    medians, answer = run_all(program, options)
    print_table([scene.preparing, "persist", "restore", scene.working], medians)
    print(f"  answer of all three: {shortened(answer)}")
    if options.svg:
        options.svg.write_text(bars.chart(scene.title, source, medians))
        print(f"  drawn: {options.svg}")


def process(scene: Scene, options: argparse.Namespace) -> Any:
    """One of the two processes of a way."""
    scene.missing(options)
    number, way, folder = options.process
    if number == "first":
        return first_process(scene.in_python, options, way, Path(folder))
    return second_process(scene, options, way, Path(folder))


def default_place() -> Path:
    """The caches' folder, which is on a disk nearly everywhere."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(os.environ.get("REMANENT_CACHE") or Path(caches) / "remanent") / "demo"
    place.mkdir(parents=True, exist_ok=True)
    return place
