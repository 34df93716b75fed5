"""The PFS fails, hangs and slows down: errors reach the readers that met them, and end when the fault ends."""

import contextlib
import errno
import os
import time

import pytest
from clairmount import MountError, clairfs, logged, slowfs, tempdir, tree_files, wait_until
from faultlib import CHUNK, PATIENCE, assert_hashes, digest, in_background, joined, make_dataset, outcome, reading
from mounting import io_choices
from planning import plan, predicted, register

PLAN = "format=files sampler=torch.distributed seed=7 epochs=50"
OPTIONS = ["--ram=2M", "--chunk=64K", "--staging=512K"]


@pytest.fixture(scope="module")
def source():
    with tempdir() as tmp:
        yield tmp / "src", make_dataset(tmp / "src")


@pytest.fixture
def pfs(source):
    with slowfs(source[0]) as served:
        yield served


@pytest.mark.parametrize("io", io_choices())
@pytest.mark.parametrize("planned", [False, True])
def test_one_file_fails(source, pfs, io, planned):
    _, hashes = source
    victim = "class2/large"
    with clairfs(pfs.path, *OPTIONS, f"--io={io}") as mount:
        pfs.command(f"eio {victim}")
        if planned:
            register(mount, PLAN)
        for _ in range(3):
            assert outcome(mount, victim) == errno.EIO
        assert_hashes(mount, hashes, hashes.keys() - {victim})
        stats = mount.stats()
        assert stats["pfs"]["errors"] >= 3 and stats["reads"]["failed"] >= 3
        assert logged(mount, victim)
        pfs.command("clear")
        assert digest(mount.path / victim) == hashes[victim]


@pytest.mark.parametrize("io", io_choices())
@pytest.mark.parametrize("planned", [False, True])
def test_all_fails_and_comes_back(source, pfs, io, planned):
    _, hashes = source
    with clairfs(pfs.path, *OPTIONS, f"--io={io}") as mount, reading(mount.path, hashes) as readers:
        if planned:
            register(mount, PLAN)
        readers.progress()
        pfs.command("eio-all")
        wait_until(lambda: readers.errors["EIO"] > 100, "readers are told")
        errors = mount.stat("pfs.errors")
        # Who prefetches does not ask a failing server in a loop: errors come from readers.
        readers.stop.set()
        for thread in readers.threads:
            joined(thread)
        quiet = mount.stat("pfs.errors")
        time.sleep(0.3)
        assert mount.stat("pfs.errors") <= quiet + len(hashes), errors
        pfs.command("clear")
        assert_hashes(mount, hashes)
        assert set(readers.errors) == {"EIO"}
        if planned:
            assert plan(mount)["state"] in ("following", "suspended"), plan(mount)


def test_prefetching_outlives_errors(source, pfs):
    """Errors that a plan's fetches meet end neither the plan nor what is pushed ahead."""
    root, hashes = source
    text = "format=files sampler=torch.sequential epochs=1000"
    names = predicted(root, text, 0, 0)
    with clairfs(pfs.path, *OPTIONS) as mount:
        pfs.command("eio * 40")
        register(mount, text)
        for _ in range(20):
            for name in names:
                outcome(mount, name)
            if pfs.counters()["eio"] == 40:
                break
        assert pfs.counters()["eio"] == 40
        assert_hashes(mount, hashes, names)
        pushed = mount.stat("staging.pushed")
        assert_hashes(mount, hashes, names)
        assert_hashes(mount, hashes, names)
        assert mount.stat("staging.pushed") > pushed
        assert plan(mount)["state"] == "following", plan(mount)


def test_some_reads_fail(source, pfs):
    """The next few hundred operations only: no later read of the same mount fails."""
    _, hashes = source
    with clairfs(pfs.path, *OPTIONS) as mount, reading(mount.path, hashes) as readers:
        pfs.command("eio * 300")
        wait_until(lambda: pfs.counters()["eio"] == 300, "all faults were met")
        readers.stop.set()
        for thread in readers.threads:
            joined(thread)
        assert set(readers.errors) == {"EIO"}
        assert_hashes(mount, hashes)


@pytest.mark.parametrize("planned", [False, True])
def test_hang(source, pfs, planned):
    """All reads hang: readers wait until it is over, then get their bytes; what is cached is served meanwhile."""
    _, hashes = source
    cached = sorted(hashes)[:10]
    with clairfs(pfs.path, "--ram=64M", "--chunk=64K", "--staging=512K") as mount:
        if planned:
            register(mount, PLAN)
        assert_hashes(mount, hashes, cached)
        pfs.command("hang * 3600")
        waiting = in_background(assert_hashes, mount, hashes)
        wait_until(lambda: pfs.counters()["pending"] > 0, "something hangs")
        joined(in_background(assert_hashes, mount, hashes, cached))
        assert "PFS" in mount.control("status")
        pfs.command("clear")  # releases what hangs
        joined(waiting)
        assert_hashes(mount, hashes)
        assert mount.stat("reads.failed") == 0


def test_hangs_for_half_a_minute(source, pfs):
    """It takes no less and ends without any reader's doing: all along what is cached is served, and all else waits."""
    _, hashes = source
    cached = sorted(hashes)[:10]
    others = {name: hashes[name] for name in hashes.keys() - set(cached)}
    with contextlib.ExitStack() as stack:
        options = "--ram=64M", "--chunk=64K"
        mounts = [stack.enter_context(clairfs(pfs.path, *options, f"--io={io}")) for io in ("auto", "threads")]
        for mount in mounts:
            assert_hashes(mount, hashes, cached)
        pfs.command("hang * 3600")
        until = time.monotonic() + 30
        waiting = [stack.enter_context(reading(mount.path, others)) for mount in mounts]
        while time.monotonic() < until:
            for mount in mounts:
                joined(in_background(assert_hashes, mount, hashes, cached))
            time.sleep(0.1)
        assert not any(readers.read or readers.errors for readers in waiting)
        pfs.command("clear")
        for mount, readers in zip(mounts, waiting):
            readers.progress()
            assert not readers.errors
            assert_hashes(mount, hashes)
            assert mount.stat("reads.failed") == 0


@pytest.mark.parametrize("io", io_choices())
def test_part_of_the_source_hangs(source, pfs, io):
    """One server of many does not answer: more readers than operations at once wait for it, and all others get theirs."""
    _, hashes = source
    hung = [name for name in sorted(hashes) if name.startswith("class0/") and name != "class0/empty"]
    with clairfs(pfs.path, "--ram=64M", "--chunk=64K", f"--io={io}") as mount:
        pfs.command("hang class0/* 3600")
        waiting = [in_background(assert_hashes, mount, hashes, [name]) for name in hung]
        wait_until(lambda: mount.stat("pfs.in_flight") >= 8, "all places are taken, and those that came in their stead")
        joined(in_background(assert_hashes, mount, hashes, [name for name in hashes if name not in hung]))
        pfs.command("clear")
        for reader in waiting:
            joined(reader)
        assert_hashes(mount, hashes)
        assert mount.stat("reads.failed") == 0


def test_read_that_hangs_holds_up_no_other_plan(tmp):
    """A READ of several chunks keeps the pages of all of them locked, also of those that are there to be pushed."""
    hashes = make_dataset(tmp / "src", {"a/file": 16 * CHUNK} | {f"b/{i:02}": 5000 for i in range(50)})
    with slowfs(tmp / "src") as pfs, clairfs(pfs.path, "--ram=16M", f"--chunk={CHUNK}", "--staging=8M") as mount:
        fd = os.open(mount.path / "a/file", os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            for chunk in range(0, 16, 2):  # these are in the RAM tier
                os.pread(fd, 1, chunk * CHUNK)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)
            pfs.command("hang a/file 3600")
            reader = in_background(os.pread, fd, 16 * CHUNK, 0)
            wait_until(lambda: pfs.counters()["pending"] > 0, "the reader waits")
            for name, folder in (("one", "a"), ("two", "b")):
                register(mount, f"name={name} format=files sampler=torch.sequential epochs=1", folder)
            wait_until(lambda: plan(mount, "two")["ahead"] == 50, "the other plan is staged", PATIENCE)
            assert reader.is_alive()
            pfs.command("clear")
            joined(reader)
        finally:
            pfs.command("clear")
            os.close(fd)
        assert_hashes(mount, hashes)


def test_what_is_on_nvme_is_served_while_the_source_hangs(tmp):
    """Also when more large chunks are on their way from the source than there is memory for."""
    sizes = {f"kept/{i}": 4 << 20 for i in range(4)} | {f"hung/{i:02}": 4 << 20 for i in range(14)}
    hashes = make_dataset(tmp / "src", sizes)
    kept = [name for name in sizes if name.startswith("kept/")]
    hung = [name for name in sizes if name not in kept]
    with slowfs(tmp / "src") as pfs, clairfs(pfs.path, "--ram=0", f"--nvme={tmp / 'nvme'}:200M") as mount:
        assert_hashes(mount, hashes, kept)
        wait_until(
            lambda: all(os.getxattr(mount.path / name, "user.clairfs.tier") == b"nvme" for name in kept), "NVMe has them"
        )
        pfs.command("hang hung/* 3600")
        waiting = [in_background(assert_hashes, mount, hashes, [name]) for name in hung]
        wait_until(lambda: mount.stat("pfs.in_flight") >= 7, "transit memory is taken")
        joined(in_background(assert_hashes, mount, hashes, kept))
        pfs.command("clear")
        for reader in waiting:
            joined(reader)
        assert mount.stat("reads.failed") == 0


def test_ten_times_slower(source):
    """Only the speed changes, for readers and for a plan's prefetching."""
    _, hashes = source
    with slowfs(source[0], "--latency", "500", "--bandwidth", "100M") as pfs:
        with clairfs(pfs.path, *OPTIONS) as mount, reading(mount.path, hashes) as readers:
            register(mount, PLAN)
            readers.progress()
            for command in ("latency 5000", "bandwidth 10000000"):
                pfs.command(command)
            readers.progress()
            for command in ("latency 500", "bandwidth 100000000"):
                pfs.command(command)
            readers.progress()
            assert not readers.errors
        assert mount.process.returncode == 0


def test_errors_during_the_scan(tmp):
    """A dataset with holes would be another one: nothing is mounted then, nor is an earlier mount's catalog lost."""
    names = make_dataset(tmp / "src", {f"{i % 4}/{i:03}": 10 for i in range(400)})
    with slowfs(tmp / "src", "--attr-timeout", "0") as pfs:

        def fail_on_the_way():
            ops = {}
            while ops.get("lookup", 0) + ops.get("getattr", 0) < 60:
                ops = pfs.counters()["ops"]
            pfs.command("eio-all")

        slow = "reset\nlatency 200000"  # so that no scan has ended before the fault is there
        well = "clear\nlatency 0"
        pfs.command(slow)
        breaking = in_background(fail_on_the_way)
        with pytest.raises(MountError, match="Input/output error"), clairfs(pfs.path):
            pass
        joined(breaking)
        pfs.command(well)
        with clairfs(pfs.path) as mount:
            assert tree_files(mount.path) == sorted(names)
            mount.umount()
            pfs.command(slow)
            breaking = in_background(fail_on_the_way)
            with pytest.raises(MountError, match="Input/output error"):
                mount.remount()
            joined(breaking)
            pfs.command(well)
            mount.remount()
            assert "reloaded" in mount.control("status")
            assert tree_files(mount.path) == sorted(names)
