"""Values of several parts: containers, what is missing, strings of any length; what cannot be kept says where it is."""

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from random import Random

import numpy as np
import pytest

import remanent

PLAIN = [
    None,
    [True, 3, -(2**63), 2**64, -(2**200), 1.5, 1j, "é", b"ab"],
    [1, [2, (3,)], []],
    {"a": 1, (1, 2): [None], 5: {"b": ()}},
    {1, 2},
    frozenset("ab"),
    range(3, 9, 2),
    slice(None, 4),
    ("x" * 5000, b"y" * 9000, bytearray(b"z")),
]


def trip(path, mode="c", **values):
    """The values after a restart."""
    with remanent.create(path, "32MiB") as pool:
        pool.persist(values, checksum=True)
        pool.verify()
    with remanent.open(path, "r") as pool:
        return pool.restore(mode=mode)


def test_containers_and_numbers_come_back_with_their_types(path):
    restored = trip(path, **{str(number): value for number, value in enumerate(PLAIN)})
    for number, value in enumerate(PLAIN):
        again = restored[str(number)]
        assert again == value and type(again) is type(value)
        if isinstance(value, (list, tuple)):
            assert [type(item) for item in again] == [type(item) for item in value]


@pytest.mark.parametrize("mode", ["c", "r"])
def test_arrays_in_containers_are_small_and_large_in_any_order(path, mode):
    large = np.random.default_rng(1).random((400, 500))
    value = {"large": large, "turned": large.T, "small": np.arange(5, dtype=">i4"), "none": np.empty((0, 3))}
    again = trip(path, mode, value=value)["value"]
    for name, array in value.items():
        assert np.array_equal(again[name], array) and again[name].dtype == array.dtype
        assert again[name].flags.writeable == (mode == "c")
    assert again["turned"].flags.f_contiguous
    if mode == "c":
        again["large"][0, 0] = -1
        with remanent.open(path, "r") as pool:
            assert pool["value"]["large"][0, 0] == large[0, 0]


def test_masked_arrays_keep_mask_order_and_fill_value(path):
    mask = [[0, 1, 0], [0, 0, 1]]
    c = np.ma.masked_array(np.arange(6.0).reshape(2, 3), mask, fill_value=-1)
    f = np.ma.masked_array(np.asfortranarray(np.arange(6).reshape(2, 3)), mask)
    restored = trip(path, c=c, f=f, scalar=[np.float32(2.5)])
    for name, array in (("c", c), ("f", f)):
        assert np.array_equal(restored[name].mask, array.mask)
        assert np.array_equal(restored[name].filled(9), array.filled(9))
        assert restored[name].fill_value == array.fill_value
    assert type(restored["scalar"][0]) is np.float32


@pytest.mark.skipif(not hasattr(getattr(np, "dtypes", None), "StringDType"), reason="NumPy 2 has them")
def test_strings_of_any_length_keep_what_is_missing(path):
    plain = np.array([["a", "größe"], ["", "x" * 1000]], np.dtypes.StringDType())
    none = np.array(["a", None, ""], np.dtypes.StringDType(na_object=None))
    nan = np.array([np.nan, "b"], np.dtypes.StringDType(na_object=np.nan))
    restored = trip(path, plain=plain, none=none, nan=nan)
    assert (restored["plain"] == plain).all() and restored["plain"].dtype == plain.dtype
    assert restored["none"].tolist() == ["a", None, ""] and restored["none"].dtype == none.dtype
    assert np.isnan(restored["nan"].tolist()[0]) and restored["nan"].dtype == nan.dtype


def test_what_cannot_be_kept_is_named_and_changes_nothing(path):
    endless = []
    endless.append(endless)
    deep = None
    for _ in range(200):
        deep = [deep]
    cases = [
        ({"k": [1, object()]}, r"\['k'\]\[1\]"),
        (endless, r"\[0\]. contains itself"),
        (deep, "nested too deep"),
        ([np.array([object()])], r"x\[0\]"),
        (["half: \ud800"], "half a character"),
    ]
    with remanent.create(path, "8MiB") as pool:
        for value, message in cases:
            with pytest.raises(remanent.UnknownType, match=message):
                pool.persist(x=value, y=np.arange(3))
        assert list(pool) == []


def test_many_parts_make_a_head_that_lies_in_an_extent(path):
    value = [np.arange(number % 7) for number in range(3000)]
    again = trip(path, value=value)["value"]
    assert all(np.array_equal(a, b) for a, b in zip(value, again, strict=True))


def any_value(random, depth=0):
    """A value of any form, the deeper the plainer."""
    plain = [
        lambda: None,
        lambda: random.random() < 0.5,
        lambda: random.randrange(-(2**70), 2**70),
        lambda: random.random() * 1e9,
        lambda: complex(random.random(), 1),
        lambda: random.choice(["", "größe", "x" * 5000, "\0"]),
        lambda: random.randbytes(random.choice([0, 3, 5000])),
        lambda: datetime(2000, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=random.randrange(10**15)),
        lambda: Decimal(random.randrange(10**9)) / 7,
    ]
    if depth == 4 or random.random() < 0.4:
        return random.choice(plain)()
    count = random.choice([0, 1, 3, 40])
    many = [any_value(random, depth + 1 if count < 40 else 4) for _ in range(count)]
    same = [random.choice(plain[:7])() if count < 40 else random.random() for _ in range(count)]
    return random.choice(
        [
            lambda: many,
            lambda: tuple(many),
            lambda: dict(zip(range(count), many, strict=True)),
            lambda: {repr(item): item for item in same},
            lambda: same,
            lambda: frozenset(same),
            lambda: set(same),
        ]
    )()


def test_whatever_is_put_together_comes_back(path):
    random = Random(7)
    values = {str(number): any_value(random) for number in range(150)}
    restored = trip(path, **values)
    for name, value in values.items():
        # Numbers by themselves are arrays without dimensions.
        again = restored[name].item() if isinstance(restored[name], np.ndarray) else restored[name]
        assert again == value and type(again) is type(value), name
        if isinstance(value, (list, tuple)):
            assert list(map(type, again)) == list(map(type, value))
