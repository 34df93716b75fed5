"""What a plan does when the reader does not do as planned: the data is the source's, every read ends, and the plan's
state says what happened. Readers here make no request but READs unless a test says otherwise (CPython's open() also
tells of itself by an ioctl)."""

import contextlib
import errno
import fcntl
import os
import pathlib
import platform
import random
import threading
import time

import clairmount
import pytest
from planning import (
    cached_bytes,
    cancel,
    make_images,
    plan,
    predicted,
    register,
    run_job,
    running,
    start_job,
    wait_ahead,
)

KERNEL = tuple(map(int, platform.release().split("-", maxsplit=1)[0].split(".")[:2]))
SEED = 42
PLAN = f"format=imagefolder sampler=torch.distributed seed={SEED} epochs=4"
SUSPENDED_WITHIN = 64  # samples after the first that is not as planned


@pytest.fixture(scope="module")
def dataset():
    """400 files of about 5 KB, so that a sentinel has a page that is there and one that is not."""
    with clairmount.tempdir() as tmp:
        make_images(tmp / "train", 400, side=40)
        yield tmp


@pytest.fixture
def mount(dataset):
    with clairmount.clairfs(dataset, "--ram", "64M", "--staging", "512K") as mounted:
        yield mounted


def order(dataset, epoch=0, text=PLAN, rank=0):
    return [f"train/{name}" for name in predicted(dataset / "train", text, epoch, rank)]


# How isatty() asks: TCGETS, and TCGETS2 with glibc 2.42 and later.
@pytest.mark.parametrize("request_of_isatty", [0x5401, 0x802C542A])
def test_an_open_that_asks_for_a_terminal_is_seen(mount, dataset, request_of_isatty):
    register(mount, PLAN, "train")
    wait_ahead(mount, 10)
    for name in order(dataset)[:9]:
        fd = os.open(mount.path / name, os.O_RDONLY)
        with contextlib.suppress(OSError):
            fcntl.ioctl(fd, request_of_isatty, bytes(44))
        os.close(fd)
    clairmount.wait_until(lambda: plan(mount)["in_order"] == 9, "all are seen")


def read_raw(path):
    """The file's content, without any ioctl."""
    fd = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(fd, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def read_python(path):
    with open(path, "rb") as file:
        return file.read()


def read_all(mount, names, read=read_raw, source=None):
    for name in names:
        assert read(mount.path / name) == ((source or mount.source) / name).read_bytes(), name


def read_in_step(mount, names, read=read_raw, step=16):
    """As a training does that leaves the daemon its processor: one that gets none is overtaken, sentinels and all."""

    def staged():
        state = plan(mount)
        return state["state"] != "following" or state["ahead"] >= step

    for i in range(0, len(names), step):
        read_all(mount, names[i : i + step], read)
        clairmount.wait_until(staged, "what comes next is staged")


def read_until_suspended(mount, names, read):
    """How many files were read when the plan was suspended."""
    for count, name in enumerate(names, 1):
        read_all(mount, [name], read)
        if plan(mount)["state"] == "suspended":
            return count
    raise AssertionError(plan(mount))


@pytest.mark.parametrize("read", [read_raw, read_python])
def test_as_planned(dataset, mount, read):
    register(mount, PLAN, "train")
    for epoch in range(4):
        names = order(dataset, epoch)
        for i in range(0, len(names), 16):
            wait_ahead(mount, 16)
            read_all(mount, names[i : i + 16], read)
    state = plan(mount)
    assert (state["state"], state["suspensions"], state["out_of_order"]) == ("finished", 0, 0), state


@pytest.mark.parametrize("read", [read_raw, read_python])
def test_whole_dataset_fits_the_window(dataset, read):
    with clairmount.clairfs(dataset, "--ram", "64M", "--staging", "64M") as mount:
        register(mount, PLAN, "train")
        for epoch in range(4):
            wait_ahead(mount, 400)  # a faster reader passes sentinels before they are open again
            read_all(mount, order(dataset, epoch), read)
        state = plan(mount)
        assert (state["state"], state["suspensions"], state["out_of_order"]) == ("finished", 0, 0), state


@pytest.mark.parametrize("read", [read_raw, read_python])
def test_wrong_seed(dataset, mount, read):
    register(mount, PLAN, "train")
    wait_ahead(mount, 16)
    wrong = order(dataset, text=PLAN.replace(f"seed={SEED}", "seed=1"))
    assert read_until_suspended(mount, wrong, read) <= 1 + SUSPENDED_WITHIN
    # Which order it is instead may stay unknown.
    difference = plan(mount)["divergence"]
    assert difference["hint"] and difference["seen"] == wrong[0] and difference["expected"] == order(dataset)[0]
    assert "suspended" in mount.control("status")
    # Looking for the order takes a moment, after which the hint may be a better one.
    clairmount.wait_until(lambda: plan(mount)["divergence"]["hint"] in mount.control("plan"), "both show the same hint")
    read_all(mount, wrong)  # the mount goes on
    assert mount.stat("reads.failed") == 0


@pytest.mark.parametrize("read", [read_raw, read_python])
def test_sequential_instead_of_shuffled(dataset, mount, read):
    register(mount, PLAN, "train")
    wait_ahead(mount, 16)
    names = [f"train/{name}" for name in clairmount.tree_files(dataset / "train")]
    read_until_suspended(mount, names, read)
    clairmount.wait_until(lambda: "sequential" in plan(mount)["divergence"]["hint"], "the hint names the order")


@pytest.mark.parametrize("read", [read_raw, read_python])
def test_set_epoch_forgotten(dataset, mount, read):
    register(mount, PLAN, "train")
    wait_ahead(mount, 16)
    for _ in range(3):
        read_all(mount, order(dataset, 0), read)
    hint = lambda: plan(mount).get("divergence", {}).get("hint", "")  # noqa: E731
    clairmount.wait_until(lambda: "set_epoch" in hint(), lambda: f"the hint names it, and not {hint()}")
    assert plan(mount)["divergence"]["epoch"] == 1


def assert_found(mount, epoch, position, slack=64):
    state = plan(mount)
    assert state["state"] == "following", state
    assert state["epoch"] == epoch and abs(state["high_water"] - position) <= slack, state


@pytest.mark.parametrize("read", [read_raw, read_python])
@pytest.mark.parametrize(
    "stretches",
    [
        pytest.param([(0, 0, 100), (0, 220, 390)], id="skips"),
        pytest.param([(0, 0, 200), (0, 0, 150)], id="restarts an epoch"),
        pytest.param([(0, 200, 390)], id="starts in the middle"),
        pytest.param([(1, 0, 200)], id="starts with the next epoch"),
        pytest.param([(0, 0, 200), (1, 0, 200)], id="breaks early"),
    ],
)
def test_found_again(dataset, mount, read, stretches):
    register(mount, PLAN, "train")
    wait_ahead(mount, 16)
    for epoch, begin, end in stretches:
        read_in_step(mount, order(dataset, epoch)[begin:end], read)
    assert_found(mount, epoch, end)


@pytest.mark.parametrize("read", [read_raw, read_python])
def test_resumed_as_the_plan_says(dataset, mount, read):
    register(mount, PLAN + " first_epoch=2 start_sample=150", "train")
    wait_ahead(mount, 16)
    read_in_step(mount, order(dataset, 2)[150:390], read)
    assert_found(mount, 2, 390)
    assert plan(mount)["realignments"] == 0 and plan(mount)["out_of_order"] == 0


@pytest.mark.parametrize("read", [read_raw, read_python])
def test_plan_comes_while_the_reader_runs(dataset, mount, read):
    read_all(mount, order(dataset)[:200], read)
    register(mount, PLAN, "train")
    wait_ahead(mount, 16)
    read_in_step(mount, order(dataset)[200:390], read)
    assert_found(mount, 0, 390)


def test_after_the_page_cache_was_filled_without_a_plan(dataset, mount):
    read_all(mount, order(dataset))
    register(mount, PLAN, "train")
    wait_ahead(mount, 16)
    read_in_step(mount, order(dataset)[:200])
    assert_found(mount, 0, 200)


def test_cancelled_and_replaced_in_the_middle(dataset, mount):
    names = order(dataset)
    register(mount, PLAN, "train")
    wait_ahead(mount, 16)
    read_all(mount, names[:100])
    cancel(mount)
    assert mount.stats()["plan_list"] == []
    read_all(mount, names[100:200])
    register(mount, PLAN + " start_sample=200", "train")
    wait_ahead(mount, 16)
    read_in_step(mount, names[200:300])
    assert_found(mount, 0, 300)
    other = PLAN.replace(f"seed={SEED}", "seed=5")
    register(mount, other, "train")
    wait_ahead(mount, 16)
    read_all(mount, order(dataset, text=other)[:300])
    assert_found(mount, 0, 300)


def test_changed_and_vanished_files(tmp):
    make_images(tmp / "src/train", 200, side=40)
    names = order(tmp / "src")
    with clairmount.clairfs(tmp / "src", "--ram", "64M", "--staging", "256K") as mount:
        changed, vanished = names[150], names[160]
        with open(tmp / "src" / changed, "ab") as file:
            file.write(b"more")
        os.unlink(tmp / "src" / vanished)
        register(mount, PLAN, "train")
        wait_ahead(mount, 16)
        for name in names:
            if name in (changed, vanished):
                with pytest.raises(OSError) as raised:
                    read_raw(mount.path / name)
                assert raised.value.errno == errno.ESTALE
            else:
                read_all(mount, [name])
        assert plan(mount)["suspensions"] == 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--ram", "64M", "--staging", "4K"], id="staging below a file"),
        pytest.param(["--ram", "0", "--staging", "512K"], id="no tier"),
        pytest.param(["--ram", "0", "--staging", "64M"], id="no tier, everything staged"),
        pytest.param(["--ram", "0", "--staging", "512K", "--nvme", "NVME:64M"], id="NVMe only"),
        pytest.param(["--ram", "300K", "--staging", "256K"], id="small RAM"),
    ],
)
def test_small_budgets(dataset, tmp, options):
    (tmp / "nvme").mkdir(mode=0o700)
    options = [o.replace("NVME", str(tmp / "nvme")) for o in options]
    with clairmount.clairfs(dataset, *options) as mount:
        register(mount, PLAN, "train")
        for epoch in range(4):
            read_all(mount, order(dataset, epoch), read_python)  # may overtake the pushes
        state = plan(mount)
        assert (state["state"], state["suspensions"], state["realignments"]) == ("finished", 0, 0), state
        assert mount.stat("tiers.ram.bytes") <= mount.stat("tiers.ram.capacity")
        assert mount.stat("staging.bytes") <= mount.stat("staging.capacity")


def test_page_cache_ahead_of_the_reader_is_within_the_budget(tmp):
    """Counted in whole pages, of which small files take more than their bytes."""
    budget = 512 << 10
    names = clairmount.make_tree(tmp / "src", {f"{i:04}": 600 for i in range(1000)})
    with clairmount.clairfs(tmp / "src", "--ram", "64M", "--staging", str(budget)) as mount:
        register(mount, "format=files seed=1 epochs=2")
        wait_ahead(mount, budget // 4096 - 8)
        assert mount.stat("staging.bytes") <= budget
        cached = sum(cached_bytes(mount.path / name) for name in names)
        assert budget * 3 // 4 < cached <= budget


@pytest.mark.parametrize("path", ["mnt", "link"])
def test_list_inside_the_mount(tmp, path):
    """A list in the mount is read from the source; one that is found there by a symlink alone, through the mount."""
    names = list(clairmount.make_tree(tmp / "src/train", {f"sample{i:02}": 5000 for i in range(20)}))
    (tmp / "src/train/order.txt").write_text("\n".join(names))
    with clairmount.clairfs(tmp / "src") as mount:
        (tmp / "link").symlink_to(mount.path)
        text = f"format=files sampler=list list={mount.path if path == 'mnt' else tmp / 'link'}/train/order.txt"
        said = []

        def set_plan():
            try:
                register(mount, text, "train")
                said.append(0)
            except OSError as error:
                said.append(error.errno)

        setting = threading.Thread(target=set_plan, daemon=True)
        setting.start()
        setting.join(120)
        assert said == [0]
        clairmount.wait_until(lambda: mount.stats()["plan_list"], "it is in force")
        read_all(mount, [f"train/{name}" for name in names])
        assert plan(mount)["out_of_order"] == 0
        if path == "link":
            cancel(mount)  # it keeps its list open


def test_what_a_plan_reads_once_is_there_for_the_next_job(tmp):
    """A plan never has more read from the source than no plan, also of what comes after it."""
    names = list(clairmount.make_tree(tmp / "src", {f"{i:04}": 100_000 for i in range(1500)}))
    total = 1500 * 100_000
    # Slower than the reader: no tier is filled ahead of it. Memory for chunks in transit could not keep them all.
    with clairmount.slowfs(tmp / "src", "--bandwidth", "200M", "--latency", "500", "--attr-timeout", "1000") as pfs:
        with clairmount.clairfs(pfs.path, "--ram", 2 * total, "--staging", "8M") as mount:
            register(mount, "sampler=torch.sequential epochs=1")
            for _ in range(2):
                for name in names:
                    assert (mount.path / name).read_bytes() == (tmp / "src" / name).read_bytes()
                clairmount.drop_page_cache(mount.path)
            assert plan(mount)["state"] == "finished"
            assert pfs.counters()["bytes"] == total


def test_two_plans_over_one_folder(tmp):
    """Training and validation halves: reading one says nothing against the other."""
    names = list(clairmount.make_tree(tmp / "src", {f"{i:03}": 5000 for i in range(200)}))
    halves = {"train": names[::2], "val": names[1::2]}
    with clairmount.clairfs(tmp / "src", "--ram", "64M", "--staging", "128K") as mount:
        for name, half in halves.items():
            random.Random(name).shuffle(half)
            (tmp / name).write_text("\n".join(half))
            register(mount, f"name={name} format=files sampler=list list={tmp / name} epochs=3")
        for _ in range(3):
            for name, half in halves.items():
                # A reader that is faster than the next epoch is made is found again in the midst of it.
                clairmount.wait_until(lambda: plan(mount, name)["ahead"] > 0, "its epoch is being pushed")
                read_all(mount, half)
        for name in halves:
            found = plan(mount, name)
            assert (found["state"], found["out_of_order"], found["suspensions"]) == ("finished", 0, 0), found


def test_a_reader_that_has_stopped_makes_room(tmp):
    """What was pushed for it goes, but for what it reads first, when the reader of another plan needs the room."""
    budget = 1 << 20  # 128 files
    names = {"first": [], "second": []}
    for name in names:
        make_images(tmp / "src" / name, 400, side=40)
        for epoch in range(2):
            names[name] += [f"{name}/{path}" for path in predicted(tmp / "src" / name, PLAN, epoch, 0)]
    with clairmount.clairfs(tmp / "src", "--ram", "64M", "--staging", budget) as mount:
        register(mount, f"name=first {PLAN}", "first")
        wait_ahead(mount, 100, "first")
        read_all(mount, names["first"][:40])
        register(mount, f"name=second {PLAN}", "second")
        unread = iter(names["second"])

        def second_has_room():
            read_all(mount, [next(unread)])
            time.sleep(0.1)  # the first one has to stand still for some seconds
            return plan(mount, "second")["ahead"] >= 64

        clairmount.wait_until(second_has_room, "the first one makes room")
        assert plan(mount, "first")["ahead"] < 64
        assert mount.stat("staging.bytes") <= budget
        cached = sum(cached_bytes(mount.path / path) for path in clairmount.tree_files(tmp / "src"))
        assert cached <= 1.5 * budget  # with what was read since the last sentinels
        rest = list(unread)
        before = dataset_reads(mount)
        for i in range(0, 160, 16):
            wait_ahead(mount, 32, "second")
            read_all(mount, rest[i : i + 16])
        assert dataset_reads(mount) - before <= 40  # sentinels, one in fourteen
        for i in range(40, 200, 8):
            wait_ahead(mount, 8, "first")
            read_all(mount, names["first"][i : i + 8])
        for name in names:
            state = plan(mount, name)
            found = (state["state"], state["suspensions"], state["realignments"], state["out_of_order"])
            assert found == ("following", 0, 0, 0), state


def test_sample_larger_than_transit_memory(tmp):
    """Without tiers a file of 64 MiB goes through 32 MiB of memory while others are read."""
    for i in range(3):
        clairmount.make_tree(tmp / "src", {f"big{i}": 64 << 20, f"small{i}": 5000}, seed=i)
    text = "format=files sampler=torch.sequential epochs=2"
    with clairmount.clairfs(tmp / "src", "--ram", "0", "--staging", "256M") as mount:
        register(mount, text)
        for _ in range(2):
            wait_ahead(mount, 6)
            read_all(mount, clairmount.tree_files(tmp / "src"), read_python)
        assert plan(mount)["state"] == "finished", plan(mount)


@pytest.mark.parametrize("io", ["auto", "threads"])
@pytest.mark.parametrize("known", [0, 1000])
def test_hanging_file_holds_up_no_other(dataset, io, known):
    """Chunks that wait behind one that never comes must leave memory to readers, and readers get past it.

    Linux opens a file whose path it knows (`known`: for so many seconds) on the thread that asks, also through io_uring,
    however long the server takes.
    """
    names = order(dataset)
    with clairmount.slowfs(dataset, "--attr-timeout", known) as pfs:
        with clairmount.clairfs(pfs.path, "--ram", "0", "--staging", "64M", "--io", io) as mount:
            pfs.command(f"hang {names[40]} 20")
            register(mount, PLAN, "train")
            wait_ahead(mount, 30)
            done = []
            rest = names[:40] + names[41:]

            def read_rest():
                for name in rest:
                    assert read_raw(mount.path / name) == (dataset / name).read_bytes()
                    done.append(pfs.counters()["hung"])

            thread = threading.Thread(target=read_rest)
            thread.start()
            thread.join(60)
            assert len(done) == len(rest)
            assert done[-1] == 1, "the others were read after the first operation on the file had come back"
            pfs.command("clear")


def test_two_jobs_on_one_plan(images, tmp):
    text = "format=imagefolder sampler=torch.distributed seed=3 epochs=2 batch=8 workers=2"
    with clairmount.clairfs(images, "--ram", "64M", "--staging", "1M") as mount:
        register(mount, text, "train")
        options = {"train": mount.path / "train", "seed": 3, "workers": 2, "epochs": 2}
        with running(start_job(tmp / "log1", **options)) as other:
            log = run_job(tmp / "log2", **options)
            assert other.wait(60) == 0
        log.assert_bytes_of(images)
        assert mount.stat("reads.failed") == 0


def memory_and_descriptors(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    resident = int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")))
    return resident << 10, len(os.listdir(f"/proc/{pid}/fd"))


def test_plans_come_and_go_under_load(dataset, mount):
    """Each of five hundred is registered, changed and, when the next is in force, cancelled; three readers read in several
    orders."""
    texts = [PLAN, PLAN.replace(f"seed={SEED}", "seed=1"), PLAN + " batch=4 workers=2"]
    names = ["default", "other"]
    stop = threading.Event()
    failures = []

    def reader(seed):
        rng = random.Random(seed)
        names = order(dataset, seed)
        try:
            while not stop.is_set():
                begin = rng.randrange(len(names))
                read_all(mount, names[begin : begin + 50], rng.choice([read_raw, read_python]))
        except BaseException as error:  # told in the test's own thread
            failures.append(error)

    readers = [threading.Thread(target=reader, args=(seed,)) for seed in range(3)]
    for thread in readers:
        thread.start()
    try:
        rng = random.Random(0)
        for round_number in range(500):
            name = names[round_number % 2]
            for text in rng.sample(texts, 2):
                register(mount, f"name={name} {text}", "train")
            if round_number > 0:
                cancel(mount, names[(round_number - 1) % 2])
            listed = [p["name"] for p in mount.stats()["plan_list"]]
            assert [one for one in listed if one != "auto"] == [name]  # these readers' orders can be found, too
            if round_number == 100:
                memory, descriptors = memory_and_descriptors(mount.pid)
    finally:
        stop.set()
        for thread in readers:
            thread.join(60)
    assert not any(thread.is_alive() for thread in readers)
    assert not failures, failures[0]
    cancel(mount, name)
    # The daemon is in its own mount while it drops pages, which would make the unmount busy.
    clairmount.wait_until(lambda: mount.stat("staging.bytes") == 0, "the last window is dropped")
    # A plan of 400 samples takes some 20 KB; one of each of 400 rounds that stayed would take 8 MB.
    clairmount.wait_until(lambda: memory_and_descriptors(mount.pid)[1] <= descriptors + 4, "descriptors are closed")
    # A sanitizer keeps what was freed for a while.
    assert clairmount.sanitized() or memory_and_descriptors(mount.pid)[0] <= memory + (6 << 20)
    assert mount.stat("reads.failed") == 0
    read_all(mount, order(dataset))


def dataset_reads(mount):
    """READs for the dataset's files; polling the control files does not count."""
    reads = mount.stats()["reads"]
    return sum(reads[kind] for kind in ("ram", "nvme", "peer", "pfs", "failed"))


@pytest.mark.parametrize("read", [read_raw, read_python])
def test_few_reads_when_pushed_ahead(tmp, read):
    """With enough lead only sentinels ask: at most one READ in 32 samples, and one open of a file at the source."""
    count, epochs, lead = 640, 3, 420
    make_images(tmp / "src/train", count, side=60)
    text = f"format=imagefolder sampler=torch.distributed seed=1 epochs={epochs}"
    with clairmount.slowfs(tmp / "src") as pfs:
        with clairmount.clairfs(pfs.path, "--ram", "64M", "--staging", "6M") as mount:
            pfs.command("reset")
            register(mount, text, "train")
            for epoch in range(epochs):
                names = order(tmp / "src", epoch, text)
                last = epoch + 1 == epochs
                for i in range(0, count, 32):
                    wait_ahead(mount, min(lead, count - i) if last else lead)
                    if i == 0:
                        before = dataset_reads(mount)
                    for name in names[i : i + 32]:
                        assert read(mount.path / name) == (tmp / "src" / name).read_bytes()
                # Sentinels are a 64th but at the start, when the window is short, and at the end of an epoch.
                assert dataset_reads(mount) - before <= count / 32 + 16, epoch
            counters = pfs.counters()
            assert counters["opens_per_file_max"] == 1, counters
        assert pfs.counters()["ops"]["open"] == count


@pytest.mark.skipif(KERNEL < (6, 5), reason="the kernel does not tell which pages are there")
@pytest.mark.parametrize("read", [read_raw, read_python])
def test_pages_that_the_kernel_took_back(dataset, mount, read):
    """The first file that lacks its pages has all others in the window looked at, and pushed again."""
    register(mount, PLAN, "train")
    wait_ahead(mount, 60)
    names = order(dataset)
    for name in names[20:60]:
        fd = os.open(mount.path / name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    read_all(mount, names[:22], read)  # of two at least one was no sentinel
    clairmount.wait_until(lambda: mount.stat("staging.repaired") >= 36, "what was lost is pushed again")
    before = dataset_reads(mount)
    read_all(mount, names[22:60], read)
    assert dataset_reads(mount) - before < 19  # sentinels, one in eight


def test_tiers_fill_after_the_plan_has_ended(dataset):
    """A plan's last epoch keeps nothing; who reads on has a cache as without a plan."""
    with clairmount.slowfs(dataset) as pfs:
        with clairmount.clairfs(pfs.path, "--ram", "64M", "--staging", "512K") as mount:
            register(mount, PLAN.replace("epochs=4", "epochs=1"), "train")
            wait_ahead(mount, 16)
            read_all(mount, order(dataset), read_python, dataset)
            assert plan(mount)["state"] == "finished"
            for _ in range(2):
                clairmount.drop_page_cache(mount.path / "train")
                pfs.command("reset")
                read_all(mount, order(dataset), source=dataset)
            assert pfs.counters()["bytes"] == 0


@pytest.mark.parametrize("share", [0.25, 0.5, 1.2])
def test_bytes_from_the_source(tmp, share):
    """S + (E-1) max(0, S - D) is the least that any cache can read, D being its size."""
    count, epochs = 600, 4
    make_images(tmp / "src/train", count, side=224)
    size = sum((tmp / "src/train" / name).stat().st_size for name in clairmount.tree_files(tmp / "src/train"))
    capacity = int(share * size) // 4096 * 4096
    text = f"format=imagefolder sampler=torch.distributed seed=9 epochs={epochs}"
    with clairmount.slowfs(tmp / "src") as pfs:
        # A small chunk: memory in transit, which also answers, comes on top of the RAM tier (16 MiB at the least).
        with clairmount.clairfs(pfs.path, "--ram", capacity, "--chunk", "256K", "--staging", "5M") as mount:
            pfs.command("reset")
            register(mount, text, "train")
            for epoch in range(epochs):
                names = order(tmp / "src", epoch, text)
                for i in range(0, count, 8):
                    if epoch + 1 < epochs or i + 32 < count:
                        wait_ahead(mount, 20)
                    read_all(mount, names[i : i + 8], source=tmp / "src")
            least = size + (epochs - 1) * max(0, size - capacity)
            assert pfs.counters()["bytes"] <= 1.01 * least, pfs.counters()["bytes"] / least
