# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cuDNN for the CUDA that a host can run, where nothing is declared, and no driver that is about to be replaced."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Outlook, Plan, Readings
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.cuda.plan import PLANNER as CUDA_PLANNER
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


V100 = {"name": "Tesla V100-SXM2-16GB", "device_id": "0x1db1", "pci_bus_id": "00000000:1B:00.0"}


@pytest.mark.parametrize(
    ("given", "gpu", "libraries"),
    [
        # CUDA 13 and cuDNN 9.11 have no Volta any more.
        ({}, V100, [("9.10", "12")]),
        ({"cuda_versions": ["12.9"]}, V100, [("9.10", "12")]),
        ({"cuda_versions": ["12.9"]}, None, [("9", "12")]),
        ({"cudnn_versions": [{"version": "9", "cuda": "11"}]}, None, [("9.10", "11")]),
        # What is requested, and what none fits, stays and is refused.
        ({"cudnn_versions": [{"version": "9.14", "cuda": "12"}]}, V100, [("9.14", "12")]),
        ({"cudnn_versions": [{"version": "9", "cuda": "13"}]}, V100, [("9", "13")]),
    ],
)
def test_cuda_and_cudnn_are_what_the_gpu_takes(
    given: dict[str, Any], gpu: dict[str, str] | None, libraries: list[tuple[str, str]]
) -> None:
    """One decision: the role cuda takes 12.9 there by itself, and nothing of both is refused."""
    host = facts("580.178.04")
    host["nvidia_smi"] = {**host["nvidia_smi"], "pci_gpus": [gpu] if gpu else host["nvidia_smi"]["pci_gpus"]}
    request = _request(variables(**given), host)
    assert [(one.version, one.cuda) for one in request.libraries] == libraries
    assert PLANNER.refuses is not None
    refused = "; ".join(PLANNER.refuses(variables(**given), host, Outlook(Readings.of({}))))
    assert bool(refused) is (gpu is V100 and "cudnn_versions" in given), refused
    values = FILES.planner_values("cuda", {**FILES.defaults(["cuda"]), **given}, CUDA_PLANNER.tables)
    planned = CUDA_PLANNER.stages["plan"](values, host, {})
    assert isinstance(planned, Plan) and planned.refusals == ()


def test_a_driver_that_is_replaced_decides_nothing() -> None:
    given = variables(cudnn_versions=[{"version": "9", "cuda": "13"}])
    assert PLANNER.refuses is not None
    kept = PLANNER.refuses(given, facts("535.288.01"), Outlook(Readings.of({})))
    assert "CUDA 13.0 needs driver 580" in "; ".join(kept)
    coming = Outlook(Readings.of({}), {"nvidia_driver": ("install",)})
    assert not PLANNER.refuses(given, facts("535.288.01"), coming)
