"""Python's times, exact numbers and paths come back with their types; what has no form is named."""

import enum
import pathlib
from collections import OrderedDict, namedtuple
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import remanent

SINGLE = [
    datetime(2026, 1, 2, 3, 4, 5, 678901),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    datetime(1999, 1, 1, tzinfo=timezone.utc),
    datetime(1999, 1, 1, tzinfo=timezone(timedelta(hours=-3, seconds=7), "here")),
    date(1, 1, 1),
    time(23, 59, 59, 1),
    time(1, tzinfo=timezone(timedelta(hours=2))),
    timedelta(microseconds=-1),
    timedelta.max,
    Decimal("-1.50"),
    Decimal("Infinity"),
    Fraction(-(10**30), 7),
    UUID(int=2**127 + 5),
    pathlib.Path("/tmp/größe"),
    pathlib.PurePosixPath(b"a/\xff".decode("utf-8", "surrogateescape")),
    pathlib.PureWindowsPath("C:\\x"),
]


def trip(path, **values):
    with remanent.create(path, "8MiB") as pool:
        pool.persist(values)
    return remanent.restore(path)


def test_single_values_come_back_alone_and_in_containers(path):
    restored = trip(path, **{str(number): value for number, value in enumerate(SINGLE)}, all=SINGLE)
    again = [restored[str(number)] for number in range(len(SINGLE))]
    for values in (again, restored["all"]):
        assert values == SINGLE and list(map(type, values)) == list(map(type, SINGLE))
    assert again[1].fold == 1 and again[1].utcoffset() == timedelta(hours=1) and again[1].tzinfo.key == "Europe/Berlin"
    assert again[3].tzname() == "here" and str(again[9]) == "-1.50"


@pytest.mark.parametrize("count", [3, 40])
def test_lists_of_equal_things_keep_their_types(path, count):
    lists = {
        "texts": [f"größe {number}" for number in range(count)],
        "some": ["a", None] * count,
        "bytes": [b"\xff", b""] * count,
        "floats": [0.5, float("inf")] * count,
        "ints": list(range(count)),
        "large": [2**70] * count,
        "bools": [True, False] * count,
        "mixed": [1, 1.5, True] * count,
        "nothing": [None] * count,
    }
    restored = trip(path, lists=lists, tuples={name: tuple(items) for name, items in lists.items()})
    for name, items in lists.items():
        for again in (restored["lists"][name], list(restored["tuples"][name])):
            assert again == items and list(map(type, again)) == list(map(type, items))
        assert type(restored["tuples"][name]) is tuple


class Colour(enum.IntEnum):
    RED = 1


class Nowhere(tzinfo):
    def utcoffset(self, moment):
        return timedelta(0)


Pair = namedtuple("Pair", "a b")


class Metres(np.float64):
    """A number with a unit."""


@pytest.mark.parametrize(
    "value",
    [Metres(1), Colour.RED, OrderedDict(a=1), Pair(1, 2), datetime(2020, 1, 1, tzinfo=Nowhere()), ..., int, print, object()],
)
def test_no_type_is_lost_on_the_way(path, value):
    with remanent.create(path, "8MiB") as pool:
        with pytest.raises(remanent.UnknownType, match=r"'x' "):
            pool["x"] = value
        with pytest.raises(remanent.UnknownType, match=r"x\['k'\]\[1\]"):
            pool["x"] = {"k": [0, value]}
        assert not pool


def test_half_characters_are_named_also_in_long_lists(path):
    with remanent.create(path, "8MiB") as pool, pytest.raises(remanent.UnknownType, match=r"x\['k'\]\[35\].* half a"):
        pool["x"] = {"k": ["a"] * 35 + ["\ud800"] + ["b"] * 9}


def test_deep_values_are_refused_by_name_or_kept(path):
    for wrap in (lambda value: [value], lambda value: frozenset([value]), lambda value: {"k": value}):
        kept = deep = 0
        for level in range(200):
            kept = wrap(kept) if level < 50 else kept
            deep = wrap(deep)
        with remanent.create(path, "8MiB") as pool:
            pool["kept"] = kept
            assert pool["kept"] == kept
            with pytest.raises(remanent.UnknownType, match="nested too deep"):
                pool["deep"] = deep
        path.unlink()


def test_numpy_items_keep_their_types_in_containers(path):
    items = [
        np.float32(1.5),
        np.datetime64("2020-01-01"),
        np.bool_(True),
        np.str_("é"),
        np.bytes_(b"a"),
        np.longdouble(1),
        np.rec.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])[0],
        np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])[0],
    ]
    again = trip(path, items=items)["items"]
    assert again == items and list(map(type, again)) == list(map(type, items))
