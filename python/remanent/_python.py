"""What Python has besides containers, texts and numbers: sets, ranges, times, exact numbers, paths.

Each is written as a text or as plain parts, which every language can read, with its type beside it.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from ._values import integer, of_python

if TYPE_CHECKING:
    from ._values import Flattener, Rebuilder, Tree

_MICROSECOND = timedelta(microseconds=1)


def flatten(flattener: Flattener, value: Any) -> Tree | None:
    """The tree of a value; none if this version has no form for it."""
    make = _FLATTEN.get(type(value))
    return None if make is None else make(flattener, value)


def _moment(flattener: Flattener, value: datetime | time) -> Tree:
    tree = ("text", value.replace(tzinfo=None).isoformat())
    zone = _zone(flattener, value.tzinfo)
    return of_python(type(value).__name__, tree, ("zone", zone), ("fold", ("int", value.fold)))


def _zone(flattener: Flattener, zone: tzinfo | None) -> Tree:
    if zone is None:
        return ("nothing",)
    if type(zone) is ZoneInfo and zone.key is not None:
        return ("text", zone.key)
    if type(zone) is timezone:
        offset = integer(zone.utcoffset(None) // _MICROSECOND)
        return ("tuple", [offset, ("text", zone.tzname(None))])
    raise flattener.refuse(f"has the time zone {zone!r}, which is neither a ZoneInfo with a name nor a fixed offset")


def _path(flattener: Flattener, value: pathlib.PurePath) -> Tree:
    name = str(value)
    try:
        name.encode()
    except UnicodeEncodeError:
        # A file's name need not be UTF-8.
        return of_python(type(value).__name__, flattener.binary(os.fsencode(name)))
    return of_python(type(value).__name__, flattener.text(name))


_FLATTEN: dict[type, Callable[[Flattener, Any], Tree]] = {
    bytearray: lambda f, value: of_python("bytearray", f.binary(bytes(value))),
    set: lambda f, value: of_python("set", f.items("list", value)),
    frozenset: lambda f, value: of_python("frozenset", f.items("list", value)),
    range: lambda f, value: of_python("range", ("tuple", [integer(n) for n in (value.start, value.stop, value.step)])),
    slice: lambda f, value: of_python("slice", f.items("tuple", (value.start, value.stop, value.step))),
    datetime: _moment,
    time: _moment,
    date: lambda _, value: of_python("date", ("text", value.isoformat())),
    timedelta: lambda _, value: of_python("timedelta", integer(value // _MICROSECOND)),
    Decimal: lambda f, value: of_python("Decimal", f.text(str(value))),
    Fraction: lambda _, value: of_python("Fraction", ("tuple", [integer(value.numerator), integer(value.denominator)])),
    UUID: lambda _, value: of_python("UUID", ("text", str(value))),
    **dict.fromkeys((type(pathlib.Path()), pathlib.PurePosixPath, pathlib.PureWindowsPath), _path),
}


def rebuild(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    """The value of a tree with Python's attributes."""
    kind = rebuilder.rebuild(attributes["type"])
    make = _REBUILD.get(kind)
    if make is None:
        raise rebuilder.refuse(f"is a {kind!r}, which this version cannot read")
    value = rebuilder.rebuild(tree)
    return make(value, attributes, rebuilder) if kind in ("datetime", "time") else make(value)


def _to_moment(kind: Any, text: str, attributes: dict[str, Tree], rebuilder: Rebuilder) -> Any:
    zone = rebuilder.rebuild(attributes["zone"])
    if isinstance(zone, str):
        try:
            zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise rebuilder.refuse(f"has the time zone {zone!r}, which is unknown here") from None
    elif zone is not None:
        offset = timedelta(microseconds=zone[0])
        plain = timezone(offset)
        zone = plain if zone[1] == plain.tzname(None) else timezone(offset, zone[1])
    return kind.fromisoformat(text).replace(tzinfo=zone, fold=rebuilder.rebuild(attributes["fold"]))


def _to_path(kind: type[pathlib.PurePath]) -> Callable[[str | bytes], pathlib.PurePath]:
    return lambda name: kind(name if isinstance(name, str) else os.fsdecode(name))


_REBUILD: dict[str, Callable[..., Any]] = {
    "bytearray": bytearray,
    "list": np.ndarray.tolist,
    "tuple": lambda items: tuple(items.tolist() if isinstance(items, np.ndarray) else items),
    "set": set,
    "frozenset": frozenset,
    "range": lambda parts: range(*parts),
    "slice": lambda parts: slice(*parts),
    "datetime": lambda *value: _to_moment(datetime, *value),
    "time": lambda *value: _to_moment(time, *value),
    "date": date.fromisoformat,
    "timedelta": lambda microseconds: timedelta(microseconds=microseconds),
    "Decimal": Decimal,
    "Fraction": lambda parts: Fraction(*parts),
    "UUID": UUID,
    "PosixPath": _to_path(pathlib.Path),
    "PurePosixPath": _to_path(pathlib.PurePosixPath),
    "PureWindowsPath": _to_path(pathlib.PureWindowsPath),
}
