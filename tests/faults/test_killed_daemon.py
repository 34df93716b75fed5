"""A daemon is killed while it makes calls into its own mount: it ends, and its readers are told, in any state of those."""

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from clairmount import binary, clairfs, is_mounted, make_samples, make_tree, slowfs, tempdir, wait_until
from faultlib import CHUNK, PATIENCE, in_background, joined
from mounting import errno_of
from planning import plan, register

PLAN = "format=files sampler=torch.distributed seed=7 epochs=1000"
TOLD = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)  # EIO: of a page that never came
# A guard without its daemon: the process that starts it, which is killed in the daemon's place.
DAEMON = "import os, subprocess, sys; subprocess.Popen([*sys.argv[1:], str(os.getpid())]); input()"


def guards(mountpoint):
    """Process ids of the guards of a mount."""
    found = subprocess.run(["pgrep", "-f", f"clairfs guard {mountpoint} "], capture_output=True, text=True, timeout=10)
    return [int(pid) for pid in found.stdout.split()]


def killed(mount):
    """Kills the daemon; it must end, readers must be told, and its guard must not stay."""
    assert mount.kill() == -signal.SIGKILL
    assert errno_of(os.statvfs, mount.path) == errno.ENOTCONN
    wait_until(lambda: not guards(mount.path), "the guard ends too")


def test_while_it_looks_files_up():
    # No file is known to the kernel yet: every push begins with a lookup in our own mount. Before lookups had a thread
    # without descriptors, a quarter of the kills left a daemon that never ended.
    rng = random.Random(1)
    with tempdir() as tmp:
        make_samples(tmp / "src", 6000, 2000)
        with clairfs(tmp / "src", "--staging=64M") as mount:
            for _ in range(12):
                register(mount, PLAN)
                pushed = rng.randrange(1, 4000)
                wait_until(lambda: plan(mount)["ahead"] >= pushed, "staging is at work")
                killed(mount)
                mount.remount()


def test_while_a_push_waits_for_a_page():
    # A READ of a reader spans a chunk that is there and one that hangs. The push of the first waits for its pages.
    with tempdir() as tmp, contextlib.ExitStack() as stack:
        make_tree(tmp / "src", {"a/file": 16 * CHUNK})
        pfs = stack.enter_context(slowfs(tmp / "src"))
        mount = stack.enter_context(clairfs(pfs.path, "--ram=4M", f"--chunk={CHUNK}", "--staging=4M"))
        fd = os.open(mount.path / "a/file", os.O_RDONLY)
        stack.callback(errno_of, os.close, fd)  # of a mount that is dead by then
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for chunk in range(8):
            os.pread(fd, 1, chunk * CHUNK)  # the first half is in the RAM tier
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)
        pfs.command("hang a/file 3600")
        # Its files are closed some time after the daemon has ended, so an unmount would find it busy.
        stack.callback(pfs.kill, signal.SIGTERM)
        reader = in_background(errno_of, os.pread, fd, 16 * CHUNK, 0)
        wait_until(lambda: pfs.counters()["pending"] > 0, "the reader waits")
        register(mount, PLAN)
        wait_until(lambda: ("staging", "D") in threads(mount.pid), "the push waits for a page")
        killed(mount)
        joined(reader)
        assert errno_of(os.pread, fd, 1, 15 * CHUNK) in TOLD


def threads(pid):
    """Name and state of each thread, as in /proc/PID/stat."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as stat:
            name, state = stat.read().split()[1:3]
            found.append((name.strip("()"), state))
    return found


def test_under_readers_that_follow_the_pushes():
    rng = random.Random(2)
    with tempdir() as tmp:
        names = make_samples(tmp / "src", 400, 200_000)
        script = "import sys\nfor name in sys.argv[1:]: open(name, 'rb').read()"
        with clairfs(tmp / "src", "--ram=1M", "--staging=64M") as mount:
            for _ in range(10):
                register(mount, "format=files sampler=torch.sequential epochs=1000")
                words = [sys.executable, "-c", script, *(mount.path / name for name in sorted(names))]
                readers = [subprocess.Popen(words, stderr=subprocess.DEVNULL) for _ in range(2)]
                try:
                    time.sleep(rng.uniform(0.03, 0.3))
                    killed(mount)
                    for reader in readers:
                        reader.wait(PATIENCE)
                finally:
                    for reader in readers:
                        reader.kill()
                        reader.wait()
                mount.remount()


@contextlib.contextmanager
def guarded(mountpoint):
    """A process in the place of the daemon, with a guard of its own."""
    words = [sys.executable, "-c", DAEMON, binary(), "guard", mountpoint]
    before = guards(mountpoint)
    with subprocess.Popen(words, stdin=subprocess.PIPE) as daemon:
        try:
            wait_until(lambda: asleep(set(guards(mountpoint)) - set(before)), "the guard waits")
            yield daemon
        finally:
            daemon.kill()


def asleep(pids):
    """Whether each of them (at least one) waits for a signal."""
    blocked = []
    for pid in pids:
        with open(f"/proc/{pid}/wchan", encoding="ascii") as wchan:
            blocked.append("sigtimedwait" in wchan.read())
    return bool(blocked) and all(blocked)


@pytest.mark.skipif(os.geteuid() != 0, reason="aborting takes root, or fusectl mounted")
def test_guard_aborts_what_its_daemon_leaves(source):
    found = []
    with clairfs(source) as mount:
        with guarded(mount.path) as daemon:
            for pid in guards(mount.path):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGUSR1)
            assert (mount.path / "a").read_bytes() == (source / "a").read_bytes()
            os.kill(mount.pid, signal.SIGSTOP)  # it would notice, and unmount
            wait_until(lambda: all(state == "T" for _, state in threads(mount.pid)), "the daemon is stopped")
            daemon.kill()
            daemon.wait()
            waiting = in_background(lambda: found.append(errno_of(os.listxattr, mount.path)))
            joined(waiting)
        assert found[0] in TOLD
        assert is_mounted(mount.path), "readers must find a dead mount and not an empty directory"
        mount.kill()


def test_guard_leaves_a_later_mount_alone(source):
    with clairfs(source) as mount:
        with guarded(mount.path) as daemon:
            mount.remount()
            daemon.kill()
            wait_until(lambda: len(guards(mount.path)) == 1, "the other guard ends")
        assert (mount.path / "a").read_bytes() == (source / "a").read_bytes()


def test_guard_ends_with_an_orderly_end(source):
    with clairfs(source) as mount:
        assert len(guards(mount.path)) == 1
        mount.umount()
        assert not guards(mount.path)


@pytest.fixture(scope="module")
def source():
    with tempdir() as tmp:
        make_tree(tmp / "src", {"a": 100})
        yield tmp / "src"
