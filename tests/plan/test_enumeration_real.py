"""Numbering of samples against the real torchvision on random trees with awkward names and links."""

import errno
import os
import random
import re
import subprocess
import unittest.mock

import numpy
import pytest
from clairmount import binary
from record_plans import write_megatron

folder = pytest.importorskip("torchvision.datasets.folder")
distributed = pytest.importorskip("torch.utils.data.distributed")

STEMS = [b"a", b"b", b"A", b"a-b", b"a.b", b"a b", b"a\nb", b"01", b"1", b"10", b"9", b"_", b"~", b"\xc3\xa9", b"\xe9",
         b"\xff", b"\x80", b"\xc3", b"\xe4\xb8\xad", b"\xed\xa0\x80", b"\xef\xbc\xa1", b"\xee\x80\x80",
         b"\xf0\x9f\x98\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"$x", b"'", b'"', b"\\", b"\x01", b"sub", b"sub-1"]
SUFFIXES = [b".jpg", b".JPG", b".jpeg", b".Png", b".ppm", b".bmp", b".pgm", b".tif", b".TIFF", b".webp", b".gif", b".txt",
            b"", b"jpg", b".jpg.bak", b".jp\xc4\xb1g", b".t\xc4\xb0f", b".\xe2\x84\xaapg"]


def add_link(where, target, rng):
    path = where + b"/" + rng.choice(STEMS) + rng.choice(SUFFIXES)
    if not os.path.lexists(path):
        os.symlink(rng.choice([target, os.path.relpath(target, where)]), path)


def make_tree(root, rng):
    """Folders up to five deep with files, and links to files, to folders without links, to nothing; often a loop."""
    folders = [root]
    files = []
    for _ in range(rng.randint(1, 14)):
        path = rng.choice(folders) + b"/" + rng.choice(STEMS) + rng.choice([b"", b"", b".d", b".jpg"])
        if path.count(b"/") - root.count(b"/") <= 5 and not os.path.lexists(path):
            os.mkdir(path)
            folders.append(path)
    for _ in range(rng.randint(5, 60)):
        path = rng.choice(folders) + b"/" + rng.choice(STEMS) + rng.choice(SUFFIXES)
        if not os.path.lexists(path):
            with open(path, "wb"):
                files.append(path)
    for _ in range(rng.randint(0, 8)):
        add_link(rng.choice(folders), rng.choice([*files, root + b"/nowhere", b"/dev/null"]), rng)
    # Each link to a folder adds a copy of it, but two loops would be followed 2^40 times.
    leaves = rng.sample(folders[1:], min(2, len(folders) - 1))
    for _ in range(rng.randint(0, 4)):
        outside = [f for f in folders if not any((f + b"/").startswith(leaf + b"/") for leaf in leaves)]
        targets = [leaf for leaf in leaves if not any((f + b"/").startswith(leaf + b"/") for f in outside)]
        if outside and targets:
            add_link(rng.choice(outside), rng.choice(targets), rng)
    if len(folders) > 1 and rng.random() < 0.3:
        add_link(folders[-1], folders[-1], rng)
    return files


def order_of(plan, epoch=0, rank=0):
    words = [binary(), "plan", "order", plan, "--epoch", str(epoch), "--rank", str(rank), "--paths", "-0"]
    done = subprocess.run(words, capture_output=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.split(b"\0")[:-1] if done.returncode == 0 else None


# The kernel gives up after 40 links of a path, but before that if anybody mounts something meanwhile: it begins again and
# goes on counting. Then one of both sees less than the other.
TRIES = 5

WALK = os.walk


def walk(top, **options):
    """os.walk() leaves out what it cannot list: here that is the depth at which the kernel gives up, nothing else."""

    def check(error):
        assert error.errno in (errno.ELOOP, errno.ENAMETOOLONG), error

    return WALK(top, onerror=check, **options)


@unittest.mock.patch.object(folder.os, "walk", walk)
def real(root, allow_empty):
    """Paths as torchvision numbers them, or None where it raises."""
    try:
        classes, numbers = folder.find_classes(os.fsdecode(root))
        samples = []
        for name in classes:
            try:
                samples += folder.make_dataset(os.fsdecode(root), {name: numbers[name]}, folder.IMG_EXTENSIONS)
            except FileNotFoundError:
                if not allow_empty:
                    return None
    except OSError:
        return None
    return [os.fsencode(os.path.relpath(path, os.fsdecode(root))) for path, _ in samples] or None


@pytest.mark.parametrize("seed", range(150))
def test_imagefolder(tmp_path, seed):
    root = os.fsencode(tmp_path / "data")
    os.mkdir(root)
    make_tree(root, random.Random(seed))
    for allow_empty in (False, True):
        plan = f"shuffle=false format=imagefolder allow_empty={allow_empty} root={os.fsdecode(root)}"
        for _ in range(TRIES):
            expected, found = real(root, allow_empty), order_of(plan)
            if found == expected:
                break
        assert found == expected


def natural_key(path):
    """timm/utils/misc.py"""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.lower())]


def timm(root):
    """timm/data/readers/reader_image_folder.py (find_images_and_targets), where folders are listed as a mount lists them."""

    def is_folder(entry):
        try:
            return entry.is_dir()
        except OSError:
            return False

    def walked(folder):  # os.walk(topdown=False, followlinks=True)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in filter(is_folder, entries):
            yield from walked(entry.path)
        yield from (entry.path for entry in entries if not is_folder(entry))

    images = [path for path in walked(root) if os.path.splitext(path)[1].lower() in (b".png", b".jpg", b".jpeg")]
    images.sort(key=lambda path: natural_key(os.fsdecode(path)))
    return [os.path.relpath(path, root) for path in images] or None


@pytest.mark.parametrize("seed", range(60))
def test_timm_folder(tmp_path, monkeypatch, seed):
    stems = [stem for stem in STEMS if stem.isascii()] + [b"x1", b"X1", b"x01", b"x10", b"X9", b"007", b"a1b", b"A1B"]
    monkeypatch.setitem(globals(), "STEMS", stems)
    monkeypatch.setitem(globals(), "SUFFIXES", [suffix for suffix in SUFFIXES if suffix.isascii()])
    root = os.fsencode(tmp_path / "data")
    os.mkdir(root)
    make_tree(root, random.Random(seed))
    for _ in range(TRIES):
        expected, found = timm(root), order_of(f"shuffle=false format=timm root={os.fsdecode(root)}")
        if found == expected:
            break
    assert found == expected


def test_most_trees_are_numbered(tmp_path):
    """Guards the test above against trees that torchvision never takes."""
    taken = 0
    for seed in range(30):
        root = os.fsencode(tmp_path / str(seed))
        os.mkdir(root)
        make_tree(root, random.Random(seed))
        taken += real(root, True) is not None
    assert taken >= 15


@pytest.mark.parametrize("seed", range(20))
def test_files(tmp_path, seed):
    root = os.fsencode(tmp_path / "data")
    os.mkdir(root)
    files = make_tree(root, random.Random(seed))
    expected = sorted(os.path.relpath(path, root) for path in files)
    assert order_of(f"shuffle=false format=files root={os.fsdecode(root)}") == (expected or None)


def test_distributed_sampler_over_an_imagefolder(tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        for number in range(11):
            (tmp_path / name / f"{number}.jpg").touch()
    dataset = [os.fsencode(f"{name}/{file}") for name in ("x", "y")
               for file in sorted(os.listdir(tmp_path / name))]
    for rank in range(4):
        sampler = distributed.DistributedSampler(dataset, num_replicas=4, rank=rank, seed=42)
        sampler.set_epoch(3)
        assert order_of(f"seed=42 world=4 root={tmp_path}", 3, rank) == [dataset[i] for i in sampler]


@pytest.mark.parametrize("dtype", ["float32", "uint8", "U5", "complex128", "datetime64[ns]"])
def test_npy_rows(tmp_path, dtype):
    array = numpy.zeros((7, 3, 2), dtype=dtype)
    numpy.save(tmp_path / "x.npy", array)
    numpy.save(tmp_path / "fortran.npy", numpy.asfortranarray(array))
    numpy.save(tmp_path / "objects.npy", array.astype(object))
    assert order_of(f"shuffle=false file=x.npy root={tmp_path}") == [b"x.npy[%d]" % i for i in range(7)]
    assert order_of(f"shuffle=false file=fortran.npy root={tmp_path}") is None
    assert order_of(f"shuffle=false file=objects.npy root={tmp_path}") is None


@pytest.mark.parametrize("dtype", ["uint16", "int32", "uint8"])
def test_megatron_sequences(tmp_path, dtype):
    sequences = [numpy.arange(i % 7 * 50, dtype=dtype) for i in range(200)]
    write_megatron(tmp_path / "a", sequences[:150], dtype)
    write_megatron(tmp_path / "b", sequences[150:], dtype)
    words = [binary(), "plan", "order", f"shuffle=false format=megatron file=*.bin root={tmp_path}", "--ranges"]
    done = subprocess.run(words, capture_output=True, check=True, timeout=60)
    lines = [line.split(b" ") for line in done.stdout.splitlines()]
    assert len(lines) == len(sequences)
    for (offset, length, name), sequence in zip(lines, sequences):
        data = (tmp_path / os.fsdecode(name)).read_bytes()
        assert data[int(offset):int(offset) + int(length)] == sequence.astype(dtype).tobytes()
    index = (tmp_path / "a.idx").read_bytes()
    for damaged in (b"", index[:20], index[:200], b"x" + index[1:], index[:18] + b"\xff" * 8 + index[26:],
                    index[:17] + b"\x63" + index[18:], index[:34] + b"\xff" * 4 + index[38:]):
        (tmp_path / "a.idx").write_bytes(damaged)
        assert order_of(f"shuffle=false format=megatron file=a.bin root={tmp_path}") is None
