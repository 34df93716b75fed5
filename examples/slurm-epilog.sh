#!/bin/bash
# Epilog= of slurm.conf, and Prolog= as well: a job that ended with its node's power had no epilog. Takes away dead clairfs
# mounts, those whose daemon was killed, of whatever job of this node, and what slurm.sbatch may leave: its empty mount
# point, where it was cancelled. Mounts that live are left alone.
mount=/tmp/$SLURM_JOB_USER-clairfs-$SLURM_JOB_ID

# As the mount's user: nobody else is told that a mount is dead, and root would follow where its path is turned meanwhile.
while read -r _ point type options _; do
  [[ $type == fuse.clairfs && $options =~ user_id=([0-9]+),group_id=([0-9]+) ]] || continue
  as_user=(timeout 5 setpriv --reuid "${BASH_REMATCH[1]}" --regid "${BASH_REMATCH[2]}" --clear-groups)
  point=$(printf %b "$point")  # a space in it is written as \040
  if LC_ALL=C "${as_user[@]}" stat -f "$point" 2>&1 >/dev/null | grep -q 'not connected'; then
    "${as_user[@]}" fusermount3 -u -z "$point"
  fi
done </proc/mounts

[[ ! -d $mount ]] || rmdir "$mount"
exit 0  # another status would drain the node
