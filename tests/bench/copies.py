#!/usr/bin/python3
"""MosaicML's StreamingDataset, which copies whole shards to a local disk, or reads them in place.

    tests/bench/copies.py [--quick] [--rounds N] [--json FILE]

Its loop is that of tests/plan/streaming_dataset.py, its order that of its own shuffle. Four workers of a node read two epochs
and do not compute. The shards are copied from the emulated PFS itself (remote= there), copied from a mount with a plan
(remote= on the mount), or read on the mount (local= on the mount, no remote=). On two nodes the shuffle is naive, with which
each node needs nearly all shards; with the others nodes need different ones. Every sample is compared with the source.
"""

import concurrent.futures
import contextlib
import pathlib
import subprocess
import sys
import time
import zlib

import benchlib
import clairjob
import clairmount
from benchlib import MIB, Findings, Table, progress
from jobcase import require_no_failed_reads

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "plan"))

import streaming_dataset as streaming

WORKERS = 4
BATCH = 8
EPOCHS = 2
SAMPLE = 130_000  # bytes at most, half of it at least
PREDOWNLOAD = 8 * BATCH  # StreamingDataset's own default
BANDWIDTH = 120_000_000
RAM_SHARE = 1.25  # of the dataset, in the RAM tiers of all nodes: whole chunks of all shards
STAGING = 32 * MIB
SHUFFLE = {1: "py1e", 2: "naive"}  # by nodes


class Case:
    """`orders[rank][epoch][worker]`: numbers of samples."""

    def __init__(self, tmp, shards, nodes):
        self.tmp, self.nodes = tmp, nodes
        self.counts = [64] * shards
        self.source = tmp / "shards"
        self.source.mkdir()
        samples = streaming.write_shards(self.source, SAMPLE, self.counts)
        self.sums = [zlib.crc32(sample) for shard in samples for sample in shard]
        self.names = sorted(path.name for path in self.source.glob("*.mds"))
        self.size = benchlib.bytes_of(self.source, self.names)
        self.orders = [[self.order(rank, epoch) for epoch in range(EPOCHS)] for rank in range(nodes)]

    def keys(self):
        return (f"sampler=StreamingDataset shuffle_algo={SHUFFLE[self.nodes]} shuffle_seed={streaming.SEED} batch_size={BATCH} "
                f"num_workers={WORKERS} num_canonical_nodes={self.nodes} world={self.nodes} ranks_per_node=1")  # fmt: skip

    def order(self, rank, epoch):
        words = [clairmount.binary(), "plan", "order", f"format=mds {self.keys()} root='{self.source}'"]
        words += ["--epoch", str(epoch), "--rank", str(rank)]
        printed = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
        order = [int(number) for number in printed.split()]
        batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
        return [[i for batch in batches[worker::WORKERS] for i in batch] for worker in range(WORKERS)]

    def copying_plan(self):
        return f"name=bench format=shards file=*.mds {self.keys()} shard_sizes={self.source / 'index.json'}\n"

    def plan_in_place(self):
        return f"name=bench format=mds {self.keys()} epochs={EPOCHS}\n"

    def pfs(self, *options):
        benchlib.touch_memory(4 * self.size)
        return clairmount.slowfs(self.source, "--latency", "1000", "--bandwidth", str(BANDWIDTH), "--attr-timeout", "1000", *options)

    @contextlib.contextmanager
    def mounts(self, pfs, plan):
        with clairjob.clairjob(pfs.path, self.nodes, "--ram", int(RAM_SHARE * self.size / self.nodes), "--staging", STAGING) as job:
            pfs.command("reset")
            (job[0].path / ".clairfs/plan").write_text(plan)
            in_force = lambda node: node.stats()["plan_list"]  # noqa: E731
            clairmount.wait_until(lambda: all(in_force(node) for node in job), "the plan is in force on all nodes")
            yield job
            require_no_failed_reads("copies", job)

    def use(self, folder, sample):
        shard, i = divmod(sample, self.counts[0])
        if zlib.crc32(streaming.read_sample(folder / self.names[shard], i)) != self.sums[sample]:
            raise SystemExit(f"WRONG DATA: sample {sample} of {folder}")

    def read(self, folders, epoch, copies=None):
        """All workers of all nodes at once: of shards in `folders`, which the `copies` of the node come to, if any. Seconds."""

        def work(rank, samples):
            use = lambda sample: self.use(folders[rank], sample)  # noqa: E731
            if copies:
                copies[rank].work(samples, PREDOWNLOAD, use)
            else:
                for sample in samples:
                    use(sample)

        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(self.nodes * WORKERS) as pool:
            works = [pool.submit(work, rank, mine) for rank in range(self.nodes) for mine in self.orders[rank][epoch]]
            for one in works:
                one.result()
        return time.monotonic() - begin


def read_copies(case, label, remotes, samples):
    """Two epochs of copies from `remotes`, one a node. The bytes that they take on local disks are counted as a witness."""
    with clairmount.tempdir() as tmp:
        folders = [tmp / str(rank) for rank in range(case.nodes)]
        for folder in folders:
            folder.mkdir()
        copies = [streaming.Copies(remote, folder, case.counts) for remote, folder in zip(remotes, folders, strict=True)]
        for epoch in range(EPOCHS):
            samples.add(f"{label} epoch {epoch}", case.read(folders, epoch, copies))
        local = sum(path.stat().st_size for folder in folders for path in folder.iterdir())
    samples.add(f"{label} local", local / case.size)


def record(case, label, pfs, samples):
    samples.add(f"{label} bytes", pfs.counters()["bytes"] / case.size)
    first, last = (samples.rounds[f"{label} epoch {epoch}"][-1] for epoch in (0, EPOCHS - 1))
    progress(f"{label}: {first:.2f} and {last:.2f} s, PFS {samples.rounds[f'{label} bytes'][-1]:.3f} S")


def round_of(case, samples):
    nodes = case.nodes
    with case.pfs() as pfs:
        read_copies(case, f"{nodes} pfs", [pfs.path] * nodes, samples)
        record(case, f"{nodes} pfs", pfs, samples)
    with case.pfs() as pfs, case.mounts(pfs, case.copying_plan()) as job:
        read_copies(case, f"{nodes} mount", [node.path for node in job], samples)
        samples.add(f"{nodes} mount peers", job.stat("peers.bytes_in") / case.size)
        record(case, f"{nodes} mount", pfs, samples)
        for node in job:
            clairmount.drop_page_cache(node.path)
        pfs.command("reset")
        read_copies(case, f"{nodes} again", [node.path for node in job], samples)
        record(case, f"{nodes} again", pfs, samples)
    with case.pfs() as pfs, case.mounts(pfs, case.plan_in_place()) as job:
        for epoch in range(EPOCHS):
            samples.add(f"{nodes} in place epoch {epoch}", case.read([node.path for node in job], epoch))
        samples.add(f"{nodes} in place peers", job.stat("peers.bytes_in") / case.size)
        record(case, f"{nodes} in place", pfs, samples)


WAYS = {
    "pfs": "copied from the PFS itself",
    "mount": "copied from the mount",
    "again": "copied again by another job on the nodes",
    "in place": "read in place",
}
MOST_BYTES = {"mount": 1.01, "again": 0, "in place": 1.01}  # S, of the PFS


def table_of(case, samples):
    nodes = f"{case.nodes} node{'s' if case.nodes > 1 else ''}"
    table = Table(f"StreamingDataset on {nodes}, {SHUFFLE[case.nodes]}: {len(case.names)} shards, {case.size / 1e6:.0f} MB, PFS {BANDWIDTH / 1e6:.0f} MB/s")
    for way, text in WAYS.items():
        label = f"{case.nodes} {way}"
        for epoch, which in enumerate(("first", "second")):
            table.add(f"{text}: {which} epoch", samples.median(f"{label} epoch {epoch}"), "s",
                      ratio=(samples.ratio(f"{label} epoch {epoch}", f"{case.nodes} pfs epoch {epoch}"), "the PFS itself"))  # fmt: skip
        table.add(f"{text}: PFS bytes", samples.median(f"{label} bytes"), "S", at_most=MOST_BYTES.get(way))
        if f"{label} local" in samples.rounds:
            table.add(f"{text}: local disks", samples.median(f"{label} local"), "S")
        if f"{label} peers" in samples.rounds and case.nodes > 1:
            table.add(f"{text}: from peers", samples.median(f"{label} peers"), "S")
    return table


def main():
    given = benchlib.arguments(__doc__, "default: 5, with --quick 2")
    found = Findings(given)
    rounds = given.rounds or (2 if given.quick else 5)
    with contextlib.ExitStack() as stack:
        cases = [Case(stack.enter_context(clairmount.tempdir()), 24 if given.quick else 64, nodes) for nodes in SHUFFLE]
        for round_ in range(rounds):
            progress(f"copies, round {round_ + 1} of {rounds}")
            for case in cases:
                round_of(case, found.samples)
    for case in cases:
        found.add(table_of(case, found.samples))


if __name__ == "__main__":
    main()
