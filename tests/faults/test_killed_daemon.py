"""A daemon is killed, or crashes, in the middle of a call into its own mount: it ends, and its readers are told."""

import contextlib
import errno
import os
import pathlib
import platform
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
from clairmount import binary, clairfs, detach, is_mounted, make_samples, make_tree, sanitized, slowfs, tempdir, wait_until
from faultlib import CHUNK, PATIENCE, in_background, joined
from mounting import assert_same_files, errno_of
from planning import plan, register
from preload import faults

__all__ = ["faults"]

PLAN = "format=files sampler=torch.distributed seed=7 epochs=1000"
KERNEL = tuple(map(int, platform.release().split("-", maxsplit=1)[0].split(".")[:2]))
TOLD = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)  # EIO: of a page that never came
# A guard without its daemon: the process that starts it, which is killed in the daemon's place.
DAEMON = "import os, subprocess, sys; subprocess.Popen([*sys.argv[1:], str(os.getpid())]); input()"
# ... and one whose main thread has ended before its guard is there, while another thread cannot end.
UNENDING = """
import ctypes, os, subprocess, sys, threading, time
def stay():
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    subprocess.Popen([*sys.argv[1:], str(os.getpid())])
    sys.stdin.read()
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
"""

# Reads files in a circle until it is told that the daemon is gone; its status is the errno, 1 if bytes are wrong.
READER = """
import itertools, pathlib, sys
mount, source = map(pathlib.Path, sys.argv[1:3])
for name in itertools.cycle(sys.argv[3:]):
    try:
        read = (mount / name).read_bytes()
    except OSError as error:
        sys.exit(error.errno)
    if read != (source / name).read_bytes():
        sys.exit(f"{name} has wrong bytes")
"""

can_abort = pytest.mark.skipif(os.geteuid() != 0, reason="aborting takes root, or fusectl mounted")


def guards(mountpoint):
    """Process ids of the guards of a mount."""
    words = f"clairfs guard {mountpoint} [0-9]+ [0-9]+ [0-9]+$"
    found = subprocess.run(["pgrep", "-f", words], capture_output=True, text=True, timeout=60)
    return [int(pid) for pid in found.stdout.split()]


def killed(mount, how=signal.SIGKILL):
    """Ends the daemon by a signal; it must end, readers must be told, and its guard must not stay."""
    resource.prlimit(mount.pid, resource.RLIMIT_CORE, (0, 0))
    assert mount.kill(how) != 0
    assert errno_of(os.statvfs, mount.path) == errno.ENOTCONN
    wait_until(lambda: not guards(mount.path), "the guard ends too")


def test_while_it_looks_files_up():
    # No file is known to the kernel yet: every push begins with a lookup in our own mount. Before lookups had a thread
    # without descriptors, a quarter of the kills left a daemon that never ended. No guard may be needed for them.
    rng = random.Random(1)
    with tempdir() as tmp:
        names = make_samples(tmp / "src", 6000, 2000)
        with clairfs(tmp / "src", "--staging=64M") as mount:
            for _ in range(12):
                register(mount, PLAN)
                pushed = rng.randrange(1, 4000)
                wait_until(lambda: plan(mount)["ahead"] >= pushed, "staging is at work")
                for guard in guards(mount.path):
                    os.kill(guard, signal.SIGKILL)
                killed(mount)
                mount.remount()
                assert_same_files(mount, rng.sample(names, 40))


@can_abort
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT])
def test_while_a_push_waits_for_a_page(how):
    # Every other chunk is there, and those between them hang. So a READ of more than a chunk, whatever the kernel makes of
    # the reader's, waits with the pages of a chunk that is there, and the push of that one waits for them.
    if how == signal.SIGSEGV and sanitized():
        pytest.skip("a sanitizer takes it for its own finding")
    with tempdir() as tmp, contextlib.ExitStack() as stack:
        (content,) = make_tree(tmp / "src", {"a/file": 16 * CHUNK}).values()
        pfs = stack.enter_context(slowfs(tmp / "src"))
        files = stack.enter_context(contextlib.ExitStack())  # closed after the mount's end, lest closing hangs
        # As a push does that comes a moment before the READ, all wait for it.
        waits = {"CLAIRFS_BENCH_WITHOUT": "leaving"}
        mount = stack.enter_context(clairfs(pfs.path, "--ram=4M", f"--chunk={CHUNK}", "--staging=4M", env=waits))
        fd = os.open(mount.path / "a/file", os.O_RDONLY)
        files.callback(errno_of, os.close, fd)  # of a mount that is dead by then
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for chunk in range(0, 16, 2):  # these are in the RAM tier
            assert os.pread(fd, 1, chunk * CHUNK) == content[chunk * CHUNK : chunk * CHUNK + 1]
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)
        pfs.command("hang a/file 3600")
        # Its files are closed some time after the daemon has ended, so an unmount would find it busy.
        stack.callback(pfs.kill, signal.SIGTERM)
        read = []
        reader = in_background(errno_of, lambda: read.append(os.pread(fd, 16 * CHUNK, 0)))
        wait_until(lambda: pfs.counters()["pending"] > 0, "the reader waits")
        register(mount, PLAN)
        wait_until(lambda: ("staging", "D") in threads(mount.pid), "the push waits for a page")
        killed(mount, how)
        joined(reader)
        assert all(content.startswith(piece) for piece in read)  # what had come before
        assert errno_of(os.pread, fd, 1, 15 * CHUNK) in TOLD


def threads(pid):
    """Name and state of each thread, as in /proc/PID/stat."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as stat:
            name, state = stat.read().split()[1:3]
            found.append((name.strip("()"), state))
    return found


@can_abort
def test_under_readers_that_follow_the_pushes():
    rng = random.Random(2)
    with tempdir() as tmp:
        names = make_samples(tmp / "src", 400, 200_000)
        with clairfs(tmp / "src", "--ram=1M", "--staging=64M") as mount:
            for _ in range(10):
                register(mount, "format=files sampler=torch.sequential epochs=1000")
                words = [sys.executable, "-c", READER, mount.path, mount.source, *sorted(names)]
                readers = [subprocess.Popen(words) for _ in range(2)]
                try:
                    time.sleep(rng.uniform(0.03, 0.3))
                    killed(mount)
                    for reader in readers:
                        assert reader.wait(PATIENCE) in TOLD
                finally:
                    for reader in readers:
                        reader.kill()
                        reader.wait()
                mount.remount()
                assert_same_files(mount, rng.sample(names, 40))


@pytest.fixture
def fusectl():
    """Where connections can be aborted by number; mounted for the test if it is not there."""
    folder = pathlib.Path("/sys/fs/fuse/connections")
    if os.path.ismount(folder):
        yield
        return
    mounted = subprocess.run(["mount", "-t", "fusectl", "none", folder], stderr=subprocess.DEVNULL, check=False)
    if mounted.returncode != 0:
        pytest.skip("fusectl cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.alone  # every guard would use it
@pytest.mark.usefixtures("fusectl")
def test_while_its_source_hangs_and_its_mount_is_detached():
    # The thread that reads the source keeps the device, and no path leads to the mount any more.
    with tempdir() as tmp, contextlib.ExitStack() as stack:
        make_tree(tmp / "src", {"a/file": CHUNK})
        pfs = stack.enter_context(slowfs(tmp / "src"))
        mount = stack.enter_context(clairfs(pfs.path, "--ram=4M", "--io=threads"))
        waiting_guards(mount.path)
        fd = os.open(mount.path / "a/file", os.O_RDONLY)
        pfs.command("hang a/file 3600")
        stack.callback(mount.wait)  # it ends when its source does
        stack.callback(pfs.kill, signal.SIGTERM)
        told = []
        reader = in_background(lambda: told.append(errno_of(os.pread, fd, 1, 0)))
        wait_until(lambda: pfs.counters()["pending"] > 0, "the reader waits")
        subprocess.run([binary(), "umount", "--lazy", mount.path], check=True, timeout=PATIENCE)
        stack.callback(pfs.process.send_signal, signal.SIGCONT)
        pfs.process.send_signal(signal.SIGSTOP)  # it would let go of a reader that is killed
        mount.process.kill()
        joined(reader)
        assert told[0] in TOLD
        os.close(fd)


def guard_words(mountpoint):
    """The command line of the mount's guard, without the daemon's process id."""
    (own,) = waiting_guards(mountpoint)
    with open(f"/proc/{own}/cmdline", encoding="utf-8") as cmdline:
        identity = cmdline.read().split("\0")[3:5]
    return [binary(), "guard", mountpoint, *identity]


@contextlib.contextmanager
def guarded(mountpoint):
    """A process in the place of the daemon, with a guard of its own."""
    (own,) = waiting_guards(mountpoint)
    with subprocess.Popen([sys.executable, "-c", DAEMON, *guard_words(mountpoint)], stdin=subprocess.PIPE) as daemon:
        try:
            wait_until(lambda: len(guards(mountpoint)) == 2, "the guard starts")
            yield daemon, next(pid for pid in waiting_guards(mountpoint) if pid != own)
        finally:
            daemon.kill()


def stop(daemon):
    """A daemon that runs would notice the mount's end, and unmount."""
    os.kill(daemon, signal.SIGSTOP)
    wait_until(lambda: all(state == "T" for _, state in threads(daemon)), "the daemon is stopped")


def waiting_guards(mountpoint):
    """The mount's guards, once there is one and all wait for a signal."""
    wait_until(lambda: guards(mountpoint) and all(map(asleep, guards(mountpoint))), "the guards wait")
    return guards(mountpoint)


def asleep(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/wchan", encoding="ascii") as wchan:
        return "sigtimedwait" in wchan.read()
    return False


@can_abort
def test_guard_aborts_what_its_daemon_leaves(source):
    found = []
    with clairfs(source) as mount:
        with guarded(mount.path) as (daemon, guard):
            for pid in guards(mount.path):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGUSR1)
            assert guard in waiting_guards(mount.path) and len(guards(mount.path)) == 2
            assert (mount.path / "a").read_bytes() == (source / "a").read_bytes()
            stop(mount.pid)
            daemon.kill()
            daemon.wait()
            waiting = in_background(lambda: found.append(errno_of(os.listxattr, mount.path)))
            joined(waiting)
        assert found[0] in TOLD
        assert is_mounted(mount.path), "readers must find a dead mount and not an empty directory"
        mount.kill()


@can_abort
def test_guard_that_comes_late_aborts_at_once(source):
    found = []
    with clairfs(source) as mount:
        words = guard_words(mount.path)
        stop(mount.pid)
        waiting = in_background(lambda: found.append(errno_of(os.listxattr, mount.path)))
        with subprocess.Popen([sys.executable, "-c", UNENDING, *words], stdin=subprocess.PIPE) as daemon:
            joined(waiting)
            assert daemon.poll() is None
        assert found[0] in TOLD
        mount.kill()


@pytest.mark.skipif(KERNEL < (6, 8), reason="the kernel gives the same numbers out again")
def test_guard_leaves_a_later_mount_alone(source):
    with clairfs(source) as mount:
        with guarded(mount.path) as (daemon, guard):
            mount.remount()
            daemon.kill()
            wait_until(lambda: guard not in guards(mount.path), "the other guard ends")
        assert (mount.path / "a").read_bytes() == (source / "a").read_bytes()


def test_guard_ends_with_an_orderly_end(source):
    with clairfs(source) as mount:
        assert len(waiting_guards(mount.path)) == 1
        mount.umount()
        assert not guards(mount.path)


@pytest.fixture(scope="module")
def source():
    with tempdir() as tmp:
        make_tree(tmp / "src", {"a": 100})
        yield tmp / "src"


@pytest.mark.skipif(os.geteuid() != 0, reason="others cannot make a mount namespace")
def test_a_daemon_that_is_killed_while_it_begins_leaves_no_mount(tmp, faults):
    """The mount for plans is in a directory for a moment. What unmounts the other one is killed as well."""
    make_tree(tmp / "src", {"file": 100})
    faults.die_unmounting = 1
    (tmp / "mnt").mkdir()
    words = [binary(), "mount", tmp / "src", tmp / "mnt", "--catalog-dir", tmp / "catalog"]
    env = {**os.environ, **faults.env, "TMPDIR": str(tmp)}
    try:
        ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE)
        assert ended.returncode != 0
        assert f"{tmp}/clairfs-plan-" not in pathlib.Path("/proc/self/mountinfo").read_text()
    finally:
        for point in [*tmp.glob("clairfs-plan-*"), tmp / "mnt"]:
            if is_mounted(point):
                detach(point)
