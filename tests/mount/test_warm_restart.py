"""What the RAM tier held is on NVMe after a restart: copies made in idle time and at the unmount, where there is room."""

import contextlib
import os
import random
import shutil
import subprocess
import threading

import pytest
from clairmount import clairfs, wait_until
from mounting import SETTLE_SECONDS, io_choices
from nvme_data import CHUNK, CHUNKS, TOTAL, on_disk, options, put_records, read_all, read_until_it_fails

RAM = "8M"  # of the 25 MB of the dataset
PLAN = "format=files sampler=torch.sequential epochs=100"


def register(mount):
    (mount.path / ".clairfs/plan").write_text(PLAN + "\n")


def kept(mount):
    """Chunks that some tier has: those of RAM, and those of NVMe that are no copies."""
    tiers = mount.stats()["tiers"]
    return tiers["ram"]["chunks"] + tiers["nvme"]["chunks"] - tiers["nvme"]["copies"]


def keep_all(mount, contents):
    wait_until(lambda: read_all(mount, sorted_(contents)) or kept(mount) == CHUNKS, "all is kept")
    # A large chunk makes room for a small one, and the next large one finds less than it needs.
    assert mount.stat("tiers.ram.bytes") > (8 << 20) - 2 * CHUNK


def sorted_(contents):
    """In the order of the plan."""
    return dict(sorted(contents.items()))


def assert_warm(mount, contents):
    """Nothing is read from the source, whatever the order."""
    assert mount.stat("tiers.nvme.chunks") == CHUNKS
    read_all(mount, contents, random.Random(1).sample(list(contents), len(contents)))
    stats = mount.stats()
    assert (stats["pfs"]["bytes"], stats["pfs"]["opens"], stats["nvme"]["checksum_failures"]) == (0, 0, 0)


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("io", io_choices())
def test_unmounted(dataset, nvme, io, planned):
    source, contents = dataset
    with clairfs(source, *options(nvme, f"--io={io}", ram=RAM)) as mount:
        for _ in range(3):
            if planned:
                register(mount)
            keep_all(mount, contents)
            mount.remount()
            if planned:
                register(mount)
            assert_warm(mount, contents)


def test_unmounted_at_once(dataset, nvme):
    """There was no idle time: the unmount copies all of it."""
    source, contents = dataset
    with clairfs(source, *options(nvme, ram="64M")) as mount:
        read_all(mount, contents)
        mount.remount()
        assert_warm(mount, contents)


def copied(mount):
    return mount.stat("tiers.nvme.copies") == mount.stat("tiers.ram.chunks")


@pytest.mark.parametrize("io", io_choices())
def test_killed_when_idle(dataset, nvme, io):
    source, contents = dataset
    with clairfs(source, *options(nvme, f"--io={io}", ram=RAM)) as mount:
        keep_all(mount, contents)
        wait_until(lambda: copied(mount), "the RAM tier is copied", SETTLE_SECONDS)
        assert "are copies of the RAM tier" in mount.control("status")
        wait_until(lambda: put_records(nvme) >= CHUNKS, "the index is written", SETTLE_SECONDS)
        mount.kill()
        mount.remount()
        assert_warm(mount, contents)


def test_killed_while_it_copies(dataset, nvme):
    source, contents = dataset
    with clairfs(source, *options(nvme, ram="32M")) as mount:
        for copies in (1, 20, 100, 200):
            wrong = []
            reader = threading.Thread(target=read_until_it_fails, args=(mount, contents, wrong))
            reader.start()
            wait_until(lambda enough=copies: mount.stat("tiers.nvme.copies") >= enough, "copies are made")
            mount.kill()
            reader.join(SETTLE_SECONDS)
            assert not reader.is_alive() and not wrong
            mount.remount()
            read_all(mount, contents)
            stats = mount.stats()
            assert stats["reads"]["failed"] == stats["nvme"]["checksum_failures"] == 0
            mount.umount()
            shutil.rmtree(nvme)
            nvme.mkdir(mode=0o700)
            mount.remount()


def settled(mount):
    """No room is left for a chunk that is nowhere else, and none of the tiers has changed since a pass before."""
    tiers = mount.stats()["tiers"]
    return tiers["ram"]["chunks"], tiers["nvme"]["chunks"], tiers["nvme"]["copies"]


@pytest.mark.parametrize("capacity", [2 << 20, 6 << 20, 12 << 20, 20 << 20])
def test_room_for_less(dataset, nvme, capacity):
    """The disk is never more than configured. What is nowhere else comes first: without copies it would be no more."""
    source, contents = dataset
    sizes, stop = [], threading.Event()

    def watch():
        while not stop.wait(0.002):
            sizes.append(on_disk(nvme))

    def steady():
        before = settled(mount)
        read_all(mount, contents)
        return settled(mount) == before

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with clairfs(source, *options(nvme, ram=RAM, capacity=capacity)) as mount:
            read_all(mount, contents)
            wait_until(steady, "nothing changes any more")
            tiers = mount.stats()["tiers"]
            whole = kept(mount) == CHUNKS
            assert whole == (capacity == 20 << 20)
            if not whole:
                assert tiers["nvme"]["copy_bytes"] < CHUNK  # no room for another chunk
                assert tiers["nvme"]["bytes"] > capacity * 0.9
            mount.remount()
            held = mount.stat("tiers.nvme.bytes")
            assert held > min(capacity * 0.9, TOTAL)
            read_all(mount, contents)
            assert mount.stat("pfs.bytes") <= TOTAL * 1.05 - held * 0.95
    finally:
        stop.set()
        watcher.join()
    assert len(sizes) > 10 and max(sizes) <= capacity


def test_full_disk(dataset, tmp):
    source, contents = dataset
    (tmp / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M,mode=0700", "none", tmp / "disk"], check=True)
    with clairfs(source, *options(tmp / "disk", ram="32M", capacity="8M")) as mount:
        (tmp / "disk/others").write_bytes(bytes(512 << 10))
        read_all(mount, contents)
        wait_until(lambda: mount.stat("tiers.nvme.copy_bytes") > 6 << 20, "what fits is copied")
        read_all(mount, contents)
        assert mount.stat("reads.failed") == 0
        mount.remount()
        read_all(mount, contents)
        assert mount.stat("reads.failed") == 0
        assert 0 < mount.stat("pfs.bytes") < TOTAL - (6 << 20)


def test_without_nvme_nothing_is_copied(dataset):
    source, contents = dataset
    with clairfs(source, "--ram=32M", "--chunk=64K") as mount:
        read_all(mount, contents)
        assert mount.stat("tiers.nvme.copies") == mount.stat("nvme.writes") == 0
        assert "ram-backup" not in niceness(mount.pid)


def test_copying_yields_to_readers(dataset, nvme):
    with clairfs(dataset[0], *options(nvme, ram=RAM)) as mount:
        wait_until(lambda: niceness(mount.pid)["ram-backup"] == max(os.nice(0), 10), "the thread is nice")


def niceness(pid):
    """{name of a thread: its niceness}, as in proc(5)."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        # A thread may have ended since.
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
            found[name] = int(rest.split()[16])
    return found
