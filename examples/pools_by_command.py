"""A pool made, filled, looked at, checked, grown and removed with the command `remanent`; only to fill it takes Python.

    ./run demo                                                        # this and the other scenes
    python examples/pools_by_command.py target/release/remanent       # this one alone, after a build
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import remanent

DAMAGE_FOUND = 3


class Shell:
    """Shows commands as a terminal would, in a folder of its own."""

    def __init__(self, command: Path, folder: Path) -> None:
        self.command = command.resolve()
        self.folder = folder

    def remanent(self, line: str, exits_with: int = 0) -> str:
        """Runs `remanent` with these words, and ends the demo unless it exits as it should."""
        print(f"$ remanent {line}", flush=True)
        done = subprocess.run([self.command, *line.split()], cwd=self.folder, stdout=subprocess.PIPE, text=True)
        print(done.stdout, flush=True)
        check(done.returncode == exits_with, f"it exited with {done.returncode}, not with {exits_with}")
        return done.stdout


def check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise SystemExit(f"FAILED: {otherwise}")


def fill(path: Path) -> np.ndarray:
    digits = load_digits()
    print(">>> remanent.persist(path, images=digits.images, about='handwritten digits', checksum=True)\n", flush=True)
    remanent.persist(path, images=digits.images, about="handwritten digits", checksum=True)
    return digits.images


def change_a_byte(path: Path, image: np.ndarray) -> None:
    """Behind the back of every product, as a failing device or a careless program would."""
    at = path.read_bytes().index(image.tobytes())
    with open(path, "r+b") as file:
        file.seek(at + 9)
        file.write(b"x")


def show(shell: Shell) -> None:
    pool = shell.folder / "digits"
    shell.remanent("pool create digits --size 8MiB")
    images = fill(pool)
    shell.remanent("pool info digits")
    check("images" in shell.remanent("pool ls digits"), "the objects are not listed")
    check("digits: sound" in shell.remanent("pool check digits"), "the pool is not sound")
    print("A copy in which somebody has changed one byte of the images:\n")
    shutil.copy(pool, shell.folder / "copy")
    change_a_byte(shell.folder / "copy", images[1000])
    check("copy: damaged" in shell.remanent("pool check copy", exits_with=DAMAGE_FOUND), "the damage is not found")
    shell.remanent("pool grow digits --size 4MiB")
    with remanent.open(pool, "r") as reader:
        check((reader["images"] == images).all() and reader["about"] == "handwritten digits", "the objects have changed")
    shell.remanent("pool rm digits --yes")
    check([file.name for file in shell.folder.iterdir()] == ["copy"], "files of the pool are left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", type=Path, help="the binary")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="remanent-demo-", dir=os.environ.get("REMANENT_CACHE")) as folder:
        show(Shell(options.command, Path(folder)))


if __name__ == "__main__":
    main()
