"""Frames, series and indexes of pandas come back as they were."""

import numpy as np
import pytest

import remanent

pd = pytest.importorskip("pandas")
ROWS = 5


def frame():
    """A column of each kind."""
    columns = {
        "i": np.arange(ROWS),
        "f": np.linspace(0, 1, ROWS),
        "b": [True, False, True, True, False],
        "s": ["a", None, "größe", "", "z"],
        "o": [1, "x", None, (1, 2), 2.5],
        "c": pd.Categorical(["lo", "hi", "lo", None, "hi"], categories=["lo", "hi"], ordered=True),
        "ci": pd.Categorical([3, 1, 2, 1, 3]),
        "t": pd.date_range("2020-01-01", periods=ROWS, freq="h"),
        "z": pd.date_range("2020-01-01", periods=ROWS, freq="D", tz="Europe/Berlin"),
        "d": pd.to_timedelta(np.arange(ROWS), unit="s"),
        "I": pd.array([1, None, 3, 4, 5], dtype="Int64"),
        "B": pd.array([True, None, False, True, None], dtype="boolean"),
        "F": pd.array([1.5, None, 2.5, 0, 1], dtype="Float32"),
        5: np.arange(ROWS, dtype="u1"),
    }
    made = pd.DataFrame(columns)
    made.attrs = {"source": "here"}
    return made


def trip(path, **values):
    with remanent.create(path, "16MiB") as pool:
        pool.persist(values, checksum=True)
    with remanent.open(path, "r") as pool:
        return pool.restore()


def test_frames_with_any_index_come_back(path):
    made = frame()
    frames = {
        "plain": made,
        "strings": made.set_index("s"),
        "two": made.set_index(["i", "c"]),
        "zoned": made.set_index("z"),
        "empty": made.iloc[:0],
        "turned": made[["i", "f"]].T,
        "grouped": made.groupby("b")[["f"]].agg(["mean", "max"]),
        "twice": pd.DataFrame(np.arange(6).reshape(3, 2), columns=["a", "a"]),
    }
    restored = trip(path, **frames)
    for name, expected in frames.items():
        pd.testing.assert_frame_equal(restored[name], expected, check_freq=True)
        assert list(restored[name].dtypes) == list(expected.dtypes) and restored[name].attrs == expected.attrs


def test_series_indexes_and_single_values_come_back(path):
    made = frame()
    indexes = [
        pd.Index(["a", "b"], name="n"),
        pd.date_range("2020", periods=3, freq="MS"),
        pd.MultiIndex.from_product([[1, 2], ["x", "y"]], names=["p", "q"]),
        pd.CategoricalIndex(["a", "b"]),
        pd.RangeIndex(2, 9, 3, name="r"),
    ]
    singles = [pd.Timestamp("2020-01-02 03:04", tz="UTC"), pd.Timedelta("3s"), pd.Timestamp("1999-01-01")]
    restored = trip(
        path, series=[made[name] for name in made], indexes=indexes, singles=singles, missing=[pd.NA, pd.NaT]
    )
    for name, again in zip(made, restored["series"], strict=True):
        pd.testing.assert_series_equal(again, made[name])
    for index, again in zip(indexes, restored["indexes"], strict=True):
        pd.testing.assert_index_equal(again, index)
    assert restored["singles"] == singles
    assert restored["missing"][0] is pd.NA and restored["missing"][1] is pd.NaT


def test_numbers_of_a_large_frame_are_not_copied(path):
    made = pd.DataFrame({"f": np.random.default_rng(2).random(300_000), "i": np.arange(300_000)})
    with remanent.create(path, "32MiB") as pool:
        pool.persist(frame=made)
        again = pool.restore(mode="r")["frame"]
        pd.testing.assert_frame_equal(again, made)
        assert not again["f"].to_numpy().flags.writeable


def test_an_extension_type_that_is_not_known_is_named(path):
    with remanent.create(path, "8MiB") as pool:
        with pytest.raises(remanent.UnknownType, match="period"):
            pool.persist(x=pd.DataFrame({"a": pd.period_range("2020", periods=3)}))
