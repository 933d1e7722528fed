"""Arrays, texts and numbers as bytes and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._names import check_name
from ._values import Flattener, Rebuilder, Tree
from .errors import Corrupt, UnknownType

#: Below this size a restored array is an ordinary one: a mapping of its own would cost more than the copy.
SMALL_BYTES = 64 << 10


Item = tuple[str, np.dtype, tuple[int, ...], str, Any] | tuple[str, str, bytes] | tuple[str, Tree, list[Any]]


def flatten(name: str, value: Any) -> Item:
    """An object for the extension: an array without a copy if its bytes lie side by side already."""
    check_name(name)
    # An integer that no type of NumPy holds is a value of its own.
    if isinstance(value, (np.generic, bool, int, float, complex)) and np.asarray(value).dtype != object:
        value = np.asarray(value)
    if isinstance(value, str):
        return name, "text", _utf_8(name, value)
    if isinstance(value, (bytes, bytearray)):
        return name, "bytes", bytes(value)
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray) and value.dtype.kind != "T":
        return _flatten_array(name, value)
    flattener = Flattener(name)
    return name, flattener.flatten(value), flattener.buffers


def size_of(item: Item) -> int:
    """Bytes that are copied of an object."""
    return sum(len(buffer) for buffer in item[-1]) if isinstance(item[-1], list) else len(item[-1])


def _utf_8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UnknownType(f"{name!r} is a text with half a character: {error}") from None


def _flatten_array(name: str, value: np.ndarray) -> Item:
    """Name, dtype, shape, order and the bytes."""
    array = value.view(np.ndarray)
    if array.flags.c_contiguous:
        order = "C"
    elif array.flags.f_contiguous:
        order = "F"
    else:
        array, order = np.array(array, order="C"), "C"
    if array.nbytes == 0:
        return name, array.dtype, array.shape, order, b""
    # As bytes, because the buffer protocol has no form for times and for structures that contain them. The type is
    # looked at first: objects have no bytes to be viewed as.
    if array.dtype.hasobject:
        return name, array.dtype, array.shape, order, b""
    return name, array.dtype, array.shape, order, array.reshape(-1, order=order).view(np.uint8)


def rebuild(
    name: str, kind: str, dtype: Any, shape: tuple[int, ...], order: str, memories: list[Any], mode: str
) -> Any:
    """The object over its memory; of a value the dtype is its tree, and each buffer has a memory."""
    if kind == "value":
        array = lambda buffer, dtype, shape, order: _array(memories[buffer], dtype, shape, order, mode)  # noqa: E731
        return Rebuilder(name, array, lambda buffer: memories[buffer]).rebuild(dtype)
    [memory] = memories
    if kind in ("text", "bytes"):
        memory.populate()
        return _text(name, memory) if kind == "text" else bytes(memory)
    return _array(memory, dtype, shape, order, mode)


def _array(memory: Any, dtype: np.dtype, shape: tuple[int, ...], order: str, mode: str) -> np.ndarray:
    if len(memory) == 0:
        array = np.ndarray(shape, dtype, order=order)  # np.empty gives strings without a length one
    else:
        flat = np.frombuffer(memory, np.uint8)
        if mode == "c" and (len(memory) < SMALL_BYTES or not memory.writable and memory.is_small):
            memory.populate()
            flat = flat.copy()  # as bytes, because a copy of structures would leave out what lies between the fields
        array = flat.view(dtype).reshape(shape, order=order)
    if mode == "r":
        array.flags.writeable = False
    return array


def _text(name: str, memory: Any) -> str:
    try:
        return str(memory, "utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(
            f"the text {name!r} is damaged: {error}; restore the file from a copy, or ask for the others by name"
        ) from None
