#!/usr/bin/python3
"""Parts of the engine by themselves: planning an epoch of ImageNet-1k, of files and of records, misses of the cache, and
chunks that one node serves to another.

    tests/bench/engine.py [--quick] [--rounds N] [--only planning|cache|transport]... [--json FILE]

No mount and no PFS is involved. The cache misses what a source answers at once, so that the time is its own. Chunks go over
TCP through loopback between two launchers, as between machines; messages to and fro and idling are shown beside them.
"""

import contextlib
import json
import os
import re
import signal
import subprocess

import benchlib
import clairmount
from benchlib import Findings, Table, progress

SAMPLES = "1,281,167 samples"
EPOCH_SECONDS = 0.2  # for so many on one core
RELOAD_SECONDS = 0.02  # of the index of so many records
RECORDS_OVER_FILES = 1.3  # time and memory
CHUNK = 110_000  # the mean file of ImageNet-1k
CHUNKS_A_SECOND = min(10_000, 1e9 / CHUNK)  # 10,000 or a gigabyte, whichever comes first
NETWORKS = {"TCP": ["-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2"]}
TRANSPORT_LINE = re.compile(r"^ *(\S.*?) +(\d+) +[\d.]+ +[\d.]+ +([\d.]+) % +([\d.]+) %$", re.MULTILINE)


def program(found, name, what):
    path = clairmount.build_dir() / "tests/bench" / name
    if path.exists():
        return path
    found.skip(what, f"{name} is not built (apt-get install libbenchmark-dev)")
    return None


def benchmarks(path, pattern):
    """What a program with Google Benchmark measured of those whose names begin with `pattern`: {name: its figures}."""
    command = [path, "--benchmark_format=json", f"--benchmark_filter=^({pattern})"]
    printed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300, check=True)
    runs = {run["name"]: run for run in json.loads(printed.stdout)["benchmarks"]}
    for name, run in runs.items():
        if run.get("error_occurred"):
            raise SystemExit(f"{path}: {name}: {run['error_message']}")
    return runs


def planning_round(path, samples):
    for name, run in benchmarks(path, "plan_epoch|reload_index|epoch_of").items():
        kind, _, what = name.partition("/")
        if kind == "plan_epoch":
            samples.add(f"plan {what}", run["real_time"] / 1e3)
        elif kind == "reload_index":
            samples.add("reload", run["real_time"] / 1e3)
        else:
            samples.add(f"{what.partition('/')[0]} time", run["real_time"] / 1e3)
            samples.add(f"{what.partition('/')[0]} memory", run["bytes/sample"])


def planning_table(samples):
    table = Table(f"Planning one epoch of {SAMPLES}, one core")
    for name in samples.rounds:
        if name.startswith("plan "):
            what = name.removeprefix("plan ").replace("_", " ")
            table.add(what, samples.median(name), "s", at_most=EPOCH_SECONDS)
    return table


def records_table(samples):
    table = Table(f"Planning records of one file beside files, {SAMPLES}, one core")
    table.add("saved index of the records, reloaded", samples.median("reload"), "s", at_most=RELOAD_SECONDS)
    order, kept = "the order, and when each chunk is used", "the numbering and two epochs"
    for what, of, unit, note in (("time", "an epoch", "s", order), ("memory", "a plan", "bytes a sample", kept)):
        for kind in ("files", "records"):
            table.add(f"{of} of {kind}: {what}", samples.median(f"{kind} {what}"), unit, note=note)
        table.add(f"records / files: {what}", samples.ratio(f"records {what}", f"files {what}"), at_most=RECORDS_OVER_FILES)
    return table


def cache_round(path, samples):
    for name, run in benchmarks(path, "misses|begins_when_memory_comes_free").items():
        if threads := re.search(r"threads:(\d+)", name):
            samples.add(f"misses {threads[1]}", run["items_per_second"])
        else:
            samples.add("wake-up", run["real_time"] / 1e3)


def cache_table(samples):
    """A thread has one miss at a time, so that they tell how long each takes."""
    table = Table("Misses of the cache, a source that answers at once")
    for name in samples.rounds:
        if name.startswith("misses "):
            threads = int(name.removeprefix("misses "))
            text, rate = f"{threads} thread{'s' * (threads > 1)}", samples.median(name)
            table.add(f"{text}: misses", rate, "/s")
            table.add(f"{text}: latency of a miss", 1e6 * threads / rate, "us")
    table.add("a fetch that waits for memory: begins after", samples.median("wake-up"), "us", note="since another's came free")
    return table


def transport_round(path, network, seconds, samples):
    """A figure of each line that transport_bench prints."""
    command = ["mpiexec", "-disable-auto-cleanup", *NETWORKS[network], "-n", "2", path, CHUNK, seconds]
    job = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                           start_new_session=True)  # fmt: skip
    try:
        printed, _ = job.communicate(timeout=60 + 10 * seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    lines = TRANSPORT_LINE.findall(printed)
    if job.returncode or not lines:
        raise SystemExit(f"transport_bench over {network}: status {job.returncode}: {printed}")
    for what, rate, own, server in lines:
        samples.add(f"{network}: {what}", float(rate))
        samples.add(f"processor, {network}: {what}", max(float(own), float(server)))


def transport_table(network, samples):
    table = Table(f"One node serves another over {network}, files of {CHUNK // 1000} KB")
    for name in samples.rounds:
        if not name.startswith(f"{network}: "):
            continue
        what, processor = name.removeprefix(f"{network}: "), samples.median(f"processor, {name}")
        if what == "idle":
            table.add("idle: processor of the busier node", processor, "%", at_most=1)
            continue
        goal = {"at_least": CHUNKS_A_SECOND} if re.search(r"\d\d under way", what) else {}
        table.add(what, samples.median(name), "/s", note=f"{processor:.0f} % of a core at the busier node", **goal)
    return table


def main():
    given = benchlib.arguments(__doc__, "default: 5; with --quick 2", ("planning", "cache", "transport"))
    rounds = given.rounds or (2 if given.quick else 5)
    found = Findings(given)
    planning = program(found, "plan_bench", "planning of an epoch") if "planning" in given.only else None
    cache = program(found, "cache_bench", "misses of the cache") if "cache" in given.only else None
    transport = program(found, "transport_bench", "the transport") if "transport" in given.only else None
    for round_ in range(rounds):
        progress(f"engine, round {round_ + 1} of {rounds}")
        if planning:
            planning_round(planning, found.samples)
        if cache:
            cache_round(cache, found.samples)
        for network in NETWORKS if transport else ():
            transport_round(transport, network, 1 if given.quick else 3, found.samples)
    if planning:
        found.add(planning_table(found.samples))
        found.add(records_table(found.samples))
    if cache:
        found.add(cache_table(found.samples))
    for network in NETWORKS if transport else ():
        found.add(transport_table(network, found.samples))


if __name__ == "__main__":
    main()
