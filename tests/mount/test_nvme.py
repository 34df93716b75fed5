"""The NVMe tier: filled after RAM, warm after a restart, one daemon's own, never above its capacity."""

import os
import random
import stat
import subprocess
import threading

import pytest
from clairmount import clairfs, is_mounted, logged, wait_until
from mounting import assert_one_line, io_choices, only_root, run
from nvme_data import CHUNK, CHUNKS, fill, on_disk, options, read_all


@pytest.mark.parametrize("io", io_choices())
def test_ram_fills_first_then_nvme_and_then_the_source_rests(dataset, nvme, io):
    source, contents = dataset
    ram = 4 << 20
    with clairfs(source, *options(nvme, f"--io={io}", ram="4M")) as mount:
        read_all(mount, contents, ["0/small 0"])
        assert mount.stat("tiers.ram.chunks") == 1
        wait_until(lambda: only_copies(mount.stats()["tiers"]["nvme"]), "NVMe has copies alone")  # counted one by one
        wait_until(lambda: read_all(mount, contents) or all_kept(mount), "all is kept")
        stats = mount.stats()
        assert ram - CHUNK < stats["tiers"]["ram"]["bytes"] <= ram
        assert stats["tiers"]["nvme"]["bytes"] <= stats["tiers"]["nvme"]["capacity"] == 64 << 20
        # What NVMe has no time for takes the place of what it has a copy of.
        assert os.getxattr(mount.path / "0/small 0", "user.clairfs.tier") in (b"ram", b"nvme")
        before = mount.stats()
        for seed in range(2):
            read_all(mount, contents, random.Random(seed).sample(list(contents), len(contents)))
        after = mount.stats()
        assert after["pfs"]["bytes"] == before["pfs"]["bytes"]
        assert after["nvme"]["reads"] > before["nvme"]["reads"] and after["nvme"]["errors"] == 0


def only_copies(nvme):
    return nvme["chunks"] == nvme["copies"]


def all_kept(mount):
    tiers = mount.stats()["tiers"]
    return tiers["ram"]["chunks"] + tiers["nvme"]["chunks"] - tiers["nvme"]["copies"] == CHUNKS


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


@only_root
def test_without_a_size_a_restart_finds_what_was_kept(dataset, tmp):
    """What the store holds counts as free: each mount would keep only a share of the last one's otherwise."""
    source, contents = dataset
    (tmp / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M,mode=0700", "tmpfs", tmp / "disk"], check=True)
    with clairfs(source, f"--nvme={tmp}/disk", "--ram=0", "--chunk=64K") as mount:
        fill(mount, contents)
        capacity = mount.stat("tiers.nvme.capacity")
        mount.remount()
        assert mount.stat("tiers.nvme.chunks") == CHUNKS
        assert capacity * 0.95 < mount.stat("tiers.nvme.capacity") < capacity * 1.05
        read_all(mount, contents)
        assert mount.stat("pfs.bytes") == 0


def test_another_dataset_in_the_same_directory_is_warned_of(dataset, nvme, tmp):
    source, contents = dataset
    (tmp / "other").mkdir()
    (tmp / "other/file").write_bytes(b"other")
    with clairfs(source, *options(nvme)) as mount:
        fill(mount, contents)
    with clairfs(tmp / "other", *options(nvme)) as mount:
        assert logged(mount, f"none of the {CHUNKS} chunks kept there") and logged(mount, "NVMe directory of its own")


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


def test_directory_is_made(dataset, tmp):
    with clairfs(dataset[0], *options(tmp / "new")) as mount:
        read_all(mount, dataset[1])
        assert stat.S_IMODE((tmp / "new").stat().st_mode) == 0o700
    (tmp / "mnt").mkdir()
    refused = run("mount", dataset[0], tmp / "mnt", "--catalog-dir", tmp / "c", *options(tmp / "absent/new"))
    assert_one_line(refused, f"mkdir -p {tmp / 'absent'}", status=32)


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
