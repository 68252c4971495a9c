#!/bin/sh
# Prolog of slurm.conf: tests, as the user of the job, whether the program answers, and whether the directories that
# jobs use on this node can be written. If the exit code is not 0, Slurm drains the node and requeues the job.

# Slurm sets no search path.
PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
user=${SLURM_JOB_USER:?is set by Slurm}
limit=20 # seconds

fail() {
    echo "holdfast: $*"
    logger -t holdfast -- "prolog: $*" 2>/dev/null
    exit 1
}

cd / || exit
result=$(mktemp) || fail "cannot write to ${TMPDIR:-/tmp}"
trap 'rm -f "$result"' EXIT

# A file system that hangs blocks every process that accesses it. This script waits for none of them.
within_limit() {
    { runuser -u "$user" -- sh -c "$@" 2>&1 && echo done || echo failed; } >"$result" </dev/null &
    tries=0
    until tail -n 1 "$result" | grep -qx -e done -e failed; do
        tries=$((tries + 1))
        [ $tries -le $((limit * 10)) ] || return
        sleep 0.1
    done
    tail -n 1 "$result" | grep -qx done
}

# The program reads /etc/holdfast/scr.conf. The user may not open root's standard input, but a pipe of its own.
within_limit 'echo "run: {nodes: 1, command: [\"true\"]}" | holdfast check --explain /dev/stdin' ||
    fail "the program cannot be used by $user within $limit s: $(head -n 1 "$result")"
directories=$(awk '$1 ~ /^checkpoint\.(control|cache\[[0-9]+\])\.base$/ { print $2 }' "$result" | sort -u)
for directory in $directories; do
    # The test of an agent: create, write and remove a file.
    within_limit 'probe=$(mktemp "$0/holdfast.probe.XXXXXX") || exit
        echo x >"$probe"; code=$?; rm -f "$probe"; exit $code' "$directory" ||
        fail "$directory cannot be used by $user within $limit s: $(head -n 1 "$result")"
done
