#!/bin/sh
# HealthCheckProgram of slurm.conf: drains this node if the test of prolog.sh fails for a user without rights. An
# administrator resumes the node.
PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

reason=$(SLURM_JOB_USER=nobody "${0%/*}/prolog.sh" 2>&1) && exit
scontrol update NodeName="${SLURMD_NODENAME:-$(hostname -s)}" State=DRAIN Reason="$reason"
