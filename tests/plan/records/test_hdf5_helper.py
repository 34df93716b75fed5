"""The process that libhdf5 reads a foreign file in: what it is kept from, and what is said where it cannot work."""

import os
import pathlib
import re
import socket
import struct
import subprocess

import pytest
from clairmount import binary
from planning import running

h5py = pytest.importorskip("h5py")

PATIENCE = 60
READ = struct.Struct("<IIQQ")  # plan/formats/hdf5/protocol.h: FrameHead, ReadRequest


def helper():
    folder = pathlib.Path(binary()).resolve().parent
    places = [folder / "clairfs-hdf5-index", folder.parent / "libexec/clairfs/clairfs-hdf5-index"]
    return next(place for place in places if place.exists())


def write(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (100, 50), "u1", chunks=(1, 50))[:] = 1


def test_has_no_rights_before_it_sees_a_byte_of_the_file(tmp):
    write(tmp / "a.h5")
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    size = (tmp / "a.h5").stat().st_size
    with ours, theirs, running(subprocess.Popen([helper(), str(size), "x"], stdin=theirs)) as process:
        theirs.close()
        with ours.makefile("rb") as asked:
            _, length, offset, wanted = READ.unpack(asked.read(READ.size))
        assert length == 16 and offset < size and wanted > 0
        proc = pathlib.Path("/proc", str(process.pid))
        status = (proc / "status").read_text()
        limits = (proc / "limits").read_text()
        files = sorted(os.readlink(link).split(":")[0] for link in (proc / "fd").iterdir())
    assert re.search(r"^Seccomp:\s+2$", status, re.M), status
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M), status
    assert re.search(r"^Max data size +1073741824 +1073741824 ", limits, re.M), limits
    assert re.search(r"^Max cpu time +300 +300 ", limits, re.M), limits
    assert re.search(r"^Max core file size +0 +0 ", limits, re.M), limits
    assert not [name for name in files if name.startswith(str(tmp))], files  # not even the file itself


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hides files from a process")
def test_without_libhdf5_it_says_so(tmp):
    write(tmp / "a.h5")
    hidden = "for f in $(ldconfig -p | sed -n 's/.*=> \\(.*libhdf5.*\\)/\\1/p'); do mount --bind /dev/null $f || exit 9; done"
    plan = f"shuffle=false format=hdf5 root='{tmp}' file=a.h5 dataset=x"
    words = ["unshare", "--mount", "sh", "-c", f"{hidden}; exec \"$0\" plan order \"$1\"", binary(), plan]
    done = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False, text=True)
    assert done.returncode == 1, done
    assert "a.h5" in done.stderr and "cannot be read without libhdf5, which is not there; install it" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert subprocess.run([binary(), "plan", "order", plan], capture_output=True, timeout=PATIENCE, check=False).returncode == 0
