"""A job whose ranks have a machine each, as mpiexec sees it: nothing stands between mpiexec and the daemons."""

import clairmount
import pytest
from clairjob import clairjob
from clairmount import slowfs, wait_until
from loopback_ssh import loopback_ssh
from training import Dataset, Readers, register_on_all


@pytest.fixture(scope="module")
def data():
    with clairmount.tempdir() as tmp:
        yield Dataset(tmp / "src")


@pytest.mark.parametrize("victim", [0, 1])
def test_a_daemon_that_is_killed_on_its_machine_costs_no_read(data, tmp, victim):
    nodes, epochs = 3, 4
    with loopback_ssh(tmp, nodes) as launch, slowfs(data.root, "--attr-timeout", "1000", "--latency", "500") as slow:
        options = ["--ram", data.padded * 5 // 4 // nodes, "--staging", "2M"]
        with clairjob(slow.path, nodes, *options, launch=launch, shell=[]) as job:
            register_on_all(job, 0, epochs)
            living = [node for node in range(nodes) if node != victim]
            readers = Readers(data, job, epochs, pause=0.02, nodes=living).start()
            wait_until(lambda: min(readers.done.values()) > len(data.names) // nodes * 1.3, "the second epoch")
            job.kill(victim)
            readers.finish()
            assert sum(job[node].stat("reads.failed") for node in living) == 0
