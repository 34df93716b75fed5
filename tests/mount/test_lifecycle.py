"""From `clairfs mount` to the end of the mount, however it comes."""

import errno
import json
import os
import pty
import re
import signal
import socket
import subprocess

import pytest
from clairmount import binary, is_mounted, make_tree, mounts_below, slowfs, wait_until
from mounting import SETTLE_SECONDS, assert_one_line, cleaned, daemons, ended, errno_of, guard_of, only_root, run


@pytest.fixture
def place(tmp):
    """A source, a mountpoint and a catalog directory; whatever is mounted there ends with the test."""
    make_tree(tmp / "src", {f"{i % 3}/{i}": 1000 * i for i in range(30)})
    (tmp / "mnt").mkdir()
    with cleaned(tmp / "mnt"):
        yield tmp


def mount_at(place, *options, source="src"):
    return run("mount", place / source, place / "mnt", "--catalog-dir", place / "catalog", *options)


def assert_served(place):
    for path in (place / "src").rglob("*/*"):
        assert (place / "mnt" / path.relative_to(place / "src")).read_bytes() == path.read_bytes()


def test_background_mount_is_usable_when_the_command_returns(place):
    mounted = mount_at(place)
    assert (mounted.returncode, mounted.stdout, mounted.stderr) == (0, "", "")
    assert is_mounted(place / "mnt")
    assert_served(place)
    (daemon,) = daemons(place / "mnt")
    assert os.getsid(daemon) == daemon and os.readlink(f"/proc/{daemon}/cwd") == "/"
    open_files = [os.readlink(f"/proc/{daemon}/fd/{n}") for n in (0, 1, 2)]
    assert open_files == ["/dev/null"] * 3
    (log,) = (place / "catalog/log").iterdir()
    wait_until(lambda: f" info mounted {place / 'src'} on {place / 'mnt'}\n" in log.read_text(), "the log says so", SETTLE_SECONDS)
    ended = run("umount", place / "mnt")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert not is_mounted(place / "mnt") and not daemons(place / "mnt")


def test_relative_paths_and_links_to_directories(place):
    os.symlink("src", place / "alias")
    command = [binary(), "mount", "alias/", "./mnt/../mnt/", "--catalog-dir", "catalog"]
    subprocess.run(command, cwd=place, check=True, timeout=60)
    assert_served(place)
    assert subprocess.run([binary(), "umount", "mnt/"], cwd=place, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("way", ["clairfs umount", "umount", "fusermount3 -u", "SIGTERM", "SIGINT", "SIGHUP"])
@pytest.mark.parametrize("foreground", [True, False])
def test_every_way_to_end_it(place, way, foreground):
    if way == "SIGHUP" and not foreground:
        pytest.skip("it is for the log: test_hang_up_reopens_the_log")
    if foreground:
        words = [binary(), "mount", place / "src", place / "mnt", "-f", "--catalog-dir", place / "catalog"]
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        wait_until(lambda: is_mounted(place / "mnt"), "mounted")
    else:
        assert mount_at(place).returncode == 0
    assert_served(place)
    (daemon,) = daemons(place / "mnt")
    if way.startswith("SIG"):
        os.kill(daemon, getattr(signal, way))
    elif way == "clairfs umount":
        assert run("umount", place / "mnt").returncode == 0
    else:
        subprocess.run([*way.split(), place / "mnt"], check=True, timeout=60)
    if foreground:
        assert process.wait(SETTLE_SECONDS) == 0
    wait_until(lambda: not daemons(place / "mnt"), "the daemon ends", SETTLE_SECONDS)
    assert not is_mounted(place / "mnt")
    assert mount_at(place).returncode == 0  # nothing is left locked


def test_hang_up_reopens_the_log(place):
    """As logrotate has it: what was written before is in the file that was moved away, the rest in a new one."""
    log = place / "log"
    assert mount_at(place, "--log-file", log).returncode == 0
    (daemon,) = daemons(place / "mnt")
    log.rename(place / "log.old")
    os.kill(daemon, signal.SIGHUP)
    wait_until(lambda: log.exists() and "goes on here" in log.read_text(), "the log is opened anew", SETTLE_SECONDS)
    assert_served(place)
    assert "mounted" in (place / "log.old").read_text()
    assert run("umount", place / "mnt").returncode == 0
    wait_until(lambda: not daemons(place / "mnt"), "the daemon ends", SETTLE_SECONDS)
    assert log.read_text().splitlines()[-1].endswith(f"unmounted {place / 'mnt'}")
    assert "goes on here" not in (place / "log.old").read_text()


def test_hang_up_during_the_scan_or_under_nohup_ends_nothing(place):
    words = ["nohup", binary(), "mount", place / "src", place / "mnt", "--catalog-dir", place / "catalog"]
    subprocess.run(words, check=True, timeout=60, capture_output=True)
    (daemon,) = daemons(place / "mnt")
    os.kill(daemon, signal.SIGHUP)
    (log,) = (place / "catalog/log").iterdir()
    wait_until(lambda: "goes on here" in log.read_text(), "the log is opened anew", SETTLE_SECONDS)
    assert_served(place)


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_warning_signals_end_nothing(place, name):
    assert mount_at(place).returncode == 0
    (daemon,) = daemons(place / "mnt")
    os.kill(daemon, getattr(signal, name))
    assert_served(place)
    assert daemons(place / "mnt") == [daemon]


def test_the_log_begins_with_what_a_report_needs(place):
    assert mount_at(place, "--ram=32M").returncode == 0
    (daemon,) = daemons(place / "mnt")
    (log,) = (place / "catalog/log").iterdir()
    uname = os.uname()
    assert log.name.endswith(f"@{uname.nodename.split('.')[0]}.log")  # a home may be shared by nodes
    first = log.read_text().splitlines()[0]
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:?\d\d info clairfs \d", first), first
    for part in (run("version").stdout.strip(), f"pid {daemon}", uname.nodename, uname.release, f"{place / 'src'} on {place / 'mnt'}", f"ram={32 << 20}"):
        assert part in first
    assert run("umount", place / "mnt").returncode == 0
    wait_until(lambda: not daemons(place / "mnt"), "the daemon ends", SETTLE_SECONDS)
    assert log.read_text().splitlines()[-1].endswith(f"unmounted {place / 'mnt'}")


@pytest.fixture
def manager(tmp):
    """What systemd is for a service with Type=notify: a socket, and what came by it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind(str(tmp / "notify"))
        there.settimeout(SETTLE_SECONDS)
        yield {"NOTIFY_SOCKET": str(tmp / "notify")}, there


def test_a_service_manager_is_told(place, manager):
    environment, there = manager
    words = [binary(), "mount", place / "src", place / "mnt", "-f", "--catalog-dir", place / "catalog"]
    with open(place / "journal", "wb") as journal:
        stat = os.fstat(journal.fileno())
        environment |= {"JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}"}
        process = subprocess.Popen(words, stderr=journal, env={**os.environ, **environment})
    assert there.recv(100) == b"READY=1"
    assert is_mounted(place / "mnt")
    process.terminate()
    assert there.recv(100) == b"STOPPING=1"
    assert process.wait(SETTLE_SECONDS) == 0
    lines = (place / "journal").read_text().splitlines()
    assert lines and all(re.match("<[2-7]>[^<]", line) for line in lines)
    assert lines[-1] == f"<6>unmounted {place / 'mnt'}"


def test_two_mounts_of_one_mountpoint_at_once(place):
    """One wins, the other is refused."""
    words = [binary(), "mount", place / "src", place / "mnt", "--catalog-dir", place / "catalog"]
    for _ in range(5):
        started = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        errors = [process.communicate(timeout=120)[1] for process in started]
        assert sorted(process.returncode for process in started) == [0, 32, 32], errors
        assert mounts_below(place / "mnt") == [str(place / "mnt")]
        assert [len(error.splitlines()) for error in sorted(errors)] == [0, 1, 1]
        assert sum("already" in error or "is about to mount" in error for error in errors) == 2, errors
        assert run("umount", place / "mnt").returncode == 0
        assert not is_mounted(place / "mnt")


def test_busy_mount_names_who_uses_it(place):
    assert mount_at(place).returncode == 0
    with subprocess.Popen(["sleep", "1000"], cwd=place / "mnt") as user:
        try:
            assert_one_line(run("umount", place / "mnt"), "busy", f"({user.pid})", "--lazy", status=32)
            assert is_mounted(place / "mnt")
            assert_served(place)
            assert run("umount", "--lazy", place / "mnt").returncode == 0
            assert not is_mounted(place / "mnt")
        finally:
            user.kill()
    wait_until(lambda: not daemons(place / "mnt"), "the daemon ends with the last user", SETTLE_SECONDS)


def test_signal_ends_a_mount_in_use(place):
    assert mount_at(place).returncode == 0
    (daemon,) = daemons(place / "mnt")
    fd = os.open(place / "mnt/0/3", os.O_RDONLY)
    try:
        os.kill(daemon, signal.SIGTERM)
        wait_until(lambda: not daemons(place / "mnt"), "the daemon ends", SETTLE_SECONDS)
        assert not is_mounted(place / "mnt")
        assert errno_of(os.read, fd, 10) == errno.ENOTCONN
    finally:
        assert errno_of(os.close, fd) in (0, errno.ENOTCONN)


def test_killed_daemon_leaves_a_mount_that_is_named_and_cleared(place):
    mnt = place / "mnt"
    assert mount_at(place).returncode == 0
    (daemon,) = daemons(mnt)
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: errno_of(os.statvfs, mnt) == errno.ENOTCONN, "the mount is stale", SETTLE_SECONDS)
    assert errno_of((mnt / "0/3").read_bytes) == errno.ENOTCONN
    clearing = f"clairfs umount {mnt}"
    assert_one_line(mount_at(place), "stale mount", clearing, status=32)
    assert_one_line(run("status", mnt), "stale mount", clearing)
    assert_one_line(run("warmup", mnt), "stale mount", clearing)
    (place / "other").mkdir()
    for below in (mnt, mnt / "0", mnt / "0/3/x"):  # what is cleared is the mount, whatever was given of it
        tried = run("mount", below, place / "other", "--catalog-dir", place / "catalog")
        assert_one_line(tried, f"{mnt} is a stale mount", f"{clearing}\n", status=32)
    command = f"PATH={binary().parent}:$PATH {clearing}"
    assert subprocess.run(["sh", "-c", command], timeout=60, check=False).returncode == 0
    assert not is_mounted(mnt)
    assert mount_at(place).returncode == 0
    assert_served(place)


def test_a_stale_mount_is_named_and_cleared_through_a_link(place):
    mnt, link = place / "mnt", place / "link"
    assert mount_at(place).returncode == 0
    link.symlink_to(f"{mnt}/")
    (daemon,) = daemons(mnt)
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: errno_of(os.statvfs, mnt) == errno.ENOTCONN, "the mount is stale", SETTLE_SECONDS)
    (place / "other").mkdir()
    for given in (link, link / "0", link / "0/3/x"):
        for command in ("status", "calibrate", "bench"):
            assert_one_line(run(command, given), f"{mnt} is a stale mount", f"clairfs umount {mnt}\n")
        waited = run("wait", given, "--timeout", "0")
        assert_one_line(waited, f"{mnt} is a stale mount", f"clairfs umount {mnt};", status=2)
        tried = run("mount", given, place / "other", "--catalog-dir", place / "catalog")
        assert_one_line(tried, f"{mnt} is a stale mount", f"clairfs umount {mnt}\n", status=32)
    tried = run("mount", place / "src", place / "other", "--catalog-dir", place / "catalog", f"--nvme={mnt / 'nvme'}:64M")
    assert_one_line(tried, f"NVMe directory {mnt} is a stale mount", f"clairfs umount {mnt}\n", status=32)
    tried = run("mount", place / "src", place / "other", "--catalog-dir", link / "catalog")
    told = f"catalog directory {link}/catalog: {mnt} is a stale mount"
    assert_one_line(tried, told, f"clairfs umount {mnt}\n", status=32)
    assert run("umount", link).returncode == 0
    assert not is_mounted(mnt)


def test_a_dead_source_of_another_filesystem_is_not_cleared_by_clairfs(place):
    with slowfs(place / "src") as slow:
        slow.kill()
        wait_until(lambda: errno_of(os.statvfs, slow.path) == errno.ENOTCONN, "the mount is stale", SETTLE_SECONDS)
        for source in (slow.path, slow.path / "0/3"):
            tried = run("mount", source, place / "mnt", "--catalog-dir", place / "catalog")
            told = f"{slow.path} is a stale mount of type fuse.clairfs-slowfs: its daemon is gone, or reaches no server;"
            assert_one_line(tried, told, f"'fusermount3 -u -z {slow.path}'", status=32)
            for command in ("calibrate", "bench"):
                assert_one_line(run(command, source), told, f"'fusermount3 -u -z {slow.path}'", status=2)


def test_mount_over_a_mount_is_refused(place):
    assert mount_at(place).returncode == 0
    assert_one_line(mount_at(place), "already", f"clairfs umount {place / 'mnt'}", status=32)
    assert_served(place)


@pytest.mark.parametrize("foreground", [[], ["-f"]])
def test_dry_run_checks_and_mounts_nothing(place, foreground):
    tried = mount_at(place, "--dry-run", *foreground)
    assert (tried.returncode, tried.stdout, tried.stderr) == (0, "", "")
    assert not is_mounted(place / "mnt") and not (place / "catalog").exists()
    assert_one_line(mount_at(place, "--dry-run", *foreground, source="absent"), place / "absent", status=32)
    for words, told in ((["--ram=3T"], "--ram 3.0 TiB"), ([f"--log-file={place}"], "is a directory")):
        assert_one_line(mount_at(place, "--dry-run", *foreground, *words), told, status=32)
    (place / "mnt/hidden").touch()
    doubted = mount_at(place, "--dry-run", *foreground)
    assert doubted.returncode == 0 and f"warning: mountpoint {place / 'mnt'} is not empty" in doubted.stderr
    assert mount_at(place).returncode == 0
    assert_one_line(mount_at(place, "--dry-run", *foreground), "already", status=32)


def test_umount_of_what_is_not_a_mount(place):
    for path in (place / "mnt", place / "absent", place / "src/0/3"):
        assert_one_line(run("umount", path), path)
    assert_one_line(run("status", place), place)
    assert_one_line(run("warmup", place), place)
    assert mount_at(place).returncode == 0
    assert_one_line(run("umount", place / "mnt/0"), f"clairfs umount {place / 'mnt'}")


WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGURG, signal.SIGCONT)


@pytest.mark.parametrize("foreground", [[], ["-f"]])
def test_warnings_of_batch_systems_end_nothing(place, foreground):
    """Those of every process, from its start on; and the guard still hears of the daemon's end."""
    mnt = place / "mnt"
    make_tree(place / "src", {f"{i}/file": 1 for i in range(20)})

    def warn(*pids):
        for pid in pids:
            for number in WARNINGS:
                os.kill(pid, number)

    with slowfs(place / "src", "--meta-latency", "10000") as slow:
        words = [binary(), "mount", slow.path, mnt, "--catalog-dir", place / "catalog", *foreground]
        command = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: slow.counters()["ops"].get("readdir", 0) > 1, "it scans")
            warn(*daemons(mnt))
            wait_until(lambda: command.poll() is not None or is_mounted(mnt), "the scan ends")
            if not foreground:
                assert command.wait(SETTLE_SECONDS) == 0
            assert_served(place)
            (daemon,) = daemons(mnt)
            guard = guard_of(daemon)
            warn(daemon, guard)
            assert_served(place)
            os.kill(daemon, signal.SIGKILL)
            wait_until(lambda: errno_of(os.statvfs, mnt) == errno.ENOTCONN, "the mount is stale", SETTLE_SECONDS)
            wait_until(lambda: ended(guard), "the guard ends", SETTLE_SECONDS)
        finally:
            command.kill()
            command.wait(SETTLE_SECONDS)


@pytest.mark.parametrize("foreground", [[], ["-f"]])
def test_interrupted_while_it_scans(place, foreground):
    """A mount that is not usable yet ends with the command that waits for it."""
    make_tree(place / "src", {f"many/{i}/file": 1 for i in range(200)})
    with slowfs(place / "src", "--meta-latency", "300000") as slow:
        words = [binary(), "mount", slow.path, place / "mnt", "--catalog-dir", place / "catalog", *foreground]
        with subprocess.Popen(words, stderr=subprocess.PIPE) as command:
            wait_until(lambda: slow.counters()["pending"] > 0, "it scans")
            command.send_signal(signal.SIGINT)
            assert command.wait(SETTLE_SECONDS) != 0
        wait_until(lambda: not daemons(place / "mnt"), "the daemon ends", SETTLE_SECONDS)
    assert not is_mounted(place / "mnt")
    assert not list(place.glob("catalog/*.catalog*"))


def test_a_signal_ends_a_scan_in_the_foreground(place):
    """Nothing is mounted then that would have to be undone."""
    make_tree(place / "src", {f"many/{i}/file": 1 for i in range(200)})
    with slowfs(place / "src", "--meta-latency", "300000") as slow:
        words = [binary(), "mount", slow.path, place / "mnt", "--catalog-dir", place / "catalog", "-f"]
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as command:
            wait_until(lambda: slow.counters()["ops"].get("readdir", 0) > 3, "it scans")
            command.send_signal(signal.SIGINT)
            assert command.wait(SETTLE_SECONDS) == 128 + signal.SIGINT
    assert not is_mounted(place / "mnt")


@pytest.fixture
def helper(place):
    """mount.clairfs, as mount(8) calls it."""
    (place / "mount.clairfs").symlink_to(binary())
    return lambda *words: subprocess.run(
        [place / "mount.clairfs", *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_mount_helper(place, helper):
    options = f"rw,noatime,nosuid,nodev,_netdev,nofail,x-systemd.automount,ram=32M,catalog-dir={place / 'catalog'}"
    mounted = helper(place / "src", place / "mnt", "-n", "-o", options, "-t", "fuse.clairfs")
    assert (mounted.returncode, mounted.stderr) == (0, "")
    assert_served(place)
    assert f"ram={32 << 20}\n" in (place / "mnt/.clairfs/config").read_text()
    assert subprocess.run(["umount", place / "mnt"], timeout=60, check=False).returncode == 0


def test_mount_helper_refuses_unknown_options_but_when_sloppy(place, helper):
    options = f"colour=red,catalog-dir={place / 'catalog'}"
    assert_one_line(helper(place / "src", place / "mnt", "-o", options), "colour=red", status=1)
    assert helper(place / "src", place / "mnt", "-f", "-s", "-o", options).returncode == 0  # -f: a rehearsal
    assert not is_mounted(place / "mnt")
    assert helper(place / "src", place / "mnt", "-s", "-o", options).returncode == 0
    assert_served(place)


def test_mount_helper_says_how_it_is_used(helper):
    for word, said in (("--help", "man clairfs"), ("-h", "usage: mount.clairfs"), ("--version", "clairfs ")):
        told = helper(word)
        assert (told.returncode, told.stderr) == (0, "") and said in told.stdout


@pytest.mark.parametrize("io", ["auto", "threads"])
def test_warmup_brings_everything_in(place, io):
    assert mount_at(place, "--ram=64M", "--chunk=64K", f"--io={io}").returncode == 0
    warmed = run("warmup", place / "mnt")
    total = sum(1000 * i for i in range(30))
    assert warmed.returncode == 0 and "30 of 30 files" in warmed.stdout
    for path in (place / "src").rglob("*/*"):
        assert os.getxattr(place / "mnt" / path.relative_to(place / "src"), "user.clairfs.tier") == b"ram"
    stats = json.loads((place / "mnt/.clairfs/stats.json").read_text())
    assert stats["pfs"]["bytes"] == total <= stats["tiers"]["ram"]["bytes"]
    assert run("warmup", place / "mnt", "0", "1/4").returncode == 0
    assert json.loads((place / "mnt/.clairfs/stats.json").read_text())["pfs"]["bytes"] == total
    assert_one_line(run("warmup", place / "mnt", "absent"), "absent")
    assert_one_line(run("warmup", place / "mnt", place / "src"), "not below the mount")


def test_warmup_shows_progress_on_a_terminal(place):
    assert mount_at(place, "--ram=64M").returncode == 0
    controller, terminal = pty.openpty()
    warmed = subprocess.run(
        [binary(), "warmup", place / "mnt"], stderr=terminal, stdout=subprocess.PIPE, timeout=60, check=True
    )
    os.close(terminal)
    shown = os.read(controller, 65536).decode()
    os.close(controller)
    assert "%" in shown and "/30 files" in shown and "30 of 30 files" in warmed.stdout.decode()


def shown_after_erasing(written):
    """The lines of a terminal; what was written before an erase of the whole line is not seen."""
    seen = [re.sub(r".*\r\x1b\[K", "", line) for line in written.replace("\r\n", "\n").split("\n")]
    return [line for line in seen if line]


def test_the_foreground_leaves_lines_of_the_log_alone_on_a_terminal(place):
    """The progress of the scan is drawn where the next line of the log goes."""
    controller, terminal = pty.openpty()
    words = [binary(), "mount", "-f", place / "src", place / "mnt", "--catalog-dir", place / "catalog"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=terminal) as mount:
        os.close(terminal)
        written = ""
        try:
            while "mounted " not in written:
                written += os.read(controller, 4096).decode()
        finally:
            mount.terminate()
            assert mount.wait(SETTLE_SECONDS) == 0
    while True:
        try:
            written += os.read(controller, 4096).decode()
        except OSError:
            break  # nobody has it open any more
    os.close(controller)
    assert "\r\x1b[Kscanning " in written
    lines = shown_after_erasing(written)
    assert len(lines) > 2 and all(re.match(r"\d{4}-\d\d-\d\dT\S+ (info|warning) \S", line) for line in lines), lines


@only_root
def test_what_somebody_else_has_mounted_there_since_is_left_alone(place):
    """Ours lives on elsewhere, by a bind mount."""
    assert mount_at(place).returncode == 0
    (daemon,) = daemons(place / "mnt")
    (place / "elsewhere").mkdir()
    with cleaned(place / "elsewhere"):
        subprocess.run(["mount", "--bind", place / "mnt", place / "elsewhere"], check=True)
        subprocess.run(["umount", place / "mnt"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place / "mnt"], check=True)
        (place / "mnt/theirs").write_text("theirs")
        os.kill(daemon, signal.SIGTERM)
        wait_until(lambda: not os.path.exists(f"/proc/{daemon}"), "it ends", SETTLE_SECONDS)
        assert (place / "mnt/theirs").read_text() == "theirs"
        subprocess.run(["umount", place / "mnt"], check=True)
