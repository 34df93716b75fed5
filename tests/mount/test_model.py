"""Random operations on the mount, from several threads, give what they give on the plain directory.

CLAIRFS_TEST_SEED=N repeats a run; the seed is printed when a test fails.
"""

import mmap
import os
import random
import threading

import pytest
from clairmount import clairfs, make_tree
from mounting import errno_of, io_choices

CHUNK = 64 << 10
THREADS = 4
OPERATIONS = 600  # for each thread
MIXED = {f"mixed/d{i % 7}/file {i}": (i * 7919) % (5 * CHUNK) for i in range(60)}
SIZES = [0, 1, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5, 40 * CHUNK]
SIZED = {f"sizes/{size}": size for size in SIZES}
LARGE = {"large": 24 << 20}  # more than passes through memory on its way

CONFIGURATIONS = {
    "ram": ["--ram=256M"],
    "ram of many chunks": ["--ram=256M", "--chunk=64K"],
    "tiny ram": ["--ram=1M", "--chunk=64K"],
    "no ram": ["--ram=0"],
    "no ram, many chunks": ["--ram=0", "--chunk=64K"],
    "nvme": ["--ram=1M", "--chunk=64K", "--nvme={nvme}:256M"],
    "nvme of large chunks": ["--ram=0", "--nvme={nvme}:256M"],
    "full nvme": ["--ram=256K", "--chunk=64K", "--nvme={nvme}:4M"],
}


@pytest.fixture
def source(tmp):
    make_tree(tmp / "src", MIXED | SIZED | LARGE)
    with open(tmp / "src/sparse", "wb") as file:
        file.truncate(9 * CHUNK)
        file.seek(5 * CHUNK + 17)
        file.write(b"island")
    os.symlink("mixed/d0", tmp / "src/to-directory")
    os.symlink("../large", tmp / "src/mixed/to-file")
    os.symlink("nowhere", tmp / "src/dangling")
    (tmp / "src/empty").mkdir()
    return tmp / "src"


def attributes(st):
    return st.st_mode, st.st_uid, st.st_gid, st.st_size if not os.path.stat.S_ISDIR(st.st_mode) else 0, st.st_mtime_ns


# Each operation takes a path and a generator of random numbers, and returns what must be equal.


def read_range(path, rng):
    size = os.path.getsize(path)
    offset = rng.randrange(size + 2 * CHUNK)
    length = rng.choice([1, 100, 4096, CHUNK, rng.randrange(1, 1 << 20)])
    fd = os.open(path, os.O_RDONLY)
    try:
        return offset, os.pread(fd, length, offset)
    finally:
        os.close(fd)


def read_whole(path, _rng):
    with open(path, "rb") as file:
        return file.read()


def read_mapped(path, rng):
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return b""
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
            begin = rng.randrange(size)
            return begin, memory[begin : begin + rng.randrange(1, 3 * CHUNK)], memory[-1]


def read_in_pieces(path, rng):
    pieces = []
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(rng.randrange(1, CHUNK)):
            pieces.append(piece)
    return b"".join(pieces)


def stat_one(path, _rng):
    return attributes(os.stat(path)), os.access(path, os.R_OK)


def drop_pages(path, _rng):
    """So that later reads reach the cache again."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def walk(root, _rng):
    found = [(folder, folders, names) for folder, folders, names in os.walk(root)]
    return sorted((os.path.relpath(folder, root), sorted(folders), sorted(names)) for folder, folders, names in found)


def scan(root, rng):
    folder = os.path.join(root, rng.choice(["", "mixed", "mixed/d3", "sizes", "empty", "to-directory"]))
    with os.scandir(folder) as entries:
        return sorted((e.name, e.is_dir(), attributes(e.stat(follow_symlinks=False))) for e in entries)


def links(root, _rng):
    names = ["to-directory", "mixed/to-file", "dangling"]
    return [(os.readlink(os.path.join(root, n)), os.path.exists(os.path.join(root, n))) for n in names]


def absent(root, rng):
    names = [f"absent{rng.randrange(5)}", "large/x", "dangling", f"mixed/{rng.randrange(5)}"]
    return [errno_of(os.stat, os.path.join(root, name)) for name in names]


FILE_OPERATIONS = [read_range] * 8 + [read_whole, read_mapped, read_in_pieces, stat_one] * 2 + [drop_pages] * 3
TREE_OPERATIONS = [walk, scan, links, absent]


def compare(mount, seed, stop):
    rng = random.Random(seed)
    names = [*MIXED, *SIZED, *LARGE, "sparse", "mixed/to-file"]
    for number in range(OPERATIONS):
        if stop.is_set():
            return
        inner = rng.randrange(2**32)
        if rng.random() < 0.9:
            operation, name = rng.choice(FILE_OPERATIONS), rng.choice(names)
        else:
            operation, name = rng.choice(TREE_OPERATIONS), ""
        ours = operation(os.path.join(mount.path, name), random.Random(inner))
        theirs = operation(os.path.join(mount.source, name), random.Random(inner))
        assert ours == theirs, f"operation {number} of seed {seed}: {operation.__name__} {name!r}"


@pytest.mark.parametrize("io", io_choices())
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_same_as_the_plain_directory(tmp, source, configuration, io):
    (tmp / "nvme").mkdir(mode=0o700)
    options = [option.format(nvme=tmp / "nvme") for option in CONFIGURATIONS[configuration]]
    seed = int(os.environ.get("CLAIRFS_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"CLAIRFS_TEST_SEED={seed}")
    stop = threading.Event()
    failures = []

    def worker(mount, number):
        try:
            compare(mount, seed + number, stop)
        except BaseException as failure:
            failures.append(failure)
            stop.set()

    with clairfs(source, f"--io={io}", *options) as mount:
        threads = [threading.Thread(target=worker, args=(mount, number)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        stats = mount.stats()
        assert stats["io"] == io
        assert stats["fuse"]["requests"]["read"] > 0 and stats["reads"]["failed"] == 0
        assert stats["tiers"]["ram"]["bytes"] <= stats["tiers"]["ram"]["capacity"]
        if "nvme" in configuration:
            assert stats["reads"]["nvme"] > 0 and stats["nvme"]["errors"] == 0
