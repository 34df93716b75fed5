"""A node that sends wrong bytes to the others, in what they asked for or in what it says: readers get the right ones."""

import contextlib

import pytest
from clairjob import clairjob
from clairmount import logged, tempdir, wait_until
from preload import faults
from training import Dataset, Readers, peers, register_on_all

__all__ = ["faults"]
NODES, EPOCHS, LIAR = 3, 2, 1


@pytest.fixture(scope="module")
def data():
    with tempdir() as tmp:
        yield Dataset(tmp / "src")


@contextlib.contextmanager
def trained(data, faults, **of_the_liar):
    """A job that has trained on right bytes while one of its nodes had these faults."""
    faults.node = LIAR + 1
    with clairjob(data.root, NODES, "--ram", data.padded * 2 // NODES, "--staging", "1M", env=faults.env) as job:
        for name, value in of_the_liar.items():
            setattr(faults, name, value)
        register_on_all(job, 0, EPOCHS)
        Readers(data, job, EPOCHS, pause=0.02).start().finish()
        assert faults.hits > 0
        assert job.stat("reads.failed") == 0
        yield job


def seen(job, field):
    """{(node, its peer): what the one's report says of the other}"""
    return {(node.rank, peer["rank"]): peer[field] for node in job for peer in peers(node) if peer["rank"] != node.rank}


@pytest.mark.parametrize("every", [1, 5])
def test_wrong_chunks(data, faults, every):
    with trained(data, faults, wrong_bulk=every) as job:
        found = seen(job, "corrupt")
        assert sum(found.values()) == faults.hits, found
        assert {peer for (_, peer), count in found.items() if count > 0} == {LIAR}
        assert logged(job, f"came from node {LIAR} with a wrong checksum")


@pytest.mark.parametrize("every", [1, 3])
def test_wrong_messages(data, faults, every):
    """A bit flips in a request, a reply or a hello: no other chunk is taken for the one that was asked for, and no node
    is thought to have no place in the job."""
    with trained(data, faults, wrong_message=every) as job:
        assert not any(seen(job, "corrupt").values())
        assert logged(job, "its checksum is wrong")
        faults.wrong_message = 0
        wait_until(lambda: set(seen(job, "state").values()) == {"alive"}, "all know each other")
        for node in job:
            for name in data.names:
                data.check(node, name)
