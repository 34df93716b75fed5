"""MosaicML Streaming's shards read in place: in the order of StreamingDataset's own shuffle, by its reader's accesses."""

import collections
import concurrent.futures
import contextlib
import itertools
import os
import subprocess

import clairmount
import pytest
from planning import plan, register, wait_ahead

pytest.importorskip("numpy")
from streaming_dataset import (  # noqa: E402  (it needs numpy)
    SEED,
    Copies,
    compress_shards,
    order_of,
    read_sample,
    write_shards,
)

EPOCHS = 2
SHARDS = [200, 37, 300, 1, 262]  # samples


def pushed(mount, until):
    """Whether so many samples, over all epochs, are in the page cache or were."""
    state = plan(mount)
    return state["state"] == "finished" or state["passed"] + state["ahead"] >= until


def ready(mount, read, total):
    return pushed(mount, min(read + 16, total))


@pytest.mark.parametrize("algorithm", ["py1e", "py1s", "naive"])
def test_shards_are_read_in_place(tmp, algorithm):
    (tmp / "src").mkdir()
    shards = write_shards(tmp / "src", 20_000, SHARDS)
    places = [(number, i) for number, samples in enumerate(shards) for i in range(len(samples))]
    order = [i for epoch in range(EPOCHS) for i in order_of(algorithm, epoch, SHARDS)]
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
    shards = write_shards(tmp / "src", 80_000, SHARDS)
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
            order = order_of("py1s", epoch, SHARDS)[SEEN if (resumed and epoch == 1) else 0 :]
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
        # The next job on the node copies them again, when its plan is over, from the tiers.
        clairmount.drop_page_cache(mount.path)
        for path in mount.path.glob(f"*.mds{ending}"):
            assert path.read_bytes() == (tmp / "src" / path.name).read_bytes()
        again = pfs.counters()["bytes"] - read
    print(algorithm, workers, read / total, copies.order, state)
    assert {path.name: path.read_bytes() for path in (tmp / "local").iterdir()} == raw
    assert (state["suspensions"], state["shards"]) == (0, len(counts)), state
    assert state["in_order"] > 0, state
    assert (read, again) == (total, 0)
