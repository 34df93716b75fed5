"""clairfs.register(sampler, path=...), loaders that hide their dataset, and samplers that are looked at in a copy."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytest.importorskip("lmdb")

from test_register import MAKE, dataset, mount, python  # noqa: E402, F401


def test_a_sampler_with_the_folder_that_it_is_of(mount, tmp):
    """For loops and loaders that are no DataLoader. It may be registered again, and says what it would have said."""
    said, warned = python(
        MAKE
        + f"""
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler
root = {str(mount.path / "train")!r}
paths = [path for path, _ in images(root).samples]
class Own(Sampler):
    def __init__(self): pass
    def __iter__(self): return iter(torch.randperm(600).tolist())
def own(): return RandomSampler(range(600), generator=torch.Generator().manual_seed(5))
def distributed(): return DistributedSampler(range(600), 1, 0, seed=3)
def epochs(sampler, registration=None):
    orders, plans = [], []
    for number in range(3):
        if hasattr(sampler, "set_epoch"): sampler.set_epoch(number)
        orders.append([])
        for i in sampler:
            orders[-1] += i if isinstance(i, list) else [i]
            for name in orders[-1][-len(i):] if isinstance(i, list) else [i]:
                if registration: size(paths[name])
        if registration: plans.append(registration.status())
    return orders, plans
makers = [distributed, own, lambda: RandomSampler(range(600)), lambda: BatchSampler(own(), 8, False), lambda: SequentialSampler(paths), Own]
for make in makers:
    torch.manual_seed(1)
    expected, _ = epochs(make())
    torch.manual_seed(1)
    sampler = make()
    clairfs.register(sampler, path=root).cancel()
    assert type(sampler) is type(make())
    with clairfs.register(sampler, path=root) as registration:
        orders, plans = epochs(sampler, registration)
    assert orders == expected, make
    texts = list(dict.fromkeys(plan["text"] for plan in plans))
    for plan in plans:
        assert (plan["suspensions"], plan["out_of_order"]) == (0, 0) and plan["in_order"] > 0, plan
        assert "root=train" in plan["text"] and "never" not in plan["text"], plan
    print(len(texts), "batch=8" in texts[0])
""",
        tmp,
    )
    assert warned == "" and said == "1 False\n1 False\n3 False\n1 True\n1 False\n3 False\n", said + warned
    assert mount.stats()["plan_list"] == []


def test_a_loader_that_hides_its_dataset_with_the_folder(mount, tmp):
    said, warned = python(
        MAKE
        + f"""
root = {str(mount.path / "val")!r}
files = images(root)
class Hides(torch.utils.data.Dataset):
    def __len__(self): return 90
    def __getitem__(self, i): return files[i]
part = torch.utils.data.Subset(Hides(), range(0, 90, 2))
for dataset in Hides(), part:
    loader = DataLoader(dataset, shuffle=True, generator=torch.Generator())
    with clairfs.register(loader, path=root) as registration:
        epoch(loader)
        plan = registration.status()
        print(plan["in_order"], plan["out_of_order"], "root=val" in plan["text"])
print(clairfs.register(DataLoader(part.dataset, batch_size=3), path={str(mount.path / "train")!r}).text == "")
""",
        tmp,
    )
    assert said == "90 0 True\n45 0 True\nTrue\n", said + warned
    assert warned.count("UserWarning: clairfs: ") == 1 and "the dataset has 600 samples" in warned


def test_a_path_or_a_sampler_alone_is_a_warning_that_says_what_to_give(mount, tmp):
    said, warned = python(
        MAKE
        + f"""
import pathlib
root = {str(mount.path / "train")!r}
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(())
for one in root, pathlib.Path(root), torch.utils.data.RandomSampler(range(600)), [3, 4], DataLoader(Stream()):
    print(clairfs.register(one).mount)
print(clairfs.register(torch.utils.data.RandomSampler(range(600)), path="/proc").mount)
""",
        tmp,
    )
    assert said == "None\n" * 6 and warned.count("UserWarning: clairfs: ") == 5, said + warned
    assert f"{mount.path / 'train'}: a path does not say in which order it is read; give register(sampler, path=...)" in warned
    assert "RandomSampler does not say what is read; give register(sampler, path=...)" in warned
    assert "its shards may have a plan, see RECIPES in clairfs(1); nothing is planned" in warned
    assert "list is not a DataLoader and holds none" in warned and "/proc is on no clairfs mount" in warned


def test_a_sampler_of_the_default_generator_beside_a_generator_of_the_loader(mount, tmp):
    """The latter is for the workers' seeds alone. Each epoch is planned, also when nothing was drawn since the last one."""
    said, warned = python(
        MAKE
        + f"""
dataset = images({str(mount.path / "train")!r})
loader = DataLoader(dataset, sampler=torch.utils.data.RandomSampler(dataset), generator=torch.Generator())
with clairfs.register(loader) as registration:
    texts = []
    for _ in range(3):
        epoch(loader)
        plan = registration.status()
        texts.append(plan["text"])
        print(plan["in_order"] > 0, plan["out_of_order"], len(set(texts)))
""",
        tmp,
    )
    assert warned == "" and said == "True 0 1\nTrue 0 2\nTrue 0 3\n", said + warned


def test_samplers_that_cannot_be_looked_at_without_a_trace(mount, tmp):
    """One that goes on where it stopped, and one that asks other ranks."""
    said, warned = python(
        MAKE
        + f"""
dataset = images({str(mount.path / "train")!r})
class GoesOn(torch.utils.data.Sampler):
    def __init__(self): self.places = iter(range(600))
    def __iter__(self): return (next(self.places) for _ in range(200))
class Asks(torch.utils.data.Sampler):
    def __init__(self): pass
    def __iter__(self):
        torch.distributed.all_reduce(torch.ones(1))
        return iter(range(3))
torch.distributed.init_process_group("gloo", "file://{tmp}/meeting", rank=0, world_size=1)
for name, sampler in ("goes_on", GoesOn()), ("asks", Asks()):
    loader = DataLoader(dataset, sampler=sampler, batch_size=10, collate_fn=lambda batch: ([1], batch))
    registration = clairfs.register(loader, name)
    got = [path for _, batch in loader for path in batch]
    print(len(got), got[0][0] == len(open(dataset.samples[0][0], "rb").read()), registration.text == "")
""",
        tmp,
    )
    assert said == "200 True True\n3 True True\n", said + warned
    assert "goes_on: the sampler holds an iterator" in warned and "asks: the sampler speaks with other ranks" in warned
