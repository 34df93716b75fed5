#!/usr/bin/python3
"""Shards that workers read from front to back, as WebDataset's do, over epochs from an emulated PFS.

    tests/bench/streams.py [--quick] [--rounds N] [--only epochs|rate]... [--json FILE]

Four workers read their shards 10,240 bytes at a time, as tarfile does, or 262,144, as TFRecordDataset does, and compute half
as long as the PFS takes for the bytes: the first epoch waits for it, later ones need not. Where they compute a little longer
than the PFS takes, the first epoch need not wait either once the first window has come. All epochs' bytes are compared with
the source by a checksum; what the PFS counted is the witness for what was read. Beside: the PFS itself, a `cat` of the shards
ahead of the workers through the page cache, rclone, clairfs without a plan; in the same round, but of reads as large as
TFRecordDataset's in the first one only. Figures are medians over the rounds.
"""

import concurrent.futures
import contextlib
import pathlib
import random
import statistics
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
# Bytes a read: tarfile's blocks, and the buffer of tensorflow's core/kernels/data/tf_record_dataset_op.cc.
READS = {"tar": ("--block", 10_240), "TFRecord": ("--block", 262_144)}
TIERS = {"2 S": 2, "1 S": 1.05, "0.5 S": 0.5}  # a little more than S: tiers keep whole chunks
ROOMY = ("2 S", TIERS["2 S"])
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
        benchlib.touch_memory(4 * self.size)
        return clairmount.slowfs(self.source, "--latency", "1000", "--bandwidth", str(BANDWIDTH), *options)

    @contextlib.contextmanager
    def client(self):
        """The PFS as programs see it: a client keeps attributes and pages, and reads ahead (as root)."""
        with self.pfs("--cached", "--attr-timeout", "3600") as pfs:
            benchlib.let_read_ahead(pfs.path)
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

    def bounds(self, tier):
        """Seconds. An epoch ends with the worker that has the most bytes to compute on, or with what the PFS has to read for
        it."""
        missing = [self.size] + [max(0, self.size - tier)] * (self.epochs - 1)
        return [max(most / self.rate, read / BANDWIDTH) for most, read in zip(self.most, missing, strict=True)]

    def read_once(self):
        """So that the source's page cache is warm."""
        benchlib.reader("streams", self.source, self.all[0])

    def warm(self, kind):
        """Seconds for a MiB of the source's warm page cache, with the same pauses."""
        self.read_once()
        waits = [wait for run in self.epoch(self.source, 0, *READS[kind]) for wait in run["waits"]]
        return sum(waits) / len(waits)


def seconds_of(runs):
    return max(run["begin"] + run["seconds"] for run in runs) - min(run["begin"] for run in runs)


def record(case, label, epochs, pfs_bytes, warm, samples):
    later = epochs[1:]
    waits = [wait for runs in later for run in runs for wait in run["waits"]]
    total = sum(seconds_of(runs) for runs in epochs)
    samples.add(f"{label} total", total)
    for number, runs in enumerate(epochs):
        samples.add(f"{label} epoch {number}", seconds_of(runs))
    samples.add(f"{label} stall", max(0, sum(waits) - len(waits) * warm) / WORKERS / sum(seconds_of(runs) for runs in later))
    samples.add(f"{label} bytes", pfs_bytes)
    progress(f"{label}: {total:.1f} s, {pfs_bytes / case.size:.3f} S")


def planned(mount):
    return next(plan for plan in mount.stats()["plan_list"] if plan["name"] == "bench")


def run_clairfs(case, kind, label, tier, with_plan, warm, samples):
    with case.pfs() as pfs, clairmount.clairfs(pfs.path, "--ram", int(tier), "--staging", STAGING) as mount:
        if with_plan:
            (mount.path / ".clairfs/plan").write_text(PLAN.format(epochs=case.epochs))
        epochs = []
        for number in range(case.epochs):
            epochs.append(case.epoch(mount.path, number, *READS[kind]))
            if not with_plan:  # as those of a dataset would that is larger than memory
                benchlib.reader("drop", mount.path, case.all[number], mount=mount)
        record(case, f"{kind} {label}", epochs, pfs.counters()["bytes"], warm, samples)
        if with_plan:
            samples.add(f"{kind} {label} suspensions", planned(mount)["suspensions"])


def run_first_epoch(case, kind, samples):
    """Stall of the first epoch from its first window on; what is left of it when the warm page cache has no more."""
    rate = SLOW_COMPUTE // WORKERS
    before = STAGING // WORKERS // MIB  # waits of a worker: one a MiB

    def share(root):
        runs = case.read(root, 0, "--compute-rate", int(rate), *READS[kind])
        waits = [wait for run in runs for wait in run["waits"][before:]]
        return sum(waits), sum(waits) + len(waits) * MIB / rate

    case.read_once()
    warm, _ = share(case.source)
    with case.pfs() as pfs, clairmount.clairfs(pfs.path, "--ram", 2 * case.size, "--staging", STAGING) as mount:
        (mount.path / ".clairfs/plan").write_text(PLAN.format(epochs=1))
        waited, seconds = share(mount.path)
        samples.add(f"{kind} first stall", max(0, waited - warm) / seconds)
        samples.add(f"{kind} first suspensions", planned(mount)["suspensions"])
    progress(f"{kind}, first epoch: stall {samples.rounds[f'{kind} first stall'][-1]:.4f}")


def run_source(case, kind, warm, samples):
    """From the warm page cache: what the pauses and the machine alone take."""
    case.read_once()
    record(case, f"{kind} source", [case.epoch(case.source, e, *READS[kind]) for e in range(case.epochs)], 0, warm, samples)


def run_pfs(case, kind, warm, samples):
    with case.client() as pfs:
        epochs = []
        for number in range(case.epochs):
            epochs.append(case.epoch(pfs.path, number, *READS[kind]))
            clairmount.drop_page_cache(pfs.path)
        record(case, f"{kind} pfs", epochs, pfs.counters()["bytes"], warm, samples)


def run_cat(case, kind, warm, samples):
    """The shards of the epoch go through the page cache ahead of the workers, in their order, in one stream."""
    with case.client() as pfs:
        epochs = []
        for number in range(case.epochs):
            names = [str(pfs.path / name) for name in pathlib.Path(case.all[number]).read_text().split()]
            with subprocess.Popen(["cat", *names], stdout=subprocess.DEVNULL) as ahead:
                epochs.append(case.epoch(pfs.path, number, *READS[kind]))
                ahead.kill()
            clairmount.drop_page_cache(pfs.path)
        record(case, f"{kind} cat", epochs, pfs.counters()["bytes"], warm, samples)


def run_rclone(case, kind, found, warm, samples):
    if "rclone" not in benchlib.installed_others(found):
        return
    with case.pfs() as pfs, benchlib.rclone(pfs.path, 2 * case.size) as served:
        epochs = []
        for number in range(case.epochs):
            epochs.append(case.epoch(served.path, number, *READS[kind]))
            clairmount.drop_page_cache(served.path)
        record(case, f"{kind} rclone", epochs, pfs.counters()["bytes"], warm, samples)


def epochs_round(case, found, first):
    """TFRecords are read as tars are, but for the size of a read: what takes long is measured in the first round only."""
    samples = found.samples
    for kind in READS:
        in_full = kind == "tar" or first
        warm = case.warm(kind)
        run_source(case, kind, warm, samples)
        if in_full:
            run_pfs(case, kind, warm, samples)
            run_cat(case, kind, warm, samples)
            run_rclone(case, kind, found, warm, samples)
            run_clairfs(case, kind, "no plan", 2 * case.size, False, warm, samples)
        for name, share in TIERS.items() if in_full else [ROOMY]:
            run_clairfs(case, kind, f"plan {name}", share * case.size, True, warm, samples)
        run_first_epoch(case, kind, samples)


def ratio(samples, name, baseline):
    """Of the rounds that have both, which are the first ones."""
    return statistics.median(a / b for a, b in zip(samples.rounds[name], samples.rounds[baseline], strict=False))


OTHERS = {
    "pfs": "the PFS itself",
    "cat": "cat ahead of the workers",
    "rclone": "rclone, cache of 2 S",
    "no plan": "clairfs without a plan, RAM tier 2 S",
}


def epochs_table(case, kind, samples):
    size = READS[kind][1]
    table = Table(f"{case.epochs} epochs of {len(case.names)} {kind} shards, {size:,} bytes a read, {case.size / 1e6:.0f} MB, {WORKERS} workers that compute on {COMPUTE / 1e6:.0f} MB/s, PFS {BANDWIDTH / 1e6:.0f} MB/s")
    seconds = sum(case.bounds(2 * case.size))
    table.add("the source's own directory, warm: time / bound", samples.median(f"{kind} source total") / seconds)
    for label, text in OTHERS.items():
        if f"{kind} {label} total" in samples.rounds:
            table.add(f"{text}: time / bound", samples.median(f"{kind} {label} total") / seconds)
            table.add(f"{text}: PFS bytes", samples.median(f"{kind} {label} bytes") / case.size, "S")
    for name, share in TIERS.items():
        add_planned(table, case, kind, name, share, samples)
    text = f"with a plan, computing on {SLOW_COMPUTE / 1e6:.0f} MB/s"
    table.add(f"{text}: stall of the first epoch after {STAGING // MIB} MiB", samples.median(f"{kind} first stall"), at_most=0.01)
    table.add(f"{text}: suspensions", max(samples.rounds[f"{kind} first suspensions"]), at_most=0)
    return table


def add_planned(table, case, kind, name, share, samples):
    label, least, bounds = f"{kind} plan {name}", case.least_bytes(share * case.size), case.bounds(share * case.size)
    text = f"with a plan, RAM tier {name}"
    table.add(f"{text}: time / bound", samples.median(f"{label} total") / sum(bounds), at_most=1.03)
    slowest = max(samples.median(f"{label} epoch {number}") / bound for number, bound in enumerate(bounds))
    # Where epochs share the PFS, what one of them is ahead another one waits for: their sum counts.
    table.add(f"{text}: slowest epoch / its bound", slowest, at_most=1.03 if share >= 1 else None)
    last = case.epochs - 1
    table.add(f"{text}: last epoch / source", ratio(samples, f"{label} epoch {last}", f"{kind} source epoch {last}"))
    table.add(f"{text}: time / the PFS itself", ratio(samples, f"{label} total", f"{kind} pfs total"))
    if share >= 1:  # else later epochs wait for the PFS, too
        table.add(f"{text}: stall of later epochs", samples.median(f"{label} stall"), at_most=0.01)
    table.add(f"{text}: PFS bytes / least", samples.median(f"{label} bytes") / least, at_most=1.01)
    table.add(f"{text}: suspensions", max(samples.rounds[f"{label} suspensions"]), at_most=0)


def rate_round(case, kind, samples):
    """MB/s of one worker that does not compute: pushed, from the RAM tier, from the source's page cache."""
    def rate(root):
        run = benchlib.reader("streams", root, case.all[0], *READS[kind])[0]
        return run["bytes"] / run["seconds"] / 1e6

    case.read_once()
    samples.add(f"{kind} rate source", rate(case.source))
    roomy = f"{case.size * 5 // 4 // MIB + 64}M"
    benchlib.touch_memory(2 * case.size)
    with clairmount.clairfs(case.source, "--ram", roomy, "--staging", roomy) as mount:
        benchlib.reader("streams", mount.path, case.all[0], mount=mount)
        clairmount.wait_until(lambda: mount.stat("tiers.ram.bytes") >= case.size, "the dataset is in the RAM tier")
        benchlib.reader("drop", mount.path, case.all[0], mount=mount)
        benchlib.touch_memory(case.size)
        samples.add(f"{kind} rate ram", rate(mount.path))
        benchlib.reader("drop", mount.path, case.all[0], mount=mount)
        (mount.path / ".clairfs/plan").write_text(PLAN.replace(f"workers={WORKERS}", "workers=0").format(epochs=1))
        clairmount.wait_until(lambda: planned(mount)["ahead"] == planned(mount)["samples"], "all is ahead")
        reads = mount.stat("fuse.requests.read")
        samples.add(f"{kind} rate pushed", rate(mount.path))
        samples.add(f"{kind} READs a MiB", (mount.stat("fuse.requests.read") - reads) / (case.size / MIB))
    found = [f"{name} {samples.rounds[f'{kind} rate {name}'][-1]:.0f}" for name in ("source", "ram", "pushed")]
    progress(f"{kind}: {', '.join(found)} MB/s")


def rate_table(kind, samples):
    table = Table(f"Reading {kind} shards from front to back, one worker, {READS[kind][1]:,} bytes a read")
    table.add("source, warm page cache", samples.median(f"{kind} rate source"), "MB/s")
    table.add("clairfs, RAM tier, without a plan", samples.median(f"{kind} rate ram"), "MB/s")
    table.add("clairfs, pushed", samples.median(f"{kind} rate pushed"), "MB/s")
    table.add("pushed / RAM tier", samples.ratio(f"{kind} rate pushed", f"{kind} rate ram"), at_least=1.5)
    table.add("pushed / source", samples.ratio(f"{kind} rate pushed", f"{kind} rate source"))
    table.add("READs a MiB that was pushed", samples.median(f"{kind} READs a MiB"))
    return table


def main():
    given = benchlib.arguments(__doc__, "default: 5, with --quick 2", ("epochs", "rate"))
    rounds = given.rounds or (2 if given.quick else 5)
    found = Findings(given)
    with contextlib.ExitStack() as stack:
        tmp = stack.enter_context(clairmount.tempdir())
        case = Case(tmp, 32 if given.quick else 64, 12 * MIB if given.quick else 16 * MIB, 3)
        for round_ in range(rounds):
            progress(f"round {round_ + 1} of {rounds}")
            for kind in READS if "rate" in given.only else ():
                rate_round(case, kind, found.samples)
            if "epochs" in given.only:
                epochs_round(case, found, round_ == 0)
    for kind in READS:
        if "rate" in given.only:
            found.add(rate_table(kind, found.samples))
        if "epochs" in given.only:
            found.add(epochs_table(case, kind, found.samples))


if __name__ == "__main__":
    main()
