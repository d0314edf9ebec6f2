# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every recorded command on a simulation of its host: same exit status, same bytes except for volatile readings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_simulator import cli

from tests.unit.recordings.recording import Call, load

from .conftest import Host, MakeHost
from .volatile import mask

RECORDINGS = {
    "h200x8": 77,
    "h200x1": 71,
    "h200x1-arguments": 175,
    "h200x2-arguments": 132,
    "h200x2-forms": 210,
    "h200x2-subcommands": 2273,
    "h200x1-orders": 1089,
    "h200x1-displays": 94,
}
"""Number of commands by recording."""

ENDED = 124
"""Exit status of a recorded command that ran until it was terminated."""

PROCESS = {
    "pid": 1125,
    "name": "/opt/torch/.venv/bin/python3",
    "type": "C",
    "used_memory_mib": 1542,
    "gpu_instance_id": None,
    "compute_instance_id": None,
}
"""The compute process of the recorded host."""

WITHOUT_HEADER = "--query-gpu=memory.total,power.draw --format=csv,noheader,nounits"
"""CSV of a volatile reading without the header that the mask needs."""


def start_processes(state: Any, number: int) -> None:
    state["gpus"][0]["processes"] = [PROCESS] * number


def agrees(host: Host, call: Call) -> bool:
    """Whether the simulated host gives the recorded reply."""
    text, status = host.smi(*call.words, root_user=call.user == "root")
    shown, recorded = mask(text), mask(call.stdout)
    if call.rc == ENDED:
        # A recording without output ended before the first line.
        begins = recorded.startswith(shown) and shown != "" if call.stdout else True
        return cli.samples(call.words)[1] == float("inf") and begins
    if call.arguments == WITHOUT_HEADER:
        shown, recorded = (each.partition(", ")[0] for each in (text, call.stdout))
    return (shown, status) == (recorded, call.rc)


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recorded_command_agrees(name: str, make_host: MakeHost) -> None:
    recording = load(f"{name}-580.159.04")
    idle, busy = make_host(**recording.host), make_host(**recording.host)
    busy.change(lambda state: start_processes(state, 1))
    assert len(recording.calls) == RECORDINGS[name]
    differing = [call for call in recording.calls if not agrees(busy if call.processes else idle, call)]
    assert differing == []


def test_a_wrong_reply_would_be_noticed(make_host: MakeHost) -> None:
    recording = load("h200x8-580.159.04")
    host = make_host(**recording.host)
    call = Call("-L", recording.output("-L"))
    assert agrees(host, call)
    assert not agrees(host, replace(call, rc=1))
    assert not agrees(host, replace(call, stdout=call.stdout.replace("H200", "H100")))
    endless = Call("-q -d ECC -l 1", recording.output("-q -d ECC"), rc=ENDED)
    assert agrees(host, endless)
    assert not agrees(host, replace(endless, arguments="-q -d ECC"))
    assert not agrees(host, replace(endless, stdout="Timestamp"))


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
