# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smoke test with a mock engine: the command line of each container, what is verified and reported."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

GPU, SECOND, MIG = (f"{kind}-c17fb1f{number}-eab0-50ac-8ca7-5a0f88ae4bfd" for kind, number in
                    (("GPU", 0), ("GPU", 1), ("MIG", 2)))  # fmt: skip
GPUS = [
    {"index": 0, "uuid": GPU, "mig_mode_current": "disabled", "mig_devices": []},
    {"index": 1, "uuid": SECOND, "mig_mode_current": "enabled", "mig_devices": [{"index": 0, "uuid": MIG}]},
]
ENGINE = f"""#!/bin/sh
printf '%s\\n' "$*" >>"$(dirname "$0")/calls"
case "$*" in
    *gpu=all* | *--gpus=all*) echo "UUID: {GPU} UUID: {SECOND} UUID: {MIG}" ;;
    *gpu={MIG}* | *gpu=1:0*) echo "UUID: {SECOND} UUID: {MIG}" ;;
    *gpu=0* | *gpu={GPU}*) echo "UUID: {GPU}" ;;
esac
"""


def play_of(
    directory: Path, engine: str, version: str = "26.1", specified: Sequence[str] = (), **variables: Any
) -> dict[str, Any]:
    """A play of the smoke test on a host with two GPUs, whose mock engines note their calls."""
    programs = directory / "bin"
    programs.mkdir()
    for name in ("docker", "podman"):
        (programs / name).write_text(ENGINE)
        (programs / name).chmod(0o755)
    specifications = [{"path": "/etc/cdi/nvidia.yaml", "kind": "nvidia.com/gpu", "devices": specified}]
    facts = {
        "nvidia_smi": {"available": True, "message": None, "gpus": GPUS, "driver_version": "580.159.04"},
        "cuda": {"container_toolkit": {"installed": True, "version": "1.18.2", "cdi_specifications": specifications}},
        "packages": {"docker.io": [{"version": f"{version}.5"}], "podman": [{"version": "5.4.2"}]},
        "gpu_fleet_managed": {},
        "os_family": "Debian",
    }
    role = {
        "ansible.builtin.include_role": {"name": "gpu.fleet.nvidia_container_toolkit", "tasks_from": "smoke_test.yml"},
        "vars": {
            "ansible_facts": facts,
            "__common_facts_are_read": True,
            "nvidia_container_toolkit_smoke_engine": engine,
            **variables,
        },
    }
    return {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "environment": {"PATH": f"{programs}:/usr/bin:/bin"},
        "tasks": [role],
    }


def run(
    directory: Path, engine: str, version: str = "26.1", specified: Sequence[str] = (), **variables: Any
) -> tuple[list[str], dict[str, Any]]:
    """The command lines of the containers, and the fact with what they saw."""
    play = play_of(directory, engine, version, specified, **variables)
    written = {
        "ansible.builtin.copy": {
            "content": "{{ nvidia_container_toolkit_seen | to_json }}",
            "dest": f"{directory}/seen",
            "mode": "0644",
        }
    }
    run_play(directory, {**play, "tasks": [*play["tasks"], written]})
    return (directory / "bin/calls").read_text().splitlines(), json.loads((directory / "seen").read_text())


@pytest.mark.parametrize(
    ("engine", "version", "options"),
    [
        ("docker", "26.1", ["--device=nvidia.com/gpu=all ", "", f"--device=nvidia.com/gpu={MIG} "]),
        (
            "podman",
            "26.1",
            [
                "--security-opt=label=disable --device=nvidia.com/gpu=all ",
                "--security-opt=label=disable ",
                f"--security-opt=label=disable --device=nvidia.com/gpu={MIG} ",
            ],
        ),
    ],
)
def test_a_container_runs_for_each_request(engine: str, version: str, options: list[str], tmp_path: Path) -> None:
    """On hosts with SELinux, podman's labels would deny the devices; none is requested by nothing at all."""
    calls, seen = run(tmp_path, engine, version)
    start = "run --rm --network=none --entrypoint=sh "
    assert [call.partition("nvcr.io/")[0] for call in calls] == [start + words for words in options]
    assert seen == {"gpus": 2, "mig_devices": 1, "mode": "cdi"}


def test_without_cdi_docker_is_asked_by_its_own_option(tmp_path: Path) -> None:
    calls, seen = run(tmp_path, "docker", "20.10", nvidia_container_toolkit_smoke_requests=["all"])
    assert "--gpus=all" in calls[0]
    assert seen == {"gpus": 2, "mig_devices": 1, "mode": "legacy"}


def test_with_nvidias_runtime_as_the_default_none_is_requested(tmp_path: Path) -> None:
    """Images that have NVIDIA_VISIBLE_DEVICES=all, as NVIDIA's, would get all GPUs."""
    variables: dict[str, Any] = {"nvidia_container_toolkit_smoke_requests": ["none"]}
    calls, _output = run(tmp_path, "docker", **variables, nvidia_container_toolkit_default_runtime=True)
    assert "--env=NVIDIA_VISIBLE_DEVICES=void" in calls[0]


def test_a_device_is_requested_by_a_name_that_the_specification_has(tmp_path: Path) -> None:
    """The toolkit 1.14 names devices by index only."""
    variables: dict[str, Any] = {"nvidia_container_toolkit_smoke_requests": [[GPU], [MIG]]}
    calls, _output = run(tmp_path, "docker", specified=["0", "1:0", "all"], **variables)
    assert [call.split()[4] for call in calls] == ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=1:0"]


def test_check_mode_starts_nothing(tmp_path: Path) -> None:
    play = play_of(tmp_path, "docker", nvidia_container_toolkit_smoke_archive="/srv/image.tar")
    assert "changed=0 " in run_play(tmp_path, play, "--check")
    assert not (tmp_path / "bin/calls").exists()


def test_check_mode_refuses_a_gpu_that_the_host_does_not_have(tmp_path: Path) -> None:
    play = play_of(tmp_path, "docker", nvidia_container_toolkit_smoke_requests=[[7]])
    with pytest.raises(AssertionError, match="there is no GPU or MIG device 7"):
        run_play(tmp_path, play, "--check")
