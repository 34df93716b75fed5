"""What the suites of records in large files share: writers of such files, plans of their records, and training jobs
(records_job.py) that follow them. Needs NumPy; write_lmdb() needs lmdb, and the jobs PyTorch."""

import hashlib
import json
import pathlib
import random
import struct
import subprocess
import sys

import clairmount
import numpy as np
import records_job
import warm_python
from planning import plan, register, running, wait_ahead

JOB = pathlib.Path(records_job.__file__)
JOB_SECONDS = 250 * clairmount.SLOWNESS
BATCH = 8
# Sizes on both sides of a page, and of what the kernel reads around it.
SMALL, ODD, LARGE = 1300, 5001, 110_000

# Writers: all but write_megatron() return the plan's keys, what a job must know of the file (records_job.DEFAULTS),
# and the records.


def write_npy(folder, count, size):
    rows = np.random.default_rng(1).integers(0, 256, (count, size), dtype=np.uint8)
    np.save(folder / "rows.npy", rows)
    header = (folder / "rows.npy").stat().st_size - rows.size
    job = {"path": "rows.npy", "header": header, "record": size}
    return "format=npy file=rows.npy", job, [row.tobytes() for row in rows]


def write_raw(folder, count, size):
    rng = random.Random(1)
    rows = [rng.randbytes(size) for _ in range(count)]
    (folder / "rows.bin").write_bytes(b"h" * 77 + b"".join(rows))
    return f"format=raw file=rows.bin record={size} header=77", {"path": "rows.bin", "header": 77, "record": size}, rows


def write_lmdb(folder, count, size):
    """Of sizes that differ, written in transactions, some records twice: not in the order of the keys."""
    import lmdb

    rng = random.Random(1)
    values = [rng.randbytes(size + rng.randrange(size // 2)) for _ in range(count)]
    with lmdb.open(str(folder / "rows.lmdb"), subdir=False, map_size=1 << 34, sync=False) as env:
        for first in range(0, count, 100):
            with env.begin(write=True) as txn:
                for i in range(first, min(first + 100, count)):
                    txn.put(b"%d" % i, values[i] if rng.random() < 0.9 else rng.randbytes(size))
        with env.begin(write=True) as txn:
            for i, value in enumerate(values):
                if txn.get(b"%d" % i) != value:
                    txn.put(b"%d" % i, value)
            txn.put(b"__len__", b"%d" % count)
    return "format=lmdb file=rows.lmdb keys=decimal", {"path": "rows.lmdb"}, values


def write_hdf5(folder, count, size):
    """Each row a chunk of its own."""
    import h5py

    rows = np.random.default_rng(1).integers(0, 256, (count, size), dtype=np.uint8)
    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("rows", data=rows, chunks=(1, size))
    return "format=hdf5 file=rows.h5 dataset=/rows", {"path": "rows.h5", "datasets": ["rows"]}, [row.tobytes() for row in rows]


def write_megatron_index(prefix, sizes, dtype):
    """As megatron.core.datasets.indexed_dataset writes it: modes left out, every sequence a document. `sizes`: tokens of each."""
    code = {"uint8": 1, "int32": 4, "uint16": 8}[dtype]
    sizes = np.array(sizes, dtype=np.int32)
    pointers = (np.cumsum([0, *sizes[:-1]]) * np.dtype(dtype).itemsize).astype(np.int64)
    documents = np.arange(len(sizes) + 1, dtype=np.int64)
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sizes), len(documents))
    prefix.with_suffix(".idx").write_bytes(header + sizes.tobytes() + pointers.tobytes() + documents.tobytes())


def write_megatron(prefix, sequences, dtype):
    write_megatron_index(prefix, [len(s) for s in sequences], dtype)
    prefix.with_suffix(".bin").write_bytes(b"".join(s.astype(dtype).tobytes() for s in sequences))


WRITERS = {"lmdb": write_lmdb, "h5py": write_hdf5, "memmap": write_npy, "mmap": write_raw, "pread": write_raw, "buffered": write_raw}


def writer_for(reader):
    """The writer of files that a reader of records_job.READERS understands."""
    return WRITERS[reader.split(".")[0]]


# Plans


def sampler(shuffle, **keys):
    order = "" if shuffle else "shuffle=false "
    return f"sampler=torch.distributed world=1 {order}" + " ".join(f"{name}={value}" for name, value in keys.items())


def _order_lines(text, root, epochs, *options):
    words = [clairmount.binary(), "plan", "order", f"{text} root='{root}'", "--rank", "0", *options, "--epoch"]
    run = [subprocess.run([*words, str(e)], check=True, capture_output=True, timeout=60) for e in range(epochs)]
    return [line for done in run for line in done.stdout.decode().splitlines()]


def order_of(text, root, epochs):
    """The numbers of the samples, as the plan has them, of so many epochs."""
    return [int(line) for line in _order_lines(text, root, epochs)]


def ranges_of(text, root, epochs):
    """The same as places in the file: [(offset, bytes)] of each sample."""
    samples = []
    for line in _order_lines(text, root, epochs, "--ranges"):
        if not line.startswith("+"):
            samples.append([])
        offset, length, _ = line.removeprefix("+").split(" ", 2)
        samples[-1].append((int(offset), int(length)))
    return samples


def start(mount, text, name="default"):
    """Registers a plan; returns when the reader has something before it."""
    register(mount, text)
    clairmount.wait_until(lambda: "ahead" in plan(mount, name), "the plan to be in force")
    wait_ahead(mount, 16, name)


def is_ready(mount, read, total, more):
    """Whether staging has handed on so many samples beyond those that were read, or all of them."""
    state = plan(mount)
    return state["state"] == "finished" or state["passed"] + state["ahead"] >= min(read + more, total)


def wait_ready(mount, read, total, more=16):
    clairmount.wait_until(lambda: is_ready(mount, read, total, more), lambda: f"{read} of {total}: {plan(mount)}")


def wait_finished(mount, name="default"):
    clairmount.wait_until(lambda: plan(mount, name)["state"] == "finished", lambda: f"the end of the plan, {plan(mount, name)}")


def assert_followed(state):
    assert state["state"] == "finished", state
    assert (state["suspensions"], state["realignments"]) == (0, 0), state
    assert "divergence" not in state
    assert state["in_order"] > 0, state


def requests_of(stats):
    """READs that were answered, whoever had the bytes."""
    return sum(stats["reads"][tier] for tier in ("ram", "nvme", "peer", "pfs"))


# Jobs


def start_job(mount, folder, records, **job):
    """A training job on a file of the mount, job["path"], as a process; `folder` gets the digests of its records."""
    digests = folder / f"digests of {job['path']} with seed {job['seed']}"
    digests.write_text("\n".join(hashlib.sha256(record).hexdigest() for record in records))
    job = {**job, "path": str(mount.path / job["path"]), "digests": str(digests)}
    python = [sys.executable] if "start_method" in job else warm_python.words()  # spawned workers begin as their job does
    return subprocess.Popen([*python, JOB, json.dumps(job)], stdout=subprocess.PIPE)


def assert_all_read(process, records):
    """The job ends, has read so many records, and none had other bytes."""
    said = json.loads(process.communicate(timeout=JOB_SECONDS)[0])
    assert process.returncode == 0 and said == {"records": records, "wrong": []}


def train(mount, folder, records, **job):
    """Runs a training job to its end, which is that of its plan."""
    with running(start_job(mount, folder, records, **job)) as process:
        assert_all_read(process, job["epochs"] * len(records) - job.get("start", 0))
    wait_finished(mount)
    assert_followed(plan(mount))
