"""MosaicML Streaming's shards read in place: in the order of StreamingDataset's own shuffle, by its reader's accesses."""

import json
import random
import struct

import clairmount
import pytest
from planning import plan, register, wait_ahead

np = pytest.importorskip("numpy")

SEED = 7
EPOCHS = 2
SHARDS = [200, 37, 300, 1, 262]  # samples


def write_shards(folder, size):
    """As MDSWriter does (streaming/base/format/mds/writer.py); the samples of each shard."""
    rng = random.Random(1)
    shards = [[rng.randbytes(rng.randrange(size // 2, size)) for _ in range(count)] for count in SHARDS]
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


def order_of(algorithm, epoch):
    """streaming/base/shuffle/{naive,py1s}.py with one canonical node, which one rank reads as it is."""
    rng = np.random.default_rng(SEED + epoch)
    if algorithm == "naive":
        return rng.permutation(sum(SHARDS)).tolist()
    ends = np.cumsum(SHARDS)
    spans = [(end - count, end) for count, end in zip(SHARDS, ends.tolist())]
    np.random.default_rng(SEED).shuffle(spans)
    rng.shuffle(spans)
    order = []
    for begin, end in spans:
        samples = np.arange(begin, end)
        rng.shuffle(samples)
        order += samples.tolist()
    return order


def read_sample(path, i):
    """MDSReader.get_sample_data() (streaming/base/format/mds/reader.py)."""
    with open(path, "rb", 0) as file:
        file.seek((1 + i) * 4)
        begin, end = struct.unpack("<II", file.read(8))
        file.seek(begin)
        return file.read(end - begin)


def ready(mount, read, total):
    state = plan(mount)
    return state["state"] == "finished" or state["passed"] + state["ahead"] >= min(read + 16, total)


@pytest.mark.parametrize("algorithm", ["py1s", "naive"])
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
                clairmount.wait_until(lambda n=n: ready(mount, n, len(order)), f"{n} {plan(mount)}")
            number, sample = places[i]
            got = read_sample(mount.path / f"shard.{number:05}.mds", sample)
            assert got == shards[number][sample], (n, i)
        clairmount.wait_until(lambda: plan(mount)["state"] == "finished", "the end of the plan")
        state, stats = plan(mount), mount.stats()
    assert (state["suspensions"], state["realignments"]) == (0, 0), state
    reads = sum(stats["reads"][tier] for tier in ("ram", "nvme", "peer", "pfs"))
    taken_back = len(order) // 100  # by the kernel, see test_records.py
    assert reads <= stats["staging"]["sentinels"] + 10 + taken_back, stats
