# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mock host on which every role finds what it requests: its records have the inputs that the roles compute."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.conftest import COLLECTIONS
from tests.unit.site.mock_host import DEBIAN_12, H200, NO_CUDA, MockHost

VERSION = "580.95.05"
_GPU: Mapping[str, Any] = {
    "index": 0,
    "uuid": "GPU-0",
    "name": "NVIDIA H200",
    "mig_mode_current": "disabled",
    "mig_devices": [],
    "ecc_mode_current": "enabled",
}
NVIDIA_SMI: Mapping[str, Any] = {
    "available": True,
    "reason": None,
    "message": None,
    "driver_version": VERSION,
    "cuda_version": "13.0",
    "gpu_count": 2,
    "gpus": [_GPU, {**_GPU, "index": 1, "uuid": "GPU-1"}],
    "pci_gpus": [H200, H200],
    "unhealthy": [],
    "warnings": [],
}
CUDA: Mapping[str, Any] = {
    **NO_CUDA,
    "driver": {
        **NO_CUDA["driver"],
        "library_version": VERSION,
        "module_version": VERSION,
        "loaded_version": VERSION,
        "loaded": True,
    },
    "container_toolkit": {"installed": True, "cdi_specifications": []},
}
PACKAGES: Mapping[str, str] = {
    "dpkg": "1.21.22",
    "apparmor": "3.0.8-3",
    "ca-certificates": "20230311",
    "docker.io": "20.10.24+dfsg1-1",
    "python3-requests": "2.28.1",
    **dict.fromkeys(
        (
            "nvidia-container-toolkit",
            "nvidia-container-toolkit-base",
            "libnvidia-container-tools",
            "libnvidia-container1",
        ),
        "1.20.0-1",
    ),
}
STATE: Mapping[str, Any] = {
    "changed": False,
    "gpus_changed": False,
    "mig_changed": False,
    "reboot_required": False,
    "reboot_tried": False,
    "awaits_reboot": False,
    "interrupts": False,
    "cdi_refresh": False,
    "pending": [],
}
HEALTH: Mapping[str, Any] = {
    "changed": False,
    "verdict": "ok",
    "remedy": "none",
    "driver_version": VERSION,
    "findings": [],
    "gpus": [],
}
PROVED: Mapping[str, Any] = {"gpus": 2, "mig_devices": 0, "mode": "legacy", "proved": "2026-11-22T10:00:00Z"}
WITHOUT_CONTAINER: Mapping[str, Any] = {"gpu_health_container_image": ""}


def converged(given: Mapping[str, Any]) -> MockHost:
    """The host after the playbook has run with these variables."""
    host = MockHost(
        DEBIAN_12, NVIDIA_SMI, CUDA, PACKAGES, _records({}), results={"gpu_state": STATE, "gpu_health": HEALTH}
    )
    return replace(host, records=_with_inputs(host, given))


RECORDS = (
    "nvidia_driver",
    "cuda",
    "cudnn",
    "docker",
    "nvidia_container_toolkit",
    "nvidia_repository.cuda",
    "nvidia_repository.container_toolkit",
)


def _records(inputs: Mapping[str, str]) -> dict[str, Any]:
    data: dict[str, Any] = {"nvidia_repository.cuda": {"needed_by": ["cuda", "cudnn"], "url": "https://example.org/"}}
    data["gpu_health"] = {"containers": PROVED}
    data["nvidia_repository.container_toolkit"] = {"needed_by": ["nvidia_container_toolkit"]}
    return {
        name: {"inputs": inputs.get(name, ""), "data": data.get(name, {}), "drift": []}
        for name in (*RECORDS, "gpu_health")
    }


# In a process of its own: the collection of this one was not imported by Ansible, which finds filters only then.
_PROGRAM = """
import json, sys
from ansible.plugins.loader import init_plugin_loader

init_plugin_loader([sys.argv[1]])
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_repository import Host, Request, plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import PLANNERS

FILES = RoleData.read()
given = json.load(sys.stdin)
inputs = {}
for name in given["ansible_facts"]["gpu_fleet_managed"]:
    role, _dot, repository = name.partition(".")
    if repository:
        request = Request.read({**FILES.defaults([role]), **given}, repository)
        inputs[name] = plan(request, Host.of(given["ansible_facts"]), FILES.tables.keys).inputs
        continue
    variables = {**FILES.defaults([role]), **given, **FILES.role_values[role]}
    inputs[name] = PLANNERS[role].stages["plan"](variables, given["ansible_facts"], {}).inputs
print(json.dumps(inputs))
"""


def _with_inputs(host: MockHost, given: Mapping[str, Any]) -> dict[str, Any]:
    facts = host.modules()["host_facts"]["ansible_facts"]
    system = {name.removeprefix("ansible_"): value for name, value in host.system.items()}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(COLLECTIONS)],
        input=json.dumps({**given, "ansible_check_mode": False, "ansible_facts": {**system, **facts}}),
        capture_output=True,
        text=True,
        check=True,
    )
    return _records(json.loads(done.stdout))
