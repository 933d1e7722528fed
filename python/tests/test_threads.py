"""Many threads on one pool, all at once; on a free-threaded interpreter they really are."""

import gc
import os
import queue
import subprocess
import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import remanent

ROUNDS = 40
WRITERS = 3
# Large enough for mappings of their own, and small enough to be copies. All versions of a test fit into its pool, for
# a thread that rests while it holds one keeps those after it too.
SIZES = {"large": 20_000, "small": 500}


# So that a failure of one thread is not another one's wait for ever.
LIMIT_S = 60
failed = threading.Event()


def together(*works):
    """Runs each in a thread of its own, begun at the same moment; what one raises is raised."""
    barrier = threading.Barrier(len(works), timeout=LIMIT_S)
    failed.clear()

    def begin(work):
        barrier.wait()
        try:
            return work()
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(len(works)) as threads:
        return [future.result() for future in [threads.submit(begin, work) for work in works]]


def version_of(arrays, writer):
    """What all items of a writer's arrays are."""
    found = {int(item) for kind in SIZES for item in np.unique(arrays[f"{writer}/{kind}"])}
    assert len(found) == 1, found
    return found.pop()


def names_of(writer):
    return [f"{writer}/{kind}" for kind in SIZES]


def persist_version(pool, writer, version):
    pool.persist({f"{writer}/{kind}": np.full(size, float(version)) for kind, size in SIZES.items()})


def test_writers_readers_and_droppers_share_one_pool(path):
    dropped = queue.SimpleQueue()

    def write(writer):
        for version in range(1, ROUNDS):
            persist_version(pool, writer, version)
            arrays = pool.restore(names_of(writer))
            assert version_of(arrays, writer) == version, "nobody else writes this name"
            dropped.put(arrays)

    def change(writer):
        """Persists a private view of what it changed, by its pages or whole, as it comes."""
        for version in range(1, ROUNDS):
            arrays = pool.restore(names_of(writer))
            for array in arrays.values():
                array += 1.0
            pool.persist(arrays)
            assert version_of(arrays, writer) == version

    def come_and_go(name):
        for number in range(ROUNDS):
            pool[name] = np.full(SIZES["large"], float(number))
            pool.rename(name, f"{name}/renamed")
            assert name not in pool and pool[f"{name}/renamed"][-1] == number
            with pool.transaction() as edits:
                edits[name] = number
                del edits[f"{name}/renamed"]
            assert int(pool[name]) == number and f"{name}/renamed" not in pool
            del pool[name]

    def read(open_pool):
        newest = dict.fromkeys(range(WRITERS + 1), 0)
        with open_pool() as seen:
            while any(version < ROUNDS - 1 for version in newest.values()) and not failed.is_set():
                seen.refresh()
                arrays = seen.restore([name for writer in newest for name in names_of(writer)], mode="r")
                for writer, before in newest.items():
                    newest[writer] = version_of(arrays, writer)
                    assert newest[writer] >= before
                assert {info.name for info in seen.ls()} >= set(arrays)

    def drop():
        for _ in range(WRITERS * (ROUNDS - 1)):
            dropped.get(timeout=LIMIT_S)

    class Shared:
        """The writer's own handle, as a reader uses it; it is closed by the test."""

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

        def refresh(self):
            pool.gc()

        def __getattr__(self, name):
            return getattr(pool, name)

    with remanent.create(path, "64MiB") as pool:
        for writer in range(WRITERS + 1):
            persist_version(pool, writer, 0)
        together(
            *(lambda writer=writer: write(writer) for writer in range(WRITERS)),
            lambda: change(WRITERS),
            lambda: come_and_go("here"),
            lambda: read(Shared),
            lambda: read(lambda: remanent.open(path, "r")),
            drop,
        )
        gc.collect()
        pool.gc()
        assert pool.info()["retired_bytes"] == 0, "everything that was dropped is free"
    arrays = remanent.restore(path)
    assert sorted(arrays) == sorted(name for writer in range(WRITERS + 1) for name in names_of(writer))
    assert [version_of(arrays, writer) for writer in range(WRITERS + 1)] == [ROUNDS - 1] * (WRITERS + 1)


@pytest.mark.parametrize("attempt", range(1, 9))
def test_what_was_acknowledged_before_others_closed_the_pool_is_there(path, attempt):
    pool = remanent.create(path, "64MiB")
    works_on = threading.Barrier(WRITERS + 2, timeout=LIMIT_S)

    def write(writer):
        acknowledged = 0
        try:
            for version in range(1, ROUNDS):
                if version == attempt:
                    works_on.wait()
                persist_version(pool, writer, version)
                acknowledged = version
                assert version_of(pool.restore(names_of(writer)), writer) == version
        except remanent.Closed:
            pass
        return acknowledged

    def close():
        works_on.wait()
        pool.close()
        assert pool.closed

    found = together(*(lambda writer=writer: write(writer) for writer in range(WRITERS)), close, close)
    arrays = remanent.restore(path)
    for writer, acknowledged in enumerate(found[:WRITERS]):
        assert acknowledged >= attempt - 1
        if acknowledged == 0:
            assert f"{writer}/large" not in arrays
        else:
            assert version_of(arrays, writer) == acknowledged
    with remanent.open(path) as pool:
        assert pool.info()["is_clean"] is True


def test_arrays_are_taken_and_dropped_by_any_number_of_threads(path):
    with remanent.create(path, "32MiB") as pool:
        pool["a"] = np.arange(SIZES["large"])
        pool["parts"] = {"a": [np.arange(SIZES["large"]), "x" * 5000], "b": None}

        def take():
            for _ in range(ROUNDS * 5):
                parts = pool["parts"]
                assert pool["a"][-1] == parts["a"][0][-1] == SIZES["large"] - 1 and parts["a"][1] == "x" * 5000

        together(*[take] * 6)
        pool.clear()
        gc.collect()
        assert pool.gc() == 0 and pool.info()["retired_bytes"] == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_children_can_be_forked_while_threads_work(path):
    forks, versions = 10, 5
    every_fork = threading.Barrier(3, timeout=LIMIT_S)
    with remanent.create(path, "64MiB") as pool:
        pool["kept"] = np.arange(SIZES["large"])
        kept = pool["kept"]

        def work(writer):
            for fork in range(forks):
                every_fork.wait()
                for version in range(fork * versions, (fork + 1) * versions):
                    persist_version(pool, writer, version)
                    assert version_of(pool.restore(names_of(writer)), writer) == version and not pool.closed

        def look_in_child():
            try:
                pool.info()
            except remanent.UsedAfterFork:
                return kept[-1] == SIZES["large"] - 1 and not pool.closed
            return False

        def fork():
            for _ in range(forks):
                every_fork.wait()
                child = os.fork()
                if child == 0:
                    # Whatever happens, the child must not go on as a second pytest.
                    try:
                        os._exit(0 if look_in_child() else 1)
                    except BaseException:
                        os._exit(2)
                assert os.waitpid(child, 0)[1] == 0

        together(*(lambda writer=writer: work(writer) for writer in range(2)), fork)
        assert [version_of(pool.restore(names_of(writer)), writer) for writer in range(2)] == [forks * versions - 1] * 2


def test_a_free_threaded_interpreter_stays_free_of_its_lock():
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("this interpreter has a lock")
    program = "import sys, numpy, remanent; sys.exit(sys._is_gil_enabled())"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
