"""The mount ends while it is used, in every way: readers come back, nothing is left, and what was cached is warm."""

import contextlib
import errno
import os
import pathlib
import re
import signal
import subprocess

import pytest
from clairmount import binary, clairfs, is_mounted, slowfs, tempdir, wait_until
from faultlib import CHUNK, PATIENCE, assert_hashes, in_background, joined, make_dataset, reading
from mounting import errno_of, io_choices
from planning import register

PLAN = "format=files sampler=torch.distributed seed=7 epochs=1000"
OPTIONS = ["--ram=1M", "--chunk=64K", "--staging=512K"]
# Of reads under way and of later ones; what comes after the unmount finds the empty mountpoint.
ENDED = {"ENOTCONN", "ECONNABORTED", "EINTR", "ECANCELED", "EIO", "ENOENT"}
DRAIN_SECONDS = 10  # kDrainPatience of mount-helper/serve/mount_point.h


@pytest.fixture(scope="module")
def source():
    with tempdir() as tmp:
        yield tmp / "src", make_dataset(tmp / "src")


def put_records(nvme):
    """Chunks that the index tells of; see cache/nvme/record.h."""
    content = (nvme / "index").read_bytes()
    return sum(content[at + 8] == 1 for at in range(48, len(content) - 47, 48))


@pytest.mark.parametrize("io", io_choices())
def test_killed_under_load(source, tmp, io):
    root, hashes = source
    nvme = tmp / "nvme"
    nvme.mkdir(mode=0o700)
    with clairfs(root, "--ram=0", "--chunk=64K", "--staging=512K", f"--nvme={nvme}:64M", f"--io={io}") as mount:
        register(mount, PLAN)
        with reading(mount.path, hashes) as readers:
            readers.progress(300)
            wait_until(lambda: put_records(nvme) > 50, "chunks are on NVMe")
            mount.kill()
            wait_until(lambda: readers.errors["ENOTCONN"] >= len(readers.threads), "readers are told")
        assert set(readers.errors) <= {"ENOTCONN", "ECONNABORTED"}
        mount.remount()
        assert mount.stat("tiers.nvme.chunks") >= 50
        assert_hashes(mount, hashes)
        stats = mount.stats()
        assert stats["nvme"]["checksum_failures"] == stats["reads"]["failed"] == 0
        assert stats["pfs"]["bytes"] < sum((root / name).stat().st_size for name in hashes)


@pytest.mark.parametrize("way", ["SIGTERM", "lazy"])
@pytest.mark.parametrize("io", io_choices())
def test_ended_under_load(source, way, io):
    root, hashes = source
    with clairfs(root, *OPTIONS, f"--io={io}") as mount:
        register(mount, PLAN)
        with reading(mount.path, hashes) as readers:
            readers.progress()
            if way == "SIGTERM":
                mount.process.send_signal(signal.SIGTERM)
            else:
                subprocess.run([binary(), "umount", "--lazy", mount.path], check=True, timeout=PATIENCE)
            assert mount.wait(PATIENCE) == 0, mount.log()
            assert not is_mounted(mount.path)
            wait_until(lambda: readers.errors["ENOENT"] > 0, "readers find the mount gone")
        assert set(readers.errors) <= ENDED


def test_busy_unmount_changes_nothing_for_readers(source):
    root, hashes = source
    with clairfs(root, *OPTIONS) as mount, reading(mount.path, hashes) as readers:
        fd = os.open(mount.path / "class2/large", os.O_RDONLY)
        try:
            for _ in range(3):
                refused = subprocess.run([binary(), "umount", mount.path], capture_output=True, text=True, timeout=PATIENCE)
                assert refused.returncode != 0 and "busy" in refused.stderr
                readers.progress(10)
        finally:
            os.close(fd)
        assert not readers.errors


# A source that hangs for ever. All cases wait side by side, since each takes as long as the daemon's patience.


class Hung:
    """A mount of a slow filesystem on which class2/large hangs."""

    def __init__(self, root, stack):
        self.root = root
        self.pfs = stack.enter_context(slowfs(root))
        options = "--ram=64M", "--chunk=64K", "--staging=8M"
        # As a push does that comes a moment before the READ, all wait for it.
        waits = {"CLAIRFS_BENCH_WITHOUT": "leaving"}
        self.mount = stack.enter_context(clairfs(self.pfs.path, *options, env=waits))
        self.fd = os.open(self.mount.path / "class2/large", os.O_RDONLY)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(self.fd, 4096, 0)  # the first chunk is in the RAM tier
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_NORMAL)
        self.pfs.command("hang class2/large 3600")
        self.failed = []
        self.waiting = None

    def waits(self, call, *args):
        """Makes a call that hangs."""
        before = self.pfs.counters()["pending"]
        self.waiting = in_background(lambda: self.failed.append(errno_of(call, *args)))
        wait_until(lambda: self.pfs.counters()["pending"] > before, "it hangs")

    def close(self):
        with contextlib.suppress(OSError):
            self.pfs.command("clear")  # lest a daemon that did not end sleeps on, and the machine's sync with it
        with contextlib.suppress(OSError):
            os.close(self.fd)
        self.pfs.kill(signal.SIGTERM)  # an io_uring's files are closed some time after its process has ended


def read_two_chunks(hung):
    """A READ of both. It may end with what was pushed meanwhile, but never with other bytes."""
    read = os.pread(hung.fd, 2 * CHUNK, 0)
    assert read == (hung.root / "class2/large").read_bytes()[:CHUNK]
    os.pread(hung.fd, CHUNK, CHUNK)


def a_reader_waits(hung):
    hung.waits(read_two_chunks, hung)


def a_push_waits(hung):
    """The pusher sleeps on a page of the READ of the first two chunks, which waits for the second."""
    hung.waits(read_two_chunks, hung)
    register(hung.mount, "format=files sampler=torch.sequential epochs=2", "class2")
    wait_until(lambda: thread_states(hung.mount.pid).get("staging") == "D", "staging sleeps in the kernel")


def a_list_file_hangs(hung):
    hung.waits(register, hung.mount, f"sampler=list list={hung.pfs.path}/class2/large")


def thread_states(pid):
    """{name of a thread: its state}, as in proc(5)."""
    states = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            name, state = re.fullmatch(r"\d+ \((.*)\) (\w).*", (task / "stat").read_text(), re.S).groups()
            states[name] = state
    return states


HUNG = {a_reader_waits: "failing the reads that still wait", a_push_waits: "failing the reads that still wait",
        a_list_file_hangs: "does not answer"}  # fmt: skip


def test_ends_though_the_source_hangs(source):
    with contextlib.ExitStack() as stack:
        cases = {}
        for case in HUNG:
            cases[case] = hung = Hung(source[0], stack)
            stack.callback(hung.close)
            case(hung)
        for hung in cases.values():
            hung.mount.process.send_signal(signal.SIGTERM)
        for case, hung in cases.items():
            hung.mount.wait(4 * DRAIN_SECONDS + PATIENCE)
            assert not is_mounted(hung.mount.path)
            joined(hung.waiting)
            # Who sets a plan is not kept waiting, as a reader is: it may have had its answer before the end.
            assert errno.errorcode.get(hung.failed[0]) in ENDED | {"EINPROGRESS"}, (case, hung.failed)
            assert HUNG[case] in hung.mount.log(), case
