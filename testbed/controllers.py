# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controllers with the ansible-core releases that this machine's own Python may be too old for.

ansible-core 2.20 and 2.21 require Python 3.12 and Debian 12 has 3.11, so they run in a Debian 13 container that sees
the checkout at the same path and the test hosts over their network, on every machine alike.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from pathlib import Path

from testbed import settings
from testbed.images import CONTROLLER_IMAGE, build
from testbed.progress import run

# Newest of each branch besides the one in requirements/dev.txt for Python 3.11.
CORES = ("2.20.10", "2.21.5")
_PYTHON = "3.13"  # of Debian 13
_REQUIREMENTS = ("jmespath", "requests", "docker")


def _directory(core: str) -> Path:
    return settings.CACHE / "controllers" / core


def prepare(core: str) -> None:
    """Make the controller for one ansible-core: packages are fetched here and installed in the container offline."""
    build(CONTROLLER_IMAGE)
    directory = _directory(core)
    marker = directory / ".inputs"
    digest = hashlib.sha256(f"{core} {_REQUIREMENTS} {CONTROLLER_IMAGE.name}".encode()).hexdigest()
    if marker.exists() and marker.read_text(encoding="utf-8") == digest:
        return
    directory.mkdir(parents=True, exist_ok=True)
    log = f"controller-{core}"
    wheels = directory / "wheels"
    glibcs = ("2014", "_2_17", "_2_24", "_2_28", "_2_34")
    platforms = [f"--platform=manylinux{glibc}_{platform.machine()}" for glibc in glibcs]
    run(
        [
            *(
                str(settings.VENV / "bin" / "pip"),
                "download",
                "-q",
                "--only-binary=:all:",
                f"--python-version={_PYTHON}",
            ),
            *(*platforms, "-d", wheels, f"ansible-core=={core}", *_REQUIREMENTS),
        ],
        log=log,
    )
    venv = directory / "venv"
    run(command(None, ["python3", "-m", "venv", "--clear", str(venv)]), log=log)
    install = [f"{venv}/bin/pip", "install", "-q", "--no-index", f"--find-links={wheels}", f"ansible-core=={core}"]
    run(command(None, [*install, *_REQUIREMENTS]), log=log)
    marker.write_text(digest, encoding="utf-8")


def command(core: str | None, argv: Sequence[str]) -> list[str]:
    """Return the command that runs argv on the controller with this ansible-core (None: no virtual environment)."""
    env = settings.environment()
    passed = {name: env[name] for name in env if name.startswith(("ANSIBLE_", "GPU_FLEET_"))}
    passed["HOME"] = str(settings.CACHE / "home")
    passed["LC_ALL"] = "C.UTF-8"
    # Inside the container: ssh control sockets of another namespace do not work there.
    passed["ANSIBLE_SSH_CONTROL_PATH_DIR"] = "/tmp/ssh"
    path = "/usr/local/bin:/usr/bin:/bin"
    passed["PATH"] = f"{_directory(core)}/venv/bin:{path}" if core else path
    network = settings.NETWORK if core else "none"
    return [
        *("podman", "run", "--rm", f"--label={settings.LABEL}", f"--network={network}"),
        *(f"--volume={settings.ROOT}:{settings.ROOT}", f"--workdir={settings.ROOT}"),
        *(f"--env={name}={value}" for name, value in passed.items()),
        *(CONTROLLER_IMAGE.name, *argv),
    ]
