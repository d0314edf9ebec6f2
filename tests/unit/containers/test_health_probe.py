# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container of the health check: its environment, and what it is expected to see."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from tests.conftest import ROOT
from tests.unit.plays import run_play, without_verdict

pytestmark = pytest.mark.plays

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


def test_an_image_that_cannot_be_pulled_is_no_reason_against_gpus(tmp_path: Path) -> None:
    server = 'Error pulling image a:b - 500 Server Error ("Get "https://nvcr.io/v2/": dial tcp: i/o timeout")'
    unproved = "no verdict about the GPUs: the registry cannot be reached, and the image nvcr.io/"
    cases = {
        server: ("", unproved),
        "Error starting container: driver rpc error: timed out": ("all GPUs failed: Error starting", ""),
        # An image prints what it likes.
        "of the image": ("all GPUs failed: Error pulling", ""),
    }
    printed_by_image = {"status": 1, "container": {"Output": "Error pulling /v2/: i/o timeout"}}
    tasks = [
        {
            "ansible.builtin.debug": {"msg": "<{{ __gpu_health_container_failed }}|{{ __gpu_health_unproved }}>"},
            "vars": {"__gpu_health_probe": printed_by_image if message == "of the image" else {"msg": message}},
        }
        for message in cases
    ]
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / part / "main.yml") for part in ("defaults", "vars")],
        "vars": {"__gpu_health_container_ran": True},
        "tasks": tasks,
    }
    printed = re.findall(r"<(.*?)[|](.*?)>", run_play(tmp_path, play))
    assert len(printed) == len(cases)
    for found, expected in zip(printed, cases.values(), strict=True):
        for text, part in zip(found, expected, strict=True):
            assert (part in text) if part else (text == "[]"), printed


def test_what_an_image_requires_of_the_driver_does_not_fail_the_probe() -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / "container.yml").read_text(encoding="utf-8"))
    probes = [
        task["community.docker.docker_container"] for task in tasks if "community.docker.docker_container" in task
    ]
    assert [probe["env"] for probe in probes] == [{"NVIDIA_DISABLE_REQUIRE": "1"}]


@pytest.mark.parametrize(
    ("version", "ignored", "reason"),
    [
        ("1.17.8", [], ""),
        ("", [], ""),
        (
            "1.17.4",
            [],
            "container toolkit 1.17.4 lets a container escape to its host (CVE-2025-23266); 1.17.8 and newer",
        ),
        ("1.16.1", ["CVE-2025-23266"], "escape to its host (CVE-2024-0132, CVE-2025-23359); 1.17.4 and newer do not"),
        ("1.17.4", ["CVE-2025-23266"], ""),
    ],
)
def test_a_toolkit_with_known_escapes_fails_unless_they_are_accepted(
    version: str, ignored: list[str], reason: str, tmp_path: Path
) -> None:
    program = tmp_path / "nvidia-ctk"
    program.write_text(f"#!/bin/sh\n[ '{version}' ] || exit 1\necho NVIDIA Container Toolkit CLI version {version}\n")
    program.chmod(0o755)
    smi = {"available": True, "driver_version": "", "pci_gpus": [], "gpus": [], "unhealthy": [], "message": None}
    variables = {
        "ansible_facts": {"nvidia_smi": smi},
        "__common_facts_are_read": True,
        "gpu_health_container_image": "",
        **without_verdict(),
        "gpu_health_ignore_vulnerabilities": ignored,
    }
    role = {
        "block": [{"ansible.builtin.include_role": {"name": "gpu.fleet.gpu_health"}, "vars": variables}],
        "rescue": [{"ansible.builtin.debug": {"msg": "failed"}}],
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "environment": {"PATH": f"{tmp_path}:/usr/bin:/bin"},
        "tasks": [role, {"ansible.builtin.debug": {"msg": "<{{ gpu_health_result.reasons | join }}>"}}],
    }
    printed = run_play(tmp_path, play)
    assert ("<>" in printed) is (reason == "")
    assert reason in printed
