# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State of a host after gpu_state: GPU settings, MIG devices, boot service."""

from __future__ import annotations

import re
from typing import Any

import pytest

_UNIT = "gpu-fleet-state.service"
# By host: the MIG devices that `nvidia-smi -L` lists for both GPUs, ECC mode, and the power limit in watts.
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


def test_boot_service_is_enabled_and_states_that_all_is_well(host: Any) -> None:
    assert host.service(_UNIT).is_enabled
    assert host.service(_UNIT).is_running
    assert "2 GPUs are as declared" in host.check_output(f"systemctl status --no-pager {_UNIT}")


def test_boot_service_comes_before_what_uses_gpus_and_holds_nothing_up(host: Any) -> None:
    shown = host.check_output(f"systemctl show {_UNIT} --property=Before,After,RequiredBy,TimeoutStartUSec")
    properties = dict(line.split("=", 1) for line in shown.splitlines())
    users = "docker containerd crio kubelet k3s k3s-agent rke2-server rke2-agent slurmd nvidia-dcgm gpu-watcher"
    assert {f"{name}.service" for name in users.split()} <= set(properties["Before"].split())
    assert {"nvidia-persistenced.service", "dkms.service", "akmods.service"} <= set(properties["After"].split())
    # nvidia-fabricmanager is ordered after multi-user.target here.
    assert "nvidia-fabricmanager.service" not in properties["After"]
    assert properties["RequiredBy"] == ""
    assert properties["TimeoutStartUSec"] == "40min"


def test_boot_service_is_in_no_ordering_cycle(host: Any) -> None:
    assert "ordering cycle" not in host.check_output("journalctl --no-pager")
    assert host.service("nvidia-fabricmanager").is_running


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
    # The limit that docs/gpu-state.md states; versions of systemd differ by a few tenths.
    figure = host.check_output(f"systemd-analyze security --no-pager {_UNIT}").splitlines()[-1]
    match = re.search(r"exposure level for \S+: ([0-9.]+) ", figure)
    assert match and float(match[1]) < 4, figure


def test_boot_service_runs_the_systems_python(host: Any) -> None:
    assert (
        "ExecStart=/usr/bin/python3 -I -S -B /usr/lib/gpu-fleet "
        in host.file(f"/etc/systemd/system/{_UNIT}").content_string
    )


def test_journal_has_priorities(host: Any) -> None:
    shown = host.check_output(f"journalctl --unit={_UNIT} --priority=info --output=cat --no-pager")
    assert "GPU 0 (" in shown and "<6>" not in shown
    assert "GPU 0 (" not in host.check_output(f"journalctl --unit={_UNIT} --priority=err --output=cat --no-pager")


def test_check_shows_what_the_service_would_do_and_does_nothing(host: Any) -> None:
    first = host.run("gpu-fleet-state --check")
    assert first.rc == 0 and first.stdout.count(": as saved") == 2, first.stdout + first.stderr
    limit = host.check_output("nvidia-smi -i 1 --query-gpu=power.limit --format=csv,noheader,nounits")
    host.check_output("nvidia-smi -i 1 -pl 350")
    try:
        second = host.run("gpu-fleet-state --check")
        assert second.rc == 1 and "+ power_limit_w: " in second.stdout, second.stdout + second.stderr
        still = host.check_output("nvidia-smi -i 1 --query-gpu=power.limit --format=csv,noheader,nounits")
        assert still == "350.00"
    finally:
        host.check_output(f"nvidia-smi -i 1 -pl {float(limit):.0f}")
    assert host.run("gpu-fleet-state --check /none").rc == 2
    assert host.run("gpu-fleet-state").rc == 2


def test_clients_run_as_before(host: Any) -> None:
    for name in ("nvidia-persistenced", "gpu-watcher"):
        assert host.service(name).is_running
    assert not host.service("gpu-sleeper").is_running


def test_cdi_specification_names_the_mig_devices(host: Any) -> None:
    uuids = re.findall(r"UUID: (MIG-[0-9a-f-]+)", host.check_output("nvidia-smi -L"))
    specification = host.file("/etc/cdi/nvidia.yaml").content_string
    assert uuids
    assert [uuid for uuid in uuids if uuid not in specification] == []
