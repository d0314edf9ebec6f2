# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines whose driver is not that of their distribution: what is found of them, and what is refused there.

The files have the forms that these machines have; none of the machines was at hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._host.machine import is_vgpu, read_machine
from ansible_collections.gpu.fleet.plugins.module_utils._host.packages import parse_dpkg, unfinished
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_repository import PLANNER

from tests.unit.driver.plans import AMAZON, DEBIAN, EL, UBUNTU, driver, facts

KERNEL, MANAGER, FIRST = "proc/sys/kernel/osrelease", "run/systemd/container", "proc/1/environ"
DGX = """DGX_NAME="DGX Server"
DGX_PRETTY_NAME="NVIDIA DGX Server"
DGX_SWBUILD_DATE="2025-02-11-10-22-46"
DGX_SWBUILD_VERSION="7.0.1"
DGX_PLATFORM="DGX Server for KVM"
DGX_OTA_VERSION="7.1.0"
DGX_OTA_DATE="Tue May  6 09:12:01 UTC 2025"
"""


@pytest.mark.parametrize(
    ("files", "kind", "dgx"),
    [
        ({KERNEL: "6.8.0-151-generic\n"}, "", ""),
        ({KERNEL: "5.15.167.4-microsoft-standard-WSL2\n"}, "wsl", ""),
        # A virtual machine of Hyper-V and Azure has an ordinary kernel.
        ({KERNEL: "6.8.0-1021-azure\n"}, "", ""),
        ({KERNEL: "5.15.148-tegra\n"}, "jetson", ""),
        ({KERNEL: "6.8.0-1-nvidia\n", "etc/nv_tegra_release": "# R38\n"}, "jetson", ""),
        ({KERNEL: "6.8.12-4-pve\n", MANAGER: "lxc\n"}, "lxc", ""),
        ({KERNEL: "6.8.12-4-pve\n", FIRST: "container=lxc\0TERM=linux\0"}, "lxc", ""),
        ({KERNEL: "6.8.0-151-generic\n", MANAGER: "podman\n", FIRST: "container=podman\0"}, "", ""),
        ({KERNEL: "6.8.12-4-pve\n", "usr/bin/pveversion": ""}, "proxmox", ""),
        # Debian with its kernel.
        ({KERNEL: "6.8.12-4-pve\n"}, "", ""),
        ({KERNEL: "6.8.0-1023-nvidia\n", "etc/dgx-release": DGX}, "", "7.1.0"),
        ({"etc/dgx-release": 'DGX_SWBUILD_VERSION="6.3.1"\n'}, "", "6.3.1"),
        ({}, "", ""),
    ],
)
def test_a_machine_is_known_by_its_files(tmp_path: Path, files: dict[str, str], kind: str, dgx: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read_machine(HostFiles(str(tmp_path))) == {"virtualization": kind, "dgx_os": dgx, "vgpu": ""}


def configuration(*capabilities: tuple[int, int, bytes]) -> bytes:
    """The configuration of a PCI device with capabilities: their places, their ids, and what follows their length."""
    config = bytearray(256)
    places = [place for place, _id, _rest in capabilities]
    config[0x34] = places[0] if places else 0
    for (place, number, rest), following in zip(capabilities, [*places[1:], 0][: len(places)], strict=True):
        config[place : place + 3 + len(rest)] = bytes((number, following, 3 + len(rest))) + rest
    return bytes(config)


POWER, OF_VGPU = (0x60, 0x01, b"\x03"), (0x68, 0x09, b"VF\x00\x16550.163.0100r550_00000")
CONFIGURATIONS: dict[str, tuple[bytes, bool]] = {
    "a vGPU": (configuration(POWER, OF_VGPU), True),
    "a GPU": (configuration(POWER, (0x68, 0x09, b"\x00\x00\x00"), (0x78, 0x10, b"")), False),
    "of another vendor's form": (configuration((0x68, 0x05, b"VF")), False),
    "no capability": (configuration(), False),
    "nothing": (b"", False),
    "what a user without rights reads": (configuration(POWER, OF_VGPU)[:64], False),
    "cut in the letters": (configuration(OF_VGPU)[: 0x68 + 4], False),
    "a list that leads to itself": (bytes([*configuration(POWER)[:0x61], 0x60, *bytes(158)]), False),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_vgpu_is_known_by_its_pci_configuration(tmp_path: Path, name: str) -> None:
    config, is_one = CONFIGURATIONS[name]
    assert is_vgpu(config) is is_one
    device = tmp_path / "sys/bus/pci/devices/0000:02:00.0"
    device.mkdir(parents=True)
    for file, text in {"vendor": b"0x10de\n", "class": b"0x030200\n", "config": config}.items():
        (device / file).write_bytes(text)
    assert read_machine(HostFiles(str(tmp_path)))["vgpu"] == ("guest" if is_one else "")
    # A bridge of NVIDIA and a GPU of others decide nothing.
    for file, text in {"class": b"0x068000\n", "vendor": b"0x1002\n"}.items():
        before = (device / file).read_bytes()
        (device / file).write_bytes(text)
        assert read_machine(HostFiles(str(tmp_path)))["vgpu"] == ""
        (device / file).write_bytes(before)


@pytest.mark.parametrize("path", ["usr/bin/nvidia-vgpud", "sys/module/nvidia_vgpu_vfio"])
def test_a_vgpu_host_is_known_by_its_manager(tmp_path: Path, path: str) -> None:
    (tmp_path / path).mkdir(parents=True)
    assert read_machine(HostFiles(str(tmp_path)))["vgpu"] == "host"


GRID = {
    "nvidia_driver_source": "runfile",
    "nvidia_driver_version": "580.95.05",
    "nvidia_driver_runfile_url": "https://files.example.com/NVIDIA-Linux-x86_64-580.95.05-grid.run",
    "nvidia_driver_runfile_sha256": "0" * 64,
}
DATA_CENTRE = {**GRID, "nvidia_driver_runfile_url": "https://files.example.com/NVIDIA-Linux-x86_64-580.95.05.run"}


@pytest.mark.parametrize(
    ("side", "variables", "text"),
    [
        ("guest", {}, "works with the guest driver of vGPU software only"),
        ("guest", {"nvidia_driver_source": "distribution"}, "works with the guest driver of vGPU software only"),
        (
            "guest",
            DATA_CENTRE,
            "nvidia_driver_runfile_url to the -grid.run file",
        ),
        ("guest", GRID, ""),
        ("host", {}, "Virtual GPU Manager, which is the driver of a vGPU host"),
        ("host", GRID, "take nvidia_driver out of gpu_fleet_roles"),
    ],
)
def test_a_vgpu_gets_no_driver_that_does_not_drive_it(side: str, variables: dict[str, Any], text: str) -> None:
    found = driver(facts(UBUNTU, gpu_fleet_machine={"vgpu": side}), **variables)
    assert [text in one for one in found["refusals"]] == ([True] if text else [])
    # The manager, or the guest's driver, that is there stays.
    loaded = facts(UBUNTU, "580.95.05", gpu_fleet_machine={"vgpu": side})
    kept = driver(loaded, nvidia_driver_version="580")
    assert (kept["refusals"], kept["steps"]) == ([], [])
    (refusal,) = driver(loaded, nvidia_driver_version="580", nvidia_driver_replace_unmanaged=True)["refusals"]
    assert "vGPU" in refusal


def machine(kind: str = "", dgx: str = "", loaded: str = "", **others: Any) -> dict[str, Any]:
    return facts(UBUNTU, loaded, gpu_fleet_machine={"virtualization": kind, "dgx_os": dgx}, **others)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("wsl", "WSL 2, which uses the driver of Windows: install NVIDIA's driver there"),
        ("lxc", "LXC container, which uses the kernel modules of its host: run the role on the host"),
        ("jetson", "Jetson, whose driver is part of its kernel and comes with JetPack"),
    ],
)
def test_no_driver_is_installed_where_the_kernel_is_anothers(kind: str, text: str) -> None:
    found = driver(machine(kind))
    (refusal,) = found["refusals"]
    assert text in refusal and "take nvidia_driver out of gpu_fleet_roles" in refusal
    assert found["steps"] == []
    # One that is there, and is what was requested, stays as anywhere.
    assert driver(machine(kind, loaded="580.178.04"), nvidia_driver_version="580")["refusals"] == []


def test_dgx_os_keeps_its_driver_and_takes_none_of_another_repository() -> None:
    (refusal,) = driver(machine(dgx="7.1.0"), nvidia_driver_source="cuda_repository")["refusals"]
    assert refusal.startswith("this is DGX OS 7.1.0, which brings its own driver, Fabric Manager and repositories")
    assert "set nvidia_driver_source to distribution" in refusal
    assert driver(machine(dgx="7.1.0"), nvidia_driver_source="distribution")["refusals"] == []
    kept = driver(machine(dgx="7.1.0", loaded="580.178.04"), nvidia_driver_version="580")
    assert (kept["refusals"], kept["steps"]) == ([], [])


def repository(host: dict[str, Any], name: str, **variables: Any) -> list[str]:
    data = RoleData.read()
    values = {**data.defaults(["nvidia_repository"]), **data.role_values["nvidia_repository"], **variables}
    values["nvidia_repository_repositories"] = [name]
    plans: list[Plan] = cast("Any", PLANNER.stages["plan"](values, host, {}))
    (plan,) = plans
    return list(plan.refusals)


def test_dgx_os_gets_no_second_repository_with_drivers() -> None:
    (refusal,) = repository(machine(dgx="6.3.1"), "cuda")
    assert refusal.startswith("this is DGX OS 6.3.1, which has its own repositories of NVIDIA's packages")
    assert "take out the roles that need this one (cuda, cudnn, nvidia_repository)" in refusal
    assert repository(machine(dgx="6.3.1"), "container_toolkit") == []
    assert repository(machine(), "cuda") == []
    own = {"nvidia_repository_cuda": {"url": "https://mirror.example.com/cuda/"}}
    assert repository(machine(dgx="6.3.1"), "cuda", **own) == []


LISTED = """dpkg\t1.22.6\tamd64\tinstalled
nvidia-dkms-580-open\t580.178.04-1\tamd64\thalf-configured
zoom\t6\tamd64\tunpacked
gone\t1\tall\tconfig-files
"""


def test_packages_that_dpkg_did_not_configure_are_no_installed_ones() -> None:
    assert unfinished(LISTED) == ["nvidia-dkms-580-open", "zoom"]
    assert list(parse_dpkg(LISTED)) == ["dpkg"]


def test_half_configured_packages_next_to_a_working_driver_are_named() -> None:
    def notes(loaded: str) -> list[str]:
        found = driver(
            machine(loaded=loaded, gpu_fleet_unfinished_packages=unfinished(LISTED)), nvidia_driver_version="580"
        )
        return [str(note) for note in found["notes"] if "half configured" in note]

    (note,) = notes("580.178.04")
    assert note.startswith("driver 580.178.04 works, and nvidia-dkms-580-open is only half configured")
    assert "run `dpkg --configure -a` on the host" in note
    # Without a driver that works, its installation is what repairs them.
    assert notes("") == []


SYSTEMS = {"Ubuntu": UBUNTU, "Debian": DEBIAN, "EL": EL, "Amazon Linux": AMAZON}
MACHINES: dict[str, dict[str, str]] = {
    "a machine": {},
    "WSL 2": {"virtualization": "wsl"},
    "LXC": {"virtualization": "lxc"},
    "Jetson": {"virtualization": "jetson"},
    "DGX OS": {"dgx_os": "7.1.0"},
    "vGPU host": {"vgpu": "host"},
    "vGPU guest": {"vgpu": "guest"},
    "vGPU guest of DGX OS": {"vgpu": "guest", "dgx_os": "7.1.0"},
    "LXC on a vGPU host": {"virtualization": "lxc", "vgpu": "host"},
}
STATES: dict[str, tuple[str, dict[str, Any]]] = {
    "bare": ("", {}),
    "a driver that fits": ("580.178.04", {"nvidia_driver_version": "580"}),
    "a driver to replace": ("580.178.04", {"nvidia_driver_version": "580", "nvidia_driver_replace_unmanaged": True}),
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("source", ["cuda_repository", "distribution"])
def test_only_a_driver_that_is_there_and_fits_stays_on_such_a_machine(
    system: str, name: str, state: str, source: str
) -> None:
    loaded, variables = STATES[state]
    host = facts(SYSTEMS[system], loaded, gpu_fleet_machine=MACHINES[name])
    found = driver(host, nvidia_driver_source=source, **variables)
    may_install = name == "a machine" or (name == "DGX OS" and source == "distribution")
    stays = state == "a driver that fits"
    assert (not found["refusals"]) == (may_install or stays)
    assert bool(found["steps"]) == (may_install and not stays)
