"""Who may do what: the source's permissions hold, and a user without privileges mounts for himself."""

import ctypes
import os
import pathlib
import shutil
import stat
import subprocess

import pytest
from clairmount import binary, clairfs, is_mounted, make_tree, wait_until
from mounting import (
    NOBODY, SETTLE_SECONDS, as_user, assert_one_line, cleaned, daemons, device_for_all, error_name, run,
)  # fmt: skip

OTHER = 12345
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


@pytest.fixture
def source(tmp):
    """Files of several owners and modes; the way to them is open."""
    make_tree(tmp / "src", {"public": 10, "private": 20, "group": 30, "locked/inner": 40, "program": 0})
    (tmp / "src/program").write_text("#!/bin/sh\necho ran\n")
    for name, mode, uid, gid in (
        ("public", 0o644, 0, 0), ("private", 0o600, 0, 0), ("group", 0o640, 0, NOBODY), ("program", 0o755, 0, 0),
        ("locked", 0o700, 0, 0), ("locked/inner", 0o644, 0, 0), ("", 0o755, 0, 0),
    ):  # fmt: skip
        os.chown(tmp / "src" / name, uid, gid)
        os.chmod(tmp / "src" / name, mode)
    open_way(tmp)
    return tmp / "src"


def open_way(path):
    """Other users may pass through `path` and what is above it."""
    for folder in (path, *path.parents):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & 0o001:
            os.chmod(folder, mode | 0o011)


def read(path):
    return pathlib.Path(path).read_bytes()


@pytest.fixture
def shared(source):
    with clairfs(source, "--allow-other") as mount:
        open_way(mount.path.parent)
        yield mount


def test_modes_hold_for_other_users(shared):
    assert as_user(NOBODY, read, shared.path / "public") == read(shared.source / "public")
    assert as_user(NOBODY, read, shared.path / "group") == read(shared.source / "group")
    for user, name in ((NOBODY, "private"), (OTHER, "private"), (OTHER, "group"), (NOBODY, "locked/inner")):
        assert as_user(user, error_name, read, shared.path / name) == "EACCES", (user, name)
    assert as_user(NOBODY, error_name, os.listdir, shared.path / "locked") == "EACCES"
    assert as_user(NOBODY, os.access, shared.path / "public", os.R_OK)
    assert not as_user(NOBODY, os.access, shared.path / "private", os.R_OK)
    assert read(shared.path / "private") == read(shared.source / "private")  # root may


def test_modes_hold_after_root_has_read(shared):
    for name in ("private", "group", "locked/inner"):
        assert read(shared.path / name) == read(shared.source / name)
        assert as_user(OTHER, error_name, read, shared.path / name) == "EACCES"


def test_owner_and_mode_are_those_of_the_source(shared):
    for name in ("public", "private", "group", "locked", "locked/inner", "program", ""):
        ours, theirs = os.stat(shared.path / name), os.stat(shared.source / name)
        assert (ours.st_mode, ours.st_uid, ours.st_gid) == (theirs.st_mode, theirs.st_uid, theirs.st_gid)


def test_programs_run_but_not_with_noexec(source, shared):
    assert subprocess.run([shared.path / "program"], capture_output=True, check=True).stdout == b"ran\n"
    with clairfs(source, "--noexec") as mount:
        assert error_name(subprocess.run, [mount.path / "program"]) == "EACCES"


def test_writing_as_another_user_is_refused(shared):
    assert as_user(NOBODY, error_name, os.mkdir, shared.path / "new") in ("EACCES", "EROFS")
    assert as_user(NOBODY, error_name, os.unlink, shared.path / "public") in ("EACCES", "EROFS")
    assert as_user(NOBODY, error_name, os.chmod, shared.path / "public", 0o777) in ("EPERM", "EROFS")


def test_control_files_of_the_owner_only(shared):
    modes = {"status": 0o444, "stats.json": 0o444, "metrics": 0o444, "peers": 0o444,
             "history": 0o444, "config": 0o400, "plan": 0o600, "last_error": 0o400, "accesslog": 0o400}  # fmt: skip
    assert set(os.listdir(shared.path / ".clairfs")) == set(modes)
    for name, mode in modes.items():
        path = shared.path / ".clairfs" / name
        assert stat.S_IMODE(path.stat().st_mode) == mode, name
        expected = "success" if mode & 0o004 else "EACCES"
        assert as_user(NOBODY, error_name, read, path) == expected, name
        assert read(path) or name in ("plan", "last_error", "accesslog"), name  # nothing happened yet


def test_without_allow_other_nobody_else_enters(source):
    with clairfs(source) as mount:
        open_way(mount.path.parent)
        for path in (mount.path, mount.path / "public", mount.path / ".clairfs/status"):
            assert as_user(NOBODY, error_name, os.stat, path) == "EACCES"
        assert as_user(NOBODY, error_name, os.listdir, mount.path) == "EACCES"
        assert read(mount.path / "public") == read(source / "public")


def test_unreadable_entries_are_reported_and_the_rest_is_served(source, own):
    """A user without privileges scans a tree of which he may not see all."""
    with cleaned(own.mnt):
        assert own.mount().returncode == 0
        assert as_user(NOBODY, read, own.mnt / "public") == read(source / "public")
        assert as_user(NOBODY, error_name, read, own.mnt / "private") == "EACCES"
        assert "could not be read" in as_user(NOBODY, read, own.mnt / ".clairfs/status").decode()


# A user without privileges


KEPT = ("PATH", "UCX_MEM_EVENTS")  # of the environment; for the latter see tests/run.sh


class Own:
    """What belongs to the user nobody: a mountpoint, a catalog directory, a copy of the program that he may run."""

    def __init__(self, tmp, source):
        self.source = source
        self.mnt, self.cache, self.program = tmp / "mnt", tmp / "cache", tmp / "clairfs"
        for folder in (self.mnt, self.cache):
            folder.mkdir()
            os.chown(folder, NOBODY, NOBODY)
        shutil.copy(binary(), self.program)
        os.chmod(self.program, 0o755)

    def run(self, *words, env=None, user=NOBODY):
        return subprocess.run(
            [self.program, *map(str, words)], user=user, group=user, extra_groups=[], capture_output=True,
            stdin=subprocess.DEVNULL, text=True, timeout=60, check=False, cwd="/",
            env={**{name: os.environ[name] for name in KEPT if name in os.environ}, **(env or {})},
        )  # fmt: skip

    def mount(self, *options, mountpoint=None):
        return self.run("mount", self.source, mountpoint or self.mnt, "--catalog-dir", self.cache, *options)


@pytest.fixture
def own(tmp, source):
    with device_for_all():
        yield Own(tmp, source)


def test_user_mounts_reads_and_unmounts(own):
    with cleaned(own.mnt):
        mounted = own.mount()
        assert (mounted.returncode, mounted.stdout, mounted.stderr) == (0, "", "")
        assert as_user(NOBODY, read, own.mnt / "public") == read(own.source / "public")
        assert own.run("status", own.mnt).returncode == 0
        assert error_name(os.listdir, own.mnt) == "EACCES"  # not even root enters
        assert own.run("warmup", own.mnt, "public").returncode == 0
        unmounted = own.run("umount", own.mnt)
        assert (unmounted.returncode, unmounted.stderr) == (0, "")
        assert not is_mounted(own.mnt) and not daemons(own.mnt)


def permit_allow_other(folder):
    """To all users, by an /etc/fuse.conf that only this process sees, which is to end with the test."""
    (folder / "fuse.conf").write_text("user_allow_other\n")
    clone_newns = 0x20000
    assert ctypes.CDLL(None).unshare(clone_newns) == 0
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "--bind", folder / "fuse.conf", "/etc/fuse.conf"], check=True)


def test_a_user_s_mount_is_controlled_by_him_and_root(own, tmp):
    (own.source / "open").mkdir()
    os.chmod(own.source / "open", 0o777)
    (own.source / "open/file").write_text("x")
    folder, plan = own.mnt / "open", own.mnt / ".clairfs/plan"
    set_plan = (os.setxattr, plan, "user.clairfs.plan", b"seed=1 root=open")
    cancel = (os.removexattr, plan, "user.clairfs.plan")
    write = (plan.write_text, "seed=1 root=open")
    command = ("plan", folder, "seed=1")

    def registered():
        return "seed=1" in as_user(NOBODY, plan.read_text)

    def control():
        permit_allow_other(tmp)
        with cleaned(own.mnt):
            assert own.mount("--allow-other").returncode == 0
            for user in (NOBODY, 0):
                for register in (set_plan, write):
                    as_user(user, *register)
                    assert registered()
                    as_user(user, *cancel)
                    assert not registered()
                assert own.run(*command, user=user).returncode == 0 and registered()
                as_user(user, plan.write_text, "cancel")
                assert not registered()
                assert own.run(*command, user=user).returncode == 0
                assert own.run("plan", "cancel", own.mnt, user=user).returncode == 0 and not registered()
            as_user(NOBODY, *set_plan)
            for refused in (set_plan, cancel, write, (plan.read_text,)):
                assert as_user(OTHER, error_name, *refused) in ("EACCES", "EPERM", "EROFS"), refused
            for words in (command, ("plan", "cancel", own.mnt), ("plan", "show", own.mnt)):
                done = own.run(*words, user=OTHER)
                assert done.returncode == 2 and "only the mount's user and root may control it" in done.stderr, done
            assert registered()
            assert own.run("umount", own.mnt).returncode == 0

    with cleaned(own.mnt):  # of processes, should the other one have died
        as_user(0, control)


@pytest.mark.parametrize("end", [["fusermount3", "-u"], ["kill"]])
def test_user_ends_his_mount_by_other_means(own, end):
    with cleaned(own.mnt):
        assert own.mount().returncode == 0
        (daemon,) = daemons(own.mnt)
        target = str(daemon) if end == ["kill"] else own.mnt
        subprocess.run([*end, target], user=NOBODY, check=True)
        wait_until(lambda: not daemons(own.mnt) and not is_mounted(own.mnt), "the daemon ends", SETTLE_SECONDS)


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_user_without_a_home_is_told_what_to_give(own, dry_run):
    with cleaned(own.mnt):
        failed = own.run("mount", own.source, own.mnt, *dry_run, env={"HOME": "/nonexistent"})
        assert_one_line(failed, "/nonexistent", "--catalog-dir", status=32)
        assert not is_mounted(own.mnt) and not daemons(own.mnt)


def test_mountpoint_of_somebody_else_is_named(own, tmp):
    (tmp / "roots").mkdir(mode=0o755)
    with cleaned(tmp / "roots"):
        assert_one_line(own.mount(mountpoint=tmp / "roots"), tmp / "roots", "directory of your own", status=32)
        assert not is_mounted(tmp / "roots")


def test_missing_permission_for_allow_other_is_named(own):
    conf = pathlib.Path("/etc/fuse.conf")
    if conf.exists() and any(line.strip() == "user_allow_other" for line in conf.read_text().splitlines()):
        pytest.skip("this machine permits allow_other to all users")
    with cleaned(own.mnt):
        assert_one_line(own.mount("--allow-other"), "user_allow_other", "/etc/fuse.conf", status=32)
        assert not is_mounted(own.mnt) and not daemons(own.mnt)


def test_source_that_the_user_may_not_read_is_named(own):
    os.chmod(own.source, 0o700)
    with cleaned(own.mnt):
        assert_one_line(own.mount(), own.source, "permission denied", status=32)


def test_user_does_not_end_the_mount_of_another(shared, own):
    refused = own.run("umount", shared.path)
    assert_one_line(refused, shared.path)
    assert is_mounted(shared.path) and read(shared.path / "public") == read(shared.source / "public")


@pytest.mark.parametrize("end", ["", "/"])
def test_root_clears_the_mount_of_a_user(own, end):
    with cleaned(own.mnt):
        assert own.mount().returncode == 0
        assert run("umount", f"{own.mnt}{end}").returncode == 0
        assert not daemons(own.mnt) and not is_mounted(own.mnt)
