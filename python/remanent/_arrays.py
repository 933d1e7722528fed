"""Objects as the extension takes them, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._memory import array_over
from ._numpy import is_item, laid_out, unkept
from ._texts import check_name, half_character
from ._values import Flattener, Rebuilder, Tree
from .errors import Corrupt, Error, UnknownType

Item = tuple[str, "np.dtype[Any]", tuple[int, ...], str, Any] | tuple[str, str, bytes] | tuple[str, Tree, list[Any]]


def flatten(name: str, value: Any, may_pickle: bool = False) -> Item:
    """An object for the extension: an array without a copy if its bytes lie side by side already."""
    check_name(name)
    if type(value) is str:
        return name, "text", _utf_8(name, value)
    if type(value) in (bytes, bytearray):
        return name, "bytes", bytes(value)
    array = _plain_array(value)
    if array is not None:
        return name, *laid_out(array)
    flattener = Flattener(name, may_pickle)
    return name, flattener.flatten(value), flattener.buffers


def size_of(item: Item) -> int:
    """Bytes that are copied of an object."""
    return sum(len(buffer) for buffer in item[-1]) if isinstance(item[-1], list) else len(item[-1])


def _plain_array(value: Any) -> np.ndarray | None:
    """The array that a value is or that a number becomes, if it needs nothing beside it."""
    if is_item(value) or type(value) in (bool, int, float, complex):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray) or unkept(value.dtype):
        return None
    return value


def _utf_8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UnknownType(f"{name!r} is a text with {half_character(error)}") from None


def rebuild(
    name: str,
    kind: str,
    dtype: Any,
    shape: tuple[int, ...],
    order: str,
    memories: list[Any],
    mode: str,
    may_pickle: bool,
) -> Any:
    """The object over its memory; of a value the dtype is its tree, and each buffer has a memory."""
    if kind == "value":
        return _rebuild_value(Rebuilder(name, memories, mode, may_pickle), name, dtype)
    [memory] = memories
    if kind in ("text", "bytes"):
        memory.populate()
        return _text(name, memory) if kind == "text" else bytes(memory)
    return array_over(memory, dtype, shape, order, mode)


def _rebuild_value(rebuilder: Rebuilder, name: str, tree: Tree) -> Any:
    try:
        return rebuilder.rebuild(tree)
    except (Error, OSError, MemoryError, RecursionError, ImportError):
        raise
    except Exception as error:
        # A tree that no version of this package makes: parts are missing, or do not fit one another.
        reason = f"its parts do not belong together ({type(error).__name__}: {error})"
        raise Corrupt(
            f"{name!r} cannot be read: {reason}; restore the file from a copy, or ask for the others by name"
        ) from error


def _text(name: str, memory: Any) -> str:
    try:
        return str(memory, "utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(
            f"the text {name!r} is damaged: {error}; restore the file from a copy, or ask for the others by name"
        ) from None
