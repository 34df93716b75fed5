"""Four nodes on a GlusterFS volume, for test_gluster.py: prints what the volume's own profile counted, as JSON.

Runs in namespaces of its own (see tests/support/python/gluster.py). Argument: nodes.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support/python")]

import clairmount  # noqa: E402
import gluster  # noqa: E402
from clairjob import clairjob  # noqa: E402
from training import Dataset, Readers, register_on_all  # noqa: E402


def main():
    nodes, epochs = int(sys.argv[1]), 3
    with clairmount.tempdir() as tmp, gluster.volume(tmp) as volume:
        data = Dataset(volume.path / "data", count=200, size=110_000)
        volume.remount()
        with clairjob(data.root, nodes, "--ram", data.padded * 5 // 4 // nodes, "--staging", "4M") as job:
            volume.profile()
            register_on_all(job, 0, epochs)
            Readers(data, job, epochs).start().finish()
            counts = volume.profile()
            print(json.dumps({"counts": counts, "size": data.size, "files": 200, "failed": job.stat("reads.failed"), "asked": job.stat("pfs.bytes")}))


if __name__ == "__main__":
    main()
