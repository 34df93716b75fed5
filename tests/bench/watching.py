#!/usr/bin/python3
"""What it costs to watch readers that no plan was registered for (--infer): reads a second beside --infer off, and memory.

    tests/bench/watching.py [--quick] [--rounds N] [--json FILE]

Small files in orders that nobody can know, another one each time, so that nothing is ever found and all opens are watched.
Each round takes every mode once, in turns; ratios are those within a round. One reader a core, so that the search for
an order has no processor of its own.
"""

import os
import random

import benchlib
import clairmount
from benchlib import MIB, Findings, Table, in_parallel, progress, resident_bytes

MODES = ("off", "cheap")
BYTES = 16_000  # small files: the more reads a second, the more watching costs
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
    table = Table(f"What watching costs: {count:,} files of {BYTES // 1000} KB, {os.cpu_count()} readers")
    for what, about in PASSES.items():
        table.add(f"{what}, --infer off", samples.median(f"{what} off"), "files/s", note=about)
        ratio = samples.ratio(f"{what} cheap", f"{what} off")
        table.add(f"{what}, --infer cheap over off", ratio, at_least=0.99)
    more = samples.median("memory cheap") - samples.median("memory off")
    table.add("memory, --infer cheap less off", more, "MiB", at_most=16)
    found.add(table)


if __name__ == "__main__":
    main()
