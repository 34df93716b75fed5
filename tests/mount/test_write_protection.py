"""Nobody can change what others read: no dataset file is opened for writing, on no kind of mount; plans still come in."""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import pathlib
import re
import signal
import stat
import subprocess

import pytest
from clairmount import binary, clairfs, is_mounted, make_tree, wait_until
from mounting import NOBODY, SETTLE_SECONDS, as_user, cleaned, daemons, device_for_all, error_name, only_root, run
from test_permissions import Own, open_way, permit_allow_other

OTHER = 12345
XATTR = "user.clairfs.plan"
SIZE = 100_000
PLAN = "format=files sampler=torch.sequential"

OPENING = {
    "r+": os.O_RDWR,
    "w": os.O_WRONLY,
    "append": os.O_WRONLY | os.O_APPEND,
    "truncate": os.O_WRONLY | os.O_TRUNC,
    "truncate for reading": os.O_RDONLY | os.O_TRUNC,
    "create": os.O_RDWR | os.O_CREAT,
    "direct": os.O_RDWR | os.O_DIRECT,
}  # fmt: skip


class Kind:
    """A mount of one kind: who made it, who else enters it, and who controls it."""

    def __init__(self, path, owner, readers, writers):
        self.path, self.owner, self.readers, self.writers = path, owner, readers, writers

    def plan_text(self):
        return as_user(self.owner, (self.path / ".clairfs/plan").read_text)


@contextlib.contextmanager
def in_background(tmp, *options, helper=False):
    words = [tmp / "src", tmp / "mnt", "--catalog-dir", tmp / "catalog", *options]
    if helper:
        (tmp / "mount.clairfs").symlink_to(binary())
        command = [tmp / "mount.clairfs", *words[:2], "-o", f"rw,catalog-dir={tmp / 'catalog'}", "-t", "clairfs"]
    else:
        command = [binary(), "mount", *words]
    with cleaned(tmp / "mnt"):
        subprocess.run(command, check=True, timeout=60, stdin=subprocess.DEVNULL)
        yield tmp / "mnt"
        assert run("umount", tmp / "mnt").returncode == 0
        assert not is_mounted(tmp / "mnt") and not daemons(tmp / "mnt")


@contextlib.contextmanager
def of_a_user(tmp, *options):
    (tmp / "own").mkdir(mode=0o755)
    with device_for_all(), cleaned(tmp / "own/mnt"):
        own = Own(tmp / "own", tmp / "src")
        mounted = own.mount(*options)
        assert (mounted.returncode, mounted.stderr) == (0, "")
        yield own.mnt
        assert own.run("umount", own.mnt).returncode == 0
        assert not is_mounted(own.mnt) and not daemons(own.mnt)


@contextlib.contextmanager
def kind_of_mount(name, tmp):
    me = os.geteuid()
    make_tree(tmp / "src", {"train/file": SIZE, "top": SIZE})
    if me == 0:
        for path in (tmp / "src", tmp / "src/train", tmp / "src/train/file", tmp / "src/top"):
            os.chown(path, NOBODY, NOBODY)  # he may write to all of it, by the modes
            path.chmod(0o777)
    (tmp / "mnt").mkdir(exist_ok=True)
    open_way(tmp)
    if name == "foreground":
        with clairfs(tmp / "src") as mount:
            yield Kind(mount.path, me, [me], [me])
    elif name == "background":
        with in_background(tmp) as path:
            yield Kind(path, me, [me], [me])
    elif name == "mount -t clairfs":
        with in_background(tmp, helper=True) as path:
            yield Kind(path, me, [me], [me])
    elif name == "root with --allow-other":
        with in_background(tmp, "--allow-other") as path:
            yield Kind(path, 0, [0, NOBODY, OTHER], [0])
    elif name == "user":
        with of_a_user(tmp) as path:
            yield Kind(path, NOBODY, [NOBODY], [NOBODY])
    elif name == "user with --allow-other":
        with of_a_user(tmp, "--allow-other") as path:
            yield Kind(path, NOBODY, [0, NOBODY, OTHER], [0, NOBODY])
    elif name == "user with -o ro":
        with of_a_user(tmp, "-o", "ro") as path:
            yield Kind(path, NOBODY, [NOBODY], [])


ANYBODY = ["foreground", "background", "mount -t clairfs"]
WITH_ROOT = ["root with --allow-other", "user", "user with --allow-other", "user with -o ro"]
KINDS = ANYBODY + [pytest.param(name, marks=only_root) for name in WITH_ROOT]


def on_kind(name, tmp, check):
    """check(kind) on such a mount, in a child: some kinds take a mount namespace of their own."""

    def child():
        if name == "user with --allow-other":
            permit_allow_other(tmp)
        with kind_of_mount(name, tmp) as kind:
            check(kind)

    if os.geteuid() == 0:
        as_user(0, child)
    else:
        child()


@pytest.mark.parametrize("name", KINDS)
def test_no_file_is_opened_for_writing(tmp, name):
    def check(kind):
        content = (tmp / "src/train/file").read_bytes()
        for reader in kind.readers:
            for how, flags in OPENING.items():
                for path in ("train/file", "top"):
                    refused = as_user(reader, error_name, os.open, kind.path / path, flags)
                    assert refused in ("EROFS", "EACCES"), (reader, how, refused)
            assert not as_user(reader, os.access, kind.path / "train/file", os.W_OK)
            assert as_user(reader, error_name, memmap, kind.path / "train/file") in ("EROFS", "EACCES")
            assert as_user(reader, mappings, kind.path / "train/file") == (content[:4], content[:4], b"mine", content)

    on_kind(name, tmp, check)


def memmap(path):
    """As numpy.memmap(path) does."""
    with open(path, "r+b") as file:
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE)[0:4] = b"evil"


def mappings(path):
    """What a reader's mappings show: shared, private, private after a change; and the file after that."""
    with open(path, "rb") as file:
        shared = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        private = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        before = bytes(shared[:4]), bytes(private[:4])
        private[:4] = b"mine"
        return (*before, bytes(private[:4]), path.read_bytes())


# Takes a path, and what to do: "r+" as np.memmap(path), which must be refused; "keep" and "again" read until the file
# DIR/done is there, and print how many reads there were, how many were wrong, and how many failed.
PROCESS = """
import mmap, os, pathlib, sys, time
path, work, done, right = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4]).read_bytes()
if work == "r+":
    for _ in range(4):
        try:
            with open(path, "r+b") as file:
                mapping = mmap.mmap(file.fileno(), 0)
                mapping[:4] = bytes([right[0] ^ 1]) * 4
                time.sleep(1.3)
                mapping.close()
            print("changed")
        except OSError as error:
            print("refused", error.errno)
    sys.exit()
reads = wrong = failed = 0
kept = open(path, "rb", buffering=0)
while not done.exists() or not reads:
    try:
        if work == "keep":
            wrong += os.pread(kept.fileno(), len(right), 0) != right
        else:
            with open(path, "rb") as file:
                wrong += file.read() != right
    except OSError:
        failed += 1
    reads += 1
print(reads, wrong, failed)
"""


@pytest.mark.parametrize("name", KINDS)
def test_a_neighbour_s_memmap_harms_no_reader(tmp, name):
    """One writer beside readers in processes of their own, each able to see it: no wrong byte, no error."""

    def check(kind):
        done, path = tmp / "done", kind.path / "train/file"

        def start(user, work):
            words = ["/usr/bin/python3", "-c", PROCESS, path, work, done, tmp / "src/train/file"]
            return subprocess.Popen(list(map(str, words)), user=user, group=user, extra_groups=[], cwd="/",
                                    stdout=subprocess.PIPE, text=True)  # fmt: skip

        readers = [start(user, work) for user in kind.readers for work in ("keep", "again")]
        try:
            for user in kind.readers:
                said = start(user, "r+").communicate(timeout=60)[0].splitlines()
                assert len(said) == 4 and all(line.startswith("refused") for line in said), said
        finally:
            done.write_text("")
            seen = [reader.communicate(timeout=60)[0].split() for reader in readers]
        for reads, wrong, failed in seen:
            assert int(reads) > 0 and (wrong, failed) == ("0", "0"), seen

    on_kind(name, tmp, check)


def set_by_file(path, text):
    (path / ".clairfs/plan").write_text(text + "\n")


def set_by_shell(path, text):
    words = ["sh", "-c", 'echo "$1" > .clairfs/plan', "sh", text]
    if subprocess.run(words, cwd=path, stderr=subprocess.DEVNULL, timeout=60, check=False).returncode != 0:
        raise OSError(errno.EINVAL, "refused")


def set_by_attribute(path, text):
    os.setxattr(path / ".clairfs/plan", XATTR, text.encode())


def set_by_folder(path, text):
    os.setxattr(path / "train", XATTR, text.encode())


@pytest.mark.parametrize("name", KINDS)
def test_plans_come_in_by_every_door(tmp, name):
    def check(kind):
        doors = [set_by_file, set_by_shell, set_by_attribute] + ([set_by_folder] if name == "user" else [])
        for user in kind.writers:
            for door in doors:
                as_user(user, door, kind.path, PLAN)
                assert "sampler=torch.sequential" in kind.plan_text(), (user, door)
                # What is refused is told at once, and cancelling works the same way.
                assert as_user(user, error_name, door, kind.path, "colour=red") == "EINVAL", (user, door)
                as_user(user, set_by_file, kind.path, "cancel")
                assert kind.plan_text() == ""
            as_user(user, set_by_attribute, kind.path, f"{PLAN} name=one root=train")
            as_user(user, set_by_attribute, kind.path, f"{PLAN} name=two")
            texts = as_user(user, os.getxattr, kind.path / ".clairfs/plan", XATTR).decode().splitlines()
            assert [text.split()[0] for text in texts] == ["name=one", "name=two"]
            as_user(user, os.removexattr, kind.path / ".clairfs/plan", XATTR)
            assert kind.plan_text() == ""
            assert as_user(user, error_name, os.getxattr, kind.path / ".clairfs/plan", XATTR) == "ENODATA"
            assert as_user(user, error_name, os.setxattr, kind.path / ".clairfs/plan", "user.x", b"1") == "EROFS"
        for user in set(kind.readers) - set(kind.writers):
            for door in (set_by_file, set_by_attribute, set_by_folder):
                refused = as_user(user, error_name, door, kind.path, PLAN)
                assert refused in ("EACCES", "EPERM", "EROFS"), (user, door, refused)
        program = tmp / "own/clairfs" if kind.owner == NOBODY else binary()
        for user in {kind.owner, *kind.writers}:
            subprocess.run([program, "plan", kind.path, *PLAN.split()], user=user, group=user, extra_groups=[], cwd="/",
                           check=True, timeout=60, stdout=subprocess.DEVNULL)  # fmt: skip
            assert "sampler=torch.sequential" in kind.plan_text()
            subprocess.run([program, "plan", "cancel", kind.path], user=user, group=user, extra_groups=[], cwd="/",
                           check=True, timeout=60)  # fmt: skip

    on_kind(name, tmp, check)


def test_a_folders_attribute_with_another_root_is_refused(tmp):
    """An ordinary user's own mount has the attribute on folders: the folder is the root, and two are a mistake."""

    def check(kind):
        def door(path, text):
            set_by_folder(path, f"{PLAN} {text}")

        for root in ("val", ".", "./with space"):
            assert as_user(kind.owner, error_name, door, kind.path, f'root="{root}"') == "EINVAL", root
            told = as_user(kind.owner, (kind.path / ".clairfs/last_error").read_text)
            assert told.startswith(f"plan: two roots: root={root}, and train whose ") and "give no root=" in told
        assert kind.plan_text() == ""
        as_user(kind.owner, door, kind.path, "root=./train/")
        assert "root=train " in kind.plan_text()
        assert b"root=train " in as_user(kind.owner, os.getxattr, kind.path / "train", XATTR)

    on_kind("user", tmp, check)


@pytest.mark.parametrize("name", KINDS)
def test_modes_are_the_source_s_but_where_they_protect(tmp, name):
    def check(kind):
        def mode(path):
            return stat.S_IMODE(path.stat().st_mode)

        for path in ("train", "train/file", "top", ""):
            source = mode(tmp / "src" / path)
            protected = name == "user" and (tmp / "src" / path).is_file()
            assert as_user(kind.owner, mode, kind.path / path) == (source & ~0o222 if protected else source), path
        listed = as_user(kind.owner, lambda: [mode(kind.path / "train" / entry) for entry in os.listdir(kind.path / "train")])
        assert listed == [mode(tmp / "src/train/file") & (0o555 if name == "user" else 0o777)]

    on_kind(name, tmp, check)


@only_root
def test_refusals_are_counted(tmp):
    """Where the daemon is asked at all: on other mounts it is the kernel that refuses."""

    def check(kind):
        def refused():
            return json.loads((kind.path / ".clairfs/stats.json").read_text())["fuse"]["requests"]["refused"]

        before = as_user(NOBODY, refused)
        for _ in range(5):
            assert as_user(NOBODY, error_name, os.mkdir, kind.path / "new") == "EROFS"
        assert as_user(NOBODY, refused) == before + 5

    on_kind("user", tmp, check)


# The door for plans leaves nothing behind and holds nothing up


@pytest.fixture
def place(tmp):
    make_tree(tmp / "src", {"train/file": SIZE})
    (tmp / "mnt").mkdir()
    with cleaned(tmp / "mnt"):
        assert run("mount", tmp / "src", tmp / "mnt", "--catalog-dir", tmp / "catalog").returncode == 0
        yield tmp


def mount_lines(path):
    return [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(path) in line]


@only_root
def test_one_entry_in_the_mount_table(place):
    [line] = mount_lines(place / "mnt")
    assert line.split()[5].startswith("ro,")
    assert "clairfs-plan-" not in pathlib.Path("/proc/self/mountinfo").read_text()


@only_root
@pytest.mark.parametrize("way", ["umount", "umount -l", "fusermount3 -u", "fusermount3 -u -z"])
def test_an_open_plan_file_keeps_no_mount(place, way):
    (daemon,) = daemons(place / "mnt")
    with open(place / "mnt/.clairfs/plan", "r+b", buffering=0) as file:
        subprocess.run([*way.split(), place / "mnt"], check=True, timeout=60)
        wait_until(lambda: not os.path.exists(f"/proc/{daemon}"), "it ends", SETTLE_SECONDS)
        assert error_name(file.write, b"seed=1") in ("ENOTCONN", "EIO")
        with contextlib.suppress(OSError):
            os.close(os.dup(file.fileno()))
    assert not mount_lines(place / "mnt")


@only_root
def test_a_killed_daemon_and_guard_leave_one_stale_mount(place):
    (daemon,) = daemons(place / "mnt")
    guards = [int(pid) for pid in subprocess.run(["pgrep", "-P", str(daemon)], capture_output=True, text=True,
                                                  check=False).stdout.split()]  # fmt: skip
    for pid in [*guards, daemon]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: error_name(os.statvfs, place / "mnt") == "ENOTCONN", "the mount is stale", SETTLE_SECONDS)
    assert len(mount_lines(place / "mnt")) == 1
    assert error_name(os.open, place / "mnt/.clairfs/plan", os.O_WRONLY) == "ENOTCONN"
    subprocess.run(["umount", place / "mnt"], check=True, timeout=60)
    assert not mount_lines(place / "mnt")


@only_root
def test_the_door_is_there_in_other_mount_namespaces(place):
    write = f"echo {PLAN!r} > {place}/mnt/.clairfs/plan"
    subprocess.run(["unshare", "-m", "sh", "-c", write], check=True, timeout=60)
    assert "torch.sequential" in (place / "mnt/.clairfs/plan").read_text()


@only_root
def test_in_another_pid_namespace_the_plan_is_only_read(place):
    (place / "mnt/.clairfs/plan").write_text(PLAN)
    look = f"test -L {place}/mnt/.clairfs/plan || cat {place}/mnt/.clairfs/plan; echo seed=1 > {place}/mnt/.clairfs/plan"
    seen = subprocess.run(["unshare", "-pf", "--mount-proc", "sh", "-c", look], capture_output=True, text=True, timeout=60,
                          check=False)  # fmt: skip
    assert "torch.sequential" in seen.stdout and "Read-only file system" in seen.stderr and seen.returncode != 0
    assert os.path.islink(place / "mnt/.clairfs/plan")


# What remains: root can make the mount writable again


MS_REMOUNT = 32  # sys/mount.h


@only_root
@pytest.mark.parametrize("way", ["mapping", "write"])
def test_what_is_written_all_the_same_is_dropped_and_told(place, way):
    path, content = place / "mnt/train/file", (place / "src/train/file").read_bytes()
    assert path.read_bytes() == content
    # mount(2), as mount(8) of Debian 12 does: newer ones reconfigure instead, which FUSE refuses.
    assert ctypes.CDLL(None).mount(None, os.fsencode(place / "mnt"), None, MS_REMOUNT, None) == 0
    with open(path, "r+b", buffering=0) as file:
        if way == "mapping":
            with mmap.mmap(file.fileno(), 0) as memory:
                memory[0:4] = memory[50_000:50_004] = b"evil"
                with pytest.raises(OSError):
                    memory.flush()
                wait_until(lambda: path_bytes(path) == content, "the pages are dropped", SETTLE_SECONDS)
                assert_told(place)
                assert bytes(memory[:4]) == content[:4]
        else:
            assert error_name(file.write, b"evil") == "EROFS"
            assert_told(place)
    assert path_bytes(path) == content
    strangers = as_user(0, lambda: (place / "mnt/.clairfs/metrics").read_text())
    assert re.search(r"clairfs_fuse_requests_dirty_writes_total\{.*\} [1-9]", strangers)


def path_bytes(path):
    with contextlib.suppress(OSError), open(path, "rb") as file:  # an error of the write-back is told to whoever closes
        return file.read()
    return None


def assert_told(place):
    def told():
        return f"the last: train/file, by process {os.getpid()} (" in (place / "mnt/.clairfs/status").read_text()

    wait_until(told, "it is a trouble that names the process", SETTLE_SECONDS)
    (log,) = (place / "catalog/log").iterdir()
    wait_until(lambda: f"train/file was written to by process {os.getpid()} (" in log.read_text(), "the log says so", SETTLE_SECONDS)
