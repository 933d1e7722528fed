"""Values of several parts as trees and back: containers, tables, strings, what is missing.

A tree is nested tuples, each with its node's name first; the extension knows their form on media. Whatever holds many
items lies in buffers, which are copied once, by the extension, and mapped when they are restored. The names are those
of the store's nodes. What only Python or a library of it knows of a value stands beside it, as attributes of that owner.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ._memory import array_over, bytes_over
from ._texts import half_character
from .errors import Corrupt, Error, UnknownType

#: From this size on a text or bytes lie in a buffer, and not in the tree.
LONG_BYTES = 4 << 10
#: From this length on a list of equal things is one array, or one run of strings, and not a node an item.
LONG_ITEMS = 32
#: Deeper than this no value is kept: the store allows for 128 nodes, and one inside another may take two.
MAX_DEPTH = 56

Tree = tuple[Any, ...]

# Numbers lie in buffers as the machine has them, and every type says its byte order.
assert sys.byteorder == "little"


class Flattener:
    """Makes one value into a tree and its buffers."""

    def __init__(self, name: str, may_pickle: bool = False) -> None:
        self._name = name
        self._may_pickle = may_pickle
        self._path: list[Any] = []
        self._above: set[int] = set()
        self._endless: tuple[UnknownType | None, int | None] = None, None
        self.buffers: list[Any] = []

    def flatten(self, value: Any) -> Tree:
        """The tree of a value. Raises `UnknownType` with the place of what cannot be kept.

        With pickles allowed, a dict and a frame of pandas keep their form and their parts are pickled one by one, if
        they must be; anything else that has such a part is pickled whole, so that what its parts share stays shared.
        """
        if not self._may_pickle or _is_frame(value):
            return self._flatten(value)
        if type(value) is dict:
            return self._or_pickled_if_endless(value)
        return self.or_pickled(value, lambda: self._flatten(value))

    def or_pickled(self, value: Any, make: Callable[[], Tree]) -> Tree:
        """The tree that is made, or the pickle of the value, if that is allowed and needed."""
        if not self._may_pickle:
            return make()
        count = len(self.buffers)
        self._may_pickle = False
        try:
            return make()
        except UnknownType as error:
            if self._endless_of(error) in self._above:
                raise  # only a pickle of all of it can have the end lead to the beginning
            return self._pickled(value, count)
        finally:
            self._may_pickle = True

    def _or_pickled_if_endless(self, value: dict[Any, Any]) -> Tree:
        count = len(self.buffers)
        try:
            return self._flatten(value)
        except UnknownType as error:
            if self._endless_of(error) != id(value) or id(value) in self._above:
                raise
            return self._pickled(value, count)

    def _endless_of(self, error: UnknownType) -> int | None:
        """The `id` of what contains itself, if that is what an error tells."""
        told, container = self._endless
        return container if told is error else None

    def _pickled(self, value: Any, count: int) -> Tree:
        """The pickle of a value, in the place of the buffers that a part of it has left."""
        del self.buffers[count:]
        pickled: Tree = _module("_pickle").flatten(self, value)
        return pickled

    def _flatten(self, value: Any) -> Tree:
        if len(self._path) >= MAX_DEPTH:
            raise self.refuse("is nested too deep")
        plain = _PLAIN.get(type(value))
        if plain is not None:
            return plain(self, value)
        module = _module_of(value)
        tree: Tree | None = None if module is None else _module(module).flatten(self, value)
        if tree is None:
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            reason = f"is of the type {kind}, which has no form of its own"
            raise self.refuse(f"{reason}; what can be pickled is kept by persist(..., pickle=True)")
        return tree

    def refuse(self, reason: str) -> UnknownType:
        """What to raise for the value that is looked at."""
        return UnknownType(f"{_place(self._name, self._path)} {reason}")

    def buffer(self, data: Any) -> int:
        """The number of a new buffer, which has these bytes."""
        self.buffers.append(np.frombuffer(data, np.uint8) if len(data) else b"")
        return len(self.buffers) - 1

    def inside(self, step: Any, flatten: Callable[[], Tree]) -> Tree:
        """The tree of a part, which errors name by this step."""
        self._path.append(step)
        try:
            return flatten()
        finally:
            self._path.pop()

    def part(self, step: Any, value: Any) -> Tree:
        """The tree of a value inside this one."""
        self._path.append(step)
        try:
            return self.flatten(value)
        finally:
            self._path.pop()

    def text(self, text: str) -> Tree:
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise self.refuse(f"is a text with {half_character(error)}") from None
        return ("text", text) if len(data) < LONG_BYTES else ("long", True, self.buffer(data))

    def binary(self, data: bytes) -> Tree:
        return ("bytes", data) if len(data) < LONG_BYTES else ("long", False, self.buffer(data))

    def strings(self, items: Iterable[str | bytes | None], is_text: bool = True) -> Tree:
        """Strings of any length; None where one is missing."""
        encoded, is_there = [], []
        for number, item in enumerate(items):
            is_there.append(item is not None)
            encoded.append(item if isinstance(item, bytes) else self._utf_8(number, item or ""))
        offsets = np.zeros(len(encoded) + 1, "<i8")
        np.cumsum([len(item) for item in encoded], out=offsets[1:])
        validity = None if all(is_there) else self.validity(np.array(is_there))
        return (
            "strings",
            len(encoded),
            self.buffer(offsets.view(np.uint8)),
            self.buffer(b"".join(encoded)),
            validity,
            is_text,
        )

    def validity(self, is_there: np.ndarray) -> int:
        """A buffer with a bit for each item."""
        return self.buffer(np.packbits(is_there, bitorder="little"))

    def _utf_8(self, number: int, item: str) -> bytes:
        try:
            return item.encode()
        except UnicodeEncodeError as error:
            place = _place(self._name, [*self._path, number])
            raise UnknownType(f"{place} is a text with {half_character(error)}") from None

    def container(self, value: Any, make: Callable[[], Tree]) -> Tree:
        """The tree of what may contain itself, which is refused."""
        if id(value) in self._above:
            error = self.refuse("contains itself, which only a pickle can keep: persist(..., pickle=True)")
            self._endless = error, id(value)
            raise error
        self._above.add(id(value))
        try:
            return make()
        finally:
            self._above.remove(id(value))

    def items(self, kind: str, items: Iterable[Any]) -> Tree:
        """The tree of values one after the other."""
        return (kind, [self.part(number, item) for number, item in enumerate(items)])

    def _sequence(self, kind: str, value: list[Any] | tuple[Any, ...]) -> Tree:
        tree = self._run(kind, value) if len(value) >= LONG_ITEMS else None
        return tree or self.container(value, lambda: self.items(kind, value))

    def _run(self, kind: str, value: list[Any] | tuple[Any, ...]) -> Tree | None:
        """The tree of many things of one type; none if they are not."""
        types = set(map(type, value))
        if types in ({str}, {bytes}, {str, type(None)}, {bytes, type(None)}):
            tree = self.strings(value, str in types)
            return tree if kind == "list" else of_python(kind, tree)
        dtype = _RUNS.get(next(iter(types))) if len(types) == 1 else None
        if dtype is None:
            return None
        try:
            array: np.ndarray[Any, Any] = np.array(value, dtype)
        except OverflowError:
            return None
        return of_python(kind, self.flatten(array))

    def _mapping(self, value: dict[Any, Any]) -> Tree:
        return ("mapping", [(self.part(key, key), self.part(key, item)) for key, item in value.items()])


class Rebuilder:
    """Makes a tree and its buffers into the value again."""

    def __init__(self, name: str, memories: list[Any], mode: str, may_unpickle: bool = False) -> None:
        self._name = name
        self._path: list[Any] = []
        self._memories = memories
        self.mode = mode
        self.may_unpickle = may_unpickle

    def rebuild(self, tree: Tree) -> Any:
        """The value of a tree. Raises `UnknownType` for what a later version has written."""
        rebuild = _NODES.get(tree[0])
        if rebuild is None:
            raise self.refuse(f"is a {tree[0]!r}, which this version cannot read")
        return rebuild(self, *tree[1:])

    def part(self, step: Any, tree: Tree) -> Any:
        """The value of a part, which errors name by this step."""
        self._path.append(step)
        value = self.rebuild(tree)
        self._path.pop()
        return value

    def place(self) -> str:
        """Where in its object the value is that is looked at."""
        return _place(self._name, self._path)

    def refuse(self, reason: str) -> UnknownType:
        """What to raise for a value that cannot be read here."""
        return UnknownType(f"{self.place()} {reason}")

    def damaged(self, what: str) -> Corrupt:
        """What to raise for bytes that cannot be right."""
        return Corrupt(f"{what} in {self.place()} are damaged; restore the file from a copy")

    def by_library(self, library: str, make: Callable[[], Any]) -> Any:
        """What another library makes. What it raises is no damage: it may be another version than the writer had."""
        try:
            return make()
        except (Error, MemoryError, RecursionError, ImportError, Warning):
            raise
        except Exception as error:  # each library raises its own
            if isinstance(error, OSError) and error.errno is not None:
                raise
            version = getattr(sys.modules.get(library), "__version__", "of this version")
            reason = f"cannot be made by {library} {version} ({type(error).__name__}: {error})"
            raise self.refuse(f"{reason}; use the version that it was made with, or a newer one") from error

    def memory(self, buffer: int) -> Any:
        """A buffer where it lies. Its pages may be lost, which whoever reads it has to bear."""
        return self._memories[buffer]

    def data(self, buffer: int) -> Any:
        """A buffer that is about to be read; a lost page is an exception here."""
        self._memories[buffer].populate()
        return self._memories[buffer]

    def numbers(self, tree: Tree) -> np.ndarray:
        """An array that is about to be read; a lost page is an exception here."""
        if tree[0] == "array":
            self.data(tree[4])
        return np.asarray(self.rebuild(tree))

    def bytes_over(self, buffer: int) -> np.ndarray:
        """The bytes of a buffer, to be handed on: a copy, if they are few and to be written to."""
        return bytes_over(self._memories[buffer], self.mode)

    def is_there(self, validity: int, count: int) -> np.ndarray:
        """Which of so many items are there."""
        bits = np.frombuffer(self.data(validity), np.uint8)
        return np.unpackbits(bits, count=count, bitorder="little").view(bool)

    def strings(self, count: int, offsets: int, data: int, validity: int | None, is_text: bool) -> list[Any]:
        """The strings, None where one is missing."""
        places = self.places(count, offsets, data)
        content = bytes(self.data(data))
        pieces = [content[start:end] for start, end in zip(places[:-1].tolist(), places[1:].tolist(), strict=True)]
        values: list[Any] = [self._decode(piece) for piece in pieces] if is_text else list(pieces)
        if validity is not None:
            for number in np.flatnonzero(~self.is_there(validity, count)).tolist():
                values[number] = None
        return values

    def places(self, count: int, offsets: int, data: int) -> np.ndarray:
        """The offsets of strings. All are checked: whoever follows a damaged one leaves the buffer."""
        if len(self.memory(offsets)) != (count + 1) * 8:
            raise self.damaged("the strings")
        places = np.frombuffer(self.data(offsets), "<i8")
        if places[0] != 0 or places[-1] != len(self.memory(data)) or (places[1:] < places[:-1]).any():
            raise self.damaged("the strings")
        return places

    def _decode(self, data: Any) -> str:
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError:
            raise self.damaged("the bytes of a text") from None

    def _long(self, is_text: bool, buffer: int) -> str | bytes:
        data = self.data(buffer)
        return self._decode(data) if is_text else bytes(data)

    def _array(self, dtype: np.dtype[Any], shape: tuple[int, ...], order: str, buffer: int) -> np.ndarray:
        return array_over(self._memories[buffer], dtype, shape, order, self.mode)

    def _nullable(self, items: Tree, validity: int) -> Any:
        values = self.rebuild(items)
        order: Any = items[3] if items[0] == "array" else "C"
        return np.ma.MaskedArray(values, ~self.is_there(validity, values.size).reshape(values.shape, order=order))

    def _dictionary(self, indices: Tree, first: int, values: Tree, is_ordered: bool) -> Any:
        if has("pandas"):
            plain = _module("_pandas").plain_categorical
            return self.by_library("pandas", lambda: plain(self, indices, first, values, is_ordered))
        return self.looked_up(indices, first, values)

    def looked_up(self, indices: Tree, first: int, values: Tree) -> list[Any]:
        """The items of a dictionary, None where one is missing."""
        found, places = self.rebuild(values), self.places_from_0(indices, first).tolist()
        if max(places, default=-1) >= len(found):
            raise self.damaged("the places of a dictionary")
        return [None if place < 0 else found[place] for place in places]

    def places_from_0(self, indices: Tree, first: int) -> np.ndarray:
        """The places of a dictionary counted from 0; below that where an item is missing."""
        places = self.numbers(indices)
        if first == 0:
            return places
        return places.astype(np.int64) - first if places.dtype.kind == "u" else np.maximum(places, first - 1) - first

    def _table(self, rows: int, columns: list[tuple[Tree, Tree]]) -> Any:
        if has("pandas"):
            return self.by_library("pandas", lambda: _module("_pandas").plain_frame(self, rows, columns))
        names = [self.rebuild(name) for name, _ in columns]
        if len(set(names)) < len(names):
            raise self.refuse("is a table with several columns of one name: install pandas to restore it")
        return {name: self.part(name, column) for name, (_, column) in zip(names, columns, strict=True)}

    def _items(self, items: list[Tree]) -> list[Any]:
        return [self.part(number, item) for number, item in enumerate(items)]

    def _mapping(self, pairs: list[tuple[Tree, Tree]]) -> dict[Any, Any]:
        keys = [self.rebuild(key) for key, _ in pairs]
        try:
            known = dict.fromkeys(keys)
        except TypeError as error:
            raise self.refuse(f"is a mapping with a key that cannot be one here: {error}") from None
        if len(known) < len(keys):
            raise self.refuse("is a mapping with several keys that are one here")
        return {key: self.part(key, value) for key, (_, value) in zip(keys, pairs, strict=True)}

    def _attributed(self, tree: Tree, owner: str, attributes: list[tuple[str, Tree]]) -> Any:
        module = _OWNERS.get(owner)
        if module is None or not all(map(has, _NEEDED.get(module, ()))):
            # What another language keeps beside a value is not needed to read it here.
            return self.rebuild(tree)
        known = Attributes(self, attributes)
        return self._by_module(module, lambda: _module(module).rebuild(self, tree, known))

    def _foreign(self, codec: str, stream: int, buffers: list[int]) -> Any:
        module = _CODECS.get(codec)
        if module is None:
            reason = "which only R can read" if codec.startswith("r.") else "which this version cannot read"
            raise self.refuse(f"is written as {codec}, {reason}")
        if not all(map(has, _NEEDED.get(module, ()))):
            raise self.refuse(f"is written as {codec}: install {' and '.join(_NEEDED[module])} to restore it")
        return self._by_module(module, lambda: _module(module).rebuild_foreign(self, stream, buffers))

    def _by_module(self, module: str, make: Callable[[], Any]) -> Any:
        library = _LIBRARY_OF.get(module)
        return make() if library is None else self.by_library(library, make)


class Attributes(dict[str, Tree]):
    """What stands beside a value."""

    def __init__(self, rebuilder: Rebuilder, attributes: list[tuple[str, Tree]]) -> None:
        super().__init__(attributes)
        self._rebuilder = rebuilder

    def __missing__(self, name: str) -> Tree:
        raise self._rebuilder.damaged(f"the parts, of which {name!r} is missing,")


def of_python(kind: str, tree: Tree, *attributes: tuple[str, Tree]) -> Tree:
    """A tree of which Python has to know the type."""
    return ("attributed", tree, "python", [("type", ("text", kind)), *attributes])


def integer(value: int) -> Tree:
    """The tree of an integer of any size."""
    if -(2**63) <= value < 2**63:
        return ("int", value)
    size = (abs(value).bit_length() + 7) // 8
    return ("large_int", value < 0, abs(value).to_bytes(size, "little"))


def _place(name: str, path: list[Any]) -> str:
    """Where in an object something is, as in an expression."""
    return repr(name + "".join(f"[{step!r:.200}]" for step in path))


#: Lists of these are arrays of those.
_RUNS: dict[type, type] = {bool: np.bool_, int: np.int64, float: np.float64}

_PLAIN: dict[type, Callable[[Flattener, Any], Tree]] = {
    type(None): lambda _, value: ("nothing",),
    bool: lambda _, value: ("bool", value),
    int: lambda _, value: integer(value),
    float: lambda _, value: ("float", value),
    complex: lambda _, value: ("complex", value.real, value.imag),
    str: lambda f, value: f.text(value),
    bytes: lambda f, value: f.binary(value),
    list: lambda f, value: f._sequence("list", value),
    tuple: lambda f, value: f._sequence("tuple", value),
    dict: lambda f, value: f.container(value, lambda: f._mapping(value)),
}

_NODES: dict[str, Callable[..., Any]] = {
    "nothing": lambda r: None,
    "bool": lambda r, value: value,
    "int": lambda r, value: value,
    "large_int": lambda r, negative, magnitude: int.from_bytes(magnitude, "little") * (-1 if negative else 1),
    "float": lambda r, value: value,
    "complex": lambda r, real, imaginary: complex(real, imaginary),
    "text": lambda r, text: text,
    "bytes": lambda r, data: bytes(data),
    "long": Rebuilder._long,
    "array": Rebuilder._array,
    "nullable": Rebuilder._nullable,
    "strings": Rebuilder.strings,
    "dictionary": Rebuilder._dictionary,
    "list": Rebuilder._items,
    "tuple": lambda r, items: tuple(r._items(items)),
    "mapping": Rebuilder._mapping,
    "table": Rebuilder._table,
    "attributed": Rebuilder._attributed,
    "foreign": Rebuilder._foreign,
}

# Which module of this package knows what. None is imported before it is needed: the libraries need not be there.

#: Values, by the library that their type is of.
_LIBRARIES = {
    **dict.fromkeys(("builtins", "datetime", "decimal", "fractions", "pathlib", "uuid"), "_python"),
    "numpy": "_numpy",
    "pandas": "_pandas",
    "pyarrow": "_arrow",
}
#: Attributes, by their owner.
_OWNERS = {
    "python": "_python",
    "numpy": "_numpy",
    "pandas": "_pandas",
    "arrow": "_arrow",
    "dlpack": "_tensors",
    "r": "_r",
}
#: What is foreign, by its codec.
_CODECS = {"python.pickle-5": "_pickle", "arrow.ipc-stream": "_arrow"}
#: What a module cannot do without.
_NEEDED = {"_pandas": ("pandas",), "_arrow": ("pyarrow",)}
#: Which library makes what a module rebuilds.
_LIBRARY_OF = {"_numpy": "numpy", "_pandas": "pandas", "_arrow": "pyarrow"}


def _is_frame(value: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and type(value) is getattr(pandas, "DataFrame", None)


def _module_of(value: Any) -> str | None:
    """The module that may know a value."""
    if isinstance(value, (np.ndarray, np.generic)):
        return "_numpy"
    # Also of what only derives from pandas: it would pass for one of Arrow's tables, and lose what it has besides.
    if any(library_of(kind) == "pandas" for kind in type(value).__mro__):
        return "_pandas"
    module = _LIBRARIES.get(library_of(type(value)))
    if module is None and any(hasattr(value, name) for name in ("__arrow_c_stream__", "__arrow_c_array__")):
        module = "_arrow" if has("pyarrow") else None
    if module is None and hasattr(value, "__dlpack__"):
        module = "_tensors"
    return module


def library_of(kind: type) -> str:
    """The library that a class is of."""
    return kind.__module__.partition(".")[0]


def _module(name: str) -> Any:
    return importlib.import_module(f".{name}", __package__)


def has(library: str) -> bool:
    """Whether a library can be imported."""
    if library in sys.modules:
        return sys.modules[library] is not None
    return importlib.util.find_spec(library) is not None
