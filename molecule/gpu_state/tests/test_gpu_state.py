# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user finds on a host whose GPUs were declared, asked of the host itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

_UNIT = "gpu-fleet-state.service"
# By host: what `nvidia-smi -L` shows as MIG devices of both GPUs, ECC mode, and the power limit in watts.
_EXPECTED = {
    "m-deb12": (["3g.20gb", "1g.5gb", "1g.5gb"] * 2, "Disabled", "360.00"),
    "m-deb13": (["3g.71gb", "1c.2g.35gb", "1c.2g.35gb", "1g.18gb"], "Enabled", "630.00"),
}


@pytest.fixture
def expected(host: Any) -> tuple[list[str], str, str]:
    return _EXPECTED[host.check_output("hostname")]


def test_gpus_are_as_declared(host: Any, expected: tuple[list[str], str, str]) -> None:
    devices, ecc, watts = expected
    assert re.findall(r"^  MIG (\S+)", host.check_output("nvidia-smi -L"), re.MULTILINE) == devices
    query = "ecc.mode.current,power.limit,persistence_mode"
    rows = host.check_output(f"nvidia-smi --query-gpu={query} --format=csv,noheader,nounits").splitlines()
    assert rows == [f"{ecc}, {watts}, Enabled"] * 2


def test_boot_service_is_enabled_and_says_that_all_is_well(host: Any) -> None:
    assert host.service(_UNIT).is_enabled
    assert host.service(_UNIT).is_running
    assert "2 GPUs are as declared" in host.check_output(f"systemctl status --no-pager {_UNIT}")


def test_boot_service_comes_before_what_uses_gpus_and_holds_nothing_up(host: Any) -> None:
    shown = host.check_output(f"systemctl show {_UNIT} --property=Before,After,RequiredBy,TimeoutStartUSec")
    properties = dict(line.split("=", 1) for line in shown.splitlines())
    users = {"docker.service", "containerd.service", "crio.service", "kubelet.service", "slurmd.service"}
    assert users <= set(properties["Before"].split())
    assert {"nvidia-persistenced.service", "nvidia-fabricmanager.service"} <= set(properties["After"].split())
    assert properties["RequiredBy"] == ""
    assert properties["TimeoutStartUSec"] == "5min"


def test_boot_service_is_confined(host: Any) -> None:
    names = "NoNewPrivileges,ProtectSystem,ProtectHome,PrivateTmp,PrivateNetwork"
    shown = host.check_output(f"systemctl show {_UNIT} --property={names}")
    assert set(shown.splitlines()) == {
        "NoNewPrivileges=yes",
        "ProtectSystem=full",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "PrivateNetwork=yes",
    }


def test_clients_run_as_before(host: Any) -> None:
    for name in ("nvidia-persistenced", "gpu-watcher"):
        assert host.service(name).is_running
    assert not host.service("gpu-sleeper").is_running


def test_cdi_specification_names_the_mig_devices(host: Any) -> None:
    uuids = re.findall(r"UUID: (MIG-[0-9a-f-]+)", host.check_output("nvidia-smi -L"))
    specification = host.file("/etc/cdi/nvidia.yaml").content_string
    assert uuids
    assert [uuid for uuid in uuids if uuid not in specification] == []
