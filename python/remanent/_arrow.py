"""Arrow's tables and arrays as trees and back.

Columns of numbers, times, strings and dictionaries are nodes that any language can read, over buffers as Arrow has
them wherever the layouts agree. Any other column is an Arrow IPC stream of its own. What comes back is made by pyarrow,
without a copy of any buffer whose layout agrees; the exceptions are the bits of booleans, dates and times of 32 bits,
and the offsets of strings that Arrow counts with 32 bits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._values import Flattener, Rebuilder, Tree

_CODEC = "arrow.ipc-stream"


def flatten(flattener: Flattener, value: Any) -> Tree | None:
    """The tree of a table, a batch, an array, or of anything that exports one of them; none for anything else."""
    kind, value = _taken(flattener, value)
    if kind is None:
        return None
    if kind in ("table", "record_batch"):
        schema = value.schema
        parts = [value.column(number) for number in range(value.num_columns)]
        names = [("text", name) for name in schema.names]
        trees = [
            flattener.inside(name, partial(_column, flattener, part))
            for name, part in zip(schema.names, parts, strict=True)
        ]
        tree: Tree = ("table", value.num_rows, list(zip(names, trees, strict=True)))
    else:
        schema, parts = pa.schema([pa.field("", value.type)]), [value]
        tree = _column(flattener, value)
    attributes = [
        ("type", ("text", kind)),
        ("schema", flattener.binary(schema.serialize().to_pybytes())),
        ("null_counts", flattener.flatten(np.array([part.null_count for part in parts], "i8"))),
    ]
    return ("attributed", tree, "arrow", attributes)


def _taken(flattener: Flattener, value: Any) -> tuple[str | None, Any]:
    """What a value is, and itself or what it exports."""
    for kind, known in _KINDS.items():
        if isinstance(value, known):
            return kind, value
    if isinstance(value, (pa.Scalar, pa.DataType, pa.Field, pa.Schema, pa.Buffer)):
        return None, value
    try:
        if hasattr(value, "__arrow_c_stream__"):
            stream = _first_of(value, pa.table, pa.chunked_array)
            return ("table" if isinstance(stream, pa.Table) else "chunked_array"), stream
        if hasattr(value, "__arrow_c_array__"):
            array = _first_of(value, pa.record_batch, pa.array)
            return ("record_batch" if isinstance(array, pa.RecordBatch) else "array"), array
    except pa.ArrowException as error:
        raise flattener.refuse(f"does not export what Arrow can read: {error}") from error
    return None, value


def _first_of(value: Any, *makes: Callable[[Any], Any]) -> Any:
    """What the first function makes that takes the value: only structures are tables and batches."""
    for make in makes[:-1]:
        try:
            return make(value)
        except (TypeError, ValueError, pa.ArrowException):
            continue
    return makes[-1](value)


_KINDS = {"table": pa.Table, "record_batch": pa.RecordBatch, "chunked_array": pa.ChunkedArray, "array": pa.Array}


# To trees.


def _column(flattener: Flattener, column: Any) -> Tree:
    try:
        return _kept(flattener, column)
    except MemoryError:
        raise
    except pa.ArrowException as error:
        raise flattener.refuse(f"is {column.type} in a form that Arrow cannot make into one array: {error}") from error


def _kept(flattener: Flattener, column: Any) -> Tree:
    column = _as_large(column)
    array = column if isinstance(column, pa.Array) else _one(column)
    kind = array.type
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return _strings(flattener, array)
    if types.is_dictionary(kind) and _is_plain(kind.value_type) and array.dictionary.null_count == 0:
        return _dictionary(flattener, array)
    if _is_numeric(kind):
        return _nullable(flattener, array, _numbers(flattener, array))
    return _foreign(flattener, array)


def strings(flattener: Flattener, column: Any) -> Tree:
    """The tree of strings, whatever their offsets are."""
    return _strings(flattener, _one(_as_large(column)))


def _as_large(column: Any) -> Any:
    """Strings with offsets of 64 bits, as the store has them; anything else as it is."""
    if types.is_string(column.type) or types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if types.is_binary(column.type) or types.is_binary_view(column.type):
        return column.cast(pa.large_binary())
    return column


def _one(column: pa.ChunkedArray) -> pa.Array:
    """The one array of a column, copied if it has several chunks."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _is_plain(kind: pa.DataType) -> bool:
    strings = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return _is_numeric(kind) or any(is_one(kind) for is_one in strings)


def _is_numeric(kind: pa.DataType) -> bool:
    """Whether NumPy has such numbers or times."""
    kinds = (types.is_boolean, types.is_integer, types.is_floating, types.is_timestamp, types.is_duration)
    return any(is_one(kind) for is_one in (*kinds, types.is_time, types.is_date))


def _numpy_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """NumPy's type for numbers and times."""
    if types.is_boolean(kind):
        return np.dtype(bool)
    if types.is_integer(kind) or types.is_floating(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found
    if types.is_timestamp(kind):
        return np.dtype(f"M8[{kind.unit}]")
    if types.is_duration(kind) or types.is_time(kind):
        return np.dtype(f"m8[{kind.unit}]")
    return np.dtype("M8[D]" if types.is_date32(kind) else "M8[ms]")


def _is_narrow(kind: pa.DataType) -> bool:
    """Whether Arrow has 32 bits for a time, of which NumPy has 64."""
    return bool(types.is_date32(kind) or types.is_time32(kind))


def _numbers(flattener: Flattener, array: pa.Array) -> Tree:
    dtype = _numpy_dtype(array.type)
    if types.is_boolean(array.type):
        items = _bits(array.buffers()[1], array.offset, len(array))
    elif _is_narrow(array.type):
        items = _items(array, np.dtype("i4")).astype("i8").view(dtype)
    else:
        items = _items(array, dtype)
    return flattener.flatten(items)


def _items(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray:
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.empty(0, dtype)
    start = array.offset * dtype.itemsize
    return np.frombuffer(data, np.uint8)[start : start + len(array) * dtype.itemsize].view(dtype)


def _bits(bitmap: pa.Buffer | None, offset: int, count: int) -> np.ndarray:
    if bitmap is None:
        return np.empty(0, bool)
    bits = np.frombuffer(bitmap, np.uint8)[offset // 8 : (offset + count + 7) // 8]
    return np.unpackbits(bits, bitorder="little")[offset % 8 : offset % 8 + count].view(bool)


def _validity(flattener: Flattener, array: pa.Array) -> int | None:
    if array.null_count == 0:
        return None
    return flattener.validity(_bits(array.buffers()[0], array.offset, len(array)))


def _nullable(flattener: Flattener, array: pa.Array, items: Tree) -> Tree:
    validity = _validity(flattener, array)
    return items if validity is None else ("nullable", items, validity)


def _strings(flattener: Flattener, array: pa.Array) -> Tree:
    is_text = types.is_large_string(array.type)
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return flattener.strings([], is_text)
    places = np.frombuffer(offsets, "<i8")[array.offset : array.offset + len(array) + 1]
    start, end = int(places[0]), int(places[-1])
    content = np.frombuffer(data, np.uint8)[start:end] if end > start else b""
    numbers = flattener.buffer((places - start if start else places).view(np.uint8)), flattener.buffer(content)
    return ("strings", len(array), *numbers, _validity(flattener, array), is_text)


def _dictionary(flattener: Flattener, array: pa.DictionaryArray) -> Tree:
    indices = array.indices
    items = _items(indices, _numpy_dtype(indices.type))
    if indices.null_count:
        # Below the first place is what is missing, and unsigned places have nothing there.
        wide = np.result_type(items.dtype, np.int8) if items.dtype.itemsize < 8 else np.dtype("i8")
        is_there = _bits(indices.buffers()[0], indices.offset, len(indices))
        items = np.where(is_there, items.astype(wide), wide.type(-1))
    return ("dictionary", flattener.flatten(items), 0, _column(flattener, array.dictionary), bool(array.type.ordered))


def _foreign(flattener: Flattener, array: pa.Array) -> Tree:
    batch = pa.record_batch([array], names=[""])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    try:
        pa.ipc.open_stream(stream).read_all()  # which copies nothing, and fails for dictionaries of dictionaries
    except (pa.ArrowException, OSError) as error:
        raise flattener.refuse(f"is {array.type}, which Arrow does not read back: {error}") from error
    return ("foreign", _CODEC, flattener.buffer(stream), [])


# From trees.


def rebuild(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    """The table or array of a tree with Arrow's attributes."""
    kind = rebuilder.rebuild(attributes["type"])
    schema = pa.ipc.read_schema(pa.py_buffer(rebuilder.rebuild(attributes["schema"])))
    null_counts = rebuilder.rebuild(attributes["null_counts"]).tolist()
    if kind in ("table", "record_batch"):
        columns = zip(schema, null_counts, (column for _, column in tree[2]), strict=True)
        arrays = [_array(rebuilder, field.type, nulls, column) for field, nulls, column in columns]
        if not arrays:
            # Only what is taken out of another one can have rows without columns.
            rows = _KINDS[kind].from_arrays([pa.nulls(tree[1])], names=[""])
            return rows.replace_schema_metadata(schema.metadata).select([])
        return _KINDS[kind].from_arrays(arrays, schema=schema)
    array = _array(rebuilder, schema.field(0).type, null_counts[0], tree)
    return pa.chunked_array([array]) if kind == "chunked_array" else array


def rebuild_foreign(rebuilder: Rebuilder, stream: int, buffers: list[int]) -> Any:
    """The one column of an Arrow IPC stream."""
    array = _one(pa.ipc.open_stream(pa.py_buffer(rebuilder.data(stream))).read_all().column(0))
    # Its buffers are not nodes, whose sizes the store has compared: all of what leads from one to the next is.
    return _checked(rebuilder, array, full=True)


def large_strings(rebuilder: Rebuilder, tree: Tree) -> pa.Array:
    """The strings of a node, with offsets of 64 bits."""
    _, count, offsets, data, validity, is_text = tree
    rebuilder.places(count, offsets, data)
    buffers = [_buffer(rebuilder, validity), _buffer(rebuilder, offsets), _buffer(rebuilder, data)]
    return _checked(
        rebuilder, pa.Array.from_buffers(pa.large_string() if is_text else pa.large_binary(), count, buffers)
    )


def _checked(rebuilder: Rebuilder, array: pa.Array, full: bool = False) -> pa.Array:
    """An array of which Arrow finds that its buffers fit one another."""
    try:
        array.validate(full=full)
    except pa.ArrowInvalid as error:
        raise rebuilder.damaged(f"the buffers ({error})") from error
    return array


def _array(rebuilder: Rebuilder, kind: pa.DataType, nulls: int, tree: Tree) -> pa.Array:
    if tree[0] == "foreign":
        array = rebuilder.rebuild(tree)
    elif tree[0] == "strings":
        large = large_strings(rebuilder, tree)
        array = large if large.type == kind else large.cast(kind)
    elif tree[0] == "dictionary":
        array = _from_dictionary(rebuilder, kind, nulls, tree)
    else:
        items, validity = (tree[1], tree[2]) if tree[0] == "nullable" else (tree, None)
        array = _from_numbers(rebuilder, kind, items, _buffer(rebuilder, validity))
    if array.type != kind:
        raise rebuilder.refuse(f"has a column of {kind} that was written as {array.type}")
    return _checked(rebuilder, array)


def _buffer(rebuilder: Rebuilder, number: int | None) -> pa.Buffer | None:
    return None if number is None else pa.py_buffer(rebuilder.memory(number))


def _from_numbers(rebuilder: Rebuilder, kind: pa.DataType, tree: Tree, validity: pa.Buffer | None) -> pa.Array:
    _, dtype, (count,), _, buffer = tree
    if dtype != _numpy_dtype(kind):
        raise rebuilder.refuse(f"has a column of {kind} whose items are {dtype}")
    if types.is_boolean(kind):
        data = pa.py_buffer(np.packbits(rebuilder.rebuild(tree), bitorder="little"))
    elif _is_narrow(kind):
        data = pa.py_buffer(rebuilder.rebuild(tree).view("i8").astype("i4"))
    else:
        data = _buffer(rebuilder, buffer)
    return pa.Array.from_buffers(kind, count, [validity, data])


def _from_dictionary(rebuilder: Rebuilder, kind: pa.DataType, nulls: int, tree: Tree) -> pa.Array:
    _, indices, _, values, _ = tree
    dtype = _numpy_dtype(kind.index_type)
    found, places = _array(rebuilder, kind.value_type, 0, values), rebuilder.numbers(indices)
    if places.size and (places.max() >= len(found) or not nulls and places.min() < 0):
        raise rebuilder.damaged("the places of a dictionary")
    if nulls:
        is_there = places >= 0
        items = pa.py_buffer(np.where(is_there, places, 0).astype(dtype))
        buffers = [pa.py_buffer(np.packbits(is_there, bitorder="little")), items]
    elif indices[1] != dtype:
        raise rebuilder.refuse(f"has a column of {kind} whose places are {indices[1]}")
    else:
        buffers = [None, _buffer(rebuilder, indices[4])]
    numbers = pa.Array.from_buffers(kind.index_type, len(places), buffers)
    return pa.DictionaryArray.from_arrays(numbers, found, ordered=kind.ordered, safe=False)
