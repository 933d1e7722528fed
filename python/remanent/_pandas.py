"""DataFrames, Series and Indexes of pandas as trees and back.

A frame is a table of columns, which any language can read. What pandas knows besides, its indexes, time zones and extension
types, stands beside the nodes it belongs to, as attributes of the owner `pandas`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ._values import Flattener, Rebuilder, Tree
from .errors import UnknownType

if TYPE_CHECKING:
    from collections.abc import Callable

Attributes = list[tuple[str, Tree]]


def flatten(flattener: Flattener, value: Any) -> Tree | None:
    """The tree of a frame, a series, an index or a single value of pandas; none for anything else."""
    if isinstance(value, pd.DataFrame):
        return _frame(flattener, value)
    if isinstance(value, pd.Series):
        attributes: Attributes = [
            ("type", ("text", "series")),
            ("name", flattener.flatten(value.name)),
            ("index", _index(flattener, value.index)),
            ("attrs", flattener.flatten(dict(value.attrs))),
        ]
        return ("attributed", _column(flattener, value), "pandas", attributes)
    if isinstance(value, pd.Index):
        return _index(flattener, value)
    if value is pd.NA or value is pd.NaT:
        return ("attributed", ("nothing",), "pandas", [("type", ("text", "NA" if value is pd.NA else "NaT"))])
    if isinstance(value, (pd.Timestamp, pd.Timedelta)):
        return ("attributed", _column(flattener, pd.Series([value])), "pandas", [("type", ("text", "single"))])
    return None


def _frame(flattener: Flattener, frame: pd.DataFrame) -> Tree:
    columns = []
    for number, name in enumerate(frame.columns):
        column = frame.iloc[:, number]
        tree = flattener.inside(f"[{name!r}]", lambda column=column: _column(flattener, column))
        columns.append((flattener.flatten(name), tree))
    attributes: Attributes = [
        ("type", ("text", "frame")),
        ("index", _index(flattener, frame.index)),
        ("columns", _index(flattener, frame.columns)),
        ("attrs", flattener.flatten(dict(frame.attrs))),
    ]
    return ("attributed", ("table", len(frame), columns), "pandas", attributes)


def _column(flattener: Flattener, series: pd.Series) -> Tree:
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = flattener.flatten(np.ascontiguousarray(series.cat.codes.to_numpy()))
        # A range is made into its numbers, which readers that know nothing of pandas need.
        categories = dtype.categories
        if isinstance(categories, pd.RangeIndex):
            categories = pd.Index(categories.to_numpy())
        tree: Tree = ("dictionary", codes, 0, _index(flattener, categories), bool(dtype.ordered))
        return ("attributed", tree, "pandas", [("type", ("text", "categorical"))])
    if isinstance(dtype, pd.DatetimeTZDtype):
        moments = series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        zone = [("type", ("text", "zoned")), ("zone", ("text", str(dtype.tz)))]
        return ("attributed", flattener.flatten(moments), "pandas", zone)
    if isinstance(dtype, pd.StringDtype):
        missing = "nan" if dtype.na_value is np.nan else "NA"
        how = [("type", ("text", "string")), ("storage", ("text", dtype.storage)), ("missing", ("text", missing))]
        return ("attributed", _strings(flattener, series), "pandas", how)
    if isinstance(dtype, np.dtype) and dtype != object:
        return flattener.flatten(series.to_numpy())
    if isinstance(dtype, np.dtype):
        return ("attributed", flattener.flatten(series.tolist()), "pandas", [("type", ("text", "object"))])
    if hasattr(series.array, "_mask"):
        items = flattener.flatten(np.ascontiguousarray(series.array._data))
        validity = flattener.buffer(np.packbits(~series.array._mask, bitorder="little"))
        return ("attributed", ("nullable", items, validity), "pandas", [("type", ("text", "masked"))])
    raise flattener.refuse(f"has the extension type {dtype}, which this version does not keep")


def _strings(flattener: Flattener, series: pd.Series) -> Tree:
    is_missing = series.isna().to_numpy()
    items = series.to_numpy(dtype=object)
    encoded = [b"" if missing else item.encode() for item, missing in zip(items, is_missing)]
    return flattener.strings(encoded, is_missing.tolist(), True)


def _index(flattener: Flattener, index: pd.Index) -> Tree:
    if isinstance(index, pd.MultiIndex):
        levels = [_index(flattener, level) for level in index.levels]
        codes = [flattener.flatten(np.ascontiguousarray(code)) for code in index.codes]
        names = flattener.flatten(list(index.names))
        attributes = [("type", ("text", "multi_index")), ("levels", ("list", levels)), ("names", names)]
        return ("attributed", ("list", codes), "pandas", attributes)
    name = flattener.flatten(index.name)
    if isinstance(index, pd.RangeIndex):
        steps = ("tuple", [("int", number) for number in (index.start, index.stop, index.step)])
        return ("attributed", steps, "pandas", [("type", ("text", "range_index")), ("name", name)])
    column = _column(flattener, pd.Series(index, pd.RangeIndex(len(index)), index.dtype))
    frequency = getattr(index, "freqstr", None)
    frequency_node: Tree = ("nothing",) if frequency is None else ("text", frequency)
    return ("attributed", column, "pandas", [("type", ("text", "index")), ("name", name), ("freq", frequency_node)])


def rebuild(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    """The value of a tree with pandas' attributes."""
    kind = rebuilder.rebuild(attributes["type"])
    make = _KINDS.get(kind)
    if make is None:
        raise UnknownType(f"a {kind!r} of pandas is unknown to this version")
    return make(rebuilder, tree, attributes)


def _to_frame(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.DataFrame:
    index = rebuilder.rebuild(attributes["index"])
    columns = {number: _to_column(rebuilder, column) for number, (_, column) in enumerate(tree[2])}
    frame = pd.DataFrame(columns, index=index, copy=False)
    frame.columns = rebuilder.rebuild(attributes["columns"])
    frame.attrs = rebuilder.rebuild(attributes["attrs"])
    return frame


def _to_series(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.Series:
    index, name = rebuilder.rebuild(attributes["index"]), rebuilder.rebuild(attributes["name"])
    series = pd.Series(_to_column(rebuilder, tree), index=index, name=name, copy=False)
    series.attrs = rebuilder.rebuild(attributes["attrs"])
    return series


def _to_column(rebuilder: Rebuilder, tree: Tree) -> Any:
    column = rebuilder.rebuild(tree)
    # Else pandas would make strings of objects that happen to be some.
    is_object = isinstance(column, np.ndarray) and column.dtype == object
    return pd.arrays.NumpyExtensionArray(column) if is_object else column


def _to_categorical(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.Categorical:
    _, codes, first, values, is_ordered = tree
    dtype = pd.CategoricalDtype(rebuilder.rebuild(values), is_ordered)
    places = rebuilder.rebuild(codes)
    return pd.Categorical.from_codes(np.maximum(places, first - 1) - first if first else places, dtype=dtype)


def _to_zoned(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    zone = rebuilder.rebuild(attributes["zone"])
    return pd.DatetimeIndex(rebuilder.rebuild(tree), copy=False).tz_localize("UTC").tz_convert(zone).array


def _to_string(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    missing = np.nan if rebuilder.rebuild(attributes["missing"]) == "nan" else pd.NA
    dtype = pd.StringDtype(rebuilder.rebuild(attributes["storage"]), na_value=missing)
    return pd.array(rebuilder.rebuild(tree), dtype=dtype)


def _to_masked(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    _, items, validity = tree
    values = rebuilder.rebuild(items)
    mask = rebuilder.is_missing(validity, len(values))
    if values.dtype == bool:
        return pd.arrays.BooleanArray(values, mask)
    return (pd.arrays.FloatingArray if values.dtype.kind == "f" else pd.arrays.IntegerArray)(values, mask)


def _to_object(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    items = rebuilder.rebuild(tree)
    column = np.empty(len(items), object)
    column[:] = items
    return column


def _to_range_index(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.RangeIndex:
    return pd.RangeIndex(*rebuilder.rebuild(tree), name=rebuilder.rebuild(attributes["name"]))


def _to_index(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.Index:
    frequency = rebuilder.rebuild(attributes["freq"])
    column = rebuilder.rebuild(tree)
    dtype = object if column.dtype == object else None
    index = pd.Index(column, dtype=dtype, name=rebuilder.rebuild(attributes["name"]), copy=False)
    if frequency is not None:
        index.freq = frequency
    return index


def _to_multi_index(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.MultiIndex:
    levels, names = rebuilder.rebuild(attributes["levels"]), rebuilder.rebuild(attributes["names"])
    return pd.MultiIndex(levels, rebuilder.rebuild(tree), names=names)


def _to_missing(value: Any) -> Callable[[Rebuilder, Tree, dict[str, Tree]], Any]:
    return lambda rebuilder, tree, attributes: value


_KINDS: dict[str, Callable[[Rebuilder, Tree, dict[str, Tree]], Any]] = {
    "frame": _to_frame,
    "series": _to_series,
    "categorical": _to_categorical,
    "zoned": _to_zoned,
    "string": _to_string,
    "masked": _to_masked,
    "object": _to_object,
    "range_index": _to_range_index,
    "index": _to_index,
    "multi_index": _to_multi_index,
    "single": lambda rebuilder, tree, attributes: pd.Series(_to_column(rebuilder, tree))[0],
    "NA": _to_missing(pd.NA),
    "NaT": _to_missing(pd.NaT),
}
