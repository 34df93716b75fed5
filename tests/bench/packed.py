#!/usr/bin/python3
"""Records packed into a few files: first touch of what was pushed, epochs from an emulated PFS, and LMDBIO's ladder.

    tests/bench/packed.py [--quick] [--rounds N] [--only touch|epochs|ladder]... [--json FILE]

touch: records of an LMDB, a raw, an npy and an HDF5 file that a plan has pushed, read for the first time in shuffled
order, beside the source's warm page cache, an ext4 without large folios, and the RAM tier without a plan.
epochs: a raw file from a PFS that is just fast enough, and from one that is too slow for the computing, beside what else
one can do without another file format.
ladder: 1 to 8 processes read an LMDB in its order, as Caffe and LMDBIO do, from a PFS that has to seek; of what stands for
each of LMDBIO's six optimisations, one at a time is switched off (of the last, in shuffled order: in the file's order
there is nothing to put in order).
Figures are medians over the rounds; all bytes are compared with the source by a checksum.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import zlib

import benchlib
import clairmount
from benchlib import MIB, Findings, Table, progress, write_list

lmdb = h5py = None
with contextlib.suppress(ImportError):
    import lmdb
    import numpy
with contextlib.suppress(ImportError):
    import h5py
    import numpy

RECORD = 110_000
SEED = 7
BANDWIDTH = 100_000_000
LATENCY = 1000  # microseconds
SEEK = 5000  # of a disk that has to go elsewhere
PROCESSES = (1, 2, 4, 8)
# How first touches are read. (HDF5 programs do not map their files.)
TOUCHES = {"lmdb": ("mmap", "random"), "raw": ("mmap", "random", "pread"), "npy": ("mmap", "pread"), "hdf5": ("pread",)}
JOURNALLED = ("lmdb", "raw")  # also from an ext4 without large folios; npy rows lie as raw ones do
BLOCK = 4  # records that a process reads at a time in the ladder
READY_SECONDS = 1.0  # eight interpreters have started then
PUSH_SECONDS = 120
STILL_SECONDS = 1.0  # a push takes microseconds, and a fetch from a warm source milliseconds


class Packed:
    """`count` records, in files that all hold the same."""

    def __init__(self, source, count, record=RECORD, kinds=tuple(TOUCHES)):
        self.source, self.count, self.record = source, count, record
        source.mkdir()
        chance = random.Random(count)
        self.size = count * record
        self.files, self.ranges, self.plans, self.adler = {}, {}, {}, 0
        with contextlib.ExitStack() as stack:
            writers = [writer for kind in kinds if (writer := getattr(self, f"_{kind}")(stack))]
            for i, value in enumerate(chance.randbytes(record) for _ in range(count)):
                self.adler += zlib.adler32(value)
                for write in writers:
                    write(i, value)
        os.sync()
        if "lmdb" in self.files:
            self.ranges["lmdb"] = ranges_of_lmdb(self.path("lmdb"))

    def _add(self, kind, name, plan):
        self.files[kind] = name
        self.plans[kind] = f"file={name} {plan}"
        return self.source / name

    def path(self, kind, root=None):
        return (root or self.source) / self.files[kind]

    def _rows(self, stack, kind, name, plan, header=b""):
        file = stack.enter_context(open(self._add(kind, name, plan), "wb"))
        file.write(header)
        self.ranges[kind] = [f"{len(header) + i * self.record} {self.record}" for i in range(self.count)]
        return lambda i, value: file.write(value)

    def _raw(self, stack):
        return self._rows(stack, "raw", "rows.bin", f"format=raw record={self.record}")

    def _npy(self, stack):
        return self._rows(stack, "npy", "rows.npy", "format=npy", benchlib.npy_header(self.count, self.record))

    def _lmdb(self, stack):
        if lmdb is None:
            return None
        path = self._add("lmdb", "rows.lmdb", "format=lmdb keys=cursor")
        env = stack.enter_context(lmdb.open(str(path), subdir=False, map_size=2 * self.size + (64 << 20), sync=False, lock=False))
        txn = stack.enter_context(env.begin(write=True))
        return lambda i, value: txn.put(b"%08d" % i, value, append=True)

    def _hdf5(self, stack):
        if h5py is None:
            return None
        file = stack.enter_context(h5py.File(self._add("hdf5", "rows.h5", "format=hdf5 dataset=/rows"), "w"))
        rows = file.create_dataset("rows", (self.count, self.record), "u1")
        first = []

        def write(i, value):
            rows[i] = numpy.frombuffer(value, "u1")
            if not first:
                first.append(rows.id.get_offset())
                self.ranges["hdf5"] = [f"{first[0] + n * self.record} {self.record}" for n in range(self.count)]

        return write


def ranges_of_lmdb(path):
    """Where liblmdb finds each value, by its key: "OFFSET LENGTH"."""
    ranges = []
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env, env.begin(buffers=True) as txn:
        maps = [line.split() for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if line.endswith(f" {path}")]
        base = int(next(fields[0] for fields in maps if int(fields[2], 16) == 0).split("-")[0], 16)
        for value in txn.cursor().iternext(keys=False):
            ranges.append(f"{numpy.frombuffer(value, 'u1').ctypes.data - base} {len(value)}")
    return ranges


def register(mount, plan):
    (mount.path / ".clairfs/plan").write_text(f"name=bench {plan}\n")


def planned(mount):
    return next(plan for plan in mount.stats()["plan_list"] if plan["name"] == "bench")


def wait_until_still(mount, count):
    """Until nearly all is ahead and no more comes: what is still being pushed takes processor time from those that read."""
    seen = {"ahead": -1, "since": 0.0}

    def still():
        ahead, now = planned(mount)["ahead"], time.monotonic()
        if ahead != seen["ahead"]:
            seen.update(ahead=ahead, since=now)
        return ahead >= 0.95 * count and now - seen["since"] >= STILL_SECONDS

    clairmount.wait_until(still, lambda: f"{seen['ahead']} of {count} records are ahead, and no more come", PUSH_SECONDS)


def check(runs, right, what):
    if sum(int(run["sum"], 16) for run in runs) % 2**64 != right:
        raise SystemExit(f"WRONG DATA: {what}")
    return runs


# First touch of what was pushed


def copied(found, packed, tmp):
    """The files of JOURNALLED kinds on an ext4 without large folios: their folder, or None."""
    chosen = tmp / "journalled"
    chosen.mkdir()
    names = [packed.files[kind] for kind in JOURNALLED if kind in packed.files]
    for name in names:
        os.link(packed.source / name, chosen / name)
    return benchlib.journalled(found, chosen, benchlib.bytes_of(chosen, names))


def touch_round(packed, tmp, processes, copy, samples):
    for kind, hows in TOUCHES.items():
        if kind not in packed.files:
            continue
        order = benchlib.plan_orders(packed.ranges[kind], SEED, 1)[0]
        lists = {n: [write_list(tmp / f"touch-{n}-{i}", order[i::n]) for i in range(n)] for n in processes}
        right = int(benchlib.reader("records", packed.path(kind), "pread", lists[1][0], "--sum")[0]["sum"], 16)
        for how in hows:
            for mine in lists.values():
                touch(packed, kind, how, mine, right, copy, samples)


def touch(packed, kind, how, lists, right, copy, samples):
    label = f"{kind} {how} {len(lists)}"

    def rate(where, path):
        runs, seconds = benchlib.together("records", [(path, how, mine, "--sum") for mine in lists])
        check(runs, right, label)
        for figure in ("faults", "switches"):
            samples.add(f"{label} {where} {figure}", sum(run[figure] for run in runs) / packed.count)
        samples.add(f"{label} {where}", packed.count / seconds)

    def warm(where, root):
        path = packed.path(kind, root)
        benchlib.reader("records", path, "pread", *lists)
        rate(where, path)

    warm("source", packed.source)
    if copy and kind in JOURNALLED:
        warm("journalled", copy)
    benchlib.touch_memory(2 * packed.size)
    # Twice: the window counts a page that two records share for each of them. Without a plan none is to be found.
    options = ("--ram", packed.size * 5 // 4 + 64 * MIB, "--staging", 2 * packed.size + 64 * MIB, "--infer", "off")
    with clairmount.clairfs(packed.source, *options) as mount:
        path = packed.path(kind, mount.path)
        benchlib.reader("records", path, "pread", *lists, mount=mount)
        clairmount.drop_page_cache(path)
        rate("ram", path)
        clairmount.drop_page_cache(path)
        # Ranks, since nothing holds these processes together as a loader does its workers: some are far ahead of others.
        register(mount, f"{packed.plans[kind]} seed={SEED} batch=1 world={len(lists)} ranks_per_node={len(lists)} epochs=1")
        wait_until_still(mount, packed.count)
        reads = mount.stat("fuse.requests.read")
        rate("pushed", path)
        samples.add(f"{label} reads", (mount.stat("fuse.requests.read") - reads) / packed.count)
        samples.add(f"{label} suspensions", planned(mount)["suspensions"])
    shown = (f"{where} {samples.rounds[f'{label} {where}'][-1]:.0f}" for where in ("source", "pushed", "ram"))
    progress(f"{label}: {', '.join(shown)} records/s")


def touch_table(packed, samples):
    table = Table(f"First touch of {packed.count:,} records of {packed.record:,} bytes, shuffled")
    for label in [name.removesuffix(" reads") for name in samples.rounds if name.endswith(" reads")]:
        kind, how, n = label.split()
        text = f"{kind} {how}, {n} process{'es' * (n != '1')}"
        table.add(f"{text}: source, warm", samples.median(f"{label} source"), "records/s")
        note = ""
        if f"{label} journalled" in samples.rounds:
            note = f"{samples.ratio(f'{label} pushed', f'{label} journalled'):.2f} of {benchlib.JOURNALLED}"
        least = 0.7 if how == "pread" else 0.9
        table.add(f"{text}: pushed / source", samples.ratio(f"{label} pushed", f"{label} source"), at_least=least, note=note)
        table.add(f"{text}: pushed / RAM tier without a plan", samples.ratio(f"{label} pushed", f"{label} ram"), at_least=20 if how == "random" else None)
        table.add(f"{text}: READs a record", samples.median(f"{label} reads"), at_most=0.02)
        table.add(f"{text}: major faults a record", samples.median(f"{label} pushed faults"), at_most=0.02)
        table.add(f"{text}: context switches a record", samples.median(f"{label} pushed switches"), at_most=0.05)
        table.add(f"{text}: suspensions", max(samples.rounds[f"{label} suspensions"]), at_most=0)
    return table


# Epochs

EPOCHS = 3
SPEEDS = (1, 1.5)  # of computing, as a multiple of the PFS's bandwidth


@dataclasses.dataclass(frozen=True)
class Tier:
    """What of S the tiers hold, and how many times the lower bounds the time and the PFS bytes should be at most."""

    ram: float
    nvme: float = 0
    chunk: str = "128K"
    workers: int = 0  # of the reader, as of those without a plan
    most_time: float | None = 1.05
    most_bytes: float | None = 1.01

    def size(self, packed):
        return (self.ram + self.nvme) * packed.size


# A little more than S where all is to fit: tiers keep whole chunks.
TIERS = {"RAM tier 2 S": Tier(2), "RAM tier 1 S": Tier(1.02), "RAM tier 0.5 S": Tier(0.5), "RAM tier 2 S, 4 workers": Tier(2, workers=4)}
# Rows of a raw file begin anywhere in a chunk: the smaller chunks are, the less of their neighbours the first epoch reads
# ahead of its turn, which counts most where computing takes as long as reading.
SMALL = {f"RAM tier 2 S, chunks of {k} KiB": Tier(2, chunk=f"{k}K", most_time=None, most_bytes=None) for k in (64, 32)}
NVME = {"RAM tier 0.25 S, NVMe the rest": Tier(0.25, 0.77, most_time=None, most_bytes=1.05)}  # where computing is faster
WARM = "the source's page cache"  # in the place of a PFS: what reading and computing take by themselves


def tiers_of(speed):
    return TIERS | SMALL | (NVME if speed > 1 else {})


def key(speed, label):
    """By which the figures of one case are known."""
    return f"computing {speed:g}, {label}"


def missing_bytes(size, tier):
    """What the PFS has to read in each epoch at least."""
    return [size] + [max(0, size - tier)] * (EPOCHS - 1)


def least_seconds(size, tier, speed, own=0):
    """Each epoch takes as long as its computing and what its reader takes `own`, or as reading what the tiers lack for it."""
    return sum(max(size / speed / BANDWIDTH + own, missing / BANDWIDTH) for missing in missing_bytes(size, tier))


class Training:
    """Epochs of one reader that computes `speed` times as fast as the PFS reads."""

    BATCH = 8

    def __init__(self, packed, tmp, speed):
        self.packed, self.speed = packed, speed
        # By time, not by bytes, which the reader does not know of a batch that its workers read.
        self.compute_us = round(1e6 * self.BATCH * packed.record / (speed * BANDWIDTH))
        orders = benchlib.plan_orders(packed.ranges["raw"], SEED, EPOCHS)
        self.lists = [write_list(tmp / f"epoch-{e}", order) for e, order in enumerate(orders)]
        self.in_order = write_list(tmp / "in-order", packed.ranges["raw"])
        self.right = int(benchlib.reader("records", packed.path("raw"), "pread", self.lists[0], "--sum")[0]["sum"], 16)

    def epoch(self, root, number, *options, how="pread"):
        path, mine = self.packed.path("raw", root), self.in_order if how == "coalesced" else self.lists[number]
        options = ("--batch", self.BATCH, "--compute-us", self.compute_us, "--sum", *options)
        return check(benchlib.reader("records", path, how, mine, *options), self.right, f"epoch {number} of {root}")[0]

    def pfs(self, *options):
        benchlib.touch_memory(2 * self.packed.size)
        return clairmount.slowfs(self.packed.source, "--latency", str(LATENCY), "--bandwidth", str(BANDWIDTH), *options)

    def client(self):
        return self.pfs("--cached", "--attr-timeout", "3600")

    def measure(self, label, served, pfs, samples, *options, drops=True, how="pread"):
        seconds = []
        for number in range(EPOCHS):
            seconds.append(self.epoch(served.path, number, *options, how=how)["seconds"])
            if drops:
                clairmount.drop_page_cache(served.path)
        samples.add(f"{key(self.speed, label)} first", seconds[0])
        self.note(label, sum(seconds), pfs, samples)

    def note(self, label, seconds, pfs, samples):
        label = key(self.speed, label)
        samples.add(f"{label} seconds", seconds)
        samples.add(f"{label} bytes", pfs.counters()["bytes"] / self.packed.size)
        progress(f"{label}: {seconds:.1f} s, {samples.rounds[f'{label} bytes'][-1]:.3f} S")

    def by_source(self, samples):
        benchlib.reader("records", self.packed.path("raw"), "pread", self.lists[0])  # is warm from then on
        for number in range(EPOCHS):
            samples.add(f"{key(self.speed, WARM)} epoch", self.epoch(self.packed.source, number)["seconds"])

    def by_client(self, label, samples, *options, how="pread"):
        with self.client() as pfs:
            if how == "coalesced":
                benchlib.let_read_ahead(pfs.path)
            self.measure(label, pfs, pfs, samples, *options, how=how)

    def by_copy(self, samples):
        with self.client() as pfs, clairmount.tempdir() as local:
            begin = time.monotonic()
            shutil.copy(self.packed.path("raw", pfs.path), local)
            seconds = time.monotonic() - begin + sum(self.epoch(local, number)["seconds"] for number in range(EPOCHS))
            self.note("copy, then train", seconds, pfs, samples)

    def by_rclone(self, found):
        if "rclone" in benchlib.installed_others(found):
            with self.pfs() as pfs, benchlib.rclone(pfs.path, 2 * self.packed.size) as served:
                self.measure("rclone", served, pfs, found.samples)

    def by_clairfs(self, label, tier, samples, plan=True):
        options = ["--ram", int(tier.ram * self.packed.size), "--staging", max(8 * MIB, self.packed.size // 16), "--page-cache", "0"]
        options += ["--record-chunk", f"*.bin={tier.chunk}", *([] if plan else ["--infer", "off"])]
        with self.pfs() as pfs, clairmount.tempdir() as disk:
            disk.chmod(0o700)  # the daemon wants it so
            if tier.nvme:
                options += ["--nvme", f"{disk}:{int(tier.nvme * self.packed.size)}"]
            with clairmount.clairfs(pfs.path, *options) as mount:
                if plan:
                    register(mount, f"{self.packed.plans['raw']} seed={SEED} batch={self.BATCH} workers={tier.workers} epochs={EPOCHS}")
                self.measure(label, mount, pfs, samples, "--workers", tier.workers, drops=not plan)
                if plan:
                    samples.add(f"{key(self.speed, label)} suspensions", planned(mount)["suspensions"])


OTHERS = {
    "pfs": "the PFS itself",
    "workers": "4 DataLoader workers",
    "willneed": "WILLNEED for the next 256 records",
    "coalesced": "64 MiB a read, in the file's order",
    "copy, then train": "copy to local disk, then train",
    "rclone": "rclone, cache of 2 S",
    "no plan": "clairfs without a plan, RAM tier 2 S",
}


def epochs_round(training, found):
    samples = found.samples
    training.by_source(samples)
    training.by_client("pfs", samples)
    training.by_client("workers", samples, "--workers", 4)
    training.by_client("willneed", samples, "--ahead", 256)
    training.by_client("coalesced", samples, "--workers", 1, how="coalesced")
    training.by_copy(samples)
    training.by_rclone(found)
    training.by_clairfs("no plan", Tier(2), samples, plan=False)
    for name, tier in tiers_of(training.speed).items():
        training.by_clairfs(name, tier, samples)


def epochs_table(packed, speed, samples):
    table = Table(f"{EPOCHS} epochs of {packed.count:,} records of {packed.record:,} bytes, PFS {BANDWIDTH / 1e6:.0f} MB/s, computing on {speed * BANDWIDTH / 1e6:.0f} MB/s")
    bound, others = least_seconds(packed.size, 2 * packed.size, speed), []
    table.add(f"{WARM}: time / computing", samples.median(f"{key(speed, WARM)} epoch") * speed * BANDWIDTH / packed.size)
    for label, text in OTHERS.items():
        label_here = key(speed, label)
        if f"{label_here} seconds" in samples.rounds:
            table.add(f"{text}: time / bound of 2 S", samples.median(f"{label_here} seconds") / bound)
            table.add(f"{text}: PFS bytes", samples.median(f"{label_here} bytes"), "S")
            others += [label] if label != "no plan" else []
    best = min(others, key=lambda label: samples.median(f"{key(speed, label)} seconds"))
    for name, tier in tiers_of(speed).items():
        add_planned(table, packed, speed, name, tier, best, samples)
    return table


def add_planned(table, packed, speed, name, tier, best, samples):
    label, text = key(speed, name), f"with a plan, {name}"
    seconds = least_seconds(packed.size, tier.size(packed), speed)
    least = sum(missing_bytes(packed.size, tier.size(packed))) / packed.size
    # Where computing takes as long as the PFS, others reach the bound without any cache.
    faster = 1.2 if speed > 1 and tier.most_time else None
    table.add(f"{text}: time / bound", samples.median(f"{label} seconds") / seconds, at_most=tier.most_time)
    own = samples.median(f"{key(speed, WARM)} epoch") - packed.size / speed / BANDWIDTH
    table.add(f"{text}: time / bound and the reader's own time", samples.median(f"{label} seconds") / least_seconds(packed.size, tier.size(packed), speed, own))
    table.add(f"{text}: first epoch / what the PFS takes", samples.median(f"{label} first") * BANDWIDTH / packed.size)
    table.add(f"{text}: PFS bytes / bound", samples.median(f"{label} bytes") / least, at_most=tier.most_bytes)
    table.add(f"{OTHERS[best]}: time / {text}", samples.ratio(f"{key(speed, best)} seconds", f"{label} seconds"), at_least=faster)
    table.add(f"{text}: suspensions", max(samples.rounds[f"{label} suspensions"]), at_most=0)


# LMDBIO's ladder


class Rung:
    """One way to read the database: what is left out of the whole."""

    def __init__(self, text, staging=None, plan="lmdb", indexed=True, without=None, shuffled=False):
        self.text, self.staging, self.plan, self.indexed, self.shuffled = text, staging, plan, indexed, shuffled
        self.env = {"CLAIRFS_BENCH_WITHOUT": without} if without else None


RUNGS = {
    "whole": Rung("the whole ladder"),
    "LMM": Rung("without LMM: nothing is pushed, processes ask for pages", staging="64K"),
    "DM": Rung("without LMM-DM: index pages are not pushed first", plan="ranges"),
    "DIO": Rung("without LMM-DIO: read as it is faulted, without a plan", plan=None),
    "PROV": Rung("without PROV: the index is made first", indexed=False),
    "COAL": Rung("without COAL: neighbouring fetches are not merged", without="merge"),
    "shuffled": Rung("the whole ladder, shuffled", shuffled=True),
    "STAG": Rung("shuffled, without STAG: tiers are filled as records are used", without="order", shuffled=True),
}


def shuffled_orders(packed, processes, tmp):
    """A list of record numbers for each process."""
    numbers = [str(i) for i in range(packed.count)]
    orders = [benchlib.plan_orders(numbers, SEED, 1, processes, rank)[0] for rank in range(processes)]
    return [str(write_list(tmp / f"shuffled-{rank}", order)) for rank, order in enumerate(orders)]


def read_together(path, packed, processes, count, readahead, at_begin=lambda: None, orders=None):
    """Runs of so many processes, and the seconds from their common begin to the last one's end."""
    begin = time.monotonic() + READY_SECONDS
    job = {"path": str(path), "records": count, "world": processes, "block": BLOCK, "readahead": readahead, "begin": begin}
    script = pathlib.Path(__file__).with_name("programs") / "lmdb_reader.py"
    command = lambda rank: [sys.executable, script, json.dumps({**job, "rank": rank, "order": orders and orders[rank]})]  # noqa: E731

    def run(rank):
        done = subprocess.run(command(rank), stdout=subprocess.PIPE, timeout=benchlib.READ_SECONDS, check=True)
        return json.loads(done.stdout)

    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        runs = [pool.submit(run, rank) for rank in range(processes)]
        time.sleep(max(0, begin - time.monotonic()))
        at_begin()
        runs = [run.result() for run in runs]
    if count == packed.count and sum(run["sum"] for run in runs) != packed.adler:
        raise SystemExit(f"WRONG DATA: {path}")
    return runs, max(run["begin"] + run["seconds"] for run in runs) - begin


def label_of(packed, processes):
    return f"{packed.record} bytes, {processes} processes"


def note_ladder(label, count, runs, seconds, pfs, samples):
    counters = pfs.counters()
    samples.add(f"{label} rate", count / seconds)
    samples.add(f"{label} faults", sum(run["faults"] for run in runs) / count)
    samples.add(f"{label} switches", sum(run["switches"] for run in runs) / count)
    samples.add(f"{label} seeks", counters["seeks"])
    samples.add(f"{label} mean", counters["bytes"] / max(1, counters["ops"]["read"]) / 1024)
    progress(f"{label}: {count / seconds:.0f} records/s, {counters['seeks']} seeks, {counters['ops']['read']} reads of the PFS")


def disk(packed, *options):
    return clairmount.slowfs(packed.source, "--latency", str(LATENCY), "--bandwidth", str(BANDWIDTH), "--seek", str(SEEK), *options)


def climb(packed, name, rung, processes, tmp, samples):
    staging = rung.staging or f"{max(8 * MIB, packed.size // 8)}"
    options = ("--ram", 2 * packed.size + 64 * MIB, "--staging", staging, "--page-cache", "0", "--record-chunk", "*.lmdb=128K")
    sampler = f"sampler=torch.distributed seed={SEED}" if rung.shuffled else f"sampler=strided block={BLOCK}"
    order = f"{sampler} batch={BLOCK} world={processes} ranks_per_node={processes} epochs=1"
    shuffled = shuffled_orders(packed, processes, tmp) if rung.shuffled else None
    plans = {"lmdb": packed.plans["lmdb"], "ranges": f"format=ranges list={tmp / 'ranges'}"}
    with disk(packed) as pfs, clairmount.clairfs(pfs.path, *options, env=rung.env) as mount:
        path = packed.path("lmdb", mount.path)
        if rung.indexed and rung.plan == "lmdb":
            subprocess.run([clairmount.binary(), "index", path, "keys=cursor"], stdout=subprocess.DEVNULL, timeout=120, check=True)
        pfs.command("reset")
        start = (lambda: register(mount, f"{plans[rung.plan]} {order}")) if rung.plan else lambda: None
        runs, seconds = read_together(path, packed, processes, packed.count, False, start, shuffled)
        note_ladder(f"{name} {label_of(packed, processes)}", packed.count, runs, seconds, pfs, samples)


def directly(packed, processes, readahead, share, samples):
    """Of `share` of the records: a page at a time takes long."""
    count = packed.count // share // BLOCK * BLOCK
    with disk(packed, "--cached", "--attr-timeout", "3600") as pfs:
        runs, seconds = read_together(packed.path("lmdb", pfs.path), packed, processes, count, readahead)
        note_ladder(f"direct {'ahead' if readahead else 'random'} {label_of(packed, processes)}", count, runs, seconds, pfs, samples)


def coalesced(packed, tmp, samples):
    """One process reads 64 MiB at a time for all, however many there are, and hands the records out."""
    mine = write_list(tmp / "coalesced", packed.ranges["lmdb"])
    right = int(benchlib.reader("records", packed.path("lmdb"), "pread", mine, "--sum")[0]["sum"], 16)
    with disk(packed, "--cached", "--attr-timeout", "3600") as pfs:
        benchlib.let_read_ahead(pfs.path)
        runs = check(benchlib.reader("records", packed.path("lmdb", pfs.path), "coalesced", mine, "--sum"), right, "64 MiB a read")
        note_ladder(f"coalesced {packed.record} bytes", packed.count, runs, runs[0]["seconds"], pfs, samples)


def ladder_round(packed, processes, tmp, samples):
    write_list(tmp / "ranges", [f"{line} rows.lmdb" for line in packed.ranges["lmdb"]])
    coalesced(packed, tmp, samples)
    for n in processes:
        directly(packed, n, True, 1, samples)
        directly(packed, n, False, 16, samples)
        for name, rung in RUNGS.items():
            climb(packed, name, rung, n, tmp, samples)


def ladder_table(packed, n, samples):
    of = label_of(packed, n)
    table = Table(f"LMDBIO's ladder, {n} processes, {packed.count:,} records of {packed.record:,} bytes in order, PFS {BANDWIDTH / 1e6:.0f} MB/s, {LATENCY / 1000:g} ms, {SEEK / 1000:g} ms a seek")
    for name, text in (("direct ahead", "LMDB directly"), ("direct random", "LMDB directly, MADV_RANDOM")):
        most = BANDWIDTH / packed.record / samples.median(f"{name} {of} rate")
        table.add(f"{text}: records/s", samples.median(f"{name} {of} rate"), note=f"the PFS's bandwidth allows {benchlib.number(most)} times as many")
        table.add(f"{text}: major faults a record", samples.median(f"{name} {of} faults"))
    table.add("64 MiB a read, by one for all: records/s", samples.median(f"coalesced {packed.record} bytes rate"))
    for name, rung in RUNGS.items():
        add_rung(table, packed, n, name, rung, samples)
    return table


def add_rung(table, packed, n, name, rung, samples):
    """The targets are those of the whole ladder."""
    of = label_of(packed, n)
    label = f"{name} {of}"
    target = lambda value: value if name == "whole" else None  # noqa: E731
    table.add(f"{rung.text}: records/s", samples.median(f"{label} rate"))
    table.add(f"{rung.text}: times LMDB directly", samples.ratio(f"{label} rate", f"direct ahead {of} rate"))
    least = target(10) if n == 8 else None
    table.add(f"{rung.text}: times LMDB with MADV_RANDOM", samples.ratio(f"{label} rate", f"direct random {of} rate"), at_least=least)
    seeks = samples.median(f"{label} seeks")
    table.add(f"{rung.text}: seeks a 4 MiB", seeks / (packed.size / (4 * MIB)), at_most=target(2), note=f"{benchlib.number(seeks)} in all")
    table.add(f"{rung.text}: a read of the PFS", samples.median(f"{label} mean"), "KiB", at_least=target(128))
    table.add(f"{rung.text}: major faults a record", samples.median(f"{label} faults"), at_most=target(0.02))
    table.add(f"{rung.text}: context switches a record", samples.median(f"{label} switches"), at_most=target(0.05))


def main():
    given = benchlib.arguments(__doc__, "default: 3, with --quick 1", ("touch", "epochs", "ladder"))
    rounds = given.rounds or (1 if given.quick else 3)
    found = Findings(given)
    for module, what, package in ((lmdb, "LMDB and its ladder", "python3-lmdb"), (h5py, "HDF5", "python3-h5py")):
        if module is None:
            found.skip(what, f"not installed (apt-get install {package})")
    processes = (1, 8) if given.quick else PROCESSES
    touching = (1, 4) if given.quick else (1, 4, 8)
    with contextlib.ExitStack() as stack:
        tmp = stack.enter_context(clairmount.tempdir())
        packed = Packed(tmp / "packed", 800 if given.quick else 8000, kinds=tuple(TOUCHES) if "touch" in given.only else ("raw",))
        copy = stack.enter_context(copied(found, packed, tmp)) if "touch" in given.only else None
        ladders = [Packed(tmp / "ladder", 320 if given.quick else 3200, kinds=("lmdb",))]
        ladders += [] if given.quick else [Packed(tmp / "small", 64_000, 3000, kinds=("lmdb",))]
        trainings = [Training(packed, tmp, speed) for speed in SPEEDS] if "epochs" in given.only else []
        for round_ in range(rounds):
            progress(f"round {round_ + 1} of {rounds}")
            if "touch" in given.only:
                touch_round(packed, tmp, touching, copy, found.samples)
            for training in trainings:
                epochs_round(training, found)
            for ladder in ladders if "ladder" in given.only and lmdb else []:
                ladder_round(ladder, processes, tmp, found.samples)
    if "touch" in given.only:
        found.add(touch_table(packed, found.samples))
    for training in trainings:
        found.add(epochs_table(packed, training.speed, found.samples))
    for ladder in ladders if "ladder" in given.only and lmdb else []:
        for n in processes:
            found.add(ladder_table(ladder, n, found.samples))


if __name__ == "__main__":
    main()
