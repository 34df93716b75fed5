#!/usr/bin/python3
"""A training job on records of one large file, read as people read them; says what it got, as JSON on stdout.

records_job.py '{"reader": NAME, "path": FILE, "digests": FILE, ...}'    (see DEFAULTS)

`digests` has a line for each record: the SHA-256 of its bytes. The record's number is the line's. What is printed:
{"records": so many were read, "wrong": [those that had other bytes]}.
"""

import hashlib
import json
import mmap
import multiprocessing
import os
import pathlib
import sys
import time

import numpy as np

DEFAULTS = {
    "record": 0,  # bytes of each, where the reader must know
    "header": 0,  # bytes before the first
    "keys": "%d",  # LMDB's, of a record's number
    "datasets": [],  # HDF5's
    "seed": 0,
    "shuffle": True,
    "world": 1,  # training ranks, and this one's number
    "rank": 0,
    "batch": 8,
    "workers": 0,
    "start_method": "fork",  # of the workers
    "epochs": 2,
    "start": 0,  # records of the first epoch that are left out, as by a job that goes on from a checkpoint
    "pause": 0.0,  # seconds between two batches: what a step of training takes
    "stats": "",  # stats.json of a mount with one plan, for a job that reads nothing before it has been pushed
}


def at(job, i):
    return job["header"] + i * job["record"]


def open_lmdb(job, readahead, lock=False):
    """As ImageFolderLMDB does it, which is where most training code on LMDB comes from."""
    import lmdb

    path = job["path"]
    env = lmdb.open(path, subdir=os.path.isdir(path), readonly=True, lock=lock, readahead=readahead, meminit=False)

    def read(i):
        with env.begin(write=False, buffers=True) as txn:
            return bytes(txn.get((job["keys"] % i).encode()))

    return read


def open_mapped(job, advice=None):
    with open(job["path"], "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    if advice is not None:
        mapped.madvise(advice)
    return lambda i: mapped[at(job, i):at(job, i) + job["record"]]


def open_pread(job):
    file = open(job["path"], "rb", buffering=0)
    return lambda i: os.pread(file.fileno(), job["record"], at(job, i))


def open_buffered(job):
    # As open(path, "rb") is up to Python 3.13: a block of the mount. That of 3.14 is 128 KiB, many small records.
    file = open(job["path"], "rb", buffering=4096)

    def read(i):
        file.seek(at(job, i))
        return file.read(job["record"])

    return read


def open_memmap(job):
    rows = np.load(job["path"], mmap_mode="r")
    return lambda i: rows[i].tobytes()


def open_h5py(job):
    import h5py

    # The default up to HDF5 1.14. With the 8 MiB of HDF5 2, small datasets are read from the file in the first epoch only.
    file = h5py.File(job["path"], "r", rdcc_nbytes=1 << 20)
    datasets = [file[name] for name in job["datasets"]]
    return lambda i: b"".join(data[i].tobytes() for data in datasets)


READERS = {
    "h5py": open_h5py,
    "lmdb": lambda job: open_lmdb(job, readahead=False),
    "lmdb.locks": lambda job: open_lmdb(job, readahead=False, lock=True),
    "lmdb.readahead": lambda job: open_lmdb(job, readahead=True),
    "memmap": open_memmap,
    "mmap": open_mapped,
    "mmap.random": lambda job: open_mapped(job, mmap.MADV_RANDOM),
    "pread": open_pread,
    "buffered": open_buffered,
}


class Records:
    """A map-style dataset that opens its file in the worker that reads it first."""

    def __init__(self, job):
        self.job = job
        self.digests = pathlib.Path(job["digests"]).read_text().split()
        self.read = None

    def __len__(self):
        return len(self.digests)

    def __getitem__(self, i):
        if self.read is None:
            self.read = READERS[self.job["reader"]](self.job)
        return i, hashlib.sha256(self.read(i)).hexdigest() == self.digests[i]


def batches(job, records):
    """[(number, whether its bytes are right)] of every batch, as torch's DataLoader gives them."""
    from torch.utils.data import DataLoader, Subset
    from torch.utils.data.distributed import DistributedSampler

    sampler = DistributedSampler(records, num_replicas=job["world"], rank=job["rank"], shuffle=job["shuffle"], seed=job["seed"])
    options = {"batch_size": job["batch"], "num_workers": job["workers"], "collate_fn": list}
    loader = DataLoader(records, sampler=sampler, persistent_workers=job["workers"] > 0, **options)
    for epoch in range(job["epochs"]):
        sampler.set_epoch(epoch)
        if epoch == 0 and job["start"] > 0:
            yield from DataLoader(Subset(records, list(sampler)[job["start"]:]), **options)
        else:
            yield from loader


def wait_pushed(job, count, total):
    """Until the batch after `count` of `total` records has been pushed."""
    while job["stats"]:
        state = json.loads(pathlib.Path(job["stats"]).read_text())["plan_list"][0]
        if state["state"] == "finished" or state["passed"] + state["ahead"] >= min(count + job["batch"], total):
            return
        time.sleep(0.01)


def main():
    job = {**DEFAULTS, **json.loads(sys.argv[1])}
    multiprocessing.set_start_method(job["start_method"])
    records = Records(job)
    total = job["epochs"] * -(-len(records) // job["world"])
    count, wrong = 0, []
    wait_pushed(job, count, total)
    for batch in batches(job, records):
        count += len(batch)
        wrong += [i for i, right in batch if not right]
        wait_pushed(job, count, total)
        time.sleep(job["pause"])
    print(json.dumps({"records": count, "wrong": wrong}))


if __name__ == "__main__":
    main()
