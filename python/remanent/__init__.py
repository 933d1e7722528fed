"""Arrays that stay in persistent memory, or in a file, and are there again without a copy.

>>> import numpy, remanent, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> path = folder.name + "/pool"
>>> with remanent.create(path, "64MB") as pool:
...     generation = pool.persist(weights=numpy.ones((2, 3)), step=numpy.int64(7))
>>> arrays = remanent.restore(path)  # in this process or in the next one
>>> float(arrays["weights"].sum()), int(arrays["step"])
(6.0, 7)
>>> folder.cleanup()  # the file goes, and what was restored from it stays

The verbs are those of Imamura and Yoshida's `pmem_create`, `pmem_persist` and `pmem_restore`, which are here by these
names too.
"""

from . import errors
from ._pool import Durability, ObjectInfo, Persisted, Pool, Written, create, persist, restore
from ._pool import open as open
from ._remanent import VERSION as __version__
from ._transaction import Transaction
from .errors import (
    AccessDenied,
    AlreadyExists,
    BadBlock,
    BadName,
    BadSize,
    Cancelled,
    ChecksumMismatch,
    Closed,
    Corrupt,
    Error,
    FileSystemFull,
    InUse,
    IoError,
    IsDirectory,
    MissingPart,
    NewerVersion,
    NoSuchName,
    NotAnArray,
    NotAPool,
    NotFound,
    NotWritable,
    PoolBusy,
    PoolFull,
    ReadOnly,
    ShapeOverflow,
    SourceChanged,
    SuperblockLost,
    Truncated,
    UnknownFeature,
    UnknownType,
    Unsupported,
    UsedAfterFork,
    WritesRefused,
    WrongLayout,
)

pmem_create = create
pmem_persist = persist
pmem_restore = restore

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "BadBlock",
    "BadName",
    "BadSize",
    "Cancelled",
    "ChecksumMismatch",
    "Closed",
    "Corrupt",
    "Durability",
    "Error",
    "FileSystemFull",
    "InUse",
    "IoError",
    "IsDirectory",
    "MissingPart",
    "NewerVersion",
    "NoSuchName",
    "NotAPool",
    "NotAnArray",
    "NotFound",
    "NotWritable",
    "ObjectInfo",
    "Persisted",
    "Pool",
    "PoolBusy",
    "PoolFull",
    "ReadOnly",
    "ShapeOverflow",
    "SourceChanged",
    "SuperblockLost",
    "Transaction",
    "Truncated",
    "UnknownFeature",
    "UnknownType",
    "Unsupported",
    "UsedAfterFork",
    "WritesRefused",
    "Written",
    "WrongLayout",
    "__version__",
    "create",
    "errors",
    "persist",
    "pmem_create",
    "pmem_persist",
    "pmem_restore",
    "restore",
]
