#!/bin/bash
# Installs the Debian packages (12, 13, sid) that clairfs needs and that are missing. Asks nothing; does nothing, and needs
# no network, when all are there.
#
#   tests/install-deps.sh [build|package|test|bench|quickstart|fuzz]...      (default: build test)
set -euo pipefail

declare -A groups=(
  # libmpich-dev brings mpich and mpiexec; fuse3 has fusermount3.
  [build]="cmake ninja-build g++ pkg-config libfuse3-dev fuse3 liburing-dev libxxhash-dev libmpich-dev
           libcli11-dev libspdlog-dev nlohmann-json3-dev catch2"
  # CPack asks dpkg-shlibdeps which packages the program needs, and file which files are programs.
  [package]="dpkg-dev file"
  # tcl reads the environment-module file; attr has setfattr; zstd packs shards; bindfs is what the benchmarks compare with; slurmctld and what follows are a
  # Slurm; the last line is for the package, the manuals and the completions.
  [test]="python3 python3-pytest python3-pytest-timeout python3-pytest-xdist python3-yaml
          python3-numpy python3-lmdb python3-h5py python3-torch python3-torchvision openclipart-png attr zstd bindfs glusterfs-server glusterfs-client iproute2
          openssh-client openssh-server
          slurmctld slurmd slurm-client munge
          dpkg-dev file lintian groff-base tcl zsh fish"
  [bench]="python3 python3-torch python3-torchvision openclipart-png bindfs mergerfs rclone libbenchmark-dev mount e2fsprogs"
  # 55 MB to download: not needed to build or to test.
  [fuzz]="clang libclang-rt-dev"
  [quickstart]="python3 python3-torch python3-torchvision openclipart-png attr"
)

wanted=()
for group in "${@:-build test}"; do
  for name in $group; do
    [[ -v groups[$name] ]] || { echo "install-deps.sh: no group '$name'; groups: ${!groups[*]}" >&2; exit 2; }
    # shellcheck disable=SC2206  # a list of words
    wanted+=(${groups[$name]})
  done
done

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }
missing=()
for package in "${wanted[@]}"; do
  installed "$package" || [[ " ${missing[*]} " == *" $package "* ]] || missing+=("$package")
done
((${#missing[@]})) || [[ ! -e /etc/mtab ]] || exit 0

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "install-deps.sh: packages are missing; install them as root, then run this again:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo -n)
fi
as_root+=(env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8)

# fusermount3 needs it to unmount; the installer of a system makes it, a bare debootstrap does not.
[[ -e /etc/mtab ]] || "${as_root[@]}" ln -s ../proc/self/mounts /etc/mtab
((${#missing[@]})) || exit 0

echo "Installing ${#missing[@]} missing packages: ${missing[*]}"
# A fresh machine's mirror may be busy or still booting: three tries each. Another apt may hold the lock: wait.
apt_options=(-q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
"${as_root[@]}" apt-get "${apt_options[@]}" update </dev/null
# Tests start what they need themselves: no daemon of these packages is to run, now or after a boot.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  "${as_root[@]}" sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi
"${as_root[@]}" apt-get "${apt_options[@]}" install --no-install-recommends "${missing[@]}" </dev/null
disable() { ! command -v systemctl >/dev/null || "${as_root[@]}" systemctl --quiet disable "$@" 2>/dev/null || true; }
for service in munge slurmctld slurmd; do
  [[ " ${missing[*]} " != *" $service "* ]] || disable "$service.service"
done
[[ " ${missing[*]} " != *" openssh-server "* ]] || disable ssh.service ssh.socket
