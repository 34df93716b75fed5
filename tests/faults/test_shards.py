"""Shards that workers read from front to back under a plan, while what lies below breaks: each of them gives its bytes or an
error, in time."""

import contextlib
import errno
import subprocess

import pytest
from clairmount import clairfs, drop_page_cache, slowfs, tempdir, wait_until
from faultlib import PATIENCE, in_background, joined
from mounting import only_root
from nvme_data import options
from planning import register
from stream_readers import READERS
from test_source_changes import CHANGES, GONE
from test_streams import MIB, PLAN, make_shards, orders_of

WORKERS, EPOCHS = 4, 3
SHARDS, MEAN = 24, 4 * MIB
# Far less than the shards have, also with the 16 MiB for what is on its way: each epoch reads from the source.
OPTIONS = ["--ram=4M", "--chunk=1M", "--staging=16M"]
TOLD = {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO}  # EIO: of a page that never came


class Shards:
    """A folder of them, and the pieces that a reader delivers of each."""

    def __init__(self, folder, kind):
        self.folder, self.kind = folder, kind
        self.names = make_shards(folder, kind, SHARDS, MEAN)
        self.pieces = {name: list(READERS[kind](folder / name)) for name in self.names}

    def plan(self, mount):
        register(mount, f"format={self.kind} {PLAN} workers={WORKERS} epochs={EPOCHS}")

    def read(self, path):
        """0, or the errno with which reading the shard ends. Whatever comes before is right."""
        expected = self.pieces[path.name]
        got = 0
        try:
            for piece in READERS[self.kind](path):
                assert got < len(expected) and piece == expected[got], f"piece {got} of {path} is wrong"
                got += 1
        except OSError as error:
            return error.errno
        assert got == len(expected), f"{path} ends after {got} pieces"
        return 0

    def codes(self, root):
        return {name: self.read(root / name) for name in self.names}


class Workers:
    """Threads that go through their shards as the plan has them, whatever becomes of each."""

    def __init__(self, mount, shards):
        self.ended = []  # (shard, 0 or its errno)
        self.broken = []  # wrong bytes, and what is no answer of a filesystem
        orders = orders_of(shards.names, EPOCHS, 1, WORKERS)
        self.threads = [in_background(self.work, mount.path, shards, epochs) for epochs in orders.values()]

    def work(self, root, shards, epochs):
        try:
            for names in epochs:
                for name in names:
                    self.ended.append((name, shards.read(root / name)))
        except BaseException as error:
            self.broken.append(error)

    def progress(self, count):
        """Waits until that many more shards have been read."""
        goal = len(self.ended) + count
        wait_until(lambda: len(self.ended) >= goal or self.broken, f"{goal} shards read", PATIENCE)
        assert not self.broken, self.broken

    def done(self):
        return not any(thread.is_alive() for thread in self.threads)

    def finish(self):
        """How each shard of each epoch ended."""
        for thread in self.threads:
            joined(thread)
        assert not self.broken, self.broken
        assert len(self.ended) == SHARDS * EPOCHS
        return self.ended


@pytest.fixture(scope="module", params=["tar", "tfrecord"])
def shards(request):
    with tempdir() as tmp:
        yield Shards(tmp / "src", request.param)


@pytest.fixture
def pfs(shards):
    with slowfs(shards.folder, "--bandwidth", "60M") as served:  # faults come while there is much left to read
        yield served


@pytest.mark.parametrize("fault", ["eio * 20", "eio-all"])
def test_source_fails_for_a_time(shards, pfs, fault):
    with clairfs(pfs.path, *OPTIONS) as mount:
        shards.plan(mount)
        workers = Workers(mount, shards)
        workers.progress(8)
        pfs.command(fault)
        wait_until(lambda: pfs.counters()["eio"] >= 20 or workers.done(), "20 errors are met")
        pfs.command("clear")
        assert {code for _, code in workers.finish()} <= {0, errno.EIO}
        assert pfs.counters()["eio"] > 0
        assert set(shards.codes(mount.path).values()) == {0}


def test_source_hangs_for_a_time(shards, pfs):
    """Who reads waits, and gets all bytes when that is over."""
    with clairfs(pfs.path, *OPTIONS) as mount:
        shards.plan(mount)
        workers = Workers(mount, shards)
        workers.progress(8)
        pfs.command("hang * 3600")
        wait_until(lambda: pfs.counters()["hung"] > 0, "something hangs")
        assert not workers.done()
        pfs.command("clear")
        assert {code for _, code in workers.finish()} == {0}
        assert mount.stat("reads.failed") == 0


@pytest.mark.parametrize("change", ["truncated", "replaced"])
@pytest.mark.parametrize("kind", ["tar", "tfrecord"])
def test_shards_change_ahead_of_their_readers(tmp, kind, change):
    """What is not cached fails. To no reader does a shard look shorter than it was."""
    shards = Shards(tmp / "src", kind)
    victims = {name for i, name in enumerate(shards.names) if i % 3}
    with clairfs(tmp / "src", *OPTIONS) as mount:
        shards.plan(mount)
        workers = Workers(mount, shards)
        workers.progress(8)
        for name in victims:
            CHANGES[change](tmp / "src" / name)
        ended = workers.finish()
        for name in shards.names:
            with contextlib.suppress(OSError):
                drop_page_cache(mount.path / name)
        ended += shards.codes(mount.path).items()
        failed = [(name, code) for name, code in ended if code]
        assert not [(name, code) for name, code in failed if name not in victims or code not in GONE], failed
        # What keeps an old file open may go on reading it.
        assert failed or change == "replaced"
        assert mount.process.poll() is None


def test_daemon_is_killed_while_they_are_read(shards, pfs, tmp):
    """The next mount has the shards again, also those of the NVMe tier that was being written."""
    (tmp / "nvme").mkdir(mode=0o700)
    with clairfs(pfs.path, *OPTIONS, f"--nvme={tmp / 'nvme'}:24M") as mount:
        for _ in range(3):
            shards.plan(mount)
            workers = Workers(mount, shards)
            workers.progress(8)
            assert mount.kill() != 0
            codes = {code for _, code in workers.finish()}
            assert codes - {0}
            assert codes <= {0} | TOLD
            mount.remount()
        shards.plan(mount)
        assert {code for _, code in Workers(mount, shards).finish()} == {0}
        assert mount.stat("reads.failed") == 0


@only_root
def test_disk_of_the_nvme_tier_is_filled(shards, pfs, tmp):
    (tmp / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M,mode=0700", "none", tmp / "disk"], check=True)
    with clairfs(pfs.path, *options(tmp / "disk", "--staging=16M", capacity="4M")) as mount:
        shards.plan(mount)
        workers = Workers(mount, shards)
        wait_until(lambda: mount.stat("nvme.writes") > 0, "the tier is written")
        with contextlib.suppress(OSError), open(tmp / "disk/filler", "wb") as filler:
            while True:
                filler.write(b"x" * 65536)
                filler.flush()
        assert {code for _, code in workers.finish()} == {0}
        assert mount.stat("reads.failed") == 0
