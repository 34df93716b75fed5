#!/usr/bin/python3
"""Shards that workers read from front to back, as WebDataset's do, over epochs from an emulated PFS.

    tests/bench/streams.py [--quick] [--rounds N] [--only epochs|rate|copies]... [--json FILE]

Four workers read their shards 10,240 bytes at a time, as tarfile does, or 262,144, as TFRecordDataset does, and compute half
as long as the PFS takes for the bytes: the first epoch waits for it, later ones need not. Where they compute a little longer
than the PFS takes, the first epoch need not wait either once the first window has come. All epochs' bytes are compared with the source by a checksum; what the PFS counted is
the witness for what was read. Baselines are measured in the same round: the PFS itself, a `cat` of the shards ahead of the
workers through the page cache, rclone, clairfs without a plan. Figures are medians over the rounds.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import time

import benchlib
import clairmount
from benchlib import MIB, Findings, Table, progress, write_list

WORKERS = 4
SEED = 7
BANDWIDTH = 120_000_000
COMPUTE = 2 * BANDWIDTH  # bytes a second that all workers together could use
SLOW_COMPUTE = 0.9 * BANDWIDTH  # which the PFS keeps up with
TF_RECORD = ("--block", 262_144)  # tensorflow, core/kernels/data/tf_record_dataset_op.cc
TIERS = {"2 S": 2, "1 S": 1.05, "0.5 S": 0.5}  # a little more than S: tiers keep whole chunks
STAGING = 128 * MIB
PLAN = f"name=bench format=shards sampler=torch.distributed seed={SEED} workers={WORKERS} epochs={{epochs}}\n"


class Case:
    def __init__(self, tmp, shards, mean, epochs):
        self.epochs = epochs
        self.source = tmp / "shards"
        self.source.mkdir()
        chance = random.Random(1)
        self.names = [f"shard-{i:05}.tar" for i in range(shards)]
        for name in self.names:
            benchlib.make_file(self.source / name, chance.randrange(mean * 3 // 4, mean * 5 // 4), chance.random())
        self.size = benchlib.bytes_of(self.source, self.names)
        orders = benchlib.plan_orders(self.names, SEED, epochs)
        # As DataLoader deals batches of one: worker w reads every fourth shard from w on.
        self.lists = [[write_list(tmp / f"{e}-{w}", order[w::WORKERS]) for w in range(WORKERS)] for e, order in enumerate(orders)]
        self.all = [write_list(tmp / f"{e}-all", order) for e, order in enumerate(orders)]
        self.rate = COMPUTE // WORKERS
        self.most = [max(benchlib.bytes_of(self.source, order[w::WORKERS]) for w in range(WORKERS)) for order in orders]
        self.sum = self.checksum(self.read(self.source, 0, "--sum"))

    def pfs(self, *options):
        return clairmount.slowfs(self.source, "--latency", "1000", "--bandwidth", str(BANDWIDTH), *options)

    @contextlib.contextmanager
    def client(self):
        """The PFS as programs see it: a client keeps attributes and pages, and reads ahead (as root)."""
        with self.pfs("--cached", "--attr-timeout", "3600") as pfs:
            device = os.stat(pfs.path).st_dev
            with contextlib.suppress(OSError):
                pathlib.Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").write_text("1024\n")
            yield pfs

    def read(self, root, epoch, *options):
        """A run for each worker; they begin together."""
        begin = time.monotonic() + benchlib.START_SECONDS
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            words = [("streams", root, path, "--begin", begin, *options) for path in self.lists[epoch]]
            return list(pool.map(lambda w: benchlib.reader(*w)[0], words))

    def checksum(self, runs):
        return sum(int(run["sum"], 16) for run in runs) % 2**64

    def epoch(self, root, number, *options):
        runs = self.read(root, number, "--compute-rate", self.rate, "--sum", *options)
        if self.checksum(runs) != self.sum:
            raise SystemExit(f"WRONG DATA: epoch {number} of {root}")
        return runs

    def least_bytes(self, tier):
        return self.size + (self.epochs - 1) * max(0, self.size - tier)

    def least_seconds(self, tier):
        """An epoch ends with the worker that has the most bytes to compute on, or with what the PFS has to read for it."""
        missing = [self.size] + [max(0, self.size - tier)] * (self.epochs - 1)
        return sum(max(most / self.rate, read / BANDWIDTH) for most, read in zip(self.most, missing, strict=True))

    def warm(self):
        """Seconds for a MiB of the source's warm page cache, with the same pauses."""
        waits = [wait for run in self.epoch(self.source, 0) for wait in run["waits"]]
        return sum(waits) / len(waits)


def seconds_of(runs):
    return max(run["begin"] + run["seconds"] for run in runs) - min(run["begin"] for run in runs)


def record(case, label, epochs, pfs_bytes, warm, samples):
    later = epochs[1:]
    waits = [wait for runs in later for run in runs for wait in run["waits"]]
    total = sum(seconds_of(runs) for runs in epochs)
    samples.add(f"{label} total", total)
    samples.add(f"{label} first", seconds_of(epochs[0]))
    samples.add(f"{label} last", seconds_of(epochs[-1]))
    samples.add(f"{label} stall", max(0, sum(waits) - len(waits) * warm) / WORKERS / sum(seconds_of(runs) for runs in later))
    samples.add(f"{label} bytes", pfs_bytes)
    progress(f"{label}: {total:.1f} s, {pfs_bytes / case.size:.3f} S")


def planned(mount):
    return next(plan for plan in mount.stats()["plan_list"] if plan["name"] == "bench")


def run_clairfs(case, label, tier, with_plan, warm, samples, *options):
    with case.pfs() as pfs, clairmount.clairfs(pfs.path, "--ram", int(tier), "--staging", STAGING) as mount:
        if with_plan:
            (mount.path / ".clairfs/plan").write_text(PLAN.format(epochs=case.epochs))
        epochs = []
        for number in range(case.epochs):
            epochs.append(case.epoch(mount.path, number, *options))
            if not with_plan:  # as those of a dataset would that is larger than memory
                benchlib.reader("drop", mount.path, case.all[number], mount=mount)
        record(case, label, epochs, pfs.counters()["bytes"], warm, samples)
        if with_plan:
            samples.add(f"{label} suspensions", planned(mount)["suspensions"])


def run_first_epoch(case, samples):
    """Stall of the first epoch from its first window on; what is left of it when the warm page cache has no more."""
    rate = SLOW_COMPUTE // WORKERS
    before = STAGING // WORKERS // MIB  # waits of a worker: one a MiB

    def share(root):
        runs = case.read(root, 0, "--compute-rate", int(rate))
        waits = [wait for run in runs for wait in run["waits"][before:]]
        return sum(waits), sum(waits) + len(waits) * MIB / rate

    warm, _ = share(case.source)
    with case.pfs() as pfs, clairmount.clairfs(pfs.path, "--ram", 2 * case.size, "--staging", STAGING) as mount:
        (mount.path / ".clairfs/plan").write_text(PLAN.format(epochs=1))
        waited, seconds = share(mount.path)
        samples.add("first stall", max(0, waited - warm) / seconds)
        samples.add("first suspensions", planned(mount)["suspensions"])
    progress(f"first epoch: stall {samples.rounds['first stall'][-1]:.4f}")


def run_source(case, warm, samples):
    """From the warm page cache: what the pauses and the machine alone take."""
    benchlib.reader("streams", case.source, *case.all)
    record(case, "source", [case.epoch(case.source, e) for e in range(case.epochs)], 0, warm, samples)


def run_pfs(case, warm, samples):
    with case.client() as pfs:
        epochs = []
        for number in range(case.epochs):
            epochs.append(case.epoch(pfs.path, number))
            clairmount.drop_page_cache(pfs.path)
        record(case, "pfs", epochs, pfs.counters()["bytes"], warm, samples)


def run_cat(case, warm, samples):
    """The shards of the epoch go through the page cache ahead of the workers, in their order, in one stream."""
    with case.client() as pfs:
        epochs = []
        for number in range(case.epochs):
            names = [str(pfs.path / name) for name in pathlib.Path(case.all[number]).read_text().split()]
            with subprocess.Popen(["cat", *names], stdout=subprocess.DEVNULL) as ahead:
                epochs.append(case.epoch(pfs.path, number))
                ahead.kill()
            clairmount.drop_page_cache(pfs.path)
        record(case, "cat", epochs, pfs.counters()["bytes"], warm, samples)


def run_rclone(case, found, warm, samples):
    if "rclone" not in benchlib.installed_others(found):
        return
    with case.pfs() as pfs, benchlib.rclone(pfs.path, 2 * case.size) as served:
        epochs = []
        for number in range(case.epochs):
            epochs.append(case.epoch(served.path, number))
            clairmount.drop_page_cache(served.path)
        record(case, "rclone", epochs, pfs.counters()["bytes"], warm, samples)


def epochs_round(case, found):
    samples = found.samples
    warm = case.warm()
    run_source(case, warm, samples)
    run_pfs(case, warm, samples)
    run_cat(case, warm, samples)
    run_rclone(case, found, warm, samples)
    run_clairfs(case, "no plan", 2 * case.size, False, warm, samples)
    for name, share in TIERS.items():
        run_clairfs(case, f"plan {name}", share * case.size, True, warm, samples)
    run_clairfs(case, "TFRecord", 2 * case.size, True, warm, samples, *TF_RECORD)
    run_first_epoch(case, samples)


def epochs_table(case, samples):
    seconds = case.least_seconds(2 * case.size)
    table = Table(f"{case.epochs} epochs of {len(case.names)} shards, {case.size / 1e6:.0f} MB, {WORKERS} workers that compute on {COMPUTE / 1e6:.0f} MB/s, PFS {BANDWIDTH / 1e6:.0f} MB/s")
    table.add("the source's own directory, warm: time / bound", samples.median("source total") / seconds)
    names = {"pfs": "the PFS itself", "cat": "cat ahead of the workers", "rclone": "rclone, cache of 2 S", "no plan": "clairfs without a plan, RAM tier 2 S"}
    for label, text in names.items():
        if f"{label} total" in samples.rounds:
            table.add(f"{text}: time / bound", samples.median(f"{label} total") / seconds)
            table.add(f"{text}: PFS bytes", samples.median(f"{label} bytes") / case.size, "S")
    for name, share in TIERS.items():
        label, least = f"plan {name}", case.least_bytes(share * case.size)
        bound = case.least_seconds(share * case.size)
        table.add(f"with a plan, RAM tier {name}: time / bound", samples.median(f"{label} total") / bound, at_most=1.03)
        table.add(f"with a plan, RAM tier {name}: last epoch / source", samples.ratio(f"{label} last", "source last"))
        table.add(f"with a plan, RAM tier {name}: time / the PFS itself", samples.ratio(f"{label} total", "pfs total"))
        if share >= 1:  # else later epochs wait for the PFS, too
            table.add(f"with a plan, RAM tier {name}: stall of later epochs", samples.median(f"{label} stall"), at_most=0.01)
        table.add(f"with a plan, RAM tier {name}: PFS bytes / least", samples.median(f"{label} bytes") / least, at_most=1.01)
        table.add(f"with a plan, RAM tier {name}: suspensions", max(samples.rounds[f"{label} suspensions"]), at_most=0)
    text = "with a plan, RAM tier 2 S, 262,144 bytes a read"
    table.add(f"{text}: time / bound", samples.median("TFRecord total") / seconds, at_most=1.03)
    table.add(f"{text}: stall of later epochs", samples.median("TFRecord stall"), at_most=0.01)
    table.add(f"{text}: PFS bytes / least", samples.median("TFRecord bytes") / case.size, at_most=1.01)
    table.add(f"{text}: suspensions", max(samples.rounds["TFRecord suspensions"]), at_most=0)
    text = f"with a plan, computing on {SLOW_COMPUTE / 1e6:.0f} MB/s"
    table.add(f"{text}: stall of the first epoch after {STAGING // MIB} MiB", samples.median("first stall"), at_most=0.01)
    table.add(f"{text}: suspensions", max(samples.rounds["first suspensions"]), at_most=0)
    return table


def rate_round(case, samples):
    """MB/s of one worker that does not compute: pushed, from the RAM tier, from the source's page cache."""
    def rate(root):
        run = benchlib.reader("streams", root, case.all[0])[0]
        return run["bytes"] / run["seconds"] / 1e6

    benchlib.reader("streams", case.source, case.all[0])
    samples.add("rate source", rate(case.source))
    roomy = f"{case.size * 5 // 4 // MIB + 64}M"
    benchlib.touch_memory(2 * case.size)
    with clairmount.clairfs(case.source, "--ram", roomy, "--staging", roomy) as mount:
        benchlib.reader("streams", mount.path, case.all[0], mount=mount)
        clairmount.wait_until(lambda: mount.stat("tiers.ram.bytes") >= case.size, "the dataset is in the RAM tier")
        benchlib.reader("drop", mount.path, case.all[0], mount=mount)
        benchlib.touch_memory(case.size)
        samples.add("rate ram", rate(mount.path))
        benchlib.reader("drop", mount.path, case.all[0], mount=mount)
        (mount.path / ".clairfs/plan").write_text(PLAN.replace(f"workers={WORKERS}", "workers=0").format(epochs=1))
        clairmount.wait_until(lambda: planned(mount)["ahead"] == planned(mount)["samples"], "all is ahead")
        reads = mount.stat("fuse.requests.read")
        samples.add("rate pushed", rate(mount.path))
        samples.add("READs a MiB", (mount.stat("fuse.requests.read") - reads) / (case.size / MIB))
    progress(f"source {samples.rounds['rate source'][-1]:.0f}, RAM {samples.rounds['rate ram'][-1]:.0f}, pushed {samples.rounds['rate pushed'][-1]:.0f} MB/s")


def rate_table(samples):
    table = Table("Reading from front to back, one worker, 10,240 bytes a read")
    table.add("source, warm page cache", samples.median("rate source"), "MB/s")
    table.add("clairfs, RAM tier, without a plan", samples.median("rate ram"), "MB/s")
    table.add("clairfs, pushed", samples.median("rate pushed"), "MB/s")
    table.add("pushed / RAM tier", samples.ratio("rate pushed", "rate ram"), at_least=1.5)
    table.add("pushed / source", samples.ratio("rate pushed", "rate source"))
    table.add("READs a MiB that was pushed", samples.median("READs a MiB"))
    return table


def copies_round(case, samples):
    """A first epoch of whole copies to local disk, as StreamingDataset makes them (shutil.copy), by eight threads, which
    wait for each other's shards as long as the PFS needs: from the PFS itself, and through clairfs with a plan."""
    names = pathlib.Path(case.all[0]).read_text().split()
    def copy(root, local):
        begin = time.monotonic()
        def one(worker):
            for name in names[worker::8]:
                shutil.copy(root / name, local / name)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(8)))
        return time.monotonic() - begin

    plan = PLAN.replace(f"workers={WORKERS}", "workers=8").format(epochs=0)  # no end: the tiers keep what they have
    with case.client() as pfs, clairmount.tempdir() as local:
        samples.add("copies pfs", copy(pfs.path, local))
    with case.pfs() as pfs, clairmount.tempdir() as local:
        with clairmount.clairfs(pfs.path, "--ram", 2 * case.size, "--staging", STAGING) as mount:
            (mount.path / ".clairfs/plan").write_text(plan)
            samples.add("copies plan", copy(mount.path, local))
            samples.add("copies bytes", pfs.counters()["bytes"] / case.size)
            clairmount.drop_page_cache(mount.path)
            shutil.rmtree(local)
            local.mkdir()
            samples.add("copies again", copy(mount.path, local))
            samples.add("copies bytes of both", pfs.counters()["bytes"] / case.size)
    progress(f"copies: PFS {samples.rounds['copies pfs'][-1]:.1f}, plan {samples.rounds['copies plan'][-1]:.1f}, again {samples.rounds['copies again'][-1]:.1f} s")


def copies_table(case, samples):
    table = Table(f"Copies of {len(case.names)} shards to local disk by 8 threads")
    table.add("from the PFS itself", samples.median("copies pfs"), "s")
    table.add("through clairfs with a plan", samples.median("copies plan"), "s", ratio=(samples.ratio("copies plan", "copies pfs"), "the PFS itself"))
    table.add("through clairfs with a plan: PFS bytes", samples.median("copies bytes"), "S", at_most=1.01)
    table.add("by another job on the node", samples.median("copies again"), "s", ratio=(samples.ratio("copies again", "copies pfs"), "the PFS itself"))
    table.add("both jobs: PFS bytes", samples.median("copies bytes of both"), "S", at_most=1.01)
    return table


def main():
    given = benchlib.arguments(__doc__, "default: 5, with --quick 2", ("epochs", "rate", "copies"))
    rounds = given.rounds or (2 if given.quick else 5)
    found = Findings(given)
    with contextlib.ExitStack() as stack:
        tmp = stack.enter_context(clairmount.tempdir())
        case = Case(tmp, 32 if given.quick else 64, 12 * MIB if given.quick else 16 * MIB, 3)
        for round_ in range(rounds):
            progress(f"round {round_ + 1} of {rounds}")
            if "rate" in given.only:
                rate_round(case, found.samples)
            if "epochs" in given.only:
                epochs_round(case, found)
            if "copies" in given.only:
                copies_round(case, found.samples)
    if "rate" in given.only:
        found.add(rate_table(found.samples))
    if "epochs" in given.only:
        found.add(epochs_table(case, found.samples))
    if "copies" in given.only:
        found.add(copies_table(case, found.samples))


if __name__ == "__main__":
    main()
