"""The indexes of packed files on real mounts: made once, ahead if asked for, and nobody waits for a long one."""

import os
import random
import subprocess

import clairmount
import pytest
from made_up_lmdb import make_lmdb
from planning import cancel, plan, register

lmdb = pytest.importorskip("lmdb")

PLAN = "format=lmdb file=rows.lmdb keys=decimal shuffle=false"


def write_rows(folder, count, size):
    folder.mkdir(exist_ok=True)
    rng = random.Random(1)
    values = [rng.randbytes(size + i % 7) for i in range(count)]
    with lmdb.open(str(folder / "rows.lmdb"), subdir=False, map_size=1 << 32) as env, env.begin(write=True) as txn:
        for i, value in enumerate(values):
            txn.put(b"%d" % i, value)
    return values


def index(path, *words):
    done = subprocess.run([clairmount.binary(), "index", path, *words], capture_output=True, text=True, timeout=60,
                          check=False)
    return done.returncode, done.stdout + done.stderr


def said(*words):
    done = subprocess.run([clairmount.binary(), *words], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def pfs_bytes(mount):
    return mount.stat("pfs.bytes")


def in_force(mount):
    clairmount.wait_until(lambda: "ahead" in plan(mount), "the plan to be in force")


def test_an_index_is_made_ahead_and_serves_plans_and_mounts(tmp):
    values = write_rows(tmp / "src", 1000, 9000)
    with clairmount.clairfs(tmp / "src", "--ram", "16M") as mount:
        status, report = index(mount.path / "rows.lmdb", "keys=decimal")
        assert status == 0, report
        assert "samples  1000 in 1 file (format=lmdb)" in report
        assert "smallest 8.8 KiB, largest 8.8 KiB" in report
        assert "saved in" in report
        (saved,) = (mount.catalog_dir / "index").iterdir()
        assert str(saved) in report
        assert (saved.stat().st_mode & 0o7777, saved.parent.stat().st_mode & 0o7777) == (0o600, 0o700)
        read = pfs_bytes(mount)
        assert 0 < read < sum(map(len, values)) / 50
        status, report = index(mount.path / "rows.lmdb", "keys=decimal")
        assert status == 0, report
        assert "reloaded" in report
        assert pfs_bytes(mount) == read
        listed = subprocess.run([clairmount.binary(), "cache", "list", "--catalog-dir", mount.catalog_dir],
                                capture_output=True, text=True, timeout=60, check=True).stdout
        assert [line for line in listed.splitlines() if line.startswith("index ") and " in use " in line
                and str(tmp / "src") in line and str(saved) in line], listed

        mount.remount()
        assert index(mount.path / "rows.lmdb", "keys=decimal")[0] == 0
        assert pfs_bytes(mount) == 0  # of this mount
        register(mount, PLAN)
        assert plan(mount)["samples"] == 1000


def test_an_index_that_is_damaged_or_of_a_changed_file_is_made_anew(tmp):
    write_rows(tmp / "src", 1000, 9000)
    with clairmount.clairfs(tmp / "src", "--ram", "16M") as mount:
        assert index(mount.path / "rows.lmdb", "keys=decimal")[0] == 0
        (saved,) = (mount.catalog_dir / "index").iterdir()
        damaged = bytearray(saved.read_bytes())
        damaged[-5] ^= 1
        saved.write_bytes(damaged)
        status, report = index(mount.path / "rows.lmdb", "keys=decimal")
        assert (status, "made in" in report) == (0, True), report
        assert clairmount.logged(mount, "checksum")
        mount.umount()
        (tmp / "src/rows.lmdb").unlink()
        write_rows(tmp / "src", 500, 9000)
        mount.remount()
        status, report = index(mount.path / "rows.lmdb", "keys=decimal")
        assert (status, "samples  500 " in report) == (0, True), report
        assert clairmount.logged(mount, "rows.lmdb has changed since")


def test_what_cannot_be_indexed_is_refused_with_the_reason(tmp):
    write_rows(tmp / "src", 10, 100)
    (tmp / "src/torn.mdb").write_bytes(b"no database" * 1000)
    (tmp / "src/rows.dat").touch()
    with clairmount.clairfs(tmp / "src") as mount:
        for words, reason in (
            (["none.lmdb", "keys=decimal"], "no such file"),
            (["torn.mdb", "keys=decimal"], "LMDB"),
            (["rows.lmdb"], "keys"),
            (["rows.lmdb", "--format", "parquet"], "format"),
            (["rows.lmdb", "--format", "shards"], "need no index"),
            (["rows.lmdb", "keys=decimal", "sed=1"], "sed"),
            (["rows.dat"], "want --format"),
        ):
            status, report = index(mount.path / words[0], *words[1:])
            assert status != 0 and reason in report, (words, report)


@pytest.mark.parametrize("count", (1, 3, 4, 100))
def test_made_up_databases_are_such_as_the_library_reads(tmp, count):
    """Of one too large to be written a benchmark makes the index."""
    (tmp / "src").mkdir()
    pages = make_lmdb(tmp / "src/rows.lmdb", count, 5000, leaf_records=3, children=4)
    with lmdb.open(str(tmp / "src/rows.lmdb"), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        assert list(txn.cursor()) == [(b"%08d" % i, bytes(5000)) for i in range(count)]
        assert all(txn.get(b"%08d" % i) == bytes(5000) for i in range(count))
        stat = env.stat()
    assert stat["branch_pages"] + stat["leaf_pages"] == pages
    assert (stat["entries"], stat["depth"]) == (count, {1: 1, 3: 1, 4: 2, 100: 4}[count])
    with clairmount.clairfs(tmp / "src", "--ram", "16M") as mount:
        status, report = index(mount.path / "rows.lmdb", "keys=cursor")
        assert (status, f"samples  {count} in 1 file (format=lmdb)" in report) == (0, True), report
        assert "smallest 4.9 KiB, largest 4.9 KiB" in report


def test_nobody_waits_for_a_long_index(tmp):
    values = write_rows(tmp / "src", 1000, 9000)
    (tmp / "src/notes").write_bytes(values[0])
    with clairmount.slowfs(tmp / "src") as pfs, clairmount.clairfs(pfs.path, "--ram", "16M") as mount:
        pfs.command("hang rows.lmdb 600")  # seconds
        register(mount, PLAN)  # returns
        assert (mount.path / "notes").read_bytes() == values[0]
        assert plan(mount)["state"] == "indexing"
        assert "state indexing 0 %" in mount.control("plan")
        assert "indexing 0 %" in mount.control("status")
        assert "indexing 0 %" in said("top", "--once", "--interval", "0.1", mount.path)
        cancel(mount)
        assert mount.stats()["plan_list"] == []
        register(mount, PLAN)
        assert plan(mount)["state"] == "indexing"
        pfs.command("clear")
        in_force(mount)
        with lmdb.open(str(mount.path / "rows.lmdb"), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
            for i, value in enumerate(values):
                assert txn.get(b"%d" % i) == value
        assert os.listdir(mount.catalog_dir / "index")


def test_a_plan_that_is_refused_after_it_was_taken_is_a_trouble(tmp):
    write_rows(tmp / "src", 1000, 9000)
    with clairmount.slowfs(tmp / "src") as pfs, clairmount.clairfs(pfs.path, "--ram", "16M") as mount:
        pfs.command("hang rows.lmdb 600")  # seconds
        register(mount, PLAN)  # returns
        assert plan(mount)["state"] == "indexing"
        assert "plan_failed" not in [t["kind"] for t in mount.stats()["troubles"]]
        assert 'plan="default",state="indexing"} 1' in mount.control("metrics")
        pfs.command("clear\neio rows.lmdb")
        clairmount.wait_until(lambda: plan(mount)["state"] == "failed", "the index to fail")
        (trouble,) = [t for t in mount.stats()["troubles"] if t["kind"] == "plan_failed"]
        assert "plan default could not be made" in trouble["text"] and "Input/output error" in trouble["first"]
        assert "plan default could not be made" in mount.control("status").split("Troubles")[1]
        metrics = mount.control("metrics")
        assert 'plan="default",state="failed"} 1' in metrics and 'kind="plan_failed"} 1' in metrics
        top = said("top", "--once", "--interval", "0.1", mount.path)
        assert any(line.startswith("! ") and "Input/output error" in line for line in top.splitlines())
        assert any(str(mount.path) in line and "trouble" in line for line in said("list").splitlines())
        cancel(mount)
        assert "plan_failed" not in [t["kind"] for t in mount.stats()["troubles"]]


def test_records_inside_leaves_leave_the_source_once(tmp):
    """Their index is nearly the whole file, and so is the warm-up."""
    values = write_rows(tmp / "src", 8000, 1000)
    size = (tmp / "src/rows.lmdb").stat().st_size
    text = "format=lmdb file=rows.lmdb keys=decimal sampler=torch.distributed world=1 batch=8 seed=5 epochs=2"
    words = [clairmount.binary(), "plan", "order", f"{text} root='{tmp / 'src'}'", "--rank", "0", "--epoch"]
    with clairmount.clairfs(tmp / "src", "--ram", "64M", "--staging", "2M") as mount:
        register(mount, text)
        in_force(mount)
        with lmdb.open(str(mount.path / "rows.lmdb"), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
            for epoch in "01":
                order = subprocess.run([*words, epoch], check=True, capture_output=True, timeout=60).stdout.split()
                for i in map(int, order):
                    assert txn.get(b"%d" % i) == values[i]
        assert pfs_bytes(mount) <= 1.1 * size
