"""MosaicML Streaming's shards read in place: in the order of StreamingDataset's own shuffle, by its reader's accesses."""

import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import random
import shutil
import struct
import subprocess
import threading

import clairmount
import pytest
from planning import plan, register, wait_ahead

np = pytest.importorskip("numpy")

SEED = 7
EPOCHS = 2
SHARDS = [200, 37, 300, 1, 262]  # samples
BLOCK = 4_000_000  # StreamingDataset's own shuffle_block_size for one canonical node, in samples


def write_shards(folder, size, counts=SHARDS):
    """As MDSWriter does (streaming/base/format/mds/writer.py); the samples of each shard."""
    rng = random.Random(1)
    shards = [[rng.randbytes(rng.randrange(size // 2, size)) for _ in range(count)] for count in counts]
    index = []
    for number, samples in enumerate(shards):
        columns = json.dumps({"column_names": ["x"]}).encode()
        ends = np.cumsum([4 * (len(samples) + 2) + len(columns), *map(len, samples)])
        table = np.array([len(samples), *ends], np.uint32).tobytes()
        name = f"shard.{number:05}.mds"
        (folder / name).write_bytes(table + columns + b"".join(samples))
        index.append({"format": "mds", "version": 2, "samples": len(samples), "compression": None, "zip_data": None,
                      "raw_data": {"basename": name, "bytes": int(ends[-1]), "hashes": {}}})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": index}))
    return shards


def compress_shards(folder):
    """As MDSWriter does with compression="zstd" (streaming/base/format/base/writer.py): no raw shard stays."""
    index = json.loads((folder / "index.json").read_text())
    for shard in index["shards"]:
        raw = folder / shard["raw_data"]["basename"]
        subprocess.run(["zstd", "-q", "-1", "--rm", raw, "-o", f"{raw}.zstd"], check=True, timeout=60)
        size = os.stat(f"{raw}.zstd").st_size
        shard |= {"compression": "zstd", "zip_data": {"basename": f"{raw.name}.zstd", "bytes": size, "hashes": {}}}
    (folder / "index.json").write_text(json.dumps(index))


def order_of(algorithm, epoch, counts=SHARDS):
    """streaming/base/shuffle/{naive,py1s,py1e}.py with one canonical node, which one rank reads as it is."""
    rng = np.random.default_rng(SEED + epoch)
    if algorithm == "naive":
        return rng.permutation(sum(counts)).tolist()
    ends = np.cumsum(counts)
    spans = [(end - count, end) for count, end in zip(counts, ends.tolist())]
    np.random.default_rng(SEED).shuffle(spans)
    rng.shuffle(spans)
    order = []
    for begin, end in spans:
        samples = np.arange(begin, end)
        rng.shuffle(samples)
        order += samples.tolist()
    if algorithm == "py1s":
        return order
    # py1e: each sample is moved by chance within a block of shuffle_block_size, whose default is larger than all shards.
    places, before = np.arange(len(order), dtype=float), 0
    for size in (end - begin for begin, end in spans):
        block = rng.integers(int(0.75 * BLOCK), int(1.25 * BLOCK))
        reach = max(0, (block - size) / 2)
        low, high = max(-reach, -before), min(reach, len(order) - before - size)
        places[before : before + size] += rng.uniform(low=low, high=high, size=size)
        before += size
    return [order[i] for i in np.argsort(places)]


def read_sample(path, i):
    """MDSReader.get_sample_data() (streaming/base/format/mds/reader.py)."""
    with open(path, "rb", 0) as file:
        file.seek((1 + i) * 4)
        begin, end = struct.unpack("<II", file.read(8))
        file.seek(begin)
        return file.read(end - begin)


def pushed(mount, until):
    """Whether so many samples, over all epochs, are in the page cache or were."""
    state = plan(mount)
    return state["state"] == "finished" or state["passed"] + state["ahead"] >= until


def ready(mount, read, total):
    return pushed(mount, min(read + 16, total))


@pytest.mark.parametrize("algorithm", ["py1e", "py1s", "naive"])
def test_shards_are_read_in_place(tmp, algorithm):
    (tmp / "src").mkdir()
    shards = write_shards(tmp / "src", 20_000)
    places = [(number, i) for number, samples in enumerate(shards) for i in range(len(samples))]
    order = [i for epoch in range(EPOCHS) for i in order_of(algorithm, epoch)]
    with clairmount.clairfs(tmp / "src", "--ram", "32M", "--staging", "8M") as mount:
        register(mount, f"format=mds sampler=StreamingDataset shuffle_algo={algorithm} shuffle_seed={SEED} "
                        f"num_canonical_nodes=1 batch_size=8 epochs={EPOCHS}")
        wait_ahead(mount, 32)
        for n, i in enumerate(order):
            if n % 8 == 0:
                clairmount.wait_until(lambda n=n: ready(mount, n, len(order)), lambda n=n: f"{n} {plan(mount)}")
            number, sample = places[i]
            got = read_sample(mount.path / f"shard.{number:05}.mds", sample)
            assert got == shards[number][sample], (n, i)
        clairmount.wait_until(lambda: plan(mount)["state"] == "finished", "the end of the plan")
        state, stats = plan(mount), mount.stats()
    assert (state["suspensions"], state["realignments"]) == (0, 0), state
    reads = sum(stats["reads"][tier] for tier in ("ram", "nvme", "peer", "pfs"))
    taken_back = len(order) // 100  # by the kernel, see records/test_records.py
    assert reads <= stats["staging"]["sentinels"] + 10 + taken_back, stats


def loaded(read, batches, workers):
    """Batches as torch's DataLoader delivers them: dealt to workers in turns, of which each has two on their way."""
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(concurrent.futures.ThreadPoolExecutor(1)) for _ in range(max(workers, 1))]
        numbered, under_way = enumerate(batches), collections.deque()

        def start(count):
            for n, batch in itertools.islice(numbered, count):
                under_way.append(pools[n % len(pools)].submit(lambda batch=batch: [read(i) for i in batch]))

        start(2 * len(pools))
        while under_way:
            batch = under_way.popleft().result()
            start(1)
            yield from batch


SEEN = 320  # samples: 40 batches, which divide among all workers
# StreamingDataset.state_dict(), of epoch 1.
STATE = f"epoch=1 sample_in_epoch={SEEN} num_canonical_nodes=1 shuffle_seed={SEED} initial_physical_nodes=1"


@pytest.mark.parametrize(("workers", "resumed"), [(2, False), (4, False), (0, True), (2, True), (4, True)])
def test_workers_read_shards_in_place(tmp, workers, resumed):
    """Also those of a job that goes on with the state of another: what it leaves out of its first epoch comes in the next.
    No worker begins a batch before all of it was pushed, so that no clock decides. The memory for chunks in transit, 32 MiB,
    could not keep them all in the place of the RAM tier."""
    (tmp / "src").mkdir()
    shards = write_shards(tmp / "src", 80_000)
    total = sum(path.stat().st_size for path in (tmp / "src").iterdir())
    places = [(number, i) for number, samples in enumerate(shards) for i in range(len(samples))]
    state = STATE if resumed else f"num_canonical_nodes=1 shuffle_seed={SEED}"
    text = f"format=mds sampler=StreamingDataset shuffle_algo=py1s batch_size=8 num_workers={workers} epochs=3 {state}"
    with clairmount.slowfs(tmp / "src", "--bandwidth", "300M", "--latency", "500") as pfs, clairmount.clairfs(
        pfs.path, "--ram", "64M", "--staging", "16M"
    ) as mount:
        register(mount, text)
        before = 0  # samples of earlier epochs

        def read(i, end_of_batch):
            clairmount.wait_until(lambda: pushed(mount, end_of_batch), lambda: f"{end_of_batch} {plan(mount)}")
            return i, read_sample(mount.path / f"shard.{places[i][0]:05}.mds", places[i][1])

        for epoch in range(1 if resumed else 0, 3):
            order = order_of("py1s", epoch)[SEEN if (resumed and epoch == 1) else 0 :]
            words = [clairmount.binary(), "plan", "order", f"{text} root='{tmp / 'src'}'", "--epoch", str(epoch), "--rank", "0"]
            said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
            assert [int(number) for number in said.split()] == order
            ends = [before + min(n - n % 8 + 8, len(order)) for n in range(len(order))]
            numbered = list(zip(order, ends))
            batches = [numbered[first : first + 8] for first in range(0, len(order), 8)]
            samples = loaded(lambda sample: read(*sample), batches, workers)
            for n, (i, sample) in enumerate(samples):
                assert (i, sample) == (order[n], shards[places[i][0]][places[i][1]])
            assert n == len(order) - 1
            before += len(order)
        state, stats, bytes_read = plan(mount), mount.stats(), pfs.counters()["bytes"]
    reads = sum(stats["reads"][tier] for tier in ("ram", "nvme", "peer", "pfs"))
    print(workers, resumed, bytes_read / total, reads, stats["reads"], stats["staging"], state)
    assert state["suspensions"] == 0, state
    assert state["in_order"] > 0, state
    tables = sum(4 * (samples + 2) for samples in SHARDS)  # where samples are: for the index, before any chunk is read
    assert bytes_read == total + tables
    taken_back = before // 100  # by the kernel, see records/test_records.py
    assert reads <= stats["staging"]["sentinels"] + 10 + taken_back, stats


class Copies:
    """StreamingDataset with remote= on the mount: prepare_shard(), _prepare_thread() and the loop that yields
    (streaming/base/dataset.py), of one worker each, which share the states of shards."""

    def __init__(self, remote, local, counts, ending=""):
        self.remote, self.local, self.ending = remote, local, ending
        self.shard_of = [shard for shard, count in enumerate(counts) for _ in range(count)]
        self.changed = threading.Condition()
        self.states = ["remote"] * len(counts)
        self.order = []

    def prepare(self, shard):
        with self.changed:
            if self.states[shard] != "remote":
                return
            self.states[shard] = "preparing"
            self.order.append(shard)
        name = f"shard.{shard:05}.mds{self.ending}"
        shutil.copy(self.remote / name, self.local / (name + ".tmp"))
        (self.local / (name + ".tmp")).rename(self.local / name)
        if self.ending:  # Stream._decompress_shard_part (streaming/base/stream.py)
            raw = self.local / f"shard.{shard:05}.mds"
            subprocess.run(["zstd", "-dq", "--rm", self.local / name, "-o", raw], check=True, timeout=60)
        with self.changed:
            self.states[shard] = "local"
            self.changed.notify_all()

    def work(self, samples, predownload):
        yielded = 0
        for n, sample in enumerate(samples):
            self.prepare(self.shard_of[sample])
            while n - yielded > predownload:
                with self.changed:
                    assert self.changed.wait_for(lambda: self.states[self.shard_of[samples[yielded]]] == "local", 60)
                yielded += 1


@pytest.mark.parametrize(("algorithm", "workers", "ending"), [
    ("py1s", 1, ""), ("py1s", 4, ""), ("py1e", 4, ""), ("naive", 4, ""), ("py1s", 1, ".zstd"), ("py1e", 4, ".zstd"),
])  # fmt: skip
def test_copies_of_shards_are_planned(tmp, algorithm, workers, ending):
    """naive: each batch needs most shards, which are copied at once by all workers. Shards that are compressed are copied as
    they are."""
    counts, batch = [150 + i for i in range(24)], 8
    (tmp / "src").mkdir()
    (tmp / "local").mkdir()
    write_shards(tmp / "src", 20_000, counts)
    raw = {path.name: path.read_bytes() for path in (tmp / "src").glob("*.mds")}
    if ending:
        compress_shards(tmp / "src")
    total = sum(path.stat().st_size for path in (tmp / "src").glob(f"*.mds{ending}"))
    order = order_of(algorithm, 0, counts)
    batches = [order[first : first + batch] for first in range(0, len(order), batch)]
    with clairmount.slowfs(tmp / "src", "--bandwidth", "300M", "--latency", "500") as pfs, clairmount.clairfs(
        pfs.path, "--ram", 2 * total, "--staging", "16M", "--chunk", "1M"
    ) as mount:
        register(mount, f"format=shards file=*.mds{ending} sampler=StreamingDataset shard_sizes={tmp / 'src/index.json'} "
                        f"shuffle_algo={algorithm} shuffle_seed={SEED} num_canonical_nodes=1 batch_size={batch} "
                        f"num_workers={workers}")  # fmt: skip
        copies = Copies(mount.path, tmp / "local", counts, ending)
        mine = [[i for b in batches[w::workers] for i in b] for w in range(workers)]
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(copies.work, mine, [8 * batch] * workers))
        state, read = plan(mount), pfs.counters()["bytes"]
    print(algorithm, workers, read / total, copies.order, state)
    assert {path.name: path.read_bytes() for path in (tmp / "local").iterdir()} == raw
    assert (state["suspensions"], state["shards"]) == (0, len(counts)), state
    assert state["in_order"] > 0, state
    assert read == total
