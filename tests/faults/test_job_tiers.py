"""What lies below one node of a job fails: its NVMe, its way to the PFS. The others do not notice but in time."""

import contextlib
import errno
import os
import random

import pytest
from clairjob import clairjob
from clairmount import logged, slowfs, tempdir, wait_until
from faultlib import PATIENCE, reading
from preload import faults
from training import Dataset, Readers, register_on_all

__all__ = ["faults"]
NODES, EPOCHS, VICTIM = 3, 4, 1
OTHERS = [0, 2]


@pytest.fixture(scope="module")
def data():
    with tempdir() as tmp:
        yield Dataset(tmp / "src")


@pytest.fixture(scope="module")
def large():
    """More than the memory for chunks in transit holds."""
    with tempdir() as tmp:
        yield Dataset(tmp / "src", count=600, size=110_000)


@contextlib.contextmanager
def job_on_nvme(data, tmp, env=None, wait=True):
    """A job that holds all of the dataset on NVMe and nothing in RAM."""
    for node in range(NODES):
        (tmp / f"nvme{node}").mkdir(mode=0o700)
    options = ["--ram=0", "--staging=1M", "--io=threads", f"--nvme={tmp}/nvme{{rank}}:{data.padded // 2}"]
    with clairjob(data.root, NODES, *options, env=env) as job:
        register_on_all(job, 0, EPOCHS)
        if wait:
            wait_until(lambda: job.stat("tiers.nvme.chunks") >= len(data.names), "all chunks are on NVMe")
        yield job


def train(data, job):
    """All nodes, and every read is right."""
    Readers(data, job, EPOCHS, pause=0.01).start().finish()
    assert job.stat("reads.failed") == 0


def test_reads_from_the_nvme_of_a_node_fail(large, tmp, faults):
    faults.node = VICTIM + 1
    with job_on_nvme(large, tmp, faults.env) as job:
        faults.read_errno = errno.EIO
        train(large, job)
        assert faults.hits > 0
        assert logged(job, str(tmp / f"nvme{VICTIM}"))


def test_writes_to_the_nvme_of_a_node_fail(large, tmp, faults):
    faults.node = VICTIM + 1
    faults.write_errno = errno.EIO
    with job_on_nvme(large, tmp, faults.env, wait=False) as job:
        train(large, job)
        assert faults.hits > 0
        assert job[VICTIM].stat("tiers.nvme.chunks") == 0 < job[OTHERS[0]].stat("tiers.nvme.chunks")


def flip_bits(folder, times):
    """Somewhere in what was written to the segments."""
    chance = random.Random(5)
    for path in folder.glob("segment-*"):
        with open(path, "r+b", buffering=0) as file:
            for _ in range(times):
                at = chance.randrange(path.stat().st_size)
                byte = os.pread(file.fileno(), 1, at)
                os.pwrite(file.fileno(), bytes([byte[0] ^ 1 << chance.randrange(8)]), at)
            os.fsync(file.fileno())


def test_bits_flip_on_the_nvme_of_a_node(large, tmp):
    with job_on_nvme(large, tmp) as job:
        flip_bits(tmp / f"nvme{VICTIM}", 300)
        train(large, job)
        assert job[VICTIM].stat("nvme.checksum_failures") > 0
        assert sum(job[node].stat("nvme.checksum_failures") for node in OTHERS) == 0


@contextlib.contextmanager
def job_with_a_bad_way(data, tmp):
    """A job whose victim has a way of its own to the PFS; yields the job and that way."""
    with slowfs(data.root, "--latency", "300") as good, slowfs(data.root, "--latency", "300") as bad:
        for node in range(NODES):
            os.symlink(bad.path if node == VICTIM else good.path, tmp / f"src{node}")
        with clairjob(tmp / "src{rank}", NODES, "--ram", data.padded, "--staging", "1M") as job:
            try:
                yield job, bad
            finally:
                bad.command("clear")


# For a node that lives the others wait half a minute each time that they try it (PeerClientOptions::most_wait).
@pytest.mark.parametrize("fault, epochs", [("eio-all", EPOCHS), ("hang * 3600", 1), ("latency 100000", EPOCHS)])
def test_pfs_of_a_node_fails(data, tmp, fault, epochs):
    """Also what it should have read for the others is there for them."""
    hashes = {name: digest.hex() for name, digest in data.digests.items()}
    with job_with_a_bad_way(data, tmp) as (job, bad):
        bad.command(fault)
        register_on_all(job, 0, EPOCHS)
        with reading(job[VICTIM].path, hashes, threads=2) as own:
            Readers(data, job, epochs, pause=0.01, nodes=OTHERS).start().finish(3 * PATIENCE)
            assert sum(job[node].stat("reads.failed") for node in OTHERS) == 0
            bad.command("clear")
            bad.command("latency 300")
            own.progress()
        assert set(own.errors) <= ({"EIO"} if fault == "eio-all" else set())
        for node in range(NODES):
            for name in data.names:
                data.check(job[node], name)
