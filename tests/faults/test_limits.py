"""Too little of everything: memory, descriptors, permitted system calls; and many readers. It gets slower, not wrong."""

import contextlib
import errno
import os
import pathlib
import sys

import pytest
from clairmount import binary, clairfs, logged, sanitized, tempdir, wait_until
from faultlib import assert_hashes, descriptor_limit, make_dataset, reading
from mounting import assert_one_line, io_choices, run
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


class MemoryGroup:
    """A cgroup with so much memory, of version 1 or 2, whichever is here."""

    def __init__(self, limit):
        first, second = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")
        if (first / "memory.limit_in_bytes").exists():
            self.folder, limit_file, self.events = first / f"clairfs-{os.getpid()}", "memory.limit_in_bytes", "memory.failcnt"
        elif (second / "cgroup.subtree_control").exists() and "memory" in (second / "cgroup.subtree_control").read_text():
            self.folder, limit_file, self.events = second / f"clairfs-{os.getpid()}", "memory.max", "memory.events"
        else:
            pytest.skip("no memory controller is mounted below /sys/fs/cgroup")
        try:
            self.folder.mkdir()
            (self.folder / limit_file).write_text(str(limit))
        except OSError as error:
            self.close()
            pytest.skip(f"no memory cgroup can be made: {error}")

    def add(self, pid):
        (self.folder / "cgroup.procs").write_text(str(pid))

    def was_hit(self):
        """How often memory was short."""
        text = (self.folder / self.events).read_text()
        return int(text) if text.strip().isdigit() else int(dict(line.split() for line in text.splitlines())["max"])

    def close(self):
        with contextlib.suppress(OSError):
            self.folder.rmdir()


@pytest.fixture
def small_group():
    group = MemoryGroup(64 << 20)
    yield group
    wait_until(lambda: not (group.folder / "cgroup.procs").read_text(), "the group is empty")
    group.close()


@pytest.mark.skipif(sanitized(), reason="a sanitizer takes memory of its own")
@pytest.mark.parametrize("io", io_choices())
def test_memory_group_below_the_window(tmp, small_group, io):
    """The kernel takes pushed pages back before they are read: then they are asked for."""
    hashes = make_dataset(tmp / "src", {f"class{i % 3}/{i:03d}": 1 << 20 for i in range(100)})
    with clairfs(tmp / "src", "--ram=8M", "--chunk=256K", "--staging=1G", f"--io={io}") as mount:
        small_group.add(mount.pid)
        register(mount, PLAN)
        wait_until(lambda: small_group.was_hit() > 10, "the window has filled the group")
        for _ in range(3):
            assert_hashes(mount, hashes, keep=True)
        with reading(mount.path, hashes) as readers:
            readers.progress(300)
        assert not readers.errors
        assert mount.stat("reads.failed") == 0
        assert mount.process.poll() is None
