"""What R has written, read as what Python has in its place. The trees are made here as the format page says."""

import subprocess
import sys

import numpy as np
import pytest

import remanent
from remanent._values import Flattener, has

NA_INTEGER = -(2**31)
NA_REAL = np.frombuffer((0x7FF00000000007A2).to_bytes(8, "little"), "f8")[0]


class R:
    """Makes R's values into trees."""

    def __init__(self):
        self.flattener = Flattener("x")

    def array(self, items, dtype, shape=None):
        data = np.asarray(items, dtype)
        number = self.flattener.buffer(data.view(np.uint8)) if data.size else self.flattener.buffer(b"")
        return ("array", data.dtype, shape or (data.size,), "F" if shape else "C", number)

    def integer(self, items, shape=None):
        data = np.array([NA_INTEGER if item is None else item for item in items], "i4")
        array = self.array(data, "i4", shape)
        return ("nullable", array, self.flattener.validity(data != NA_INTEGER)) if None in items else array

    def logical(self, items, shape=None, **attributes):
        return self.attributed(self.integer(items, shape), type=("text", "logical"), **attributes)

    def double(self, items, **attributes):
        array = self.array([NA_REAL if item is None else item for item in items], "f8")
        return self.attributed(array, **attributes) if attributes else array

    def character(self, *items):
        return self.flattener.strings(items)

    def factor(self, places, levels, is_ordered=False):
        places = self.array([NA_INTEGER if place is None else place for place in places], "i4")
        return ("dictionary", places, 1, self.character(*levels), is_ordered)

    def frame(self, rows, columns, **attributes):
        table = ("table", rows, [(("text", name), column) for name, column in columns.items()])
        return self.attributed(table, **attributes) if attributes else table

    def attributed(self, tree, **attributes):
        return ("attributed", tree, "r", [(name.replace("_", "."), value) for name, value in attributes.items()])


def written(path, make):
    """Makes a pool with what a function makes, and gives it back as Python reads it."""
    r = R()
    tree = make(r)
    pool = remanent.create(path, "8MiB")
    pool._commit([("x", tree, r.flattener.buffers)], [], None, False, None)
    pool.close()
    return remanent.restore(path)["x"]


def read(path, make):
    value = written(path, make)
    path.unlink()
    return value


def test_vectors(path):
    assert read(path, lambda r: ("nothing",)) is None
    doubles = read(path, lambda r: r.double([1.5, None, float("inf")]))
    assert doubles.dtype == "f8" and doubles[0] == 1.5 and np.isnan(doubles[1])
    assert read(path, lambda r: r.array([1j], "c16")).tolist() == [1j]
    assert read(path, lambda r: r.array([1, 255], "u1")).dtype == np.uint8
    assert read(path, lambda r: r.integer([1, 2])).dtype == np.int32
    integers = read(path, lambda r: r.integer([1, None]))
    assert type(integers) is np.ma.MaskedArray and integers.tolist() == [1, None]
    assert read(path, lambda r: r.double([1, 2], names=r.character("a", "b"))).tolist() == [1, 2]


def test_logical_vectors(path):
    plain = read(path, lambda r: r.logical([1, 0]))
    assert type(plain) is np.ndarray and plain.dtype == bool and plain.tolist() == [True, False]
    missing = read(path, lambda r: r.logical([1, None, 0]))
    assert missing.dtype == bool and missing.tolist() == [True, None, False]
    grid = read(path, lambda r: r.logical([1, None, 0, 0, 1, 1], (2, 3)))
    assert grid.tolist() == [[True, False, True], [None, False, True]]


def test_matrices_are_in_fortran_order(path):
    matrix = read(path, lambda r: r.array(range(6), "f8", (2, 3)))
    assert matrix.flags.f_contiguous and matrix.tolist() == [[0, 2, 4], [1, 3, 5]]
    missing = read(path, lambda r: r.integer([0, None, 2, 3, 4, 5], (2, 3)))
    assert missing.tolist() == [[0, 2, 4], [None, 3, 5]]


def test_character_vectors(path):
    assert read(path, lambda r: r.character("a", None, "größe")) == ["a", None, "größe"]

    def repeated(r):
        tree = ("dictionary", r.array([1, 2, 0, 1], "i4"), 1, r.character("a", "b"), False)
        return r.attributed(tree, type=("text", "character"))

    assert read(path, repeated) == ["a", "b", None, "a"]


def test_factors(path):
    pd = pytest.importorskip("pandas")
    factor = read(path, lambda r: r.factor([2, None, 1, 2], ["lo", "hi"], True))
    assert isinstance(factor, pd.Categorical) and factor.ordered and list(factor.categories) == ["lo", "hi"]
    assert factor.astype(object).tolist()[::2] == ["hi", "lo"] and factor.isna().tolist() == [False, True, False, False]
    classed = read(path, lambda r: r.attributed(r.factor([1], ["a"]), **{"class": r.character("factor")}))
    assert isinstance(classed, pd.Categorical)
    assert read(path, lambda r: r.factor([2, 1, None], ["a", None])) == [None, "a", None]
    with pytest.raises(remanent.Corrupt, match="places"):
        read(path, lambda r: r.factor([3], ["a", "b"]))


def test_times(path):
    def of(*classes, **attributes):
        return lambda r: r.double(
            attributes["items"],
            **{"class": r.character(*classes)},
            **{name: r.character(value) for name, value in attributes.items() if name != "items"},
        )

    dates = read(path, of("Date", items=[18262, None, -0.5]))
    assert dates.dtype == "M8[D]" and dates.astype(str).tolist() == ["2020-01-01", "NaT", "1969-12-31"]
    moments = read(path, of("POSIXct", "POSIXt", items=[1577836800.25, None]))
    assert moments.dtype == "M8[us]" and moments.astype(str).tolist() == ["2020-01-01T00:00:00.250000", "NaT"]
    for unit, us in {
        "secs": 10**6,
        "mins": 6 * 10**7,
        "hours": 36 * 10**8,
        "days": 864 * 10**8,
        "weeks": 6048 * 10**8,
    }.items():
        times = read(path, of("difftime", items=[1.5, None], units=unit))
        assert times.dtype == "m8[us]" and times[0] == np.timedelta64(us * 3 // 2, "us") and np.isnat(times[1])
    whole = read(path, lambda r: r.attributed(r.integer([18262, None]), **{"class": r.character("Date")}))
    assert whole.astype(str).tolist() == ["2020-01-01", "NaT"]
    with pytest.raises(remanent.UnknownType, match="beyond"):
        read(path, of("POSIXct", items=[1e300]))


def test_time_zones_are_kept_where_pandas_is(path):
    pd = pytest.importorskip("pandas")

    def zoned(zone):
        return lambda r: r.double([0, None], **{"class": r.character("POSIXct", "POSIXt"), "tzone": r.character(zone)})

    moments = read(path, zoned("Asia/Tokyo"))
    assert str(moments.dtype) == "datetime64[us, Asia/Tokyo]" and moments[0].hour == 9 and moments[1] is pd.NaT
    assert str(read(path, zoned("No/Where")).tz) == "UTC"
    assert read(path, zoned("")).dtype == "M8[us]"


def test_large_integers(path):
    def of(items):
        return lambda r: r.attributed(r.array(items, "i8"), **{"class": r.character("integer64")})

    assert type(read(path, of([2**62, 5]))) is np.ndarray
    assert read(path, of([2**62, -(2**63)])).tolist() == [2**62, None]


def test_lists(path):
    pair = [(("text", "a"), ("int", 1)), (("text", "b"), ("nothing",))]
    assert read(path, lambda r: ("mapping", pair)) == {"a": 1, "b": None}
    items = ("list", [("int", 1), ("text", "x")])
    assert read(path, lambda r: items) == [1, "x"]

    def named(*names):
        return lambda r: r.attributed(items, names=r.character(*names), **{"class": r.character("thing")})

    assert read(path, named("a", "b")) == {"a": 1, "b": "x"}
    assert read(path, named("a", "a")) == [1, "x"] and read(path, named("a", "")) == [1, "x"]


def frame(r, **attributes):
    columns = {
        "f": r.double([1.5, None, 3]),
        "i": r.integer([1, None, 3]),
        "l": r.logical([1, None, 0]),
        "s": r.character("a", None, "c"),
        "g": r.factor([1, None, 2], ["lo", "hi"]),
        "d": r.double([0, None, 1], **{"class": r.character("Date")}),
        "z": r.double([0, None, 1], **{"class": r.character("POSIXct", "POSIXt"), "tzone": r.character("UTC")}),
        "b": r.attributed(r.array([1, -(2**63), 3], "i8"), **{"class": r.character("integer64")}),
        "v": ("list", [("int", 1), ("nothing",), ("text", "x")]),
        "m": r.array(range(6), "f8", (3, 2)),
    }
    return r.frame(3, columns, **attributes)


def test_frames(path):
    pd = pytest.importorskip("pandas")
    found = read(path, frame)
    assert list(found) == list("filsgdzbvm") and isinstance(found.index, pd.RangeIndex)
    wanted = [
        "float64",
        "Int32",
        "boolean",
        "str",
        "category",
        "datetime64",
        "datetime64[us, UTC]",
        "Int64",
        "object",
        "object",
    ]
    assert all(str(dtype).startswith(name) for dtype, name in zip(found.dtypes, wanted, strict=True)), found.dtypes
    assert found.iloc[1, :8].isna().all() and not found.iloc[0].isna().any()
    assert found["v"].tolist() == [1, None, "x"] and found["m"][2].tolist() == [2, 5]
    named = read(path, lambda r: frame(r, row_names=r.character("x", "y", "z"), **{"class": r.character("data.frame")}))
    assert named.index.tolist() == ["x", "y", "z"] and named.loc["z", "i"] == 3
    empty = read(path, lambda r: r.frame(2, {}))
    assert empty.shape == (2, 0)


def test_what_only_r_can_read_is_named(path):
    def model(r):
        call = ("foreign", "r.serialize-3", r.flattener.buffer(b"B\n"), [])
        return ("mapping", [(("text", "coefficients"), r.double([1])), (("text", "call"), call)])

    with pytest.raises(remanent.UnknownType, match=r"x\['call'\].*r.serialize-3.*R"):
        read(path, model)


def test_parts_that_only_r_can_read_hide_nothing_else(path):
    def model(r):
        part = r.attributed(("nothing",), **{"r:serialised": ("int", 0)})
        items = ("list", [r.double([1]), part])
        stream = ("foreign", "r.serialize-3", r.flattener.buffer(b"B\n"), [])
        names = r.character("coefficients", "call")
        return r.attributed(items, names=names, **{"class": r.character("lm"), "r:serialised": stream})

    with pytest.warns(UserWarning, match=r"x\['call'\].*R's alone"):
        found = read(path, model)
    assert found["coefficients"].tolist() == [1] and found["call"] is None


def test_strings_of_other_encodings(path):
    def marked(r):
        tree = r.flattener.strings([b"gr\xc3\xb6", b"gr\xf6", None], is_text=False)
        return r.attributed(tree, **{"r:encoding": r.array([1, 2, 1], "u1")})

    assert read(path, marked) == ["grö", b"gr\xf6", None]


WITHOUT = """
import sys
sys.modules["pandas"] = None
import remanent
found = remanent.restore(sys.argv[1])["x"]
assert type(found) is dict and list(found) == list("filsgdzbvm"), found
assert found["g"] == ["lo", None, "hi"] and found["i"].tolist() == [1, None, 3] and found["z"].dtype == "M8[us]", found
"""


def test_frames_are_dicts_where_pandas_is_not(path):
    written(path, frame)
    subprocess.run([sys.executable, "-c", WITHOUT, str(path)], check=True)


def test_trees_that_do_not_fit_are_refused_and_end_nothing(path):
    trees = [
        ("attributed", ("int", 1), "python", []),
        ("attributed", ("int", 1), "python", [("type", ("text", "set"))]),
        ("attributed", ("text", "x"), "python", [("type", ("text", "date"))]),
        ("attributed", ("nothing",), "numpy", [("scalar", ("bool", True))]),
        ("attributed", ("int", 1), "dlpack", []),
        ("mapping", [(("list", []), ("int", 1))]),
        ("mapping", [(("int", 1), ("int", 1)), (("bool", True), ("int", 2))]),
        ("attributed", ("list", []), "later", [("x", ("int", 1))]),
    ]
    if has("pandas"):
        trees.insert(0, ("attributed", ("int", 1), "pandas", [("type", ("text", "frame"))]))
    if has("pyarrow"):
        trees.insert(0, ("attributed", ("int", 1), "arrow", [("type", ("text", "table"))]))
    for tree in trees[:-1]:
        with pytest.raises((remanent.Corrupt, remanent.UnknownType), match="'x'"):
            read(path, lambda r, tree=tree: tree)
        path.unlink()
    assert read(path, lambda r: trees[-1]) == []
