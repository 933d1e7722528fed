"""Values of several parts as trees and back: containers, tables, strings, what is missing.

A tree is nested tuples, each with its node's name first; the extension knows their form on media. Whatever holds many items
lies in buffers, which are copied once, by the extension, and mapped when they are restored. The names are those of
the store's nodes. What only Python or a library of it knows of a value stands beside it, as attributes of that owner.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import Corrupt, UnknownType

#: From this size on a text or bytes lie in a buffer, and not in the tree.
LONG_BYTES = 4 << 10
#: Deeper than this the store keeps no tree.
MAX_DEPTH = 100

Tree = tuple[Any, ...]


class Flattener:
    """Makes one value into a tree and its buffers."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._path: list[str] = []
        self._above: set[int] = set()
        self.buffers: list[Any] = []

    def flatten(self, value: Any) -> Tree:
        """The tree of a value. Raises `UnknownType` with the place of what cannot be kept."""
        if len(self._path) >= MAX_DEPTH:
            raise self.refuse("is nested too deep")
        plain = _PLAIN.get(type(value))
        if plain is not None:
            return plain(self, value)
        if isinstance(value, np.ma.MaskedArray):
            return self._masked(value)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, np.generic):
            return ("attributed", self._array(np.asarray(value)), "numpy", [("scalar", ("bool", True))])
        library = type(value).__module__.partition(".")[0]
        _load(library)
        if library in _LIBRARIES:
            tree = _LIBRARIES[library](self, value)
            if tree is not None:
                return tree
        raise self.refuse(f"is a {type(value).__qualname__}, which this version does not keep")

    def refuse(self, reason: str) -> UnknownType:
        """What to raise for the value that is looked at."""
        return UnknownType(f"{self._name + ''.join(self._path)!r} {reason}")

    def buffer(self, data: Any) -> int:
        """The number of a new buffer, which has these bytes."""
        self.buffers.append(data)
        return len(self.buffers) - 1

    def inside(self, step: str, flatten: Callable[[], Tree]) -> Tree:
        """The tree of a part, which errors name by this step."""
        self._path.append(step)
        tree = flatten()
        self._path.pop()
        return tree

    def _inside(self, step: str, value: Any) -> Tree:
        return self.inside(step, lambda: self.flatten(value))

    def _text(self, text: str) -> Tree:
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise self.refuse(f"is a text with half a character: {error}") from None
        return ("text", text) if len(data) < LONG_BYTES else ("long", True, self.buffer(data))

    def _bytes(self, data: bytes) -> Tree:
        return ("bytes", data) if len(data) < LONG_BYTES else ("long", False, self.buffer(data))

    def _container(self, value: Any, make: Callable[[], Tree]) -> Tree:
        if id(value) in self._above:
            raise self.refuse("contains itself")
        self._above.add(id(value))
        tree = make()
        self._above.remove(id(value))
        return tree

    def _items(self, kind: str, items: Any) -> Tree:
        return (kind, [self._inside(f"[{number}]", item) for number, item in enumerate(items)])

    def _mapping(self, value: dict[Any, Any]) -> Tree:
        pairs = [(self._inside(f"[{key!r}]", key), self._inside(f"[{key!r}]", item)) for key, item in value.items()]
        return ("mapping", pairs)

    def _array(self, array: np.ndarray) -> Tree:
        array = array.view(np.ndarray)
        if array.dtype.kind == "T":
            return self._strings(array)
        if array.dtype.hasobject:
            raise self.refuse("is an array of Python objects; make it a list, or give it a type")
        if array.flags.c_contiguous:
            order = "C"
        elif array.flags.f_contiguous:
            order = "F"
        else:
            array, order = np.array(array, order="C"), "C"
        data = array.reshape(-1, order=order).view(np.uint8) if array.nbytes else b""
        return ("array", array.dtype, array.shape, order, self.buffer(data))

    def _masked(self, array: np.ma.MaskedArray) -> Tree:
        # One bit an item in the order in which the items lie.
        items = self._array(np.ma.getdata(array))
        mask = np.ma.getmaskarray(array).reshape(-1, order=items[3])
        validity = self.buffer(np.packbits(~mask, bitorder="little"))
        if array.ndim != 1:
            # A node's length is that of its first dimension, so the shape stands beside it.
            items = (*items[:2], (array.size,), *items[3:])
        attributes = [
            ("masked", ("bool", True)),
            ("shape", ("tuple", [("int", length) for length in array.shape])),
            ("fill_value", self._array(np.asarray(array.fill_value))),
        ]
        return ("attributed", ("nullable", items, validity), "numpy", attributes)

    def _strings(self, array: np.ndarray) -> Tree:
        missing_value = getattr(array.dtype, "na_object", None)
        flat = array.reshape(-1).tolist()
        is_missing = [not isinstance(item, str) for item in flat]
        encoded = [b"" if missing else item.encode() for item, missing in zip(flat, is_missing)]
        tree = self.strings(encoded, is_missing, True)
        has_missing = hasattr(array.dtype, "na_object")
        attributes = [
            ("string_dtype", ("bool", True)),
            ("shape", ("tuple", [("int", length) for length in array.shape])),
            ("coerce", ("bool", bool(getattr(array.dtype, "coerce", True)))),
        ]
        if has_missing:
            if not (missing_value is None or (isinstance(missing_value, float) and missing_value != missing_value)):
                raise self.refuse("is an array of strings whose missing value is neither None nor NaN")
            attributes.append(("missing", ("nothing",) if missing_value is None else ("float", float("nan"))))
        return ("attributed", tree, "numpy", attributes)

    def strings(self, encoded: list[bytes], is_missing: list[bool], is_text: bool) -> Tree:
        """Strings of any length, some of them missing."""
        offsets = np.zeros(len(encoded) + 1, "<i8")
        np.cumsum([len(item) for item in encoded], out=offsets[1:])
        numbers = self.buffer(offsets.view(np.uint8)), self.buffer(b"".join(encoded))
        validity = None
        if any(is_missing):
            validity = self.buffer(np.packbits(~np.array(is_missing, bool), bitorder="little"))
        return ("strings", len(encoded), *numbers, validity, is_text)


def _large_int(value: int) -> Tree:
    if -(2**63) <= value < 2**63:
        return ("int", value)
    size = (abs(value).bit_length() + 7) // 8
    return ("large_int", value < 0, abs(value).to_bytes(size, "little"))


def _of_python(kind: str, tree: Tree) -> Tree:
    return ("attributed", tree, "python", [("type", ("text", kind))])


_PLAIN: dict[type, Callable[[Flattener, Any], Tree]] = {
    type(None): lambda _, value: ("nothing",),
    bool: lambda _, value: ("bool", value),
    int: lambda _, value: _large_int(value),
    float: lambda _, value: ("float", value),
    complex: lambda _, value: ("complex", value.real, value.imag),
    str: lambda f, value: f._text(value),
    bytes: lambda f, value: f._bytes(value),
    bytearray: lambda f, value: _of_python("bytearray", f._bytes(bytes(value))),
    list: lambda f, value: f._container(value, lambda: f._items("list", value)),
    tuple: lambda f, value: f._container(value, lambda: f._items("tuple", value)),
    dict: lambda f, value: f._container(value, lambda: f._mapping(value)),
    set: lambda f, value: _of_python("set", f._items("list", value)),
    frozenset: lambda f, value: _of_python("frozenset", f._items("list", value)),
    range: lambda f, value: _of_python("range", ("tuple", [_large_int(n) for n in (value.start, value.stop, value.step)])),
    slice: lambda f, value: _of_python("slice", f._items("tuple", (value.start, value.stop, value.step))),
}

#: By the name of a library, what makes its values into trees; none when it does not know the value. Modules register here
#: that need not be there.
_LIBRARIES: dict[str, Callable[[Flattener, Any], Tree | None]] = {}


def _load(library: str) -> None:
    """Loads what knows a library's values. Whoever has such a value has the library."""
    if library == "pandas" and library not in _LIBRARIES:
        try:
            from . import _pandas
        except ImportError:
            return
        register(library, _pandas.flatten, _pandas.rebuild)


def register(library: str, flatten: Callable[[Flattener, Any], Tree | None], rebuild: Callable[..., Any]) -> None:
    """Adds what knows the values of a library, and what it keeps beside them."""
    _LIBRARIES[library] = flatten
    _OWNERS[library] = rebuild


class Rebuilder:
    """Makes a tree and its buffers into the value again."""

    def __init__(self, name: str, array: Callable[[int, np.dtype, tuple[int, ...], str], np.ndarray], data: Callable[[int], Any]):
        """`array` makes an array over a buffer, and `data` gives a buffer's bytes."""
        self._name = name
        self._array = array
        self._data = data

    def rebuild(self, tree: Tree) -> Any:
        """The value of a tree. Raises `UnknownType` for what a later version has written."""
        rebuild = _NODES.get(tree[0])
        if rebuild is None:
            raise UnknownType(f"{self._name!r} has a {tree[0]!r} in it, which this version cannot read")
        return rebuild(self, *tree[1:])

    def _long(self, is_text: bool, buffer: int) -> str | bytes:
        return self._decode(self._data(buffer)) if is_text else bytes(self._data(buffer))

    def _decode(self, data: Any) -> str:
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise Corrupt(f"a text in {self._name!r} is damaged: {error}; restore the file from a copy") from None

    def _nullable(self, items: Tree, validity: int) -> np.ma.MaskedArray:
        array = self.rebuild(items)
        return np.ma.MaskedArray(array, self.is_missing(validity, array.size).reshape(array.shape))

    def is_missing(self, validity: int, count: int) -> np.ndarray:
        """Which items are missing."""
        bits = np.frombuffer(self._data(validity), np.uint8)
        return np.unpackbits(bits, count=count, bitorder="little") == 0

    def strings(self, count: int, offsets: int, data: int, validity: int | None, is_text: bool) -> list[Any]:
        """The strings, None where one is missing."""
        places = np.frombuffer(self._data(offsets), "<i8")
        content = bytes(self._data(data))
        if places[0] != 0 or places[-1] != len(content) or (np.diff(places) < 0).any():
            raise Corrupt(f"the strings in {self._name!r} are damaged; restore the file from a copy")
        pieces = [content[start:end] for start, end in zip(places[:-1].tolist(), places[1:].tolist())]
        values: list[Any] = [self._decode(piece) for piece in pieces] if is_text else list(pieces)
        if validity is not None:
            for number in np.flatnonzero(self.is_missing(validity, count)).tolist():
                values[number] = None
        return values

    def _dictionary(self, indices: Tree, first: int, values: Tree, is_ordered: bool) -> list[Any]:
        found = self.rebuild(values)
        return [None if place < first else found[place - first] for place in self.rebuild(indices).tolist()]

    def _table(self, rows: int, columns: list[tuple[Tree, Tree]]) -> dict[Any, Any]:
        return {self.rebuild(name): self.rebuild(column) for name, column in columns}

    def _attributed(self, tree: Tree, owner: str, attributes: list[tuple[str, Tree]]) -> Any:
        _load(owner)
        known = _OWNERS.get(owner)
        if known is None:
            # What another language keeps beside a value is not needed to read it here.
            return self.rebuild(tree)
        return known(self, tree, dict(attributes))

    def _of_python(self, tree: Tree, attributes: dict[str, Tree]) -> Any:
        kind = self.rebuild(attributes["type"])
        make = {"bytearray": bytearray, "set": set, "frozenset": frozenset}.get(kind)
        if make is not None:
            return make(self.rebuild(tree))
        if kind in ("range", "slice"):
            return {"range": range, "slice": slice}[kind](*self.rebuild(tree))
        raise UnknownType(f"{self._name!r} has a {kind!r} in it, which this version cannot read")

    def _of_numpy(self, tree: Tree, attributes: dict[str, Tree]) -> Any:
        value = self.rebuild(tree)
        if "scalar" in attributes:
            return value[()]
        if "masked" in attributes:
            shape, order = self.rebuild(attributes["shape"]), tree[1][3]
            value = np.ma.MaskedArray(value.data.reshape(shape, order=order), value.mask.reshape(shape, order=order))
            value.fill_value = self.rebuild(attributes["fill_value"])
            return value
        if "string_dtype" in attributes:
            options: dict[str, Any] = {"coerce": self.rebuild(attributes["coerce"])}
            if "missing" in attributes:
                options["na_object"] = self.rebuild(attributes["missing"])
                value = [options["na_object"] if item is None else item for item in value]
            dtype = np.dtypes.StringDType(**options)
            return np.array(value, dtype).reshape(self.rebuild(attributes["shape"]))
        return value


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
    "array": lambda r, dtype, shape, order, buffer: r._array(buffer, dtype, shape, order),
    "nullable": Rebuilder._nullable,
    "strings": Rebuilder.strings,
    "dictionary": Rebuilder._dictionary,
    "list": lambda r, items: [r.rebuild(item) for item in items],
    "tuple": lambda r, items: tuple(r.rebuild(item) for item in items),
    "mapping": lambda r, pairs: {r.rebuild(key): r.rebuild(value) for key, value in pairs},
    "table": Rebuilder._table,
    "attributed": Rebuilder._attributed,
}

_OWNERS: dict[str, Callable[[Rebuilder, Tree, dict[str, Tree]], Any]] = {
    "python": Rebuilder._of_python,
    "numpy": Rebuilder._of_numpy,
}

# Numbers lie in buffers as the machine has them, and every type says its byte order.
assert sys.byteorder == "little"
