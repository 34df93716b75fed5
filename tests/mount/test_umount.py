"""What others are told about a mount, and how it ends when its daemon is silent."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from clairmount import binary, clairfs, is_mounted, make_tree, wait_until
from mounting import NOBODY, SETTLE_SECONDS, assert_one_line, cleaned, daemons, only_root, run


@pytest.fixture
def place(tmp):
    make_tree(tmp / "src", {"file": 10})
    (tmp / "mnt").mkdir()
    with cleaned(tmp / "mnt"):
        yield tmp


@pytest.fixture
def other(tmp, monkeypatch):
    """`clairfs ...` as another user, who need not reach the build directory."""
    shutil.copy(binary(), tmp / "clairfs")
    (tmp / "clairfs").chmod(0o755)
    monkeypatch.setenv("CLAIRFS_BIN", str(tmp / "clairfs"))
    return lambda *words: run(*words, user=NOBODY)


def mount_at(place, *options):
    mounted = run("mount", place / "src", place / "mnt", "--catalog-dir", place / "catalog", *options)
    assert (mounted.returncode, mounted.stderr) == (0, "")


def thread_states(pid):
    return {stat.read_text().rpartition(") ")[2][0] for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")}


def test_umount_of_another_filesystem_gives_no_advice_to_end_it(place):
    result = run("umount", "/proc")
    assert_one_line(result, "/proc is a mount of type proc, not clairfs", status=1)
    assert "umount /proc" not in result.stderr


def test_umount_tells_of_a_daemon_that_does_not_answer(place):
    mount_at(place)
    (daemon,) = daemons(place / "mnt")
    os.kill(daemon, signal.SIGSTOP)
    # A thread that has taken the question before it stops keeps the mount busy.
    wait_until(lambda: thread_states(daemon) <= {"T"}, "the daemon stands still", SETTLE_SECONDS)
    try:
        assert_one_line(run("umount", place / "mnt"), place / "mnt", "did not answer", status=2)
    finally:
        os.kill(daemon, signal.SIGCONT)
    wait_until(lambda: not daemons(place / "mnt"), "the daemon ends", SETTLE_SECONDS)
    assert not is_mounted(place / "mnt")


@only_root
def test_umount_names_who_still_has_the_mount_in_a_namespace_of_its_own(place):
    mount_at(place)
    (daemon,) = daemons(place / "mnt")
    holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 1000"],
                              stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        result = run("umount", place / "mnt")
        assert_one_line(result, "unmounted here, but", f"({holder.pid}) still has it", f"kill {daemon}", status=2)
        assert not is_mounted(place / "mnt")
        os.kill(daemon, signal.SIGTERM)
        wait_until(lambda: not daemons(place / "mnt"), "the daemon ends", SETTLE_SECONDS)
    finally:
        holder.kill()
        holder.communicate()


@only_root
def test_who_is_locked_out_of_a_mount_is_told_why(place, other):
    mount_at(place)
    for command in ("status", "top", "warmup"):
        for end in ("", "/"):
            assert_one_line(other(command, f"{place / 'mnt'}{end}"), "mounted by user 0 without --allow-other", status=2)
    assert_one_line(other("wait", place / "mnt"), "mounted by user 0 without --allow-other", status=2)
    assert_one_line(other("umount", place / "mnt"), "belongs to user 0; only that user and root", status=32)
    assert is_mounted(place / "mnt")


@only_root
def test_top_says_that_plans_are_not_for_others(place, other):
    with clairfs(place / "src", "--allow-other") as mount:
        mount.path.joinpath(".clairfs/plan").write_text("seed=1\n")
        assert "plan default" in run("top", mount.path, "--once", "--interval=0.1").stdout
        said = other("top", mount.path, "--once", "--interval=0.1").stdout
        assert "plans are shown to the mount's user and root only" in said and "no plan" not in said
