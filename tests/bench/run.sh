#!/bin/bash
# Installs what is missing (Debian), builds the release preset, runs the benchmarks, and writes a report: REPORT.md,
# report.json and charts. Tables are printed as they come. A figure that misses its target is marked and does not change
# the exit status, since a busy machine is no error; a benchmark that breaks down does, after the others have run.
#
#   tests/bench/run.sh [--quick | --full] [--rounds N] [--only SECTION]... [--out DIR] [--before REPORT_JSON]
#
#   --full        5 rounds: about 5 hours on two cores (the default), 3 rounds about 200 minutes
#   --quick       smaller datasets and 2 or 3 rounds: about 40 minutes
#   --rounds N    measure everything N times
#   --only a      this section only (a to e, see README.md); may be given several times. The report has the sections
#                 that DIR holds already, too
#   --out DIR     where the report goes (default: build/bench-report)
#   --before FILE show the figures of an earlier report.json beside the new ones, where both are quick or both full
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec </dev/null
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1

options=()
before=()
only=
out=build/bench-report
while (($#)); do
  case $1 in
    --quick) options+=(--quick) ;;
    --full) ;;
    --rounds) options+=(--rounds "${2:?--rounds needs a number}"); shift ;;
    --only) [[ ${2:?--only needs a section} == [a-e] ]] || { echo "run.sh: no section $2: a to e" >&2; exit 2; }
            only+=$2; shift ;;
    --out) out=${2:?--out needs a directory}; shift ;;
    --before) before=(--before "$(realpath "${2:?--before needs a report.json}")"); shift ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option $1 (see tests/bench/run.sh --help)" >&2; exit 2 ;;
  esac
  shift
done

# The first letter is the section; the names' order is that of the report.
parts=(
  "a1-frontend  frontend.py"
  "a2-rivals    rivals.py"
  "a3-push      plan.py --only push"
  "a4-large     large_file.py"
  "a5-metadata  metadata.py"
  "b1-epochs    epochs.py"
  "b2-bytes     plan.py --only bytes"
  "b3-streams   streams.py"
  "b4-packed    packed.py"
  "b5-copies    copies.py"
  "c1-peers     peers.py"
  "c2-model     model.py"
  "c3-shortjob  shortjob.py"
  "d1-torch     torch_epochs.py"
  "e1-cost      cost.py"
  "e2-memory    plan.py --only memory"
  "e3-engine    engine.py"
  "e4-watching  watching.py"
  "e5-finding   finding.py"
)

tests/install-deps.sh build
tests/install-deps.sh bench || echo "run.sh: not everything could be installed: what needs it is left out" >&2
[[ -c /dev/fuse ]] || { echo "run.sh: no /dev/fuse: load the module (modprobe fuse), or give the container the device" >&2; exit 1; }

cmake --preset release
cmake --build --preset release -j"$(nproc)" -t clairfs clairfs-slowfs bench_reader mpi_init
# Without libbenchmark-dev these are not there; what needs them says so.
cmake --build --preset release -j"$(nproc)" -t plan_bench growth_bench catalog_bench cache_bench transport_bench sampler_bench ||
  echo "run.sh: the programs that measure parts were not built: no figures of planning, catalog, cache, transport or orders by themselves" >&2

export CLAIRFS_BUILD_DIR=$PWD/build/release
mkdir -p "$out/data"
broken=0
for part in "${parts[@]}"; do
  read -r -a words <<<"$part"
  name=${words[0]}
  [[ -z $only || $only == *"${name:0:1}"* ]] || continue
  printf '\n== %s\n' "$name"
  rm -f "$out/data/$name".*
  status=0
  /usr/bin/python3 "tests/bench/${words[1]}" "${words[@]:2}" "${options[@]}" --json "$out/data/$name.json" || status=$?
  ((status < 128)) || exit "$status"  # interrupted: nothing more is wanted
  ((status == 0)) || { echo "exit status $status of ${words[*]:1}" | tee "$out/data/$name.failed" >&2; broken=1; }
done

/usr/bin/python3 tests/bench/report.py "$out" "${before[@]}"
exit "$broken"
