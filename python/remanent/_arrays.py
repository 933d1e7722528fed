"""Arrays, texts and numbers as bytes and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._names import check_name
from .errors import Corrupt, UnknownType

#: Below this size a restored array is an ordinary one: a mapping of its own would cost more than the copy.
SMALL_BYTES = 64 << 10


Item = tuple[str, np.dtype, tuple[int, ...], str, Any] | tuple[str, str, bytes]


def flatten(name: str, value: Any) -> Item:
    """An object for the extension: an array without a copy if its bytes lie side by side already."""
    check_name(name)
    if isinstance(value, (np.generic, bool, int, float, complex)):
        value = np.asarray(value)
    if isinstance(value, str):
        return name, "text", _utf_8(name, value)
    if isinstance(value, (bytes, bytearray)):
        return name, "bytes", bytes(value)
    if not isinstance(value, np.ndarray):
        raise UnknownType(
            f"{name!r} is a {type(value).__name__}; this version keeps NumPy arrays, str, bytes and numbers, so convert "
            "it, for example with np.asarray"
        )
    return _flatten_array(name, value)


def _utf_8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UnknownType(f"{name!r} is a text with half a character: {error}") from None


def _flatten_array(name: str, value: np.ndarray) -> Item:
    """Name, dtype, shape, order and the bytes."""
    if isinstance(value, np.ma.MaskedArray):
        raise UnknownType(f"{name!r} is a masked array; persist its data and its mask as two arrays")
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
    if array.dtype.hasobject or array.dtype.kind == "T":
        return name, array.dtype, array.shape, order, b""
    return name, array.dtype, array.shape, order, array.reshape(-1, order=order).view(np.uint8)


def rebuild(name: str, kind: str, dtype: np.dtype, shape: tuple[int, ...], order: str, memory: Any, mode: str) -> Any:
    """The object over its memory."""
    if kind in ("text", "bytes"):
        memory.populate()
        return _text(name, memory) if kind == "text" else bytes(memory)
    if len(memory) == 0:
        array = np.ndarray(shape, dtype, order=order)  # np.empty gives strings without a length one
    else:
        flat = np.frombuffer(memory, np.uint8)
        if mode == "c" and len(memory) < SMALL_BYTES:
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
