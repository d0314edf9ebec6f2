#!/bin/sh
# Runs until its node is drained and some seconds longer, with the argument `stay` until the file `end` is there. Fails
# where the GPUs were changed under it.
limits() {
    nvidia-smi --query-gpu=power.limit,mig.mode.current --format=csv,noheader
}
before=$(limits) || exit 2
if [ "${1:-}" = stay ]; then
    until [ -e "end-$SLURM_JOB_ID" ]; do sleep 1; done
else
    until scontrol show node "$SLURMD_NODENAME" | grep -q 'State=[A-Z+]*DRAIN'; do sleep 1; done
    sleep 5
fi
[ "$(limits)" = "$before" ]
