"""Figures: taken in turn, ratios round by round, printed in the form of the crate `report`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

#: Seconds of each round, by what was measured. The first is what the others are compared with.
Figures = dict[str, list[float]]


def check(is_so: bool, otherwise: str) -> None:
    """Ends the run when a result is wrong: then no figure is worth anything."""
    if not is_so:
        raise SystemExit(f"FAILED: {otherwise}")


def seconds(action: Callable[[], object]) -> float:
    """How long it takes, unless it says so itself."""
    started = time.perf_counter()
    told = action()
    return told if isinstance(told, float) else time.perf_counter() - started


def in_turn(names: list[str], round_: int) -> list[str]:
    """Forwards and backwards by turns."""
    return names if round_ % 2 == 0 else names[::-1]


def added(*parts: list[float]) -> list[float]:
    """What the parts of a round take together."""
    return [sum(round_) for round_ in zip(*parts, strict=True)]


def line(name: str, values: list[float], unit: str, provenance: str) -> str:
    """Name, median, quartiles, unit, where it comes from."""
    median = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [median] * 3
    spread = f"[{low:.4f} .. {high:.4f}]"
    return f"{name:<40} {median:>14.4f} {spread:>28} {unit:<8} {provenance}"


def print_figures(title: str, figures: Figures, provenance: str) -> None:
    """Every figure, and the others in times of the first."""
    (base, base_s), *others = figures.items()
    print(f"\n{title}", flush=True)
    for name, values in figures.items():
        print(line(name, [value * 1e3 for value in values], "ms", provenance))
    print(f"{title}, in times of {base}")
    for name, values in others:
        ratios = [value / first for value, first in zip(values, base_s, strict=True)]
        print(line(name, ratios, "times", provenance), flush=True)
