#!/usr/bin/python3
"""A training job on ImageFolders as people write it, except that its loader notes every file that it opens.

torch_job.py '{"train": DIR, "log": FILE, ...}'    (see DEFAULTS)

The ranks are processes of this one job on this machine; {rank} in a folder's name gives each its own. A barrier stands
in for the exchange of gradients, or with "gloo" a real one takes place. Lines of the log, in the order of time, tab-separated:

    open   PHASE  RANK  PATH  SHA256        the loader has read this file, in whatever worker
    batch  PHASE  RANK  PATH...             the training loop got this batch

PHASE is train0, val0, train1, ...; paths are relative to the phase's folder.
"""

import datetime
import hashlib
import io
import json
import multiprocessing
import os
import sys

import torch
import torch.distributed as dist
from PIL import Image
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

STEP_SECONDS = 60  # a rank that failed must not leave the others waiting

DEFAULTS = {
    "val": None,  # another ImageFolder, read in order after every epoch
    "sampler": "distributed",  # or "random": DataLoader(shuffle=True, generator=...); "sequential"
    "seed": 0,
    "ranks": 1,
    "world": None,  # ranks of the whole job; default: those here
    "batch": 8,
    "workers": 0,
    "epochs": 3,
    "first_epoch": 0,
    "set_epoch": True,
    "skip": 0,  # samples of a rank left out at the start of the first epoch: a job that resumes
    "stop_after": None,  # batches of each epoch, then the loop breaks
    "gloo": False,  # a process group of torch.distributed, which then tells the sampler its rank and world
}


class Log:
    def __init__(self, path):
        # One write a line: lines of several processes do not mix, and stand in the order of the writes.
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def line(self, *fields):
        os.write(self.fd, ("\t".join(str(f) for f in fields) + "\n").encode())


class Loader:
    """What ImageFolder calls to load an image."""

    def __init__(self, root, log, rank):
        self.root, self.log, self.rank, self.phase = root, log, rank, "?"

    def __call__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        name = os.path.relpath(path, self.root)
        self.log.line("open", self.phase, self.rank, name, hashlib.sha256(data).hexdigest())
        with Image.open(io.BytesIO(data)) as image:
            return image.convert("RGB").resize((16, 16)), name


def to_tensor(sample):
    image, name = sample
    return transforms.functional.to_tensor(image), name


def image_folder(root, log, rank):
    loader = Loader(root, log, rank)
    return datasets.ImageFolder(root, transform=to_tensor, loader=loader), loader


def exchange_of(job, rank, barrier):
    """What ends a step: no rank begins the next before all have ended this one."""
    if not job["gloo"]:
        return lambda: barrier.wait(STEP_SECONDS)
    patience = datetime.timedelta(seconds=STEP_SECONDS)
    meeting = f"file://{job['log']}.meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=job["ranks"], timeout=patience)
    return lambda: dist.all_reduce(torch.ones(1000))


def run_epoch(batches, loader, phase, log, rank, exchange, stop_after=None):
    loader.phase = phase
    for step, ((images, names), _) in enumerate(batches):
        assert images.shape[0] == len(names)
        log.line("batch", phase, rank, *names)
        exchange()
        if stop_after is not None and step + 1 >= stop_after:
            break


def rank_main(job, rank, barrier):
    torch.set_num_threads(1)
    log = Log(job["log"])
    exchange = exchange_of(job, rank, barrier)
    dataset, loader = image_folder(job["train"].format(rank=rank), log, rank)
    sampler = generator = None
    if job["sampler"] == "distributed":
        place = {} if job["gloo"] else {"num_replicas": job["world"] or job["ranks"], "rank": rank}
        sampler = DistributedSampler(dataset, seed=job["seed"], **place)
    if job["sampler"] == "random":
        generator = torch.Generator().manual_seed(job["seed"])
    batches = DataLoader(
        dataset,
        batch_size=job["batch"],
        shuffle=job["sampler"] == "random",
        sampler=sampler,
        num_workers=job["workers"],
        generator=generator,
    )
    if job["val"]:
        val_dataset, val_loader = image_folder(job["val"].format(rank=rank), log, rank)
        val_batches = DataLoader(val_dataset, batch_size=job["batch"], num_workers=job["workers"])
    for epoch in range(job["first_epoch"], job["first_epoch"] + job["epochs"]):
        if sampler and job["set_epoch"]:
            sampler.set_epoch(epoch)
        this_epoch = batches
        if epoch == job["first_epoch"] and job["skip"]:
            rest = list(sampler)[job["skip"] :]
            this_epoch = DataLoader(Subset(dataset, rest), batch_size=job["batch"], num_workers=job["workers"])
        run_epoch(this_epoch, loader, f"train{epoch}", log, rank, exchange, job["stop_after"])
        if job["val"]:
            run_epoch(val_batches, val_loader, f"val{epoch}", log, rank, exchange)


def main():
    job = {**DEFAULTS, **json.loads(sys.argv[1])}
    multiprocessing.set_start_method("fork")  # what logs for the workers is theirs as it is; Python 3.14 would not fork
    barrier = multiprocessing.Barrier(job["ranks"])
    ranks = [multiprocessing.Process(target=rank_main, args=(job, rank, barrier)) for rank in range(job["ranks"])]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(any(process.exitcode for process in ranks))


if __name__ == "__main__":
    main()
