"""A hundred objects restored, whatever their size: again and again by one process, and by new ones."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import quiet
import remanent
from figures import Figures, check, in_turn, print_figures, seconds
from formats import RESTORES, SAVES, are_same, bytes_of, fingerprints
from persists import MIB, restore_elsewhere

COUNT = 100
SIZES = {"4 KiB": 4096, "1 MB": 1_000_000, "10 MB": 10_000_000}

#: Restores of one process in a round.
REPEATS = 20

PEERS = ("pickle 5 out-of-band, mmap", "numpy.load, mmap_mode r", "Arrow IPC file, mapped")
NEEDED = ("pickle 5 out-of-band", "numpy.save", "Arrow IPC file")
OURS = ("remanent.restore", "remanent.restore, mode r")


def run(parent: Path, rounds: int) -> None:
    """Measures and prints, size by size."""
    for title, size_bytes in SIZES.items():
        random = np.random.default_rng(2)
        arrays = {f"{number:03}": random.random(size_bytes // 8) for number in range(COUNT)}
        with TemporaryDirectory(dir=parent) as text:
            folder = Path(text)
            with remanent.create(folder / "pool", bytes_of(arrays) + 64 * MIB) as pool:
                pool.persist(arrays)
                provenance = pool.durability.provenance
            for name in NEEDED:
                SAVES[name][0](folder, arrays)
            quiet.wait_for_rest()
            again_s = restore_again(folder, arrays, rounds)
            quiet.wait_for_rest()
            new_s = restore_anew(folder, arrays, rounds)
        print_figures(f"restore {COUNT} arrays of {title}", again_s, provenance)
        print_figures(f"restore {COUNT} arrays of {title}, in a new process", new_s, provenance)


def restore_again(folder: Path, arrays: dict[str, np.ndarray], rounds: int) -> Figures:
    """By this process, which has done so before."""
    with remanent.open(folder / "pool", "r") as pool:
        ways = {
            "remanent, open pool": lambda: pool.restore(),
            "remanent, open pool, mode r": lambda: pool.restore(mode="r"),
        }
        ways.update({name: lambda name=name: RESTORES[name](folder) for name in (*OURS, *PEERS)})
        figures: Figures = {name: [] for name in ways}
        for name, restore in ways.items():
            check(are_same(restore(), arrays), f"{name} restored something else")
        for round_ in range(rounds * REPEATS + 1):
            for name in in_turn(list(ways), round_):
                figures[name].append(seconds(ways[name]))
    return {name: values[1:] for name, values in figures.items()}


def restore_anew(folder: Path, arrays: dict[str, np.ndarray], rounds: int) -> Figures:
    """By a new process each time."""
    figures: Figures = {name: [] for name in (*OURS, *PEERS)}
    wanted = fingerprints(arrays)
    for round_ in range(rounds):
        for name in in_turn(list(figures), round_):
            restored, _, _, found = restore_elsewhere(name, folder)
            check(found == wanted, f"{name} restored something else")
            figures[name].append(restored)
    return figures
