"""Jobs without any launcher: nodes that meet at --job HOST:PORT."""

import itertools
import os
import re
import socket
import subprocess

import clairmount
import pytest
from clairmount import SLOWNESS, is_mounted, logged, slowfs, wait_until
from meetingjob import free_port, meetingjob
from training import Dataset, Readers, peers, register_on_all


@pytest.fixture(scope="module")
def data():
    with clairmount.tempdir() as tmp:
        yield Dataset(tmp / "src")


@pytest.fixture
def secret(tmp):
    (tmp / "secret").write_text("of this job\n")
    return tmp / "secret"


def trained(data, job, slow, epochs=3):
    slow.command("reset")
    register_on_all(job, len(job) - 1, epochs)
    Readers(data, job, epochs).start().finish()
    counters = slow.counters()
    assert counters["opens_per_file_max"] == 1
    assert counters["bytes"] == data.size  # 1.000 of the lower bound
    assert job.stat("reads.failed") == 0
    assert job.stat("peers.bytes_in") > data.size // 2


def test_nodes_without_a_launcher_form_a_job(data, secret):
    nodes = 3
    with slowfs(data.root, "--attr-timeout", "1000") as slow:
        options = ["--ram", data.padded * 5 // 4 // nodes, "--staging", "2M", "--job-secret", secret]
        with meetingjob(slow.path, nodes, *options) as job:
            trained(data, job, slow)
            assert logged(job, f"node 2 of 3 has come to {job.at}, from 127.0.0.1")
            assert "of this job" not in job.log() + job[1].control("config")


def test_torchrun_tells_the_place(data):
    """GROUP_RANK and the two sizes, as torchrun gives them to each of its workers. Launchers of other things are ignored."""
    nodes = 2
    others = {"PMIX_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6", "PMI_RANK": "7", "PMI_SIZE": "9", "PMI_FD": "99"}  # of no use
    world = lambda rank: {"GROUP_RANK": str(rank), "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "MASTER_PORT": "29500", **others}  # noqa: E731
    with slowfs(data.root, "--attr-timeout", "1000") as slow:
        with meetingjob(slow.path, nodes, "--ram", data.padded * 5 // 4 // nodes, "--staging", "2M", env=world) as job:
            trained(data, job, slow)
            assert logged(job, f"without --job-secret whoever reached {job.at} could have joined this job")


def test_nodes_in_the_background(data, secret):
    """No launcher takes that for their end. The place of the second comes from Kubernetes."""
    with meetingjob(data.root, 2, "--job-secret", secret, start=False) as job:
        second = subprocess.Popen(
            [*job.command(1, "--nodes=2", named=False)], env={**os.environ, "JOB_COMPLETION_INDEX": "1"}, stderr=subprocess.PIPE
        )
        subprocess.run(job.command(0), check=True, timeout=120)
        _, said = second.communicate(timeout=120)
        assert (second.returncode, said) == (0, b"")
        job.await_all()
        for node in job:
            data.check(node, data.names[0])
            assert [peer["state"] for peer in peers(node)].count("alive") == 1


def test_a_missing_node_is_named_by_all(data):
    with meetingjob(data.root, 3, f"--job-timeout={6 * SLOWNESS}", start=False) as job:  # in which the two must meet
        others = [job.start_node(rank) for rank in (0, 1)]
        assert [process.wait(60 * SLOWNESS) for process in others] == [32, 32]
        assert job.log().count(f"clairfs: node 2 of 3 has not come to {job.at}") == 2
        assert not any(is_mounted(node.path) for node in job)
        job.killed = True  # they ended as they should


def test_where_rank_0_is_missing_its_address_is_named(data):
    with meetingjob(data.root, 2, "--job-timeout=2", start=False) as job:
        assert job.start_node(1).wait(60) == 32
        assert f"clairfs: node 0 at {job.at} does not answer within 2 s" in job.log()
        assert not is_mounted(job[1].path)
        job.killed = True


def test_strangers_do_not_disturb(data, secret, tmp):
    """Probes, garbage, a node with another secret, a second one with the same rank."""
    (tmp / "other").write_text("of another job\n")
    with meetingjob(data.root, 3, "--job-secret", secret, start=False) as job:
        job.start_node(0)
        job.start_node(1)
        wait_until(lambda: "node 1 of 3 has come" in job.log(), "node 1 has come")
        address = ("127.0.0.1", int(job.at.rpartition(":")[2]))
        silent = [socket.create_connection(address) for _ in range(20)]
        for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(100_000), b"join 2 3 nonce proof\n"):
            with socket.create_connection(address) as stranger:
                stranger.sendall(garbage)

        def stranger(rank, *words):
            path = tmp / f"mnt{next(number)}"
            path.mkdir()
            command = job.command(rank, *words)
            command[3] = str(path)
            ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert ended.returncode == 32 and not is_mounted(path)
            return ended.stderr

        number = itertools.count()
        assert "its secret is not that of node 0" in stranger(2, "--job-secret", tmp / "other")
        assert "node 1 of 3 is there already, from 127.0.0.1" in stranger(1)
        assert "it was given --nodes 4, node 0 --nodes 3" in stranger(2, "--nodes=4")
        assert "port {} is in use".format(address[1]) in stranger(0)
        job.start_node(2)
        job.await_all()
        for node in job:
            data.check(node, data.names[1])
        for connection in silent:
            connection.close()


def test_a_node_that_is_killed_costs_no_read(data, secret):
    nodes, epochs, victim = 3, 4, 1
    with slowfs(data.root, "--attr-timeout", "1000", "--latency", "500") as slow:
        options = ["--ram", data.padded * 5 // 4 // nodes, "--staging", "2M", "--job-secret", secret]
        with meetingjob(slow.path, nodes, *options) as job:
            register_on_all(job, 0, epochs)
            readers = Readers(data, job, epochs, pause=0.02, nodes=[0, 2]).start()
            wait_until(lambda: min(readers.done.values()) > len(data.names) // nodes * 1.3, "the second epoch")
            job.kill(victim)
            readers.finish()
            assert sum(job[n].stat("reads.failed") for n in (0, 2)) == 0


@pytest.mark.parametrize("choice, shown", [(None, "safe"), ("safe", "safe"), ("tcp,self", "tcp,self")])
def test_peers_show_the_network(data, choice, shown):
    """What UCX took comes from its own word."""
    with meetingjob(data.root, 2, *(["--network", choice] if choice else [])) as job:
        data.check(job[0], data.names[0])
        (line,) = re.findall("^network .*", job[0].control("peers"), re.M)
        assert f"--network {shown} (UCX_TLS=" in line
        taken = line.partition("UCX says it took ")[2].split()
        assert taken and {transport.split("/")[0] for transport in taken} <= {"tcp", "self"}, line
        assert job[0].stats()["job"]["network"] in line


def test_the_fast_network_is_what_ucx_finds(data):
    with meetingjob(data.root, 2, "--network=fast", env=lambda rank: {"GROUP_RANK": str(rank), "GROUP_WORLD_SIZE": "2", "UCX_TLS": "tcp,self"}) as job:
        data.check(job[0], data.names[0])
        assert "network   --network fast (whatever UCX finds); the death of a node may end others" in job[0].control("peers")
        assert logged(job, "--network safe would not")


@pytest.mark.parametrize(
    "variables, way",
    [
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, "--job HOST:PORT"),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4"}, "srun --mpi=pmi2"),
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "MPICH's mpiexec"),
    ],
)
def test_other_nodes_are_not_ignored_in_silence(data, tmp, variables, way):
    (tmp / "mnt").mkdir()
    command = [clairmount.binary(), "mount", data.root, tmp / "mnt", f"--catalog-dir={tmp}/catalog"]
    for words, expected in (([], True), (["--peers=off"], False)):
        ended = subprocess.run([*command, *words], env={**os.environ, **variables}, capture_output=True, text=True, check=True)
        lines = ended.stderr.splitlines()
        shown = (tmp / "mnt/.clairfs/peers").read_text()
        subprocess.run([clairmount.binary(), "umount", tmp / "mnt"], check=True)
        assert len(lines) == expected
        if expected:
            assert "tells of other nodes" in lines[0] and way in lines[0]
        assert ("tells of other nodes" in shown) == expected


def test_pmix_alone_names_the_way(data, tmp):
    """As under PRRTE."""
    (tmp / "mnt").mkdir()
    ended = subprocess.run(
        [clairmount.binary(), "mount", "-f", data.root, tmp / "mnt"],
        env={**os.environ, "PMIX_RANK": "0", "PMIX_NAMESPACE": "prrte"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "PMIx alone" in ended.stderr and "--job HOST:PORT" in ended.stderr and "srun --mpi=pmi2" in ended.stderr


def test_a_port_of_torch_is_refused(data, tmp):
    (tmp / "mnt").mkdir()
    port = free_port()
    ended = subprocess.run(
        [clairmount.binary(), "mount", data.root, tmp / "mnt", f"--job=127.0.0.1:{port}", "--rank=0", "--nodes=2"],
        env={**os.environ, "MASTER_PORT": str(port)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1 and "MASTER_PORT, torch's own" in ended.stderr
