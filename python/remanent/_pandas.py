"""DataFrames, Series and Indexes of pandas as trees and back.

A frame is a table of columns, which any language can read. What pandas knows besides, its indexes, time zones and
extension types, stands beside the nodes it belongs to, as attributes of the owner `pandas`.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

from ._values import has, library_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._values import Flattener, Rebuilder, Tree

Attributes = list[tuple[str, "Tree"]]


def flatten(flattener: Flattener, value: Any) -> Tree | None:
    """The tree of a frame, a series, an index or a single value of pandas; none for anything else.

    A subclass is something else: what it has besides would be lost.
    """
    if type(value) is pd.DataFrame:
        return _frame(flattener, value)
    if type(value) is pd.Series:
        attributes: Attributes = [
            ("type", ("text", "series")),
            ("name", flattener.flatten(value.name)),
            ("index", _index(flattener, value.index)),
            ("attrs", flattener.flatten(dict(value.attrs))),
            *_flags(value),
        ]
        return ("attributed", _column(flattener, value), "pandas", attributes)
    if type(value) in _INDEXES:
        return _index(flattener, value)
    if value is pd.NA or value is pd.NaT:
        return ("attributed", ("nothing",), "pandas", [("type", ("text", "NA" if value is pd.NA else "NaT"))])
    if type(value) in (pd.Timestamp, pd.Timedelta):
        several = pd.DatetimeIndex if type(value) is pd.Timestamp else pd.TimedeltaIndex
        # Before pandas 3 it becomes one of nanoseconds otherwise.
        column = _column(flattener, pd.Series(several([value]).as_unit(value.unit)))
        return ("attributed", column, "pandas", [("type", ("text", "single"))])
    if type(value) is pd.Period:
        return ("attributed", _column(flattener, pd.Series([value])), "pandas", [("type", ("text", "single"))])
    if type(value) is pd.Interval:
        ends = ("tuple", [flattener.part("left", value.left), flattener.part("right", value.right)])
        how = [("type", ("text", "single_interval")), ("closed", ("text", value.closed))]
        return ("attributed", ends, "pandas", how)
    if isinstance(value, pd.api.extensions.ExtensionArray) and library_of(type(value)) == "pandas" and value.ndim == 1:
        how = [("type", ("text", "array")), ("freq", _frequency(flattener, value))]
        return ("attributed", _column(flattener, _series(value)), "pandas", how)
    return None


def _frame(flattener: Flattener, frame: pd.DataFrame) -> Tree:
    columns = []
    for number, name in enumerate(frame.columns):
        column = frame.iloc[:, number]
        columns.append((flattener.part(name, name), flattener.inside(name, partial(_own_column, flattener, column))))
    attributes: Attributes = [
        ("type", ("text", "frame")),
        ("index", flattener.or_pickled(frame.index, lambda: _index(flattener, frame.index))),
        ("columns", flattener.or_pickled(frame.columns, lambda: _index(flattener, frame.columns))),
        ("attrs", flattener.flatten(dict(frame.attrs))),
        *_flags(frame),
    ]
    return ("attributed", ("table", len(frame), columns), "pandas", attributes)


def _flags(value: pd.DataFrame | pd.Series) -> Attributes:
    return [] if value.flags.allows_duplicate_labels else [("unique_labels", ("bool", True))]


def _own_column(flattener: Flattener, series: pd.Series) -> Tree:
    """A column; if it must be pickled, then alone, so that all can read the others."""
    return flattener.or_pickled(series.array, lambda: _column(flattener, series))


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
        zone = [("type", ("text", "zoned")), ("zone", ("text", _zone(flattener, dtype)))]
        return ("attributed", flattener.flatten(moments), "pandas", zone)
    if isinstance(dtype, pd.StringDtype):
        missing = "nan" if dtype.na_value is np.nan else "NA"
        how = [("type", ("text", "string")), ("storage", ("text", dtype.storage)), ("missing", ("text", missing))]
        return ("attributed", _strings(flattener, series), "pandas", how)
    if isinstance(dtype, pd.PeriodDtype):
        frequency = [("type", ("text", "period")), ("freq", ("text", _period(flattener, dtype)))]
        return ("attributed", flattener.flatten(series.array.view("i8")), "pandas", frequency)
    if isinstance(dtype, pd.IntervalDtype):
        ends = (("left", series.array.left), ("right", series.array.right))
        columns = [(("text", name), _column(flattener, pd.Series(end, copy=False))) for name, end in ends]
        closed = [("type", ("text", "interval")), ("closed", ("text", dtype.closed))]
        return ("attributed", ("table", len(series), columns), "pandas", closed)
    if isinstance(dtype, pd.ArrowDtype):
        from . import _arrow

        return (
            "attributed",
            _arrow.flatten(flattener, series.array.__arrow_array__()),
            "pandas",
            [("type", ("text", "arrow"))],
        )
    if isinstance(dtype, np.dtype) and dtype != object:
        return flattener.flatten(series.to_numpy())
    if isinstance(dtype, np.dtype):
        return ("attributed", flattener.flatten(series.tolist()), "pandas", [("type", ("text", "object"))])
    if isinstance(series.array, (pd.arrays.IntegerArray, pd.arrays.FloatingArray, pd.arrays.BooleanArray)):
        items = flattener.flatten(np.ascontiguousarray(series.array._data))
        tree = ("nullable", items, flattener.validity(~series.array._mask))
        return ("attributed", tree, "pandas", [("type", ("text", "masked"))])
    raise flattener.refuse(f"has the extension type {dtype}, which only a pickle can keep: persist(..., pickle=True)")


def _period(flattener: Flattener, dtype: pd.PeriodDtype) -> str:
    """The frequency of periods, which counts them from 1970 on; as their type spells it, and not as moments do."""
    text: str = dtype.name.removeprefix("period[").removesuffix("]")
    if pd.PeriodDtype(text) != dtype:
        raise flattener.refuse(f"has periods of {dtype.freq!r}, which {text!r} does not tell whole: persist(..., pickle=True)")
    return text


def _zone(flattener: Flattener, dtype: pd.DatetimeTZDtype) -> str:
    zone = str(dtype.tz)
    try:
        is_kept = pd.DatetimeTZDtype(dtype.unit, zone) == dtype
    except Exception:  # each library of time zones raises its own
        is_kept = False
    if not is_kept:
        raise flattener.refuse(f"has the time zone {dtype.tz!r}, which has no name that can be kept")
    return zone


def _strings(flattener: Flattener, series: pd.Series) -> Tree:
    if series.dtype.storage == "pyarrow":
        from . import _arrow

        return _arrow.strings(flattener, series.array.__arrow_array__())
    is_missing = series.isna().to_numpy()
    items = series.to_numpy(dtype=object)
    return flattener.strings(None if missing else item for item, missing in zip(items, is_missing, strict=True))


def _index(flattener: Flattener, index: pd.Index) -> Tree:
    if type(index) not in _INDEXES:
        raise flattener.refuse(f"has a {type(index).__qualname__}, which only a pickle can keep: persist(..., pickle=True)")
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
    frequency = _frequency(flattener, index)
    return ("attributed", column, "pandas", [("type", ("text", "index")), ("name", name), ("freq", frequency)])


def _frequency(flattener: Flattener, moments: Any) -> Tree:
    """The frequency of moments as a text; that of periods is a part of their type."""
    frequency = getattr(moments, "freq", None)
    if frequency is None or isinstance(moments.dtype, pd.PeriodDtype):
        return ("nothing",)
    text: str = frequency.freqstr
    try:
        is_kept = to_offset(text) == frequency
    except ValueError:
        is_kept = False
    if not is_kept:
        # Holidays, hours and such are not in the text.
        reason = f"has the frequency {frequency!r}, which {text!r} does not tell whole"
        raise flattener.refuse(f"{reason}: set its freq to None, or persist(..., pickle=True)")
    return ("text", text)


_INDEXES = {
    pd.Index,
    pd.RangeIndex,
    pd.DatetimeIndex,
    pd.TimedeltaIndex,
    pd.PeriodIndex,
    pd.IntervalIndex,
    pd.CategoricalIndex,
    pd.MultiIndex,
}


def rebuild(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    """The value of a tree with pandas' attributes."""
    kind = rebuilder.rebuild(attributes["type"])
    make = _KINDS.get(kind)
    if make is None:
        raise rebuilder.refuse(f"is a {kind!r} of pandas, which this version cannot read")
    return make(rebuilder, tree, attributes)


def plain_frame(rebuilder: Rebuilder, rows: int, columns: list[tuple[Tree, Tree]], index: Any = None) -> pd.DataFrame:
    """The frame of a table that says nothing of pandas: another language has written it."""
    names = [rebuilder.rebuild(name) for name, _ in columns]
    contents = {number: as_column(rebuilder.part(names[number], tree)) for number, (_, tree) in enumerate(columns)}
    frame = pd.DataFrame(contents, index=pd.RangeIndex(rows) if index is None else index, copy=False)
    frame.columns = pd.Index(names)
    return frame


def as_column(value: Any) -> Any:
    """What a frame takes as a column: pandas' own form of what is missing, and an object for what has no form."""
    if isinstance(value, np.ma.MaskedArray):
        return _masked_column(value)
    if isinstance(value, list) and all(item is None or isinstance(item, str) for item in value):
        return _plain_strings(value)
    is_single = isinstance(value, np.ndarray) and value.ndim == 1 or isinstance(value, (pd.Categorical, pd.Index))
    return value if is_single else pd.arrays.NumpyExtensionArray(_objects(list(value)))


def _plain_strings(items: list[str | None]) -> Any:
    try:
        return pd.array(items, dtype=pd.StringDtype(na_value=np.nan))
    except TypeError:  # before pandas 2.3
        return pd.arrays.NumpyExtensionArray(_objects(items))


def _masked_column(value: np.ma.MaskedArray) -> Any:
    mask, items = np.ma.getmaskarray(value), np.ma.getdata(value)
    if items.dtype.kind in "iufb" and items.dtype.isnative and items.ndim == 1 and items.dtype.itemsize <= 8:
        return _with_mask(items, mask)
    if items.dtype.kind in "mM" and items.ndim == 1:
        return np.where(mask, np.array("NaT", items.dtype), items)
    return pd.arrays.NumpyExtensionArray(_objects(value.tolist()))


def plain_categorical(rebuilder: Rebuilder, indices: Tree, first: int, values: Tree, is_ordered: bool) -> Any:
    """The categorical of a dictionary that says nothing of pandas; the items themselves, where pandas can have none."""
    places = rebuilder.places_from_0(indices, first)
    categories = pd.Index(as_column(rebuilder.rebuild(values)), copy=False)
    if categories.hasnans or not categories.is_unique:
        return rebuilder.looked_up(indices, first, values)
    if places.size and places.max() >= len(categories):
        raise rebuilder.damaged("the places of a dictionary")
    # pandas has one place for what is missing.
    places = np.maximum(places, -1) if places.dtype.kind == "i" else places
    return pd.Categorical.from_codes(places, dtype=pd.CategoricalDtype(categories, is_ordered))


def _to_frame(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.DataFrame:
    index = rebuilder.rebuild(attributes["index"])
    # Errors name a column as its user does, where that is plain to see.
    steps = [name[1] if name[0] in ("text", "int") else number for number, (name, _) in enumerate(tree[2])]
    columns = {number: _to_column(rebuilder, column, steps[number]) for number, (_, column) in enumerate(tree[2])}
    columns = {number: _series(column, index) if _is_of_objects(column) else column for number, column in columns.items()}
    frame = pd.DataFrame(columns, index=index, copy=False)
    frame.columns = rebuilder.rebuild(attributes["columns"])
    frame.attrs = rebuilder.rebuild(attributes["attrs"])
    frame.flags.allows_duplicate_labels = "unique_labels" not in attributes
    return frame


def _to_series(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.Series:
    index, name = rebuilder.rebuild(attributes["index"]), rebuilder.rebuild(attributes["name"])
    series = _series(_to_column(rebuilder, tree), index)
    series.name = name
    series.attrs = rebuilder.rebuild(attributes["attrs"])
    series.flags.allows_duplicate_labels = "unique_labels" not in attributes
    return series


def _to_column(rebuilder: Rebuilder, tree: Tree, step: Any = 0) -> Any:
    column = rebuilder.part(step, tree)
    is_object = isinstance(column, np.ndarray) and column.dtype == object
    return pd.arrays.NumpyExtensionArray(column) if is_object else column


def _is_of_objects(column: Any) -> bool:
    return type(column) is pd.arrays.NumpyExtensionArray and column.dtype.numpy_dtype == object


def _series(column: Any, index: Any = None) -> pd.Series:
    # Without a word pandas would make strings, or moments, of objects that happen to be some.
    return pd.Series(column, index=index, dtype=object if _is_of_objects(column) else None, copy=False)


def _to_categorical(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.Categorical:
    _, codes, _, values, is_ordered = tree
    dtype = pd.CategoricalDtype(rebuilder.rebuild(values), is_ordered)
    return pd.Categorical.from_codes(_codes(rebuilder, codes, len(dtype.categories)), dtype=dtype)


def _codes(rebuilder: Rebuilder, tree: Tree, count: int) -> np.ndarray:
    """The places of so many different items, -1 where one is missing."""
    codes = rebuilder.numbers(tree)
    if codes.size and (codes.max() >= count or codes.min() < -1):
        raise rebuilder.damaged("the places of a dictionary")
    return codes


def _to_zoned(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    zone = rebuilder.rebuild(attributes["zone"])
    return pd.DatetimeIndex(rebuilder.rebuild(tree), copy=False).tz_localize("UTC").tz_convert(zone).array


def _to_period(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    return pd.arrays.PeriodArray(rebuilder.rebuild(tree), dtype=pd.PeriodDtype(rebuilder.rebuild(attributes["freq"])))


def _to_interval(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    left, right = (_to_column(rebuilder, column, name[1]) for name, column in tree[2])
    return pd.arrays.IntervalArray.from_arrays(left, right, rebuilder.rebuild(attributes["closed"]))


def _to_single_interval(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.Interval:
    return pd.Interval(*rebuilder.rebuild(tree), closed=rebuilder.rebuild(attributes["closed"]))


def _to_array(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    array = _series(_to_column(rebuilder, tree)).array
    is_of_moments = attributes["freq"] != ("nothing",)
    return _with_frequency(rebuilder, pd.Index(array, copy=False), attributes).array if is_of_moments else array


def _to_string(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    missing, storage = rebuilder.rebuild(attributes["missing"]), rebuilder.rebuild(attributes["storage"])
    if storage == "pyarrow" and has("pyarrow"):
        from . import _arrow

        dtype = _string_dtype(rebuilder, "pyarrow", missing)
        return dtype.__from_arrow__(_arrow.large_strings(rebuilder, tree))
    return pd.array(rebuilder.rebuild(tree), dtype=_string_dtype(rebuilder, "python", missing))


def _string_dtype(rebuilder: Rebuilder, storage: str, missing: str) -> pd.StringDtype:
    if missing == "NA":
        return pd.StringDtype(storage)
    try:
        return pd.StringDtype(storage, na_value=np.nan)
    except TypeError:
        reason = f"are strings with NaN where one is missing, which pandas {pd.__version__} does not have"
        raise rebuilder.refuse(f"{reason}; install pandas 2.3 or newer") from None


def _to_arrow(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    found = rebuilder.rebuild(tree)
    return as_column(found) if isinstance(found, (list, np.ndarray)) else pd.arrays.ArrowExtensionArray(found)


def _to_masked(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    _, items, validity = tree
    values = rebuilder.rebuild(items)
    return _with_mask(values, ~rebuilder.is_there(validity, len(values)))


def _with_mask(values: np.ndarray, mask: np.ndarray) -> Any:
    if values.dtype == bool:
        return pd.arrays.BooleanArray(values, mask)
    return (pd.arrays.FloatingArray if values.dtype.kind == "f" else pd.arrays.IntegerArray)(values, mask)


def _to_object(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    return _objects(rebuilder.rebuild(tree))


def _objects(items: list[Any]) -> np.ndarray:
    column = np.empty(len(items), object)
    for number, item in enumerate(items):  # at once NumPy would look into items that are sequences
        column[number] = item
    return column


def _to_range_index(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.RangeIndex:
    return pd.RangeIndex(*rebuilder.rebuild(tree), name=rebuilder.rebuild(attributes["name"]))


def _to_index(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.Index:
    column = rebuilder.rebuild(tree)
    dtype = object if column.dtype == object else None
    index = pd.Index(column, dtype=dtype, name=rebuilder.rebuild(attributes["name"]), copy=False)
    return _with_frequency(rebuilder, index, attributes)


def _with_frequency(rebuilder: Rebuilder, index: pd.Index, attributes: dict[str, Tree]) -> pd.Index:
    frequency = rebuilder.rebuild(attributes["freq"])
    if frequency is not None:
        try:
            index.freq = frequency
        except (TypeError, ValueError) as error:
            reason = f"pandas {pd.__version__} refuses its frequency {frequency!r} ({error})"
            warnings.warn(f"{rebuilder.place()} comes without a frequency: {reason}", stacklevel=2)
    return index


def _to_multi_index(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> pd.MultiIndex:
    levels, names = rebuilder.rebuild(attributes["levels"]), rebuilder.rebuild(attributes["names"])
    kind, trees = tree
    if kind != "list" or len(trees) != len(levels):
        raise rebuilder.damaged("the levels of an index")
    codes = [_codes(rebuilder, code, len(level)) for code, level in zip(trees, levels, strict=True)]
    return pd.MultiIndex(levels, codes, names=names)


def _to_missing(value: Any) -> Callable[[Rebuilder, Tree, dict[str, Tree]], Any]:
    return lambda rebuilder, tree, attributes: value


_KINDS: dict[str, Callable[[Rebuilder, Tree, dict[str, Tree]], Any]] = {
    "frame": _to_frame,
    "series": _to_series,
    "categorical": _to_categorical,
    "zoned": _to_zoned,
    "string": _to_string,
    "arrow": _to_arrow,
    "masked": _to_masked,
    "object": _to_object,
    "period": _to_period,
    "interval": _to_interval,
    "single_interval": _to_single_interval,
    "array": _to_array,
    "range_index": _to_range_index,
    "index": _to_index,
    "multi_index": _to_multi_index,
    "single": lambda rebuilder, tree, attributes: _series(_to_column(rebuilder, tree))[0],
    "NA": _to_missing(pd.NA),
    "NaT": _to_missing(pd.NaT),
}
