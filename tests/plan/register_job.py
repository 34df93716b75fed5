#!/usr/bin/python3
"""Training scripts as people write them, with one line more: clairfs.register(loader).

register_job.py CASE,... ROOT OUT [RANK]    ROOT: an ImageFolder; OUT/CASE.RANK: JSON lines, one an epoch of each loader:
{"loader": number, "epoch": number, "order": [path...], "text": plan in force, "plan": it as stats.json shows it}

With REGISTER=0 in the environment the script does without that line. START_METHOD: of its workers, by default fork, which
is no longer Python's from 3.14 on; EPOCHS: 3 by default. RANK: of two, for the cases that have ranks.
"""

import json
import multiprocessing
import os
import pathlib
import pickle
import random
import sys
import warnings

import numpy
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    random_split,
)
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder

warnings.simplefilter("always", UserWarning)
EPOCHS = int(os.environ.get("EPOCHS", "3"))
RANK = int(sys.argv[4]) if len(sys.argv) > 4 else 0
RANKS = 2 if len(sys.argv) > 4 else 1


def read(path):
    with open(path, "rb") as file:
        assert file.read()
    return path


def names(batch):
    return [item[0] if isinstance(item, tuple) else item for item in batch]


def images(root):
    return ImageFolder(root, loader=read)


class Paths(Dataset):
    """Of a tutorial: names in a list, and the folder that they are in."""

    def __init__(self, root):
        self.img_dir = root
        self.labels = {os.path.relpath(path, root): label for path, label in reversed(ImageFolder(root).samples)}
        self.names = list(self.labels)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        return read(os.path.join(self.img_dir, self.names[i])), self.labels[self.names[i]]


class Wrapped(Dataset):
    """Adds transforms to another dataset."""

    def __init__(self, dataset):
        self.inner = dataset

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, i):
        return self.inner[i]


class Rows(Dataset):
    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def __getitem__(self, i):
        assert self.array[i].tobytes()
        return str(i)


class Lmdb(Dataset):
    def __init__(self, root, name="rows.lmdb", key=b"%06d"):
        self.path, self.key, self.env = str(pathlib.Path(root).parent / name), key, None

    def __len__(self):
        return 400

    def __getitem__(self, i):
        import lmdb

        self.env = self.env or lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        with self.env.begin() as transaction:
            assert transaction.get(self.key % i)
        return str(i)


class OpenLmdb(Lmdb):
    """Is open from the beginning on, as ImageFolderLMDB is."""

    def __init__(self, root):
        import lmdb

        super().__init__(root, "decimal.lmdb", b"%d")
        self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False)


class Hdf5(Dataset):
    """Opens its file in the workers."""

    def __init__(self, root):
        import h5py  # noqa: F401

        self.path, self.file = str(pathlib.Path(root).parent / "rows.h5"), None

    def __len__(self):
        return 400

    def __getitem__(self, i):
        import h5py

        self.file = self.file or h5py.File(self.path, "r")
        assert self.file["data/images"][i].tobytes() and self.file["labels"][i] == i
        return str(i)


def open_hdf5(root, name="rows.h5"):
    import h5py

    return Rows(h5py.File(pathlib.Path(root).parent / name, "r")["data/images"])


class ByClass(Sampler):
    """One's own sampler: draws from random and from torch, and remembers how often it was used."""

    def __init__(self, dataset, seed=7):
        self.dataset, self.passes, self.random = dataset, 0, random.Random(seed)

    def __len__(self):
        return len(self.dataset)

    def __iter__(self):
        order = torch.randperm(len(self.dataset)).tolist()
        self.random.shuffle(order)
        random.shuffle(order)
        numpy.random.shuffle(order)
        self.passes += 1
        yield from order[self.passes :] + order[: self.passes]


class InPlace(Sampler):
    """Shuffles what it holds where that lies, and draws from a sampler in a list."""

    def __init__(self, dataset):
        self.size = len(dataset)
        self.buckets = [list(range(i, min(i + 50, self.size))) for i in range(0, self.size, 50)]
        self.order = numpy.arange(len(self.buckets))
        self.samplers = [RandomSampler(range(self.size), generator=generator())]

    def __len__(self):
        return self.size

    def __iter__(self):
        numpy.random.shuffle(self.order)
        for bucket in self.buckets:
            random.shuffle(bucket)
        indices = [i for number in self.order for i in self.buckets[number]]
        turn = next(iter(self.samplers[0]))
        return iter(indices[turn:] + indices[:turn])


class Turned(Sampler):
    """Always the same order, which is nobody else's."""

    def __init__(self, dataset):
        self.size = len(dataset)

    def __len__(self):
        return self.size

    def __iter__(self):
        return iter(range(self.size - 1, -1, -1))


class Seedable(RandomSampler):
    """As accelerate's SeedableRandomSampler."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, generator=torch.Generator(), **kwargs)
        self.epoch, self.initial_seed = 0, torch.random.initial_seed()

    def __iter__(self):
        self.generator.manual_seed(self.epoch + self.initial_seed)
        yield from super().__iter__()
        self.epoch += 1


class Shard(BatchSampler):
    """As accelerate's BatchSamplerShard, for whole rounds of batches."""

    def __init__(self, batch_sampler, num_processes, process_index):
        self.batch_sampler, self.num_processes, self.process_index = batch_sampler, num_processes, process_index
        self.batch_size, self.drop_last = batch_sampler.batch_size, batch_sampler.drop_last

    def __len__(self):
        return len(self.batch_sampler) // self.num_processes

    def __iter__(self):
        for i, batch in enumerate(self.batch_sampler):
            if i % self.num_processes == self.process_index and i // self.num_processes < len(self):
                yield batch


class Fabric:
    """As Lightning Fabric's loader: holds the one that it was given."""

    def __init__(self, loader):
        self._dataloader = loader

    def __iter__(self):
        return iter(self._dataloader)


class Adapter:
    """As accelerate's DataLoaderShard since 0.34: passes for a DataLoader, and iterates another one."""

    def __init__(self, dataset, **options):
        self.base_dataloader = DataLoader(dataset, **options)
        self.iteration = 0

    def __getattr__(self, name):
        if name == "base_dataloader":
            raise AttributeError
        return getattr(self.base_dataloader, name)

    @property
    def __class__(self):
        return self.base_dataloader.__class__

    def __len__(self):
        return len(self.base_dataloader)

    def __iter__(self):
        batches = self.base_dataloader.__iter__()
        now = next(batches)
        for after in batches:
            yield now
            now = after
        yield now
        self.iteration += 1


def loader(dataset, **options):
    return DataLoader(dataset, **{"batch_size": 16, "num_workers": 2, "collate_fn": names, **options})


def shuffled(root, **options):
    return loader(images(root), shuffle=True, **options)


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def distributed(root, **options):
    return DistributedSampler(images(root), num_replicas=RANKS, rank=RANK, **options)


def two_halves(root):
    train, val = random_split(images(root), [len(images(root)) - 100, 100])
    return loader(train, shuffle=True), loader(val)


def weighted(root, **options):
    dataset = images(root)
    return loader(dataset, sampler=WeightedRandomSampler([1 + i % 3 for i in range(len(dataset))], len(dataset), **options))


def with_sampler(dataset, sampler, **options):
    return loader(dataset, sampler=sampler(dataset), **options)


def memmap(root):
    file = pathlib.Path(root).parent / "rows.npy"
    return loader(Rows(numpy.load(file, mmap_mode="r")), shuffle=True, generator=generator())


def raw_half(root):
    array = numpy.memmap(pathlib.Path(root).parent / "rows.npy", dtype="u1", mode="r", offset=128, shape=(400, 3072))
    return loader(Subset(Rows(array), range(0, 400, 2)), shuffle=True)


CASES = {
    "manual_seed": shuffled,
    "manual_seed_persistent": lambda root: shuffled(root, persistent_workers=True),
    "draws_while_training": shuffled,
    "dropout": shuffled,
    "generator": lambda root: shuffled(root, generator=generator(), drop_last=True),
    "generator_persistent": lambda root: shuffled(root, generator=generator(), persistent_workers=True, prefetch_factor=3),
    "generator_of_sampler": lambda root: with_sampler(images(root), lambda d: RandomSampler(d, generator=generator())),
    "replacement": lambda root: with_sampler(images(root), lambda d: RandomSampler(d, replacement=True, num_samples=200)),
    "no_workers": lambda root: shuffled(root, num_workers=0),
    "sequential": lambda root: loader(images(root), drop_last=True),
    "random_split": two_halves,
    "subset": lambda root: loader(Subset(images(root), range(0, 400, 3)), shuffle=True, generator=generator()),
    "subset_sampler": lambda root: with_sampler(images(root), lambda d: SubsetRandomSampler(range(0, len(d), 2))),
    "weighted": weighted,
    "weighted_generator": lambda root: weighted(root, generator=generator()),
    "weighted_once": lambda root: weighted(root, replacement=False),
    "batch_sampler": lambda root: DataLoader(
        images(root),
        batch_sampler=BatchSampler(RandomSampler(images(root), generator=generator()), 24, True),
        num_workers=2,
        collate_fn=names,
    ),
    "own_sampler": lambda root: with_sampler(images(root), ByClass),
    "in_place": lambda root: with_sampler(images(root), InPlace),
    "turned": lambda root: with_sampler(images(root), Turned),
    "lmdb": lambda root: loader(Lmdb(root), shuffle=True, generator=generator()),
    "lmdb_decimal": lambda root: loader(Lmdb(root, "decimal.lmdb", b"%d"), shuffle=True, generator=generator()),
    "lmdb_open": lambda root: loader(OpenLmdb(root), shuffle=True, generator=generator()),
    "no_batches": lambda root: DataLoader(images(root), batch_size=None, shuffle=True, num_workers=2),
    "concat": lambda root: loader(ConcatDataset([images(root), Paths(root)]), shuffle=True),
    "paths": lambda root: loader(Wrapped(Paths(root)), shuffle=True, generator=generator()),
    "hdf5": lambda root: loader(open_hdf5(root), shuffle=True, generator=generator(), num_workers=0),
    "hdf5_contiguous": lambda root: loader(
        open_hdf5(root, "contiguous.h5"), shuffle=True, generator=generator(), num_workers=0
    ),
    "hdf5_path": lambda root: loader(Hdf5(root), shuffle=True, generator=generator()),
    "memmap": memmap,
    "raw_half": raw_half,
    "distributed": lambda root: with_sampler(images(root), lambda d: distributed(root, seed=3)),
    "resumed": lambda root: with_sampler(images(root), lambda d: distributed(root, seed=3)),
    "set_epoch_forgotten": lambda root: with_sampler(images(root), lambda d: distributed(root, seed=3, drop_last=True), drop_last=True),
    "unshuffled": lambda root: with_sampler(images(root), lambda d: distributed(root, shuffle=False)),
    "resumed_generator": lambda root: shuffled(root, generator=generator()),
    "accelerate": lambda root: DataLoader(
        images(root),
        batch_sampler=Shard(BatchSampler(Seedable(images(root)), 16, True), RANKS, RANK),
        num_workers=2,
        collate_fn=names,
    ),
    "adapter": lambda root: Adapter(
        images(root), batch_size=16, shuffle=True, generator=generator(), num_workers=2, collate_fn=names
    ),
    "adapter_of_shard": lambda root: Adapter(
        images(root),
        batch_sampler=Shard(BatchSampler(Seedable(images(root)), 16, True), RANKS, RANK),
        num_workers=2,
        collate_fn=names,
    ),
    "fabric": lambda root: Fabric(shuffled(root, generator=generator())),
}


def main():
    if RANKS > 1:
        torch.distributed.init_process_group("gloo", f"file://{sys.argv[3]}/meeting", rank=RANK, world_size=RANKS)
    for case in sys.argv[1].split(","):
        run(case, sys.argv[2], f"{sys.argv[3]}/{case}.{RANK}")
    if RANKS > 1:
        torch.distributed.barrier()


def run(case, root, out):
    torch.set_num_threads(1)
    torch.manual_seed(RANK if case == "manual_seed" else 0)
    random.seed(0)
    numpy.random.seed(0)
    loaders = CASES[case](root)
    loaders = loaders if isinstance(loaders, tuple) else (loaders,)
    registrations = []
    if os.environ.get("REGISTER") != "0":
        import clairfs

        registrations = [clairfs.register(one) for one in loaders]
        inner = getattr(loaders[0], "_dataloader", loaders[0])
        assert clairfs.register(inner) is registrations[0] or not registrations[0].mount
        assert type(pickle.loads(pickle.dumps(Paths(root)))) is Paths and isinstance(inner, DataLoader)
    torch.nn.Linear(100, 100)  # the model draws from the default generator
    with open(out, "w", encoding="utf-8") as log:
        for epoch in range(EPOCHS):
            for number, one in enumerate(loaders):
                sampler = getattr(one, "sampler", None)
                if hasattr(sampler, "set_epoch") and case != "set_epoch_forgotten":
                    sampler.set_epoch(epoch + 5 if case == "resumed" else epoch)
                if case == "resumed_generator" and epoch == 1:
                    one.generator.manual_seed(99)
                order = []
                for batch in one:
                    order += [batch[0]] if case == "no_batches" else batch
                    if RANKS > 1:  # the exchange of gradients
                        torch.distributed.all_reduce(torch.ones(10))
                    if case == "draws_while_training":
                        torch.rand(3)
                    if case == "dropout":
                        torch.nn.functional.dropout(torch.ones(7 + epoch))
                line = {"loader": number, "epoch": epoch, "order": order}
                if registrations and registrations[number].mount:
                    line.update(text=registrations[number].text, plan=registrations[number].status())
                log.write(json.dumps(line) + "\n")
                log.flush()


if __name__ == "__main__":
    multiprocessing.set_start_method(os.environ.get("START_METHOD", "fork"))
    main()
