"""The doors through which a plan comes (xattr, control file, command, socket), and the commands `plan` and `top`."""

import contextlib
import errno
import json
import os
import pathlib
import pty
import random
import signal
import subprocess
import sys

import clairmount
import pytest
from clairmount import binary, clairfs, drop_page_cache, make_samples, wait_until

XATTR = "user.clairfs.plan"
PLAN = "format=imagefolder seed=42 epochs=3 world=2 ranks_per_node=2 batch=4 workers=2"
NOBODY = 65534
COUNT = 120
SIZE = 6000
DRAW = random.Random(20261117)

requires_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


def run(*words, cwd=None, user=None, timeout=60 * clairmount.SLOWNESS):
    identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    return subprocess.run(
        [str(word) for word in (binary(), *words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        cwd=cwd, timeout=timeout, check=False, **identity,
    )  # fmt: skip


def ok(*words, **named):
    """Output of a command that must succeed."""
    done = run(*words, **named)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout


def refused(status, *words, **named):
    """The one error line of a command that must fail."""
    done = run(*words, **named)
    assert done.returncode == status and done.stdout == "", done
    assert done.stderr.startswith("clairfs: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def error_of(call, *arguments):
    with pytest.raises(OSError) as raised:
        call(*arguments)
    return errno.errorcode[raised.value.errno]


@pytest.fixture(scope="module")
def source():
    with clairmount.tempdir() as tmp:
        make_samples(tmp / "src/train", COUNT, SIZE)
        make_samples(tmp / "src/show", 20, 100)
        make_samples(tmp / "src/with space", 20, 100)
        yield tmp / "src"


@pytest.fixture
def mount(source):
    with clairfs(source, "--ram=64M") as mounted:
        yield mounted


def plans(mount):
    return mount.stats()["plan_list"]


def write_plan(mount, text):
    """As `echo text > .clairfs/plan` does."""
    fd = os.open(mount.path / ".clairfs/plan", os.O_WRONLY | os.O_TRUNC)
    try:
        assert os.write(fd, text.encode()) == len(text.encode())
    finally:
        os.close(fd)


def as_json(text):
    return json.dumps(dict(pair.split("=") for pair in text.split()))


DOORS = {
    "xattr": lambda mount: os.setxattr(mount.path / ".clairfs/plan", XATTR, (PLAN + " root=train").encode()),
    "xattr as JSON": lambda mount: os.setxattr(
        mount.path / ".clairfs/plan", XATTR, as_json(PLAN + " root=train").encode()
    ),
    "setfattr": lambda mount: subprocess.run(
        ["setfattr", "-n", XATTR, "-v", PLAN + " root=train", mount.path / ".clairfs/plan"], check=True, timeout=60
    ),
    "control file": lambda mount: write_plan(mount, PLAN + " root=train\n"),
    "control file as JSON": lambda mount: write_plan(mount, as_json(PLAN + " root=train")),
    "command at the folder": lambda mount: ok("plan", mount.path / "train", *PLAN.split()),
    "command at the mountpoint": lambda mount: ok("plan", mount.path, *PLAN.split(), "root=train"),
    "command with a path": lambda mount: ok("plan", mount.path, *PLAN.split(), f"root={mount.path}/train/"),
    "command, one word": lambda mount: ok("plan", mount.path / "train", PLAN),
    "command, JSON": lambda mount: ok("plan", mount.path / "train", as_json(PLAN)),
}


def test_all_doors_give_the_same_plan(mount):
    seen = {}
    for door, put in DOORS.items():
        assert plans(mount) == []
        if door == "setfattr" and not any(pathlib.Path(p, "setfattr").exists() for p in os.get_exec_path()):
            continue
        put(mount)
        [plan] = plans(mount)
        text = os.getxattr(mount.path / "train", XATTR).decode()
        assert XATTR in os.listxattr(mount.path / "train")
        assert plan["text"] == text and mount.control("plan").splitlines()[0] == text
        assert ok("plan", "show", mount.path).splitlines()[0] == text
        seen[door] = (text, plan["plan"], ok("plan", "show", mount.path, "--next", 50))
        assert os.getxattr(mount.path / ".clairfs/plan", XATTR).decode() == text
        assert os.listxattr(mount.path / ".clairfs/plan") == [XATTR]
        os.removexattr(mount.path / ".clairfs/plan", XATTR)
        assert error_of(os.getxattr, mount.path / "train", XATTR) == "ENODATA"
    first = seen["xattr"]
    assert {door for door, what in seen.items() if what != first} == set()
    assert first[1]["root"] == "train" and first[1]["seed"] == 42
    # What is read back is itself a plan, and the same one.
    write_plan(mount, first[0])
    assert plans(mount)[0]["text"] == first[0]


def test_the_command_prints_the_plan_in_force(mount):
    printed = ok("plan", mount.path / "train", "seed=42").splitlines()
    assert printed[0] == os.getxattr(mount.path / "train", XATTR).decode()
    assert f" {COUNT} samples (imagefolder) " in printed[2]  # detected
    assert plans(mount)[0]["plan"]["format"] == "imagefolder"  # detected


def test_a_plan_that_takes_the_place_of_another_says_so(mount):
    first = ok("plan", mount.path, *PLAN.split(), "root=train")
    assert "replaces" not in first + ok("plan", mount.path, *PLAN.split(), "root=train")
    told = ok("plan", mount.path, *PLAN.replace("=42", "=43").split(), "root=train")
    assert told.splitlines()[-1] == "  replaces " + first.splitlines()[0]


@pytest.mark.parametrize("keys", ("shuffle=false format=list list", "sampler=list list", "sampler=torch.subset seed=1 indices"))
def test_a_list_that_was_edited_is_read_again(mount, tmp, keys):
    words = [*f"{keys}={tmp}/order".split(), "root=train", "epochs=9"]
    ok("plan", mount.path, "root=train", "shuffle=false", "name=all")
    paths = ok("plan", "show", mount.path, "--name", "all", "--next", 2).splitlines()
    lines = [path.removeprefix("train/") for path in paths] if "format=list" in keys else ["0", "1"]

    def next_after(text):
        (tmp / "order").write_text(text)
        ok("plan", mount.path, *words)
        return ok("plan", "show", mount.path, "--name", "default", "--next", 1).strip()

    assert [next_after(line + "\n") for line in lines] == paths
    (tmp / "order").write_text("none\n")
    assert "plan: " in refused(1, "plan", mount.path, *words)
    (tmp / "order").unlink()
    assert f"{tmp}/order" in refused(1, "plan", mount.path, *words)
    assert ok("plan", "show", mount.path, "--name", "default", "--next", 1).strip() == paths[1]  # which is in force still


def test_the_kernels_mount_may_be_read_only(source):
    with clairfs(source, "--ram=64M", "-o", "ro") as mounted:
        assert error_of(os.setxattr, mounted.path / "train", XATTR, PLAN.encode()) == "EROFS"
        assert error_of(os.open, mounted.path / ".clairfs/plan", os.O_WRONLY) == "EROFS"
        printed = ok("plan", mounted.path / "train", *PLAN.split())
        assert printed.splitlines()[0] == os.getxattr(mounted.path / "train", XATTR).decode()
        assert len(ok("plan", "show", mounted.path, "--next", 5).splitlines()) == 5
        ok("plan", "cancel", mounted.path)
        assert plans(mounted) == []


@pytest.mark.parametrize(
    "text,reason",
    [
        ("seed=fortytwo", "seed=fortytwo"),
        ("sede=42", "did you mean seed?"),
        ("batch=32", "seed: missing"),
        ("seed=1 batch=0", "batch=0: want a whole number from 1"),
        ("seed=1 sampler=keras", "keras"),
        ("seed=1 root=absent", "root=absent"),
        ("seed=1 n=7 root=train", f"n=7: the dataset has {COUNT} samples"),
        ("seed=1 world=8 ranks_per_node=3", "ranks_per_node=3: want a divisor of world=8"),
        ("seed=1 seed=2", "given twice"),
        ("seed", "KEY=VALUE"),
        ('{"seed": 42', ""),
        ("sampler=list list=/absent", "/absent"),
        ("seed=1 batch=99999999999999999999", "batch="),
        ("seed=1 epochs=2 first_epoch=2", "first_epoch=2: want less than epochs=2"),
        (f"seed=1 root=train batch={COUNT + 1} drop_last=loader", f"of {COUNT} samples the first epoch has none"),
    ],
)
def test_bad_plans_are_refused_with_a_reason(mount, text, reason):
    write_plan(mount, "seed=1 name=other root=train")
    assert mount.control("last_error") == ""
    reasons = set()
    assert error_of(os.setxattr, mount.path / ".clairfs/plan", XATTR, text.encode()) == "EINVAL"
    reasons.add(mount.control("last_error"))
    ok("plan", mount.path / "train", "seed=1", "name=other")
    assert mount.control("last_error") == ""
    assert error_of(write_plan, mount, text) == "EINVAL"
    reasons.add(mount.control("last_error"))
    line = refused(1, "plan", mount.path, text)
    reasons.add(mount.control("last_error"))
    [last_error] = reasons
    assert last_error.count("\n") == 1 and reason in last_error and "plan: " in last_error
    assert line == f"clairfs: {last_error}"
    assert [plan["name"] for plan in plans(mount)] == ["other"]  # nothing changed


def test_a_list_too_long_for_a_plan_is_for_a_file(mount):
    for zeros in (28_700, 40_000):  # a little, and so much that the socket would not take it
        line = refused(1, "plan", mount.path, f"sampler=list list=[{'0,' * zeros}0]")
        assert "bytes are too many; want at most 57344: put long lists into a file" in line


def test_a_folder_and_another_root_are_refused(mount):
    for root in ("root=val", "root=.", f"root={mount.path}"):
        assert refused(1, "plan", mount.path / "train", "seed=1", root).startswith("clairfs: two roots: train and ")
    assert plans(mount) == []
    for root in ("root=train", f"root={mount.path}/train", f"root={mount.source}/train/"):
        assert "root=train" in ok("plan", mount.path / "train", "seed=1", root)


def test_the_plan_file_cancels_all(mount):
    write_plan(mount, "seed=1 name=one root=train")
    write_plan(mount, "seed=2 name=two root=train")
    write_plan(mount, "cancel --all\n")
    assert plans(mount) == [] and error_of(write_plan, mount, "cancel --all") == "ENODATA"
    assert "no plan is in force" in mount.control("last_error")


def test_the_same_text_twice_is_one_plan(source):
    with clairfs(source, "--ram=64M", "--staging=0") as mount:  # nothing is pushed: each read is seen
        registering_again(mount)


def registering_again(mount):
    for _ in range(2):
        DOORS["xattr"](mount)
    state = plans(mount)
    assert [plan["name"] for plan in state] == ["default"]
    (mount.path / next_files(mount, 1)[0]).read_bytes()
    before = plans(mount)
    assert before[0]["in_order"] + before[0]["out_of_order"] > 0
    DOORS["command at the mountpoint"](mount)
    assert plans(mount)[0]["in_order"] == before[0]["in_order"]  # not begun anew
    ok("plan", mount.path / "train", *PLAN.replace("seed=42", "seed=43").split())
    [replaced] = plans(mount)
    assert "seed=43" in replaced["text"] and replaced["in_order"] == 0


def test_several_plans_and_cancel(mount):
    ok("plan", mount.path / "train", "seed=1")
    ok("plan", mount.path / "train", "name=val", "sampler=torch.sequential", "shuffle=false")
    assert [plan["name"] for plan in plans(mount)] == ["default", "val"]
    assert ok("plan", "show", mount.path, "--name", "val").startswith("name=val ")
    assert json.loads(ok("plan", "show", mount.path, "--json", "--name", "val"))["name"] == "val"
    assert [plan["name"] for plan in json.loads(ok("plan", "show", mount.path, "--json"))] == ["default", "val"]
    assert "'absent'" in refused(1, "plan", "show", mount.path, "--name", "absent")
    assert "'absent'" in refused(1, "plan", "show", mount.path, "--name", "absent", "--json")
    assert "'absent'" in refused(1, "plan", "cancel", mount.path, "--name", "absent")
    assert "'absent'" in mount.control("last_error")
    assert ok("plan", "cancel", mount.path, "--name", "val") == ""
    assert [plan["name"] for plan in plans(mount)] == ["default"]
    write_plan(mount, "cancel\n")
    assert plans(mount) == [] and ok("plan", "show", mount.path).startswith("no plan; set one with: ")
    assert error_of(write_plan, mount, "cancel") == "ENOENT"


def test_a_folder_called_like_a_subcommand_and_one_with_a_space(mount):
    assert "root=show" in ok("plan", "./show", "seed=1", cwd=mount.path)
    assert 'root="with space"' in ok("plan", mount.path, "seed=1", "root=with space")
    assert 'root="with space"' in ok("plan", mount.path / "with space", "seed=1")
    assert 'root="with space"' in os.getxattr(mount.path / "with space", XATTR).decode()


def test_relative_files_are_found_from_where_the_command_runs(mount, tmp):
    names = [f"class{i:03d}/sample{i:06d}.png" for i in (3, 1, 2)]
    (tmp / "sub").mkdir()
    (tmp / "sub/names").write_text("".join(f"{name}\n" for name in names))
    printed = ok("plan", mount.path / "train", "format=list", "list=sub/names", "shuffle=false", cwd=tmp)
    assert f"list={tmp}/sub/names" in printed
    assert [pathlib.Path(name).name for name in next_files(mount, 3)] == [pathlib.Path(n).name for n in names]


def next_files(mount, count):
    """The next files, below the mountpoint."""
    return ok("plan", "show", mount.path, "--next", count).splitlines()


def read_in_order(mount, files):
    for name in files:
        assert (mount.path / name).read_bytes() == (mount.source / name).read_bytes()


def test_check_passes_and_fails(source):
    # Nothing is pushed ahead, so that every read is seen.
    keys = ("seed=7", "epochs=1")
    with clairfs(source, "--ram=64M", "--staging=0") as mount:
        ok("plan", mount.path / "train", *keys)
        done = run("plan", "check", mount.path)
        assert done.returncode == 3 and done.stdout.startswith("nothing observed"), done
        files = next_files(mount, COUNT)
        assert len(files) == COUNT == len(set(files))
        read_in_order(mount, files[:60])
        assert ok("plan", "check", mount.path).startswith("pass\n")
        assert plans(mount)[0]["passed"] > 30

        ok("plan", "cancel", mount.path)
        drop_page_cache(mount.path)
        ok("plan", mount.path / "train", *keys)
        read_in_order(mount, sorted(files)[:60])
        done = run("plan", "check", mount.path, "--name", "default")
        assert done.returncode == 1 and done.stdout.startswith("fail\n") and "expected" in done.stdout, done
        refused(2, "plan", "check", mount.path, "--name", "absent")


@pytest.mark.parametrize("epochs", [("epochs=1",), ("epochs=3", "first_epoch=2")])
def test_a_job_that_is_run_again_begins_anew(source, epochs):
    with clairfs(source, "--ram=64M", "--staging=0") as mount:
        for _ in range(2):
            ok("plan", mount.path / "train", "seed=7", *epochs)
            [plan] = plans(mount)
            assert plan["state"] == "waiting" and plan["passed"] == 0
            read_in_order(mount, next_files(mount, COUNT))
            assert plans(mount)[0]["state"] == "finished"
            drop_page_cache(mount.path)


def test_order_needs_no_mount_and_names_what_the_mount_reads(mount):
    keys = ("format=imagefolder", "seed=5", "world=1")
    ok("plan", mount.path / "train", *keys)
    files = next_files(mount, COUNT)
    root = f"root={mount.source}/train"
    paths = ok("plan", "order", root, *keys, "--paths").splitlines()
    assert [f"train/{name}" for name in paths] == files
    names = sorted(paths)
    numbers = [int(line) for line in ok("plan", "order", root, *keys).splitlines()]
    assert [names[i] for i in numbers] == paths
    assert numbers == [int(line) for line in ok("plan", "order", f"n={COUNT}", *keys).splitlines()]
    assert ok("plan", "order", f"root=train {' '.join(keys)}", "--paths", cwd=mount.source).splitlines() == paths


def test_order_refuses():
    assert "root: missing" in refused(1, "plan", "order", "seed=1")
    assert "root: missing" in refused(1, "plan", "order", "seed=1", "n=5", "--paths")
    assert "seed: missing" in refused(1, "plan", "order", "n=5", "batch=1")
    assert "did you mean seed?" in refused(1, "plan", "order", "sede=1", "n=5")
    assert "no epoch 3" in refused(1, "plan", "order", "seed=1", "n=5", "epochs=3", "--epoch", 3)
    assert "rank" in refused(1, "plan", "order", "seed=1", "n=5", "world=2", "--rank", 2)
    assert "No such file" in refused(1, "plan", "order", "seed=1", "root=/absent", "--paths")


@pytest.mark.skipif(clairmount.sanitized(), reason="a sanitizer takes memory of its own")
def test_order_says_when_there_is_no_memory_for_it():
    limited = ["sh", "-c", 'ulimit -v 1500000; exec "$@"', "sh", str(binary()), "plan", "order", "seed=1", "n=200000000"]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "clairfs: not enough memory\n")


def test_order_says_when_its_output_is_lost():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [binary(), "plan", "order", "seed=1", "n=5"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2 and "stdout" in done.stderr


def test_order_is_that_of_pytorch():
    data = pytest.importorskip("torch.utils.data")
    jobs = [dict(n=12811, world=8, rank=5, shuffle=True, seed=42, drop_last=False, epoch=3)]
    for _ in range(25):
        world = DRAW.randrange(1, 40)
        jobs.append(dict(
            n=DRAW.randrange(world, 5000), world=world, rank=DRAW.randrange(world), shuffle=DRAW.random() < 0.8,
            seed=DRAW.randrange(2**40), drop_last=DRAW.random() < 0.5, epoch=DRAW.randrange(100),
        ))  # fmt: skip
    for job in jobs:
        sampler = data.DistributedSampler(
            range(job["n"]), job["world"], job["rank"], job["shuffle"], job["seed"], job["drop_last"]
        )  # fmt: skip
        sampler.set_epoch(job["epoch"])
        keys = {**job, "drop_last": "sampler" if job["drop_last"] else "false"}
        epoch, rank = keys.pop("epoch"), keys.pop("rank")
        words = [f"{key}={str(value).lower()}" for key, value in keys.items()]
        printed = ok("plan", "order", *words, "sampler=torch.distributed", "--epoch", epoch, "--rank", rank)
        assert [int(line) for line in printed.splitlines()] == list(sampler), job


@requires_root
def test_others_cannot_control_the_mount(source):
    with clairfs(source, "--ram=64M", "--allow-other") as mount:
        ok("plan", mount.path / "train", "seed=1")
        program = (
            "import errno, os, sys\n"
            "def name(call, *arguments):\n"
            "    try:\n"
            "        call(*arguments)\n"
            "    except OSError as error:\n"
            "        return errno.errorcode[error.errno]\n"
            "    return 'success'\n"
            "root = sys.argv[1]\n"
            "def write():\n"
            "    fd = os.open(root + '/.clairfs/plan', os.O_WRONLY)\n"
            "    os.write(fd, b'cancel')\n"
            f"print(name(os.setxattr, root + '/.clairfs/plan', '{XATTR}', b'seed=2'))\n"
            f"print(name(os.removexattr, root + '/.clairfs/plan', '{XATTR}'))\n"
            "print(name(write))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(mount.path)], user=NOBODY, group=NOBODY, extra_groups=[],
            capture_output=True, text=True, timeout=60, check=True, cwd="/",
        )  # fmt: skip
        assert len(done.stdout.split()) == 3 and set(done.stdout.split()) <= {"EPERM", "EACCES", "EROFS"}
        for words in (("plan", mount.path, "seed=2"), ("plan", "cancel", mount.path), ("plan", "show", mount.path)):
            # The program must be where others may run it, which a build directory need not be.
            with program_for_others() as program_path:
                done = subprocess.run(
                    [str(word) for word in (program_path, *words)], user=NOBODY, group=NOBODY, extra_groups=[],
                    capture_output=True, text=True, timeout=60, cwd="/",
                )  # fmt: skip
            assert done.returncode == 2 and "only the mount's user and root may control it; mount for yourself" in done.stderr, done
        assert "seed=1" in plans(mount)[0]["text"]


@contextlib.contextmanager
def program_for_others():
    with clairmount.tempdir() as tmp:
        (tmp / "clairfs").write_bytes(binary().read_bytes())
        (tmp / "clairfs").chmod(0o755)
        yield tmp / "clairfs"


# top


def test_top_once_shows_plans_and_tiers(mount):
    ok("plan", mount.path / "train", "seed=1")
    lines = ok("top", mount.path / "train", "--once", "--interval", 0.1).splitlines()
    assert lines[0] == f"clairfs {mount.path}  from {mount.source}"
    assert [line.split()[0] for line in lines[:5]] == ["clairfs", "reads", "stall", "PFS", "filled"]
    assert lines[5].startswith("plan default  waiting  epoch 0  ") and "samples/s" in lines[5]
    assert "\033" not in "".join(lines)


@contextlib.contextmanager
def running(command, **named):
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, **named)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(60)


def test_top_ends_with_ctrl_c(mount):
    command = (binary(), "top", mount.path, "--interval", 0.1)
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as top:
        assert top.stdout.readline().startswith("clairfs ")
        top.send_signal(signal.SIGINT)
        _, error = top.communicate(timeout=60)
        assert (top.returncode, error) == (0, "")


@pytest.mark.parametrize("crash", [False, True])
def test_top_ends_with_its_mount(source, tmp, crash):
    with clairfs(source, "--ram=64M") as mount:
        with open(tmp / "out", "w") as out:
            command = (binary(), "top", mount.path, "--interval", 0.1)
            with running(command, stdout=out, stderr=subprocess.STDOUT) as top:
                wait_until(lambda: "reads" in (tmp / "out").read_text(), "top prints a report")
                mount.kill() if crash else mount.umount()
                assert top.wait(60) == 0
        last = (tmp / "out").read_text().splitlines()[-1]
        assert last == f"{mount.path} is not mounted any more"


def test_top_refreshes_in_place_on_a_terminal(mount):
    ours, theirs = pty.openpty()
    try:
        command = (binary(), "top", mount.path, "--interval", 0.1)
        with running(command, stdout=theirs, stderr=theirs) as top:
            seen = b""
            while seen.count(b"reads") < 3:
                seen += os.read(ours, 4096)
            assert b"\033[J" in seen and b"A\r\033[J" in seen
            top.send_signal(signal.SIGINT)
            assert top.wait(60) == 0
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_plan_without_its_mount_is_told_so(tmp):
    for words in (["seed=42", "batch=8"], ["root=train/a seed=42"], ['{"seed": 42}']):
        assert "the mount comes first: clairfs plan MOUNT" in refused(1, "plan", *words)
    (tmp / "a=b").mkdir()
    assert "a=b is not on a clairfs mount" in refused(1, "plan", "a=b", cwd=tmp)
    assert f"{tmp}/a=b/c: No such file" in refused(1, "plan", tmp / "a=b/c", "seed=42")


def test_what_has_no_index_is_told_from_a_name_without_a_format(mount):
    for path, reason in (
        ("none", f"{mount.path}/none: No such file"),
        ("train", f"{mount.path}/train is a folder; give a packed file in it"),
        ("", f"{mount.path} is a folder; give a packed file in it"),
        ("train/*", "want --format"),
    ):
        assert reason in refused(1, "index", mount.path / path), path


def test_commands_where_there_is_no_mount(tmp):
    for words in (("plan", tmp, "seed=1"), ("plan", "show", tmp), ("plan", "cancel", tmp), ("top", tmp)):
        assert "is not on a clairfs mount" in refused(1, *words)
    assert "is not on a clairfs mount" in refused(2, "plan", "check", tmp)
