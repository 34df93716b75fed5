#!/usr/bin/python3
"""Small files in shuffled order: clairfs beside the source directory, bindfs, mergerfs and rclone mount.

    tests/bench/rivals.py [--quick] [--rounds N] [--json FILE]

open+read+close of files of three sizes by 1 to 8 readers; of one size by 64 and 256 processes, too, from the source, the RAM
tier and pushed pages, beside 8. The others are warm, rclone's full cache too; clairfs is
measured on a fresh mount (source warm), from its RAM tier, from pages that a plan pushed, and from the page cache. The
same files on an ext4 without large folios show what pages like those of a FUSE mount could be read at.
"""

import contextlib
import os
import random

import benchlib
import clairmount
import plan as planned
from benchlib import MIB, Findings, Table, in_parallel, progress, reader, write_list

SIZES = {"4 KB": (4_000, 2), "110 KB": (110_000, 1), "1 MB": (1_000_000, 0.2)}  # mean bytes, share of the file count
READERS = (1, 2, 4, 8)
MANY, MANY_OF, MANY_FROM = (64, 256), "110 KB", ("source", "journalled", "ram", "pushed")
MOST_QUICK = 64  # readers; more would have too few files each
RAM_OF_BINDFS, RAM_OF_SOURCE = 2.5, 0.3  # one reader, several
PUSHED_OF_JOURNALLED = 0.95  # pages of the same size
SYSTEMS = {
    "source": "source directory, warm",
    "journalled": f"{benchlib.JOURNALLED}, warm",
    "bindfs": "bindfs, warm",
    "mergerfs": "mergerfs, warm",
    "rclone": "rclone mount, full cache, warm",
    "cold": "clairfs, fresh mount, no plan",
    "ram": "clairfs, RAM tier, page cache cold",
    "pushed": "clairfs, first touch of what a plan pushed",
    "page cache": "clairfs, page cache",
}


class Case:
    """Files of one size, and the mounts of the others, which last for all rounds."""

    def __init__(self, found, stack, label, count, mean, many=()):
        self.label, self.count, self.many, self.samples = label, count, many, found.samples
        self.tmp = stack.enter_context(clairmount.tempdir())
        self.source = self.tmp / "src"
        self.names = benchlib.make_dataset(self.source, count, mean)
        self.size = benchlib.padded(self.source, self.names)
        self.roomy = f"{self.size * 5 // 4 // MIB + 64}M"
        self.roots = {"source": self.source, **benchlib.others(found, stack, self.source)}
        copy = stack.enter_context(benchlib.journalled(found, self.source, self.size))
        if copy:
            self.roots["journalled"] = copy
        reader("files", self.roots.get("rclone", self.source), write_list(self.tmp / "all", self.names))
        os.sync()  # rclone's cache and the copy would be written back while others are measured

    def mount(self):
        """It looks for no order, which would be a plan: they all read the same one."""
        return clairmount.clairfs(self.source, "--ram", self.roomy, "--staging", self.roomy, "--infer", "off")

    def measure(self, system, root, lists):
        self.samples.add(f"{self.label} {system} {len(lists)}", in_parallel("files", root, lists))

    def round(self, seed):
        order = benchlib.plan_orders(self.names, seed, 1)[0]
        few = benchlib.split_lists(self.tmp, order, READERS)
        all_ = few | benchlib.split_lists(self.tmp, order, self.many)
        whole = few[1][0]
        for system, root in self.roots.items():
            reader("files", root, whole)  # a machine may take back pages that nobody used for a while
            for lists in (all_ if system in MANY_FROM else few).values():
                self.measure(system, root, lists)
        for lists in few.values():
            benchlib.touch_memory(2 * self.size)
            with self.mount() as mount:
                self.measure("cold", mount.path, lists)
        with self.mount() as mount:
            reader("files", mount.path, whole, mount=mount)
            clairmount.wait_until(lambda: mount.stat("tiers.ram.bytes") >= self.bytes(), "the RAM tier is full")
            for lists in all_.values():
                reader("drop", mount.path, whole, mount=mount)
                self.measure("ram", mount.path, lists)
            for n, lists in all_.items():
                reader("drop", mount.path, whole, mount=mount)
                planned.register(mount, seed=seed, epochs=1, batch=1, more=f"workers={n}")
                planned.wait_until_ahead(mount, self.count)
                self.measure("pushed", mount.path, lists)
                planned.cancel(mount)
            for lists in few.values():
                self.measure("page cache", mount.path, lists)

    def bytes(self):
        return benchlib.bytes_of(self.source, self.names)

    def systems(self):
        """Those that were measured."""
        return {name: text for name, text in SYSTEMS.items() if f"{self.label} {name} 1" in self.samples.rounds}

    def title(self):
        return f"{self.count:,} files of {self.label} in shuffled order, by number of readers"

    def table(self):
        table = Table(self.title())
        for system, name in self.systems().items():
            for n in READERS:
                key = f"{self.label} {system} {n}"
                ratio = (self.samples.ratio(key, f"{self.label} source {n}"), "the source")
                table.add(f"{name}, {n}", self.samples.median(key), "files/s", ratio=ratio)
        for n in READERS:
            self.add_goals(table, n)
        return table

    def many_table(self):
        """Processes on one mount, beside the most of the other table."""
        table = Table(f"{self.count:,} files of {self.label} in shuffled order, many readers of one mount")
        most = READERS[-1]
        for system, name in self.systems().items():
            for n in (most, *self.many) if system in MANY_FROM else ():
                key = f"{self.label} {system} {n}"
                ratio = (self.samples.ratio(key, f"{self.label} source {n}"), "the source")
                beside = self.samples.ratio(key, f"{self.label} {system} {most}")
                note = "" if n == most else f"{beside:.2f} of {most} readers"
                table.add(f"{name}, {n}", self.samples.median(key), "files/s", ratio=ratio, note=note)
        for n in self.many:
            self.add_goals(table, n)
        return table

    def add_goals(self, table, n):
        """What clairfs has to reach of what others do."""
        if n == 1:
            self.add_ratio(table, "ram", "bindfs", n, at_least=RAM_OF_BINDFS)
        else:
            self.add_ratio(table, "ram", "source", n, at_least=RAM_OF_SOURCE)
        self.add_ratio(table, "pushed", "journalled", n, at_least=PUSHED_OF_JOURNALLED)
        self.add_ratio(table, "page cache", "journalled", n)

    def add_ratio(self, table, system, baseline, n, **goal):
        """If both were measured with so many readers."""
        key, of = (f"{self.label} {name} {n}" for name in (system, baseline))
        if key in self.samples.rounds and of in self.samples.rounds:
            table.add(f"{SYSTEMS[system]} / {SYSTEMS[baseline]}, {n}", self.samples.ratio(key, of), **goal)

    def chart(self):
        series = {name: [self.samples.median(f"{self.label} {s} {n}") for n in READERS] for s, name in self.systems().items()}
        return benchlib.lines(self.title(), "readers", "files/s", READERS, series, log=True)


def main():
    given = benchlib.arguments(__doc__, "default: 5; with --quick 2")
    rounds = given.rounds or (2 if given.quick else 5)
    found = Findings(given)
    for label, (mean, share) in SIZES.items():
        with contextlib.ExitStack() as stack:
            many = tuple(n for n in MANY if label == MANY_OF and not (given.quick and n > MOST_QUICK))
            if label == MANY_OF and many != MANY:
                found.skip(f"more than {MOST_QUICK} readers", "too few files for them with --quick")
            case = Case(found, stack, label, int((1_000 if given.quick else 4_000) * share), mean, many)
            for round_ in range(rounds):
                progress(f"{label}, round {round_ + 1} of {rounds}")
                case.round(random.Random(round_).randrange(1000))
        found.add(case.table(), case.chart())
        if many:
            found.add(case.many_table())


if __name__ == "__main__":
    main()
