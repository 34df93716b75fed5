#!/usr/bin/python3
"""Whether FUSE over io_uring helps: the same reads through /dev/fuse and through rings.

    tests/bench/fuse_uring.py [--quick] [--rounds N] [--json FILE]

Needs root, a kernel with /sys/module/fuse/parameters/enable_uring, which is set for the run and put back, and a libfuse
3.18 that was built with io_uring. Debian's is not; LD_LIBRARY_PATH may name another.
Rings are switched on by FUSE_URING_ENABLE, which libfuse itself reads; clairfs has no switch. Do not use them for work:
the README says what they break.
Each round mounts for each way, in turns. Ratios are those within a round; data is compared with the source.
"""

import contextlib
import os
import pathlib
import random
import resource
import time

import benchlib
import clairmount
import frontend
import plan
from benchlib import MIB, Findings, Table, counted_requests, progress, rate, reader, write_list

SWITCH = pathlib.Path("/sys/module/fuse/parameters/enable_uring")
WAYS = {"/dev/fuse": {"FUSE_URING_ENABLE": "0"}, "rings": {"FUSE_URING_ENABLE": "1"}}
READERS = 4
SIZES = {4_000: "4 KB", 110_000: "110 KB"}  # messages cost more than bytes, and the other way round
CASES = {
    "stat": "stat, nothing known",
    "first": "first pass, no plan",
    "one": "RAM tier, one reader",
    "many": f"RAM tier, {READERS} readers",
    "push": "pushed by a plan, nothing known",
    "touch": "first touch of what was pushed",
}


@contextlib.contextmanager
def switched_on():
    before = SWITCH.read_text()
    SWITCH.write_text("Y")
    try:
        yield
    finally:
        SWITCH.write_text(before)


def require_way(mount, way):
    """libfuse falls back to the device in silence."""
    mount.stats()  # the rings are there once the kernel and libfuse have agreed on them
    names = {(task / "comm").read_text().strip() for task in pathlib.Path(f"/proc/{mount.pid}/task").iterdir()}
    if any(name.startswith("fuse-ring") for name in names) != (way == "rings"):
        raise SystemExit(f"not served through {way}: is libfuse built with io_uring? threads: {sorted(names)}")


def cpu_of(pid):
    """Processor seconds of the daemon, and of all readers so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return benchlib.cpu_seconds(pid), used.ru_utime + used.ru_stime


def measured(mount, case, count, samples, act):
    """What `act` returns are files a second."""
    with counted_requests(mount) as counted:
        before = cpu_of(mount.pid)
        samples.add(f"{case} rate", act())
        daemon, readers = (after - begin for after, begin in zip(cpu_of(mount.pid), before, strict=True))
    samples.add(f"{case} daemon", 1e6 * daemon / count)
    samples.add(f"{case} cpu", 1e6 * (daemon + readers) / count)
    samples.add(f"{case} requests", sum(counted.values()) / count)


def pushed(mount, seed, count):
    begin = time.monotonic()
    plan.register(mount, seed=seed, epochs=1, batch=1)
    plan.wait_until_ahead(mount, count)
    return count / (time.monotonic() - begin)


def one_way(source, names, tmp, seed, way, label, samples):
    order = write_list(tmp / "order", random.Random(seed).sample(names, len(names)))
    planned = write_list(tmp / "planned", benchlib.plan_orders(names, seed, 1)[0])
    lists = benchlib.split_lists(tmp, order.read_text().split(), [READERS])[READERS]
    size, count = benchlib.bytes_of(source, names), len(names)
    sums = reader("files", source, order, "--sum")[0]["sum"]
    roomy = f"{2 * size // MIB + 64}M"
    key = f"{label} {way}"

    def files(mount, which=order):
        return rate(reader("files", mount.path, which, mount=mount)[0])

    benchlib.touch_memory(2 * size)
    with clairmount.clairfs(source, "--ram", roomy, env=WAYS[way]) as mount:
        require_way(mount, way)
        measured(mount, f"{key} stat", count, samples, lambda: rate(reader("stat", mount.path, order, mount=mount)[0]))
        measured(mount, f"{key} first", count, samples, lambda: files(mount))
        frontend.wait_for_ram_tier(mount, size)
        reader("drop", mount.path, order, mount=mount)
        measured(mount, f"{key} one", count, samples, lambda: files(mount))
        reader("drop", mount.path, order, mount=mount)
        measured(mount, f"{key} many", count, samples, lambda: benchlib.in_parallel("files", mount.path, lists))
        plan.require_same(f"through {way}", reader("files", mount.path, order, "--sum", mount=mount)[0], sums)
    benchlib.touch_memory(2 * size)
    with clairmount.clairfs(source, "--ram", roomy, "--staging", roomy, env=WAYS[way]) as mount:
        require_way(mount, way)
        measured(mount, f"{key} push", count, samples, lambda: pushed(mount, seed, count))
        measured(mount, f"{key} touch", count, samples, lambda: files(mount, planned))
        plan.require_same(f"pushed, {way}", reader("files", mount.path, planned, "--sum", mount=mount)[0], sums)


def table_of(label, count, samples):
    table = Table(f"{count:,} files of {label}: FUSE over io_uring beside /dev/fuse")

    def add(text, figure, unit, note=lambda way: ""):
        for way in WAYS:
            key, base = f"{label} {way} {figure}", f"{label} /dev/fuse {figure}"
            ratio = None if key == base else (samples.ratio(key, base), "/dev/fuse")
            table.add(f"{text}: {way}", samples.median(key), unit, ratio=ratio, note=note(way))

    def parts(way, case):
        daemon, requests = (samples.median(f"{label} {way} {case} {figure}") for figure in ("daemon", "requests"))
        return f"daemon {daemon:.1f}, requests {requests:.2f} a file"

    for case, text in CASES.items():
        add(text, f"{case} rate", "files/s")
        add(f"{text}, CPU of daemon and readers", f"{case} cpu", "us/file", lambda way, case=case: parts(way, case))
    return table


def main():
    given = benchlib.arguments(__doc__, "default: 7, with --quick 3")
    if not SWITCH.exists():
        raise SystemExit(f"this kernel has no FUSE over io_uring: no {SWITCH}")
    found = Findings(given)
    rounds = given.rounds or (3 if given.quick else 7)
    count = 2_000 if given.quick else 5_000
    with switched_on(), clairmount.tempdir() as tmp:
        datasets = {label: benchlib.make_dataset(tmp / label, count, mean) for mean, label in SIZES.items()}
        for round_ in range(rounds):
            progress(f"FUSE over io_uring, round {round_ + 1} of {rounds}, load {os.getloadavg()[0]:.1f}")
            for label, names in datasets.items():
                for way in sorted(WAYS, reverse=round_ % 2 == 1):
                    one_way(tmp / label, names, tmp, round_, way, label, found.samples)
    for label in datasets:
        found.add(table_of(label, count, found.samples))


if __name__ == "__main__":
    main()
