"""A dataset for the suites of the NVMe tier, and what they do with it."""

import contextlib
import os

from clairmount import wait_until

CHUNK = 64 << 10
LARGE = 6 << 20
# More than passes through memory on its way (16 MiB), so that the NVMe tier is read.
SIZES = {f"{i % 3}/small {i}": 1 + i * 1009 % CHUNK for i in range(100)} | {f"large{i}": LARGE + i for i in range(4)}
CHUNKS = 100 + 4 * (LARGE // CHUNK + 1) - 1
TOTAL = sum(SIZES.values())


def options(nvme, *more, capacity="64M", ram="0"):
    return [f"--nvme={nvme}:{capacity}", f"--ram={ram}", "--chunk=64K", *more]


def read_all(mount, contents, names=None):
    """Reads and compares files, and leaves nothing in the page cache."""
    for name in names if names is not None else contents:
        fd = os.open(mount.path / name, os.O_RDONLY)
        try:
            assert os.pread(fd, 2 * LARGE, 0) == contents[name], name
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def fill(mount, contents, chunks=CHUNKS):
    """Reads until `chunks` are on NVMe: a pass may leave some out when writing is slow."""

    def full():
        read_all(mount, contents)
        return mount.stat("tiers.nvme.chunks") >= chunks

    wait_until(full, f"{chunks} chunks on NVMe")


def on_disk(folder):
    total = 0
    for path in [folder, *folder.iterdir()]:
        with contextlib.suppress(FileNotFoundError):  # of a compaction, or of a store that shrinks
            total += path.stat().st_blocks * 512
    return total
