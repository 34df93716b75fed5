"""Training on the records of one file by the nodes of a job: each byte leaves the source once where the nodes can keep it,
and where they cannot, no more than records that nobody keeps are read again."""

import concurrent.futures
import hashlib
import json
import os
import random
import subprocess
import sys

import clairmount
import pytest
from clairjob import clairjob
from clairmount import slowfs, wait_until

lmdb = pytest.importorskip("lmdb")
pytest.importorskip("torch")
record_plans = pytest.importorskip("record_plans")  # needs NumPy

EPOCHS, BATCH, SEED = 3, 8, 5
RECORDS, RECORD = 640, 40_000
CHUNK = 64 << 10  # of one record and a half
PAGE = 4096


def write_lmdb(folder, count, size):
    rng = random.Random(2)
    values = [rng.randbytes(size) for _ in range(count)]
    with lmdb.open(str(folder / "rows.lmdb"), subdir=False, map_size=1 << 30, lock=False) as env:
        for first in range(0, count, 100):
            with env.begin(write=True) as txn:
                for i in range(first, min(first + 100, count)):
                    txn.put(b"%d" % i, values[i])
    return "format=lmdb file=rows.lmdb keys=decimal", {"path": "rows.lmdb"}, values


WRITERS = {"lmdb": write_lmdb, "memmap": record_plans.write_npy, "pread": record_plans.write_raw,
           "mmap.random": record_plans.write_raw, "h5py": record_plans.write_hdf5}


class Data:
    """A folder with a file of records, as a reader of records_job.READERS takes them."""

    def __init__(self, tmp, reader):
        self.source = tmp / "src"
        self.source.mkdir()
        self.plan, self.words, self.records = WRITERS[reader](self.source, RECORDS, RECORD)
        self.name = self.words["path"]
        self.size = (self.source / self.name).stat().st_size
        self.digests = [hashlib.sha256(record).hexdigest() for record in self.records]
        (tmp / "digests").write_text("\n".join(self.digests))
        self.words |= {"reader": reader, "digests": str(tmp / "digests")}


@pytest.fixture(scope="module")
def data():
    with clairmount.tempdir() as tmp:
        yield Data(tmp, "lmdb")


def register_on(node, text):
    (node.path / ".clairfs/plan").write_text(text + "\n")


def in_force(node):
    return node.stats()["plan_list"] and "placement" in node.stats()["job"]


def register_on_all(job, data):
    text = (f"{data.plan} sampler=torch.distributed seed={SEED} epochs={EPOCHS} world={len(job)} ranks_per_node=1 "
            f"batch={BATCH}")
    register_on(job[1], text)
    wait_until(lambda: all(in_force(node) for node in job), "the plan is in force on all nodes")


def train(job, data):
    """A process for each rank, as a launcher starts them; none may see a wrong byte. None overtakes the pushes: a READ of what
    has not come brings the whole chunk, and how often that happens is a matter of time."""
    said = []
    for rank, node in enumerate(job):
        words = {**data.words, "path": str(node.path / data.name), "seed": SEED, "batch": BATCH, "epochs": EPOCHS,
                 "world": len(job), "rank": rank, "stats": str(node.path / ".clairfs/stats.json")}
        said.append(subprocess.Popen([sys.executable, str(record_plans.JOB), json.dumps(words)], stdout=subprocess.PIPE))
    try:
        for process in said:
            out, _ = process.communicate(timeout=240)
            assert json.loads(out) == {"records": EPOCHS * RECORDS // len(job), "wrong": []}
    finally:
        for process in said:
            process.kill()
            process.wait()


def homes(node, data):
    return os.getxattr(node.path / data.name, "user.clairfs.home").decode()


def assert_each_byte_once(data, nodes, share, aligned=True):
    """`share`: of the dataset, in the RAM tiers of all nodes together. Records that are not `aligned` to pages share one with
    the record before them, which each of the two asks for: of peers, and in every epoch of the source where nobody keeps it."""
    pages = 0 if aligned else PAGE / RECORD
    size = data.size
    ram = int(share * size / nodes) // CHUNK * CHUNK
    with slowfs(data.source, "--attr-timeout", "1000") as slow:
        options = ["--ram", ram, "--staging", "2M", "--record-chunk", f"{data.name}={CHUNK}"]
        with clairjob(slow.path, nodes, *options) as job:
            slow.command("reset")
            register_on_all(job, data)
            # All nodes number the records, and share out their chunks, alike: one part from end to end for each.
            assert len({homes(node, data) for node in job}) == 1
            parts = [int(part.split()[1]) for part in homes(job[0], data).split(",") if part.startswith("node")]
            assert parts == sorted(parts) and set(parts) == set(range(nodes)), homes(job[0], data)
            train(job, data)
            for node in job:
                state = node.stats()["plan_list"][0]
                assert (state["state"], state["suspensions"], state["out_of_order"]) == ("finished", 0, 0), state
            kept = nodes * ram
            read = slow.counters()["bytes"]
            forgotten = max(0, size - kept)
            bound = size + (EPOCHS - 1 + EPOCHS * pages) * forgotten
            network = job.stat("peers.bytes_in")
            print(f"{nodes} nodes, share {share}: network {network / size:.3f} S, "
                  f"read {read / size:.3f} S, {read / bound:.3f} of the bound")
            assert read <= 1.02 * bound
            assert job.stat("reads.failed") == 0
            assert network <= 1.1 * (1 + pages) * min(1, share) * EPOCHS * size * (nodes - 1) / nodes
            assert network >= 0.5 * min(1, share) * EPOCHS * size * (nodes - 1) / nodes


@pytest.mark.parametrize("share", [1.25, 0.5])
@pytest.mark.parametrize("nodes", [4, 2])
def test_each_byte_once_and_of_what_is_not_kept_the_records(data, nodes, share):
    assert_each_byte_once(data, nodes, share)


@pytest.mark.parametrize("share", [1.25, 0.5])
@pytest.mark.parametrize("reader", ["memmap", "pread", "mmap.random", "h5py"])
def test_files_of_other_formats(tmp, reader, share):
    if reader == "h5py":
        pytest.importorskip("h5py")
    assert_each_byte_once(Data(tmp, reader), 2, share, aligned=False)


def test_restarted_with_nvme(data, tmp):
    """What NVMe has kept is not read again, for the index neither."""
    size = data.size
    for node in range(2):
        (tmp / f"nvme{node}").mkdir(mode=0o700)
    options = ["--ram=0", "--staging", "2M", "--record-chunk", f"*.lmdb={CHUNK}", "--nvme", f"{tmp}/nvme{{rank}}:{size}"]
    with slowfs(data.source, "--attr-timeout", "1000") as slow:
        # NVMe does not take what comes while it is too busy, and the source is asked again.
        for most in (1.1 * size, 0.01 * size):
            with clairjob(slow.path, 2, *options) as job:
                slow.command("reset")
                register_on_all(job, data)
                wait_until(lambda: job.stat("tiers.nvme.bytes") >= size, "all of it is on NVMe")
                for node in job:
                    with lmdb.open(str(node.path / data.name), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
                        for i in random.sample(range(RECORDS), RECORDS // 4):
                            assert hashlib.sha256(txn.get(b"%d" % i)).hexdigest() == data.digests[i]
                assert slow.counters()["bytes"] <= most


def test_one_node_reads_the_index_for_all():
    """Values in the leaves: the index is as long as the file, and the tiers keep little of it. Every rank registers the
    plan, as training scripts do."""
    records, value = 20_000, bytes(1000)
    with clairmount.tempdir() as tmp:
        (tmp / "src").mkdir()
        with lmdb.open(str(tmp / "src/rows.lmdb"), subdir=False, map_size=1 << 30, lock=False) as env:
            with env.begin(write=True) as txn:
                for i in range(records):
                    txn.put(b"%08d" % i, value, append=True)
        size = (tmp / "src/rows.lmdb").stat().st_size
        options = ["--ram", "2M", "--staging", "1M", "--page-cache", "0", "--record-chunk", "*.lmdb=64K"]
        with slowfs(tmp / "src", "--attr-timeout", "1000", "--latency", "2000") as slow:
            with clairjob(slow.path, 3, *options) as job:
                slow.command("reset")
                with concurrent.futures.ThreadPoolExecutor(3) as pool:
                    list(pool.map(lambda node: register_on(node, f"format=lmdb file=rows.lmdb keys=cursor seed={SEED} world=3 "
                                                                 "ranks_per_node=1"), job))
                wait_until(lambda: all(in_force(node) for node in job), "the plan is in force on all nodes")
                assert slow.counters()["bytes"] < 1.6 * size  # the index, and what the tiers hold
                wait_until(lambda: job.log().count("20000 samples of lmdb from another node") == 2, "two were sent the index")
