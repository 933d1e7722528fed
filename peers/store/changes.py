"""An array that was restored, changed a little and persisted again under its name, beside persisting all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import quiet
import remanent
from figures import Figures, check, in_turn, print_figures, seconds
from persists import MIB

PAGE_ITEMS = 4096 // 8
SHARE = 0.005


def run(parent: Path, array: np.ndarray, rounds: int) -> None:
    """Measures and prints."""
    with TemporaryDirectory(dir=parent) as text:
        with remanent.create(Path(text) / "pool", 3 * array.nbytes + 64 * MIB) as pool:
            pool.prefault(wait=True)
            figures = measure(pool, array.copy(), rounds)
            provenance = pool.durability.provenance
    print_figures(f"persist again with {SHARE:.1%} of the pages changed", figures, provenance)


def pages_of(array: np.ndarray) -> int:
    return len(array) // PAGE_ITEMS


def scattered(array: np.ndarray, round_: int) -> np.ndarray:
    """Items of pages all over the array, other ones in each round."""
    pages = np.random.default_rng(round_).choice(pages_of(array), int(pages_of(array) * SHARE), replace=False)
    return np.sort(pages) * PAGE_ITEMS + round_ % PAGE_ITEMS


def in_one_run(array: np.ndarray, round_: int) -> np.ndarray:
    """Items of pages side by side."""
    count = int(pages_of(array) * SHARE)
    start = np.random.default_rng(round_).integers(pages_of(array) - count)
    return (start + np.arange(count)) * PAGE_ITEMS + round_ % PAGE_ITEMS


def measure(pool: remanent.Pool, kept: np.ndarray, rounds: int) -> Figures:
    """Seconds of a full persist and of those of changes. `kept` goes through the same changes in ordinary memory."""
    for _ in range(2):  # both places that versions alternate between
        pool.persist(a=kept)

    def all_of_it(round_: int) -> float:
        kept[scattered(kept, round_)] += 1.0
        return seconds(lambda: pool.persist(a=kept))

    def changes(pick: Callable[[np.ndarray, int], np.ndarray]) -> Callable[[int], float]:
        def persist(round_: int) -> float:
            view = pool["a"]
            places = pick(kept, round_)
            view[places] += 1.0
            kept[places] += 1.0
            taken = seconds(lambda: written.append(pool.persist(a=view).written["a"]))
            check(written.pop().way.startswith("changed"), "all of the array was written")
            return taken

        written: list[remanent.Written] = []
        return persist

    ways = {
        "all of it": all_of_it,
        "changes, scattered": changes(scattered),
        "changes, in one run": changes(in_one_run),
    }
    figures: Figures = {name: [] for name in ways}
    for round_ in range(rounds + 1):
        quiet.wait_for_rest()
        for name in in_turn(list(ways), round_):
            figures[name].append(ways[name](round_))
            check(np.array_equal(pool.restore(mode="r")["a"], kept), f"{name} persisted something else")
    return {name: values[1:] for name, values in figures.items()}
