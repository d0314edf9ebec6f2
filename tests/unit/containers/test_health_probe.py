# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container of the health check: its environment, and what it is expected to see."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from tests.conftest import ROOT

ROLE = ROOT / "roles" / "gpu_health"
WHOLE, PARENT, EMPTY, FIRST, SECOND = (
    f"{kind}-c17fb1f{number}-eab0-50ac-8ca7-5a0f88ae4bfd" for number, kind in enumerate(["GPU"] * 3 + ["MIG"] * 2)
)
GPUS = [
    {"uuid": WHOLE, "mig_mode_current": "disabled", "mig_devices": []},
    {"uuid": PARENT, "mig_mode_current": "enabled", "mig_devices": [{"uuid": FIRST}, {"uuid": SECOND}]},
    {"uuid": EMPTY, "mig_mode_current": "enabled", "mig_devices": []},
]


def differences(*seen: str) -> list[str]:
    """The reasons for a container that saw these UUIDs."""
    loader = DataLoader()
    variables: dict[str, Any] = {}
    for part in ("defaults", "vars"):
        variables |= loader.load_from_file(str(ROLE / part / "main.yml"), trusted_as_template=True)
    output = "".join(f"GPU: NVIDIA H200 (UUID: {uuid})\n" for uuid in seen)
    facts = {
        "ansible_facts": {"nvidia_smi": {"gpus": GPUS}},
        "__gpu_health_probe": {"status": 0, "container": {"Output": output}},
    }
    templar = Templar(loader, {**variables, **facts, "__gpu_health_container_ran": True})
    found: list[str] = templar.template(templar.available_variables["__gpu_health_container_differs"])
    return found


@pytest.mark.parametrize(
    ("seen", "reasons"),
    [
        ([WHOLE, PARENT, FIRST, SECOND], []),
        ([WHOLE, PARENT, EMPTY, FIRST, SECOND], []),
        ([WHOLE, PARENT, FIRST], [f"does not see {SECOND}"]),
        ([WHOLE, PARENT], [f"does not see {FIRST}, {SECOND}"]),
        ([PARENT, FIRST, SECOND], [f"does not see {WHOLE}"]),
        ([WHOLE, PARENT, FIRST, SECOND, "MIG-0"], ["sees MIG-0, which the host does not have"]),
        ([WHOLE, PARENT, FIRST, SECOND, "GPU-0"], ["sees GPU-0, which the host does not have"]),
    ],
)
def test_gpus_and_mig_devices_of_the_host_are_expected(seen: list[str], reasons: list[str]) -> None:
    assert differences(*seen) == [f"a container with all GPUs {reason}" for reason in reasons]


def test_what_an_image_requires_of_the_driver_does_not_fail_the_probe() -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / "container.yml").read_text(encoding="utf-8"))
    probes = [
        task["community.docker.docker_container"] for task in tasks if "community.docker.docker_container" in task
    ]
    assert [probe["env"] for probe in probes] == [{"NVIDIA_DISABLE_REQUIRE": "1"}]
