"""Files, names and directories of every shape arrive as they are in the source."""

import ctypes
import errno
import mmap
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from clairmount import clairfs, make_tree, wait_until
from mounting import error_name, io_choices

CHUNK = 64 << 10
SIZES = [0, 1, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 7 * CHUNK + 4095, (1 << 20) + 3]
MANY = 100_000


@pytest.mark.parametrize("ram", ["64M", "0"])
def test_sizes(tmp, ram):
    contents = make_tree(tmp / "src", {f"{size}": size for size in SIZES})
    with clairfs(tmp / "src", "--chunk=64K", f"--ram={ram}") as mount:
        for name, content in contents.items():
            path = mount.path / name
            assert path.stat().st_size == len(content)
            fd = os.open(path, os.O_RDONLY)
            try:
                for end in (len(content) - 1, len(content), len(content) + 1, CHUNK, 4096):
                    begin = max(0, end - 10)
                    assert os.pread(fd, 20, begin) == content[begin : begin + 20]
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                assert os.pread(fd, 2 << 20, 0) == content
                assert os.pread(fd, 1, len(content)) == b""
                if content:
                    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as memory:
                        assert memory[:] == content
            finally:
                os.close(fd)


@pytest.mark.parametrize("io", io_choices())
def test_times_that_64_bits_of_nanoseconds_do_not_hold(tmp, io):
    make_tree(tmp / "src", {"late": 100_000, "early": 100_000})
    os.utime(tmp / "src/late", (13_569_465_600, 13_569_465_600))  # the year 2400
    os.utime(tmp / "src/early", (-2_000_000_000, -2_000_000_000))
    with clairfs(tmp / "src", f"--io={io}") as mount:
        for name in ("late", "early"):
            assert (mount.path / name).read_bytes() == (tmp / "src" / name).read_bytes()
        mount.remount()
        assert "reloaded" in mount.control("status")


def test_sparse_file(tmp):
    (tmp / "src").mkdir()
    with open(tmp / "src/sparse", "wb") as file:
        file.truncate(100 << 20)
        file.seek(50 << 20)
        file.write(b"middle")
    with clairfs(tmp / "src", "--ram=64M", "--chunk=1M") as mount, open(mount.path / "sparse", "rb") as file:
        assert os.fstat(file.fileno()).st_size == 100 << 20
        assert os.pread(file.fileno(), 16, (50 << 20) - 5) == b"\0" * 5 + b"middle" + b"\0" * 5
        assert os.pread(file.fileno(), 4096, (100 << 20) - 100) == b"\0" * 100
        assert mount.stat("pfs.bytes") < 10 << 20  # only what was asked for, in whole chunks


def test_seek_data_and_hole(tmp):
    contents = make_tree(tmp / "src", {"file": 3 * CHUNK + 7, "empty": 0})
    size = len(contents["file"])
    with clairfs(tmp / "src", "--chunk=64K") as mount, open(mount.path / "file", "rb") as file:
        fd = file.fileno()
        assert os.lseek(fd, 0, os.SEEK_DATA) == 0
        assert os.lseek(fd, 4097, os.SEEK_DATA) == 4097
        assert os.lseek(fd, 0, os.SEEK_HOLE) == size
        assert os.lseek(fd, size - 1, os.SEEK_HOLE) == size
        assert os.lseek(fd, -3, os.SEEK_END) == size - 3
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            assert error_name(os.lseek, fd, size, whence) == "ENXIO"


NAMES = [
    b"with blank", b" leading", b"trailing ", b"new\nline", b"tab\tand \\ backslash", b"quote'\"`$(x)", b"*?[a]",
    "größe-日本語-\N{GRINNING FACE}".encode(), b"not utf-8 \xff\xfe\x80", b"-rf", b"...", b"n" * 255,
    "ä".encode() * 127, b"%s%n", b"\x01\x7f",
]  # fmt: skip


def test_names(tmp):
    files = {b"files/" + name: 100 + i for i, name in enumerate(NAMES)}
    folders = {b"folders/" + name + b"/in": 10 for name in NAMES}
    contents = make_tree(tmp / "src", files | folders)
    with clairfs(tmp / "src") as mount:
        root = os.fsencode(mount.path)
        assert sorted(os.listdir(root + b"/files")) == sorted(NAMES)
        assert sorted(os.listdir(root + b"/folders")) == sorted(NAMES)
        for name, content in contents.items():
            with open(root + b"/" + name, "rb") as file:
                assert file.read() == content
        assert error_name(os.stat, root + b"/" + b"n" * 256) == "ENAMETOOLONG"

        def lines():
            return len((mount.path / ".clairfs/accesslog").read_bytes().splitlines())

        # A read's line is written a moment after its answer. One entry, one line, whatever the names hold.
        wait_until(lambda: lines() >= len(contents), "all reads are in the log")
        assert lines() == len(contents)


def test_deep_tree(tmp):
    (tmp / "src").mkdir()
    try:
        check_deep_tree(tmp)
    finally:
        shutil.rmtree(tmp / "src")  # which gets along with such paths


def check_deep_tree(tmp):
    depth = 120  # paths of 6,000 bytes, above PATH_MAX
    fd = os.open(tmp / "src", os.O_RDONLY)
    for level in range(depth):
        os.mkdir(f"{level:050}", dir_fd=fd)
        inner = os.open(f"{level:050}", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    with open(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=fd), "wb") as file:
        file.write(b"at the bottom")
    os.close(fd)
    with clairfs(tmp / "src") as mount:
        fd = os.open(mount.path, os.O_RDONLY)
        for level in range(depth):
            assert os.listdir(fd) == [f"{level:050}"]
            inner = os.open(f"{level:050}", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
        with open(os.open("leaf", os.O_RDONLY, dir_fd=fd), "rb") as file:
            assert file.read() == b"at the bottom"
        os.close(fd)


@pytest.fixture(scope="module")
def crowd():
    """One directory of 100,000 empty files; in memory where there is such a place, since disks take long for it."""
    memory = "/dev/shm"
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="clairfs-", dir=place) as folder:
        os.mkdir(f"{folder}/crowd")
        for i in range(MANY):
            os.close(os.open(f"{folder}/crowd/entry-{i * 7919 % MANY:06}", os.O_CREAT))
        yield pathlib.Path(folder)


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]  # fmt: skip


class Listing:
    """opendir(3) and its family, which Python has not."""

    def __init__(self, path):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.opendir.restype = ctypes.c_void_p
        self.libc.readdir.restype = ctypes.POINTER(Dirent)
        self.libc.telldir.restype = ctypes.c_long
        self.stream = ctypes.c_void_p(self.libc.opendir(os.fsencode(path)))
        assert self.stream

    def take(self, count):
        names = []
        while len(names) < count and (entry := self.libc.readdir(self.stream)):
            names.append(entry.contents.name.decode())
        return names

    def tell(self):
        return self.libc.telldir(self.stream)

    def seek(self, position):
        self.libc.seekdir(self.stream, ctypes.c_long(position))

    def close(self):
        self.libc.closedir(self.stream)


def test_hundred_thousand_files_in_one_directory(crowd):
    names = [f"entry-{i:06}" for i in range(MANY)]
    with clairfs(crowd) as mount:
        assert mount.stat("catalog.files") == MANY
        folder = mount.path / "crowd"
        listing = Listing(folder)
        try:
            assert listing.take(1002) == [".", "..", *names[:1000]]
            position = listing.tell()
            assert listing.take(50_000) == names[1000:51_000]
            later = listing.tell()
            listing.seek(position)
            assert listing.take(3) == names[1000:1003]
            listing.seek(later)
            assert listing.take(MANY) == names[51_000:]
            listing.seek(position)  # now from the kernel's cache of the listing
            assert listing.take(MANY) == names[1000:]
        finally:
            listing.close()
        for _ in range(2):
            assert os.listdir(folder) == names
        assert (folder / names[-1]).stat().st_size == 0
        assert error_name(os.stat, folder / "entry-100000") == "ENOENT"


def test_two_listings_at_once(crowd):
    with clairfs(crowd) as mount:
        with os.scandir(mount.path / "crowd") as first, os.scandir(mount.path / "crowd") as second:
            begun = [next(first).name for _ in range(5000)]
            assert [entry.name for entry in second] == [f"entry-{i:06}" for i in range(MANY)]
            assert begun + [entry.name for entry in first] == [f"entry-{i:06}" for i in range(MANY)]


def test_links(tmp):
    contents = make_tree(tmp / "src", {"a/file": 5000})
    make_tree(tmp, {"outside": 77})
    os.link(tmp / "src/a/file", tmp / "src/hard")
    targets = {
        "inside": "a/file", "up": "a/../a/file", "folder": "a", "outside": str(tmp / "outside"), "loop": "loop",
        "dangling": "no/such", "newline": "a\nb", "long": "x" * 4095,
    }  # fmt: skip
    for name, target in targets.items():
        os.symlink(target, tmp / "src" / name)
    with clairfs(tmp / "src") as mount:
        for name, target in targets.items():
            for _ in range(2):
                assert os.readlink(mount.path / name) == target
            assert (mount.path / name).is_symlink()
            assert (mount.path / name).lstat().st_size == len(target)
        for name in ("inside", "up", "folder/file", "hard"):
            assert (mount.path / name).read_bytes() == contents["a/file"]
        assert (mount.path / "outside").read_bytes() == (tmp / "outside").read_bytes()
        assert error_name(os.stat, mount.path / "loop") == "ELOOP"
        assert error_name(os.stat, mount.path / "dangling") == "ENOENT"
        assert error_name(os.readlink, mount.path / "hard") == "EINVAL"
        assert (mount.path / "hard").stat().st_nlink == 1  # each is a file of its own


def test_special_files_are_left_out_and_counted(tmp):
    make_tree(tmp / "src", {"file": 1})
    os.mkfifo(tmp / "src/pipe")
    os.mknod(tmp / "src/device", 0o600 | os.path.stat.S_IFCHR, os.makedev(1, 3))
    with clairfs(tmp / "src") as mount:
        assert os.listdir(mount.path) == ["file"]
        assert mount.stat("catalog.skipped") == 2
        assert "2 special files" in mount.control("status")


def test_attributes(tmp):
    make_tree(tmp / "src", {"a/file": 12345})
    os.chown(tmp / "src/a/file", 1234, 5678)
    for name, mode in (("a/file", 0o4751), ("a", 0o1777)):
        os.chmod(tmp / "src" / name, mode)
    for i, name in enumerate(("a/file", "a", "")):
        os.utime(tmp / "src" / name, ns=(10**18, (1_234_567_890 - i * 10**9) * 10**9 + 987_654_321))
    with clairfs(tmp / "src") as mount:
        for name in ("a/file", "a", ""):
            ours, theirs = os.stat(mount.path / name), os.stat(tmp / "src" / name)
            assert (ours.st_mode, ours.st_uid, ours.st_gid) == (theirs.st_mode, theirs.st_uid, theirs.st_gid)
            assert ours.st_mtime_ns == theirs.st_mtime_ns
        assert os.stat(mount.path / "a/file").st_blocks * 512 >= 12345
        space = os.statvfs(mount.path)
        assert space.f_blocks * space.f_frsize >= 12345 and space.f_bfree == space.f_bavail == 0
        assert space.f_files == 3 and space.f_ffree == 0 and space.f_namemax == 255


def xxh3(data):
    hash64 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    hash64.restype, hash64.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    return f"xxh3:{hash64(data, len(data)):016x}".encode()


def test_extended_attributes(tmp):
    sizes = {"empty": 0, "small": 1000, "chunk": CHUNK, "large": 5 * CHUNK + 1}
    contents = make_tree(tmp / "src", sizes)
    tier, checksum = "user.clairfs.tier", "user.clairfs.checksum"
    with clairfs(tmp / "src", "--chunk=64K", "--ram=64M") as mount:
        for name, content in contents.items():
            path = mount.path / name
            assert os.listxattr(path) == []  # for those who know them only: not for what copies them all
            assert os.getxattr(path, tier) == (b"none" if content else b"ram")
            assert os.getxattr(path, checksum) == xxh3(content)
            assert os.getxattr(path, checksum) == xxh3(content)
            assert os.getxattr(path, tier) == b"ram"
            assert error_name(os.getxattr, path, "user.other") == "ENODATA"
            assert error_name(os.getxattr, path, "user.clairfs.other") == "ENODATA"
        assert os.listxattr(mount.path) == []
        for name in ("system.posix_acl_access", "security.selinux", "security.capability"):
            assert error_name(os.getxattr, mount.path / "small", name) == "ENOTSUP"
        assert error_name(os.getxattr, mount.path, checksum) == "ENODATA"
        libc = ctypes.CDLL(None, use_errno=True)
        path = os.fsencode(mount.path / "small")
        for attribute, length in ((tier, 3), (checksum, 21)):
            assert libc.getxattr(path, attribute.encode(), None, 0) == length
            assert libc.getxattr(path, attribute.encode(), ctypes.create_string_buffer(2), 2) == -1
            assert ctypes.get_errno() == errno.ERANGE
        os.setxattr(mount.path / ".clairfs/plan", "user.clairfs.plan", b"seed=1 format=files")
        path = os.fsencode(mount.path)
        assert libc.listxattr(path, ctypes.create_string_buffer(5), 5) == -1 and ctypes.get_errno() == errno.ERANGE


def test_ls_asks_once_for_what_no_file_has(tmp):
    make_tree(tmp / "src", {f"folder/file{i}": 10 for i in range(100)})
    with clairfs(tmp / "src") as mount:
        subprocess.run(["ls", "-lR", mount.path], check=True, stdout=subprocess.DEVNULL, timeout=60)
        assert mount.stat("fuse.requests.getxattr") < 10


def test_tier_of_a_file_in_several_chunks(tmp):
    make_tree(tmp / "src", {"large": 10 * CHUNK})
    with clairfs(tmp / "src", "--chunk=64K", "--ram=64M") as mount:
        fd = os.open(mount.path / "large", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead
        os.pread(fd, 10, 3 * CHUNK)
        os.close(fd)
        assert os.getxattr(mount.path / "large", "user.clairfs.tier") == b"ram=1 nvme=0 none=9"
