"""What NumPy has besides plain arrays: single items, masks, strings of any length, types of `ml_dtypes`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from ._values import Flattener, Rebuilder, Tree

#: What `np.dtype.isbuiltin` is of a type that another package has registered.
_REGISTERED = 2


def flatten(flattener: Flattener, value: Any) -> Tree | None:
    """The tree of an array or of a single item; none for anything else of NumPy."""
    if isinstance(value, np.ma.MaskedArray):
        return _masked(flattener, value)
    if isinstance(value, np.ndarray):
        return array(flattener, value)
    if is_item(value):
        attributes: list[tuple[str, Tree]] = [("scalar", ("bool", True))]
        if type(value) is np.record:
            attributes.append(("record", ("bool", True)))
        return ("attributed", array(flattener, np.asarray(value)), "numpy", attributes)
    return None


def is_item(value: Any) -> bool:
    """Whether a value is an item of an array, and not of a subclass with more to it."""
    return isinstance(value, np.generic) and type(value) is value.dtype.type


def array(flattener: Flattener, value: np.ndarray) -> Tree:
    """The tree of an array, whatever subclass it is."""
    value = value.view(np.ndarray)
    if value.dtype.kind == "T":
        return _strings(flattener, value)
    if _is_of_ml_dtypes(value.dtype):
        bits = array(flattener, value.view(f"u{value.dtype.itemsize}"))
        return ("attributed", bits, "numpy", [("ml_dtype", ("text", value.dtype.name))])
    reason = unkept(value.dtype)
    if reason is not None:
        raise flattener.refuse(f"is an array that {reason}")
    dtype, shape, order, data = laid_out(value)
    return ("array", dtype, shape, order, flattener.buffer(data))


def laid_out(value: np.ndarray) -> tuple[np.dtype[Any], tuple[int, ...], str, Any]:
    """Type, shape, order and bytes: without a copy if they lie side by side already."""
    value = value.view(np.ndarray)
    order: Literal["C", "F"]
    if value.flags.c_contiguous:
        order = "C"
    elif value.flags.f_contiguous:
        order = "F"
    else:
        value, order = np.array(value, order="C"), "C"
    # As bytes, because the buffer protocol has no form for times and for structures that contain them.
    data = value.reshape(-1, order=order).view(np.uint8) if value.nbytes else b""
    return value.dtype, value.shape, order, data


def unkept(dtype: np.dtype[Any]) -> str | None:
    """Why the store has no form for the items of a type; none if it has one."""
    if dtype.subdtype is not None:
        return unkept(dtype.base)
    if dtype.names is not None:
        reasons = ((name, unkept(dtype[name])) for name in dtype.names)
        return next((f"has a field {name!r} that {reason}" for name, reason in reasons if reason), None)
    if dtype.kind == "O":
        return "holds Python objects; make it a list, or give it a type"
    if dtype.isbuiltin == _REGISTERED:
        return f"has the type {dtype} of another package; view it as an unsigned integer of its size"
    return None if dtype.kind in "biufcSUVMm" else f"has the type {dtype}, which this version does not keep"


def _is_of_ml_dtypes(dtype: np.dtype[Any]) -> bool:
    return dtype.isbuiltin == _REGISTERED and dtype.type.__module__ == "ml_dtypes"


def _masked(flattener: Flattener, value: np.ma.MaskedArray[Any, Any]) -> Tree:
    if value is np.ma.masked:
        return ("attributed", ("nothing",), "numpy", [("masked", ("bool", True))])
    if value.dtype.kind == "T":
        raise flattener.refuse("is a masked array of strings of any length; let its missing value stand for the mask")
    tree = array(flattener, np.ma.getdata(value))
    attributes = [
        ("masked", ("bool", True)),
        ("hard", ("bool", bool(value.hardmask))),
        ("fill_value", array(flattener, np.asarray(value.fill_value))),
    ]
    mask = np.ma.getmask(value)
    if mask is not np.ma.nomask and mask.dtype == bool and tree[0] == "array":
        # One bit an item in the order in which the items lie.
        bits = np.packbits(~mask.reshape(-1, order=tree[3]), bitorder="little")
        tree = ("nullable", tree, flattener.buffer(bits))
    elif mask is not np.ma.nomask:
        attributes.append(("mask", array(flattener, np.asarray(mask))))  # of each field
    return ("attributed", tree, "numpy", attributes)


def _strings(flattener: Flattener, value: np.ndarray) -> Tree:
    attributes: list[tuple[str, Tree]] = [
        ("string_dtype", ("bool", True)),
        ("shape", ("tuple", [("int", length) for length in value.shape])),
        ("coerce", ("bool", bool(getattr(value.dtype, "coerce", True)))),
    ]
    items = value.reshape(-1).tolist()
    if hasattr(value.dtype, "na_object"):
        attributes.append(("missing", flattener.flatten(value.dtype.na_object)))
    return (
        "attributed",
        flattener.strings([item if isinstance(item, str) else None for item in items]),
        "numpy",
        attributes,
    )


def rebuild(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    """The value of a tree with NumPy's attributes."""
    if "string_dtype" in attributes:
        return _to_strings(rebuilder, tree, attributes)
    if "ml_dtype" in attributes:
        return rebuilder.rebuild(tree).view(ml_dtype(rebuilder, rebuilder.rebuild(attributes["ml_dtype"])))
    if "masked" in attributes:
        return _to_masked(rebuilder, tree, attributes)
    value = rebuilder.rebuild(tree)
    if "record" in attributes:
        value = value.view(np.dtype((np.record, value.dtype)))
    return value[()] if "scalar" in attributes else value


def ml_dtype(rebuilder: Rebuilder, name: str) -> np.dtype[Any]:
    """A type of the package `ml_dtypes` by its name."""
    try:
        module = importlib.import_module("ml_dtypes")
    except ImportError:
        raise rebuilder.refuse(f"has items of the type {name}: install the package ml_dtypes to restore them") from None
    known = getattr(module, name, None)
    if not isinstance(known, type) or not issubclass(known, np.generic):
        raise rebuilder.refuse(f"has items of the type {name}, which this version of ml_dtypes does not have")
    return np.dtype(known)


def _to_masked(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> Any:
    if tree == ("nothing",):
        return np.ma.masked
    value = rebuilder.rebuild(tree)
    if not isinstance(value, np.ma.MaskedArray):
        mask = rebuilder.rebuild(attributes["mask"]) if "mask" in attributes else np.ma.nomask
        value = np.ma.MaskedArray(value, mask)
    value.fill_value = rebuilder.rebuild(attributes["fill_value"])
    if rebuilder.rebuild(attributes["hard"]):
        value.harden_mask()
    return value


def _to_strings(rebuilder: Rebuilder, tree: Tree, attributes: dict[str, Tree]) -> np.ndarray:
    items = rebuilder.rebuild(tree)
    options: dict[str, Any] = {"coerce": rebuilder.rebuild(attributes["coerce"])}
    if "missing" in attributes:
        options["na_object"] = rebuilder.rebuild(attributes["missing"])
        items = [options["na_object"] if item is None else item for item in items]
    value = np.array(items, np.dtypes.StringDType(**options)).reshape(rebuilder.rebuild(attributes["shape"]))
    value.flags.writeable = rebuilder.mode != "r"
    return value
