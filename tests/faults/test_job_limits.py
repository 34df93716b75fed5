"""A job under what a single mount bears: few descriptors, many readers, plans that come and go on all nodes."""

import contextlib
import os
import random

import pytest
from clairjob import clairjob
from clairmount import sanitized, tempdir, wait_until
from faultlib import descriptor_limit, reading
from test_limits import launcher
from training import Dataset, plan_text, register_on_all

NODES = 3


@pytest.fixture(scope="module")
def data():
    with tempdir() as tmp:
        yield Dataset(tmp / "src")


@contextlib.contextmanager
def all_read(data, job, threads):
    """So many readers on every node."""
    hashes = {name: digest.hex() for name, digest in data.digests.items()}
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(reading(node.path, hashes, threads)) for node in job]
        yield readers
    assert not any(of_node.errors for of_node in readers)
    assert job.stat("reads.failed") == 0


def descriptors(job):
    return [len(os.listdir(f"/proc/{pid}/fd")) for pid in job.pids]


@pytest.mark.skipif(sanitized(), reason="UBSan looks at memory through a pipe, and takes none for bad memory")
def test_few_descriptors_and_many_readers(data, tmp, monkeypatch):
    program = launcher(tmp / "few", "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))")
    monkeypatch.setenv("CLAIRFS_BIN", str(program))
    for node in range(NODES):
        (tmp / f"nvme{node}").mkdir(mode=0o700)
    options = ["--ram=1M", "--chunk=64K", "--staging=512K", f"--nvme={tmp}/nvme{{rank}}:8M"]
    with clairjob(data.root, NODES, *options) as job, all_read(data, job, 30) as readers:
        register_on_all(job, 0, 1000)
        for of_node in readers:
            of_node.progress(400)
        assert {descriptor_limit(pid) for pid in job.pids} == {64}


def test_plans_come_and_go_on_all_nodes(data):
    """Registered and cancelled a hundred and fifty times by any node; all end with the same one."""
    chance = random.Random(1)
    registered = 0
    with clairjob(data.root, NODES, "--ram", data.padded, "--staging", "1M") as job:
        with all_read(data, job, 2) as readers:
            for turn in range(150):
                control = chance.choice(job.nodes).path / ".clairfs/plan"
                text = chance.choice([plan_text(NODES, 2 + turn), "cancel"])
                with contextlib.suppress(OSError):  # another node's is in force under that name, or none is
                    control.write_text(text + "\n")
                    registered += text != "cancel"
                if turn == 50:
                    before = descriptors(job)
            assert registered > 15
            for of_node in readers:
                of_node.progress()

        def texts():
            return {str([p["plan"] for p in node.stats()["plan_list"]]) for node in job}

        wait_until(lambda: len(texts()) == 1, "all have the same plan")
        with contextlib.suppress(OSError):
            (job[0].path / ".clairfs/plan").write_text("cancel\n")
        wait_until(lambda: texts() == {"[]"}, "none is left")
        register_on_all(job, 0, 1000)
        (job[0].path / ".clairfs/plan").write_text("cancel\n")
        wait_until(lambda: texts() == {"[]"}, "none is left")
        wait_until(lambda: all(now <= then + 4 for now, then in zip(descriptors(job), before)), "descriptors are closed")
