"""MosaicML's StreamingDataset as far as tests and benchmarks need it: its writer, its shuffles with one canonical node, its
reader of shards in place, and its copies of them. Each is written after the source file that it names."""

import json
import os
import random
import shutil
import struct
import subprocess
import threading

import numpy as np

SEED = 7
BLOCK = 4_000_000  # StreamingDataset's own shuffle_block_size for one canonical node, in samples


def write_shards(folder, size, counts):
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


def order_of(algorithm, epoch, counts):
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

    def work(self, samples, predownload, use=lambda sample: None):
        """`use` gets each sample once its shard is there. The last ones, up to `predownload`, are yielded after all copies."""
        yielded = 0
        for n, sample in enumerate(samples):
            self.prepare(self.shard_of[sample])
            while n - yielded > predownload:
                self.yield_one(samples[yielded], use)
                yielded += 1
        for sample in samples[yielded:]:
            self.yield_one(sample, use)

    def yield_one(self, sample, use):
        with self.changed:
            assert self.changed.wait_for(lambda: self.states[self.shard_of[sample]] == "local", 60)
        use(sample)
