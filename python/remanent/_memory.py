"""Arrays over the memory of restored objects."""

from __future__ import annotations

from typing import Any

import numpy as np


def array_over(memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any, mode: str) -> np.ndarray:
    """An array over a memory; a copy, if it shares its pages with others and is to be written to."""
    if len(memory) == 0:
        array = np.ndarray(shape, dtype, order=order)  # np.empty gives strings without a length one
    elif _is_copied(memory, mode):
        # As bytes, because a copy of structures would leave out what lies between the fields.
        array = bytes_over(memory, mode).view(dtype).reshape(shape, order=order)
    else:
        # Keeps the memory, though not its buffer exported: a memory never moves and is never closed.
        array = np.ndarray(shape, dtype, memory, 0, None, order)
    if mode == "r" and array.flags.writeable:
        array.flags.writeable = False
    return array


def bytes_over(memory: Any, mode: str) -> np.ndarray:
    """The bytes of a memory, as `array_over`."""
    flat = np.frombuffer(memory, np.uint8)
    if _is_copied(memory, mode):
        memory.populate()
        return flat.copy()
    return flat


def _is_copied(memory: Any, mode: str) -> bool:
    return mode == "c" and not memory.writable and bool(memory.is_small)
