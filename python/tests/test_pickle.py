"""Pickles are written and read only when the caller says so, and their buffers lie in the pool."""

import threading

import numpy as np
import pytest

import remanent


class Thing:
    """What only Python knows."""

    def __init__(self, array=None):
        self.array = array

    def __eq__(self, other):
        return type(other) is Thing and np.array_equal(self.array, other.array)


class Unwilling:
    """Does not want to be restored."""

    def __reduce__(self):
        return int, ("no number",)


LARGE = np.arange(300_000.0)


def test_a_pickle_needs_permission_on_both_sides(path):
    value = {"k": [1, Thing(LARGE)], "plain": LARGE}
    with remanent.create(path, "32MiB") as pool:
        with pytest.raises(remanent.UnknownType, match=r"x\['k'\]\[1\].*pickle=True"):
            pool.persist(x=value)
        pool.persist(x=value, pickle=True)
        with pytest.raises(remanent.UnknownType, match=r"x\['k'\].* is a Python pickle.*any code.*pickle=True"):
            pool["x"]
        assert pool.restore(pickle=True)["x"]["k"] == value["k"]
    with pytest.raises(remanent.UnknownType):
        remanent.restore(path)
    assert remanent.restore(path, pickle=True)["x"]["k"] == value["k"]
    with remanent.open(path, "r", pickle=True) as pool:
        assert pool["x"]["k"] == value["k"]
        with pytest.raises(remanent.UnknownType):
            pool.restore(pickle=False)


def test_object_arrays_and_a_pool_that_allows_for_pickles(path):
    objects = np.array([None, "x", Thing()], object)
    fields = np.array([(1, None)], [("a", "i4"), ("o", "O")])
    with remanent.create(path, "8MiB", pickle=True) as pool:
        pool["objects"] = objects
        with pool.transaction() as transaction:
            transaction["fields"] = fields
        assert (pool["objects"] == objects).all() and (pool["fields"] == fields).all()
        with pytest.raises(remanent.UnknownType, match=r"x\[0\].*holds Python objects"):
            pool.persist(x=[objects], pickle=False)
        with pytest.raises(remanent.UnknownType, match="'o'"):
            pool.persist(x=fields, pickle=False)


@pytest.mark.parametrize("mode", ["c", "r"])
def test_large_buffers_are_mapped(path, mode):
    turned = np.asfortranarray(LARGE.reshape(500, 600))
    with remanent.create(path, "32MiB") as pool:
        pool.persist(
            x=[Thing(LARGE), Thing(turned), Thing(np.arange(5)), bytearray(b"z" * 100_000)], pickle=True, checksum=True
        )
        assert pool.verify() == (1, 0)
        large, f_order, small, data = pool.restore(mode=mode, pickle=True)["x"]
        assert np.array_equal(large.array, LARGE) and np.array_equal(f_order.array, turned)
        assert f_order.array.flags.f_contiguous and small.array.tolist() == [0, 1, 2, 3, 4]
        assert large.array.flags.writeable == (mode == "c") and not large.array.flags.owndata
        assert data == b"z" * 100_000
        if mode == "c":
            large.array[0] = -1
            assert pool.restore(pickle=True)["x"][0].array[0] == 0


def test_what_is_shared_inside_a_sequence_stays_shared(path):
    thing = Thing(LARGE)
    endless = [thing]
    endless.append(endless)
    with remanent.create(path, "32MiB", pickle=True) as pool:
        pool.persist(twice=(thing, thing), endless=endless)
        first, second = pool["twice"]
        assert first is second
        assert pool["endless"][1] is not None and pool["endless"][1][1][0] == thing


def test_what_cannot_be_pickled_or_unpickled_is_named(path):
    with remanent.create(path, "8MiB", pickle=True) as pool:
        with pytest.raises(remanent.UnknownType, match=r"x\['lock'\].*cannot be pickled") as caught:
            pool["x"] = {"lock": threading.Lock()}
        assert isinstance(caught.value.__cause__, TypeError)
        pool["x"] = {"no": Unwilling()}
        with pytest.raises(remanent.UnknownType, match=r"x\['no'\].*cannot be unpickled.*no number") as caught:
            pool["x"]
        assert isinstance(caught.value.__cause__, ValueError)


def test_columns_that_must_be_pickled_leave_the_others_alone(path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"f": LARGE[:9], "p": pd.arrays.SparseArray([0, 1, 0] * 3), "o": [Thing()] * 9})
    with remanent.create(path, "8MiB") as pool:
        with pytest.raises(remanent.UnknownType, match=r"x\['p'\]"):
            pool.persist(x=frame)
        pool.persist(x=frame, in_a_dict={"k": frame}, pickle=True)
        with pytest.raises(remanent.UnknownType, match=r"x\['p'\]. is a Python pickle"):
            pool["x"]
        restored = pool.restore(pickle=True)
        pd.testing.assert_frame_equal(restored["x"], frame)
        pd.testing.assert_frame_equal(restored["in_a_dict"]["k"], frame)
        for tree in (tree_of(pool, "x"), tree_of(pool, "in_a_dict")[1][0][1]):
            attributed, (table, rows, columns), owner, attributes = tree
            assert (attributed, table, rows, owner) == ("attributed", "table", 9, "pandas")
            assert [(name[1], column[0]) for name, column in columns] == [("f", "array"), ("p", "foreign"), ("o", "foreign")]


def tree_of(pool, name):
    """How an object is written, which other languages read."""
    [(_, kind, tree, _, _, _)] = pool._native.restore([name], "private")
    assert kind == "value"
    return tree


def test_an_index_that_must_be_pickled_leaves_the_columns_alone(path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"f": LARGE[:3]}, index=pd.date_range("2020", periods=3, freq=pd.offsets.Easter()))
    with remanent.create(path, "8MiB", pickle=True) as pool:
        pool["x"] = frame
        pd.testing.assert_frame_equal(pool["x"], frame)
        assert tree_of(pool, "x")[1][2][0][1][0] == "array"


def test_dicts_that_contain_themselves_are_pickled(path):
    direct = {"plain": LARGE}
    direct["me"] = direct
    inner = {"k": 1}
    inner["list"] = [inner]
    around = {"inner": inner, "plain": LARGE, "thing": Thing()}
    with remanent.create(path, "32MiB") as pool:
        with pytest.raises(remanent.UnknownType, match=r"x\['me'\]. contains itself.*pickle=True") as caught:
            pool["x"] = direct
        assert caught.type is remanent.UnknownType
        pool.persist(direct=direct, around=around, pickle=True)
        restored = pool.restore(pickle=True)
        assert restored["direct"]["me"] is restored["direct"]
        again = restored["around"]
        assert again["inner"]["list"][0] is again["inner"] and again["thing"] == Thing()
        kinds = {key[1]: value[0] for key, value in tree_of(pool, "around")[1]}
        assert kinds == {"inner": "foreign", "plain": "array", "thing": "foreign"}
