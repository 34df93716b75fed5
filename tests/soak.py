#!/usr/bin/python3
"""Random training on random plans with random faults, for as long as it is told to.

    tests/soak.py [--seconds 300] [--seed N] [--ranks 4] [--build DIR]

Sessions follow each other: a mount with random options, jobs on it that read as their plans say (or not), faults
meanwhile, an end of some kind. The NVMe directory outlives the sessions. Checked all the time:

  - every file has the source's bytes, or fails while a fault explains that; no read waits for ever
  - the daemon's memory and descriptors stay below what its options say, and do not grow from job to job
  - the daemon counts the bytes that the source has seen it read; in sessions without faults they are near the
    least that a cache of its size can read

One line a session, one JSON object at the end; the status is 0 only if nothing was found.
"""

import argparse
import collections
import contextlib
import errno
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "mount"), str(TESTS / "plan")]

import clairmount  # noqa: E402  (after the path is set)
from planning import cancel, plan, predicted, register  # noqa: E402

PATIENCE = 120  # seconds that one read may take, hangs of the source included
SESSIONS = 8  # in the time given; each is a daemon's life, which has to be long enough to show growth
FILES = 900
REST = 64 << 20  # memory beside tiers, transit and catalog; test_memory.py has the same
DESCRIPTORS = 128  # 64 files being read, 16 kept open, and what is always there
GROWN_BYTES, GROWN_DESCRIPTORS = 12 << 20, 8  # of the later jobs of a daemon against its earlier ones
DRIFT = 1.10  # measured against least bytes in a calm session: how far fetches overlap depends on the machine


class Finding(Exception):
    """Something that must not be."""


class Dataset:
    """Class folders of small files and a few of several chunks."""

    def __init__(self, root, rng):
        self.root = root
        sizes = {f"class{i % 9}/{i:05d}.png": rng.randrange(200, 120_000) for i in range(FILES)}
        sizes |= {f"class{i}/large{i}.png": rng.randrange(1 << 20, 3 << 20) for i in range(6)}
        contents = clairmount.make_tree(root, sizes, seed=rng.random())
        self.hashes = {name: hashlib.sha256(content).digest() for name, content in contents.items()}
        self.bytes = sum(sizes.values())
        self.pages = sum(-(-size // 4096) * 4096 for size in sizes.values())


class Faults:
    """What is wrong at present, and which errors of a read that explains."""

    def __init__(self):
        self.lock = threading.Lock()
        self.present = collections.Counter()
        self.ended = {}

    @contextlib.contextmanager
    def explains(self, *codes):
        with self.lock:
            self.present.update(codes)
        try:
            yield
        finally:
            with self.lock:
                self.present.subtract(codes)
                self.ended.update(dict.fromkeys(codes, time.monotonic()))

    def explained(self, code, since):
        """Whether an error of a read that began at `since` may be."""
        with self.lock:
            return self.present[code] > 0 or self.ended.get(code, 0) >= since


class Node:
    """One mount of a job, its source and its tiers."""

    def __init__(self, dataset, place, rng, faults):
        self.dataset, self.place, self.rng, self.faults = dataset, place, rng, faults
        self.nvme = place / "nvme"
        self.nvme.mkdir(mode=0o700, exist_ok=True)
        self.pfs = self.mount = None
        self.usages = []  # after each job

    def options(self, calm):
        """Random ones; how much the tiers hold is in self.capacity. A window that is smaller than a file, or tiers that are
        smaller than what is in transit, cost bytes that the simple bound does not know."""
        ram = self.rng.choice([16, 64] if calm else [0, 4, 16, 64]) << 20
        nvme = self.rng.choice([0, 0, 32, 128]) << 20
        self.capacity = ram + nvme
        staging = self.rng.choice([4, 16] if calm else [1, 4, 16]) << 20
        words = [f"--ram={ram}", f"--staging={staging}",
                 f"--chunk={self.rng.choice([256, 1024, 4096])}K", f"--io={self.rng.choice(['auto', 'threads'])}",
                 f"--check={self.rng.choice(['full', 'directories'])}"]  # fmt: skip
        return words + ([f"--nvme={self.nvme}:{nvme}"] if nvme else [])

    @contextlib.contextmanager
    def mounted(self, calm):
        with clairmount.slowfs(self.dataset.root, "--latency", "200") as self.pfs:
            words = self.options(calm)
            with clairmount.clairfs(self.pfs.path, *words) as self.mount:
                self.words = words
                self.begin()
                yield self

    def begin(self):
        self.pfs.command("reset")

    def usage(self):
        """Resident bytes and open descriptors."""
        status = pathlib.Path(f"/proc/{self.mount.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) << 10
        return resident, len(os.listdir(f"/proc/{self.mount.pid}/fd"))

    def check(self):
        """Memory and descriptors are within what the options say."""
        stats = self.mount.stats()
        resident, descriptors = self.usage()
        tiers = stats["tiers"]
        allowed = tiers["ram"]["capacity"] + tiers["transit"]["capacity"] + stats["catalog"]["memory_bytes"] + REST
        if resident > allowed or any(tier["bytes"] > tier["capacity"] for tier in tiers.values()):
            raise Finding(f"memory: {resident >> 20} MiB resident, {allowed >> 20} MiB allowed, {tiers}")
        if descriptors > DESCRIPTORS:
            raise Finding(f"{descriptors} descriptors")
        if stats["staging"]["bytes"] > stats["staging"]["capacity"]:
            raise Finding(f"staging: {stats['staging']}")
        return stats

    def note_usage(self):
        """Between jobs, when the tiers hold what they hold and nothing is on its way."""
        tiers = self.mount.stats()["tiers"]
        resident, descriptors = self.usage()
        self.usages.append((resident - tiers["ram"]["bytes"] - tiers["transit"]["bytes"], descriptors))

    def check_growth(self):
        """The later jobs against the earlier ones; the first fills pools and caches."""
        usages = self.usages[1:]
        if len(usages) < 6:
            return
        third = len(usages) // 3
        for what, most, before, after in zip(("bytes", "descriptors"), (GROWN_BYTES, GROWN_DESCRIPTORS),
                                             zip(*usages[:third]), zip(*usages[-third:])):  # fmt: skip
            if min(after) > max(before) + most:
                raise Finding(f"{what} grow: {before} at first, {after} later")


def read_file(path, keep):
    fd = os.open(path, os.O_RDONLY)
    try:
        hashed = hashlib.sha256()
        while piece := os.read(fd, 1 << 20):
            hashed.update(piece)
        if not keep:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return hashed.digest()
    finally:
        os.close(fd)


class Job:
    """Training ranks that read in step, each on its node, until it ends or is told to stop."""

    def __init__(self, nodes, rng, ranks, calm):
        self.nodes, self.rng, self.stop = nodes, rng, threading.Event()
        self.findings, self.errors, self.read = [], collections.Counter(), 0
        self.ranks = ranks
        self.epochs = rng.randrange(2, 5)
        self.text = self.random_plan()
        # A job that is calm does as it said, so that its bytes can be foretold.
        self.obeys = calm or rng.random() < 0.7
        self.keep = calm or rng.random() < 0.5
        self.begun = {}

    def random_plan(self):
        seed = self.rng.randrange(1 << 31)
        sampler = self.rng.choice(["torch.distributed"] * 4 + ["torch.sequential", "torch.random", "numpy.default_rng"])
        text = f"format=imagefolder sampler={sampler} epochs={self.epochs} world={self.ranks} ranks_per_node={self.ranks}"
        return text + ("" if sampler == "torch.sequential" else f" seed={seed}")

    def run(self):
        for node in self.nodes:
            register(node.mount, self.text)
        told = self.text if self.obeys else self.text.replace("seed=", "seed=1")
        self.barrier = threading.Barrier(self.ranks)
        threads = [threading.Thread(target=self.rank, args=(told, rank), daemon=True) for rank in range(self.ranks)]
        for thread in threads:
            thread.start()
        return threads

    def rank(self, text, rank):
        node = self.nodes[rank % len(self.nodes)]
        try:
            for epoch in range(self.epochs):
                for step, name in enumerate(predicted(node.dataset.root, text, epoch, rank)):
                    if self.stop.is_set():
                        return
                    self.sample(node, rank, name)
                    if step % 64 == 63:
                        with contextlib.suppress(threading.BrokenBarrierError):
                            self.barrier.wait(1)
        except Exception as error:
            self.findings.append(f"rank {rank}: {error!r}")
        finally:
            self.barrier.abort()
            self.begun.pop(rank, None)

    def sample(self, node, rank, name):
        path = node.mount.path / name
        self.begun[rank] = time.monotonic()
        try:
            if read_file(path, self.keep) != node.dataset.hashes[name]:
                self.findings.append(f"wrong bytes: {name}")
            self.read += 1
        except OSError as error:
            self.errors[errno.errorcode[error.errno]] += 1
            if not node.faults.explained(error.errno, self.begun[rank]):
                self.findings.append(f"{name}: {error}")
            time.sleep(0.002)

    def hangs(self):
        now = time.monotonic()
        return [rank for rank, begun in list(self.begun.items()) if now - begun > PATIENCE]


# Faults. Each takes a while, and is over when it returns.


def source_fails(node, rng):
    with node.faults.explains(errno.EIO):
        node.pfs.command(rng.choice(["eio-all 50", f"eio *{rng.randrange(10)}.png 30", "eio-all"]))
        time.sleep(rng.uniform(0.05, 0.5))
        node.pfs.command("clear")


def source_hangs(node, rng):
    node.pfs.command("hang * 60")
    time.sleep(rng.uniform(0.2, 2))
    node.pfs.command("clear")


def source_slows_down(node, rng):
    node.pfs.command("latency 5000")
    time.sleep(rng.uniform(0.5, 2))
    node.pfs.command("latency 200")


def memory_is_short(node, rng):
    clairmount.drop_caches()


def plans_come_and_go(node, rng):
    for _ in range(rng.randrange(1, 10)):
        register(node.mount, f"name=other format=files sampler=torch.distributed seed={rng.randrange(99)} epochs=9")
        if rng.random() < 0.5:
            node.mount.stats()
    with contextlib.suppress(OSError):
        cancel(node.mount, "other")


def many_look(node, rng):
    for _ in range(20):
        for name in ("status", "stats.json", "metrics", "accesslog", "plan"):
            node.mount.control(name)
        os.listdir(node.mount.path / f"class{rng.randrange(9)}")


FAULTS = [source_fails, source_hangs, source_slows_down, memory_is_short, plans_come_and_go, many_look]


def damage(nvme, rng):
    """Flipped bits, a torn index or a missing file, while no daemon uses the directory."""
    files = [path for path in sorted(nvme.iterdir()) if path.name != "lock" and path.stat().st_size > 0]
    if not files or rng.random() < 0.5:
        return
    victim = rng.choice(files)
    kind = rng.choice(["flip", "cut", "remove"])
    if kind == "remove":
        victim.unlink()
    elif kind == "cut":
        os.truncate(victim, rng.randrange(victim.stat().st_size))
    else:
        with open(victim, "r+b") as file:
            for _ in range(20):
                file.seek(rng.randrange(victim.stat().st_size))
                file.write(rng.randbytes(1))


class Soak:
    def __init__(self, options):
        self.options, self.rng = options, random.Random(options.seed)
        self.deadline = time.monotonic() + options.seconds
        self.totals = collections.Counter()
        self.errors = collections.Counter()
        self.findings, self.drifts, self.memory = [], [], []

    def run(self):
        with clairmount.tempdir() as place:
            dataset = Dataset(place / "src", self.rng)
            faults = Faults()
            while time.monotonic() < self.deadline and not self.findings:
                self.totals["sessions"] += 1
                calm = self.totals["sessions"] % 4 == 1
                node = Node(dataset, place, self.rng, faults)
                try:
                    self.session(node, calm)
                except (Finding, AssertionError, TimeoutError, OSError, clairmount.MountError) as error:
                    self.findings.append(f"session {self.totals['sessions']}: {error!r}")
                damage(node.nvme, self.rng)

    def session(self, node, calm):
        if calm:  # from cold, so that the bytes can be foretold
            for path in node.nvme.iterdir():
                path.unlink()
        begun = time.monotonic()
        with node.mounted(calm):
            jobs = 0
            end = min(self.deadline, begun + self.options.seconds / SESSIONS)
            while time.monotonic() < end or jobs == 0:
                job = self.job(node, calm)
                jobs += 1
                self.totals["jobs"] += 1
                if calm or self.findings:
                    break
            killed = not calm and not self.findings and self.rng.random() < 0.5
            stats = node.check()
            node.check_growth()
            self.memory.append(max(resident for resident, _ in node.usages))
            if calm:
                self.compare_bytes(node, job, stats)
            if killed:
                self.kill(node)
        words = " ".join(word for word in node.words if "catalog" not in word)
        print(f"session {self.totals['sessions']}: {'calm' if calm else 'faults'} {jobs} jobs {words}", flush=True)

    def job(self, node, calm):
        job = Job([node], self.rng, self.options.ranks, calm)
        threads = job.run()
        end = time.monotonic() + (10 * PATIENCE if calm else self.rng.uniform(3, 12))
        while any(thread.is_alive() for thread in threads) and time.monotonic() < end and not job.findings:
            if job.hangs():
                job.findings.append(f"ranks hang: {job.hangs()}")
            elif not calm and self.rng.random() < 0.3:
                fault = self.rng.choice(FAULTS)
                self.totals[fault.__name__] += 1
                fault(node, self.rng)
            node.check()
            time.sleep(0.2)
        job.stop.set()
        for thread in threads:
            thread.join(PATIENCE)
        if any(thread.is_alive() for thread in threads):
            job.findings.append("ranks hang")
        self.findings += job.findings
        self.errors += job.errors
        self.totals["files"] += job.read
        node.note_usage()
        return job

    def compare_bytes(self, node, job, stats):
        seen = node.pfs.counters()["bytes"]
        if stats["pfs"]["bytes"] != seen:
            raise Finding(f"the daemon counts {stats['pfs']['bytes']} bytes, the source {seen}")
        dataset = node.dataset
        kept = min(dataset.bytes, dataset.bytes * node.capacity // dataset.pages)
        least = dataset.bytes + (job.epochs - 1) * (dataset.bytes - kept)
        self.drifts.append(round(seen / least, 4))

    def kill(self, node):
        """As a crash; what is on NVMe is warm for the next daemon."""
        self.totals["kills"] += 1
        job = Job([node], self.rng, self.options.ranks, False)
        # An orderly end also leaves the empty mountpoint, and reads that were given up.
        ends = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.EINTR, errno.ECANCELED)
        with node.faults.explains(*ends):
            threads = job.run()
            time.sleep(self.rng.uniform(0.1, 1))
            node.mount.kill(self.rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            job.stop.set()
            for thread in threads:
                thread.join(PATIENCE)
        self.findings += job.findings
        self.errors += job.errors

    def verdict(self):
        if self.drifts and max(self.drifts) > DRIFT:
            self.findings.append(f"bytes from the source, measured by foretold: {self.drifts}")
        return {"seed": self.options.seed, "totals": self.totals, "errors": self.errors, "drifts": self.drifts,
                "memory_beside_tiers_mib": [resident >> 20 for resident in self.memory],
                "findings": self.findings}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    parser.add_argument("--ranks", type=int, default=2, help="training ranks a node")
    parser.add_argument("--build", help="build directory; by default as all tests choose it")
    options = parser.parse_args()
    if options.build:
        os.environ["CLAIRFS_BUILD_DIR"] = options.build
    print(f"seed {options.seed}", flush=True)
    soak = Soak(options)
    soak.run()
    print(json.dumps(soak.verdict(), indent=1))
    return 1 if soak.findings else 0


if __name__ == "__main__":
    sys.exit(main())
