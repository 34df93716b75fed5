#!/bin/sh
# Hands the figures of all clairfs mounts of this machine to node_exporter's textfile collector. Run it every 15 seconds or
# so, from a systemd timer or cron, as a user whom the mounts let in (root, or the user who mounted):
#
#   collect.sh /var/lib/node_exporter/textfile_collector
#
# A mount that hangs is left out after 5 seconds. Each file appears at once and whole.
set -eu
folder=$1
rm -f "$folder"/.clairfs.*
names=
number=0
while read -r mount; do
  number=$((number + 1))
  mount=$(printf '%b' "$mount") # \040 is a space
  name=clairfs-$number.prom
  temporary=$folder/.clairfs.$number
  if timeout 5 cp "$mount/.clairfs/metrics" "$temporary" 2>/dev/null; then
    mv "$temporary" "$folder/$name"
    names="$names $name"
  fi
done <<MOUNTS
$(sed -n 's/^[^ ]* \([^ ]*\) fuse\.clairfs .*/\1/p' /proc/self/mounts | sed 's/\\\([0-7]\)/\\0\1/g')
MOUNTS
for old in "$folder"/clairfs-*.prom; do
  case " $names " in
    *" ${old##*/} "*) ;;
    *) rm -f "$old" ;;
  esac
done
