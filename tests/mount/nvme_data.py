"""A dataset for the suites of the NVMe tier, and what they do with it."""

import contextlib
import itertools
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


def put_records(nvme):
    """Records in the index that tell of a chunk; see cache/nvme/record.h."""
    content = (nvme / "index").read_bytes()
    return sum(content[at + 8] == 1 for at in range(48, len(content) - 47, 48))


def read_until_it_fails(mount, contents, wrong):
    """A read that is under way when the daemon dies ends short or fails; names of other wrong ones go to `wrong`."""
    with contextlib.suppress(OSError):
        for name, content in itertools.cycle(contents.items()):
            with open(mount.path / name, "rb", buffering=0) as file:
                got = os.pread(file.fileno(), len(content), 0)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                if got != content[: len(got)]:
                    wrong.append(name)
