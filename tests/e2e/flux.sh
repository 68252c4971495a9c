#!/bin/bash
# Stands in for `flux`: what it prints was recorded from flux-core 0.88.0, with other names. Its nodes n1 to n4 are
# mount namespaces of this machine, in which $FLUX_TEST/base is another directory. Processes of a node have its name in
# FLUX_TEST_NODE. A node in $FLUX_TEST/lost is lost.
set -u
nodes=(n1 n2 n3 n4)

is_lost() { [ -e "$FLUX_TEST/lost/$1" ]; }

# A command on a node.
on_node() {
    export FLUX_TEST_NODE=$1
    shift
    # shellcheck disable=SC2016
    exec unshare --mount bash -c 'mount --bind "$FLUX_TEST/nodes/$FLUX_TEST_NODE" "$FLUX_TEST/base" && exec "$@"' - "$@"
}

# The processes of the instance, which are not those of a command: starts the jobs that `flux run` submits.
serve() {
    until [ -e "$FLUX_TEST/stop" ]; do
        for job in "$FLUX_TEST"/jobs/*/submitted; do
            [ -e "$job" ] || continue
            mv "$job" "${job%submitted}started"
            bash "${job%submitted}started" &
        done
        sleep 0.02
    done
}

execute() {
    local rank code=0 program
    local -a ranks pids=()
    IFS=, read -r -a ranks <<<"${1#--rank=}"
    shift
    program=$1
    input=$(mktemp -p "$FLUX_TEST")
    cat >"$input"
    for rank in "${ranks[@]}"; do
        if [ -e "$FLUX_TEST/frozen-${nodes[rank]}" ] && ! is_lost "${nodes[rank]}"; then
            (export FLUX_TEST_NODE=${nodes[rank]} && exec sleep infinity) &
            pids+=($!)
        elif is_lost "${nodes[rank]}"; then
            echo "flux-exec: Error: rank $rank: $(basename "$program"): No route to host" >&2
            code=68
        else
            (on_node "${nodes[rank]}" "$@" <"$input") &
            pids+=($!)
        fi
    done
    for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
    exit "$code"
}

# `flux run`, or the parts that it consists of: its jobspec, its submission, and its output.
run() {
    if [ "$1" = --dry-run ]; then
        shift
        prepare "$@"
    else
        attach "$(prepare "$@" | submit)"
    fi
}

submit() {
    local spec
    spec=$(cat)
    [ -n "$spec" ] || exit 1
    echo "$spec" >>"$FLUX_TEST/jobspecs"
    sed -n 's/.*"name": "\([^"]*\)".*/\1/p' <<<"$spec"
}

prepare() {
    local name=job hosts requires word
    while [[ $1 == -* ]]; do
        case $1 in
        --job-name=*) name=${1#*=} ;;
        --taskmap=hostfile:*) hosts=${1#*hostfile:} ;;
        --requires=hosts:*) requires=${1#*hosts:} ;;
        esac
        shift
    done
    echo "$requires" >>"$FLUX_TEST/required"
    while read -r node; do
        if is_lost "$node"; then
            echo "flux-run: ERROR: host constraint contains invalid hosts: host '$node' not found" >&2
            exit 1
        fi
    done <"$hosts"
    local job=$FLUX_TEST/jobs/$name
    mkdir "$job"
    cp "$hosts" "$job/hosts"
    {
        export -p
        declare -p nodes job
        declare -f is_lost on_node tasks
        printf 'cd %q\ntasks' "$PWD"
        for word in "$@"; do printf ' %q' "$word"; done
        echo
    } >"$job/text"
    echo "{\"resources\": [{\"type\": \"node\", \"count\": 2}], \"tasks\": [], \"name\": \"$name\"}"
}

attach() {
    local job=$FLUX_TEST/jobs/$1 output errors
    [ -n "$1" ] || exit 1
    output=$(readlink /proc/$$/fd/1)
    errors=$(readlink /proc/$$/fd/2)
    {
        printf 'exec </dev/null >>%q 2>>%q\n' "$output" "$errors"
        cat "$job/text"
    } >"$job/whole"
    mv "$job/whole" "$job/submitted"
    until [ -e "$job/code" ]; do sleep 0.02; done
    exit "$(cat "$job/code")"
}

# The tasks of a job, until they have ended or a node is lost.
tasks() {
    local rank=0 node code=0 pid
    local -a pids=() homes=()
    set -m
    while read -r node; do
        (
            export FLUX_TASK_RANK=$rank FLUX_JOB_ID=fTest
            on_node "$node" "$@" > >(sed -u "s/^/$rank: /") 2> >(sed -u "s/^/$rank: /" >&2)
        ) &
        pids+=($!)
        homes+=("$node")
        rank=$((rank + 1))
    done <"$job/hosts"
    echo "${pids[*]}" >"$job/pids"
    while [ -n "$(jobs -r)" ]; do
        while read -r node; do
            if is_lost "$node" && [ "$code" = 0 ]; then
                code=143
                echo "3.301s: job.exception fTest type=exec severity=0 node failure on $node (rank 2)" >&2
                for rank in "${!pids[@]}"; do
                    # Those on the lost node end at once.
                    if is_lost "${homes[rank]}"; then signal=KILL; else signal=TERM; fi
                    kill "-$signal" -- "-${pids[rank]}" 2>/dev/null
                done
            fi
        done <"$job/hosts"
        sleep 0.02
    done
    for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
    [ "$code" = 0 ] || echo "flux-job: task(s) exited with exit code $code" >&2
    echo "$code" >"$job/ended"
    mv "$job/ended" "$job/code"
}

# name:^NAME$
cancel() {
    local job=${1#name:^}
    job=$FLUX_TEST/jobs/${job%\$}
    echo "${job##*/}" >>"$FLUX_TEST/cancelled"
    [ -e "$job/pids" ] && [ ! -e "$job/code" ] || exit 1
    for pid in $(cat "$job/pids"); do kill -KILL -- "-$pid" 2>/dev/null; done
    echo "flux-pkill: INFO: Canceled 1 job" >&2
}

status() {
    local node
    for node in "${nodes[@]}"; do
        if is_lost "$node"; then echo "avail*|$node|"; else echo "avail|$node|"; fi
    done
    cat "$FLUX_TEST/drained" 2>/dev/null
    true
}

case $1-${2-} in
--version-) printf 'commands:    \t\t%s\n' "$(cat "$FLUX_TEST/version" 2>/dev/null || echo 0.88.0)" ;;
getattr-hostlist) cat "$FLUX_TEST/hostlist" 2>/dev/null || echo 'n[1-4]' ;;
getattr-rank) echo 0 ;;
getattr-hostname) echo "$FLUX_TEST_NODE" ;;
getattr-tbon.endpoint) echo 'tcp://[::ffff:127.0.0.1]:45379' ;;
resource-R)
    cat <<END
{"version": 1, "execution": {"R_lite": [{"rank": "0-3", "children": {"core": "0-1"}}],
 "starttime": 1796036946.2990587, "expiration": $(cat "$FLUX_TEST/expiration"), "nodelist": ["n[1-4]"]}}
END
    ;;
resource-status) status ;;
exec-*) shift && execute "$@" ;;
run-*) shift && run "$@" ;;
job-submit) submit ;;
job-attach) attach "$4" ;;
pkill-*) cancel "$3" ;;
overlay-disconnect)
    echo "flux-overlay: asking n1 (rank 0) to disconnect child $3" >&2
    : >"$FLUX_TEST/lost/$3"
    echo "$3" >>"$FLUX_TEST/disconnected"
    ;;
serve-*) serve ;;
*)
    echo "flux: unknown command: $*" >&2
    exit 1
    ;;
esac
