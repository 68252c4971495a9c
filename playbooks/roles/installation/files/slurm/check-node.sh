#!/bin/sh
# Prolog and HealthCheckProgram of slurm.conf: tests whether the program answers, and whether the directories that jobs
# use on this node can be written. If not, it drains the node with the reason, and exits with 1: as Prolog, Slurm then
# starts nothing of the job on this node. An administrator resumes the node.
#
# The test is made as a user without rights and not as the user of the job: a quota that a user has used up is no fault
# of the node.

# Slurm sets no search path.
PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# This file is share/holdfast/slurm/check-node.sh of an installation.
program=${0%/*}/../../../bin/holdfast
user=nobody
limit=20 # seconds
node=${SLURMD_NODENAME:-$(hostname -s)}

fail() {
    reason="holdfast: $*"
    echo "$reason"
    logger -t holdfast -- "$reason" 2>/dev/null
    # The reason of an administrator is not replaced.
    scontrol show node -o "$node" | grep -q ' State=[^ ]*DRAIN' ||
        scontrol update NodeName="$node" State=DRAIN Reason="$reason"
    exit 1
}

cd / || exit
# Not in /tmp: that may be the directory that hangs.
result=$(mktemp -p /run) || fail 'cannot write to /run'
trap 'rm -f "$result"' EXIT

# Runs a script as the user. A file system that hangs blocks every process that uses it; this one waits for none.
within_limit() {
    : >"$result"
    { runuser -u "$user" -- sh -c "$@" && echo done || echo failed; } >"$result" 2>&1 </dev/null &
    tries=0
    until tail -n 1 "$result" | grep -qx -e done -e failed; do
        tries=$((tries + 1))
        if [ "$tries" -gt $((limit * 10)) ]; then
            message="no answer within $limit s"
            return 1
        fi
        sleep 0.1
    done
    message=$(head -n 1 "$result")
    tail -n 1 "$result" | grep -qx done
}

# The program reads the site's scr.conf.
within_limit '"$0" compat scr_cntl_dir --base && "$0" compat scr_cntl_dir --cache --base' "$program" ||
    fail "the program cannot be used: $message"
directories=$(sed '$d' "$result" | tr ' ' '\n' | sort -u)
for directory in $directories; do
    # As an agent does: a directory that does not exist is made below the nearest one that does. A full file system
    # still has room for an empty file.
    within_limit 'directory=$0
        until [ -e "$directory" ] || [ "$directory" = / ]; do directory=$(dirname -- "$directory"); done
        probe=$(mktemp "$directory/holdfast.probe.XXXXXX") || exit
        head -c 4096 /dev/zero >"$probe"
        code=$?
        rm -f -- "$probe"
        exit $code' "$directory" || fail "$directory cannot be used: $message"
done
