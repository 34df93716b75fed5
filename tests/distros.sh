#!/bin/bash
# Checks that bare Debian systems need nothing but the clone: makes each with debootstrap, clones the commit that is
# checked out into it, runs the README's two commands there as root, and prints a table of what came of them. Needs root
# itself, and debootstrap. The output of each system is in build/distros/SUITE.log.
#
#   tests/distros.sh [--run COMMAND]... [SUITE]...
#
#   SUITE          bookworm (Debian 12), trixie (13) or sid; default: all three, one after the other
#   --run COMMAND  these commands instead of examples/quickstart.sh and tests/run.sh
#
# The mirror, and how to reach it, is taken from this machine's apt configuration.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
repo=$PWD

# In the namespaces: mounts and processes end with them, so nothing of this machine is ever removed through a bind.
in_namespaces() {
  local root=$1 command start status=0
  shift
  mount --bind "$root" "$root"  # tests change the propagation of "/", so it must be a mount
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/dev/shm"
  for command in "$@"; do
    echo "== $command"
    start=$SECONDS
    if chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root bash -c "cd /clairfs && $command" </dev/null; then
      echo "== $command: $((SECONDS - start)) s"
    else
      echo "== $command: failed with status $? after $((SECONDS - start)) s"
      status=1
    fi
  done
  return "$status"
}
if [[ ${1:-} == --in-namespaces ]]; then
  shift
  in_namespaces "$@"
  exit
fi

suites=()
commands=()
while (($#)); do
  case $1 in
    --run) commands+=("${2:?--run needs a command}"); shift ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "distros.sh: unknown option $1 (see tests/distros.sh --help)" >&2; exit 2 ;;
    *) suites+=("$1") ;;
  esac
  shift
done
((${#suites[@]})) || suites=(bookworm trixie sid)
((${#commands[@]})) || commands=(examples/quickstart.sh tests/run.sh)
for suite in "${suites[@]}"; do
  case $suite in
    bookworm | trixie | sid) ;;
    *) echo "distros.sh: unknown system $suite; there are bookworm, trixie and sid" >&2; exit 2 ;;
  esac
done

((EUID == 0)) || { echo "distros.sh: must be root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "distros.sh: apt-get install debootstrap" >&2; exit 1; }
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' 'Label: Debian' |
  sed -n 1p)
[[ -n $mirror ]] || { echo "distros.sh: apt knows no mirror of Debian (apt-get update?)" >&2; exit 1; }

logs=$repo/build/distros
mkdir -p "$logs"
root=
clean_up() { [[ -z $root ]] || rm -rf --one-file-system "$root"; }
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Fills $root.
make_system() {
  local suite=$1
  chmod 755 "$root" &&  # it becomes "/", where other users must get in
  unshare --mount debootstrap --variant=minbase "$suite" "$root" "$mirror" &&
  cp -L /etc/resolv.conf "$root/etc/resolv.conf" &&
  echo '127.0.0.1 localhost' >"$root/etc/hosts" &&  # as every installed Debian has it
  { apt-config dump | grep -E '^Acquire::(http|https|Check-)' || true; } >"$root/etc/apt/apt.conf.d/01reach-mirror" &&
  git clone -q --no-hardlinks "$repo" "$root/clairfs"
}

version_of() { chroot "$root" dpkg-query -W -f '${Version}' "$1" 2>/dev/null | sed 's/^[0-9]*://; s/[-+].*//'; }

row() { printf '%-9s %-7s %-8s %-7s %-24s %s\n' "$@"; }

# The row of the suite whose log and root are there.
report() {
  local suite=$1 tests quickstart
  # run.sh's last words.
  tests=$(sed -n 's/^\([0-9]* passed, [0-9]* failed\)$/\1/p' "$logs/$suite.log" | tail -n 1)
  tests=${tests:-no result}$(sed -n 's/^\([0-9]* skipped\), for the reasons.*/, \1/p' "$logs/$suite.log" | tail -n 1)
  quickstart=$(sed -n 's/^== examples\/quickstart\.sh: //p' "$logs/$suite.log" | tail -n 1)
  row "$suite" "$(version_of g++)" "$(version_of libfuse3-dev)" "$(version_of libmpich-dev)" "${quickstart:-not run}" "$tests"
}

table=()
failed=0
for suite in "${suites[@]}"; do
  echo "== $suite"
  root=$(mktemp -d "${TMPDIR:-/tmp}/clairfs-$suite.XXXXXX")
  {
    make_system "$suite" &&
      unshare --mount --propagation private --pid --fork --kill-child \
        "$repo/tests/distros.sh" --in-namespaces "$root" "${commands[@]}"
  } >"$logs/$suite.log" 2>&1 || { failed=1; echo "== $suite failed; the end of $logs/$suite.log:"; tail -n 20 "$logs/$suite.log"; }
  grep '^== ' "$logs/$suite.log" || true
  table+=("$(report "$suite")")
  clean_up
  root=
done

row system g++ libfuse MPICH quickstart tests
printf '%s\n' "${table[@]}"
exit "$failed"
