"""Bars, and other threads that go on while bytes are copied."""

import collections.abc
import io
import sys
import threading
import types

import numpy as np
import pytest

import remanent

LARGE = np.arange(2_000_000)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class FakeTqdm:
    """Notes what a bar is told."""

    made: list["FakeTqdm"] = []

    def __init__(self, **options):
        self.options, self.n, self.total, self.is_closed = options, 0, None, False
        FakeTqdm.made.append(self)

    def update(self, more):
        self.n += more

    def close(self):
        self.is_closed = True


@pytest.fixture
def without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


def test_a_bar_of_tqdm_where_it_is_installed(path, monkeypatch):
    auto = types.ModuleType("tqdm.auto")
    auto.tqdm = FakeTqdm
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    FakeTqdm.made.clear()
    with remanent.create(path, "64MiB") as pool:
        pool.prefault(progress=True)
        pool.persist(x=LARGE, progress=True)
        with pool.transaction(progress=True) as transaction:
            transaction["y"] = LARGE
    prefault, *persists = FakeTqdm.made
    assert prefault.n == prefault.total > 0 and prefault.options["desc"] == "prefault"
    for bar in persists:
        assert bar.n == bar.total == LARGE.nbytes and bar.options["unit"] == "B"
    assert len(persists) == 2 and all(bar.is_closed for bar in FakeTqdm.made)


def test_a_line_on_a_terminal_and_nothing_elsewhere(path, monkeypatch, without_tqdm):
    with remanent.create(path, "64MiB") as pool:
        monkeypatch.setattr(sys, "stderr", Terminal())
        pool.persist(x=LARGE, progress=True)
        shown = sys.stderr.getvalue()
        assert shown.startswith("\rpersist: [") and shown.endswith("] 100%\n")
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        pool.persist(x=LARGE, progress=True)
        assert sys.stderr.getvalue() == ""
        monkeypatch.setattr(sys, "stderr", None)
        pool.persist(x=LARGE, progress=True)


def test_a_bar_is_closed_when_a_persist_fails(path, monkeypatch, without_tqdm):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with remanent.create(path, "8MiB") as pool, pytest.raises(remanent.PoolFull):
        pool.persist(x=LARGE, progress=True)


def test_a_pool_is_a_mutable_mapping(path):
    with remanent.create(path, "8MiB") as pool:
        assert isinstance(pool, collections.abc.MutableMapping)
        assert pool.setdefault("a", [1]) == [1] and pool.pop("a") == [1] and pool.pop("a", None) is None
        pool.update({"b": 1}, c="x")
        assert sorted(pool.keys()) == ["b", "c"] and pool.get("d", 5) == 5 and ("c", "x") in pool.items()
        assert pool.popitem()[0] in ("b", "c") and len(pool) == 1
        pool.clear()
        assert not pool


def test_another_thread_runs_while_bytes_are_copied(path):
    # The interpreter is never taken away from a thread, so another one runs only when this one lets go of it.
    interval = sys.getswitchinterval()
    waiting, go, ran = threading.Event(), threading.Event(), []

    def other():
        waiting.set()
        go.wait()
        ran.append(True)

    thread = threading.Thread(target=other, daemon=True)
    with remanent.create(path, "64MiB") as pool:
        pool.persist(x=LARGE)
        thread.start()
        waiting.wait()
        try:
            sys.setswitchinterval(3600)
            go.set()
            assert not ran, "it cannot have run yet"
            persists = 0
            while not ran and persists < 1000:
                pool.persist(x=LARGE)
                persists += 1
        finally:
            sys.setswitchinterval(interval)
        assert ran and persists >= 1
    thread.join()
