#!/usr/bin/python3
"""Ordinary PyTorch scripts that tell clairfs nothing: how soon their order is found, and what that is worth.

    tests/bench/finding.py [--quick] [--rounds N] [--json FILE]

A DataLoader of two workers over an ImageFolder, with a DistributedSampler (an order that is found without a search) and with
shuffle=True after torch.manual_seed() and a model (a seed that is searched for). The files are read and not decoded, and
nothing computes, so that both cores are busy; then the same where computing (sleeping) takes 4,000 samples a second, as the
GPUs of a node do. Opens are those that the mount says it took; seconds are those from the start of the epoch, workers and
all, to the moment at which the plan is in force, as seen every 20 ms. Requests are those of the second and third epoch, less
those of reading the counters.

Then the latter script on an emulated PFS with a RAM tier of half the dataset, a batch computing (sleeping) for as long as
the PFS takes for its bytes: later epochs beside those of the plan that the mount printed, registered before the start.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

import benchlib
import clairmount
from benchlib import Findings, Table, progress

WORKERS = 2
BATCH = 64
EPOCHS = 3
BANDWIDTH = 200_000_000
LATENCY_US = 1000
POLL_SECONDS = 0.02
SCRIPTS = {
    "DistributedSampler": """
sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=42)
batches = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=WORKERS)
""",
    "shuffle=True": """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 10))
sampler = None
batches = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=WORKERS)
""",
}
# Label, script, and seconds that computing takes for a byte.
FILE_BYTES = 4000
CASES = (
    ("DistributedSampler", "DistributedSampler", 0.0),
    ("shuffle=True", "shuffle=True", 0.0),
    ("shuffle=True, 4,000 samples/s", "shuffle=True", 1 / (4000 * FILE_BYTES)),
)
# Prints the requests so far and the time at the beginning of the first epoch and after each.
JOB = """
import json, sys, time
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
BATCH, WORKERS, EPOCHS, mount, pause = {batch}, {workers}, {epochs}, sys.argv[1], float(sys.argv[2])
torch.set_num_threads(1)
def read(path):
    with open(path, "rb") as file:
        return len(file.read())
def requests():
    with open(mount + "/.clairfs/stats.json") as file:
        counts = json.load(file)["fuse"]["requests"]
        return sum(counts.values()), counts.get("ioctl", 0)
def tell(samples):
    (before, ioctls), (after, _) = requests(), requests()
    counts = {{"requests": before, "asking": after - before, "ioctls": ioctls}}
    print(json.dumps({{"at": time.monotonic(), "samples": samples, **counts}}), flush=True)
data = ImageFolder(mount, loader=read, transform=lambda size: size)
{script}
tell(0)
for epoch in range(EPOCHS):
    if sampler:
        sampler.set_epoch(epoch)
    samples = 0
    for sizes, _ in batches:
        samples += len(sizes)
        time.sleep(pause * int(sizes.sum()))
    assert samples == len(data)
    tell(samples)
"""


class Watch:
    """When a found plan was first seen in force, and from when on it was one of all epochs."""

    def __init__(self, mount):
        self.mount = mount
        self.found = self.known = None
        self.first, self.last = {}, {}  # what the mount said then, and in the end
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.over.wait(POLL_SECONDS) and self.known is None:
            plans = [plan for plan in self.mount.stats()["plan_list"] if plan["name"] == "auto"]
            if plans and self.found is None:
                self.found, self.first = time.monotonic(), self._detected()
            if plans and plans[0]["plan"].get("epochs", 0) == 0:
                self.known = time.monotonic()

    def _detected(self):
        words = [clairmount.binary(), "plan", "detect", self.mount.path, "--json"]
        return json.loads(subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.last = self._detected()


def train(mount, script, pause=0.0):
    """What the job told: one entry at the beginning, one after each epoch."""
    text = JOB.format(batch=BATCH, workers=WORKERS, epochs=EPOCHS, script=SCRIPTS[script])
    words = [sys.executable, "-c", text, mount.path, str(pause)]
    limit = 3 * benchlib.READ_SECONDS
    run = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=limit, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def requests_a_sample(told):
    """Of the second epoch and those after it: of all requests, and of those beside ioctls, one of which each open() of a
    CPython before 3.14 is."""
    samples = sum(entry["samples"] for entry in told[2:])
    asked = told[-1]["requests"] - told[1]["requests"] - sum(entry["asking"] for entry in told[1:-1]) * 2
    ioctls = told[-1]["ioctls"] - told[1]["ioctls"]
    return asked / samples, max(0, asked - ioctls) / samples


def seconds_later(told):
    return told[-1]["at"] - told[1]["at"]


def find(source, size, label, script, pause, samples):
    with clairmount.clairfs(source, "--ram", 2 * size) as mount:
        with Watch(mount) as watch:
            told = train(mount, script, pause)
        begin, end = told[0]["at"], told[1]["at"]
        found = watch.found if watch.found is not None else told[-1]["at"]
        samples.add(f"{label} seconds", found - begin)
        samples.add(f"{label} epoch", (found - begin) / (end - begin))
        samples.add(f"{label} opens", watch.first.get("opens", 0))
        for name, count in zip(("requests", "other requests"), requests_a_sample(told), strict=True):
            samples.add(f"{label} {name}", count)
        progress(f"{label}: found after {found - begin:.2f} s of {end - begin:.2f}")


def emulated_pfs(source):
    latency = ("--open-latency", LATENCY_US, "--read-latency", LATENCY_US)
    return clairmount.slowfs(source, *latency, "--bandwidth", BANDWIDTH)


def compare_epochs(source, size, samples):
    """The plan that is registered is the one that was found."""
    pause = 1 / BANDWIDTH
    line = None
    for how in ("found", "registered"):
        with emulated_pfs(source) as pfs, clairmount.clairfs(pfs.path, "--chunk", "1M", "--ram", size // 2) as mount:
            if how == "registered":
                (mount.path / ".clairfs/plan").write_text(line + "\n")
            with Watch(mount) if how == "found" else contextlib.nullcontext() as watch:
                told = train(mount, "shuffle=True", pause)
            if how == "found":
                line = watch.last.get("plan")
            samples.add(f"PFS {how} later", seconds_later(told))
            samples.add(f"PFS {how} bytes", pfs.counters()["bytes"] / size)
            progress(f"{how}: {', '.join(format(b['at'] - a['at'], '.1f') for a, b in zip(told, told[1:], strict=False))} s")
        if line is None:
            samples.rounds["PFS found later"].pop()
            samples.rounds["PFS found bytes"].pop()
            return False
    return True


def main():
    given = benchlib.arguments(__doc__, "default: 5; with --quick 2")
    rounds = given.rounds or (2 if given.quick else 5)
    found = Findings(given)
    samples = found.samples
    if missing := missing_packages():
        found.skip("PyTorch scripts that register nothing", f"not installed (apt-get install {missing})")
        return
    count, of_pfs = (20_000, 1000) if given.quick else (100_000, 3000)
    in_vain = 0
    with clairmount.tempdir() as tmp:
        small = benchlib.bytes_of(tmp / "small", benchlib.make_dataset(tmp / "small", count, FILE_BYTES))
        large = benchlib.bytes_of(tmp / "large", benchlib.make_dataset(tmp / "large", of_pfs))
        for round_ in range(rounds):
            progress(f"finding, round {round_ + 1} of {rounds}")
            for case in CASES:
                find(tmp / "small", small, *case, samples)
            in_vain += not compare_epochs(tmp / "large", large, samples)
    found.add(table_of_finding(count, samples))
    table = Table(f"{EPOCHS} epochs of {large / 1e6:.0f} MB in {of_pfs:,} files from a PFS, shuffle=True, RAM tier 0.5 S")
    table.add("orders that were not found", in_vain, at_most=0)
    if "PFS registered later" in samples.rounds:
        for how in ("found", "registered"):
            table.add(f"plan {how}: the later epochs", samples.median(f"PFS {how} later"), "s")
            table.add(f"plan {how}: PFS bytes", samples.median(f"PFS {how} bytes"), "S")
        table.add("plan found / registered: the later epochs", samples.ratio("PFS found later", "PFS registered later"), at_most=1.02)
    found.add(table)


def missing_packages():
    return " ".join(f"python3-{module}" for module in ("torch", "torchvision") if find_spec(module) is None)


def table_of_finding(count, samples):
    table = Table(f"Scripts that register nothing: {count:,} files of 4 KB, {WORKERS} workers, batches of {BATCH}")
    for label, script, _ in CASES:
        searched = script == "shuffle=True"
        table.add(f"{label}: opens until it was found", samples.median(f"{label} opens"), at_most=None if searched else 200)
        table.add(f"{label}: seconds until it was in force", samples.median(f"{label} seconds"), "s", at_most=None if searched else 1)
        table.add(f"{label}: that, of the first epoch", samples.median(f"{label} epoch"), at_most=1)
        table.add(f"{label}: requests a sample, later epochs", samples.median(f"{label} requests"))
        table.add(f"{label}: the same without Python's isatty()", samples.median(f"{label} other requests"), at_most=0.03)
    return table


if __name__ == "__main__":
    main()
