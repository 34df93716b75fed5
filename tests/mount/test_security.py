"""What other users of the node can do with a mount, and with what it reads and writes: tests/README.md, "Security".

test_permissions.py has the source's permissions, test_nvme.py the modes of the NVMe directory."""

import contextlib
import errno
import json
import os
import resource
import shutil
import socket
import stat
import subprocess
import threading
import time

import pytest
from clairmount import clairfs, make_tree, slowfs, wait_until
from mounting import NOBODY, as_user, assert_one_line, cleaned, errno_of, error_name, io_choices, only_root, run
from test_permissions import open_way, read

SEED = b"seed=1"


@pytest.fixture
def shared(tmp):
    """A mount that others may enter, of a source where some folders are closed to them and one is open to all."""
    make_tree(tmp / "src", {"locked/secret name": 30, "private": 20, "open/file": 10, "open/other": 10})
    for name, mode in (("locked", 0o700), ("private", 0o600), ("open", 0o777), ("", 0o755)):
        os.chmod(tmp / "src" / name, mode)
    open_way(tmp / "src")
    with clairfs(tmp / "src", "--allow-other") as mount:
        open_way(mount.path.parent)
        yield mount


def ask(name, command):
    """What the control socket answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect("\0" + name)
        with contextlib.suppress(BrokenPipeError, OSError):
            connection.sendall(command)
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                answer += part
        return answer


def write_text(path, text):
    with open(path, "r+b", buffering=0) as file:
        file.write(text)


# Control


@only_root
def test_only_the_owner_and_root_control(shared):
    plan = shared.path / ".clairfs/plan"
    assert as_user(NOBODY, error_name, write_text, plan, SEED) in ("EACCES", "EROFS")
    # Also where the folder itself may be written to.
    for place in ("open", "", "locked", ".clairfs", ".clairfs/plan"):
        refused = as_user(NOBODY, error_name, os.setxattr, shared.path / place, "user.clairfs.plan", SEED)
        assert refused in ("EACCES", "EPERM", "EROFS"), place
    os.setxattr(plan, "user.clairfs.plan", SEED)
    # By the way that the owner is shown, as well.
    door = os.readlink(plan)
    assert as_user(NOBODY, error_name, write_text, door, b"cancel") == "EACCES"
    assert as_user(NOBODY, error_name, os.removexattr, door, "user.clairfs.plan") == "EACCES"
    assert as_user(NOBODY, error_name, os.removexattr, shared.path / "open", "user.clairfs.plan") == "EROFS"
    name = shared.stats()["daemon"]["control_socket"]
    for command in (b"plan seed=1", b"cancel", b"show", b"next 10", b"", b"x" * 200_000):
        assert as_user(NOBODY, ask, name, command).startswith(b"error 1\n"), command
    assert ask(name, b"show").startswith(b"ok\n")
    assert len(shared.stats()["plan_list"]) == 1


@only_root
def test_a_silent_stranger_keeps_nobody_out_of_the_socket(shared):
    """His connections are closed at once: he has no deadline to use up."""
    name = shared.stats()["daemon"]["control_socket"]

    def stand_in_the_door():
        connections = []
        for _ in range(16):  # as many as wait to be accepted
            connections.append(socket.socket(socket.AF_UNIX))
            connections[-1].connect("\0" + name)
        ended = 0
        for connection in connections:
            connection.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1 << 16):
                    pass
            ended += 1
        return ended

    begin = time.monotonic()
    assert as_user(NOBODY, stand_in_the_door) == 16
    # Each would cost five seconds (kRequestSeconds) if it were heard out.
    assert time.monotonic() - begin < 40
    assert ask(name, b"show").startswith(b"ok\n")


@only_root
def test_open_snapshots_of_a_stranger_leave_the_owner_his(shared):
    """Control files are made when they are opened; what others keep open is bounded, and is not all there is."""

    def hoard():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        files = []
        try:
            while len(files) < hard - 100:
                files.append(os.open(shared.path / ".clairfs/stats.json", os.O_RDONLY))
            failed = "nothing"
        except OSError as error:
            failed = errno.errorcode[error.errno]
        ready.write_text("x")
        wait_until(done.exists, "the owner is done")
        return failed, len(files)

    ready, done = shared.path.parent / "ready", shared.path.parent / "done"
    os.chmod(shared.path.parent, 0o777)
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(as_user(NOBODY, hoard)))
    thread.start()
    try:
        wait_until(ready.exists, "he has what he can get")
        assert shared.control("status") and shared.control("config")
    finally:
        done.write_text("x")
        thread.join(60)
    failed, count = outcome[0]
    assert failed == "ENFILE" and count > 1000, (failed, count)


# Names and contents


@only_root
def test_control_files_name_nothing_to_others(shared):
    """Neither a plan nor the access log tells what lies in a folder that is closed to them."""
    os.setxattr(shared.path / ".clairfs/plan", "user.clairfs.plan", b"root=locked format=files " + SEED)
    wait_until(lambda: shared.stats()["plan_list"][0]["ahead"] > 0, "it is planned")
    assert read(shared.path / "locked/secret name") and read(shared.path / "open/file")
    with pytest.raises(OSError):
        os.setxattr(shared.path / ".clairfs/plan", "user.clairfs.plan", b"sampler=list list=[\"locked/secret name\", \"absent\"]")
    assert "secret name" in shared.control("last_error") + shared.control("accesslog")
    seen = []
    for name in os.listdir(shared.path / ".clairfs"):
        with contextlib.suppress(PermissionError):
            seen.append(as_user(NOBODY, read, shared.path / ".clairfs" / name))
    assert len(seen) >= 3  # status, stats.json, metrics
    assert not any(b"secret" in text or b"locked" in text for text in seen)
    assert as_user(NOBODY, error_name, os.getxattr, shared.path / "locked", "user.clairfs.plan") == "EACCES"
    os.setxattr(shared.path / ".clairfs/plan", "user.clairfs.plan", b"name=all format=files seed=4242")
    assert b"4242" in os.getxattr(shared.path, "user.clairfs.plan") and os.listxattr(shared.path)
    assert as_user(NOBODY, error_name, os.getxattr, shared.path, "user.clairfs.plan") == "ENODATA"
    assert as_user(NOBODY, os.listxattr, shared.path) == []
    assert json.loads(as_user(NOBODY, read, shared.path / ".clairfs/stats.json"))["plan_list"] == []


@only_root
def test_why_the_catalog_is_new_is_not_for_others(shared):
    (shared.source / "locked/secret name").write_bytes(b"changed")
    shared.remount()
    assert "secret name" in shared.control("status")
    for name in ("status", "stats.json"):
        assert b"secret" not in as_user(NOBODY, read, shared.path / ".clairfs" / name)


@only_root
def test_a_log_is_not_written_where_a_stranger_s_link_leads(tmp):
    make_tree(tmp / "src", {"file": 10})
    (tmp / "mnt").mkdir()
    (tmp / "victim").write_text("as it was\n")
    os.symlink(tmp / "victim", tmp / "log")
    os.lchown(tmp / "log", NOBODY, NOBODY)
    words = ["mount", tmp / "src", tmp / "mnt", "--catalog-dir", tmp / "catalog", "--log-file", tmp / "log"]
    assert_one_line(run(*words), "symlink", status=32)
    assert (tmp / "victim").read_text() == "as it was\n"


@only_root
def test_attributes_of_a_file_need_its_permission(shared):
    assert os.getxattr(shared.path / "private", "user.clairfs.checksum")
    for name in ("user.clairfs.checksum", "user.clairfs.tier", "user.clairfs.next_use"):
        assert as_user(NOBODY, error_name, os.getxattr, shared.path / "private", name) == "EACCES"
    assert as_user(NOBODY, os.getxattr, shared.path / "open/file", "user.clairfs.checksum")


def test_programs_of_the_dataset_gain_nothing(tmp):
    """A set-user-ID bit is shown but not heeded, and a device is none."""
    make_tree(tmp / "src", {"program": 10})
    os.chmod(tmp / "src/program", 0o4755)
    with clairfs(tmp / "src") as mount:
        flags = os.statvfs(mount.path).f_flag
        assert flags & os.ST_NOSUID and flags & os.ST_NODEV


# The source


@pytest.mark.parametrize("io", io_choices())
@pytest.mark.parametrize("size", [5000, 300_000])
def test_folder_that_becomes_a_link_leads_nowhere(tmp, io, size):
    """The file that it leads to has the name, size and time of the one that was there: only the way differs."""
    contents = make_tree(tmp / "src", {"a/b/file": size, "other": 10})
    secret = make_tree(tmp / "elsewhere", {"b/file": size}, seed=1)["b/file"]
    times = (tmp / "src/a/b/file").stat()
    os.utime(tmp / "elsewhere/b/file", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert contents["a/b/file"] != secret
    with clairfs(tmp / "src", "--chunk=64K", f"--io={io}") as mount:
        os.rename(tmp / "src/a", tmp / "moved")
        for target in (tmp / "elsewhere", "../elsewhere"):
            os.symlink(target, tmp / "src/a")
            assert error_name(read, mount.path / "a/b/file") == "ESTALE"
            os.unlink(tmp / "src/a")
        os.rename(tmp / "moved", tmp / "src/a")
        assert read(mount.path / "a/b/file") == contents["a/b/file"]


LEADING_OUT = {
    """format=list list='["up/x"]'""": "leads out of the dataset",
    """format=list list='["../x"]'""": "without '..'",
    """format=list list='["/etc/passwd"]'""": "relative to the plan's root",
    "root=up": "no such folder in the dataset",
    "root=../..": "no such folder in the dataset",
    "root=/etc": "no such folder in the dataset",
    "format=npy file=out": "no such file below the plan's root",
    "format=npy file=../x": "no such file below the plan's root",
}


def test_links_out_of_the_source_are_the_readers_own_affair(tmp):
    """A symlink is served as one: it is the reader who follows it, with his own permissions."""
    make_tree(tmp / "src", {"file": 10})
    os.symlink("/etc/shadow", tmp / "src/out")
    os.symlink("..", tmp / "src/up")
    with clairfs(tmp / "src") as mount:
        assert os.readlink(mount.path / "out") == "/etc/shadow"
        wait_until(lambda: mount.stat("catalog.files") == 1, "it is scanned")
        for text, reason in LEADING_OUT.items():
            spec = f"sampler=torch.sequential {text}"
            assert error_name(os.setxattr, mount.path / ".clairfs/plan", "user.clairfs.plan", spec.encode()) == "EINVAL", text
            assert reason in mount.control("last_error"), text
        for line in ("../x", "/etc/passwd", "up/x"):
            (tmp / "list").write_text(f"file\n{line}\n")
            spec = f"sampler=torch.sequential format=list list={tmp}/list"
            assert error_name(os.setxattr, mount.path / ".clairfs/plan", "user.clairfs.plan", spec.encode()) == "EINVAL", line
            assert "line 2" in mount.control("last_error"), line
        assert mount.stats()["plan_list"] == []
        # A sample that no read of the mount can mean, and that nothing is fetched for.
        write_text(mount.path / ".clairfs/plan", b'''sampler=torch.sequential format=list list='["out"]' ''')
        before = mount.stat("pfs.opens")
        run("plan", "check", mount.path)
        assert mount.stats()["plan_list"][0]["samples"] == 1 and mount.stat("pfs.opens") == before


# What is read from a user is bounded


# Keys of a plan whose value may be a file: how they are given.
FILES = {
    "list": "sampler=list list=", "weights": "sampler=torch.weighted seed=1 weights=",
    "indices": "sampler=torch.subset seed=1 indices=",
}  # fmt: skip


def test_too_much_is_refused(tmp):
    make_tree(tmp / "src", {"file": 10})
    (tmp / "src/huge.npy").write_bytes(b"\x93NUMPY\2\0" + b"\xff" * 100)
    (tmp / "src/cut.npy").write_bytes(b"\x93NUMPY\2\0" + (1 << 16).to_bytes(4, "little") + b"{" * 100)
    with clairfs(tmp / "src") as mount:
        name = mount.stats()["daemon"]["control_socket"]
        for size in (1 << 17, 1 << 24):
            assert ask(name, b"plan seed=" + b"1" * size).startswith(b"error"), size
        plan = mount.path / ".clairfs/plan"
        assert error_name(write_text, plan, b"seed=" + b"1" * (1 << 20)) == "EINVAL"
        assert error_name(os.setxattr, mount.path / ".clairfs/plan", "user.clairfs.plan", b"seed=" + b"1" * 65_000) == "EINVAL"

        def plan_refused(text, reason):
            assert error_name(write_text, plan, text.encode()) == "EINVAL", text[:200]
            assert reason in mount.control("last_error"), text[:200]

        with open(tmp / "large", "wb") as file:
            file.truncate((1 << 30) + 1)  # sparse
        (tmp / "orders").write_bytes(b"0\n\n" * ((1 << 20) + 1))
        for key in ("list", "indices"):
            plan_refused(f"{FILES[key]}{tmp}/large", "at most")
            plan_refused(f"{FILES[key]}{tmp}/orders", "more than a million orders")
        plan_refused(f"{FILES['weights']}{tmp}/large", "want at most")
        plan_refused(f"{FILES['weights']}{tmp}/orders", "more than 3 weights")  # samples of the dataset
        os.mkfifo(tmp / "pipe")
        for key, text in FILES.items():
            for path in ("/dev/zero", tmp / "src", tmp / "pipe"):
                plan_refused(f"{text}{path}", "regular file")
            plan_refused(f"{text}/proc/self/mem", "")
        plan_refused("sampler=torch.sequential format=npy file=huge.npy", "a header of 4294967295 bytes")
        plan_refused("sampler=torch.sequential format=npy file=cut.npy", "ends inside its header")
        plan_refused(f"sampler=torch.random state={'A' * 40_000}", "has 5056 bytes, not 30000")
        plan_refused(f"seed=1 name={'x' * 65}", "up to 64")
        assert mount.process.poll() is None
        deep = b'{"list": ' + b"[" * 25_000 + b"]" * 25_000 + b"}"
        assert error_name(write_text, plan, deep) == "EINVAL"
        assert "bytes are too many" not in mount.control("last_error")
        # Short enough, but not as it is read back and sent to the other nodes, with its defaults.
        plan_refused(f"sampler=list list=[{'0,' * 28_650}0]", "bytes are too many")
        assert mount.stats()["plan_list"] == []


def test_files_of_plans_are_named_by_absolute_paths(tmp):
    """The daemon's current directory is not that of whoever registers a plan."""
    make_tree(tmp / "src", {"file": 10})
    (tmp / "order").write_text("0\n")
    with clairfs(tmp / "src") as mount:
        for key, text in FILES.items():
            assert error_name(os.setxattr, mount.path / ".clairfs/plan", "user.clairfs.plan", f"{text}order".encode()) == "EINVAL"
            assert "absolute path" in mount.control("last_error") and key in mount.control("last_error")
        write_text(mount.path / ".clairfs/plan", f"sampler=list list={tmp}/order".encode())
        assert mount.stats()["plan_list"][0]["state"] == "waiting"


# Its own directories


def refused(tmp, *options, parts):
    result = run("mount", tmp / "src", tmp / "mnt", *options)
    assert_one_line(result, *parts, status=32)


@pytest.fixture
def place(tmp):
    make_tree(tmp / "src", {"file": 10})
    for folder in ("mnt", "target"):
        (tmp / folder).mkdir(mode=0o700)
    with cleaned(tmp / "mnt"):
        yield tmp


@pytest.mark.parametrize("suffix", ["", "/", "/.", "//"])
def test_directories_behind_a_symlink_are_refused(place, suffix):
    os.symlink("target", place / "link")
    given = f"{place}/link{suffix}"
    refused(place, "--catalog-dir", given, parts=[place / "link", "symlink"])
    refused(place, "--catalog-dir", place / "catalog", f"--nvme={given}:1M", parts=[place / "link", "symlink"])
    (place / "catalog").mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(place / "catalog/log", ignore_errors=True)
    os.symlink(place / "target", place / "catalog/log")
    refused(place, "--catalog-dir", place / "catalog", parts=["catalog/log", "symlink"])
    assert os.listdir(place / "target") == []


@only_root
def test_a_stranger_s_link_on_the_way_is_not_followed(place):
    """Nor one that a link of our own leads to."""
    os.symlink("target", place / "theirs")
    os.lchown(place / "theirs", NOBODY, NOBODY)
    os.symlink(place / "mnt/../theirs", place / "ours")
    for way in (place / "theirs", place / "ours"):
        for options in (
            ("--catalog-dir", way / "new"),
            ("--catalog-dir", place / "catalog", f"--nvme={way}/new:1M"),
            ("--catalog-dir", place / "catalog", "--log-file", way / "new"),
        ):
            refused(place, *options, parts=[place / "theirs", f"symlink of user {NOBODY}"])
    assert os.listdir(place / "target") == []
    os.lchown(place / "theirs", 0, 0)
    assert run("mount", place / "src", place / "mnt", "--catalog-dir", place / "ours/new").returncode == 0
    assert os.listdir(place / "target") == ["new"]
    assert run("umount", place / "mnt").returncode == 0


@only_root
def test_directories_of_others_are_refused(place):
    os.chown(place / "target", NOBODY, NOBODY)
    refused(place, "--catalog-dir", place / "target", parts=[place / "target", f"user {NOBODY}"])
    refused(place, "--catalog-dir", place / "catalog", f"--nvme={place / 'target'}:1M", parts=[f"user {NOBODY}"])
    assert os.listdir(place / "target") == []


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_catalog_directory_that_others_may_write_to_is_refused(place, mode):
    os.chmod(place / "target", mode)
    refused(place, "--catalog-dir", place / "target", parts=[place / "target", "chmod go-w"])
    assert os.listdir(place / "target") == []


def test_what_it_makes_is_for_its_owner_alone(place):
    options = ["--catalog-dir", place / "new/catalog", f"--nvme={place / 'target'}:1M"]
    assert run("mount", place / "src", place / "mnt", *options).returncode == 0
    assert read(place / "mnt/file")
    assert run("umount", place / "mnt").returncode == 0
    made = [place / "new/catalog", *(place / "new/catalog").rglob("*"), *(place / "target").iterdir()]
    assert len(made) >= 5
    for path in made:
        closed = any(not stat.S_IMODE(folder.stat().st_mode) & 0o077 for folder in (path, path.parent))
        assert closed, path
        assert path.is_dir() or not stat.S_IMODE(path.stat().st_mode) & 0o022, path


@only_root
def test_saved_catalog_of_others_is_not_believed(place):
    """It would decide who may read what: test_catalog_reload.py has the damaged ones."""
    with clairfs(place / "src") as mount:
        (saved,) = mount.catalog_dir.glob("catalog-*")
        for change in (lambda: saved.chmod(0o666), lambda: os.chown(saved, NOBODY, NOBODY)):
            change()
            mount.remount()
            assert "scanned" in mount.control("status")
            (saved,) = mount.catalog_dir.glob("catalog-*")
            assert stat.S_IMODE(saved.stat().st_mode) == 0o600 and saved.stat().st_uid == os.geteuid()


# The command line


@only_root
def test_root_is_not_sent_to_another_service(tmp):
    """A user's own filesystem may call itself clairfs and name any socket: nothing is said to it."""
    heard = []
    make_tree(tmp / "fake", {".clairfs/stats.json": 0})
    (tmp / "fake/.clairfs/stats.json").write_text('{"daemon": {"control_socket": "victim.service"}}')
    with socket.socket(socket.AF_UNIX) as listener, slowfs(tmp / "fake", "--subtype", "clairfs") as served:
        listener.bind("\0victim.service")
        listener.listen()
        listener.settimeout(0.2)  # nobody is to come
        assert_one_line(run("plan", served.path, "seed=1"), "does not belong to clairfs")
        with contextlib.suppress(TimeoutError):
            heard.append(listener.accept())
    assert not heard
