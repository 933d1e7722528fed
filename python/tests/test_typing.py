"""The package's types hold, and are there for whoever uses it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import remanent

PROJECT = Path(__file__).parents[1]

PROGRAM = """
import numpy as np
import remanent

with remanent.create("pool", "8MiB", pickle=True) as pool:
    generation: int = pool.persist({"a": np.arange(3)}, b="text", progress=True)
    with pool.transaction(checksum=True) as transaction:
        transaction["c"] = [1, 2]
    reason: str = pool.durability.reason
    names: list[str] = list(pool)
    reveal_type(pool.ls()[0].shape)
found: dict[str, object] = remanent.restore("pool", mode="r", pickle=False)
pool.persist(progress="yes")
remanent.create("pool")
"""


def mypy(*words, cwd, **variables):
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--cache-dir", os.devnull, *words]
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


def test_the_package_is_typed():
    pytest.importorskip("mypy")
    failed, told = mypy(cwd=PROJECT)
    assert not failed, told


def test_a_program_is_checked_against_the_package(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    place = str(Path(remanent.__file__).parents[1])
    _, told = mypy("--strict", "--ignore-missing-imports", str(program), cwd=tmp_path, MYPYPATH=place)
    lines = [line.partition("program.py:")[2] for line in told.splitlines() if "program.py" in line]
    assert [line.partition(":")[0] for line in lines if "error" in line] == ["13", "14"], told
    assert any("tuple[int, ...] | None" in line for line in lines), told
