"""The training of test_slurm.py, started by srun once a rank with the mount's folder of samples.

Reads task.json beside it: {"orders": {rank: [names of an epoch, ...]}, "digests": {name: SHA-256}, "batch": N,
"hold_after": epoch or null}. The ranks meet at the end of each batch, as gradients make them do. At the end of epoch
"hold_after" they wait for the file "go". Each run has a folder run-RESTARTS, where rank R leaves "holds-R", "warned-R"
when it got SIGUSR2, and "done-R" with what it found; the first rank of each node the node's "stats-NODE.json".
"""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import sys
import time

PATIENCE = 60  # seconds of any wait

samples = pathlib.Path(sys.argv[1])
here = pathlib.Path(__file__).resolve().parent
run = here / f"run-{os.environ.get('SLURM_RESTART_COUNT', 0)}"
run.mkdir(exist_ok=True)
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
task = json.loads((here / "task.json").read_text())


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def meet(name):
    (run / f"{name}-{rank}").touch()
    wait_for(lambda: all((run / f"{name}-{other}").exists() for other in range(world)))


signal.signal(signal.SIGUSR2, lambda *_: (run / f"warned-{rank}").touch())
wrong = 0
for epoch, names in enumerate(task["orders"][str(rank)]):
    for i, name in enumerate(names):
        wrong += hashlib.sha256((samples / name).read_bytes()).hexdigest() != task["digests"][name]
        if i % task["batch"] == task["batch"] - 1:
            meet(f"batch-{epoch}-{i}")
    if task["hold_after"] == epoch:
        meet("holds")
        wait_for((here / "go").exists)
meet("read")
if os.environ["SLURM_LOCALID"] == "0":
    shutil.copyfile(samples.parent / ".clairfs/stats.json", run / f"stats-{os.environ['SLURMD_NODENAME']}.json")
meet("counted")
(run / f"done-{rank}").write_text(json.dumps({"read": sum(map(len, task["orders"][str(rank)])), "wrong": wrong}))
