"""Too little of everything: memory, descriptors, permitted system calls; and many readers. It gets slower, not wrong."""

import contextlib
import errno
import os
import pathlib
import subprocess
import sys

import pytest
from clairmount import binary, clairfs, is_mounted, logged, sanitized, slowfs, tempdir, wait_until
from faultlib import assert_hashes, descriptor_limit, digest, make_dataset, reading
from mounting import assert_one_line, cleaned, io_choices, run
from planning import register

PLAN = "format=files sampler=torch.distributed seed=7 epochs=1000"


@pytest.fixture(scope="module")
def source():
    with tempdir() as tmp:
        yield tmp / "src", make_dataset(tmp / "src")


@pytest.mark.parametrize("io", io_choices())
@pytest.mark.parametrize("nvme", [False, True])
@pytest.mark.parametrize("ram", ["4K", "1M"])
def test_ram_tier_below_a_chunk(source, tmp, io, nvme, ram):
    root, hashes = source
    (tmp / "nvme").mkdir(mode=0o700)
    more = [f"--nvme={tmp / 'nvme'}:64M"] if nvme else []
    with clairfs(root, f"--ram={ram}", "--chunk=2M", "--staging=1M", f"--io={io}", *more) as mount:
        register(mount, PLAN)
        for _ in range(2):
            assert_hashes(mount, hashes)
        stats = mount.stats()
        assert stats["tiers"]["ram"]["bytes"] <= stats["tiers"]["ram"]["capacity"] <= 1 << 20
        assert stats["reads"]["failed"] == 0


@pytest.mark.parametrize("io", io_choices())
def test_two_hundred_readers(source, io):
    root, hashes = source
    with clairfs(root, "--ram=0", "--chunk=64K", "--staging=512K", f"--io={io}") as mount:
        register(mount, PLAN)
        with reading(mount.path, hashes, threads=200) as readers:
            readers.progress(2000)
        assert not readers.errors
        stats = mount.stats()
        assert stats["tiers"]["transit"]["bytes"] <= stats["tiers"]["transit"]["capacity"]
        assert stats["reads"]["failed"] == 0


def launcher(path, prelude):
    """A program that does something to itself and becomes clairfs."""
    path.write_text(f"#!{sys.executable}\nimport ctypes, errno, os, resource, struct, sys\n{prelude}\n"
                    f"os.execv({str(binary())!r}, sys.argv)\n")  # fmt: skip
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("io", io_choices())
def test_sixty_four_descriptors(source, tmp, monkeypatch, io):
    root, hashes = source
    (tmp / "nvme").mkdir(mode=0o700)
    program = launcher(tmp / "few", "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))")
    monkeypatch.setenv("CLAIRFS_BIN", str(program))
    options = ["--ram=1M", "--chunk=64K", "--staging=512K", f"--nvme={tmp / 'nvme'}:8M", f"--io={io}"]
    with clairfs(root, *options) as mount, reading(mount.path, hashes, threads=30) as readers:
        register(mount, PLAN)
        readers.progress(500)
        assert not readers.errors
        assert descriptor_limit(mount.pid) == 64
        assert mount.stat("reads.failed") == 0


# Fails io_uring_setup(2) and openat2(2), as Docker's policy does for the one and old ones for both.
FORBID = """
BPF_LD_ABS, BPF_JEQ, BPF_RET, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000
numbers = {numbers}
code = [(BPF_LD_ABS, 0, 0, 0)]
for at, number in enumerate(numbers):
    code.append((BPF_JEQ, len(numbers) - at, 0, number))
code += [(BPF_RET, 0, 0, ALLOW), (BPF_RET, 0, 0, ERRNO | {code})]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(code), ctypes.addressof(filters))
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
if os.geteuid() != 0:
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)) != 0:
    sys.exit("no seccomp: " + os.strerror(ctypes.get_errno()))
"""
IO_URING_SETUP, OPENAT2 = 425, 437  # the same on all architectures
pytestmark_root = pytest.mark.skipif(os.geteuid() != 0, reason="a filter takes the effect from fusermount3")


@pytestmark_root
@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
@pytest.mark.parametrize("numbers", [[IO_URING_SETUP], [IO_URING_SETUP, OPENAT2]])
def test_system_calls_forbidden(source, tmp, monkeypatch, numbers, code):
    root, hashes = source
    program = launcher(tmp / "forbidden", FORBID.format(numbers=numbers, code=code))
    monkeypatch.setenv("CLAIRFS_BIN", str(program))
    with clairfs(root, "--ram=1M", "--chunk=64K", "--staging=512K") as mount:
        register(mount, PLAN)
        assert mount.stat("io") == "threads"
        assert len(logged(mount, "uses threads")) == 1
        assert_hashes(mount, hashes)
    (tmp / "mnt").mkdir()
    asked_for = run("mount", root, tmp / "mnt", "--catalog-dir", tmp / "catalog", "--io=uring")
    assert_one_line(asked_for, "io_uring", "--io", status=32)


class Group:
    """A cgroup with a limit, of version 1 or 2, whichever is here. `first`, `second`: the limit's file in either."""

    def __init__(self, controller, first, second, limit):
        root = pathlib.Path("/sys/fs/cgroup")
        own = root / controller
        self.version = 1 if own.is_dir() and (own / "cgroup.procs").exists() else 2
        if self.version == 2:
            own = root
            controllers = root / "cgroup.subtree_control"
            if not controllers.exists() or controller not in controllers.read_text().split():
                pytest.skip(f"no {controller} controller is mounted below {root}")
        self.folder = own / f"clairfs-{os.getpid()}"
        self.limit_file = self.folder / (first if self.version == 1 else second)
        try:
            self.folder.mkdir()
            self.limit(limit)
        except OSError as error:
            self.close()
            pytest.skip(f"no {controller} cgroup can be made: {error}")

    def limit(self, value):
        self.limit_file.write_text(str(value))

    def add(self, pid):
        (self.folder / "cgroup.procs").write_text(str(pid))

    def processes(self):
        return (self.folder / "cgroup.procs").read_text()

    def close(self):
        with contextlib.suppress(OSError):
            self.folder.rmdir()


@contextlib.contextmanager
def group(*what):
    made = Group(*what)
    yield made
    wait_until(lambda: not made.processes(), "the group is empty")
    made.close()


def memory_was_short(of):
    """How often."""
    if of.version == 1:
        return int((of.folder / "memory.failcnt").read_text())
    return int(dict(line.split() for line in (of.folder / "memory.events").read_text().splitlines())["max"])


@pytest.fixture
def small_group():
    with group("memory", "memory.limit_in_bytes", "memory.max", 64 << 20) as small:
        yield small


@pytest.fixture
def few_threads():
    with group("pids", "pids.max", "pids.max", "max") as few:
        yield few


@pytest.mark.skipif(sanitized(), reason="a sanitizer takes memory of its own")
@pytest.mark.parametrize("io", io_choices())
def test_memory_group_below_the_window(tmp, small_group, io):
    """The kernel takes pushed pages back before they are read: then they are asked for."""
    hashes = make_dataset(tmp / "src", {f"class{i % 3}/{i:03d}": 1 << 20 for i in range(100)})
    with clairfs(tmp / "src", "--ram=8M", "--chunk=256K", "--staging=1G", f"--io={io}") as mount:
        small_group.add(mount.pid)
        register(mount, PLAN)
        wait_until(lambda: memory_was_short(small_group) > 10, "the window has filled the group")
        for _ in range(3):
            assert_hashes(mount, hashes, keep=True)
        with reading(mount.path, hashes) as readers:
            readers.progress(300)
        assert not readers.errors
        assert mount.stat("reads.failed") == 0
        assert mount.process.poll() is None


@pytest.mark.skipif(sanitized(), reason="a sanitizer takes threads of its own")
def test_no_more_threads(tmp, few_threads):
    """A job's processes have taken all that its group may have: plans are refused until there are some again."""
    hashes = make_dataset(tmp / "src")
    with clairfs(tmp / "src", "--ram=8M") as mount:
        assert logged(mount, "info mounted")  # the last of its threads has begun
        few_threads.add(mount.pid)
        few_threads.limit(1)
        # Enough for the search for what readers follow, which takes a thread of its own.
        assert_hashes(mount, hashes)
        assert logged(mount, "readers without a plan are let alone", "start a thread")
        asked = run("plan", mount.path, *PLAN.split())
        assert_one_line(asked, "plan default", "start a thread", "pids.max", status=1)
        assert_hashes(mount, hashes)
        few_threads.limit("max")
        register(mount, PLAN)
        wait_until(lambda: mount.stats()["plan_list"], "the plan is in force")
        assert_hashes(mount, hashes)
        few_threads.limit(1)  # it ends without more


@pytest.mark.skipif(sanitized(), reason="a sanitizer takes threads of its own")
@pytest.mark.parametrize("io", io_choices())
def test_no_more_threads_before_the_first_read(tmp, few_threads, io):
    """The kernel's threads count, too, by which a ring opens files that a server has."""
    hashes = make_dataset(tmp / "src")
    with slowfs(tmp / "src") as pfs, clairfs(pfs.path, "--ram=8M", f"--io={io}") as mount:
        assert logged(mount, "info mounted")  # the last of its threads has begun
        few_threads.add(mount.pid)
        few_threads.limit(1)
        assert_hashes(mount, hashes)
        assert mount.stat("reads.failed") == 0


@pytest.mark.skipif(sanitized(), reason="a sanitizer takes threads of its own")
@pytest.mark.parametrize("nvme", [False, True])
def test_mount_with_few_threads(tmp, few_threads, nvme):
    """A mount that gets too few says so, and leaves nothing behind, whichever of its threads it does not get."""
    hashes = make_dataset(tmp / "src")
    for folder in ("mnt", "nvme"):
        (tmp / folder).mkdir(mode=0o700)
    options = ["--ram=8M", *(["--nvme", f"{tmp}/nvme:16M"] if nvme else [])]
    words = [binary(), "mount", tmp / "src", tmp / "mnt", "--catalog-dir", tmp / "catalog", *options]
    in_group = ["sh", "-c", f'echo $$ > {few_threads.folder}/cgroup.procs && exec "$@"', "sh", *map(str, words)]
    refused = 0
    with cleaned(tmp / "mnt"):
        while True:
            few_threads.limit(refused + 2)  # with this shell's own
            done = subprocess.run(in_group, capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                break
            assert_one_line(done, "Resource temporarily unavailable", status=32)
            wait_until(lambda: not is_mounted(tmp / "mnt") and not few_threads.processes(), "nothing is left")
            refused += 1
        assert 5 < refused < 100
        assert {name: digest(tmp / "mnt" / name) for name in hashes} == hashes
        assert run("umount", tmp / "mnt").returncode == 0
