"""Arrays outlive everything that they came from."""

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import remanent


def filled(path):
    pool = remanent.create(path, "32MiB")
    pool.persist(large=np.arange(500_000), small=np.arange(5))
    return pool


@pytest.mark.parametrize("mode", ["c", "r"])
def test_arrays_outlive_their_pool_in_any_order(path, mode):
    pool = filled(path)
    arrays = pool.restore(mode=mode)
    view_of_view = arrays["large"][::-4].reshape(5, -1)[1:].T
    small = arrays["small"][1:]
    wanted = view_of_view.copy()
    pool.close()
    del pool, arrays
    gc.collect()
    assert (view_of_view == wanted).all() and small.tolist() == [1, 2, 3, 4]
    with remanent.open(path) as pool:
        pool.persist(large=np.zeros(500_000), small=np.zeros(5))
        pool.persist(more=np.zeros(500_000))
        assert (view_of_view == wanted).all()


def test_the_memory_goes_with_the_last_array(path):
    with filled(path) as pool:
        array = pool["large"]
        base = array
        while isinstance(base, np.ndarray):
            base = base.base
        exporter = weakref.ref(base) if hasattr(type(base), "__weakref__") else None
        before = pool.info()["retired_bytes"]
        del pool["large"]
        assert pool.gc() == 0 and pool.info()["retired_bytes"] > before
        del array, base
        gc.collect()
        assert exporter is None or exporter() is None
        assert pool.gc() == 4_000_000


def test_a_pickled_array_is_a_copy(path):
    with filled(path) as pool:
        array = pickle.loads(pickle.dumps(pool["large"]))
        assert array.flags.owndata or array.base is None or isinstance(array.base, bytes)
        with pytest.raises(TypeError):
            pickle.dumps(pool)
    assert array[-1] == 499_999


@pytest.mark.parametrize("mode", ["c", "r"])
def test_copies_are_apart_from_the_pool(path, mode):
    with filled(path) as pool:
        pool["parts"] = {"large": np.arange(500_000), "few": [1, "x"]}
        restored = pool.restore(mode=mode)
    for name in ("large", "small"):
        array = restored[name]
        for made in (copy.copy(array), copy.deepcopy(array), array.copy()):
            assert (made == array).all() and made.flags.writeable
            made[0] = -1
            assert array[0] == 0
        pickled = pickle.loads(pickle.dumps(array, protocol=5))
        assert (pickled == array).all() and not np.shares_memory(pickled, array)
    parts = copy.deepcopy(restored["parts"])
    parts["large"][0] = -1
    assert restored["parts"]["large"][0] == 0 and parts["few"] == [1, "x"]


def test_parts_outlive_everything_that_they_came_from(path):
    with filled(path) as pool:
        pool["parts"] = {"large": [np.arange(500_000)]}
        view = pool["parts"]["large"][0][10:].reshape(2, -1)[1:, ::7]
        wanted = view.copy()
        pool["parts"] = None
        pool.gc()
        pool["more"] = np.zeros(500_000)
    del pool
    gc.collect()
    assert (view == wanted).all()


def test_restoring_without_closing_leaks_no_lock(path):
    filled(path).close()
    arrays = remanent.restore(path)
    with remanent.open(path) as pool:
        pool["new"] = np.arange(3)
        assert arrays["large"][-1] == 499_999


def test_use_after_close_raises(path):
    pool = filled(path)
    pool.close()
    pool.close()
    assert pool.closed and "closed" in repr(pool)
    calls = [
        lambda: pool["large"],
        lambda: pool.persist(a=np.arange(3)),
        lambda: list(pool),
        lambda: "large" in pool,
        pool.gc,
        pool.info,
        pool.ls,
        pool.verify,
        pool.refresh,
        pool.prefault,
        lambda: pool.grow("8MiB"),
    ]
    for call in calls:
        with pytest.raises(remanent.Closed) as caught:
            call()
        assert caught.value.code == "closed" and isinstance(caught.value, ValueError)


def in_child(check):
    """Runs a check in a forked child; whether it went well."""
    child = os.fork()
    if child == 0:
        # Whatever happens, the child must not go on as a second pytest.
        try:
            check()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_reads_arrays_but_not_the_pool(path):
    pool = filled(path)
    pool.prefault()
    arrays = {mode: pool.restore(mode=mode)["large"] for mode in ("c", "r")}

    def check():
        for array in arrays.values():
            assert array[-1] == 499_999
        arrays["c"][0] = 5
        for call in (lambda: pool["large"], lambda: pool.persist(a=np.arange(3)), pool.info, lambda: len(pool)):
            with pytest.raises(remanent.UsedAfterFork) as caught:
                call()
            assert caught.value.code == "used-after-fork"
        pool.close()
        gc.collect()

    assert in_child(check)
    assert arrays["c"][0] == 0, "the child's stores are its own"
    pool["after"] = np.arange(3)
    pool.close()
    assert sorted(remanent.restore(path)) == ["after", "large", "small"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_that_is_killed_takes_nothing_along(path):
    pool = filled(path)
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    pool["after"] = np.arange(3)
    pool.close()
    with remanent.open(path) as pool:
        assert len(pool) == 3


def test_others_go_on_while_a_pool_that_was_dropped_is_closed(path):
    """The other thread can only go on where this one lets go of the interpreter."""
    begin, ran, stop = threading.Semaphore(0), [], []

    def go_on():
        while begin.acquire() and not stop:
            ran.append(True)

    other = threading.Thread(target=go_on)
    interval = sys.getswitchinterval()
    other.start()
    try:
        sys.setswitchinterval(1000)
        # It may come too late, where other programs have the CPUs, though not to every pool: each has so much to write back
        # that closing it takes longer than a turn of theirs.
        for number in range(100):
            place = path.with_name(f"pool{number}")
            pool = remanent.create(place, "160MiB")
            pool["x"] = np.arange(8_000_000)
            changed = pool.restore(["x"], mode="r+")["x"]
            changed += 1
            del changed
            ran.clear()
            begin.release()
            del pool
            has_run = bool(ran)
            assert remanent.restore(place)["x"][0] == 1
            place.unlink()
            if has_run:
                break
        assert has_run
    finally:
        sys.setswitchinterval(interval)
        stop.append(True)
        begin.release()
        other.join()


def test_a_pool_that_lives_until_the_interpreter_ends_is_closed(path):
    code = """
import sys, threading, numpy as np, remanent

class Keeper:
    pass

remanent.create(sys.argv[1], "8MiB").close()
keeper = Keeper()
keeper.pool = remanent.open(sys.argv[1])
keeper.me = keeper
keeper.pool["x"] = np.arange(5)
sys.modules["kept"] = keeper
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=60)
    with remanent.open(path) as pool:
        assert pool["x"].tolist() == [0, 1, 2, 3, 4]
