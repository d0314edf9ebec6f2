# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of the real Prometheus: those of the machine, or out of Debian's packages, which are not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from testbed import settings

_UNPACKED = settings.CACHE / "prometheus"
_PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
}
"""Debian's package by program."""


def program(name: str) -> Path:
    """Path of a program; skips the test where it is neither installed nor to be had."""
    installed = shutil.which(name)
    if installed:
        return Path(installed)
    if not (_UNPACKED / name).exists():
        _unpack(_PACKAGES[name])
    return _UNPACKED / name


def _unpack(package: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for command in (["apt-get", "download", package], ["sh", "-c", "dpkg-deb -x *.deb ."]):
            if not shutil.which(command[0]) or subprocess.run(command, cwd=directory, check=False).returncode:
                pytest.skip(f"no {package}: neither installed nor to be had from Debian's archive")
        _UNPACKED.mkdir(parents=True, exist_ok=True)
        for name in (name for name, owner in _PACKAGES.items() if owner == package):
            # Complete at any time: other processes may do the same.
            partial = _UNPACKED / f"{name}.{os.getpid()}"
            shutil.copy(Path(directory) / "usr" / "bin" / name, partial)
            partial.replace(_UNPACKED / name)
