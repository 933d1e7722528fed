"""Pools: named arrays that survive restarts."""

from __future__ import annotations

import math
import operator
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

import numpy as np

from ._arrays import Item, flatten, rebuild, size_of
from ._memory import array_over
from ._numpy import unkept
from ._progress import Progress, told
from ._remanent import NativePool
from ._sizes import Size, parse_file_size, parse_size
from ._texts import check_name
from ._transaction import Transaction
from .errors import BadName, ShapeOverflow, UnknownType

Path = str | os.PathLike[str]
Shape = SupportsIndex | Iterable[SupportsIndex]
Order = Literal["C", "F"]

_PROGRESS_EVERY_S = 0.02


@dataclass(frozen=True)
class Durability:
    """How much a finished persist is worth, and why."""

    level: str
    """``'power-fail safe'``, ``'mapped, persistence unknown'``, ``'process-crash safe'`` or ``'volatile'``."""
    granularity: str
    """The unit in which stores become durable: ``'byte'``, ``'cache line'`` or ``'page'``."""
    provenance: str
    """How figures measured on it are to be labelled: ``'measured'`` or ``'emulated'``."""
    filesystem: str
    reason: str

    def __str__(self) -> str:
        return f"{self.level}: {self.reason}"


@dataclass(frozen=True)
class ObjectInfo:
    """One object of a pool. What this version, or NumPy on this machine, cannot tell of it is None."""

    name: str
    born: int
    """The generation of the commit that wrote it, or gave it its name."""
    extent_bytes: int
    """Bytes of the pool that it takes: its own, and what rounding adds."""
    kind: str | None = None
    """``'array'``, ``'text'``, ``'bytes'``, or ``'value'`` for what has several parts."""
    dtype: np.dtype[Any] | None = None
    """The type of an array's items; ``uint8`` for the others."""
    shape: tuple[int, ...] | None = None
    order: str | None = None
    """``'C'`` or ``'F'``, as the items lie."""
    nbytes: int | None = None
    """Bytes of the items, or of all parts."""
    checksum: bool | None = None
    """Whether `Pool.verify` compares it."""
    in_place: bool | None = None
    """Whether it is changed in place, or was when its writer ended, just now."""
    interrupted: bool | None = None
    """Whether a writer ended while it changed the object in place: old and new bytes may be mixed."""


@dataclass(frozen=True)
class Written:
    """How an object was persisted."""

    way: str
    """``'whole'``; or ``'changed pages, by PAGEMAP_SCAN'`` (``/proc/self/pagemap`` where the kernel has only that) for an
    object that was restored, changed a little and persisted again under its name; or ``'in place'`` for one whose bytes
    lay in the pool already, made by `Pool.empty` or restored with mode ``'r+'``."""
    copied_bytes: int


class Persisted(int):
    """The generation of a commit, which is a number, and how each object was written."""

    written: dict[str, Written]

    def __new__(cls, generation: int, written: dict[str, Written]) -> Persisted:
        persisted = super().__new__(cls, generation)
        persisted.written = written
        return persisted

    def __reduce__(self) -> tuple[Any, ...]:
        return Persisted, (int(self), self.written)


class Pool(MutableMapping[str, Any]):
    """An open pool, which is also a mapping from names to objects.

    ``pool[name] = array`` persists one object, `persist` several in one atomic step. ``pool[name]`` is a NumPy array
    over the pool's own memory: private to this process and writable, and what is written to it never reaches the pool.
    Arrays stay valid after the pool is closed.
    """

    def __init__(self, native: NativePool, mode: str, pickle: bool = False) -> None:
        self._native = native
        self._mode = mode
        self._pickle = pickle
        self._made: dict[str, np.ndarray] = {}
        _pools.add(self)

    # Two pools are the same when they are one; comparing their arrays is not what == should do.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"mode={self._mode!r}"
        return f"<remanent.Pool {os.fspath(self.path)!r} {state}>"

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        return os.fspath(self._native.path)

    @property
    def mode(self) -> str:
        return self._mode

    @property
    def closed(self) -> bool:
        return self._native.closed

    def close(self) -> None:
        """Marks the pool clean and lets others write to it. Arrays that it gave out stay as they are, with memory of their
        own where they had the pool's; what `empty` has made and nobody has persisted is gone from the pool.

        What other threads do with the pool is waited for, also when another one closes it. A function that reports
        progress cannot close the pool that its own thread persists into, and the handler of a signal not the one that
        its thread is closing: `RuntimeError`.
        """
        try:
            self._native.close()
        finally:
            self._made.clear()

    # The mapping.

    def __getitem__(self, name: str) -> Any:
        return self.restore([name])[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.persist({name: value})

    def __delitem__(self, name: str) -> None:
        check_name(name)
        if name in self._made and name not in self:
            del self._made[name]
            return
        self._commit([], [name], None, False, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._native.names())

    def __len__(self) -> int:
        return self._native.count()

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._native.contains(check_name(name))
        except BadName:
            return False

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Persists everything in one atomic step."""
        self.persist(dict(other, **more))

    def clear(self) -> None:
        """Removes everything in one atomic step, and forgets what `empty` has made."""
        self._commit([], list(self), None, False, None)
        self._made.clear()

    # The verbs.

    def persist(
        self,
        arrays: Mapping[str, Any] | None = None,
        /,
        *,
        threads: int | None = None,
        checksum: bool = False,
        progress: Progress | bool | None = None,
        pickle: bool | None = None,
        **more: Any,
    ) -> Persisted:
        """Persists objects in one atomic step: after a crash all of them are there, or none.

        Objects are NumPy arrays, `str`, `bytes`, and Python's numbers, which become arrays without dimensions; lists,
        dicts and what they contain; frames of pandas, tables of Arrow, tensors. The book has the list. Anything else is
        `UnknownType`, which names it.

        When this returns they are durable, as far as `durability` goes. What a name held before stays untouched until
        then, so the pool needs room for both. Of an array that was restored with mode ``'c'`` and is persisted again
        under its name only the pages that were written to are copied, if they are less than half of it and nobody else
        has the object. Returns the generation of the commit, and in its `written` which way each object went.

        threads: how many copy, at most the CPUs; 8 unless told. checksum: sums each array, for `verify`.
        progress: called as ``progress(done_bytes, total_bytes)``; what it raises before the end ends the persist, and
        nothing is changed. True shows a bar: that of tqdm, if it is installed, else a line on a terminal.
        pickle: whether what has no other form is kept as a pickle; unless told, as the pool was opened.
        An object named like one of these goes into the mapping.
        """
        may_pickle = self._pickle if pickle is None else pickle
        objects = {**(arrays or {}), **more}
        items = [flatten(name, value, may_pickle) for name, value in objects.items()]
        return self._commit(items, [], threads, checksum, progress)

    def empty(self, name: str, shape: Shape, dtype: Any = float, order: Order = "C") -> np.ndarray:
        """An array in the pool to begin with, of any content, as `numpy.empty` makes it.

        Nobody sees it, and a crash leaves nothing of it, before it is persisted under the name, by `commit` or
        ``pool.persist(name=array)``. That copies nothing: what the processor still has of it is flushed. From then on the
        array is private to this process, as a restored one; what is written to it can be persisted again.

        `commit` forgets it when anything is persisted or renamed to that name, or when the name is deleted:
        ``del pool[name]`` discards an array that nobody has persisted, and touches the pool only if an object is there.

        In the child of a fork it is private at once. Where the child has not written to it, it shows what its parent has
        there later, be it another object: read there what was persisted, and not what was being made.
        """
        check_name(name)
        array = self._memory_for(shape, np.dtype(dtype), order)
        self._made[name] = array
        return array

    def commit(
        self, *, threads: int | None = None, checksum: bool = False, progress: Progress | bool | None = None
    ) -> Persisted:
        """Persists what `empty` has made since, all in one atomic step."""
        return self.persist(dict(self._made), threads=threads, checksum=checksum, progress=progress)

    def _memory_for(self, shape: Shape, dtype: np.dtype[Any], order: Order) -> np.ndarray:
        """An array over memory of the pool, of its own kind where the pool has no form for it or it has no bytes."""
        if order not in ("C", "F"):
            raise ValueError(f"order is 'C' or 'F', not {order!r}")
        reason = "holds strings of any length" if dtype.kind == "T" else unkept(dtype)
        if reason is not None:
            raise UnknownType(f"no memory of the pool can be an array of the type {dtype}: it {reason}")
        lengths = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
        size = math.prod(lengths) * dtype.itemsize
        if min(lengths, default=0) < 0:
            raise ValueError(f"the shape {lengths} has a negative length")
        if size >= 2**63:
            raise ShapeOverflow(f"an array of the shape {lengths} and the type {dtype} has more bytes than can be addressed")
        if size == 0:
            return np.ndarray(lengths, dtype, order=order)
        return array_over(self._native.draft(size), dtype, lengths, order, "r+")

    def _commit(
        self,
        items: list[Item],
        removes: list[str],
        threads: int | None,
        checksum: bool,
        progress: Progress | bool | None,
    ) -> Persisted:
        if threads is not None and threads < 1:
            raise ValueError(f"{threads} threads cannot copy")
        names = [*(item[0] for item in items), *removes]
        made = {name: self._made[name] for name in names if name in self._made}
        with told(progress, "persist") as tell:
            generation, written = self._native.persist(items, removes, threads, checksum, tell)
            self._forget(made)
            if tell is not None:
                total_bytes = sum(size_of(item) for item in items)
                tell(total_bytes, total_bytes)
        return Persisted(generation, {name: Written(way, copied) for name, way, copied in written})

    def _forget(self, made: dict[str, np.ndarray]) -> None:
        """Leaves to `commit` only what was made since under these names."""
        for name, array in made.items():
            if self._made.get(name) is array:
                self._made.pop(name, None)

    def restore(
        self,
        names: Iterable[str] | None = None,
        *,
        mode: str = "c",
        to: str = "pmem",
        populate: bool = False,
        pickle: bool | None = None,
    ) -> dict[str, Any]:
        """Objects by name, all from the same commit; every object when no names are given.

        mode: NumPy's letters. ``'c'`` for arrays that may be written to, without any effect on the pool (a page is
        copied when it is first written to); ``'r'`` for read-only arrays. On device-DAX, which has no private mappings,
        large arrays are read-only in either mode. ``'r+'`` for arrays whose bytes are changed where they lie: what is
        written is durable when the array is persisted under its name, which copies nothing, and a crash before that leaves
        old and new bytes mixed (`ObjectInfo.interrupted`). Such an object is `InUse` for everybody else until the array is
        gone or the pool is closed, and cannot be had while anybody else has it; the pool must be open for writing, and stays
        open as long as the array lives, unless it is closed. Several objects need not come from the same commit then.
        to: ``'pmem'`` leaves the bytes where they are; ``'dram'`` copies them to memory of the process, which is worth its
        time where the pool's device is slower.
        populate: touches every page, so that a lost one is an exception here. Without it restoring takes as long for a
        large array as for a small one, and the pages come when they are used.
        pickle: whether pickles are loaded, which can run any code: say so only if you trust whoever wrote the pool.
        Unless told, as the pool was opened.
        """
        _check_view_mode(mode)
        if to not in ("pmem", "dram"):
            raise ValueError(f"to is 'pmem' or 'dram', not {to!r}")
        if isinstance(names, str):
            raise TypeError("names is a list of names")
        names = None if names is None else [check_name(name) for name in names]
        may_unpickle = self._pickle if pickle is None else pickle
        if mode == "r+":
            if to == "dram":
                raise ValueError("mode='r+' changes what lies in the pool, so it does not go with to='dram'")
            return self._in_place(names)
        form = "copied" if to == "dram" else "private" if mode == "c" else "shared"
        restored = {}
        for name, kind, dtype, shape, order, memories in self._native.restore(names, form):
            if populate:
                for memory in memories:
                    memory.populate()
            restored[name] = rebuild(name, kind, dtype, shape, order, memories, mode, may_unpickle)
        return restored

    def _in_place(self, names: list[str] | None) -> dict[str, np.ndarray]:
        """Arrays that are changed where they lie; ordinary ones where there is no byte to change."""
        names = list(self) if names is None else names
        found = self._native.ls(os.path.commonprefix(names)) if self._mode == "r+" else []
        empty = {fields["name"] for fields in found if fields.get("kind") == "array" and fields["nbytes"] == 0}
        restored = [
            *self._native.in_place([name for name in names if name not in empty]),
            *self._native.restore([name for name in names if name in empty], "copied"),
        ]
        arrays = {
            name: array_over(memory, dtype, shape, order, "r+") for name, _, dtype, shape, order, [memory] in restored
        }
        return {name: arrays[name] for name in names}

    def transaction(
        self,
        *,
        threads: int | None = None,
        checksum: bool = False,
        progress: Progress | bool | None = None,
        pickle: bool | None = None,
    ) -> Transaction:
        """Collects edits; they become true together when the ``with`` block ends without an exception."""
        return Transaction(self, self._pickle if pickle is None else pickle, threads, checksum, progress)

    def rename(self, old: str, new: str, *, replace: bool = False) -> int:
        """Gives an object another name, in one atomic step and without a copy; returns the generation of the commit.

        Arrays and readers that have not moved on keep the old name. If the new name is taken this is `AlreadyExists`,
        unless the object there is to be replaced.
        """
        made = {new: self._made[new]} if new in self._made else {}
        generation = self._native.rename(check_name(old), check_name(new), replace)
        self._forget(made)
        return generation

    def ls(self, prefix: str = "") -> list[ObjectInfo]:
        """What there is, or that of which the names begin so."""
        return [ObjectInfo(**fields) for fields in self._native.ls(check_name(prefix))]

    def info(self) -> dict[str, Any]:
        """What the pool is and how full it is; the book lists the keys."""
        return self._native.info()

    @property
    def durability(self) -> Durability:
        """How much a finished persist is worth, and why."""
        info = self._native.info()
        return Durability(*(info[key] for key in ("durability", "granularity", "provenance", "filesystem", "reason")))

    def grow(
        self, size: Size, *, path: Path | None = None, stripe: Iterable[Path] = (), chunk: Size | None = None
    ) -> None:
        """Adds a file of that size to the pool: beside the first one, or at a path. stripe, chunk: as for `create`."""
        chunk_bytes = None if chunk is None else parse_size(chunk)
        self._native.grow(parse_file_size(size), path, list(stripe), chunk_bytes)

    def gc(self) -> int:
        """Frees what was replaced or removed and nobody views any more; returns its bytes. Every persist does so too."""
        return self._native.gc()

    def refresh(self) -> int:
        """Moves a reader on to the newest commit. Arrays that it gave out stay as they are."""
        return self._native.refresh()

    def verify(self) -> tuple[int, int]:
        """Compares objects with their checksums; returns how many matched and how many have none."""
        return self._native.verify()

    def prefault(self, *, wait: bool = False, progress: Progress | bool | None = None) -> None:
        """Has the system allocate the pool's pages ahead of use, in the background; also those added by `grow`.

        wait: returns when they are there. progress: waits too, and calls ``progress(done_bytes, total_bytes)`` now and
        then and at the end, or shows a bar for True; what it raises ends the waiting, and pre-faulting goes on in the
        background.
        """
        self._native.prefault()
        with told(progress, "prefault") as tell:
            if tell is None:
                if wait:
                    self._native.wait_for_prefault()
                return
            while not self._native.prefault_is_finished():
                tell(*self._native.prefault_progress())
                time.sleep(_PROGRESS_EVERY_S)
            _, total_bytes = self._native.prefault_progress()
            self._native.wait_for_prefault()
            tell(total_bytes, total_bytes)


def _check_view_mode(mode: str) -> None:
    if mode not in ("c", "r", "r+"):
        raise ValueError(f"mode is 'c', 'r' or 'r+', not {mode!r}")


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _settle_in_child() -> None:
    """A forked child shares its parent's locks: without this, a child that outlives it would keep the next writer out."""
    for pool in _pools:
        pool._native.settle_in_child()


os.register_at_fork(after_in_child=_settle_in_child)


def create(
    path: Path,
    size: Size,
    *,
    stripe: Iterable[Path] = (),
    chunk: Size | None = None,
    prefault: bool = False,
    pickle: bool = False,
) -> Pool:
    """Makes a pool of that size and opens it for writing. Nothing that exists is ever replaced.

    size: bytes, or a text such as ``'512MB'`` or ``'1GiB'``, rounded up to whole pages; all of it is allocated at once.
    stripe: further files, usually on other devices, over which the pool is spread in chunks. prefault: see
    `Pool.prefault`. pickle: what `Pool.persist` and `Pool.restore` do with pickles unless they are told.
    """
    chunk_bytes = None if chunk is None else parse_size(chunk)
    native = NativePool.create(path, parse_file_size(size), list(stripe), chunk_bytes)
    return _opened(Pool(native, "r+", pickle), prefault)


def open(path: Path, mode: str = "r+", *, prefault: bool = False, pickle: bool = False) -> Pool:  # like numpy and h5py
    """Opens a pool: ``'r+'`` to write to it, one process at a time; ``'r'`` to read, any number beside the writer.

    Pools are made by `create`, and only there, so there is no ``'w+'``. pickle: what `Pool.persist` and `Pool.restore`
    do with pickles unless they are told; loading one can run any code.
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"mode is 'r' or 'r+', not {mode!r}; pools are made by remanent.create")
    return _opened(Pool(NativePool.open(path, mode), mode, pickle), prefault)


def _opened(pool: Pool, prefault: bool) -> Pool:
    if prefault:
        pool.prefault()
    return pool


def persist(target: Path | Pool, arrays: Mapping[str, Any] | None = None, /, **more: Any) -> Persisted:
    """Persists objects into a pool, or into the pool at a path; see `Pool.persist`."""
    if isinstance(target, Pool):
        return target.persist(arrays, **more)
    with open(target) as pool:
        return pool.persist(arrays, **more)


def restore(
    target: Path | Pool,
    names: Iterable[str] | None = None,
    *,
    mode: str = "c",
    to: str = "pmem",
    populate: bool = False,
    pickle: bool | None = None,
) -> dict[str, Any]:
    """Restores objects from a pool, or from the pool at a path; see `Pool.restore`. They outlive the pool."""
    if isinstance(target, Pool):
        return target.restore(names, mode=mode, to=to, populate=populate, pickle=pickle)
    _check_view_mode(mode)
    if mode == "r+":
        raise ValueError("mode='r+' needs a pool that stays open: remanent.open(path).restore(names, mode='r+')")
    with open(target, "r") as pool:
        return pool.restore(names, mode=mode, to=to, populate=populate, pickle=pickle)
