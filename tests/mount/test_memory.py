"""The daemon's memory: what the RAM tier holds, the catalog, and 64 MiB."""

import concurrent.futures
import os
import pathlib
import re

import pytest
from clairmount import clairfs, make_tree, sanitized
from mounting import io_choices

REST = 64 << 20
SIZES = {f"large{i}": 6 << 20 for i in range(8)} | {f"{i % 20}/{i}": 1000 for i in range(4000)}

CONFIGURATIONS = {
    "ram": ["--ram=16M"],
    "ram of many chunks": ["--ram=16M", "--chunk=64K"],
    "no ram": ["--ram=0"],
    "nvme": ["--ram=8M", "--nvme={nvme}:256M"],
    "large chunks": ["--ram=20M", "--chunk=4M", "--fuse-threads=8"],
}


@pytest.fixture(scope="module")
def source():
    import clairmount

    with clairmount.tempdir() as tmp:
        make_tree(tmp / "src", SIZES)
        yield tmp / "src"


def read_uncached(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        length = 0
        while piece := os.read(fd, 1 << 20):
            length += len(piece)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return length
    finally:
        os.close(fd)


def peak(pid):
    """The most memory that was ever resident, in bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024


@pytest.mark.skipif(sanitized(), reason="a sanitizer takes memory of its own")
@pytest.mark.parametrize("io", io_choices())
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_peak(tmp, source, configuration, io):
    (tmp / "nvme").mkdir(mode=0o700)
    words = [word.format(nvme=tmp / "nvme") for word in CONFIGURATIONS[configuration]]
    with clairfs(source, f"--io={io}", *words) as mount, concurrent.futures.ThreadPoolExecutor(16) as pool:
        for _ in range(2):
            read = pool.map(lambda name: read_uncached(mount.path / name), SIZES)
            assert sum(read) == sum(SIZES.values())
        stats = mount.stats()
        tier = stats["tiers"]["ram"]
        assert tier["bytes"] <= tier["capacity"]
        assert stats["tiers"]["transit"]["bytes"] <= stats["tiers"]["transit"]["capacity"]
        assert peak(mount.pid) <= tier["bytes"] + stats["catalog"]["memory_bytes"] + REST
