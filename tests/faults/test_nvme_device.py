"""The NVMe device fails under load: EIO or ENOSPC on reads, writes or the index. The tier is lost, the mount is not."""

import errno
import signal
import subprocess

import pytest
from clairmount import clairfs, is_mounted, logged, wait_until
from faultlib import CHUNK, PATIENCE, assert_hashes, make_dataset, reading
from mounting import io_choices, only_root
from planning import register
from preload import faults

__all__ = ["faults"]
FILES = {f"{i % 5}/file{i:03d}": 20_000 + 997 * i for i in range(200)}
DRAIN_SECONDS = 10  # kDrainPatience of mount-helper/serve/mount_point.h
GIVEN_UP = {"read": "switched off", "write": "no longer written", "index": "no longer written"}
PLAN = "format=files sampler=torch.distributed seed=7 epochs=1000"


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("what", ["read", "write", "index"])
def test_device_fails_under_load(tmp, faults, what, code):
    hashes = make_dataset(tmp / "src", FILES)
    nvme = tmp / "nvme"
    options = ["--ram=0", "--chunk=64K", "--staging=512K", f"--nvme={nvme}:64M", "--io=threads"]
    nvme.mkdir(mode=0o700)
    with clairfs(tmp / "src", *options, env=faults.env) as mount:
        register(mount, PLAN)
        with reading(mount.path, hashes) as readers:
            wait_until(lambda: mount.stat("tiers.nvme.chunks") > 30, "chunks are on NVMe")
            setattr(faults, f"{what}_errno", code)
            wait_until(lambda: faults.hits > 0, "the fault is met")
            readers.progress(500)
            # A full disk takes no more, and may again.
            disabled = int((what, code) != ("write", errno.ENOSPC))
            wait_until(lambda: mount.stat("tiers.nvme.disabled") == disabled, "the tier is given up")
        assert not readers.errors
        stats = mount.stats()
        assert stats["tiers"]["nvme"]["disabled"] == disabled
        assert stats["reads"]["failed"] == stats["nvme"]["checksum_failures"] == 0
        assert logged(mount, GIVEN_UP[what]) if disabled else GIVEN_UP[what] not in mount.log()
        assert_hashes(mount, hashes)
        # A fault that is over leaves a store that is warm with what was written before.
        setattr(faults, f"{what}_errno", 0)
        mount.remount(env=faults.env)
        assert_hashes(mount, hashes)
        stats = mount.stats()
        assert stats["reads"]["failed"] == stats["nvme"]["checksum_failures"] == stats["nvme"]["errors"] == 0
        assert stats["reads"]["nvme"] > 0


def test_device_that_hangs_is_told_until_it_answers(tmp, faults):
    """The first reader waits ten seconds, the others get what it has from the source."""
    hashes = make_dataset(tmp / "src", FILES)
    nvme = tmp / "nvme"
    nvme.mkdir(mode=0o700)
    options = ["--ram=0", "--chunk=64K", f"--nvme={nvme}:64M", "--io=threads"]
    with clairfs(tmp / "src", *options, env=faults.env) as mount:

        def filled():  # a reader that is faster than the disk leaves it out, so it may take several rounds
            assert_hashes(mount, hashes)
            return mount.stat("tiers.nvme.chunks") > 100

        wait_until(filled, "chunks are on NVMe", PATIENCE)
        mount.remount(env=faults.env)  # nothing is in memory now
        assert mount.stats()["troubles"] == []
        faults.read_hang = 3600
        assert_hashes(mount, hashes)
        (trouble,) = mount.stats()["troubles"]
        assert trouble["kind"] == "nvme_silent" and trouble["first"].startswith(f"{nvme}: no answer for ")
        assert mount.stat("tiers.nvme.silent") == 1
        assert "does not answer" in mount.control("status").split("Troubles")[1]
        assert 'kind="nvme_silent"' in mount.control("metrics")
        faults.read_hang = 0
        wait_until(lambda: mount.stats()["troubles"] == [], "the device answers")
        assert_hashes(mount, hashes)
        stats = mount.stats()
        assert stats["reads"]["failed"] == stats["nvme"]["checksum_failures"] == stats["tiers"]["nvme"]["silent"] == 0
        assert stats["reads"]["nvme"] > 0


def test_device_that_hangs_holds_up_no_other(tmp, faults):
    """Though as many operations of it are under way as there may be of one device."""
    sizes = {f"{i % 5}/file{i:03d}": CHUNK for i in range(400)}
    hashes = make_dataset(tmp / "src", sizes)
    names = list(hashes)
    old, new = names[:100], names[100:]
    for folder in ("one", "two"):
        (tmp / folder).mkdir(mode=0o700)
    options = ["--ram=0", f"--chunk={CHUNK}", f"--nvme={tmp / 'one'}:64M", f"--nvme={tmp / 'two'}:64M", "--io=threads"]
    with clairfs(tmp / "src", *options, env=faults.env | {"CLAIRFS_FAULTS_HANG": "/one/segment-"}) as mount:
        assert_hashes(mount, hashes, old)
        wait_until(lambda: mount.stat("tiers.nvme.chunks") > 0.8 * len(old), "chunks are on both", PATIENCE)
        faults.write_hang = 3600
        assert_hashes(mount, hashes, new)  # memory for chunks on their way has none of the old ones then
        wait_until(lambda: mount.stat("tiers.nvme.silent") == 1, "the one that hangs is known", PATIENCE)
        before = mount.stat("reads.nvme")
        assert_hashes(mount, hashes, old)
        stats = mount.stats()
        assert stats["reads"]["nvme"] >= before + len(old) // 4
        assert stats["tiers"]["nvme"]["silent"] == 1
        faults.write_hang = 0
        assert_hashes(mount, hashes)


def test_unmount_does_not_wait_for_a_device_that_hangs(tmp, faults):
    """Copies of the RAM tier are not worth it. Readers have not noticed."""
    hashes = make_dataset(tmp / "src", FILES)
    (tmp / "nvme").mkdir(mode=0o700)
    options = ["--ram=32M", "--chunk=64K", f"--nvme={tmp / 'nvme'}:64M", "--io=threads"]
    with clairfs(tmp / "src", *options, env=faults.env) as mount:
        faults.write_hang = 3600
        assert_hashes(mount, hashes)
        wait_until(lambda: faults.hits > 0, "a copy hangs")
        assert_hashes(mount, hashes)
        stats = mount.stats()
        assert stats["reads"]["failed"] == stats["tiers"]["nvme"]["chunks"] == 0
        mount.process.send_signal(signal.SIGTERM)
        mount.wait(2 * DRAIN_SECONDS + PATIENCE)
        assert not is_mounted(mount.path)
        assert "not all of the RAM tier was copied" in mount.log()
        faults.write_hang = 0
        mount.remount(env=faults.env)
        assert_hashes(mount, hashes)


@only_root
@pytest.mark.parametrize("io", io_choices())
def test_device_promises_more_than_it_has(tmp, io):
    """Thinly provisioned: the filesystem has room, and writes to its device fail. The only real error that io_uring meets."""
    hashes = make_dataset(tmp / "src", FILES)
    for folder in ("backing", "nvme"):
        (tmp / folder).mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "none", tmp / "backing"], check=True)
    image = tmp / "backing/image"
    subprocess.run(["truncate", "-s", "128M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", "-O", "^has_journal", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, tmp / "nvme"], check=False).returncode != 0:
        pytest.skip("loop devices cannot be used here")
    (tmp / "nvme/tier").mkdir(mode=0o700)
    options = ["--ram=0", "--chunk=64K", "--staging=512K", f"--nvme={tmp / 'nvme/tier'}:64M", f"--io={io}"]
    with clairfs(tmp / "src", *options) as mount:
        register(mount, PLAN)
        with reading(mount.path, hashes) as readers:
            wait_until(lambda: mount.stat("nvme.errors") > 0, "writes fail")
            readers.progress(500)
        assert not readers.errors
        stats = mount.stats()
        # A loop device may call a write done that was cut short, so checksums may be wrong here.
        assert stats["reads"]["failed"] == 0 < stats["reads"]["nvme"]
        assert_hashes(mount, hashes)
