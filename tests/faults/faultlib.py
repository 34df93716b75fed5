"""Readers for the fault matrix: whatever happens below them, each read gives the file's bytes or an error, in time."""

import collections
import contextlib
import errno
import hashlib
import pathlib
import random
import threading

from clairmount import SLOWNESS, hash_of, make_tree, wait_until

PATIENCE = 60 * SLOWNESS  # seconds until a reader that still waits counts as hanging; no test passes by it
CHUNK = 64 << 10
# Empty, small, whole chunks, several chunks.
SIZES = {f"class{i % 4}/file{i:03d}": (i * 7919) % (3 * CHUNK) for i in range(120)} | {
    "class0/empty": 0,
    "class1/chunk": CHUNK,
    "class2/large": 40 * CHUNK + 1,
}


def make_dataset(root, sizes=None):
    """Makes the files; returns {name: sha256}."""
    contents = make_tree(root, SIZES if sizes is None else sizes)
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def digest(path, keep=True):
    """The file's hash as it is read through the mount; with keep=False its pages leave the page cache again."""
    return hash_of(path, keep).hexdigest()


def assert_hashes(mount, hashes, names=None, keep=False):
    """Every file has the bytes of the source, and none fails."""
    for name in names if names is not None else hashes:
        assert digest(mount.path / name, keep) == hashes[name], name


def outcome(mount, name):
    """0 or the errno of reading a file whole, from whatever is not in the page cache."""
    try:
        digest(mount.path / name, keep=False)
    except OSError as error:
        return error.errno
    return 0


class Readers:
    """What the threads of reading() saw."""

    def __init__(self):
        self.read = 0  # files with the right bytes
        self.errors = collections.Counter()  # by the name of the errno
        self.wrong = []  # files with other bytes
        self.broken = []  # exceptions that are no answer of a filesystem
        self.stop = threading.Event()
        self.threads = []

    def run(self, root, hashes, seed):
        rng = random.Random(seed)
        names = sorted(hashes)
        while not self.stop.is_set():
            name = rng.choice(names)
            try:
                if digest(root / name, keep=False) == hashes[name]:
                    self.read += 1
                else:
                    self.wrong.append(name)
            except OSError as error:
                self.errors[errno.errorcode[error.errno]] += 1
                self.stop.wait(0.001)
            except BaseException as error:
                self.broken.append(error)
                return

    def progress(self, files=100):
        """Waits until that many more files have been read."""
        goal = self.read + files
        wait_until(lambda: self.read >= goal or self.wrong or self.broken, f"{goal} files read", PATIENCE)
        assert not self.wrong and not self.broken, (self.wrong, self.broken)

    def finish(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        hanging = [thread.name for thread in self.threads if thread.is_alive()]
        assert not hanging, f"readers hang: {hanging}"
        assert not self.wrong and not self.broken, (self.wrong, self.broken)


@contextlib.contextmanager
def reading(root, hashes, threads=6):
    """Reads files at random in threads; at the end every reader must come back, and no byte may have been wrong."""
    readers = Readers()
    for seed in range(threads):
        thread = threading.Thread(target=readers.run, args=(root, hashes, seed), name=f"reader {seed}", daemon=True)
        readers.threads.append(thread)
        thread.start()
    try:
        yield readers
    except BaseException:
        readers.stop.set()
        raise
    readers.finish()


def descriptor_limit(pid):
    """RLIMIT_NOFILE of a process."""
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    return int(next(line for line in limits.splitlines() if line.startswith("Max open files")).split()[3])


def in_background(call, *args):
    """A thread that runs the call; daemonic, so that a hang fails one test and not the whole run."""
    thread = threading.Thread(target=call, args=args, daemon=True)
    thread.start()
    return thread


def joined(thread):
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
