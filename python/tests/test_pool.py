"""The pool as a mapping, commits, transactions, growth."""

import doctest
import os
import re
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import remanent
from remanent._sizes import parse_size


def test_examples_in_the_documentation():
    assert doctest.testmod(remanent).failed == 0


def test_a_pool_is_a_mapping(path):
    with remanent.create(path, "16MiB") as pool:
        pool["b"] = np.arange(3)
        pool["a"] = np.arange(4.0)
        assert list(pool) == ["a", "b"] and len(pool) == 2
        assert "a" in pool and "c" not in pool and 3 not in pool
        assert pool.get("c") is None
        assert pool.pop("b").tolist() == [0, 1, 2]
        assert "b" not in pool
        pool.update({"c": np.ones(2)}, d=np.zeros(2))
        assert sorted(pool.keys()) == ["a", "c", "d"]
        assert [array.size for array in pool.values()] == [4, 2, 2]
        generation = pool.info()["generation"]
        pool.clear()
        assert len(pool) == 0 and pool.info()["generation"] == generation + 1
        assert pool == pool and len({pool}) == 1


def test_the_three_verbs_of_the_paper(path):
    remanent.pmem_create(path, "16MiB").close()
    remanent.pmem_persist(path, str1=np.array("hello"), str2=np.array("world!"))
    restored = remanent.pmem_restore(path)
    assert " ".join(str(restored[name]) for name in ("str1", "str2")) == "hello world!"
    assert list(remanent.restore(path, ["str2"])) == ["str2"]


def test_a_persist_is_one_commit(path):
    with remanent.create(path, "8MiB") as pool:
        first = pool.persist(a=np.arange(2), b=np.arange(3))
        assert pool.persist({"a": np.arange(4)}, c=np.arange(5)) == first + 1
        with pytest.raises(remanent.PoolFull):
            pool.persist(a=np.arange(9), large=np.zeros(9 << 20, np.uint8))
        assert pool["a"].size == 4
        assert {info.name: info.born for info in pool.ls()} == {"a": first + 1, "b": first, "c": first + 1}
        assert pool.persist({}) == first + 1


def test_names_like_options_go_into_the_mapping(path):
    with remanent.create(path, "8MiB") as pool:
        pool.persist({"threads": np.arange(2), "progress": np.arange(3)}, threads=1)
        assert sorted(pool) == ["progress", "threads"]


def test_a_transaction_is_whole_or_not_there(path):
    with remanent.create(path, "8MiB") as pool:
        pool.persist(a=np.arange(2), b=np.arange(3))
        with pytest.raises(ZeroDivisionError), pool.transaction() as edits:
            edits["a"] = np.arange(7)
            del edits["b"]
            1 / 0
        assert pool["a"].size == 2 and "b" in pool
        with pool.transaction(checksum=True) as edits:
            edits["a"] = np.arange(7)
            del edits["b"]
            edits.persist(c=np.arange(8))
            edits["d"] = np.arange(1)
            del edits["d"]
            assert "c" not in pool
        assert list(pool) == ["a", "c"] and pool["a"].size == 7
        with pytest.raises(remanent.Closed):
            edits["e"] = np.arange(1)
        with pytest.raises(KeyError), pool.transaction() as edits:
            edits["x"] = np.arange(1)
            del edits["missing"]
        assert "x" not in pool


def test_what_is_written_to_an_array_never_reaches_the_pool(path):
    large, small = np.arange(100_000), np.arange(5)
    with remanent.create(path, "16MiB") as pool:
        pool.persist(large=large, small=small)
        for name, array in pool.restore().items():
            array[:] = -1
            assert (array == -1).all(), name
        assert (pool["large"] == large).all() and (pool["small"] == small).all()
        for array in pool.restore(mode="r").values():
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
            with pytest.raises(ValueError):
                array.flags.writeable = True
        # A changed array is persisted under its own name again; what it is a view of stays until it is gone.
        array = pool["large"]
        array[7] = 70
        pool["large"] = array
        assert pool["large"][7] == 70 and large[7] == 7
    assert remanent.restore(path)["large"][7] == 70


def test_a_pool_grows_and_is_prefaulted(path):
    with remanent.create(path, "8MiB", prefault=True) as pool:
        array = np.ones(12 << 20, np.uint8)
        with pytest.raises(remanent.PoolFull) as caught:
            pool["a"] = array
        assert caught.value.code == "pool-full" and caught.value.number == 41
        pool.grow("16MiB")
        pool.prefault(wait=True)
        pool["a"] = array
        assert len(pool.info()["files"]) == 2
    assert remanent.restore(path, ["a"], populate=True)["a"].sum() == 12 << 20


def test_a_pool_over_several_files(path):
    others = [path.with_name(name) for name in ("second", "third", "fourth")]
    with remanent.create(path, "16MiB", stripe=others[:1], chunk="2MiB") as pool:
        array = np.random.default_rng(1).integers(0, 256, 10 << 20, np.uint8)
        pool["a"] = array
        assert pool.info()["files"] == [path, others[0]]
        pool.grow("12MiB", path=others[1], stripe=others[2:], chunk="4MiB")
        assert pool.info()["files"] == [path, *others]
        pool["b"] = more = np.random.default_rng(2).integers(0, 256, 16 << 20, np.uint8)
    restored = remanent.restore(path)
    assert (restored["a"] == array).all() and (restored["b"] == more).all()


def test_prefaulting_tells_how_far_it_is(path):
    calls = []
    with remanent.create(path, "256MiB", prefault=True) as pool:
        pool.prefault(progress=lambda done, total: calls.append((done, total)))
        assert calls[-1] == (254 << 20, 254 << 20) and calls == sorted(calls)
        pool.prefault(progress=lambda done, total: calls.append((done, total)))
        assert calls[-1] == (0, 0), "there is nothing left to do"
        pool["a"] = np.ones(8 << 20, np.uint8)


def test_checksums_and_their_count(path):
    with remanent.create(path, "8MiB") as pool:
        pool.persist(a=np.arange(100), b=np.empty(0), checksum=True)
        pool["c"] = np.arange(3)
        assert pool.verify() == (2, 1)
        assert [info.checksum for info in pool.ls()] == [True, True, False]


def test_a_changed_byte_of_an_object_is_found(path):
    marker = b"a pattern that stands nowhere else in the file"
    with remanent.create(path, "8MiB") as pool:
        pool.persist(a=np.frombuffer(marker, np.uint8), checksum=True)
    at = path.read_bytes().index(marker)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"A")
    with remanent.open(path, "r") as pool, pytest.raises(remanent.ChecksumMismatch) as caught:
        pool.verify()
    assert caught.value.code == "checksum-mismatch" and isinstance(caught.value, remanent.Corrupt)


def test_progress_rises_to_the_end(path):
    calls = []
    with remanent.create(path, "64MiB") as pool:
        arrays = {"a": np.zeros(12 << 20, np.uint8), "b": np.zeros(8 << 20, np.uint8)}
        pool.persist(arrays, progress=lambda done, total: calls.append((done, total)))
        assert calls[-1] == (20 << 20, 20 << 20) and calls == sorted(calls)

        def stop(done, total):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pool.persist(a=np.ones(12 << 20, np.uint8), progress=stop)
        assert not pool["a"].any()


def test_threads_of_one_process_share_a_pool(path):
    failures = []

    def work(number):
        try:
            for round_ in range(20):
                pool[f"{number}"] = np.full(5000, round_)
                assert (pool[f"{number}"] == round_).all()
        except BaseException as failure:
            failures.append(failure)

    with remanent.create(path, "16MiB") as pool:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == [] and len(pool) == 4


def test_to_close_waits_for_what_other_threads_do(path):
    started, go_on, generations = threading.Event(), threading.Event(), []

    def stop(done, total):
        started.set()
        assert go_on.wait(60)

    def persist():
        generations.append(pool.persist(a=np.ones(12 << 20, np.uint8), progress=stop))

    pool = remanent.create(path, "64MiB")
    persisting, closing = threading.Thread(target=persist), threading.Thread(target=pool.close)
    persisting.start()
    assert started.wait(60)
    closing.start()
    while not pool.closed:
        pass
    with pytest.raises(remanent.Closed):
        pool.persist(b=np.arange(3))
    closing.join(0.1)
    assert closing.is_alive(), "the persist goes on, and the pool is closed already"
    with pytest.raises(remanent.PoolBusy):
        remanent.open(path)
    go_on.set()
    persisting.join()
    closing.join()
    with remanent.open(path, "r") as reader:
        assert reader.info()["is_clean"] and reader.info()["generation"] == generations[0]
        assert list(reader) == ["a"]


def test_all_threads_that_close_a_pool_wait_until_it_is_closed(path):
    started, go_on, found = threading.Event(), threading.Event(), []

    def stop(done, total):
        started.set()
        assert go_on.wait(60)

    def close():
        pool.close()
        with remanent.open(path) as again:
            found.append(list(again))

    pool = remanent.create(path, "64MiB")
    persisting = threading.Thread(target=pool.persist, args=({"a": np.ones(12 << 20, np.uint8)},), kwargs={"progress": stop})
    closing, also_closing = threading.Thread(target=pool.close), threading.Thread(target=close)
    persisting.start()
    assert started.wait(60)
    closing.start()
    while not pool.closed:
        pass
    also_closing.start()
    also_closing.join(0.1)
    assert also_closing.is_alive(), "the pool is being closed, and not yet free"
    go_on.set()
    for thread in (persisting, closing, also_closing):
        thread.join()
    assert found == [["a"]]


def test_what_reports_progress_cannot_close_the_pool_it_is_called_from(path):
    def close(done, total):
        pool.close()

    with remanent.create(path, "64MiB") as pool:
        with pytest.raises(RuntimeError, match="close it when that is done"):
            pool.persist(a=np.ones(12 << 20, np.uint8), progress=close)
        assert not pool.closed and "a" not in pool


def test_what_reports_progress_cannot_wait_for_the_thread_that_closes_its_pool(path):
    refusals, threads = [], []

    def close(done, total):
        if refusals:
            return
        threads.append(threading.Thread(target=pool.close))
        threads[0].start()
        while not pool.closed:
            pass
        with pytest.raises(RuntimeError, match="close it when that is done") as caught:
            pool.close()
        refusals.append(caught.value)

    pool = remanent.create(path, "64MiB")
    pool.persist(a=np.ones(12 << 20, np.uint8), progress=close)
    threads[0].join()
    assert len(refusals) == 1 and remanent.restore(path)["a"].sum() == 12 << 20


def test_a_signal_that_interrupts_closing_leaves_the_pool_open(path):
    """Its handler cannot close the pool that its own thread is closing."""
    started, go_on, refusals = threading.Event(), threading.Event(), []

    def stop(done, total):
        started.set()
        assert go_on.wait(60)

    def handle(number, frame):
        with pytest.raises(RuntimeError, match="closes the pool already") as caught:
            pool.close()
        refusals.append(caught.value)
        raise InterruptedError

    def interrupt():
        while not pool.closed:
            pass
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    pool = remanent.create(path, "64MiB")
    persisting = threading.Thread(target=pool.persist, args=({"a": np.ones(12 << 20, np.uint8)},), kwargs={"progress": stop})
    interrupting = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        persisting.start()
        assert started.wait(60)
        interrupting.start()
        with pytest.raises(InterruptedError):
            pool.close()
        assert len(refusals) == 1 and not pool.closed
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
        go_on.set()
        persisting.join()
    pool.close()
    assert remanent.restore(path)["a"].sum() == 12 << 20


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_while_something_is_persisted_closes_the_pool_at_once(path):
    codes = []

    def fork(done, total):
        if codes:
            return
        child = os.fork()
        if child == 0:
            # Whatever happens, the child must not go on as a second pytest.
            try:
                pool.close()
                os._exit(7)
            finally:
                os._exit(1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with remanent.create(path, "64MiB") as pool:
        pool.persist(a=np.ones(12 << 20, np.uint8), progress=fork)
        assert codes == [7]
        assert pool["a"].all()


def test_a_pool_tells_what_it_is(path):
    assert re.fullmatch(r"\d+\.\d+\.\d+", remanent.__version__)
    with remanent.create(path, "8MiB") as pool:
        info = pool.info()
        assert info["layout"] == {"name": "store", "version": 1} and info["has_writer"]
        pool["a"] = np.arange(3)
        assert not pool.info()["is_clean"]
        # What programs are promised: the book has a line for each.
        page = Path(__file__).parents[2] / "docs" / "src" / "python.md"
        for key in pool.info():
            assert f"| `{key}` |" in page.read_text(), key
    with remanent.open(path, "r") as pool:
        assert pool.info()["is_clean"] and not pool.info()["has_writer"]


def test_objects_are_listed_by_prefix_and_whatever_their_dtype_is(path, monkeypatch):
    real = np.dtype

    def dtype(what, *more, **options):
        if what == "<f8":
            raise TypeError("this machine has no such numbers")
        return real(what, *more, **options)

    with remanent.create(path, "8MiB") as pool:
        pool.persist({"run/a": np.arange(3.0), "run/b": np.arange(4), "x": np.arange(5)})
        assert [info.name for info in pool.ls("run/")] == ["run/a", "run/b"]
        assert [info.name for info in pool.ls(prefix="y")] == []
        monkeypatch.setattr(np, "dtype", dtype)
        listed = pool.ls()
        monkeypatch.undo()
        assert [info.dtype for info in listed] == [None, np.dtype("i8"), np.dtype("i8")]
        assert listed[0].shape == (3,)


def test_durability_says_what_and_why(path):
    with remanent.create(path, "8MiB") as pool:
        durability = pool.durability
    assert durability.reason and durability.filesystem
    if durability.filesystem == "tmpfs":
        assert durability.level == "process-crash safe" and durability.provenance == "emulated"
    assert str(durability).startswith(durability.level)


def test_space_comes_back(path):
    with remanent.create(path, "16MiB") as pool:
        before = pool.info()["free_bytes"]
        for round_ in range(30):
            pool["a"] = np.full(3 << 20, round_, np.uint8)
        view = pool["a"]
        del pool["a"]
        assert pool.gc() == 0 and view[0] == 29
        del view
        assert pool.gc() == 3 << 20
        assert pool.info()["free_bytes"] == before


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [(7, 7), ("7", 7), ("512MB", 512_000_000), ("1GiB", 1 << 30), (" 1.5 kib ", 1536), ("2TiB", 2 << 40), ("0.1MB", 100_000), ("1 G", 1 << 30), ("2p", 2 << 50)],
)
def test_sizes(text, size_bytes):
    assert parse_size(text) == size_bytes


def test_a_size_is_rounded_up_to_whole_pages(path):
    with remanent.create(path, "10.001MB") as pool:
        assert pool.info()["total_bytes"] == 10_002_432


@pytest.mark.parametrize("text", ["", "GiB", "-1MB", "1e9", "1,5MB", "1.5", "1.5B", "1.GiB", ".5GiB", "1Gi", "16384P", 1 << 64, -1])
def test_what_is_no_size(text):
    with pytest.raises(ValueError):
        parse_size(text)
    with pytest.raises(TypeError):
        parse_size(1.5)


def test_a_rename_is_one_commit_without_a_copy(path):
    with remanent.create(path, "16MiB") as pool:
        pool.persist(a=np.full(1 << 20, 1.0), b=np.arange(3))
        kept = pool["a"]
        with remanent.open(path, "r") as reader:
            free = pool.info()["free_bytes"]
            generation = pool.rename("a", "c")
            assert pool.info()["free_bytes"] == free
            assert (list(pool), list(reader)) == (["b", "c"], ["a", "b"])
            assert reader.refresh() == generation
            assert list(reader) == ["b", "c"]
        pool.rename("b", "c", replace=True)
        assert list(pool) == ["c"]
        assert list(pool["c"]) == [0, 1, 2]
        assert (kept == 1).all()
        del kept
        assert pool.gc() == 8 << 20
