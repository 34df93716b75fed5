"""A plan that one node of a job finds is that of the job: real MPI, two nodes, the order of the real DistributedSampler."""

import json
import random
import subprocess
import sys

import pytest
from clairjob import clairjob
from clairmount import binary, wait_until
from training import Dataset, orders

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="readers of this Python show only what is not in the page cache")


def found(node):
    return next((p for p in node.stats()["plan_list"] if p["name"] == "auto"), None)


def test_a_job_follows_what_one_of_its_nodes_finds(tmp):
    data = Dataset(tmp / "src", count=400, size=5000)
    samples = orders(data.names, 2, 2)
    with clairjob(tmp / "src", 2, "--ram", "64M", "--staging", "16M") as job:
        def read(rank, epoch, begin, end):
            for name in samples[rank, epoch][begin:end]:
                data.check(job[rank], name)

        def assert_follows(rank):
            state = found(job[rank])
            assert state and state["suspensions"] == 0 and state["state"] in ("following", "finished"), (state, job.log())
            assert state["out_of_order"] == 0, state

        read(0, 0, 0, 60)
        wait_until(lambda: found(job[0]) and found(job[1]), "both nodes have the plan that node 0 has found")
        said = subprocess.run([binary(), "plan", "detect", job[1].path, "--json"], capture_output=True, text=True, timeout=60)
        assert json.loads(said.stdout)["told_by"] == 0, said
        keys = {"sampler": "torch.distributed", "seed": 11, "world": 2, "ranks_per_node": 1, "epochs": 1}
        assert {key: found(job[1])["plan"][key] for key in keys} == keys
        read(1, 0, 0, 200)
        read(0, 0, 60, 200)
        assert_follows(0), assert_follows(1)

        read(0, 1, 0, 60)
        read(1, 1, 0, 60)
        later = lambda node: found(node)["plan"].get("epochs", 0) == 0 and found(node)["plan"]["first_epoch"] == 1  # noqa: E731
        wait_until(lambda: all(later(node) and "placement" in node.stats()["job"] for node in job), "it is a plan of all epochs")
        read(0, 1, 60, 150)
        read(1, 1, 60, 150)
        assert_follows(0), assert_follows(1)
        # Most samples have another home than in the first epoch, which asks who had them.
        assert sum(node.stat("pfs.bytes") for node in job) <= 1.02 * 400 * 5000

        # Node 1 goes another way. Node 0 does not, and keeps its plan.
        names = random.Random(1).sample(data.names, len(data.names))
        for name in names:
            data.check(job[1], name)
        wait_until(lambda: found(job[1]) is None, "node 1 has left the plan")
        read(0, 1, 150, 200)
        assert_follows(0)
        assert job.stat("reads.failed") == 0
