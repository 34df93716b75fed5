"""What the suites of plans share: images, registering plans, training jobs, and what they logged."""

import contextlib
import ctypes
import hashlib
import json
import mmap
import os
import pathlib
import random
import subprocess

import warm_python
from clairmount import SLOWNESS, binary, wait_until

JOB = pathlib.Path(__file__).with_name("torch_job.py")
JOB_SECONDS = 200 * SLOWNESS  # ends a job that hangs, within the test's own limit


def make_images(root, count, side, classes=6, seed=0):
    """`count` PPM images of about 3 * side^2 bytes of noise in class folders."""
    rng = random.Random(f"{seed} {root}")
    for i in range(count):
        folder = pathlib.Path(root) / f"class{i % classes}"
        folder.mkdir(parents=True, exist_ok=True)
        width = side + rng.randrange(3)
        (folder / f"image{i:05d}.ppm").write_bytes(b"P6 %d %d 255\n" % (width, side) + rng.randbytes(3 * width * side))


def register(mount, text, folder=""):
    root = f"root={folder} " if folder else ""
    os.setxattr(mount.path / ".clairfs/plan", "user.clairfs.plan", (root + text).encode())


def cancel(mount, name="default"):
    (mount.path / ".clairfs/plan").write_text(f"cancel {name}\n")


def plan(mount, name="default"):
    """A plan as stats.json shows it."""
    return next(p for p in mount.stats()["plan_list"] if p["name"] == name)


def wait_ahead(mount, samples, name="default"):
    """Until so many samples lie in the page cache ahead of the reader."""
    wait_until(lambda: plan(mount, name)["ahead"] >= samples, lambda: f"{samples} samples ahead, {plan(mount, name)}")


def cached_bytes(path):
    """Bytes of the file's pages that are in the page cache (mincore(2), whole pages). Sends the mount an open."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size = os.stat(path).st_size
    pages = -(-size // mmap.PAGESIZE)
    fd = os.open(path, os.O_RDONLY)
    try:
        where = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, fd, 0))
        there = (ctypes.c_ubyte * pages)()
        assert libc.mincore(where, ctypes.c_size_t(size), there) == 0, os.strerror(ctypes.get_errno())
        libc.munmap(where, ctypes.c_size_t(size))
        return sum(page & 1 for page in there) * mmap.PAGESIZE
    finally:
        os.close(fd)


def predicted(root, text, epoch, rank):
    """What the plan says that a rank reads in an epoch, in the delivered order: names below `root`."""
    words = [binary(), "plan", "order", f"{text} root='{root}'", "--epoch", epoch, "--rank", rank, "--paths", "-0"]
    words = [str(word) for word in words]
    paths = subprocess.run(words, check=True, capture_output=True, timeout=60).stdout
    return [os.fsdecode(p) for p in paths.split(b"\0")[:-1]]


class JobLog:
    """What a training job did, from the log of torch_job.py."""

    def __init__(self, path):
        self.opened = {}  # {(phase, rank): [name]}, in the order of opening
        self.delivered = {}
        self.reads = []  # (phase, name, sha256)
        for line in pathlib.Path(path).read_text().splitlines():
            kind, phase, rank, *fields = line.split("\t")
            if kind == "open":
                self.opened.setdefault((phase, int(rank)), []).append(fields[0])
                self.reads.append((phase, *fields))
            else:
                self.delivered.setdefault((phase, int(rank)), []).extend(fields)

    def assert_bytes_of(self, source, train="train", val="val"):
        """Every file that was read had the bytes of the source."""
        assert self.reads
        hashes = {}
        for phase, name, digest in self.reads:
            path = pathlib.Path(source) / (train if phase.startswith("train") else val) / name
            if path not in hashes:
                hashes[path] = hashlib.sha256(path.read_bytes()).hexdigest()
            assert digest == hashes[path], path


def start_job(log, **job):
    return subprocess.Popen([*warm_python.words(), JOB, json.dumps({"log": str(log), **job}, default=str)])


@contextlib.contextmanager
def running(process):
    """Ends the process at the end of the block, if it has not ended by itself."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def run_job(log, **job):
    """Runs a training job to its end; returns its JobLog."""
    with running(start_job(log, **job)) as process:
        assert process.wait(JOB_SECONDS) == 0
    return JobLog(log)
