# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of the machine, the virtual environment and the collections. Each is left alone when it is present."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from testbed import settings
from testbed.progress import CommandError, report, run

# Detected by the commands they provide, so that a machine with podman from another source is left as it is.
_PACKAGES = {
    "podman": "podman",
    "runc": "runc",
    "conmon": "conmon",
    "mmdebstrap": "mmdebstrap",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "gpg": "gnupg",
    # podman's network needs one or the other, depending on its version.
    "iptables": "iptables",
    "nft": "nftables",
    "ip": "iproute2",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "/etc/ssl/certs/ca-certificates.crt": "ca-certificates",
}

# What opens pages in the tests, with the client in requirements/browser.txt, and what computes all-reduces.
OPTIONAL = {
    "Chromium": {"chromium": "chromium", "chromedriver": "chromium-driver"},
    "PyTorch": {"/usr/lib/python3/dist-packages/torch": "python3-torch"},
}
_BROWSER_REQUIREMENTS = settings.ROOT / "requirements" / "browser.txt"

# The collections that the project uses, and the release of the `ansible` distribution they are taken from.
_DISTRIBUTION = "14.5.0"
_COLLECTIONS = (
    "ansible.posix",
    "ansible.windows",
    "community.docker",
    "community.general",
    "community.library_inventory_filtering_v1",
    "containers.podman",
    "kubernetes.core",
)
_REQUIREMENTS = settings.ROOT / "requirements" / "dev.txt"
_VENV_PACKAGE = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
_INSTALLED_LIST = settings.CACHE / "packages-installed"


def _lacks_venv() -> bool:
    """Whether Debian's package with this Python's venv is missing."""
    needed = [sys.executable, "-c", "import ensurepip, venv"]
    return subprocess.run(needed, capture_output=True, check=False).returncode != 0


def require_root() -> None:
    """Start again under sudo when not root: podman's systemd hosts and mmdebstrap need it."""
    if os.geteuid() == 0:
        return
    if not shutil.which("sudo"):
        raise CommandError("the test testbed needs root (systemd hosts in podman): run as root, or install sudo")
    os.execvp("sudo", ["sudo", "--preserve-env", "--", sys.executable, "-m", "testbed", *sys.argv[1:]])


def require_tools() -> None:
    """Raise CommandError with the names of missing packages that the tests without hosts need; install nothing."""
    missing = {tool for tool in ("git", "ssh") if not shutil.which(tool)}
    if _lacks_venv():
        missing.add(_VENV_PACKAGE)
    if missing:
        raise CommandError(f"missing: {', '.join(sorted(missing))}; install it, `make test` as root does so itself")


def install_packages() -> None:
    """Install what is missing of Debian's packages; their names are kept for `demo-clean` to report."""
    missing = _missing(_PACKAGES)
    if _lacks_venv():
        missing.add(_VENV_PACKAGE)
    _install(missing)


def install_optional(name: str) -> None:
    """Install what only some tests need. Where it cannot be installed, these tests are skipped.

    Enterprise Linux has no apt, and Ubuntu has Chromium as a snap only.
    """
    try:
        _install(_missing(OPTIONAL[name]))
    except CommandError as error:
        report(f"  no {name}, so the tests with it are not run: {str(error).splitlines()[0]}")


def _missing(things: Mapping[str, str]) -> set[str]:
    """The packages of the commands and files that this machine lacks."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return {
        package
        for thing, package in things.items()
        if not (Path(thing).exists() if thing.startswith("/") else shutil.which(thing, path=path))
    }


def _install(missing: set[str]) -> None:
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise CommandError(f"missing: {', '.join(sorted(missing))}; this is no Debian or Ubuntu, install them by hand")
    env = settings.environment() | {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "-qq", "update"], log="packages", env=env)
    run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *sorted(missing)], log="packages", env=env)
    with _INSTALLED_LIST.open("a", encoding="utf-8") as file:
        file.writelines(f"{package}\n" for package in sorted(missing))


def packages_installed() -> list[str]:
    """The packages that `install_packages` has added to this machine."""
    return _INSTALLED_LIST.read_text(encoding="utf-8").split() if _INSTALLED_LIST.exists() else []


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


def _is_made(directory: Path, digest: str) -> bool:
    marker = directory / ".inputs"
    return marker.exists() and marker.read_text(encoding="utf-8") == digest


def make_environment(venv: Path = settings.VENV, requirements: Path = _REQUIREMENTS) -> None:
    """Build a virtual environment, by default .cache/venv, when either its requirements or the Python have changed.

    GPU_FLEET_ANSIBLE_CORE is the version of ansible-core to take instead of the file's.
    """
    core = os.environ.get("GPU_FLEET_ANSIBLE_CORE", "")
    testbed = settings.ROOT / "testbed"
    own = [testbed / "host-image" / name for name in settings.ZIP_BYTECODE]
    own += [testbed / name for name in ("ansible_caches.py", "ansible_caches.pth")]
    digest = _digest(requirements.read_bytes(), sys.version, core, *(file.read_bytes() for file in own))
    if _is_made(venv, digest):
        return
    shutil.rmtree(venv, ignore_errors=True)
    run([sys.executable, "-m", "venv", venv], log="venv")
    if core:
        lines = [line for line in requirements.read_text(encoding="utf-8").splitlines() if "ansible-core" not in line]
        requirements = venv / "requirements.txt"
        requirements.write_text("\n".join([*lines, f"ansible-core=={core}", ""]), encoding="utf-8")
    run([venv / "bin" / "pip", "install", "-q", "-r", requirements], log="venv")
    for file in own:
        shutil.copy(file, next(venv.glob("lib/python3*/site-packages")))
    (venv / ".inputs").write_text(digest, encoding="utf-8")


def make_browser_environment() -> Path:
    """Build .cache/venv-browser; returns the directory of its packages, for a path of modules."""
    venv = settings.CACHE / "venv-browser"
    make_environment(venv, _BROWSER_REQUIREMENTS)
    return next(venv.glob("lib/python3*/site-packages"))


def fetch_collections() -> None:
    """Take the collections out of the `ansible` distribution on the package index: Galaxy is not needed."""
    link = settings.COLLECTIONS / "ansible_collections" / "gpu" / "fleet"
    digest = _digest(_DISTRIBUTION, *_COLLECTIONS)
    if not _is_made(settings.COLLECTIONS, digest):
        shutil.rmtree(settings.COLLECTIONS, ignore_errors=True)
        settings.COLLECTIONS.mkdir(parents=True)
        with tempfile.TemporaryDirectory(dir=settings.CACHE) as scratch:
            pip = [str(settings.VENV / "bin" / "pip"), "download", "-q", "--no-deps", "--only-binary=:all:"]
            # The distribution requires Python 3.12, which does not matter here: only files are taken out of it.
            run([*pip, "--python-version=3.13", "-d", scratch, f"ansible=={_DISTRIBUTION}"], log="collections")
            wheel = next(Path(scratch).glob("ansible-*.whl"))
            prefixes = tuple(f"ansible_collections/{name.replace('.', '/')}/" for name in _COLLECTIONS)
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.startswith(prefixes) and "/tests/" not in n]
                archive.extractall(settings.COLLECTIONS, names)
        (settings.COLLECTIONS / ".inputs").write_text(digest, encoding="utf-8")
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(settings.ROOT, link.parent))
