"""A file that changes on the source after it was scanned fails alone, is named once, and is never read mixed."""

import errno
import os
import shutil
import threading

import pytest
from clairmount import clairfs, drop_page_cache, logged, make_tree, wait_until
from mounting import assert_same_files, errno_of, io_choices

CHUNK = 64 << 10
SIZES = {"victim": 10_000, "large victim": 8 * CHUNK, "a/bystander": 5000, "a/large": 5 * CHUNK}
GONE = (errno.ESTALE, errno.EIO)


@pytest.fixture(params=io_choices())
def changing(tmp, request):
    """A mount, and what its source held at first."""
    contents = make_tree(tmp / "src", SIZES)
    with clairfs(tmp / "src", f"--io={request.param}", "--ram=64M", "--chunk=64K") as mount:
        yield mount, contents


def rewrite(path):
    """In place; all bytes differ."""
    content = bytes(byte ^ 0xFF for byte in path.read_bytes())
    with open(path, "r+b") as file:
        file.write(content)


def replace(path):
    new = path.with_name("new version")
    new.write_bytes(bytes(byte ^ 0xFF for byte in path.read_bytes()))
    os.replace(new, path)


def become_directory(path):
    path.unlink()
    path.mkdir()


def become_link(path):
    path.unlink()
    path.symlink_to("a/bystander")


def become_fifo(path):
    path.unlink()
    os.mkfifo(path)


CHANGES = {
    "rewritten": rewrite,
    "replaced": replace,
    "truncated": lambda path: os.truncate(path, 100),
    "emptied": lambda path: os.truncate(path, 0),
    "grown": lambda path: os.truncate(path, path.stat().st_size + 5000),
    "touched": os.utime,
    "deleted": os.unlink,
    "now a directory": become_directory,
    "now a symlink": become_link,
    "now a pipe": become_fifo,
}


def lines_about(mount, name):
    """Log lines that name the file as changed."""
    return logged(mount, "changed on the source", name)


@pytest.mark.parametrize("victim", ["victim", "large victim"])
@pytest.mark.parametrize("change", CHANGES)
def test_only_the_changed_file_fails(changing, change, victim):
    mount, contents = changing
    CHANGES[change](mount.source / victim)
    for _ in range(3):
        assert errno_of((mount.path / victim).read_bytes) in GONE
    for name in contents.keys() - {victim}:
        assert (mount.path / name).read_bytes() == contents[name]
    (line,) = lines_about(mount, victim)
    assert " error " in line and "remount" in line
    wait_until(  # a read is counted after its answer
        lambda: mount.stat("pfs.stale_files") >= 3 and mount.stat("reads.failed") >= 3, "what failed is counted"
    )
    assert "changed since the scan" in mount.control("status")
    assert errno_of(os.getxattr, mount.path / victim, "user.clairfs.checksum") in GONE
    mount.remount()
    assert "scanned" in mount.control("status") and "the source had changed" in mount.control("status")
    for name in contents:
        if (mount.source / name).is_file() and not (mount.source / name).is_symlink():
            assert (mount.path / name).read_bytes() == (mount.source / name).read_bytes()
    assert sorted(os.listdir(mount.path)) == sorted(
        name for name in os.listdir(mount.source) if not (mount.source / name).is_fifo()
    )


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_cached_is_still_served(changing, change):
    mount, contents = changing
    for name in ("victim", "large victim"):
        assert (mount.path / name).read_bytes() == contents[name]
        CHANGES[change](mount.source / name)
        with open(mount.path / name, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert file.read() == contents[name]
    assert mount.stat("pfs.stale_files") == 0


@pytest.mark.parametrize("change", ["rewritten", "replaced", "truncated", "grown", "deleted"])
def test_half_read_file_is_never_mixed(changing, change):
    mount, contents = changing
    old = contents["large victim"]
    fd = os.open(mount.path / "large victim", os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for i in (0, 3):
            assert os.pread(fd, 4096, i * CHUNK) == old[i * CHUNK : i * CHUNK + 4096]
        CHANGES[change](mount.source / "large victim")
        failed = 0
        for i in range(8):
            try:
                assert os.pread(fd, CHUNK, i * CHUNK) == old[i * CHUNK : (i + 1) * CHUNK]
            except OSError as error:
                assert error.errno in GONE and i not in (0, 3)
                failed += 1
        # What keeps the old file open may go on reading it; what was changed in place may not.
        assert failed == 6 or (failed == 0 and change in ("replaced", "deleted"))
    finally:
        os.close(fd)
    assert (mount.path / "a/large").read_bytes() == contents["a/large"]


@pytest.mark.parametrize("ram", ["--ram=64M", "--ram=0"])
@pytest.mark.parametrize("io", io_choices())
def test_file_rewritten_all_the_time(tmp, io, ram):
    """Every read gives the bytes of the scan or an error, whenever it hits."""
    old = make_tree(tmp / "src", {"victim": 32 * CHUNK})["victim"]
    stop, written = threading.Event(), threading.Event()

    def writer():
        with open(tmp / "src/victim", "r+b", buffering=0) as file:
            generation = 0
            while not stop.is_set():
                generation = generation % 255 + 1
                os.pwrite(file.fileno(), bytes(byte ^ generation for byte in old[: 4 * CHUNK]) * 8, 0)
                written.set()

    with clairfs(tmp / "src", f"--io={io}", ram, "--chunk=64K") as mount:
        with open(mount.path / "victim", "rb") as file:
            fd = file.fileno()
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            thread = threading.Thread(target=writer, daemon=True)
            outcomes = []
            try:
                for i in range(32):
                    if i == 2:
                        thread.start()
                        assert written.wait(60)
                    try:
                        outcomes.append(os.pread(fd, 4096, i * CHUNK) == old[i * CHUNK : i * CHUNK + 4096])
                    except OSError as error:
                        assert error.errno in GONE
            finally:
                stop.set()
            thread.join()
        assert all(outcomes) and 2 <= len(outcomes) < 32


def test_directory_renamed_away(changing):
    mount, contents = changing
    (mount.source / "a").rename(mount.source / "b")
    for name in ("a/bystander", "a/large"):
        assert errno_of((mount.path / name).read_bytes) in GONE
        assert lines_about(mount, name)
    assert (mount.path / "victim").read_bytes() == contents["victim"]


def test_new_files_appear_with_the_next_mount(changing):
    mount, contents = changing
    (mount.source / "a/new").write_bytes(b"new")
    assert not (mount.path / "a/new").exists()
    assert sorted(os.listdir(mount.path / "a")) == ["bystander", "large"]
    mount.remount()
    assert_same_files(mount, [*contents, "a/new"])


def test_whole_source_vanishes(changing):
    mount, contents = changing
    assert (mount.path / "victim").read_bytes() == contents["victim"]
    shutil.rmtree(mount.source)
    assert errno_of((mount.path / "a/large").read_bytes) in GONE
    assert (mount.path / "victim").read_bytes() == contents["victim"]
    assert sorted(os.listdir(mount.path)) == ["a", "large victim", "victim"]


def test_warm_nvme_store_of_another_version(tmp):
    """Rewritten in place between two mounts: the store's old bytes are not served, whatever was checked."""
    (tmp / "nvme").mkdir(mode=0o700)
    contents = make_tree(tmp / "src", SIZES)
    options = [f"--nvme={tmp / 'nvme'}:64M", "--ram=0", "--chunk=64K"]
    with clairfs(tmp / "src", *options) as mount:
        for name, content in contents.items():
            assert (mount.path / name).read_bytes() == content
        mount.umount()
        rewrite(tmp / "src/large victim")
        mount.remount(*options, "--check=directories")  # which does not look at files
        assert "reloaded" in mount.control("status")
        assert mount.stat("tiers.nvme.chunks") > 0
        assert errno_of((mount.path / "large victim").read_bytes) in GONE
        assert (mount.path / "a/large").read_bytes() == contents["a/large"]
        mount.remount(*options)
        assert_same_files(mount)


@pytest.mark.parametrize("io", io_choices())
def test_warm_nvme_store_of_a_version_with_the_same_mtime(tmp, io):
    """As rsync -t leaves it. Only its ctime tells, and no folder's; half of the old version is on NVMe."""
    (tmp / "nvme").mkdir(mode=0o700)
    contents = make_tree(tmp / "src", SIZES)
    options = [f"--nvme={tmp / 'nvme'}:64M", "--ram=0", "--chunk=64K", f"--io={io}"]
    victim = tmp / "src/large victim"
    with clairfs(tmp / "src", *options) as mount:
        with open(mount.path / "large victim", "rb") as file:
            assert os.pread(file.fileno(), 10, 0) == contents["large victim"][:10]
        assert (mount.path / "a/large").read_bytes() == contents["a/large"]
        mount.umount()
        before = victim.stat()
        rewrite(victim)
        os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
        mount.remount(*options, "--check=directories")
        assert "reloaded" in mount.control("status")
        for _ in range(2):
            assert (mount.path / "large victim").read_bytes() == victim.read_bytes()
            drop_page_cache(mount.path / "large victim")
        assert (mount.path / "a/large").read_bytes() == contents["a/large"]
        assert mount.stat("nvme.reads") > 0
        mount.umount()
        mount.remount(*options)
        assert_same_files(mount)


def test_a_name_in_the_log_stays_on_its_line(tmp):
    make_tree(tmp / "src", {"evil\n2026 error forged": 100})
    with clairfs(tmp / "src") as mount:
        os.unlink(tmp / "src/evil\n2026 error forged")
        assert errno_of((mount.path / "evil\n2026 error forged").read_bytes) in GONE
        assert len(lines_about(mount, r"evil\n2026 error forged")) == 1
