"""The saved catalog: reloaded when nothing changed, made anew when something did or when it is damaged."""

import os

import pytest
from clairmount import clairfs, logged, make_tree
from mounting import assert_same_files


@pytest.fixture
def mount(tmp):
    make_tree(tmp / "src", {f"d{i % 5}/{i}": 100 + i for i in range(50)})
    os.symlink("d0/0", tmp / "src/link")
    with clairfs(tmp / "src", "--ram=64M") as mounted:
        yield mounted


def catalog_line(mount):
    return next(line for line in mount.control("status").splitlines() if line.startswith("catalog"))


def saved(mount):
    (file,) = (path for path in mount.catalog_dir.rglob("*") if path.is_file())
    return file


def assert_rescanned(mount, reason=""):
    assert "scanned" in catalog_line(mount) and reason in catalog_line(mount)
    assert_same_files(mount)


def test_unchanged_source_is_reloaded(mount):
    assert_rescanned(mount, "no saved catalog")
    for check in ("full", "directories"):
        mount.remount("--ram=64M", f"--check={check}")
        assert "reloaded" in catalog_line(mount)
        assert logged(mount, "reloaded")
        assert_same_files(mount)
        assert os.readlink(mount.path / "link") == "d0/0"


CHANGES = {
    "rewritten": lambda src: (src / "d1/1").write_bytes(b"x" * 101),
    "grown": lambda src: (src / "d1/1").write_bytes(b"longer" * 100),
    "touched": lambda src: os.utime(src / "d1/1"),
    "new": lambda src: (src / "d1/new").write_bytes(b"new"),
    "removed": lambda src: (src / "d1/1").unlink(),
    "renamed": lambda src: (src / "d1/1").rename(src / "d1/renamed"),
    "replaced": lambda src: os.replace(copy_of(src / "d1/1"), src / "d1/1"),
    "new directory": lambda src: (src / "d9").mkdir(),
    "mode": lambda src: (src / "d1/1").chmod(0o600),
    "owner": lambda src: os.chown(src / "d1/1", 1, 1),
    "mode of a directory": lambda src: (src / "d1").chmod(0o700),
    "link": lambda src: relink(src / "link", "d1/1"),
}


def copy_of(path):
    """Another file with the same size, times and mode."""
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes()[::-1])
    st = path.stat()
    os.utime(copy, ns=(st.st_atime_ns, st.st_mtime_ns))
    return copy


def relink(path, target):
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_source_is_scanned_anew(mount, change):
    mount.umount()
    CHANGES[change](mount.source)
    mount.remount()
    assert_rescanned(mount)
    for folder, folders, names in os.walk(mount.source):
        ours = os.path.join(mount.path, os.path.relpath(folder, mount.source))
        assert sorted(os.listdir(ours)) == sorted(folders + names)
        assert os.stat(ours).st_mode == os.stat(folder).st_mode
        for name in names:
            found, expected = os.lstat(os.path.join(ours, name)), os.lstat(os.path.join(folder, name))
            assert (found.st_mode, found.st_uid, found.st_size, found.st_mtime_ns) == (
                expected.st_mode, expected.st_uid, expected.st_size, expected.st_mtime_ns)  # fmt: skip
    mount.remount()
    assert "reloaded" in catalog_line(mount)


def flip(content, at):
    return content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :]


DAMAGES = {
    "empty": lambda content: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "longer": lambda content: content + b"\0" * 4096,
    "foreign": lambda content: b"\x7fELF" + os.urandom(5000),
    "first byte": lambda content: flip(content, 0),
    "in the header": lambda content: flip(content, 40),
    "in the middle": lambda content: flip(content, len(content) // 2),
    "last byte": lambda content: flip(content, len(content) - 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_catalog_is_scanned_anew(mount, damage):
    mount.umount()
    file = saved(mount)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    mount.remount()
    assert_rescanned(mount)
    assert logged(mount, "scanning") and logged(mount, str(file))
    mount.remount()
    assert "reloaded" in catalog_line(mount)


def test_catalog_that_others_may_write_is_not_trusted(mount):
    mount.umount()
    saved(mount).chmod(0o666)
    mount.remount()
    assert_rescanned(mount)


def test_catalog_directory_that_cannot_be_written(mount, tmp):
    """The mount works, with a line in the log."""
    (tmp / "full").mkdir()
    os.system(f"mount -t tmpfs -o size=16k,nr_inodes=10,mode=700 none {tmp / 'full'}")
    (tmp / "full/filler").write_bytes(b"x" * 12_000)
    with clairfs(mount.source, "--catalog-dir", tmp / "full") as other:
        assert_rescanned(other)
        assert logged(other, str(tmp / "full"))
        assert [path.name for path in (tmp / "full").iterdir() if path.is_file()] == ["filler"]


def test_each_chunk_size_has_its_catalog(mount):
    mount.remount("--chunk=64K")
    assert_rescanned(mount)
    mount.remount("--chunk=4M")
    assert "reloaded" in catalog_line(mount)
