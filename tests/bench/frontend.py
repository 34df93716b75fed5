#!/usr/bin/python3
"""How fast the mount is without a plan, beside the source directory (warm page cache) and bindfs.

    tests/bench/frontend.py [--quick] [--rounds N] [--json FILE]

Every round measures all of them one after the other, so that they see the same machine; the table shows medians
over the rounds, and ratios are medians of the ratios within a round.
"""

import argparse
import contextlib
import random
import time

import benchlib
import clairmount
from benchlib import MIB, Samples, Table, counted_requests, progress, rate, reader, timed, write_list

IDLE_SECONDS = 10
RANDOM_PAGES = 20_000
SETTLE_SECONDS = 60


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
    for program, name in ((("find",), "find"), (("ls", "-lR"), "ls -lR")):
        with benchlib.bindfs(source) as mount:
            samples.add(f"{name} first bindfs", timed(*program, mount.path))
        with clairmount.clairfs(source, "--ram", ram) as mount:
            samples.add(f"{name} first clairfs", timed(*program, mount.path))


def shuffled_files(source, bind, mount, files, memory, samples):
    samples.add("source", rate(reader("files", source, files)[0]))
    samples.add("bindfs", rate(reader("files", bind.path, files)[0]))
    reader("drop", mount.path, files, mount=mount)
    benchlib.touch_memory(memory)
    samples.add("ram", rate(reader("files", mount.path, files, mount=mount)[0]))
    samples.add("page cache", rate(reader("files", mount.path, files, mount=mount)[0]))


def big_file(source, bind, mount, big, samples):
    def gigabytes_per_second(root):
        run = reader("seq", root / big)[0]
        return run["bytes"] / run["seconds"] / 1e9

    samples.add("big source", gigabytes_per_second(source))
    samples.add("big bindfs", gigabytes_per_second(bind.path))
    clairmount.drop_page_cache(mount.path / big)
    samples.add("big ram", gigabytes_per_second(mount.path))
    samples.add("big page cache", gigabytes_per_second(mount.path))
    samples.add("mmap source", rate(reader("mmap", source / big, RANDOM_PAGES)[0]))
    samples.add("mmap page cache", rate(reader("mmap", mount.path / big, RANDOM_PAGES)[0]))
    clairmount.drop_page_cache(mount.path / big)
    samples.add("mmap ram", rate(reader("mmap", mount.path / big, RANDOM_PAGES)[0]))


def listings(source, bind, mount, samples):
    for program, name in ((("find",), "find"), (("ls", "-lR"), "ls -lR")):
        for where, root in (("source", source), ("bindfs", bind.path), ("clairfs", mount.path)):
            samples.add(f"{name} {where}", timed(*program, root))


def requests_of_second_pass(mount, files, table):
    reader("files", mount.path, files, mount=mount)
    with counted_requests(mount) as counted:
        run = reader("files", mount.path, files, mount=mount)[0]
    for operation in ("read", "open", "lookup", "getattr"):
        count = counted.pop(operation)
        table.add(f"{operation} requests, second pass", count, at_most=0, note=f"{run['files']} files")
    others = {name: count for name, count in counted.items() if count}
    table.add("other requests, second pass", sum(others.values()), note=str(others or ""))


def footprint(mount, table):
    before = benchlib.cpu_seconds(mount.pid)
    time.sleep(IDLE_SECONDS)
    busy = benchlib.cpu_seconds(mount.pid) - before
    table.add("idle CPU", 100 * busy / IDLE_SECONDS, "% of a core", at_most=1)
    stats = mount.stats()
    in_use = stats["tiers"]["ram"]["bytes"]
    allowed = in_use + stats["catalog"]["memory_bytes"] + 64 * MIB
    note = f"RAM tier {in_use / MIB:,.0f} MiB in use"
    table.add("resident memory", benchlib.resident_bytes(mount.pid) / MIB, "MiB", at_most=allowed / MIB, note=note)


def tables(samples, counters):
    files = Table("Shuffled open+read+close of small files")
    for name, label in (
        ("source", "source, warm page cache"),
        ("bindfs", "bindfs, warm"),
        ("bindfs first", "bindfs, first pass"),
        ("clairfs first", "clairfs, first pass, no plan"),
        ("ram", "clairfs, RAM tier, page cache cold"),
        ("page cache", "clairfs, page cache"),
    ):
        files.add(label, samples.median(name), "files/s", note=f"{samples.ratio(name, 'source'):.3f} of the source")
    files.add("first pass / bindfs first pass", samples.ratio("clairfs first", "bindfs first"), at_least=1)
    files.add("RAM tier / bindfs warm", samples.ratio("ram", "bindfs"), at_least=2)
    files.add("page cache / source", samples.ratio("page cache", "source"), at_least=0.8)

    big = Table("One large file")
    big.add("sequential, source", samples.median("big source"), "GB/s")
    big.add("sequential, bindfs", samples.median("big bindfs"), "GB/s")
    big.add("sequential, clairfs RAM tier", samples.median("big ram"), "GB/s", at_least=2)
    big.add("sequential, clairfs page cache", samples.median("big page cache"), "GB/s")
    big.add("sequential, page cache / source", samples.ratio("big page cache", "big source"), at_least=0.8)
    for where in ("source", "page cache", "ram"):
        big.add(f"random pages by mmap, {where}", samples.median(f"mmap {where}"), "pages/s")

    listing = Table("Listings")
    for name in ("find", "ls -lR"):
        for when in (" first", ""):
            for where in ("bindfs", "clairfs") if when else ("source", "bindfs", "clairfs"):
                label = f"{name}{', fresh mount' if when else ''}: {where}"
                key = f"{name}{when} {where}"
                ratio = samples.ratio(key, f"{name} source")
                listing.add(label, samples.median(key), "s", note=f"{ratio:.2f} of the source")
    return [files, big, listing, counters]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="2,000 files, a 256 MB file and 3 rounds")
    parser.add_argument("--rounds", type=int, help="default: 5, with --quick 3")
    parser.add_argument("--json", metavar="FILE", help="also write all figures to FILE")
    given = parser.parse_args()
    count, big_bytes = (2_000, 256_000_000) if given.quick else (10_000, 1_000_000_000)
    rounds = given.rounds or (3 if given.quick else 5)
    samples, counters = Samples(), Table("Requests and footprint")

    with contextlib.ExitStack() as stack:
        tmp = stack.enter_context(clairmount.tempdir())
        source = tmp / "src"
        progress(f"making {count} files and one of {big_bytes // 1_000_000} MB")
        names = benchlib.make_dataset(source, count)
        benchlib.make_file(source / "big.bin", big_bytes)
        size = benchlib.bytes_of(source, [*names, "big.bin"])
        ram = f"{size * 5 // 4 // MIB + 64}M"
        everything = write_list(tmp / "all", [*names, "big.bin"])

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
            big_file(source, bind, mount, "big.bin", samples)
            listings(source, bind, mount, samples)
        requests_of_second_pass(mount, files, counters)
        footprint(mount, counters)

    found = tables(samples, counters)
    for table in found:
        table.print()
    if given.json:
        benchlib.write_json(given.json, found, samples)


if __name__ == "__main__":
    main()
