#!/bin/sh
# Fetch packages of the distribution while there is still a route, and have apt read that directory and the mirror alone.
set -eu
apt-get -qq update
apt-get -qq install --yes --no-install-recommends --download-only "$@"
mkdir /srv/distribution
cd /srv/distribution
mv /var/cache/apt/archives/*.deb .
for file in *.deb; do
    dpkg-deb --field "$file"
    sum=$(sha256sum "$file")
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$file" "$(stat -c %s "$file")" "${sum%% *}"
done >Packages
# A mount of the testbed, with what the mock repositories have of the distribution.
sources=/etc/apt/sources.list.d/distribution.sources
sed 's,https://,https://mirror.testbed.invalid/,' $sources >/srv/distribution.sources
umount $sources
mv /srv/distribution.sources $sources
echo 'deb [trusted=yes] file:/srv/distribution ./' >/etc/apt/sources.list
