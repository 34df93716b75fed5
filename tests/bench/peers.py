#!/usr/bin/python3
"""What peers are worth: a job of two or four nodes on an emulated PFS that all of them share.

    tests/bench/peers.py [--quick] [--rounds N] [--only job|records|death|idle|start]... [--json FILE]

The nodes are ranks of mpiexec on this machine, each with a mount and a reader of its own. Computing takes half as
long again as the PFS needs for the dataset once, so that the PFS is not the bound of the first epoch. What the
emulated PFS counted is the witness for what was read. Data is compared with the source. The other ways to read, those
of epochs.py, have as much cache on each node, and nodes know nothing of each other. The same of the records of one
LMDB, which readers map.
"""

import concurrent.futures
import contextlib
import shutil
import statistics
import subprocess
import time

import benchlib
import clairjob
import clairmount
from benchlib import Findings, Table, progress, reader
from jobcase import BATCH, NODES, JobCase, RecordsCase, require_no_failed_reads

COMPUTE = 1.5  # times what the PFS needs for the dataset
IDLE_SECONDS, QUICK_IDLE_SECONDS = 20, 10
SETTLE_SECONDS = 5
DEATH_SECONDS = 3.5  # a node is late when it was silent for 3 s (net/group/membership.h); then the PFS is read


def make_case(tmp, nodes, quick, kind=JobCase):
    tmp = tmp / f"{kind.__name__}-{nodes}-nodes"
    tmp.mkdir()
    return kind(tmp, 512 if quick else 640, 3 if quick else 4, 20_000_000, COMPUTE, nodes)


def job_round(case, label, share, samples, *options):
    with case.pfs() as pfs:
        with clairjob.clairjob(pfs.path, case.nodes, "--ram", case.ram(share), "--staging", case.staging, *options) as job:
            pfs.command("reset")
            for node in job:  # one would do, were it not for --peers off
                (node.path / ".clairfs/plan").write_text(case.plan())
            per_node = case.read([node.path for node in job])
            seen = pfs.counters()
            samples.add(f"{case.nodes} {label} network", job.stat("peers.bytes_in"))
            require_no_failed_reads(f"{case.nodes} nodes, {label}", job)
    record(case, label, share, per_node, seen, samples)


OTHER_SHARE = 1.0  # N·D / S of what has a cache
WORKERS = ("--workers", 4)
OTHERS = {
    "no cache": "no cache, one reader a node",
    "loader": "no cache, 4 DataLoader workers a node",
    "rclone": "rclone mounts with that cache, 4 workers",
    "no plan": "clairfs without a plan (first touch, MONARCH's rule), 4 workers",
}


def others_of(found):
    """Those that can be measured here."""
    if shutil.which("rclone"):
        return OTHERS
    found.skip("jobs through rclone", "not installed (apt-get install rclone)")
    return {label: text for label, text in OTHERS.items() if label != "rclone"}


def other_round(case, label, samples):
    with case.pfs() as pfs, contextlib.ExitStack() as stack:
        cached = label in ("rclone", "no plan")
        if label == "rclone":
            mounts = [stack.enter_context(benchlib.rclone(pfs.path, case.ram(OTHER_SHARE))) for _ in range(case.nodes)]
        elif label == "no plan":
            options = ("--ram", case.ram(OTHER_SHARE), "--staging", case.staging)
            mounts = stack.enter_context(clairjob.clairjob(pfs.path, case.nodes, *options))
        else:
            mounts = [pfs] * case.nodes
        pfs.command("reset")
        roots = [mount.path for mount in mounts]
        workers = () if label == "no cache" else WORKERS
        per_node = case.read(roots, *workers, dropping=cached)
        seen = pfs.counters()
        if label == "no plan":
            require_no_failed_reads(f"{case.nodes} nodes, {label}", mounts)
        record(case, label, OTHER_SHARE, per_node, seen, samples, warm=0 if workers else None)


def record(case, label, share, per_node, seen, samples, warm=None):
    """`warm`: see JobCase.stall(); workers read while the reader computes. The slowest node's time is the job's."""
    seconds = max(sum(run["seconds"] for run in runs) for runs in per_node)
    label = f"{case.nodes} {label}"
    samples.add(f"{label} total", seconds)
    samples.add(f"{label} total / bound", seconds / case.bound(share))
    samples.add(f"{label} first batch", max(runs[0]["waits"][0] for runs in per_node) / case.first_batches)
    samples.add(f"{label} bytes", seen["bytes"] / case.least_bytes(share))
    samples.add(f"{label} opens", seen["opens_per_file_max"])
    samples.add(f"{label} stall 0", statistics.mean(case.stall(runs[:1], warm) for runs in per_node))
    samples.add(f"{label} stall later", statistics.mean(case.stall(runs[1:], warm) for runs in per_node))
    progress(
        f"{label}: {seconds:.2f} s, {seconds / case.bound(share):.3f} of the bound, PFS bytes "
        f"{seen['bytes'] / case.least_bytes(share):.4f} of the least, opens of a file at most {seen['opens_per_file_max']}"
    )


CASES = {  # label: (N·D / S, mount options)
    "N·D = 1.5 S": (1.5, ()),
    "N·D = 1.0 S": (1.0, ()),
    "N·D = 0.5 S": (0.5, ()),
    "no peers, N·D = 1.0 S": (1.0, ("--peers", "off")),
    "NoPFS's rule, N·D = 1.0 S": (1.0, ("--placement", "nopfs")),
    "NoPFS's rule, N·D = 0.5 S": (0.5, ("--placement", "nopfs")),
}
FEWER = ("N·D = 1.0 S", "no peers, N·D = 1.0 S", "NoPFS's rule, N·D = 1.0 S")  # of two nodes


def cases_of(nodes, quick):
    """What is measured of a job of `nodes`."""
    left_out = "NoPFS's rule, N·D = 0.5 S" if quick else None
    return {label: case for label, case in CASES.items() if (nodes > 2 or label in FEWER) and label != left_out}


def job_table(case, cases, others, samples):
    title = (
        f"{case.nodes} nodes on one PFS, {case.bandwidth // 1_000_000} MB/s and {case.latency_us} us: {case.count:,} files, "
        f"{case.size / 1e6:.0f} MB, {case.epochs} epochs"
    )
    table = Table(title)
    for label, (share, options) in cases.items():
        ours = not options
        enough = ours and share >= 1
        goal = (lambda most, on: {"at_most": most} if on else {})  # noqa: E731
        table.add(f"{label}: lower bound", case.bound(share), "s")
        table.add(f"{label}: total / lower bound", samples.median(f"{case.nodes} {label} total / bound"), **goal(1.02, ours))
        first = samples.median(f"{case.nodes} {label} first batch")
        table.add(f"{label}: first batch of the slowest node / the PFS's time for all first batches", first)
        table.add(f"{label}: PFS bytes / least", samples.median(f"{case.nodes} {label} bytes"), **goal(1.01, ours))
        table.add(f"{label}: PFS opens of a file, at most", samples.median(f"{case.nodes} {label} opens"), **goal(1, enough))
        table.add(f"{label}: stall, epoch 0", 100 * samples.median(f"{case.nodes} {label} stall 0"), "%")
        later = 100 * samples.median(f"{case.nodes} {label} stall later")
        table.add(f"{label}: stall, later epochs", later, "%", **goal(0.5, enough))
        table.add(f"{label}: from peers", samples.median(f"{case.nodes} {label} network") / 1e6, "MB")
    for label, text in others.items():
        key = f"{case.nodes} {label}"
        table.add(f"{text}: total / lower bound of N·D = 1.0 S", samples.median(f"{key} total / bound"))
        table.add(f"{text}: PFS bytes / S", samples.median(f"{key} bytes"))
        table.add(f"{text}: stall, later epochs", 100 * samples.median(f"{key} stall later"), "%")
    return table


def job_chart(case, cases, others, samples):
    labels = {label: label for label in cases} | others
    series = {
        "total time / lower bound": [samples.median(f"{case.nodes} {label} total / bound") for label in labels],
        "PFS bytes / least": [samples.median(f"{case.nodes} {label} bytes") for label in labels],
    }
    title = f"{case.nodes} nodes, {case.epochs} epochs: time and PFS bytes over the least possible"
    return benchlib.bars(title, "times the least possible", labels.values(), series, (1, "bound"))


# Records of one file

RECORD_SHARES = {"records, N·D = 1.5 S": 1.5, "records, N·D = 1.0 S": 1.0, "records, N·D = 0.5 S": 0.5}


def records_table(case, samples):
    table = Table(f"{case.nodes} nodes, {case.count:,} records of {case.file}, {case.size / 1e6:.0f} MB, {case.epochs} epochs")
    for label, share in RECORD_SHARES.items():
        key = f"{case.nodes} {label}"
        enough = share >= 1
        table.add(f"{label}: total / lower bound", samples.median(f"{key} total / bound"), at_most=1.05)
        table.add(f"{label}: PFS bytes / least", samples.median(f"{key} bytes"), at_most=1.02 if enough else 1.05)
        network = samples.median(f"{key} network") / case.epochs / (case.size * (case.nodes - 1) / case.nodes)
        table.add(f"{label}: from peers an epoch / (N-1)/N·S", network, at_most=1.1)
        table.add(f"{label}: stall, later epochs", 100 * samples.median(f"{key} stall later"), "%")
    return table


# A node dies


def death_round(case, samples):
    """Kills one of four nodes in the middle of an epoch. What its reader gets is its own affair; the others go on."""
    with case.pfs() as pfs:
        with clairjob.clairjob(pfs.path, case.nodes, "--ram", case.ram(1.5), "--staging", case.staging) as job:
            (job[0].path / ".clairfs/plan").write_text(case.plan())
            victim = case.nodes - 1
            epoch = case.bound(1.5) / case.epochs

            def read(node):
                if node == victim:
                    time.sleep(1.5 * epoch)
                    job.kill(victim)
                    return []
                batches = ("--batch", BATCH, "--compute-us", case.compute_us)
                return reader("files", job[node].path, *case.orders[node], *batches, "--sum")

            with concurrent.futures.ThreadPoolExecutor(case.nodes) as pool:
                per_node = list(pool.map(read, range(case.nodes)))
            for node, runs in enumerate(per_node):
                if [run["sum"] for run in runs] != case.sums[node][: len(runs)]:
                    raise SystemExit(f"WRONG DATA: node {node}")
            samples.add("death failed", job.stat("reads.failed"))
            samples.add("death longest wait", max(wait for runs in per_node for run in runs for wait in run["waits"]))
            samples.add("death epochs", sum(map(len, per_node)))


def death_table(samples, rounds):
    table = Table("kill -9 of one of four nodes in the middle of the second epoch")
    note = benchlib.runs_text(rounds)
    table.add("reads that failed", sum(samples.rounds["death failed"]), at_most=0, note=f"added up, {rounds} runs")
    table.add("longest wait for a batch", samples.median("death longest wait"), "s", at_most=DEATH_SECONDS, note=note)
    table.add("epochs that the others read to their ends", samples.median("death epochs"), note=note)
    return table


# Nobody reads

IDLE = {"idle": ("", 0.1), "idle plan": (", with a plan that nobody reads", 0.3)}  # at most so many percent of a core


def idle(case, seconds, rounds, samples):
    with clairjob.clairjob(case.source, case.nodes, "--ram", "64M") as job:
        processor_shares(job, "idle", seconds, rounds, samples)
        (job[0].path / ".clairfs/plan").write_text(case.plan())
        clairmount.wait_until(lambda: all(is_ahead(node) for node in job), "each node has something ahead")
        processor_shares(job, "idle plan", seconds, rounds, samples)


def is_ahead(node):
    return any(plan.get("ahead", 0) > 0 for plan in node.stats()["plan_list"])


def processor_shares(job, label, seconds, rounds, samples):
    """Of a core, in percent, once what was begun is done; nobody asks the mounts for anything meanwhile."""
    time.sleep(SETTLE_SECONDS)
    for _ in range(rounds):
        before = [benchlib.cpu_seconds(pid) for pid in job.pids]
        time.sleep(seconds)
        for rank, (pid, used) in enumerate(zip(job.pids, before, strict=True)):
            samples.add(f"{label} {rank}", 100 * (benchlib.cpu_seconds(pid) - used) / seconds)


def idle_table(nodes, rounds, samples):
    table = Table("Four idle nodes")
    note = benchlib.runs_text(rounds)
    for label, (text, most) in IDLE.items():
        for rank in range(nodes):
            table.add(f"rank {rank}: processor{text}", samples.median(f"{label} {rank}"), "%", at_most=most, note=note)
    return table


# The start of a job

START_FILES = 20_000
START_SECONDS = 0.2  # beyond what MPI takes


def mpi_seconds():
    """Until MPI_Init has returned on all ranks of a program that does nothing else, launched as jobs are here."""
    program = clairmount.build_dir() / "tests/bench/mpi_init"
    command = [*clairjob.LAUNCH, "-n", str(NODES), *clairjob.SHELL, str(program)]
    begin = time.monotonic()
    printed = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    ends = [float(word) for word in printed.split()]
    if len(ends) != NODES:
        raise SystemExit(f"mpi_init: {len(ends)} ranks of {NODES}: {printed}")
    return max(ends) - begin


class TimedJob(clairjob.ClairJob):
    """`served`: when the last rank had answered a stat() of a file, which waits from the mount on."""

    def __init__(self, source, first, tmp):
        super().__init__(source, NODES, ("--ram", "64M"), tmp)
        self.first = first  # the file, in a list
        self.served = None

    def seconds(self):
        """Starts it again, once it has ended."""
        self.served = None
        begin = time.monotonic()
        self.start()
        return self.served - begin

    def _usable(self):
        if self.served is None and all(clairmount.is_mounted(node.path) for node in self.nodes):
            with concurrent.futures.ThreadPoolExecutor(NODES) as pool:
                runs = list(pool.map(lambda node: reader("stat", node.path, self.first)[0], self.nodes))
            self.served = max(run["begin"] + run["seconds"] for run in runs)
        return super()._usable() and self.served is not None


def start(tmp, rounds, samples):
    names = benchlib.make_dataset(tmp / "small", START_FILES, 100)
    with clairmount.tempdir() as folder:
        job = TimedJob(tmp / "small", benchlib.write_list(tmp / "first", names[:1]), folder)
        with job.scope():
            job.start()  # makes the catalogs
            for round_ in range(rounds):
                job.end()
                record_start(mpi_seconds(), job.seconds(), samples)
                if "reloaded" not in job[0].control("status"):
                    raise SystemExit(f"the catalog was made anew: {job[0].control('status')}")
                progress(f"start of a job, round {round_ + 1} of {rounds}: {samples.rounds['start beyond'][-1]:.3f} s beyond MPI")


def record_start(of_mpi, of_job, samples):
    samples.add("start mpi", of_mpi)
    samples.add("start job", of_job)
    samples.add("start beyond", of_job - of_mpi)


def start_table(samples):
    table = Table(f"Start of a job of {NODES} nodes, {START_FILES:,} files, catalogs saved and in memory")
    table.add("until MPI_Init has returned on all ranks of a program that does nothing else", samples.median("start mpi"), "s")
    table.add("until all mounts have answered", samples.median("start job"), "s")
    table.add("until all mounts have answered, beyond MPI", samples.median("start beyond"), "s", at_most=START_SECONDS)
    return table


def main():
    given = benchlib.arguments(__doc__, "default: 5; with --quick 2", ("job", "records", "death", "idle", "start"))
    parts = given.only
    found = Findings(given)
    samples = found.samples
    rounds = given.rounds or (2 if given.quick else 5)
    with clairmount.tempdir() as tmp:
        others = others_of(found) if "job" in parts else {}
        needed = (2, 4) if "job" in parts else (4,) if {"death", "idle"} & set(parts) else ()
        cases = {nodes: make_case(tmp, nodes, given.quick) for nodes in needed}
        if "job" in parts:
            for round_ in range(rounds):
                for nodes, case in cases.items():
                    progress(f"{nodes} nodes, round {round_ + 1} of {rounds}")
                    case.measure_warm()
                    for label, (share, options) in cases_of(nodes, given.quick).items():
                        job_round(case, label, share, samples, *options)
                    for label in others:
                        other_round(case, label, samples)
            for nodes, case in cases.items():
                measured = cases_of(nodes, given.quick)
                found.add(job_table(case, measured, others, samples), job_chart(case, measured, others, samples))
        if "records" in parts:
            packed = [make_case(tmp, nodes, given.quick, RecordsCase) for nodes in (2, 4)]
            for round_ in range(rounds):
                for case in packed:
                    progress(f"{case.nodes} nodes on records, round {round_ + 1} of {rounds}")
                    case.measure_warm()
                    for label, share in RECORD_SHARES.items():
                        job_round(case, label, share, samples)
            for case in packed:
                found.add(records_table(case, samples))
        if "death" in parts:
            for round_ in range(rounds):
                progress(f"death of a node, round {round_ + 1} of {rounds}")
                death_round(cases[4], samples)
            found.add(death_table(samples, rounds))
        if "idle" in parts:
            progress("idle nodes")
            idle(cases[4], QUICK_IDLE_SECONDS if given.quick else IDLE_SECONDS, rounds, samples)
            found.add(idle_table(NODES, rounds, samples))
        if "start" in parts:
            start(tmp, rounds, samples)
            found.add(start_table(samples))


if __name__ == "__main__":
    main()
