#!/bin/bash
# Installs what is missing (Debian 12), builds the release preset, and runs the benchmarks of the mount: the read
# path without a plan (frontend.py), and what a plan is worth (plan.py). Prints tables; a figure that misses its
# target is marked and does not change the exit status, since a busy machine is no error.
#
#   tests/bench/run.sh [--quick] [--rounds N] [--json DIR]
#
#   --quick     smaller datasets and fewer rounds: minutes instead of about half an hour
#   --rounds N  measure everything N times
#   --json DIR  also write DIR/frontend.json and DIR/plan.json
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec </dev/null
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1

options=()
json=
while (($#)); do
  case $1 in
    --quick) options+=(--quick) ;;
    --rounds) options+=(--rounds "${2:?--rounds needs a number}"); shift ;;
    --json) json=${2:?--json needs a directory}; shift ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option $1 (see tests/bench/run.sh --help)" >&2; exit 2 ;;
  esac
  shift
done

tests/install-deps.sh build test bench
[[ -c /dev/fuse ]] || { echo "run.sh: no /dev/fuse: load the module (modprobe fuse), or give the container the device" >&2; exit 1; }

cmake --preset release
cmake --build --preset release -j"$(nproc)" -t clairfs clairfs-slowfs bench_reader plan_bench

export CLAIRFS_BUILD_DIR=$PWD/build/release
[[ -z $json ]] || mkdir -p "$json"
for part in frontend plan; do
  /usr/bin/python3 "tests/bench/$part.py" "${options[@]}" ${json:+--json "$json/$part.json"}
done
