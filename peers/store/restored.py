"""Work on restored arrays beside the same work on ordinary ones: the first pass, which meets the page faults, and the next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import quiet
import remanent
from figures import Figures, check, in_turn, print_figures, seconds
from formats import Arrays, bytes_of
from persists import MIB

#: What is done with two arrays and room for a third.
WORK: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], object]] = {
    "sum": lambda a, b, out: out.__setitem__(0, a.sum() + b.sum()),
    "dot": lambda a, b, out: out.__setitem__(0, a @ b),
    "elementwise a + 2b": lambda a, b, out: np.add(a, np.multiply(b, 2.0, out=out), out=out),
    "sort of a copy": lambda a, b, out: (np.copyto(out, a), out.sort()),
}


def run(parent: Path, arrays: Arrays, rounds: int) -> None:
    """Measures and prints."""
    with TemporaryDirectory(dir=parent) as text:
        with remanent.create(Path(text) / "pool", bytes_of(arrays) + 64 * MIB) as pool:
            pool.persist(arrays)
            for name, work in WORK.items():
                first_s, next_s = measure(pool, arrays, work, rounds)
                provenance = pool.durability.provenance
                print_figures(f"{name}, first pass", first_s, provenance)
                print_figures(f"{name}, next pass", next_s, provenance)


def measure(
    pool: remanent.Pool, arrays: Arrays, work: Callable[..., object], rounds: int
) -> tuple[Figures, Figures]:
    """Seconds of the first pass and of the second."""
    sources: dict[str, Callable[[], Arrays]] = {
        "ordinary arrays": lambda: arrays,
        "restored": lambda: pool.restore(),
        "restored, mode r": lambda: pool.restore(mode="r"),
        "restored, to dram": lambda: pool.restore(to="dram"),
    }
    first_s: Figures = {name: [] for name in sources}
    next_s: Figures = {name: [] for name in sources}
    out, wanted = np.zeros_like(arrays["a"]), np.zeros_like(arrays["a"])
    work(arrays["a"], arrays["b"], wanted)
    for round_ in range(rounds + 1):
        quiet.wait_for_rest()
        for name in in_turn(list(sources), round_):
            found = sources[name]()
            for figures in (first_s, next_s):
                out[:] = 0
                figures[name].append(seconds(lambda: work(found["a"], found["b"], out)))
                check(np.array_equal(out, wanted), f"{name}: the result is another one")
    return tuple({name: values[1:] for name, values in all_.items()} for all_ in (first_s, next_s))
