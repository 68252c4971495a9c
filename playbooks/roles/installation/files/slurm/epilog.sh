#!/bin/sh
# Epilog of slurm.conf: removes the control directory and the caches that the ended job has left on this node for
# another run in its allocation (`keep_cache`), if its newest checkpoint is in the prefix directory. Otherwise
# everything is kept, and reported to the system's log: `drain.yaml` can still save it.
#
# The exit code is always 0, because Slurm drains the node otherwise.

# Slurm sets no search path.
PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
cd / || exit 0

# Root does nothing in directories of users: they could exchange them for links.
if [ "$1" != as-user ]; then
    said=$(timeout -k 10 120 runuser -u "${SLURM_JOB_USER:?}" -- "$0" as-user 2>&1)
    [ -z "$said" ] || { echo "$said"; logger -t holdfast -- "$said" 2>/dev/null; }
    exit 0
fi

# This file is share/holdfast/slurm/epilog.sh of an installation. The program reads the site's scr.conf.
program=${0%/*}/../../../bin/holdfast
name=scr.${SLURM_JOB_ID:?}

keep() {
    echo "epilog: job $SLURM_JOB_ID of $SLURM_JOB_USER: its directories are kept: $*"
    exit
}

# Enters the directory of the user below this base. It fails if there is nothing of the job, and where another user made
# the directory, may write to it, or put a link in its place.
enter() {
    base=$(cd -P -- "$1" 2>/dev/null && pwd -P) || return
    cd -P -- "$base/$SLURM_JOB_USER" 2>/dev/null && [ "$(pwd -P)" = "${base%/}/$SLURM_JOB_USER" ] && [ -O . ] &&
        [ -z "$(find . -maxdepth 0 -perm /022)" ] && [ -d "$name" ] && [ ! -L "$name" ] && [ -O "$name" ] &&
        [ -f "$name/.holdfast-marker" ]
}

control_base=$("$program" compat scr_cntl_dir --base) || keep "$program does not answer"
cache_bases=$("$program" compat scr_cntl_dir --cache --base) || keep "$program does not answer"

# Directories of SCR's own library have no marker.
enter "$control_base" || exit
control=$PWD/$name
[ ! -e "$control/agent.lock" ] || flock --nonblock --exclusive "$control/agent.lock" true || keep 'its agent is alive'
if newest=$("$program" compat scr_flush_file --dir "$control" --latest 2>&1); then
    "$program" compat scr_flush_file --dir "$control" --id "$newest" >/dev/null 2>&1 ||
        keep "checkpoint $newest is not in the prefix directory"
elif [ -n "$newest" ]; then
    keep "$newest"
else
    # A node without a flush file has no checkpoint, unless the file is damaged or lost.
    for base in $cache_bases; do
        found=$(enter "$base" && find "$name" -mindepth 2 -maxdepth 2 -path '*/index.*' -print -quit)
        [ -z "$found" ] || keep "$base/$SLURM_JOB_USER/$found is in no flush file"
    done
fi

# The control directory last: if this is interrupted, it still describes the caches.
for base in $cache_bases; do
    [ "$base" = "$control_base" ] || (enter "$base" && rm -rf -- "$name")
done
(enter "$control_base" && rm -rf -- "$name")
exit 0
