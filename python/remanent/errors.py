"""The package's exceptions: one class for each error code that a program may want to catch.

The code is the same in every language; the message is for people and may change. Codes without a class of their own
come as `Error` itself.
"""

from __future__ import annotations

from typing import ClassVar

from ._remanent import error_codes

#: Every code and its number, from the table that all languages share.
CODES: dict[str, int] = dict(error_codes())


class Error(Exception):
    """Anything that goes wrong in a pool; `code` is its stable name, `number` its stable number."""

    code: str = ""
    _classes: ClassVar[dict[str, type[Error]]] = {}

    def __init_subclass__(cls, code: str = "", **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if code:
            cls.code = code
            Error._classes[code] = cls

    def __init__(self, message: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        if code:
            self.code = code

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return of_code, (self.code, self.message)

    @property
    def number(self) -> int:
        return CODES[self.code]


class NotFound(Error, FileNotFoundError, code="not-found"):
    """The path does not exist."""


class AlreadyExists(Error, FileExistsError, code="already-exists"):
    """The path exists already, for nothing is ever overwritten; or an object has the new name of another."""


class IsDirectory(Error, IsADirectoryError, code="is-directory"):
    """The path is a directory."""


class AccessDenied(Error, PermissionError, code="access-denied"):
    """The operating system denies access."""


class ReadOnly(Error, PermissionError, code="read-only"):
    """The file or its file system is read-only."""


class FileSystemFull(Error, OSError, code="file-system-full"):
    """The file system has no room."""


class IoError(Error, OSError, code="io"):
    """A call to the operating system failed."""


class BadSize(Error, ValueError, code="bad-size"):
    """The size cannot be used."""


class NotAPool(Error, ValueError, code="not-a-pool"):
    """The file is no pool."""


class WrongLayout(Error, ValueError, code="wrong-layout"):
    """The pool belongs to another product."""


class Truncated(Error, code="truncated"):
    """The file is shorter than it was."""


class BadBlock(Error, OSError, code="bad-block"):
    """The medium cannot give back what was stored."""


class Corrupt(Error, code="corrupt"):
    """Stored metadata fails its check."""


class ChecksumMismatch(Corrupt, code="checksum-mismatch"):
    """An object's bytes are not those that were persisted."""


class PoolBusy(Error, BlockingIOError, code="pool-busy"):
    """Another process writes to the pool."""


class PoolFull(Error, code="pool-full"):
    """No free extent is large enough."""


class WritesRefused(Error, code="writes-refused"):
    """An earlier write could not be made durable; open the pool again."""


class NotWritable(Error, code="not-writable"):
    """The pool is open for reading."""


class UsedAfterFork(Error, RuntimeError, code="used-after-fork"):
    """The pool was opened before this process was forked. Arrays that it gave out stay readable."""


class NoSuchName(Error, KeyError, code="no-such-name"):
    """The pool has no object of that name."""


class BadName(Error, ValueError, code="bad-name"):
    """The name cannot be used."""


class UnknownType(Error, TypeError, code="unknown-type"):
    """The store has no form for the type."""


class ShapeOverflow(Error, ValueError, code="shape-overflow"):
    """The array has more bytes than can be addressed."""


class Cancelled(Error, code="cancelled"):
    """The operation was given up; nothing was changed."""


class Closed(Error, ValueError, code="closed"):
    """The pool was closed."""


def of_code(code: str, message: str) -> Error:
    """The exception of an error code."""
    return Error._classes.get(code, Error)(message, code)
