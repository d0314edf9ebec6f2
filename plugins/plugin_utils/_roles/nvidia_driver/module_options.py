# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the kernel module nvidia, as modprobe takes them. Private to this collection. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_NAME = re.compile(r"NVreg_[A-Za-z0-9]+")
# modprobe separates options by space and has quotes, escapes and comments; nothing of that is needed for a value.
_VALUE = re.compile(r"[A-Za-z0-9_.,:;=/+-]*")


@dataclass(frozen=True)
class ModuleOptions:
    """`parameters` by name, `content` of a file in /etc/modprobe.d, and reasons against the options."""

    parameters: dict[str, str]
    content: str
    refusals: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The dict that templates get."""
        return {**asdict(self), "refusals": list(self.refusals)}


def module_options(options: Mapping[str, Any]) -> ModuleOptions:
    """The options of a mapping from name to number, boolean or string."""
    refusals = []
    values = {}
    for name, value in options.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            refusals.append(
                f"{name} is not the name of an option of the module nvidia, such as NVreg_EnableGpuFirmware"
            )
        elif not isinstance(value, (bool, int, str)) or not _VALUE.fullmatch(str(value)):
            refusals.append(
                f"{name} is {value!r}; a number, true, false or a string without spaces and quotes is needed"
            )
        else:
            values[name] = str(int(value)) if isinstance(value, bool) else str(value)
    line = " ".join(["options nvidia", *(f"{name}={values[name]}" for name in sorted(values))])
    content = f"# Managed by Ansible (gpu.fleet.nvidia_driver).\n{line}\n" if values else ""
    return ModuleOptions(dict(sorted(values.items())), content, tuple(refusals))
