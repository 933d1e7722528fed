"""Every type of NumPy that has a fixed size comes back as it was; the others are refused."""

import numpy as np
import pytest

import remanent

RNG = np.random.default_rng(5)

NUMBERS = ["?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "e", "f", "d", "g", "F", "D", "G", ">i4", ">f8", ">c16"]

NESTED = np.dtype(
    {
        "names": ["when", "grid", "inner", "größe"],
        "formats": ["M8[25s]", (">i2", (2, 3)), [("x", "f4"), ("y", "S3")], "U2"],
        "offsets": [0, 8, 24, 40],
        "itemsize": 56,
    }
)


def noise(dtype, shape):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    if dtype.kind == "b":
        return RNG.integers(0, 2, shape).astype(bool)
    if dtype.kind == "U":
        return np.full(shape, "größe")[...].astype(dtype)
    return np.frombuffer(RNG.bytes(count), np.uint8).view(dtype).reshape(shape)


def same(got, wanted):
    assert type(got) is np.ndarray
    assert got.dtype == wanted.dtype
    assert got.dtype.isalignedstruct == wanted.dtype.isalignedstruct
    assert got.shape == wanted.shape
    assert got.tobytes() == wanted.tobytes()


def round_trip(path, arrays):
    with remanent.create(path, "64MB") as pool:
        pool.persist(arrays)
        for mode in ("c", "r"):
            for name, array in pool.restore(mode=mode).items():
                same(array, arrays[name])
    for mode in ("c", "r"):
        restored = remanent.restore(path, mode=mode)
        assert list(restored) == sorted(arrays)
        for name, array in restored.items():
            same(array, arrays[name])
            assert array.flags.writeable == (mode == "c")
    return restored


def test_numbers(path):
    arrays = {f"{code} {shape}": noise(code, shape) for code in NUMBERS for shape in [(), (7,), (3, 5), (30, 40, 50)]}
    round_trip(path, arrays)


def test_strings_and_plain_bytes(path):
    dtypes = ["S1", "S7", "U1", "U9", ">U9", "V1", "V13"]
    round_trip(path, {code: noise(code, (11, 2)) for code in dtypes})


def test_items_without_a_size(path):
    dtypes = {"void": np.dtype("V0"), "bytes": np.dtype("S0"), "text": np.dtype("U0"), "structure": np.dtype([])}
    with remanent.create(path, "8MiB") as pool:
        pool.persist({name: np.ndarray((3, 2), dtype) for name, dtype in dtypes.items()})
    for name, array in remanent.restore(path).items():
        assert (array.dtype, array.shape) == (dtypes[name], (3, 2))


def test_times(path):
    units = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "25ns"]
    arrays = {f"{kind}{unit}": noise(f"{kind}[{unit}]", (4, 3)) for kind in ("M8", "m8", ">M8") for unit in units}
    arrays["generic"] = np.array([1, "NaT"], "m8")
    arrays["not a time"] = np.array(["NaT", "2026-01-01"], "M8[D]")
    round_trip(path, arrays)


def test_structures(path):
    aligned = np.dtype([("a", "i1"), ("b", "f8"), ("c", "i2")], align=True)
    record = np.rec.array([(1, 2.5), (3, 4.5)], dtype=[("n", "i4"), ("v", "f8")])
    arrays = {
        "nested": noise(NESTED, (5, 4)),
        "aligned": noise(aligned, (6,)),
        "single": noise(NESTED, ()),
        "of times": noise([("t", "m8[ns]")], (3,)),
        "overlapping": noise(np.dtype({"names": ["a", "b"], "formats": ["i4", "u1"], "offsets": [0, 0]}), (3,)),
    }
    round_trip(path, arrays)
    with remanent.open(path) as pool:
        pool["record"] = record
        same(pool["record"], record.view(np.ndarray))


def test_placement_in_memory(path):
    base = np.arange(2 * 300 * 401.0).reshape(2, 300, 401)
    arrays = {
        "fortran": np.asfortranarray(base),
        "transposed": base.T,
        "strided": base[:, ::3, 5:],
        "reversed": base[::-1, :, ::-2],
        "swapped": base.swapaxes(0, 1),
        "broadcast": np.broadcast_to(np.arange(5), (4, 5)),
        "empty": base[:, :0],
        "empty fortran": np.empty((0, 3), order="F"),
        "single": base[1, 2, 3],
        "zero-d": np.array(3.5),
        "read-only": np.frombuffer(b"12345678", "u2"),
        "unaligned": np.frombuffer(b"x" * 41, np.uint8)[1:].view("f8"),
    }
    restored = round_trip(path, {name: np.asarray(array) for name, array in arrays.items()})
    for name in ("fortran", "transposed"):
        assert restored[name].flags.f_contiguous and not restored[name].flags.c_contiguous


def test_what_has_no_fixed_size_is_refused_and_changes_nothing(path):
    with remanent.create(path, "8MiB") as pool:
        pool["kept"] = np.arange(3)
        before = pool.info()
        refused = [
            np.array([None, "x"]),
            np.array([(1, None)], dtype=[("a", "i4"), ("o", "O")]),
            "half a character: \ud800",
            [1, "half a character: \ud800"],
            {"a": object()},
            object(),
        ]
        for value in refused:
            with pytest.raises(remanent.UnknownType) as caught:
                pool.persist({"new": np.arange(4), "bad": value})
            assert isinstance(caught.value, TypeError) and caught.value.code == "unknown-type"
            with pytest.raises(TypeError), pool.transaction() as transaction:
                transaction["bad"] = value
        assert pool.info() == before


def test_texts_bytes_and_numbers(path):
    plain = {"text": "größe\0 \U0001f9f2", "empty": "", "bytes": b"\0\xff" * 70_000, "nothing": b"", "long": "ä" * 70_000}
    numbers = {"yes": True, "count": -7, "large": 2**63, "mean": 0.5, "root": 1j}
    with remanent.create(path, "8MiB") as pool:
        pool.persist({**plain, **numbers, "changeable": bytearray(b"abc")}, checksum=True)
        assert pool.verify() == (len(pool), 0)
        assert {info.name: info.kind for info in pool.ls() if info.kind != "array"} == {
            **dict.fromkeys(("text", "empty", "long"), "text"),
            **dict.fromkeys(("bytes", "nothing", "changeable"), "bytes"),
        }
        with pool.transaction() as transaction:
            transaction["later"] = "a text"
    for mode in ("c", "r"):
        restored = remanent.restore(path, mode=mode)
        for name, value in {**plain, "changeable": b"abc", "later": "a text"}.items():
            assert type(restored[name]) is type(value) and restored[name] == value
        for name, value in numbers.items():
            assert restored[name].shape == () and restored[name].dtype == np.asarray(value).dtype
            assert restored[name].item() == value


def test_restored_arrays_are_aligned_for_vectors(path):
    with remanent.create(path, "64MB") as pool:
        for index in range(5):
            pool.persist({f"{index}": np.arange(100_000 + index), f"small {index}": np.arange(3)})
        for name, array in pool.restore(mode="r").items():
            assert array.ctypes.data % 64 == 0, name


@pytest.mark.parametrize("mode", ["c", "r"])
def test_masked_arrays_stay_masked(path, mode):
    base = np.arange(24.0).reshape(2, 3, 4)
    fields = np.ma.masked_array(noise([("a", "i4"), ("b", "M8[s]")], (5,)), [(0, 1), (1, 0)] * 2 + [(1, 1)])
    arrays = {
        "plain": np.ma.masked_array([1, 2, 3], [0, 1, 0], fill_value=-7),
        "whole": np.ma.masked_array(base),
        "fortran": np.ma.masked_array(np.asfortranarray(base), base % 3 == 0),
        "strided": np.ma.masked_array(base, base % 5 == 0)[:, ::-2, 1:],
        "zero-d": np.ma.masked_array(3.5, True),
        "empty": np.ma.masked_array(np.empty((0, 3), "f4"), np.empty((0, 3), bool)),
        "times": np.ma.masked_array(np.array(["2020-01-01", "NaT"], "M8[D]"), [1, 0]),
        "texts": np.ma.masked_array(["a", "größe"], [0, 1]),
        "big-endian": np.ma.masked_array(np.arange(4, dtype=">i4"), [0, 0, 1, 0]),
        "fields": fields,
        "hard": np.ma.masked_array([1, 2], [0, 1], hard_mask=True),
    }
    with remanent.create(path, "8MiB") as pool:
        pool.persist(arrays)
        pool["constant"] = np.ma.masked
        restored = pool.restore(mode=mode)
    assert restored.pop("constant") is np.ma.masked
    for name, wanted in arrays.items():
        got = restored[name]
        assert type(got) is np.ma.MaskedArray and got.dtype == wanted.dtype and got.shape == wanted.shape, name
        assert np.array_equal(np.ma.getmaskarray(got), np.ma.getmaskarray(wanted)), name
        assert got.data.tobytes() == np.ascontiguousarray(wanted.data).tobytes(), name
        assert str(got.fill_value) == str(wanted.fill_value) and got.hardmask == wanted.hardmask, name
    assert np.ma.getmask(restored["whole"]) is np.ma.nomask


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_subclasses_come_back_as_plain_arrays(path):
    class Mine(np.ndarray):
        pass

    subclasses = {
        "matrix": np.asmatrix([[1, 2], [3, 4]]),
        "record": np.rec.array([(1, 2.5)], dtype=[("n", "i4"), ("v", "f8")]),
        "mine": np.arange(3).view(Mine),
        "characters": np.char.array(["a", "bc"]),
    }
    with remanent.create(path, "8MiB") as pool:
        pool.persist(subclasses, listed=list(subclasses.values()))
        for again in (list(pool.restore(subclasses).values()), pool["listed"]):
            for got, wanted in zip(again, subclasses.values(), strict=True):
                assert type(got) is np.ndarray and np.array_equal(got, np.asarray(wanted))


def test_types_of_other_packages(path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    names = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"]
    arrays = {name: np.arange(4 * 30_000).reshape(4, -1).astype(getattr(ml_dtypes, name)) for name in names}
    with remanent.create(path, "16MiB") as pool:
        pool.persist(arrays, single=arrays["bfloat16"][0, 3])
        for mode in ("c", "r"):
            for name, array in pool.restore(names, mode=mode).items():
                same(array, arrays[name])
        assert pool["single"] == 3 and pool["single"].dtype == ml_dtypes.bfloat16
        with pytest.raises(remanent.UnknownType, match="another package"):
            pool["x"] = np.zeros(3, [("a", ml_dtypes.bfloat16)])


def test_a_type_of_a_package_that_is_not_there_says_so(path, monkeypatch):
    import sys

    ml_dtypes = pytest.importorskip("ml_dtypes")
    with remanent.create(path, "8MiB") as pool:
        pool["x"] = {"k": np.zeros(3, ml_dtypes.bfloat16)}
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        with pytest.raises(remanent.UnknownType, match=r"x\['k'\].*bfloat16.*install"):
            pool["x"]


@pytest.mark.skipif(not hasattr(getattr(np, "dtypes", None), "StringDType"), reason="NumPy 2 has them")
def test_strings_of_any_length_in_any_shape(path):
    kind = np.dtypes.StringDType
    arrays = {
        "zero-d": np.array("größe", kind()),
        "empty": np.empty((0, 3), kind()),
        "fortran": np.asfortranarray(np.array([["a", "b"], ["", "c" * 100]], kind())),
        "reversed": np.array(["a", "b", "c"], kind())[::-2],
        "strict": np.array(["a"], kind(coerce=False)),
        "named": np.array(["a", "missing"], kind(na_object="missing")),
    }
    with remanent.create(path, "8MiB") as pool:
        pool.persist(arrays)
        for name, got in pool.restore().items():
            assert got.dtype == arrays[name].dtype and got.shape == arrays[name].shape and (got == arrays[name]).all()
        pandas = pytest.importorskip("pandas")
        pool["missing"] = np.array(["a", pandas.NA], kind(na_object=pandas.NA))
        assert pool["missing"].tolist() == ["a", pandas.NA]
