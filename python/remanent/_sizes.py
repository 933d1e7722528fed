"""Sizes as people write them."""

from __future__ import annotations

import operator
import re
from typing import Any

from .errors import BadSize

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    _UNITS[_letter] = 1024**_power  # as for truncate(1)
    _UNITS[f"{_letter}IB"] = 1024**_power
    _UNITS[f"{_letter}B"] = 1000**_power

Size = int | str

PAGE_BYTES = 4096
LARGEST = (1 << 64) - 1


def parse_size(size: Size) -> int:
    """Bytes from a number, or from a text such as ``'512MB'`` or ``'1.5 GiB'``, as the command line reads it."""
    return _limited(_parse(size))


def parse_file_size(size: Size) -> int:
    """As `parse_size`, rounded up to whole pages: '1GB' is no multiple of them."""
    return _limited(-(-_parse(size) // PAGE_BYTES) * PAGE_BYTES)


def _limited(size_bytes: int) -> int:
    if size_bytes > LARGEST:
        raise BadSize("no file can be larger than 16 EiB; choose a smaller size")
    return size_bytes


def _parse(size: Size) -> int:
    size_bytes = _parse_text(size) if isinstance(size, str) else _index(size)
    if size_bytes < 0:
        raise ValueError(f"a size of {size_bytes} bytes cannot be")
    return size_bytes


def _index(size: Any) -> int:
    try:
        return operator.index(size)
    except TypeError:
        raise TypeError(f"a size is a number of bytes or a text such as '1GiB', not {size!r}") from None


def _parse_text(size: str) -> int:
    match = re.fullmatch(r"\s*(\d+)(?:\.(\d+))?\s*([A-Za-z]*)\s*", size, re.ASCII)
    unit: int | None = match and _UNITS.get(match[3].upper())
    # Of a byte there are no fractions.
    if not match or unit is None or (unit == 1 and match[2]):
        raise ValueError(f"{size!r} is no size; write bytes, '512MB' (powers of 1000) or '1.5GiB' (powers of 1024)")
    fraction = match[2] or "0"
    scale: int = 10 ** len(fraction)
    return int(match[1]) * unit + int(fraction) * unit // scale
