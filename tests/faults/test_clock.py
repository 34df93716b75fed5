"""The wall clock jumps, by seconds and by decades, forth and back: nothing that waits or expires goes by it."""

import os
import re
import time

import pytest
from clairjob import clairjob
from clairmount import clairfs, slowfs, wait_until
from faultlib import SIZES, make_dataset, reading
from planning import register
from preload import faults
from training import Dataset, Readers, peers, register_on_all

__all__ = ["faults"]
PLAN = "format=files sampler=torch.distributed seed=7 epochs=1000"
DECADE = 10 * 365 * 86400
JUMPS = [5, -5, 3600, -86400, DECADE, -DECADE, -6 * DECADE, 0]  # the last but one is before 1970


def test_jumps_under_load(tmp, faults):
    hashes = make_dataset(tmp / "src")
    with slowfs(tmp / "src", "--latency", "300") as pfs:
        with clairfs(pfs.path, "--ram=1M", "--chunk=64K", "--staging=512K", env=faults.env) as mount:
            register(mount, PLAN)
            with reading(mount.path, hashes) as readers:
                for jump in JUMPS:
                    faults.clock_seconds = jump
                    readers.progress(50)
                    year = time.gmtime(time.time() + jump).tm_year
                    wait_until(lambda: mount.control("accesslog").splitlines()[-1].startswith(f"{year:04}-"), "it jumps")
                    assert re.search(r" up 00:\d\d:\d\d ", mount.control("status"))
                assert not readers.errors
            faults.clock_seconds = DECADE
            mount.umount()


@pytest.mark.parametrize("jump", [-DECADE, DECADE])
def test_catalog_is_believed_across_a_jump(tmp, faults, jump):
    """Saved before and reloaded after it: what changed meanwhile is seen, what did not is not scanned again."""
    hashes = make_dataset(tmp / "src", {name: size for name, size in SIZES.items() if size < 100_000})
    with clairfs(tmp / "src", env=faults.env) as mount:
        faults.clock_seconds = jump
        mount.remount(env=faults.env)
        (mount.path / max(hashes)).read_bytes()
        year = time.gmtime(time.time() + jump).tm_year
        wait_until(lambda: mount.control("accesslog").startswith(f"{year:04}-"), "it has jumped")
        assert "reloaded" in mount.control("status")
        time.sleep(0.05)  # the kernel's clock, which stamps files, ticks every few milliseconds
        (tmp / "src/class0/empty").write_bytes(b"not any more")
        mount.remount(env=faults.env)
        assert "scanned" in mount.control("status")
        assert (mount.path / "class0/empty").read_bytes() == b"not any more"
        assert os.listdir(mount.catalog_dir)


def logs_in(year, node, name):
    """Whether the node has logged a READ in that year, by its own clock; makes one, which the page cache has no part in."""
    fd = os.open(node.path / name, os.O_RDONLY | os.O_DIRECT)
    try:
        os.pread(fd, 1 << 16, 0)
    finally:
        os.close(fd)
    return any(line.startswith(f"{year:04}-") for line in node.control("accesslog").splitlines())


def test_jumps_on_one_node_of_a_job(tmp, faults):
    """Nobody is taken for late, dead or restarted by it."""
    nodes, epochs, faults.node = 3, 4, 2
    data = Dataset(tmp / "src", count=200)
    with clairjob(data.root, nodes, "--ram", data.padded, "--staging", "1M", env=faults.env) as job:
        register_on_all(job, 0, epochs)
        readers = Readers(data, job, epochs, pause=0.1).start()
        for jump in JUMPS:
            faults.clock_seconds = jump
            time.sleep(0.3)  # while the nodes speak with each other
            year = time.gmtime(time.time() + jump).tm_year
            wait_until(lambda: logs_in(year, job[faults.node - 1], data.names[0]), "the clock jumps")  # noqa: B023  (called at once)
        readers.finish()
        states = {peer["state"] for node in job for peer in peers(node) if peer["rank"] != node.rank}
        assert states == {"alive"}, job.log()
        assert "taken for dead" not in job.log() and "was suspended for" not in job.log()
        assert job.stat("reads.failed") == 0
