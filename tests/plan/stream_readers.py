"""How loaders read a shard from front to back: generators of the bytes that they deliver, a piece at a time. As a program
it is a worker of a loader: it reads the shards that it is given, and prints a checksum of each."""

import hashlib
import itertools
import mmap
import os
import random
import shutil
import struct
import sys
import tarfile
import tempfile
import zipfile


def tar(path):
    """webdataset, src/webdataset/gopen.py (gopen_file) and tariterators.py (tar_file_iterator)."""
    with open(path, "rb") as file:
        stream = tarfile.open(fileobj=file, mode="r|*")
        for member in stream:
            yield stream.extractfile(member).read()
            stream.members = []


def targz(path):
    with tarfile.open(path, mode="r|gz") as stream:
        for member in stream:
            yield stream.extractfile(member).read()


def tarhead(path):
    """Who has enough of a shard after some samples of it (itertools.islice)."""
    yield from itertools.islice(tar(path), 25)


def zipped(path):
    """Reads the central directory at the end first."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield archive.read(name)


class Buffered:
    """tensorflow, core/lib/io/buffered_inputstream.cc over random_inputstream.cc: a read of the whole buffer when it is
    empty."""

    def __init__(self, fd, size):
        self.fd, self.size, self.at, self.buffer = fd, size, 0, b""

    def read(self, count):
        while len(self.buffer) < count:
            piece = os.pread(self.fd, self.size, self.at)
            if not piece:
                break
            self.at += len(piece)
            self.buffer += piece
        out, self.buffer = self.buffer[:count], self.buffer[count:]
        return out


def tfrecord(path):
    """tensorflow, core/lib/io/record_reader.cc (ReadRecord, ReadChecksummed), with the buffer of 256 KiB that
    core/kernels/data/tf_record_dataset_op.cc gives it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        stream = Buffered(fd, 256 << 10)
        while head := stream.read(12):
            (length,) = struct.unpack("<Q", head[:8])
            data = stream.read(length + 4)
            assert len(data) == length + 4, "truncated record"
            yield data[:length]
    finally:
        os.close(fd)


def buffered(path):
    with open(path, "rb") as file:
        while piece := file.read(10_240):
            yield piece


def pread(path, size=100_000):
    fd = os.open(path, os.O_RDONLY)
    try:
        at = 0
        while piece := os.pread(fd, size, at):
            at += len(piece)
            yield piece
    finally:
        os.close(fd)


def large(path):
    return pread(path, 16 << 20)


def mapped(path):
    if os.stat(path).st_size == 0:
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as memory:
            for at in range(0, len(memory), 100_000):
                yield memory[at : at + 100_000]
    finally:
        os.close(fd)


def again(path):
    """Reads a part and then all of it."""
    with open(path, "rb") as file:
        file.read(file.seek(0, os.SEEK_END) // 2)
        file.seek(0)
        yield file.read(300_000)
        file.seek(0)
        while piece := file.read(100_000):
            yield piece


def copy(path):
    """mosaicml/streaming, streaming/base/storage/download.py (download_from_local); the copy is read then."""
    with tempfile.TemporaryDirectory() as local:
        name = os.path.join(local, "shard")
        shutil.copy(path, name + ".tmp")
        os.rename(name + ".tmp", name)
        yield from buffered(name)


READERS = {name: value for name, value in list(globals().items()) if callable(value) and getattr(value, "__module__", None) == __name__}


def digest(read, path):
    hashed = hashlib.sha256()
    for piece in READERS[read](path):
        hashed.update(piece)
    return hashed.hexdigest()


def shuffled(shards, seed, size):
    """webdataset, src/webdataset/filters.py (_shuffle, pick), over a buffer of `size` shards."""
    rng, shards, buffer = random.Random(seed), iter(shards), []

    def pick():
        k = rng.randint(0, len(buffer) - 1)
        buffer[k], buffer[-1] = buffer[-1], buffer[k]
        return buffer.pop()

    for shard in shards:
        buffer.append(shard)
        if len(buffer) < size:
            buffer.extend(itertools.islice(shards, 1))
        if len(buffer) >= min(100, size):
            yield pick()
    while buffer:
        yield pick()


def main():
    read, *paths = sys.argv[1:]
    for path in paths:
        print(path, digest(read, path), flush=True)


if __name__ == "__main__":
    main()
