#!/bin/bash
# Checks that a bare Debian 12 needs nothing but the clone: makes one with debootstrap, clones the commit that is
# checked out into it and runs the commands there as root (needs root itself, and debootstrap).
#
#   tests/debootstrap-check.sh [COMMAND]...      (default: tests/run.sh examples/quickstart.sh)
#
# The mirror, and how to reach it, is taken from this machine's apt configuration.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
repo=$PWD

# In the namespaces: mounts and processes end with them, so nothing of this machine is ever removed through a bind.
in_namespaces() {
  local root=$1 command start
  shift
  mount --bind "$root" "$root"  # tests change the propagation of "/", so it must be a mount
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/dev/shm"
  for command in "$@"; do
    echo "== $command"
    start=$SECONDS
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root bash -c "cd /clairfs && $command" </dev/null ||
      { echo "== $command: failed with status $?" >&2; return 1; }
    echo "== $command: $((SECONDS - start)) s"
  done
}
if [[ ${1:-} == --in-namespaces ]]; then
  shift
  in_namespaces "$@"
  exit
fi

((EUID == 0)) || { echo "debootstrap-check.sh: must be root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "debootstrap-check.sh: apt-get install debootstrap" >&2; exit 1; }
(($#)) || set -- tests/run.sh examples/quickstart.sh

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' |
  sed -n 1p)
[[ -n $mirror ]] || { echo "debootstrap-check.sh: apt knows no mirror of bookworm (apt-get update?)" >&2; exit 1; }

root=$(mktemp -d "${TMPDIR:-/tmp}/clairfs-bare.XXXXXX")
chmod 755 "$root"  # it becomes "/", where other users must get in
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start=$SECONDS
unshare --mount debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 ||
  { tail -20 "$root.log" >&2; rm -f "$root.log"; exit 1; }
rm -f "$root.log"
echo "== debootstrap: $((SECONDS - start)) s"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
echo '127.0.0.1 localhost' >"$root/etc/hosts"  # as every installed Debian has it
apt-config dump | { grep -E '^Acquire::(http|https|Check-)' || true; } >"$root/etc/apt/apt.conf.d/01reach-mirror"
git clone -q --no-hardlinks "$repo" "$root/clairfs"

unshare --mount --propagation private --pid --fork --kill-child \
  "$repo/tests/debootstrap-check.sh" --in-namespaces "$root" "$@"
