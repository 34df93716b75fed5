"""Nodes of a job that die, stand still, limp or leave: right data everywhere, and not one failed read on the others."""

import contextlib
import signal
import threading

import pytest
from clairjob import clairjob
from clairmount import detach, is_mounted, slowfs, tempdir, wait_until
from faultlib import PATIENCE, in_background, joined, reading
from training import Dataset, Readers, peers, register_on_all

NODES, EPOCHS = 4, 4
ENDED = {"ENOTCONN", "ECONNABORTED", "EINTR", "ECANCELED", "EIO", "ENOENT"}  # as in test_ends.py


@pytest.fixture(scope="module")
def data():
    with tempdir() as tmp:
        yield Dataset(tmp / "src")


@contextlib.contextmanager
def job_of(data, nodes=NODES):
    """A job on a source of some latency; what it can hold is a little more than the dataset."""
    with slowfs(data.root, "--attr-timeout", "1000", "--latency", "500") as slow:
        with clairjob(slow.path, nodes, "--ram", data.padded * 5 // 4 // nodes, "--staging", "1M") as job:
            yield job


def others(job, *ranks):
    return [node for node in range(len(job)) if node not in ranks]


def wait_states(job, of, wanted, on):
    wait_until(lambda: {peers(job[node])[of]["state"] for node in on} <= wanted, f"rank {of} is {wanted} to all others")


def plan_names(node):
    return {plan["name"] for plan in node.stats()["plan_list"]}


def register_other(job, rank, name):
    (job[rank].path / ".clairfs/plan").write_text(f"name={name} format=files sampler=torch.sequential epochs=1 world={NODES}\n")


def assert_all_readable(data, job, nodes):
    for node in nodes:
        for name in data.names:
            data.check(job[node], name)
    assert sum(job[node].stat("reads.failed") for node in nodes) == 0


@pytest.mark.parametrize("victims, epoch", [([0], 0), ([0, 2], 1)])
def test_nodes_killed_in_an_epoch(data, victims, epoch):
    """The first rank among them: it has scanned the dataset, and all compare themselves with it."""
    with job_of(data) as job:
        living = others(job, *victims)
        register_on_all(job, 0, EPOCHS)
        readers = Readers(data, job, EPOCHS, pause=0.02, nodes=living).start()
        wait_until(lambda: min(readers.done.values()) > len(data.names) // NODES * (epoch + 0.4), f"epoch {epoch}")
        for victim in victims:
            job.signal(victim, signal.SIGKILL)
        readers.finish()
        for victim in victims:
            detach(job[victim].path)
            wait_states(job, victim, {"dead"}, living)
        # The job goes on without them.
        register_other(job, living[0], "later")
        wait_until(lambda: all("later" in plan_names(job[node]) for node in living), "a new plan is in force")
        assert_all_readable(data, job, living)


@contextlib.contextmanager
def limping(job, rank, stopped, running):
    """The node stands still and runs in turns, in seconds."""
    over = threading.Event()

    def limp():
        while not over.is_set():
            job.signal(rank, signal.SIGSTOP)
            over.wait(stopped)
            job.signal(rank, signal.SIGCONT)
            over.wait(running)

    thread = in_background(limp)
    try:
        yield
    finally:
        over.set()
        joined(thread)


@pytest.mark.parametrize("stopped, running", [(0.1, 0.02), (4, 0.5)])
def test_slow_node(data, stopped, running):
    """Slow for others and for its own readers; with 4 s it is late again and again."""
    with job_of(data) as job:
        register_on_all(job, 0, EPOCHS)
        with limping(job, 1, stopped, running):
            Readers(data, job, 2, pause=0.02).start().finish(3 * PATIENCE)
        wait_states(job, 1, {"alive"}, others(job, 1))
        assert_all_readable(data, job, range(NODES))


def test_stopped_node_wakes_up(data):
    """It is taken back, hears of what it has missed, and who waited for it all the time gets right bytes."""
    victim, witnesses = 2, [0, 1, 3]
    with job_of(data) as job:
        register_on_all(job, 0, EPOCHS)
        readers = Readers(data, job, EPOCHS, pause=0.02).start()
        wait_until(lambda: min(readers.done.values()) > 20, "all nodes train")
        job.signal(victim, signal.SIGSTOP)
        try:
            wait_states(job, victim, {"dead"}, witnesses)
            register_other(job, 1, "later")
            before = dict(readers.done)
            wait_until(lambda: all(readers.done[n] == len(data.names) // NODES * EPOCHS for n in witnesses), "the others train on", 3 * PATIENCE)
            assert before[victim] < len(data.names) // NODES * EPOCHS
        finally:
            job.signal(victim, signal.SIGCONT)
        readers.finish(stopped=[victim])
        wait_states(job, victim, {"alive"}, witnesses)
        wait_until(lambda: "later" in plan_names(job[victim]), "it hears of the plan")
        assert_all_readable(data, job, range(NODES))
        assert job.stat("reads.failed") == 0


def test_sigterm_of_one_node_under_load(data):
    victim = 1
    with job_of(data) as job:
        register_on_all(job, 0, EPOCHS)
        readers = Readers(data, job, EPOCHS, pause=0.02, nodes=others(job, victim)).start()
        hashes = {name: digest.hex() for name, digest in data.digests.items()}
        with reading(job[victim].path, hashes) as own:
            own.progress(50)
            job.signal(victim, signal.SIGTERM)
            wait_until(lambda: not is_mounted(job[victim].path), "it unmounts", PATIENCE)
            wait_until(lambda: own.errors["ENOENT"] > 0, "its readers find the mount gone")
        assert set(own.errors) <= ENDED
        readers.finish()
        wait_states(job, victim, {"left"}, others(job, victim))
        assert_all_readable(data, job, others(job, victim))


def test_only_one_node_is_left(data):
    """The others die one after the other; the last one reads all of it."""
    with job_of(data, 3) as job:
        register_on_all(job, 2, EPOCHS)
        readers = Readers(data, job, EPOCHS, pause=0.05, nodes=[1]).start()
        for victim in (0, 2):
            before = readers.done[1]
            wait_until(lambda: readers.done[1] > before + 50, "it trains")  # noqa: B023  (called at once)
            job.kill(victim)
        readers.finish()
        assert_all_readable(data, job, [1])
