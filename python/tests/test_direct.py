"""Memory of the pool that is written to where it lies: `empty`, and mode ``'r+'``."""

import gc
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import remanent

N = 50_000


@pytest.fixture
def pool(tmp_path):
    with remanent.create(tmp_path / "pool", "64MiB") as pool:
        yield pool


def again(pool):
    """What another process reads."""
    return remanent.restore(pool.path)


def test_what_is_made_in_the_pool_is_persisted_without_a_copy(pool):
    x = pool.empty("x", (N, 2))
    assert x.shape == (N, 2) and x.dtype == float and type(x) is np.ndarray and x.flags.c_contiguous
    x[:] = 3
    assert "x" not in pool and "x" not in again(pool)
    written = pool.persist(x=x).written["x"]
    assert (written.way, written.copied_bytes) == ("in place", 0)
    x[0] = 4  # private from now on
    np.testing.assert_array_equal(again(pool)["x"], np.full((N, 2), 3.0))
    assert pool.persist(x=x).written["x"].copied_bytes == 4096
    assert again(pool)["x"][0, 0] == 4


def test_commit_persists_everything_that_was_made_at_once(pool):
    x, y = pool.empty("x", N, "i4"), pool.empty("y", (3, N), "c16", order="F")
    assert y.flags.f_contiguous
    x[:], y[:] = 1, 2j
    before = pool.info()["generation"]
    done = pool.commit()
    assert done == before + 1 and {way.way for way in done.written.values()} == {"in place"}
    found = again(pool)
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["y"], y)
    assert found["y"].flags.f_contiguous
    assert pool.commit().written == {}, "nothing was made since"


def test_commit_leaves_what_was_done_to_a_name_since_alone(pool):
    def put_in_a_transaction(name):
        with pool.transaction() as transaction:
            transaction[name] = np.arange(3)

    pool.persist(old=np.arange(4))
    edits = {
        "assigned": lambda name: pool.__setitem__(name, np.arange(3)),
        "persisted": lambda name: pool.persist({name: "text"}),
        "in a transaction": put_in_a_transaction,
        "renamed": lambda name: pool.rename("old", name),
    }
    for name, edit in edits.items():
        pool.empty(name, N)[:] = 1
        edit(name)
    assert pool.commit().written == {}
    assert len(pool["assigned"]) == len(pool["in a transaction"]) == 3 and len(pool["renamed"]) == 4
    assert pool["persisted"] == "text"


def test_what_was_made_can_be_discarded(pool):
    generation = pool.persist(there=np.arange(3))
    for name in ("made", "there", "more"):
        pool.empty(name, N)[:] = 1
    del pool["made"]
    assert pool.info()["generation"] == generation, "nobody knew of it"
    with pytest.raises(remanent.NoSuchName):
        del pool["made"]
    del pool["there"]
    assert "there" not in pool
    pool.clear()
    assert pool.commit().written == {} and not pool


def test_a_persist_that_fails_leaves_what_was_made_to_commit(pool):
    x = pool.empty("x", N)
    x[:] = 1

    def stop(done, total):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        pool.persist(x=np.zeros(1 << 20), progress=stop)
    assert set(pool.commit().written) == {"x"} and pool["x"].sum() == N


def test_a_transaction_persists_what_it_has_made(pool):
    with pool.transaction() as edits:
        x = edits.empty("x", N)
        edits["y"] = "text"
        x[:] = 5
        assert "x" not in pool
    assert pool["x"].sum() == 5 * N and pool["y"] == "text"
    with pytest.raises(RuntimeError, match="stop"), pool.transaction() as edits:
        edits.empty("z", N)[:] = 1
        raise RuntimeError("stop")
    assert "z" not in pool


@pytest.mark.parametrize("dtype", ["?", "u1", ">i8", "f2", "longdouble", "S3", "U5", "M8[ns]", [("a", "i4"), ("b", "M8[s]")]])
def test_any_type_of_fixed_size_can_be_made(pool, dtype):
    x = pool.empty("x", (100, 30), dtype)
    assert x.dtype == np.dtype(dtype)
    x[...] = np.zeros((), dtype)
    pool.commit()
    np.testing.assert_array_equal(again(pool)["x"], np.zeros((100, 30), dtype))
    assert again(pool)["x"].dtype == np.dtype(dtype)


def test_arrays_without_bytes_and_of_one_item_can_be_made(pool):
    nothing, one = pool.empty("nothing", (0, 3)), pool.empty("one", ())
    one[()] = 7
    pool.commit()
    assert again(pool)["nothing"].shape == nothing.shape and again(pool)["one"] == 7


def test_what_cannot_be_made_is_refused(pool):
    for dtype in (object, np.dtypes.StringDType() if hasattr(np.dtypes, "StringDType") else object):
        with pytest.raises(remanent.UnknownType, match="array of the type .*: it holds"):
            pool.empty("x", 10, dtype)
    with pytest.raises(remanent.BadName):
        pool.empty("\udcff", 10)
    with pytest.raises(remanent.PoolFull):
        pool.empty("x", 1 << 30)
    with pytest.raises(remanent.ShapeOverflow, match="addressed"):
        pool.empty("x", (2**62, 2**62))
    with pytest.raises(ValueError, match="negative"):
        pool.empty("x", (-1, -1))
    with pytest.raises(ValueError, match="order"):
        pool.empty("x", 3, order="K")
    with pytest.raises(TypeError):
        pool.empty("x", 2.5)
    assert pool.commit().written == {}


def test_what_is_left_when_the_pool_is_closed_is_memory_like_any_other(tmp_path):
    pool = remanent.create(tmp_path / "pool", "64MiB")
    x = pool.empty("x", N)
    x[:] = 1
    pool.close()
    with remanent.open(tmp_path / "pool") as pool:
        assert len(pool) == 0
        pool.persist(y=np.full(N, 2.0))
        assert x.sum() == N
        x[:] = 3
        assert pool["y"].sum() == 2 * N
        pool.persist(x=x)
        assert pool["x"].sum() == 3 * N


def test_a_frame_keeps_columns_that_were_made_in_the_pool(pool):
    pandas = pytest.importorskip("pandas")
    column = pool.empty("column", 200_000)
    column[:] = np.arange(200_000)
    frame = pandas.DataFrame({"a": column}, copy=False)
    if not np.shares_memory(frame["a"].to_numpy(), column):
        pytest.skip("this pandas copies")
    assert pool.persist(frame=frame).written["frame"].copied_bytes < 1000
    pandas.testing.assert_frame_equal(again(pool)["frame"], frame)


def test_an_array_is_changed_in_place(pool):
    pool.persist(x=np.arange(N), y="text")
    x = pool.restore(["x"], mode="r+")["x"]
    [info] = pool.ls("x")
    assert info.in_place and not info.interrupted
    x += 1
    written = pool.persist(x=x).written["x"]
    assert (written.way, written.copied_bytes) == ("in place", 0)
    for look in (lambda: pool["x"], lambda: again(pool), lambda: pool.restore(["x"], mode="r+")):
        with pytest.raises(remanent.InUse):
            look()
    assert pool["y"] == "text"
    x[0] = 100
    view = x[10:20]
    del x
    with pytest.raises(remanent.InUse):
        pool["x"]  # a view of it lives
    del view
    expected = np.arange(1, N + 1)
    expected[0] = 100
    np.testing.assert_array_equal(pool["x"], expected)
    assert not pool.ls("x")[0].in_place
    np.testing.assert_array_equal(again(pool)["x"], expected)


def test_arrays_without_bytes_are_among_those_that_are_changed_in_place(pool):
    pool.persist(a=np.arange(3), empty=np.empty((0, 3), "f4"), z=np.arange(4))
    arrays = pool.restore(mode="r+")
    assert list(arrays) == ["a", "empty", "z"]
    assert arrays["empty"].shape == (0, 3) and arrays["empty"].dtype == "f4" and arrays["empty"].flags.writeable
    arrays["z"] += 1
    written = pool.persist(arrays).written
    assert written["z"].way == written["a"].way == "in place"
    del arrays
    assert pool["z"].tolist() == [1, 2, 3, 4] and pool["empty"].shape == (0, 3)
    with remanent.open(pool.path, "r") as reader, pytest.raises(remanent.NotWritable):
        reader.restore(["empty"], mode="r+")


def test_what_is_changed_in_place_when_the_pool_is_closed_is_persisted_and_private(tmp_path):
    with remanent.create(tmp_path / "pool", "64MiB") as pool:
        pool["x"] = np.arange(N)
        x = pool.restore(["x"], mode="r+")["x"]
        x[:] = 7
    found = remanent.restore(tmp_path / "pool")["x"]
    np.testing.assert_array_equal(found, np.full(N, 7))
    x[:] = 8
    np.testing.assert_array_equal(remanent.restore(tmp_path / "pool")["x"], found)


def test_what_cannot_be_changed_in_place_is_refused(pool):
    pool.persist(x=np.arange(N), text="text", frame={"a": 1})
    kept = pool["x"]
    with pytest.raises(remanent.InUse):
        pool.restore(["x"], mode="r+")
    del kept
    for name in ("text", "frame"):
        with pytest.raises(remanent.NotAnArray):
            pool.restore([name], mode="r+")
    with pytest.raises(ValueError, match="dram"):
        pool.restore(["x"], mode="r+", to="dram")
    with pytest.raises(ValueError, match="stays open"):
        remanent.restore(pool.path, mode="r+")
    with remanent.open(pool.path, "r") as reader, pytest.raises(remanent.NotWritable):
        reader.restore(["x"], mode="r+")
    assert pool["x"].sum() == np.arange(N).sum()


WRITER = """
import os, sys, numpy as np, remanent
pool = remanent.open(sys.argv[1])
x = pool.restore(["x"], mode="r+")["x"]
x[:] = 1
pool.persist(x=x)
x[:1000] = 2
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_killed_writer_leaves_what_it_persisted_and_a_mark(pool):
    path = pool.path
    pool.persist(x=np.zeros(N))
    pool.close()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "ready\n"
    with remanent.open(path, "r") as reader, pytest.raises(remanent.InUse):
        reader["x"]
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    with remanent.open(path) as pool:
        [info] = pool.ls("x")
        assert info.interrupted and not info.in_place
        x = pool["x"]
        assert set(np.unique(x[:1000])) <= {1.0, 2.0} and (x[1000:] == 1).all()
        del x
        pool.persist(x=np.ones(N))
        assert not pool.ls("x")[0].interrupted


def test_a_forked_child_writes_to_no_pool(pool):
    pool.persist(x=np.zeros(N))
    made, changed = pool.empty("made", N), pool.restore(["x"], mode="r+")["x"]
    made[:], changed[:] = 1, 2
    child = os.fork()
    if child == 0:
        made[:], changed[:] = 9, 9
        os._exit(int(made.sum() != 9 * N or changed.sum() != 9 * N))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert made.sum() == N and changed.sum() == 2 * N
    pool.commit()
    pool.persist(x=changed)
    del changed
    assert pool["made"].sum() == N and pool["x"].sum() == 2 * N


def test_an_array_of_the_pools_memory_keeps_the_pool_open(tmp_path):
    path = tmp_path / "pool"
    with remanent.create(path, "64MiB") as pool:
        pool["x"] = np.zeros(N)
    x = remanent.open(path).restore(["x"], mode="r+")["x"]
    x[:] = 7
    with pytest.raises(remanent.PoolBusy):
        remanent.open(path)
    del x
    gc.collect()
    with remanent.open(path, "r") as pool:
        assert not pool.ls("x")[0].interrupted and pool.info()["is_clean"]
        np.testing.assert_array_equal(pool["x"], np.full(N, 7.0))


def test_looking_at_an_interrupted_array_does_not_make_it_whole(pool):
    path = pool.path
    pool.persist(x=np.zeros(N))
    pool.close()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "ready\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    with remanent.open(path) as pool:
        del pool.restore(["x"], mode="r+")["x"]
        assert pool["x"].shape == (N,)
        assert pool.ls("x")[0].interrupted
        x = pool.restore(["x"], mode="r+")["x"]
        pool.persist(x=x)
        del x
        assert pool["x"].shape == (N,) and not pool.ls("x")[0].interrupted
