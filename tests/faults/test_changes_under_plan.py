"""Files change on the source while a plan prefetches them: each alone fails, unless it is cached; the plan goes on.
tests/mount/test_source_changes.py does the same without a plan."""

import errno
import os

import pytest
from clairmount import clairfs, logged
from faultlib import CHUNK, assert_hashes, digest, make_dataset, outcome
from planning import plan, predicted, register, wait_ahead
from test_source_changes import CHANGES, GONE

PLAN = "format=files sampler=torch.distributed seed=7 epochs=4"
SIZES = {f"{i % 3}/file{i:03d}": 3000 + i for i in range(90)} | {f"large{i}": 6 * CHUNK + i for i in range(10)}
CHANGED = ("rewritten", "replaced", "truncated", "emptied", "grown", "deleted", "now a directory", "now a symlink")


@pytest.mark.parametrize("change", CHANGED)
def test_changed_ahead_of_the_reader(tmp, change):
    hashes = make_dataset(tmp / "src", SIZES)
    orders = [predicted(tmp / "src", PLAN, epoch, 0) for epoch in range(4)]
    names = orders[0]
    victims = {next(n for n in names[50:] if n.startswith("large")), next(n for n in names[50:] if "/" in n)}
    # Two chunks of RAM: what is not in the window has to come from the source.
    with clairfs(tmp / "src", "--ram=128K", "--chunk=64K", "--staging=512K") as mount:
        register(mount, PLAN)
        for epoch in range(4):
            for at, name in enumerate(orders[epoch]):
                if epoch == 0 and at == 10:
                    for victim in victims:
                        CHANGES[change](tmp / "src" / victim)
                if name in victims and (epoch, at) > (0, 10):
                    # What was cached before the change is still served, whole and as it was.
                    code = outcome(mount, name)
                    assert code in (0, errno.ESTALE), errno.errorcode[code]
                    assert code or digest(mount.path / name) == hashes[name]
                else:
                    assert digest(mount.path / name) == hashes[name], (epoch, name)
                if at % 8 == 0 and at < len(names) - 16:
                    wait_ahead(mount, 1)  # a reader that leaves staging behind finds pages of the last epoch
        assert plan(mount)["suspensions"] == 0, plan(mount)
        assert mount.stat("pfs.stale_files") >= len(victims)
        for victim in victims:
            assert logged(mount, "changed on the source", victim)


@pytest.mark.parametrize(("form", "change"), [
    *[("raw", change) for change in ("rewritten", "replaced", "truncated", "emptied", "grown", "deleted")],
    *[(form, change) for form in ("lmdb", "npy", "hdf5") for change in ("rewritten", "replaced", "truncated")],
])  # fmt: skip
def test_file_of_records_changed_ahead_of_the_reader(tmp, form, change):
    """All that is not cached fails from then on, in the middle of a record, too."""
    records = pytest.importorskip("record_plans")  # needs NumPy
    if form in ("lmdb", "hdf5"):
        pytest.importorskip({"lmdb": "lmdb", "hdf5": "h5py"}[form])
    (tmp / "src").mkdir()
    write = {"raw": records.write_raw, "lmdb": records.write_lmdb, "npy": records.write_npy, "hdf5": records.write_hdf5}[form]
    text, job, _ = write(tmp / "src", 300, records.LARGE)
    text += " " + records.sampler(True, batch=records.BATCH, seed=7, epochs=2)
    places = [place for (place,) in records.ranges_of(text, tmp / "src", 2)]
    victim = tmp / "src" / job["path"]
    content = victim.read_bytes()
    changed_at = 100
    failed = 0
    # Less memory than the file has: what is on its way takes 16 MiB.
    with clairfs(tmp / "src", "--ram=128K", "--chunk=64K", "--staging=4M") as mount:
        records.start(mount, text)
        with open(mount.path / job["path"], "rb", buffering=0) as file:
            for n, (offset, length) in enumerate(places):
                if n == changed_at:
                    CHANGES[change](victim)
                elif n < changed_at and n % records.BATCH == 0:
                    records.wait_ready(mount, n, len(places))
                try:
                    there = os.pread(file.fileno(), length, offset)
                except OSError as error:
                    assert error.errno in GONE, error
                    there = b""
                assert there == content[offset : offset + len(there)], n
                failed += len(there) < length
                assert failed == 0 or n >= changed_at, n
        # What keeps the old file open may go on reading it.
        assert failed > 0 or change in ("replaced", "deleted")
        assert plan(mount)["suspensions"] == 0, plan(mount)
        assert failed == 0 or len(logged(mount, "changed on the source", job["path"])) == 1
        assert mount.process.poll() is None


def test_whole_source_vanishes_ahead_of_the_reader(tmp):
    hashes = make_dataset(tmp / "src", SIZES)
    names = predicted(tmp / "src", PLAN, 0, 0)
    with clairfs(tmp / "src", "--ram=128K", "--chunk=64K", "--staging=64K") as mount:
        register(mount, PLAN)
        wait_ahead(mount, 1)
        assert_hashes(mount, hashes, names[:30])
        os.rename(tmp / "src", tmp / "elsewhere")
        os.rename(tmp / "elsewhere", tmp / "src")  # the daemon holds the directory, not its name
        assert_hashes(mount, hashes, names[30:60])
        for name in hashes:
            os.unlink(tmp / "src" / name)
        codes = [outcome(mount, name) for name in names]
        assert set(codes) <= {0, errno.ESTALE} and codes.count(errno.ESTALE) > 50
        assert mount.process.poll() is None
