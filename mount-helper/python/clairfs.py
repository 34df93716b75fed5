"""Tells clairfs in which order a PyTorch script reads its dataset, so that files are in memory before they are opened.

    import clairfs

    loader = DataLoader(ImageFolder("/mnt/data/train"), batch_size=64, shuffle=True, num_workers=4)
    clairfs.register(loader)              # before the first epoch, on each rank or on one rank of each node

The script stays as it is. The loader yields the same batches in the same order; where the dataset is on no clairfs
mount, or its order cannot be predicted, a warning says so once, and nothing else happens.

What is planned, and for how long:

    SequentialSampler, DistributedSampler         all epochs, at once
    samplers with a generator= of their own       all epochs, at once
    samplers that use torch's default generator   all epochs from the first one on, or from the second one on if other
                                                  loaders draw from it, too; if that differs from one epoch to the next
                                                  (dropout on the CPU), each epoch when it begins
    any other sampler or batch sampler            each epoch when it begins, from a copy of the sampler

An epoch begins when the loader is iterated. The plan is then compared with the sampler's state, and replaced if the
script resumed, forgot set_epoch(), or seeded anew. Samplers are only looked at: what a look draws is put back, and one of
which no whole copy can be made is not looked at.

Samples are found as paths in the dataset (ImageFolder, Subset, ConcatDataset, any list of paths), as a numpy.memmap (of
which workers that are not forked get a copy: there it is not planned), as an LMDB (whose rows have the keys 0, 1, 2 and so
on, or else are in the order of a cursor), as an open HDF5 dataset, or as the path of an HDF5 file (of which all datasets
with as many rows are planned; h5py must be imported before). Whatever is not found can be said: register(loader,
paths=[...]), or with the keys of a plan and the path that the script opens,
register(loader, format="lmdb", file="/mnt/data/train.lmdb", keys="image-%09d"). Of a loader that hides its dataset the
folder is enough, register(loader, path="/mnt/data/train"), and of one that is no DataLoader the sampler, or batch sampler,
and the folder: register(sampler, path="/mnt/data/train"). An epoch then begins when the sampler is iterated.

Pure Python 3.9 or later, no dependencies. For torch 1.13 and later. Not thread-safe: one thread iterates a loader.
"""

import atexit
import base64
import collections
import contextlib
import copy
import errno
import hashlib
import inspect
import io
import itertools
import json
import multiprocessing.util
import os
import pickle
import random
import re
import socket
import stat
import sys
import tempfile
import threading
import types
import warnings

__all__ = ["Registration", "register", "status"]

_PATIENCE_SECONDS = 20  # a plan of a million files takes one; the daemon goes on with it when we do not wait longer
_MOST_INDICES = 1 << 26  # of one epoch that is written down: an endless sampler ends there
_MOST_OTHER_DRAWS = 1 << 12  # from a generator between two epochs: a look takes some milliseconds
_MOST_OF_A_SAMPLER = 1 << 26  # bytes besides numbers in lists, tensors and datasets: it holds something else, too
_MOST_OF_ALL_RANKS = 1 << 23  # of one epoch of all ranks: more would make each rank wait for seconds


class _NotPlanned(Exception):
    """Says why."""


# Mounts


class _Mount:
    def __init__(self, point, user):
        self.point = point  # the mount point, without symlinks
        self.user = user  # who mounted it and may read what we write for its daemon

    def stats(self):
        with open(os.path.join(self.point, ".clairfs/stats.json"), encoding="utf-8") as file:
            return json.load(file)

    def ask(self, command):
        """Sends a command (bytes); the answer's text. _NotPlanned with what the daemon said."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_PATIENCE_SECONDS)
                connection.connect("\0" + self.stats()["daemon"]["control_socket"])
                connection.sendall(command)
                connection.shutdown(socket.SHUT_WR)
                head, _, text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).partition(b"\n")
        except ConnectionRefusedError:  # its name is known in the daemon's network namespace only
            return self._write(command)
        except (OSError, KeyError, ValueError) as error:
            raise _NotPlanned(f"the daemon of {self.point} does not answer: {error}") from error
        text = text.decode(errors="replace")
        if head != b"ok":
            raise _NotPlanned(text.strip())
        return text

    def _write(self, command):
        plan = command[5:] if command.startswith(b"plan ") else command
        try:
            with open(os.path.join(self.point, ".clairfs/plan"), "wb", buffering=0) as file:
                file.write(plan)
            return plan.decode(errors="replace")
        except OSError as error:
            if error.errno == errno.EINPROGRESS:  # the daemon goes on with it
                return plan.decode(errors="replace")
            with contextlib.suppress(OSError), open(os.path.join(self.point, ".clairfs/last_error"), encoding="utf-8") as file:
                raise _NotPlanned(file.read().strip() or str(error)) from error
            raise _NotPlanned(f"{self.point}/.clairfs/plan: {error}") from error


def _mounts():
    """All mounts by their points; None for those that are not clairfs's, which may hide one."""
    found = {}
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            left, _, right = line.partition(b" - ")
            point = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), left.split()[4])
            user = re.search(rb"\buser_id=(\d+)", right)
            ours = right.split()[0] == b"fuse.clairfs"
            found[os.fsdecode(point)] = _Mount(os.fsdecode(point), int(user[1]) if user else 0) if ours else None
    return found


def _mount_of(path, mounts):
    """The mount that a path without symlinks is on, or None."""
    while path not in mounts:
        parent = os.path.dirname(path)
        if parent == path:
            return None
        path = parent
    return mounts[path]


def status(path):
    """What the clairfs mount of a path tells of itself (MOUNT/.clairfs/stats.json), or None on no mount."""
    mount = _mount_of(os.path.realpath(path), _mounts())
    return mount.stats() if mount else None


# Samples: which file, or which record of one, each index of the dataset is


class _Samples:
    """`keys` number them in a plan. `paths`: relative to the root, where samples are files. `numbers`: what sample
    each index is, where that is not the index itself."""

    def __init__(self, mount, count, keys, paths=None, numbers=None):
        self.mount, self.count, self.keys, self.paths, self.numbers = mount, count, keys, paths, numbers

    def numbered(self):
        """Keys that number the samples as the dataset does; None where a plan cannot."""
        if self.paths is not None and "format" not in self.keys:
            self.list_paths()
        return self.keys if self.numbers is None else None

    def list_paths(self):
        """From now on the samples are numbered by a list of their paths. False if they are already, or are no files."""
        if self.paths is None or self.keys.get("format") == "list":
            return False
        self.keys.pop("n", None)
        self.keys.update({"format": "list", "list": _List(map(_path_line, self.paths))})
        return True

    def in_order(self, indices):
        """Keys of a plan that goes through these indices."""
        if self.paths is None or self.keys.get("format") == "imagefolder":
            numbers = indices if self.numbers is None else (self.numbers[i] for i in indices)
            return {**self.keys, "sampler": "list", "list": _List(b"%d" % i for i in numbers)}
        keys = {key: value for key, value in self.keys.items() if key != "list"}
        return {**keys, "format": "files", "sampler": "list", "list": _List(_path_line(self.paths[i]) for i in indices)}


def _path_line(path):
    line = os.fsencode(path)
    if b"\n" in line or line.endswith(b"\r"):
        raise _NotPlanned(f"{path!r}: a list of files cannot name it")
    return b"./" + line if line.startswith(b"#") or line.isdigit() else line


class _List:
    """Lines of a file that the daemon reads."""

    def __init__(self, lines):
        self.text = b"\n".join(lines) + b"\n"

    def write(self, mount):
        """Its path; the same lines are the same file, for all ranks of a node."""
        folder = os.environ.get("CLAIRFS_LISTS") or os.path.join(tempfile.gettempdir(), f"clairfs-lists-{os.geteuid()}")
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise _NotPlanned(f"{folder}: is not a directory of ours; name another one in CLAIRFS_LISTS")
        path = os.path.join(folder, hashlib.sha1(self.text).hexdigest()[:24])
        file, temporary = tempfile.mkstemp(dir=folder)
        with open(file, "wb") as out:
            out.write(self.text)
        if os.geteuid() == 0 and mount.user != 0:
            os.chmod(folder, 0o711)
            os.chown(temporary, mount.user, -1)
        os.rename(temporary, path)
        return path


def _is_path(value):
    return isinstance(value, (str, bytes, os.PathLike)) and bool(value)


def _path_in(entry):
    """The first path of an entry such as (path, label) or {"file": path}."""
    if _is_path(entry):
        return os.fsdecode(entry)
    if isinstance(entry, dict):
        entry = entry.values()
    if isinstance(entry, (tuple, list, type({}.values()))):
        return next((os.fsdecode(part) for part in entry if _is_path(part)), None)
    return None


def _columns(value):
    """The lists that an attribute holds: itself, or the columns of a table."""
    if hasattr(value, "iloc") and hasattr(value, "columns"):
        return [value[name].tolist() for name in value.columns]
    if hasattr(value, "tolist") and getattr(value, "ndim", 1) == 1 and not hasattr(value, "filename"):
        dtype = str(getattr(value, "dtype", ""))
        return [value.tolist()] if dtype.startswith(("<U", "|S", "object", "str")) else []
    return [value] if isinstance(value, (list, tuple)) else []


def _attributes(dataset):
    """Those that usually hold paths first."""
    usual = ("samples", "imgs", "paths", "files", "image_paths", "img_paths", "filenames", "images", "file_list")
    values = dict(getattr(dataset, "__dict__", {}))
    for name in usual:
        with contextlib.suppress(Exception):
            values.setdefault(name, getattr(dataset, name))
    return [values[name] for name in sorted(values, key=lambda name: usual.index(name) if name in usual else len(usual))]


def _existing(paths, dataset):
    """Paths that open as they are, or below a folder that the dataset knows; else None."""
    folders = [""] + [os.fsdecode(value) for value in _attributes(dataset) if _is_path(value) and os.path.isdir(value)]
    some = paths[:: max(len(paths) // 8, 1)]
    for folder in folders:
        if all(os.path.lexists(os.path.join(folder, path)) for path in some):
            return [os.path.join(folder, path) for path in paths] if folder else paths
    return None


def _paths_of(dataset, depth=0):
    """The path of each sample of a dataset of files; None if it is none."""
    inner = getattr(dataset, "dataset", None)
    indices = getattr(dataset, "indices", None)
    if inner is not None and indices is not None:  # Subset, random_split
        paths = _paths_of(inner, depth)
        return paths and [paths[i] for i in indices]
    if isinstance(getattr(dataset, "datasets", None), (list, tuple)):  # ConcatDataset
        parts = [_paths_of(part, depth) for part in dataset.datasets]
        return list(itertools.chain(*parts)) if all(parts) else None
    if _is_path(next(iter(dataset), None)) if isinstance(dataset, (list, tuple)) else False:
        return _existing([os.fsdecode(path) for path in dataset], dataset)
    for value in _attributes(dataset):
        for column in _columns(value):
            if len(column) != len(dataset) or not column or _path_in(column[0]) is None:
                continue
            paths = [_path_in(entry) for entry in column]
            found = None if None in paths else _existing(paths, dataset)
            if found:
                return found
    for value in _attributes(dataset) if depth < 4 else []:  # a wrapper of another dataset
        if value is not dataset and hasattr(value, "__getitem__") and not isinstance(value, (str, bytes, list, tuple, dict)):
            with contextlib.suppress(TypeError):
                if len(value) == len(dataset) and hasattr(value, "__dict__") and (found := _paths_of(value, depth + 1)):
                    return found
    return None


def _is_imagefolder(dataset):
    """Whether torchvision numbered the samples, all of them, as format=imagefolder does."""
    folder = sys.modules.get("torchvision.datasets.folder")
    if folder is None or not isinstance(dataset, folder.DatasetFolder) or dataset.extensions != folder.IMG_EXTENSIONS:
        return False
    places = [(target, *os.path.split(path)) for path, target in dataset.samples]
    return all(a < b for a, b in zip(places, places[1:]))


def _file_samples(paths, dataset, mounts):
    """Samples that are files, at whatever path; _NotPlanned where one is on no mount, or on another than the first."""
    places = {}  # folder: (mount, the folder's path in it)

    def place_of(folder):
        plain = os.path.abspath(folder)
        mount = _mount_of(plain, mounts)
        if mount is None:
            plain = os.path.realpath(folder)
            mount = _mount_of(plain, mounts)
        return mount, os.path.relpath(plain, mount.point) if mount else plain

    relative = []
    for path in paths:
        folder, name = os.path.split(path)
        if folder not in places:
            places[folder] = place_of(folder)
        mount, below = places[folder]
        if mount is None or mount is not places[os.path.dirname(paths[0])][0]:
            raise _NotPlanned(f"{path} is on no clairfs mount" if mount is None else f"{path} is on a second mount")
        relative.append(name if below == "." else f"{below}/{name}")
    if _is_imagefolder(dataset):
        _, root = place_of(dataset.root)
        keys = {"root": root, "format": "imagefolder", "n": len(paths)}
        if len(set(dataset.targets)) < len(dataset.classes):
            keys["allow_empty"] = "true"
    else:
        root = os.path.commonpath([os.path.dirname(path) or "." for path in set(relative)]) if relative else "."
        keys = {"root": root}
    if root == ".":
        del keys["root"]
    else:
        relative = [path[len(root) + 1 :] for path in relative]
    return _Samples(mount, len(paths), keys, relative)


def _rows(dataset):
    """(the dataset that holds records, number of the record of each index or None)."""
    inner, indices = getattr(dataset, "dataset", None), getattr(dataset, "indices", None)
    if inner is None or indices is None:
        return dataset, None
    base, numbers = _rows(inner)
    return base, list(indices) if numbers is None else [numbers[i] for i in indices]


def _array_keys(array):
    """(file, keys, whether these are all rows of the file) of a numpy.memmap or of an open HDF5 dataset."""
    if not hasattr(array, "filename"):
        return os.fsdecode(array.file.filename), {"format": "hdf5", "dataset": array.name}, True
    row = array.dtype.itemsize
    for length in array.shape[1:]:
        row *= length
    path, whole, stride = os.fsdecode(array.filename), array, array.strides[0]
    while type(whole.base) is type(array):  # a slice has the offset of what it was cut from
        whole = whole.base
    places = [part.__array_interface__["data"][0] for part in (array, whole)]
    offset = whole.offset + places[0] - places[1]
    if stride < row or (array.ndim > 1 and not array[0].flags["C_CONTIGUOUS"]):
        return path, None, False
    keys = {"format": "raw", "record": row, "header": offset, **({"stride": stride} if stride != row else {})}
    return path, keys, (os.path.getsize(path) - offset - row) // stride + 1 == len(array)


def _records(dataset):
    """(file, keys, whether they number the samples) of records, or None."""
    for value in _attributes(dataset):
        if hasattr(value, "shape") and hasattr(value, "dtype") and tuple(value.shape[:1]) == (len(dataset),):
            if getattr(value, "filename", None) is not None or (hasattr(value, "file") and hasattr(value, "id")):
                found = _array_keys(value)
                if found[1] is not None:
                    return found
    for value in _attributes(dataset):
        path = value.path() if callable(getattr(value, "path", None)) and hasattr(value, "begin") else value
        if not _is_path(path):
            continue
        path = os.fsdecode(path)
        if _is_lmdb(path):
            return path, {"format": "lmdb", "keys": _lmdb_keys(path, len(dataset), value), "n": len(dataset)}, True
        if path.endswith((".h5", ".hdf5")) and os.path.isfile(path):
            return path, {"format": "hdf5", "dataset": _hdf5_datasets(path, len(dataset))}, True
    return None


def _is_lmdb(path):
    return path.endswith((".mdb", ".lmdb")) or os.path.exists(os.path.join(path, "data.mdb"))


def _lmdb_keys(path, rows, opened=None):
    """How a dataset of so many rows will name them: by the keys 0, 1, 2 ... where there are such, else as a cursor goes."""
    try:
        import lmdb
    except ImportError:
        return "cursor"
    try:
        with contextlib.ExitStack() as stack:
            if not isinstance(opened, lmdb.Environment):
                options = {"subdir": os.path.isdir(path), "readonly": True, "lock": False, "readahead": False}
                opened = stack.enter_context(lmdb.open(path, **options))
            look = stack.enter_context(opened.begin())
            first = 0 if look.get(b"0") is not None else 1
            numbered = all(look.get(b"%d" % number) is not None for number in (first, first + rows - 1))
    except (lmdb.Error, OSError):  # where the script has it open, too
        return "cursor"
    return "decimal" if rows and numbered else "cursor"


def _hdf5_datasets(path, rows):
    """Those of a file that have so many rows: workers that open it read all or some of them."""
    h5py = sys.modules.get("h5py")
    if h5py is None:
        raise _NotPlanned(f'{path}: which datasets are read? Import h5py before, or give format="hdf5", file=, dataset="/images"')
    found = []

    def note(name, item):
        if isinstance(item, h5py.Dataset) and (item.shape or ())[:1] == (rows,) and not item.dtype.hasobject:
            found.append(f"/{name}")

    with h5py.File(path, "r") as file:
        file.visititems(note)
    if not found:
        raise _NotPlanned(f"{path} has no dataset of {rows} rows")
    return ",".join(found)


def _forks(loader):
    """Whether the loader's workers have the script's memory, so that they read what it has mapped."""
    context = loader.multiprocessing_context or _torch().multiprocessing
    method = context.get_start_method(allow_none=True)  # else it would be settled, and the script could set none
    return (method or context.get_all_start_methods()[0]) == "fork"


def _record_samples(loader, given, mounts):
    dataset = loader.dataset
    base, numbers = _rows(dataset)
    found = (given["file"], {}, True) if "file" in given else _records(base)
    if found is None:
        raise _NotPlanned("no paths of files are found in the dataset; give paths=[...]")
    path, keys, all_rows = found
    if keys.get("format") == "raw" and loader.num_workers and not _forks(loader):
        raise _NotPlanned(
            f"{path} is a numpy.memmap, which workers that are not forked get as a copy; "
            'open it in the workers and give file=, or multiprocessing.set_start_method("fork")'
        )
    plain = os.path.realpath(path)
    mount = _mount_of(plain, mounts)
    if mount is None:
        raise _NotPlanned(f"{path} is on no clairfs mount")
    given.pop("file", None)
    if numbers is None and not all_rows:
        numbers = range(len(base))
    return _Samples(mount, len(dataset), {**keys, "file": os.path.relpath(plain, mount.point)}, None, numbers)


def _count_of(sampler):
    """How many samples there are for it to choose from, if it says so; else None."""
    for part in _parts(sampler):
        for name in ("data_source", "dataset", "weights"):
            if hasattr(getattr(part, name, None), "__len__"):
                return len(getattr(part, name))
    return None


def _samples_below(loader, path, given, mounts):
    """All samples of a folder or file, as the daemon numbers them."""
    plain = os.path.realpath(path)
    mount = _mount_of(plain, mounts)
    if mount is None:
        raise _NotPlanned(f"{path} is on no clairfs mount")
    below = os.path.relpath(plain, mount.point)
    keys = {} if below == "." else {"root": below}
    if _is_lmdb(plain):
        keys = {"format": "lmdb", "file": below}
    elif not os.path.isdir(plain):
        if "format" not in given:
            raise _NotPlanned(f"{path} is a file; give its format, too (format=, and its keys in clairfs(1))")
        keys = {"file": below}
    base, numbers = _rows(loader.dataset)
    there = _count_of(loader.sampler) if base is None else len(base)
    if there is not None:
        keys["n"] = there
    if _is_lmdb(plain):
        keys["keys"] = _lmdb_keys(plain, there or 0)
    return _Samples(mount, there if numbers is None else len(numbers), keys, None, numbers)


def _samples_of(loader, paths, path, given):
    dataset = loader.dataset
    mounts = _mounts()
    if not any(mounts.values()):
        raise _NotPlanned("there is no clairfs mount")
    if path is not None:
        return _samples_below(loader, path, given, mounts)
    if paths is None and "file" not in given:
        paths = _paths_of(dataset)
    if paths is None:
        return _record_samples(loader, given, mounts)
    paths = [os.fsdecode(path) for path in paths]
    if len(paths) != len(dataset):
        raise _NotPlanned(f"{len(paths)} paths are given for {len(dataset)} samples")
    return _file_samples(paths, dataset, mounts)


# Orders


def _torch():
    import torch  # the script has it already

    return torch


def _number(*names):
    """The first of these environment variables that is a number."""
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), None)


def _ranks():
    """(this rank, ranks of the job, ranks of this node or None) of the training."""
    distributed = _torch().distributed
    if distributed.is_available() and distributed.is_initialized():
        rank, world = distributed.get_rank(), distributed.get_world_size()
    else:
        rank, world = _number("RANK", "SLURM_PROCID", "PMI_RANK") or 0, _number("WORLD_SIZE") or 1
    return rank, world, _number("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def _ranks_of_a_node_alone(mount):
    """The ranks of this node, where it is not the first one and its mount knows nothing of the others; else None. A plan
    would take them for the first ranks."""
    rank, world, local = _ranks()
    alone = local and world > local and rank >= local and "job" not in mount.stats()
    return range(rank // local * local, (rank // local + 1) * local) if alone else None


@contextlib.contextmanager
def _untouched(*generators):
    """What is drawn from any random generator in the block was not drawn."""
    default = _torch().default_generator
    states = [(generator, generator.get_state()) for generator in {id(g): g for g in (default, *generators)}.values()]
    python, numpy = random.getstate(), sys.modules.get("numpy")
    legacy = numpy.random.get_state() if numpy else None
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
        random.setstate(python)
        if numpy:
            numpy.random.set_state(legacy)


@contextlib.contextmanager
def _without_other_ranks():
    """Who speaks with other ranks in the block is stopped: they might wait for ever for one that does not."""
    distributed = _torch().distributed
    names = ("all_gather", "all_gather_object", "all_reduce", "barrier", "broadcast", "broadcast_object_list", "gather",
             "reduce", "scatter")  # fmt: skip
    real = {name: getattr(distributed, name) for name in names if hasattr(distributed, name)}

    def stop(*_, **__):
        raise _NotPlanned("the sampler speaks with other ranks")

    try:
        for name in real:
            setattr(distributed, name, stop)
        yield
    finally:
        for name, function in real.items():
            setattr(distributed, name, function)


def _samples_indices(value):
    """Whether an attribute of a sampler may be a sampler, too."""
    torch = _torch()
    others = (torch.utils.data.Dataset, torch.Tensor, torch.nn.Module)
    return hasattr(type(value), "__iter__") and hasattr(value, "__dict__") and not isinstance(value, others)


def _flat(element):
    """Indices in an element of a sampler or batch sampler."""
    if isinstance(element, (list, tuple)):
        return itertools.chain.from_iterable(map(_flat, element))
    return (int(element),)


def _parts(sampler):
    """A sampler and those in it, the outer one first."""
    found, pending = [], [sampler]
    while pending and len(found) < 16:
        one = pending.pop()
        found.append(one)
        pending += [part for part in getattr(one, "__dict__", {}).values() if _samples_indices(part)]
    return found


class _Bounded(io.BytesIO):
    def write(self, data):
        if self.tell() > _MOST_OF_A_SAMPLER:
            raise _NotPlanned("the sampler holds too much to be copied for a look")
        return super().write(data)


_PLAIN = {bool, bytes, float, int, str, type(None)}
_SHARED = (type, types.BuiltinFunctionType, types.FunctionType, types.ModuleType, type(threading.Lock()), type(threading.RLock()))


def _unchanging(values):
    """Whether all of them are numbers, strings, or tuples of such."""
    generic = getattr(sys.modules.get("numpy"), "generic", bool)
    kinds = set(map(type, values))
    if not all(kind in _PLAIN or kind is tuple or issubclass(kind, generic) for kind in kinds):
        return False
    return tuple not in kinds or _unchanging([part for value in values if type(value) is tuple for part in value])


class _Twins(pickle.Pickler):
    """Copies of a sampler that can be iterated instead of it and leave no trace in it. All that it holds is copied, but for
    datasets, models, functions, locks, other ranks, and the generators that _untouched() puts back."""

    def __init__(self, sampler, dataset):
        self.stream, self.apart, self.numbers = _Bounded(), [], {}
        super().__init__(self.stream, pickle.HIGHEST_PROTOCOL)
        datasets = (getattr(part, name, None) for part in _parts(sampler) for name in ("dataset", "data_source"))
        numpy = sys.modules.get("numpy")
        legacy = getattr(numpy.random.mtrand, "_rand", None) if numpy else None
        shared = (dataset, *filter(self._without_sampler, datasets), _torch().default_generator, random._inst, legacy)
        self.shared = {id(value) for value in shared if value is not None}
        try:
            self.dump(sampler)
        except _NotPlanned:
            raise
        except Exception as error:
            raise _NotPlanned(f"the sampler cannot be copied for a look: {error}") from error

    @staticmethod
    def _without_sampler(dataset):
        """Lightning puts a sampler into a dataset, to sample from that."""
        return not any(isinstance(part, _torch().utils.data.Sampler) for part in getattr(dataset, "__dict__", {}).values())

    def persistent_id(self, value):
        """A number for what is copied by itself or not at all; None: it is pickled."""
        if type(value) in _PLAIN:
            return None
        if (number := self.numbers.get(id(value))) is not None:
            return number
        if (copier := self._copier(value)) is None:
            return None
        self.apart.append((value, copier))
        return self.numbers.setdefault(id(value), len(self.apart) - 1)

    def _copier(self, value):
        data, kind = _torch().utils.data, type(value)
        shared = isinstance(value, (data.Dataset, _torch().nn.Module)) and self._without_sampler(value)
        of_ranks = kind.__module__.startswith(("torch.distributed.", "torch._C._distributed"))
        if shared or of_ranks or isinstance(value, _SHARED) or id(value) in self.shared:
            return lambda itself: itself
        if isinstance(value, _torch().Generator):
            return lambda generator: _torch().Generator(device=generator.device).set_state(generator.get_state())
        if isinstance(value, _torch().Tensor):
            return lambda tensor: tensor.detach().clone()
        if hasattr(kind, "__next__"):
            raise _NotPlanned("the sampler holds an iterator, which cannot be looked at without a trace")
        if kind in (list, tuple, set, dict, collections.deque):
            held = [*value, *value.values()] if kind is dict else value
            return copy.copy if _unchanging(held) else None
        numbers = kind.__module__ == "numpy" and hasattr(value, "dtype") and not value.dtype.hasobject
        return copy.copy if numbers else None

    def make(self):
        copies = {}

        def load(number):
            if number not in copies:
                value, copier = self.apart[number]
                copies[number] = copier(value)
            return copies[number]

        unpickler = pickle.Unpickler(io.BytesIO(self.stream.getvalue()))
        unpickler.persistent_load = load
        return unpickler.load()


_PLACES = (("num_replicas", "rank"), ("num_processes", "process_index"))  # DistributedSampler's, accelerate's


class _Written:
    """The order of each epoch, written down when it begins. One order serves all ranks where the sampler says how many
    there are."""

    def __init__(self, loader, samples):
        self.index_sampler, self.dataset, self.samples = loader_index_sampler(loader), loader.dataset, samples
        places = [(part, *names) for part in _parts(self.index_sampler) for names in _PLACES if hasattr(part, names[1])]
        self.place = places[0] if places else None
        self.alone = _ranks_of_a_node_alone(samples.mount)
        self.last = None  # the order of the epoch before
        self.fixed = False  # it is that of all epochs

    def keys(self):
        return None

    def numbering(self):
        return self.samples.in_order(self.last)

    def loader_begins(self):
        pass

    def _indices(self, twins, rank=None):
        twin = twins.make()
        if rank is not None:
            _, _, name = self.place
            setattr(next(part for part in _parts(twin) if hasattr(part, name)), name, rank)
        with _untouched(), _without_other_ranks():
            indices = list(itertools.islice(itertools.chain.from_iterable(map(_flat, twin)), _MOST_INDICES + 1))
        if len(indices) > _MOST_INDICES:
            raise _NotPlanned("the sampler does not end")
        return indices

    def _all_ranks(self):
        """(order of all ranks, step by step, and their number); the number is None where it is that of this rank only."""
        twins = _Twins(self.index_sampler, self.dataset)
        own = self._indices(twins)
        world = getattr(self.place[0], self.place[1], 1) if self.place else 1
        ranks = self.alone or range(world)
        if world > 1 and len(ranks) * len(own) <= _MOST_OF_ALL_RANKS:
            orders = [self._indices(twins, rank) for rank in ranks]
            if all(len(order) == len(own) for order in orders):
                return list(itertools.chain.from_iterable(zip(*orders))), len(ranks)
        return own, None if world > 1 else 1

    def epoch_begins(self):
        order, world = self._all_ranks()
        again = order == self.last
        if again and self.fixed:
            return None
        self.last, self.fixed = order, again
        keys = self.samples.in_order(order)
        if world is None or world > 1:
            keys.update({"ranks": world})
        return keys if again else {**keys, "epochs": 1}


class _Sequential:
    def __init__(self, samples):
        self.samples = samples

    def keys(self):
        numbered = self.samples.numbered()
        return {**numbered, "sampler": "torch.sequential"} if numbered else self.samples.in_order(range(self.samples.count))

    def numbering(self):
        return self.samples.numbered()

    def loader_begins(self):
        pass

    def epoch_begins(self):
        return None


class _Distributed:
    """Each epoch is drawn from seed + epoch."""

    def __init__(self, sampler, numbered):
        self.sampler, self.numbered = sampler, numbered
        self.next = sampler.epoch
        self.last = None  # the epoch before
        self.fixed = False  # set_epoch is not called: its order is that of all epochs

    def keys(self, **more):
        sampler = self.sampler
        keys = {**self.numbered, "sampler": "torch.distributed", "seed": sampler.seed, "ranks": sampler.num_replicas}
        if not sampler.shuffle:
            keys["shuffle"] = "false"
        if sampler.drop_last:
            keys["drop_last"] = "sampler"
        if self.next != 0:
            keys["first_epoch"] = self.next
        return {**keys, **more}

    def numbering(self):
        return self.numbered

    def loader_begins(self):
        pass

    def epoch_begins(self):
        epoch, expected = self.sampler.epoch, self.next
        again, was_fixed = epoch == self.last, self.fixed
        self.last, self.fixed = epoch, again
        if again:
            self.next = 0
            return None if was_fixed else self.keys(seed=self.sampler.seed + epoch, set_epoch="never")
        self.next = epoch
        keys = self.keys() if was_fixed or epoch != expected else None
        self.next = epoch + 1
        return keys


class _Drawn:
    """RandomSampler, SubsetRandomSampler, WeightedRandomSampler: drawn from a generator that lives on."""

    def __init__(self, loader, sampler, own_keys, numbered):
        torch = _torch()
        self.loader, self.sampler, self.own_keys, self.numbered = loader, sampler, own_keys, numbered
        self.own = getattr(sampler, "generator", None) is not None
        self.generator = sampler.generator if self.own else torch.default_generator
        self.shares = (loader.generator or torch.default_generator) is self.generator  # base_seed comes from it, too
        self.start = None  # its state when the loader began
        self.expected = None  # what that should be the next time
        self.others = 0  # numbers that something else draws between two epochs
        self.trusted = True  # that it is always as many
        self.whole = True  # the plan in force is of all epochs

    def _keys(self, state, generator, **more):
        keys = {**self.numbered, **self.own_keys, "generator": generator}
        keys["torch"] = re.match(r"\d+(\.\d+)*", _torch().__version__)[0]
        keys["state"] = base64.b64encode(bytes(state.tolist())).decode()
        if self.loader.persistent_workers:
            keys["persistent_workers"] = "true"
        if self.others:
            keys["other_draws"] = self.others
        return {**keys, **more}

    def keys(self):
        if not self.own:
            return None  # a model that is built in between draws from it
        state = self.generator.get_state()
        return self._keys(state, "loader" if self.shares else "sampler")

    def numbering(self):
        return self.numbered

    def _draws_base_seed(self):
        lives_on = self.loader.persistent_workers and getattr(self.loader, "_iterator", None) is not None
        return self.shares and not lives_on

    def loader_begins(self):
        self.start, self.begins_with_base_seed = self.generator.get_state(), self._draws_base_seed()

    def _draw(self, dtype, count=1):
        torch = _torch()
        for _ in range(count):
            torch.empty((), dtype=dtype).random_(generator=self.generator)

    def _after_base_seed(self, state):
        with _untouched(self.generator):
            self.generator.set_state(state)
            if self.begins_with_base_seed:
                self._draw(_torch().int64)
            return self.generator.get_state()

    def _numbers_between(self, state, later):
        """How many numbers of 32 bits the generator gave from one state to another one; None if that is none soon."""
        torch = _torch()
        with _untouched(self.generator):
            self.generator.set_state(state)
            for count in range(_MOST_OTHER_DRAWS):
                if torch.equal(self.generator.get_state(), later):
                    return count
                self._draw(torch.int32)
        return None

    def epoch_begins(self):
        torch = _torch()
        now, start, expected = self.generator.get_state(), self.start, self.expected
        self.start = None
        between = start is None or not torch.equal(self._after_base_seed(start), now)  # somebody drew or seeded
        as_expected = not between and expected is not None and torch.equal(start, expected)
        if expected is not None and not as_expected:
            self.others = (not between and self.others == 0 and self._numbers_between(expected, start)) or 0
            self.trusted = self.own or self.others != 0
        with _untouched(self.generator):
            collections.deque(iter(self.sampler), maxlen=0)
            self._draw(torch.int32, self.others)
            self.expected = self.generator.get_state()
        if as_expected and self.trusted and self.whole:
            return None
        keys = self._from_here(between, start, now)
        self.whole = "epochs" not in keys
        return keys

    def _from_here(self, between, start, now):
        if between or not self.trusted:
            return self._one_epoch(now)
        if self.begins_with_base_seed:
            return self._keys(start, "loader" if self.own else "default")
        return self._keys(start, "sampler") if self.own else self._one_epoch(now)

    def _one_epoch(self, state):
        """Of a default generator a RandomSampler takes the seed of its own one."""
        torch = _torch()
        if self.own or self.own_keys["sampler"] != "torch.random":
            return self._keys(state, "sampler", epochs=1)
        with _untouched():
            seed = int(torch.empty((), dtype=torch.int64).random_().item())
        keys = self._keys(state, "sampler", epochs=1, seed=seed)
        del keys["state"]
        return keys


def loader_index_sampler(loader):
    """What a DataLoader draws its indices from."""
    return loader.batch_sampler if loader.batch_sampler is not None else loader.sampler


class _Hidden:
    """Stands for the loader of a sampler that is registered by itself: nothing is known of it."""

    dataset = batch_sampler = None
    generator = object()  # not the sampler's
    persistent_workers = False

    def __init__(self, sampler):
        self.sampler = sampler


def _has_iter_of(sampler, cls):
    return isinstance(sampler, cls) and type(sampler).__iter__ is cls.__iter__


def _order_of(loader, samples):
    """(order, batch, keys of the loader) for a DataLoader."""
    data = _torch().utils.data
    sampler, batch, drop_last = loader_index_sampler(loader), 1, False
    while type(sampler) is data.BatchSampler:
        sampler, batch, drop_last = sampler.sampler, batch * sampler.batch_size, sampler.drop_last
    order = _exact_order(loader, sampler, samples)
    if order is None:
        said = getattr(loader_index_sampler(loader), "batch_size", None) or batch
        batch, drop_last = max(said, 1) if isinstance(said, int) else 1, False
        order = _Written(loader, samples)
    if isinstance(loader, _Hidden):  # the daemon finds out what it is not told
        keys = {"batch": batch} if batch > 1 else {}
    else:
        keys = {"batch": batch, "workers": loader.num_workers}
        if loader.num_workers and loader.prefetch_factor not in (None, 2):
            keys["prefetch_factor"] = loader.prefetch_factor
    return order, {**keys, "drop_last": "loader"} if drop_last else keys


def _plain(values):
    return values.tolist() if hasattr(values, "tolist") else values


def _exact_order(loader, sampler, samples):
    """Of the samplers whose orders clairfs computes itself; None of others."""
    data = _torch().utils.data
    count, numbered = samples.count, samples.numbered
    sized = getattr(sampler, "data_source", getattr(sampler, "dataset", None))
    if sized is not None and len(sized) != count:
        return None
    if _has_iter_of(sampler, data.SequentialSampler):
        return _Sequential(samples)
    if samples.numbers is not None:
        return None
    if _has_iter_of(sampler, data.DistributedSampler) and not _ranks_of_a_node_alone(samples.mount):
        return _Distributed(sampler, numbered())
    if _has_iter_of(sampler, data.RandomSampler):
        keys = {"sampler": "torch.random"}
        if sampler.replacement:
            keys["replacement"] = "true"
        if sampler.num_samples != count:
            keys["num_samples"] = sampler.num_samples
        return _Drawn(loader, sampler, keys, numbered())
    if _has_iter_of(sampler, data.SubsetRandomSampler):
        indices = _List(b"%d" % int(i) for i in _plain(sampler.indices))
        return _Drawn(loader, sampler, {"sampler": "torch.subset", "indices": indices}, numbered())
    if _has_iter_of(sampler, data.WeightedRandomSampler) and sampler.replacement and sampler.num_samples > 1:
        if len(sampler.weights) == count:
            weights = _List(float(weight).hex().encode() for weight in _plain(sampler.weights))
            keys = {"sampler": "torch.weighted", "weights": weights, "num_samples": sampler.num_samples}
            return _Drawn(loader, sampler, keys, numbered())
    return None


# Loaders and samplers that tell when they begin


_watched_classes = {}


def _in_place_of(cls, watched):
    """Remembers a subclass that looks like its class, and of whose objects copies are of that class: not registered."""

    def reduce_ex(self, protocol):
        state = {name: value for name, value in self.__dict__.items() if name != "_clairfs"}
        return _unwatched, (cls,), state

    watched.__reduce_ex__ = reduce_ex
    watched.__name__, watched.__qualname__, watched.__module__ = cls.__name__, cls.__qualname__, cls.__module__
    _watched_classes[cls] = watched
    return watched


def _watched(cls):
    """A subclass of a DataLoader's class that tells its registration when an epoch begins."""
    if cls in _watched_classes:
        return _watched_classes[cls]

    class Watched(cls):
        def __iter__(self):
            if registration := self.__dict__.get("_clairfs") or _inherited(self):
                registration._loader_begins()
            return super().__iter__()

        @property
        def _index_sampler(self):
            inner = super()._index_sampler
            return _IndexSampler(inner, self) if "_clairfs" in self.__dict__ else inner

    return _in_place_of(cls, Watched)


def _watched_sampler(cls):
    """The same of the class of a sampler that is registered by itself."""
    if cls in _watched_classes:
        return _watched_classes[cls]

    class Watched(cls):
        def __iter__(self):
            registration = self.__dict__.get("_clairfs")
            if registration is None or registration._looks:
                return super().__iter__()
            begin = super().__iter__
            if inspect.isgeneratorfunction(cls.__iter__):  # it draws when its first index is asked for
                return registration._sampler_begins_lazily(begin)
            registration._sampler_begins()
            return begin()

    return _in_place_of(cls, Watched)


def _unwatched(cls):
    return cls.__new__(cls)


def _inherited(loader):
    """The registration of a loader that was made anew from a registered one before it was used, as Lightning does."""
    for registration in _registrations:
        if registration._loader.dataset is loader.dataset and not registration._begun:
            registration.cancel()
            return register(loader, **registration._arguments)
    return None


class _IndexSampler:
    """A loader's sampler or batch sampler; the loader's registration hears just before it draws."""

    def __init__(self, inner, loader):
        self._inner, self._loader = inner, loader

    def __len__(self):
        return len(self._inner)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __iter__(self):
        if inspect.isgeneratorfunction(type(self._inner).__iter__):
            return self._lazily()
        self._tell()
        return iter(self._inner)

    def _lazily(self):
        self._tell()
        yield from self._inner

    def _tell(self):
        if registration := self._loader.__dict__.get("_clairfs"):  # persistent workers keep this for longer than one
            registration._epoch_begins()


# Registrations


_registrations = []
_warned = set()


def _warn(text):
    if text not in _warned:
        _warned.add(text)
        warnings.warn(f"clairfs: {text}", stacklevel=3)


def _quoted(value):
    value = os.fsencode(str(value))
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"' if re.search(rb"[\s\"'\\]", value) else value


class Registration:
    """A loader's plan. As a context manager it ends with the block; else with the program, or by cancel()."""

    def __init__(self, loader=None):
        self.name = ""
        self.text = ""  # of the plan in force, as the mount shows it; empty: none
        self.mount = None  # where the mount is
        self._loader, self._mount, self._pid = loader, None, os.getpid()
        self._lists, self._asked, self._anothers = [], b"", False
        self._arguments, self._begun = {}, False
        self._looks = False  # what is iterated now is only looked at
        # What tells when an epoch begins.
        self._teller = loader.sampler if isinstance(loader, _Hidden) else loader

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cancel()

    def __repr__(self):
        return f"<clairfs.Registration {self.name} on {self.mount}: {self.text[:200]}>"

    def status(self):
        """The plan as stats.json shows it: state, epoch, high_water, in_order, ...; None if there is none."""
        plans = self._mount.stats()["plan_list"] if self._mount else []
        return next((plan for plan in plans if plan["name"] == self.name), None)

    def cancel(self):
        """Takes the plan back and leaves the loader alone."""
        if self._pid != os.getpid():
            return  # a child of a fork
        if self._loader is not None:
            self._teller.__dict__.pop("_clairfs", None)
            if type(self._teller) in _watched_classes.values():
                self._teller.__class__ = type(self._teller).__mro__[1]
            self._loader = self._teller = None
        if self in _registrations:
            _registrations.remove(self)
        self._take_back()
        self._remove_lists(self._lists)

    def _take_back(self):
        """Unless another rank has put it in force, or somebody else another plan in its place."""
        with contextlib.suppress(_NotPlanned, OSError, ValueError):
            if self.text and not self._anothers and (self.status() or {}).get("text") == self.text:
                self._mount.ask(b"cancel " + self.name.encode())
        self.text = ""

    def _remove_lists(self, lists):
        for path in lists:
            if not any(path in other._lists for other in _registrations):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _begin(self, name, paths, path, given):
        samples = _samples_of(self._loader, paths, path, given)
        self._mount, self.mount = samples.mount, samples.mount.point
        self._order, self._loader_keys = _order_of(self._loader, samples)
        self._samples, self._given = samples, given
        shuffled = not isinstance(self._order, _Sequential)
        self._base_name = name or _free_name(samples.keys.get("root", ""), shuffled)
        self.name = self._base_name
        if (keys := self._order.keys()) is not None:
            self._put(keys)
        teller = self._teller
        teller.__class__ = _watched(type(teller)) if teller is self._loader else _watched_sampler(type(teller))
        teller.__dict__["_clairfs"] = self
        if getattr(teller, "_iterator", None) is not None:  # of persistent workers, which have begun
            teller._iterator._index_sampler = teller._index_sampler

    def _put(self, keys):
        """Puts a plan in force."""
        try:
            self._put_once(keys)
        except _NotPlanned:
            # Samples that the script took out of an ImageFolder are still in the folder.
            numbered = self._samples.keys.get("format") == "imagefolder" and "n" not in self._given
            if not numbered or not self._samples.list_paths():
                raise
            others = {key: value for key, value in keys.items() if key not in ("n", "list")}
            self._put_once({**others, **self._order.numbering()})

    def _put_once(self, keys):
        keys = dict(keys)
        rank, world, local = _ranks()
        ranks = keys.pop("ranks", 1)  # whose order it is: of so many, or (None) of this one
        shared = ranks is not None and not isinstance(self._order, (_Drawn, _Written)) or (ranks or 1) > 1
        self.name = self._base_name if shared or world == 1 else f"{self._base_name[:56]}.{rank}"
        if ranks is not None and ranks > 1:
            keys["world"] = ranks
            if local and ranks % local == 0 and local <= ranks:
                keys["ranks_per_node"] = local
        given = self._given
        if "epochs" in keys:  # of this epoch alone, whatever the job has
            given = {key: value for key, value in given.items() if key not in ("epochs", "first_epoch", "start_sample")}
        both_drop = keys.get("drop_last") == "sampler" and "drop_last" in self._loader_keys
        keys = {"name": self.name, **keys, **self._loader_keys, **({"drop_last": "true"} if both_drop else {}), **given}
        lists = [value.write(self._mount) for value in keys.values() if isinstance(value, _List)]
        written = iter(lists)
        words = [key.encode() + b"=" + _quoted(next(written) if isinstance(value, _List) else value) for key, value in keys.items()]
        text = b"plan " + b" ".join(words)
        if text == self._asked:
            self._take_back()  # the same text again would change nothing
        old, self._lists, self._asked = self._lists, lists, text
        try:
            before = self.status()
            self._mount.ask(text)
            self.text = (self.status() or {}).get("text", "")
            self._anothers = before is not None and before["text"] == self.text
        finally:
            self._remove_lists(set(old) - set(lists))

    def _loader_begins(self):
        self._begun = True
        self._guarded(self._order.loader_begins)

    def _sampler_begins(self):
        self._looks = True
        try:
            self._loader_begins()
            self._epoch_begins()
        finally:
            self._looks = False

    def _sampler_begins_lazily(self, begin):
        self._sampler_begins()
        yield from begin()

    def _epoch_begins(self):
        def put_if_new():
            if (keys := self._order.epoch_begins()) is not None:
                self._put(keys)

        self._guarded(put_if_new)

    def _guarded(self, step):
        """Training goes on whatever happens here."""
        if self._pid != os.getpid() or self._loader is None:
            return
        try:
            step()
        except Exception as error:  # noqa: BLE001
            _warn(f"{self.name}: {error}" if isinstance(error, _NotPlanned) else f"{self.name}: {error!r}")


def _free_name(root, shuffled):
    """The folder's name; else train or val."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.basename(root)).strip("-")[:48]
    name = plain or ("train" if shuffled else "val")
    taken = {"auto", *(registration._base_name for registration in _registrations)}  # that of plans that are found
    if name in taken and not shuffled:
        name += "-val"
    return next(free for free in itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2))) if free not in taken)


def _loader_in(value, depth=0):
    """The DataLoader that a wrapper (Lightning Fabric's, accelerate's) holds. accelerate's calls itself one, and is none."""
    if issubclass(type(value), _torch().utils.data.DataLoader):
        return value
    for part in getattr(value, "__dict__", {}).values() if depth < 3 else []:
        if (found := _loader_in(part, depth + 1)) is not None:
            return found
    return None


def _registered_part(loader, path):
    """The DataLoader, or what stands for the one of a sampler. _NotPlanned says what is missing."""
    if _is_path(loader):
        raise _NotPlanned(f"{os.fsdecode(loader)}: a path does not say in which order it is read; give register(sampler, path=...)")
    sampler = isinstance(loader, _torch().utils.data.Sampler)
    inner = None if sampler else _loader_in(loader)
    if inner is not None:
        return inner
    if not sampler and (path is None or not _samples_indices(loader)):
        raise _NotPlanned(f"{type(loader).__name__} is not a DataLoader and holds none; give register(sampler, path=...)")
    if path is None:
        raise _NotPlanned(f"{type(loader).__name__} does not say what is read; give register(sampler, path=...)")
    return _Hidden(loader)


def register(loader, name=None, paths=None, path=None, **keys):
    """Puts in force what a torch DataLoader will read, and keeps it right; returns a Registration.

    `loader`: or a sampler, with `path`. `name`: of the plan; by default the folder's name, else train or val. `paths`: the
    file of each sample, where the dataset does not tell. `path`: a folder with all samples and no others, or a file with
    records, where the dataset is hidden. `keys`: keys of the plan that are better known to the script (epochs=90).
    """
    registration = Registration()
    try:
        inner = _registered_part(loader, path)
        registration = Registration(inner)
        registration._arguments = {"name": name, "paths": paths, "path": path, **keys}
        if (earlier := registration._teller.__dict__.get("_clairfs")) is not None:
            return earlier
        if isinstance(inner.dataset, _torch().utils.data.IterableDataset):
            raise _NotPlanned("an IterableDataset's order is its own; its shards may have a plan, see RECIPES in clairfs(1)")
        if getattr(inner, "in_order", True) is False:
            raise _NotPlanned("in_order=False: the order depends on timing; give in_order=True")
        registration._begin(name, paths, path, keys)
        _registrations.append(registration)
        if multiprocessing.parent_process() is not None:  # a forked one ends without atexit
            multiprocessing.util.Finalize(None, _cancel_all, exitpriority=0)
    except Exception as error:  # noqa: BLE001
        registration.cancel()
        registration.mount = registration._mount = None
        _warn(f"{error}; nothing is planned" if isinstance(error, _NotPlanned) else f"{error!r}; nothing is planned")
    return registration


@atexit.register
def _cancel_all():
    for registration in list(_registrations):
        registration.cancel()
