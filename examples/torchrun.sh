#!/bin/bash
# A training job under torchrun, fed by one clairfs a node, without mpiexec, srun or ssh. Run it on each node:
#
#   torchrun.sh NODE_RANK NODES MASTER        MASTER: the host of node 0, as the others reach it
#
# The secret is the same on all nodes: head -c 32 /dev/urandom | base64 > ~/.clairfs-secret
set -euo pipefail
rank=$1 nodes=$2 master=$3

data=${DATA:-/pfs/imagenet}
user=${USER:-$UID}  # containers seldom set USER
mount=${MOUNT:-/tmp/$user-clairfs}
nvme=${NVME:-/local/$user-clairfs}
gpus=8

mkdir -p "$mount" || true  # it fails on what a killed run has left mounted; clairfs says how to clear that
# Whoever owns a directory in /tmp can put another one there while this trains.
somebody_elses() { [[ -L $1 ]] || { [[ -d $1 && ! -O $1 ]] && ! mountpoint -q "$1"; }; }
if [[ -z ${MOUNT:-} ]] && somebody_elses "$mount"; then
  echo "$mount is a link or somebody else's: set MOUNT to an empty directory of your own" >&2
  exit 1
fi
# Any free port of node 0 but torch's own (29500). Returns when all nodes have come and the mount is usable.
clairfs mount "$data" "$mount" --nvme "$nvme" \
  --job "$master:5200" --rank "$rank" --nodes "$nodes" --job-secret ~/.clairfs-secret
trap 'clairfs umount "$mount"; rmdir "$mount"' EXIT  # not before: the mount of another job may be there
if ((rank == 0)); then
  clairfs plan "$mount" format=imagefolder root=train sampler=torch.distributed seed=0 epochs=90 \
    world=$((gpus * nodes)) ranks_per_node=$gpus batch=32 workers=4
fi
torchrun --nnodes "$nodes" --node-rank "$rank" --nproc-per-node "$gpus" --master-addr "$master" train.py "$mount/train"
