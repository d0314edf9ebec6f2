# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every captured command, run on the same host simulated: the same bytes but for volatile readings, the same status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .captured import Captured, commands, host, mask

FOLDERS = ("h200x8-580.159.04", "h200x1-580.159.04")
CASES = [(folder, command) for folder in FOLDERS for command in commands(folder)]


@pytest.mark.parametrize(("folder", "command"), CASES, ids=[f"{folder[:6]}-{each.name}" for folder, each in CASES])
def test_command_agrees(folder: str, command: Captured, make_host: Callable[..., Any]) -> None:
    text, status = make_host(host(folder))(*command.arguments)
    assert (mask(text), status) == (mask(command.text), command.status)


@pytest.mark.parametrize("folder", FOLDERS)
def test_count(folder: str, make_host: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    smi = make_host(host(folder))
    captured = commands(folder)
    agreeing = 0
    for command in captured:
        text, status = smi(*command.arguments)
        agreeing += mask(text) == mask(command.text) and status == command.status
    with capsys.disabled():
        print(f"\n{folder}: {agreeing} of {len(captured)} captured commands agree")
    assert agreeing == len(captured) > 60


def test_the_mask_leaves_settings_alone() -> None:
    text = (
        "==============NVSMI LOG==============\n"
        "    Average Power Draw             : 78.27 W\n    Max Power Limit                : 700.00 W\n"
    )
    assert mask(text) == text.replace("78.27 W", "*")
    row = "| N/A   34C    P0             78W /  700W |       0MiB / 143771MiB |      0%      Default |"
    assert mask("x\n| NVIDIA-SMI\n+----\n" + row).endswith(
        "| N/A *C    P0      *W /  700W |       0MiB / 143771MiB |      0%      Default |"
    )
