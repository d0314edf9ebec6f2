# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What decides the state of a host's driver: each variable that does makes the role run again when it changes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import RequestError

from tests.unit.driver.plans import DEBIAN, EL, UBUNTU, driver, facts


def inputs(system: dict[str, Any] = DEBIAN, domain: list[str] | None = None, **variables: Any) -> str:
    """The hash of the inputs."""
    found: str = driver(facts(system, imex_domain=domain or []), **variables)["inputs"]
    return found


def steps(record: dict[str, Any], system: dict[str, Any] = DEBIAN, **variables: Any) -> list[str]:
    """What is to be done on a host whose driver is loaded, with such a record."""
    records = {
        "nvidia_driver": {"drift": [], "data": {}, **record},
        "nvidia_repository.cuda": {"drift": [], "data": {}},
    }
    found: list[str] = driver(facts(system, "580.159.04", gpu_fleet_managed=records), **variables)["steps"]
    return found


def test_another_member_of_the_nvlink_domain_makes_the_role_run_again() -> None:
    domain = ["10.0.7.1", "10.0.7.2"]
    found = [inputs(domain=nodes, nvidia_driver_imex="present") for nodes in ([], domain, [*domain, "10.0.7.3"])]
    assert len(set(found)) == 3


@pytest.mark.parametrize(
    "name", ["nvidia_driver_debian_mirror", "nvidia_driver_epel_url", "nvidia_driver_epel_key_url"]
)
def test_a_mirror_that_changes_is_work(name: str) -> None:
    variables: dict[str, Any] = {name: "https://mirror.example.com/"}
    assert steps({"inputs": inputs()}) == []
    assert steps({"inputs": inputs()}, **variables) == ["install"]
    assert steps({"inputs": inputs(**variables)}, **variables) == []


@pytest.mark.parametrize("name", ["nvidia_repository_cuda", "nvidia_repository_graphics_drivers"])
def test_another_repository_is_work(name: str) -> None:
    variables: dict[str, Any] = {name: {"url": "https://mirror.example.com/"}}
    assert steps({"inputs": inputs()}, **variables) == ["install"]
    assert steps({"inputs": inputs(**variables)}, **variables) == []


@pytest.mark.parametrize(
    ("system", "variables"),
    [
        (DEBIAN, {}),
        (EL, {"nvidia_driver_version": "580", "nvidia_driver_kernel_modules": "open", "nvidia_driver_pin": False}),
        (UBUNTU, {"nvidia_driver_source": "distribution", "nvidia_driver_module_build": "precompiled"}),
        (UBUNTU, {"nvidia_driver_imex": "present", "nvidia_driver_imex_nodes": ["10.0.0.1", "10.0.0.2"]}),
        (DEBIAN, {"nvidia_repository_cuda": {"url": "https://mirror.example.com/cuda/"}}),
        (
            DEBIAN,
            {
                "nvidia_driver_source": "runfile",
                "nvidia_driver_version": "580.95.05",
                "nvidia_driver_runfile_sha256": "0" * 64,
            },
        ),
        # A truth value on the command line is text.
        (DEBIAN, {"nvidia_driver_pin": "true"}),
    ],
)
def test_a_host_that_has_what_is_requested_has_no_work(system: dict[str, Any], variables: dict[str, Any]) -> None:
    recorded = inputs(system, **variables)
    assert steps({"inputs": recorded}, system, **variables) == []
    assert steps({"inputs": "other"}, system, **variables) == ["install"]
    assert steps({"inputs": recorded, "drift": [{"name": "x", "message": "x is gone"}]}, system, **variables) == [
        "install"
    ]
    assert steps({"inputs": recorded}, system, **variables, nvidia_driver_upgrade=True) == ["install"]
    assert steps({"inputs": recorded}, system, **variables, nvidia_driver_gpudirect=["peermem"]) == ["install"]
    settings: dict[str, Any] = {"nvidia_driver_imex_settings": {"SERVER_PORT": 50001}}
    assert steps({"inputs": recorded}, system, **variables, **settings) == ["install"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nvidia_driver_imex_nodes", "10.0.0.1"),
        ("nvidia_driver_gpudirect", [1]),
        ("nvidia_driver_module_options", ["NVreg_X"]),
        ("nvidia_driver_imex_settings", "SERVER_PORT=1"),
        ("nvidia_driver_disk_space_mib", "3 GB"),
    ],
)
def test_a_value_of_another_form_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"^{name} is .*, and takes a"):
        driver(facts(DEBIAN), **{name: value})


def test_a_missing_driver_is_work_and_one_that_is_to_be_loaded() -> None:
    assert driver(facts(DEBIAN))["steps"] == ["install", "activate"]
    assert driver(facts(UBUNTU), nvidia_driver_state="absent")["steps"] == ["remove"]
    record: dict[str, Any] = {"nvidia_driver": {"inputs": inputs(), "drift": [], "data": {}}}
    repository: dict[str, Any] = {"nvidia_repository.cuda": {"drift": [], "data": {}}}
    without = facts(DEBIAN, "580.159.04", gpu_fleet_managed=record)
    assert driver(without)["steps"] == ["install"], "the record of the repository is gone"
    waiting = facts(DEBIAN, "580.159.04", gpu_fleet_managed={**record, **repository})
    waiting["cuda"]["driver"]["reboot_required"] = True
    assert driver(waiting)["steps"] == ["activate"]
    assert driver(waiting, check_mode=True)["steps"] == []
