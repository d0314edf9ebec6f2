# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which companions a driver needs, by what hosts really have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.companions import Needs, plan_companions
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.packages import DriverRequest, packages_for

ROOT = Path(__file__).resolve().parents[3]
TABLE = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/packages.yml").read_text(encoding="utf-8"))[
    "__nvidia_driver_package_table"
]
SWITCHES = {"nvswitches": ["00000000:07:00.0"], "nvlink5_bridges": [], "unreadable": []}
BRIDGES = {"nvswitches": [], "nvlink5_bridges": ["00000000:05:00.0"], "unreadable": []}
NOTHING: dict[str, list[str]] = {"nvswitches": [], "nvlink5_bridges": [], "unreadable": []}
FM, IMEX, PERSISTENCED = "nvidia-fabricmanager.service", "nvidia-imex.service", "nvidia-persistenced.service"


def plan(**needs: Any) -> dict[str, Any]:
    lists = {name: tuple(value) if isinstance(value, list) else value for name, value in needs.items()}
    given: dict[str, Any] = {"source": "cuda_repository", **lists}
    return plan_companions(Needs(**given)).as_dict()


# GPUs and fabric; parts, units and kernel modules.
HOSTS: dict[str, tuple[dict[str, Any], list[str], list[str], list[str]]] = {
    "a workstation": ({"gpus": ["0x2684"], "fabric": NOTHING}, [], [], []),
    "HGX H100": ({"gpus": ["0x2330"], "fabric": SWITCHES}, ["fabric_manager"], [FM], []),
    "HGX B200": ({"gpus": ["0x2901"], "fabric": BRIDGES}, ["fabric_manager", "nvlink5"], [FM], ["mlx5_ib", "ib_umad"]),
    "HGX B300": ({"gpus": ["0x3182"], "fabric": BRIDGES}, ["fabric_manager", "nvlink5"], [FM], ["mlx5_ib", "ib_umad"]),
    "a VM with some of its GPUs": ({"gpus": ["0x2901"], "fabric": NOTHING}, [], [], []),
    # Their NVSwitches are managed elsewhere: Fabric Manager would not start.
    "GB200": ({"gpus": ["0x2941"], "fabric": NOTHING, "imex_nodes": ["10.0.0.1"]}, ["imex"], [IMEX], []),
    "GB300": (
        {"gpus": ["0x31c2"], "fabric": {**NOTHING, "imex_nodes_exist": True}},
        ["imex"],
        [IMEX],
        [],
    ),
    "NVLink 5 by option": (
        {"nvlink5": "present", "fabric": NOTHING},
        ["fabric_manager", "nvlink5"],
        [FM],
        ["mlx5_ib", "ib_umad"],
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
    # A file that the role has written goes with its variable.
    written = ["/etc/nvidia-imex/nodes_config.cfg"]
    assert plan(gpus=["0x2941"], fabric={"imex_nodes_exist": True}, written=written)["refusals"] == [refusal]
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


def test_settings_of_imex_have_a_socket_that_its_unit_may_write() -> None:
    found = plan(
        gpus=["0x2941"], imex_nodes=["10.0.0.1"], imex_settings={"SERVER_PORT": 50010, "IMEX_CMD_ENABLED": True}
    )
    assert found["imex_settings"] == [
        "IMEX_CMD_ENABLED=1",
        "IMEX_CMD_UNIX_DOMAIN_PATH=/var/run/nvidia-imex-ctrl.sock",
        "SERVER_PORT=50010",
    ]
    # The files of the site stay, and what Kubernetes starts has its own.
    assert plan(gpus=["0x2941"], fabric={"imex_nodes_exist": True})["imex_settings"] == []
    assert plan(gpus=["0x2941"], imex="masked", imex_nodes=["10.0.0.1"])["imex_settings"] == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"SERVER_PORT": 0}, "it takes a port from 1 to 65535"),
        ({"IMEX_CMD_PORT": "70000"}, "it takes a port from 1 to 65535"),
        ({"SERVER_PORT": 50000, "IMEX_CMD_PORT": 50000}, "the same port for SERVER_PORT and IMEX_CMD_PORT"),
        ({"server_port": 1}, "not a setting of IMEX' config.cfg"),
        ({"IMEX_NODE_CONFIG_FILE": "/tmp/x"}, "or is the role's"),
        ({"LOG_LEVEL": "4\nDAEMONIZE=0"}, "of one line"),
        ({"LOG_LEVEL": [4]}, "of one line"),
    ],
)
def test_wrong_settings_of_imex_are_refused(settings: dict[str, Any], message: str) -> None:
    (refusal,) = plan(gpus=["0x2941"], imex_nodes=["10.0.0.1"], imex_settings=settings)["refusals"]
    assert message in refusal


def test_the_domain_of_the_inventory_is_the_list_unless_one_is_declared() -> None:
    domain = [f"10.0.7.{number}" for number in range(1, 19)]
    found = plan(gpus=["0x2941"], imex_domain=domain)
    assert (found["imex_nodes"], found["refusals"]) == (domain, [])
    assert found["imex_settings"][0] == "IMEX_CMD_ENABLED=1"
    assert plan(gpus=["0x2941"], imex_domain=domain, imex_nodes=["10.0.9.1"])["imex_nodes"] == ["10.0.9.1"]
    # A host with other GPUs has no IMEX, and the DRA driver's own takes other nodes.
    assert plan(gpus=["0x2330"], imex_domain=domain)["imex_nodes"] == []
    assert plan(gpus=["0x2941"], imex="masked", imex_domain=domain)["imex_settings"] == []


@pytest.mark.parametrize(
    ("asked", "fabric", "message"),
    [
        (["peermem"], {"peermem": "stub"}, "install DOCA-OFED first, or remove peermem"),
        # Built again with the driver, or not known before.
        (["peermem"], {"peermem": "stub", "ofed": "24.10-1.1.4"}, ""),
        (["peermem"], {"peermem": "built"}, ""),
        (["peermem", "gdrcopy", "storage"], {}, ""),
    ],
)
def test_gpudirect_is_refused_where_it_cannot_load(asked: list[str], fabric: dict[str, str], message: str) -> None:
    found = plan(gpudirect=asked, fabric={**NOTHING, **fabric})
    modules = {"peermem": "nvidia_peermem", "gdrcopy": "gdrdrv", "storage": "nvidia_fs"}
    assert found["kernel_modules"] == [modules[name] for name in asked]
    assert {*found["parts"]} == {"persistence_daemon", *asked} - {"peermem"}
    assert [message in text for text in found["refusals"]] == [True] * bool(message)


def test_gpudirect_of_a_runfile_is_the_module_of_the_driver_alone() -> None:
    assert plan(source="runfile", gpudirect=["peermem"])["refusals"] == []
    (refusal,) = plan(source="runfile", gpudirect=["gdrcopy", "storage"])["refusals"]
    assert refusal.startswith("a runfile brings no packages for gdrcopy and storage of nvidia_driver_gpudirect")


# Names of Debian are those of its index (tests/unit/real_indexes), those of NVIDIA's repository as in packages.yml.
@pytest.mark.parametrize(
    ("source", "system", "parts", "names"),
    [
        (
            "cuda_repository",
            "Ubuntu",
            ("gdrcopy", "storage"),
            {"gdrdrv-dkms", "libgdrapi", "nvidia-fs", "nvidia-fs-dkms"},
        ),
        ("cuda_repository", "RedHat", ("gdrcopy",), {"gdrcopy-kmod", "gdrcopy"}),
        ("distribution", "Debian", ("storage",), {"nvidia-fs-dkms"}),
    ],
)
def test_packages_of_gpudirect(source: str, system: str, parts: tuple[str, ...], names: set[str]) -> None:
    request = DriverRequest(source, system, "x86_64", "580", "open", "dkms", parts=parts)
    found = packages_for(request, TABLE)
    assert names <= {*found.others} and not names & {*found.driver}, "they have versions of their own"


def test_a_node_that_is_listed_twice_is_refused() -> None:
    (refusal,) = plan(gpus=["0x2941"], imex_nodes=["10.0.0.1", "10.0.0.2", "10.0.0.1"])["refusals"]
    assert refusal == "nvidia_driver_imex_nodes has 10.0.0.1 more than once"


@pytest.mark.parametrize(
    ("option", "is_refused"), [("auto", True), ("present", True), ("masked", False), ("absent", False)]
)
def test_imex_of_the_host_and_of_a_pod_is_refused(option: str, is_refused: bool) -> None:
    pods = {**NOTHING, "imex_in_pods": True}
    found = plan(gpus=["0x2941"], imex=option, imex_nodes=["10.0.0.1"], fabric=pods)["refusals"]
    assert [text.startswith("Kubernetes runs IMEX in a pod of this host") for text in found] == [True] * is_refused
    assert plan(gpus=["0x2941"], imex_nodes=["10.0.0.1"], fabric=NOTHING)["refusals"] == []


def test_a_kernel_without_the_modules_of_nvlink5_is_refused_or_gets_them_from_a_package() -> None:
    fabric, kernel = {**BRIDGES, "missing_modules": ["ib_umad"]}, "6.8.0-87-generic"
    found = plan(fabric=fabric, kernel=kernel)
    assert found["module_packages"] == []
    (refusal,) = found["refusals"]
    assert refusal.startswith(f"the kernel {kernel} has no ib_umad, without which NVLink 5 cannot be managed")
    ubuntu = plan(fabric=fabric, kernel=kernel, has_extra_modules=True)
    assert (ubuntu["module_packages"], ubuntu["refusals"]) == ([f"linux-modules-extra-{kernel}"], [])
    # Without NVLink 5 nobody needs them, and an image has another kernel than the machine that builds it.
    for needs in ({"fabric": {**fabric, "nvlink5_bridges": []}}, {"fabric": fabric, "is_image": True}):
        other = plan(kernel=kernel, **needs)
        assert (other["module_packages"], other["refusals"]) == ([], [])
