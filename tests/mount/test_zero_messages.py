"""What costs nothing: cached files no messages, a crowd of readers one fetch, a full cache no amplification."""

import itertools
import os
import random
import threading
import time

import pytest
from clairmount import clairfs, drop_page_cache, make_samples, make_tree, slowfs, wait_until
from mounting import delta, io_choices

OF_STATS = {"lookup", "read", "ioctl"}  # what reading stats.json itself costs, beside its own attributes


def requests_but_forgets(before, after):
    """FUSE requests between two readings of stats.json, by operation. Forgets come when the kernel likes."""
    return {
        key.removeprefix("fuse.requests."): n
        for key, n in delta(before, after).items()
        if key.startswith("fuse.requests.") and not key.endswith(".forget")
    }


def cost_of_stats(mount):
    """Requests that one reading of stats.json adds."""
    mount.stats()  # the first open of a mount costs a message
    first = mount.stats()
    return requests_but_forgets(first, mount.stats())


def assert_silent(mount, action):
    """`action` sends no FUSE request but those of reading stats.json. The kernel may take pages, attributes and names back
    at any time (memory is short, somebody wrote to drop_caches), which the action then asks for again; so it has a few
    tries, one of which must send nothing. What is not cached at all is asked for in each of them."""
    cost = cost_of_stats(mount)
    assert set(cost) <= OF_STATS
    tries = []
    for _ in range(5):
        before = mount.stats()
        action()
        tries.append(requests_but_forgets(before, mount.stats()))
        if tries[-1] == cost:
            return
    raise AssertionError(f"requests beyond those of reading stats.json, {cost}: {tries}")


def read_all(root, names):
    return {name: open(root / name, "rb", buffering=0).read() for name in names}


def use(root, names):
    """What a training script does with its files: reads, stats, opens, and asks for some that do not exist."""
    for name in names:
        read_all(root, [name])
        fd = os.open(root / name, os.O_RDONLY)
        os.fstat(fd)
        os.close(fd)
        os.stat(root / name)
        assert not os.path.exists(root / f"{name}.absent")


def test_second_pass_sends_nothing(tmp):
    names = make_samples(tmp / "src", 500, 110_000, classes=7)
    with clairfs(tmp / "src", "--ram=256M") as mount:
        assert read_all(mount.path, names) == read_all(mount.source, names)
        use(mount.path, names)
        for number in range(3):
            assert_silent(mount, lambda: use(mount.path, random.Random(number).sample(names, len(names))))


def test_listings_are_cached(tmp):
    make_samples(tmp / "src", 2000, 10, classes=4)
    with clairfs(tmp / "src") as mount:
        tree = sorted(os.walk(mount.path))
        assert sorted(os.walk(mount.path)) == tree

        def walk():
            for folder, _folders, files in os.walk(mount.path):
                for name in files:
                    os.lstat(os.path.join(folder, name))

        for _ in range(3):
            assert_silent(mount, walk)


def test_one_listing_makes_all_files_known(tmp):
    names = make_samples(tmp / "src", 2000, 10, classes=1)
    with clairfs(tmp / "src") as mount:
        os.listdir(mount.path / "class000")
        before = mount.stat("fuse.requests.lookup")
        for name in names:
            os.stat(mount.path / name)
        assert mount.stat("fuse.requests.lookup") - before <= 2  # those of stats.json


def test_opening_costs_no_message(tmp):
    names = make_samples(tmp / "src", 100, 10)
    with clairfs(tmp / "src") as mount:
        for name in names:
            os.close(os.open(mount.path / name, os.O_RDONLY))
            os.listdir(mount.path)
        assert mount.stat("fuse.requests.open") <= 2 and mount.stat("fuse.requests.opendir") <= 2


def in_threads(count, call):
    """Runs call(number) in threads that start together; what they return. Raises what one of them raises."""
    barrier = threading.Barrier(count)
    results = [None] * count

    def run(number):
        barrier.wait()
        try:
            results[number] = call(number)
        except BaseException as failure:
            results[number] = failure

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def read_directly(path):
    """One READ that the page cache has no part in, so that each reader's reaches the daemon."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return os.pread(fd, 1 << 20, 0)
    finally:
        os.close(fd)


@pytest.mark.parametrize("io", io_choices())
@pytest.mark.parametrize("ram", ["64M", "0"])
def test_fifty_readers_of_a_cold_file_cause_one_fetch(tmp, ram, io):
    content = make_tree(tmp / "src", {"file": 200_000})["file"]
    with slowfs(tmp / "src", "--attr-timeout", "1000") as slow, clairfs(slow.path, f"--ram={ram}", f"--io={io}") as mount:
        slow.command("reset")
        slow.command("hang file 3600")
        os.stat(mount.path / "file")
        readers = threading.Thread(target=lambda: results.extend(in_threads(50, read_one)))
        results = []
        read_one = lambda _number: read_directly(mount.path / "file")  # noqa: E731
        readers.start()
        try:
            looks = itertools.count(1)  # each look is a READ of stats.json
            wait_until(lambda: mount.stat("fuse.requests.read") - next(looks) >= 50, "all readers wait")
            time.sleep(1)  # the last ones are counted a moment before they join; a busy machine may hold one up longer
        finally:
            slow.command("clear")
            readers.join()
        assert results == [content] * 50
        counters, stats = slow.counters(), mount.stats()
        assert counters["ops"]["open"] == 1 and counters["bytes"] == len(content)
        assert (stats["pfs"]["opens"], stats["pfs"]["bytes"]) == (1, len(content))
        assert stats["reads"]["joined"] >= stats["reads"]["pfs"] - 1 >= 25
        assert stats["stall_seconds"] > 0


@pytest.mark.parametrize("io", io_choices())
def test_each_file_is_read_once(tmp, io):
    names = make_samples(tmp / "src", 200, 30_000)
    contents = {name: (tmp / "src" / name).read_bytes() for name in names}
    with slowfs(tmp / "src", "--attr-timeout", "1000") as slow, clairfs(slow.path, "--ram=64M", f"--io={io}") as mount:
        slow.command("reset")

        def epoch(number):
            shuffled = random.Random(number).sample(names, len(names))
            for name in shuffled:
                assert (mount.path / name).read_bytes() == contents[name]
            drop_page_cache(mount.path)

        in_threads(4, epoch)
        epoch(9)
        counters = slow.counters()
        assert counters["opens_per_file_max"] == 1 and counters["ops"]["open"] == len(names)
        assert counters["bytes"] == mount.stat("pfs.bytes") == sum(map(len, contents.values()))


@pytest.mark.parametrize("io", io_choices())
@pytest.mark.parametrize("ram", ["64M", "0"])
def test_a_large_file_is_opened_once(tmp, ram, io):
    content = make_tree(tmp / "src", {"large": 9_000_001})["large"]
    options = [f"--ram={ram}", "--chunk=256K", f"--io={io}"]
    with slowfs(tmp / "src", "--attr-timeout", "1000") as slow, clairfs(slow.path, *options) as mount:
        slow.command("reset")
        with open(mount.path / "large", "rb", buffering=0) as file:
            first = file.read(1)  # parallel first reads may each open it
            assert first + file.read() == content
        counters = slow.counters()
        assert counters["ops"]["open"] == mount.stat("pfs.opens") == 1
        assert counters["bytes"] == len(content)


def test_random_reads_through_a_full_cache_are_not_amplified(tmp):
    size = 64 << 20
    content = make_tree(tmp / "src", {"large": size})["large"]
    with clairfs(tmp / "src", "--ram=0") as mount:
        fd = os.open(mount.path / "large", os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            for offset in random.Random(1).sample(range(0, size, 4096), 1000):
                assert os.pread(fd, 4096, offset) == content[offset : offset + 4096]
        finally:
            os.close(fd)
        assert mount.stat("pfs.bytes") == 1000 * 4096


def test_sequential_read_through_a_full_cache_is_not_amplified(tmp):
    content = make_tree(tmp / "src", {"large": 40_000_001, "filler": 1 << 20})["large"]
    with clairfs(tmp / "src", "--ram=1M") as mount:
        (mount.path / "filler").read_bytes()
        assert (mount.path / "large").read_bytes() == content
        assert mount.stat("pfs.bytes") == len(content) + (1 << 20)


@pytest.mark.parametrize("io", io_choices())
@pytest.mark.parametrize("chunk", ["1M", "2M"])
def test_more_readers_than_memory_for_them(tmp, chunk, io):
    """Chunks in transit have memory for 16 of these files; the other readers wait their turn, and all get it."""
    contents = make_tree(tmp / "src", {f"{i}": 1 << 20 for i in range(60)})
    with slowfs(tmp / "src", "--attr-timeout", "1000", "--read-latency", "30000") as slow:
        with clairfs(slow.path, "--ram=0", f"--chunk={chunk}", f"--io={io}") as mount:
            for _ in range(2):
                assert in_threads(60, lambda i: read_directly(mount.path / str(i))) == list(contents.values())
