"""The files below .clairfs: where they are, what they hold, that they are fresh, and that they leave nothing."""

import json
import os
import pathlib
import re
import stat
import subprocess
import time

import pytest
from clairmount import REPO, clairfs, drop_page_cache, logged, make_tree, wait_until
from mounting import error_name, run

FILES = ["accesslog", "config", "history", "metrics", "stats.json", "status"]
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
        assert logged(mount, ".clairfs is left out")


def plan_texts(mount):
    return [plan["text"] for plan in mount.stats()["plan_list"]]


def test_a_plan_is_not_appended_to_another(mount):
    (mount.path / ".clairfs/plan").write_text("format=files seed=1\n")
    appending = os.open(mount.path / ".clairfs/plan", os.O_WRONLY | os.O_APPEND)
    try:
        assert error_name(os.write, appending, b"format=files seed=2\n") == "EINVAL"
    finally:
        os.close(appending)
    assert "use > and not >>" in mount.control("last_error")
    assert len(plan_texts(mount)) == 1 and plan_texts(mount)[0].count("seed=1") == 1


def written_in_pieces(mount, *pieces):
    """The error of each write of one open file."""
    fd = os.open(mount.path / ".clairfs/plan", os.O_WRONLY | os.O_TRUNC)
    try:
        return [error_name(os.write, fd, piece) for piece in pieces]
    finally:
        os.close(fd)


def test_a_plan_in_several_writes_is_taken_whole(mount):
    assert written_in_pieces(mount, b"format=files seed=4", b"2 epochs=3", b"\n") == ["success"] * 3
    (text,) = plan_texts(mount)
    assert "seed=42" in text and "epochs=3" in text
    # Another name in a later part: nothing is left of what the first part did.
    assert written_in_pieces(mount, b"format=files seed=7", b" name=b") == ["success"] * 2
    assert sorted(re.findall("seed=[0-9]+", "".join(plan_texts(mount)))) == ["seed=7"]


def test_a_plan_in_several_writes_is_taken_not_at_all(mount):
    # Its first part is no plan: it fails at once, and what follows is not taken for a plan of its own.
    assert written_in_pieces(mount, b"format=files se", b"seed=42\n") == ["EINVAL", "EINVAL"]
    assert plan_texts(mount) == []
    assert "want KEY=VALUE" in mount.control("last_error")
    # Its first part is a plan, but the whole is none.
    assert written_in_pieces(mount, b"format=files seed=4", b"2 sed=1\n", b"more") == ["success", "EINVAL", "EINVAL"]
    assert plan_texts(mount) == []


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


SAMPLE = re.compile(r'([a-z_][a-z0-9_]*)\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def metrics_of(mount):
    """{(name, its labels but mount and dataset): value}, and {name: type}; every line is checked for its form."""
    text = mount.control("metrics")
    assert text.endswith("\n")
    helps, types, values, current = set(), {}, {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current, explanation = line.split(" ", 3)[2:]
            assert current not in helps and explanation
            helps.add(current)
        elif line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:]
            assert name == current and kind in ("counter", "gauge", "histogram")
            types[name] = kind
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            base = name if name in types else re.sub("_(bucket|sum|count)$", "", name)
            assert base == current and name.startswith("clairfs_"), line  # series of one name stand together
            assert (types[base] == "counter") == name.endswith("_total")
            labels = dict(LABEL.findall(labels))
            assert labels.pop("mount") == str(mount.path) and labels.pop("dataset") == str(mount.source)
            key = (name, tuple(sorted(labels.items())))
            assert key not in values
            values[key] = float(value)
    assert set(types) == helps
    return values, types


def test_metrics_are_prometheus_text(mount):
    (mount.path / "a/file").read_bytes()
    wait_until(lambda: mount.stat("reads.pfs") > 0, "reads are counted, a moment after the answer")
    values, types = metrics_of(mount)
    for name, kind in types.items():
        if kind == "histogram":
            buckets = [(float(dict(labels)["le"]), value) for (n, labels), value in values.items() if n == f"{name}_bucket"]
            bounds, counts = zip(*buckets)
            assert list(bounds) == sorted(set(bounds)) and list(counts) == sorted(counts)
            assert bounds[-1] == float("inf") and counts[-1] == values[f"{name}_count", ()]
            assert values[f"{name}_sum", ()] >= 0
    assert values["clairfs_pfs_bytes_total", ()] == SIZE
    assert values["clairfs_tier_capacity_bytes", (("tier", "ram"),)] == 64 << 20
    assert values["clairfs_pfs_latency_seconds_count", ()] == values["clairfs_pfs_reads_total", ()]
    assert values["clairfs_fuse_requests_total", (("op", "read"),)] > 0
    assert values["clairfs_reads_total", (("tier", "pfs"),)] > 0
    operations = {dict(labels)["op"] for name, labels in values if name == "clairfs_fuse_requests_total"}
    assert "read" in operations and not operations & {"refused", "dirty_writes"}
    assert ("clairfs_fuse_requests_refused_total", ()) in values


def test_metrics_follow_prometheus_rules_of_naming(mount):
    """Units last, no word in a name that only tells series apart; what every exporter has."""
    values, types = metrics_of(mount)
    assert not [name for name in types if re.search("_(ram|nvme|transit)_(bytes|capacity|chunks|evictions)", name)]
    assert not [name for name in types if "bytes" in name and not re.search("_bytes(_total)?$", name)]
    (build,) = [dict(labels) for name, labels in values if name == "clairfs_build_info"]
    daemon = mount.stats()["daemon"]
    assert [build["version"], build["commit"]] == [daemon["version"], daemon["commit"]]
    assert abs(values["clairfs_start_time_seconds", ()] - time.time()) < 3600


def test_metrics_of_two_mounts_can_be_joined(mount, tmp):
    with clairfs(mount.source) as other:
        series = [{line.split(" ")[0] for line in m.control("metrics").splitlines() if line[0] != "#"} for m in (mount, other)]
    assert series[0] and not series[0] & series[1]


def test_metrics_tell_of_plans(mount):
    assert not [key for key in metrics_of(mount)[0] if key[0].startswith("clairfs_plan_")]
    (mount.path / ".clairfs/plan").write_text("name=mine format=files seed=1\n")
    values, _ = metrics_of(mount)
    states = {dict(labels)["state"]: value for (name, labels), value in values.items() if name == "clairfs_plan_state"}
    assert states == {"waiting": 1, "following": 0, "suspended": 0, "finished": 0, "indexing": 0, "failed": 0}
    assert ("clairfs_plan_ahead_samples", (("plan", "mine"),)) in values


def test_the_readme_names_every_key_of_a_plan():
    shown = (REPO / "plan/plan_report.cc").read_text()
    keys = set(re.findall(r'\b(?:plan|json)\["(\w+)"\]', shown)) | set(re.findall(r'\{"(\w+)", s\.', shown))
    described = (REPO / "fs/README.md").read_text().split("- `plan_list`")[1].split("- `job`")[0]
    states = re.findall(r'"(indexing|failed)"', shown)
    assert len(keys) > 25 and len(states) > 1
    assert not [key for key in keys if f"`{key}`" not in described]
    assert not [state for state in states if state not in described]


def test_every_control_file_can_be_copied(mount, tmp):
    """cp takes a file whose inode number changes between its look and its open for one that was replaced."""
    for name in os.listdir(mount.path / ".clairfs"):
        path = mount.path / ".clairfs" / name
        copied = subprocess.run(["cp", path, tmp / name], capture_output=True, text=True)
        assert (copied.returncode, copied.stderr) == (0, ""), name
        assert (tmp / name).stat().st_size > 0 or name in ("accesslog", "last_error", "plan")
    json.loads((tmp / "stats.json").read_text())
    copied = subprocess.run(["cp", "-r", mount.path / ".clairfs", tmp / "all"], capture_output=True, text=True)
    assert (copied.returncode, copied.stderr) == (0, "")
    numbers = [(mount.path / ".clairfs" / name).stat().st_ino for name in sorted(os.listdir(mount.path / ".clairfs"))]
    assert len(set(numbers)) == len(numbers)
    assert numbers == [os.stat(mount.path / ".clairfs" / name).st_ino for name in sorted(os.listdir(mount.path / ".clairfs"))]
    with os.scandir(mount.path / ".clairfs") as entries:
        assert sorted(entry.inode() for entry in entries) == sorted(numbers)


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
    r"from=(?P<origin>ram|nvme|peer|pfs)(?P<joined> joined)? waited=\S+( \S+)? pid=(?P<pid>\d+)(?P<error> error=.*)?"
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
    drop_page_cache(mount.path / "a/file")
    with subprocess.Popen(["cat", mount.path / "a/file"], stdout=subprocess.DEVNULL) as cat:
        pass
    wait_until(lambda: any(entry["pid"] == str(cat.pid) for entry in read_log() if entry), "who read it")
    assert {entry["pid"] for entry in entries} == {str(os.getpid())}


def test_access_log_is_bounded(tmp):
    make_tree(tmp / "src", {f"{i % 10}/{i}": 1 for i in range(3000)})
    with clairfs(tmp / "src", "--infer", "off") as mount:  # a plan that is found would push files ahead of reads
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
