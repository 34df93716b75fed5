"""Bad input: one line that names the cause and the fix, a status that is not 0, and nothing left behind."""

import json
import os
import pathlib
import re
import stat
import subprocess
import tempfile

import pytest
from clairmount import REPO, binary, clairfs, is_mounted, make_tree, sanitized, wait_until
from mounting import assert_one_line, cleaned, daemons, fingerprint, run


@pytest.fixture
def place(tmp):
    make_tree(tmp / "src", {"file": 10, "folder/inner": 10})
    (tmp / "mnt").mkdir()
    (tmp / "file").write_text("")
    with cleaned(tmp / "mnt"):
        yield tmp


def left_behind(place):
    """Everything but what was there before."""
    known = {place / name for name in ("src", "mnt", "file")}
    return [path for path in place.rglob("*") if not known & {path, *path.parents}]


def refused(place, *words, status, parts):
    result = run("mount", *(str(word).format(t=place) for word in words))
    assert_one_line(result, *(part.format(t=place) for part in parts), status=status)
    assert not is_mounted(place / "mnt") and not daemons(place / "mnt")
    assert os.listdir(place / "mnt") == []


PATHS = {
    "no source": ("{t}/absent", "{t}/mnt", ["source {t}/absent"]),
    "source is a file": ("{t}/src/file", "{t}/mnt", ["{t}/src/file", "not a directory"]),
    "empty source": ("", "{t}/mnt", ["source"]),
    "source below a file": ("{t}/file/x", "{t}/mnt", ["{t}/file/x"]),
    "no mountpoint": ("{t}/src", "{t}/absent", ["{t}/absent", "mkdir -p {t}/absent"]),
    "mountpoint is a file": ("{t}/src", "{t}/file", ["{t}/file", "not a directory"]),
    "both the same": ("{t}/src", "{t}/src", ["{t}/src", "another mountpoint"]),
    "mountpoint in the source": ("{t}/src", "{t}/src/folder", ["{t}/src/folder", "inside the source"]),
    "source in the mountpoint": ("{t}/src", "{t}", ["{t}/src", "inside the mountpoint"]),
}


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("foreground", [[], ["-f"]])
def test_paths(place, name, foreground):
    source, mountpoint, parts = PATHS[name]
    words = [source, mountpoint, "--catalog-dir={t}/catalog", *foreground]
    refused(place, *words, status=32, parts=parts)
    assert left_behind(place) == []


OPTIONS = {
    "size": (["--ram=lots"], ["--ram", "lots"]),
    "negative size": (["--ram=-1"], ["--ram", "-1"]),
    "size too large": (["--ram=99999999999G"], ["--ram"]),
    "unit": (["--staging=5X"], ["--staging", "5X"]),
    "empty size": (["--ram="], ["--ram"]),
    "chunk too small": (["--chunk=4096"], ["--chunk", "64"]),
    "chunk not in pages": (["--chunk=100001"], ["--chunk", "4096"]),
    "chunk too large": (["--chunk=1G"], ["--chunk", "64"]),
    "io": (["--io=fast"], ["--io", "auto, uring, threads"]),
    "log level": (["--log-level=loud"], ["--log-level", "debug"]),
    "log level of which there are no lines": (["--log-level=trace"], ["--log-level", "debug"]),
    "threads": (["--fuse-threads=0"], ["--fuse-threads", "1 to"]),
    "concurrency": (["--pfs-concurrency=many"], ["--pfs-concurrency", "many"]),
    "unknown option": (["--colour=red"], ["--colour", "--help"]),
    "remount": (["-o", "remount,ro"], ["remount", "unmount and mount again"]),
    "unknown -o": (["-o", "rw,colour=red"], ["colour=red", "--help"]),
    "bad -o": (["-o", "ram=lots"], ["-o ram", "lots"]),
    "-o without its value": (["-o", "ram"], ["ram", "SIZE"]),
    "nvme without directory": (["--nvme=:1G"], ["--nvme", "DIR"]),
    "nvme of nothing": (["--nvme=/tmp:0"], ["--nvme", "0"]),
    "nvme size": (["--nvme=/tmp:big"], ["--nvme", "big"]),
    "infer": (["--infer=some"], ["--infer", "off, cheap, full"]),
    "check": (["--check=some"], ["--check", "full"]),
    "job without a port": (["--job=node0", "--rank=0", "--nodes=2"], ["--job", "node0:5200"]),
    "job without a rank": (["--job=node0:5200", "--nodes=2"], ["--rank R", "GROUP_RANK"]),
    "job without nodes": (["--job=node0:5200", "--rank=0"], ["--nodes N", "GROUP_WORLD_SIZE"]),
    "rank beyond the nodes": (["--job=node0:5200", "--rank=2", "--nodes=2"], ["node 2 is not below 2"]),
    "rank that is none": (["--job=node0:5200", "--rank=-1", "--nodes=2"], ["--rank", "'-1'"]),
    "rank without a job": (["--rank=0", "--nodes=2"], ["--job HOST:PORT"]),
    "no file with the secret": (["--job=node0:5200", "--rank=0", "--nodes=2", "--job-secret={t}/absent"], ["--job-secret", "{t}/absent"]),
    "job timeout": (["--job-timeout=0"], ["--job-timeout", "seconds"]),
    "network": (["--network=in fini"], ["--network", "safe", "fast"]),
    "no config file": (["--config={t}/absent"], ["config file", "{t}/absent"]),
    "config file is a directory": (["--config={t}/src"], ["config file", "{t}/src"]),
    "third path": (["{t}/mnt"], ["{t}/mnt"]),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(place, name):
    options, parts = OPTIONS[name]
    refused(place, "{t}/src", "{t}/mnt", "--catalog-dir={t}/catalog", *options, status=1, parts=parts)
    assert left_behind(place) == []


SETTLED = {
    "no NVMe directory": (["--nvme={t}/absent/nvme:1G"], ["mkdir -p {t}/absent,"]),
    "nvme is a file": (["--nvme={t}/file:1G"], ["{t}/file", "not a directory"]),
    "nvme in the source": (["--nvme={t}/src/folder:1G"], ["{t}/src/folder", "never written"]),
    "nvme below the mountpoint": (["--nvme={t}/mnt:1G"], ["{t}/mnt"]),
    "catalogs in the source": (["--catalog-dir={t}/src/catalog"], ["{t}/src/catalog", "never written"]),
    "log in the source": (["--log-file={t}/src/log"], ["{t}/src/log", "never written"]),
    "catalogs in a file": (["--catalog-dir={t}/file"], ["{t}/file"]),
    "no directory for the log": (["--log-file={t}/absent/log"], ["mkdir -p {t}/absent"]),
    "log is a directory": (["--log-file={t}/src/../mnt/../src/../folder/"], ["folder"]),
    "more memory than there is address space": (["--ram=100000T"], ["--ram", "less than"]),
}


@pytest.mark.skipif(sanitized(), reason="a sanitizer takes terabytes of the address space")
def test_a_ram_tier_larger_than_the_address_space_allowed(place):
    words = [binary(), "mount", place / "src", place / "mnt", "--catalog-dir", place / "catalog", "--ram=64G"]
    limited = ["sh", "-c", 'ulimit -v 30000000; exec "$@"', "sh", *words]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    assert_one_line(done, "raise ulimit -v", status=32)


@pytest.mark.parametrize("name", SETTLED)
def test_options_that_do_not_suit_this_machine(place, name):
    options, parts = SETTLED[name]
    refused(place, "{t}/src", "{t}/mnt", "--catalog-dir={t}/catalog", *options, status=32, parts=parts)
    assert sorted(os.listdir(place / "src")) == ["file", "folder"]
    assert not (place / "absent").exists()


@pytest.mark.parametrize("foreground", [[], ["-f"]])
def test_source_without_a_file(place, foreground):
    """As one whose filesystem is not mounted: what an earlier mount has kept of it is not touched."""
    (place / "nvme").mkdir(mode=0o700)
    options = [f"--nvme={place}/nvme:8M", "--ram=0"]
    with clairfs(place / "src", *options) as mount:
        kept = lambda: (fingerprint(place / "nvme"), [p.read_bytes() for p in mount.catalog_dir.glob("catalog-*")])  # noqa: E731
        assert (mount.path / "file").read_bytes()
        wait_until(lambda: mount.stat("tiers.nvme.chunks") == 1, "it is kept")
        mount.umount()
        before = kept()
        (place / "src").rename(place / "away")
        (place / "src/left").mkdir(parents=True)
        result = run("mount", place / "src", place / "mnt", "--catalog-dir", mount.catalog_dir, *options, *foreground)
        assert result.returncode == 32 and f"{place}/src has no files; is its filesystem mounted?\n" in result.stderr
        assert foreground or result.stderr.count("\n") == 1
        assert not is_mounted(place / "mnt") and not daemons(place / "mnt")
        assert kept() == before and before[1]
        (place / "src/left").rmdir()
        (place / "away").rename(place / "src")
        mount.remount()
        assert mount.stat("tiers.nvme.chunks") == 1


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_nvme_directory_with_files_of_others(place, dry_run):
    """Of whatever name: they stay as they are."""
    for name in ("index", "lock", "thesis.tex"):
        folder = place / f"with {name}"
        folder.mkdir(mode=0o700)
        (folder / name).write_text("precious")
        words = ["{t}/src", "{t}/mnt", "--catalog-dir={t}/catalog", f"--nvme={folder}:8M", *dry_run]
        refused(place, *words, status=32, parts=[f"holds {name}", f"{folder}/clairfs"])
        assert not (place / "catalog").exists()  # before a scan
        assert os.listdir(folder) == [name] and (folder / name).read_text() == "precious"


def test_doubts_are_told_and_no_more(place):
    (place / "mnt/hidden").write_text("")
    (place / "nvme").mkdir(mode=0o700)
    ram = 2 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30  # GiB; not 3 TiB, which TSan cannot map
    disk = os.statvfs(place)
    size = disk.f_blocks * disk.f_frsize - (1 << 20)  # what the filesystem has, but not what is free
    options = [f"--ram={ram}G", "--staging=9T", f"--nvme={place}/nvme:{size}", "--catalog-dir", place / "catalog"]
    mounted = run("mount", place / "src", place / "mnt", *options)
    (log,) = (place / "catalog/log").iterdir()
    for told in (mounted.stderr, log.read_text()):
        for part in ("is not empty", r"--ram of \d+\.\d [GT]iB is more", r"--staging of 9\.0 TiB", f"--nvme {place}/nvme:.* is more than is free there; it takes "):
            assert re.search(part, told), told
    assert mounted.returncode == 0 and mounted.stderr.count("\n") == 4
    assert f"log {log}" in run("status", place / "mnt").stdout


def test_nvme_of_more_than_the_filesystem_has_is_refused(place):
    """A slip for 900G: nothing may be reserved for it."""
    refused(
        place, "{t}/src", "{t}/mnt", "--catalog-dir={t}/catalog", "--nvme={t}/nvme:900T",
        status=32, parts=["--nvme {t}/nvme:900.0 TiB is more than its filesystem has", "free; give a smaller size"],
    )
    assert not (place / "nvme").exists()


def test_nvme_of_a_share_says_how_much_that_is(place):
    """Of what is free, as --ram 40% is of the memory available; nothing of it can be more than there is."""
    words = ["--catalog-dir", place / "catalog", f"--nvme={place}/nvme:1%", "-v"]
    mounted = run("mount", place / "src", place / "mnt", *words)
    assert mounted.returncode == 0 and mounted.stderr == ""
    stats = json.loads((place / "mnt/.clairfs/stats.json").read_text())
    disk = os.statvfs(place)
    assert 0.5 < stats["tiers"]["nvme"]["capacity"] / (disk.f_bavail * disk.f_frsize / 100) < 1.5
    (log,) = (place / "catalog/log").iterdir()
    (told,) = re.findall(rf"NVMe directory {place}/nvme: 1 % of what is free there, (.*)\n", log.read_text())
    assert f"NVMe tier: {told} in {place}/nvme" in mounted.stdout


def test_nvme_reserves_no_more_than_is_free(place):
    disk = os.statvfs(place)
    size = disk.f_blocks * disk.f_frsize - (1 << 20)
    words = ["--catalog-dir", place / "catalog", f"--nvme={place}/nvme:{size}"]
    assert run("mount", place / "src", place / "mnt", *words).returncode == 0
    reserved = sum(entry.stat().st_blocks * 512 for entry in (place / "nvme").iterdir())
    # The index has 1/64 of what is free, not of what was asked for.
    assert reserved < disk.f_bavail * disk.f_frsize / 60


def test_nvme_without_a_size_says_what_it_takes(place):
    words = ["--catalog-dir", place / "catalog", f"--nvme={place}/nvme"]
    mounted = run("mount", "-v", place / "src", place / "mnt", *words)
    told = re.search(r"NVMe tier: (\S+ \S+) in " + str(place / "nvme"), mounted.stdout)
    assert told, mounted.stdout
    assert f"in {place / 'nvme'}, at most {told[1]}" in run("status", place / "mnt").stdout


def test_log_file_is_for_its_owner_alone(place):
    options = ["--catalog-dir", place / "catalog", "--log-file", place / "log"]
    assert run("mount", place / "src", place / "mnt", *options).returncode == 0
    assert stat.S_IMODE((place / "log").stat().st_mode) == 0o600
    assert f"log {place / 'log'}" in run("status", place / "mnt").stdout


CONFIGS = {
    "unknown option": ("ram=1G\ncolour=red\n", ["{t}/config:2", "colour=red"]),
    "bad value": ("# comment\n\nram=lots\n", ["{t}/config:3", "lots"]),
    "no value": ("chunk\n", ["{t}/config:1", "chunk"]),
    "another config file": ("config=/etc/other\n", ["{t}/config:1", "config file"]),
    "not text": ("\x00\x01\x7fELF\n", ["{t}/config:1"]),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_config_file(place, name):
    text, parts = CONFIGS[name]
    (place / "config").write_text(text)
    words = ["{t}/src", "{t}/mnt", "--catalog-dir={t}/catalog", "--config={t}/config"]
    refused(place, *words, status=1, parts=parts)
    assert left_behind(place) == [place / "config"]


@pytest.mark.parametrize("words", [[], ["mount"], ["mount", "/tmp"], ["fly"], ["--fly"], ["umount"], ["status", "a", "b"],
                                   ["warmup", "/", "--jobs=0"]])  # fmt: skip
def test_usage(words):
    result = run(*words)
    assert result.returncode == 1
    assert result.stdout.startswith("clairfs mounts") if not words else result.stderr.count("\n") == 1


def test_tiers_for_samples_of_no_known_size():
    words = ["plan", "stats", "seed=0", "n=1000", "epochs=3", "world=4", "--ram=1M"]
    assert_one_line(run(*words), "give --sample-size SIZE, or root=DIR", status=1)
    assert run(*words, "--sample-size=1K").returncode == 0


def test_a_number_out_of_range_is_told_with_the_range():
    refusal = run("wait", "/", "--pid", "0")
    assert_one_line(refusal, "--pid: Value 0 not in range", 1 << 22, status=1)
    assert len(refusal.stderr) < 100


def test_errors_stay_on_one_line_whatever_a_path_holds(place):
    name = "two\nlines and \x1b[31m"
    for words in (["status", place / name], ["bench", place / name], ["mount", place / name, place / "mnt"]):
        assert_one_line(run(*words), f"{place}/two lines and \\x1b[31m: No such file or directory")


def test_help_and_version():
    for words in (["--help"], ["mount", "--help"], ["umount", "--help"], ["status", "--help"], ["warmup", "--help"]):
        result = run(*words)
        assert result.returncode == 0 and "options:" in result.stdout.lower() and result.stderr == ""
    assert run("--version").stdout.startswith("clairfs ")


def subcommands(*command):
    """This command and those below it, as lists of words."""
    found = [list(command)]
    listed = re.split("^subcommands:\n", run(*command, "--help").stdout, maxsplit=1, flags=re.MULTILINE | re.IGNORECASE)[1:]
    for name in re.findall(r"^  (\S+) {2,}", "".join(listed), re.MULTILINE):
        found += subcommands(*command, name)
    return found


@pytest.mark.timeout(900)  # a simulation under a sanitizer
def test_examples_of_the_help_work():
    """Those that need no mount, of fewer epochs."""
    examples = [e for words in subcommands() for e in re.findall(r"^Example: clairfs (.*)", run(*words, "--help").stdout, re.M)]
    runnable = [example for example in examples if not re.search(r"(^| )/", example)]
    assert len(examples) > len(runnable) >= 3
    for example in runnable:
        brief = example.replace("epochs=90", "epochs=3")
        with tempfile.TemporaryDirectory() as out:
            (pathlib.Path(out) / "examples").symlink_to(REPO / "examples")
            done = subprocess.run([binary(), *brief.split()], cwd=out, capture_output=True, text=True, timeout=800, check=False)
        assert (done.returncode, done.stderr) == (0, ""), example


@pytest.mark.parametrize("words", [["plan", "show"], ["plan", "stats", "seed=0", "--ram", "x"], ["umount"]])
def test_wrong_usage_leads_to_the_help_of_the_command(words):
    path = " ".join(words[: 1 + (words[0] == "plan")])
    assert_one_line(run(*words), f"see 'clairfs {path} --help'", status=1)


def test_closed_standard_streams(place):
    """As a badly written service starts it: descriptors 0 to 2 must not become something else."""
    command = f"exec {binary()} mount {place}/src {place}/mnt --catalog-dir {place}/catalog <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], timeout=60, check=False).returncode == 0
    assert (place / "mnt/file").read_bytes() == (place / "src/file").read_bytes()
    (daemon,) = daemons(place / "mnt")
    assert [os.readlink(f"/proc/{daemon}/fd/{n}") for n in (0, 1, 2)] == ["/dev/null"] * 3


def shell(place, command):
    """Runs a line of a shell in which $c is clairfs, $s the source, $m the mountpoint, and $o where the catalogs are."""
    names = {"c": binary(), "s": place / "src", "m": place / "mnt", "o": f"--catalog-dir={place / 'catalog'}"}
    environment = {**os.environ, **{name: str(value) for name, value in names.items()}}
    return subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=60, check=False)


FULL = {
    "an error": ("$c mout 2>/dev/full", 1),
    "an error of a command": ("$c status / 2>/dev/full", 1),
    "an error of mount": ("$c mount $s/absent $m $o 2>/dev/full", 32),
    "an answer and the error about it": ("$c list >/dev/full 2>&1", 2),
    "a pipe that is closed": ("trap '' PIPE; { sleep 1; $c list; echo $? >&3; } 2>&1 | true", 2),
}


@pytest.mark.parametrize("name", FULL)
def test_an_error_that_cannot_be_told_keeps_its_status(place, name):
    command, status = FULL[name]
    done = shell(place, f"exec 3>&1; {command}")
    assert (int(done.stdout) if done.stdout else done.returncode) == status


def test_a_warning_that_cannot_be_told_leaves_the_mount_alone(place):
    (place / "mnt/hidden").write_text("")
    assert shell(place, "$c mount $s $m $o --dry-run 2>/dev/full").returncode == 0
    assert shell(place, "$c mount $s $m $o 2>/dev/full").returncode == 0
    assert (place / "mnt/file").read_bytes() == (place / "src/file").read_bytes()
    (log,) = (place / "catalog/log").iterdir()
    assert "is not empty" in log.read_text()


@pytest.mark.parametrize("words", ["list", "--help", "--version", "mount --help", "help mount", "top $m --once --interval=0.1"])
def test_an_answer_that_cannot_be_written_is_an_error(place, words):
    assert run("mount", place / "src", place / "mnt", "--catalog-dir", place / "catalog").returncode == 0
    assert_one_line(shell(place, f"$c {words} >/dev/full"), "write to stdout: No space left on device", status=2)
