#!/bin/bash
# A Slurm of several nodes on this machine: a hub with slurmctld and munged, and a slurmd a node. Each is a host of its
# own: address (a bridge without a way out), host name, processes, shared memory and mounts; DIR is what they share, but
# DIR/local, which each node has for itself. Runs until its standard input ends; everything ends with it, since all of
# them are children of its process namespace. Needs root and the programs that slurm.py names.
#
#   unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc slurm_cluster.sh DIR NODES
#
# In DIR: slurm.conf, log/, nodes/nI (what DIR/local is on node nI), run/nI (a process of the node, as the hub numbers it).
set -euo pipefail

# Mounts of others that were copied with the namespace would outlive their unmounting. -i: no helper, which would ask them.
forget_fuse_mounts() {
  local point
  awk '$3 ~ /^fuse/ {print $2}' /proc/self/mounts | sort -r | while read -r point; do
    umount -i -l "$(printf %b "$point")" || true
  done
}

start_hub() {
  hostname hub
  ip link set lo up
  ip link add bridge type bridge
  ip link set bridge up
  ip address add 10.88.0.254/24 dev bridge
  { echo "127.0.0.1 localhost"; echo "10.88.0.254 hub"; for ((i = 1; i <= nodes; i++)); do echo "10.88.0.$i n$i"; done; } >"$dir/hosts"
  mount --bind "$dir/hosts" /etc/hosts
  mkdir -p "$dir"/{local,log,munge,nodes,run,spool,state}
  configure >"$dir/slurm.conf"
  # From 23.11 on a slurmd wants cgroup v2 and systemd unless it is told not to, in words that older ones do not know.
  if [[ $(slurmd -V) =~ ([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] * 100 + 10#${BASH_REMATCH[2]} >= 2311)); then
    echo "CgroupPlugin=disabled" >"$dir/cgroup.conf"
  fi
  dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 status=none
  chmod 400 "$dir/munge/key"
  munged --foreground --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
    --log-file="$dir/log/munged.log" --seed-file="$dir/munge/seed" --num-threads=2 &
  until [[ -e $dir/munge/socket ]]; do sleep 0.02; done
  slurmctld -D -i &
}

# Only what differs from the defaults of all Slurm versions from 22.05 on. As on some sites a task that fails ends its
# step, and one that ends first the others after WaitTime.
configure() {
  cat <<CONF
ClusterName=clairfs-test
SlurmctldHost=hub(10.88.0.254)
SlurmUser=root
AuthInfo=socket=$dir/munge/socket
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmdLogFile=$dir/log/slurmd.%n.log
SlurmdSpoolDir=$dir/spool/%n
StateSaveLocation=$dir/state
Prolog=$dir/epilog
Epilog=$dir/epilog
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
KillOnBadExit=1
KillWait=10
WaitTime=1
ReturnToService=2
NodeName=n[1-$nodes] NodeAddr=10.88.0.[1-$nodes] CPUs=8 State=UNKNOWN
PartitionName=all Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
CONF
}

start_node() {
  local name=n$1 pid
  mkdir -p "$dir/nodes/$name" "$dir/spool/$name"
  chmod 1777 "$dir/nodes/$name"
  unshare --mount --net --uts --ipc "$0" --host "$dir" "$1" </dev/null &
  until [[ -s $dir/run/$name ]]; do sleep 0.02; done
  pid=$(<"$dir/run/$name")
  ip link add "port$1" type veth peer name eth0 netns "$pid"
  ip link set "port$1" master bridge up
}

# What a host does of itself. Its process number is taken before it gets a process namespace, which has none outside.
be_host() {
  local name=n$1
  hostname "$name"
  mount --bind "$dir/nodes/$name" "$dir/local"
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  mount -t tmpfs tmpfs /var/cache  # of root's mounts
  ip link set lo up
  echo $$ >"$dir/run/$name"
  until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
  ip address add "10.88.0.$1/24" dev eth0
  ip link set eth0 up
  exec unshare --pid --fork --kill-child "$0" --init "$dir" "$1"
}

be_init() {
  mount -t proc proc /proc
  slurmd -D -N "n$1" &
  wait
}

case $1 in
  --host) dir=$2; be_host "$3" ;;
  --init) dir=$2; be_init "$3" ;;
  *)
    dir=$1 nodes=$2
    export SLURM_CONF=$dir/slurm.conf
    forget_fuse_mounts
    start_hub
    for ((i = 1; i <= nodes; i++)); do start_node "$i"; done
    cat >/dev/null
    ;;
esac
