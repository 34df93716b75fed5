"""The place of every record against the real LMDB: databases of random histories, read back by py-lmdb."""

import os
import pathlib
import random
import subprocess

import pytest
from clairmount import binary

lmdb = pytest.importorskip("lmdb")

USUAL = {b"__len__", b"__keys__", b"length", b"num-samples"}
NEAR_A_PAGE = [0, 1, 100, 2030, 2038, 2039, 2040, 2050, 4070, 4079, 4080, 4081, 4096, 8176, 8177, 20000]


def ask(plan, *options):
    words = [binary(), "plan", "order", f"shuffle=false format=lmdb {plan}", *options]
    return subprocess.run(words, capture_output=True, timeout=300, check=False)


def ranges(plan):
    """[[(offset, length, path)]] of each sample."""
    done = ask(plan, "--ranges")
    assert done.returncode == 0, done.stderr.decode()
    samples = []
    for line in done.stdout.decode().splitlines():
        offset, length, path = line.removeprefix("+").split(" ", 2)
        if not line.startswith("+"):
            samples.append([])
        samples[-1].append((int(offset), int(length), path))
    return samples


def values(root, plan):
    """What lies where the index says that the samples are, one list of values a sample."""
    files = {}
    found = []
    for pieces in ranges(f"root='{root}' {plan}"):
        found.append([])
        for offset, length, path in pieces:
            if path not in files:
                files[path] = pathlib.Path(root, path).read_bytes()
            data = files[path]
            assert offset + length <= len(data)
            found[-1].append(data[offset:offset + length])
    return found


def assert_indexed(root, plan, expected):
    """Without pytest's own comparison, which takes minutes for what differs in megabytes."""
    found = values(root, plan)
    assert len(found) == len(expected)
    assert [i for i, sample in enumerate(expected) if found[i] != sample] == []


def refused(plan):
    done = ask(plan)
    assert done.returncode == 1
    return done.stderr.decode()


def random_value(rng):
    return rng.randbytes(rng.choice([rng.choice(NEAR_A_PAGE), rng.randrange(60), rng.randrange(3000)]))


def random_history(env, rng, key_of, db=None):
    """Puts, overwrites and deletes in transactions of all sizes, some of which are given up."""
    for _ in range(rng.randint(1, 12)):
        txn = env.begin(write=True, db=db)
        for _ in range(rng.choice([1, 5, 100, 400])):
            key = key_of(rng)
            if rng.random() < 0.25:
                txn.delete(key)
            else:
                txn.put(key, random_value(rng))
        if rng.random() < 0.9:
            txn.commit()
        else:
            txn.abort()


def in_order(env, db=None):
    with env.begin(db=db) as txn:
        return list(txn.cursor())


KEYS = [lambda rng: b"%d" % rng.randrange(500), lambda rng: b"%08d" % rng.randrange(3000),
        lambda rng: rng.randbytes(rng.randint(1, 60)), lambda rng: b"x" * rng.randint(1, 511),
        lambda rng: rng.choice([*USUAL, b"a", b"z"])]


@pytest.mark.parametrize("seed", range(40))
def test_random_histories(tmp_path, seed):
    rng = random.Random(seed)
    subdir = rng.random() < 0.5
    env = lmdb.open(str(tmp_path / "x.lmdb"), map_size=1 << 26, subdir=subdir, sync=False, writemap=rng.random() < 0.3)
    random_history(env, rng, rng.choice(KEYS))
    kept = [[value] for key, value in in_order(env) if key not in USUAL]
    env.close()
    if kept:
        assert_indexed(tmp_path, "keys=cursor file=x.lmdb", kept)
        assert_indexed(tmp_path, "keys=cursor file=*.lmdb", kept)
    else:
        assert "no sample" in refused(f"keys=cursor file=x.lmdb root={tmp_path}")


def test_most_histories_leave_records(tmp_path):
    """Guards the test above against databases without any."""
    kept = 0
    for seed in range(10):
        rng = random.Random(seed)
        with lmdb.open(str(tmp_path / str(seed)), map_size=1 << 28, sync=False) as env:
            random_history(env, rng, rng.choice(KEYS))
            kept += env.stat()["entries"] > 20
    assert kept >= 5


@pytest.mark.parametrize("count, size", [(1, 0), (1, 5000), (100000, 12), (20000, 3000), (12, 500000)])
def test_sizes(tmp_path, count, size):
    env = lmdb.open(str(tmp_path), map_size=1 << 30, sync=False)
    rng = random.Random(count)
    with env.begin(write=True) as txn:
        for number in range(count):
            txn.put(b"%08d" % number, rng.randbytes(size))
    expected = [[value] for _, value in in_order(env)]
    env.close()
    assert_indexed(tmp_path, "keys=cursor file=data.mdb", expected)
    assert_indexed(tmp_path, "keys=%08d file=.", expected)


def test_copies_are_databases_too(tmp_path):
    env = lmdb.open(str(tmp_path / "x"), map_size=1 << 28, sync=False)
    random_history(env, random.Random(3), KEYS[1])
    expected = [[value] for _, value in in_order(env)]
    for compact in (False, True):
        os.mkdir(tmp_path / f"copy{compact}")
        env.copy(str(tmp_path / f"copy{compact}"), compact=compact)
        assert_indexed(tmp_path, f"keys=cursor file=copy{compact}", expected)
    env.close()


def test_decimal_keys_come_in_the_order_of_their_numbers(tmp_path):
    rng = random.Random(5)
    expected = []
    for part, count in enumerate((3, 1, 250)):
        with lmdb.open(str(tmp_path / f"{part}.lmdb"), subdir=False, map_size=1 << 28, sync=False) as env:
            with env.begin(write=True) as txn:
                batch = [random_value(rng) for _ in range(count)]
                for number in rng.sample(range(count), count):
                    txn.put(b"%d" % number, batch[number])
                txn.put(b"length", b"%d" % count)
                txn.put(b"metadata", b"x")
        expected += [[value] for value in batch]
    assert_indexed(tmp_path, "keys=decimal file=*.lmdb", expected)
    assert_indexed(tmp_path, "keys=%d file=*.lmdb", expected)
    cursor = values(tmp_path, "keys=cursor skip=meta* file=*.lmdb")
    assert sorted(cursor) == sorted(expected) and cursor != expected
    assert len(values(tmp_path, "keys=cursor file=*.lmdb")) == len(expected) + 3
    assert len(ask(f"keys=decimal file=*.lmdb root={tmp_path}", "--paths").stdout.split()) == 254


def test_several_values_a_sample(tmp_path):
    rng = random.Random(6)
    images = [rng.randbytes(rng.randint(3000, 9000)) for _ in range(300)]
    with lmdb.open(str(tmp_path), map_size=1 << 28, sync=False) as env, env.begin(write=True) as txn:
        for number, image in enumerate(images, 1):
            txn.put(b"image-%09d" % number, image)
            txn.put(b"label-%09d" % number, b"label %d" % number)
        txn.put(b"num-samples", b"300")
    expected = [[image, b"label %d" % number] for number, image in enumerate(images, 1)]
    assert_indexed(tmp_path, "keys=image-%09d,label-%09d file=data.mdb", expected)
    assert_indexed(tmp_path, "keys=label-%09d file=data.mdb", [[label] for _, label in expected])
    assert "different numbers" in refused(f"keys=image-%09d,none-%09d file=data.mdb root={tmp_path}")
    with lmdb.open(str(tmp_path), map_size=1 << 28) as env, env.begin(write=True) as txn:
        txn.delete(b"image-%09d" % 7)
    assert "numbers 6 and 8 and none between" in refused(f"keys=image-%09d file=data.mdb root={tmp_path}")


def test_keys_from_a_file(tmp_path):
    keys = [b"a b", b"\xff%\n", b"#", b"plain", b"%41"]
    with lmdb.open(str(tmp_path), map_size=1 << 28, sync=False) as env, env.begin(write=True) as txn:
        for key in keys:
            txn.put(key, key * 2)
    wanted = [keys[3], keys[1], keys[0], keys[3], keys[2], keys[4]]
    lines = ["".join(chr(b) if 32 <= b < 127 and b not in b"%#" else f"%{b:02x}" for b in key) for key in wanted]
    listed = tmp_path / "keys.txt"
    listed.write_text("# the keys\n" + "\n".join(lines) + "\n")
    assert_indexed(tmp_path, f"keys={listed} file=data.mdb", [[key * 2] for key in wanted])
    listed.write_text("plain\nmissing\n")
    assert "line 2" in refused(f"keys={listed} file=data.mdb root={tmp_path}")


def test_named_databases(tmp_path):
    env = lmdb.open(str(tmp_path), map_size=1 << 28, max_dbs=4, sync=False)
    first, second = env.open_db(b"first"), env.open_db(b"second")
    random_history(env, random.Random(7), KEYS[1], first)
    random_history(env, random.Random(8), KEYS[2], second)
    env.open_db(b"empty")
    env.open_db(b"dup", dupsort=True)
    expected = {name: [[value] for _, value in in_order(env, db)] for name, db in (("first", first), ("second", second))}
    env.close()
    for name, records in expected.items():
        assert records
        assert_indexed(tmp_path, f"db={name} keys=cursor file=data.mdb", records)
    plan = f"root={tmp_path} keys=cursor file=data.mdb"
    assert "first, second" in refused(plan)
    assert "no database of the name db=third" in refused(plan + " db=third")
    assert "MDB_DUPSORT" in refused(plan + " db=dup")
    assert "no sample" in refused(plan + " db=empty")


def test_damaged_files_are_refused(tmp_path):
    """A bit, a page or the end of it is gone: a refusal with its reason, or nothing that an index looks at."""
    rng = random.Random(9)
    with lmdb.open(str(tmp_path / "whole"), map_size=1 << 28, subdir=False, sync=False) as env:
        random_history(env, rng, KEYS[1])
        count = env.stat()["entries"]
    whole = (tmp_path / "whole").read_bytes()
    damaged = tmp_path / "damaged"
    refusals = 0
    for _ in range(150):
        data = bytearray(whole)
        where = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[where] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[where // 4096 * 4096:][:4096] = rng.randbytes(4096)
        elif kind == 2:
            page, other = where // 4096 * 4096, rng.randrange(len(data) // 4096) * 4096
            data[page:page + 4096] = data[other:other + 4096]
        else:
            del data[where:]
        damaged.write_bytes(data)
        done = ask(f"root={tmp_path} keys=cursor file=damaged")
        assert done.returncode in (0, 1), done
        refusals += done.returncode
        assert done.returncode == 1 and done.stderr or len(done.stdout.split()) == count
    assert refusals > 30
    for data, reason in ((b"", "too short"), (b"\0" * 8192, "no LMDB data file"), (whole[:4096], "too short")):
        damaged.write_bytes(data)
        assert reason in refused(f"root={tmp_path} keys=cursor file=damaged")
