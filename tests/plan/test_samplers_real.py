"""The predicted orders against the installed PyTorch, NumPy and Python, on random parameters.

The parameters come from a fixed seed, printed with every failure by pytest's ids; SAMPLER_SEED=... tries others.
"""
import base64
import os
import random
import subprocess

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
from torch.utils.data import (BatchSampler, DataLoader, DistributedSampler, RandomSampler, SubsetRandomSampler,
                              WeightedRandomSampler)

TOOL = os.environ["SAMPLER_TOOL"]
DRAW = random.Random(int(os.environ.get("SAMPLER_SEED", "20240229")))
EPOCHS = 3


def predict(**keys):
    """The epochs that sampler_tool prints for a plan of these keys."""
    arguments = [f"{key}={value}" for key, value in keys.items()]
    if keys["sampler"].startswith("torch."):
        arguments.append("torch=" + torch.__version__)
    run = subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    epochs = [[]]
    for line in run.stdout.splitlines():
        if line:
            epochs[-1].append(int(line))
        else:
            epochs.append([])
    return epochs[:-1]


def some(count, **choices):
    """`count` random combinations, as pytest parameters."""
    names = list(choices)
    rows = [tuple(choices[name]() for name in names) for _ in range(count)]
    return pytest.mark.parametrize(",".join(names), rows)


def size():
    return DRAW.choice([1, 2, 3, DRAW.randrange(4, 100), DRAW.randrange(100, 5000), DRAW.randrange(5000, 200000)])


def torch_seed():
    return DRAW.choice([0, 42, -1, DRAW.randrange(-2**63, 0), DRAW.randrange(2**31), DRAW.randrange(2**64 - 10)])


def flag():
    return DRAW.choice([False, True])


class Range(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return index


def passes(loader):
    """The indices that a loader delivers in each epoch."""
    return [[int(i) for batch in loader for i in np.atleast_1d(np.asarray(batch))] for _ in range(EPOCHS)]


def generator(seed):
    return torch.Generator().manual_seed(seed)


@some(60, n=size, world=lambda: DRAW.randrange(1, 70), seed=torch_seed, shuffle=flag, drop_last=flag, never=flag)
def test_distributed_sampler(n, world, seed, shuffle, drop_last, never):
    rank = DRAW.randrange(world)
    sampler = DistributedSampler(Range(n), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
    real = []
    for epoch in range(EPOCHS):
        if not never:
            sampler.set_epoch(epoch)
        real.append(list(sampler))
    assert real == predict(sampler="torch.distributed", n=n, world=world, rank=rank, seed=seed, shuffle=shuffle,
                           drop_last=drop_last, set_epoch="never" if never else "always", epochs=EPOCHS)


@some(40, n=lambda: min(size(), 20000), seed=torch_seed, batch=lambda: DRAW.randrange(1, 40), drop_last=flag,
      workers=lambda: DRAW.choice([0, 0, 0, 2, 3]), persistent=flag)
def test_loader_with_generator(n, seed, batch, drop_last, workers, persistent):
    if workers:
        n = min(n, 500)
    persistent = persistent and workers > 0
    loader = DataLoader(Range(n), batch_size=batch, shuffle=True, generator=generator(seed), drop_last=drop_last,
                        num_workers=workers, persistent_workers=persistent)
    assert passes(loader) == predict(sampler="torch.random", n=n, seed=seed, batch=batch, drop_last=drop_last,
                                     persistent_workers=persistent, epochs=EPOCHS)


@some(20, n=lambda: min(size(), 5000), seed=torch_seed, replacement=flag, num_samples=lambda: DRAW.randrange(1, 9000))
def test_random_sampler_with_num_samples(n, seed, replacement, num_samples):
    shared = generator(seed)
    data = Range(n)
    sampler = RandomSampler(data, replacement=replacement, num_samples=num_samples, generator=shared)
    keys = dict(sampler="torch.random", n=n, seed=seed, replacement=replacement, num_samples=num_samples,
                epochs=EPOCHS)
    assert passes(DataLoader(data, batch_size=64, sampler=sampler, generator=shared)) == predict(**keys)
    shared.manual_seed(seed)
    assert passes(DataLoader(data, batch_size=64, sampler=sampler)) == predict(**keys, generator="sampler")


@some(10, n=lambda: min(size(), 5000), seed=torch_seed, burnt=lambda: DRAW.randrange(2000))
def test_default_generator_from_seed_and_from_state(n, seed, burnt):
    loader = DataLoader(Range(n), batch_size=16, shuffle=True)
    torch.manual_seed(seed)
    assert passes(loader) == predict(sampler="torch.random", n=n, seed=seed, generator="default", epochs=EPOCHS)
    torch.rand(burnt)
    state = base64.b64encode(bytes(torch.get_rng_state().tolist())).decode()
    assert passes(loader) == predict(sampler="torch.random", n=n, state=state, epochs=EPOCHS)


@some(10, n=lambda: min(size(), 5000), seed=torch_seed, share=flag)
def test_subset_random_sampler(n, seed, share, tmp_path):
    indices = DRAW.sample(range(n), DRAW.randrange(1, n + 1))
    (tmp_path / "indices").write_text("".join(f"{i}\n" for i in indices))
    own = generator(seed)
    loader = DataLoader(Range(n), batch_size=8, sampler=SubsetRandomSampler(indices, generator=own),
                        generator=own if share else None)
    assert passes(loader) == predict(sampler="torch.subset", n=n, seed=seed, list=tmp_path / "indices",
                                     generator="loader" if share else "sampler", epochs=EPOCHS)


@some(20, n=lambda: min(size(), 20000), seed=torch_seed, num_samples=lambda: DRAW.randrange(2, 20000),
      zeros=flag)
def test_weighted_random_sampler(n, seed, num_samples, zeros, tmp_path):
    weights = [DRAW.random() * 10 ** DRAW.uniform(-3, 3) for _ in range(n)]
    if zeros and n > 2:
        weights[0] = weights[-1] = weights[n // 2] = 0.0 if n > 3 else weights[0]
    (tmp_path / "weights").write_text("".join(f"{weight.hex()}\n" for weight in weights))
    sampler = WeightedRandomSampler(weights, num_samples, generator=generator(seed))
    real = [list(sampler) for _ in range(EPOCHS)]
    assert real == predict(sampler="torch.weighted", n=n, seed=seed, num_samples=num_samples,
                           weights=tmp_path / "weights", epochs=EPOCHS)


@some(10, n=size, batch=lambda: DRAW.randrange(1, 40), drop_last=flag)
def test_sequential(n, batch, drop_last):
    real = [i for b in BatchSampler(range(n), batch, drop_last) for i in b]
    assert predict(sampler="torch.sequential", n=n, batch=batch, drop_last=drop_last) == [real]


def epochs_of(n, method, permutation, shuffle):
    """Epochs of one NumPy-like generator."""
    if method == "permutation":
        return [[int(i) for i in permutation(n)] for _ in range(EPOCHS)]
    indices = list(range(n))
    real = []
    for _ in range(EPOCHS):
        shuffle(indices)
        real.append(list(indices))
    return real


@some(25, n=lambda: min(size(), 20000), seed=lambda: DRAW.choice([0, DRAW.randrange(2**32), DRAW.randrange(2**200)]),
      method=lambda: DRAW.choice(["permutation", "shuffle"]))
def test_default_rng(n, seed, method):
    rng = np.random.default_rng(seed)
    keys = dict(sampler="numpy.default_rng", n=n, method=method, epochs=EPOCHS)
    assert epochs_of(n, method, rng.permutation, rng.shuffle) == predict(seed=seed, **keys)
    reseeded = [np.random.default_rng(seed + epoch).permutation(n).tolist() for epoch in range(EPOCHS)]
    assert reseeded == predict(seed=seed, reseed="epoch", **keys)


@some(15, n=lambda: min(size(), 20000), seed=lambda: DRAW.randrange(2**32 - EPOCHS),
      method=lambda: DRAW.choice(["permutation", "shuffle"]))
def test_legacy_numpy(n, seed, method):
    np.random.seed(seed)
    keys = dict(sampler="numpy.legacy", n=n, method=method, epochs=EPOCHS)
    assert epochs_of(n, method, np.random.permutation, np.random.shuffle) == predict(seed=seed, **keys)
    reseeded = [np.random.RandomState(seed + epoch).permutation(n).tolist() for epoch in range(EPOCHS)]
    assert reseeded == predict(seed=seed, reseed="epoch", **keys)


@some(10, n=size, seeds=lambda: [DRAW.randrange(2**32) for _ in range(DRAW.randrange(1, 8))])
def test_numpy_list_seeds(n, seeds):
    text = "[" + ",".join(map(str, seeds)) + "]"
    assert predict(sampler="numpy.default_rng", n=n, seed=text) == [np.random.default_rng(seeds).permutation(n).tolist()]
    assert predict(sampler="numpy.legacy", n=n, seed=text) == [np.random.RandomState(seeds).permutation(n).tolist()]


@some(25, n=lambda: min(size(), 20000),
      seed=lambda: DRAW.choice([0, -5, DRAW.randrange(2**32), DRAW.randrange(2**200), "epoch-3", "ключ", "x" * 200]),
      method=lambda: DRAW.choice(["permutation", "shuffle"]))
def test_python_random(n, seed, method):
    rng = random.Random(seed)

    def permutation(count):
        fresh = list(range(count))
        rng.shuffle(fresh)
        return fresh

    text = f"str:{seed}" if isinstance(seed, str) else seed
    keys = dict(sampler="python.random", n=n, epochs=EPOCHS)
    assert epochs_of(n, method, permutation, rng.shuffle) == predict(seed=text, method=method, **keys)
    rng.seed(seed)
    sampled = [rng.sample(range(n), n) for _ in range(EPOCHS)]
    assert sampled == predict(seed=text, method="sample", **keys)
    if isinstance(seed, int):
        reseeded = []
        for epoch in range(EPOCHS):
            rng.seed(seed + epoch)
            reseeded.append(permutation(n))
        assert reseeded == predict(seed=seed, reseed="epoch", **keys)


def test_going_straight_to_a_late_epoch():
    loader = DataLoader(Range(1000), batch_size=10, shuffle=True, generator=generator(7))
    real = [passes(loader) for _ in range(10)][-1][-1]
    assert [real] == predict(sampler="torch.random", n=1000, seed=7, epoch=10 * EPOCHS - 1)
