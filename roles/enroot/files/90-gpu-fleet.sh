#!/usr/bin/env bash
# Written by the role gpu.fleet.enroot; changes are overwritten.
# In a job of Slurm the container gets the GPUs of the job: 98-nvidia.sh reads them from the environment of the container,
# where images ask for all. Numbers of GPUs count those that the job can see, as nvidia-container-cli counts them.
set -euo pipefail

[ -n "${SLURM_JOB_ID-}" ] || exit 0
devices=${CUDA_VISIBLE_DEVICES-}
case $devices in
"" | NoDevFiles) devices=void ;;
*[!A-Za-z0-9,:./-]*)
    echo "enroot: CUDA_VISIBLE_DEVICES of the job is no list of devices" >&2
    exit 1
    ;;
*MIG-* | *GPU-*) ;;
*)
    # Where gres.conf lists the files of MIG devices, Slurm knows them by numbers of its own: they are those that the job sees.
    seen=$(nvidia-smi -L 2>/dev/null | awk -F 'UUID: |[)]' '
        /^GPU / { if (gpu != "") print gpu; gpu = $(NF - 1) }
        /^ +MIG / { gpu = ""; print $(NF - 1) }
        END { if (gpu != "") print gpu }' || true)
    if [[ $seen == *MIG-* ]]; then
        if [ "$(wc -l <<<"$seen")" -ne "$(tr , '\n' <<<"$devices" | wc -l)" ]; then
            echo "enroot: the job has $devices of Slurm, but sees others as well: set ConstrainDevices=yes in cgroup.conf" >&2
            exit 1
        fi
        devices=$(paste -sd , <<<"$seen")
    fi
    ;;
esac
echo "NVIDIA_VISIBLE_DEVICES=$devices" >>"$ENROOT_ENVIRON"
