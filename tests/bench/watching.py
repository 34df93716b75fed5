#!/usr/bin/python3
"""What it costs to watch readers that no plan was registered for (--infer): reads a second beside --infer off, and memory.

    tests/bench/watching.py [--quick] [--rounds N] [--json FILE]

Small files in orders that nobody can know, another one each time, so that nothing is ever found and all opens are watched.
Each round takes every mode once, in turns; ratios are those within a round. One reader a core, so that the search for
an order has no processor of its own. Then a training on all cores: each of its processes reads a file and computes for some
milliseconds, and the row is how much longer they take for the same work, also with the search for any shuffle of torch.
"""

import os
import random
import subprocess
import sys
import time

import benchlib
import clairmount
from benchlib import MIB, Findings, Table, cpu_seconds, in_parallel, progress, resident_bytes

MODES = ("off", "cheap")
BYTES = 16_000  # small files: the more reads a second, the more watching costs
TRAINING_MODES = ("off", "cheap", "full")
STEPS = 2_000  # files of each process of a training: some 6 s
# A file, then work that no cache holds: 16 MiB through a checksum.
TRAINING = """
import os, sys, zlib
data = os.urandom(16 << 20)
for name in open(sys.argv[2]).read().splitlines()[: int(sys.argv[3])]:
    with open(f"{sys.argv[1]}/{name}", "rb", buffering=0) as file:
        file.read()
    zlib.crc32(data)
"""
PASSES = {"first pass": "a fresh mount, the source in memory", "RAM tier": "again, dropped from the page cache"}


def one_round(source, names, tmp, chance, modes, samples):
    readers = os.cpu_count()
    for mode in modes:
        with clairmount.clairfs(source, "--infer", mode, "--ram", 2 * len(names) * BYTES) as mount:
            for what in PASSES:
                order = chance.sample(names, len(names))
                benchlib.reader("drop", mount.path, benchlib.write_list(tmp / "all", names))
                lists = benchlib.split_lists(tmp, order, (readers,))[readers]
                samples.add(f"{what} {mode}", in_parallel("files", mount.path, lists))
            samples.add(f"memory {mode}", resident_bytes(mount.pid) / MIB)
            assert not mount.stats()["plan_list"], "an order that nobody can know was followed"


def training_seconds(root, lists, steps):
    begin = time.monotonic()
    command = [sys.executable, "-c", TRAINING, root]
    processes = [subprocess.Popen([*map(str, command), path, str(steps)]) for path in lists]
    try:
        if any(process.wait(benchlib.READ_SECONDS) != 0 for process in processes):
            raise RuntimeError("a training failed")
    finally:
        for process in processes:
            process.kill()
    return time.monotonic() - begin


def train(source, names, tmp, chance, modes, steps, samples):
    for mode in modes:
        with clairmount.clairfs(source, "--infer", mode, "--ram", 2 * len(names) * BYTES) as mount:
            lists = benchlib.split_lists(tmp, chance.sample(names, len(names)), (os.cpu_count(),))[os.cpu_count()]
            samples.add(f"training {mode}", training_seconds(mount.path, lists, steps))
            samples.add(f"daemon {mode}", cpu_seconds(mount.pid))


def main():
    given = benchlib.arguments(__doc__, "default: 11, with --quick 5")
    count = 5_000 if given.quick else 20_000
    rounds = given.rounds or (5 if given.quick else 11)
    found = Findings(given)
    samples = found.samples
    chance = random.Random(982_451_653)  # a seed that is not looked for
    with clairmount.tempdir() as tmp:
        names = benchlib.make_dataset(tmp / "src", count, BYTES)
        for round_ in range(rounds):
            progress(f"watching, round {round_ + 1} of {rounds}")
            one_round(tmp / "src", names, tmp, chance, MODES if round_ % 2 else MODES[::-1], samples)
            modes = TRAINING_MODES if round_ % 2 else TRAINING_MODES[::-1]
            train(tmp / "src", names, tmp, chance, modes, STEPS // 4 if given.quick else STEPS, samples)
    table = Table(f"What watching costs: {count:,} files of {BYTES // 1000} KB, {os.cpu_count()} readers")
    for what, about in PASSES.items():
        table.add(f"{what}, --infer off", samples.median(f"{what} off"), "files/s", note=about)
        ratio = samples.ratio(f"{what} cheap", f"{what} off")
        table.add(f"{what}, --infer cheap over off", ratio, at_least=0.99)
    more = samples.median("memory cheap") - samples.median("memory off")
    table.add("memory, --infer cheap less off", more, "MiB", at_most=16)
    found.add(table)
    table = Table(f"The first seconds of a training on all {os.cpu_count()} cores, in which most is searched for")
    table.add("--infer off", samples.median("training off"), "s")
    for mode in TRAINING_MODES[1:]:
        table.add(f"--infer {mode} over off", samples.ratio(f"training {mode}", "training off"), at_most=1.005)
        more = samples.median(f"daemon {mode}") - samples.median("daemon off")
        table.add(f"processor time of the daemon, {mode} less off", more, "s")
    found.add(table)


if __name__ == "__main__":
    main()
