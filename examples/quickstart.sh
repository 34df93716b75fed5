#!/bin/bash
# From a fresh clone to a training run on a real dataset, in one command: installs what is missing (Debian, root or
# sudo), builds, mounts Debian's clip-art collection (8,121 PNG images in 22 class folders), compares every file with
# the source by checksum, and then trains a small CNN on it twice, on an emulated slow parallel filesystem: without a plan,
# which takes --infer off, and with the script's shuffle registered as one. Shows both side by side, and unmounts.
#
#   examples/quickstart.sh [EPOCHS]      (default: 2)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1

epochs=${1:-2}
dataset=/usr/share/openclipart/png
clairfs=$PWD/build/release/clairfs
slowfs=$PWD/build/release/tests/support/slowfs/clairfs-slowfs

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }

step "Installing what is missing"
tests/install-deps.sh build quickstart

step "Building"
cmake --preset release >/dev/null
cmake --build --preset release -t clairfs -t clairfs-slowfs -j"$(nproc)"

tmp=$(mktemp -d "${TMPDIR:-/tmp}/clairfs-quickstart.XXXXXX")
mnt=$tmp/dataset
pfs=$tmp/pfs
mkdir -m 700 "$mnt" "$pfs" "$tmp/nvme" "$tmp/catalog"
slowfs_pid=

mounted() { grep -qF " $1 " /proc/self/mountinfo; }

clean_up() {
  if mounted "$mnt"; then
    "$clairfs" umount "$mnt" || fusermount3 -u -z "$mnt" || true
  fi
  if [[ -n $slowfs_pid ]]; then
    kill "$slowfs_pid" 2>/dev/null || true
    wait "$slowfs_pid" || true
  fi
  rm -rf --one-file-system "$tmp"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step "Mounting $dataset"
# A RAM tier smaller than the dataset, so that both tiers have something to do.
"$clairfs" mount "$dataset" "$mnt" --ram 96M --nvme "$tmp/nvme:512M" --catalog-dir "$tmp/catalog"

# Names and checksums of all images, links followed as the training follows them.
checksums() { (cd "$1" && find . -name '*.png' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum); }

compare() {
  local start=$EPOCHREALTIME
  checksums "$mnt" >"$tmp/mount.sha256"
  local end=$EPOCHREALTIME
  checksums "$dataset" >"$tmp/source.sha256"
  cmp "$tmp/source.sha256" "$tmp/mount.sha256"
  awk -v n="$(wc -l <"$tmp/mount.sha256")" -v t0="$start" -v t1="$end" \
    'BEGIN { printf "all checksums agree: %d samples in %.2f s\n", n, t1 - t0 }'
}

dataset_bytes=$(find -L "$dataset" -name '*.png' -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
report() { /usr/bin/python3 examples/quickstart_report.py "$@"; }

step "Comparing every file"
compare | report "$mnt" "$dataset_bytes"
"$clairfs" umount "$mnt"

# 3 ms an open and 3 ms a read, 200 MB/s for all together: a busy parallel filesystem.
step "Emulating a slow parallel filesystem over $dataset"
"$slowfs" "$dataset" "$pfs" --open-latency 3000 --read-latency 3000 --bandwidth 200M &
slowfs_pid=$!
for ((i = 0; i < 100; i++)); do
  mounted "$pfs" && break
  sleep 0.1
done

# run NAME [PLAN]: trains on a fresh, cold mount of the slow filesystem. Where no plan is given none shall be found, either.
run() {
  local name=$1 plan=${2:-} infer=()
  step "Training for $epochs epochs, $name"
  if [[ -z $plan ]]; then
    infer=(--infer off)
    echo "Mounted with --infer off: clairfs would soon find this script's order by itself, and follow it."
  fi
  "$clairfs" mount "$pfs" "$mnt" --ram 96M --catalog-dir "$tmp/catalog" "${infer[@]}"
  if [[ -n $plan ]]; then
    echo "echo '$plan' > $mnt/.clairfs/plan"
    echo "$plan" > "$mnt/.clairfs/plan"
  fi
  /usr/bin/python3 examples/quickstart_train.py "$mnt" --epochs "$epochs" --seed 42 --workers 2 --batch-size 64 |
    report "$mnt" "$dataset_bytes" --save "$tmp/$name.json"
  [[ -z $plan ]] || cat "$mnt/.clairfs/plan"
  "$clairfs" umount "$mnt"
}

run "without a plan"
# What the script does anyway: DataLoader(shuffle=True, generator=torch.Generator().manual_seed(42), ...).
run "with a plan" "format=imagefolder sampler=torch.random seed=42 epochs=$epochs batch=64 workers=2"

step "Side by side"
/usr/bin/python3 examples/quickstart_report.py --compare "$tmp/without a plan.json" "$tmp/with a plan.json"
echo "Done: nothing is left mounted, running or on disk but build/release."
