"""Commands around a mount: list, wait, doctor, bench, cache, warmup's answers; and typing errors."""

import contextlib
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import threading
import time
from xml.etree import ElementTree

import pytest
from clairmount import binary, clairfs, drop_page_cache, is_mounted, make_tree, wait_until
from mounting import SETTLE_SECONDS, assert_one_line, cleaned, daemons, errno_of, run

MIB = 1 << 20


@pytest.fixture
def place(tmp):
    make_tree(tmp / "src", {f"{i % 3}/{i:02}": 100_000 for i in range(30)})
    (tmp / "mnt").mkdir()
    with cleaned(tmp / "mnt"):
        yield tmp


def mount_at(place, *options):
    mounted = run("mount", place / "src", place / "mnt", "--catalog-dir", place / "catalog", *options)
    assert mounted.returncode == 0, mounted.stderr


# Typing


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["moutn"], "mount"),
        (["unmount"], "umount"),
        (["stat"], "status"),
        (["docter"], "doctor"),
        (["help", "moutn"], "mount"),
        (["mount", "a", "b", "--rma", "2G"], "--ram"),
        (["mount", "a", "b", "--allow_other"], "--allow-other"),
        (["mount", "a", "b", "--read-only"], "-o ro"),
        (["mount", "a", "b", "-o", "allow-othr"], "allow-other"),
        (["mount", "a", "b", "-o", "rma=2G"], "ram"),
        (["mount", "a", "b", "-o", "nofial"], "nofail"),
        (["status", "--jsno"], "--json"),
        (["plan", "shwo", "/mnt/data"], "show"),
        (["plan", "/mnt/data", "--seed", "42"], "seed=VALUE"),
        (["plan", "order", "n=5", "--batch-size=8"], "batch_size=VALUE"),
        (["cache", "lst"], "list"),
        (["cache", "prnue", "--dry-run"], "prune"),
    ],
)
def test_did_you_mean(words, meant):
    assert_one_line(run(*words), f"did you mean {meant}?", status=1)


@pytest.mark.parametrize("words", [["mount", "a", "b", "--ram=1G", "c", "d"], ["status", "c", "d", "e"], ["bench", "x", "c", "d"]])
def test_unexpected_arguments_in_their_order(words):
    assert_one_line(run(*words), " ".join(words[-2:]), status=1)


def test_nothing_is_suggested_for_what_is_far_off():
    for words in (["zzzzzz"], ["mount", "a", "b", "--zzzzzzzz"], ["mount", "a", "b", "-o", "zzzzzz"]):
        result = run(*words)
        assert result.returncode == 1 and "did you mean" not in result.stderr


def test_help_and_version():
    assert run("help").stdout == run("--help").stdout
    assert run("help", "plan", "show").stdout == run("plan", "show", "--help").stdout
    assert run("version").stdout == run("--version").stdout
    assert re.fullmatch(r"clairfs \d+\.\d+\.\d+( \([0-9a-f]{12}(-dirty)?\))?\n", run("version").stdout)


# list, status without a path, plan without keys


def test_list_and_status_without_a_path(place):
    with clairfs(place / "src") as other:
        mount_at(place)
        (place / "mnt/.clairfs/plan").write_text("name=mine format=files seed=1\n")
        for words in (("list",), ("status",)):
            lines = {line.split()[0]: line for line in run(*words).stdout.splitlines()}
            assert " well " in lines[str(other.path)] and str(place / "src") in lines[str(other.path)]
            assert " well " in lines[str(place / "mnt")] and "mine waiting" in lines[str(place / "mnt")]
        (daemon,) = daemons(place / "mnt")
        listed = {mount["mountpoint"]: mount for mount in json.loads(run("list", "--json").stdout)}
        assert listed[str(place / "mnt")]["pid"] == daemon
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: errno_of(os.statvfs, place / "mnt") != 0, "the mount is stale", SETTLE_SECONDS)
        (line,) = [line for line in run("list").stdout.splitlines() if line.startswith(f"{place / 'mnt'} ")]
        assert " stale " in line


def test_no_mounts_are_said_so(place):
    alone = ["unshare", "-m", "sh", "-c", f"umount -l -a -t fuse.clairfs; exec {binary()} list"]
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespace can be made here")
    assert subprocess.run(alone, capture_output=True, text=True).stdout == "no clairfs mounts\n"


def test_plan_without_keys_shows(place):
    mount_at(place)
    assert "no plan; set one with" in run("plan", place / "mnt").stdout
    assert "no plan; set one with" in run("plan", "show", place / "mnt").stdout
    assert run("plan", place / "mnt", "format=files", "seed=1").returncode == 0
    assert "seed=1" in run("plan", place / "mnt").stdout
    assert run("plan", place / "mnt", "name=b", "format=files", "seed=1").returncode == 0
    assert run("plan", "cancel", "--all", place / "mnt").returncode == 0
    assert "no plan" in run("plan", place / "mnt").stdout
    assert_one_line(run("plan", "cancel", place / "mnt"), "there is no plan named 'default'", status=1)
    assert_one_line(run("plan", "cancel", "--all", place / "mnt"), "no plan is in force", status=1)


# Exit statuses: what is there and does not answer is 2 for every command


@pytest.mark.parametrize("words", [["status"], ["top", "--once"], ["warmup"], ["plan", "show"], ["plan", "check"], ["bench"]])
def test_a_stale_mount_is_status_2_for_all(place, words):
    mount_at(place)
    (daemon,) = daemons(place / "mnt")
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: errno_of(os.statvfs, place / "mnt") != 0, "the mount is stale", SETTLE_SECONDS)
    assert_one_line(run(*words, place / "mnt"), "stale mount", status=2)
    if words != ["bench"]:
        assert run(*words, place / "src").returncode == (2 if words == ["plan", "check"] else 1)


# warmup


def test_warmup_says_what_was_kept_and_what_it_would_take(place):
    mount_at(place, "--ram=1M")
    warmed = run("warmup", place / "mnt")
    assert warmed.returncode == 0 and "read 30 of 30 files" in warmed.stdout
    kept = re.search(r"kept (\S+ \S+) of 2\.9 MiB \((\d+\.\d) %\): RAM", warmed.stdout)
    assert kept and 0 < float(kept[2]) <= 36, warmed.stdout
    needed = re.search(r"too small to keep all of it: mount with --ram (\d+)M", warmed.stderr)
    assert needed, warmed.stderr
    assert run("umount", place / "mnt").returncode == 0
    mount_at(place, f"--ram={needed[1]}M")  # the advice is right
    warmed = run("warmup", place / "mnt")
    assert "(100.0 %)" in warmed.stdout and warmed.stderr == ""


def test_warmup_check_and_evict(place):
    mount_at(place, "--ram=64M")
    assert "kept 0 B of 2.9 MiB (0.0 %)" in run("warmup", "--check", place / "mnt").stdout
    assert run("warmup", place / "mnt", "1").returncode == 0
    assert "kept 976.6 KiB of 976.6 KiB (100.0 %): RAM 976.6 KiB, NVMe 0 B" in run("warmup", "--check", place / "mnt", "1").stdout
    assert "kept 976.6 KiB of 2.9 MiB (33.3 %)" in run("warmup", "--check", place / "mnt").stdout
    assert os.getxattr(place / "mnt/1/01", "user.clairfs.tier") == b"ram"
    (place / "mnt/1/01").read_bytes()  # into the page cache
    assert "kept 0 B of 97.7 KiB" in run("warmup", "--evict", place / "mnt", "1/01").stdout
    assert os.getxattr(place / "mnt/1/01", "user.clairfs.tier") == b"none"
    assert os.getxattr(place / "mnt/1/04", "user.clairfs.tier") == b"ram"
    opens = json.loads((place / "mnt/.clairfs/stats.json").read_text())["pfs"]["opens"]
    assert (place / "mnt/1/01").read_bytes() == (place / "src/1/01").read_bytes()
    assert json.loads((place / "mnt/.clairfs/stats.json").read_text())["pfs"]["opens"] == opens + 1
    assert_one_line(run("warmup", "--check", "--evict", place / "mnt"), status=1)
    assert_one_line(run("warmup", "--check", place / "mnt", "none"), "none", status=1)


def test_evict_takes_nvme_copies_too(place):
    mount_at(place, "--ram=64M", f"--nvme={place}/nvme:64M")
    assert run("warmup", place / "mnt").returncode == 0

    def copied():
        return json.loads((place / "mnt/.clairfs/stats.json").read_text())["tiers"]["nvme"]["copies"] == 30

    wait_until(copied, "RAM is copied to NVMe", SETTLE_SECONDS)
    assert "kept 0 B" in run("warmup", "--evict", place / "mnt").stdout
    stats = json.loads((place / "mnt/.clairfs/stats.json").read_text())["tiers"]
    assert stats["ram"]["chunks"] == stats["nvme"]["chunks"] == 0
    for path in (place / "src").rglob("*/*"):
        assert (place / "mnt" / path.relative_to(place / "src")).read_bytes() == path.read_bytes()


def test_warmup_takes_a_path_as_a_shell_completes_it(place):
    mount_at(place)
    done = subprocess.run([binary(), "warmup", "mnt", "mnt/1"], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0 and "read 10 of 10 files" in done.stdout


# wait


def test_wait_returns_when_the_mount_is_usable(place):
    with subprocess.Popen([binary(), "wait", place / "mnt", "--timeout", "60"]) as waiting:
        time.sleep(0.2)
        assert waiting.poll() is None
        mount_at(place)
        assert waiting.wait(SETTLE_SECONDS) == 0
    assert run("wait", place / "mnt").returncode == 0


def test_wait_gives_up(place):
    assert_one_line(run("wait", place / "mnt", "--timeout", "0.1"), "is not mounted yet", "gave up after 0.1 s", status=2)
    with subprocess.Popen(["sleep", "0.3"]) as process:
        assert_one_line(run("wait", place / "mnt", "--pid", process.pid), f"process {process.pid} has ended", status=2)


# doctor


def test_doctor_of_a_well_mount(place):
    mount_at(place)
    (place / "mnt/0/00").read_bytes()
    told = run("doctor", place / "mnt")
    assert told.returncode == 0, told.stdout
    for part in ("/dev/fuse", "fusermount3", "--allow-other", "io_uring", "memory", "open files", "catalogs", "jobs", "no troubles"):
        assert part in told.stdout
    assert " BAD " not in told.stdout
    listed = json.loads(run("doctor", "--json", place / "mnt").stdout)
    assert {"/dev/fuse", str(place / "mnt")} <= {finding["subject"] for finding in listed}
    assert all(finding["kind"] != "bad" for finding in listed)


def test_doctor_names_what_is_wrong_and_its_cure(place):
    mount_at(place)
    (place / "src/0/00").write_bytes(b"changed")
    assert errno_of((place / "mnt/0/00").read_bytes) != 0

    def told():
        doctor = run("doctor", place / "mnt")
        return doctor.returncode == 1 and re.search(r"BAD .*reads? refused because.*: 0/00\n +cure: .*mount again", doctor.stdout)

    wait_until(told, "counted, a moment after the answer", SETTLE_SECONDS)
    (daemon,) = daemons(place / "mnt")
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: errno_of(os.statvfs, place / "mnt") != 0, "the mount is stale", SETTLE_SECONDS)
    doctor = run("doctor")
    assert doctor.returncode == 1 and re.search(rf"BAD +{place / 'mnt'} +is stale.*\n +cure: clairfs umount {place / 'mnt'}", doctor.stdout)


def test_doctor_tells_of_a_machine_that_cannot_mount(place):
    hidden = ["unshare", "-m", "sh", "-c", f"mount --bind /dev/null /dev/fuse; exec {binary()} doctor"]
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespace can be made here")
    (place / "empty").mkdir()
    hidden = ["unshare", "-m", "sh", "-c", f"mount --bind {place}/empty /dev; exec {binary()} doctor >{place}/told"]
    assert subprocess.run(hidden, capture_output=True).returncode == 1
    assert re.search(r"BAD +/dev/fuse .*\n +cure: modprobe fuse", (place / "told").read_text())


def test_a_bundle_names_nothing_unless_asked(place):
    make_tree(place / "src", {"secret-folder/secret-name": 1000})
    mount_at(place)
    (place / "src/secret-folder/secret-name").write_bytes(b"changed")
    assert errno_of((place / "mnt/secret-folder/secret-name").read_bytes) != 0
    stats = place / "mnt/.clairfs/stats.json"
    wait_until(lambda: "reads_refused" in stats.read_text(), "counted, a moment after the answer", SETTLE_SECONDS)
    assert run("plan", place / "mnt", "name=secretplan", "format=files", "seed=1", "root=secret-folder").returncode == 0
    told = run("doctor", place / "mnt", "--bundle", place / "report")
    assert "read it before you send it" in told.stdout
    text = (place / "report").read_text()
    for part in ("==== machine", "==== doctor", ": limits", "stats.json", "reads_refused", "info clairfs 0"):
        assert part in text
    for name in ("secret", str(place), os.uname().nodename):
        assert not re.search(rf"(?<!\w){re.escape(name)}", text), name
    assert run("doctor", place / "mnt", "--bundle", place / "all", "--names").returncode in (0, 1)
    text = (place / "all").read_text()
    for part in ("secret-folder/secret-name", "secretplan", str(place / "mnt"), ": accesslog", ": config"):
        assert part in text


def test_a_dead_mount_has_a_diagnosis_and_a_bundle(place):
    mount_at(place)
    (daemon,) = daemons(place / "mnt")
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: errno_of(os.statvfs, place / "mnt") != 0, "the mount is stale", SETTLE_SECONDS)
    for path in (place / "mnt", place / "mnt/0/00"):
        doctor = run("doctor", path, "--bundle", place / "report", "--names", env={"XDG_CACHE_HOME": str(place)})
        assert doctor.returncode == 1, doctor.stderr
        assert re.search(rf"BAD +{place / 'mnt'} +is stale.*\n +cure: clairfs umount {place / 'mnt'}", doctor.stdout)
        assert "/dev/fuse" in doctor.stdout
        text = (place / "report").read_text()
        assert "==== machine" in text and "is stale" in text and "Transport endpoint" in text


def test_the_log_of_a_dead_mount_is_in_its_bundle(place):
    environment = {"XDG_CACHE_HOME": str(place / "home")}
    assert run("mount", place / "src", place / "mnt", env=environment).returncode == 0
    (daemon,) = daemons(place / "mnt")
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: errno_of(os.statvfs, place / "mnt") != 0, "the mount is stale", SETTLE_SECONDS)
    assert run("doctor", place / "mnt", "--bundle", place / "report", env=environment).returncode == 1
    assert f"pid {daemon}" in (place / "report").read_text()


# bench


def test_bench_compares_a_mount_with_its_source(place):
    mount_at(place, "--ram=64M")
    rows = {row["name"]: row for row in json.loads(run("bench", "--json", place / "mnt").stdout)}
    assert list(rows) == ["source", "mount, first touch", "mount, tiers", "mount, page cache"]
    for row in rows.values():
        assert row["files"] == 15 and row["bytes"] == 15 * 100_000 and row["errors"] == 0
    stats = json.loads((place / "mnt/.clairfs/stats.json").read_text())
    assert stats["pfs"]["opens"] == 15  # the other half was read from the source itself
    assert stats["reads"]["ram"] >= 15
    table = run("bench", place / "mnt/1")
    assert table.returncode == 0 and "mount, tiers" in table.stdout and "files/s" in table.stdout
    again = json.loads((place / "mnt/.clairfs/stats.json").read_text())["pfs"]["opens"]
    assert again > 15  # first touch is one again
    assert "directory, page cache" in run("bench", place / "src").stdout
    assert_one_line(run("bench", place / "mnt/0/00"), "is not a directory; give the folder", status=1)
    (place / "none").mkdir()
    assert_one_line(run("bench", place / "none"), "no files", status=1)


# cache


def test_cache_list_and_prune(place):
    mount_at(place, f"--nvme={place}/nvme:64M")
    where = ["--catalog-dir", place / "catalog", place / "nvme"]
    lines = run("cache", "list", *where).stdout.splitlines()
    kinds = {line.split()[0]: line for line in lines[1:-1]}
    assert set(kinds) == {"catalog", "log", "nvme"} and lines[-1].startswith("3 entries")
    assert str(place / "src") in kinds["nvme"]
    assert str(place / "src") in kinds["catalog"] and re.search("mnt(-[0-9a-f]+)?@", kinds["log"])
    assert all("in use" in line for line in kinds.values())
    assert "removed 0 entries" in run("cache", "prune", "--older-than=0", *where).stdout
    assert run("umount", place / "mnt").returncode == 0
    wait_until(lambda: not daemons(place / "mnt"), "the daemon ends", SETTLE_SECONDS)
    assert "removed 0 entries" in run("cache", "prune", *where).stdout  # not old enough
    assert run("cache", "prune", "--dry-run", *where).stdout == "nothing would be removed\n"
    assert "3 entries" in run("cache", "prune", "--older-than=0", "--dry-run", *where).stdout
    assert "3 entries" in run("cache", "list", *where).stdout
    (place / "catalog/mine").write_text("not of clairfs")
    assert "removed 3 entries" in run("cache", "prune", "--older-than=0", *where).stdout
    assert os.listdir(place / "nvme") == os.listdir(place / "catalog/log") == []
    assert sorted(os.listdir(place / "catalog")) == ["log", "mine"]
    assert run("cache", "list", *where).stdout == "nothing is saved\n"
    mount_at(place, f"--nvme={place}/nvme:64M")  # nothing is missed
    for command in ("list", "prune"):
        assert_one_line(run("cache", command, *where, place / "src/0/00"), f"{place / 'src/0/00'}: Not a directory", status=1)


@pytest.mark.parametrize("command", ["list", "prune"])
def test_cache_tells_of_a_directory_that_was_mistyped(place, command):
    absent = place / "absent"
    for words in ([absent], ["--catalog-dir", absent], [place / "src", absent]):
        assert_one_line(run("cache", command, *words), f"{absent}: No such file or directory", status=1)
    by_default = run("cache", command, env={"CLAIRFS_CATALOG_DIR": str(absent)})  # before the first mount
    assert (by_default.returncode, by_default.stderr) == (0, "")


def test_orders_of_found_plans_go_once_their_daemon_is_gone(place):
    found = place / "catalog/found"
    found.mkdir(parents=True)
    host = os.uname().nodename.split(".")[0]
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (os.getpid(), ended.pid):
        (found / f"{pid}@{host}.list").write_text("a\nb\n")
    (found / "orders-0123").write_text("of a dataset that is mounted nowhere")
    assert "removed 2 entries" in run("cache", "prune", "--older-than=0", "--catalog-dir", place / "catalog").stdout
    assert os.listdir(found) == [f"{os.getpid()}@{host}.list"]


# Options from elsewhere


def test_options_from_the_environment(place):
    environment = {**os.environ, "CLAIRFS_RAM": "48M", "CLAIRFS_CHUNK": "128K", "CLAIRFS_BOGUS": "x"}
    words = [binary(), "mount", place / "src", place / "mnt", "--catalog-dir", place / "catalog", "--chunk=256K"]
    subprocess.run(words, env=environment, check=True)
    config = (place / "mnt/.clairfs/config").read_text()
    assert f"ram={48 * MIB}\n" in config and f"chunk={256 << 10}\n" in config  # flags win
    assert run("umount", place / "mnt").returncode == 0
    bad = subprocess.run(words, env={**environment, "CLAIRFS_RAM": "lots"}, capture_output=True, text=True)
    assert_one_line(bad, "$CLAIRFS_RAM: 'lots'", status=1)


def test_cache_and_doctor_look_where_mounts_are_told_to_keep_things(place):
    environment = {"CLAIRFS_CATALOG_DIR": str(place / "elsewhere")}
    assert run("mount", place / "src", place / "mnt", env=environment).returncode == 0
    assert str(place / "elsewhere/catalog-") in run("cache", "list", env=environment).stdout
    assert re.search(rf"catalogs +{place / 'elsewhere'}, ", run("doctor", env=environment).stdout)
    (daemon,) = daemons(place / "mnt")
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: errno_of(os.statvfs, place / "mnt") != 0, "the mount is stale", SETTLE_SECONDS)
    assert run("doctor", place / "mnt", "--bundle", place / "report", env=environment).returncode == 1
    assert f"pid {daemon}" in (place / "report").read_text()


def test_cache_and_doctor_tell_of_options_that_no_mount_can_have(place):
    environment = {"CLAIRFS_RAM": "lots"}
    assert_one_line(run("cache", "list", env=environment), "$CLAIRFS_RAM: 'lots'", status=1)
    assert run("cache", "list", "--catalog-dir", place, env=environment).returncode == 0
    doctor = run("doctor", env=environment)
    assert doctor.returncode == 1 and re.search(r"BAD +options +\$CLAIRFS_RAM: 'lots'.*\n +cure: ", doctor.stdout)


def test_the_system_config_file_is_read(place):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespace can be made here")
    (place / "etc").mkdir()
    (place / "etc/clairfs.conf").write_text("ram=3T0\n")
    mount = f"{binary()} mount {place}/src {place}/mnt --catalog-dir {place}/catalog --dry-run"
    for command in (mount, f"{binary()} cache list"):
        script = f"cp /etc/passwd {place}/etc/; mount --bind {place}/etc /etc && exec {command}"
        bad = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True)
        assert_one_line(bad, "/etc/clairfs.conf:1: ram", status=1)
    assert_one_line(run("mount", place / "src", place / "mnt", "--config", "nosuch"), "config file nosuch: No such file", status=1)


# top


@contextlib.contextmanager
def top_on_a_terminal(place, columns=80, **variables):
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "cols", str(columns), "rows", "40"], stdin=theirs, check=True)
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | variables
    words = [str(binary()), "top", str(place / "mnt"), "--interval", "0.1"]

    def own_terminal():
        os.setsid()
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, preexec_fn=own_terminal)
    seen = bytearray()

    def collect():
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 4096):
                seen.extend(piece)

    reader = threading.Thread(target=collect, daemon=True)
    reader.start()
    try:
        yield process, ours, seen
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(SETTLE_SECONDS)
        os.close(theirs)
        reader.join(SETTLE_SECONDS)
        os.close(ours)


def refuse_a_read(place):
    (place / "src/0/00").write_bytes(b"changed")
    assert errno_of((place / "mnt/0/00").read_bytes) != 0
    wait_until(lambda: "troubles" in run("list").stdout or "1 trouble" in run("list").stdout, "the trouble is counted", SETTLE_SECONDS)


def test_top_for_programs_is_an_object_a_line(place):
    mount = mount_at(place)
    refuse_a_read(place)
    ended = run("top", "--once", "--interval", "0.1", "--json", place / "mnt")
    assert ended.returncode == 0 and ended.stdout.count("\n") == 1
    report = json.loads(ended.stdout)
    assert report["mountpoint"] == str(place / "mnt") and abs(report["time"] - time.time()) < 3600
    assert report["read_bytes_per_second"]["pfs"] == 0 and report["plans"] == []
    assert [trouble["kind"] for trouble in report["troubles"]] == [t["kind"] for t in json.loads(run("status", "--json", place / "mnt").stdout)["troubles"]]


def test_top_draws_the_course_of_a_mount(place):
    mount_at(place, "--infer", "off")  # files that are pushed ahead are not asked for
    for path in sorted((place / "src").rglob("[0-9][0-9]")):
        (place / "mnt" / path.relative_to(place / "src")).read_bytes()
    rows = place / "mnt/.clairfs/history"

    def answered():
        lines = rows.read_text().splitlines()[1:]
        return sum(map(int, lines[-1].split(",")[2:6])) if lines else 0

    wait_until(lambda: answered() >= 3_000_000, "the reads are noted", SETTLE_SECONDS)
    assert run("top", place / "mnt", "--plot", place / "course.svg").returncode == 0
    words = [text.text for text in ElementTree.parse(place / "course.svg").getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert "from the PFS" in words and "Samples ahead of the readers" in words and "from NVMe" not in words
    assert_one_line(run("top", place / "mnt", "--plot", place / "course.png"), "the picture is SVG", status=1)


def test_top_quits_on_q_and_shows_troubles_in_red(place):
    mount_at(place)
    refuse_a_read(place)
    with top_on_a_terminal(place) as (process, terminal, seen):
        wait_until(lambda: b"refused because" in seen, "a report", SETTLE_SECONDS)
        assert re.search(rb"\033\[31m! \d reads? refused", seen)
        assert b"MiB/s" in seen or b" B/s" in seen
        os.write(terminal, b"xq")
        assert process.wait(SETTLE_SECONDS) == 0


def test_top_without_colours_on_a_narrow_terminal(place):
    mount_at(place)
    refuse_a_read(place)
    with top_on_a_terminal(place, columns=40, NO_COLOR="1") as (process, terminal, seen):
        wait_until(lambda: seen.count(b"scan") >= 2, "reports", SETTLE_SECONDS)
        assert b"\033[31m" not in seen
        text = re.sub(rb"\033\[[0-9]*[AJ]", b"", bytes(seen)).decode()
        assert [line for line in text.split("\n") if len(line.strip("\r")) >= 40] == [], text
        assert "since the scan" in re.sub(r"\s+", " ", text)  # the end of the long line is there
        os.write(terminal, b"q")
        assert process.wait(SETTLE_SECONDS) == 0
