"""Pickles, for what has no other form. They are read only when the caller says so: a pickle can run any code."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from ._remanent import SMALL_BYTES

if TYPE_CHECKING:
    from ._values import Flattener, Rebuilder, Tree


def flatten(flattener: Flattener, value: Any) -> Tree:
    """A value as a pickle, its large buffers beside it."""
    large: list[memoryview] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        data = buffer.raw()
        if data.nbytes >= SMALL_BYTES:
            large.append(data)
        return data.nbytes < SMALL_BYTES

    try:
        stream = pickle.dumps(value, protocol=5, buffer_callback=is_small)
    except Exception as error:  # whatever the methods of a class may raise
        raise flattener.refuse(f"cannot be pickled: {type(error).__name__}: {error}") from error
    return ("foreign", "python.pickle-5", flattener.buffer(stream), [flattener.buffer(data) for data in large])


def rebuild_foreign(rebuilder: Rebuilder, stream: int, buffers: list[int]) -> Any:
    """The value of a pickle, over its buffers."""
    if not rebuilder.may_unpickle:
        reason = "is a Python pickle, which can run any code as it is loaded"
        raise rebuilder.refuse(f"{reason}; if you trust whoever wrote the pool, restore it with pickle=True")
    data = [rebuilder.bytes_over(buffer) for buffer in buffers]
    try:
        return pickle.loads(rebuilder.data(stream), buffers=data)
    except Exception as error:  # whatever the methods of a class may raise
        raise rebuilder.refuse(f"cannot be unpickled: {type(error).__name__}: {error}") from error
