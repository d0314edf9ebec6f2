# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which companions a driver needs, by what hosts really have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter.driver_companions import driver_companions
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_packages import DriverRequest, packages_for

ROOT = Path(__file__).resolve().parents[3]
TABLE = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/packages.yml").read_text(encoding="utf-8"))[
    "__nvidia_driver_package_table"
]
SWITCHES = {"nvswitches": ["00000000:07:00.0"], "nvlink5_bridges": [], "unreadable": []}
BRIDGES = {"nvswitches": [], "nvlink5_bridges": ["00000000:05:00.0"], "unreadable": []}
NOTHING: dict[str, list[str]] = {"nvswitches": [], "nvlink5_bridges": [], "unreadable": []}
FM, IMEX, PERSISTENCED = "nvidia-fabricmanager.service", "nvidia-imex.service", "nvidia-persistenced.service"


def plan(**needs: Any) -> dict[str, Any]:
    return driver_companions({"source": "cuda_repository", **needs})


# GPUs and fabric; parts, units and kernel modules.
HOSTS: dict[str, tuple[dict[str, Any], list[str], list[str], list[str]]] = {
    "a workstation": ({"gpus": ["0x2684"], "fabric": NOTHING}, [], [], []),
    "HGX H100": ({"gpus": ["0x2330"], "fabric": SWITCHES}, ["fabric_manager"], [FM], []),
    "HGX B200": ({"gpus": ["0x2901"], "fabric": BRIDGES}, ["fabric_manager", "nvlink5"], [FM], ["ib_umad"]),
    "HGX B300": ({"gpus": ["0x3182"], "fabric": BRIDGES}, ["fabric_manager", "nvlink5"], [FM], ["ib_umad"]),
    "a VM with some of its GPUs": ({"gpus": ["0x2901"], "fabric": NOTHING}, [], [], []),
    # Their NVSwitches are managed elsewhere: Fabric Manager would not start.
    "GB200": ({"gpus": ["0x2941"], "fabric": NOTHING, "imex_nodes": ["10.0.0.1"]}, ["imex"], [IMEX], []),
    "GB300": ({"gpus": ["0x31c2"], "fabric": NOTHING, "imex_nodes_exist": True}, ["imex"], [IMEX], []),
    "NVLink 5 by option": (
        {"nvlink5": "present", "fabric": NOTHING},
        ["fabric_manager", "nvlink5"],
        [FM],
        ["ib_umad"],
    ),
    "no Fabric Manager by option": ({"fabric_manager": "absent", "fabric": SWITCHES}, [], [], []),
    "facts not read": ({}, [], [], []),
}


@pytest.mark.parametrize("host", HOSTS)
def test_companions_of_a_host(host: str) -> None:
    needs, parts, units, modules = HOSTS[host]
    found = plan(**needs)
    assert found["refusals"] == found["notes"] == found["masked"] == []
    assert found["parts"] == ["persistence_daemon", *parts]
    assert found["units"] == [PERSISTENCED, *units]
    assert found["kernel_modules"] == modules
    assert plan(**needs, persistence_daemon=False)["units"] == units


@pytest.mark.parametrize(
    ("system", "version", "names"),
    [
        ("Ubuntu", "580", {"nvidia-fabricmanager", "libnvidia-nscq", "nvlsm", "infiniband-diags", "libnvsdm"}),
        ("Ubuntu", "570", {"nvidia-fabricmanager-570", "libnvidia-nscq-570", "nvlsm", "infiniband-diags"}),
        ("Debian", "595", {"nvidia-fabricmanager", "libnvidia-nscq", "nvlsm", "infiniband-diags", "libnvsdm"}),
        ("RedHat", "580", {"nvidia-fabricmanager", "libnvidia-nscq", "nvlsm", "infiniband-diags", "libnvsdm"}),
        ("RedHat", "570", {"nvidia-fabric-manager", "libnvidia-nscq-570", "nvlsm", "infiniband-diags"}),
    ],
)
def test_packages_of_an_hgx_b200(system: str, version: str, names: set[str]) -> None:
    parts = plan(fabric=BRIDGES)["parts"]
    request = DriverRequest("cuda_repository", system, "x86_64", version, "open", "dkms", parts=tuple(parts))
    found = packages_for(request, TABLE)
    assert names <= {*found.driver, *found.others}
    assert {"nvlsm", "infiniband-diags"} <= set(found.others), "they have versions of their own"


def test_imex_of_ubuntus_archive() -> None:
    parts = plan(source="distribution", gpus=["0x2941"], imex="masked")["parts"]
    request = DriverRequest("distribution", "Ubuntu", "aarch64", "580", "open", "dkms", parts=tuple(parts))
    assert "nvidia-imex-580" in packages_for(request, TABLE).driver


def test_masked_imex_is_installed_and_does_not_run() -> None:
    found = plan(imex="masked", gpus=["0x2941"])
    assert (found["parts"], found["units"], found["masked"]) == (["persistence_daemon", "imex"], [PERSISTENCED], [IMEX])
    assert found["refusals"] == []


def test_imex_without_nodes_is_refused() -> None:
    (refusal,) = plan(gpus=["0x2941"])["refusals"]
    assert "set nvidia_driver_imex_nodes to their addresses" in refusal
    assert "nvidia_driver_imex to masked" in refusal
    assert plan(gpus=["0x2941"], imex="absent")["refusals"] == []


@pytest.mark.parametrize(
    ("node", "good"),
    [
        ("10.0.0.1", True),
        ("fd00::1", True),
        ("tray-1.example.org", True),
        ("10.0.0.256", False),
        ("10.0.0.0/24", False),
        ("tray 1", False),
        ("a\nb", False),
        ("", False),
        ("-a", False),
    ],
)
def test_nodes_are_addresses(node: str, good: bool) -> None:
    refusals = plan(imex="present", imex_nodes=[node])["refusals"]
    assert (refusals == []) is good
    assert good or f"nvidia_driver_imex_nodes has {node!r}" in refusals[0]


@pytest.mark.parametrize(
    ("needs", "options"),
    [
        ({"fabric": SWITCHES}, "nvidia_driver_fabric_manager"),
        ({"fabric": BRIDGES}, "nvidia_driver_fabric_manager and nvidia_driver_nvlink5"),
        ({"imex": "masked"}, "nvidia_driver_imex"),
    ],
)
def test_a_runfile_brings_none_of_them(needs: dict[str, Any], options: str) -> None:
    (refusal,) = plan(source="runfile", **needs)["refusals"]
    assert refusal.endswith(f"or set {options} to absent")


@pytest.mark.parametrize("needs", [{"fabric": SWITCHES}, {"imex": "masked"}])
def test_ubuntus_companions_need_the_server_series(needs: dict[str, Any]) -> None:
    (refusal,) = plan(source="distribution", server=False, **needs)["refusals"]
    assert "set nvidia_driver_ubuntu_series to server" in refusal
    assert plan(source="distribution", **needs)["refusals"] == []


def test_unreadable_data_are_a_note() -> None:
    unreadable = {**NOTHING, "unreadable": ["00000000:05:00.0"]}
    (note,) = plan(fabric=unreadable)["notes"]
    assert "00000000:05:00.0" in note
    assert "set nvidia_driver_nvlink5 to present or absent" in note
    assert plan(fabric=unreadable, nvlink5="absent")["notes"] == []


@pytest.mark.parametrize(
    ("needs", "message"),
    [({"imex_nodes": "10.0.0.1"}, "list"), ({"gpus": [1]}, "list"), ({"source": None}, "source"), ({"x": 1}, "x")],
)
def test_a_bad_request(needs: dict[str, Any], message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        plan(**needs)
