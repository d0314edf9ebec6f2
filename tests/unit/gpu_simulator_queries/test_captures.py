# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every captured command on a simulation of its host: same exit status, same bytes except for volatile readings."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from gpu_simulator import cli

from .captured import Captured, commands, host, mask, recording
from .conftest import Host, MakeHost

DIRECTORIES = (
    "h200x8-580.159.04",
    "h200x1-580.159.04",
    "h200x1-arguments-580.159.04",
    "h200x2-arguments-580.159.04",
)
CASES = [(directory, command) for directory in DIRECTORIES for command in commands(directory)]
WITH_PROCESS = [("h200x1-arguments-580.159.04", name) for name in ("176", "179", "180", "181")]
WITHOUT_TITLES = [("h200x1-arguments-580.159.04", "042")]
"""CSV of volatile readings without a header, which the mask needs."""


def simulate(directory: str, make_host: MakeHost) -> Host:
    return make_host(**host(directory))


def add_process(state: Any) -> None:
    state["gpus"][0]["processes"] = [
        {
            "pid": 1125,
            "name": "/opt/torch/.venv/bin/python3",
            "type": "C",
            "used_memory_mib": 1542,
            "gpu_instance_id": None,
            "compute_instance_id": None,
        }
    ]


@pytest.mark.parametrize(
    ("directory", "command"), CASES, ids=[f"{directory[:-11]}-{each.name}" for directory, each in CASES]
)
def test_command_agrees(directory: str, command: Captured, make_host: MakeHost) -> None:
    simulated = simulate(directory, make_host)
    if (directory, command.name) in WITH_PROCESS:
        simulated.change(add_process)
    text, status = simulated.smi(*command.arguments)
    if (directory, command.name) in WITHOUT_TITLES:
        assert (text.split(", ")[0], text.count(", "), status) == ("143771", 1, command.status)
        return
    assert (mask(text), status) == (mask(command.text), command.status)


def test_count(make_host: MakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    total = 0
    for directory in DIRECTORIES:
        simulated = simulate(directory, make_host)
        agreeing = 0
        captured = [each for each in commands(directory) if (directory, each.name) not in WITH_PROCESS + WITHOUT_TITLES]
        for command in captured:
            text, status = simulated.smi(*command.arguments)
            agreeing += mask(text) == mask(command.text) and status == command.status
        with capsys.disabled():
            print(f"\n{directory}: {agreeing} of {len(captured)} captured commands agree")
        assert agreeing == len(captured)
        total += agreeing
    assert total > 440


ENDED = 124
"""Exit status of a recorded command that ran until it was terminated."""


@pytest.mark.parametrize(
    ("name", "least"), [("h200x2-forms", 210), ("h200x2-subcommands", 2273), ("h200x1-orders", 1089)]
)
def test_recording_agrees(name: str, least: int, make_host: MakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    """Forms, orders and mistakes: each command of a recording gives the same output and the same status."""
    simulated = simulate(f"{name}-580.159.04", make_host)
    recorded = recording(f"{name}-580.159.04")
    differing = []
    for command in recorded:
        arguments = shlex.split(command.line)
        text, status = simulated.smi(*arguments, root_user=command.user == "root")
        if command.status == ENDED:
            same = cli.samples(arguments)[1] == float("inf") and mask(command.text).startswith(
                mask(text) if command.text else ""
            )
        else:
            same = (mask(text), status) == (mask(command.text), command.status)
        if not same:
            differing.append(command.line)
    with capsys.disabled():
        print(f"\n{name}: {len(recorded) - len(differing)} of {len(recorded)} recorded commands agree")
    assert differing == []
    assert len(recorded) >= least


def test_the_mask_leaves_settings_alone() -> None:
    text = (
        "==============NVSMI LOG==============\n"
        "    Average Power Draw             : 78.27 W\n    Max Power Limit                : 700.00 W\n"
    )
    assert mask(text) == text.replace("78.27 W", "*")
    row = "| N/A   34C    P0             78W /  700W |       0MiB / 143771MiB |      0%      Default |"
    assert mask("x\n| NVIDIA-SMI\n+----\n" + row).endswith(
        "| N/A *C    P0      *W /  700W |       0MiB / 143771MiB | *%      Default |"
    )
