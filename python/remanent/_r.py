"""What R keeps beside its values: read here as what Python has in their place."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ._values import has

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._values import Rebuilder, Tree

    Attributes = dict[str, Tree]

_US_PER_S = 1e6
_UNITS_S = {"secs": 1, "mins": 60, "hours": 3600, "days": 86400, "weeks": 604800}
_SMALLEST = np.iinfo("i8").min


def rebuild(rebuilder: Rebuilder, tree: Tree, attributes: Attributes) -> Any:
    """The value of a tree with R's attributes. Those that Python has no use for are not looked at."""
    kind = _texts(rebuilder, attributes, "type")
    if "logical" in kind:
        return _to_bool(rebuilder.rebuild(tree))
    if tree[0] == "nothing" and "r:serialised" in attributes:
        return _nothing(rebuilder)
    if tree[0] == "strings" or "character" in kind and tree[0] == "dictionary":
        items = rebuilder.rebuild(tree) if tree[0] == "strings" else rebuilder.looked_up(*tree[1:4])
        return [_decoded(item) for item in items] if "r:encoding" in attributes else items
    if tree[0] == "table":
        return _to_frame(rebuilder, tree, attributes)
    if tree[0] == "list":
        return _to_list(rebuilder, tree, attributes)
    if tree[0] in ("array", "nullable"):
        for name in _texts(rebuilder, attributes, "class"):
            if name in _CLASSES:
                return _CLASSES[name](rebuilder, rebuilder.rebuild(tree), attributes)
    return rebuilder.rebuild(tree)


def _texts(rebuilder: Rebuilder, attributes: Attributes, name: str) -> list[Any]:
    """The texts of an attribute; none if it is not there."""
    if name not in attributes:
        return []
    value = rebuilder.rebuild(attributes[name])
    return [value] if isinstance(value, str) else list(value)


def _nothing(rebuilder: Rebuilder) -> None:
    """What stands for a part that R has serialised beside the others."""
    message = f"{rebuilder.place()} is R's alone, a function for example; here None stands for it"
    warnings.warn(message, stacklevel=2)


def _decoded(item: Any) -> Any:
    """A text, if it is one: R also has strings of an unknown encoding, and of none."""
    try:
        return item.decode() if isinstance(item, bytes) else item
    except UnicodeDecodeError:
        return item


def _parts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Items, and which of them are missing."""
    return np.ma.getdata(values), np.ma.getmaskarray(values)


def _to_bool(values: np.ndarray) -> np.ndarray:
    items = np.ma.getdata(values) != 0
    return np.ma.MaskedArray(items, np.ma.getmask(values)) if isinstance(values, np.ma.MaskedArray) else items


def _to_int64(rebuilder: Rebuilder, values: np.ndarray, attributes: Attributes) -> np.ndarray:
    items, is_missing = _parts(values)
    is_missing = is_missing | (items == _SMALLEST)
    return np.ma.MaskedArray(items, is_missing) if is_missing.any() else items


def _to_date(rebuilder: Rebuilder, values: np.ndarray, attributes: Attributes) -> np.ndarray:
    return _times(rebuilder, values, np.floor, 1, "M8[D]")


def _to_difftime(rebuilder: Rebuilder, values: np.ndarray, attributes: Attributes) -> np.ndarray:
    unit = (_texts(rebuilder, attributes, "units") or ["secs"])[0]
    if unit not in _UNITS_S:
        raise rebuilder.refuse(f"is a time in {unit!r}, which this version cannot read")
    return _times(rebuilder, values, np.round, _UNITS_S[unit] * _US_PER_S, "m8[us]")


def _to_moments(rebuilder: Rebuilder, values: np.ndarray, attributes: Attributes) -> Any:
    moments = _times(rebuilder, values, np.round, _US_PER_S, "M8[us]")
    zone = (_texts(rebuilder, attributes, "tzone") or [""])[0]
    if not zone or moments.ndim != 1 or not has("pandas"):
        return moments
    import pandas as pd

    zoned = pd.DatetimeIndex(moments).tz_localize("UTC")
    try:
        return zoned.tz_convert(zone)
    except Exception:  # each library of time zones raises its own; the moment stays the same
        return zoned


def _times(
    rebuilder: Rebuilder, values: np.ndarray, rounded: Callable[[Any], Any], scale: float, dtype: str
) -> np.ndarray:
    """Times from R's floating-point numbers; NaT where one is missing."""
    items, is_missing = _parts(values)
    with np.errstate(invalid="ignore"):  # R's NA is a signalling NaN
        scaled = rounded(items.astype("f8") * scale)
    is_there = np.isfinite(scaled) & ~is_missing
    if (np.abs(scaled[is_there]) >= 2.0**63).any():
        raise rebuilder.refuse(f"has times beyond those of {dtype}")
    times = np.where(is_there, scaled, 0).astype("i8", order="K")
    times[~is_there] = _SMALLEST
    return times.view(dtype)


def _to_list(rebuilder: Rebuilder, tree: Tree, attributes: Attributes) -> Any:
    names = _texts(rebuilder, attributes, "names")
    items = tree[1]
    if len(names) == len(items) > 0 and all(names) and len(set(names)) == len(names):
        return {name: rebuilder.part(name, item) for name, item in zip(names, items, strict=True)}
    return rebuilder.rebuild(tree)


def _to_frame(rebuilder: Rebuilder, tree: Tree, attributes: Attributes) -> Any:
    if "row.names" not in attributes or not has("pandas"):
        return rebuilder.rebuild(tree)
    from . import _pandas

    _, rows, columns = tree
    return _pandas.plain_frame(rebuilder, rows, columns, _pandas.as_column(rebuilder.rebuild(attributes["row.names"])))


_CLASSES = {
    "Date": _to_date,
    "POSIXct": _to_moments,
    "difftime": _to_difftime,
    "integer64": _to_int64,
}
