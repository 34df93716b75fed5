"""Plans that find themselves: readers whose order nobody registered, as real libraries make it, and what the mount makes of
them. Every byte is compared in test_torch.py and tests/mount; here it is which plan is found, that its reader follows it,
and that an order which cannot be known never becomes a plan."""

import os
import subprocess
import sys

import pytest
from clairmount import SLOWNESS, binary, logged, sanitized, wait_until
from planning import cancel, plan, register, wait_ahead
from unplanned import LISTED, TORCH, assert_followed, detect, detect_text, found, job_words, run_job, searching, torch_job

pytest.importorskip("numpy")

# CPython announces each open by an ioctl before 3.14. Later ones show what is not in the page cache only.
SEES_OPENS = sys.version_info < (3, 14)
# A search runs when the processor has nothing else to do.
SEARCH_SECONDS = 150 * SLOWNESS
pytestmark = pytest.mark.skipif(not SEES_OPENS, reason="readers of this Python show only what is not in the page cache")


@pytest.fixture
def mount(images):
    with searching(images, "--ram", "64M", "--staging", "64M") as mounted:
        yield mounted


@pytest.mark.parametrize(("seed", "workers"), [(42, 0), (0, 2), (42, 4)])
def test_distributed_sampler(mount, seed, workers):
    torch_job(mount, f"""
sampler = DistributedSampler(dataset(), num_replicas=1, rank=0, seed={seed})
batches = loader(sampler=sampler, num_workers={workers})
def epoch(number):
    sampler.set_epoch(number)
    return batches
run(3, epoch)
""")
    assert_followed(mount, root="train", sampler="torch.distributed", seed=seed, first_epoch=1)
    assert f"seed={seed}" in detect(mount)["plan"]


def test_set_epoch_is_forgotten(mount):
    torch_job(mount, """
batches = loader(sampler=DistributedSampler(dataset(), num_replicas=1, rank=0, seed=7))
run(3, lambda number: batches)
""")
    assert_followed(mount, sampler="torch.distributed", seed=7, set_epoch="never")


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_of_two(mount, rank):
    torch_job(mount, f"""
sampler = DistributedSampler(dataset(), num_replicas=2, rank={rank}, seed=42)
batches = loader(sampler=sampler)
def epoch(number):
    sampler.set_epoch(number)
    return batches
run(3, epoch)
""", env={"WORLD_SIZE": "2", "RANK": str(rank)})
    assert_followed(mount, sampler="torch.distributed", seed=42, world=2, ranks_per_node=1)
    assert detect(mount)["node"] == rank


def test_generator(mount):
    torch_job(mount, """
batches = loader(shuffle=True, generator=torch.Generator().manual_seed(3407))
run(3, lambda number: batches)
""")
    assert_followed(mount, sampler="torch.random", generator="loader", seed=3407)


def test_generator_of_the_sampler(mount):
    torch_job(mount, """
batches = loader(sampler=RandomSampler(dataset(), generator=torch.Generator().manual_seed(1234)))
run(3, lambda number: batches)
""")
    assert_followed(mount, sampler="torch.random", generator="sampler", seed=1234)


def test_the_most_usual_script(mount):
    """A seed, a model, and shuffle=True: the epochs' seeds come out of the default generator after what the model drew."""
    torch_job(mount, """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Linear(40, 10))
batches = loader(shuffle=True)
run(4, lambda number: batches)
""")
    assert_followed(mount, root="train", sampler="torch.random", generator="default", seed=0, first_epoch=1)
    answer = detect(mount)
    assert "generator=default" in answer["plan"] and "draws=1650" in answer["plan"], answer
    assert answer["description"] == "torch.manual_seed(0) after 1650 draws"
    assert answer["description"] in found(mount)["found"]


def test_training_and_validation_in_turn(mount):
    """Both loaders draw from the default generator. What is known of one order outlasts the other: it is followed again from the
    first opens on, and for all epochs. That is seen of opens, of which a reader that waits shows no more."""
    torch_job(mount, f"WAIT = {20 * SLOWNESS}" + """
torch.manual_seed(0)
model = torch.nn.Linear(30, 40)
loaders = {"train": loader(shuffle=True), "val": loader("val")}
def is_followed(folder, epoch):
    plan = auto()
    return plan and plan["plan"]["root"] == folder and (epoch == 0) == (plan["plan"].get("epochs") == 1)
def wait(seconds, folder, epoch):
    deadline = time.monotonic() + seconds
    while not is_followed(folder, epoch) and time.monotonic() < deadline:
        time.sleep(0.02)
for epoch in range(4):
    for folder, batches in loaders.items():
        first = 0 if epoch > 0 else 10 if folder == "train" else 3
        for step, _ in enumerate(batches):  # what was seen until then may by chance not be enough
            if step >= first:
                wait(WAIT if step == first else 1, folder, epoch)
        plan = auto()
        assert is_followed(folder, epoch) and plan["suspensions"] == 0, (epoch, folder, plan)
        if epoch > 0:
            assert plan["plan"]["first_epoch"] == epoch and plan["in_order"] >= 0.9 * plan["samples"], (epoch, plan)
        if epoch > 0 and folder == "train":
            assert [plan["plan"][key] for key in ("seed", "draws", "other_draws")] == [0, 1240, 2], plan
""")


def test_a_job_that_is_started_again(mount):
    """Its first epoch is a plan of that epoch, and the second one tells of all, as the first time."""
    script = """
torch.manual_seed(0)
model = torch.nn.Linear(30, 40)
batches = loader(shuffle=True)
"""
    torch_job(mount, script + "run(3, lambda number: batches)\n")
    assert_followed(mount, generator="default", seed=0, draws=1240, first_epoch=1)
    torch_job(mount, script + """
def is_found(epoch):
    plan = auto()
    return plan and plan["plan"].get("epochs", 0) == (epoch == 0) and plan["state"] == "following" and plan["in_order"] < 400
os.removexattr(mount + "/.clairfs/plan", "user.clairfs.plan")  # the other job's: else the first opens are strays of it
for epoch in range(3):
    for step, _ in enumerate(batches):
        deadline = time.monotonic() + PATIENCE
        while step == 10 and epoch < 2 and not is_found(epoch):
            assert time.monotonic() < deadline, (epoch, auto())
            time.sleep(0.02)
""")
    assert_followed(mount, generator="default", seed=0, draws=1240, first_epoch=1)


def test_a_job_that_is_started_again_after_a_remount(mount):
    """Its order was found from the first job's environment, which the second one has not: it was saved."""
    script = """
batches = loader(shuffle=True, generator=torch.Generator().manual_seed(918273645))
run(3, lambda number: batches)
"""
    torch_job(mount, script, env={"SEED": "918273645"})
    assert_followed(mount, sampler="torch.random", seed=918273645, first_epoch=1)
    mount.remount()
    assert found(mount) is None
    torch_job(mount, script)
    assert_followed(mount, sampler="torch.random", seed=918273645, first_epoch=1)
    mount.umount()
    (saved,) = (mount.catalog_dir / "found").iterdir()
    assert saved.stat().st_mode & 0o777 == 0o600
    saved.write_bytes(saved.read_bytes()[:-1])
    mount.remount()
    cat(mount, "1,60")
    wait_until(lambda: found(mount), "the order is found")
    assert len(logged(mount, "orders that were found before are not known")) == 1


@pytest.mark.skipif(sanitized(), reason="the search ends after 30 core-seconds, of which a sanitizer takes some times as many")
@pytest.mark.alone  # a search of core-seconds, for processors that are idle
def test_a_script_with_a_large_model(mount):
    """Which has drawn more before the first epoch than all streams are searched for."""
    torch_job(mount, """
torch.manual_seed(42)
model = torch.nn.init.uniform_(torch.empty(20_000_000))
batches = loader(shuffle=True)
run(1, lambda number: batches)
""")
    assert_followed(mount, root="train", sampler="torch.random", generator="sampler", epochs=1)


def test_any_shuffle_is_found_with_infer_full(images):
    """The first epoch's seed is a little above a million, all of which are tried as seeds of torch's samplers."""
    torch = pytest.importorskip("torch")
    def epoch_seed(value):
        generator = torch.Generator().manual_seed(value)
        return [int(torch.empty((), dtype=torch.int64).random_(generator=generator)) & 0xFFFFFFFF for _ in range(2)][1]
    value = next(v for v in range(7000001, 8000000) if 10**6 < epoch_seed(v) < 1 << 21)
    script = f"""
torch.manual_seed({value})
batches = loader(shuffle=True)
run(1, lambda number: batches)
"""
    with searching(images, "--ram", "64M", "--staging", "64M", "--infer", "full") as mount:
        torch_job(mount, script)
        assert_followed(mount, sampler="torch.random", seed=epoch_seed(value), epochs=1)
        answer = detect(mount)
        assert "plan" not in answer and answer["description"] == f"a shuffle with seed {epoch_seed(value)}, of this epoch only", answer
        assert "of this epoch only: no line registers it" in detect_text(mount)


def test_validation(mount):
    torch_job(mount, """
batches = loader(shuffle=False)
run(3, lambda number: batches)
""")
    assert_followed(mount, root="train", sampler="torch.sequential")


@pytest.mark.parametrize("library", ["default_rng", "legacy", "python"])
def test_numpy_and_python(mount, library):
    permutation = {
        "default_rng": "rng = numpy.random.default_rng(42)\ndef order(): return rng.permutation(len(paths))",
        "legacy": "numpy.random.seed(42)\ndef order(): return numpy.random.permutation(len(paths))",
        "python": "random.seed(42)\ndef order():\n    o = list(range(len(paths)))\n    random.shuffle(o)\n    return o",
    }[library]
    run_job(mount, LISTED + permutation + "\nrun(3, lambda number: in_order(order()))\n")
    sampler = {"default_rng": "numpy.default_rng", "legacy": "numpy.legacy", "python": "python.random"}[library]
    assert_followed(mount, root="train", sampler=sampler, seed=42)


@pytest.mark.parametrize("keys", ["dali random_shuffle=true", "dali shuffle_after_epoch=true", "nopfs seed=42 batch=8"])
def test_dali_and_nopfs(mount, keys):
    """Readers in the orders of these two, which are not installed: the vectors of their own libraries are in tests/data/golden."""
    tool = [os.environ["SAMPLER_TOOL"], "n=600", "epochs=3", *f"sampler={keys}".split()]
    printed = subprocess.run(tool, check=True, capture_output=True, text=True, timeout=60).stdout
    orders = [[int(sample) for sample in epoch.split()] for epoch in printed.strip().split("\n\n")]
    assert [len(order) for order in orders] == [600] * 3
    run_job(mount, LISTED + f"""
orders = {orders}
run(3, lambda number: in_order(orders[number]))
""")
    sampler, key, _ = keys.replace("=", " ", 1).split(" ", 2)
    before = {"epochs_before": 1} if sampler == "dali" else {}
    assert_followed(mount, root="train", sampler=sampler, first_epoch=1, **before, **{key: 42 if key == "seed" else True})


def test_strays(mount):
    run_job(mount, LISTED + """
rng = numpy.random.default_rng(42)
def strayed(order):
    for step, _ in enumerate(in_order(order)):
        if step % 2:
            read(paths[random.randrange(len(paths))])  # 6 %
        yield
run(3, lambda number: strayed(rng.permutation(len(paths))), wait=15)
""")
    assert_followed(mount, sampler="numpy.default_rng", seed=42)


@pytest.mark.parametrize("order", ["random.sample(range(len(paths)), len(paths))", "numpy.random.default_rng().permutation(len(paths))"])
def test_an_order_that_nobody_can_know_is_never_followed(mount, order):
    run_job(mount, LISTED + f"""
for epoch in range(3):
    for _ in in_order({order}):
        pass
""")
    wait_until(lambda: detect(mount)["orders"] > 100, "orders are compared", SEARCH_SECONDS)
    assert found(mount) is None
    answer = detect(mount)
    assert answer["state"] in ("watching", "unknown") and answer["opens"] > 1000 and "plan" not in answer
    said = subprocess.run([binary(), "plan", "detect", mount.path], capture_output=True, text=True, timeout=60)
    assert said.returncode == 1 and "opens seen" in said.stdout


def test_a_list_that_is_repeated(mount):
    """Shuffled once, by nobody knows what: the second epoch begins as the first, and so the list is the plan."""
    run_job(mount, LISTED + """
random.shuffle(paths)
batches = lambda: in_order(range(len(paths)))
for _ in batches():
    pass
run(2, lambda number: batches(), wait=15)
""")
    assert_followed(mount, root="train", sampler="list")
    assert found(mount)["plan"].get("epochs", 0) == 0
    assert "sampler=list" in detect(mount)["plan"]


def test_a_repeated_list_that_is_too_long_for_a_plan(tmp):
    """Of 13,000 samples: a line has room for 11,400."""
    for folder in range(10):
        (tmp / f"src/train/{folder}").mkdir(parents=True)
        for i in range(1300):
            (tmp / f"src/train/{folder}/{i:04d}").write_bytes(b"1")
    with searching(tmp / "src", "--ram", "64M", "--staging", "16M") as mount:
        run_job(mount, LISTED + """
random.shuffle(paths)
batches = lambda: in_order(range(len(paths)))
for _ in batches():
    pass
run(1, lambda number: batches(), wait=15)
""")
        assert_followed(mount, root="train", sampler="list")
        assert "plan" not in detect(mount)
        assert "too long for a line" in detect_text(mount)

        # Another program repeats another list.
        first = found(mount)["plan"]["list"]
        run_job(mount, LISTED + f"""
random.shuffle(paths)
for _ in in_order(range(len(paths))):
    pass
for step, _ in enumerate(in_order(range(len(paths)))):
    deadline = time.monotonic() + PATIENCE
    while step == 15 and (not (now := auto()) or now["plan"]["list"] == {first!r}):
        assert time.monotonic() < deadline
        time.sleep(0.02)
""")
        assert_followed(mount, root="train", sampler="list")
        assert not os.path.exists(first)
        second = found(mount)["plan"]["list"]
        assert os.path.exists(second)
    assert not os.path.exists(second)


FILES = "find train -type f | LC_ALL=C sort"


def cat(mount, lines):
    subprocess.run(["bash", "-c", f"{FILES} | sed -n {lines}p | xargs -n 5 cat > /dev/null"], cwd=mount.path, check=True, timeout=60)


def test_files_one_after_the_other(mount):
    cat(mount, "1,60")  # of the 100 of a folder
    wait_until(lambda: found(mount) and found(mount).get("ahead", 0) > 0, "the order of a folder is found")
    assert found(mount)["plan"]["root"] == "train/class0"
    cat(mount, "61,160")
    wait_until(lambda: found(mount)["plan"]["root"] == "train" and found(mount).get("ahead", 0) > 400, "that of all is")
    reads = mount.stat("fuse.requests.read")
    cat(mount, "161,600")
    assert mount.stat("fuse.requests.read") - reads < 100
    state = found(mount)
    assert (state["plan"]["sampler"], state["suspensions"]) == ("torch.sequential", 0), state
    with open(mount.path / ".clairfs/plan") as file:
        assert "found after" in file.read()


def test_a_plan_that_is_over_is_no_order_of_readers_that_go_another_way(mount):
    run_job(mount, LISTED + """
rng = numpy.random.default_rng(42)
run(1, lambda number: in_order(rng.permutation(len(paths))))
for epoch in range(2):
    for _ in in_order(random.sample(range(len(paths)), len(paths))):
        pass
""")
    wait_until(lambda: detect(mount)["state"] != "found", "it was looked at what came after the plan")
    assert "plan" not in detect(mount)
    assert "opens seen" in detect_text(mount)


def test_nothing_is_looked_for_with_infer_off(images):
    with searching(images, "--infer", "off") as mount:
        cat(mount, "1,200")
        assert mount.stats()["plan_list"] == []
        assert detect(mount) == {"state": "off", "opens": 0, "orders": 0.0}


def test_a_registered_plan_wins(mount):
    cat(mount, "1,60")
    wait_until(lambda: found(mount), "the order is found")
    register(mount, "format=files shuffle=false", "train")
    assert [p["name"] for p in mount.stats()["plan_list"]] == ["default"]
    cat(mount, "1,200")
    assert found(mount) is None and detect(mount)["opens"] == 0
    # What no plan has is watched.
    subprocess.run(["bash", "-c", "find val -type f | LC_ALL=C sort | head -n 50 | xargs cat > /dev/null"], cwd=mount.path, check=True, timeout=60)
    wait_until(lambda: found(mount), "the other folder's order is found")
    assert found(mount)["plan"]["root"] == "val" and plan(mount)["name"] == "default"


SEED_1 = """
sampler = DistributedSampler(dataset(), num_replicas=1, rank=0, seed=1)
batches = loader(sampler=sampler)
def epoch(number):
    sampler.set_epoch(number)
    return batches
run(3, epoch, wait=20)
"""


def test_what_the_reader_of_a_suspended_plan_follows_is_followed_instead(mount):
    """A wrong seed was registered: the mount says so, and goes on with the right one, until its order is read.

    Seed 43 would be followed as the next epoch of seed 42, which has the same order.
    """
    register(mount, "seed=42 batch=8 workers=2", "train")
    wait_ahead(mount, 300)
    torch_job(mount, SEED_1)
    assert_followed(mount, root="train", sampler="torch.distributed", seed=1, first_epoch=1)
    left = plan(mount)
    assert left["state"] == "suspended" and "matches seed=1 instead of 42" in left["divergence"]["text"], left
    assert "name=auto" in left["followed_instead"] and "seed=1" in left["followed_instead"], left
    assert "followed instead: name=auto root=train" in mount.control("status").split("Troubles")[1]
    assert "followed instead: name=auto root=train" in (mount.path / ".clairfs/plan").read_text()
    torch_job(mount, """
sampler = DistributedSampler(dataset(), num_replicas=1, rank=0, seed=42)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for step, _ in enumerate(loader(sampler=sampler)):
        deadline = time.monotonic() + PATIENCE
        while step == 20 and auto():
            assert time.monotonic() < deadline, auto()
            time.sleep(0.02)
""")
    back = plan(mount)
    assert found(mount) is None and back["state"] == "following" and "followed_instead" not in back, back


def test_who_reads_on_when_a_registered_plan_has_finished_is_followed(mount):
    """The next job on the mount has another order and registers nothing. The plan stays finished, and begins anew when it is
    registered again."""
    text = "seed=42 batch=8 workers=2 epochs=1"
    register(mount, text, "train")
    wait_ahead(mount, 300)
    torch_job(mount, """
for _ in loader(sampler=DistributedSampler(dataset(), num_replicas=1, rank=0, seed=42)):
    pass
""")
    wait_until(lambda: plan(mount)["state"] == "finished", lambda: f"the end of the plan, {plan(mount)}")
    torch_job(mount, SEED_1)
    assert_followed(mount, root="train", sampler="torch.distributed", seed=1, first_epoch=1)
    over = plan(mount)
    assert (over["state"], over["suspensions"]) == ("finished", 0) and "name=auto" in over["followed_instead"], over
    assert "plan_suspended" not in [trouble["kind"] for trouble in mount.stats()["troubles"]]
    register(mount, text, "train")
    assert found(mount) is None and plan(mount)["state"] == "waiting", mount.stats()["plan_list"]


def test_a_plan_that_was_found_beside_the_only_registered_one(mount):
    register(mount, "name=mine format=files shuffle=false", "val")
    cat(mount, "1,60")
    wait_until(lambda: found(mount), "the order is found")
    done = subprocess.run([binary(), "plan", "check", mount.path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "nothing observed yet" in done.stdout, done


def test_what_the_user_cancels_does_not_come_back(mount):
    cat(mount, "1,60")
    wait_until(lambda: found(mount), "the order is found")
    cancel(mount, "auto")
    assert found(mount) is None
    cat(mount, "61,300")
    orders = detect(mount)["orders"]
    cat(mount, "301,600")
    wait_until(lambda: detect(mount)["orders"] > orders, "it was looked again", SEARCH_SECONDS)
    assert found(mount) is None


def test_the_name_is_taken(mount):
    done = subprocess.run([binary(), "plan", mount.path, "name=auto", "seed=1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "plans that were found have it" in done.stderr


def test_a_reader_that_leaves_is_watched_anew(mount):
    run_job(mount, LISTED + """
run(1, lambda number: in_order(list(range(len(paths)))[:200]))
rng = numpy.random.default_rng(42)
batches = in_order(rng.permutation(len(paths)))
deadline = time.monotonic() + PATIENCE
while auto() is None or auto()["plan"]["sampler"] != "numpy.default_rng":
    assert time.monotonic() < deadline, auto()
    next(batches, None)
    time.sleep(0.02)
for _ in batches:
    pass
""")
    assert found(mount)["plan"]["sampler"] == "numpy.default_rng"


def end(process):
    """Of one that reads for ever."""
    went_on = process.poll() is None
    process.kill()
    said = process.communicate()[1].decode()
    assert went_on, said


@pytest.fixture
def beside(mount):
    """Starts another reader of the mount, which goes on until the test ends."""
    started = []

    def start(script):
        started.append(subprocess.Popen(job_words(mount, LISTED + script), stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        if process.returncode is None:
            end(process)


OTHER_READERS = {
    "an order that nobody can know": "while True:\n    for _ in in_order(random.sample(range(len(paths)), len(paths))):\n        time.sleep(0.02)\n",
    "another folder": """
paths = sorted(os.path.join(top, name) for top, _, names in os.walk(mount + "/val") for name in names)
while True:
    for _ in in_order(random.sample(range(len(paths)), len(paths))):
        time.sleep(0.02)
""",
    "short processes": """
import subprocess
while True:
    random.shuffle(paths)
    for start in range(0, len(paths), 60):
        subprocess.run(["xargs", "-n", "5", "cat"], input="\\n".join(paths[start:start + 60]).encode(), stdout=subprocess.DEVNULL)
        time.sleep(0.2)
""",
}


@pytest.mark.parametrize(("other", "workers"), [
    ("an order that nobody can know", 0), ("an order that nobody can know", 2), ("another folder", 0), ("short processes", 2),
])  # fmt: skip
def test_beside_another_reader(mount, beside, other, workers):
    """The one is found from its first epoch on, and what the other reads neither moves nor suspends its plan."""
    beside(OTHER_READERS[other])
    wait_until(lambda: detect(mount)["opens"] > 50, "the other one reads")
    pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    job = beside(TORCH + f"""
sampler = DistributedSampler(dataset(), num_replicas=1, rank=0, seed=42)
batches = loader(sampler=sampler, num_workers={workers})
def epoch(number):
    sampler.set_epoch(number)
    return batches
run(3, epoch)
print("over", flush=True)
time.sleep(1000)  # once it has ended the plan is open to the other one
""")
    assert job.stdout.readline() == b"over\n", job.communicate()
    assert_followed(mount, root="train", sampler="torch.distributed", seed=42, first_epoch=1)


def test_two_jobs_at_once(mount, beside):
    """Of two orders that can be found one is followed: the other is left alone, until its turn comes."""
    begin = "rng = numpy.random.default_rng({})\n"
    first = beside(begin.format(42) + """
def paced(order):  # or a busy machine has no time to plan what comes from the page cache
    for _ in in_order(order):
        time.sleep(0.005)
        yield
run(1000000, lambda number: paced(rng.permutation(len(paths))))
""")
    wait_until(lambda: found(mount) and found(mount)["plan"].get("epochs", 0) == 0, "the first one is followed in all epochs")
    second = beside(begin.format(43) + """
order = rng.permutation(len(paths))
while True:  # the same again, or nobody would know it when its turn comes
    for _ in in_order(order):
        time.sleep(0.02)
    print("read once", flush=True)
""")
    assert second.stdout.readline() == b"read once\n", second.communicate()
    opened = found(mount)["in_order"]
    wait_until(lambda: found(mount)["in_order"] > opened + 1000, "the first one goes on")
    state = found(mount)
    assert (state["plan"]["seed"], state["suspensions"]) == (42, 0), state
    assert state["out_of_order"] <= 0.01 * state["in_order"], state
    end(first)
    other = lambda plan: plan and plan["plan"].get("seed") != 42 and plan.get("in_order", 0) > 300  # noqa: E731
    wait_until(lambda: other(found(mount)), "the other one is followed")
    state = found(mount)
    assert state["plan"]["sampler"] in ("list", "numpy.default_rng") and state["plan"].get("seed", 43) == 43, state
