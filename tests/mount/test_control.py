"""The files below .clairfs: where they are, what they hold, that they are fresh, and that they leave nothing."""

import json
import os
import pathlib
import re
import stat

import pytest
from clairmount import clairfs, make_tree, wait_until
from mounting import error_name, run

FILES = ["accesslog", "config", "metrics", "stats.json", "status"]
SIZE = 300_000


@pytest.fixture
def mount(tmp):
    make_tree(tmp / "src", {"a/file": SIZE, "a/new\nline": 10, "b": 0})
    with clairfs(tmp / "src", "--ram=64M", "--chunk=128K") as mounted:
        yield mounted


def test_reachable_but_not_listed(mount):
    assert os.listdir(mount.path) == ["a", "b"]
    assert sorted(folder for folder, _, _ in os.walk(mount.path)) == [str(mount.path), str(mount.path / "a")]
    listed = os.listdir(mount.path / ".clairfs")
    assert set(FILES) <= set(listed) and len(listed) == len(set(listed))
    assert all((mount.path / ".clairfs" / name).is_file() for name in listed)
    assert os.listdir(mount.path) == ["a", "b"]  # also now that the kernel knows it
    assert not os.path.exists(mount.path / "a/.clairfs")
    assert stat.S_ISDIR((mount.path / ".clairfs").stat().st_mode)
    for name in FILES:
        found = (mount.path / ".clairfs" / name).stat()
        assert stat.S_ISREG(found.st_mode) and (found.st_size > 0 or name == "accesslog")
        assert stat.S_IMODE(found.st_mode) == (0o400 if name in ("config", "accesslog") else 0o444)
        assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())
    assert error_name(os.stat, mount.path / ".clairfs/absent") == "ENOENT"
    with os.scandir(mount.path / ".clairfs") as entries:
        assert all(entry.is_file() for entry in entries)


def test_a_source_with_a_directory_of_that_name(tmp):
    """It is left out, before and after a listing: what is asked of the daemon must not be answered by a dataset."""
    make_tree(tmp / "src", {".clairfs/stats.json": 10, ".clairfs/theirs": 10, "file": 10, "sub/.clairfs/file": 10})
    with clairfs(tmp / "src") as mount:
        assert mount.stats()["catalog"]["files"] == 2
        assert sorted(entry.name for entry in os.scandir(mount.path) if entry.stat()) == ["file", "sub"]
        assert mount.stats()["catalog"]["files"] == 2
        assert not os.path.exists(mount.path / ".clairfs/theirs")
        assert (mount.path / "sub/.clairfs/file").read_bytes() == (tmp / "src/sub/.clairfs/file").read_bytes()
        assert ".clairfs is left out" in mount.log()


def test_a_plan_is_one_write(mount):
    (mount.path / ".clairfs/plan").write_text("format=files seed=1\n")
    appending = os.open(mount.path / ".clairfs/plan", os.O_WRONLY | os.O_APPEND)
    try:
        assert error_name(os.write, appending, b"format=files seed=2\n") == "EINVAL"
    finally:
        os.close(appending)
    assert "use > and not >>" in mount.control("last_error")
    assert mount.stats()["plan_list"][0]["text"].count("seed=1") == 1


def test_stats_has_the_documented_keys(mount):
    content = (mount.path / "a/file").read_bytes()

    def delivered():
        return sum(mount.stats()["bytes"][origin] for origin in ("ram", "pfs"))

    wait_until(
        lambda: mount.stat("stall_seconds") > 0 and delivered() == len(content),
        "waits and bytes are counted, a moment after the answer",
    )
    stats = mount.stats()
    for operation in ("lookup", "getattr", "open", "read", "readdir", "getxattr", "forget", "refused"):
        assert isinstance(stats["fuse"]["requests"][operation], int)
    assert stats["pfs"]["opens"] >= 1 and stats["pfs"]["bytes"] == SIZE
    for tier in ("ram", "nvme"):
        assert 0 <= stats["tiers"][tier]["bytes"] <= max(stats["tiers"][tier]["capacity"], 0)
    assert stats["tiers"]["ram"]["capacity"] == 64 << 20
    assert SIZE <= stats["tiers"]["ram"]["bytes"] <= SIZE + 3 * 4096
    assert stats["reads"]["pfs"] >= 1
    assert stats["catalog"] | {"memory_bytes": 0} == {
        "files": 3, "directories": 2, "bytes": SIZE + 10, "memory_bytes": 0, "skipped": 0, "unreadable": 0,
    }  # fmt: skip
    assert stats["pfs"]["latency"]["count"] == stats["pfs"]["reads"]
    assert stats["mountpoint"] == str(mount.path) and stats["source"] == str(mount.source)
    assert stats["daemon"]["pid"] == mount.pid and stats["io"] in ("uring", "threads")


def test_each_reading_is_fresh(mount):
    path = mount.path / ".clairfs/stats.json"
    numbers = []
    for _ in range(5):
        (mount.path / "a/file").stat()
        numbers.append(json.loads(path.read_text())["fuse"]["requests"]["lookup"])
    assert numbers == sorted(set(numbers))
    # One reading is of one moment, however slowly it goes.
    with open(path, "rb", buffering=0) as file:
        begin = file.read(100)
        (mount.path / "a/file").read_bytes()
        file.seek(0)
        assert file.read(100) == begin
        json.loads(begin + file.read())


@pytest.mark.alone
def test_snapshots_are_freed(mount):
    before = mount.stat("fuse.requests.forget")
    for _ in range(200):
        mount.control("metrics")
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("2\n")
    assert mount.stat("fuse.requests.forget") - before >= 200
    assert mount.stats()["catalog"]["files"] == 3


@pytest.mark.alone
def test_open_snapshot_outlives_its_name(mount):
    with open(mount.path / ".clairfs/config", "rb") as file:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")
        assert file.read().decode() == mount.control("config")


SAMPLE = re.compile(r'([a-z_][a-z0-9_]*)(?:\{le="([^"]+)"\})? (\S+)')


def test_metrics_are_prometheus_text(mount):
    (mount.path / "a/file").read_bytes()
    text = mount.control("metrics")
    assert text.endswith("\n")
    helps, types, buckets, values = set(), {}, {}, {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, explanation = line.split(" ", 3)[2:]
            assert name not in helps and explanation
            helps.add(name)
        elif line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:]
            assert name in helps and kind in ("counter", "gauge", "histogram")
            types[name] = kind
        else:
            name, bound, value = SAMPLE.fullmatch(line).groups()
            base = re.sub("_(bucket|sum|count)$", "", name) if name not in types else name
            assert base in types and name.startswith("clairfs_")
            assert types[base] != "counter" or name.endswith("_total")
            if bound:
                buckets.setdefault(base, []).append((float(bound), float(value)))
            else:
                values[name] = float(value)
    assert set(types) == helps
    for name, kind in types.items():
        if kind == "histogram":
            bounds, counts = zip(*buckets[name])
            assert list(bounds) == sorted(set(bounds)) and list(counts) == sorted(counts)
            assert bounds[-1] == float("inf") and counts[-1] == values[f"{name}_count"]
            assert values[f"{name}_sum"] >= 0
    assert values["clairfs_pfs_bytes_total"] == SIZE
    assert values["clairfs_tiers_ram_capacity"] == 64 << 20
    assert values["clairfs_pfs_latency_seconds_count"] == values["clairfs_pfs_reads_total"]
    assert values["clairfs_fuse_requests_read_total"] > 0


def test_config_shows_the_options_in_force(mount, tmp):
    text = mount.control("config")
    options = dict(line.split("=", 1) for line in text.splitlines())
    assert options["ram"] == str(64 << 20) and options["chunk"] == str(128 << 10)
    assert options["allow-other"] == "false" and options["catalog-dir"] == str(mount.catalog_dir)
    # It is a config file itself.
    (tmp / "config").write_text(text)
    with clairfs(mount.source, "--config", tmp / "config") as again:
        of_dirs = re.compile("(?m)^catalog-dir=.*\n")
        assert of_dirs.sub("", again.control("config")) == of_dirs.sub("", text)


LOG_LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z read (?P<path>.*) offset=(?P<offset>\d+) length=(?P<length>\d+) "
    r"from=(?P<origin>ram|nvme|peer|pfs)(?P<joined> joined)? waited=\S+( \S+)?(?P<error> error=.*)?"
)


def test_access_log(mount):
    (mount.path / "a/file").read_bytes()
    (mount.path / "a/new\nline").read_bytes()

    def read_log():
        return [LOG_LINE.fullmatch(line) for line in mount.control("accesslog").splitlines()]

    # A line comes after the answer.
    wait_until(lambda: sum(int(entry["length"]) for entry in read_log() if entry) == SIZE + 10, "all lines")
    entries = read_log()
    assert all(entries)
    assert entries[0]["path"] == "a/file" and entries[0]["offset"] == "0" and entries[0]["origin"] == "pfs"
    assert sum(int(entry["length"]) for entry in entries if entry["path"] == "a/file") == SIZE
    assert [entry["length"] for entry in entries if entry["path"] == r"a/new\nline"] == ["10"]


def test_access_log_is_bounded(tmp):
    make_tree(tmp / "src", {f"{i % 10}/{i}": 1 for i in range(3000)})
    with clairfs(tmp / "src") as mount:
        for _ in range(2):
            for name in sorted(mount.source.rglob("*/*")):
                fd = os.open(mount.path / name.relative_to(mount.source), os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                assert len(os.read(fd, 2)) == 1
                os.close(fd)
        lines = mount.control("accesslog").splitlines()
        assert mount.stat("fuse.requests.read") >= 6000
        assert 100 <= len(lines) < 6000
        assert " from=ram" in lines[-1]


def test_status_is_for_people(mount):
    (mount.path / "a/file").read_bytes()
    text = mount.control("status")
    for part in (str(mount.source), str(mount.path), str(mount.pid), "3 files", "RAM", "NVMe", "PFS", "Troubles\n  none"):
        assert part in text
    assert run("status", mount.path / "a").stdout.splitlines()[1:4] == text.splitlines()[1:4]
    assert json.loads(run("status", "--json", mount.path).stdout)["daemon"]["pid"] == mount.pid
