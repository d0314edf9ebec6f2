# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images built by mmdebstrap from Debian's packages, without a registry. The tag holds a digest of the inputs, so every
checkout of the machine reuses an image as long as its inputs are the same."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed import settings
from testbed.progress import run

_FILES = Path(__file__).parent / "host-image"

_PRELOADED = ("preloaded_python.py", "preloaded_python.pth")
_OVERLAY = (
    # (file here, path in the image, mode)
    ("init", "testbed-init", 0o755),
    ("sshd.conf", "etc/ssh/sshd_config.d/testbed.conf", 0o644),
    ("testbed-hostkey.service", "etc/systemd/system/testbed-hostkey.service", 0o644),
    ("testbed-bootid.service", "etc/systemd/system/testbed-bootid.service", 0o644),
    *((name, f"usr/lib/python3/dist-packages/{name}", 0o644) for name in (*settings.ZIP_BYTECODE, *_PRELOADED)),
)
_HOST_PACKAGES = (
    "ca-certificates,dbus,gnupg,iproute2,kmod,openssh-server,pciutils,procps,python3,sudo,systemd,systemd-sysv,udev"
)
_DNF = ",curl,dnf,dnf-plugins-core,gcc,iptables,libc6-dev,make,python3-dnf,python3-requests,python3-rpm,rpm"
# Derivative images, which stand for distributions whose packages may be out of reach, for the newest engines, and for
# nodes of a cluster: the Debian release that provides the root file system, the additional packages, and the hooks in
# host-image/ that do the rest, in this order.
_DERIVATIVES = {
    "ubuntu2404": ("trixie", "", ("ubuntu2404",)),
    "ubuntu2604": ("trixie", "", ("ubuntu2604",)),
    # Not sid as a whole: its systemd needs cgroup v2, which the machine may not have.
    "sid": ("trixie", "", ("sid",)),
    "slurm": ("trixie", ",dkms", ("slurm",)),
    "slurm_sid": ("trixie", ",dkms", ("sid", "slurm")),
    "el9": ("bookworm", _DNF, ("el9", "dnf")),
    "amzn2023": ("bookworm", _DNF, ("amzn2023", "dnf")),
}
# Sources of the vendors' mock packages.
_PAYLOAD_PACKAGES = {
    "bookworm": "runc",
    "trixie": "containerd,dkms,docker-buildx,docker-cli,docker-compose,docker.io,runc,tini",
}
_QUIET = ("--quiet", '--aptopt=Acquire::Languages "none"', '--aptopt=APT::Install-Recommends "false"')
# As NVIDIA's images of CUDA: under NVIDIA's runtime a container gets all GPUs unless it requests others.
_CONTAINER_ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "NVIDIA_VISIBLE_DEVICES=all",
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
)
_ENABLED = ("ssh.service", "testbed-hostkey.service", "testbed-bootid.service")
# Nothing in a test host may run in the background by itself or probe the machine's hardware.
_MASKED = (
    *("systemd-udevd.service", "systemd-udev-trigger.service", "systemd-resolved.service", "systemd-networkd.service"),
    *("getty@.service", "console-getty.service", "apt-daily.timer", "apt-daily-upgrade.timer", "fstrim.timer"),
    *("dpkg-db-backup.timer", "e2scrub_all.timer", "systemd-timesyncd.service"),
)


@dataclass(frozen=True)
class Image:
    """An image of the testbed. `suite` is a Debian release or a derivative's name; `kind` is one of

    host        systemd and sshd
    container   a Python, for the hosts' own containers
    controller  a newer Python than Debian 12 has, for the newer ansible-core
    vendors     builds and serves package repositories
    payload     files of real packages, never run
    """

    kind: str
    suite: str

    @property
    def name(self) -> str:
        """Name and tag in podman's local storage."""
        return f"localhost/gpu-fleet/{self.kind}-{self.suite}:{self._digest()}"

    def _digest(self) -> str:
        # Of mmdebstrap's arguments, independent of the directory.
        digest = hashlib.sha256(f"{self} {_QUIET} {_OPTIONS[self.kind](self, Path())}".encode())
        if self.kind == "host":
            digest.update(repr(_OVERLAY).encode())
            hooks = _DERIVATIVES[self.suite][2] if self.suite in _DERIVATIVES else ()
            for file in (*(overlay[0] for overlay in _OVERLAY), *hooks):
                digest.update((_FILES / file).read_bytes())
        if self.kind == "container":
            digest.update(repr(_CONTAINER_ENVIRONMENT).encode())
        return digest.hexdigest()[:12]

    @property
    def release(self) -> str:
        """The Debian release that the image is built from."""
        return _DERIVATIVES[self.suite][0] if self.suite in _DERIVATIVES else self.suite


HOST_IMAGES = (Image("host", "bookworm"), Image("host", "trixie"))
# What runs inside the hosts' containers. Read from a docker archive there, since the testbed has no registry.
CONTAINER_IMAGE = Image("container", "trixie")
CONTROLLER_IMAGE = Image("controller", "trixie")
DEMO_IMAGES = (*HOST_IMAGES, CONTAINER_IMAGE)
# What the tests of the driver, CUDA and container roles need in addition.
DERIVATIVE_IMAGES = tuple(Image("host", name) for name in _DERIVATIVES)
VENDORS_IMAGE = Image("vendors", "bookworm")
PAYLOAD_IMAGES = tuple(Image("payload", suite) for suite in _PAYLOAD_PACKAGES)
# What hosts of the tests need besides their own images: see testbed/parts.py for those.
SHARED_IMAGES = (CONTAINER_IMAGE, VENDORS_IMAGE, *PAYLOAD_IMAGES)
CONTAINER_TAG = "localhost/gpu-fleet/demo:latest"


@contextmanager
def _scratch() -> Iterator[str]:
    """A directory for a build. One that fails may leave a mount in it, whose removal must not hide the failure."""
    directory = tempfile.mkdtemp(prefix="image-", dir=settings.CACHE)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def build(image: Image) -> None:
    """Build an image unless podman has it."""
    exists = ["podman", "image", "exists", image.name]
    if subprocess.run(exists, env=settings.environment(), capture_output=True, check=False).returncode == 0:
        return
    log = f"image-{image.kind}-{image.suite}"
    with _scratch() as scratch:
        tarball = Path(scratch) / "root.tar"
        if image.kind == "host":
            _write_overlay(Path(scratch) / "overlay.tar")
        env = settings.environment() | {
            "TMPDIR": scratch,
            # apt's cache_valid_time checks the age of the package lists: the image's are empty and must be old.
            "SOURCE_DATE_EPOCH": "1700000000",
        }
        # mmdebstrap drops its privileges to the user _apt, which must be able to enter the scratch directory.
        Path(scratch).chmod(0o755)
        mirror = [os.environ["TESTBED_DEBIAN_MIRROR"]] if "TESTBED_DEBIAN_MIRROR" in os.environ else []
        run(
            ["mmdebstrap", *_QUIET, *_OPTIONS[image.kind](image, Path(scratch)), image.release, tarball, *mirror],
            log=log,
            env=env,
        )
        changes = ['CMD ["/bin/sh"]']
        if image.kind == "host":
            changes = ['CMD ["/testbed-init"]', "STOPSIGNAL SIGRTMIN+3"]
        elif image.kind == "container":
            changes += [f"ENV {variable}" for variable in _CONTAINER_ENVIRONMENT]
        run(["podman", "import", *(f"--change={change}" for change in changes), tarball, image.name], log=log)


def export_container_image() -> Path:
    """The container image as a docker archive, which the hosts see read-only at /opt/testbed."""
    settings.ARCHIVES.mkdir(parents=True, exist_ok=True)
    archive = settings.ARCHIVES / "container.tar"
    made_from = settings.ARCHIVES / "container.name"
    if archive.exists() and made_from.exists() and made_from.read_text(encoding="utf-8") == CONTAINER_IMAGE.name:
        return archive
    archive.unlink(missing_ok=True)
    run(["podman", "tag", CONTAINER_IMAGE.name, CONTAINER_TAG], log="container-archive")
    run(["podman", "save", "--format=docker-archive", "-o", archive, CONTAINER_TAG], log="container-archive")
    archive.chmod(0o644)
    made_from.write_text(CONTAINER_IMAGE.name, encoding="utf-8")
    return archive


def _write_overlay(overlay: Path) -> None:
    with tarfile.open(overlay, "w") as archive:
        for file, path, mode in _OVERLAY:
            content = (_FILES / file).read_bytes()
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))


def _host_options(image: Image, scratch: Path) -> list[str]:
    more, options = "", []
    if image.suite in _DERIVATIVES:
        _release, more, hooks = _DERIVATIVES[image.suite]
        options = [f"--customize-hook={os.path.relpath(_FILES, settings.ROOT)}/{hook}" for hook in hooks]
        # A hook may remove apt itself, after which its files cannot be cleaned up.
        options += ["--skip=cleanup"] if "dnf" in more else []
    return [
        "--variant=minbase",
        f"--include={_HOST_PACKAGES}{more}",
        '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname; : > "$1"/etc/machine-id',
        f"--customize-hook=tar-in {scratch}/overlay.tar /",
        # An account without privileges, to test what a user without `become` sees.
        '--customize-hook=chroot "$1" useradd --create-home --shell /bin/bash ordinary',
        f'--customize-hook=chroot "$1" systemctl enable {" ".join(_ENABLED)}',
        f'--customize-hook=chroot "$1" systemctl mask {" ".join(_MASKED)}',
        *options,
    ]


def _controller_options(_image: Image, _scratch: Path) -> list[str]:
    return ["--variant=minbase", "--include=git,openssh-client,python3,python3-venv"]


def _container_options(_image: Image, _scratch: Path) -> list[str]:
    # "extract" runs no maintainer scripts and pulls no essential packages: a C library, a shell and a Python, no more.
    # It runs the hooks of its own name, none to customize.
    return [
        "--variant=extract",
        "--include=base-files,dash,python3-minimal,libpython3-stdlib,libc-bin",
        '--extract-hook=rm -rf "$1"/usr/share/doc "$1"/usr/share/man "$1"/usr/share/locale',
    ]


def _vendors_options(_image: Image, _scratch: Path) -> list[str]:
    return [
        "--variant=minbase",
        "--include=apt-utils,createrepo-c,gcc,gnupg,libc6-dev,openssl,python3,python3-yaml,rpm",
    ]


def _payload_options(image: Image, _scratch: Path) -> list[str]:
    return ["--variant=extract", f"--include={_PAYLOAD_PACKAGES[image.suite]}"]


_OPTIONS = {
    "host": _host_options,
    "container": _container_options,
    "controller": _controller_options,
    "vendors": _vendors_options,
    "payload": _payload_options,
}
