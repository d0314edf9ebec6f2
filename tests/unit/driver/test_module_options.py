# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the kernel module: what is written for modprobe, and what the loaded driver has."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._cuda.reload import differing_parameters
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver import module_options as planner

from tests.unit.driver.plans import CONFIGURED, DEBIAN, facts, stage


def module_options(options: dict[Any, Any]) -> dict[str, Any]:
    """The options as tasks read them."""
    return planner.module_options(options).as_dict()


# Of /proc/driver/nvidia/params on a real host with an H200, driver 580.159.04.
PARAMS = """\
ResmanDebugLevel: 4294967295
DeviceFileMode: 438
RmProfilingAdminOnly: 0
EnableGpuFirmware: 18
CreateImexChannel0: 0
CoherentGPUMemoryMode: ""
RegistryDwords: "RMForceStaticBar1=2;RmForceDisableIomapWC=1"
"""


def test_options_are_one_line_for_modprobe() -> None:
    found = module_options(
        {"NVreg_EnableGpuFirmware": False, "NVreg_CreateImexChannel0": 1, "NVreg_RegistryDwords": "a=1;b=2"}
    )
    assert found["content"] == (
        "# Managed by Ansible (gpu.fleet.nvidia_driver).\n"
        "options nvidia NVreg_CreateImexChannel0=1 NVreg_EnableGpuFirmware=0 NVreg_RegistryDwords=a=1;b=2\n"
    )
    assert found["refusals"] == []
    assert module_options({}) == {"parameters": {}, "content": "", "refusals": []}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"EnableGpuFirmware": 1}, "EnableGpuFirmware is not the name of an option of the module nvidia"),
        ({"NVreg_A\ninstall nvidia /bin/sh": 1}, "is not the name"),
        ({1: 1}, "1 is not the name"),
        ({"NVreg_A": "1\ninstall nvidia /bin/sh"}, "without spaces and quotes"),
        ({"NVreg_A": "1 NVreg_B=2"}, "without spaces and quotes"),
        ({"NVreg_A": "'"}, "without spaces and quotes"),
        ({"NVreg_A": None}, "NVreg_A is None"),
        ({"NVreg_A": [1]}, "NVreg_A is [1]"),
        ({"NVreg_A": 1.5}, "NVreg_A is 1.5"),
    ],
)
def test_bad_options_are_refused(options: dict[Any, Any], message: str) -> None:
    found = module_options(options)
    assert message in "".join(found["refusals"])
    assert found["content"] == ""


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("NVreg_RestrictProfilingToAdminUsers", "0", True),
        ("NVreg_RestrictProfilingToAdminUsers", "1", False),
        ("NVreg_EnableGpuFirmware", "0x12", True),
        ("NVreg_EnableGpuFirmware", "0", False),
        ("NVreg_ResmanDebugLevel", "-1", True),
        ("NVreg_DeviceFileMode", "0666", True),
        ("NVreg_DeviceFileMode", "0660", False),
        ("NVreg_CoherentGPUMemoryMode", "driver", False),
        ("NVreg_RegistryDwords", "RMForceStaticBar1=2;RmForceDisableIomapWC=1", True),
        # One that the driver does not show cannot be compared.
        ("NVreg_TemporaryFilePath", "/var/tmp", True),
    ],
)
def test_parameters_of_the_loaded_driver(name: str, value: str, same: bool) -> None:
    found = differing_parameters({name: value}, PARAMS)
    assert (found == ()) is same
    assert same or (name in found[0] and f"{value} is configured" in found[0])


def test_no_driver_is_loaded() -> None:
    assert differing_parameters({"NVreg_EnableGpuFirmware": "0"}, "") == ()


def test_options_that_the_driver_does_not_have_are_named() -> None:
    given = {"nvidia_driver_module_options": {"NVreg_EnableGpuFirmware": 0, "NVreg_Other": 1}}
    known = {"stdout_lines": ["NVreg_EnableGpuFirmware:  (int)", "NVreg_Third: (charp)"]}
    (refusal,) = configured(known, **given)["refusals"]
    assert refusal == (
        "driver 580.95.05 has no option NVreg_Other, which nvidia_driver_module_options sets; `modinfo -F parm nvidia` "
        "on the host lists those that it has"
    )
    assert "refusals" not in configured({"stdout_lines": []}, **given)
    assert "refusals" not in configured(None)


def configured(known: dict[str, Any] | None, **variables: Any) -> dict[str, Any]:
    """What the stage returns for the options that the module has; None where it must not look."""
    found = {**CONFIGURED, **({} if known is None else {"known": known})}
    return stage("configured", facts(DEBIAN), found, **{**variables, "nvidia_driver_persistence_daemon": False})
