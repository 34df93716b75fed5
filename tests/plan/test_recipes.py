"""Every recipe of the manual: a script that loads its data in that way follows the plan that the manual gives it."""

import io
import os
import pathlib
import re
import struct
import subprocess
import sys
import tarfile

import clairmount
import pytest
import warm_python
from clairmount import REPO, binary
from planning import JOB_SECONDS, make_images
from test_mds import write_shards
from test_shards_at_random import crc32c

pytest.importorskip("torch")
pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")

COUNT, ROW = 400, 3072
HERE = pathlib.Path(__file__).parent
# CPython announces each open by an ioctl before 3.14; later ones are seen by their READs alone.
SEES_OPENS = sys.version_info < (3, 14)


def recipes():
    """{what the script does: its plan}."""
    page = (REPO / "mount-helper/man/clairfs.1.in").read_text()
    section = page.split(".SH RECIPES\n")[1].split("\n.SH ")[0] + "\n"
    return {title: plan.replace("\\-", "-").replace("\\(dq", '"') for title, plan in re.findall(r"\.TP\n(.+)\n\.B (.+)\n", section)}


START = """
import multiprocessing, os, sys, numpy, torch
multiprocessing.set_start_method("fork")  # workers know what this script defines, also from Python 3.14 on
sys.path.insert(0, sys.argv[2])
from torch.utils.data import (
    BatchSampler, DataLoader, Dataset, RandomSampler, Sampler, Subset, SubsetRandomSampler, WeightedRandomSampler, random_split)
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
torch.set_num_threads(1)
root, rank, ranks, register = sys.argv[1], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[3:] == ["register"]
if ranks > 1:
    torch.distributed.init_process_group("gloo", os.environ["MEETING"], rank=rank, world_size=ranks)
def read(path):
    with open(path, "rb") as file:
        return len(file.read())
def images(folder="train"):
    return ImageFolder(f"{root}/{folder}", loader=read)
def loader(dataset, **options):
    return DataLoader(dataset, **{"batch_size": 16, "num_workers": 2, **options})
def generator():
    return torch.Generator().manual_seed(42)
def distributed(dataset):
    return loader(dataset, sampler=DistributedSampler(dataset, num_replicas=ranks, rank=rank, seed=42))
def train(batches, epochs=range(3), set_epoch=True, other=lambda: None, skip=0, **told):
    plan = None
    if register:
        import clairfs
        plan = clairfs.register(batches, **told)
    for epoch in epochs:
        if set_epoch and hasattr(batches.sampler, "set_epoch"):
            batches.sampler.set_epoch(epoch)
        this = batches
        if skip and epoch == epochs[0]:
            this = loader(Subset(batches.dataset, list(batches.sampler)[skip:]))
        for batch in this:
            other()
            if ranks > 1:
                torch.distributed.all_reduce(torch.ones(1))
        if register:
            state = plan.status()
            assert state["suspensions"] == state["realignments"] == state["out_of_order"] == 0 < state["in_order"], state
            if ranks > 1:
                torch.distributed.all_reduce(torch.ones(1))  # the next epoch's plan takes the place of this one
class Rows(Dataset):
    def __init__(self, count, row): self.count, self.row = count, row
    def __len__(self): return self.count
    def __getitem__(self, i): return len(self.row(i))
"""
WEIGHTS = "[1 + i % 3 for i in range(len(images()))]"
# As accelerate has it: of as many batches for each process; and since 0.34 a loader that passes for a DataLoader.
PREPARED = """
import clairfs
class Shard(BatchSampler):
    def __init__(self, batches): self.batches, self.num_processes, self.process_index = batches, ranks, rank
    def __len__(self): return len(self.batches) // ranks
    def __iter__(self): return (batch for i, batch in enumerate(self.batches) if i % ranks == self.process_index)
class Adapter:
    def __init__(self, *args, **options): self.base_dataloader = DataLoader(*args, **options)
    def __getattr__(self, name):
        if name == "base_dataloader": raise AttributeError
        return getattr(self.base_dataloader, name)
    __class__ = property(lambda self: self.base_dataloader.__class__)
    def __len__(self): return len(self.base_dataloader)
    def __iter__(self): yield from self.base_dataloader.__iter__()
def prepared():
    return Adapter(images(), batch_sampler=Shard(BatchSampler(RandomSampler(images(), generator=generator()), 10, True)))
"""
PACKED = f"""
def row(i):
    with open(root + "/train.tfrecord", "rb", buffering=0) as file:
        return os.pread(file.fileno(), {ROW}, 12 + i * ({ROW} + 16))
"""
INTERLEAVED = """
import stream_readers
def interleaved(files):  # tensorflow, core/kernels/data/interleave_dataset_op.cc: a record of each of two in turn
    slots, files = [None, None], iter(files)
    while True:
        for i in range(2):
            if slots[i] is None or next(slots[i], None) is None:
                file = next(files, None)
                slots[i] = file if file is None else stream_readers.tfrecord(f"{root}/tfrecords/{file}.tfrecord")
        if slots == [None, None]: break
"""
SCRIPTS = {
    "DistributedSampler(dataset, seed=42) and set_epoch(), two": "train(distributed(images()))",
    "The same, but set_epoch() is not called": "train(distributed(images()), set_epoch=False)",
    "The same, resumed": "train(distributed(images()), epochs=range(3, 5), skip=64)",
    "DataLoader(dataset, shuffle=True, generator=": "train(loader(images(), shuffle=True, generator=generator()))",
    "torch.manual_seed(42), and from there": "torch.manual_seed(42)\ntrain(loader(images(), shuffle=True))",
    "torch.manual_seed(42), then a model": """
torch.manual_seed(42)
model = torch.nn.Linear(100, 100)
train(loader(images(), shuffle=True))
""",
    "torch.manual_seed(42), a model": """
torch.manual_seed(42)
model = torch.nn.Linear(100, 100)
train(loader(images(), shuffle=True), other=lambda: torch.nn.functional.dropout(torch.ones(5)))
""",
    "DataLoader(dataset), such as": "train(loader(images('val')))",
    "Subset and random_split": "train(loader(random_split(images(), [300, 100])[0], shuffle=True))",
    "Subset, with its paths": "train(loader(Subset(images(), range(0, 400, 3)), shuffle=True, generator=generator()))",
    "SubsetRandomSampler": "train(loader(images(), sampler=SubsetRandomSampler(range(0, 400, 3), generator=generator())))",
    "WeightedRandomSampler": f"""
train(loader(images(), sampler=WeightedRandomSampler({WEIGHTS}, 400, generator=generator())))
""",
    "accelerate and Trainer, one process": """
class Seedable(RandomSampler):  # as accelerate has it
    epoch = 0
    def set_epoch(self, epoch): self.epoch = epoch
    def __iter__(self):
        self.generator.manual_seed(42 + self.epoch)
        yield from super().__iter__()
dataset = images()
train(loader(dataset, sampler=Seedable(dataset, generator=torch.Generator())))
""",
    "accelerate, several": PREPARED + "train(prepared())",
    "Trainer, several": PREPARED
    + """
class Planned:
    def on_train_begin(self, args, state, control, **kwargs):
        clairfs.register(kwargs["train_dataloader"])
class Trainer:
    def get_train_dataloader(self): return prepared()
    def train(self):
        loader = self.get_train_dataloader()
        Planned().on_train_begin(None, None, None, model=None, train_dataloader=loader)
        train(loader)
trainer = Trainer()
trainer.get_train_dataloader()  # another one than train() makes
trainer.train()
""",
    "A sampler or batch sampler": """
class Turned(Sampler):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __iter__(self): return iter(torch.randperm(self.n).tolist()[::-1])
train(loader(images(), sampler=Turned(400)))
""",
    "Hugging Face datasets": """
class Image:
    def __init__(self, decode): pass
class Table(Dataset):  # datasets/arrow_dataset.py: rows by number, columns by name; of images that are not decoded the paths
    def __init__(self): self.table = (images().samples,)
    def __len__(self): return len(self.table[0])
    def cast_column(self, column, feature): return self
    def __getitem__(self, key):
        if key == "image": return [{"bytes": None, "path": path} for path, _ in self.table[0]]
        return read(self.table[0][key][0])
dataset = Table()
paths = [image["path"] for image in dataset.cast_column("image", Image(decode=False))["image"]]
train(loader(dataset, shuffle=True), paths=paths)
""",
    "An LMDB": """
import lmdb
def row(i):
    global env
    if "env" not in globals(): env = lmdb.open(root + "/train.lmdb", readonly=True, lock=False, readahead=False)
    with env.begin() as transaction: return transaction.get(b"image-%09d" % i)
train(distributed(Rows(400, row)))
""",
    "Rows of numpy.load": """
array = numpy.load(root + "/train.npy", mmap_mode="r")
train(distributed(Rows(400, lambda i: array[i].tobytes())))
""",
    "Rows of an HDF5": """
import h5py
def row(i):
    with h5py.File(root + "/train.h5", "r") as file: return file["images"][i].tobytes()
train(distributed(Rows(400, row)))
""",
    "StreamingDataset(local": """
import json, struct
counts = [shard["samples"] for shard in json.load(open(root + "/mds/index.json"))["shards"]]
places = [(shard, i) for shard, count in enumerate(counts) for i in range(count)]
def row(i):  # streaming/base/format/mds/reader.py
    shard, number = places[i]
    with open(f"{root}/mds/shard.{shard:05}.mds", "rb", 0) as file:
        file.seek((1 + number) * 4)
        begin, end = struct.unpack("<II", file.read(8))
        file.seek(begin)
        return file.read(end - begin)
class Py1s(Sampler):  # streaming/base/shuffle/py1s.py
    def __init__(self): self.epoch = 0
    def __len__(self): return len(places)
    def __iter__(self):
        ends = numpy.cumsum(counts)
        spans = [(end - count, end) for count, end in zip(counts, ends.tolist())]
        numpy.random.default_rng(42).shuffle(spans)
        rng = numpy.random.default_rng(42 + self.epoch)
        rng.shuffle(spans)
        for begin, end in spans:
            samples = numpy.arange(begin, end)
            rng.shuffle(samples)
            yield from samples.tolist()
        self.epoch += 1
train(loader(Rows(len(places), row), sampler=Py1s()))
""",
    "Records of TFRecord": PACKED + "train(distributed(Rows(400, row)))",
    "Records of other": PACKED + "train(distributed(Rows(400, row)))",
    "WebDataset(urls": """
class Shards(torch.utils.data.IterableDataset):
    def __iter__(self):
        import stream_readers, glob
        info = torch.utils.data.get_worker_info()
        for shard in stream_readers.shuffled(sorted(glob.glob(root + "/shards/*.tar"))[info.id::info.num_workers], 42, 4):
            for sample in stream_readers.tar(shard): yield len(sample)
for epoch in range(3):
    assert sum(len(batch) for batch in DataLoader(Shards(), batch_size=16, num_workers=2)) == 40
""",
    "TFRecordDataset in interleave": INTERLEAVED + """
for files in ((1, 4, 0, 6, 5, 2, 3, 7), (3, 2, 4, 5, 1, 7, 6, 0), (0, 1, 3, 5, 2, 7, 6, 4)):  # as TensorFlow shuffles
    interleaved(files)
""",
    "TFRecordDataset(files)": """
import stream_readers
for epoch in range(3):
    for file in range(8):
        for record in stream_readers.tfrecord(f"{root}/tfrecords/{file}.tfrecord"): pass
""",
    "TFRecordDataset(files, num": INTERLEAVED + "for epoch in range(3): interleaved(range(8))",
    "DALI's fn.readers.tfrecord(..., random_shuffle=True, dont_use_mmap=True), two": PACKED + """
for epoch in range(3):  # dali/operators/reader/loader/loader.cc (start_index)
    shard = (rank + epoch) % 2
    for n in range(200):
        if n % 16 == 0: torch.distributed.all_reduce(torch.ones(1))
        row(400 * shard // 2 + n)
""",
    "Any shards": """
for epoch in range(3):
    for shard in (5, 2, 7, 0, 1, 3, 6, 4): read(f"{root}/shards/{shard}.tar")
""",
}
# What the FILE of a recipe holds.
LISTS = {
    "Subset, with": lambda root: [os.path.relpath(path, root / "train") for path in image_paths(root)[::3]],
    "SubsetRandomSampler": lambda _: range(0, 400, 3),
    "WeightedRandomSampler": lambda _: [1 + i % 3 for i in range(400)],
    "Records of other": lambda _: [f"{12 + i * (ROW + 16)} {ROW} train.tfrecord" for i in range(COUNT)],
    "Any shards": lambda _: [f"shards/{shard}.tar" for shard in (5, 2, 7, 0, 1, 3, 6, 4)],
}
# A fault brings what is near, too; who opens an HDF5 file reads its header, and who reads a sample of a shard its table.
MAPPED = ("Rows of numpy", "An LMDB", "Rows of an HDF5", "StreamingDataset(local")


def image_paths(root):
    return [str(path) for path in sorted((root / "train").glob("*/*"))]


@pytest.fixture(scope="module")
def dataset():
    rng = numpy.random.default_rng(0)
    rows = rng.integers(0, 255, (COUNT, ROW), dtype="u1")
    with clairmount.tempdir() as tmp:
        make_images(tmp / "train", COUNT, side=16)
        make_images(tmp / "val", 60, side=16)
        numpy.save(tmp / "train.npy", rows)
        head = struct.pack("<Q", ROW)
        head += struct.pack("<I", crc32c(head))
        records = [head + row.tobytes() + b"\0" * 4 for row in rows]
        (tmp / "train.tfrecord").write_bytes(b"".join(records))
        (tmp / "shards").mkdir()
        (tmp / "tfrecords").mkdir()
        for shard in range(8):
            samples = [rng.bytes(20_000) for _ in range(5)]
            with tarfile.open(tmp / f"shards/{shard}.tar", "w") as archive:
                for i, sample in enumerate(samples):
                    member = tarfile.TarInfo(f"{i}.jpg")
                    member.size = len(sample)
                    archive.addfile(member, io.BytesIO(sample))
            records = [struct.pack("<QI", len(sample), 0) + sample + b"\0" * 4 for sample in samples]
            (tmp / f"tfrecords/{shard}.tfrecord").write_bytes(b"".join(records))
        (tmp / "mds").mkdir()
        write_shards(tmp / "mds", 20_000, [150, 37, 110, 1, 86])
        write_h5(tmp / "train.h5", rows)
        write_lmdb(tmp / "train.lmdb", rows)
        yield tmp


def write_h5(path, rows):
    try:
        import h5py
    except ImportError:
        return
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=rows)
        assert file["images"].chunks is None  # the hardest to plan: libhdf5 reads 64 KiB for a row of 3


def write_lmdb(path, rows):
    try:
        import lmdb
    except ImportError:
        return
    with lmdb.open(str(path), map_size=1 << 28) as env, env.begin(write=True) as transaction:
        for i, row in enumerate(rows):
            transaction.put(b"image-%09d" % i, row.tobytes())


def test_every_recipe_has_a_script():
    titles = list(recipes())
    assert len(titles) == len(SCRIPTS)
    assert all(title.startswith(start) for title, start in zip(titles, SCRIPTS)), titles


@pytest.mark.parametrize("script", SCRIPTS)
def test_recipe(script, dataset, tmp):
    for name in ("lmdb", "h5py"):
        if f"import {name}" in SCRIPTS[script]:
            pytest.importorskip(name)
    (text,) = [plan for title, plan in recipes().items() if title.startswith(script)]
    registers = text.startswith("clairfs.register(")
    if "paths=" in text:  # the script tells them as the manual does
        assert text.removeprefix("clairfs.register(loader, paths=").removesuffix(")") in SCRIPTS[script]
    if "FILE" in text:
        (lines,) = [make(dataset) for start, make in LISTS.items() if script.startswith(start)]
        (tmp / "list").write_text("".join(f"{line}\n" for line in lines))
        text = text.replace("FILE", str(tmp / "list"))
    ranks = 2 if "two ranks" in script or "The same" in script or "several" in script or "two" in script else 1
    with clairmount.clairfs(dataset, "--ram", "64M", "--staging", "64M") as mount:
        if not registers:
            subprocess.run([binary(), "plan", mount.path, *text.split()], check=True, capture_output=True, timeout=60)
        words = [*warm_python.words(), "-c", START + SCRIPTS[script], mount.path, REPO / "mount-helper/python"]
        env = {**os.environ, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "TMPDIR": str(tmp),
               "MEETING": f"file://{tmp}/meeting", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(HERE)}  # fmt: skip
        jobs = [subprocess.Popen([*words, *(["register"] if registers else [])], env={**env, "RANK": str(rank)},
                                 stderr=subprocess.PIPE, text=True) for rank in range(ranks)]  # fmt: skip
        try:
            for job in jobs:
                _, said = job.communicate(timeout=JOB_SECONDS)
                assert job.returncode == 0 and "UserWarning: clairfs" not in said, said
        finally:
            for job in jobs:
                job.kill()
        if registers:
            return
        (plan,) = mount.stats()["plan_list"]
        assert (plan["suspensions"], plan["realignments"]) == (0, 0), plan
        assert plan["in_order"] > 0 and plan["state"] == "following", plan
        assert plan["out_of_order"] == 0 or script.startswith(MAPPED) or not SEES_OPENS, plan
