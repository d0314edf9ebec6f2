#!/bin/sh
# On the host: a package of enroot from its source, a cluster of Slurm with this host alone, and a local image that asks for
# all GPUs. The programs of enroot are linked with glibc and Debian's libbsd, since its copies of musl and makeself are elsewhere.
set -eu
apt-get -qq update
apt-get -qq install -y --no-install-recommends gcc libbsd-dev libc6-dev libmd-dev make squashfs-tools >/dev/null
tar -C /srv/sources -czf /srv/enroot.tar.gz --exclude=.git enroot
cd /srv/sources/enroot
mkdir -p deps/makeself deps/linux-headers deps/dist/libbsd
touch deps/linux-headers/.stamp deps/makeself/.stamp
install -D -m 755 /dev/null deps/dist/makeself/bin/enroot-makeself
make -s FORCE_GLIBC=1 LDFLAGS= LDLIBS="-l:libbsd.a -l:libmd.a" prefix=/usr sysconfdir=/etc
make -s FORCE_GLIBC=1 LDFLAGS= prefix=/usr sysconfdir=/etc DESTDIR=/srv/package install
mkdir -p /srv/package/DEBIAN
cat >/srv/package/DEBIAN/control <<CONTROL
Package: enroot
Version: 4.1.2-1
Architecture: $(dpkg --print-architecture)
Maintainer: gpu.fleet contributors <nobody@example.com>
Depends: bash, curl, jq, parallel, squashfs-tools, zstd
Description: enroot of its source
CONTROL
dpkg-deb --root-owner-group --build /srv/package /srv/enroot.deb >/dev/null
tar -C /srv/sources -czf /srv/pyxis.tar.gz --exclude=.git pyxis

head -c 1024 /dev/urandom >/etc/munge/munge.key
chown munge: /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
for minor in 0 1; do mknod -m 666 /dev/nvidia$minor c 1 3; done
cat >/etc/slurm/slurm.conf <<CONF
ClusterName=enroot
SlurmctldHost=$(hostname)
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
GresTypes=gpu
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmUser=slurm
NodeName=$(hostname) Gres=gpu:2
PartitionName=all Nodes=ALL Default=YES
CONF
printf 'AutoDetect=off\nName=gpu File=/dev/nvidia[0-1]\n' >/etc/slurm/gres.conf
echo "CgroupPlugin=disabled" >/etc/slurm/cgroup.conf
install -d -o slurm -g slurm /var/lib/slurm /var/lib/slurm/slurmctld
systemctl restart munge slurmctld slurmd

mkdir -p /srv/archive /srv/root
tar -C /srv/archive -xf /opt/testbed/container.tar
for layer in /srv/archive/*.tar; do tar -C /srv/root -xf "$layer"; done
rm -rf /srv/root/dev/*
cp /usr/bin/env /srv/root/usr/bin/
printf 'NVIDIA_VISIBLE_DEVICES=all\nNVIDIA_DRIVER_CAPABILITIES=compute,utility\n' >/srv/root/etc/environment
mksquashfs /srv/root /srv/image.sqsh -quiet -no-progress

# In place of NVIDIA's: what it is called with.
cat >/usr/bin/nvidia-container-cli <<'CLI'
#!/bin/sh
echo "$*" >>/run/container-cli
CLI
chmod 755 /usr/bin/nvidia-container-cli
install -m 666 /dev/null /run/container-cli
