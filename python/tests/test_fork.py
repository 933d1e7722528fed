"""Processes that are made while a pool is open: fork, as multiprocessing's workers; spawn and forkserver."""

import multiprocessing
import os
import pickle
import signal
import threading

import numpy as np
import pytest

import remanent

LARGE = 1 << 17  # items; large enough for a mapping of its own


def refused(call, *args):
    try:
        call(*args)
    except remanent.UsedAfterFork as error:
        return error.code == "used-after-fork"
    return False


def in_forked_child(pool, path, view, private, queue):
    """Everything that a child may and may not do; what did not hold is sent back."""
    before = view.copy()
    holds = {
        "a view is readable": (view == 1).all() and (private == 2).all(),
        "reading is refused": refused(pool.__getitem__, "a") and refused(pool.restore) and refused(len, pool),
        "writing is refused": refused(pool.persist, {"c": before}) and refused(pool.__delitem__, "a"),
        "the rest is refused": refused(pool.gc) and refused(pool.refresh) and refused(pool.grow, "4MiB"),
        "a transaction is refused": refused(pool._commit, [], ["a"], None, False, None),
    }
    private[:] = 7
    with remanent.open(path, "r") as own:
        holds["the pool opens anew"] = (own["a"] == 1).all()
    try:
        remanent.open(path)
        holds["the parent writes"] = False
    except remanent.PoolBusy:
        pass
    pool.close()
    queue.put([what for what, held in holds.items() if not held])


def test_a_forked_child_reads_its_arrays_and_is_told_to_open_the_pool_anew(path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with remanent.create(path, "32MiB") as pool:
        pool.persist(a=np.full(LARGE, 1.0), b=np.full(LARGE, 2.0))
        view, private = pool.restore(["a"], mode="r")["a"], pool["b"]
        child = context.Process(target=in_forked_child, args=(pool, path, view, private, queue))
        child.start()
        assert queue.get(timeout=60) == []
        child.join()
        assert child.exitcode == 0
        assert (private == 2).all()
        pool["c"] = np.arange(3)
    with remanent.open(path) as pool:
        assert sorted(pool) == ["a", "b", "c"]


def test_a_pool_of_forked_workers_reads_one_array(path):
    with remanent.create(path, "32MiB") as pool:
        pool["a"] = np.arange(LARGE, dtype=np.float64)
        array = pool.restore(mode="r")["a"]
        global part_sum  # functions of workers are found by name

        def part_sum(start):
            return array[start : start + LARGE // 4].sum()

        with multiprocessing.get_context("fork").Pool(2) as workers:
            sums = workers.map(part_sum, range(0, LARGE, LARGE // 4))
        assert sum(sums) == LARGE * (LARGE - 1) / 2
        pool["b"] = np.arange(3)


def outlive(path, ready, go, answer):
    """A writer whose child lives on when it is killed."""
    pool = remanent.open(path)
    view = pool.restore(["a"], mode="r")["a"]
    if os.fork() == 0:
        before = view.sum()
        ready.send(os.getppid())
        go.recv()
        answer.send((before, view.sum()))
        os._exit(0)
    signal.pause()


def test_the_lock_of_a_killed_writer_falls_although_its_child_lives(path):
    with remanent.create(path, "32MiB") as pool:
        pool["a"] = np.full(LARGE, 1.0)
    context = multiprocessing.get_context("spawn")
    ready, go, answer = (context.Pipe() for _ in range(3))
    writer = context.Process(target=outlive, args=(path, ready[1], go[0], answer[1]))
    writer.start()
    assert ready[0].poll(60)
    assert ready[0].recv() == writer.pid
    with pytest.raises(remanent.PoolBusy):
        remanent.open(path)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    with remanent.open(path) as pool:
        # The child's view is pinned for the child: it stays as it is, and takes space.
        for value in (2.0, 3.0):
            pool["a"] = np.full(LARGE, value)
        assert pool.gc() == 0
        assert pool.info()["retired_bytes"] >= 8 * LARGE
        go[1].send(None)
        assert answer[0].poll(60)
        assert answer[0].recv() == (LARGE, LARGE)


def outlive_while_closing(path, ready, go):
    """A writer that is killed while one of its threads closes the pool, and whose child lives on."""
    started, pool = threading.Event(), remanent.open(path)

    def stop(done, total):
        started.set()
        threading.Event().wait()

    threading.Thread(target=pool.persist, args=({"b": np.ones(LARGE)},), kwargs={"progress": stop}, daemon=True).start()
    assert started.wait(60)
    threading.Thread(target=pool.close, daemon=True).start()
    while not pool.closed:
        pass
    if os.fork() == 0:
        ready.send(os.getppid())
        go.recv()
        os._exit(0)
    signal.pause()


def test_the_lock_of_a_writer_that_is_killed_while_it_closes_falls_although_its_child_lives(path):
    with remanent.create(path, "32MiB") as pool:
        pool["a"] = np.full(LARGE, 1.0)
    context = multiprocessing.get_context("spawn")
    ready, go = context.Pipe(), context.Pipe()
    writer = context.Process(target=outlive_while_closing, args=(path, ready[1], go[0]))
    writer.start()
    assert ready[0].poll(60)
    assert ready[0].recv() == writer.pid
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    with remanent.open(path) as pool:
        assert list(pool) == ["a"]
    go[1].send(None)


def in_new_process(path, array, queue):
    """Nothing is inherited here: the array came as a copy, and the pool is opened."""
    with remanent.open(path, "r") as pool:
        queue.put((array.sum(), pool["a"].sum()))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_that_is_not_forked_from_this_one_gets_copies_and_opens_the_pool(path, method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    with remanent.create(path, "32MiB") as pool:
        pool["a"] = np.full(LARGE, 1.0)
        child = context.Process(target=in_new_process, args=(path, pool["a"], queue))
        child.start()
        assert queue.get(timeout=60) == (LARGE, LARGE)
        child.join()
        assert child.exitcode == 0
        pool["b"] = np.arange(3)
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(pool)


def test_a_child_keeps_what_it_inherited_when_the_parent_persists_its_changes(path):
    """The parent's array is the child's too: pages that only the parent has changed must not go home under it."""
    n = 1 << 16
    with remanent.create(path, "64MB") as pool:
        pool.persist(x=np.zeros(n))
        x = pool["x"]
        wait, go = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.read(wait, 1)
                status = int(x.any())
            finally:
                os._exit(status)
        x[5] = 1
        assert pool.persist(x=x).written["x"].way == "whole"
        os.write(go, b".")
        assert os.waitpid(child, 0)[1] == 0, "the child saw its parent's change"
        os.close(wait)
        os.close(go)
        x = pool["x"]
        x[6] = 1
        assert pool.persist(x=x).written["x"].way.startswith("changed pages")
