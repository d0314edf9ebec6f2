# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The default configuration of the container toolkit, as ``nvidia-ctk config`` of each version prints it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

_DEFAULT = """\
#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"
#swarm-resource = "DOCKER_RESOURCE_GPU"

[nvidia-container-cli]
#debug = "/var/log/nvidia-container-toolkit.log"
environment = []
#ldcache = "/etc/ld.so.cache"
ldconfig = "@{ldconfig}"
load-kmods = true
#no-cgroups = false
#path = "/usr/bin/nvidia-container-cli"
#root = "/run/nvidia/driver"
#user = "root:video"

[nvidia-container-runtime]
#debug = "/var/log/nvidia-container-runtime.log"
log-level = "info"
mode = "auto"
{runtimes}

[nvidia-container-runtime.modes]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
default-kind = "nvidia.com/gpu"
spec-dirs = ["/etc/cdi", "/var/run/cdi"]

[nvidia-container-runtime.modes.csv]
mount-spec-path = "/etc/nvidia-container-runtime/host-files-for-container.d"
{legacy}
[nvidia-container-runtime-hook]
path = "nvidia-container-runtime-hook"
skip-mode-detection = false

[nvidia-ctk]
path = "nvidia-ctk"
"""
_RUNTIMES = 'runtimes = ["runc", "crun"]'
_RUNTIMES_UP_TO_1_17 = 'runtimes = ["docker-runc", "runc", "crun"]'
_LEGACY = '\n[nvidia-container-runtime.modes.legacy]\ncuda-compat-mode = "ldconfig"\n'


def default_config(is_before: Callable[[str], bool], root: str) -> str:
    """Return the text; ``is_before``: whether the simulated version is before another one.

    Ubuntu has the program of ldconfig under another name, and a script of that name.
    """
    real = "/sbin/ldconfig.real"
    return _DEFAULT.format(
        ldconfig=real if os.path.exists(os.path.join(root, real[1:])) else "/sbin/ldconfig",
        runtimes=_RUNTIMES_UP_TO_1_17 if is_before("1.18") else _RUNTIMES,
        legacy="" if is_before("1.17") else _LEGACY,
    )
