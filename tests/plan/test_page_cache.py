"""What a plan may leave in the kernel's page cache (--page-cache): its samples are read from the source once, also
where the tiers hold half of them, until the kernel takes the pages back. Of a plan that does not fit a part stays."""

import os
import pathlib

import clairmount
import pytest
from planning import cached_bytes, plan, predicted, register

FILES = 1500  # so that one sentinel in 128 samples is enough
SIZE = 12_000
EPOCHS = 3
PLAN = f"format=files seed=7 epochs={EPOCHS}"


@pytest.fixture(scope="module")
def source():
    with clairmount.tempdir() as tmp:
        for i in range(FILES):
            (tmp / f"f{i:05d}").write_bytes(bytes([i % 251]) * (SIZE - i % 7))
        yield tmp


def read_epochs(mount, source, epochs):
    for epoch in epochs:
        for name in predicted(source, PLAN, epoch, 0):
            assert (mount.path / name).read_bytes() == (source / name).read_bytes()


def read_unseen(mount, source, epochs):
    """As read_epochs(), but without the ioctl by which CPython before 3.14 tells of each open."""
    for epoch in epochs:
        for name in predicted(source, PLAN, epoch, 0):
            fd = os.open(mount.path / name, os.O_RDONLY)
            assert os.read(fd, 8 * SIZE) == (source / name).read_bytes()
            os.close(fd)


def bytes_of(source):
    return sum(path.stat().st_size for path in pathlib.Path(source).iterdir())


def drop(path):
    """As the kernel does when memory is short."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def half_in_ram(path, *more):
    return clairmount.clairfs(path, "--ram", FILES * SIZE // 2, "--staging", "1M", *more)


@pytest.mark.parametrize("kept, least, most", [("1G", 1, 1.25), ("0", 1.25, EPOCHS), (FILES * SIZE // 2, 1, 1.25)])
def test_what_may_be_kept_is_read_from_the_source_once(source, kept, least, most):
    """Without the page cache the half that no tier keeps is read again, but for what is still in memory on its way: 1.34 S."""
    with clairmount.slowfs(source) as pfs, half_in_ram(pfs.path, "--page-cache", kept) as mount:
        register(mount, PLAN)
        read_epochs(mount, source, range(EPOCHS))
        assert least * bytes_of(source) <= pfs.counters()["bytes"] <= most * bytes_of(source)
        assert plan(mount)["suspensions"] == 0


def test_pages_that_the_kernel_takes_back_are_pushed_again(source):
    with clairmount.slowfs(source) as pfs, half_in_ram(pfs.path, "--page-cache", "1G") as mount:
        register(mount, PLAN)
        read_epochs(mount, source, [0])
        for i in range(FILES):
            drop(mount.path / f"f{i:05d}")
        reads = mount.stat("fuse.requests.read")
        read_epochs(mount, source, [1, 2])
        assert mount.stat("fuse.requests.read") - reads < FILES  # and not 2 * FILES


def test_a_plan_that_is_kept_stays_when_another_one_of_it_comes(source):
    """The room is shared: what does not fit beside it is staged as without the option."""
    with half_in_ram(source, "--page-cache", FILES * 3 * 4096) as mount:
        register(mount, f"name=one {PLAN}")
        clairmount.wait_until(lambda: plan(mount, "one")["ahead"] >= FILES, "all of it is pushed")
        register(mount, f"name=two {PLAN.replace('seed=7', 'seed=8')}")
        clairmount.wait_until(lambda: plan(mount, "two")["ahead"] > 0, "the other is staged")
        assert plan(mount, "two")["ahead"] < FILES
        assert sum(cached_bytes(mount.path / f"f{i:05d}") for i in range(0, FILES, 50)) > 0.9 * FILES / 50 * 3 * 4096


@pytest.fixture(scope="module")
def larger():
    """Memory for chunks on their way cannot hold it."""
    with clairmount.tempdir() as tmp:
        for i in range(FILES):
            (tmp / f"f{i:05d}").write_bytes(bytes([i % 251]) * (4 * SIZE - i % 7))
        yield tmp


def there(mount):
    """Bytes of all files that are in the page cache."""
    return sum(cached_bytes(mount.path / f"f{i:05d}") for i in range(FILES))


def wait_kept(mount, most):
    """What stays and what goes of the samples that were read last is decided after they were read. A few pages less may
    stay: those that the kernel took back meanwhile."""
    clairmount.wait_until(lambda: 0.98 * most <= mount.stat("staging.kept") <= most, f"{most} bytes are kept", 120 * clairmount.SLOWNESS)
    clairmount.wait_until(lambda: there(mount) <= most + (3 << 20), "the rest is dropped, but for the window", 120 * clairmount.SLOWNESS)


@pytest.mark.parametrize("read", [read_epochs, read_unseen])
def test_of_a_plan_that_does_not_fit_a_part_stays(larger, read):
    """Tiers and page cache together hold three quarters of it."""
    pages = FILES * 3 * 4 * 4096
    used = {}  # of the source, in datasets; memory for chunks on their way is a cache, too
    for kept in (0, 0.5):
        sizes = "--ram", pages // 4, "--staging", "1M", "--page-cache", int(kept * pages)
        with clairmount.slowfs(larger) as pfs, clairmount.clairfs(pfs.path, *sizes) as mount:
            register(mount, PLAN)
            read(mount, larger, [0])
            wait_kept(mount, int(kept * pages))
            assert 0.98 * kept * pages <= there(mount)
            pushed = mount.stat("staging.pushed")
            read(mount, larger, range(1, EPOCHS))
            assert plan(mount)["suspensions"] == 0
            assert mount.stat("staging.pushed") - pushed <= (1 - kept) * (EPOCHS - 1) * FILES + 200
            used[kept] = pfs.counters()["bytes"] / bytes_of(larger)
    assert used[0.5] <= 1.6 and used[0.5] <= used[0] - 0.3, used


RECORD = 4 * SIZE


@pytest.fixture(scope="module")
def rows():
    with clairmount.tempdir() as tmp:
        with open(tmp / "rows.bin", "wb") as out:
            for i in range(FILES):
                out.write(bytes([i % 251]) * RECORD)
        yield tmp


def test_of_large_records_that_do_not_fit_a_part_stays(rows):
    """The reader always has staging before it, so that no clock decides what is brought by whom."""
    text = f"format=raw file=rows.bin record={RECORD} seed=7 epochs={EPOCHS}"
    names = [name for epoch in range(EPOCHS) for name in predicted(rows, text, epoch, 0)]
    numbers = [int(name.removeprefix("rows.bin[").removesuffix("]")) for name in names]
    used = {}  # of the source, in datasets
    for kept in (0, 0.4):
        room = int(kept * FILES * RECORD)
        sizes = "--ram", FILES * RECORD // 4, "--staging", "8M", "--page-cache", room
        with clairmount.slowfs(rows) as pfs, clairmount.clairfs(pfs.path, *sizes) as mount:
            register(mount, text)
            with open(mount.path / "rows.bin", "rb", buffering=0) as file:
                for n, i in enumerate(numbers):
                    if n % 16 == 0:
                        clairmount.wait_until(lambda n=n: is_ahead(mount, n), lambda n=n: f"{n} {plan(mount)}")
                    assert os.pread(file.fileno(), RECORD, i * RECORD) == bytes([i % 251]) * RECORD
                    if n == FILES:
                        assert 0.9 * room <= mount.stat("staging.kept") <= room
            assert plan(mount)["suspensions"] == 0
            used[kept] = pfs.counters()["bytes"] / bytes_of(rows)
    assert used[0.4] <= used[0] - 0.4, used  # twice 0.4, but for records of which a tier has a part


def is_ahead(mount, read):
    state = plan(mount)
    return state["state"] == "finished" or state["passed"] + state["ahead"] >= min(read + 48, EPOCHS * FILES)
