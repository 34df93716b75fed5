"""What the benchmarks share: datasets, the plain reader, other filesystems, counters of a mount, and what was found."""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support/python"))
# Nobody means to measure the build that tests use.
os.environ.setdefault("CLAIRFS_BUILD_DIR", str(pathlib.Path(__file__).resolve().parents[2] / "build/release"))

import clairmount

PER_CLASS = 100  # files in a class folder
READ_SECONDS = 300  # no reader of these benchmarks takes that long unless something hangs
START_SECONDS = 0.1  # eight readers have then started and read their lists; one that is late is not left out
START_READERS = 8
PAGE = 4096
MIB = 1 << 20


def make_dataset(root, count, mean=110_000, seed=0):
    """An ImageFolder of `count` files of 0.8 to 1.2 times `mean` bytes. Returns the names as samples are numbered."""
    chance = random.Random(seed)
    root = pathlib.Path(root)
    names = []
    for i in range(count):
        name = f"class{i // PER_CLASS:04d}/sample{i:06d}.jpg"
        if i % PER_CLASS == 0:
            (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(chance.randbytes(chance.randint(mean * 8 // 10, mean * 12 // 10)))
        names.append(name)
    os.sync()
    return names


def make_file(path, size, seed=0):
    """A large file of seeded random bytes."""
    chance = random.Random(seed)
    with open(path, "wb") as file:
        for offset in range(0, size, MIB):
            file.write(chance.randbytes(min(MIB, size - offset)))
    os.sync()


def npy_header(rows, size):
    """Of `rows` arrays of `size` bytes, as numpy.save() writes it: format 1.0, as long as makes rows begin at 64 bytes."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({rows}, {size}), }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"  # 10 bytes before it
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def bytes_of(root, names):
    return sum(os.stat(os.path.join(root, name)).st_size for name in names)


def write_list(path, names):
    pathlib.Path(path).write_text("".join(f"{name}\n" for name in names))
    return path


TORCH = ("sampler=torch.distributed",)


def plan_orders(names, seed, epochs, world=1, rank=0, keys=TORCH):
    """The files in the order of a plan of `keys` and `seed=SEED` for one of `world` ranks, one list for each epoch."""
    command = [clairmount.binary(), "plan", "order", *keys, f"seed={seed}", f"n={len(names)}", f"world={world}"]
    orders = []
    for epoch in range(epochs):
        printed = subprocess.run(
            [*command, "--epoch", str(epoch), "--rank", str(rank)], capture_output=True, text=True, timeout=60, check=False
        )
        if printed.returncode != 0:
            if TORCH[0] not in keys:
                raise RuntimeError(f"{' '.join(keys)}: {printed.stderr}")
            return _torch_orders(names, seed, epochs, world, rank)
        orders.append([names[int(line)] for line in printed.stdout.split()])
    return orders


def _torch_orders(names, seed, epochs, world, rank):
    from torch.utils.data.distributed import DistributedSampler  # slow to import, and not needed by all

    sampler = DistributedSampler(range(len(names)), num_replicas=world, rank=rank, seed=seed)
    orders = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        orders.append([names[i] for i in sampler])
    return orders


def reader(mode, *arguments, mount=None, timeout=READ_SECONDS):
    """Runs bench_reader; one dict for each line that it prints. A mount's state is shown when it hangs."""
    path = clairmount.build_dir() / "tests/bench/bench_reader"
    command = [str(path), mode, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            printed, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            print(f"HANG: {' '.join(command)}: not done in {timeout} s", file=sys.stderr)
            _show_state(mount)
            process.kill()
            raise
    if process.returncode != 0:
        _show_state(mount)
        raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}")
    return [json.loads(line) for line in printed.splitlines()]


def _show_state(mount):
    if mount is None:
        return
    shown = subprocess.run(
        ["cat", mount.path / ".clairfs/status"], capture_output=True, text=True, timeout=20, check=False
    )
    print(shown.stdout, file=sys.stderr)


def let_read_ahead(path):
    """The kernel reads a MiB ahead on the mount at `path`, as the clients of parallel filesystems do (as root)."""
    device = os.stat(path).st_dev
    with contextlib.suppress(OSError):
        pathlib.Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").write_text("1024\n")


def rate(run):
    return run["files"] / run["seconds"]


def together(mode, arguments):
    """Runs of as many readers as there are `arguments` (a tuple for each), which begin together; and the seconds from the
    first one's begin to the last one's end."""
    begin = time.monotonic() + START_SECONDS * max(1, len(arguments) / START_READERS)
    with concurrent.futures.ThreadPoolExecutor(len(arguments)) as pool:
        runs = [runs[0] for runs in pool.map(lambda words: reader(mode, *words, "--begin", begin), arguments)]
    return runs, max(run["begin"] + run["seconds"] for run in runs) - min(run["begin"] for run in runs)


def in_parallel(mode, root, lists):
    """Files a second of as many readers as there are lists, each with its own."""
    runs, seconds = together(mode, [(root, files) for files in lists])
    return sum(run["files"] for run in runs) / seconds


def split_lists(tmp, order, counts):
    """The order dealt out to each number of readers, as DataLoader deals batches of one to its workers."""
    return {n: [write_list(tmp / f"order-{n}-{i}", order[i::n]) for i in range(n)] for n in counts}


def timed(*command):
    """Seconds that a program takes; its output is discarded."""
    begin = time.monotonic()
    subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, timeout=READ_SECONDS, check=True)
    return time.monotonic() - begin


def run_measured(*command, timeout):
    """What a program prints, the seconds that it takes, and the most memory that it has, in bytes; this process's own if that
    is more, since the program begins as a copy of it."""
    begin = time.monotonic()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    late = threading.Timer(timeout, process.kill)
    late.start()
    try:
        printed = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        late.cancel()
        process.stdout.close()
        if process.returncode is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {process.returncode}")
    return printed, time.monotonic() - begin, 1024 * used.ru_maxrss


class _Served(clairmount._Daemon):
    pass


@contextlib.contextmanager
def _served(source, *command):
    """A program that serves `source` in the foreground; MNT and TMP in its words are replaced. Yields an object with
    `path`."""
    with clairmount.tempdir() as tmp:
        (tmp / "mnt").mkdir()
        served = _Served(source, tmp / "mnt", tmp / "log")
        served._start([str(word).replace("MNT", str(served.path)).replace("TMP", str(tmp)) for word in command])
        with served._scope():
            yield served


def bindfs(source):
    """As it comes, read-only."""
    return _served(source, "bindfs", "-f", "-r", source, "MNT")


def mergerfs(source):
    """With the page cache, as its manual advises."""
    return _served(source, "mergerfs", "-f", "-o", "cache.files=auto-full,dropcacheonclose=false", source, "MNT")


def rclone(source, cache_bytes=None):
    """With its full VFS cache, of at most `cache_bytes`.

    It keeps to that only when it looks, and without a fast fingerprint it reads every file once more for a checksum.
    """
    options = ["--read-only", "--vfs-cache-mode", "full", "--cache-dir", "TMP/cache", "--dir-cache-time", "24h"]
    options += ["--attr-timeout", "24h", "--vfs-fast-fingerprint", "--config", "TMP/none"]
    if cache_bytes is not None:  # without the B it would be KiB
        options += ["--vfs-cache-max-size", f"{cache_bytes}B", "--vfs-cache-poll-interval", "100ms"]
    return _served(source, "rclone", "mount", *options, source, "MNT")


OTHERS = {"bindfs": bindfs, "mergerfs": mergerfs, "rclone": rclone}


def others(found, stack, source):
    """Mounts of the filesystems that clairfs is compared with, those that are installed: {name: path}. They live as long
    as `stack`."""
    return {name: stack.enter_context(OTHERS[name](source)).path for name in installed_others(found)}


def installed_others(found):
    for name in OTHERS:
        if shutil.which(name):
            yield name
        else:
            found.skip(name, f"not installed (apt-get install {name})")


JOURNALLED = "ext4 without large folios"


@contextlib.contextmanager
def journalled(found, source, size):
    """A copy of `source`, which takes `size` bytes, on an ext4 with data=journal, in a loop device; None if that cannot be
    had here.

    Where data is journalled, ext4 has no large folios. Nor have the pages of a FUSE mount that are pushed or read by a
    server of this protocol, and a warm page cache is read faster in large folios, whoever the server is.
    """
    with clairmount.tempdir() as tmp:
        try:
            copy = _mount_image(tmp, source, size)
        except (OSError, subprocess.CalledProcessError) as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            found.skip(JOURNALLED, f"no loop mount: {said[-1] if said else error}")
            yield None
            return
        try:
            yield copy
        finally:
            subprocess.run(["umount", copy], timeout=READ_SECONDS, check=False)  # frees the loop device, too


def _mount_image(tmp, source, size):
    image, point = tmp / "image", tmp / "mnt"
    point.mkdir()
    with open(image, "wb") as file:
        file.truncate(size * 3 // 2 + 256 * MIB)
    for command in (["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop,data=journal", image, point]):
        subprocess.run(command, capture_output=True, text=True, timeout=READ_SECONDS, check=True)
    subprocess.run(["cp", "-R", f"{source}/.", point], capture_output=True, text=True, timeout=READ_SECONDS, check=True)
    os.sync()
    return point


def available_memory():
    """Bytes that the kernel could give to programs."""
    fields = (line.split() for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return 1024 * next(int(field[1]) for field in fields if field[0] == "MemAvailable:")


def touch_memory(size):
    """Allocates, touches and frees memory, in a process of its own: at most half of what is free.

    A virtual machine's host takes free memory back; the first touch then takes milliseconds for each 2 MiB. Without
    this, that would be most of what a first pass measures. The kernel does not hand out again what was freed last, so
    touch several times as much as will be used. Huge pages, too: the kernel takes single ones from blocks that are
    broken up already, and the whole blocks, which tiers get, would stay with the host.
    """
    size = min(size, available_memory() // 2)
    program = """
import contextlib, mmap, sys
size = int(sys.argv[1])
for advice in mmap.MADV_NOHUGEPAGE, mmap.MADV_HUGEPAGE:
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(advice)
        memory[:: mmap.PAGESIZE] = bytes(len(range(0, size, mmap.PAGESIZE)))
"""
    subprocess.run([sys.executable, "-c", program, str(size)], timeout=READ_SECONDS, check=True)


def requests(mount):
    return dict(mount.stats()["fuse"]["requests"])


@contextlib.contextmanager
def counted_requests(mount):
    """Yields a dict that holds the FUSE requests by operation of the block's duration when it ends.

    Reading the counters takes some requests itself: those are measured and subtracted.
    """
    first, begin = requests(mount), requests(mount)
    counted = {}
    yield counted
    end = requests(mount)
    for operation, count in end.items():
        counted[operation] = max(0, count - begin[operation] - (begin[operation] - first[operation]))


def cpu_seconds(pid):
    """User and system time of a process so far. /proc/PID/stat would count in steps of 10 ms."""
    return time.clock_gettime((~pid << 3) | 2)  # its clock, as clock_getcpuclockid(3) makes it


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def padded(root, names, unit=PAGE):
    """Bytes of the files when each takes whole units, as in the tiers."""
    return sum(-(-os.stat(os.path.join(root, name)).st_size // unit) * unit for name in names)


class Samples:
    """Figures of several rounds by name. Ratios are those within a round, so that slow rounds do not count."""

    def __init__(self):
        self.rounds = {}

    def add(self, name, value):
        self.rounds.setdefault(name, []).append(value)

    def median(self, name):
        return statistics.median(self.rounds[name])

    def ratio(self, name, baseline):
        return statistics.median(a / b for a, b in zip(self.rounds[name], self.rounds[baseline], strict=True))


class Table:
    """What a benchmark found: figures, with a target where one is set."""

    def __init__(self, title):
        self.title = title
        self.rows = []

    def add(self, figure, value, unit="", at_least=None, at_most=None, note="", ratio=None):
        """`ratio`: (this over the baseline, name of the baseline)."""
        reached = None
        if at_least is not None or at_most is not None:
            reached = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
        self.rows.append(
            {
                "figure": figure,
                "value": value,
                "unit": unit,
                "at_least": at_least,
                "at_most": at_most,
                "reached": reached,
                "ratio": ratio and {"value": ratio[0], "of": ratio[1]},
                "note": note,
            }
        )

    def lines(self):
        cells = [("figure", "measured", "target", "reached", "")]
        for row in self.rows:
            target = ""
            if row["at_least"] is not None:
                target = f">= {number(row['at_least'])}"
            elif row["at_most"] is not None:
                target = f"<= {number(row['at_most'])}"
            reached = {None: "", True: "yes", False: "NO"}[row["reached"]]
            cells.append((row["figure"], measured(row), target, reached, with_ratio(row)))
        widths = [max(len(row[i]) for row in cells) for i in range(4)]
        yield self.title
        for figure, value, target, reached, note in cells:
            a, b, c, d = widths
            yield f"  {figure:<{a}}  {value:>{b}}  {target:<{c}}  {reached:<{d}}  {note}".rstrip()

    def print(self):
        print("\n".join(self.lines()), "\n", sep="", flush=True)


def number(value):
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) < 0.1 and value else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def measured(row):
    """A table's figure with its unit; with more digits where a miss would look like the target."""
    text = number(row["value"])
    targets = [number(row[key]) for key in ("at_least", "at_most") if row[key] is not None]
    if row["reached"] is False and text in targets:
        text = f"{row['value']:.6g}"
    return f"{text} {row['unit']}".rstrip()


def with_ratio(row):
    """The note of a table's row, after its ratio to the baseline."""
    ratio = f"{number(row['ratio']['value'])} of {row['ratio']['of']}" if row["ratio"] else ""
    return ", ".join(filter(None, [ratio, row["note"]]))


def runs_text(count):
    """What a figure is of; a remark for those that are not measured in every round."""
    return "1 run" if count == 1 else f"median of {count} runs"


def bars(title, label, categories, series, mark=None, log=False):
    """A chart for Findings.add: {name of a series: one value, or None, for each category}. `mark`: (value, its name)."""
    chart = {"kind": "bars", "title": title, "label": label, "categories": list(categories), "series": series, "log": log}
    return {**chart, "mark": mark and {"value": mark[0], "label": mark[1]}}


def lines(title, x_label, y_label, x, series, log=False):
    """A chart for Findings.add: {name of a series: one value, or None, for each x}."""
    chart = {"kind": "lines", "title": title, "x_label": x_label, "y_label": y_label}
    return {**chart, "x": list(x), "series": series, "log": log}


class Findings:
    """What a script found: printed as it comes, and written as JSON each time, so that what breaks later takes nothing
    with it. `given`: what arguments() returned."""

    def __init__(self, given):
        self.given = given
        self.begin = time.time()
        self.samples = Samples()
        self.tables, self.charts, self.skipped = [], [], []

    def add(self, table, *charts):
        table.print()
        self.tables.append(table)
        self.charts += charts
        self._write()

    def skip(self, what, why):
        """Something that cannot be measured here; once is enough."""
        if {"what": what, "why": why} not in self.skipped:
            print(f"SKIPPED {what}: {why}", flush=True)
            self.skipped.append({"what": what, "why": why})
            self._write()

    def _write(self):
        if self.given.json:
            result = {
                "run": {"begin": self.begin, "seconds": time.time() - self.begin, "quick": self.given.quick},
                "tables": {table.title: table.rows for table in self.tables},
                "charts": self.charts,
                "skipped": self.skipped,
                "rounds": self.samples.rounds,
            }
            pathlib.Path(self.given.json).write_text(json.dumps(result, indent=2) + "\n")


def arguments(about, rounds, parts=(), more=lambda parser: None):
    """The command line that all of these scripts have. `rounds`: the default, in words. `more` adds further options."""
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller datasets and fewer rounds")
    parser.add_argument("--rounds", type=int, help=rounds)
    if parts:
        parser.add_argument("--only", action="append", choices=parts, help="default: all")
    parser.add_argument("--json", metavar="FILE", help="also write all figures to FILE")
    more(parser)
    given = parser.parse_args()
    if parts and not given.only:
        given.only = list(parts)
    # Ended by a signal, it still unmounts.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    return given


def progress(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
