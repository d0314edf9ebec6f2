# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make nvidia-persistenced keep GPUs initialised, whatever unit comes with it. Private to this collection.

Pure: the unit files that are on a host in, the files of the role out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OWN = "# Managed by Ansible (gpu.fleet.nvidia_driver)."
"""The first line of each file that the role writes."""

UNIT_DIRECTORIES = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
"""Where systemd looks for a unit file, first one first."""

_OFF = "--no-persistence-mode"
# An image boots without an error on a machine without a GPU.
_CONDITION = "ConditionPathExists=/proc/driver/nvidia/version"
_INSTALL = ("[Install]", "WantedBy=multi-user.target")
# As NVIDIA's rpm packages have it. A runfile brings the program without a unit and without a user for it.
_UNIT = (
    OWN,
    "[Unit]",
    "Description=NVIDIA Persistence Daemon",
    "[Service]",
    "Type=forking",
    "ExecStart=/usr/bin/nvidia-persistenced --verbose",
    "ExecStopPost=/bin/rm -rf /run/nvidia-persistenced",
    *_INSTALL,
)


@dataclass(frozen=True)
class DaemonFiles:
    """Contents: `unit`, empty where one is there already, and `dropin`, which goes with it."""

    unit: str
    dropin: str


def daemon_files(units: Mapping[str, str]) -> DaemonFiles:
    """The files for a host with these unit files of the daemon: their contents by path.

    Ubuntu's unit is static, stops when nothing needs it, and is started with --no-persistence-mode: a daemon of this
    kind runs, and keeps nothing initialised. NVIDIA's and Debian's need the condition only.
    """
    text = next(
        (
            text
            for directory in UNIT_DIRECTORIES
            for path, text in units.items()
            if path.rpartition("/")[0] == directory and text.strip() and not text.startswith(OWN)
        ),
        "",
    )
    if not text:
        return DaemonFiles(_text(_UNIT), _text((OWN, "[Unit]", _CONDITION)))
    settings = _settings(text)
    lines = [OWN, "[Unit]", _CONDITION]
    if _last(settings, "Unit", "StopWhenUnneeded").lower() in ("1", "yes", "y", "true", "t", "on"):
        lines.append("StopWhenUnneeded=false")
    start = _last(settings, "Service", "ExecStart")
    if _OFF in shlex.split(start):
        lines += ["[Service]", "# An empty value first, or both commands would be run.", "ExecStart="]
        lines.append("ExecStart=" + " ".join(word for word in start.split() if word.strip("\"'") != _OFF))
    if not any(section == "Install" and name in ("WantedBy", "RequiredBy") for section, name, _value in settings):
        lines += _INSTALL
    return DaemonFiles("", _text(lines))


def _settings(text: str) -> list[tuple[str, str, str]]:
    """Section, name and value of each setting of a unit file, in order; lines that go on are joined."""
    joined = re.sub(r"\\\n(?:[ \t]*[#;].*\n)*", " ", text)
    settings, section = [], ""
    for line in map(str.strip, joined.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line and not line.startswith(("#", ";")):
            name, _equals, value = line.partition("=")
            settings.append((section, name.strip(), value.strip()))
    return settings


def _last(settings: Sequence[tuple[str, str, str]], section: str, name: str) -> str:
    """The last value of a setting that is not empty; an empty one resets those before it."""
    values = [value for one, other, value in settings if (one, other) == (section, name)]
    return values[-1] if values else ""


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
