"""Training on the nodes of a job, and what they say of each other: shared by the suites of jobs."""

import hashlib
import json
import threading
import time

from clairmount import SLOWNESS, make_samples, wait_until

SEED, BATCH = 11, 8
# Of one read, half of what all of a training may take. A silent peer ends requests after 4 s, a busy one after 30.
READ_SECONDS = 60 * SLOWNESS


def plan_text(nodes, epochs):
    return f"format=imagefolder sampler=torch.distributed seed={SEED} epochs={epochs} world={nodes} ranks_per_node=1 batch={BATCH}"


def orders(names, nodes, epochs):
    """{(node, epoch): names}, from the real library."""
    from torch.utils.data.distributed import DistributedSampler

    names = sorted(names)
    found = {}
    for node in range(nodes):
        sampler = DistributedSampler(range(len(names)), num_replicas=nodes, rank=node, seed=SEED)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            found[node, epoch] = [names[i] for i in sampler]
    return found


class Dataset:
    def __init__(self, root, count=400, size=30_000):
        self.root = root
        self.names = make_samples(root, count, size)
        self.size = count * size
        self.padded = count * -(-size // 4096) * 4096
        self.digests = {name: hashlib.sha256((root / name).read_bytes()).digest() for name in self.names}

    def check(self, mount, name):
        assert hashlib.sha256((mount.path / name).read_bytes()).digest() == self.digests[name], name


class Readers:
    """A thread for each node, which reads its samples epoch by epoch, each node at its own pace."""

    def __init__(self, data, job, epochs, pause=0.0, nodes=None):
        self.data, self.job, self.pause = data, job, pause
        self.nodes = list(range(len(job))) if nodes is None else nodes
        self.orders = orders(data.names, len(job), epochs)
        self.epochs = epochs
        self.done = {node: 0 for node in self.nodes}  # samples
        self.failures = []
        self.longest = dict.fromkeys(self.nodes, 0.0)  # seconds of one read
        self.threads = [threading.Thread(target=self._run, args=(node,)) for node in self.nodes]

    def _run(self, node):
        try:
            for epoch in range(self.epochs):
                for i, name in enumerate(self.orders[node, epoch]):
                    begin = time.monotonic()
                    self.data.check(self.job[node], name)
                    self.longest[node] = max(self.longest[node], time.monotonic() - begin)
                    self.done[node] += 1
                    if i % BATCH == BATCH - 1:
                        time.sleep(self.pause)
        except BaseException as failure:  # noqa: BLE001  (shown by finish())
            self.failures.append((node, self.done[node], repr(failure)))

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def finish(self, seconds=2 * READ_SECONDS, stopped=()):
        """Each read must have come back in time, but on nodes that themselves were stopped."""
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"a reader hangs: {self.done}"
        assert not self.failures, self.failures
        assert all(self.longest[node] < READ_SECONDS for node in self.nodes if node not in stopped), self.longest


def register(mount, nodes, epochs):
    (mount.path / ".clairfs/plan").write_text(plan_text(nodes, epochs) + "\n")


def register_on_all(job, rank, epochs):
    """Registers a plan on one node; returns when all know it and where every chunk is to live."""
    register(job[rank], len(job), epochs)
    in_force = lambda node: node.stats()["plan_list"] and (len(job) == 1 or "placement" in node.stats()["job"])  # noqa: E731
    wait_until(lambda: all(in_force(node) for node in job), "the plan is in force on all nodes")


def plans(job):
    """Of each node those in force: while a plan comes into force it is listed as being made, too."""
    return [[p["plan"] for p in node.stats()["plan_list"] if p["state"] not in ("indexing", "failed")] for node in job]


def peers(node):
    return json.loads(node.control("stats.json"))["job"]["peers"]
