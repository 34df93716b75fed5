#!/usr/bin/python3
"""How fast small files are read without a plan, beside the source directory (warm page cache) and bindfs.

    tests/bench/frontend.py [--quick] [--rounds N] [--json FILE]

Every round measures all of them one after the other, so that they see the same machine; the table shows medians
over the rounds, and ratios are medians of the ratios within a round.
"""

import contextlib
import random
import time

import benchlib
import clairmount
from benchlib import MIB, Findings, Table, counted_requests, progress, rate, reader, write_list

IDLE_SECONDS = 10
SETTLE_SECONDS = 60
OPERATIONS = ("read", "open", "lookup", "getattr")  # that a second pass is to do without


def wait_for_ram_tier(mount, size):
    clairmount.wait_until(
        lambda: mount.stat("tiers.ram.bytes") >= size and mount.stat("pfs.in_flight") == 0,
        "the dataset is in the RAM tier",
        SETTLE_SECONDS,
    )


def first_passes(source, files, ram, memory, samples):
    """Fresh mounts over a source whose pages are cached."""
    benchlib.touch_memory(memory)
    with benchlib.bindfs(source) as mount:
        samples.add("bindfs first", rate(reader("files", mount.path, files)[0]))
    benchlib.touch_memory(memory)
    with clairmount.clairfs(source, "--ram", ram) as mount:
        samples.add("clairfs first", rate(reader("files", mount.path, files, mount=mount)[0]))


def shuffled_files(source, bind, mount, files, memory, samples):
    for name, root in (("source", source), ("bindfs", bind.path)):
        reader("files", root, files)  # a machine may take back pages that nobody used for a while
        samples.add(name, rate(reader("files", root, files)[0]))
    reader("drop", mount.path, files, mount=mount)
    benchlib.touch_memory(memory)
    samples.add("ram", rate(reader("files", mount.path, files, mount=mount)[0]))
    samples.add("page cache", rate(reader("files", mount.path, files, mount=mount)[0]))


def requests_of_second_pass(mount, files, samples):
    reader("files", mount.path, files, mount=mount)
    with counted_requests(mount) as counted:
        reader("files", mount.path, files, mount=mount)
    samples.add("other requests", sum(counted.pop(name) for name in list(counted) if name not in OPERATIONS))
    for operation in OPERATIONS:
        samples.add(f"{operation} requests", counted[operation])


def footprint(mount, samples):
    before = benchlib.cpu_seconds(mount.pid)
    time.sleep(IDLE_SECONDS)
    busy = benchlib.cpu_seconds(mount.pid) - before
    samples.add("idle", 100 * busy / IDLE_SECONDS)
    stats = mount.stats()
    in_use = stats["tiers"]["ram"]["bytes"]
    samples.add("in use", in_use / MIB)
    samples.add("allowed", (in_use + stats["catalog"]["memory_bytes"]) / MIB + 64)
    samples.add("resident", benchlib.resident_bytes(mount.pid) / MIB)


def counters_table(samples, files):
    table = Table("Requests and footprint")
    runs = len(samples.rounds["idle"])
    for operation in OPERATIONS:
        key = f"{operation} requests"
        note = f"{files} files, {benchlib.runs_text(runs)}, most {max(samples.rounds[key])}"
        table.add(f"{key}, second pass", samples.median(key), at_most=0, note=note)
    table.add("other requests, second pass", samples.median("other requests"))
    table.add("idle CPU", samples.median("idle"), "% of a core", at_most=1, note=benchlib.runs_text(runs))
    note = f"RAM tier {samples.median('in use'):,.0f} MiB in use, {benchlib.runs_text(runs)}"
    table.add("resident memory", samples.median("resident"), "MiB", at_most=samples.median("allowed"), note=note)
    return table


def files_table(samples):
    files = Table("Shuffled open+read+close of small files")
    for name, label in (
        ("source", "source, warm page cache"),
        ("bindfs", "bindfs, warm"),
        ("bindfs first", "bindfs, first pass"),
        ("clairfs first", "clairfs, first pass, no plan"),
        ("ram", "clairfs, RAM tier, page cache cold"),
        ("page cache", "clairfs, page cache"),
    ):
        files.add(label, samples.median(name), "files/s", ratio=(samples.ratio(name, "source"), "the source"))
    files.add("first pass / bindfs first pass", samples.ratio("clairfs first", "bindfs first"), at_least=1)
    files.add("RAM tier / bindfs warm", samples.ratio("ram", "bindfs"), at_least=2.5)
    files.add("page cache / source", samples.ratio("page cache", "source"), at_least=0.8)
    return files


def main():
    given = benchlib.arguments(__doc__, "default: 5, with --quick 3")
    count = 2_000 if given.quick else 10_000
    rounds = given.rounds or (3 if given.quick else 5)
    found = Findings(given)
    samples = found.samples

    with contextlib.ExitStack() as stack:
        tmp = stack.enter_context(clairmount.tempdir())
        source = tmp / "src"
        progress(f"making {count} files")
        names = benchlib.make_dataset(source, count)
        size = benchlib.bytes_of(source, names)
        ram = f"{size * 5 // 4 // MIB + 64}M"
        everything = write_list(tmp / "all", names)

        bind = stack.enter_context(benchlib.bindfs(source))
        mount = stack.enter_context(clairmount.clairfs(source, "--ram", ram))
        for root in (source, bind.path, mount.path):
            reader("files", root, everything)
        wait_for_ram_tier(mount, size)
        for round_ in range(rounds):
            progress(f"round {round_ + 1} of {rounds}")
            files = write_list(tmp / "order", random.Random(round_).sample(names, len(names)))
            shuffled_files(source, bind, mount, files, size, samples)
            first_passes(source, files, ram, 2 * size, samples)
            requests_of_second_pass(mount, files, samples)
            footprint(mount, samples)

    found.add(files_table(samples))
    found.add(counters_table(samples, count))


if __name__ == "__main__":
    main()
