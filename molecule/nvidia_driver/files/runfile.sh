#!/bin/sh
# Mock of NVIDIA's installer: libraries for the simulator, a module for the real DKMS, and a way to remove them. Its
# name has the version.
set -eu
version=$(basename "$0" .run)
version=${version##*-}
kernel=$(uname -r)
license="Dual MIT/GPL"
for option; do
    case $option in
        --kernel-name=*) kernel=${option#*=} ;;
        --kernel-module-type=proprietary) license=NVIDIA ;;
    esac
done
[ ! -x /usr/bin/nvidia-uninstall ] || /usr/bin/nvidia-uninstall --silent
source=/usr/src/nvidia-$version
mkdir -p "$source"
printf '%s\n' 'PACKAGE_NAME="nvidia"' "PACKAGE_VERSION=\"$version\"" 'BUILT_MODULE_NAME[0]="nvidia"' \
    'DEST_MODULE_LOCATION[0]="/kernel/drivers/video"' 'AUTOINSTALL="yes"' 'CLEAN="true"' \
    'MAKE[0]="gcc -c -o nvidia.ko nvidia.c"' >"$source/dkms.conf"
printf '__attribute__((section(".modinfo"), used)) static const char info[] = "version=%s\\0license=%s";\n' \
    "$version" "$license" >"$source/nvidia.c"
dkms add -m nvidia -v "$version"
dkms install -m nvidia -v "$version" -k "$kernel"
libraries=/usr/lib/x86_64-linux-gnu
touch "$libraries/libnvidia-ml.so.$version"
ln -sf "libnvidia-ml.so.$version" "$libraries/libnvidia-ml.so.1"
printf '%s\n' '#!/bin/sh' 'exec python3 -IS /usr/lib/gpu-simulator nvidia-smi "$@"' >/usr/bin/nvidia-smi
cat >/usr/bin/nvidia-persistenced <<'END'
#!/bin/sh
# Keeps the GPUs initialised as long as it runs.
persist() { gpu=0; while gpu-simulator set --gpu $gpu persistence_mode "$1" 2>/dev/null; do gpu=$((gpu + 1)); done; }
persist true
(trap 'persist false; exit 0' TERM; while :; do sleep 60 & wait $!; done) >/dev/null 2>&1 &
END
printf '%s\n' '#!/bin/sh' "dkms remove -m nvidia -v $version --all" \
    "rm -rf $source $libraries/libnvidia-ml.so.* /usr/bin/nvidia-smi /usr/bin/nvidia-persistenced \
    /usr/bin/nvidia-uninstall" >/usr/bin/nvidia-uninstall
chmod 755 /usr/bin/nvidia-smi /usr/bin/nvidia-persistenced /usr/bin/nvidia-uninstall
gpu-simulator refresh
