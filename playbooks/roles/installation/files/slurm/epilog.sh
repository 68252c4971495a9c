#!/bin/sh
# Epilog of slurm.conf: removes what Holdfast left on this node for another run in the same allocation (`keep_cache`).
# Files of a checkpoint that is only in the caches are kept: `drain.yaml` can save them. The exit code is always 0,
# because Slurm drains the node otherwise.

# Slurm sets no search path.
PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# Where jobs of this site have their control directories, and their caches: `checkpoint.control.base` and
# `checkpoint.cache[].base` of the specs.
control_base=/tmp
cache_bases='/tmp /dev/shm'

cd / || exit 0
name=${SLURM_JOB_USER:?}/scr.${SLURM_JOB_ID:?}
control=$control_base/$name

# The user owns the directories, and could replace them by links: root does nothing there.
as_user() {
    timeout 60 runuser -u "$SLURM_JOB_USER" -- "$@"
}

keep() {
    logger -t holdfast -- "epilog: $control is kept: $*" 2>/dev/null
    echo "holdfast: $control is kept: $*"
    exit 0
}

# Directories of SCR's own library have no marker.
as_user test -e "$control/.holdfast-marker" || exit 0
as_user sh -c 'test ! -e "$0" || flock --nonblock --exclusive "$0" true' "$control/agent.lock" ||
    keep 'its agent is alive'
if as_user test -e "$control/flush.scrinfo"; then
    locations=$(as_user holdfast inspect "$control/flush.scrinfo") || keep 'its flush file cannot be read'
    # The checkpoints, and where each is: PFS means in the prefix directory.
    unsaved=$(echo "$locations" | awk '
        $1 ~ /^[0-9]+$/ { id = $1; if (id + 0 > newest + 0) newest = id }
        $1 == "PFS" { saved[id] = 1 }
        END { if (newest && !saved[newest]) print newest }')
    [ -z "$unsaved" ] || keep "checkpoint $unsaved is not in the prefix directory"
fi

# The control directory last: if this is interrupted, it still describes the caches.
for base in $cache_bases; do
    [ "$base" = "$control_base" ] || as_user rm -rf -- "$base/$name"
done
as_user rm -rf -- "$control_base/$name"
exit 0
