"""Arrow's tables and arrays come back as they were, over the pool's own memory where the layouts agree."""

import datetime
import subprocess
import sys

import numpy as np
import pytest

import remanent

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.ipc")

LARGE = 300_000

PLAIN = {
    **{str(kind): ([1, None, 3, 2], kind) for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.int64())},
    **{str(kind): ([1.5, None, float("nan"), 2], kind) for kind in (pa.float16(), pa.float32(), pa.float64())},
    "bool": ([True, None, False, True], pa.bool_()),
    "ts": ([datetime.datetime(2020, 1, 2), None, datetime.datetime(1960, 1, 1), None], pa.timestamp("us")),
    "tz": (
        [datetime.datetime(2020, 1, 2), None, datetime.datetime(1960, 1, 1), None],
        pa.timestamp("ns", "Asia/Tokyo"),
    ),
    "d32": ([datetime.date(2020, 1, 2), None, datetime.date(1, 1, 1), None], pa.date32()),
    "d64": ([datetime.date(2020, 1, 2), None, datetime.date(1960, 1, 1), None], pa.date64()),
    "t32": ([datetime.time(1, 2, 3), None, datetime.time(0), None], pa.time32("ms")),
    "t64": ([datetime.time(1, 2, 3, 4), None, datetime.time(0), None], pa.time64("us")),
    "delta": ([datetime.timedelta(1), None, datetime.timedelta(-1), None], pa.duration("s")),
    "text": (["a", None, "größe", ""], pa.string()),
    "large": (["a", None, "größe", ""], pa.large_string()),
    "view": (["a", None, "größe" * 9, ""], pa.string_view()),
    "bytes": ([b"\xff", None, b"", b"abc"], pa.binary()),
    "large bytes": ([b"\xff", None, b"", b"abc"], pa.large_binary()),
    "dictionary": (["a", None, "b", "a"], pa.dictionary(pa.int32(), pa.string())),
    "unsigned": (["a", None, "b", "a"], pa.dictionary(pa.uint8(), pa.large_string(), ordered=True)),
    "numbers": ([7, None, 9, 7], pa.dictionary(pa.int8(), pa.int64())),
}
FOREIGN = {
    "list": ([[1], None, [], [2, 3]], pa.list_(pa.int32())),
    "struct": ([{"a": 1}, None, {"a": None}, {"a": 2}], pa.struct([("a", pa.int8())])),
    "map": ([[("k", 1)], None, [], [("l", 2)]], pa.map_(pa.string(), pa.int64())),
    "decimal": ([1, None, 2, 3], pa.decimal128(9, 2)),
    "fixed": ([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "null": ([None] * 4, pa.null()),
    "nested dictionary": ([["a"], None, ["b", "a"], []], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
}


def columns(cases):
    return {name: pa.array(items, kind) for name, (items, kind) in cases.items()}


def trip(path, mode="c", **values):
    with remanent.create(path, "64MiB") as pool:
        pool.persist(values, checksum=True)
        pool.verify()
    return remanent.restore(path, mode=mode)


def same(got, wanted):
    assert type(got) is type(wanted) and got.equals(wanted)
    for each in got if isinstance(got, pa.RecordBatch) else ():
        each.validate(full=True)
    assert (
        got.schema.equals(wanted.schema, check_metadata=True) if hasattr(wanted, "schema") else got.type == wanted.type
    )
    got.validate(full=True)


def without_nan(table):
    return table.drop_columns([name for name in ("halffloat", "float", "double") if name in table.column_names])


@pytest.mark.parametrize("mode", ["c", "r"])
def test_a_table_with_a_column_of_each_kind_comes_back(path, mode):
    table = pa.table(columns({**PLAIN, **FOREIGN})).replace_schema_metadata({"made": "here"})
    again = trip(path, mode, table=table, part=table.slice(1, 2), empty=table.slice(0, 0), none=pa.table({}))
    for name, wanted in {"table": table, "part": table.slice(1, 2), "empty": table.slice(0, 0)}.items():
        same(without_nan(again[name]), without_nan(wanted))
        for column in ("halffloat", "float", "double"):
            assert str(again[name][column].to_pylist()) == str(wanted[column].to_pylist())
    same(again["none"], pa.table({}))


def test_arrays_batches_and_chunks_come_back_whole_and_sliced(path):
    arrays = columns(
        {**{name: case for name, case in PLAIN.items() if "float" not in name and name != "double"}, **FOREIGN}
    )
    sliced = {f"{name} sliced": pa.concat_arrays([array] * 5).slice(3, 11) for name, array in arrays.items()}
    chunked = {
        f"{name} chunked": pa.chunked_array([array, array.slice(1), array.slice(0, 0)])
        for name, array in arrays.items()
    }
    batch = pa.record_batch(arrays)
    values = {**arrays, **sliced, **chunked, "batch": batch, "no chunks": pa.chunked_array([], pa.int32())}
    for name, got in trip(path, **values).items():
        same(got, values[name])


def test_dictionaries_that_differ_between_chunks_are_made_one(path):
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a", None]).dictionary_encode()]
    table = pa.table({"d": pa.chunked_array(chunks)})
    assert trip(path, table=table)["table"].to_pylist() == table.to_pylist()


def test_no_buffer_of_a_large_table_is_copied(path):
    numbers = np.arange(LARGE)
    texts = [f"text {number}" for number in range(LARGE)]
    table = pa.table(
        {
            "n": numbers,
            "f": pa.array(numbers / 7, mask=numbers % 3 == 0),
            "s": pa.array(texts, pa.large_string()),
            "t": pa.array(texts),
            "d": pa.array([text[-1] for text in texts]).dictionary_encode(),
            "l": pa.array([[number] for number in range(LARGE)]),
        }
    )
    with remanent.create(path, "128MiB") as pool:
        pool.persist(table=table)
        before = pa.total_allocated_bytes()
        again = pool.restore(mode="r")["table"]
        made = pa.total_allocated_bytes() - before
        same(again, table)
        with remanent.open(path, "r") as reader:
            assert reader["table"].equals(table)
    # But for the offsets of 32 bits, which NumPy makes and Arrow does not count, and what pyarrow keeps of types.
    assert made < LARGE * 5, "only the strings with offsets of 32 bits are made anew"
    del pool
    assert again["n"].to_numpy()[-1] == LARGE - 1, "the table outlives its pool"


class StreamExporter:
    def __init__(self, value):
        self.value = value

    def __arrow_c_stream__(self, requested_schema=None):
        return self.value.__arrow_c_stream__(requested_schema)


class ArrayExporter:
    def __init__(self, value):
        self.value = value

    def __arrow_c_array__(self, requested_schema=None):
        return self.value.__arrow_c_array__(requested_schema)


def test_what_exports_arrow_comes_back_as_arrow(path):
    table = pa.table({"a": [1, 2], "s": ["x", None]})
    series = pa.chunked_array([[1, 2], [3]])
    batch = table.to_batches()[0]
    array = pa.array([1.5, None])
    again = trip(
        path,
        table=StreamExporter(table),
        series=StreamExporter(series),
        batch=ArrayExporter(batch),
        array=[ArrayExporter(array)],
    )
    same(again["table"], table)
    same(again["series"], series)
    same(again["batch"], batch)
    same(again["array"][0], array)


def test_frames_of_polars_come_back_as_tables(path):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {"a": [1, None], "s": ["x", "y"], "c": polars.Series(["p", "q"], dtype=polars.Categorical)}
    )
    again = trip(path, frame=frame, series=frame["a"])
    assert polars.from_arrow(again["frame"]).equals(frame) and again["series"].to_pylist() == [1, None]


def test_what_is_no_data_is_refused(path):
    with remanent.create(path, "8MiB") as pool:
        for value in (pa.scalar(1), pa.int8(), pa.schema([])):
            with pytest.raises(remanent.UnknownType, match=r"x\[0\]"):
                pool["x"] = [value]


WITHOUT = """
import sys
sys.modules["pyarrow"] = None
for name in sys.argv[2:]:
    sys.modules[name] = None
import remanent
found = remanent.restore(sys.argv[1], ["table"])["table"]
if "pandas" in sys.argv:
    assert type(found) is dict and found["i"].tolist() == [1, None, 3] and found["s"] == ["a", None, "b"], found
    assert found["d"] == ["x", "x", None] and found["n"].tolist() == [0.5, 1.5, 2.5]
else:
    import pandas
    assert found["i"].dtype == "Int64" and found["d"].dtype == "category" and found["s"].tolist()[0] == "a", found
try:
    remanent.restore(sys.argv[1], ["nested"])
except remanent.UnknownType as error:
    assert "pyarrow" in str(error) and "l" in str(error), error
else:
    raise SystemExit("a column that only Arrow can read was read")
"""


@pytest.mark.parametrize("missing", [(), ("pandas",)])
def test_without_pyarrow_the_plain_columns_are_read(path, missing):
    if not missing:
        pytest.importorskip("pandas")
    table = pa.table(
        {
            "i": pa.array([1, None, 3]),
            "s": ["a", None, "b"],
            "d": pa.array(["x", "x", None]).dictionary_encode(),
            "n": [0.5, 1.5, 2.5],
        }
    )
    with remanent.create(path, "8MiB") as pool:
        pool.persist(table=table, nested=pa.table({"l": [[1]]}))
    subprocess.run([sys.executable, "-c", WITHOUT, str(path), *missing], check=True)


def damaged(path, value, whole, changed):
    """The pool, in which some bytes have become others."""
    with remanent.create(path, "16MiB") as pool:
        pool.persist(x=value, other=1)
    content = path.read_bytes()
    assert content.count(whole.tobytes()) == 1 and whole.nbytes == changed.nbytes
    path.write_bytes(content.replace(whole.tobytes(), changed.tobytes()))
    return remanent.open(path, "r")


TEXTS = [f"text {number:07}" for number in range(40_000)]
DAMAGES = {
    "large strings": (lambda: pa.array(TEXTS, pa.large_string()), np.array([240_000, 240_012]), [0, 1 << 46]),
    "strings": (lambda: pa.array(TEXTS), np.array([240_000, 240_012]), [0, -(1 << 46)]),
    "bytes": (lambda: pa.array(TEXTS, pa.large_binary()), np.array([240_000, 240_012]), [0, 1 << 46]),
    "places": (lambda: pa.array(TEXTS).dictionary_encode(), np.arange(999, 1003, dtype="i4"), [0, 1 << 24, 0, 0]),
    "places below": (lambda: pa.array(TEXTS).dictionary_encode(), np.arange(999, 1003, dtype="i4"), [0, -2000, 0, 0]),
    "places and none": (
        lambda: pa.array([*TEXTS, None]).dictionary_encode(),
        np.arange(999, 1003, dtype="i4"),
        [0, 1 << 24, 0, 0],
    ),
    "lists": (
        lambda: pa.array([[number, number] for number in range(9000)], pa.list_(pa.int16())),
        np.arange(16_000, 16_008, 2, dtype="i4"),
        [0, 1 << 28, 0, 0],
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_offset_or_place_is_found_and_followed_by_nobody(path, damage):
    make, whole, change = damage
    with damaged(path, make(), whole, whole + np.array(change, whole.dtype)) as pool:
        with pytest.raises(remanent.Corrupt, match="'x' are damaged"):
            pool["x"]
        assert pool["other"] == 1


def test_tables_without_columns_keep_their_rows(path):
    table = pa.table({"a": [1, 2, 3]}, metadata={"made": "here"}).select([])
    batch = pa.record_batch({"a": [1, 2, 3, 4]}).select([])
    again = trip(path, table=table, batch=batch, none=pa.table({}))
    assert {name: each.num_rows for name, each in again.items()} == {"table": 3, "batch": 4, "none": 0}
    assert again["table"].schema.metadata == {b"made": b"here"} and type(again["batch"]) is pa.RecordBatch


def test_what_arrow_does_not_read_back_or_make_one_is_refused(path):
    nested = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", "b"]).dictionary_encode())
    chunks = [pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([text, None])) for text in "ab"]
    with remanent.create(path, "8MiB") as pool:
        for value in (nested, pa.table({"d": nested}), pa.ListArray.from_arrays([0, 3], nested)):
            with pytest.raises(remanent.UnknownType, match="dictionary<.*which Arrow does not read back"):
                pool["x"] = value
        with pytest.raises(remanent.UnknownType, match=r"x\['d'\].*dictionary<.*one array.*nulls"):
            pool["x"] = pa.table({"d": pa.chunked_array(chunks)})
        assert not pool
