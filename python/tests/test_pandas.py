"""Frames, series and indexes of pandas come back as they were."""

import datetime
from typing import ClassVar

import numpy as np
import pytest

import remanent
from remanent._values import Flattener

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
        with pytest.raises(remanent.UnknownType, match=r"x\['a'\].*Sparse"):
            pool.persist(x=pd.DataFrame({"a": pd.arrays.SparseArray([0, 0, 1])}))


def periods_and_intervals():
    breaks = pd.date_range("2020", periods=4, freq="D", tz="Europe/Berlin")
    return {
        "hours": pd.period_range("2020-01-01 05:00", periods=3, freq="2h", name="n"),
        "quarters": pd.PeriodIndex(["2020Q1", None, "2021Q3"], freq="Q-JAN"),
        "no periods": pd.PeriodIndex([], freq="M"),
        "numbers": pd.interval_range(0, 3, name="n"),
        "open": pd.IntervalIndex.from_tuples([(0.5, 1.5), None, (2.0, 9.0)], closed="neither"),
        "moments": pd.IntervalIndex.from_breaks(breaks, closed="left"),
        "spans": pd.interval_range(pd.Timedelta(0), periods=3, freq="h"),
        "bins": pd.CategoricalIndex(pd.cut([1, 2, 9], 3)),
        "two": pd.MultiIndex.from_arrays([pd.period_range("2020", periods=2, freq="Y"), pd.interval_range(0, 2)]),
    }


def test_periods_and_intervals_come_back_as_indexes_and_as_columns(path):
    indexes = periods_and_intervals()
    rows = {name: index for name, index in indexes.items() if len(index) == 3}
    frame = pd.DataFrame({name: pd.Series(index) for name, index in rows.items()}, index=indexes["hours"])
    restored = trip(path, indexes=indexes, frame=frame, turned=frame[["numbers"]].T)
    for name, index in indexes.items():
        pd.testing.assert_index_equal(restored["indexes"][name], index, exact=True)
        assert getattr(restored["indexes"][name], "dtype", None) == index.dtype
    pd.testing.assert_frame_equal(restored["frame"], frame)
    assert list(restored["frame"].dtypes) == list(frame.dtypes)
    pd.testing.assert_frame_equal(restored["turned"], frame[["numbers"]].T)


def test_arrays_of_pandas_come_back_by_themselves(path):
    made = frame()
    arrays = [made[name].array for name in made]
    arrays += [index.array for index in periods_and_intervals().values() if not isinstance(index, pd.MultiIndex)]
    arrays += [pd.date_range("2020", periods=3, freq="2h").array, pd.array([1.5, 2.5], dtype=np.dtype("f2"))]
    for array, again in zip(arrays, trip(path, arrays=arrays)["arrays"], strict=True):
        assert type(again) is type(array)
        pd.testing.assert_extension_array_equal(again, array)
        assert getattr(again, "freq", None) == getattr(array, "freq", None)


def test_single_periods_and_intervals_keep_the_types_of_their_ends(path):
    singles = [pd.Period("2020-03", "M"), pd.Interval(0, 1), pd.Interval(pd.Timestamp("2020"), pd.Timestamp("2021"), "both")]
    again = trip(path, singles=singles)["singles"]
    assert again == singles and [type(item.left) for item in again[1:]] == [int, pd.Timestamp]
    assert again[0].freq == singles[0].freq and again[2].closed == "both"


def test_columns_of_arrow_types_come_back(path):
    pa = pytest.importorskip("pyarrow")
    made = pd.DataFrame(
        {
            "i": pd.array([1, None, 3], "int64[pyarrow]"),
            "l": pd.array([[1], None, [2, 3]], pd.ArrowDtype(pa.list_(pa.int32()))),
            "s": pd.array(["a", None, "größe"], "string[python]"),
            "t": pd.array(["a", None, "größe"], "string[pyarrow]"),
        }
    )
    again = trip(path, made=made)["made"]
    pd.testing.assert_frame_equal(again, made)
    assert list(again.dtypes) == list(made.dtypes)


def test_objects_that_pandas_has_a_type_for_stay_objects(path):
    when = datetime.datetime(2024, 2, 29)
    columns = {
        "texts": ["a", None, "b"],
        "moments": [when, None, when],
        "periods": [pd.Period("2024-02"), None, None],
        "intervals": [pd.Interval(0, 1), None, pd.Interval(1, 2)],
        "numbers": [1, 2.5, None],
    }
    # With an index that has an item twice.
    index = ["x", "y", "x"]
    made = {name: pd.Series(items, index=index, dtype=object, name=("s", 1)) for name, items in columns.items()}
    made["frame"] = pd.DataFrame({name: pd.Series(items, dtype=object) for name, items in columns.items()})
    made["frame"].index = pd.Index(index)
    made["array"] = pd.arrays.NumpyExtensionArray(np.array(columns["texts"], dtype=object))
    again = trip(path, **made)
    for name, items in columns.items():
        pd.testing.assert_series_equal(again[name], made[name])
        assert again[name].dtype == object and again["frame"][name].dtype == object
        for restored in (again[name], again["frame"][name]):
            assert [(type(item), item) for item in restored] == [(type(item), item) for item in items], name
    assert again["frame"].index.tolist() == index
    assert type(again["array"]) is type(made["array"]) and again["array"].tolist() == columns["texts"]


def test_objects_that_are_sequences_stay_whole(path):
    made = pd.DataFrame({"pairs": [(1, 2), (3, 4)], "arrays": [np.arange(2), np.arange(2)], "dicts": [{"a": 1}, {}]})
    again = trip(path, made=made)["made"]
    assert again["pairs"].tolist() == [(1, 2), (3, 4)] and again["dicts"].tolist() == [{"a": 1}, {}]
    assert [list(item) for item in again["arrays"]] == [[0, 1], [0, 1]]


def test_time_zones_without_a_name_are_refused_and_offsets_kept(path):
    import datetime

    class Nowhere(datetime.tzinfo):
        def utcoffset(self, moment):
            return datetime.timedelta(0)

    offset = datetime.timezone(datetime.timedelta(hours=-3))
    made = pd.Series(pd.date_range("2020", periods=2, tz=offset))
    pd.testing.assert_series_equal(trip(path, made=made)["made"], made)
    with remanent.open(path) as pool, pytest.raises(remanent.UnknownType, match="time zone"):
        pool["x"] = pd.Series(pd.to_datetime(["2020-01-01"]).tz_localize(Nowhere()))


def test_half_characters_in_a_column_are_named(path):
    with remanent.create(path, "8MiB") as pool, pytest.raises(remanent.UnknownType, match=r"x\['s'\].* half a"):
        pool["x"] = pd.DataFrame({"s": pd.array(["a", "\ud800"], pd.StringDtype("python"))})


def test_single_moments_keep_their_unit(path):
    moments = [pd.Timestamp("2020-01-01").as_unit(unit) for unit in ("s", "ms", "us", "ns")]
    again = trip(path, moments=moments)["moments"]
    assert again == moments and [moment.unit for moment in again] == [moment.unit for moment in moments]


FREQUENCIES = {
    "months": lambda: pd.DateOffset(months=1),
    "holidays": lambda: pd.offsets.CustomBusinessDay(holidays=["2020-12-25"]),
    "weekmask": lambda: pd.offsets.CustomBusinessDay(weekmask="Mon Wed"),
    "easter": lambda: pd.offsets.Easter(),
    "hours": lambda: pd.offsets.BusinessHour(start="08:00"),
}


@pytest.mark.parametrize("frequency", FREQUENCIES.values(), ids=FREQUENCIES)
def test_a_frequency_that_no_text_tells_whole_is_refused_or_pickled(path, frequency):
    index = pd.date_range("2020-01-01", periods=5, freq=frequency())
    with remanent.create(path, "8MiB") as pool:
        for value in (index, pd.DataFrame({"a": range(5)}, index=index)):
            with pytest.raises(remanent.UnknownType, match="'x' has the frequency .*freq to None"):
                pool["x"] = value
            pool.persist(x=value, pickle=True)
            again = pool.restore(["x"], pickle=True)["x"]
            assert (again if isinstance(value, pd.Index) else again.index).freq == frequency()


@pytest.mark.parametrize("text", ["2W-TUE", "QE-JAN", "25h", "-1D", "C", "WOM-2TUE", "bh"])
def test_a_frequency_that_its_text_tells_comes_back(path, text):
    index = pd.date_range("2020-01-01", periods=3, freq=text)
    assert trip(path, x=index)["x"].freq == index.freq


def test_a_frequency_that_pandas_refuses_is_left_out_with_a_warning(path, monkeypatch):
    # As earlier versions wrote what a text does not tell.
    monkeypatch.setattr("remanent._pandas._frequency", lambda *_: ("text", "<DateOffset: months=1>"))
    index = pd.date_range("2020-01-01", periods=3, freq=pd.DateOffset(months=1))
    with remanent.create(path, "8MiB") as pool:
        pool["x"] = index
    with pytest.warns(UserWarning, match="'x' comes without a frequency.*months=1"):
        again = remanent.restore(path)["x"]
    assert again.freq is None and again.equals(index)


class Labelled(pd.DataFrame):
    """A frame that knows more than its columns."""

    _metadata: ClassVar[list[str]] = ["label"]

    @property
    def _constructor(self):
        return Labelled


class LabelledSeries(pd.Series):
    """A series that is more than its items."""


def test_subclasses_are_refused_or_pickled_and_lose_nothing(path):
    frame = Labelled({"a": [1, 2]}, index=["r", "s"])
    frame.label = "mine"
    with remanent.create(path, "8MiB") as pool:
        for value, kind in ((frame, "Labelled"), (LabelledSeries([1], index=["r"]), "LabelledSeries")):
            with pytest.raises(remanent.UnknownType, match=f"{kind}, which has no form"):
                pool["x"] = [value]
            pool.persist(x=value, pickle=True)
            again = pool.restore(pickle=True)["x"]
            assert type(again) is type(value) and again.index.tolist() == value.index.tolist()
        pool.persist(x=frame, pickle=True)
        assert pool.restore(pickle=True)["x"].label == "mine"


def test_that_labels_must_differ_is_kept(path):
    frame = pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=False)
    restored = trip(path, frame=frame, series=frame["a"], plain=pd.DataFrame({"a": [1]}))
    flags = {name: value.flags.allows_duplicate_labels for name, value in restored.items()}
    assert flags == {"frame": False, "series": False, "plain": True}


class OldStringDtype(pd.StringDtype):
    """As before pandas 2.3: without a choice of what stands for a missing one."""

    def __init__(self, storage=None):
        super().__init__(storage)


def test_strings_of_a_newer_pandas_are_refused_by_an_older_one_and_others_read(path, monkeypatch):
    made = {
        "new": pd.DataFrame({"s": pd.array(["a", None], pd.StringDtype("python", na_value=np.nan))}),
        "both": pd.Series(pd.array(["a", None], pd.StringDtype("python"))),
    }
    with remanent.create(path, "8MiB") as pool:
        pool.persist(made)
        monkeypatch.setattr(pd, "StringDtype", OldStringDtype)
        with pytest.raises(remanent.UnknownType, match=r"new.*pandas 2.3 or newer"):
            pool["new"]
        assert pool["both"].tolist() == ["a", pd.NA]


def test_what_pandas_cannot_make_is_no_damage(path, monkeypatch):
    def refuse(*args, **options):
        raise AttributeError("there is no such function")

    with remanent.create(path, "8MiB") as pool:
        pool["x"] = pd.DataFrame({"c": pd.Categorical(["a", "b"])})
        monkeypatch.setattr(pd.Categorical, "from_codes", refuse)
        with pytest.raises(remanent.UnknownType, match=rf"x\['c'\].*pandas {pd.__version__} \(AttributeError: there is no"):
            pool["x"]


def test_a_tree_whose_parts_are_missing_is_damage_and_not_the_fault_of_pandas(path):
    flattener = Flattener("x")
    table = ("table", 2, [(("text", "a"), flattener.flatten(np.arange(2)))])
    tree = ("attributed", table, "pandas", [("type", ("text", "frame"))])
    with remanent.create(path, "8MiB") as pool:
        pool._commit([("x", tree, flattener.buffers)], [], None, False, None)
        with pytest.raises(remanent.Corrupt, match="'index' is missing.*'x' are damaged"):
            pool["x"]


def damaged(path, whole, changed, **values):
    """The pool, in which some bytes have become others."""
    with remanent.create(path, "16MiB") as pool:
        pool.persist(values)
    content = path.read_bytes()
    assert content.count(whole) == 1 and len(whole) == len(changed)
    path.write_bytes(content.replace(whole, changed))
    return remanent.open(path, "r")


@pytest.mark.parametrize("storage", ["python", "pyarrow"])
def test_a_damaged_offset_of_strings_is_found(path, storage):
    if storage == "pyarrow":
        pytest.importorskip("pyarrow")
    texts = pd.array([f"text {number:07}" for number in range(40_000)], pd.StringDtype(storage))
    at = np.array([240_000, 240_012, 240_024])
    far = at + [0, 1 << 46, 0]
    with damaged(path, at.tobytes(), far.tobytes(), x=pd.DataFrame({"s": texts}), other=1) as pool:
        with pytest.raises(remanent.Corrupt, match=r"the strings in .*x\['s'\].* are damaged"):
            pool["x"]
        assert pool["other"] == 1


def test_damaged_places_of_categories_are_found(path):
    codes = np.arange(40_000, dtype="i4")
    column = pd.Categorical.from_codes(codes, np.arange(40_000) * 3)
    index = pd.MultiIndex([np.arange(40_000) * 7], [codes], names=["n"])
    for name, value, number in (("column", column, 20_000), ("index", index, 35_000)):
        whole = np.arange(number - 2, number + 3, dtype="i4")
        broken = whole.copy()
        broken[2] = 1_000_000
        place = path.with_name(name)
        with damaged(place, whole.tobytes(), broken.tobytes(), x=pd.Series(column) if name == "column" else value) as pool:
            with pytest.raises(remanent.Corrupt, match="the places of a dictionary"):
                pool["x"]
