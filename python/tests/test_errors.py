"""Errors: the class, the code, and that nothing was changed."""

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import remanent
from remanent import errors


def test_every_class_stands_for_a_code():
    assert set(errors.Error._classes) <= set(errors.CODES)
    for code, number in errors.CODES.items():
        error = errors.of_code(code, "what happened")
        assert (error.code, error.number, str(error)) == (code, number, "what happened")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and (again.code, str(again)) == (code, "what happened")


def test_errors_of_the_system_have_its_number_and_the_file(path):
    with pytest.raises(FileNotFoundError) as caught:
        remanent.open(path)
    error = caught.value
    assert (error.errno, error.filename, error.strerror) == (errno.ENOENT, os.fspath(path), str(error))
    again = pickle.loads(pickle.dumps(error))
    assert (again.errno, again.filename, str(again)) == (error.errno, error.filename, str(error))
    with remanent.create(path, "8MiB") as pool:
        for call, number in ((lambda: remanent.create(path, "8MiB"), errno.EEXIST), (lambda: remanent.open(path), errno.EAGAIN)):
            with pytest.raises(OSError) as caught:
                call()
            assert (caught.value.errno, caught.value.filename) == (number, os.fspath(path))
        with pytest.raises(OSError) as caught:
            pool.grow("100TiB")
        assert caught.value.errno == errno.ENOSPC and caught.value.filename
    with pytest.raises(remanent.Closed) as caught:
        pool.info()
    assert caught.value.filename == os.fspath(path) and not hasattr(caught.value, "errno")


def test_what_runs_while_an_error_is_made_may_use_the_pool(path):
    # In a process of its own: one that waits for itself can only be killed.
    code = """
import sys, remanent

def of_code(*args, make=remanent.errors.of_code):
    assert pool.closed
    return make(*args)

pool = remanent.create(sys.argv[1], "8MiB")
pool.close()
remanent.errors.of_code = of_code
try:
    pool.info()
except remanent.Closed:
    print("told")
"""
    other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60, check=True)
    assert other.stdout == "told\n"


def test_every_error_of_the_system_has_a_number():
    for code, kind in errors.Error._classes.items():
        error = errors.of_code(code, "what happened")
        assert error.filename is None
        assert isinstance(error, OSError) == (getattr(error, "errno", None) is not None), kind
    # The system's own number is kept where there is one.
    assert errors.of_code("io", "what happened", "/a", errno.EMFILE).errno == errno.EMFILE


def refused(kind, code, call, *args, **kwargs):
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    assert isinstance(caught.value, remanent.Error) and caught.value.code == code
    assert str(caught.value)


def test_paths(path, tmp_path):
    refused(FileNotFoundError, "not-found", remanent.open, path)
    refused(IsADirectoryError, "is-directory", remanent.open, tmp_path)
    remanent.create(path, "8MiB").close()
    refused(FileExistsError, "already-exists", remanent.create, path, "8MiB")
    link = path.with_name("link")
    link.symlink_to(path)
    refused(remanent.Error, "symlink", remanent.open, link)
    path.chmod(0o666)
    refused(remanent.Error, "world-writable", remanent.open, path)


def test_sizes_that_cannot_be(path):
    for size in (0, 1, "1MB"):
        refused(ValueError, "bad-size", remanent.create, path, size)
    # The first is only too large when it is rounded up to a page.
    for size in (2**64 - 1, 2**64, "16384P", 10**5000):
        refused(ValueError, "bad-size", remanent.create, path, size)
        refused(ValueError, "bad-size", remanent.create, path, "8MiB", stripe=[path.with_name("other")], chunk=size)
    refused(OSError, "file-system-full", remanent.create, path, "100TiB")
    for size in (-1, "much"):
        with pytest.raises(ValueError):
            remanent.create(path, size)
    assert list(path.parent.iterdir()) == []


def test_files_that_are_no_pools(path):
    path.write_bytes(os.urandom(8 << 20))
    path.chmod(0o600)
    refused(ValueError, "not-a-pool", remanent.open, path)
    path.write_bytes(b"short")
    with pytest.raises(remanent.Error):
        remanent.open(path)


def crc_32c(data):
    """The checksum of the format page (RFC 3720, appendix B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def with_superblock(path, at, field):
    """Writes a field of both superblocks, as if another version had, with checksums that are right."""
    with path.open("r+b") as file:
        for start in (0, 1 << 20):
            file.seek(start)
            content = bytearray(file.read(4096))
            content[at : at + len(field)] = field
            content[4088:4092] = crc_32c(content[:4088]).to_bytes(4, "little")
            file.seek(start)
            file.write(content)


@pytest.mark.parametrize(
    ("kind", "code", "at", "field"),
    [
        (remanent.NewerVersion, "newer-version", 8, (2).to_bytes(4, "little")),
        (remanent.UnknownFeature, "unknown-feature", 32, (1 << 63).to_bytes(8, "little")),
    ],
)
def test_pools_of_a_later_version_are_refused_and_left_as_they_are(path, kind, code, at, field):
    beside = path.with_name("beside")
    for place in (path, beside):
        with remanent.create(place, "8MiB") as pool:
            pool["a"] = np.arange(3)
    with_superblock(path, at, field)
    before = path.read_bytes()
    for call in (remanent.open, lambda path: remanent.open(path, "r"), remanent.restore, lambda path: remanent.persist(path, a=1)):
        refused(kind, code, call, path)
    assert path.read_bytes() == before
    assert remanent.restore(beside)["a"].tolist() == [0, 1, 2]


def test_superblocks_that_are_damaged_and_parts_that_are_gone(path):
    with remanent.create(path, "8MiB") as pool:
        pool.grow("8MiB")
        [_, part] = pool.info()["files"]
    aside = path.with_name("aside")
    os.rename(part, aside)
    refused(remanent.MissingPart, "missing-part", remanent.open, path)
    with pytest.raises(FileNotFoundError, match="part"):
        remanent.open(path)
    os.rename(aside, part)
    remanent.open(path).close()
    with path.open("r+b") as file:
        for start in (0, 1 << 20):
            file.seek(start + 100)
            file.write(b"\xff" * 40)
    refused(remanent.SuperblockLost, "superblock-lost", remanent.open, path)


MANY_MAPPINGS = """
import ctypes, mmap, sys, numpy as np, remanent
pool = remanent.create(sys.argv[1], "8MiB")
pool["x"] = np.zeros(100_000)
area = mmap.mmap(-1, (int(sys.argv[2]) + 10) * 8192)
libc = ctypes.CDLL(None, use_errno=True)
address = ctypes.addressof(ctypes.c_char.from_buffer(area))
# Every second page cannot be written to, so that each page is a mapping.
page = 0
while libc.mprotect(ctypes.c_void_p(address + page * 8192), 4096, 1) == 0:
    page += 1
arrays = []
try:
    while True:
        arrays.append(pool["x"])
except remanent.IoError as error:
    message = str(error)
# What is shown needs memory of its own.
libc.mprotect(ctypes.c_void_p(address), page * 8192, 3)
print(message)
"""


def test_too_many_mappings_are_told_by_the_name_of_their_limit(path):
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    if limit > 1 << 20:
        pytest.skip("this machine allows for too many mappings")
    other = subprocess.run(
        [sys.executable, "-c", MANY_MAPPINGS, path, str(limit)], capture_output=True, text=True, timeout=120, check=True
    )
    assert "raise vm.max_map_count" in other.stdout
    error = errors.of_code("io", "what happened", "/a", errno.ENOMEM)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_pool_that_was_cut_short(path):
    with remanent.create(path, "16MiB") as pool:
        pool["before"] = np.arange(100_000)
        pool["a"] = np.zeros(1 << 20)
        generation = pool.info()["generation"]
        os.truncate(path, 4 << 20)
        refused(remanent.Truncated, "truncated", pool.__getitem__, "a")
        refused(remanent.Truncated, "truncated", pool.persist, b=np.zeros(1 << 19))
        assert sorted(pool) == ["a", "before"] and pool.info()["generation"] == generation
        assert (pool["before"] == np.arange(100_000)).all()
    refused(remanent.Truncated, "truncated", remanent.open, path)


def test_names(path):
    with remanent.create(path, "8MiB") as pool:
        pool["a"] = np.arange(3)
        refused(KeyError, "no-such-name", pool.__getitem__, "b")
        refused(KeyError, "no-such-name", pool.__delitem__, "b")
        refused(KeyError, "no-such-name", pool.restore, ["a", "b"])
        for name in ("", "line\nbreak", "x" * 2000):
            refused(ValueError, "bad-name", pool.__setitem__, name, np.arange(3))
        pool["c"] = np.arange(4)
        refused(FileExistsError, "already-exists", pool.rename, "a", "c")
        refused(KeyError, "no-such-name", pool.rename, "b", "d")
        refused(ValueError, "bad-name", pool.rename, "a", "")
        del pool["c"]
        for call in (lambda: pool[3], lambda: pool.persist({3: np.arange(3)}), lambda: pool.restore("a")):
            with pytest.raises(TypeError):
                call()
        assert list(pool) == ["a"]


def test_names_that_utf_8_cannot_express(path):
    name = os.fsdecode(b"\xff")  # as os.listdir gives it
    with remanent.create(path, "8MiB") as pool:
        pool["a"] = np.arange(3)
        assert name not in pool
        for call in (pool.__getitem__, pool.__delitem__, pool.ls):
            refused(ValueError, "bad-name", call, name)
        refused(ValueError, "bad-name", pool.__setitem__, name, np.arange(3))
        refused(ValueError, "bad-name", pool.persist, {"b": np.arange(3), name: "text"})
        refused(ValueError, "bad-name", pool.restore, ["a", name])
        refused(ValueError, "bad-name", pool.rename, name, "b")
        refused(ValueError, "bad-name", pool.rename, "a", name)
        with pool.transaction() as edits:
            edits["c"] = np.arange(4)
            refused(ValueError, "bad-name", edits.__setitem__, name, np.arange(3))
            refused(ValueError, "bad-name", edits.__delitem__, name)
        refused(TypeError, "unknown-type", pool.persist, a=np.zeros(2, [(name, "i4")]))
        assert list(pool) == ["a", "c"]


def test_a_text_that_is_damaged_is_named(path):
    text = "a text without a checksum"
    with remanent.create(path, "8MiB") as pool:
        pool.persist(note=text, other="whole")
    damaged = path.read_bytes().replace(text.encode(), b"\xff" * len(text))
    path.write_bytes(damaged)
    with remanent.open(path, "r") as pool:
        for call in (pool.restore, lambda: pool["note"]):
            refused(remanent.Corrupt, "corrupt", call)
            with pytest.raises(remanent.Corrupt, match="'note'"):
                call()
        assert pool["other"] == "whole"


def test_modes(path):
    remanent.create(path, "8MiB").close()
    for mode in ("w", "w+", "c", "rb", ""):
        with pytest.raises(ValueError, match="create"):
            remanent.open(path, mode)
    with remanent.open(path) as pool:
        with pytest.raises(ValueError):
            pool.restore(mode="w+")
        with pytest.raises(ValueError):
            pool.persist(a=np.arange(3), threads=0)


def test_a_path_with_spaces_and_without_utf_8(tmp_path):
    path = os.fsencode(tmp_path) + b"/a pool \xff"
    with remanent.create(os.fsdecode(path), "8MiB") as pool:
        pool["a"] = np.arange(3)
    assert remanent.restore(os.fsdecode(path))["a"].size == 3
