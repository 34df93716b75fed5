#!/usr/bin/python3
"""clairfs beside what people use instead, on the same data in the same run.

    tests/bench/rivals.py [--quick] [--rounds N] [--only files|epochs]... [--json FILE]

files: open+read+close of files of three sizes in shuffled order by 1 to 8 readers, everything warm, and listings:
the source directory, bindfs, mergerfs, rclone mount with its full cache, clairfs from its RAM tier, with pages pushed
by a plan, and from the page cache. epochs: shuffled epochs from an emulated slow PFS, with caches of twice, once and
half the dataset's size. Orders are interleaved within a round; figures are medians, ratios those within a round.
"""

import argparse
import concurrent.futures
import contextlib
import random

import benchlib
import clairmount
import plan as planned
from benchlib import MIB, Samples, Table, progress, rate, reader, timed, write_list

SIZES = {"4 KB": (4_000, 4), "110 KB": (110_000, 1), "1 MB": (1_000_000, 0.2)}  # mean bytes, share of the file count
READERS = (1, 2, 4, 8)


def in_parallel(root, lists):
    """Files a second of as many readers as there are lists, each with its own."""
    with concurrent.futures.ThreadPoolExecutor(len(lists)) as pool:
        runs = [future[0] for future in pool.map(lambda files: reader("files", root, files), lists)]
    return sum(run["files"] for run in runs) / max(run["seconds"] for run in runs)


def files_round(label, source, names, tmp, round_, samples):
    order = benchlib.plan_orders(names, round_, 1)[0]
    whole = write_list(tmp / "order", order)
    splits = {n: [write_list(tmp / f"order-{n}-{i}", order[i::n]) for i in range(n)] for n in READERS}
    size = benchlib.padded(source, names)
    roomy = f"{size * 5 // 4 // MIB + 64}M"
    with contextlib.ExitStack() as stack:
        mounts = {"source": source}
        for system in (benchlib.bindfs, benchlib.mergerfs, benchlib.rclone):
            mounts[system.__name__] = stack.enter_context(system(source)).path
        clair = stack.enter_context(clairmount.clairfs(source, "--ram", roomy, "--staging", roomy))
        for root in (*mounts.values(), clair.path):
            reader("files", root, whole)
        for system, root in mounts.items():
            for n in READERS:
                samples.add(f"{label} {system} {n}", in_parallel(root, splits[n]))
            samples.add(f"{label} find {system}", timed("find", root))
            samples.add(f"{label} stat {system}", timed("find", root, "-printf", "%s %t\n"))
        clairmount.wait_until(lambda: clair.stat("tiers.ram.bytes") >= size * 0.99, "the RAM tier is full")
        for n in READERS:
            reader("drop", clair.path, whole)
            samples.add(f"{label} ram {n}", in_parallel(clair.path, splits[n]))
        samples.add(f"{label} find ram", timed("find", clair.path))
        samples.add(f"{label} stat ram", timed("find", clair.path, "-printf", "%s %t\n"))
        reader("drop", clair.path, whole)
        planned.register(clair, seed=round_, epochs=1, batch=1)
        planned.wait_until_ahead(clair, len(names))
        samples.add(f"{label} pushed 1", rate(reader("files", clair.path, whole)[0]))
        for n in READERS:
            samples.add(f"{label} page cache {n}", in_parallel(clair.path, splits[n]))


SYSTEMS = {
    "source": "source directory, warm",
    "bindfs": "bindfs, warm",
    "mergerfs": "mergerfs, warm",
    "rclone": "rclone mount, full cache, warm",
    "ram": "clairfs, RAM tier, page cache cold",
    "pushed": "clairfs, first touch of what a plan pushed",
    "page cache": "clairfs, page cache",
}


def files_table(label, count, samples):
    table = Table(f"{count:,} files of {label} in shuffled order, files/s")
    for system, name in SYSTEMS.items():
        for n in (1,) if system == "pushed" else READERS:
            key = f"{label} {system} {n}"
            ratio = samples.ratio(key, f"{label} source {n}")
            table.add(f"{name}, {n} reader{'s' if n > 1 else ''}", samples.median(key), note=f"{ratio:.3f} of the source")
    for what, name in (("find", "names (find)"), ("stat", "attributes of all files (find -printf)")):
        for system in ("source", "bindfs", "mergerfs", "rclone", "ram"):
            key = f"{label} {what} {system}"
            ratio = samples.ratio(key, f"{label} {what} source")
            table.add(f"{name}: {'clairfs' if system == 'ram' else system}", samples.median(key), "s", note=f"{ratio:.1f} times the source's")
    return table


# Shuffled epochs from a slow PFS

CACHES = {"twice the dataset": 2.0, "the dataset": 1.02, "half the dataset": 0.5}


def epochs_round(case, share, label, samples):
    cache = int(share * case.size)

    def record(name, runs, pfs):
        samples.add(f"{label} {name} total", sum(run["seconds"] for run in runs))
        samples.add(f"{label} {name} bytes", pfs.counters()["bytes"] / case.size)
        samples.add(f"{label} {name} later", sum(r["seconds"] for r in runs[1:]) / len(runs[1:]))
        progress(f"{label}: {name}: {', '.join(format(run['seconds'], '.1f') for run in runs)} s")

    with case.pfs() as pfs:
        record("none", case.read(pfs.path), pfs)
    with case.pfs() as pfs:
        record("loader", case.read(pfs.path, "--workers", 4), pfs)
    with case.pfs() as pfs, benchlib.rclone(pfs.path, cache) as mount:
        record("rclone", case.read(mount.path, "--workers", 4), pfs)
    for name in ("first touch", "plan"):
        with case.pfs() as pfs, clairmount.clairfs(pfs.path, "--ram", cache, "--staging", case.staging) as mount:
            if name == "plan":
                planned.register(mount, seed=1, epochs=case.epochs, batch=planned.BATCH)
                record(name, case.read(mount.path, mount=mount), pfs)
            else:
                record(name, case.read(mount.path, "--workers", 4, mount=mount), pfs)


EPOCH_SYSTEMS = {
    "none": "no cache, one reader",
    "loader": "no cache, 4 DataLoader workers",
    "rclone": "rclone mount with that cache, 4 workers",
    "first touch": "clairfs without a plan (first touch fills the tiers), 4 workers",
    "plan": "clairfs with a plan, one reader",
}


def epochs_table(case, label, share, samples):
    table = Table(
        f"{case.epochs} epochs, PFS of {case.bandwidth // 1_000_000} MB/s and {case.latency_us} us, {case.size / 1e6:.0f} MB, "
        f"a cache of {label}"
    )
    bound = case.bound(share * case.size)
    table.add("lower bound", bound, "s")
    for name, text in EPOCH_SYSTEMS.items():
        key = f"{label} {name}"
        table.add(f"{text}: total", samples.median(f"{key} total"), "s", note=f"{samples.median(f'{key} total') / bound:.2f} of the bound")
        table.add(f"{text}: a later epoch", samples.median(f"{key} later"), "s")
        table.add(f"{text}: PFS bytes", samples.median(f"{key} bytes"), "S")
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer files, 1 round")
    parser.add_argument("--rounds", type=int, help="default: 5; with --quick 1")
    parser.add_argument("--only", action="append", choices=("files", "epochs"), help="default: both")
    parser.add_argument("--json", metavar="FILE", help="also write all figures to FILE")
    given = parser.parse_args()
    parts = given.only or ["files", "epochs"]
    rounds = given.rounds or (1 if given.quick else 5)
    samples, tables = Samples(), []
    with clairmount.tempdir() as tmp:
        if "files" in parts:
            for label, (mean, share) in SIZES.items():
                count = int((1_000 if given.quick else 5_000) * share)
                source = tmp / f"src-{mean}"
                names = benchlib.make_dataset(source, count, mean)
                for round_ in range(rounds):
                    progress(f"{label}, round {round_ + 1} of {rounds}")
                    files_round(label, source, names, tmp, random.Random(round_).randrange(1000), samples)
                tables.append(files_table(label, count, samples))
                tables[-1].print()
        if "epochs" in parts:
            case = planned.SlowCase(tmp, given.quick)
            for label, share in CACHES.items():
                for round_ in range(max(1, rounds // 2)):
                    epochs_round(case, share, label, samples)
                tables.append(epochs_table(case, label, share, samples))
                tables[-1].print()
    if given.json:
        benchlib.write_json(given.json, tables, samples)


if __name__ == "__main__":
    main()
