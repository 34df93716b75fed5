#!/bin/bash
# Several hosts on one machine: runs `mpiexec -n N PROGRAM...`, each rank in a network namespace of its own, with an
# address of its own, joined by a bridge; TCP is all there is between them. Needs root and ip (iproute2). Ends with the
# status of mpiexec, or with 77 and the reason where namespaces cannot be made.
#
#   netns_mpiexec.sh N PROGRAM [ARGUMENT]...
set -euo pipefail

if [[ -n ${NETNS_PREFIX:-} ]]; then  # mpiexec calls us as it would ssh: [-x] HOST COMMAND...
  [[ $1 != -x ]] || shift
  host=$1
  shift
  exec ip netns exec "$NETNS_PREFIX${host##*.}" bash -c "$*"
fi

ranks=${1:?number of ranks}
shift
((ranks <= 250)) || { echo "netns_mpiexec.sh: at most 250 ranks" >&2; exit 2; }
skip() { echo "skipped: $1"; exit 77; }
command -v ip >/dev/null || skip "there is no ip (iproute2)"

export NETNS_PREFIX=clairfs-$$-
hub=${NETNS_PREFIX}hub
why=$(ip netns add "$hub" 2>&1) || skip "network namespaces cannot be made: $why"
clean_up() {  # again if need be: ranks.py kills what a test has started, which may hit a command of ours
  local network tries
  for tries in 1 2 3; do
    for network in "/run/netns/$NETNS_PREFIX"*; do
      [[ ! -e $network ]] || ip netns delete "${network##*/}" 2>/dev/null || true
    done
  done
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

in_hub() { ip netns exec "$hub" "$@"; }
make_network() {
  in_hub ip link set lo up && in_hub ip link add bridge type bridge && in_hub ip link set bridge up &&
    in_hub ip address add 10.77.0.254/24 dev bridge
}
make_host() {
  local name=$NETNS_PREFIX$1
  ip netns add "$name" && ip netns exec "$name" ip link set lo up &&
    in_hub ip link add "port$1" type veth peer name eth0 netns "$name" &&
    in_hub ip link set "port$1" master bridge up &&
    ip netns exec "$name" ip address add "10.77.0.$1/24" dev eth0 && ip netns exec "$name" ip link set eth0 up
}
why=$(make_network 2>&1) || skip "no bridge can be made: $why"
hosts=()
for ((i = 1; i <= ranks; i++)); do
  why=$(make_host "$i" 2>&1) || skip "no host can be made: $why"
  hosts+=("10.77.0.$i")
done

# The hosts share this machine's memory, which UCX would find out and use.
in_hub mpiexec -disable-auto-cleanup -launcher ssh -launcher-exec "$(realpath "$0")" -hosts "$(IFS=,; echo "${hosts[*]}")" \
  -localhost 10.77.0.254 -genv UCX_TLS tcp,self -n "$ranks" "$@"
