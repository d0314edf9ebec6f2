# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All installed packages, read with nothing but what every host has. Private to this collection.

The module package_facts needs python3-apt, and installs it where it is missing, or the rpm bindings of one Python.
"""

from __future__ import annotations

from typing import Any

from .._common.distribution import uses_dpkg
from .._common.errors import ChangeError
from .._common.host_files import HostFiles
from .._common.runner import CommandResult, find_executable, run

DPKG_FORMAT = "${Package}\\t${Version}\\t${Architecture}\\t${db:Status-Status}\\n"
RPM_FORMAT = "%{NAME}\\t%{VERSION}\\t%{RELEASE}\\t%{EPOCHNUM}\\t%{ARCH}\\n"
_TIMEOUT_SECONDS = 60.0


def read_packages(files: HostFiles) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The packages by name, each a list as of package_facts, and the names of those that dpkg did not finish.

    Raises ChangeError where they cannot be read.
    """
    if uses_dpkg(files):
        text = _output([find_executable("dpkg-query"), "--show", f"--showformat={DPKG_FORMAT}"])
        return parse_dpkg(text), unfinished(text)
    return parse_rpm(_output([find_executable("rpm"), "--query", "--all", f"--queryformat={RPM_FORMAT}"])), []


def _output(argv: list[str]) -> str:
    result: CommandResult = run(argv, _TIMEOUT_SECONDS)
    if result.rc != 0:
        reason = (result.error_text.strip().splitlines() or ["no output"])[-1]
        raise ChangeError(f"the installed packages cannot be read: {argv[0]} failed: {reason}")
    return result.text


def parse_dpkg(text: str) -> dict[str, list[dict[str, Any]]]:
    """The output of dpkg-query; the host's own architecture is first where a package has several."""
    rows = [row for row in (line.split("\t") for line in text.splitlines()) if len(row) == 4 and row[3] == "installed"]
    own = {row[2] for row in rows if row[0] == "dpkg"}
    found: dict[str, list[dict[str, Any]]] = {}
    for name, version, architecture, _status in sorted(rows, key=lambda row: row[2] not in (*own, "all")):
        found.setdefault(name, []).append(
            {"name": name, "version": version, "arch": architecture, "source": "apt"},
        )
    return found


_UNFINISHED = ("unpacked", "half-configured", "half-installed")


def unfinished(text: str) -> list[str]:
    """The packages that are there and not configured, such as one whose kernel module could not be built."""
    rows = [line.split("\t") for line in text.splitlines()]
    return sorted({row[0] for row in rows if len(row) == 4 and row[3] in _UNFINISHED})


def parse_rpm(text: str) -> dict[str, list[dict[str, Any]]]:
    """The output of rpm; several versions of one name, as of kernels, are several entries."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        row = line.split("\t")
        if len(row) != 5:
            continue
        name, version, release, epoch, architecture = row
        found.setdefault(name, []).append(
            {
                "name": name,
                "version": version,
                "release": release,
                "epoch": None if epoch in ("0", "(none)") else int(epoch),
                "arch": None if architecture == "(none)" else architecture,
                "source": "rpm",
            }
        )
    return found
