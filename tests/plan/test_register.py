"""clairfs.register(loader): real PyTorch scripts on real mounts. The plan that it makes is the order in which the files
are opened, and the script gets the batches that it would have got without."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import clairmount
import pytest
import warm_python
from planning import JOB_SECONDS, make_images, running

pytest.importorskip("torch")
pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
lmdb = pytest.importorskip("lmdb")

JOB = pathlib.Path(__file__).with_name("register_job.py")
MODULE = clairmount.REPO / "mount-helper/python"
# CPython announces each open by an ioctl before 3.14; later ones are seen by their READs alone.
SEES_OPENS = sys.version_info < (3, 14)
HDF5 = ["hdf5", "hdf5_contiguous", "hdf5_path"] if importlib.util.find_spec("h5py") else []


def start(case, root, out, *rank, **env):
    env = {**os.environ, "PYTHONPATH": str(MODULE), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(out), **env}
    python = [sys.executable] if "START_METHOD" in env else warm_python.words()
    words = [*python, JOB, case, root, out, *rank]
    return subprocess.Popen([str(word) for word in words], env=env, stderr=subprocess.PIPE, text=True)


def run(cases, root, out, **env):
    """({case: JSON lines of its epochs}, what the job said on stderr)."""
    with running(start(",".join(cases), root, out, **env)) as process:
        _, said = process.communicate(timeout=JOB_SECONDS)
        assert process.returncode == 0, said
    return {case: lines_of(out, case) for case in cases}, said


def lines_of(out, case, rank=0):
    return [json.loads(line) for line in (out / f"{case}.{rank}").read_text().splitlines()]


def orders(lines, root):
    return [[os.path.relpath(name, root) if "/" in name else name for name in line["order"]] for line in lines]


@pytest.fixture(scope="module")
def dataset(images):
    """The images, and rows in a file beside them."""
    rows = numpy.random.default_rng(0).integers(0, 255, (400, 3072), dtype="u1")
    numpy.save(images / "rows.npy", rows)
    for name, key in (("rows.lmdb", b"%06d"), ("decimal.lmdb", b"%d")):
        with lmdb.open(str(images / name), map_size=1 << 28) as env, env.begin(write=True) as transaction:
            for i, row in enumerate(rows):
                transaction.put(key % i, row.tobytes())
    if HDF5:
        import h5py

        with h5py.File(images / "rows.h5", "w") as file:
            file.create_dataset("data/images", data=rows, chunks=(1, 3072), compression="gzip")
            file.create_dataset("labels", data=numpy.arange(400))
            file.create_dataset("others", data=numpy.arange(30))
        with h5py.File(images / "contiguous.h5", "w") as file:
            file.create_dataset("data/images", data=rows)
            file.create_dataset("labels", data=numpy.arange(400))
    yield images
    (images / "rows.npy").unlink()
    for name in ("rows.h5", "contiguous.h5"):
        (images / name).unlink(missing_ok=True)
    for name in ("rows.lmdb", "decimal.lmdb"):
        shutil.rmtree(images / name)


@pytest.fixture(scope="module")
def mount(dataset):
    with clairmount.clairfs(dataset, "--ram", "64M", "--staging", "64M") as mounted:
        yield mounted


@pytest.fixture(scope="module")
def without(dataset):
    """The lines of every case without clairfs."""
    with clairmount.tempdir() as tmp:
        yield run([*WHOLE, *EPOCH_BY_EPOCH, *OTHERS], dataset / "train", tmp, REGISTER="0")[0]


def assert_followed(lines, share=0.9):
    """The reader went the way of the plan, and was seen to."""
    seen = {}
    for line in lines:
        plan = line["plan"]
        assert plan is not None, line["text"]
        assert (plan["suspensions"], plan["realignments"]) == (0, 0), plan
        assert plan["out_of_order"] == 0 or not SEES_OPENS, plan
        assert plan["state"] in ("following", "finished"), plan
        seen.setdefault(line["text"], []).append((len(line["order"]), plan["in_order"]))
    for text, epochs in seen.items():
        assert epochs[-1][1] >= share * sum(read for read, _ in epochs) or not SEES_OPENS, (text, epochs)


# One plan from the beginning to the end.
WHOLE = ["generator", "generator_persistent", "generator_of_sampler", "sequential", "subset", "weighted_generator",
         "batch_sampler", "paths", "memmap", "distributed", "unshuffled", "fabric", "manual_seed", "manual_seed_persistent",
         "no_workers", "lmdb", "lmdb_decimal", "lmdb_open", "replacement", "no_batches", "concat", "subset_sampler", "weighted", "adapter",
         *HDF5]  # fmt: skip
EPOCH_BY_EPOCH = ["dropout", "weighted_once", "own_sampler", "in_place", "accelerate", "adapter_of_shard", "raw_half"]
# The plan is put right when an epoch begins: how many there are, and what the last one of the first loader says.
OTHERS = {
    "turned": (2, "epochs=0 "),
    "resumed": (1, "first_epoch=5 "),
    "set_epoch_forgotten": (2, "set_epoch=never "),
    "resumed_generator": (2, "state="),
    "random_split": (2, "other_draws=2 "),
    "draws_while_training": (2, "other_draws="),
}
ROWS = ["memmap", "raw_half", "lmdb", "lmdb_decimal", "lmdb_open", *HDF5]


def assert_row_order(lines, source):
    """The plan says what the loader delivered."""
    # Of a plan of one epoch of so few rows nothing may be seen: all are in the page cache, and none is a sentinel yet.
    assert any(line["plan"]["in_order"] > 0 for line in lines), lines
    for line in lines:
        assert line["plan"]["suspensions"] == 0, line["plan"]
        if "sampler=list" in line["text"]:  # which is gone by now
            continue
        words = [clairmount.binary(), "plan", "order", f"{line['text']} root={source}", "--epoch", str(line["epoch"])]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        assert told == line["order"]


@pytest.mark.parametrize("case", [*WHOLE, *EPOCH_BY_EPOCH, *OTHERS])
def test_plan_is_the_order_and_the_order_is_untouched(case, mount, without, tmp):
    ran, said = run([case], mount.path / "train", tmp)
    lines = ran[case]
    assert "clairfs" not in said, said
    if case in ROWS:  # a fault brings the rows around it
        assert_row_order(lines, mount.source)
    else:
        assert_followed(lines)
    assert orders(lines, mount.path / "train") == orders(without[case], mount.source / "train")
    texts = list(dict.fromkeys(line["text"] for line in lines))
    if case in EPOCH_BY_EPOCH:
        assert len(texts) == 3 and "epochs=1 " in texts[-1], texts
    elif case in OTHERS:
        texts = list(dict.fromkeys(line["text"] for line in lines if line["loader"] == 0))
        assert len(texts) == OTHERS[case][0] and OTHERS[case][1] in texts[-1], texts
    else:
        assert len(texts) == 1, texts
    assert mount.stats()["plan_list"] == []  # taken back at the end
    # As numbers of bytes, nobody would know of what libhdf5 reads beside a row.
    assert all(("format=hdf5" in text) == (case in HDF5) for text in texts), texts
    assert all(("keys=decimal" in text) == (case in ("lmdb_decimal", "lmdb_open")) for text in texts), texts
    assert not list(tmp.glob("clairfs-lists-*/*"))


def test_workers_that_are_not_forked(mount, without, tmp):
    """As Python 3.14 starts them. A numpy.memmap comes to them as a copy, for which the script's own process reads it. One
    epoch: each worker imports PyTorch."""
    ran, said = run(["generator", "memmap"], mount.path / "train", tmp, START_METHOD="forkserver", EPOCHS="1")
    assert_followed(ran["generator"])
    assert all("plan" not in line for line in ran["memmap"])
    assert said.count("UserWarning: clairfs: ") == 1 and "rows.npy is a numpy.memmap, which workers that are not forked" in said, said
    for case, lines in ran.items():
        assert orders(lines, mount.path / "train") == orders(without[case][:1], mount.source / "train")


@pytest.mark.parametrize(
    ("case", "registering"),
    [("distributed", "each rank"), ("distributed", "one rank"), ("accelerate", "each rank"), ("accelerate", "one rank"),
     ("adapter_of_shard", "each rank"), ("manual_seed", "each rank")],
)  # fmt: skip
def test_two_ranks(case, registering, mount, tmp):
    """One plan for both where their sampler divides the samples; else one each."""
    env = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    first = start(case, mount.path / "train", tmp, "0", RANK="0", **env)
    second = start(case, mount.path / "train", tmp, "1", RANK="1", REGISTER=str(int(registering == "each rank")), **env)
    with running(first), running(second):
        for process in (first, second):
            assert "clairfs" not in process.communicate(timeout=JOB_SECONDS)[1]
            assert process.returncode == 0
    lines = lines_of(tmp, case, 0)
    shared = case != "manual_seed"
    for line in lines:
        assert line["plan"]["name"] == ("train" if shared else "train.0")
        assert ("world=2 ranks_per_node=2" in line["text"]) == shared
        # Orders of which each has every file of so few are hardly told apart.
        assert line["plan"]["suspensions"] == 0 or not shared
    read = sum(len(line["order"]) for line in lines)
    seen = sum({line["text"]: line["plan"]["in_order"] for line in lines}.values())
    assert seen >= 0.9 * read or not shared or not SEES_OPENS
    others = lines_of(tmp, case, 1)
    assert not shared or not set(lines[0]["order"]) & set(others[0]["order"])
    if registering == "each rank":
        assert {line["plan"]["name"] for line in others} == {"train" if shared else "train.1"}
    assert mount.stats()["plan_list"] == []


def python(code, tmp, **env):
    """What a program says on stdout and stderr."""
    env = {**os.environ, "PYTHONPATH": str(MODULE), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp), **env}
    code = 'import warnings\nwarnings.simplefilter("always", UserWarning)\n' + code
    done = subprocess.run([*warm_python.words(), "-c", code], env=env, capture_output=True, text=True, timeout=JOB_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


MAKE = """
import clairfs, os, torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
def size(path):
    with open(path, "rb", buffering=0) as file:
        file.isatty()  # as a buffered open() asks before 3.14: the mount sees each open, whatever lies in the page cache
        return len(file.read())
def images(root): return ImageFolder(root, loader=size)
def epoch(loader): return [int(size) for batch, _ in loader for size in batch]
"""


def test_on_no_mount_it_warns_once_and_does_nothing(images, tmp):
    said, warned = python(
        MAKE
        + f"""
for _ in range(2):
    torch.manual_seed(0)
    loader = DataLoader(images({str(images / "train")!r}), shuffle=True)
    before = type(loader)
    with clairfs.register(loader) as registration:
        assert registration.mount is None and registration.status() is None and registration.text == ""
        assert type(loader) is before is DataLoader and "_clairfs" not in vars(loader)
        assert len(epoch(loader)) == 600
assert clairfs.status({str(images)!r}) is None
""",
        tmp,
    )
    assert said == "" and warned.count("UserWarning: clairfs: ") == 1, warned
    assert "nothing is planned" in warned


def test_with_a_mount_it_warns_of_what_is_not_on_it(images, mount, tmp):
    _, warned = python(MAKE + f"clairfs.register(DataLoader(images({str(images / 'train')!r})))", tmp)
    assert "/train/class0/" in warned and "is on no clairfs mount; nothing is planned" in warned


def test_block_status_name_and_keys(mount, tmp):
    said, warned = python(
        MAKE
        + f"""
root = {str(mount.path / "train")!r}
train, val = DataLoader(images(root), shuffle=True, generator=torch.Generator()), DataLoader(images(root))
with clairfs.register(train, epochs=7) as a, clairfs.register(val) as b, clairfs.register(DataLoader(images(root)), "other") as c:
    print(a.name, b.name, c.name, "epochs=7 " in a.text, a.status()["state"], len(clairfs.status(root)["plan_list"]))
    epoch(train)
    print(a.status()["passed"], len(train))
print(len(clairfs.status(root)["plan_list"]), type(train) is DataLoader and "_clairfs" not in vars(train))
print(len(epoch(train)), len(clairfs.status(root)["plan_list"]))
""",
        tmp,
    )
    assert warned == "" and said.split() == "train train-val other True waiting 3 600 600 0 True 600 0".split(), said


def test_a_registration_that_has_ended_hears_no_more(mount, tmp):
    """Iterators of persistent workers outlive it, and another loader may have its dataset."""
    said, warned = python(
        MAKE
        + f"""
root = {str(mount.path / "train")!r}
dataset = images(root)
loader = DataLoader(dataset, shuffle=True, num_workers=2, persistent_workers=True)
epoch(loader)
for _ in range(2):
    with clairfs.register(loader) as registration:
        epoch(loader)
        print(registration.status()["epoch"], registration.status()["passed"] > 0)
    epoch(loader)
    print(registration.text == "", len(clairfs.status(root)["plan_list"]))
halves = [torch.utils.data.SubsetRandomSampler(range(first, 600, 2)) for first in (0, 1)]
train, val = (DataLoader(dataset, sampler=half) for half in halves)
clairfs.register(train).cancel()
with clairfs.register(val) as registration:
    epoch(train)
    epoch(val)
    print(registration.status()["in_order"] > 0, len(clairfs.status(root)["plan_list"]))
""",
        tmp,
    )
    assert warned == "" and said == "0 True\nTrue 0\n" * 2 + "True 1\n", said + warned


def test_a_forked_rank_takes_its_plan_back(mount, tmp):
    """As those of notebooks: multiprocessing ends it without atexit."""
    said, warned = python(
        MAKE
        + f"""
import multiprocessing
def rank():
    loader = DataLoader(images({str(mount.path / "train")!r}), sampler=list(range(599, -1, -1)))
    clairfs.register(loader)
    epoch(loader)
    print(len(clairfs.status({str(mount.path)!r})["plan_list"]), flush=True)
process = multiprocessing.get_context("fork").Process(target=rank)
process.start()
process.join()
""",
        tmp,
    )
    assert warned == "" and said == "1\n", said + warned
    assert mount.stats()["plan_list"] == [] and not list(tmp.glob("clairfs-lists-*/*"))


def test_a_folder_that_is_called_as_no_plan_may_be(tmp):
    """auto is the name of plans that were found."""
    make_images(tmp / "src/auto", 12, side=8)
    with clairmount.clairfs(tmp / "src") as mount:
        said, warned = python(MAKE + f"print(clairfs.register(DataLoader(images({str(mount.path / 'auto')!r}))).name)", tmp)
    assert warned == "" and said == "auto-val\n", said + warned


def test_a_refused_plan_is_a_warning_and_training_goes_on(mount, tmp):
    said, warned = python(
        MAKE + f"loader = DataLoader(images({str(mount.path / 'train')!r}))\nclairfs.register(loader, n=5)\nprint(len(epoch(loader)))", tmp
    )
    assert "n=5: the dataset has 600 samples (format=imagefolder); nothing is planned" in warned and said == "600\n"


def test_a_loader_that_cannot_be_watched_is_left_without_a_plan(mount, tmp):
    """Its class cannot be changed. What was planned before that was noticed is taken back."""
    said, warned = python(
        MAKE
        + f"""
class Rigid(DataLoader):
    __class__ = property(lambda self: DataLoader)
loader = Rigid(images({str(mount.path / "train")!r}), shuffle=True, generator=torch.Generator())
registration = clairfs.register(loader)
print(registration.mount, registration.status(), len(clairfs.status({str(mount.path)!r})["plan_list"]), len(epoch(loader)))
""",
        tmp,
    )
    assert "AttributeError" in warned and "nothing is planned" in warned
    assert said == "None None 0 600\n", said
    assert not list(tmp.glob("clairfs-lists-*/*"))


def test_files_that_torchvision_numbers_otherwise_are_listed(mount, tmp):
    """Of a folder with one's own rule of what is an image, and of samples that the script has taken out."""
    said, warned = python(
        MAKE
        + f"""
root = {str(mount.path / "train")!r}
own = ImageFolder(root, loader=size, is_valid_file=lambda path: path.endswith(("0.ppm", "3.ppm")))
less = images(root)
less.samples = less.imgs = less.samples[5:]
turned = images(root)
turned.samples.reverse()
for dataset in own, less, turned:
    with clairfs.register(DataLoader(dataset, shuffle=True, generator=torch.Generator())) as registration:
        epoch(registration._loader)
        plan = registration.status()
        print("format=list" in plan["text"], plan["samples"] == len(dataset), plan["out_of_order"], plan["suspensions"])
""",
        tmp,
    )
    assert warned == "" and said == "True True 0 0\n" * 3, said + warned


@pytest.mark.skipif(not HDF5, reason="needs h5py")
def test_an_hdf5_file_of_which_it_is_not_known_what_is_read(mount, tmp):
    """h5py is imported by the workers only; no dataset has as many rows."""
    said, warned = python(
        MAKE
        + f"""
class Opens(torch.utils.data.Dataset):
    def __init__(self, count): self.path, self.count = "{mount.path}/rows.h5", count
    def __len__(self): return self.count
    def __getitem__(self, i): return i
print(clairfs.register(DataLoader(Opens(400))).mount)
import h5py
print(clairfs.register(DataLoader(Opens(77))).mount)
with clairfs.register(DataLoader(Opens(400))) as registration:
    print("dataset=/data/images,/labels" in registration.text)
""",
        tmp,
    )
    assert "Import h5py before, or give format" in warned and "has no dataset of 77 rows" in warned
    assert said == "None\nNone\nTrue\n", said + warned


def test_paths_may_be_told_and_a_child_of_a_fork_cancels_nothing(mount, tmp):
    said, warned = python(
        MAKE
        + f"""
import sys
class Opaque(torch.utils.data.Dataset):
    def __len__(self): return 90
    def __getitem__(self, i): return size(f"{mount.path}/val/class{{i % 6}}/image{{i:05d}}.ppm"), i
loader = DataLoader(Opaque(), shuffle=True, generator=torch.Generator())
clairfs.register(loader)
registration = clairfs.register(loader, paths=[f"{mount.path}/val/class{{i % 6}}/image{{i:05d}}.ppm" for i in range(90)])
epoch(loader)
if os.fork() == 0: registration.cancel(); sys.exit()
os.wait()
plan = registration.status()
print(registration.name, plan["in_order"], plan["out_of_order"])
""",
        tmp,
    )
    assert warned.count("no paths of files are found") == 1
    assert said.split() == ["val", "90", "0"], said + warned
    assert mount.stats()["plan_list"] == []


def test_records_may_be_told_as_the_module_has_it(mount, tmp):
    (example,) = re.findall(r'register\(loader, format="lmdb",[^)]*\)', (MODULE / "clairfs.py").read_text())
    assert "/mnt/data/train.lmdb" in example and "image-%09d" in example
    example = example.replace("/mnt/data/train.lmdb", f"{mount.path}/rows.lmdb").replace("image-%09d", "%06d")
    said, warned = python(
        MAKE
        + f"""
class Opaque(torch.utils.data.Dataset):
    def __len__(self): return 400
    def __getitem__(self, i): return i
loader = DataLoader(Opaque(), shuffle=True, generator=torch.Generator())
with clairfs.{example} as registration: print("file=rows.lmdb" in registration.text, "keys=%06d" in registration.text)
""",
        tmp,
    )
    assert warned == "" and said == "True True\n", said + warned


def test_a_loader_that_is_made_anew_from_a_registered_one(mount, tmp):
    """Lightning replaces the sampler of the loaders that it is given."""
    said, warned = python(
        MAKE
        + f"""
from torch.utils.data.distributed import DistributedSampler
loader = DataLoader(images({str(mount.path / "train")!r}), shuffle=True)
clairfs.register(loader, "mine", epochs=5)
sampler = DistributedSampler(loader.dataset, num_replicas=1, rank=0, seed=8)
anew = type(loader)(loader.dataset, sampler=sampler)
print(len(epoch(anew)))
(plan,) = clairfs.status(loader.dataset.root)["plan_list"]
print(plan["name"], "epochs=5" in plan["text"], "seed=8" in plan["text"], plan["suspensions"], plan["in_order"] > 0)
print(len(epoch(loader)), len(epoch(loader)))
""",
        tmp,
    )
    assert warned == "" and said == "600\nmine True True 0 True\n600 600\n", said + warned


def test_the_second_of_two_nodes_whose_mounts_know_nothing_of_each_other(mount, tmp):
    said, warned = python(
        MAKE
        + f"""
from torch.utils.data.distributed import DistributedSampler
dataset = images({str(mount.path / "train")!r})
loader = DataLoader(dataset, sampler=DistributedSampler(dataset, num_replicas=4, rank=2, seed=8))
with clairfs.register(loader) as registration:
    for number in range(2):
        loader.sampler.set_epoch(number)
        epoch(loader)
        plan = registration.status()
        print("world=2 ranks_per_node=2" in plan["text"], plan["ranks"][0]["in_order"], plan["ranks"][1]["in_order"])
""",
        tmp,
        RANK="2",
        WORLD_SIZE="4",
        LOCAL_WORLD_SIZE="2",
    )
    assert warned == "", warned
    assert said == "True 150 0\n" * 2, said


def test_an_error_within_a_look_never_ends_an_epoch(mount, tmp):
    said, warned = python(
        MAKE
        + f"""
loader = DataLoader(images({str(mount.path / "train")!r}), shuffle=True)
registration = clairfs.register(loader)
registration._order.epoch_begins = lambda: 1 / 0
print(len(epoch(loader)), len(epoch(loader)))
""",
        tmp,
    )
    assert said == "600 600\n" and warned.count("ZeroDivisionError") == 1


def test_copies_of_a_loader_are_loaders(mount, tmp):
    said, warned = python(
        MAKE
        + f"""
import copy, pickle
loader = DataLoader(images({str(mount.path / "train")!r}), sampler=range(5))
clairfs.register(loader)
for other in copy.copy(loader), pickle.loads(pickle.dumps(loader)):
    print(type(other) is DataLoader, len(other), len(epoch(other)), isinstance(loader, DataLoader))
""",
        tmp,
    )
    assert said == "True 5 5 True\n" * 2 and warned == "", said + warned
