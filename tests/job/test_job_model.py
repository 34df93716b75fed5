"""What `clairfs simulate` says of a job, and what the daemons do: where the bytes come from. Times are compared by
tests/bench/model.py, since a timing decides no test."""

import json
import subprocess

import clairmount
import pytest
from clairjob import clairjob
from training import BATCH, SEED, Dataset, Readers, register_on_all

NODES, EPOCHS = 4, 3
STAGING = 1 << 20


@pytest.fixture(scope="module")
def data():
    with clairmount.tempdir() as tmp:
        yield Dataset(tmp / "src")


def simulated_bytes(data, tmp, ram):
    megabyte = 1 << 20
    scenario = tmp / "job.toml"
    scenario.write_text(f"""
[job]
workers = {NODES}
epochs = {EPOCHS}
batch = {NODES * BATCH}
sampler = "torch.distributed"
seed = {SEED}
[samples]
size = "path"
path = "{data.root}"
[worker]
compute = 100
preprocess = 1000
network = 1000
pfs_network = 100
[staging]
capacity = {STAGING / megabyte}
threads = 4
read = {{1 = 1000, 4 = 4000}}
[class.ram]
capacity = {ram / megabyte}
threads = 4
read = {{1 = 1000, 4 = 4000}}
[pfs]
read = {{1 = 50, 4 = 100}}
""")
    command = [clairmount.binary(), "simulate", scenario, "--policy", "clairfs", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (point,) = json.loads(done.stdout)
    return point["bytes_by_source"]


@pytest.mark.parametrize("share", [1.0, 1.5])
def test_the_bytes_come_from_where_the_model_says(data, tmp, share):
    """`share`: N·D / S. Below 1 the daemons read a little less of so small a dataset: memory of transfers is cache too."""
    ram = int(share * data.padded / NODES)
    predicted = simulated_bytes(data, tmp, ram)
    with clairjob(data.root, NODES, "--ram", ram, "--staging", STAGING) as job:
        register_on_all(job, 0, EPOCHS)
        Readers(data, job, EPOCHS).start().finish()
        assert predicted["pfs"] == pytest.approx(data.size, rel=1e-6)
        # On a machine that starves its nodes a peer may be given up as silent; what it had is then read again.
        again = job.stat("pfs.bytes") - data.size
        assert 0 <= again <= job.stat("peers.late") * data.size / len(data.names)
        assert job.stat("peers.bytes_in") + again == pytest.approx(predicted["peer"], rel=0.03)
