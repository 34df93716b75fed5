"""Faults inside the daemon's process, by tests/support/fault_preload.cc."""

import mmap
import re
import struct
import subprocess

import pytest
from clairmount import binary, build_dir

FIELDS = ("read_errno", "write_errno", "index_errno", "clock_seconds", "hits", "node", "wrong_bulk", "wrong_message", "write_hang",
          "die_unmounting", "read_hang")  # fmt: skip


def sanitizers():
    """The runtime libraries that want to be loaded before any other."""
    loaded = subprocess.run(["ldd", binary()], check=True, capture_output=True, text=True).stdout
    return re.findall(r"=> (\S+/lib[at]san\S+)", loaded)


class Faults:
    """Shared with the daemon: faults.write_errno = errno.EIO takes effect at once."""

    def __init__(self, folder):
        path = folder / "faults"
        path.write_bytes(bytes(8 * len(FIELDS)))
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), 8 * len(FIELDS))
        object.__setattr__(self, "memory", memory)
        libraries = [*sanitizers(), build_dir() / "tests/libfault_preload.so"]
        object.__setattr__(self, "env", {"LD_PRELOAD": ":".join(map(str, libraries)), "CLAIRFS_FAULTS": str(path)})

    def __getattr__(self, field):
        return struct.unpack_from("=q", self.memory, 8 * FIELDS.index(field))[0]

    def __setattr__(self, field, value):
        struct.pack_into("=q", self.memory, 8 * FIELDS.index(field), value)


@pytest.fixture
def faults(tmp):
    return Faults(tmp)
