#!/usr/bin/python3
"""Names and attributes: find, ls -lR, and a stat() of every file in shuffled order by 1 to 8 readers; and the names of one
folder of a million files.

    tests/bench/metadata.py [--quick] [--rounds N] [--only names|folder]... [--json FILE]

On a fresh mount, and when the kernel knows everything already. The source's inodes are in memory throughout.
"""

import contextlib
import os
import random

import benchlib
import clairmount
from benchlib import Findings, Table, in_parallel, progress, timed

READERS = (1, 2, 4, 8)
FRESH_FIND = 0.5  # of the source's rate, on a fresh mount
NAMES = {"source": "source", "bindfs": "bindfs", "mergerfs": "mergerfs", "rclone": "rclone mount", "clairfs": "clairfs"}


@contextlib.contextmanager
def mounted(system, source):
    """The path where a system serves `source`."""
    if system == "source":
        yield source
    elif system == "clairfs":
        with clairmount.clairfs(source) as mount:
            yield mount.path
    else:
        with benchlib.OTHERS[system](source) as mount:
            yield mount.path


def measures(entries, splits):
    """What is done to a mount, each giving entries a second."""
    return {
        "find": lambda root: entries / timed("find", root),
        "ls -lR": lambda root: entries / timed("ls", "-lR", root),
        **{f"stat {n}": lambda root, lists=lists: in_parallel("stat", root, lists) for n, lists in splits.items()},
    }


def round_of(systems, source, entries, splits, samples):
    todo = measures(entries, splits)
    for system in systems:
        for what in ("find", "ls -lR", "stat 1"):
            with mounted(system, source) as root:
                samples.add(f"{what} fresh {system}", todo[what](root))
        with mounted(system, source) as root:
            timed("ls", "-lR", root)
            for what, measure in todo.items():
                samples.add(f"{what} warm {system}", measure(root))


def table_of(title, what, systems, samples):
    """`what`: {text: name of a measure and its state}."""
    table = Table(title)
    for text, name in what.items():
        for system in systems:
            key = f"{name} {system}"
            ratio = (samples.ratio(key, f"{name} source"), "the source")
            table.add(f"{text}: {NAMES[system]}", samples.median(key), "entries/s", ratio=ratio)
    return table


# One large folder


def make_folder(path, count):
    """Of empty files."""
    path.mkdir()
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for i in range(count):
            os.close(os.open(f"sample{i:08d}.jpg", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=folder))
    finally:
        os.close(folder)
    os.sync()


def list_names(path):
    """Seconds that it takes to read all names, in the order that they come in."""
    return timed("ls", "-f", path)


def folder_round(source, samples):
    list_names(source / "large")  # so that it is in memory
    samples.add("folder source", list_names(source / "large"))
    with clairmount.clairfs(source) as mount:
        samples.add("folder fresh", list_names(mount.path / "large"))
        samples.add("folder again", list_names(mount.path / "large"))


def folder_table(count, samples):
    table = Table(f"The names of one folder of {count:,} files (ls -f)")
    for state, text in (("source", "source"), ("fresh", "clairfs, fresh mount"), ("again", "clairfs, again")):
        ratio = None if state == "source" else (samples.ratio(f"folder {state}", "folder source"), "the source's time")
        table.add(text, samples.median(f"folder {state}"), "s", ratio=ratio)
    return table


def folder(found, count, rounds):
    with clairmount.tempdir() as source:
        progress(f"making a folder of {count:,} files")
        make_folder(source / "large", count)
        for round_ in range(rounds):
            progress(f"a large folder, round {round_ + 1} of {rounds}")
            folder_round(source, found.samples)
    found.add(folder_table(count, found.samples))


def names(found, count, rounds):
    samples = found.samples
    systems = ["source", *benchlib.installed_others(found), "clairfs"]
    with clairmount.tempdir() as tmp:
        source = tmp / "src"
        files = benchlib.make_dataset(source, count, 100)
        entries = count + count // benchlib.PER_CLASS
        for round_ in range(rounds):
            progress(f"metadata, round {round_ + 1} of {rounds}")
            splits = benchlib.split_lists(tmp, random.Random(round_).sample(files, count), READERS)
            round_of(systems, source, entries, splits, samples)

    what = {"find": "find", "ls -lR": "ls -lR", "stat, shuffled": "stat 1"}
    for state, text in (("fresh", "fresh mount"), ("warm", "known to the kernel")):
        title = f"Names and attributes of {count:,} files, {text}"
        series = {NAMES[s]: [samples.median(f"{name} {state} {s}") for name in what.values()] for s in systems}
        chart = benchlib.bars(title, "entries/s", what, series, log=True)
        table = table_of(title, {k: f"{v} {state}" for k, v in what.items()}, systems, samples)
        goal = {"at_least": FRESH_FIND} if state == "fresh" else {}
        table.add("find: clairfs / the source", samples.ratio(f"find {state} clairfs", f"find {state} source"), **goal)
        found.add(table, chart)
    title = f"stat() of {count:,} files in shuffled order, 1 to 8 readers"
    storms = {f"{n} reader{'s' if n > 1 else ''}": f"stat {n} warm" for n in READERS}
    series = {NAMES[s]: [samples.median(f"{name} {s}") for name in storms.values()] for s in systems}
    chart = benchlib.lines(title, "readers", "entries/s", READERS, series, log=True)
    found.add(table_of(title, storms, systems, samples), chart)


def main():
    given = benchlib.arguments(__doc__, "default: 5, with --quick 3", ("names", "folder"))
    rounds = given.rounds or (3 if given.quick else 5)
    found = Findings(given)
    if "names" in given.only:
        names(found, 5_000 if given.quick else 20_000, rounds)
    if "folder" in given.only:
        folder(found, 100_000 if given.quick else 1_000_000, rounds)


if __name__ == "__main__":
    main()
