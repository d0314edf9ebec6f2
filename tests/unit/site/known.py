# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What host_facts finds on a host, for the check before the first change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._gpu_operator import OnHost
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Needs
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import Preflight, check_site, needs_of

from tests.unit.site.converged import CUDA, NVIDIA_SMI
from tests.unit.site.mock_host import DEBIAN_12, H200, NO_CUDA, PRINTED, MockHost

# What depends on the GPUs is not known then.
_UNKNOWN = [{**gpu, "error": "it does not respond"} for gpu in NVIDIA_SMI["gpus"]]


def known(
    system: Mapping[str, Any] | None = None,
    *,
    packages: Mapping[str, Any] | None = None,
    missing_users: Sequence[str] = (),
    records: Mapping[str, Any] | None = None,
    gpu_count: int = 2,
    has_driver: bool = False,
    operator: OnHost | None = None,
) -> dict[str, Any]:
    """The result of the module on a host, by facts of its system without their prefix. Its GPUs decide nothing."""
    smi = {**NVIDIA_SMI, "gpu_count": 0, "gpus": _UNKNOWN, "pci_gpus": [H200] * gpu_count}
    own = {f"ansible_{name}": value for name, value in (system or {}).items()}
    host = MockHost({**DEBIAN_12, **own}, smi, CUDA if has_driver else NO_CUDA, {}, records or {}, missing_users)
    observed: dict[str, Any] = host.modules()["host_facts"]
    observed["ansible_facts"]["packages"] = packages
    observed["gpu_operator"] = asdict(operator or OnHost())
    return observed


def read(needs: Needs, printed: Mapping[str, str] | None = None, files: Sequence[str] = ()) -> dict[str, Any]:
    """The readings of a host on which no role refuses anything, but for what is given."""
    outputs = {**PRINTED, **(printed or {})}
    return {
        "files": {path: "" if path in files else None for path in needs.files},
        "commands": [
            {"argv": [*argv], "stdout": next((text for name, text in outputs.items() if name in " ".join(argv)), "")}
            for argv in needs.commands
        ],
    }


def check(roles: Sequence[str], variables: Mapping[str, Any], observed: Mapping[str, Any], **found: Any) -> Preflight:
    """What is wrong on such a host; `found` is what was read of it."""
    files = RoleData.read()
    readings = read(needs_of(roles, variables), **found)
    return check_site(roles, variables, {**observed, "readings": readings}, files)
