"""Sizes as people write them."""

from __future__ import annotations

import operator
import re

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    _UNITS[f"{_letter}IB"] = 1024**_power
    _UNITS[f"{_letter}B"] = 1000**_power

Size = int | str

PAGE_BYTES = 4096


def parse_size(size: Size) -> int:
    """Bytes from a number, or from a text such as ``'512MB'`` or ``'1.5 GiB'``."""
    if not isinstance(size, str):
        try:
            size_bytes = operator.index(size)
        except TypeError:
            raise TypeError(f"a size is a number of bytes or a text such as '1GiB', not {size!r}") from None
        if size_bytes < 0:
            raise ValueError(f"a size of {size_bytes} bytes cannot be")
        return size_bytes
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)
    unit = match and _UNITS.get(match[2].upper())
    if not match or unit is None:
        raise ValueError(f"{size!r} is no size; write bytes, '512MB' (powers of 1000) or '1GiB' (powers of 1024)")
    whole, _, fraction = match[1].partition(".")
    return int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)


def parse_file_size(size: Size) -> int:
    """As `parse_size`, rounded up to whole pages: '1GB' is no multiple of them."""
    return -(-parse_size(size) // PAGE_BYTES) * PAGE_BYTES
