"""The parts of tests/soak.py: datasets, one mount or the mounts of a job, readers that train, and faults."""

import collections
import contextlib
import errno
import hashlib
import os
import pathlib
import signal
import threading
import time

import clairmount
from clairjob import clairjob
from planning import cancel, predicted, register

PATIENCE = 120 * clairmount.SLOWNESS  # seconds that one read may take, hangs of the source included
FILES = 900
REST = 64 << 20  # memory beside tiers, transit and catalog; test_memory.py has the same
DESCRIPTORS = 128  # 64 files being read, 16 kept open, and what is always there
GROWN_BYTES, GROWN_DESCRIPTORS = 12 << 20, 8  # of the later jobs of a daemon against its earlier ones
JOBS_TO_SHOW_GROWTH = 7  # the first fills pools and caches; then two early ones and two late ones


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
    """One mount, and how much its daemon has used."""

    def __init__(self, mount, rank=0):
        self.mount, self.rank = mount, rank
        self.pid = mount.pid
        self.gone = False  # it has been killed
        self.usages = []  # after each job

    def usage(self):
        """Resident bytes and open descriptors."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) << 10
        return resident, len(os.listdir(f"/proc/{self.pid}/fd"))

    def check(self):
        """Memory and descriptors are within what the options say."""
        stats = self.mount.stats()
        resident, descriptors = self.usage()
        tiers = stats["tiers"]
        allowed = tiers["ram"]["capacity"] + tiers["transit"]["capacity"] + stats["catalog"]["memory_bytes"] + REST
        if (resident > allowed and not clairmount.sanitized()) or any(tier["bytes"] > tier["capacity"] for tier in tiers.values()):
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
        """The later jobs against the earlier ones; whether there were enough of them."""
        if len(self.usages) < JOBS_TO_SHOW_GROWTH or clairmount.sanitized():  # which keeps what was freed for a while
            return False
        usages = self.usages[1:]
        third = len(usages) // 3
        for what, most, before, after in zip(("bytes", "descriptors"), (GROWN_BYTES, GROWN_DESCRIPTORS),
                                             zip(*usages[:third]), zip(*usages[-third:])):  # fmt: skip
            if min(after) > max(before) + most:
                raise Finding(f"{what} grow on rank {self.rank}: {before} at first, {after} later")
        return True


class Nodes:
    """One mount or those of a job, their source and their tiers."""

    def __init__(self, dataset, place, rng, faults, ranks):
        self.dataset, self.rng, self.faults, self.ranks = dataset, rng, faults, ranks
        self.stores = [place / f"nvme{rank}" for rank in range(ranks)]
        for store in self.stores:
            store.mkdir(mode=0o700, exist_ok=True)
        self.pfs = self.job = None
        self.all = []

    def living(self):
        return [node for node in self.all if not node.gone]

    def options(self, calm):
        """Random ones; how much the tiers hold is in self.capacity. A window that is smaller than a file, or tiers that are
        smaller than what is in transit, cost bytes that the simple bound does not know."""
        ram = self.rng.choice([16, 64] if calm else [0, 4, 16, 64]) << 20
        nvme = self.rng.choice([0, 0, 32, 128]) << 20
        staging = self.rng.choice([4, 16] if calm else [1, 4, 16]) << 20
        if calm and self.ranks > 1:  # half of the dataset, so that the other half has to be read again
            share = self.dataset.pages // 2 // self.ranks
            ram, nvme = self.rng.choice([(share, 0), (share // 2, share // 2)])
            staging = 4 << 20
        self.capacity = self.ranks * (ram + nvme)
        words = [f"--ram={ram}", f"--staging={staging}",
                 f"--chunk={self.rng.choice([256, 1024, 4096])}K", f"--io={self.rng.choice(['auto', 'threads'])}",
                 f"--check={self.rng.choice(['full', 'directories'])}"]  # fmt: skip
        store = self.stores[0].with_name("nvme{rank}") if self.ranks > 1 else self.stores[0]
        return words + ([f"--nvme={store}:{nvme}"] if nvme else [])

    @contextlib.contextmanager
    def mounted(self, calm):
        with clairmount.slowfs(self.dataset.root, "--latency", "200") as self.pfs:
            self.words = self.options(calm)
            with contextlib.ExitStack() as stack:
                if self.ranks == 1:
                    self.all = [Node(stack.enter_context(clairmount.clairfs(self.pfs.path, *self.words)))]
                else:
                    self.job = stack.enter_context(clairjob(self.pfs.path, self.ranks, *self.words))
                    self.all = [Node(mount, rank) for rank, mount in enumerate(self.job)]
                self.pfs.command("reset")
                yield self

    def check(self):
        return [node.check() for node in self.living()]

    def begin_plan(self, text):
        """Returns when it is in force everywhere. A job refuses another text under a name that is taken."""
        node = self.rng.choice(self.living())
        if self.ranks > 1:
            with contextlib.suppress(OSError):
                cancel(node.mount)
            clairmount.wait_until(lambda: self.with_plan() == 0, "the plan before is gone", PATIENCE)
        register(node.mount, text)
        clairmount.wait_until(lambda: self.with_plan() == len(self.living()), "all have the plan", PATIENCE)

    def with_plan(self):
        """How many nodes have the plan called default and, in a job, know where every chunk is to live."""
        stats = [node.mount.stats() for node in self.living()]
        return sum(
            any(plan["name"] == "default" for plan in of_node["plan_list"]) and (self.ranks == 1 or "placement" in of_node["job"])
            for of_node in stats
        )


def read_file(path, keep):
    return clairmount.hash_of(path, keep).digest()


class Job:
    """Training ranks that read in step, so many on each node, until it ends or is told to stop."""

    def __init__(self, nodes, rng, readers, calm):
        self.nodes, self.rng, self.stop = nodes, rng, threading.Event()
        self.findings, self.errors, self.read = [], collections.Counter(), 0
        self.readers, self.world = readers, readers * nodes.ranks
        self.epochs = rng.randrange(2, 5)
        self.text = self.random_plan(calm)
        # A job that is calm does as it said, so that its bytes can be foretold.
        self.obeys = calm or rng.random() < 0.7
        self.keep = calm or rng.random() < 0.5
        self.begun = {}

    def random_plan(self, calm):
        seed = self.rng.randrange(1 << 31)
        sampler = self.rng.choice(["torch.distributed"] * 4 + ["torch.sequential", "torch.random", "numpy.default_rng"])
        if calm and self.nodes.ranks > 1:  # with the others every node reads all that no tier keeps
            sampler = "torch.distributed"
        text = f"format=imagefolder sampler={sampler} epochs={self.epochs} world={self.world} ranks_per_node={self.readers}"
        return text + ("" if sampler == "torch.sequential" else f" seed={seed}")

    def run(self):
        self.nodes.begin_plan(self.text)
        told = self.text if self.obeys else self.text.replace("seed=", "seed=1")
        trains = [(node, node.rank * self.readers + reader) for node in self.nodes.living() for reader in range(self.readers)]
        self.barrier = threading.Barrier(len(trains))
        threads = [threading.Thread(target=self.rank, args=(told, *train), daemon=True) for train in trains]
        for thread in threads:
            thread.start()
        return threads

    def rank(self, text, node, rank):
        try:
            for epoch in range(self.epochs):
                for step, name in enumerate(predicted(self.nodes.dataset.root, text, epoch, rank)):
                    if self.stop.is_set() or node.gone:
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
            if read_file(path, self.keep) != self.nodes.dataset.hashes[name]:
                self.findings.append(f"wrong bytes: {name}")
            self.read += 1
        except OSError as error:
            self.errors[errno.errorcode[error.errno]] += 1
            if not node.gone and not self.nodes.faults.explained(error.errno, self.begun[rank]):
                self.findings.append(f"rank {rank}: {name}: {error}")
            time.sleep(0.002)

    def hangs(self):
        now = time.monotonic()
        return [rank for rank, begun in list(self.begun.items()) if now - begun > PATIENCE]


# Faults of a session. Each takes a while, and is over when it returns.


def source_fails(nodes, rng):
    with nodes.faults.explains(errno.EIO):
        nodes.pfs.command(rng.choice(["eio-all 50", f"eio *{rng.randrange(10)}.png 30", "eio-all"]))
        time.sleep(rng.uniform(0.05, 0.5))
        nodes.pfs.command("clear")


def source_hangs(nodes, rng):
    nodes.pfs.command("hang * 60")
    time.sleep(rng.uniform(0.2, 2))
    nodes.pfs.command("clear")


def source_slows_down(nodes, rng):
    nodes.pfs.command("latency 5000")
    time.sleep(rng.uniform(0.5, 2))
    nodes.pfs.command("latency 200")


def memory_is_short(nodes, rng):
    clairmount.drop_caches()


def plans_come_and_go(nodes, rng):
    for _ in range(rng.randrange(1, 10)):
        mount = rng.choice(nodes.living()).mount
        with contextlib.suppress(OSError) if nodes.ranks > 1 else contextlib.nullcontext():  # another node's may be in force
            register(mount, f"name=other format=files sampler=torch.distributed seed={rng.randrange(99)} epochs=9 "
                            f"world={nodes.ranks} ranks_per_node=1")  # fmt: skip
        if rng.random() < 0.5:
            mount.stats()
        with contextlib.suppress(OSError):
            cancel(mount, "other")


def many_look(nodes, rng):
    mount = rng.choice(nodes.living()).mount
    for _ in range(20):
        for name in ("status", "stats.json", "metrics", "accesslog", "plan"):
            mount.control(name)
        os.listdir(mount.path / f"class{rng.randrange(9)}")


def node_stands_still(nodes, rng):
    """For a moment, so long that it is late, or so long that it is dead."""
    node = rng.choice(nodes.living())
    nodes.job.signal(node.rank, signal.SIGSTOP)
    try:
        time.sleep(rng.choice([rng.uniform(0.05, 2), rng.uniform(2, 8), 18]))
    finally:
        nodes.job.signal(node.rank, signal.SIGCONT)


def node_dies(nodes, rng):
    """As long as two are left."""
    if len(nodes.living()) > 2:
        node = rng.choice(nodes.living())
        node.gone = True
        nodes.job.kill(node.rank)


FAULTS = [source_fails, source_hangs, source_slows_down, memory_is_short, plans_come_and_go, many_look]
FAULTS_OF_JOBS = [*FAULTS, node_stands_still, node_stands_still, node_dies]


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
