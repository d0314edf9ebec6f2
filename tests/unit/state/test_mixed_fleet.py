# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One declaration for hosts with different GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.state.state_host import StateHost, in_this_process

SITE: dict[str, Any] = {
    "on_unsupported": "skip",
    "mig": [
        {"gpus": ["*H200*"], "profiles": {"1g.18gb": 2}},
        {"gpus": ["*L40S*"], "profiles": {"1g.10gb": 2}},
        {"gpus": ["*T4*"], "enabled": False},
    ],
}


@pytest.mark.parametrize("models", [("t4",), ("h200", "t4")])
def test_no_mig_is_what_a_gpu_without_mig_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: tuple[str, ...]
) -> None:
    host = StateHost.with_gpus(tmp_path, *models)
    with in_this_process(monkeypatch, host):
        for _run in range(2):
            done = host.state_run(mig=False)
            assert done.error is None, done.error
            assert done.result["gpus_changed"] is False
        # MIG that is there is still removed, and MIG where there is none is still refused.
        refused = host.state_run(mig={"1g.18gb": 1}, gpus=["*T4*"])
        assert refused.error is not None
        assert "has no MIG mode" in refused.error


def test_a_model_that_a_host_does_not_have_is_left_out_with_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = StateHost.with_gpus(tmp_path, "h200", "t4")
    with in_this_process(monkeypatch, host):
        declared: dict[str, Any] = {"gpus": ["*A100*"], "power_limit_w": "300", "persistence_mode": True, "mig": False}
        refused = host.state_run(**declared)
        assert refused.error is not None
        assert "no GPU matches '*A100*'" in refused.error
        before = host.snapshot()
        done = host.state_run(**declared, on_unsupported="skip")
        assert done.error is None, done.error
        assert host.state == before
        assert any("no GPU of this host matches '*A100*'" in warning for warning in done.result["warnings"])
        # An index or a UUID means one GPU of one host.
        for selector in ("7", "GPU-11111111-2222-3333-4444-555555555555", "0000:99:00.0"):
            refused = host.state_run(**{**declared, "gpus": [selector]}, on_unsupported="skip")
            assert refused.error is not None


def test_a_declaration_by_model_is_for_all_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for models in (("h200", "h200"), ("t4",), ("h200", "t4")):
        host = StateHost.with_gpus(tmp_path / "-".join(models), *models)
        with in_this_process(monkeypatch, host):
            done = host.state_run(**SITE)
            assert done.error is None, done.error
            assert done.result["changed"] is ("h200" in models) or done.result["gpus_changed"] is False
            assert host.state_run(**SITE).result["gpus_changed"] is False
