"""Edits of a pool that become true together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import Item, flatten
from ._progress import Progress
from ._texts import check_name
from .errors import Closed

if TYPE_CHECKING:
    from ._pool import Order, Pool, Shape


class Transaction:
    """Edits of a pool that become true together."""

    def __init__(
        self, pool: Pool, pickle: bool, threads: int | None, checksum: bool, progress: Progress | bool | None
    ) -> None:
        self._pool = pool
        self._pickle = pickle
        self._options = (threads, checksum, progress)
        self._puts: dict[str, Item] = {}
        self._removes: dict[str, None] = {}
        self._done = False

    def __setitem__(self, name: str, value: Any) -> None:
        self._check()
        item = flatten(name, value, self._pickle)
        self._removes.pop(name, None)
        self._puts[name] = item

    def empty(self, name: str, shape: Shape, dtype: Any = float, order: Order = "C") -> np.ndarray:
        """An array in the pool to begin with, as `Pool.empty`; it becomes visible when the transaction ends."""
        self._check()
        check_name(name)
        array = self._pool._memory_for(shape, np.dtype(dtype), order)
        self[name] = array
        return array

    def __delitem__(self, name: str) -> None:
        self._check()
        check_name(name)
        was_put = self._puts.pop(name, None) is not None
        if not was_put or name in self._pool:
            self._removes[name] = None

    def persist(self, arrays: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Adds objects to the edits. Arrays are copied when the transaction ends, so they must stay as they are."""
        for name, value in {**(arrays or {}), **more}.items():
            self[name] = value

    def _check(self) -> None:
        if self._done:
            raise Closed("the transaction has ended", "closed")

    def __enter__(self) -> Transaction:
        self._check()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self._done = True
        if kind is None:
            self._pool._commit(list(self._puts.values()), list(self._removes), *self._options)
