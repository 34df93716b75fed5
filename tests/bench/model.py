#!/usr/bin/python3
"""The performance model against reality: four nodes on one emulated PFS, run and simulated.

    tests/bench/model.py [--quick] [--rounds N] [--only CASE]... [--json FILE] [--keep DIR]

The scenario is what was measured before any of the cases: the PFS, memory and disk by `clairfs calibrate`, the network
by a job of its own on the same nodes, the reader on the source's warm page cache. All cases share it; they differ in what
the mounts are given (RAM, NVMe) and in how long a batch computes. Every batch ends with a barrier, as in the model.
"""

import dataclasses
import json
import pathlib
import statistics
import subprocess
import time
import tomllib

import benchlib
import clairjob
import clairmount
from benchlib import Findings, Table, progress
from jobcase import BATCH, NODES, JobCase, require_no_failed_reads

MB = 1 << 20
# Bytes/s. Four nodes on one machine share its cores: at 40 MB/s a tenth of a step is processor time of all of them.
BANDWIDTH = 20_000_000
THREADS = 16  # what a node reads from the PFS at once, about: ConcurrencyLimit adapts it
CLOSE = 0.1  # how far a prediction may be off, as a share
# A stall below this share of the runtime is noise: no ratio of two such is asked for.
NOTHING = 0.01


@dataclasses.dataclass
class Setup:
    share: float  # N·D / S
    compute: float  # what an epoch computes, in units of reading the dataset from the PFS
    nvme: float = 0  # part of D that is NVMe
    policy: str = "clairfs"


CASES = {
    "PFS-bound, N·D = 1.5 S": Setup(1.5, 0.4),
    "PFS-bound, N·D = 1.0 S": Setup(1.0, 0.4),
    "PFS-bound, N·D = 0.5 S": Setup(0.5, 0.4),
    "compute-bound, N·D = 1.5 S": Setup(1.5, 1.25),
    "compute-bound, N·D = 1.0 S": Setup(1.0, 1.25),
    "compute-bound, N·D = 0.5 S": Setup(0.5, 1.25),
    "PFS-bound, N·D = 1.0 S, half NVMe": Setup(1.0, 0.4, nvme=0.5),
    "PFS-bound, N·D = 0": Setup(0, 0.4),
    "no clairfs, one thread reads": Setup(0, 0.4, policy="naive"),
}


# The scenario


def run_clairfs(*words):
    command = [str(word) for word in (clairmount.binary(), *words)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=True).stdout


def calibrate(case, tmp):
    """What `clairfs calibrate` says of the PFS, the memory and the disk."""
    (tmp / "disk").mkdir()
    words = ("--nvme", tmp / "disk", "--threads", THREADS, "--seconds", 1, "--bytes", "128M")
    with case.pfs() as pfs:
        return tomllib.loads(run_clairfs("calibrate", pfs.path, *words))


def rate(case):
    """Bytes/s that a node computes: the model's samples compute as long as they are large."""
    return int(case.size / NODES / case.steps / (case.compute_us * 1e-6))


def reading_time(case, per_node):
    """Seconds in which the slowest node reads a batch that nothing keeps it from reading; not of the first epoch."""
    waits = [wait for wait, _ in case.last_of_batches([runs[1:] for runs in per_node])]
    return statistics.median(waits)


class Nodes:
    """What the nodes find out in a job that the source does not hold up."""

    def __init__(self, case):
        case.set_compute(0.4)  # as in the cases
        options = ("--compute-rate", rate(case))
        self.bare_batch = reading_time(case, case.read([case.source] * NODES, *options, *case.barrier()))
        with clairjob.clairjob(case.source, NODES, "--ram", case.ram(1), "--staging", case.staging) as job:
            (job[0].path / ".clairfs/plan").write_text(case.plan())
            per_node = case.read([node.path for node in job], *options, *case.barrier())
            peers = [peer for node in job for peer in node.stats()["job"]["peers"] if "bandwidth" in peer]
        # Reading is computing: what it takes is the processor's time, of four nodes on the cores of one machine.
        self.batch = reading_time(case, per_node)
        self.latency = statistics.median(peer["latency_seconds"] for peer in peers)
        self.bandwidth = statistics.median(peer["bandwidth"] for peer in peers) / MB


def table(values):
    return "{" + ", ".join(f"{users} = {rate}" for users, rate in values.items()) + "}"


class Machine:
    """What was measured before the cases."""

    def __init__(self, case, tmp):
        progress("measuring the parameters of the scenario")
        self.parts = calibrate(case, tmp)
        self.nodes = nodes = Nodes(case)
        progress(
            f"a batch is read in {1000 * nodes.bare_batch:.1f} ms from the source's page cache, in {1000 * nodes.batch:.1f} ms from "
            f"mounts; a fetch from a peer: {1000 * nodes.latency:.2f} ms and {nodes.bandwidth:.0f} MB/s; PFS by reads in flight: "
            f"{self.parts['pfs']['read']} MB/s"
        )

    def batch(self, setup):
        """Seconds in which a node reads a batch that is there: the reader's own work, as computing is."""
        return self.nodes.bare_batch if setup.policy == "naive" else self.nodes.batch

    def scenario(self, case, setup):
        batch = case.size / NODES / case.steps
        compute = batch / (batch / rate(case) + self.batch(setup)) / MB
        pfs, memory, disk = self.parts["pfs"]["read"], self.parts["class"]["ram"]["read"], self.parts["class"]["nvme"]
        text = f"""
[job]
workers = {NODES}
epochs = {case.epochs}
batch = {BATCH * NODES}
sampler = "torch.distributed"
seed = 1
[samples]
size = "path"
path = "{case.source}"
[worker]
compute = {compute}
preprocess = 1e6       # nothing is decoded
network = {self.nodes.bandwidth}
network_latency_ms = {1000 * self.nodes.latency}
pfs_network = {max(pfs.values())}
[staging]
capacity = {case.staging / MB}
threads = {THREADS}
read = {table(memory)}
[class.ram]
capacity = {case.ram(setup.share * (1 - setup.nvme)) / MB}
threads = {THREADS}
read = {table(memory)}
"""
        if setup.nvme:
            text += f"""
[class.nvme]
capacity = {case.ram(setup.share * setup.nvme) / MB}
threads = {THREADS}
read = {table(disk["read"])}
write = {table(disk["write"])}
"""
        return text + f"""
[pfs]
read = {table(pfs)}
[model]
reads = "divided"
pfs = "per-reader"
fills = "raw"
computing = "per-batch"
order = "by-time"
"""


def predict(case, setup, machine, path):
    path.write_text(machine.scenario(case, setup))
    (point,) = json.loads(run_clairfs("simulate", path, "--policy", setup.policy, "--json"))
    return {
        "runtime": point["runtime_s"],
        "stall": point["stall_s"],
        "epochs": point["epoch_s"],
        **{source: point["bytes_by_source"][source] / 1e6 for source in ("pfs", "peer", "local")},
    }


# Reality


def measured(case, batch, per_node, seconds, pfs_bytes, peer_bytes, kept):
    """`batch`: seconds of reading one that is there. `kept`: bytes of the dataset that some node keeps, each counted
    once."""
    consumed = case.size * case.epochs
    return {
        "runtime": seconds,
        "epochs": [max(run["seconds"] for run in runs) for runs in zip(*per_node, strict=True)],
        # Of a batch, what the node waited that ended it last, beyond reading what is there.
        "stall": sum(wait - batch for wait, _ in case.last_of_batches(per_node)),
        "pfs": pfs_bytes / 1e6,
        "peer": peer_bytes / 1e6,
        # What was consumed and came neither from a peer nor straight from the PFS.
        "local": (consumed - peer_bytes - (pfs_bytes - min(kept, pfs_bytes))) / 1e6,
    }


def run_job(case, setup, machine, tmp):
    # Memory of transfers keeps what it held last and so is cache too: 16 MiB a node with chunks of 1 MiB.
    options = ["--chunk", "1M", "--staging", case.staging, "--ram", case.ram(setup.share * (1 - setup.nvme))]
    if setup.nvme:
        for rank in range(NODES):
            (tmp / f"nvme-{rank}").mkdir(mode=0o700, exist_ok=True)
        options += ["--nvme", f"{tmp}/nvme-{{rank}}:{case.ram(setup.share * setup.nvme)}"]
    with case.pfs() as pfs, clairjob.clairjob(pfs.path, NODES, *options) as job:
        pfs.command("reset")
        begin = time.monotonic()
        (job[0].path / ".clairfs/plan").write_text(case.plan())
        per_node = case.read([node.path for node in job], "--compute-rate", rate(case), *case.barrier())
        seconds = time.monotonic() - begin
        require_no_failed_reads("the model's job", job)
        kept = case.size - job[0].stat("job.placement.homeless_bytes")
        return measured(case, machine.batch(setup), per_node, seconds, pfs.counters()["bytes"], job.stat("peers.bytes_in"), kept)


def run_without(case, setup, machine):
    with case.pfs() as pfs:
        begin = time.monotonic()
        per_node = case.read([pfs.path] * NODES, "--compute-rate", rate(case), *case.barrier())
        seconds = time.monotonic() - begin
        return measured(case, machine.batch(setup), per_node, seconds, pfs.counters()["bytes"], 0, 0)


# The comparison

UNITS = {"runtime": "s", "stall": "s", "pfs": "MB", "peer": "MB", "local": "MB"}


def may_be_off(figure, real):
    """CLOSE of it. Where there is next to nothing, NOTHING of what there is: a stall of a runtime, bytes of all bytes."""
    whole = real["runtime"] if UNITS[figure] == "s" else sum(real[s] for s in ("pfs", "peer", "local"))
    return max(CLOSE * real[figure], NOTHING * whole)


def compare(case, machine, samples, keep):
    """One round of all cases; adds to `samples`."""
    with clairmount.tempdir() as tmp:
        for number, (label, setup) in enumerate(case.setups.items()):
            case.set_compute(setup.compute)
            predicted = predict(case, setup, machine, (keep or tmp) / f"case-{number}.toml")
            real = run_without(case, setup, machine) if setup.policy == "naive" else run_job(case, setup, machine, tmp)
            for figure in UNITS:
                samples.add(f"{label}: {figure}, predicted", predicted[figure])
                samples.add(f"{label}: {figure}, measured", real[figure])
            for epoch, seconds in enumerate(real["epochs"]):
                samples.add(f"{label}: epoch {epoch}, predicted", predicted["epochs"][epoch])
                samples.add(f"{label}: epoch {epoch}, measured", seconds)
            by_epoch = " ".join(f"{p:.2f}/{r:.2f}" for p, r in zip(predicted["epochs"], real["epochs"], strict=True))
            progress(f"{label}: {predicted['runtime']:.2f} s predicted, {real['runtime']:.2f} s measured; epochs {by_epoch}")


def comparison(setups, rounds, samples):
    lines = [("", "", "predicted", "measured", "ratio", "reached")]
    result = Table(f"Model and reality: {NODES} nodes")
    for label in setups:
        predicted, real = (
            {figure: samples.median(f"{label}: {figure}, {kind}") for figure in UNITS} for kind in ("predicted", "measured")
        )
        for figure, unit in UNITS.items():
            p, r = predicted[figure], real[figure]
            most = may_be_off(figure, real) if p or r else None  # that there is nothing is no prediction come true
            good = "" if most is None else "yes" if abs(p - r) <= most else "NO"
            ratio = f"{p / r:.3f}" if r > 0 else "-"
            name = label if figure == "runtime" else ""
            lines.append((name, f"{figure}, {unit}", f"{p:.2f}", f"{r:.2f}", ratio, good))
            note = f"predicted {p:.2f}, measured {r:.2f}, {benchlib.runs_text(rounds)}"
            result.add(f"{label}: {figure}, off by", abs(p - r), unit, at_most=most, note=note)
    return result, lines


def print_aligned(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        cells = [f"{cell:<{w}}" if i < 2 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
        print("  ".join(cells).rstrip())


def main():
    def more(parser):
        parser.add_argument("--only", action="append", metavar="WORD", help="cases whose name has the word; default: all")
        parser.add_argument("--keep", metavar="DIR", type=pathlib.Path, help="write the scenario files there")

    given = benchlib.arguments(__doc__, "default: 1", more=more)
    found = Findings(given)
    samples = found.samples
    with clairmount.tempdir() as tmp:
        case = JobCase(tmp, 512 if given.quick else 1536, 3 if given.quick else 4, BANDWIDTH, 1)
        case.setups = {k: v for k, v in CASES.items() if not given.only or any(word in k for word in given.only)}
        machine = Machine(case, tmp)
        rounds = given.rounds or 1
        for _ in range(rounds):
            compare(case, machine, samples, given.keep)
        result, lines = comparison(case.setups, rounds, samples)
        print_aligned(lines)
        found.add(result)


if __name__ == "__main__":
    main()
