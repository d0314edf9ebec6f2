# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The family of a distribution. Private to this collection."""

from __future__ import annotations

import re

from .host_files import HostFiles


def uses_dpkg(files: HostFiles) -> bool:
    """Whether the distribution uses .deb packages: hosts of both families can have both tools installed."""
    release = files.read("/etc/os-release") or files.read("/usr/lib/os-release") or ""
    family = {word for line in re.findall(r"(?m)^ID(?:_LIKE)?=(.*)$", release) for word in line.strip("\"'").split()}
    if family & {"debian", "ubuntu"}:
        return True
    if family & {"rhel", "fedora", "centos", "suse", "sles"}:
        return False
    return files.exists("/var/lib/dpkg/status")
