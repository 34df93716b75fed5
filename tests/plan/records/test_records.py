"""Records of large files under a plan, read in every way that people read them: the plan is followed to its end, every
byte is the source's, and what a reader finds pushed costs it no request."""

import contextlib
import ctypes
import functools
import hashlib
import json
import mmap
import os
import pathlib
import random
import re
import subprocess
import sys

import clairmount
import pytest
from mounting import NOBODY, as_user, only_root
from planning import cached_bytes, plan, register, running, wait_ahead
from test_permissions import open_way
from test_write_protection import of_a_user

np = pytest.importorskip("numpy")
lmdb = pytest.importorskip("lmdb")
pytest.importorskip("torch")

import records_job  # noqa: E402  (needs numpy)
from record_plans import (  # noqa: E402
    BATCH,
    LARGE,
    ODD,
    SMALL,
    assert_all_read,
    assert_followed,
    order_of,
    ranges_of,
    requests_of,
    sampler,
    start,
    start_job,
    train,
    wait_finished,
    wait_ready,
    write_lmdb,
    write_megatron,
    write_raw,
    writer_for,
)


READERS = ["memmap", "mmap.random", "pread", "buffered", "lmdb", "lmdb.readahead"]
SIZES = [(8000, SMALL), (3000, ODD), (400, LARGE)]  # how many records of which size


def read_planned(mount, text, reader, job, records, order, ahead=32):
    """A reader that always has staging before it: it waits, so that no clock decides. What the mount says at its end."""
    register(mount, text)
    wait_ahead(mount, ahead)
    read = records_job.READERS[reader]({**job, "path": str(mount.path / job["path"])})
    for n, i in enumerate(order):
        if n % BATCH == 0:
            wait_ready(mount, n, len(order), ahead // 2)
        assert read(i) == records[i], i
    wait_finished(mount)
    return mount.stats()


def taken_back(records, size):
    """Pages that the kernel may take back before they are read (DAMON's reclaim does so with idle ones), and a mapping then
    asks for each page: of one use in a hundred at most."""
    return records // 100 * (size // mmap.PAGESIZE + 2)


def most_from_source(stats, total, size, ram, epochs):
    """Bytes off the PFS of records of 110 KB in chunks of 4 MiB, of which the tier holds a part: S + (E-1)(S-D), and up to
    15 % more: the pages of a record are 1.043 times its bytes, and room for nearly a chunk may be left. Without a tier it
    would be 28 % more. A READ that reaches the source, and what is pushed again because the kernel took it, cost at most a
    record each."""
    again = stats["reads"]["pfs"] + stats["staging"]["repaired"]
    return 1.15 * (total + (epochs - 1) * (total - ram)) + again * (size + 2 * mmap.PAGESIZE)


@pytest.mark.parametrize(("reader", "shuffle", "count", "size"), [
    *[(reader, True, *records) for records in SIZES for reader in READERS],
    *[(reader, False, *SIZES[1]) for reader in READERS],
    ("lmdb.locks", True, *SIZES[1]),
    # In order the kernel reads ahead, by what kind of access it sees; of small records it brings some with each.
    *[(reader, False, *records) for records in (SIZES[0], SIZES[2]) for reader in ("pread", "lmdb.readahead")],
])  # fmt: skip
def test_pushed_before_it_is_read(tmp, reader, shuffle, count, size):
    (tmp / "src").mkdir()
    text, job, records = writer_for(reader)(tmp / "src", count, size)
    total = sum(len(record) for record in records)
    job = {**records_job.DEFAULTS, **job}
    text += " " + sampler(shuffle, batch=BATCH, seed=5, epochs=2)
    order = order_of(text, tmp / "src", 2)
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "8M") as mount:
        stats = read_planned(mount, text, reader, job, records, order)
    assert_followed(stats["plan_list"][0])
    reads = requests_of(stats)
    print(reader, count, size, reads, stats["reads"], stats["pfs"]["bytes"] / total, stats["staging"])
    assert reads <= stats["staging"]["sentinels"] + 10 + taken_back(len(order), size)
    if shuffle and size == LARGE and not reader.startswith("lmdb"):  # more than the tier holds, side by side in the file
        assert stats["pfs"]["bytes"] <= most_from_source(stats, total, size, 16 << 20, 2)


class Mounted:
    """A mount of somebody else, for those who may enter it."""

    control, stats = clairmount.ClairMount.control, clairmount.ClairMount.stats

    def __init__(self, path):
        self.path = path


@only_root
@pytest.mark.parametrize("reader", ["pread", "mmap.random"])
def test_pushed_on_an_ordinary_user_s_mount(tmp, reader):
    """There the kernel's readahead stays as it is. Of a pread it asks for more than the record where what lies before it in
    the file is in the page cache, too: not often, for the window is a seventieth of the file."""
    (tmp / "src").mkdir()
    open_way(tmp)
    count, size = SIZES[1]
    text, job, records = write_raw(tmp / "src", count, size)
    job = {**records_job.DEFAULTS, **job}
    text += " " + sampler(True, batch=BATCH, seed=5, epochs=2)
    order = order_of(text, tmp / "src", 2)
    with of_a_user(tmp, "--ram", "16M", "--staging", "512K", "--page-cache", "0") as path:
        stats = as_user(NOBODY, read_planned, Mounted(path), text, reader, job, records, order, 16)
    state = stats["plan_list"][0]
    assert (state["state"], state["suspensions"]) == ("finished", 0), state
    print(reader, requests_of(stats), stats["reads"], stats["staging"])
    sentinels = stats["staging"]["sentinels"]
    assert requests_of(stats) <= 1.1 * sentinels + 10 + taken_back(len(order), size) < len(order)


@only_root
def test_mapped_without_advice_on_an_ordinary_user_s_mount(tmp):
    """With each page that is missing the kernel asks for the 128 KiB around it, and some of those tell of other records."""
    (tmp / "src").mkdir()
    open_way(tmp)
    count, size = 1500, 30_001
    text, job, records = write_raw(tmp / "src", count, size)
    job = {**records_job.DEFAULTS, **job}
    text += " " + sampler(True, batch=BATCH, seed=5, epochs=2)
    order = order_of(text, tmp / "src", 2)
    with of_a_user(tmp, "--ram", "16M", "--staging", "4M", "--page-cache", "0") as path:
        stats = as_user(NOBODY, read_planned, Mounted(path), text, "mmap", job, records, order, 16)
    state = stats["plan_list"][0]
    print(requests_of(stats), stats["reads"], stats["staging"], state)
    assert (state["state"], state["suspensions"]) == ("finished", 0), state
    assert requests_of(stats) < len(order) / 2


def test_several_databases_are_one_dataset(tmp):
    """Records count on from file to file, in the order of the names; an environment each, as a ConcatDataset has them."""
    parts, records = [], []
    for number, count in enumerate((300, 1, 500)):
        folder = tmp / "src" / f"part{number}"
        folder.mkdir(parents=True)
        _, job, values = write_lmdb(folder, count, ODD)
        parts += [(job["path"], number, i) for i in range(count)]
        records += values
    text = "format=lmdb file=part*/rows.lmdb keys=decimal " + sampler(True, batch=BATCH, seed=5, epochs=2)
    order = order_of(text, tmp / "src", 2)
    assert sorted(order) == sorted(2 * list(range(len(records))))
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "8M") as mount:
        register(mount, text)
        reads = [records_job.open_lmdb({**records_job.DEFAULTS, "path": str(mount.path / f"part{n}" / "rows.lmdb")}, False)
                 for n in range(3)]
        for n, i in enumerate(order):
            if n % BATCH == 0:
                wait_ready(mount, n, len(order), 16)
            _, part, key = parts[i]
            assert reads[part](key) == records[i], i
        wait_finished(mount)
        stats = mount.stats()
        del reads
    assert_followed(stats["plan_list"][0])
    assert requests_of(stats) <= stats["staging"]["sentinels"] + 20 + taken_back(len(order), ODD)


@pytest.mark.parametrize(("reader", "workers"), [("memmap", 0), ("memmap", 4), ("lmdb", 0), ("lmdb", 4), ("lmdb.readahead", 4),
                                                 ("lmdb.locks", 4)])
@pytest.mark.parametrize(("count", "size", "staging"), [(2000, SMALL, "2M"), (300, LARGE, "16M")])
def test_loader_with_workers(tmp, reader, count, size, staging, workers):
    """torch's DataLoader and DistributedSampler; each worker opens the file for itself. No window holds all records."""
    (tmp / "src").mkdir()
    text, job, records = writer_for(reader)(tmp / "src", count, size)
    text += " " + sampler(True, batch=BATCH, seed=3, epochs=2, workers=workers)
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", staging) as mount:
        start(mount, text)
        train(mount, tmp, records, **job, reader=reader, seed=3, workers=workers, batch=BATCH, epochs=2, pause=0.005)
        stats = mount.stats()
    print(reader, count, size, workers, requests_of(stats) / (2 * count), stats["reads"], stats["pfs"]["bytes"], stats["staging"])


def test_loader_with_spawned_workers(tmp):
    """They begin a second or more after the plan, and not at the same time."""
    (tmp / "src").mkdir()
    text, job, records = write_lmdb(tmp / "src", 300, LARGE)
    text += " " + sampler(True, batch=BATCH, seed=3, epochs=2, workers=2)
    job |= {"reader": "lmdb", "workers": 2, "start_method": "spawn"}
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "16M") as mount:
        start(mount, text)
        train(mount, tmp, records, **job, seed=3, batch=BATCH, epochs=2, pause=0.005)


READER = """
import hashlib, json, sys
import records_job
read = records_job.READERS["lmdb"](json.loads(sys.argv[1]))
for line in sys.stdin:
    print(hashlib.sha256(read(int(line))).hexdigest(), flush=True)
"""


@contextlib.contextmanager
def reader_process(path):
    """Reads the records whose numbers it is told."""
    words = [sys.executable, "-c", READER, json.dumps({**records_job.DEFAULTS, "path": str(path)})]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with running(subprocess.Popen(words, **pipes, cwd=pathlib.Path(records_job.__file__).parent)) as process:
        yield process
        process.stdin.close()
        process.stdout.close()
        assert process.wait(60) == 0


def is_staged(mount, rank, epoch_length, until):
    state = plan(mount)["ranks"][rank]
    staged = state["epoch"] * epoch_length + state["high_water"] + state["ahead"]
    return state["state"] == "finished" or staged >= until


def test_processes_that_take_turns(tmp):
    """As Caffe's and LMDBIO's do: each reads its own blocks of a ring, and is followed by itself."""
    count, epochs, block, ranks = 800, 2, 4, 2
    (tmp / "src").mkdir()
    text, job, records = write_lmdb(tmp / "src", count, ODD)
    text += f" sampler=strided block={block} batch={block} world={ranks} ranks_per_node={ranks} epochs={epochs}"
    digests = [hashlib.sha256(record).hexdigest() for record in records]
    orders = [[i for i in range(count) if i // block % ranks == rank] for rank in range(ranks)]
    each = count // ranks
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "2M") as mount, contextlib.ExitStack() as stack:
        start(mount, text)
        processes = [stack.enter_context(reader_process(mount.path / job["path"])) for _ in range(ranks)]
        for at in range(0, epochs * each, block):
            for rank, process in enumerate(processes):
                clairmount.wait_until(functools.partial(is_staged, mount, rank, each, at + block), f"rank {rank} has {at} and more")
                for i in orders[rank][at % each : at % each + block]:
                    process.stdin.write(f"{i}\n")
                    process.stdin.flush()
                    assert process.stdout.readline().strip() == digests[i], i
        wait_finished(mount)
        stats = mount.stats()
    state = stats["plan_list"][0]
    assert state["suspensions"] == 0, state
    assert [rank["state"] for rank in state["ranks"]] == ["finished"] * ranks
    print(requests_of(stats), stats["staging"])
    assert requests_of(stats) <= stats["staging"]["sentinels"] + 10 + taken_back(epochs * count, ODD)


def count_keys(path):
    """By a cursor that asks for no value. py-lmdb's touches the values of all that it comes to."""
    try:
        library = ctypes.CDLL("liblmdb.so.0")
    except OSError:
        pytest.skip("py-lmdb has brought its own liblmdb")
    nosubdir, rdonly, nolock, nordahead = 0x4000, 0x20000, 0x400000, 0x800000
    next_one, notfound = 8, -30798
    env, txn, cursor, dbi = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint()
    key = (ctypes.c_size_t * 2)()  # MDB_val
    assert library.mdb_env_create(ctypes.byref(env)) == 0
    try:
        assert library.mdb_env_open(env, os.fsencode(path), nosubdir | rdonly | nolock | nordahead, 0o644) == 0
        assert library.mdb_txn_begin(env, None, rdonly, ctypes.byref(txn)) == 0
        assert library.mdb_dbi_open(txn, None, 0, ctypes.byref(dbi)) == 0
        assert library.mdb_cursor_open(txn, dbi, ctypes.byref(cursor)) == 0
        count = 0
        while (status := library.mdb_cursor_get(cursor, key, None, next_one)) == 0:
            count += 1
        assert status == notfound
        library.mdb_cursor_close(cursor)
        library.mdb_txn_abort(txn)
        return count
    finally:
        library.mdb_env_close(env)


def test_keys_of_a_database_that_nobody_has_read_yet(tmp):
    """As datasets list them at first. Leaves and branches are every reader's, and in the page cache before the records."""
    (tmp / "src").mkdir()
    text, job, records = write_lmdb(tmp / "src", *SIZES[1])
    text += " " + sampler(True, batch=BATCH, seed=5, epochs=1)
    with lmdb.open(str(tmp / "src/rows.lmdb"), subdir=False, readonly=True, lock=False) as env:
        tree = env.stat()
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "2M") as mount:
        register(mount, text)
        wait_ahead(mount, 100)
        before = requests_of(mount.stats())
        assert count_keys(mount.path / job["path"]) == len(records) + 1  # "__len__"
        asked = requests_of(mount.stats()) - before
    # Without what was pushed it would be a READ for each of them; the kernel may have taken some back.
    assert asked <= (tree["leaf_pages"] + tree["branch_pages"]) // 4, tree


@pytest.mark.skipif(os.geteuid() != 0, reason="of a user's mount the kernel reads more around a page")
@pytest.mark.parametrize("reader", ["lmdb", "lmdb.readahead"])
def test_what_is_mapped_leaves_the_page_cache(tmp, reader):
    """An LMDB environment maps its file for as long as it is open, and the kernel follows no advice to drop such pages."""
    count, staging, epochs = 3000, 2 << 20, 2
    (tmp / "src").mkdir()
    text, job, records = write_lmdb(tmp / "src", count, ODD)
    text += " " + sampler(True, batch=BATCH, seed=5, epochs=epochs)
    order = order_of(text, tmp / "src", epochs)
    with lmdb.open(str(tmp / "src/rows.lmdb"), subdir=False, readonly=True, lock=False) as env:
        tree = env.stat()
    common = (2 + tree["branch_pages"] + tree["leaf_pages"]) * tree["psize"]  # with both metas
    # What was read and is still there: up to the last sentinel but one, and what is about to be dropped.
    largest = -(-(max(map(len, records)) + 16) // mmap.PAGESIZE) * mmap.PAGESIZE
    bound = staging + 192 * largest + common
    assert (tmp / "src/rows.lmdb").stat().st_size > 3 * bound
    most = 0
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", staging, "--page-cache", "0") as mount:
        start(mount, text)
        wait_ahead(mount, staging // 2 // largest)
        path = mount.path / job["path"]
        read = records_job.READERS[reader]({**records_job.DEFAULTS, "path": str(path)})
        for n, i in enumerate(order):
            if n % BATCH == 0:
                wait_ready(mount, n, len(order))
            assert read(i) == records[i], i
            if n % 50 == 0:
                most = max(most, cached_bytes(path))
                assert most <= bound, n
        wait_finished(mount)
        assert_followed(plan(mount))
        del read
    assert most >= staging // 4  # so it was looked at rightly


def map_tokens(path):
    """As Megatron's _MMapBinReader."""
    tokens = np.memmap(path, mode="r", dtype=np.uint8)
    return lambda offset, length: tokens[offset : offset + length].tobytes()


def read_tokens(path):
    """As Megatron's _FileBinReader."""

    def read(offset, length):
        tokens = bytearray(length)
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            assert file.readinto(tokens) == length
        return tokens

    return read


@pytest.mark.parametrize("open_tokens", [map_tokens, read_tokens])
@pytest.mark.parametrize("length", [0, 2048, 16384], ids=["sequences", "2048 tokens", "16384 tokens"])
def test_megatron(tmp, open_tokens, length):
    """Sequences, and GPT samples: each has parts of several documents, and its last token is the first of another."""
    (tmp / "src").mkdir()
    rng = np.random.default_rng(1)
    write_megatron(tmp / "src/t", [rng.integers(0, 50_000, rng.integers(100, 2500)) for _ in range(3000)], "uint16")
    text = "format=megatron file=t.bin "
    if length == 0:
        text += sampler(True, batch=BATCH, seed=5, epochs=2)
    else:
        text += f"sequence_length={length} seed=1234 sampler=megatron.sequential world=1 batch={BATCH} epochs=2"
    samples = ranges_of(text, tmp / "src", 2)
    assert length == 0 or all(sum(size for _, size in pieces) == 2 * (length + 1) for pieces in samples)
    tokens, index = ((tmp / "src" / name).read_bytes() for name in ("t.bin", "t.idx"))
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "4M") as mount:
        start(mount, text)
        assert (mount.path / "t.idx").read_bytes() == index
        read = open_tokens(mount.path / "t.bin")
        for n, pieces in enumerate(samples):
            if n % BATCH == 0:
                wait_ready(mount, n, len(samples))
            for offset, size in pieces:
                assert read(offset, size) == tokens[offset : offset + size], (n, offset)
        wait_finished(mount)
        stats = mount.stats()
        assert_followed(plan(mount))
        del read
    pages = sum((offset % mmap.PAGESIZE + size - 1) // mmap.PAGESIZE + 1 for pieces in samples for offset, size in pieces)
    print(length, requests_of(stats), pages, stats["reads"], stats["pfs"]["bytes"] / len(tokens), stats["staging"])
    of_index = len(index) // mmap.PAGESIZE + 1  # as far as it was read before it was pushed
    assert requests_of(stats) <= stats["staging"]["sentinels"] + 10 + of_index + pages // 100  # taken back, as above


@pytest.mark.parametrize(("reader", "goes_on"), [("pread", True), ("lmdb", False)])
def test_killed_and_started_again(tmp, reader, goes_on):
    """From a checkpoint, with a plan that says so; or from the beginning, where it is found by what it reads."""
    count, epochs, done = 1200, 2, 480
    (tmp / "src").mkdir()
    text, job, records = writer_for(reader)(tmp / "src", count, ODD)
    text += " " + sampler(True, batch=BATCH, seed=3, epochs=epochs)
    job |= {"reader": reader, "seed": 3, "batch": BATCH, "epochs": epochs}
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "1M") as mount:
        start(mount, text)
        with running(start_job(mount, tmp, records, **job, pause=0.02)):
            clairmount.wait_until(lambda: plan(mount)["passed"] >= done, "the place where it is killed")
        if goes_on:
            start(mount, f"{text} start_sample={done}")
            train(mount, tmp, records, **job, start=done, pause=0.01)
            return
        with running(start_job(mount, tmp, records, **job, pause=0.01)) as again:
            assert_all_read(again, epochs * count)
        wait_finished(mount)
        state = plan(mount)
        assert (state["realignments"] > 0, state["suspensions"]) == (True, 0), state


def test_two_plans_on_one_file(tmp):
    """Every other record is one of the validation, which runs beside the training. All samples of the first plan fit the
    page cache, and those of the second get what is left."""
    count, epochs = 1200, 2
    rng = random.Random(1)
    sets = {name: [rng.randbytes(ODD) for _ in range(count)] for name in ("train", "val")}
    (tmp / "src").mkdir()
    with lmdb.open(str(tmp / "src/rows.lmdb"), subdir=False, map_size=1 << 30) as env, env.begin(write=True) as txn:
        for i in range(count):
            for name, records in sets.items():
                txn.put(b"%s-%d" % (name.encode(), i), records[i])
    size = (tmp / "src/rows.lmdb").stat().st_size
    jobs = []
    with clairmount.clairfs(tmp / "src", "--ram", "64M", "--staging", "16M") as mount:
        for seed, name in enumerate(sets, 3):
            keys = sampler(True, batch=BATCH, seed=seed, epochs=epochs, workers=2)
            start(mount, f"name={name} format=lmdb file=rows.lmdb keys={name}-%d {keys}", name)
            jobs.append({"path": "rows.lmdb", "reader": "lmdb", "keys": f"{name}-%d", "seed": seed, "workers": 2,
                         "batch": BATCH, "epochs": epochs, "pause": 0.01})  # fmt: skip
        with (
            running(start_job(mount, tmp, sets["train"], **jobs[0])) as first,
            running(start_job(mount, tmp, sets["val"], **jobs[1])) as second,
        ):
            for process in (first, second):
                assert_all_read(process, epochs * count)
        for name in sets:
            wait_finished(mount, name)
            assert_followed(plan(mount, name))
        read = mount.stat("pfs.bytes")
    assert read <= 1.05 * size, read / size


def test_records_are_named_as_elements_of_their_file(tmp):
    (tmp / "src").mkdir()
    text, _, records = write_lmdb(tmp / "src", 300, SMALL)
    text += " " + sampler(True, batch=8, seed=3, epochs=2)
    words = [clairmount.binary(), "plan", "order", f"{text} root='{tmp / 'src'}'", "--rank", "0", "--epoch", "0"]
    run = lambda *words: subprocess.run(words, check=True, capture_output=True, timeout=60, text=True).stdout  # noqa: E731
    order = [int(i) for i in run(*words).split()]
    named = [f"rows.lmdb[{i}]" for i in order]
    assert run(*words, "--paths").split() == named
    # A window that holds a part of the file: of one that is pushed as a whole few READs tell.
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "128K") as mount:
        register(mount, text)
        assert run(clairmount.binary(), "plan", "show", str(mount.path), "--next", "9").split() == named[:9]
        next_use = os.getxattr(mount.path / "rows.lmdb", "user.clairfs.next_use").decode()
        assert next_use == f"plan=default epoch=0 position=0 in=0 sample={named[0]}"
        read = records_job.READERS["lmdb"]({**records_job.DEFAULTS, "path": str(mount.path / "rows.lmdb")})
        for i in range(300):  # another order
            assert read(i) == records[i]
        clairmount.wait_until(lambda: "divergence" in plan(mount), "the reader is seen to go another way")
        said = subprocess.run([clairmount.binary(), "plan", "check", mount.path], capture_output=True, timeout=60, text=True)
        assert re.search(r"expected rows\.lmdb\[\d+\], saw rows\.lmdb\[\d+\]", said.stdout), said.stdout
        said_of_it = re.compile(r"left the plan at .*rows\.lmdb\[\d+\]")
        clairmount.wait_until(lambda: said_of_it.search(mount.control("status")), lambda: mount.control("status"))
        del read
