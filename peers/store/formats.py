"""The ways that users keep arrays: how each writes them into a folder, and how it reads them again."""

from __future__ import annotations

import mmap
import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
import pandas as _  # pyarrow looks for it at its first conversion, which is none of the time to restore
import pyarrow as pa

import remanent

Arrays = dict[str, np.ndarray]

ALIGNMENT = 64


def sync(path: Path) -> None:
    """Makes a file or a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def bytes_of(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def fingerprints(arrays: Arrays) -> dict[str, int]:
    return {name: zlib.crc32(array.reshape(-1).view(np.uint8)) for name, array in sorted(arrays.items())}


def are_same(found: Arrays, wanted: Arrays) -> bool:
    """Whether all bytes agree."""
    same_names = sorted(found) == sorted(wanted)
    return same_names and all(np.array_equal(found[name].view("u8"), wanted[name].view("u8")) for name in wanted)


# Persisting, as users would. Each gives the files that it wrote.


def save_pickle(folder: Path, arrays: Arrays) -> list[Path]:
    with open(folder / "pickle", "wb") as file:
        pickle.dump(arrays, file, protocol=5)
    return [folder / "pickle"]


def save_out_of_band(folder: Path, arrays: Arrays) -> list[Path]:
    """The pickle in one file, the arrays' bytes side by side in another, aligned so that they can be mapped."""
    buffers: list[pickle.PickleBuffer] = []
    described = pickle.dumps(arrays, protocol=5, buffer_callback=buffers.append)
    places, end = [], 0
    with open(folder / "buffers", "wb") as file:
        for buffer in buffers:
            raw = buffer.raw()
            places.append((end, len(raw)))
            file.seek(end)
            file.write(raw)
            end += -(-len(raw) // ALIGNMENT) * ALIGNMENT
    (folder / "described").write_bytes(pickle.dumps((described, places)))
    return [folder / "buffers", folder / "described"]


def save_numpy(folder: Path, arrays: Arrays) -> list[Path]:
    paths = [folder / f"{name}.npy" for name in arrays]
    for path, array in zip(paths, arrays.values(), strict=True):
        np.save(path, array)
    return paths


def save_joblib(folder: Path, arrays: Arrays) -> list[Path]:
    joblib.dump(arrays, folder / "joblib")
    return [folder / "joblib"]


def save_arrow(folder: Path, arrays: Arrays) -> list[Path]:
    table = pa.record_batch([pa.array(array) for array in arrays.values()], names=list(arrays))
    with pa.OSFile(str(folder / "arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_batch(table)
    return [folder / "arrow"]


#: By name, how to persist, and the name of the way to restore that reads it without a copy, if there is one.
SAVES: dict[str, tuple[Callable[[Path, Arrays], list[Path]], str]] = {
    "pickle 5": (save_pickle, "pickle 5"),
    "pickle 5 out-of-band": (save_out_of_band, "pickle 5 out-of-band, mmap"),
    "numpy.save": (save_numpy, "numpy.load, mmap_mode r"),
    "joblib.dump": (save_joblib, "joblib.load, mmap_mode r"),
    "Arrow IPC file": (save_arrow, "Arrow IPC file, mapped"),
}


# Restoring.


def load_pickle(folder: Path) -> Arrays:
    with open(folder / "pickle", "rb") as file:
        return pickle.load(file)


def load_out_of_band(folder: Path) -> Arrays:
    described, places = pickle.loads((folder / "described").read_bytes())
    with open(folder / "buffers", "rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return pickle.loads(described, buffers=[mapped[at : at + length] for at, length in places])


def load_numpy(folder: Path, mmap_mode: str | None = None) -> Arrays:
    return {file.stem: np.load(file, mmap_mode=mmap_mode) for file in sorted(folder.glob("*.npy"))}


def load_arrow(folder: Path) -> Arrays:
    batch = pa.ipc.open_file(pa.memory_map(str(folder / "arrow"))).get_batch(0)
    return {name: batch.column(name).to_numpy(zero_copy_only=True) for name in batch.schema.names}


#: By name, how to restore. The first is what the others are compared with.
RESTORES: dict[str, Callable[[Path], Arrays]] = {
    "remanent.restore": lambda folder: remanent.restore(folder / "pool"),
    "remanent.restore, mode r": lambda folder: remanent.restore(folder / "pool", mode="r"),
    "pickle 5": load_pickle,
    "pickle 5 out-of-band, mmap": load_out_of_band,
    "numpy.load": load_numpy,
    "numpy.load, mmap_mode r": lambda folder: load_numpy(folder, "r"),
    "joblib.load": lambda folder: joblib.load(folder / "joblib"),
    "joblib.load, mmap_mode r": lambda folder: joblib.load(folder / "joblib", mmap_mode="r"),
    "Arrow IPC file, mapped": load_arrow,
}
