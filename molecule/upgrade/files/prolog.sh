#!/bin/sh
# The job uses its GPUs: as root, since a job itself may not write the simulator's state.
for gpu in $(echo "$SLURM_JOB_GPUS" | tr , ' '); do
    gpu-simulator busy --gpu "$gpu" --pid "$SLURM_JOB_ID"
done
exit 0
