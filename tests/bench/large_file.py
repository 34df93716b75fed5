#!/usr/bin/python3
"""One large file: sequential reads, and random pages of a mapping.

    tests/bench/large_file.py [--quick] [--rounds N] [--json FILE]

The source directory, bindfs, mergerfs and rclone mount (full cache) are warm; clairfs is measured on a fresh mount, from
its RAM tier with the page cache dropped, and from the page cache.
"""

import contextlib
import os

import benchlib
import clairmount
from benchlib import MIB, Findings, Table, progress, rate, reader

RANDOM_PAGES = 20_000
SYSTEMS = {
    "source": "source, warm page cache",
    "journalled": f"{benchlib.JOURNALLED}, warm",
    "bindfs": "bindfs, warm",
    "mergerfs": "mergerfs, warm",
    "rclone": "rclone mount, full cache, warm",
    "cold": "clairfs, fresh mount",
    "ram": "clairfs, RAM tier, page cache cold",
    "page cache": "clairfs, page cache",
}


def gigabytes_per_second(path):
    run = reader("seq", path)[0]
    return run["bytes"] / run["seconds"] / 1e9


def random_pages(path):
    return rate(reader("mmap", path, RANDOM_PAGES)[0])


def round_of(mounts, mount, source, size, name, samples):
    for label, measure in (("seq", gigabytes_per_second), ("mmap", random_pages)):
        for system, root in mounts.items():
            reader("seq", root / name)  # a machine may take back pages that nobody used for a while
            samples.add(f"{label} {system}", measure(root / name))
        benchlib.touch_memory(2 * size)
        with clairmount.clairfs(source, "--ram", 2 * size) as fresh:
            samples.add(f"{label} cold", measure(fresh.path / name))
        clairmount.drop_page_cache(mount.path / name)
        benchlib.touch_memory(size)
        samples.add(f"{label} ram", measure(mount.path / name))
        reader("seq", mount.path / name)  # pages that the mapping did not touch
        samples.add(f"{label} page cache", measure(mount.path / name))


def table_of(label, unit, title, samples):
    table = Table(title)
    for system, text in SYSTEMS.items():
        key = f"{label} {system}"
        if key in samples.rounds:
            goal = {"at_least": 2} if key == "seq ram" else {}
            table.add(text, samples.median(key), unit, ratio=(samples.ratio(key, f"{label} source"), "the source"), **goal)
    return table


def chart_of(label, unit, title, samples):
    shown = {text: f"{label} {system}" for system, text in SYSTEMS.items() if f"{label} {system}" in samples.rounds}
    return benchlib.bars(title, unit, shown, {unit: [samples.median(key) for key in shown.values()]}, log=label == "mmap")


def main():
    given = benchlib.arguments(__doc__, "default: 5, with --quick 3")
    size = 256_000_000 if given.quick else 1_000_000_000
    rounds = given.rounds or (3 if given.quick else 5)
    found = Findings(given)
    samples = found.samples
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(clairmount.tempdir()) / "src"
        source.mkdir()
        benchlib.make_file(source / "big.bin", size)
        mounts = {"source": source, **benchlib.others(found, stack, source)}
        copy = stack.enter_context(benchlib.journalled(found, source, size))
        if copy:
            mounts["journalled"] = copy
        mount = stack.enter_context(clairmount.clairfs(source, "--ram", f"{size * 5 // 4 // MIB + 64}M"))
        for root in (*mounts.values(), mount.path):
            reader("seq", root / "big.bin")
        os.sync()  # rclone's cache and the copy would be written back while others are measured
        clairmount.wait_until(lambda: mount.stat("tiers.ram.bytes") >= size, "the file is in the RAM tier")
        for round_ in range(rounds):
            progress(f"large file, round {round_ + 1} of {rounds}")
            round_of(mounts, mount, source, size, "big.bin", samples)

    what = f"a file of {size // 1_000_000:,} MB"
    sequential = table_of("seq", "GB/s", f"Sequential reads of {what}", samples)
    sequential.add("page cache / source", samples.ratio("seq page cache", "seq source"), at_least=0.8)
    if "seq journalled" in samples.rounds:
        sequential.add(f"page cache / {benchlib.JOURNALLED}", samples.ratio("seq page cache", "seq journalled"))
    found.add(sequential, chart_of("seq", "GB/s", f"Sequential reads of {what}", samples))
    title = f"{RANDOM_PAGES:,} random 4 KB pages of a mapping of {what}"
    found.add(table_of("mmap", "pages/s", title, samples), chart_of("mmap", "pages/s", title, samples))


if __name__ == "__main__":
    main()
