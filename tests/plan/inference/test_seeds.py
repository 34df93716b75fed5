"""A plan that is not what the script does: the mount says what the script really follows, so that the plan can be corrected
without looking at the script."""

import json
import subprocess
import sys

import clairmount
import pytest
import warm_python
from clairmount import SLOWNESS, binary, sanitized
from planning import JOB_SECONDS, make_images, plan, register, wait_ahead

pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="readers of this Python show only what is not in the page cache"
)

# The most usual of all training scripts: reads the first batches of an epoch, or three epochs if it is told so.
SCRIPT = """
import itertools, json, sys, time
import torch
from torch.utils.data import DataLoader, Subset, get_worker_info, random_split
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
torch.set_num_threads(1)
def read(path):
    with open(path, "rb") as file:
        return len(file.read())
def slow_first_worker(_):
    if get_worker_info().id == 0:
        time.sleep(0.002)
    return 0
def late_first_worker(worker):
    time.sleep(0.5 if worker == 0 else 0)
def dataset(transform=lambda x: 0):
    return ImageFolder(sys.argv[1], loader=read, transform=transform)
def run(loader):
    for epoch in range(3 if "whole" in sys.argv else 1):
        for _ in itertools.islice(loader, None if "whole" in sys.argv else 20):
            pass
"""
SEEDED = """
torch.manual_seed(1234)
model = torch.nn.Sequential(torch.nn.Linear(60, 30), torch.nn.Linear(30, 10))
print(sum(p.numel() for p in model.parameters()))
run(DataLoader(dataset(), batch_size=16, shuffle=True, num_workers={workers}))
"""
DISTRIBUTED = """
sampler = DistributedSampler(dataset(), num_replicas=1, rank=0, seed=31415)
sampler.set_epoch(0)
run(DataLoader(dataset(), batch_size=16, sampler=sampler, num_workers={workers}))
"""
READ_FIRST = 500  # samples; what scripts read before the mount has said something of it is in the page cache


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    root = tmp_path_factory.mktemp("many")
    make_images(root, 5000, side=4)
    return root


def hint(mount):
    return plan(mount).get("divergence", {}).get("hint", "")


def hint_of(many, script, text="sampler=torch.distributed seed=42"):
    with clairmount.clairfs(many, "--ram", "64M", "--staging", "16M") as mount:
        register(mount, f"format=imagefolder {text} batch=16 workers=2")
        wait_ahead(mount, READ_FIRST)
        job = [*warm_python.words(), "-c", SCRIPT + script, mount.path]
        printed = subprocess.run(job, check=True, capture_output=True, text=True, timeout=JOB_SECONDS).stdout
        clairmount.wait_until(lambda: "matches" in hint(mount) and "no known" not in hint(mount), "the order is known", 150 * SLOWNESS)
        check = subprocess.run([binary(), "plan", "check", mount.path], capture_output=True, text=True, timeout=60).stdout
        assert hint(mount) in check
        return hint(mount), printed


# Where the first worker is late the other one has opened its first batch by itself when the plan is suspended: what explains
# that is looked for last.
LATE = pytest.param("2, worker_init_fn=late_first_worker", id="late", marks=pytest.mark.skipif(
    sanitized(), reason="the search ends after 4 core-seconds, of which a sanitizer takes some times as many"))  # fmt: skip


@pytest.mark.parametrize("workers", ["0", "2", LATE])
def test_default_generator(many, workers):
    found, parameters = hint_of(many, SEEDED.format(workers=workers))
    assert "sampler=torch.random generator=default seed=1234 draws=" in found, found
    draws = int(found.split("draws=")[1].split(",")[0])
    assert draws >= int(parameters), found  # each parameter takes one at least
    assert f"which is torch.manual_seed(1234) after {draws} draws" in found


def test_the_plan_that_the_hint_gives_is_followed(many):
    found, _ = hint_of(many, SEEDED.format(workers=2))
    keys = found.split("matches ")[1].split(",")[0]
    with clairmount.clairfs(many, "--ram", "64M", "--staging", "16M") as mount:
        register(mount, f"format=imagefolder {keys} batch=16 workers=2")
        wait_ahead(mount, READ_FIRST)
        job = [*warm_python.words(), "-c", SCRIPT + SEEDED.format(workers=2), mount.path, "whole"]
        subprocess.run(job, check=True, capture_output=True, timeout=JOB_SECONDS)
        state = plan(mount)
        assert state["state"] != "suspended" and state["suspensions"] == 0 and "divergence" not in state, state
        assert state["in_order"] > 0.9 * 3 * 5000 and state["out_of_order"] == 0, state


def test_distributed_sampler(many):
    found, _ = hint_of(many, DISTRIBUTED.format(workers=2))
    assert found == "matches seed=31415 instead of 42"


SPLIT = """
train, _ = random_split(dataset(), [4000, 1000], generator=torch.Generator().manual_seed(42))
run(DataLoader(train, batch_size=16, sampler=DistributedSampler(train, num_replicas=1, rank=0, seed=7), num_workers=2))
"""


def test_a_part_of_random_split(many):
    found, _ = hint_of(many, SPLIT)
    assert found.startswith("matches a Subset: the first 4000 of 5000 samples that random_split() draws with seed=42, shuffled by seed=7;")


# Goes on when the mount has said something, which takes a planner that gets a processor.
EPOCHS = f"PATIENCE = {150 * SLOWNESS}" + """
def said(text):
    with open(sys.argv[1] + "/.clairfs/stats.json") as file:
        return any(text in plan.get("divergence", {}).get("text", "") for plan in json.load(file)["plan_list"])
def train(data, seed, epochs, wait_for, set_epoch=True, pause=0, **options):
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=seed)
    for epoch in range(epochs):
        if set_epoch:
            sampler.set_epoch(epoch)
        for step, _ in enumerate(DataLoader(data, batch_size=16, sampler=sampler, **options)):
            time.sleep(pause)
            deadline = time.monotonic() + PATIENCE
            while step == 20 and epoch in wait_for and not said(wait_for[epoch]):
                assert time.monotonic() < deadline, "nothing is said"
                time.sleep(0.02)
"""


def state_of(many, text, script):
    """The plan when the script has ended, and what `plan check` says of it."""
    with clairmount.clairfs(many, "--ram", "64M", "--staging", "16M") as mount:
        register(mount, text)
        wait_ahead(mount, READ_FIRST)
        job = [*warm_python.words(), "-c", SCRIPT + EPOCHS + script, mount.path]
        subprocess.run(job, check=True, timeout=JOB_SECONDS)
        done = subprocess.run([binary(), "plan", "check", mount.path], capture_output=True, text=True, timeout=60)
        shown = subprocess.run([binary(), "plan", "show", mount.path, "--json"], check=True, capture_output=True, timeout=60)
        registered = next(p for p in json.loads(shown.stdout) if p["name"] == "default")  # another one may be followed instead
        assert registered.get("divergence") == plan(mount).get("divergence")
        return plan(mount), done


@pytest.mark.parametrize(("planned", "real"), [(42, 43), (0, 1)])
def test_the_next_seed_of_a_script_without_epochs(many, planned, real):
    text = f"seed={planned} set_epoch=never batch=16 workers=2"
    state, check = state_of(many, text, f"train(dataset(), {real}, 1, {{0: 'instead of'}}, set_epoch=False, num_workers=2)")
    assert state["divergence"]["hint"] == f"matches seed={real} instead of {planned}", state
    assert check.returncode == 1 and f"matches seed={real} instead of {planned}" in check.stdout


def test_an_epoch_that_is_read_again_is_no_other_seed(many):
    script = "train(dataset(), 1, 2, {1: 'set_epoch'}, set_epoch=False, num_workers=2)"
    state, _ = state_of(many, "seed=1 batch=16 workers=2", script)
    assert "set_epoch is not called" in state["divergence"]["text"] and "or is the seed" not in state["divergence"]["text"], state


def test_subset(many):
    script = "train(Subset(dataset(), range(0, 5000, 2)), 42, 1, {0: 'Subset'}, num_workers=2)"
    state, check = state_of(many, "seed=42 batch=16 workers=2", script)
    assert state["state"] == "suspended"
    assert state["divergence"]["hint"].startswith("matches no known order: another seed, a Subset, or "), state
    assert "clairfs.register(loader) tells the plan" in state["divergence"]["hint"]
    assert check.returncode == 1 and "a Subset" in check.stdout


@pytest.mark.parametrize("workers", [2, 4])
def test_a_seed_alone_is_a_plan(many, workers):
    """Whoever leaves batch and workers out is followed all the same, and told what to give.

    One worker is slower than the others: where all are fast, each has read its batch before the next one begins.
    """
    said = "{0: 'dealt to several workers: give batch='}"
    script = f"train(dataset(slow_first_worker), 42, 2, {said}, pause=0.01, num_workers={workers})"
    state, check = state_of(many, "seed=42", script)
    assert (check.returncode, check.stdout.splitlines()[0]) == (0, "pass"), (check, state)
    assert state["state"] in ("following", "finished") and state["suspensions"] < 10, state
    assert state["in_order"] > 0.9 * 2 * 5000, state
