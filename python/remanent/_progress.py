"""Bars that tell how far a copy is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], object]

_WIDTH = 40


@contextmanager
def told(progress: Progress | bool | None, what: str) -> Iterator[Progress | None]:
    """The function to call as ``progress(done_bytes, total_bytes)``: the caller's own, or that of a bar for True."""
    if progress is None or progress is False:
        yield None
    elif progress is not True:
        yield progress
    else:
        bar = _bar(what)
        try:
            yield bar
        finally:
            bar.close()


def _bar(what: str) -> _Tqdm | _Text:
    try:
        return _Tqdm(what)
    except ImportError:
        return _Text(what)


class _Tqdm:
    """The bar that many programs use, if it is installed; in notebooks too."""

    def __init__(self, what: str) -> None:
        from tqdm.auto import tqdm

        self._bar = tqdm(desc=what, unit="B", unit_scale=True, unit_divisor=1024, disable=None)

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        self._bar.total = total_bytes
        self._bar.update(done_bytes - self._bar.n)

    def close(self) -> None:
        self._bar.close()


class _Text:
    """A line on a terminal, nothing anywhere else."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()
        self._has_begun = False

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        if self._is_shown:
            share = done_bytes / total_bytes if total_bytes else 1.0
            bar = "#" * int(share * _WIDTH)
            print(f"\r{self._what}: [{bar:<{_WIDTH}}] {share:4.0%}", end="", file=sys.stderr, flush=True)
            self._has_begun = True

    def close(self) -> None:
        if self._has_begun:
            print(file=sys.stderr)
