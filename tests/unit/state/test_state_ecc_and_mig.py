# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ECC and MIG declared together on a GPU with MIG instances: no reset destroys them, and a reboot applies both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.state.state_host import StateHost, in_this_process


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateHost]:
    """A host with an A100 that is divided."""
    made = StateHost.with_gpus(tmp_path, "a100_40gb")
    with in_this_process(monkeypatch, made):
        assert made.state_run(mig=["3g.20gb", "2g.10gb"], reset="if_required").error is None
        yield made


def test_ecc_waits_for_a_reboot_that_restores_the_layout(host: StateHost) -> None:
    declared: dict[str, Any] = {"ecc": False, "mig": ["3g.20gb", "2g.10gb"], "reset": "if_required"}
    layout = host.layout()
    for _run in range(2):
        run = host.state_run(**declared)
        assert run.error is None, run.error
        assert host.layout() == layout and not any("--gpu-reset" in command for command in run.result["commands"])
        assert "3g.20gb:" in run.result["ecc"][0]["message"] and run.result["reboot_required"]
    host.reboot()
    after = host.state_run(**declared)
    assert after.error is None and after.result["pending"] == [] and host.layout() == layout
    assert host.gpu()["ecc_mode"] == {"current": False, "pending": False}
