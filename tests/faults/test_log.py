"""What takes the log stands still, as a home on a network that hangs does: a pipe whose reader has stopped. Nobody waits."""

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import types

import pytest
from clairmount import binary, is_mounted, wait_until
from faultlib import PATIENCE, assert_hashes, in_background, joined, make_dataset, outcome, reading
from meetingjob import free_port
from mounting import SETTLE_SECONDS, cleaned, daemons, run

OPTIONS = ["--ram=1M", "--chunk=64K", "--staging=512K", "--page-cache=0"]
CHANGED = ["class0/file008", "class1/file005", "class2/large"]


class Pipe:
    """A named pipe and its reader, which reads when it is told to."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path = path
        self.reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.text = b""

    def close(self):
        os.close(self.reader)

    def fill(self):
        """Whoever writes to it now waits, until it is read."""
        writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            for size in (4096, 1):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        os.write(writer, b"\n" * size)
        finally:
            os.close(writer)

    def read(self):
        """All that has come."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.reader, 1 << 16):
                self.text += piece
        return self.text.decode()


@pytest.fixture
def pipe(tmp):
    made = Pipe(tmp / "pipe")
    yield made
    made.close()


@pytest.fixture
def hashes(tmp):
    (tmp / "mnt").mkdir()
    made = make_dataset(tmp / "src")
    with cleaned(tmp / "mnt"):
        yield made


@contextlib.contextmanager
def logging_to(pipe, place, tmp):
    """A mount in the foreground, and its process."""
    words = [binary(), "mount", tmp / "src", tmp / "mnt", "-f", "--catalog-dir", tmp / "catalog", *OPTIONS]
    if place == "file":
        words += ["--log-file", pipe.path]
    with open(pipe.path if place == "stderr" else os.devnull, "wb", buffering=0) as stderr:
        process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        wait_until(lambda: is_mounted(tmp / "mnt"), "mounted")
        wait_until(lambda: "info mounted " in pipe.read(), "the log says so")
        yield types.SimpleNamespace(path=tmp / "mnt"), process
    finally:
        process.kill()
        process.wait(PATIENCE)


def change(mount, tmp, found):
    """Each change is an error in the log, of the thread that reads the source."""
    for name in CHANGED:
        (tmp / "src" / name).write_bytes(bytes(os.path.getsize(tmp / "src" / name)))
        found[name] = outcome(mount, name)


@pytest.mark.parametrize("place", ["file", "stderr"])
def test_a_log_that_hangs_holds_nothing_up(tmp, hashes, pipe, place):
    with logging_to(pipe, place, tmp) as (mount, process):
        pipe.fill()
        found = {}
        joined(in_background(change, mount, tmp, found))
        assert found == dict.fromkeys(CHANGED, errno.ESTALE)
        with reading(mount.path, {name: hashes[name] for name in hashes.keys() - set(CHANGED)}) as readers:
            readers.progress(200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert not is_mounted(mount.path)
        assert "changed on the source" not in pipe.read()  # it was full all the time


def test_a_log_that_hung_goes_on_in_order(tmp, hashes, pipe):
    with logging_to(pipe, "file", tmp) as (mount, process):
        pipe.fill()
        found = {}
        joined(in_background(change, mount, tmp, found))
        wait_until(lambda: all(f"{name} changed on the source" in pipe.read() for name in CHANGED), "the lines come")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        lines = [line for line in pipe.read().splitlines() if line]
        told = [next(at for at, line in enumerate(lines) if f"{name} changed on" in line) for name in CHANGED]
        assert told == sorted(told)
        assert lines[-1].endswith(f"unmounted {mount.path}")


def test_a_log_that_hangs_from_the_start_keeps_nobody_from_mounting(tmp, hashes, pipe):
    pipe.fill()
    words = ["mount", tmp / "src", tmp / "mnt", "--catalog-dir", tmp / "catalog", "--log-file", pipe.path, *OPTIONS]
    assert run(*words).returncode == 0
    assert_hashes(types.SimpleNamespace(path=tmp / "mnt"), hashes)
    (daemon,) = daemons(tmp / "mnt")
    os.kill(daemon, signal.SIGHUP)  # it opens its log anew
    assert_hashes(types.SimpleNamespace(path=tmp / "mnt"), hashes)
    assert run("umount", tmp / "mnt").returncode == 0
    wait_until(lambda: not daemons(tmp / "mnt"), "the daemon ends", SETTLE_SECONDS)


def status_with_full_stderr(words, pipe):
    """The exit status of a command that finds no room for a line on its stderr."""
    with open(pipe.path, "wb", buffering=0) as stderr:
        pipe.fill()
        words = list(map(str, words))
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr) as process:
            try:
                return process.wait(PATIENCE)
            finally:
                process.kill()


def test_a_mount_that_fails_ends_though_nobody_reads_its_stderr(tmp, hashes, pipe):
    """That its NVMe directory is in use shows after the scan, when its signals are taken care of."""
    (tmp / "nvme").mkdir(mode=0o700)
    words = [binary(), "mount", tmp / "src", tmp / "mnt", "-f", "--catalog-dir", tmp / "catalog"]
    words += [f"--nvme={tmp / 'nvme'}:64M", "--log-file", tmp / "log"]
    with open(tmp / "nvme/lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert status_with_full_stderr(words, pipe) == 32
    assert not is_mounted(tmp / "mnt")
    assert "in use" not in pipe.read()  # it was full all the time
    assert f"error not mounted: NVMe directory {tmp / 'nvme'}: is in use" in (tmp / "log").read_text()


def test_a_mount_that_fails_says_why_once_on_stderr_and_in_its_log(tmp, hashes):
    """That stderr takes the line does not mean that somebody sees it: /dev/null does so too."""
    (tmp / "nvme").mkdir(mode=0o700)
    words = ["mount", tmp / "src", tmp / "mnt", "-f", "--catalog-dir", tmp / "catalog"]
    words += [f"--nvme={tmp / 'nvme'}:64M", "--log-file", tmp / "log"]
    with open(tmp / "nvme/lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failed = run(*words)
    assert failed.returncode == 32
    why = f"NVMe directory {tmp / 'nvme'}: is in use"
    assert failed.stderr.count(why) == 1 and f"clairfs: {why}" in failed.stderr
    assert (tmp / "log").read_text().count(f"error not mounted: {why}") == 1


def test_a_refused_mount_ends_though_nobody_reads_its_stderr(tmp, hashes, pipe):
    words = [binary(), "mount", tmp / "src", tmp / "absent", "-f", "--catalog-dir", tmp / "catalog"]
    assert status_with_full_stderr(words, pipe) == 32
    assert status_with_full_stderr([*words, "--rank=1"], pipe) == 1  # of no job
    assert "absent" not in pipe.read()


def test_a_refused_node_of_a_job_ends_though_nobody_reads_its_stderr(tmp, hashes, pipe):
    """It looks for the others first, to tell them. None is there."""
    words = [binary(), "mount", tmp / "src", tmp / "absent", "-f", "--catalog-dir", tmp / "catalog"]
    words += ["--job", f"127.0.0.1:{free_port()}", "--rank=1", "--nodes=2", "--job-timeout=1"]
    assert status_with_full_stderr(words, pipe) == 32
    assert "absent" not in pipe.read()


def test_a_mount_with_a_warning_is_there_though_nobody_reads_its_stderr(tmp, hashes, pipe):
    words = [binary(), "mount", tmp / "src", tmp / "mnt", "--catalog-dir", tmp / "catalog", "--log-file", tmp / "log"]
    assert status_with_full_stderr([*words, "--staging=9T"], pipe) == 0
    assert_hashes(types.SimpleNamespace(path=tmp / "mnt"), hashes)
    assert "--staging of 9.0 TiB is more than" in (tmp / "log").read_text()
    assert run("umount", tmp / "mnt").returncode == 0
