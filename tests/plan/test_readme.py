"""The first commands of the top README, typed as they are printed there: from the mount to a training with a plan."""

import os
import re
import subprocess

import pytest
from clairmount import REPO, binary
from planning import JOB, JOB_SECONDS, make_images

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="only root makes /pfs and /mnt/data out of nothing")]

SAMPLES = 2112  # an epoch of a rank is longer than what its workers have in flight: 4 * 2 * 32

# The machine of the README: this one, with a dataset at /pfs/imagenet and an empty folder /mnt/data.
MACHINE = """
set -e
root=$1 dataset=$2 here=$3
mount --bind "$root" "$root"
for path in /*; do
  case $path in /mnt|/pfs) continue;; esac
  if [ -L "$path" ]; then cp -P "$path" "$root$path"
  elif [ -d "$path" ]; then mkdir "$root$path" && mount --rbind "$path" "$root$path"; fi
done
mkdir -p "$root/pfs/imagenet" "$root/mnt/data"
mount --bind "$dataset" "$root/pfs/imagenet"
exec chroot "$root" bash -c "cd '$here' && trap 'clairfs umount /mnt/data 2>/dev/null || true' EXIT && . ./typed"
"""

# What the README leaves to the reader: a script that trains with DistributedSampler(..., seed=42), 8 ranks on this node.
TRAIN = """
import json, os, sys
job = {"train": sys.argv[1], "log": "train.log", "seed": 42, "ranks": 8, "batch": 32, "workers": 4, "epochs": 1}
os.execv(sys.executable, [sys.executable, %r, json.dumps(job)])
"""


def printed_commands():
    introduction = (REPO / "README.md").read_text().split("\n## ")[0]
    return re.findall(r"^    (.+)$", introduction, re.M)


def test_the_first_commands_train_under_a_plan(tmp):
    commands = printed_commands()
    assert [command.split()[:2] for command in commands] == [
        ["clairfs", "mount"], ["clairfs", "plan"], ["python3", "train.py"], ["clairfs", "status"], ["clairfs", "umount"]
    ]
    make_images(tmp / "dataset/train", SAMPLES, 20)
    for name in ("root", "bin", "here"):
        (tmp / name).mkdir()
    (tmp / "bin/clairfs").symlink_to(binary())
    (tmp / "here/train.py").write_text(TRAIN % str(JOB))
    # Beside what is printed: each command must succeed, and before the last one the plan is compared with what was read.
    typed = ["set -e", *commands[:-1], "clairfs plan check /mnt/data >checked", commands[-1]]
    (tmp / "here/typed").write_text("\n".join(typed) + "\n")
    environment = {"PATH": f"{tmp}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "CLAIRFS_CATALOG_DIR": str(tmp / "catalog")}
    words = ["unshare", "-m", "--propagation", "private", "bash", "-c", MACHINE, "machine", tmp / "root", tmp / "dataset", tmp / "here"]
    typed = subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True, timeout=JOB_SECONDS, check=False)
    checked = tmp / "here/checked"
    assert typed.returncode == 0, typed.stdout + typed.stderr + (checked.read_text() if checked.exists() else "")
    assert "Troubles\n  none" in typed.stdout, typed.stdout
    assert checked.read_text().startswith("pass"), checked.read_text()
    opened = [line for line in (tmp / "here/train.log").read_text().splitlines() if line.startswith("open")]
    assert len(opened) == SAMPLES
