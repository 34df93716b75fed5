"""The emulated parallel filesystem: the same bytes, every operation counted, faults on demand, always removable."""

import concurrent.futures
import errno
import os
import signal
import subprocess
import sys
import threading
import time

import clairmount
import pytest
from clairmount import MountError, is_mounted, make_tree, slowfs, tree_files, wait_until

# Far beyond what a test may take: a request that sleeps this long was let go by what the test did.
FOREVER = 3600


@pytest.fixture
def source(tmp):
    make_tree(tmp / "src", {"a/1": 1000, "a/2": 5000, "b/c/3": 300_000, "empty": 0})
    os.symlink("a/1", tmp / "src/link")
    return tmp / "src"


def read(fs, name):
    return (fs.path / name).read_bytes()


def error_of(call, *args):
    with pytest.raises(OSError) as caught:
        call(*args)
    return caught.value.errno


def in_background(call, *args):
    """Runs a call that may block on a thread; a future of what it returns or raises."""
    return concurrent.futures.ThreadPoolExecutor(1).submit(call, *args)


def test_same_tree(source):
    with slowfs(source) as fs:
        assert tree_files(fs.path) == tree_files(source)
        for name in tree_files(source):
            assert read(fs, name) == (source / name).read_bytes()
            ours, theirs = (fs.path / name).stat(), (source / name).stat()
            assert (ours.st_mode, ours.st_size, ours.st_mtime_ns, ours.st_ino) == (
                theirs.st_mode,
                theirs.st_size,
                theirs.st_mtime_ns,
                theirs.st_ino,
            )
        assert os.readlink(fs.path / "link") == "a/1"
        assert sorted(os.listdir(fs.path)) == sorted(os.listdir(source))
        assert error_of(read, fs, "missing") == errno.ENOENT


def test_many_names_in_one_directory(tmp):
    names = {f"d/{'n' * (i % 200)}{i}": 1 for i in range(3000)}
    make_tree(tmp / "src", names)
    with slowfs(tmp / "src") as fs:
        assert sorted(os.listdir(fs.path / "d")) == sorted(os.listdir(tmp / "src/d"))


def test_counts(source):
    with slowfs(source) as fs:
        fs.command("reset")
        fd = os.open(fs.path / "b/c/3", os.O_RDONLY)
        assert len(os.pread(fd, 4096, 100)) == 4096
        assert len(os.pread(fd, 4096, 100)) == 4096  # no page cache in between
        assert len(os.pread(fd, 4096, 299_000)) == 1000
        os.close(fd)
        counters = fs.counters()
        assert counters["ops"]["lookup"] == 3
        assert counters["ops"]["open"] == 1
        assert counters["ops"]["read"] == 3
        assert counters["bytes"] == 9192
        read(fs, "a/1"), read(fs, "a/1")
        os.listdir(fs.path / "a")
        counters = fs.counters()
        assert (counters["opens_per_file_max"], counters["most_opened"]) == (2, "a/1")
        assert counters["ops"]["readdir"] == 1
        fs.command("reset")
        assert fs.counters()["bytes"] == 0 and fs.counters()["opens_per_file_max"] == 0


def test_reads_that_do_not_go_on_are_seeks(source):
    with slowfs(source, "--seek", "20000") as fs:
        fs.command("reset")
        fd = os.open(fs.path / "b/c/3", os.O_RDONLY)
        begin = time.monotonic()
        for offset in (0, 4096, 8192, 100_000, 0, 4096):
            assert len(os.pread(fd, 4096, offset)) == 4096
        os.close(fd)
        assert fs.counters()["seeks"] == 3  # the first, and twice elsewhere
        assert time.monotonic() - begin >= 3 * 0.02


def test_cached_reads_arrive_once(source):
    with slowfs(source, "--cached") as fs:
        read(fs, "a/2"), read(fs, "a/2")
        assert fs.counters()["bytes"] == 5000


def test_requests_sleep_side_by_side(tmp):
    names = list(make_tree(tmp / "src", {f"d/{i}": 10 for i in range(64)}))
    with slowfs(tmp / "src", "--attr-timeout", "100") as fs:
        fs.command(f"hang d/* {FOREVER}")
        readers = [in_background(read, fs, name) for name in names]
        # One directory: its look-ups must not wait for each other.
        wait_until(lambda: fs.counters()["pending"] == 64, "all readers wait")
        fs.command("clear")
        assert all(reader.result() == (tmp / "src" / name).read_bytes() for reader, name in zip(readers, names))
        assert fs.counters()["pending"] == 0 and fs.counters()["hung"] >= 64


def test_latency_is_at_least_what_was_asked_for(source):
    with slowfs(source, "--latency", "20000") as fs:
        start = time.monotonic()
        read(fs, "empty")
        assert time.monotonic() - start >= 0.04  # lookup and open
        fs.command("latency 0")
        fs.command("latency read 50000")
        start = time.monotonic()
        read(fs, "a/1")
        assert time.monotonic() - start >= 0.05


def test_bandwidth_is_shared(source):
    with slowfs(source, "--bandwidth", "1M") as fs:
        start = time.monotonic()
        readers = [in_background(read, fs, "b/c/3") for _ in range(2)]
        assert all(len(reader.result()) == 300_000 for reader in readers)
        assert time.monotonic() - start >= 600_000 / 2**20


def test_eio(source):
    with slowfs(source) as fs:
        fs.command("eio a/* 1")
        assert error_of(read, fs, "a/1") == errno.EIO
        assert len(read(fs, "a/1")) == 1000
        fs.command("eio b/c/3")
        for _ in range(3):
            assert error_of(read, fs, "b/c/3") == errno.EIO
        assert len(read(fs, "a/1")) == 1000
        counters = fs.counters()
        assert counters["eio"] == 4
        fs.command("clear")
        assert len(read(fs, "b/c/3")) == 300_000


def test_eio_all(source):
    with slowfs(source) as fs:
        fs.command("eio-all")
        assert error_of(os.listdir, fs.path) == errno.EIO
        assert error_of(os.stat, fs.path / "a/1") == errno.EIO
        fs.command("clear")
        assert len(read(fs, "a/1")) == 1000


def test_bad_commands_change_nothing(source):
    with slowfs(source) as fs:
        for line in ("nonsense", "eio", "eio a b", "hang a", "latency fast", "latency disk 5", "bandwidth", "clear 1"):
            assert error_of(fs.command, line) == errno.EINVAL, line
        assert len(read(fs, "a/1")) == 1000


def test_read_only(source):
    with slowfs(source) as fs:
        assert error_of((fs.path / "new").touch) == errno.EROFS
        assert error_of(open, fs.path / "a/1", "ab") == errno.EROFS
        assert error_of(os.unlink, fs.path / "a/1") == errno.EROFS
        assert error_of(os.rename, fs.path / "a/1", fs.path / "a/4") == errno.EROFS
        assert error_of(os.chmod, fs.path / "a/1", 0o600) == errno.EROFS
        assert error_of(os.truncate, fs.path / "a/1", 0) == errno.EROFS


def test_changed_source_is_seen(source):
    with slowfs(source) as fs:
        assert len(read(fs, "a/1")) == 1000
        (source / "a/1").unlink()
        (source / "a/1").mkdir()
        assert os.listdir(fs.path / "a/1") == []
        (source / "a/2").write_bytes(b"new")
        assert read(fs, "a/2") == b"new"


def test_hung_reader_can_be_killed(source):
    with slowfs(source) as fs:
        fs.command(f"hang a/1 {FOREVER}")
        reader = subprocess.Popen([sys.executable, "-c", f"open({str(fs.path / 'a/1')!r}).read()"])
        try:
            wait_until(lambda: fs.counters()["pending"] == 1, "the reader hangs")
        finally:
            reader.kill()
            assert reader.wait(clairmount.STOP_SECONDS) == -signal.SIGKILL
        wait_until(lambda: fs.counters()["pending"] == 0, "its request is gone")


@pytest.mark.parametrize("command", [f"latency {FOREVER}000000", f"hang * {FOREVER}"])
def test_ends_at_once_while_requests_sleep(source, command):
    with slowfs(source) as fs:
        fs.command(command)
        readers = [in_background(read, fs, name) for name in ("a/1", "b/c/3", "empty")]
        wait_until(lambda: fs.counters()["pending"] == 3, "the readers wait")
        assert fs.kill(signal.SIGTERM) == 0
        assert not is_mounted(fs.path)
        assert all(isinstance(reader.exception(clairmount.STOP_SECONDS), OSError) for reader in readers)


def test_umount_ends_the_program(source):
    with slowfs(source) as fs:
        subprocess.run(["fusermount3", "-u", fs.path], check=True)
        assert fs.wait() == 0


def test_crash_is_cleaned_up(source):
    with slowfs(source) as fs:
        fs.kill()
        assert is_mounted(fs.path)
        path = fs.path
    assert not is_mounted(path) and not path.exists()


def test_failed_test_leaves_nothing(source):
    with pytest.raises(ZeroDivisionError):
        with slowfs(source) as fs:
            fs.command(f"hang * {FOREVER}")
            reader = threading.Thread(target=lambda: error_of(read, fs, "a/1"))
            reader.start()
            wait_until(lambda: fs.counters()["pending"] == 1, "the reader hangs")
            1 / 0
    reader.join(clairmount.STOP_SECONDS)
    assert not reader.is_alive() and not is_mounted(fs.path) and not fs.path.exists()


def test_bad_arguments(tmp):
    with pytest.raises(MountError, match="bandwidth"):
        with slowfs(tmp, "--bandwidth", "fast"):
            pass
    with pytest.raises(MountError, match="missing"):
        with slowfs(tmp / "missing"):
            pass
