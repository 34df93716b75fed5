#!/bin/bash
# From a fresh clone to a training run on a real dataset, in one command: installs what is missing (Debian 12, root or
# sudo), builds, mounts Debian's clip-art collection (8,121 PNG images in 22 class folders), compares every file with
# the source by checksum, trains a small CNN on it for a few epochs, shows what the cache did, and unmounts.
#
#   examples/quickstart.sh [EPOCHS]      (default: 3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1

epochs=${1:-3}
dataset=/usr/share/openclipart/png
clairfs=$PWD/build/release/clairfs

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }

step "Installing what is missing"
tests/install-deps.sh build quickstart

step "Building"
cmake --preset release >/dev/null
cmake --build --preset release -t clairfs -j"$(nproc)"

tmp=$(mktemp -d "${TMPDIR:-/tmp}/clairfs-quickstart.XXXXXX")
mnt=$tmp/dataset
mkdir -m 700 "$mnt" "$tmp/nvme" "$tmp/catalog"

clean_up() {
  if grep -qF " $mnt " /proc/self/mountinfo; then
    "$clairfs" umount "$mnt" || fusermount3 -u -z "$mnt" || true
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

# The checksums have filled the page cache, which would then answer everything. Dropped, the tiers show.
drop_page_cache() {
  /usr/bin/python3 - "$mnt" <<'PYTHON'
import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        fd = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
PYTHON
}

dataset_bytes=$(find -L "$dataset" -name '*.png' -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
step "Comparing every file, then training for $epochs epochs on $mnt"
{
  compare
  drop_page_cache
  /usr/bin/python3 examples/quickstart_train.py "$mnt" --epochs "$epochs"
} | /usr/bin/python3 examples/quickstart_report.py "$mnt" "$dataset_bytes"

step "clairfs status"
"$clairfs" status "$mnt"

step "Unmounting"
"$clairfs" umount "$mnt"
echo "Done: nothing is left mounted, running or on disk but build/release."
