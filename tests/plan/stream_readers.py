"""How loaders read a shard from front to back: generators of the bytes that they deliver, a piece at a time. As a program
it is a worker of a loader: it reads the shards that it is given, and prints a checksum of each."""

import gzip
import hashlib
import itertools
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib


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


def tarzst(path):
    """webdataset, src/webdataset/gopen.py (gopen_pipe) with the url "pipe:zstd -dc SHARD"."""
    with subprocess.Popen(["zstd", "-dcq", path], stdout=subprocess.PIPE) as job:
        with tarfile.open(fileobj=job.stdout, mode="r|") as stream:
            for member in stream:
                yield stream.extractfile(member).read()
        while job.stdout.read(1 << 16):  # what pads the archive
            pass
    assert job.returncode == 0


def tarhead(path):
    """Who has enough of a shard after some samples of it (itertools.islice)."""
    yield from itertools.islice(tar(path), 25)


def zipped(path):
    """Reads the central directory at the end first."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield archive.read(name)


def parquet(path):
    """apache/arrow, cpp/src/parquet/file_reader.cc (ParseMetaData): the last 64 KiB first, in which the footer is; then column
    by column of each row group, of which each is one read (Rowgroup::GetColumnPageReader). The footer here has the columns'
    places as text: whoever reads the file as a stream looks at no byte of it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        end = os.pread(fd, 64 << 10, max(size - (64 << 10), 0))
        (length,) = struct.unpack("<I", end[-8:-4])
        assert end[-4:] == b"PAR1"
        for place in end[-8 - length : -8].split():
            offset, count = map(int, place.split(b"+"))
            yield os.pread(fd, count, offset)
    finally:
        os.close(fd)


def jsonl(path):
    """huggingface/datasets, src/datasets/packaged_modules/json/json.py (_generate_tables): 10 MiB and the rest of a line."""
    with open(path, "rb") as file:
        while batch := file.read(10 << 20):
            yield batch + file.readline()


def jsonlgz(path):
    """A line at a time of a compressed file, as allenai/c4 is: Python's gzip."""
    with gzip.open(path, "rb") as file:
        yield from file


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


class Inflated:
    """tensorflow, core/lib/io/zlib_inputstream.cc: 256 KiB of input at a time (zlib_compression_options.h)."""

    def __init__(self, stream):
        self.stream, self.zlib, self.buffer = stream, zlib.decompressobj(31), b""

    def read(self, count):
        while len(self.buffer) < count:
            piece = self.stream.read(256 << 10)
            if not piece:
                break
            self.buffer += self.zlib.decompress(piece)
        out, self.buffer = self.buffer[:count], self.buffer[count:]
        return out


def tfrecord(path, around=lambda stream: stream):
    """tensorflow, core/lib/io/record_reader.cc (ReadRecord, ReadChecksummed), with the buffer of 256 KiB that
    core/kernels/data/tf_record_dataset_op.cc gives it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        stream = around(Buffered(fd, 256 << 10))
        while head := stream.read(12):
            (length,) = struct.unpack("<Q", head[:8])
            data = stream.read(length + 4)
            assert len(data) == length + 4, "truncated record"
            yield data[:length]
    finally:
        os.close(fd)


def tfrecordgz(path):
    return tfrecord(path, Inflated)


def in_index(path):
    """(offset, size) of each record, as DALI's tfrecord2idx writes them."""
    with open(f"{path}.idx") as file:
        return [tuple(map(int, line.split())) for line in file]


def dali(path):
    """NVIDIA/DALI, dali/operators/reader/loader/indexed_file_loader.h (ReadSample) over util/mmaped_file.cc: the file is
    mapped, and a record's pages are touched when it is decoded."""
    places = in_index(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as memory:
            for offset, size in places:
                yield memory[offset : offset + size]
    finally:
        os.close(fd)


def dalicopy(path):
    """The same with dont_use_mmap: one read a record, without a seek where they follow each other."""
    places = in_index(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        at = None
        for offset, size in places:
            if at != offset:
                os.lseek(fd, offset, os.SEEK_SET)
            piece = os.read(fd, size)
            assert len(piece) == size
            at = offset + size
            yield piece
    finally:
        os.close(fd)


def dalitar(path):
    """NVIDIA/DALI, dali/operators/reader/loader/webdataset_loader.cc (ReadSample) with dont_use_mmap: a seek and a read
    for each component that wds2idx found. open_all() has opened the shard before."""
    with open(f"{path}.idx") as file:
        assert next(file).startswith("v1.2 ")
        components = [line.split() for line in file]
    fd = os.open(path, os.O_RDONLY)
    try:
        for component in components:
            for offset, size in zip(component[1::4], component[2::4]):
                os.lseek(fd, int(offset), os.SEEK_SET)
                yield os.read(fd, int(size))
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


def open_all(paths):
    """webdataset_loader.cc (PrepareMetadataImpl) opens all shards before it reads any."""
    return [os.open(path, os.O_RDONLY) for path in paths]


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
    if read == "dalitar":
        open_all(paths)
    for path in paths:
        print(path, digest(read, path), flush=True)


if __name__ == "__main__":
    main()
