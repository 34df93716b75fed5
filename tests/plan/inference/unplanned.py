"""Readers that register nothing, and what the mount finds of them: what the suites of found plans share."""

import contextlib
import json
import os
import subprocess
import sys
import threading

import pytest
import warm_python
from clairmount import SLOWNESS, binary, clairfs
from planning import JOB_SECONDS

# What each job begins with. It reads as fast as it can, but waits where a test wants to see what the mount found by then:
# how long that takes is no matter of the test. Who only waits shows nothing more, and what was seen may by chance not tell
# how many workers there are, say: when two thirds of its patience are over it reads on, a batch at a time.
START = f"PATIENCE = {150 * SLOWNESS}" + """
import json, os, random, sys, time
import numpy
mount = sys.argv[1]
def read(path):
    with open(path, "rb") as file:
        return len(file.read())
def auto():
    with open(mount + "/.clairfs/stats.json") as file:
        plans = [plan for plan in json.load(file)["plan_list"] if plan["name"] == "auto"]
    return plans[0] if plans else None
def is_settled(epoch, seconds):
    deadline = time.monotonic() + seconds
    while not (auto() and (epoch == 0 or auto()["plan"].get("epochs", 0) == 0)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
def settle(epoch):
    assert is_settled(epoch, PATIENCE), (epoch, auto())
def run(epochs, batches, wait=10):
    for epoch in range(epochs):
        settled = False
        for step, _ in enumerate(batches(epoch)):
            if step >= wait and not settled:
                settled = is_settled(epoch, PATIENCE * 2 / 3 if step == wait else 1)
        assert settled, (epoch, auto())
"""
TORCH = """
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
torch.set_num_threads(1)
def loader(folder="train", **options):
    return DataLoader(ImageFolder(f"{mount}/{folder}", loader=read, transform=lambda x: 0),
                      **{"batch_size": 8, "num_workers": 2, **options})
def dataset(folder="train"):
    return ImageFolder(f"{mount}/{folder}", loader=read, transform=lambda x: 0)
"""
LISTED = """
paths = sorted(os.path.join(top, name) for top, _, names in os.walk(mount + "/train") for name in names)
def in_order(order):
    for start in range(0, len(order), 8):
        for i in order[start:start + 8]:
            read(paths[i])
        yield
"""


def job_words(mount, script, env=None):
    """The command line of a job: a fork of a process that has imported PyTorch, where the script needs that and the mount is
    to find nothing in the job's own environment."""
    python = warm_python.words() if TORCH in script and not env else [sys.executable]
    return [*python, "-c", START + script, mount.path]


def run_job(mount, script, env=None):
    subprocess.run(job_words(mount, script, env), check=True, timeout=JOB_SECONDS, env={**os.environ, **(env or {})})


@contextlib.contextmanager
def hurried(mount):
    """In the block the mount's searches have their share of the processors. They take what nobody else wants (SCHED_IDLE),
    which beside other tests, and programs that are built, is next to nothing for as long as these run."""
    over = threading.Event()

    def hurry():
        while not over.wait(0.05):
            with contextlib.suppress(OSError):  # a thread or the daemon has ended meanwhile, or a user may not
                for thread in map(int, os.listdir(f"/proc/{mount.pid}/task")):
                    if os.sched_getscheduler(thread) == os.SCHED_IDLE:
                        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))

    hurrying = threading.Thread(target=hurry, daemon=True)
    hurrying.start()
    try:
        yield
    finally:
        over.set()
        hurrying.join()


@contextlib.contextmanager
def searching(source, *options):
    """A mount whose searches are hurried."""
    with clairfs(source, *options) as mount, hurried(mount):
        yield mount


def found(mount):
    """The plan that was found, if any."""
    return next((p for p in mount.stats()["plan_list"] if p["name"] == "auto"), None)


def detect(mount):
    done = subprocess.run([binary(), "plan", "detect", mount.path, "--json"], capture_output=True, text=True, timeout=60)
    answer = json.loads(done.stdout)
    assert done.returncode == (0 if answer["state"] == "found" else 1), done
    return answer


def detect_text(mount):
    return subprocess.run([binary(), "plan", "detect", mount.path], capture_output=True, text=True, timeout=60).stdout


def assert_followed(mount, **keys):
    state = found(mount)
    assert state, mount.log()
    assert {key: state["plan"].get(key) for key in keys} == keys, state["plan"]
    assert state["suspensions"] == 0 and state["state"] in ("following", "finished"), state
    assert state["in_order"] > 100, state
    assert state["out_of_order"] <= 0.06 * state["in_order"], state
    answer = detect(mount)
    assert answer["state"] == "found" and answer["log10_chance"] < -9, answer


def torch_job(mount, script, **more):
    pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    run_job(mount, TORCH + script, **more)
