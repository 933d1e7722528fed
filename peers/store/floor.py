"""The floor of a persist: the same bytes copied by raw loops of non-temporal stores into memory mapped and touched already."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from formats import Arrays, bytes_of

#: What one copy of the loops is a multiple of; each array begins at a page.
PAGE_BYTES = 4096

#: Where cargo puts the library.
LIBRARY = Path(os.environ.get("CARGO_TARGET_DIR") or Path(__file__).parents[1] / "target") / "release/libpeers_raw.so"
BUILD = "cargo build --release --manifest-path peers/Cargo.toml -p peers-raw"


class Floor:
    """A file that is mapped and touched, and the loops that fill it."""

    def __init__(self, library: Path, path: Path, arrays: Arrays) -> None:
        self._copy = ctypes.CDLL(str(library)).peers_raw_copy
        self._copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
        self._copy.restype = None
        with open(path, "w+b") as file:
            file.truncate(bytes_of(arrays) + PAGE_BYTES * len(arrays))
            self._mapped = mmap.mmap(file.fileno(), 0)
        self._bytes = np.frombuffer(self._mapped, np.uint8)
        self._bytes[:] = 1

    def _places(self, arrays: Arrays) -> dict[str, int]:
        places, end = {}, 0
        for name, array in arrays.items():
            places[name] = end
            end += -(-array.nbytes // PAGE_BYTES) * PAGE_BYTES
        return places

    def fill(self, arrays: Arrays, threads: int, is_interleaved: bool) -> None:
        """Copies; nothing is synced."""
        base = self._bytes.ctypes.data
        for name, at in self._places(arrays).items():
            array = arrays[name]
            whole_bytes = array.nbytes // 256 * 256
            self._copy(base + at, array.ctypes.data, whole_bytes, threads, is_interleaved)
            ctypes.memmove(base + at + whole_bytes, array.ctypes.data + whole_bytes, array.nbytes - whole_bytes)

    def sync(self) -> None:
        """Makes it durable, where that takes a call."""
        self._mapped.flush()

    def arrays(self, like: Arrays) -> Arrays:
        """What is there."""
        places = self._places(like)
        return {
            name: self._bytes[places[name] : places[name] + array.nbytes].view(array.dtype)
            for name, array in like.items()
        }
