"""What is refused changes no byte of the pool's files, and a reader beside it goes on."""

import hashlib
from contextlib import contextmanager

import numpy as np
import pytest

import remanent


def files(path):
    """Every file beside the pool, with the hash of its bytes."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.parent.iterdir()}


@contextmanager
def unchanged(path):
    with remanent.open(path, "r") as reader:
        views = reader.restore(mode="r")
        copies = {name: view.copy() for name, view in views.items()}
        before = files(path)
        yield reader
        assert files(path) == before
        for name, copy in copies.items():
            assert (views[name] == copy).all()
            assert (reader[name] == copy).all()


def refused(kind, code, call, *args, **kwargs):
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    assert caught.value.code == code


@pytest.fixture
def pool(path):
    with remanent.create(path, "16MiB") as pool:
        pool.persist(a=np.arange(50_000), b=np.full(3, 2.5), checksum=True)
        yield pool
        pool.persist(after=np.arange(3))
        assert pool.verify() == (2, 1)


def test_types(path, pool):
    with unchanged(path):
        for value in (np.array([object()]), "half: \ud800", [1, object()], {"a": object()}, object()):
            refused(remanent.UnknownType, "unknown-type", pool.persist, {"c": np.arange(3), "d": value})


def test_sizes(path, pool):
    with unchanged(path):
        refused(remanent.PoolFull, "pool-full", pool.persist, {"c": np.arange(3), "d": np.zeros(17 << 17)})
        refused(remanent.BadSize, "bad-size", pool.grow, 1)
        refused(remanent.FileSystemFull, "file-system-full", pool.grow, "100TiB")


def test_an_array_that_changes_while_it_is_persisted(pool):
    array = np.zeros(1 << 17)  # so few bytes are copied by the calling thread, which hears that all are done

    def change(done, total):
        if done == total:
            array[4321] += 1

    generation = pool.info()["generation"]
    for call in (lambda: pool.persist(a=7, z=array, checksum=True, progress=change), lambda: view_of(pool, change)):
        refused(remanent.SourceChanged, "source-changed", call)
        assert pool.info()["generation"] == generation
    assert sorted(pool) == ["a", "b"]
    assert (pool["a"] == np.arange(50_000)).all()


def view_of(pool, change):
    """Persists a changed page of a view, of which another page is changed meanwhile."""
    view = pool.restore(["a"])["a"]
    view[0] = 1

    def change_view(done, total):
        change(done, total)
        if done == total:
            view[40_000] += 1

    pool.persist(a=view, checksum=True, progress=change_view)


def test_names(path, pool):
    with unchanged(path):
        for call in (pool.__getitem__, pool.__delitem__, lambda name: pool.restore(["a", name])):
            refused(remanent.NoSuchName, "no-such-name", call, "missing")
        for name in ("", "line\nbreak", "x" * 1025):
            refused(remanent.BadName, "bad-name", pool.persist, {"c": np.arange(3), name: np.arange(50_000)})
            refused(remanent.BadName, "bad-name", pool.rename, "a", name)
        refused(remanent.NoSuchName, "no-such-name", pool.rename, "missing", "c")
        refused(remanent.AlreadyExists, "already-exists", pool.rename, "a", "b")


def test_a_transaction_with_one_bad_edit(path, pool):
    def edit():
        with pool.transaction() as transaction:
            transaction["a"] = np.arange(7)
            del transaction["missing"]

    with unchanged(path):
        refused(remanent.NoSuchName, "no-such-name", edit)


def test_second_writers_and_writing_readers(path, pool):
    with unchanged(path) as reader:
        refused(remanent.PoolBusy, "pool-busy", remanent.open, path)
        refused(remanent.AlreadyExists, "already-exists", remanent.create, path, "16MiB")
        for call in (
            lambda: reader.persist(c=np.arange(3)),
            lambda: reader.rename("a", "c"),
            lambda: reader.grow("4MiB"),
            reader.clear,
            reader.gc,
        ):
            refused(remanent.NotWritable, "not-writable", call)


def test_a_closed_pool(path):
    pool = remanent.create(path, "16MiB")
    pool["a"] = np.arange(50_000)
    kept = pool["a"]
    pool.close()
    with unchanged(path):
        for call in (
            lambda: pool["a"],
            lambda: pool.persist(a=np.arange(3)),
            lambda: pool.rename("a", "b"),
            lambda: len(pool),
            pool.ls,
            pool.info,
            pool.gc,
            pool.refresh,
            pool.verify,
            pool.clear,
        ):
            refused(remanent.Closed, "closed", call)
        pool.close()
        assert (kept == np.arange(50_000)).all()
