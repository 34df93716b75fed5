"""The daemon's memory: what the RAM tier holds, the catalog, plans, and 64 MiB."""

import concurrent.futures
import os
import pathlib
import re
import sys

import pytest
from clairmount import clairfs, make_tree, sanitized, wait_until
from mounting import io_choices

sys.path += [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("plan", "job")]

from clairjob import clairjob  # noqa: E402
from planning import plan, predicted, register  # noqa: E402
from training import Dataset, Readers, register_on_all  # noqa: E402

REST = 64 << 20
MPI = 16 << 20  # buffers of MPICH 4.2 and UCX 1.18 (Debian 13); those of Debian 12 take 10 MiB less
SIZES = {f"large{i}": 6 << 20 for i in range(8)} | {f"{i % 20}/{i}": 1000 for i in range(2000)}

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
        assert_within(mount)


def assert_within(mount):
    stats = mount.stats()
    tier = stats["tiers"]["ram"]
    assert tier["bytes"] <= tier["capacity"]
    assert stats["tiers"]["transit"]["bytes"] <= stats["tiers"]["transit"]["capacity"]
    plans = sum(plan.get("memory_bytes", 0) for plan in stats["plan_list"])  # none yet: it is being made
    rest = REST
    if "job" in stats:
        plans += stats["job"]["placement"]["memory_bytes"]
        rest += MPI
    assert peak(mount.pid) <= tier["bytes"] + stats["catalog"]["memory_bytes"] + plans + rest


@pytest.mark.skipif(sanitized(), reason="a sanitizer takes memory of its own")
@pytest.mark.parametrize("io", io_choices())
def test_peak_under_a_plan(source, io):
    text = "format=files sampler=torch.distributed seed=7 epochs=2"
    with clairfs(source, f"--io={io}", "--ram=16M", "--staging=8M") as mount:
        register(mount, text)
        for epoch in range(2):
            assert sum(read_uncached(mount.path / name) for name in predicted(source, text, epoch, 0)) == sum(SIZES.values())
        # A reader that is faster than staging may pass the end unseen, and is believed to be there when it is silent.
        wait_until(lambda: plan(mount)["state"] == "finished", "the plan's end")
        assert plan(mount)["suspensions"] == 0
        assert mount.stat("staging.pushed") > 0
        assert_within(mount)


@pytest.mark.skipif(sanitized(), reason="a sanitizer takes memory of its own")
def test_peak_of_nodes(tmp):
    """MPI's buffers, and what is on its way between nodes that keep less than all of it."""
    data = Dataset(tmp / "src", count=600, size=110_000)
    with clairjob(data.root, 4, "--ram=12M", "--staging=8M") as job:
        register_on_all(job, 0, 3)
        Readers(data, job, 3).start().finish()
        assert job.stat("peers.bytes_in") > data.size // 2
        for node in job:
            assert_within(node)
