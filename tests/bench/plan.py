#!/usr/bin/python3
"""What a registered plan is worth: first touch of pushed files, an emulated slow PFS, bytes read from the PFS.

    tests/bench/plan.py [--quick] [--rounds N] [--only push|slow|bytes|memory]... [--json FILE]

Baselines are measured in the same run, interleaved with what they are compared with; figures are medians over
the rounds. What the slow filesystem counted is the witness for what was read. Data is compared with the source.
"""

import re
import statistics
import subprocess

import benchlib
import clairmount
from benchlib import MIB, Findings, Table, counted_requests, progress, rate, reader, write_list

BATCH = 32
PUSH_SECONDS = 120
PLAN = "name=bench seed={seed} epochs={epochs} batch={batch}"


def register(mount, more="", **keys):
    (mount.path / ".clairfs/plan").write_text(f"{PLAN.format(**keys)} {more}\n")


def cancel(mount):
    command = [clairmount.binary(), "plan", "cancel", mount.path, "--name", "bench"]
    subprocess.run(command, stdout=subprocess.DEVNULL, timeout=60, check=True)


def plan_of(mount):
    return next(plan for plan in mount.stats()["plan_list"] if plan["name"] == "bench")


def wait_until_ahead(mount, count):
    try:
        clairmount.wait_until(lambda: plan_of(mount)["ahead"] >= count, f"{count} samples are ahead", PUSH_SECONDS)
    except TimeoutError:
        print(mount.control("status"))
        raise


def require_same(what, run, sums):
    """Order does not matter to the sums: each epoch has the whole dataset in it."""
    if run["sum"] != sums:
        raise SystemExit(f"WRONG DATA: {what}: sum {run['sum']}, the source has {sums}")


# First touch of what was pushed


def push_round(source, names, size, seed, tmp, samples):
    order = write_list(tmp / "push-order", benchlib.plan_orders(names, seed, 1)[0])
    sums = reader("files", source, order, "--sum")[0]["sum"]
    samples.add("source", rate(reader("files", source, order)[0]))
    roomy = f"{size * 5 // 4 // MIB + 64}M"

    benchlib.touch_memory(2 * size)
    with clairmount.clairfs(source, "--ram", roomy, "--staging", roomy) as mount:
        push_and_read(mount, order, len(names), seed, "cold", samples)
        samples.add("second touch", rate(reader("files", mount.path, order, mount=mount)[0]))
        require_same("pushed pages", reader("files", mount.path, order, "--sum", mount=mount)[0], sums)
    with clairmount.clairfs(source, "--ram", roomy, "--staging", roomy) as mount:
        reader("files", mount.path, order, mount=mount)
        full = benchlib.bytes_of(source, names)
        clairmount.wait_until(lambda: mount.stat("tiers.ram.bytes") >= full, "the dataset is in the RAM tier")
        reader("drop", mount.path, order, mount=mount)
        benchlib.touch_memory(size)
        samples.add("ram tier", rate(reader("files", mount.path, order, mount=mount)[0]))
        reader("drop", mount.path, order, mount=mount)
        push_and_read(mount, order, len(names), seed, "ram", samples)
        require_same("pages pushed from RAM", reader("files", mount.path, order, "--sum", mount=mount)[0], sums)


def push_and_read(mount, order, count, seed, label, samples):
    cpu, pushed = benchlib.cpu_seconds(mount.pid), mount.stat("staging.pushed_bytes")
    register(mount, seed=seed, epochs=1, batch=1)
    wait_until_ahead(mount, count)
    cpu = benchlib.cpu_seconds(mount.pid) - cpu
    samples.add(f"cpu {label}", cpu / ((mount.stat("staging.pushed_bytes") - pushed) / 1e9))
    fetches = mount.stat("pfs.opens")
    with counted_requests(mount) as counted:
        run = reader("files", mount.path, order, mount=mount)[0]
    samples.add(f"first touch {label}", rate(run))
    samples.add(f"fetches {label}", mount.stat("pfs.opens") - fetches)
    samples.add(f"requests {label}", sum(counted.values()) / count)
    samples.add(f"reads {label}", counted["read"] / count)
    samples.add(f"forgets {label}", counted["forget"] / count)


def push_table(samples, count):
    table = Table(f"{count:,} files pushed ahead, shuffled, one reader")
    table.add("source, warm page cache", samples.median("source"), "files/s")
    table.add("clairfs, RAM tier, without a plan", samples.median("ram tier"), "files/s")
    for label, where in (("cold", "from the source"), ("ram", "from the RAM tier")):
        table.add(f"first touch, pushed {where}", samples.median(f"first touch {label}"), "files/s")
        ratio = samples.ratio(f"first touch {label}", "source")
        table.add(f"first touch, pushed {where} / source", ratio, at_least=0.7)
        note = f"reads {samples.median(f'reads {label}'):.4f}, forgets {samples.median(f'forgets {label}'):.4f}"
        table.add(f"requests for a file, pushed {where}", samples.median(f"requests {label}"), at_most=0.03, note=note)
        table.add(f"files fetched again while reading, pushed {where}", samples.median(f"fetches {label}"))
    table.add("second touch / source", samples.ratio("second touch", "source"))
    table.add("daemon CPU, fetched and pushed", samples.median("cpu cold"), "s/GB")
    table.add("daemon CPU, pushed from the RAM tier", samples.median("cpu ram"), "s/GB")
    return table


# An emulated slow PFS

# What one node with a plan has to reach: total / lower bound, and stalls in percent of an epoch.
MOST_TOTAL = 1.015
MOST_STALL_0 = {"one reader": 2, "workers": 1}  # of epoch 0, after the first window
MOST_STALL_LATER = {"one reader": 0.3, "workers": 0.5}

SLOW_WORKERS = 4
SLOW = {
    "plan": "with a plan",
    "plan, workers": f"with a plan, {SLOW_WORKERS} loading threads",
    "no plan": "without a plan",
    "no cache, workers": f"{SLOW_WORKERS} loading threads on the PFS",
}


class SlowCase:
    """A dataset, a PFS that reads it in `size / bandwidth` seconds, and computing that takes as long."""

    def __init__(self, tmp, count, epochs):
        self.count = count
        self.epochs = epochs
        self.bandwidth = 20_000_000
        self.latency_us = 1000
        self.source = tmp / "slow-src"
        self.names = benchlib.make_dataset(self.source, self.count)
        self.size = benchlib.bytes_of(self.source, self.names)
        self.cache = self.size // 2
        self.staging = 32 * MIB
        self.compute_us = int(1e6 * self.size / self.bandwidth / (self.count // BATCH))
        self.orders = [
            write_list(tmp / f"slow-order-{e}", order)
            for e, order in enumerate(benchlib.plan_orders(self.names, 1, self.epochs))
        ]
        self.sum = reader("files", self.source, self.orders[0], "--sum")[0]["sum"]
        self.warm_batch = None

    def measure_warm(self):
        """What reading a batch takes from the warm page cache of the source; once a round. As in what is measured, with
        the checksum and the same pauses: after one of 50 ms it takes 1.7 ms, after one of 180 ms 2.5 to 4."""
        reader("files", self.source, self.orders[0])
        paced = ("--batch", BATCH, "--compute-us", self.compute_us, "--sum")
        self.warm_batch = statistics.median(reader("files", self.source, self.orders[0], *paced)[0]["waits"])
        progress(f"a batch from the source's warm page cache: {1e3 * self.warm_batch:.2f} ms")

    def pfs(self):
        benchlib.touch_memory(4 * self.size)
        return clairmount.slowfs(self.source, "--latency", str(self.latency_us), "--bandwidth", str(self.bandwidth))

    def least_bytes(self, cache):
        return self.size + (self.epochs - 1) * max(0, self.size - cache)

    def bound(self, cache):
        compute = self.epochs * (self.count // BATCH) * self.compute_us * 1e-6
        return max(compute, self.least_bytes(cache) / self.bandwidth)

    def read(self, root, *options, mount=None, dropping=False):
        """All epochs. `mount`: of clairfs; `stalled` is then what it counted of the epoch as waiting in reads that were
        not ready. `dropping`: the mount's pages leave the page cache after each, as those of a dataset would that is
        larger than memory."""
        batches = ("--batch", BATCH, "--compute-us", self.compute_us, "--sum")
        runs = []
        ended = None
        for epoch, order in enumerate(self.orders):
            before = mount.stat("stall_seconds") if mount else 0
            (run,) = reader("files", root, order, *batches, *options, mount=mount)
            require_same(f"epoch {epoch} of {root}", run, self.sum)
            end = run["begin"] + run["seconds"]
            if ended is not None and not dropping:  # what is between two epochs belongs to the later one
                run["seconds"] = end - ended
            ended = end
            if mount:
                run["stalled"] = mount.stat("stall_seconds") - before
            if dropping:
                reader("drop", root, order, mount=mount)
            runs.append(run)
        return runs

    def window(self):
        """Batches that the staging window holds."""
        return self.staging * self.count // self.size // BATCH

    def stall(self, run, skip=0, warm=None):
        """Seconds waited beyond what reading from a warm page cache takes (`warm`, a batch), as a share of the epoch."""
        waits = run["waits"][skip:]
        return max(0, sum(waits) - len(waits) * (self.warm_batch if warm is None else warm)) / run["seconds"]


def slow_round(case, samples):
    case.measure_warm()
    window = case.window()
    for label in SLOW:
        workers = SLOW_WORKERS if label.endswith("workers") else 0
        options = ("--workers", workers) if workers else ()
        with case.pfs() as pfs:
            if label == "no cache, workers":
                record_slow(case, label, case.read(pfs.path, *options), pfs, window, samples)
                continue
            with clairmount.clairfs(pfs.path, "--ram", case.cache, "--staging", case.staging) as mount:
                planned = label.startswith("plan")
                if planned:
                    register(mount, f"workers={workers}", seed=1, epochs=case.epochs, batch=BATCH)
                runs = case.read(mount.path, *options, mount=mount)
                record_slow(case, label, runs, pfs, window, samples)
                samples.add(f"{label} stats stall", mount.stat("stall_seconds"))
                if planned:
                    plan = plan_of(mount)
                    samples.add("plan out of order", plan["out_of_order"])
                    samples.add("plan suspensions", plan["suspensions"])


def record_slow(case, label, runs, pfs, window, samples):
    samples.add(f"{label} stall 0 all", case.stall(runs[0]))
    samples.add(f"{label} stall 0", case.stall(runs[0], window))
    later = [case.stall(run) * run["seconds"] for run in runs[1:]]
    samples.add(f"{label} stall later", sum(later) / sum(run["seconds"] for run in runs[1:]))
    samples.add(f"{label} total", sum(run["seconds"] for run in runs))
    samples.add(f"{label} bytes", pfs.counters()["bytes"])
    for epoch, run in enumerate(runs):
        progress(f"{label}: epoch {epoch}: {run['seconds']:.2f} s, {sum(run['waits']):.3f} s of them in reads")


def slow_table(case, samples):
    title = (
        f"Emulated PFS, {case.bandwidth // 1_000_000} MB/s and {case.latency_us} us: {case.count:,} files, "
        f"{case.size / 1e6:.0f} MB, {case.epochs} epochs, RAM tier {case.cache / case.size:.2f} S, "
        "computing as long as reading"
    )
    table = Table(title)
    bound = case.bound(case.cache)
    table.add("lower bound", bound, "s")
    for label, name in SLOW.items():
        cache = 0 if label.startswith("no cache") else case.cache
        goal = (lambda value: {"at_most": value}) if label.startswith("plan") else (lambda value: {})
        who = "workers" if label.endswith("workers") else "one reader"
        table.add(f"{name}: total", samples.median(f"{label} total"), "s")
        table.add(f"{name}: total / lower bound", samples.median(f"{label} total") / bound, **goal(MOST_TOTAL))
        for stall, when, most in (
            ("stall 0 all", "epoch 0", None),
            ("stall 0", "epoch 0 after the first window", MOST_STALL_0[who]),
            ("stall later", "later epochs", MOST_STALL_LATER[who]),
        ):
            share = 100 * samples.median(f"{label} {stall}")
            table.add(f"{name}: stall, {when}", share, "%", **goal(most))
        read = samples.median(f"{label} bytes") / case.least_bytes(cache)
        table.add(f"{name}: PFS bytes / least", read, **goal(1.01))
        if cache > 0:
            share = 100 * samples.ratio(f"{label} stats stall", f"{label} total")
            table.add(f"{name}: stall_seconds as counted, whole run", share, "%")
    table.add("with a plan: samples out of order", samples.median("plan out of order"), at_most=0)
    table.add("with a plan: times suspended", samples.median("plan suspensions"), at_most=0)
    return table


# Bytes read from the PFS


def bytes_round(tmp, quick, samples):
    source = tmp / "bytes-src"
    if not source.exists():
        benchlib.make_dataset(source, 2048 if quick else 4096)
    names = clairmount.tree_files(source)
    size, epochs = benchlib.bytes_of(source, names), 4
    seed = 7 + len(samples.rounds.get("0.25 RAM, paced", []))
    orders = [write_list(tmp / f"bytes-order-{e}", o) for e, o in enumerate(benchlib.plan_orders(names, seed, epochs))]
    sums = reader("files", source, orders[0], "--sum")[0]["sum"]

    def usable(ram, slots):
        """Bytes of files that can be kept: in RAM each takes whole sectors, on NVMe whole pages, and 1/256 stays free."""
        padding = {unit: benchlib.padded(source, names, unit) / size for unit in (512, benchlib.PAGE)}
        return ram / padding[512] + slots * 255 / 256 / padding[benchlib.PAGE]

    for ram, nvme in ((0.25, 0), (0.5, 0), (0.75, 0), (1.2, 0), (0.25, 0.25), (0.25, 0.5), (0.25, 2)):
        for pace, compute_us in (("paced", 20_000), ("at full speed", 0)):
            label = f"{ram} RAM{f' + {nvme} NVMe' if nvme else ''}, {pace}"
            with clairmount.slowfs(source) as pfs, clairmount.tempdir() as disk:
                disk.chmod(0o700)  # the daemon wants it so
                options = ["--ram", int(ram * size), "--staging", 16 * MIB]
                if nvme:
                    options += ["--nvme", f"{disk}:{int(nvme * size)}"]
                with clairmount.clairfs(pfs.path, *options) as mount:
                    register(mount, seed=seed, epochs=epochs, batch=BATCH)
                    runs = reader(
                        "files", mount.path, *orders, "--batch", BATCH, "--compute-us", compute_us, "--sum", mount=mount
                    )
                    for run in runs:
                        require_same(label, run, sums)
                    counted, seen = mount.stat("pfs.bytes"), pfs.counters()
                    written = mount.stat("nvme.write_bytes")
                    plan = plan_of(mount)
                slots = sum(path.stat().st_size for path in disk.glob("segment-*"))
            least, able = (
                size + (epochs - 1) * max(0, size - cache) for cache in ((ram + nvme) * size, usable(ram * size, slots))
            )
            samples.add(label, seen["bytes"] / least)
            samples.add(f"{label}, usable", seen["bytes"] / able)
            samples.add(f"{label}, counted", counted / seen["bytes"])
            progress(
                f"{label}: {seen['bytes'] / least:.4f} of the bound, {seen['bytes'] / able:.4f} of that for what the "
                f"tiers can hold, pfs.bytes {counted}, witness {seen['bytes']}, {written / size:.2f} S to NVMe, "
                f"opens of one file at most {seen['opens_per_file_max']}, state {plan['state']}, "
                f"out of order {plan['out_of_order']}, {sum(r['seconds'] for r in runs):.2f} s"
            )


def bytes_table(samples):
    table = Table("PFS bytes / (S + (E-1) max(0, S-D)), 4 epochs, as the PFS counted them")
    for label in samples.rounds:
        if " RAM" in label and not label.endswith(("counted", "usable")):
            note = f"by what the tiers can hold {samples.median(f'{label}, usable'):.4f}, "
            note += f"pfs.bytes / witness {samples.median(f'{label}, counted'):.4f}"
            table.add(f"D = {label}", samples.median(label), at_most=1.01, note=note)
    return table


# Memory of a plan


def memory_table():
    table = Table("Memory of a plan: ImageNet-1k, 1,281,167 samples, 90 epochs, world=64")
    path = clairmount.build_dir() / "tests/bench/plan_bench"
    if not path.exists():
        progress(f"{path} is not built (libbenchmark-dev): no figures for the memory of a plan")
        return table
    command = [path, "--benchmark_filter=plan_memory", "--benchmark_format=csv"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    header, *rows = [line.split(",") for line in printed.splitlines() if re.match(r'name|"plan_memory', line)]
    for row in rows:
        cells = dict(zip((name.strip('"') for name in header), row, strict=True))
        label = cells["name"].strip('"').split("/")[1]
        table.add(label, float(cells["bytes"]) / MIB, "MiB", at_most=64, note=benchlib.runs_text(1))
    return table


def main():
    given = benchlib.arguments(
        __doc__, "default: 5; with --quick 3 for pushed files, else 1", ("push", "slow", "bytes", "memory")
    )
    parts = given.only
    fast_rounds = given.rounds or (3 if given.quick else 5)
    slow_rounds = given.rounds or (1 if given.quick else 5)
    found = Findings(given)
    every = found.samples

    with clairmount.tempdir() as tmp:
        if "push" in parts:
            names = benchlib.make_dataset(tmp / "src", 2_000 if given.quick else 10_000)
            size = benchlib.padded(tmp / "src", names)
            for round_ in range(fast_rounds):
                progress(f"pushed files, round {round_ + 1} of {fast_rounds}")
                push_round(tmp / "src", names, size, round_, tmp, every)
            found.add(push_table(every, len(names)))
        if "slow" in parts:
            case = SlowCase(tmp, 1024, 2) if given.quick else SlowCase(tmp, 2048, 3)
            for round_ in range(slow_rounds):
                progress(f"slow PFS, round {round_ + 1} of {slow_rounds}")
                slow_round(case, every)
            found.add(slow_table(case, every))
        if "bytes" in parts:
            for round_ in range(slow_rounds):
                progress(f"PFS bytes, round {round_ + 1} of {slow_rounds}")
                bytes_round(tmp, given.quick, every)
            found.add(bytes_table(every))
        if "memory" in parts:
            found.add(memory_table())


if __name__ == "__main__":
    main()
