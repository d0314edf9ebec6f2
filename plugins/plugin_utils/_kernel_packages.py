# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of the kernels of the supported distributions. Private to this collection. Pure."""

from __future__ import annotations

import re

# Enterprise Linux: 5.14.0-503.el9.aarch64+64k, 6.12.0-55.el10.x86_64+rt-debug; Oracle: 5.15.0-306.el9uek.x86_64.
_RPM = re.compile(r"(?P<base>[^+]+?)(?:\+(?P<variant>[a-z0-9-]+))?")
# The real-time kernel of EL 9.2 and older has no variant at its end: 5.14.0-284.30.1.rt14.315.el9_2.x86_64.
_REAL_TIME = re.compile(r"\.rt\d+\.")


def headers_package(kernel: str, manager: str) -> str:
    """The package with the headers of a kernel, which is named as `uname -r` prints it.

    `manager` is apt or dnf. Kernels with pages of 64 KiB, for debugging and for real time have packages of their own,
    and so has Oracle's Unbreakable Enterprise Kernel.
    """
    if manager == "apt":
        return f"linux-headers-{kernel}"
    found = _RPM.fullmatch(kernel)
    base, variant = (found["base"], found["variant"] or "") if found else (kernel, "")
    if _REAL_TIME.search(base) and not variant:
        variant = "rt"
    if "uek" in base:
        parts = variant.split("-") if variant else []
        # Its kernel with pages of 64 KiB is kernel-uek64k.
        name = "kernel-uek64k" if "64k" in parts else "kernel-uek"
        variant = "-".join(part for part in parts if part != "64k")
    else:
        name = "kernel"
    return "-".join(part for part in (name, variant, "devel", base) if part)
