"""Records of large files under a plan, read in every way that people read them: the plan is followed to its end, every
byte is the source's, and what a reader finds pushed costs it no request."""

import hashlib
import json
import mmap
import os
import random
import re
import subprocess
import sys

import clairmount
import pytest
from planning import cached_bytes, plan, register, wait_ahead

np = pytest.importorskip("numpy")
lmdb = pytest.importorskip("lmdb")
pytest.importorskip("torch")

import records_job  # noqa: E402  (needs numpy)

MIB = 1 << 20


def write_npy(folder, count, size):
    rows = np.random.default_rng(1).integers(0, 256, (count, size), dtype=np.uint8)
    np.save(folder / "rows.npy", rows)
    header = (folder / "rows.npy").stat().st_size - rows.size
    return "format=npy file=rows.npy", {"path": "rows.npy", "header": header, "record": size}, list(rows)


def write_raw(folder, count, size):
    rng = random.Random(1)
    rows = [rng.randbytes(size) for _ in range(count)]
    (folder / "rows.bin").write_bytes(b"h" * 77 + b"".join(rows))
    return f"format=raw file=rows.bin record={size} header=77", {"path": "rows.bin", "header": 77, "record": size}, rows


def write_lmdb(folder, count, size):
    """Of sizes that differ, written in transactions, some records twice: not in the order of the keys."""
    rng = random.Random(1)
    values = [rng.randbytes(size + rng.randrange(size // 2)) for _ in range(count)]
    with lmdb.open(str(folder / "rows.lmdb"), subdir=False, map_size=1 << 34) as env:
        for first in range(0, count, 100):
            with env.begin(write=True) as txn:
                for i in range(first, min(first + 100, count)):
                    txn.put(b"%d" % i, values[i] if rng.random() < 0.9 else rng.randbytes(size))
        with env.begin(write=True) as txn:
            for i, value in enumerate(values):
                if txn.get(b"%d" % i) != value:
                    txn.put(b"%d" % i, value)
            txn.put(b"__len__", b"%d" % count)
    return "format=lmdb file=rows.lmdb keys=decimal", {"path": "rows.lmdb"}, values


def sampler(shuffle, **keys):
    order = "" if shuffle else "shuffle=false "
    return f"sampler=torch.distributed world=1 {order}" + " ".join(f"{name}={value}" for name, value in keys.items())


def assert_followed(state):
    assert state["state"] == "finished", state
    assert (state["suspensions"], state["realignments"]) == (0, 0), state
    assert "divergence" not in state
    assert state["in_order"] > 0, state


# Sizes on both sides of a page, and of what the kernel reads around it.
SMALL, ODD, LARGE = 1300, 5001, 110_000


@pytest.mark.parametrize("reader", ["memmap", "mmap", "mmap.random", "pread", "buffered", "lmdb", "lmdb.readahead"])
@pytest.mark.parametrize("shuffle", [True, False], ids=["shuffled", "in_order"])
@pytest.mark.parametrize(("count", "size"), [(8000, SMALL), (3000, ODD), (400, LARGE)])
def test_pushed_before_it_is_read(tmp, reader, shuffle, count, size):
    """A reader that always has staging before it: it waits, so that no clock decides."""
    write = write_lmdb if reader.startswith("lmdb") else write_npy if reader == "memmap" else write_raw
    (tmp / "src").mkdir()
    text, job, records = write(tmp / "src", count, size)
    total = sum(len(record) for record in records)
    job = {**records_job.DEFAULTS, **job}
    text += " " + sampler(shuffle, batch=8, seed=5, epochs=2)
    words = [clairmount.binary(), "plan", "order", f"{text} root='{tmp / 'src'}'", "--rank", "0", "--epoch"]
    orders = [
        [int(i) for i in subprocess.run([*words, e], check=True, capture_output=True, timeout=60).stdout.split()]
        for e in "01"
    ]
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "8M") as mount:
        register(mount, text)
        wait_ahead(mount, 32)
        read = records_job.READERS[reader]({**job, "path": str(mount.path / job["path"])})
        order = orders[0] + orders[1]
        for n, i in enumerate(order):
            if n % 8 == 0:
                clairmount.wait_until(lambda n=n: ready(mount, n, len(order)), f"{n} {plan(mount)}")
            assert read(i) == records[i].tobytes() if reader == "memmap" else read(i) == bytes(records[i]), i
        clairmount.wait_until(lambda: plan(mount)["state"] == "finished", "the end of the plan")
        stats = mount.stats()
        assert_followed(plan(mount))
        del read
    reads = sum(stats["reads"][tier] for tier in ("ram", "nvme", "peer", "pfs"))
    print(reader, count, size, reads, stats["reads"], stats["pfs"]["bytes"] / total, stats["staging"])
    # The kernel may take pages back before they are read (DAMON's reclaim does so with idle ones), and a mapping then
    # asks for each page: of one use in a hundred at most.
    taken_back = 2 * count // 100 * (size // mmap.PAGESIZE + 2)
    assert reads <= stats["staging"]["sentinels"] + 10 + taken_back


def test_records_are_named_as_elements_of_their_file(tmp):
    (tmp / "src").mkdir()
    text, job, records = write_lmdb(tmp / "src", 300, SMALL)
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
        del read


def ready(mount, read, total):
    state = plan(mount)
    return state["state"] == "finished" or state["passed"] + state["ahead"] >= min(read + 16, total)
