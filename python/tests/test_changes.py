"""What was restored, changed a little and persisted again: only what changed is copied."""

import copy
import pickle

import numpy as np
import pytest

import remanent

N = 1 << 20


@pytest.fixture
def pool(path):
    with remanent.create(path, "256MB") as pool:
        yield pool


def test_changed_pages_alone_are_copied(pool):
    pool.persist(x=np.arange(N, dtype="f8"))
    x = pool["x"]
    x[1000] = -1
    x[N - 1] = -2
    persisted = pool.persist(x=x)
    assert persisted == pool.info()["generation"] - 1, "what was changed is copied home by a commit of its own"
    written = persisted.written["x"]
    assert written.way.startswith("changed pages, by ")
    assert written.copied_bytes == 2 * 4096
    expected = np.arange(N, dtype="f8")
    expected[1000], expected[-1] = -1, -2
    np.testing.assert_array_equal(pool["x"], expected)
    np.testing.assert_array_equal(x, expected)
    assert pool.persist(x=x).written["x"].copied_bytes == 0, "what is there already is not copied again"


@pytest.mark.parametrize("again", [lambda done: pickle.loads(pickle.dumps(done)), copy.copy, copy.deepcopy])
def test_what_persist_returns_can_be_sent_and_copied(pool, again):
    done = pool.persist(x=np.arange(9), text="text")
    got = again(done)
    assert got == done and type(got) is type(done) and got.written == done.written


def test_what_is_there_after_a_restart_has_the_changes(pool, path):
    pool.persist(x=np.zeros(N), y=np.zeros(N))
    arrays = pool.restore()
    arrays["x"][7] = 1
    arrays["y"][8] = 2
    persisted = pool.persist(arrays, checksum=True)
    assert {name: written.copied_bytes for name, written in persisted.written.items()} == {"x": 4096, "y": 4096}
    assert pool.verify() == (2, 0)
    pool.close()
    again = remanent.restore(path)
    assert again["x"][7] == 1 and again["y"][8] == 2 and again["x"].sum() == 1 and again["y"].sum() == 2


def test_another_view_keeps_what_it_has(pool):
    pool.persist(x=np.zeros(N))
    mine, other, read_only = pool["x"], pool["x"], pool.restore(["x"], mode="r")["x"]
    mine[0] = 1
    assert pool.persist(x=mine).written["x"].way == "whole"
    assert other[0] == 0 and read_only[0] == 0


def test_an_array_that_was_replaced_or_renamed_is_copied_whole(pool):
    pool.persist(x=np.zeros(N))
    x = pool["x"]
    pool.persist(x=np.ones(N))
    assert pool.persist(x=x).written["x"].way == "whole"
    x = pool["x"]
    assert pool.persist(y=x).written["y"].way == "whole"
    pool.rename("x", "z")
    assert pool.persist(z=x).written["z"].way.startswith("changed pages")


def test_a_view_of_a_restored_array_with_all_its_bytes_counts_as_it(pool):
    pool.persist(x=np.zeros((1024, 1024)))
    x = pool["x"].reshape(-1)
    x[0] = 5
    written = pool.persist(x=x).written["x"]
    assert written.copied_bytes == 4096
    assert pool["x"].shape == (1024 * 1024,) and pool["x"][0] == 5


def test_columns_that_did_not_change_stay_where_they_are(pool):
    pandas = pytest.importorskip("pandas")
    pool.persist(frame=pandas.DataFrame({"a": np.zeros(N), "b": np.ones(N), "c": np.arange(N)}))
    frame = pool["frame"]
    frame["b"] = frame["b"] * 2
    written = pool.persist(frame=frame).written["frame"]
    assert written.way.startswith("changed pages")
    assert 8 * N <= written.copied_bytes < 8 * N + 4096
    again = pool["frame"]
    assert (again["b"] == 2).all() and (again["a"] == 0).all() and (again["c"] == np.arange(N)).all()


def test_most_of_it_changed_is_all_of_it(pool):
    pool.persist(x=np.zeros(N))
    x = pool["x"]
    x += 1
    assert pool.persist(x=x).written["x"] == remanent.Written("whole", 8 * N)


def test_copies_in_dram_have_nothing_to_do_with_the_pool(pool):
    pool.persist(x=np.zeros(N), small=np.arange(3), text="a")
    restored = pool.restore(to="dram")
    restored["x"][0] = 1
    assert pool["x"][0] == 0 and restored["x"].flags.writeable and restored["text"] == "a"
    assert pool.persist(x=restored["x"]).written["x"].way == "whole"
    assert not pool.restore(["x"], mode="r", to="dram")["x"].flags.writeable
    with pytest.raises(ValueError):
        pool.restore(to="disk")


def test_a_small_part_that_was_read_is_not_in_the_way_of_a_large_one(pool):
    pool.persist(v={"big": np.zeros(N), "small": np.arange(10), "note": "a" * 9000})
    v = pool["v"]
    assert v["small"].sum() == 45 and v["note"] == "a" * 9000
    v["big"][0] = 1
    written = pool.persist(v=v).written["v"]
    assert written.way.startswith("changed pages") and written.copied_bytes < 32 << 10
    assert pool["v"]["big"][0] == 1 and pool["v"]["small"].sum() == 45


def test_persisting_again_and_again_leaves_nothing_behind(pool):
    pool.persist(x=np.zeros(N))
    x = pool["x"]
    free = pool.info()["free_bytes"]
    for step in range(1, 50):
        x[step * 1000] = step
        assert pool.persist(x=x).written["x"].way.startswith("changed pages")
    pool.gc()
    assert pool.info()["free_bytes"] == free
    assert pool.restore(["x"], mode="r")["x"].sum() == sum(range(1, 50))


def test_progress_may_use_the_pool(pool):
    pool.persist(x=np.zeros(N), y=np.zeros(3))
    x = pool["x"]
    x[0] = 1
    said = []

    def tell(done, total):
        pool["y"] = np.ones(3)
        said.append(pool.gc())

    assert pool.persist({"x": x}, progress=tell).written["x"].way.startswith("changed pages")
    assert said and pool["y"].sum() == 3
