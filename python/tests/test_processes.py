"""Several processes: one writes, many read, and any of them may be killed."""

import multiprocessing
import signal
import subprocess
import sys

import numpy as np
import pytest

import remanent

ROUNDS = 60

# Persists a new version and stops in the middle of the copy, for good.
WRITER = """
import sys, numpy, remanent
def stop(done, total):
    if 0 < done < total:
        print("copying", flush=True)
        sys.stdin.read()
pool = remanent.open(sys.argv[1])
new = {name: numpy.full(3_000_000, 2.0) for name in "ab"}
pool.persist(new, threads=1, progress=stop)
"""


def read_until_the_end(path, queue):
    """Sees only versions in which a and b agree, and never an older one after a newer one."""
    seen = set()
    newest = -1
    with remanent.open(path, "r") as pool:
        queue.put("open")
        while newest < ROUNDS - 1:
            pool.refresh()
            arrays = pool.restore(["a", "b"], mode="r")
            a, b = arrays["a"], arrays["b"]
            assert a.min() == a.max() == b.min() == b.max(), (a, b)
            assert a[0] >= newest
            newest = int(a[0])
            seen.add(newest)
    queue.put(len(seen))


def test_readers_in_other_processes_see_whole_versions(path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with remanent.create(path, "64MiB") as pool:
        pool.persist(a=np.full(50_000, -1), b=np.full(20_000, -1))
        readers = [context.Process(target=read_until_the_end, args=(path, queue)) for _ in range(2)]
        for reader in readers:
            reader.start()
        for _ in readers:
            assert queue.get(timeout=60) == "open"
        for version in range(ROUNDS):
            pool.persist(a=np.full(50_000, version), b=np.full(20_000, version))
        assert all(queue.get(timeout=60) >= 1 for _ in readers)
        for reader in readers:
            reader.join()
            assert reader.exitcode == 0
        assert pool.info()["retired_bytes"] == 0 or pool.gc() > 0


def test_a_second_writer_is_told_and_readers_are_let_in(path):
    with remanent.create(path, "8MiB") as pool:
        pool["a"] = np.arange(3)
        with pytest.raises(remanent.PoolBusy) as caught:
            remanent.open(path)
        assert caught.value.code == "pool-busy" and isinstance(caught.value, BlockingIOError)
        code = "import sys, remanent; remanent.open(sys.argv[1])"
        other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
        assert other.returncode == 1 and "PoolBusy" in other.stderr
        with remanent.open(path, "r") as reader:
            assert reader["a"].size == 3
            with pytest.raises(remanent.NotWritable):
                reader["b"] = np.arange(3)
        pool["b"] = np.arange(3)
    remanent.open(path).close()


def test_kill_9_in_the_middle_of_a_persist_leaves_the_old_version(path):
    old = {name: np.full(3_000_000, 1.0) for name in "ab"}
    with remanent.create(path, "128MiB") as pool:
        pool.persist(old, checksum=True)
        free = pool.info()["free_bytes"]
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with writer:
        assert writer.stdout.readline() == "copying\n"
        with remanent.open(path, "r") as reader:
            assert all((reader[name] == 1).all() for name in "ab")
        with pytest.raises(remanent.PoolBusy):
            remanent.open(path)
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
    with remanent.open(path) as pool:
        assert pool.verify() == (2, 0)
        for name, array in pool.restore().items():
            assert (array == old[name]).all()
        assert pool.info()["free_bytes"] == free
        pool.persist({name: np.full(3_000_000, 3.0) for name in "ab"})
        assert (pool["b"] == 3).all()


def test_a_killed_reader_lets_its_version_go(path):
    code = "import sys, remanent; a = remanent.restore(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with remanent.create(path, "16MiB") as pool:
        pool["a"] = np.zeros(1 << 20)
        reader = subprocess.Popen(
            [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with reader:
            assert reader.stdout.readline() == "open\n"
            del pool["a"]
            assert pool.gc() == 0
            reader.kill()
            reader.wait()
        assert pool.gc() == 8 << 20
