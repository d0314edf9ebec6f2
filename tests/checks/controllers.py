# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python interpreters of this machine, and the ansible-core versions that can be tested with them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.checks.tools import CACHE, VENV, make_venv
from tests.conftest import EFFORT

Minor = tuple[int, int]
_OLDEST, _NEWEST = 8, 14


@dataclass(frozen=True)
class Release:
    """A release of ansible-core, with the oldest and newest Python that it supports on controllers and on targets."""

    version: str
    controller: tuple[Minor, Minor]
    target: tuple[Minor, Minor]

    @property
    def core(self) -> str:
        """The release series, such as 2.21."""
        return self.version.rpartition(".")[0]


# Python versions as in ansible_test/_util/target/common/constants.py of each release; our modules need 3.8.
_RELEASES = (
    Release("2.16.19", controller=((3, 10), (3, 12)), target=((3, 8), (3, 12))),
    Release("2.17.14", controller=((3, 10), (3, 12)), target=((3, 8), (3, 12))),
    Release("2.18.19", controller=((3, 11), (3, 13)), target=((3, 8), (3, 13))),
    Release("2.19.14", controller=((3, 11), (3, 13)), target=((3, 8), (3, 13))),
    Release("2.20.10", controller=((3, 12), (3, 14)), target=((3, 9), (3, 14))),
    Release("2.21.5", controller=((3, 12), (3, 14)), target=((3, 9), (3, 14))),
)


@dataclass(frozen=True)
class Controller:
    """An ansible-core to run the collection with: full version, Python interpreter, virtual environment."""

    version: str
    python: Path
    venv: Path

    @property
    def core(self) -> str:
        """The release series, such as 2.21."""
        return self.version.rpartition(".")[0]

    @property
    def settings(self) -> dict[str, str]:
        """Settings of Ansible without which this release is refused."""
        return {"ANSIBLE_JINJA2_NATIVE": "true"} if tuple(map(int, self.core.split("."))) < (2, 19) else {}

    def ensure(self) -> Path:
        """Create the virtual environment if it does not exist; return its bin directory."""
        if self.venv != VENV:
            # The collection's filters need jmespath on the controller.
            make_venv(self.venv, self.python, [f"ansible-core=={self.version}", "jmespath"])
        return self.venv / "bin"


def version_of(python: Path) -> Minor | None:
    """Version of an interpreter; None if it does not run (pyenv has shims for versions that are not installed)."""
    ask = "import ensurepip, sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    major, minor = done.stdout.split()
    return int(major), int(minor)


def _candidates(minor: int) -> Iterator[Path]:
    name = f"python3.{minor}"
    for directory in (f"{sys.base_prefix}/bin", "/usr/bin", "/usr/local/bin", *os.environ.get("PATH", "").split(":")):
        if directory and not directory.endswith("/shims"):
            yield Path(directory) / name
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    # That of another user, as after su, cannot be read.
    if os.access(versions, os.R_OK | os.X_OK):
        yield from sorted(versions.glob(f"3.{minor}.*/bin/{name}"))


@functools.cache
def pythons() -> dict[Minor, Path]:
    """One interpreter for each Python from 3.8 to 3.14 that runs here and can create virtual environments."""
    found: dict[Minor, Path] = {}
    for minor in range(_OLDEST, _NEWEST + 1):
        for path in _candidates(minor):
            # Of another user's directory, os.access reports that it is not there.
            if os.access(path, os.X_OK) and version_of(path) == (3, minor):
                found[3, minor] = path
                break
    return found


@functools.cache
def controllers() -> tuple[Controller, ...]:
    """The ansible-core of this environment first, then every other release that a Python here can run.

    Of the others only the oldest and the newest where GPU_FLEET_EFFORT is quick: each takes minutes.
    Environments are not created yet: `Controller.ensure` does that, at .cache/venv-<core>.
    """
    own = Controller(version("ansible-core"), VENV / "bin" / "python", VENV)
    others = []
    for release in _RELEASES:
        usable = _between(*release.controller)
        if usable and release.core != own.core:
            others.append(Controller(release.version, usable[max(usable)], CACHE / f"venv-{release.core}"))
    return (own, *(others if EFFORT != "quick" else [others[0], others[-1]] if len(others) > 1 else others))


def target_pythons(core: str = "") -> dict[Minor, Path]:
    """Python interpreters of this machine that an ansible-core, by default this environment's, supports on targets."""
    release = next(release for release in _RELEASES if release.core == (core or controllers()[0].core))
    return _between(*release.target)


def _between(oldest: Minor, newest: Minor) -> dict[Minor, Path]:
    return {minor: path for minor, path in pythons().items() if oldest <= minor <= newest}
