"""The package's exceptions: one class for each error code that a program may want to catch.

The code is the same in every language; the message is for people and may change. Codes without a class of their own
come as `Error` itself.
"""

from __future__ import annotations

import errno as numbers
import os
from typing import ClassVar

from ._remanent import error_codes

#: Every code and its number, from the table that all languages share.
CODES: dict[str, int] = dict(error_codes())


class Error(Exception):
    """Anything that goes wrong in a pool; `code` is its stable name, `number` its stable number.

    `filename` is the file that it is about, or None. Those that are an `OSError` too have an `errno`: the system's own
    one, if a call to it failed, and otherwise the one of the class.
    """

    code: str = ""
    filename: str | None
    _classes: ClassVar[dict[str, type[Error]]] = {}
    _errno: ClassVar[int] = numbers.EIO

    def __init_subclass__(cls, code: str = "", errno: int | None = None, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if code:
            cls.code = code
            Error._classes[code] = cls
        if errno is not None:
            cls._errno = errno

    def __init__(
        self, message: str = "", code: str = "", filename: str | None = None, errno: int | None = None
    ) -> None:
        if isinstance(self, OSError):
            super().__init__(errno or self._errno, message)
        else:
            super().__init__(message)
        self.filename = filename
        self.message = message
        if code:
            self.code = code

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _made, (self.code, self.message, self.filename, getattr(self, "errno", None))

    @property
    def number(self) -> int:
        return CODES[self.code]


class NotFound(Error, FileNotFoundError, code="not-found", errno=numbers.ENOENT):
    """The path does not exist."""


class AlreadyExists(Error, FileExistsError, code="already-exists", errno=numbers.EEXIST):
    """The path exists already, for nothing is ever overwritten; or an object has the new name of another."""


class IsDirectory(Error, IsADirectoryError, code="is-directory", errno=numbers.EISDIR):
    """The path is a directory."""


class AccessDenied(Error, PermissionError, code="access-denied", errno=numbers.EACCES):
    """The operating system denies access."""


class ReadOnly(Error, PermissionError, code="read-only", errno=numbers.EROFS):
    """The file or its file system is read-only."""


class FileSystemFull(Error, OSError, code="file-system-full", errno=numbers.ENOSPC):
    """The file system has no room."""


class IoError(Error, OSError, code="io", errno=numbers.EIO):
    """A call to the operating system failed."""


class BadSize(Error, ValueError, code="bad-size"):
    """The size cannot be used."""


class NotAPool(Error, ValueError, code="not-a-pool"):
    """The file is no pool."""


class NewerVersion(Error, code="newer-version"):
    """A newer version wrote the pool."""


class UnknownFeature(Error, code="unknown-feature"):
    """The pool uses a feature that this version does not know."""


class WrongLayout(Error, ValueError, code="wrong-layout"):
    """The pool belongs to another product."""


class SuperblockLost(Error, code="superblock-lost"):
    """Both copies of the superblock are damaged."""


class MissingPart(Error, FileNotFoundError, code="missing-part", errno=numbers.ENOENT):
    """A part of the pool is not where it ought to be."""


class Truncated(Error, code="truncated"):
    """The file is shorter than it was."""


class BadBlock(Error, OSError, code="bad-block", errno=numbers.EIO):
    """The medium cannot give back what was stored."""


class Corrupt(Error, code="corrupt"):
    """Stored metadata fails its check."""


class ChecksumMismatch(Corrupt, code="checksum-mismatch"):
    """An object's bytes are not those that were persisted."""


class PoolBusy(Error, BlockingIOError, code="pool-busy", errno=numbers.EAGAIN):
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


class Unsupported(Error, NotImplementedError, code="unsupported"):
    """This version, or this device, cannot do that."""


class NotAnArray(Error, TypeError, code="not-an-array"):
    """An object that is no array cannot be changed in place."""


class InUse(Error, code="in-use"):
    """An object is changed in place, or was to be while somebody has a view of it."""


class SourceChanged(Error, code="source-changed"):
    """An object was changed while it was persisted with a checksum; nothing was persisted."""


class Cancelled(Error, code="cancelled"):
    """The operation was given up; nothing was changed."""


class Closed(Error, ValueError, code="closed"):
    """The pool was closed."""


def of_code(code: str, message: str, path: str | os.PathLike[str] | None = None, errno: int | None = None) -> Error:
    """The exception of what went wrong in the extension."""
    if code == IoError.code and errno == numbers.ENOMEM:
        # Each large array has mappings of its own; the system's own text tells only of memory.
        message += "; if memory is left, the process has too many mappings: let go of arrays, or raise vm.max_map_count"
    return _made(code, message, path, errno)


def _made(code: str, message: str, path: str | os.PathLike[str] | None, errno: int | None) -> Error:
    """The exception of an error code."""
    filename = None if path is None else os.fspath(path)
    return Error._classes.get(code, Error)(message, code, filename, errno)
