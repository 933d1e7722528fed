"""Tensors of other libraries come back as theirs, over the pool's own memory, or as arrays without the library."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest

import remanent

LARGE = 600_000
DTYPES = ["float32", "float64", "int8", "int64", "uint8", "bool", "complex64", "float16"]


class FakeTensor:
    """Has nothing but DLPack."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def fake_from_dlpack(value):
    return FakeTensor(np.from_dlpack(value))


@pytest.fixture
def library(monkeypatch):
    """A library of tensors that the program has imported."""
    module = types.ModuleType("fake_tensors")
    module.from_dlpack = fake_from_dlpack
    monkeypatch.setattr(FakeTensor, "__module__", "fake_tensors")
    monkeypatch.setitem(sys.modules, "fake_tensors", module)
    return module


@pytest.mark.parametrize("mode", ["c", "r"])
def test_tensors_come_back_over_private_memory(path, library, mode):
    large = np.random.default_rng(1).random(LARGE)
    with remanent.create(path, "32MiB") as pool:
        pool.persist(large=FakeTensor(large), listed=[FakeTensor(large.reshape(6, -1).T)])
        restored = pool.restore(mode=mode)
        tensor = restored["large"]
        assert type(tensor) is FakeTensor and np.array_equal(tensor.array, large)
        assert np.array_equal(restored["listed"][0].array, large.reshape(6, -1).T)
        assert tensor.array.ctypes.data % 64 == 0 or mode == "r"
        assert tensor.array.base is not None or mode == "r", "it was copied"


def test_tensors_of_a_library_that_is_not_there_are_arrays(path, library, monkeypatch):
    with remanent.create(path, "8MiB") as pool:
        pool["x"] = FakeTensor(np.arange(3))
        monkeypatch.delitem(sys.modules, "fake_tensors")
        assert type(pool["x"]) is np.ndarray and pool["x"].tolist() == [0, 1, 2]


def test_tensors_elsewhere_are_refused(path, library):
    with remanent.create(path, "8MiB") as pool, pytest.raises(remanent.UnknownType, match=r"x\[0\].*device.*CPU"):
        pool["x"] = [FakeTensor(np.arange(3), device=2)]


def test_an_exporter_that_fails_is_named(path, library, monkeypatch):
    def broken(self, **options):
        raise BufferError("requires a gradient")

    monkeypatch.setattr(FakeTensor, "__dlpack__", broken)
    with (
        remanent.create(path, "8MiB") as pool,
        pytest.raises(remanent.UnknownType, match=r"x\['w'\].*requires a gradient"),
    ):
        pool["x"] = {"w": FakeTensor(np.arange(3))}


class Parameter(FakeTensor):
    """A tensor that knows more, as `torch.nn.Parameter` does."""

    def __eq__(self, other):
        return type(other) is Parameter and np.array_equal(self.array, other.array)


def test_subclasses_of_tensors_are_refused_or_pickled(path, library):
    value = Parameter(np.arange(3))
    with remanent.create(path, "8MiB") as pool:
        with pytest.raises(remanent.UnknownType, match=r"x\['w'\]. is a Parameter.* FakeTensor"):
            pool["x"] = {"w": value}
        pool.persist(x={"w": value, "t": FakeTensor(np.arange(4))}, pickle=True)
        again = pool.restore(pickle=True)["x"]
        assert again["w"] == value and type(again["t"]) is FakeTensor


def test_tensors_of_torch(path):
    torch = pytest.importorskip("torch", reason="PyTorch for CPUs alone is not on PyPI")
    tensors = {name: torch.arange(LARGE).to(getattr(torch, name)) for name in [*DTYPES, "bfloat16"]}
    with remanent.create(path, "64MiB") as pool:
        pool.persist(tensors, turned=tensors["float32"].reshape(6, -1).T)
        restored = pool.restore()
        for name, tensor in tensors.items():
            assert torch.equal(restored[name], tensor) and restored[name].dtype == tensor.dtype
        restored["float64"][0] = -1
        assert pool["float64"][0] == 0
        for tensor in (torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3))):
            with pytest.raises(remanent.UnknownType, match="detach"):
                pool["x"] = tensor


def test_arrays_of_jax(path):
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    arrays = {name: jnp.arange(LARGE).astype(name) for name in ["float32", "int8", "int32", "bool", "bfloat16"]}
    with remanent.create(path, "64MiB") as pool:
        pool.persist(arrays)
        for mode in ("c", "r"):
            restored = pool.restore(mode=mode)
            for name, array in arrays.items():
                assert type(restored[name]) is type(array)
                assert restored[name].dtype == array.dtype and (restored[name] == array).all()
        again = pool["float32"]
        mapped = again.unsafe_buffer_pointer()
        lines = Path("/proc/self/maps").read_text().splitlines()
        maps = [line.split()[0].split("-") for line in lines if str(path) in line]
        assert any(int(start, 16) <= mapped < int(end, 16) for start, end in maps), "it was copied"


def test_tensors_of_tensorflow(path):
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    tensors = {name: tensorflow.cast(tensorflow.range(LARGE), name) for name in ["float32", "int8", "bool", "bfloat16"]}
    with remanent.create(path, "64MiB") as pool:
        pool.persist(tensors)
        for mode in ("c", "r"):
            restored = pool.restore(mode=mode)
            for name, tensor in tensors.items():
                assert type(restored[name]) is type(tensor) and restored[name].dtype == tensor.dtype
                assert bool(tensorflow.reduce_all(restored[name] == tensor))
