# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cuDNN for the CUDA that a host can run, where nothing is declared, and no driver that is about to be replaced."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Outlook, Readings
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.cudnn import PLANNER, _request

from tests.unit.site.converged import CUDA, NVIDIA_SMI
from tests.unit.site.mock_host import DEBIAN_12

FILES = RoleData.read()


def facts(driver: str | None) -> dict[str, Any]:
    system = {name.removeprefix("ansible_"): value for name, value in DEBIAN_12.items()}
    smi = {**NVIDIA_SMI, "driver_version": driver}
    return {**system, "nvidia_smi": smi, "cuda": CUDA, "gpu_fleet_managed": {}, "packages": {}}


def variables(**given: Any) -> dict[str, Any]:
    return {**FILES.planner_values("cudnn", {**FILES.defaults(["cudnn", "cuda"]), **given}, PLANNER.tables)}


@pytest.mark.parametrize(
    ("driver", "series"), [(None, "13"), ("580.178.04", "13"), ("570.195.03", "12"), ("535.288.01", "12")]
)
def test_the_default_is_what_the_driver_runs(driver: str | None, series: str) -> None:
    assert [one.cuda for one in _request(variables(), facts(driver)).libraries] == [series]


def test_a_driver_that_is_replaced_decides_nothing() -> None:
    given = variables(cudnn_versions=[{"version": "9", "cuda": "13"}])
    assert PLANNER.refuses is not None
    kept = PLANNER.refuses(given, facts("535.288.01"), Outlook(Readings.of({})))
    assert "CUDA 13.0 needs driver 580" in "; ".join(kept)
    coming = Outlook(Readings.of({}), {"nvidia_driver": ("install",)})
    assert not PLANNER.refuses(given, facts("535.288.01"), coming)
