"""The NVMe tier: filled after RAM, warm after a restart, and harmless however it fails."""

import os
import random
import shutil
import subprocess
import threading

import pytest
from clairmount import clairfs, is_mounted, make_tree, wait_until
from mounting import SETTLE_SECONDS, assert_one_line, io_choices, run

CHUNK = 64 << 10
LARGE = 6 << 20
# More than passes through memory on its way (16 MiB), so that the NVMe tier is read.
SIZES = {f"{i % 3}/small {i}": 1 + i * 1009 % CHUNK for i in range(100)} | {f"large{i}": LARGE + i for i in range(4)}
CHUNKS = 100 + 4 * (LARGE // CHUNK + 1) - 1
TOTAL = sum(SIZES.values())


@pytest.fixture(scope="module")
def dataset():
    import clairmount

    with clairmount.tempdir() as tmp:
        yield tmp / "src", make_tree(tmp / "src", SIZES)


@pytest.fixture
def nvme(tmp):
    (tmp / "nvme").mkdir(mode=0o700)
    yield tmp / "nvme"


def options(nvme, *more, capacity="64M", ram="0"):
    return [f"--nvme={nvme}:{capacity}", f"--ram={ram}", "--chunk=64K", *more]


def read_all(mount, contents, names=None):
    """Reads and compares files, and leaves nothing in the page cache."""
    for name in names if names is not None else contents:
        fd = os.open(mount.path / name, os.O_RDONLY)
        try:
            assert os.pread(fd, 2 * LARGE, 0) == contents[name], name
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def fill(mount, contents, chunks=CHUNKS):
    """Reads until `chunks` are on NVMe: a pass may leave some out when writing is slow."""

    def full():
        read_all(mount, contents)
        return mount.stat("tiers.nvme.chunks") >= chunks

    wait_until(full, f"{chunks} chunks on NVMe")


def on_disk(folder):
    return sum(path.stat().st_blocks * 512 for path in [folder, *folder.iterdir()])


def put_records(nvme):
    """Records in the index that tell of a chunk; see cache/nvme_record.h."""
    content = (nvme / "index").read_bytes()
    return sum(content[at + 8] == 1 for at in range(48, len(content) - 47, 48))


@pytest.mark.parametrize("io", io_choices())
def test_ram_fills_first_then_nvme_and_then_the_source_rests(dataset, nvme, io):
    source, contents = dataset
    ram = 4 << 20
    with clairfs(source, *options(nvme, f"--io={io}", ram="4M")) as mount:
        read_all(mount, contents, ["0/small 0"])
        stats = mount.stats()
        assert stats["tiers"]["ram"]["chunks"] == 1 and stats["tiers"]["nvme"]["chunks"] == 0
        wait_until(lambda: read_all(mount, contents) or all_kept(mount), "all is kept")
        stats = mount.stats()
        assert ram - CHUNK < stats["tiers"]["ram"]["bytes"] <= ram
        assert stats["tiers"]["nvme"]["bytes"] <= stats["tiers"]["nvme"]["capacity"] == 64 << 20
        assert os.getxattr(mount.path / "0/small 0", "user.clairfs.tier") == b"ram"
        before = mount.stats()
        for seed in range(2):
            read_all(mount, contents, random.Random(seed).sample(list(contents), len(contents)))
        after = mount.stats()
        assert after["pfs"]["bytes"] == before["pfs"]["bytes"]
        assert after["nvme"]["reads"] > before["nvme"]["reads"] and after["nvme"]["errors"] == 0


def all_kept(mount):
    tiers = mount.stats()["tiers"]
    return tiers["ram"]["chunks"] + tiers["nvme"]["chunks"] == CHUNKS


@pytest.mark.parametrize("io", io_choices())
def test_restart_is_warm(dataset, nvme, io):
    source, contents = dataset
    with clairfs(source, *options(nvme, f"--io={io}")) as mount:
        fill(mount, contents)
        mount.remount()
        assert mount.stat("tiers.nvme.chunks") == CHUNKS
        assert os.getxattr(mount.path / "large1", "user.clairfs.tier") == b"nvme"
        read_all(mount, contents)
        stats = mount.stats()
        assert (stats["pfs"]["bytes"], stats["pfs"]["opens"]) == (0, 0)
        # Also with a catalog that was scanned anew: chunks are known by what they hold.
        (mount.catalog_dir / "moved").mkdir()
        mount.remount(*options(nvme, "--catalog-dir", mount.catalog_dir / "moved"))
        assert "scanned" in mount.control("status")
        read_all(mount, contents)
        assert mount.stat("pfs.bytes") == 0


def test_flipped_byte_is_noticed_and_refetched(dataset, nvme):
    source, contents = dataset
    with clairfs(source, *options(nvme)) as mount:
        fill(mount, contents)
        mount.umount()
        wanted = contents["large2"][5 * CHUNK : 5 * CHUNK + 4096]
        segment, at = next(
            (path, at) for path in nvme.glob("segment-*") if (at := path.read_bytes().find(wanted)) >= 0
        )
        with open(segment, "r+b") as file:
            file.seek(at + 1234)
            file.write(bytes([wanted[1234] ^ 0x01]))
        mount.remount()
        read_all(mount, contents)
        stats = mount.stats()
        assert stats["nvme"]["checksum_failures"] == 1 and stats["reads"]["failed"] == 0
        assert stats["pfs"]["bytes"] == CHUNK
        assert "checksum" in mount.log() and "wrong checksum" in mount.control("status")
        wait_until(lambda: mount.stat("tiers.nvme.chunks") == CHUNKS, "the chunk is kept again", SETTLE_SECONDS)
        mount.remount()
        read_all(mount, contents)
        assert mount.stat("nvme.checksum_failures") == mount.stat("pfs.bytes") == 0


def damage_index(nvme, how):
    content = (nvme / "index").read_bytes()
    middle = 48 * (CHUNKS // 2) + 20
    (nvme / "index").write_bytes(
        {
            "truncated": content[: 48 * (CHUNKS // 2)],
            "truncated in a record": content[:middle],
            "one byte": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "header": b"x" + content[1:],
            "empty": b"",
            "garbage": os.urandom(len(content)),
            "garbage after the header": content[:48] + os.urandom(len(content) - 48),
        }[how]
    )


@pytest.mark.parametrize(
    "how", ["truncated", "truncated in a record", "one byte", "header", "empty", "garbage", "garbage after the header"]
)
def test_damaged_index(dataset, nvme, how):
    source, contents = dataset
    with clairfs(source, *options(nvme)) as mount:
        fill(mount, contents)
        mount.umount()
        damage_index(nvme, how)
        mount.remount()
        kept = mount.stat("tiers.nvme.chunks")
        if how == "one byte":
            assert kept == CHUNKS - 1
        elif how.startswith("truncated"):
            assert CHUNKS // 3 < kept < CHUNKS
        else:
            assert kept == 0
        read_all(mount, contents)
        stats = mount.stats()
        assert stats["reads"]["failed"] == stats["nvme"]["checksum_failures"] == 0
        assert 0 < stats["pfs"]["bytes"] <= TOTAL
        fill(mount, contents)
        mount.remount()
        read_all(mount, contents)
        assert mount.stat("pfs.bytes") == 0


def test_missing_segments(dataset, nvme):
    source, contents = dataset
    with clairfs(source, *options(nvme)) as mount:
        fill(mount, contents)
        mount.umount()
        for segment in nvme.glob("segment-*"):
            segment.unlink()
        mount.remount()
        read_all(mount, contents)
        assert mount.stat("reads.failed") == 0 and mount.stat("pfs.bytes") > 0


def test_killed_daemon_leaves_a_warm_store(dataset, nvme):
    source, contents = dataset
    with clairfs(source, *options(nvme)) as mount:
        fill(mount, contents)
        wait_until(lambda: put_records(nvme) >= CHUNKS, "the index is written", SETTLE_SECONDS)
        mount.kill()
        mount.remount()
        read_all(mount, contents)
        stats = mount.stats()
        assert stats["pfs"]["bytes"] == stats["nvme"]["checksum_failures"] == 0


def test_killed_while_it_writes(dataset, nvme):
    source, contents = dataset
    with clairfs(source, *options(nvme)) as mount:
        for round_ in range(4):
            stop = threading.Event()

            def read_on(seed=round_):
                while not stop.is_set():
                    for name in random.Random(seed).sample(list(contents), len(contents)):
                        try:
                            (mount.path / name).read_bytes()
                        except OSError:
                            return  # the daemon is gone

            reader = threading.Thread(target=read_on)
            reader.start()
            wait_until(lambda: mount.stat("nvme.writes") > 20, "it writes")
            mount.kill()
            stop.set()
            reader.join()
            mount.remount()
            read_all(mount, contents)
            assert mount.stat("reads.failed") == 0
            shutil.rmtree(nvme) if round_ == 1 else None
            nvme.mkdir(mode=0o700, exist_ok=True)
            mount.remount()


@pytest.fixture
def small_disk(tmp):
    """A filesystem of 8 MiB."""
    (tmp / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M,mode=0700", "none", tmp / "disk"], check=True)
    return tmp / "disk"


@pytest.mark.parametrize("io", io_choices())
def test_full_disk(dataset, small_disk, io):
    source, contents = dataset
    with clairfs(source, *options(small_disk, f"--io={io}")) as mount:
        for _ in range(2):
            read_all(mount, contents)
        stats = mount.stats()
        assert stats["reads"]["failed"] == 0
        assert 2 << 20 < stats["tiers"]["nvme"]["bytes"] <= 8 << 20
        mount.remount()
        read_all(mount, contents)
        assert 0 < mount.stat("pfs.bytes") < TOTAL - (2 << 20)


def test_disk_that_others_fill(dataset, small_disk):
    source, contents = dataset
    with clairfs(source, *options(small_disk, capacity="4M")) as mount:
        read_all(mount, contents, ["large0"])
        with open(small_disk / "filler", "wb") as filler:
            try:
                while True:
                    filler.write(b"x" * 65536)
                    filler.flush()
            except OSError:
                pass
        for _ in range(2):
            read_all(mount, contents)
        assert mount.stat("reads.failed") == 0


def test_read_only_disk_is_refused(dataset, small_disk, tmp):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    (tmp / "mnt").mkdir()
    refused = run("mount", dataset[0], tmp / "mnt", "--catalog-dir", tmp / "c", *options(small_disk))
    assert_one_line(refused, small_disk, "can be written", status=32)
    assert not is_mounted(tmp / "mnt")


def test_directory_vanishes_while_mounted(dataset, nvme):
    source, contents = dataset
    with clairfs(source, *options(nvme)) as mount:
        fill(mount, contents)
        shutil.rmtree(nvme)
        read_all(mount, contents)
        assert mount.stat("reads.failed") == 0
        mount.umount()
        nvme.mkdir(mode=0o700)
        mount.remount()
        read_all(mount, contents)
        assert mount.stat("tiers.nvme.chunks") > 0


def test_segments_are_cut_off_while_mounted(dataset, nvme):
    source, contents = dataset
    with clairfs(source, *options(nvme)) as mount:
        fill(mount, contents)
        for segment in nvme.glob("segment-*"):
            os.truncate(segment, 0)
        for _ in range(2):
            read_all(mount, contents)
        stats = mount.stats()
        assert stats["reads"]["failed"] == 0
        assert stats["nvme"]["errors"] + stats["nvme"]["checksum_failures"] > 0
        assert str(nvme) in mount.log()


def test_one_daemon_for_a_directory(dataset, nvme, tmp):
    source, contents = dataset
    (tmp / "mnt").mkdir()
    with clairfs(source, *options(nvme)) as mount:
        second = run("mount", source, tmp / "mnt", "--catalog-dir", tmp / "c", *options(nvme))
        assert_one_line(second, nvme, f"process {mount.pid}", status=32)
        assert not is_mounted(tmp / "mnt")
        read_all(mount, contents)
        mount.kill()
        mount.remount()  # the lock ends with its owner
        read_all(mount, contents)


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_directory_open_to_others_is_refused(dataset, nvme, tmp, mode):
    nvme.chmod(mode)
    (tmp / "mnt").mkdir()
    refused = run("mount", dataset[0], tmp / "mnt", "--catalog-dir", tmp / "c", *options(nvme))
    assert_one_line(refused, nvme, f"chmod 700 {nvme}", status=32)
    assert os.listdir(nvme) == []


@pytest.mark.parametrize("io", io_choices())
@pytest.mark.parametrize("capacity", [1 << 20, 8 << 20])
def test_capacity_is_never_exceeded(dataset, nvme, io, capacity):
    source, contents = dataset
    sizes, stop = [], threading.Event()

    def watch():
        while not stop.wait(0.002):
            sizes.append(on_disk(nvme))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with clairfs(source, *options(nvme, f"--io={io}", capacity=capacity)) as mount:
            for _ in range(3):
                read_all(mount, contents)
            stats = mount.stats()
            assert capacity // 2 < stats["tiers"]["nvme"]["bytes"] <= stats["tiers"]["nvme"]["capacity"] == capacity
            mount.remount()
            read_all(mount, contents)
            mount.remount(*options(nvme, capacity=1 << 20))  # smaller than what is there
            read_all(mount, contents)
            assert on_disk(nvme) <= 1 << 20
            assert mount.stat("tiers.nvme.bytes") <= 1 << 20 and mount.stat("reads.failed") == 0
    finally:
        stop.set()
        watcher.join()
    assert len(sizes) > 10 and max(sizes) <= capacity


def test_two_directories(dataset, nvme, tmp):
    source, contents = dataset
    (tmp / "second").mkdir(mode=0o700)
    both = [f"--nvme={nvme}:16M", f"--nvme={tmp / 'second'}:16M", "--ram=0", "--chunk=64K"]
    with clairfs(source, *both) as mount:
        fill(mount, contents)
        assert mount.stat("tiers.nvme.capacity") == 32 << 20
        for folder in (nvme, tmp / "second"):
            assert 1 << 20 < on_disk(folder) <= 16 << 20
        mount.remount()
        read_all(mount, contents)
        assert mount.stat("pfs.bytes") == 0
