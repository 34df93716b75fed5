"""Samples of tar and TFRecord shards that somebody reads at random: where they are is what the real readers say, and they
are in the page cache before they are read."""

import hashlib
import io
import mmap
import multiprocessing
import os
import random
import struct
import subprocess
import tarfile
import time

import clairmount
import pytest
from planning import plan, register
from test_indexing import index

# On both sides of a page, of a chunk, and of what tar pads.
SIZES = [0, 1, 511, 513, 4095, 4096, 4097, 9000, 40_000, 65_535, 65_537, 110_000]


def crc32c(data):
    """Masked as tensorflow's core/lib/hash/crc32c.h does it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def sample_sizes(rng, count, sizes=SIZES):
    return [rng.choice(sizes) + rng.randrange(3) for _ in range(count)]


def write_tfrecords(folder, shards, count):
    """(shard, offset, length) of each frame, as a reader with an index knows them (PyPI tfrecord)."""
    rng, places = random.Random(3), []
    for s in range(shards):
        with open(folder / f"s{s}.tfrecord", "wb") as file:
            for size in sample_sizes(rng, count):
                head = struct.pack("<Q", size)
                places.append((f"s{s}.tfrecord", file.tell(), size + 16))
                file.write(head + struct.pack("<I", crc32c(head)) + rng.randbytes(size) + b"\0" * 4)
    return places


def write_tars(folder, shards, count, sizes=SIZES):
    """[(shard, members)] of each sample, as Python's tarfile finds them."""
    rng = random.Random(4)
    for s in range(shards):
        archive_format = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)[s % 3]
        long_name = "" if archive_format == tarfile.USTAR_FORMAT else "folder/" + 120 * "n" + "\u00e4"
        with tarfile.open(folder / f"s{s}.tar", "w", format=archive_format) as archive:
            for i, size in enumerate(sample_sizes(rng, count, sizes)):
                for ending, length in (("jpg", size), ("cls", 2)):
                    info = tarfile.TarInfo(f"{long_name if i % 3 == 0 else ''}{i:05}.{ending}")
                    info.size = length
                    archive.addfile(info, io.BytesIO(rng.randbytes(length)))
    return members_of(folder, [f"s{s}.tar" for s in range(shards)])


def members_of(root, names):
    """As datasets look for their samples before they read any: all headers, one after the other. With the buffer that a
    file has by default since Python 3.14 a reader of headers goes through such files whole."""
    samples = []
    for name in names:
        grouped = {}
        with open_buffered(root / name) as file, tarfile.open(fileobj=file) as archive:
            for member in archive:
                grouped.setdefault(member.name.split(".")[0], []).append(member)
        samples += [(name, members) for members in grouped.values()]
    return samples


def as_place(sample):
    """The bytes from the first member's to the last one's."""
    if not isinstance(sample[1], list):
        return sample
    shard, (first, *_, last) = sample
    return shard, first.offset_data, last.offset_data + last.size - first.offset_data


def order_of(root, text, epoch, rank=0):
    words = [clairmount.binary(), "plan", "order", f"{text} root='{root}'", "--rank", str(rank), "--epoch", str(epoch)]
    return [int(i) for i in subprocess.run(words, check=True, capture_output=True, timeout=60).stdout.split()]


# Readers: each makes a function of a sample that returns its bytes. Files stay open.


class Files:
    def __init__(self, root, open_file):
        self.root, self.open_file, self.files = root, open_file, {}

    def __getitem__(self, name):
        if name not in self.files:
            self.files[name] = self.open_file(self.root / name)
        return self.files[name]


def open_mapped(path):
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def open_buffered(path):
    """As open(path, "rb") is up to Python 3.13: with a block of the mount. That of 3.14 is 128 KiB, many samples."""
    return open(path, "rb", buffering=4096)


def by_tarfile(root):
    archives = Files(root, lambda path: tarfile.open(fileobj=open_buffered(path)))
    return lambda sample: b"".join(archives[sample[0]].extractfile(member).read() for member in sample[1])


def by_frame(root):
    """PyPI tfrecord, tfrecord/reader.py (read_records): through a buffer, piece by piece."""
    files = Files(root, open_buffered)

    def read(sample):
        shard, offset, _ = sample
        file = files[shard]
        file.seek(offset)
        head = file.read(8)
        checksum = file.read(4)
        (length,) = struct.unpack("<Q", head)
        assert struct.unpack("<I", checksum) == (crc32c(head),)
        return head + checksum + file.read(length) + file.read(4)

    return read


def by_pread(root):
    files = Files(root, lambda path: open(path, "rb", buffering=0))

    def read(sample):
        shard, offset, length = as_place(sample)
        return os.pread(files[shard].fileno(), length, offset)

    return read


def by_mapping(root):
    files = Files(root, open_mapped)

    def read(sample):
        shard, offset, length = as_place(sample)
        return files[shard][offset : offset + length]

    return read


@pytest.mark.parametrize(
    ("format_name", "read"),
    [("tar", by_tarfile), ("tar", by_pread), ("tar", by_mapping), ("tfrecord", by_frame), ("tfrecord", by_mapping)],
    ids=["tarfile", "tar.pread", "tar.mmap", "tfrecord", "tfrecord.mmap"],
)
def test_pushed_before_it_is_read(tmp, format_name, read):
    """A reader that always has staging before it: it waits, so that no clock decides."""
    (tmp / "src").mkdir()
    samples = (write_tars if format_name == "tar" else write_tfrecords)(tmp / "src", 6, 80)
    text = f"format={format_name} random_access=yes sampler=torch.distributed world=1 batch=8 seed=5 epochs=2"
    order = order_of(tmp / "src", text, 0) + order_of(tmp / "src", text, 1)
    assert sorted(order[: len(samples)]) == list(range(len(samples)))
    expected = read(tmp / "src")
    with clairmount.clairfs(tmp / "src", "--ram", "32M", "--staging", "4M", "--chunk", "64K") as mount:
        register(mount, text)
        assert plan(mount)["samples"] == len(samples)
        of_mount = read(mount.path)
        for n, i in enumerate(order):
            if n % 8 == 0:
                clairmount.wait_until(lambda n=n: ready(mount, n, len(order)), lambda n=n: f"{n} {plan(mount)}")
            assert of_mount(samples[i]) == expected(samples[i]), samples[i]
        clairmount.wait_until(lambda: plan(mount)["state"] == "finished", lambda: f"the end of the plan {plan(mount)}")
        state, stats = plan(mount), mount.stats()
        del of_mount
    assert (state["suspensions"], state["realignments"]) == (0, 0), state
    assert state["in_order"] > 0, state
    reads = sum(stats["reads"][tier] for tier in ("ram", "nvme", "peer", "pfs"))
    print(format_name, read.__name__, reads, stats["reads"], stats["staging"])
    opening = 12  # tarfile.open() reads the first header of each shard
    taken_back = 2 * len(samples) // 100 * 30  # by the kernel (see records/test_records.py)
    assert reads <= stats["staging"]["sentinels"] + opening + taken_back


def ready(mount, read, total):
    state = plan(mount)
    return state["state"] == "finished" or state["passed"] + state["ahead"] >= min(read + 16, total)


def work(root, samples, batches, answers):
    """A worker of a DataLoader, which has its own batches to read (torch/utils/data/_utils/worker.py)."""
    read = by_tarfile(root)
    for batch in batches:
        answers.put([(i, hashlib.sha256(read(samples[i])).hexdigest()) for i in batch])


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_whose_dataset_looks_for_its_samples_first(tmp, workers):
    (tmp / "src").mkdir()
    expected, read = write_tars(tmp / "src", 4, 150, sizes=[60_000, 110_000]), by_tarfile(tmp / "src")
    digests = [hashlib.sha256(read(sample)).hexdigest() for sample in expected]
    total = sum(path.stat().st_size for path in (tmp / "src").iterdir())
    text = f"format=tar random_access=yes seed=5 batch=8 workers={workers} epochs=3"
    context = multiprocessing.get_context("fork")
    with clairmount.slowfs(tmp / "src", "--bandwidth", "300M", "--latency", "500") as pfs, clairmount.clairfs(
        pfs.path, "--ram", 2 * total, "--staging", "4M", "--chunk", "64K"
    ) as mount:
        register(mount, text)
        samples = members_of(mount.path, [f"s{s}.tar" for s in range(4)])
        for epoch in range(3):
            order = order_of(tmp / "src", text, epoch)
            batches = [order[first : first + 8] for first in range(0, len(order), 8)]
            answers = [context.Queue(maxsize=2) for _ in range(workers)]
            jobs = [context.Process(target=work, args=(mount.path, samples, batches[w::workers], answers[w]))
                    for w in range(workers)]  # fmt: skip
            for job in jobs:
                job.start()
            try:
                for b, batch in enumerate(batches):
                    assert answers[b % workers].get(timeout=60) == [(i, digests[i]) for i in batch]
                for job in jobs:
                    job.join(60)
            finally:
                for job in jobs:
                    job.kill()
        state, bytes_read = plan(mount), pfs.counters()["bytes"]
    print(workers, bytes_read / total, state)
    # The headers were read in their order, which is not the plan's; with the first samples it is taken up again. In later
    # epochs each worker reads the first header of each shard, for which the reader may be thought to be elsewhere, and then
    # to be back.
    astray = 2 * workers * 2
    assert (state["suspensions"] <= 1, state["realignments"] <= 1 + astray) == (True, True), state
    assert state["state"] in ("following", "finished") and state["epoch"] == 2, state
    pages = 2 * len(samples) * mmap.PAGESIZE  # of headers, for the index
    assert bytes_read <= total + pages


def dali(root, places, answers, computing=0):
    """NVIDIA/DALI, dali/operators/reader/loader/indexed_file_loader.h (ReadSample) with dont_use_mmap: a read a record, after
    a seek where it does not follow on the one before; some seconds of computing after each."""
    open_shard, at, hashed = (None, None), None, hashlib.sha256()
    for shard, offset, size in places:
        if shard != open_shard[0]:
            open_shard, at = (shard, open(root / shard, "rb", buffering=0)), None
        if at != offset:
            open_shard[1].seek(offset)
        hashed.update(open_shard[1].read(size))
        at = offset + size
        time.sleep(computing)
    answers.put(hashed.hexdigest())


@pytest.mark.parametrize("stick", [False, True])
def test_shards_of_dali_are_cut_by_records(tmp, stick):
    """dali/operators/reader/loader/loader.{h,cc} (start_index, MoveToNextShard): of n records shard s has those from
    n * s / shards on, wherever that is in a file, and the next epoch is that of the next shard. They compute: an epoch that
    is over in hundredths of a second is read before its sentinels are where they belong."""
    (tmp / "src").mkdir()
    places, ranks = write_tfrecords(tmp / "src", 5, 61), 3
    total, n = sum(path.stat().st_size for path in (tmp / "src").iterdir()), len(places)
    shards = [places[n * s // ranks : n * (s + 1) // ranks] for s in range(ranks)]
    assert shards[0][-1][0] == shards[1][0][0]  # a file that two of them have
    text = f"format=tfrecord random_access=true sampler=dali stick_to_shard={stick} epochs=3 batch=8 "
    text += f"random_shuffle=True dont_use_mmap=True num_shards={ranks} ranks_per_node={ranks}"
    context = multiprocessing.get_context("fork")
    with clairmount.slowfs(tmp / "src", "--bandwidth", "300M", "--latency", "500") as pfs, clairmount.clairfs(
        pfs.path, "--ram", 2 * total, "--staging", "4M", "--chunk", "64K"
    ) as mount:
        register(mount, text)
        assert plan(mount)["samples"] == n
        for epoch in range(3):
            mine = [shards[(rank + (0 if stick else epoch)) % ranks] for rank in range(ranks)]
            said = [order_of(tmp / "src", text, epoch, rank) for rank in range(ranks)]
            assert [[places[i] for i in of_rank] for of_rank in said] == mine
            answers = [context.Queue() for _ in mine]
            jobs = [context.Process(target=dali, args=(mount.path, *of, 0.003)) for of in zip(mine, answers)]
            for job in jobs:
                job.start()
            try:
                of_mount = [answer.get(timeout=60) for answer in answers]
                for job in jobs:
                    job.join(60)
            finally:
                for job in jobs:
                    job.kill()
            for of_rank, digest in zip(mine, of_mount):
                expected = context.SimpleQueue()
                dali(tmp / "src", of_rank, expected)
                assert expected.get() == digest
        state, bytes_read = plan(mount), pfs.counters()["bytes"]
    print(stick, bytes_read / total, state)
    assert (state["suspensions"], state["realignments"]) == (0, 0), state
    assert state["in_order"] > 0 and state["epoch"] == 2, state
    assert bytes_read <= total + n * mmap.PAGESIZE  # the pages of headers, for the index


def readahead_kib(mount):
    device = os.stat(mount.path).st_dev
    with open(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb") as file:
        return int(file.read())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets the readahead of a mount")
def test_readahead_ends_for_records_and_comes_back_for_who_reads_on(tmp):
    """A wrong plan does not leave somebody who goes through the files at a page a request."""
    (tmp / "src").mkdir()
    write_tars(tmp / "src", 2, 150, sizes=[60_000, 110_000])
    with clairmount.clairfs(tmp / "src", "--ram", "64M", "--staging", "1M", "--chunk", "64K") as mount:
        whole = readahead_kib(mount)
        assert whole > 128  # set before anybody is served: a file keeps what there is when it is opened
        register(mount, "format=tar random_access=yes seed=5 epochs=3")
        assert readahead_kib(mount) == 4
        members_of(mount.path, ["s0.tar", "s1.tar"])
        clairmount.wait_until(lambda: plan(mount)["state"] == "suspended", lambda: f"the headers to be noticed {plan(mount)}")
        assert readahead_kib(mount) == 4
        with open(mount.path / "s0.tar", "rb") as file:
            while file.read(1 << 16):
                pass
        clairmount.wait_until(lambda: readahead_kib(mount) == whole, lambda: f"readahead to come back {plan(mount)}")


def test_the_index_is_made_ahead(tmp):
    (tmp / "src").mkdir()
    samples = write_tfrecords(tmp / "src", 3, 50)
    with clairmount.clairfs(tmp / "src", "--ram", "16M") as mount:
        status, report = index(mount.path / "*.tfrecord")
        assert status == 0, report
        assert f"samples  {len(samples)} in 3 files (format=tfrecord)" in report
        status, report = index(mount.path / "s1.tfrecord")
        assert (status, "samples  50 in 1 file" in report) == (0, True), report
        status, report = index(mount.path / "s1.tfrecord", "--format", "tar")
        assert (status != 0, "s1.tfrecord is no tar archive" in report) == (True, True), report
        register(mount, "format=tfrecord random_access=yes file=*.tfrecord seed=1")
        assert plan(mount)["samples"] == len(samples)


@pytest.mark.parametrize("write", [write_tars, write_tfrecords], ids=["tar", "tfrecord"])
def test_samples_are_where_their_readers_find_them(tmp, write):
    (tmp / "src").mkdir()
    samples = write(tmp / "src", 6, 60)
    format_name = "tar" if write is write_tars else "tfrecord"
    text = f"format={format_name} random_access=yes shuffle=false seed=1 root='{tmp / 'src'}'"
    words = [clairmount.binary(), "plan", "order", text, "--epoch", "0", "--rank", "0", "--ranges"]
    listed = subprocess.run(words, check=True, text=True, capture_output=True, timeout=60).stdout
    places = [line.split(None, 2) for line in listed.splitlines()]
    assert [(path, int(offset), int(length)) for offset, length, path in places] == [as_place(s) for s in samples]
