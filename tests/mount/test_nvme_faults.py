"""The NVMe tier is harmless however it fails: damaged, cut off, killed while writing, full, read-only, gone."""

import contextlib
import os
import shutil
import subprocess
import threading

import pytest
from clairmount import clairfs, is_mounted, logged, wait_until
from mounting import SETTLE_SECONDS, assert_one_line, io_choices, run
from nvme_data import CHUNK, CHUNKS, TOTAL, fill, options, put_records, read_all, read_until_it_fails


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
        assert logged(mount, "checksum") and "wrong checksum" in mount.control("status")
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
        # A chunk that writing was too slow for is read again where two READs share it.
        assert 0 < stats["pfs"]["bytes"] < 1.25 * TOTAL
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
        for _ in range(4):
            wrong = []
            reader = threading.Thread(target=read_until_it_fails, args=(mount, contents, wrong))
            reader.start()
            wait_until(lambda: mount.stat("nvme.writes") > 20, "it writes")
            mount.kill()
            reader.join(SETTLE_SECONDS)
            assert not reader.is_alive() and not wrong
            mount.remount()
            read_all(mount, contents)
            stats = mount.stats()
            assert stats["reads"]["failed"] == 0 and stats["tiers"]["nvme"]["chunks"] > 0
            mount.umount()
            shutil.rmtree(nvme)
            nvme.mkdir(mode=0o700)
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
    # A plan that is found would decide which chunks stay, and may fetch one again that is being read just then.
    with clairfs(source, *options(small_disk, f"--io={io}", "--infer=off", capacity="8M")) as mount:
        (small_disk / "others").write_bytes(bytes(1 << 20))
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
        with contextlib.suppress(OSError), open(small_disk / "filler", "wb") as filler:
            while True:
                filler.write(b"x" * 65536)
                filler.flush()
        for _ in range(2):
            read_all(mount, contents)
        assert mount.stat("reads.failed") == 0


def test_read_only_disk_is_refused(dataset, small_disk, tmp):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    (tmp / "mnt").mkdir()
    refused = run("mount", dataset[0], tmp / "mnt", "--catalog-dir", tmp / "c", *options(small_disk, capacity="4M"))
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
        assert logged(mount, str(nvme))
