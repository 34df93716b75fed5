"""Mounts for tests: clairfs, the slow filesystem, and the trees that they serve.

Everything here is a context manager that leaves no mount, process or file behind, also when the test fails:

    with tempdir() as tmp:
        make_tree(tmp / "src", {"a/1": 100, "a/2": 4097})
        with clairfs(tmp / "src", "--ram", "64M") as mount:
            assert (mount.path / "a/1").read_bytes() == (mount.source / "a/1").read_bytes()
            assert mount.stats()["pfs"]["bytes"] == 100
"""

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

REPO = pathlib.Path(__file__).resolve().parents[3]
_MNT_FORCE = 1
_MNT_DETACH = 2


class MountError(Exception):
    """The program ended, or said nothing in time, before its mount was usable."""


def build_dir():
    """The build under test: $CLAIRFS_BUILD_DIR, else the first of build/{dev,release,asan,tsan} that exists."""
    if named := os.environ.get("CLAIRFS_BUILD_DIR"):
        return pathlib.Path(named).resolve()
    for preset in ("dev", "release", "asan", "tsan"):
        if (REPO / "build" / preset / "CMakeCache.txt").exists():
            return REPO / "build" / preset
    raise FileNotFoundError(f"no build below {REPO}/build: run tests/run.sh or cmake first")


def binary(name="clairfs"):
    """Path of a program under test: $CLAIRFS_BIN for clairfs, else from build_dir()."""
    if name == "clairfs" and (named := os.environ.get("CLAIRFS_BIN")):
        return pathlib.Path(named).resolve()
    folder = "tests/support/slowfs" if name == "clairfs-slowfs" else "."
    path = build_dir() / folder / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built")
    return path


@functools.cache
def sanitized():
    """Whether the build under test has a sanitizer, which takes memory of its own."""
    return any(name in binary().read_bytes() for name in (b"__asan_init", b"__tsan_init"))


def _slowness():
    try:
        return 4 if sanitized() else 1
    except FileNotFoundError:  # tests of the repository's files need no build
        return 1


# Every deadline of a test is so many times as long as without a sanitizer, which makes programs several times slower. None
# decides a passing test.
SLOWNESS = _slowness()
START_SECONDS = 60 * SLOWNESS  # on a busy machine a few are needed
STOP_SECONDS = 60 * SLOWNESS


@contextlib.contextmanager
def sanitizer_reports():
    """Programs that are started in the block write what a sanitizer finds to files, for many tell nobody otherwise: those
    in the background, those that are killed, the nodes of a job. Yields a function that raises AssertionError if there
    are any; so does the end. (GCC's UBSan writes to stderr all the same, but ends the program.)"""
    with tempdir() as folder:
        folder.chmod(0o1777)  # some run as another user

        def check():
            texts = []
            for path in sorted(folder.iterdir()):
                texts.append(path.read_text(errors="replace"))
                path.unlink()
            assert not texts, "\n".join(texts)

        names = ("ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS")
        with mock.patch.dict(os.environ, {name: f"{os.environ.get(name, '')}:log_path={folder}/report" for name in names}):
            yield check
        check()


# Trees


@contextlib.contextmanager
def tempdir():
    """A fresh directory, removed at the end; what may still be mounted below it is detached first."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="clairfs-"))
    path.chmod(0o755)  # some tests read as another user
    try:
        yield path
    finally:
        for mount in sorted(mounts_below(path), reverse=True):
            detach(mount)
        _make_removable(path)
        shutil.rmtree(path)


def _make_removable(path):
    for folder, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(folder, name)
            if not os.path.islink(inner):
                os.chmod(inner, 0o700)


def hash_of(path, keep=True):
    """SHA-256 of what reading the file gives; with keep=False its pages leave the page cache again."""
    fd = os.open(path, os.O_RDONLY)
    try:
        hashed = hashlib.sha256()
        while piece := os.read(fd, 1 << 20):
            hashed.update(piece)
        if not keep:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return hashed
    finally:
        os.close(fd)


def make_tree(root, files, seed=0):
    """Creates files of seeded random bytes below `root`; `files` maps relative names (str or bytes) to sizes.

    Returns {name: content}. The same seed and names give the same bytes.
    """
    root = os.fsencode(root)
    os.makedirs(root, exist_ok=True)
    contents = {}
    for name, size in files.items():
        path = os.path.join(root, os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        contents[name] = random.Random(f"{seed} {os.fsencode(name)!r}").randbytes(size)
        with open(path, "wb") as file:
            file.write(contents[name])
    return contents


def make_samples(root, count, size, classes=10, seed=0):
    """`count` files of `size` bytes in `classes` folders, as an ImageFolder has them. Returns their relative names."""
    names = {f"class{i % classes:03d}/sample{i:06d}.png": size for i in range(count)}
    make_tree(root, names, seed)
    return list(names)


def tree_files(root):
    """Relative paths of all regular files below `root`, sorted."""
    root = pathlib.Path(root)
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and not p.is_symlink())


def drop_page_cache(path):
    """Drops the cached pages of one file, or of all files below a directory (POSIX_FADV_DONTNEED)."""
    path = pathlib.Path(path)
    for name in [path / f for f in tree_files(path)] if path.is_dir() else [path]:
        fd = os.open(name, os.O_RDONLY)
        try:
            os.fdatasync(fd)  # dirty pages would stay
        except OSError:
            pass  # not every filesystem has it, and one without it has no dirty pages
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def drop_caches():
    """Drops the whole machine's clean page cache, dentries and inodes. Root only; returns whether it was done."""
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True


# Mounts


def mounts_below(path):
    """Mount points at or below `path`, as this process sees them."""
    prefix = os.path.realpath(path)
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_bytes().splitlines():
        point = line.split(b" ")[4].decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
        if point == prefix or point.startswith(prefix + "/"):
            found.append(point)
    return found


def is_mounted(path):
    """Without touching what is mounted there, which may hang."""
    parent, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(parent), name) in mounts_below(parent)


def detach(path):
    """Lazy unmount; no error when nothing is mounted."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).umount2(os.fsencode(path), _MNT_DETACH)
    else:
        subprocess.run(["fusermount3", "-u", "-z", path], stderr=subprocess.DEVNULL, check=False)


def abort(path):
    """Ends a FUSE mount that hangs: all who wait for it get an error. Root only."""
    ctypes.CDLL(None).umount2(os.fsencode(path), _MNT_FORCE)


def wait_until(condition, what, seconds=START_SECONDS):
    """Polls `condition` until it is true; TimeoutError naming `what` after `seconds`, or what it says then if it is a function.
    The longer it waits the more rarely it looks: most waits are over within milliseconds, and each look at a mount takes the
    processor from what is waited for."""
    begin = time.monotonic()
    while not condition():
        waited = time.monotonic() - begin
        if waited > seconds:
            raise TimeoutError(f"{what() if callable(what) else what}: not within {seconds} s")
        time.sleep(min(0.002 + waited / 20, 0.05))


def logged(daemon, *parts):
    """The lines of the log of a mount or a job that hold all of the parts, once there are any: the daemon has a thread that
    writes them, a moment after what they tell of."""

    def lines():
        return [line for line in daemon.log().splitlines() if all(part in line for part in parts)]

    wait_until(lines, f"a line of the log with {parts}")
    return lines()


class _Daemon:
    """A program that serves a mount in the foreground. Not for direct use."""

    def __init__(self, source, path, log):
        self.source = pathlib.Path(source)
        self.path = pathlib.Path(path)
        self.log_path = pathlib.Path(log)
        self.awaited = False
        self.process = None

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        """What the program has printed so far."""
        return self.log_path.read_text(errors="replace")

    def _start(self, command, env=None):
        self.awaited = False
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
            )
        try:
            wait_until(self._usable, f"{command[0]} mounts {self.path}")
        except BaseException:
            self._destroy()
            raise

    def _usable(self):
        if self.process.poll() is not None:
            raise MountError(f"exit status {self.process.returncode}:\n{self.log()}")
        return is_mounted(self.path)

    def wait(self, seconds=STOP_SECONDS):
        """Waits for the program to end; its exit status. If it does not, stderr has what its threads are at."""
        self.awaited = True
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    print((task / "stat").read_text().split()[:3], (task / "wchan").read_text(), file=sys.stderr)
            raise

    def kill(self, signal_number=signal.SIGKILL):
        """Ends the program with a signal and waits; by default as a crash would, which leaves a stale mount."""
        self.process.send_signal(signal_number)
        return self.wait()

    def _unmount(self):
        """It is busy for a moment after a reader was killed, until the kernel has closed that one's files."""
        deadline = time.monotonic() + STOP_SECONDS
        words = ["fusermount3", "-u", self.path]
        while (ended := subprocess.run(words, capture_output=True, text=True, timeout=STOP_SECONDS)).returncode != 0:
            assert "busy" in ended.stderr and time.monotonic() < deadline, ended.stderr
            time.sleep(0.05)

    def umount(self):
        """Unmounts and requires the program to end with status 0 (sanitizers report by another one)."""
        self._unmount()
        status = self.wait()
        assert status == 0, f"exit status {status}:\n{self.log()}"
        assert not is_mounted(self.path)

    def _destroy(self):
        """Whatever state it is in: nothing is mounted and nothing runs afterwards."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()  # first: a hanging request would hold an unmount up
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:  # a thread of it waits for its own mount
                abort(self.path)
                self.process.wait(STOP_SECONDS)
        while is_mounted(self.path):
            detach(self.path)

    @contextlib.contextmanager
    def _scope(self):
        try:
            yield self
            if self.process.poll() is None:
                self.umount()
            # Nobody has looked at its status yet, and a fixture does not see that its test has failed.
            status = 0 if self.awaited else self.process.returncode
            assert status in (0, -signal.SIGKILL, -signal.SIGTERM), f"it ended by itself with status {status}"
        except BaseException:
            print(f"--- log of the mount at {self.path}\n{self.log()}---", file=sys.stderr)
            raise
        finally:
            self._destroy()


def words_of(options):
    """The options of a mount. A test that sets the window is about the window and the tiers: what plans may keep beside
    it would hide both, so it is off unless the test asks for it."""
    words = [str(option) for option in options]
    given = {word.partition("=")[0] for word in words}
    return words if "--staging" not in given or "--page-cache" in given else [*words, "--page-cache", "0"]


class ClairMount(_Daemon):
    """One clairfs mount; make it with clairfs()."""

    def __init__(self, source, options, tmp):
        super().__init__(source, tmp / "mnt", tmp / "log")
        self.catalog_dir = tmp / "catalog"
        self.options = list(options)
        for folder in (self.path, self.catalog_dir):
            folder.mkdir()

    def mount(self, env=None):
        command = [binary(), "mount", self.source, self.path, "-f", "--catalog-dir", self.catalog_dir]
        self._start(command + words_of(self.options), env)

    def _unmount(self):
        done = subprocess.run([binary(), "umount", self.path], capture_output=True, text=True, timeout=STOP_SECONDS)
        if done.returncode != 0:
            raise MountError(f"clairfs umount: exit status {done.returncode}:\n{done.stderr}")

    def remount(self, *options, env=None):
        """Mounts again, also after a kill(); with other options if any are given. The catalog is kept."""
        if self.process.poll() is None:
            self.umount()
        self._destroy()
        if options:
            self.options = list(options)
        self.mount(env)

    def control(self, name):
        """Text of a file below .clairfs/."""
        return (self.path / ".clairfs" / name).read_text()

    def stats(self):
        """stats.json, parsed."""
        return json.loads(self.control("stats.json"))

    def stat(self, name):
        """One number of stats.json by its dotted name: "fuse.requests.read". KeyError when it is not there."""
        value = self.stats()
        for key in name.split("."):
            value = value[key]
        return value


@contextlib.contextmanager
def clairfs(source, *options, env=None):
    """Mounts `source` with the given words after `clairfs mount ... -f`; yields a ClairMount.

    The mount point and the catalog are in a temporary directory of their own. At the end it is unmounted, if it
    still is mounted, and must then have ended with status 0.
    """
    with tempdir() as tmp:
        mount = ClairMount(source, [str(o) for o in options], tmp)
        mount.mount(env)
        with mount._scope():
            yield mount


class SlowFs(_Daemon):
    """One slow filesystem; make it with slowfs()."""

    def counters(self):
        """See Server::counters() in slowfs/server.h."""
        return json.loads((self.path / ".slowfs/counters").read_text())

    def command(self, line):
        """A line for the control file: reset, eio, hang, ... (slowfs/server.h). OSError EINVAL when it is bad."""
        fd = os.open(self.path / ".slowfs/control", os.O_WRONLY)
        try:
            os.write(fd, f"{line}\n".encode())
        finally:
            os.close(fd)


@contextlib.contextmanager
def slowfs(source, *options):
    """Serves `source` slowly at a temporary mount point; yields a SlowFs. Words as of clairfs-slowfs --help."""
    with tempdir() as tmp:
        (tmp / "mnt").mkdir()
        served = SlowFs(source, tmp / "mnt", tmp / "log")
        served._start([binary("clairfs-slowfs"), source, served.path, *options])
        with served._scope():
            yield served
