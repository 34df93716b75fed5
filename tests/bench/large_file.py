#!/usr/bin/python3
"""One large file: sequential reads, and random pages of a mapping, by one reader and by four at once.

    tests/bench/large_file.py [--quick] [--rounds N] [--json FILE]

The source directory, bindfs, mergerfs and rclone mount (full cache) are warm; clairfs is measured on a fresh mount, from
its RAM tier with the page cache dropped, from pages that a plan pushed, and from the page cache. Each reader reads the
whole file, or pages of its own choice.
"""

import contextlib
import os

import benchlib
import clairmount
import plan as planned
from benchlib import MIB, Findings, Table, progress, reader, together

RANDOM_PAGES = 20_000
READERS = (1, 4, 8)
SYSTEMS = {
    "source": "source, warm page cache",
    "journalled": f"{benchlib.JOURNALLED}, warm",
    "bindfs": "bindfs, warm",
    "mergerfs": "mergerfs, warm",
    "rclone": "rclone mount, full cache, warm",
    "cold": "clairfs, fresh mount",
    "ram": "clairfs, RAM tier, page cache cold",
    "pushed": "clairfs, first touch of what a plan pushed",
    "page cache": "clairfs, page cache",
}


def gigabytes_per_second(path, readers):
    runs, seconds = together("seq", [(path,)] * readers)
    return sum(run["bytes"] for run in runs) / seconds / 1e9


def random_pages(path, readers):
    runs, seconds = together("mmap", [(path, RANDOM_PAGES, seed) for seed in range(1, readers + 1)])
    return sum(run["files"] for run in runs) / seconds


def round_of(mounts, mount, source, size, name, samples):
    for label, measure in (("seq", gigabytes_per_second), ("mmap", random_pages)):
        for n in READERS:
            for system, root in mounts.items():
                reader("seq", root / name)  # a machine may take back pages that nobody used for a while
                samples.add(f"{label} {system} {n}", measure(root / name, n))
            benchlib.touch_memory(2 * size)
            with clairmount.clairfs(source, "--ram", 2 * size) as fresh:
                samples.add(f"{label} cold {n}", measure(fresh.path / name, n))
            clairmount.drop_page_cache(mount.path / name)
            benchlib.touch_memory(size)
            samples.add(f"{label} ram {n}", measure(mount.path / name, n))
            clairmount.drop_page_cache(mount.path / name)
            planned.register(mount, seed=1, epochs=1, batch=1)
            planned.wait_until_ahead(mount, 1)
            samples.add(f"{label} pushed {n}", measure(mount.path / name, n))
            planned.cancel(mount)
            reader("seq", mount.path / name)  # pages that the mapping did not touch
            samples.add(f"{label} page cache {n}", measure(mount.path / name, n))


def by_readers(n):
    return "" if n == 1 else f", {n} readers"


def table_of(label, unit, title, samples):
    table = Table(title)
    for n in READERS:
        for system, text in systems(label, samples).items():
            key = f"{label} {system} {n}"
            goal = {"at_least": 2} if key == "seq ram 1" else {}
            ratio = (samples.ratio(key, f"{label} source {n}"), "the source")
            table.add(f"{text}{by_readers(n)}", samples.median(key), unit, ratio=ratio, **goal)
    return table


def systems(label, samples):
    """Those that were measured."""
    return {system: text for system, text in SYSTEMS.items() if f"{label} {system} 1" in samples.rounds}


def chart_of(label, unit, title, samples):
    shown = systems(label, samples)
    series = {f"{n} reader{'s' if n > 1 else ''}": [samples.median(f"{label} {system} {n}") for system in shown] for n in READERS}
    return benchlib.bars(title, unit, shown.values(), series, log=label == "mmap")


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
        roomy = f"{size * 5 // 4 // MIB + 64}M"
        mount = stack.enter_context(clairmount.clairfs(source, "--ram", roomy, "--staging", roomy))
        for root in (*mounts.values(), mount.path):
            reader("seq", root / "big.bin")
        os.sync()  # rclone's cache and the copy would be written back while others are measured
        clairmount.wait_until(lambda: mount.stat("tiers.ram.bytes") >= size, "the file is in the RAM tier")
        for round_ in range(rounds):
            progress(f"large file, round {round_ + 1} of {rounds}")
            round_of(mounts, mount, source, size, "big.bin", samples)

    what = f"a file of {size // 1_000_000:,} MB"
    sequential = table_of("seq", "GB/s", f"Sequential reads of {what}", samples)
    for system, text, least in (("page cache", "page cache", 0.58), ("ram", "RAM tier", 0.35)):
        sequential.add(f"{text} / source", samples.ratio(f"seq {system} 1", "seq source 1"), at_least=least)
    if "seq journalled 1" in samples.rounds:
        sequential.add(f"page cache / {benchlib.JOURNALLED}", samples.ratio("seq page cache 1", "seq journalled 1"))
    found.add(sequential, chart_of("seq", "GB/s", f"Sequential reads of {what}", samples))
    title = f"{RANDOM_PAGES:,} random 4 KB pages of a mapping of {what}"
    found.add(table_of("mmap", "pages/s", title, samples), chart_of("mmap", "pages/s", title, samples))


if __name__ == "__main__":
    main()
