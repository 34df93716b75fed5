"""Unmodified LMDB readers open databases on the mount, with and without their lock, whoever they are and may do."""

import contextlib
import itertools
import multiprocessing
import os
import random

import pytest
from clairmount import make_tree
from mounting import NOBODY, as_user, error_name, fingerprint, only_root
from test_permissions import open_way
from test_write_protection import in_background, of_a_user

lmdb = pytest.importorskip("lmdb", reason="python3-lmdb is not installed")

RECORDS = {b"%04d" % i: random.Random(i).randbytes(100 if i % 2 else 9000) for i in range(40)}
# {path of the database: (that of its lock file, whether the source has it)}
DATABASES = {
    "folder": ("folder/lock.mdb", True),
    "unlocked": ("unlocked/lock.mdb", False),
    "file.lmdb": ("file.lmdb-lock", True),
    "unlocked.lmdb": ("unlocked.lmdb-lock", False),
}
KINDS = {
    "root": (in_background, (), [0]),
    "root with --allow-other": (in_background, ("--allow-other",), [0, NOBODY]),
    "user": (of_a_user, (), [NOBODY]),
    "user with -o ro": (of_a_user, ("-o", "ro"), [NOBODY]),
}
pytestmark = only_root


def make_databases(src, writable):
    src.mkdir()
    for name, (lock, kept) in DATABASES.items():
        with lmdb.open(str(src / name), subdir="." not in name, map_size=1 << 24) as env, env.begin(write=True) as writer:
            for item in RECORDS.items():
                writer.put(*item)
        if not kept:
            (src / lock).unlink()
    for path in (src, *src.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) if writable else (0o755 if path.is_dir() else 0o644))


@contextlib.contextmanager
def mounted(tmp, kind):
    """The mount of tmp/src, and who reads there; the source stays as it is."""
    before = fingerprint(tmp / "src")
    (tmp / "mnt").mkdir()
    open_way(tmp)
    mount, options, readers = KINDS[kind]
    with mount(tmp, *options) as path:
        yield path, readers
    assert fingerprint(tmp / "src") == before


def opened(path, lock, readahead):
    return lmdb.open(str(path), subdir="." not in path.name, readonly=True, lock=lock, readahead=readahead)


def records(*how):
    with opened(*how) as env, env.begin() as reader:
        return dict(reader.cursor())


def records_of_workers(*how):
    """What two forked workers read, each by opening for itself, while their parent has the database open."""
    with opened(*how), multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.starmap(records, [how] * 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writable", [False, True], ids=["not writable", "writable"])
def test_readers_open_the_database(tmp, kind, writable):
    make_databases(tmp / "src", writable)
    with mounted(tmp, kind) as (path, readers):
        for reader, name, lock, readahead in itertools.product(readers, DATABASES, [True, False], [True, False]):
            how = (path / name, lock, readahead)
            assert as_user(reader, records, *how) == RECORDS, (reader, how)
        for reader, name, lock in itertools.product(readers, DATABASES, [True, False]):
            assert as_user(reader, records_of_workers, path / name, lock, False) == [RECORDS] * 2, (reader, name, lock)
        for reader, data in itertools.product(readers, ["folder/data.mdb", "unlocked/data.mdb", "file.lmdb", "unlocked.lmdb"]):
            assert as_user(reader, (path / data).read_bytes) == (tmp / "src" / data).read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_file_is_refused_as_on_a_read_only_filesystem(tmp, kind):
    make_databases(tmp / "src", writable=False)
    with mounted(tmp, kind) as (path, readers):
        for reader, (lock, _) in itertools.product(readers, DATABASES.values()):
            assert as_user(reader, error_name, os.open, path / lock, os.O_RDWR | os.O_CREAT) == "EROFS", (reader, lock)


# Beside which file, of which size, lies what is called like a lock file but is none.
NO_LOCKS = {
    "alone/lock.mdb": (None, 8192),
    "empty/lock.mdb": ("empty/data.mdb", 0),
    "text/lock.mdb": ("text/data.mdb", 10_000),
    "lonely-lock": (None, 8192),
    "text-lock": ("text.txt", 8192),
    "weights-lock": ("weights", 8192),
    "-lock": ("data.mdb", 8192),
}


def test_a_user_s_mount_hides_lock_files_and_nothing_else(tmp):
    make_databases(tmp / "src", writable=False)
    content = make_tree(tmp / "src", {name: 1000 for name in NO_LOCKS})
    make_tree(tmp / "src", {name: size for name, size in NO_LOCKS.values() if name})
    make_tree(tmp / "src", {"deep/data.mdb": 8192, "deep/lock.mdb/file": 64})
    (tmp / "src/link/").mkdir()
    (tmp / "src/link/data.mdb").write_bytes(bytes(8192))
    (tmp / "src/link/lock.mdb").symlink_to("data.mdb")

    def names(top):
        return sorted(str(p.relative_to(top)) for p in top.rglob("*"))

    hidden = {lock for lock, kept in DATABASES.values() if kept}
    with mounted(tmp, "user") as (path, _):
        assert as_user(NOBODY, names, path) == [name for name in names(tmp / "src") if name not in hidden]
        for name in content:
            assert as_user(NOBODY, (path / name).read_bytes) == content[name], name
        for lock in hidden:
            assert as_user(NOBODY, error_name, os.stat, path / lock) == "EROFS"
            assert not as_user(NOBODY, os.path.exists, path / lock)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "user"])
def test_other_mounts_show_lock_files(tmp, kind):
    make_databases(tmp / "src", writable=False)
    with mounted(tmp, kind) as (path, readers):
        for reader, (lock, kept) in itertools.product(readers, DATABASES.values()):
            assert as_user(reader, os.path.exists, path / lock) == kept
            if kept:
                assert as_user(reader, (path / lock).read_bytes) == (tmp / "src" / lock).read_bytes()
