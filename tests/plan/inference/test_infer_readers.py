"""Plans that find themselves, of what people read datasets with beside loops in Python: find, tar and checksums; jobs of two
ranks on one mount; and an order that only the full search finds, epoch after epoch.

The readers wait where the test wants to see what the mount has found by then, since they would else be through before."""

import subprocess
import sys

import clairmount
import pytest
from clairmount import binary, wait_until
from planning import JOB_SECONDS
from unplanned import START, TORCH, assert_followed, detect, found, searching, torch_job

# CPython announces each open by an ioctl before 3.14. Later ones show what is not in the page cache only.
ANNOUNCED = pytest.mark.skipif(sys.version_info >= (3, 14), reason="readers of this Python show only what is not in the page cache")


@pytest.fixture
def mount(images):
    with searching(images, "--ram", "64M", "--staging", "64M") as mounted:
        yield mounted


def assert_sequential(mount, reads_before):
    """The reader was followed through the rest, which so came without requests."""
    state = found(mount)
    assert state, mount.log()
    assert (state["plan"]["root"], state["plan"]["sampler"], state["suspensions"]) == ("train", "torch.sequential", 0), state
    assert mount.stat("fuse.requests.read") - reads_before < 150, state
    assert detect(mount)["log10_chance"] < -9


def folder_is_followed(mount):
    plan = found(mount)  # without "ahead" while it is made
    return plan and plan["plan"]["root"] == "train" and plan.get("ahead", 0) > 300


def wait_for_folder(mount):
    """Of 600 files 200 were read, of more than one class."""
    wait_until(lambda: folder_is_followed(mount), lambda: f"the order of the folder is found, {found(mount)}")
    return mount.stat("fuse.requests.read")


def test_find_in_its_own_order(mount):
    """Not sorted: as readdir(3) gives the names."""
    listed = subprocess.run(["find", "train", "-type", "f"], cwd=mount.path, check=True, capture_output=True, timeout=60)
    names = listed.stdout.splitlines(keepends=True)
    assert len(names) == 600

    def cat(some):
        words = ["xargs", "-n", "5", "cat"]
        subprocess.run(words, input=b"".join(some), cwd=mount.path, check=True, stdout=subprocess.DEVNULL, timeout=60)

    cat(names[:60])
    wait_until(lambda: found(mount), "an order is found")
    cat(names[60:200])
    reads = wait_for_folder(mount)
    cat(names[200:])
    assert_sequential(mount, reads)


def test_tar(mount):
    """It is held up by the pipe, and is some 64 KiB ahead of it."""
    with subprocess.Popen(["tar", "cf", "-", "train"], cwd=mount.path, stdout=subprocess.PIPE) as tar:
        try:
            size = len(tar.stdout.read(90_000))  # some 60 files with their headers
            wait_until(lambda: found(mount), "an order is found")
            size += len(tar.stdout.read(210_000))
            reads = wait_for_folder(mount)
            while piece := tar.stdout.read(1 << 16):
                size += len(piece)
            assert tar.wait(60) == 0
        finally:
            tar.kill()
    assert size > 600 * 1024
    assert_sequential(mount, reads)


def test_checksums_of_a_list(mount, images):
    """One process, which is given the list in parts."""
    names = [name for name in clairmount.tree_files(images) if name.startswith("train/")]
    sums = [f"{clairmount.hash_of(images / name).hexdigest()}  {name}\n" for name in names]
    words = ["sha256sum", "--check", "--quiet", "-"]
    with subprocess.Popen(words, cwd=mount.path, stdin=subprocess.PIPE, text=True) as check:
        try:
            check.stdin.write("".join(sums[:100]))  # a part of it waits in a buffer of sha256sum
            check.stdin.flush()
            wait_until(lambda: found(mount), "an order is found")
            check.stdin.write("".join(sums[100:250]))
            check.stdin.flush()
            reads = wait_for_folder(mount)
            check.stdin.write("".join(sums[250:]))
            check.stdin.close()
            assert check.wait(60) == 0
        finally:
            check.kill()
    assert_sequential(mount, reads)


# A launcher that starts a process for each rank, as torchrun does.
LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, "WORLD_SIZE": "2", "RANK": str(rank)}) for rank in (0, 1)]
sys.exit(any([rank.wait() for rank in ranks]))
"""
RANK = START + TORCH + """
import torch.distributed
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=int(os.environ["RANK"]), world_size=2)
sampler = DistributedSampler(dataset(), seed=42)
batches = loader(sampler=sampler, num_workers=int(sys.argv[3]))
for epoch in range(3):
    sampler.set_epoch(epoch)
    for step, _ in enumerate(batches):
        if step == 10:
            settle(epoch)
        torch.distributed.barrier()
"""


@ANNOUNCED
@pytest.mark.parametrize("workers", [0, 2])
def test_two_ranks_of_one_job(mount, tmp, workers):
    for name in ("torch", "torchvision"):
        pytest.importorskip(name)
    (tmp / "rank.py").write_text(RANK)
    words = [sys.executable, "-c", LAUNCHER, tmp / "rank.py", mount.path, tmp / "meeting", str(workers)]
    subprocess.run(words, check=True, timeout=JOB_SECONDS)
    assert_followed(mount, sampler="torch.distributed", seed=42, world=2, ranks_per_node=2, workers=workers, first_epoch=1)
    if workers:  # else nothing tells where a batch ends
        assert found(mount)["plan"]["batch"] == 8
    assert detect(mount)["node"] == 0


def first_epoch_seed(value, draws):
    """What DataLoader(shuffle=True) shuffles with after torch.manual_seed(value) and as many draws."""
    numpy = pytest.importorskip("numpy")
    return int(numpy.random.RandomState(value).randint(0, 1 << 32, size=draws + 4, dtype=numpy.uint32)[draws + 3])


@ANNOUNCED
@pytest.mark.alone  # a search of core-minutes, for processors that are idle
def test_all_epochs_of_a_shuffle_with_infer_full(images):
    """A value that is none of the usual ones. The first epoch's seed is a little above a million, that the search comes to it soon;
    the stream that it is from is proved by the second."""
    value, draws = next((v, d) for v in range(500, 666) for d in range(400) if 10**6 < first_epoch_seed(v, d) < 1 << 21)
    with searching(images, "--ram", "64M", "--staging", "64M", "--infer", "full") as mount:
        torch_job(mount, f"""
torch.manual_seed({value})
torch.rand({draws})
batches = loader(shuffle=True)
run(4, lambda number: batches)
""")
        assert_followed(mount, sampler="torch.random", generator="default", seed=value, draws=draws, first_epoch=1)
        assert detect(mount)["description"] == f"torch.manual_seed({value}) after {draws} draws"


@ANNOUNCED
@pytest.mark.alone
def test_the_full_search_on_request(images):
    """Of a mount that makes the cheap one, for a job that it has looked at in vain."""
    torch = pytest.importorskip("torch")

    def epoch_seed(value):
        generator = torch.Generator().manual_seed(value)
        return [int(torch.empty((), dtype=torch.int64).random_(generator=generator)) & 0xFFFFFFFF for _ in range(2)][1]

    value = next(v for v in range(7000001, 8000000) if 10**6 < epoch_seed(v) < 1 << 21)
    with searching(images, "--ram", "64M", "--staging", "64M") as mount:
        torch_job(mount, f"""
import subprocess
torch.manual_seed({value})
for step, _ in enumerate(loader(shuffle=True)):
    if step == 10:
        subprocess.run([{str(binary())!r}, "plan", "detect", mount, "--full"], check=False)
        settle(0)
""")
        assert_followed(mount, sampler="torch.random", seed=epoch_seed(value), epochs=1)
