"""A plan with another seed than the script's: the mount says what the script really follows, so that the plan can be
corrected without looking at the script."""

import subprocess
import sys

import clairmount
import pytest
from clairmount import binary
from planning import JOB_SECONDS, make_images, plan, register

pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="readers of this Python show only what is not in the page cache"
)

# The most usual of all training scripts: reads the first batches of an epoch, or three epochs if it is told so.
SCRIPT = """
import itertools, sys
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
torch.set_num_threads(1)
def read(path):
    with open(path, "rb") as file:
        return len(file.read())
def dataset():
    return ImageFolder(sys.argv[1], loader=read, transform=lambda x: 0)
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
        job = [sys.executable, "-c", SCRIPT + script, mount.path]
        printed = subprocess.run(job, check=True, capture_output=True, text=True, timeout=JOB_SECONDS).stdout
        clairmount.wait_until(lambda: "matches" in hint(mount) and "no known" not in hint(mount), "the order is known")
        check = subprocess.run([binary(), "plan", "check", mount.path], capture_output=True, text=True, timeout=60).stdout
        assert hint(mount) in check
        return hint(mount), printed


@pytest.mark.parametrize("workers", [0, 2])
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
        job = [sys.executable, "-c", SCRIPT + SEEDED.format(workers=2), mount.path, "whole"]
        subprocess.run(job, check=True, capture_output=True, timeout=JOB_SECONDS)
        state = plan(mount)
        assert state["state"] != "suspended" and state["suspensions"] == 0 and "divergence" not in state, state
        assert state["in_order"] > 0.9 * 3 * 5000 and state["out_of_order"] == 0, state


def test_distributed_sampler(many):
    found, _ = hint_of(many, DISTRIBUTED.format(workers=2))
    assert found == "matches seed=31415 instead of 42"
