#!/bin/bash
# Installs what is missing (Debian), builds, and runs every test. Ends with the line "N passed, N failed"; the exit
# status is 0 only if nothing failed, something ran, and no test left a mount, a process or a network behind.
#
#   tests/run.sh [--fast] [--asan | --tsan] [--label X] [--again]
#
#   --fast      leaves out the tests marked slow
#   --again     runs once more, alone, what has failed if it is little; what passes then is named, and does not fail
#   --asan      with AddressSanitizer and UBSan        --tsan   with ThreadSanitizer
#   --label X   only the tests with label X: "unit", or the name of a folder (cache, net, mount, plan, slowfs, ...)
#
# Where clang and its libFuzzer are (tests/install-deps.sh fuzz), the fuzz targets get some thousand inputs each, unless
# an option above leaves them out; --label fuzz runs nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
export LC_ALL=C.UTF-8

preset=dev
fuzz=true
again=false
most_again=20  # more than these failures are no bad luck; one may bring down those that share its cluster
ctest_select=()
pytest_select=()
while (($#)); do
  case $1 in
    --fast) fuzz=false; ctest_select+=(-LE slow) pytest_select+=("not slow") ;;
    --asan) fuzz=false; preset=asan ;;
    --tsan) fuzz=false; preset=tsan ;;
    --again) again=true ;;
    --label) [[ ${2:-} == fuzz ]] || fuzz=false; ctest_select+=(-L "(^|[.])${2:?--label needs a name}([.]|\$)") pytest_select+=("$2"); shift ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option $1 (see tests/run.sh --help)" >&2; exit 2 ;;
  esac
  shift
done
marks=${pytest_select[*]/#/and }

tests/install-deps.sh build test
[[ -c /dev/fuse ]] || { echo "run.sh: no /dev/fuse: load the module (modprobe fuse), or give the container the device" >&2; exit 1; }

cmake --preset "$preset" ${CI:+-DCLAIRFS_WERROR=ON}
cmake --build --preset "$preset" -j"$(nproc)"

# All that the tests make is below $run, and all that they start has CLAIRFS_TEST_RUN in its environment.
run=$(mktemp -d "${TMPDIR:-/tmp}/clairfs-run.XXXXXX")
chmod 755 "$run"  # some tests read as another user

mounts_left() {
  local point
  while read -r _ _ _ _ point _; do
    [[ $point == "$run"/* ]] && printf '%b\n' "$point"
  done </proc/self/mountinfo
  return 0
}

processes_left() {
  local environ
  for environ in $(grep -lsFz "CLAIRFS_TEST_RUN=$run" /proc/[0-9]*/environ); do
    environ=${environ#/proc/}
    echo "${environ%/environ}"
  done
}

# Their names have the pid of the netns_mpiexec.sh that has made them.
networks_left() {
  local network pid
  for network in /run/netns/clairfs-*; do
    pid=${network#*clairfs-}
    [[ ! -e $network || -e /proc/${pid%-*} ]] || echo "${network##*/}"
  done
}

clean_up() {
  local pid point network
  for pid in $(processes_left); do kill -KILL "$pid" 2>/dev/null || true; done
  mounts_left | sort -r | while read -r point; do
    umount -l "$point" 2>/dev/null || fusermount3 -u -z "$point" || true
  done
  networks_left | while read -r network; do ip netns delete "$network" || true; done
  rm -rf --one-file-system "$run"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# MPI brings UCX, whose hooks into mmap and madvise ThreadSanitizer does not survive; TCP needs none.
environment=(env UCX_MEM_EVENTS=n "CLAIRFS_TEST_RUN=$run" "TMPDIR=$run" "CLAIRFS_BUILD_DIR=$PWD/build/$preset"
             PYTHONDONTWRITEBYTECODE=1 "LSAN_OPTIONS=suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0")

# The fuzz targets are built while tests wait. The processor is theirs only when nothing else wants it. A nice value
# counts within a session only where the kernel makes a group of each (sched_autogroup), and mounts have sessions of
# their own: so the build gets one too, and its group the lowest share.
fuzz_build=
if $fuzz && [[ -e $(clang++ -print-resource-dir 2>/dev/null)/lib/linux/libclang_rt.fuzzer-$(uname -m).a ]]; then
  idly() {
    "${environment[@]}" setsid -w nice -n 19 bash -c 'echo 19 2>/dev/null >/proc/self/autogroup; exec "$@"' idly "$@"
  }
  { idly cmake --preset fuzz ${CI:+-DCLAIRFS_WERROR=ON} && idly cmake --build --preset fuzz -j"$(nproc)"
  } >"$run/fuzz-build.log" 2>&1 &
  fuzz_build=$!
fi

# Their own statuses are not needed: the totals below come from what they report of each test.
reports=("$run/ctest.xml,$run/ctest-again.xml" "$run/pytest.xml,$run/pytest-again.xml"
         "$run/pytest-alone.xml,$run/pytest-again.xml")
totals() { /usr/bin/python3 tests/support/python/totals.py "$@"; }
run_ctest() { "${environment[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=ignore "$@"; }
run_pytest() { "${environment[@]}" /usr/bin/python3 -m pytest -o "cache_dir=$run/pytest-cache" --durations 20 "$@"; }
# Half of them wait for something, so twice as many run as there are processors.
run_ctest -j$((2 * $(nproc))) --output-junit "$run/ctest.xml" "${ctest_select[@]}" || true
# Two files at a time, for most tests wait more than they compute; then those that do not go with others.
run_pytest tests -n 2 --dist loadfile --junitxml "$run/pytest.xml" -m "not alone $marks" || true
# Only their files are collected: others import PyTorch when they are.
mapfile -t with_alone < <(grep -rl --include='test_*.py' 'pytest\.mark\.alone' tests)
run_pytest "${with_alone[@]}" --junitxml "$run/pytest-alone.xml" -m "alone $marks" || true
few_failed() { read -r _ failed _ <<<"$(totals "$@")" && ((failed > 0 && failed <= most_again)); }
if $again && few_failed "${reports[@]}"; then
  ! few_failed "${reports[0]}" || run_ctest --rerun-failed --output-junit "$run/ctest-again.xml" || true
  run_pytest tests --last-failed --last-failed-no-failures=none --junitxml "$run/pytest-again.xml" || true
fi

if [[ -n $fuzz_build ]]; then
  reports+=("$run/fuzz.xml")
  wait "$fuzz_build" && built=true || built=false
  cat "$run/fuzz-build.log"
  ! $built || "${environment[@]}" ctest --test-dir build/fuzz -j"$(nproc)" --output-on-failure --output-junit "$run/fuzz.xml" || true
elif $fuzz; then
  echo "fuzz targets and clang's -Wthread-safety are left out: there is no clang with libFuzzer (tests/install-deps.sh fuzz)"
fi

# A daemon may still be on its way out.
for ((i = 0; i < 50; i++)); do
  left=$(mounts_left; processes_left; networks_left)
  [[ -n $left ]] || break
  sleep 0.1
done
read -r passed failed skipped <<<"$(totals "${reports[@]}")"
if [[ -n $left ]]; then
  echo "FAILED: left behind by the tests:"
  mounts_left | sed 's/^/  mount /'
  networks_left | sed 's/^/  network /'
  for pid in $(processes_left); do echo "  process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"; done
  failed=$((failed + 1))
fi
((passed + failed > 0)) || echo "FAILED: no test was selected"
((skipped == 0)) || echo "$skipped skipped, for the reasons given above"
echo "$passed passed, $failed failed"
((passed > 0 && failed == 0))
