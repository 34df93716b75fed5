"""What the suites of this folder share beyond clairmount: users, errors, fingerprints, daemons in the background."""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import pathlib
import pickle
import signal
import stat
import subprocess

import clairmount
import pytest
from clairmount import STOP_SECONDS, binary, detach, is_mounted, wait_until

NOBODY = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users, or mount what it likes")
SETTLE_SECONDS = 60 * clairmount.SLOWNESS  # for what happens in the background; no test passes by it


def errno_of(call, *args, **named):
    """The errno that a call fails with; 0 when it succeeds."""
    try:
        call(*args, **named)
    except OSError as error:
        return error.errno
    return 0


def error_name(call, *args, **named):
    return errno.errorcode.get(errno_of(call, *args, **named), "success")


@contextlib.contextmanager
def device_for_all():
    """/dev/fuse open to all users, as udev has it on any Debian."""
    device = pathlib.Path("/dev/fuse")
    with device.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests beside this one want it, too
        mode = stat.S_IMODE(device.stat().st_mode)
        device.chmod(0o666)
        try:
            yield
        finally:
            device.chmod(mode)
            fcntl.flock(lock, fcntl.LOCK_UN)  # a child may have inherited it


def as_user(uid, call, *args):
    """Runs a function in a child as another user without further groups; returns or raises what it does."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            try:
                outcome = (True, call(*args))
            except BaseException as error:  # also a failed assertion
                outcome = (False, error)
            with open(writer, "wb") as pipe:
                pickle.dump(outcome, pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    succeeded, value = pickle.loads(answer)
    if not succeeded:
        raise value
    return value


def fingerprint(root):
    """{path: what must stay the same} of everything below `root`, symlinks not followed."""
    found = {}
    root = os.fsencode(root)
    for folder, folders, names in os.walk(root):
        for name in [*folders, *names, b"."]:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            content = None
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            attributes = {name: os.getxattr(path, name, follow_symlinks=False) for name in source_xattrs(path)}
            kept = (st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino)
            found[os.path.relpath(path, root)] = (kept, content, attributes)
    return found


def source_xattrs(path):
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:  # this filesystem has none
        return []


def delta(before, after):
    """What changed between two stats() of a mount, as {"fuse.requests.read": 3, ...}; only numbers that differ."""
    changed = {}
    for key, value in after.items():
        if isinstance(value, dict):
            changed |= {f"{key}.{inner}": n for inner, n in delta(before[key], value).items()}
        elif isinstance(value, (int, float)) and value != before[key]:
            changed[key] = value - before[key]
    return changed


def io_choices():
    """--io=uring where this kernel allows it, and --io=threads, as pytest parameters."""
    io_uring_setup = 425  # the same number on all architectures
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(io_uring_setup, 1, None)
    refused = ctypes.get_errno() in (errno.EPERM, errno.ENOSYS)
    mark = [pytest.mark.skip(reason="io_uring is forbidden here")] if refused else []
    return [pytest.param("uring", marks=mark), "threads"]


def run(*arguments, user=None, env=None, timeout=60 * clairmount.SLOWNESS):
    """Runs `clairfs ...` to its end; the completed process with text output."""
    identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    return subprocess.run(
        [str(word) for word in (binary(), *arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=timeout,
        check=False,
        **identity,
    )


def daemons(path):
    """Process ids of the programs that have `path` among their arguments, guards aside."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                if os.fsencode(path) in words and words[1] != b"guard":
                    found.append(int(process.name))
    return found


def guard_of(daemon):
    """Process id of a daemon's guard."""
    children = pathlib.Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    (guard,) = [int(pid) for pid in children if b"guard" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    return guard


def ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextlib.contextmanager
def cleaned(path):
    """Whatever was mounted at `path` by commands in the block is gone afterwards, and so are their processes."""
    try:
        yield
    finally:
        for pid in daemons(path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while is_mounted(path):
            detach(path)
        wait_until(lambda: not daemons(path), f"daemons of {path} end", STOP_SECONDS)


def assert_same_files(mount, names=None):
    """Every file, read through the mount, has the source's bytes."""
    for name in names if names is not None else clairmount.tree_files(mount.source):
        assert (mount.path / name).read_bytes() == (mount.source / name).read_bytes(), name


def assert_one_line(result, *parts, status=None):
    """A command failed with one line that holds all `parts`."""
    assert result.returncode != 0
    if status is not None:
        assert result.returncode == status, result.stderr
    assert result.stderr.startswith("clairfs: ") and result.stderr.count("\n") == 1, result.stderr
    for part in parts:
        assert str(part) in result.stderr, result.stderr
