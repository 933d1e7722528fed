"""Writes a pool with Python's values, for read.R beside this."""

import sys

import numpy as np

import remanent

try:
    import pandas as pd
except ImportError:
    pd = None

rows = np.array([(1, 2.5, b"ab", "grö"), (2, -1.0, b"c", "")], [("id", "i4"), ("at", "f8"), ("raw", "S3"), ("text", "U4")])
moments = np.array(["2024-02-29T12:00:00", "NaT", "1969-12-31T23:59:59.5"], "M8[ms]")
values = {
    "plain": np.arange(5.0),
    "flags": np.array([True, False]),
    "small": np.array([1, -2], "i1"),
    "middle": np.array([1, 65535], "u2"),
    "int32": np.array([1, 2**31 - 1], "i4"),
    "uint32": np.array([2**32 - 1], "u4"),
    "int64": np.array([1, 2**53], "i8"),
    "half": np.array([0.5, np.inf, 6e-8], "f2"),
    "single": np.array([0.1], "f4"),
    "big": np.array([1, 2], ">i4"),
    "bytes_array": np.array([0, 255], "u1"),
    "complex": np.array([1 + 2j], "c8"),
    "by_rows": np.arange(6.0).reshape(2, 3),
    "by_columns": np.asfortranarray(np.arange(6, dtype="i4").reshape(2, 3)),
    "cube": np.arange(24, dtype="i4").reshape(2, 3, 4),
    "large": np.arange(600_000.0).reshape(600, 1000),
    "moments": moments,
    "days": np.array(["2024-02-29"], "M8[D]"),
    "months": np.array(["1969-01", "2024-02"], "M8[M]"),
    "spans": np.array([1500, -1], "m8[ms]"),
    "strings": np.array(["größe", "a"]),
    "records": rows,
    "scalar": np.float64(2.5),
    "number": 7,
    "text": "größe",
    "blob": b"\x00\x01",
    "nothing": [None],
    "mapping": {"a": 1, "b": [True, None, "x"], "c": {"d": 2.5}},
    "tuple": (1, 2**40, 1 + 2j),
    "keys": {1: "one", 2.5: "two"},
    "masked": np.ma.MaskedArray(np.array([[1, 2, 3], [4, 5, 6]], "i4"), [[False, True, False], [False, False, False]]),
    "masked_records": np.ma.MaskedArray(
        np.array([(1, 2.5, 3), (4, 5.5, 6)], [("a", "i4"), ("b", "f8"), ("c", "u1")]), [(True, False, False), (False, True, True)]
    ),
    "nul_in_bytes": np.array([b"a\0b", b"c"], "S4"),
    "nul_in_text": np.array(["a\0b", "c"], "U4"),
    "padded": np.array([b"ab", b""], "S4"),
    "masked_bytes": np.ma.MaskedArray(np.array([1, 2], "u1"), [False, True]),
    "range": {"range": range(2, 9, 3)},
    "large_int": [2**80],
}
if pd is not None:
    values["frame"] = pd.DataFrame(
        {
            "number": [1.5, None],
            "whole": pd.array([1, None], "Int32"),
            "kind": pd.Categorical(["u", None], ["u", "v"]),
            "text": pd.array(["grö", None], "string"),
            "at": pd.to_datetime(["2024-02-29 12:00", None]).tz_localize("Europe/Berlin"),
            "object": pd.Series([{"a": 1}, "x"], index=["x", "y"], dtype=object),
        },
        index=["x", "y"],
    )
    cuts = pd.IntervalIndex.from_tuples([(0, 1), (1, 2)], closed="left")
    values["binned"] = pd.DataFrame({"bin": cuts, "kind": pd.Categorical.from_codes([1, -1], cuts)})
    values["pickled_index"] = pd.DataFrame(
        {"x": [1.0, 2.0]}, index=pd.date_range("2020", periods=2, freq=pd.DateOffset(months=1))
    )
    values["series"] = pd.Series([1.0, 2.0], index=["a", "b"])
    values["plain_series"] = pd.Series(np.array([1, 2], "i4"))

path = sys.argv[1]
with remanent.create(path, "64MiB") as pool:
    pool.persist(values, pickle=True)
