# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open or proprietary: NVIDIA's rules, from its driver installation guide ("Kernel Modules") and
https://developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules/
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.driver.plans import driver_plan


def device(device_id: str, slot: int = 6) -> dict[str, Any]:
    """A GPU as in pci_gpus, which needs no driver."""
    return {"pci_bus_id": f"00000000:0{slot}:00.0", "device_id": device_id, "class_id": "0x030200", "driver": None}


def choose(gpus: list[dict[str, Any]], driver: str | None = None, desired: str = "auto") -> dict[str, Any]:
    """The plan of a runfile, which every branch and kind has."""
    request = {"source": "runfile", "version": driver or "newest", "kernel_modules": desired}
    facts = {"system": "Debian", "release": "12", "architecture": "x86_64", "kernel": "6.1.0-38-amd64", "gpus": gpus}
    return driver_plan(request, facts, {}, [])


H200, GH200, B200, RTX_5090 = "0x2335", "0x2342", "0x2901", "0x2b85"
A100, T4, V100, P100, K80, NEWER = "0x20b0", "0x1eb8", "0x1db6", "0x15f8", "0x102d", "0x3f01"

CHOICES = [
    # GPUs, driver, kind
    ([B200], "580", "open"),
    ([RTX_5090], None, "open"),
    ([GH200], "550", "open"),
    ([GH200], "535", "open"),
    ([V100], "580", "proprietary"),
    ([P100], "535.309.01", "proprietary"),
    ([K80], "470", "proprietary"),
    ([H200], "550", "proprietary"),
    ([H200], "555", "proprietary"),
    ([H200], "560", "open"),
    ([A100, T4], "610", "open"),
    ([A100], "newest", "open"),
    # "For mixed deployments with older and newer GPUs in the same system, continue to use the proprietary driver."
    ([A100, V100], "580", "proprietary"),
    ([T4, P100], None, "proprietary"),
    ([B200, A100], "580", "open"),
    ([B200, NEWER], "580", "open"),
    ([NEWER], "610", "open"),
    ([], "580", "open"),
    ([], "535", "proprietary"),
]


@pytest.mark.parametrize(("devices", "driver", "kind"), CHOICES)
def test_auto(devices: list[str], driver: str | None, kind: str) -> None:
    gpus = [device(name, slot) for slot, name in enumerate(devices)]
    assert choose(gpus, driver)["kernel_modules"] == kind
    assert choose(list(reversed(gpus)), driver)["kernel_modules"] == kind


REFUSED = [
    # GPUs, driver, requested kind, part of the reason
    ([B200, V100], "580", "auto", ["GB100 at 00000000:00:00.0 (Blackwell) needs the open", "(Volta) the proprietary"]),
    ([GH200, P100], None, "auto", ["GH200 at 00000000:00:00.0 (Hopper) needs the open", "GP100 at 00000000:01:00.0"]),
    (
        [H200, K80],
        None,
        "auto",
        ["GH100 at 00000000:00:00.0 (Hopper) needs branch 520", "(Kepler) branch 470 or older"],
    ),
    ([V100], "590", "auto", ["GV100 at 00000000:00:00.0 (Volta)", "the last branch with it is 580"]),
    ([V100], "580", "open", ["the open kernel modules cannot drive GV100 at 00000000:00:00.0 (Volta)"]),
    ([B200], "580", "proprietary", ["the proprietary kernel modules cannot drive GB100", "needs the open ones"]),
    ([GH200], "580", "proprietary", ["cannot drive GH200"]),
    # Of hosts with NVLink 5: B300, and the trays of GB200 and GB300.
    *(([gpu], "580", "proprietary", ["cannot drive", "the open ones"]) for gpu in ("0x3182", "0x2941", "0x31c2")),
    ([B200], "550", "auto", ["the first branch with it is 570"]),
    ([A100], "470", "open", ["driver 470 has no open kernel modules, which begin with branch 515"]),
]


@pytest.mark.parametrize(("devices", "driver", "desired", "parts"), REFUSED)
def test_refused_by_name(devices: list[str], driver: str | None, desired: str, parts: list[str]) -> None:
    gpus = [device(name, slot) for slot, name in enumerate(devices)]
    found = choose(gpus, driver, desired)
    assert [part for part in parts if part not in "; ".join(found["reasons"])] == []


def test_an_asked_kind_that_works_is_taken() -> None:
    assert choose([device(A100)], "580", "proprietary")["kernel_modules"] == "proprietary"
    assert choose([device(A100)], "535", "open")["kernel_modules"] == "open"


def test_an_unknown_gpu_is_reported_and_decides_nothing() -> None:
    found = choose([device(NEWER)], "610")
    assert found["reasons"] == []
    assert "device 0x3f01 at 00000000:06:00.0 is not in the tables" in found["unknowns"][0]


def test_why() -> None:
    assert choose([device(V100)], "580")["because"] == "GV100 at 00000000:06:00.0 needs them"
    assert choose([device(A100)], "580")["because"] == "the default since branch 560"
