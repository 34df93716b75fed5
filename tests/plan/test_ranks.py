"""Ranks of a node that do not wait for each other: each is followed by itself, however far they are apart. A rank is a
process that reads when it is told to, so the drift is the test's, not the machine's."""

import contextlib
import hashlib
import os
import subprocess
import sys

import clairmount
import pytest
from planning import make_images, plan, predicted, register

# Beside three other tests, one in twenty of those that read without open() found its rank "skipped ahead".
alone = pytest.mark.alone

EPOCHS = 4
STEP = 8  # samples a rank reads before the next one's turn

READER = """
import hashlib, os, sys
for line in sys.stdin:
    how, path = line[:-1].split(" ", 1)
    if how == "python":
        with open(path, "rb") as file:
            data = file.read()
    else:
        fd = os.open(path, os.O_RDONLY)
        parts = []
        while part := os.read(fd, 1 << 20):
            parts.append(part)
        os.close(fd)
        data = b"".join(parts)
    print(hashlib.sha256(data).hexdigest(), flush=True)
"""


class Rank:
    """Reads its samples of all epochs in the planned order."""

    def __init__(self, mount, source, text, rank, how):
        self.mount, self.source, self.rank, self.how = mount, source, rank, how
        self.names = [name for epoch in range(EPOCHS) for name in predicted(source, text, epoch, rank)]
        self.length = len(self.names) // EPOCHS
        self.done = 0
        self.process = None
        self.start()

    def start(self):
        self.stop()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", READER], **pipes)

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.stdout.close()
            assert self.process.wait(60) == 0

    def state(self):
        return plan(self.mount)["ranks"][self.rank]

    def read(self, until):
        """In steps, each when its samples have been pushed; `until` in samples of all epochs."""
        while self.done < until:
            ahead = min(STEP, until - self.done)
            clairmount.wait_until(lambda: self.state()["ahead"] >= ahead, f"rank {self.rank} has its samples before it")
            for name in self.names[self.done : self.done + ahead]:
                self.process.stdin.write(f"{self.how} {self.mount.path / name}\n")
                self.process.stdin.flush()
                digest = hashlib.sha256((self.source / name).read_bytes()).hexdigest()
                assert self.process.stdout.readline().strip() == digest, name
            self.done += ahead
            assert self.mount.stat("staging.bytes") <= self.mount.stat("staging.capacity")


@contextlib.contextmanager
def ranks_of(mount, source, text, count, how):
    ranks = []
    try:
        for rank in range(count):
            ranks.append(Rank(mount, source, text, rank, how))
        yield ranks
    finally:
        for rank in ranks:
            rank.stop()


def plan_of(ranks):
    return f"format=imagefolder sampler=torch.distributed seed=42 epochs={EPOCHS} world={ranks} ranks_per_node={ranks} batch=4"


def dataset_reads(mount):
    reads = mount.stats()["reads"]
    return sum(reads[kind] for kind in ("ram", "nvme", "peer", "pfs", "failed"))


def check(mount):
    command = [clairmount.binary(), "plan", "check", mount.path]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(scope="module")
def dataset():
    """480 files of about 5 KB, so that a sentinel has a page that is there and one that is not."""
    with clairmount.tempdir() as tmp:
        make_images(tmp, 480, side=40)
        yield tmp


@pytest.mark.parametrize("count,epochs_apart,how", [
    pytest.param(2, 0.5, "raw", marks=alone), (2, 1, "python"), pytest.param(2, 2, "raw", marks=alone),
    pytest.param(4, 1, "raw", marks=alone), (4, 1, "python"),
])  # fmt: skip
def test_far_apart(dataset, count, epochs_apart, how):
    """The first reads a whole epoch, say, before the others begin, and ends so far before them."""
    text = plan_of(count)
    with clairmount.clairfs(dataset, "--ram", "64M", "--staging", "1M") as mount:
        register(mount, text)
        with ranks_of(mount, dataset, text, count, how) as ranks:
            length = ranks[0].length
            apart = int(epochs_apart * length)
            before = dataset_reads(mount)
            for until in range(STEP, EPOCHS * length + apart + STEP, STEP):
                for rank in ranks:
                    rank.read(min(until - (0 if rank.rank == 0 else apart), EPOCHS * length))
            state = plan(mount)
            assert (state["state"], state["out_of_order"], state["realignments"], state["suspensions"]) == ("finished", 0, 0, 0), state
            assert [rank["high_water"] for rank in state["ranks"]] == [length] * count
            assert check(mount).startswith("pass\n"), check(mount)
            # What was pushed needs no READ but those of sentinels.
            assert dataset_reads(mount) - before <= count * EPOCHS * length / 3
            assert mount.stat("pfs.bytes") == sum(os.stat(dataset / n).st_size for n in clairmount.tree_files(dataset))


@pytest.mark.parametrize("how", [pytest.param("raw", marks=alone), "python"])
def test_far_apart_in_a_dataset_that_stays_in_the_page_cache(dataset, how):
    text = plan_of(2)
    with clairmount.clairfs(dataset, "--ram", "64M", "--staging", "64M") as mount:
        register(mount, text)
        with ranks_of(mount, dataset, text, 2, how) as (first, second):
            length = first.length
            first.read(length)
            for until in range(STEP, EPOCHS * length + STEP, STEP):
                first.read(min(length + until, EPOCHS * length))
                second.read(min(until, EPOCHS * length))
        state = plan(mount)
        assert (state["out_of_order"], state["realignments"], state["suspensions"]) == (0, 0, 0), state


@alone
def test_one_rank_is_started_again(dataset):
    """In another process, from the beginning: it is found, and the other is not disturbed."""
    text = plan_of(2)
    with clairmount.clairfs(dataset, "--ram", "64M", "--staging", "1M") as mount:
        register(mount, text)
        with ranks_of(mount, dataset, text, 2, "python") as (first, second):
            for until in range(STEP, first.length // 2, STEP):
                first.read(until)
                second.read(until)
            second.start()
            second.done = 0
            for until in range(STEP, 64, STEP):
                for name in second.names[until - STEP : until]:  # nothing is pushed for it yet
                    second.process.stdin.write(f"python {mount.path / name}\n")
                    second.process.stdin.flush()
                    assert second.process.stdout.readline()
                first.read(first.done + STEP)
            second.done = 56
            second.read(120)
            state = plan(mount)
            assert state["ranks"][0]["state"] == "following" and state["suspensions"] == 0, state
            assert state["ranks"][0]["out_of_order"] <= 16, state  # until it was clear that this is no stranger
            assert state["ranks"][1]["high_water"] == 120 and state["ranks"][1]["out_of_order"] > 0, state
            assert state["divergence"]["rank"] == 1 and "restarted" in state["divergence"]["hint"], state
            text = mount.control("plan")
            assert "left the plan at rank 1, epoch 0" in text, text


@alone
def test_one_rank_never_reads(dataset):
    text = plan_of(3)
    with clairmount.clairfs(dataset, "--ram", "64M", "--staging", "1M") as mount:
        register(mount, text)
        with ranks_of(mount, dataset, text, 3, "raw") as (first, silent, third):
            for until in range(STEP, 2 * first.length + STEP, STEP):
                first.read(until)
                third.read(until // 2)
            state = plan(mount)
            assert (state["state"], state["out_of_order"], state["suspensions"]) == ("following", 0, 0), state
            assert state["ranks"][1]["state"] == "waiting" and silent.done == 0


@alone
def test_bytes_from_the_source(tmp):
    """Tiers for half of it, and half an epoch apart: within 5 % of S + (E-1) max(0, S - D), the least that any cache can read."""
    count = 600
    make_images(tmp / "src", count, side=224)
    size = sum((tmp / "src" / name).stat().st_size for name in clairmount.tree_files(tmp / "src"))
    capacity = size // 2 // 4096 * 4096
    text = plan_of(2)
    with clairmount.slowfs(tmp / "src") as pfs:
        with clairmount.clairfs(pfs.path, "--ram", capacity, "--chunk", "256K", "--staging", "8M") as mount:
            pfs.command("reset")
            register(mount, text)
            with ranks_of(mount, tmp / "src", text, 2, "raw") as (first, second):
                length = first.length
                for until in range(STEP, EPOCHS * length + length // 2 + STEP, STEP):
                    first.read(min(until, EPOCHS * length))
                    second.read(min(until - length // 2, EPOCHS * length))
            least = size + (EPOCHS - 1) * max(0, size - capacity)
            print("bytes from the source over the least:", pfs.counters()["bytes"] / least)
            assert pfs.counters()["bytes"] <= 1.05 * least, pfs.counters()["bytes"] / least
