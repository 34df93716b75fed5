#!/usr/bin/python3
"""Shuffled epochs from an emulated PFS on one node, by what stands between the PFS and the reader.

    tests/bench/epochs.py [--quick] [--rounds N] [--only computing|half|spare|jobs]... [--json FILE]

The PFS just keeps up with the computing if it never idles. Caches hold twice the dataset, the dataset, and half of it.
What the emulated PFS counted is the witness for what was read; data is compared with the source. With --infer off,
clairfs fills its tiers at the first touch and evicts nothing, which is the rule of MONARCH. After each epoch the pages
of rclone's mount, and those of that clairfs, are dropped: memory that is larger than the dataset would be a second
cache. With a plan, also one that it finds, clairfs drops them itself.

Where tiers hold half of the dataset and computing takes half as long as the PFS for it, no epoch need wait for the PFS from
the second on, if what it still has to read is spread over the whole epoch.

Where memory is to spare nothing is dropped and nothing computes: what was read once stays in the page cache. A plan must
then cost neither time nor bytes beside none, and the first epoch without one no more time than the PFS itself.

Two jobs on one mount, each with its own dataset and plan, share a PFS that neither leaves idle; so do two on the PFS itself.
How much longer the slower one takes is how unfairly they are served.
"""

import concurrent.futures
import contextlib
import shutil
import statistics
import time

import benchlib
import clairmount
import plan as planned
from benchlib import MIB, Findings, Table, progress
from jobcase import JobCase, require_no_failed_reads

# For the tiers' padding, a cache "of the dataset" has a little more.
CACHES = {"twice the dataset": 2.0, "the dataset": 1.02, "half the dataset": 0.5}
UNCACHED = {"none": "no cache, one reader", "loader": "no cache, 4 DataLoader workers"}
CACHED = {
    "rclone": "rclone mount with that cache, 4 workers",
    "first touch": "clairfs with --infer off (first touch, MONARCH's rule), 4 workers",
    "nothing": "clairfs, nothing registered, 4 workers",
    "plan, one reader": "clairfs with a plan, one reader",
    "plan, workers": "clairfs with a plan, 4 workers",
}
WORKERS = ("--workers", 4)
# The memory for chunks on their way keeps what it held last, and so is cache beside the tiers. With chunks of this size it
# is 16 MiB instead of 32: datasets as small as these would fit.
CHUNK = ("--chunk", "1M")


class Epochs:
    def __init__(self, tmp, quick, found):
        self.case = planned.SlowCase(tmp, 512 if quick else 640, 3)
        self.found, self.samples = found, found.samples
        self.uncached, self.cached = list(UNCACHED), list(CACHED)
        if not shutil.which("rclone"):
            found.skip("epochs through rclone", "not installed (apt-get install rclone)")
            self.cached.remove("rclone")

    def record(self, name, runs, pfs, workers):
        case = self.case
        warm = 0 if workers else case.warm_batch  # workers read while the reader computes
        later = sum(run["seconds"] for run in runs[1:])
        self.samples.add(f"{name} total", runs[0]["seconds"] + later)
        self.samples.add(f"{name} later", later / len(runs[1:]))
        self.samples.add(f"{name} stall 0", case.stall(runs[0], case.window(), warm))
        self.samples.add(f"{name} stall later", sum(case.stall(run, 0, warm) * run["seconds"] for run in runs[1:]) / later)
        if "stalled" in runs[0]:
            self.samples.add(f"{name} stalled later", sum(run["stalled"] for run in runs[1:]) / later)
        self.samples.add(f"{name} bytes", pfs.counters()["bytes"] / self.case.size)
        for epoch, run in enumerate(runs):
            self.samples.add(f"{name} epoch {epoch}", run["seconds"])
        progress(f"{name}: {', '.join(format(run['seconds'], '.1f') for run in runs)} s")

    def round(self):
        case = self.case
        case.measure_warm()
        for name, options in (("none", ()), ("loader", WORKERS)):
            with case.pfs() as pfs:
                self.record(name, case.read(pfs.path, *options), pfs, bool(options))
        for label, share in CACHES.items():
            cache = int(share * case.size)
            for name in self.cached:
                with case.pfs() as pfs:
                    self.record(f"{label} {name}", self.through(name, pfs, cache), pfs, name != "plan, one reader")

    def through(self, name, pfs, cache):
        case = self.case
        if name == "rclone":
            with benchlib.rclone(pfs.path, cache) as mount:
                return case.read(mount.path, *WORKERS, dropping=True)
        infer = ("--infer", "off") if name == "first touch" else ()
        with clairmount.clairfs(pfs.path, *CHUNK, "--ram", cache, "--staging", case.staging, *infer) as mount:
            if name in ("first touch", "nothing"):
                return case.read(mount.path, *WORKERS, mount=mount, dropping=name == "first touch")
            workers = WORKERS if name == "plan, workers" else ()
            more = f"workers={WORKERS[1]}" if workers else ""
            planned.register(mount, more, seed=1, epochs=case.epochs, batch=planned.BATCH)
            return case.read(mount.path, *workers, mount=mount)

    def key(self, label, name):
        return name if name in UNCACHED else f"{label} {name}"

    def systems(self):
        return {name: text for name, text in (UNCACHED | CACHED).items() if name in (*self.uncached, *self.cached)}

    def title(self):
        case = self.case
        return (
            f"{case.epochs} epochs of {case.size / 1e6:.0f} MB from a PFS of {case.bandwidth // 1_000_000} MB/s and "
            f"{case.latency_us} us"
        )

    def table(self, label):
        table = Table(f"{self.title()}, a cache of {label}")
        bound = self.case.bound(CACHES[label] * self.case.size)
        table.add("lower bound", bound, "s")
        for name, text in self.systems().items():
            key = self.key(label, name)
            total = self.samples.median(f"{key} total")
            goal = (lambda most: {"at_most": most}) if name.startswith("plan") else (lambda most: {})
            who = "one reader" if name == "plan, one reader" else "workers"
            table.add(f"{text}: total", total, "s")
            table.add(f"{text}: total / bound", total / bound, **goal(planned.MOST_TOTAL))
            table.add(f"{text}: a later epoch", self.samples.median(f"{key} later"), "s")
            first, later = (100 * self.samples.median(f"{key} stall {when}") for when in ("0", "later"))
            table.add(f"{text}: stall, epoch 0 after the first window", first, "%", **goal(planned.MOST_STALL_0[who]))
            table.add(f"{text}: stall, later epochs", later, "%", **goal(planned.MOST_STALL_LATER[who]))
            if name == "plan, one reader":  # workers wait while the reader computes
                counted = 100 * self.samples.median(f"{key} stalled later")
                table.add(f"{text}: later epochs, waiting in reads that were not ready, as the daemon counted", counted, "%")
            table.add(f"{text}: PFS bytes", self.samples.median(f"{key} bytes"), "S")
        return table

    def totals_chart(self):
        series = {}
        for label, share in CACHES.items():
            bound = self.case.bound(share * self.case.size)
            totals = [self.samples.median(f"{self.key(label, name)} total") for name in self.systems()]
            series[f"cache of {label}"] = [total / bound for total in totals]
        return benchlib.bars(
            f"{self.title()}: total time over the lower bound", "times the bound", self.systems().values(), series, (1, "bound")
        )

    def epochs_chart(self, label):
        epochs = range(self.case.epochs)
        series = {
            text: [self.samples.median(f"{self.key(label, name)} epoch {e}") for e in epochs]
            for name, text in self.systems().items()
        }
        title = f"{self.title()}: each epoch, a cache of {label}"
        return benchlib.lines(title, "epoch", "s", [str(epoch) for epoch in epochs], series)


def computing(tmp, given, rounds, found):
    epochs = Epochs(tmp, given.quick, found)
    for round_ in range(rounds):
        progress(f"epochs, round {round_ + 1} of {rounds}")
        epochs.round()
    charts = [epochs.totals_chart()]
    for label in CACHES:
        found.add(epochs.table(label), *charts, epochs.epochs_chart(label))
        charts = []


def in_rounds(what, case, rounds, found, one_round, table):
    for round_ in range(rounds):
        progress(f"{what}, round {round_ + 1} of {rounds}")
        one_round(case, found.samples)
    found.add(table(case, found.samples))


# Half of the dataset, computing twice as fast as the PFS


class Half(JobCase):
    """One node that keeps half of the dataset, in the RAM tier or in the NVMe tier, and nothing in the page cache."""

    def __init__(self, tmp, count):
        super().__init__(tmp, count, epochs=4, bandwidth=20_000_000, compute=0.5, nodes=1)

    def bound(self, share):
        """Of the first epoch, for which the PFS reads all, and of later ones, for which it reads what is not kept."""
        epoch = self.size / self.bandwidth
        return epoch + (self.epochs - 1) * max(0.5, 1 - share) * epoch

    def tiers(self, kind, tmp):
        half = self.ram(0.5)
        if kind == "RAM":
            return "--ram", half
        tmp.chmod(0o700)
        return "--ram", 0, "--nvme", f"{tmp}:{half}"


HALVES = {"one reader": (), "4 workers": WORKERS}


def half_round(case, samples):
    for kind in ("RAM", "NVMe"):
        for who, readers in HALVES.items():
            with case.pfs() as pfs, clairmount.tempdir() as tmp:
                options = (*CHUNK, *case.tiers(kind, tmp), "--staging", case.staging, "--page-cache", "0")
                with clairmount.clairfs(pfs.path, *options) as mount:
                    workers = f"workers={readers[1]}" if readers else ""
                    (mount.path / ".clairfs/plan").write_text(f"{case.plan().strip()} {workers}\n")
                    (runs,) = case.read([mount.path], *readers)
                    require_no_failed_reads(f"half, {kind}, {who}", mount)
                    record_half(case, f"{kind}, {who}", runs, pfs, mount.stats(), samples)


def record_half(case, key, runs, pfs, stats, samples):
    samples.add(f"half {key} total", sum(run["seconds"] for run in runs))
    samples.add(f"half {key} later", statistics.mean(run["seconds"] for run in runs[1:]))
    samples.add(f"half {key} bytes", pfs.counters()["bytes"] / case.least_bytes(0.5))
    samples.add(f"half {key} written", stats["nvme"]["write_bytes"] / case.size)
    progress(f"half, {key}: {', '.join(format(run['seconds'], '.2f') for run in runs)} s")


def half_table(case, samples):
    table = Table(
        f"Tiers of half of the dataset, computing twice as fast as the PFS: {case.epochs} epochs of {case.size / 1e6:.0f} MB "
        f"from a PFS of {case.bandwidth // 1_000_000} MB/s and {case.latency_us} us"
    )
    table.add("lower bound", case.bound(0.5), "s")
    table.add("lower bound of a later epoch", 0.5 * case.size / case.bandwidth, "s")
    for kind in ("RAM", "NVMe"):
        for who in HALVES:
            key = f"half {kind}, {who}"
            total = samples.median(f"{key} total") / case.bound(0.5)
            table.add(f"{kind} tier, {who}: total / bound", total, at_most=planned.MOST_TOTAL)
            table.add(f"{kind} tier, {who}: a later epoch", samples.median(f"{key} later"), "s")
            table.add(f"{kind} tier, {who}: PFS bytes / least", samples.median(f"{key} bytes"), at_most=1.01)
            if kind == "NVMe":
                table.add(f"{kind} tier, {who}: written to it", samples.median(f"{key} written"), "S")
    return table


def half(tmp, given, rounds, found):
    case = Half(tmp / "half", 512 if given.quick else 640)
    in_rounds("half of the dataset", case, rounds, found, half_round, half_table)


# Memory to spare


class Spare(JobCase):
    """One node whose memory holds the dataset beside the tiers. How much of it a plan may keep is the mount's default."""

    def __init__(self, tmp, count):
        super().__init__(tmp, count, epochs=3, bandwidth=100_000_000, compute=0, nodes=1)

    def plan(self, workers):
        return f"{super().plan().strip()} workers={workers}\n"

    @contextlib.contextmanager
    def client(self):
        """The PFS as programs see it: a client keeps names, attributes and pages, and reads ahead (as root). It knows the
        names and attributes, as the catalog of a mount does."""
        with self.pfs("--cached") as pfs:
            benchlib.let_read_ahead(pfs.path)
            benchlib.reader("stat", pfs.path, self.orders[0][0])
            yield pfs


SPARE_TIERS = {"RAM tier 0.5 S": 0.5, "RAM tier 1.2 S": 1.2}
READERS = {"4 workers": WORKERS, "one reader": ()}
DIRECTLY = "the PFS itself"
WITHOUT, WITH = "without a plan", "with a plan"


def spare_cases():
    """(key, readers, RAM tier or None, whether with a plan) of all that is measured. One reader is there for its first
    epoch."""
    for who in READERS:
        yield f"{DIRECTLY}, {who}", who, None, False
        for tier in SPARE_TIERS if who != "one reader" else ("RAM tier 1.2 S",):
            for how in (WITHOUT, WITH):
                yield f"{tier}, {how}, {who}", who, tier, how == WITH


def read_spare(case, who, tier, with_plan):
    """The runs of all epochs, and the bytes that the PFS counted. Without a plan is MONARCH's rule: none is found either."""
    if tier is None:
        with case.client() as pfs:
            pfs.command("reset")
            (runs,) = case.read([pfs.path], *READERS[who])
            return runs, pfs.counters()["bytes"]
    infer = () if with_plan else ("--infer", "off")
    with case.pfs() as pfs, clairmount.clairfs(pfs.path, "--ram", case.ram(SPARE_TIERS[tier]), *infer) as mount:
        pfs.command("reset")
        if with_plan:
            (mount.path / ".clairfs/plan").write_text(case.plan(WORKERS[1] if READERS[who] else 0))
        (runs,) = case.read([mount.path], *READERS[who])
        require_no_failed_reads(f"{tier}, {who}", mount)
        return runs, pfs.counters()["bytes"]


def spare_round(case, samples):
    for key, who, tier, with_plan in spare_cases():
        runs, read = read_spare(case, who, tier, with_plan)
        record_spare(case, key, runs, read, samples)


def record_spare(case, key, runs, read, samples):
    samples.add(f"{key} total", sum(run["seconds"] for run in runs))
    samples.add(f"{key} epoch 0", runs[0]["seconds"])
    samples.add(f"{key} later", statistics.mean(run["seconds"] for run in runs[1:]))
    samples.add(f"{key} bytes", read / case.size)
    progress(f"{key}: {', '.join(format(run['seconds'], '.2f') for run in runs)} s, {read / case.size:.3f} S")


def spare_table(case, samples):
    table = Table(
        f"Memory to spare, nothing computes: {case.epochs} epochs of {case.size / 1e6:.0f} MB from a PFS of "
        f"{case.bandwidth // 1_000_000} MB/s and {case.latency_us} us"
    )
    for key, *_ in spare_cases():
        note = "--infer off: first touch, MONARCH's rule" if WITHOUT in key else ""
        table.add(f"{key}: total", samples.median(f"{key} total"), "s", note=note)
        table.add(f"{key}: epoch 0, cold", samples.median(f"{key} epoch 0"), "s")
        table.add(f"{key}: a later epoch", samples.median(f"{key} later"), "s")
        table.add(f"{key}: PFS bytes", samples.median(f"{key} bytes"), "S")
    for tier in SPARE_TIERS:
        for figure, text in (("total", "total"), ("bytes", "PFS bytes"), ("later", "a later epoch")):
            ratio = samples.ratio(f"{tier}, {WITH}, 4 workers {figure}", f"{tier}, {WITHOUT}, 4 workers {figure}")
            table.add(f"{tier}, 4 workers: {text}, with a plan / without", ratio, at_most=1)
    first = samples.ratio(f"RAM tier 1.2 S, {WITHOUT}, one reader epoch 0", f"{DIRECTLY}, one reader epoch 0")
    table.add(f"RAM tier 1.2 S, one reader: epoch 0, without a plan / {DIRECTLY}", first, at_most=1)
    return table


def spare(tmp, given, rounds, found):
    case = Spare(tmp / "spare", 512 if given.quick else 2048)
    in_rounds("memory to spare", case, rounds, found, spare_round, spare_table)


# Two jobs on one mount


class Jobs:
    """Two datasets of the same sizes, below a folder that is served."""

    def __init__(self, tmp, count):
        self.tmp = tmp
        self.cases = [Spare(tmp / name, count) for name in ("one", "two")]

    def read(self, root):
        """Both at once: the seconds that each takes for all its epochs."""
        begin = time.monotonic() + benchlib.START_SECONDS

        def one(case):
            (runs,) = case.read([root / case.source.relative_to(self.tmp)], *WORKERS, "--begin", begin)
            return sum(run["seconds"] for run in runs)

        with concurrent.futures.ThreadPoolExecutor(len(self.cases)) as pool:
            return list(pool.map(one, self.cases))

    def directly(self):
        with self.cases[0].pfs(source=self.tmp) as pfs:
            return self.read(pfs.path)

    def with_plans(self):
        with self.cases[0].pfs(source=self.tmp) as pfs, clairmount.clairfs(pfs.path, *jobs_options(self.cases)) as mount:
            for case in self.cases:
                folder = case.source.relative_to(self.tmp)
                plan = case.plan(WORKERS[1]).replace("name=bench", f"name={case.tmp.name} root={folder}")
                (mount.path / ".clairfs/plan").write_text(plan)
            seconds = self.read(mount.path)
            require_no_failed_reads("two jobs", mount)
            return seconds


def jobs_options(cases):
    """Tiers that hold half of all. Nothing stays in the page cache, so that the jobs share the PFS in all epochs; a dataset
    that fits the window would."""
    return "--ram", sum(case.ram(0.5) for case in cases), "--staging", min(32 * MIB, *(case.padded // 4 for case in cases))


HOW = {"directly": f"on {DIRECTLY}", "plans": "on one mount, a plan each"}


def record_jobs(how, seconds, samples):
    samples.add(f"jobs {how} slower", max(seconds))
    samples.add(f"jobs {how} slower / faster", max(seconds) / min(seconds))
    progress(f"two jobs {HOW[how]}: {', '.join(format(each, '.2f') for each in seconds)} s")


def jobs_table(title, samples):
    table = Table(title)
    for how, text in HOW.items():
        table.add(f"{text}: the slower job", samples.median(f"jobs {how} slower"), "s")
        table.add(f"{text}: slower / faster", samples.median(f"jobs {how} slower / faster"))
        table.add(f"{text}: slower / faster, worst run", max(samples.rounds[f"jobs {how} slower / faster"]))
    return table


def jobs(tmp, given, rounds, found):
    both = Jobs(tmp / "jobs", 256 if given.quick else 1024)
    case = both.cases[0]
    for round_ in range(rounds):
        progress(f"two jobs, round {round_ + 1} of {rounds}")
        record_jobs("directly", both.directly(), found.samples)
        record_jobs("plans", both.with_plans(), found.samples)
    title = (
        f"Two jobs at once, cold, 4 workers each, nothing computes: {case.epochs} epochs of {case.size / 1e6:.0f} MB each from "
        f"a PFS of {case.bandwidth // 1_000_000} MB/s and {case.latency_us} us, a RAM tier for half of both"
    )
    found.add(jobs_table(title, found.samples))


PARTS = {"computing": computing, "half": half, "spare": spare, "jobs": jobs}


def main():
    given = benchlib.arguments(__doc__, "default: 5; with --quick 2", tuple(PARTS))
    rounds = given.rounds or (2 if given.quick else 5)
    found = Findings(given)
    with clairmount.tempdir() as tmp:
        for part in given.only:
            PARTS[part](tmp, given, rounds, found)


if __name__ == "__main__":
    main()
