"""Tensors of other libraries, through DLPack: arrays that remember whose they were."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ._numpy import ml_dtype
from ._values import has

if TYPE_CHECKING:
    from ._values import Flattener, Rebuilder, Tree

#: DLPack's number of the memory that processors read.
_CPU = 1

#: Libraries that are imported when a tensor of theirs is restored, with what has their `from_dlpack`. Others only
#: take part once the program has imported them: a name in a file must not decide what code is run.
_KNOWN = {"torch": "torch", "jax": "jax.numpy", "tensorflow": "tensorflow"}

#: Libraries whose own tensors are derived from other classes of theirs that export them.
_LAYERED = {"jax", "tensorflow"}


def flatten(flattener: Flattener, value: Any) -> Tree:
    """The tree of a tensor."""
    base = _subclassed(value)
    if base is not None:
        kind, made = type(value).__qualname__, base.__qualname__
        reason = f"is a {kind}, which would come back as the {made} that it is made of"
        raise flattener.refuse(f"{reason}: persist that (of PyTorch by .detach() or .data), or persist(..., pickle=True)")
    device, _ = value.__dlpack_device__()
    if device != _CPU:
        raise flattener.refuse(f"lies on another device (type {int(device)} of DLPack); move it to the CPU first")
    library = _library(value)
    array, dtype = _array(flattener, library, value)
    attributes: list[tuple[str, Tree]] = [("library", ("text", library))]
    if dtype is not None:
        attributes.append(("dtype", ("text", dtype)))
    return ("attributed", flattener.flatten(array), "dlpack", attributes)


def _subclassed(value: Any) -> type | None:
    """The class of tensors that the class of a value is derived from, as `torch.nn.Parameter` is; none for tensors."""
    if _library(value) in _LAYERED:
        return None
    return next((kind for kind in type(value).__mro__[1:] if hasattr(kind, "__dlpack__")), None)


def _library(value: Any) -> str:
    library = type(value).__module__.partition(".")[0]
    return "jax" if library == "jaxlib" else library


def _array(flattener: Flattener, library: str, value: Any) -> tuple[np.ndarray, str | None]:
    """The array over a tensor's memory, and the type of its items where NumPy has none of its own."""
    name = str(getattr(value, "dtype", "")).rpartition(".")[2]
    try:
        if library in ("jax", "tensorflow"):
            array = np.asarray(value)  # both know the types of ml_dtypes, which DLPack's readers need not
        elif library == "torch" and name.startswith(("bfloat", "float8")):
            import torch

            array = np.from_dlpack(value.detach().view(torch.int16 if value.element_size() == 2 else torch.int8))
            return array.view(f"u{array.dtype.itemsize}"), name
        else:
            array = np.from_dlpack(value)
    except Exception as error:  # each library raises its own
        raise flattener.refuse(f"cannot be exported by {library}: {error}") from error
    if array.dtype.isbuiltin == 2 and array.dtype.type.__module__ == "ml_dtypes":
        return array.view(f"u{array.dtype.itemsize}"), array.dtype.name
    return array, None


def rebuild(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    """The tensor over the restored memory, or an array where its library is not there."""
    array = rebuilder.rebuild(tree)
    library = rebuilder.rebuild(attributes["library"])
    dtype = rebuilder.rebuild(attributes["dtype"]) if "dtype" in attributes else None
    module = _module(library)
    if module is None:
        return array if dtype is None else array.view(ml_dtype(rebuilder, dtype))
    return rebuilder.by_library(library, lambda: _made(rebuilder, library, module, array, dtype))


def _made(rebuilder: Rebuilder, library: str, module: Any, array: np.ndarray, dtype: str | None) -> Any:
    if library == "tensorflow":
        return _to_tensorflow(rebuilder, module, array, dtype)
    if not array.flags.writeable:
        array = array.copy()  # tensors have no read-only form
    if dtype is None:
        return module.from_dlpack(array)
    if library == "torch":
        return module.from_dlpack(array.view(f"i{array.dtype.itemsize}")).view(getattr(module, dtype))
    return module.asarray(array.view(ml_dtype(rebuilder, dtype)))


def _to_tensorflow(rebuilder: Rebuilder, module: Any, array: np.ndarray, dtype: str | None) -> Any:
    # Its own `from_dlpack` takes nothing but capsules, and ends the process with those of NumPy.
    return module.convert_to_tensor(array if dtype is None else array.view(ml_dtype(rebuilder, dtype)))


def _module(library: str) -> Any:
    if library in _KNOWN:
        return importlib.import_module(_KNOWN[library]) if has(library) else None
    module = sys.modules.get(library)
    return module if hasattr(module, "from_dlpack") else None
