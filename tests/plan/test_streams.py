"""Shards that are read from front to back by several workers at a time: each is followed by itself, what it reads is in
the page cache before, every byte is the source's and leaves the emulated PFS no more often than it must."""

import collections
import concurrent.futures
import contextlib
import gzip
import io
import itertools
import json
import os
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import clairmount
import pytest
import stream_readers
from planning import JOB_SECONDS, plan, register
from stream_readers import READERS, digest

MIB = 1 << 20


# Shards


def member_sizes(rng, size):
    while size > 0:
        yield min(size, rng.randrange(10_000, 200_000))
        size -= 200_000


def write_tar(path, rng, size, mode="w"):
    with tarfile.open(path, mode) as archive:
        for i, length in enumerate(member_sizes(rng, size)):
            info = tarfile.TarInfo(f"{i:06}.jpg")
            info.size = length
            archive.addfile(info, io.BytesIO(rng.randbytes(length)))


def write_targz(path, rng, size):
    write_tar(path, rng, size, "w:gz")


def write_tarzst(path, rng, size):
    with tempfile.NamedTemporaryFile(suffix=".tar") as plain:
        write_tar(plain.name, rng, size)
        subprocess.run(["zstd", "-q", "-1", plain.name, "-o", path], check=True, timeout=60)


def write_indexed_tar(path, rng, size):
    """With its index beside it, as DALI's wds2idx makes it."""
    write_tar(path, rng, size)
    with tarfile.open(path) as archive, open(f"{path}.idx", "w") as index:
        members = archive.getmembers()
        index.write(f"v1.2 {len(members)}\n")
        for member in members:
            index.write(f"jpg {member.offset_data} {member.size} {member.name}\n")


def write_zip(path, rng, size):
    with zipfile.ZipFile(path, "w") as archive:
        for i, length in enumerate(member_sizes(rng, size)):
            archive.writestr(f"{i:06}.jpg", rng.randbytes(length))


def write_tfrecord(path, rng, size, open_file=open):
    """(offset, size) of each record."""
    places = [(0, 0)]
    with open_file(path, "wb") as file:
        for length in member_sizes(rng, size):
            file.write(struct.pack("<QI", length, 0) + rng.randbytes(length) + b"\0" * 4)
            places.append((sum(places[-1]), length + 16))
    return places[1:]


def write_tfrecordgz(path, rng, size):
    write_tfrecord(path, rng, size, gzip.open)


def write_indexed_tfrecord(path, rng, size):
    with open(f"{path}.idx", "w") as index:
        index.writelines(f"{offset} {length}\n" for offset, length in write_tfrecord(path, rng, size))


def write_parquet(path, rng, size):
    """What a stream needs of Parquet: its end is read first. There is no library for it in Debian, and no byte of it is
    looked at."""
    places = []
    with open(path, "wb") as file:
        file.write(b"PAR1")
        for length in member_sizes(rng, size):
            places.append(f"{file.tell()}+{length}".encode())
            file.write(rng.randbytes(length))
        footer = b" ".join(places)
        file.write(footer + struct.pack("<I", len(footer)) + b"PAR1")


def write_jsonl(path, rng, size, open_file=open):
    with open_file(path, "wb") as file:
        for i, length in enumerate(member_sizes(rng, size)):
            file.write(json.dumps({"id": i, "text": rng.randbytes(length // 2).hex()}).encode() + b"\n")


def write_jsonlgz(path, rng, size):
    write_jsonl(path, rng, 2 * size, gzip.open)  # of hexadecimal digits half is left


def write_bytes(path, rng, size):
    path.write_bytes(rng.randbytes(size))


WRITERS = {
    "tar": write_tar,
    "tar.gz": write_targz,
    "tar.zst": write_tarzst,
    "idx.tar": write_indexed_tar,
    "zip": write_zip,
    "tfrecord": write_tfrecord,
    "tfrecord.gz": write_tfrecordgz,
    "idx.tfrecord": write_indexed_tfrecord,
    "parquet": write_parquet,
    "jsonl": write_jsonl,
    "jsonl.gz": write_jsonlgz,
    "bin": write_bytes,
}
KINDS = {"tar": "tar", "tarhead": "tar", "targz": "tar.gz", "zipped": "zip", "tfrecord": "tfrecord"}
FORMATS = {kind: name for kind in WRITERS for name in ("tar", "tfrecord") if name in kind}  # the others are shards


def make_shards(folder, kind, count, mean, seed=1):
    rng = random.Random(seed)
    folder.mkdir()
    for i in range(count):
        WRITERS[kind](folder / f"shard-{i:04}.{kind}", rng, rng.randrange(mean // 2, 3 * mean // 2))
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".idx")


def bytes_of(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


# Workers


def orders_of(names, epochs, world, workers, seed=5, buffer=8, counts=False):
    """What each worker of each rank reads, epoch by epoch: WebDataset's split_by_node, split_by_worker and shuffle of
    shards, or detshuffle where it `counts` epochs (src/webdataset/{shardlists,filters}.py)."""
    order = {}
    for rank, worker in itertools.product(range(world), range(max(workers, 1))):
        mine = names[rank::world][worker :: max(workers, 1)]
        seeds = [seed + epoch if counts else seed for epoch in range(epochs)]
        order[rank, worker] = [list(stream_readers.shuffled(mine, of_epoch, buffer)) for of_epoch in seeds]
    return order


PLAN = "sampler=webdataset shardshuffle=8 seed=5"


def followed(mount, realigned=False):
    state = plan(mount)
    assert state["suspensions"] == 0, state
    assert realigned or state["realignments"] == 0, state
    assert state["in_order"] > 0, state
    return state


def stream_of(mount, rank, worker):
    state = plan(mount)
    return next((of for of in state.get("ranks", [state]) if (of.get("rank", 0), of.get("stream", 0)) == (rank, worker)))


def stripes(path):
    return -(-path.stat().st_size // MIB)


def staged_for(mount, who, epoch_length, until):
    """Whether the first `until` stripes of the worker, over all epochs, have been pushed."""
    stream = stream_of(mount, *who)
    return stream["state"] == "finished" or stream["epoch"] * epoch_length + stream["high_water"] + stream["ahead"] >= until


@pytest.mark.parametrize(("reader", "workers"), [
    *[(reader, 4) for reader in ("tar", "targz", "tfrecord", "buffered", "pread", "large", "mapped", "copy")],
    *[(reader, 0) for reader in ("tar", "mapped", "copy")],
])  # fmt: skip
def test_pushed_before_it_is_read(tmp, reader, workers):
    """Workers that always have staging before them: they wait, so that no clock decides."""
    kind = KINDS.get(reader, "bin")
    names = make_shards(tmp / "src", kind, 24, 4 * MIB)
    orders = orders_of(names, 2, 1, workers)
    lengths = {who: sum(stripes(tmp / "src" / name) for name in epochs[0]) for who, epochs in orders.items()}
    begun = dict.fromkeys(orders, 0)  # stripes, up to the end of the shard
    with contextlib.ExitStack() as stack:
        mount = stack.enter_context(clairmount.clairfs(tmp / "src", "--ram", "32M", "--staging", "64M", "--chunk", "1M"))
        register(mount, f"format={FORMATS.get(kind, 'shards')} {PLAN} workers={workers} epochs=2")
        threads = {who: stack.enter_context(concurrent.futures.ThreadPoolExecutor(1)) for who in orders}
        for epoch in range(2):
            reading = {who: pieces(reader, mount.path, orders[who][epoch]) for who in orders}
            while reading:
                for who in list(reading):
                    name, piece = threads[who].submit(next, reading[who], (None, None)).result()
                    if name is None:
                        del reading[who]
                    elif piece == "begins":
                        begun[who] += stripes(tmp / "src" / name)
                        ready = lambda who=who: staged_for(mount, who, lengths[who], begun[who])  # noqa: E731
                        clairmount.wait_until(ready, lambda who=who: f"{who} {plan(mount)}")
                    elif piece is not None:
                        assert piece == digest(reader, tmp / "src" / name), name
        clairmount.wait_until(lambda: plan(mount)["state"] == "finished", lambda: f"the end of the plan {plan(mount)}")
        state, stats = followed(mount), mount.stats()
    assert state["out_of_order"] == 0, state
    reads = sum(stats["reads"][tier] for tier in ("ram", "nvme", "peer", "pfs"))
    print(reader, workers, reads, stats["reads"], stats["staging"], state["samples"])
    taken_back = state["samples"] // 4  # by the kernel: READs of pages that are idle for long (DAMON)
    assert reads <= stats["staging"]["sentinels"] + 8 + taken_back


def pieces(reader, root, names, each=400_000):
    """Reads some hundred KB at a time: (name, None), before each shard (name, "begins") and at its end (name,
    checksum)."""
    for name in names:
        yield name, "begins"
        hashed, since = stream_readers.hashlib.sha256(), 0
        for piece in READERS[reader](root / name):
            hashed.update(piece)
            since += len(piece)
            if since >= each:
                since = 0
                yield name, None
        yield name, hashed.hexdigest()


def run_workers(mount, reader, orders, epoch, source, known={}):
    """Each worker a process, as DataLoader makes them anew in each epoch; all that they read is compared."""
    command = [sys.executable, stream_readers.__file__, reader]
    jobs = {who: subprocess.Popen([*command, *(str(mount.path / name) for name in orders[who][epoch])], text=True,
                                  stdout=subprocess.PIPE) for who in orders}  # fmt: skip
    try:
        for who, job in jobs.items():
            said, _ = job.communicate(timeout=JOB_SECONDS)
            assert job.returncode == 0, who
            lines = [line.split() for line in said.splitlines()]
            assert [os.path.basename(path) for path, _ in lines] == orders[who][epoch]
            for path, digest_read in lines:
                at = source / os.path.basename(path)
                if (reader, at) not in known:
                    known[reader, at] = digest(reader, at)
                assert digest_read == known[reader, at], path
    finally:
        for job in jobs.values():
            job.kill()


def read_each_byte_once(tmp, kind, reader, workers, ranks, seen=0, counts=False, more=""):
    """Three epochs with a tier for all, or what is left of them to a job that resumes in epoch 1, where each rank has read
    `seen` shards; the plan's state at the end. `more` keys of it, with which detshuffle `counts` epochs."""
    names = make_shards(tmp / "src", kind, 16, 4 * MIB)
    total = bytes_of(tmp / "src")
    orders = orders_of(names, 3, ranks, workers, counts=counts)
    for epochs in orders.values():
        epochs[1] = epochs[1][seen // max(workers, 1) :]
    with clairmount.slowfs(tmp / "src", "--bandwidth", "300M", "--latency", "500") as pfs, clairmount.clairfs(
        pfs.path, "--ram", f"{2 * total // MIB}M", "--staging", "16M", "--chunk", "1M"
    ) as mount:
        keys = f"workers={workers} world={ranks} ranks_per_node={ranks} epochs=3"
        keys += f" first_epoch=1 start_sample={seen}" if seen else ""
        register(mount, f"format={FORMATS.get(kind, 'shards')} {PLAN} {keys} {more}")
        for epoch in range(1 if seen else 0, 3):
            run_workers(mount, reader, orders, epoch, tmp / "src")
        state = plan(mount)
        read = pfs.counters()["bytes"]
    print(kind, reader, workers, ranks, read / total, state)
    assert state["suspensions"] == 0, state
    assert state["in_order"] > 0, state
    assert read == total
    return state


@pytest.mark.parametrize(("workers", "ranks"), [(0, 1), (4, 1), (2, 2)])
@pytest.mark.parametrize(("kind", "reader"), [("tar", "tar"), ("tar.gz", "targz"), ("tfrecord", "tfrecord")])
def test_each_byte_leaves_the_source_once_where_it_fits(tmp, kind, reader, workers, ranks):
    state = read_each_byte_once(tmp, kind, reader, workers, ranks)
    assert (state["out_of_order"], state["realignments"]) == (0, 0), state


@pytest.mark.parametrize(("workers", "ranks", "seen"), [(0, 1, 7), (2, 1, 6), (4, 1, 8), (2, 2, 4)])
@pytest.mark.parametrize(("kind", "reader"), [("tar", "tar"), ("tfrecord", "tfrecord")])
def test_a_job_that_resumes_in_an_epoch_reads_what_is_left_of_it(tmp, kind, reader, workers, ranks, seen):
    """What it leaves out of its first epoch it reads in the next one: each byte leaves the source once, too."""
    state = read_each_byte_once(tmp, kind, reader, workers, ranks, seen)
    assert (state["out_of_order"], state["realignments"]) == (0, 0), state


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, True), (4, True), (4, False)])
def test_detshuffle_counts_epochs_where_its_process_lives_on(tmp, workers, persistent):
    counts = persistent or workers == 0
    more = f"detshuffle=True persistent_workers={persistent} nodesplitter=wds.split_by_node"
    state = read_each_byte_once(tmp, "tar", "tar", workers, 1, counts=counts, more=more)
    assert state["out_of_order"] == 0, state


OTHERS = [("tfrecord.gz", "tfrecordgz"), ("tar.zst", "tarzst"), ("idx.tfrecord", "dali"), ("idx.tfrecord", "dalicopy"),
          ("idx.tar", "dalitar"), ("jsonl", "jsonl"), ("jsonl.gz", "jsonlgz")]  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2, 4])
@pytest.mark.parametrize(("kind", "reader"), OTHERS)
def test_each_byte_leaves_the_source_once_for_other_readers(tmp, kind, reader, workers):
    """Of compressed records and tars, DALI's, which have an index beside each shard, and JSON lines."""
    state = read_each_byte_once(tmp, kind, reader, workers, 1)
    assert (state["out_of_order"], state["realignments"]) == (0, 0), state


@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize(("kind", "reader"), [("zip", "zipped"), ("parquet", "parquet")])
def test_each_byte_leaves_the_source_once_whose_end_is_read_first(tmp, kind, reader, workers):
    """Python's zipfile goes to the directory at the end of a shard, and a reader of Parquet to the footer."""
    read_each_byte_once(tmp, kind, reader, workers, 1)


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_bytes_from_the_source_where_it_does_not_fit(tmp, share):
    names = make_shards(tmp / "src", "tar", 32, 4 * MIB)
    total, epochs = bytes_of(tmp / "src"), 4
    ram = int(share * total)
    orders = orders_of(names, epochs, 1, 4)
    with clairmount.slowfs(tmp / "src", "--bandwidth", "300M", "--latency", "500") as pfs, clairmount.clairfs(
        pfs.path, "--ram", ram, "--staging", "16M", "--chunk", "1M"
    ) as mount:
        register(mount, f"format=tar {PLAN} workers=4 epochs={epochs}")
        for epoch in range(epochs):
            run_workers(mount, "tar", orders, epoch, tmp / "src")
        followed(mount)
        read = pfs.counters()["bytes"]
    bound = total + (epochs - 1) * (total - ram)
    print(share, read / bound, read / total)
    assert read <= 1.05 * bound


@pytest.mark.parametrize("reader", ["buffered", "pread", "large", "mapped", "again"])
def test_shards_of_all_sizes(tmp, reader):
    """On both sides of a page, a chunk and a stripe, which here are one."""
    (tmp / "src").mkdir()
    sizes = [0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 4097, 5 * MIB - 1, 0, 2 * MIB]
    names = [f"s{i:02}" for i in range(len(sizes))]
    for name, size in zip(names, sizes):
        write_bytes(tmp / "src" / name, random.Random(name), size)
    orders = orders_of(names, 3, 1, 2)
    with clairmount.clairfs(tmp / "src", "--ram", "8M", "--staging", "8M", "--chunk", "1M") as mount:
        register(mount, f"format=shards {PLAN} workers=2 epochs=3")
        assert plan(mount)["shards"] == len(sizes)
        assert plan(mount)["samples"] == sum(-(-size // MIB) for size in sizes)
        for epoch in range(3):
            run_workers(mount, reader, orders, epoch, tmp / "src")
        followed(mount, realigned=reader == "again")


@pytest.mark.parametrize("reader", ["tarhead", "zipped", "again"])
def test_readers_that_leave_out_and_come_back(tmp, reader):
    names = make_shards(tmp / "src", KINDS.get(reader, "tar"), 16, 6 * MIB)
    orders = orders_of(names, 3, 1, 2)
    with clairmount.clairfs(tmp / "src", "--ram", "64M", "--staging", "16M", "--chunk", "1M") as mount:
        register(mount, f"format=shards {PLAN} workers=2 epochs=3")
        for epoch in range(3):
            run_workers(mount, reader, orders, epoch, tmp / "src")
        state = followed(mount, realigned=True)
    print(reader, {key: state[key] for key in ("in_order", "out_of_order", "realignments", "passed")})


class Element:
    """A shard that interleave() has opened, with the records that were read before somebody wants them."""

    def __init__(self, read, path, buffered):
        self.path, self.hashed = path, stream_readers.hashlib.sha256()
        self.records = READERS[read](path)
        self.buffer = list(itertools.islice(self.records, buffered))

    def __next__(self):
        record = self.buffer.pop(0) if self.buffer else next(self.records, None)
        self.hashed.update(record or b"")
        return record


def interleaved(read, paths, cycle, hashed, ahead=0):
    """tensorflow, core/kernels/data/interleave_dataset_op.cc: a record of each slot in turn; a slot whose shard has ended
    takes the next one. With parallel calls, parallel_interleave_dataset_op.cc: `ahead` shards are opened before there is a slot
    for them (kCyclePrefetchFactor), and 2 * block_length + 1 records of each are read (kPerIteratorPrefetchFactor). Adds a
    checksum of each shard to `hashed`."""
    slots, paths, future = [None] * cycle, iter(paths), collections.deque()

    def next_element():
        for path in itertools.islice(paths, ahead + 1 - len(future)):
            future.append(Element(read, path, 3 if ahead else 0))
        return future.popleft() if future else None

    while True:
        for i in range(cycle):
            slots[i] = slots[i] or next_element()
            if slots[i] is None:
                continue
            record = next(slots[i])
            if record is None:
                hashed[slots[i].path.name] = slots[i].hashed.hexdigest()
                slots[i] = None
            else:
                yield record
        if not any(slots):
            return


LIST_FILES = "sampler=tf.list_files seed=9"


@pytest.mark.parametrize(("cycle", "mean", "sampler", "parallel"), [
    (4, 6 * MIB, LIST_FILES, False), (16, 3 * MIB, LIST_FILES, False), (4, 6 * MIB, LIST_FILES, True),
    (16, 3 * MIB, LIST_FILES, True), (4, 6 * MIB, "sampler=python.random seed=9 reseed=epoch", False),
])  # fmt: skip
def test_shards_that_are_interleaved(tmp, cycle, mean, sampler, parallel):
    """tf.data's interleave() over list_files(seed), or over a list that the script has shuffled: the streams are one order, in
    which they drift apart. With parallel calls twice as many shards are begun before their turn."""
    names = make_shards(tmp / "src", "tfrecord", 32, mean)
    total = bytes_of(tmp / "src")
    expected = {name: digest("tfrecord", tmp / "src" / name) for name in names}
    plan_text = f"format=tfrecord {sampler} cycle_length={cycle} epochs=3"
    plan_text += " num_parallel_calls=AUTOTUNE" if parallel else ""
    with clairmount.slowfs(tmp / "src", "--bandwidth", "300M", "--latency", "500") as pfs, clairmount.clairfs(
        pfs.path, "--ram", f"{2 * total // MIB}M", "--staging", "32M", "--chunk", "1M"
    ) as mount:
        register(mount, plan_text)
        for epoch in range(3):
            words = [clairmount.binary(), "plan", "order", f"{plan_text} root='{tmp / 'src'}'", "--epoch", str(epoch)]
            order = subprocess.run([*words, "--rank", "0", "--paths"], check=True, text=True, capture_output=True,
                                   timeout=60).stdout.split()  # fmt: skip
            assert sorted(order) == names
            hashed = {}
            for _ in interleaved("tfrecord", [mount.path / name for name in order], cycle, hashed, 2 * cycle if parallel else 0):
                pass
            assert hashed == expected
        state = followed(mount, realigned=parallel)
        read = pfs.counters()["bytes"]
    print(cycle, parallel, read / total, state)
    assert parallel or state["out_of_order"] == 0, state
    assert read == total


@pytest.mark.parametrize("threads", [1, 8])
def test_copies_of_whole_shards(tmp, threads):
    """As StreamingDataset makes them from remote= on the mount to local=."""
    names = make_shards(tmp / "src", "bin", 24, 3 * MIB)
    total = bytes_of(tmp / "src")
    orders = orders_of(names, 1, 1, threads)
    with clairmount.slowfs(tmp / "src", "--bandwidth", "300M", "--latency", "500") as pfs, clairmount.clairfs(
        pfs.path, "--ram", f"{2 * total // MIB}M", "--staging", "16M", "--chunk", "1M"
    ) as mount:
        register(mount, f"format=shards {PLAN} workers={threads}")
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            for who, found in zip(orders, pool.map(lambda o: [digest("copy", mount.path / n) for n in o[0]], orders.values())):
                assert found == [digest("buffered", tmp / "src" / name) for name in orders[who][0]]
        followed(mount)
        read = pfs.counters()["bytes"]
    assert read == total


def test_another_order_is_noticed(tmp):
    names = make_shards(tmp / "src", "bin", 300, MIB)
    orders = orders_of(names, 2, 1, 2, seed=77, buffer=100)
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "8M", "--chunk", "1M") as mount:
        register(mount, "format=shards sampler=webdataset shardshuffle=100 seed=5 workers=2 epochs=2")
        for epoch in range(2):
            run_workers(mount, "buffered", orders, epoch, tmp / "src")
        state = plan(mount)
    assert state["suspensions"] > 0, state
    assert state["divergence"]["expected"].endswith("]"), state


def test_a_plan_with_too_few_workers_is_noticed(tmp):
    names = make_shards(tmp / "src", "bin", 24, 8 * MIB)
    orders = orders_of(names, 2, 1, 4, buffer=1)
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "8M", "--chunk", "1M") as mount:
        register(mount, "format=shards sampler=webdataset epochs=2")
        for epoch in range(2):
            run_workers(mount, "buffered", orders, epoch, tmp / "src")
        state = plan(mount)
    assert state["out_of_order"] > 0, state


def test_the_command_shows_shards_in_their_order(tmp):
    names = make_shards(tmp / "src", "tar", 9, MIB)
    words = [clairmount.binary(), "plan", "order", f"format=tar {PLAN} workers=2 world=2 root='{tmp / 'src'}'"]
    for rank in range(2):
        said = subprocess.run([*words, "--epoch", "0", "--rank", str(rank), "--paths"], check=True, text=True,
                              capture_output=True, timeout=60).stdout.split()  # fmt: skip
        orders = orders_of(names, 1, 2, 2)
        turns = itertools.zip_longest(orders[rank, 0][0], orders[rank, 1][0])
        assert said == [name for turn in turns for name in turn if name]
