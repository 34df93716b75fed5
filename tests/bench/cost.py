#!/usr/bin/python3
"""What it costs: processor, memory, requests, operations on the PFS and bytes on the network for what was delivered, and
how planning grows with the files of the dataset and with the nodes of the job; the catalog of a million files; the index of
an LMDB of 1.28 million records; the orders of 100 million samples; a job of 1,024 nodes simulated.

    tests/bench/cost.py [--quick] [--rounds N] [--only delivery|network|growth|catalog|index|orders|simulator]... [--json FILE]
        [--huge]

The PFS is emulated without latency (with 1 ms where an index is made) or limit, and counts what it is asked for. Each system
reads the same epochs; of the others that are compared the processor time of their daemon is known, and what they ask of the
PFS.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import benchlib
import clairjob
import clairmount
import made_up_lmdb
import plan as planned
from benchlib import MIB, Findings, Table, counted_requests, cpu_seconds, progress, reader, write_list

EPOCHS = 3
BATCH = 32
SYSTEMS = {
    "bindfs": "bindfs",
    "mergerfs": "mergerfs",
    "rclone": "rclone mount, full cache",
    "no plan": "clairfs without a plan, cache of the dataset",
    "plan": "clairfs with a plan, cache of the dataset",
    "half": "clairfs with a plan, cache of half the dataset",
}
PYTHON_READER = """
import os, sys
root, names, how = sys.argv[1], open(sys.argv[2]).read().split(), sys.argv[3]
for name in names:
    with open(os.path.join(root, name), "rb", buffering=0 if how == "unbuffered" else -1) as file:
        file.read()
"""


class Delivery:
    def __init__(self, tmp, count, samples):
        self.samples = samples
        self.source = tmp / "src"
        self.names = benchlib.make_dataset(self.source, count)
        self.size = benchlib.bytes_of(self.source, self.names)
        orders = benchlib.plan_orders(self.names, 1, EPOCHS)
        self.orders = [write_list(tmp / f"order-{e}", order) for e, order in enumerate(orders)]
        self.delivered = EPOCHS * self.size / 1e9
        self.read = EPOCHS * count

    def pfs(self):
        return clairmount.slowfs(self.source, "--latency", "0", "--bandwidth", "0", "--attr-timeout", "1000")

    def epochs(self, name, pfs, path, pid, mount=None):
        """Reads all epochs, with pauses in which a daemon works ahead, as while training."""
        pfs.command("reset")
        before = cpu_seconds(pid)
        reader("files", path, *self.orders, "--batch", BATCH, "--compute-us", 5_000, mount=mount)
        self.samples.add(f"{name} cpu", (cpu_seconds(pid) - before) / self.delivered)
        resident = benchlib.resident_bytes(pid)
        self.samples.add(f"{name} memory", resident / self.size)
        self.samples.add(f"{name} memory delivered", resident / MIB / self.delivered)
        seen = pfs.counters()
        self.samples.add(f"{name} pfs ops", sum(seen["ops"].values()) / self.read)
        self.samples.add(f"{name} pfs opens", seen["ops"]["open"] / self.read)
        self.samples.add(f"{name} pfs bytes", seen["bytes"] / self.size / EPOCHS)

    def of_others(self, name):
        with self.pfs() as pfs, benchlib.OTHERS[name](pfs.path) as mount:
            self.epochs(name, pfs, mount.path, mount.pid)

    def of_clairfs(self, name, cache):
        with self.pfs() as pfs, clairmount.clairfs(pfs.path, "--ram", int(cache), "--staging", 32 * MIB) as mount:
            with counted_requests(mount) as counted:
                if name != "no plan":
                    planned.register(mount, seed=1, epochs=EPOCHS, batch=BATCH)
                self.epochs(name, pfs, mount.path, mount.pid, mount)
            self.samples.add(f"{name} requests", sum(counted.values()) / self.read)
            stats = mount.stats()
            beside = benchlib.resident_bytes(mount.pid) - stats["tiers"]["ram"]["bytes"]
            self.samples.add(f"{name} beside", (beside - stats["catalog"]["memory_bytes"]) / MIB)

    def of_python(self):
        """Requests of an interpreter's reads of files that are in the page cache."""
        with clairmount.clairfs(self.source, "--ram", 2 * self.size) as mount:
            reader("files", mount.path, self.orders[0], mount=mount)
            for how in ("buffered", "unbuffered"):
                with counted_requests(mount) as counted:
                    command = [sys.executable, "-c", PYTHON_READER, mount.path, self.orders[0], how]
                    subprocess.run(list(map(str, command)), timeout=benchlib.READ_SECONDS, check=True)
                self.samples.add(f"python {how}", sum(counted.values()) / len(self.names))

    def round(self, others):
        padded = benchlib.padded(self.source, self.names)
        for name in others:
            self.of_others(name)
        for name, cache in (("no plan", 1.02 * padded), ("plan", 1.02 * padded), ("half", padded / 2)):
            self.of_clairfs(name, cache)
        self.of_python()


def delivery_table(case):
    samples, count = case.samples, len(case.names)
    table = Table(f"Cost of {EPOCHS} epochs of {count:,} files of 110 KB from a PFS without latency")
    for name, text in SYSTEMS.items():
        if f"{name} cpu" not in samples.rounds:
            continue
        table.add(f"{text}: daemon CPU", samples.median(f"{name} cpu"), "s/GB")
        table.add(f"{text}: resident memory", samples.median(f"{name} memory"), "bytes a byte of the dataset")
        table.add(f"{text}: resident memory for what was delivered", samples.median(f"{name} memory delivered"), "MiB/GB")
        table.add(f"{text}: PFS operations", samples.median(f"{name} pfs ops"), "a sample")
        table.add(f"{text}: PFS opens", samples.median(f"{name} pfs opens"), "a sample")
        table.add(f"{text}: PFS bytes", samples.median(f"{name} pfs bytes"), "bytes a byte delivered")
        if f"{name} requests" in samples.rounds:
            table.add(f"{text}: FUSE requests", samples.median(f"{name} requests"), "a sample")
            table.add(f"{text}: memory beside RAM tier and catalog", samples.median(f"{name} beside"), "MiB", at_most=64)
    for how, text in (("buffered", "open()"), ("unbuffered", "open(buffering=0)")):
        table.add(f"page cache, Python's {text}: FUSE requests", samples.median(f"python {how}"), "a sample")
    return table


def delivery_chart(case):
    shown = {text: name for name, text in SYSTEMS.items() if f"{name} cpu" in case.samples.rounds}
    values = [case.samples.median(f"{name} cpu") for name in shown.values()]
    return benchlib.bars("Processor time of the daemon", "s/GB delivered", shown, {"daemon": values})


# Several nodes


def network_round(tmp, source, names, nodes, samples):
    size = benchlib.padded(source, names)
    lists = []
    for rank in range(nodes):
        orders = benchlib.plan_orders(names, 1, EPOCHS, world=nodes, rank=rank)
        lists.append([write_list(tmp / f"net-{rank}-{e}", order) for e, order in enumerate(orders)])
    with clairjob.clairjob(source, nodes, "--ram", int(1.02 * size / nodes), "--staging", 8 * MIB) as job:
        keys = f"name=bench seed=1 epochs={EPOCHS} world={nodes} ranks_per_node=1 batch={BATCH}\n"
        before = sum(map(cpu_seconds, job.pids))
        (job[0].path / ".clairfs/plan").write_text(keys)
        readers = []
        path = clairmount.build_dir() / "tests/bench/bench_reader"
        for node, orders in zip(job, lists, strict=True):
            command = [path, "files", node.path, *orders, "--batch", BATCH, "--compute-us", 20_000]
            readers.append(subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True))
        with contextlib.ExitStack() as stack:
            for process in readers:
                stack.callback(process.kill)
            runs = [json.loads(line) for p in readers for line in p.communicate(timeout=benchlib.READ_SECONDS)[0].splitlines()]
        delivered, files = sum(run["bytes"] for run in runs), sum(run["files"] for run in runs)
        samples.add(f"{nodes} cpu", (sum(map(cpu_seconds, job.pids)) - before) / (delivered / 1e9))
        samples.add(f"{nodes} bytes", job.stat("peers.bytes_in") / files)
        samples.add(f"{nodes} share", job.stat("peers.bytes_in") / delivered)
        samples.add(f"{nodes} chunks", job.stat("peers.received") / files)
        resident = sum(map(benchlib.resident_bytes, job.pids))
        samples.add(f"{nodes} memory", resident / size)
        samples.add(f"{nodes} memory delivered", resident / MIB / (delivered / 1e9))


def network_table(counts, samples):
    table = Table(f"Cost of peers, {EPOCHS} epochs, all nodes together keep the dataset")
    for nodes in counts:
        share = (nodes - 1) / nodes
        table.add(f"{nodes} nodes: bytes from peers", samples.median(f"{nodes} bytes") / 1e3, "KB a sample")
        note = f"{share:.2f} if homes were dealt out at random and each file came once for each use"
        table.add(f"{nodes} nodes: bytes from peers / delivered", samples.median(f"{nodes} share"), note=note)
        table.add(f"{nodes} nodes: chunks from peers", samples.median(f"{nodes} chunks"), "a sample")
        table.add(f"{nodes} nodes: CPU of all daemons", samples.median(f"{nodes} cpu"), "s/GB")
        table.add(f"{nodes} nodes: resident memory of all daemons", samples.median(f"{nodes} memory"), "bytes a byte of the dataset")
        memory = samples.median(f"{nodes} memory delivered")
        table.add(f"{nodes} nodes: resident memory of all daemons for what was delivered", memory, "MiB/GB")
    return table


# Growth


HUGE = 100_000_000  # files, or samples


def growth_filter(quick, huge):
    """Which of growth_bench are run."""
    if huge:
        return "."
    # Placing ten million files takes half a minute.
    return "register_plan/10{4,7}$|files:10{4,6}/" if quick else "-register_plan/10{8}/"


def growth(found, quick, huge, rounds):
    path = clairmount.build_dir() / "tests/bench/growth_bench"
    if not path.exists():
        return found.skip("growth of planning", "growth_bench is not built (apt-get install libbenchmark-dev)")
    command = [str(path), "--benchmark_format=json", f"--benchmark_filter={growth_filter(quick, huge)}"]
    timeout = 3600 if huge else 600
    for _ in range(rounds):
        printed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=timeout, check=True)
        for run in json.loads(printed.stdout)["benchmarks"]:
            name = "/".join(part for part in run["name"].split("/") if not part.startswith("iterations"))
            found.samples.add(f"{name} ms", run["real_time"])
            for counter in ("plan_bytes", "catalog_bytes", "placement_bytes"):
                if counter in run:
                    found.samples.add(f"{name} {counter}", run[counter])
    by_files, by_nodes = growth_series(found.samples)
    found.add(growth_by_files(by_files), *charts_by_files(by_files))
    found.add(growth_by_nodes(by_nodes), chart_by_nodes(by_nodes))


def growth_series(samples):
    """Figures by number of files, and those of a million files by number of nodes."""
    by_files, by_nodes = {}, {}
    for key in samples.rounds:
        name, _, what = key.rpartition(" ")
        words = name.replace(":", "/").split("/")
        if words[0] == "register_plan":
            by_files.setdefault(int(words[1]), {})[f"register {what}"] = samples.median(key)
        elif words[0] == "place":
            files, nodes = int(words[2]), int(words[4])
            if nodes == 8:
                by_files.setdefault(files, {})[f"place {what}"] = samples.median(key)
            if files == 1_000_000:
                by_nodes.setdefault(nodes, {})[what] = samples.median(key)
    return dict(sorted(by_files.items())), dict(sorted(by_nodes.items()))


def growth_by_files(by_files):
    table = Table("Growth of planning with the files of the dataset")
    for files, found in by_files.items():
        table.add(f"{files:,} files: a plan of one node", found["register ms"] / 1e3, "s", note="until its first epochs are known")
        table.add(f"{files:,} files: memory of the plan", found["register plan_bytes"] / files, "bytes a file")
        table.add(f"{files:,} files: memory of the catalog", found["register catalog_bytes"] / files, "bytes a file", note="names included")
        if "place ms" in found:
            table.add(f"{files:,} files: placement on 8 nodes", found["place ms"] / 1e3, "s", note="16 epochs of uses")
            table.add(f"{files:,} files: memory of the placement", found["place placement_bytes"] / files, "bytes a file")
    return table


def charts_by_files(by_files):
    seconds = {
        "a plan of one node": [found["register ms"] / 1e3 for found in by_files.values()],
        "placement on 8 nodes": [found["place ms"] / 1e3 if "place ms" in found else None for found in by_files.values()],
    }
    yield benchlib.lines("Time of planning by the files of the dataset", "files", "s", by_files, seconds, log=True)


def growth_by_nodes(by_nodes):
    table = Table("Growth of placement with the nodes of the job, 1,000,000 files")
    for nodes, found in by_nodes.items():
        table.add(f"{nodes} node{'s' if nodes > 1 else ''}: time", found["ms"] / 1e3, "s", note="16 epochs of uses by all nodes")
        table.add(f"{nodes} node{'s' if nodes > 1 else ''}: memory", found["placement_bytes"] / 1e6, "bytes a file")
    return table


def chart_by_nodes(by_nodes):
    series = {
        "time, s": [found["ms"] / 1e3 for found in by_nodes.values()],
        "memory, 100 MB": [found["placement_bytes"] / 1e8 for found in by_nodes.values()],
    }
    title = "Placement of 1,000,000 files by the nodes of the job"
    return benchlib.lines(title, "nodes", "s, 100 MB", [str(nodes) for nodes in by_nodes], series)


# The simulator

SIMULATED_NODES = (64, 1024)  # the first is what the others are compared with
NODE_BATCH = 32
SAMPLE = 0.1077  # MB, as in examples/scenarios/large-cluster.toml
SCENARIO = """
[job]
workers = {nodes}
epochs = 3
batch = {batch}
drop_last = true
sampler = "torch.distributed"
seed = 1
[samples]
size = "fixed"
count = {count}
mean = {sample}
[worker]
compute = 300
preprocess = 2000
network = 10000
network_latency_ms = 0.02
pfs_network = 6000
[staging]
capacity = "1G"
threads = 8
read = {{1 = 4000, 8 = 20000}}
[class.ram]
capacity = {ram}
threads = 4
read = {{1 = 4000, 4 = 12000}}
[pfs]
read = {{1 = 300, 8 = 2000, 64 = 10000}}
latency_ms = 0.5
"""


def scenario(nodes, count):
    """All nodes together keep the dataset."""
    return SCENARIO.format(nodes=nodes, batch=nodes * NODE_BATCH, count=count, sample=SAMPLE, ram=count * SAMPLE / nodes)


def simulate(tmp, nodes, count, samples):
    path = tmp / "job.toml"
    path.write_text(scenario(nodes, count))
    command = (clairmount.binary(), "simulate", path, "--policy", "clairfs", "--json")
    printed, seconds, memory = benchlib.run_measured(*command, timeout=600 + count // 10_000)
    (point,) = json.loads(printed)
    if point["runtime_s"] is None:
        raise SystemExit(f"the simulator refused {nodes} nodes: {point['refusal']}")
    progress(f"simulated {nodes} nodes, {count:,} samples: {seconds:.1f} s")
    for figure, value in (("seconds", seconds), ("memory", memory), ("runtime", point["ratio_to_lower_bound"])):
        samples.add(f"simulated {count} {nodes} {figure}", value)


def simulator(found, count, huge):
    cases = [(nodes, count) for nodes in SIMULATED_NODES] + [(SIMULATED_NODES[-1], HUGE)] * huge
    with clairmount.tempdir() as tmp:
        for nodes, of in cases:
            simulate(tmp, nodes, of, found.samples)
    found.add(simulator_table(cases, found.samples))


def simulator_table(cases, samples):
    table = Table("clairfs simulate: three epochs, policy clairfs, 1 run")
    for nodes, count in cases:
        text = f"{nodes:,} nodes, {count:,} samples"
        for figure, name, of, unit in (("seconds", "time", 1, "s"), ("memory", "memory", count, "bytes a sample")):
            key, base = (f"simulated {count} {n} {figure}" for n in (nodes, SIMULATED_NODES[0]))
            beside = key != base and base in samples.rounds
            ratio = (samples.ratio(key, base), f"{SIMULATED_NODES[0]} nodes") if beside else None
            table.add(f"{text}: {name}", samples.median(key) / of, unit, ratio=ratio)
        table.add(f"{text}: predicted runtime / lower bound", samples.median(f"simulated {count} {nodes} runtime"))
    return table


# The catalog

CATALOG_LINE = re.compile(r"^ *(\S.*?) +([\d.]+) s +([\d.]+) x find$", re.MULTILINE)
BESIDE_NAMES = re.compile(r"([\d.]+) bytes an entry beside names")
RELOAD_SECONDS = 2e-6  # a file


def catalog(found, files):
    path = clairmount.build_dir() / "tests/bench/catalog_bench"
    if not path.exists():
        return found.skip("the catalog", "catalog_bench is not built (apt-get install libbenchmark-dev)")
    inodes = os.statvfs(tempfile.gettempdir()).f_favail
    if 0 < inodes < files:  # some filesystems have no limit, and say 0
        return found.skip(f"the catalog of {files:,} files", f"{tempfile.gettempdir()} has {inodes:,} inodes left")
    progress(f"catalog of {files:,} files")
    timeout = 900 * max(1, files // 1_000_000)
    printed = subprocess.run([path, str(files)], stdout=subprocess.PIPE, text=True, timeout=timeout, check=True).stdout
    table = Table(f"Catalog of {files:,} files whose inodes are in memory, best of 3")
    for what, seconds, share in CATALOG_LINE.findall(printed):
        goal = {"at_most": RELOAD_SECONDS * files} if what.startswith("reload") else {}
        table.add(what, float(seconds), "s", ratio=(float(share), "find"), **goal)
    table.add("memory beside names", float(BESIDE_NAMES.search(printed)[1]), "bytes an entry", at_most=100)
    found.add(table)


# The index of a database

RECORDS, RECORD = 1_281_167, 110_000  # ImageNet-1k
LATENCY = 1000  # microseconds of each request
INDEX_SECONDS, INDEX_MB, INDEX_RELOAD_SECONDS = 1, 80, 0.02


def index_of(mount, how):
    """The seconds that the mount says that its index took; `how`: "made" or "reloaded"."""
    command = [clairmount.binary(), "index", mount.path / "train.lmdb", "keys=cursor"]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=benchlib.READ_SECONDS, check=True).stdout
    seconds = re.search(rf"{how} in ([\d.]+) s", printed)
    if not seconds or f"samples  {RECORDS} in 1 file" not in printed:
        raise SystemExit(f"WRONG INDEX, or not {how}: {printed}")
    return float(seconds[1])


def index_round(source, samples):
    slow = clairmount.slowfs(source, "--latency", LATENCY, "--attr-timeout", 1000)
    with slow as pfs, clairmount.clairfs(pfs.path, "--ram", "64M") as mount:
        pfs.command("reset")
        begin = time.monotonic()
        samples.add("index made", index_of(mount, "made"))
        samples.add("index command", time.monotonic() - begin)
        seen = pfs.counters()
        samples.add("index MB", seen["bytes"] / 1e6)
        samples.add("index reads", seen["ops"]["read"])
        samples.add("index reloaded", index_of(mount, "reloaded"))


def index(found, rounds):
    with clairmount.tempdir() as source:
        pages = made_up_lmdb.make_lmdb(source / "train.lmdb", RECORDS, RECORD)
        os.sync()
        for round_ in range(rounds):
            progress(f"index of {RECORDS:,} records, round {round_ + 1} of {rounds}")
            index_round(source, found.samples)
    median = found.samples.median
    table = Table(f"Index of an LMDB of {RECORDS:,} records of {RECORD // 1000} KB, PFS {LATENCY / 1000:g} ms a request")
    table.add("made in", median("index made"), "s", at_most=INDEX_SECONDS)
    note = f"{pages * benchlib.PAGE / 1e6:.1f} MB are the pages that lead to records"
    table.add("read of the PFS", median("index MB"), "MB", at_most=INDEX_MB, note=note)
    table.add("reads of the PFS", median("index reads"), "")
    table.add("clairfs index, from its start to its end", median("index command"), "s")
    table.add("saved index, reloaded in", median("index reloaded"), "s", at_most=INDEX_RELOAD_SECONDS)
    found.add(table)


# Orders

# Bytes a sample of an epoch's order and of what is there while it is made: the table in plan/samplers/README.md. Those of 0
# are computed sample by sample.
ORDER_BYTES = {
    "torch.sequential": 0,
    "timm.ordered": 0,
    "strided": 0,
    "megatron.sequential": 0,
    "nopfs": 8,
    "dali": 8,
    "accelerate": 8,
    "megatron.random": 8,
    "tf.shuffle": 8,
    "tf.list_files": 8,
    "timm.repeataug": 16,  # three repeats
    "torchvision.ra": 16,
    "streaming": 28,  # py1e, one canonical node
}
OTHER_ORDER_BYTES = 4
NO_SAMPLES = {"list", "torch.subset", "webdataset"}  # the user's file, and shards


def orders(found, count):
    """One process for each sampler, so that its memory is its own."""
    path = clairmount.build_dir() / "tests/bench/sampler_bench"
    if not path.exists():
        return found.skip("orders of many samples", "sampler_bench is not built (apt-get install libbenchmark-dev)")
    run = lambda *words: subprocess.run([path, *words], stdout=subprocess.PIPE, text=True, timeout=900, check=True).stdout  # noqa: E731
    table = Table(f"The order of an epoch of {count:,} samples")
    for name in run("--names").split():
        if name in NO_SAMPLES:
            continue
        progress(f"order of {count:,} samples: {name}")
        made = json.loads(run(name, str(count)))
        if "refused" in made:
            found.skip(f"order of {count:,} samples: {name}", made["refused"])
            continue
        most = ORDER_BYTES.get(name, OTHER_ORDER_BYTES)
        table.add(f"{name}: time", made["seconds"], "s")
        table.add(f"{name}: memory", made["bytes"] / count, "bytes a sample", at_most=1.02 * most + 0.2)
    found.add(table)


def main():
    def more(parser):
        parser.add_argument("--huge", action="store_true", help="also 10^8 files or samples: planning, catalog, simulator; for hours")

    parts = ("delivery", "network", "growth", "catalog", "index", "orders", "simulator")
    given = benchlib.arguments(__doc__, "default: 5, with --quick 2", parts, more)
    rounds = given.rounds or (2 if given.quick else 5)
    count = 1_000 if given.quick else 4_000
    found = Findings(given)
    with clairmount.tempdir() as tmp:
        case = Delivery(tmp, count, found.samples)
        others = list(benchlib.installed_others(found)) if "delivery" in given.only else []
        for round_ in range(rounds):
            progress(f"cost, round {round_ + 1} of {rounds}")
            if "delivery" in given.only:
                case.round(others)
            if "network" in given.only:
                for nodes in (2, 4):
                    network_round(tmp, case.source, case.names, nodes, found.samples)
    if "delivery" in given.only:
        found.add(delivery_table(case), delivery_chart(case))
    if "network" in given.only:
        found.add(network_table((2, 4), found.samples))
    if "growth" in given.only:
        growth(found, given.quick, given.huge, rounds)
    if "catalog" in given.only:
        catalog(found, 100_000 if given.quick else 1_000_000)
        if given.huge:
            catalog(found, HUGE)
    if "index" in given.only:
        index(found, rounds)
    if "orders" in given.only:
        orders(found, 10_000_000 if given.quick else 100_000_000)
    if "simulator" in given.only:
        # A quarter of a million: 244 a node of 1,024, seven batches an epoch. A million takes more than a minute.
        simulator(found, 250_000 if given.quick else 10_000_000, given.huge)


if __name__ == "__main__":
    main()
