"""Every call that would change something fails with EROFS, and nothing changes: not the source, not what is read.

test_write_protection.py has what each kind of mount does to keep files from being opened for writing."""

import ctypes
import mmap
import os
import socket
import stat

import pytest
from clairmount import clairfs, make_tree
from mounting import error_name, fingerprint

AT_FDCWD = -100
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(scope="module")
def mount():
    import clairmount

    with clairmount.tempdir() as tmp:
        make_tree(tmp / "src", {"file": 10_000, "a/inner": 300_000, "a/other": 5, "empty": 0})
        os.symlink("file", tmp / "src/link")
        (tmp / "src/folder").mkdir()
        before = fingerprint(tmp / "src")
        make_tree(tmp, {"outside": 4096})
        with clairfs(tmp / "src", "--chunk=64K") as mounted:
            yield mounted
            assert fingerprint(tmp / "src") == before


def c_call(name, *arguments):
    """A function of libc; raises OSError when it returns -1."""
    passed = [os.fsencode(a) if isinstance(a, (str, os.PathLike)) else a for a in arguments]
    if LIBC[name](*passed) == -1:
        raise OSError(ctypes.get_errno(), name)


def on_descriptor(path, flags, call):
    fd = os.open(path, flags)
    try:
        return call(fd)
    finally:
        os.close(fd)


def writing(path, call, flags=os.O_RDWR):
    """What a write through a descriptor fails with, at open or at the call."""
    return error_name(on_descriptor, path, flags, call)


def bind_socket(path):
    """mknod() of a socket. A relative name, since those of sockets are short."""
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as unix:
            unix.bind(path.name)
    finally:
        os.chdir(here)


PATH_CALLS = {
    "create": lambda m: os.open(m / "new", os.O_CREAT | os.O_WRONLY),
    "create exclusively": lambda m: os.open(m / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR),
    "create in a folder": lambda m: os.open(m / "a/new", os.O_CREAT | os.O_WRONLY),
    "create in .clairfs": lambda m: os.open(m / ".clairfs/new", os.O_CREAT | os.O_WRONLY),
    "mkdir": lambda m: os.mkdir(m / "new"),
    "mknod file": lambda m: os.mknod(m / "new", 0o600 | stat.S_IFREG),
    "mknod fifo": lambda m: os.mkfifo(m / "new"),
    "mknod device": lambda m: os.mknod(m / "new", 0o600 | stat.S_IFCHR, os.makedev(1, 3)),
    "mknod socket": lambda m: bind_socket(m / "new"),
    "symlink": lambda m: os.symlink("file", m / "new"),
    "link": lambda m: os.link(m / "file", m / "new"),
    "unlink": lambda m: os.unlink(m / "file"),
    "unlink symlink": lambda m: os.unlink(m / "link"),
    "rmdir": lambda m: os.rmdir(m / "folder"),
    "rename": lambda m: os.rename(m / "file", m / "new"),
    "rename over": lambda m: os.rename(m / "file", m / "a/inner"),
    "rename folder": lambda m: os.rename(m / "folder", m / "new"),
    "rename NOREPLACE": lambda m: c_call("renameat2", AT_FDCWD, m / "file", AT_FDCWD, m / "new", RENAME_NOREPLACE),
    "rename EXCHANGE": lambda m: c_call("renameat2", AT_FDCWD, m / "file", AT_FDCWD, m / "a/inner", RENAME_EXCHANGE),
    "truncate": lambda m: os.truncate(m / "file", 0),
    "truncate longer": lambda m: os.truncate(m / "file", 100_000),
    "O_TRUNC": lambda m: os.open(m / "file", os.O_WRONLY | os.O_TRUNC),
    "O_TRUNC for reading": lambda m: os.open(m / "file", os.O_RDONLY | os.O_TRUNC),
    "chmod": lambda m: os.chmod(m / "file", 0o600),
    "chmod folder": lambda m: os.chmod(m / "a", 0o700),
    "chown": lambda m: os.chown(m / "file", 1, 1),
    "lchown": lambda m: os.chown(m / "link", 1, 1, follow_symlinks=False),
    "utime": lambda m: os.utime(m / "file"),
    "utime given": lambda m: os.utime(m / "file", ns=(5, 5)),
    "setxattr": lambda m: os.setxattr(m / "file", "user.new", b"1"),
    "setxattr ours": lambda m: os.setxattr(m / "file", "user.clairfs.tier", b"ram"),
    "setxattr folder": lambda m: os.setxattr(m / "a", "user.new", b"1"),
    "removexattr": lambda m: os.removexattr(m / "file", "user.clairfs.tier"),
    "remove .clairfs": lambda m: os.rmdir(m / ".clairfs"),
    "remove a control file": lambda m: os.unlink(m / ".clairfs/status"),
}


@pytest.mark.parametrize("name", PATH_CALLS)
def test_call_by_path(mount, name):
    assert error_name(PATH_CALLS[name], mount.path) == "EROFS"
    assert not os.path.lexists(mount.path / "new")


DESCRIPTOR_CALLS = {
    "write": lambda fd: os.write(fd, b"x"),
    "pwrite": lambda fd: os.pwrite(fd, b"x" * 5000, 100),
    "pwrite past the end": lambda fd: os.pwrite(fd, b"x", 1 << 20),
    "pwritev": lambda fd: os.pwritev(fd, [b"x", b"y"], 0),
    "ftruncate": lambda fd: os.ftruncate(fd, 1),
    "fallocate": lambda fd: os.posix_fallocate(fd, 0, 100_000),
    "punch a hole": lambda fd: c_call("fallocate", fd, 3, ctypes.c_long(0), ctypes.c_long(4096)),
    "fchmod": lambda fd: os.fchmod(fd, 0o600),
    "fchown": lambda fd: os.fchown(fd, 1, 1),
    "futimens": lambda fd: os.utime(fd),
    "fsetxattr": lambda fd: os.setxattr(fd, "user.new", b"1"),
}


@pytest.mark.parametrize("name", DESCRIPTOR_CALLS)
@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY, os.O_WRONLY | os.O_APPEND])
def test_call_by_descriptor(mount, name, flags):
    assert writing(mount.path / "file", DESCRIPTOR_CALLS[name], flags) == "EROFS"
    assert_unchanged(mount)


def test_direct_write(mount):
    buffer = mmap.mmap(-1, 4096)
    assert writing(mount.path / "file", lambda fd: os.writev(fd, [buffer]), os.O_WRONLY | os.O_DIRECT) == "EROFS"
    assert_unchanged(mount)


@pytest.mark.parametrize("source", ["outside of the mount", "inside"])
def test_copies_into_a_file(mount, source):
    path = mount.source.parent / "outside" if source != "inside" else mount.path / "a/inner"
    with open(path, "rb") as file:
        origin = file.fileno()
        # EXDEV tells cp and others to copy by reading and writing, which then fails.
        assert writing(mount.path / "file", lambda fd: os.copy_file_range(origin, fd, 4096)) in ("EROFS", "EXDEV")
        assert writing(mount.path / "file", lambda fd: os.sendfile(fd, origin, 0, 4096)) == "EROFS"
    assert_unchanged(mount)


def test_unnamed_file(mount):
    assert error_name(os.open, mount.path, os.O_TMPFILE | os.O_WRONLY, 0o600) in ("EROFS", "ENOTSUP")  # the latter is EOPNOTSUPP


def assert_unchanged(mount):
    for name in ("file", "a/inner", "a/other"):
        assert (mount.path / name).stat().st_size == (mount.source / name).stat().st_size
        assert (mount.path / name).read_bytes() == (mount.source / name).read_bytes()


def test_kernel_read_only_mount(tmp):
    make_tree(tmp / "src", {"file": 100})
    with clairfs(tmp / "src", "-o", "ro,noexec") as mount:
        assert os.statvfs(mount.path).f_flag & os.ST_RDONLY
        assert os.statvfs(mount.path).f_flag & os.ST_NOEXEC
        for name in ("create", "chmod", "truncate", "setxattr"):
            assert error_name(PATH_CALLS[name], mount.path) == "EROFS"
        assert (mount.path / "file").read_bytes() == (tmp / "src/file").read_bytes()
        assert mount.stats()["catalog"]["files"] == 1
