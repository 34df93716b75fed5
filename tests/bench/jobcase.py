"""A training job on one emulated PFS, as peers.py, model.py and shortjob.py run it on several nodes and epochs.py on one: its
dataset, the orders of its plan, its readers, and the bounds of what it can reach. Data is compared with the source."""

import concurrent.futures
import statistics

import benchlib
import clairmount
from benchlib import MIB, reader, write_list
from packed import Packed

NODES = 4
BATCH = 16  # samples of a node


def require_no_failed_reads(what, job):
    if failed := job.stat("reads.failed"):
        raise SystemExit(f"FAILED READS: {what}: {failed}")


class JobCase:
    """`compute`: what computing of an epoch takes, in units of what the PFS needs for the dataset."""

    batch = BATCH
    mean = 110_000  # bytes of a file
    staging = 8 * MIB
    sampler = "torch.distributed"
    batch_of_plan = BATCH  # the key `batch` of that sampler
    samples_keys = ""  # of the plan, where the samples are not the files

    def __init__(self, tmp, count, epochs, bandwidth, compute, nodes=NODES):
        self.tmp = tmp
        self.nodes = nodes
        self.count = count
        self.epochs = epochs
        self.bandwidth = bandwidth
        self.latency_us = 1000
        self.source = tmp / "src"
        self.make_data()
        self.steps = self.count // self.nodes // self.batch  # of an epoch
        self.set_compute(compute)
        self.orders, self.sums = [], []
        first = []  # batches
        for node in range(self.nodes):
            keys = (f"sampler={self.sampler}", f"batch={self.batch_of_plan}")
            orders = benchlib.plan_orders(self.names, 1, self.epochs, world=self.nodes, rank=node, keys=keys)
            first += orders[0][: self.batch]
            lists = [write_list(tmp / f"order-{node}-{e}", order) for e, order in enumerate(orders)]
            self.orders.append(lists)
            self.sums.append([run["sum"] for run in reader(*self.words(self.source), *lists, "--sum")])
        self.first_batches = self.bytes_of(first) / bandwidth  # seconds that the PFS needs for them
        self.measure_warm()

    def make_data(self):
        """`names`: the samples, as bench_reader lists them. `padded`: what keeping them takes, whole pages."""
        self.names = benchlib.make_dataset(self.source, self.count, self.mean)
        self.size = self.bytes_of(self.names)
        self.padded = benchlib.padded(self.source, self.names)

    def bytes_of(self, names):
        return benchlib.bytes_of(self.source, names)

    def words(self, root):
        """How bench_reader reads samples below `root`."""
        return "files", root

    def measure_warm(self):
        """What reading a batch takes from the warm page cache of the source, after such pauses as there will be."""
        reader(*self.words(self.source), self.orders[0][0])
        paced = ("--batch", self.batch, "--compute-us", self.compute_us, "--sum")
        self.warm_batch = statistics.median(reader(*self.words(self.source), self.orders[0][0], *paced)[0]["waits"])

    def set_compute(self, compute):
        self.compute_us = int(1e6 * compute * self.size / self.bandwidth / self.steps)

    def pfs(self, *options, source=None):
        """Serves the dataset, or another folder. What is to be read through it begins with cold tiers, and needs memory for
        them and for the pages of all mounts."""
        benchlib.touch_memory(16 * self.size)
        words = ("--latency", self.latency_us, "--bandwidth", self.bandwidth, "--attr-timeout", 1000, *options)
        return clairmount.slowfs(source or self.source, *words)

    def ram(self, share):
        """A node's, so that all together keep `share` of the dataset."""
        return int(share * self.padded / self.nodes)

    def least_bytes(self, share):
        """`share`: what all nodes together can keep of the dataset."""
        return self.size * (1 + (self.epochs - 1) * max(0, 1 - share))

    def bound(self, share):
        compute = self.epochs * self.steps * self.compute_us * 1e-6
        return max(compute, self.least_bytes(share) / self.bandwidth)

    def plan(self):
        keys = f"sampler={self.sampler} batch={self.batch_of_plan} seed=1 epochs={self.epochs}"
        return f"name=bench {self.samples_keys} {keys} world={self.nodes} ranks_per_node=1\n"

    def barrier(self):
        """Options of one read() that make every batch end with a barrier."""
        path = self.tmp / "barrier"
        path.write_bytes(bytes(8))
        return "--barrier", path, "--readers", self.nodes

    def read(self, roots, *options, dropping=False):
        """All nodes at once; the runs of each, epoch by epoch. Batches compute as long as the mean one, if the options
        say nothing else. `dropping`: after each epoch what the node has read leaves the page cache of its mount, as if
        the dataset were larger than memory."""

        def one(node):
            batches = ("--batch", self.batch)
            if "--compute-rate" not in options:
                batches += ("--compute-us", self.compute_us)
            runs = []
            for orders in [[order] for order in self.orders[node]] if dropping else [self.orders[node]]:
                runs += reader(*self.words(roots[node]), *orders, *batches, "--sum", *options)
                if dropping:
                    reader("drop", roots[node], orders[0])
            for epoch, run in enumerate(runs):
                if run["sum"] != self.sums[node][epoch]:
                    raise SystemExit(f"WRONG DATA: node {node}, epoch {epoch}: {run['sum']}")
            return runs

        with concurrent.futures.ThreadPoolExecutor(self.nodes) as pool:
            return list(pool.map(one, range(self.nodes)))

    @staticmethod
    def last_of_batches(per_node):
        """Of the node that ended a batch last, batch by batch: what it waited and what it computed."""
        nodes = [
            [both for run in runs for both in zip(run["waits"], run["computes"], strict=True)] for runs in per_node
        ]
        return [max(batch, key=sum) for batch in zip(*nodes, strict=True)]

    def stall(self, runs, warm=None):
        """Seconds waited beyond what reading from a warm page cache takes (`warm`, a batch), as a share of the epochs."""
        waits = [wait for run in runs for wait in run["waits"]]
        warm = self.warm_batch if warm is None else warm
        return max(0, sum(waits) - len(waits) * warm) / sum(run["seconds"] for run in runs)


class RecordsCase(JobCase):
    """The samples are records of one LMDB, or of a raw file where Python's lmdb is not installed. They are read through a
    mapping with MADV_RANDOM, as most training code sets it."""

    def make_data(self):
        packed = Packed(self.source, self.count, self.mean, ("lmdb", "raw"))
        kind = next(iter(packed.files))
        self.file, self.samples_keys, self.names = packed.files[kind], packed.plans[kind], packed.ranges[kind]
        for other in set(packed.files.values()) - {self.file}:
            (self.source / other).unlink()
        self.size = packed.size
        self.padded = benchlib.padded(self.source, [self.file])

    def bytes_of(self, names):
        return sum(int(name.split()[1]) for name in names)

    def words(self, root):
        return "records", root / self.file, "random"
