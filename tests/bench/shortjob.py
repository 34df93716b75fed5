#!/usr/bin/python3
"""A short job on a fast PFS, in which no computing hides what is late: four nodes in NoPFS's order, cold each time.

    tests/bench/shortjob.py [--quick] [--rounds N] [--json FILE]

Batches of 25 files a node do not compute, but for one case in which an epoch computes 1.5 times as long as the PFS needs
for the dataset. Daemons, catalogs and tiers are new in each run; starting them is not measured. What the emulated PFS
counted is the witness for what was read; data is compared with the source. Beside it the same readers straight on the
PFS, and on the source's warm page cache: that time is in no bound. Where a figure has to be reached in every run, the
worst of all rounds is what has the target.
"""

import statistics

import benchlib
import clairjob
import clairmount
from benchlib import MIB, Findings, Table, progress
from jobcase import JobCase, require_no_failed_reads


class ShortJob(JobCase):
    batch = 25
    mean = 109_000
    staging = 16 * MIB
    sampler = "nopfs"
    batch_of_plan = 100  # of all nodes together


COUNT = 2000
EPOCHS = 5
BANDWIDTH = 100_000_000
COMPUTE = 1.5  # times what the PFS needs for the dataset
FIRST_SECONDS = 0.15  # the PFS needs 0.11 for the first batches of all nodes together
CASES = {  # label: (RAM tier of a node, computing, goals)
    "N·D = 1.5 S": (78 * MIB, 0, {"worst bytes": 1.005, "total / bound": 1.02}),
    "N·D = 1.0 S": (52 * MIB, 0, {"worst bytes": 1.01, "total / bound": 1.02}),
    "N·D = 0.5 S": (26 * MIB, 0, {"total / PFS": 1.02}),
    "N·D = 1.0 S, computing": (52 * MIB, COMPUTE, {"total / bound": 1.02, "stall": 0.5}),
}
ALONE = "the PFS alone"
WARM = "the source's warm page cache"


def through_clairfs(case, label, samples):
    tier, compute, _ = CASES[label]
    case.set_compute(compute)
    if compute:
        case.measure_warm()
    with case.pfs() as pfs:
        with clairjob.clairjob(pfs.path, case.nodes, "--ram", tier, "--staging", case.staging) as job:
            pfs.command("reset")
            for node in job:
                (node.path / ".clairfs/plan").write_text(case.plan())
            per_node = case.read([node.path for node in job])
            read = pfs.counters()["bytes"]
            require_no_failed_reads(label, job)
    record(case, label, case.nodes * tier / case.size, per_node, read, samples)


def straight(case, samples):
    case.set_compute(0)
    with case.pfs() as pfs:
        per_node = case.read([pfs.path] * case.nodes)
        read = pfs.counters()["bytes"]
    record(case, ALONE, 0, per_node, read, samples)


def warm(case, samples):
    case.set_compute(0)
    samples.add(f"{WARM} total", total_of(case.read([case.source] * case.nodes)))


def total_of(per_node):
    """The slowest node's time is the job's."""
    return max(sum(run["seconds"] for run in runs) for runs in per_node)


def record(case, label, share, per_node, read, samples):
    """`share`: N·D / S."""
    total = total_of(per_node)
    figures = {
        "first": max(runs[0]["waits"][0] for runs in per_node),
        "total": total,
        "total / bound": total / case.bound(share),
        "bytes": read / case.least_bytes(share),
        "total / PFS": total / (read / case.bandwidth),
    }
    if case.compute_us:
        figures["stall"] = 100 * statistics.mean(case.stall(runs[1:]) for runs in per_node)
    for figure, value in figures.items():
        samples.add(f"{label} {figure}", value)
    progress(f"{label}: first batch {figures['first']:.3f} s, total {total:.2f} s, PFS bytes {figures['bytes']:.4f} of the least")


def goal(goals, figure):
    return {"at_most": goals[figure]} if figure in goals else {}


def table_of(title, first_batches, samples):
    """`first_batches`: seconds that the PFS needs for them."""
    table = Table(title)

    def add(label, figure, text, unit="", **goal):
        table.add(f"{label}: {text}", samples.median(f"{label} {figure}"), unit, **goal)

    def add_worst(label, figure, text, unit="", **goal):
        table.add(f"{label}: {text}, worst run", max(samples.rounds[f"{label} {figure}"]), unit, **goal)

    table.add("the PFS's time for the first batches of all nodes", first_batches, "s")
    add(ALONE, "first", "first batch of the slowest node", "s")
    add(ALONE, "total", "total", "s")
    add(WARM, "total", "total", "s")
    for label, (_, _, goals) in CASES.items():
        add(label, "first", "first batch of the slowest node", "s")
        add_worst(label, "first", "first batch of the slowest node", "s", at_most=FIRST_SECONDS)
        add(label, "total", "total", "s")
        add(label, "total / bound", "total / lower bound", **goal(goals, "total / bound"))
        add_worst(label, "total / bound", "total / lower bound")
        add(label, "total / PFS", "total / the PFS's time for what was read", **goal(goals, "total / PFS"))
        add(label, "bytes", "PFS bytes / least")
        add_worst(label, "bytes", "PFS bytes / least", **goal(goals, "worst bytes"))
        if "stall" in goals:
            add(label, "stall", "stall, later epochs", "%", **goal(goals, "stall"))
    return table


def main():
    given = benchlib.arguments(__doc__, "default: 3; with --quick 1")
    rounds = given.rounds or (1 if given.quick else 3)
    found = Findings(given)
    with clairmount.tempdir() as tmp:
        case = ShortJob(tmp, COUNT, EPOCHS, BANDWIDTH, 0)
        for round_ in range(rounds):
            progress(f"short job, round {round_ + 1} of {rounds}")
            warm(case, found.samples)
            straight(case, found.samples)
            for label in CASES:
                through_clairfs(case, label, found.samples)
        title = (
            f"A short job of {case.nodes} nodes, {case.count:,} files, {case.size / 1e6:.0f} MB, {case.epochs} epochs, a PFS of "
            f"{case.bandwidth // 1_000_000} MB/s and {case.latency_us} us"
        )
        found.add(table_of(title, case.first_batches, found.samples))


if __name__ == "__main__":
    main()
