# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role nvidia_dcgm in site.yml with apt and dnf, systemd and mock packages of NVIDIA's. The tests run in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import settings
from tests.system.support import Result, run

INVENTORY = "tests/system/dcgm/hosts.yml"
HOSTS = ("dc-deb13", "dc-el9")
COUNTERS = [
    {"field": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "type": "gauge", "help": "Ratio of cycles of the tensor cores."}
]
OLDER = {"nvidia_dcgm_version": "4.5.2"}
DECLARED = {
    "nvidia_dcgm_version": "4.5.3",
    "nvidia_dcgm_exporter": True,
    "nvidia_dcgm_exporter_version": "4.8",
    "nvidia_dcgm_exporter_counters": COUNTERS,
}
EXPORTER = "nvidia-dcgm-exporter.service"


def play(name: str, variables: dict[str, Any] | None = None, *extra: str) -> Result:
    return run(
        ["ansible-playbook", "-i", INVENTORY, name, "--extra-vars", json.dumps(variables or {}), *extra],
        env={"GPU_FLEET_TESTBED_INVENTORY": "dcgm"},
    )


def site(variables: dict[str, Any], *extra: str) -> Result:
    result = play("playbooks/site.yml", variables, *extra)
    assert result.status == 0, result.output[-8000:]
    return result


def on_host(host: str, script: str) -> str:
    name = f"gpu-fleet-{settings.TESTBED_ID}-{host}"
    return run(["podman", "exec", name, "sh", "-c", script]).output.strip()


def packages(host: str) -> set[str]:
    """The packages of DCGM, and their versions."""
    apt = "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'"
    shown = on_host(host, f"{apt} || rpm -qa --qf 'ii  %{{NAME}} %{{EPOCHNUM}}:%{{VERSION}}-%{{RELEASE}}\\n'")
    return {line.split(maxsplit=1)[1] for line in shown.splitlines() if line.startswith("ii") and "gpu-manager" in line}


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    play("testbed/playbooks/destroy.yml")
    for name in ("create", "simulate"):
        done = play(f"testbed/playbooks/{name}.yml")
        assert done.status == 0, done.output[-4000:]
    yield
    play("testbed/playbooks/destroy.yml")


def test_check_mode_names_the_packages_and_changes_nothing() -> None:
    result = site(OLDER, "--check")
    for host in HOSTS:
        assert f"{host}: would install datacenter-gpu-manager-4-core," in result.output
        assert packages(host) == set()


def test_dcgm_is_installed_in_the_declared_version_and_a_second_run_changes_nothing() -> None:
    site(OLDER)
    for host in HOSTS:
        found = packages(host)
        assert len(found) == 4 and all(name.endswith(" 1:4.5.2-1") for name in found), found
        assert on_host(host, "systemctl is-active nvidia-dcgm; systemctl is-enabled nvidia-dcgm").split() == [
            "active",
            "enabled",
        ]
        shown = on_host(host, "ps -C sleep -o args= ; systemctl show --property=ExecStart --value nvidia-dcgm")
        assert "--bind-interface 127.0.0.1 ;" in shown
    assert site(OLDER).changed == dict.fromkeys(HOSTS, 0)


def test_an_upgrade_of_the_host_keeps_the_version() -> None:
    upgraded = on_host("dc-deb13", "apt-get --simulate --quiet upgrade 2>/dev/null; apt-get --simulate dist-upgrade")
    assert "datacenter-gpu-manager" not in upgraded
    assert "4.5.3" not in on_host("dc-el9", "dnf --quiet --assumeno upgrade 'datacenter-gpu-manager*'")


def test_a_newer_version_and_the_exporter_come_with_one_engine() -> None:
    site(DECLARED)
    for host in HOSTS:
        found = packages(host)
        assert {name.split(":")[-1] for name in found if "exporter" not in name} == {"4.5.3-1"}
        assert any("exporter" in name and name.endswith("4.8.2-1") for name in found)
        # Read from the host itself, by the loopback address alone; `engine` is what the exporter was started with.
        read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9400/metrics').read().decode())"
        text = on_host(host, f'python3 -c "{read}"')
        assert text == 'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",engine="remote"} 1'
        address = on_host(host, "hostname -I").split()[0]
        assert "refused" in on_host(host, f'python3 -c "{read.replace("127.0.0.1", address)}"')
    assert site(DECLARED).changed == dict.fromkeys(HOSTS, 0)


def test_a_restart_of_the_engine_restarts_its_exporter_and_idle_gpus_stop_both() -> None:
    """As gpu_reset and gpu_state do for changes that need idle GPUs: MIG mode."""
    for host in HOSTS:
        before = on_host(host, f"systemctl show --property=MainPID --value {EXPORTER}")
        on_host(host, "systemctl restart nvidia-dcgm")
        assert on_host(host, f"systemctl show --property=MainPID --value {EXPORTER}") not in ("0", before)
    started = {host: _started(host) for host in HOSTS}
    site(
        {
            **DECLARED,
            "gpu_fleet_roles": ["gpu_state", "nvidia_dcgm"],
            "gpu_state_mig": ["1g.18gb"],
            "gpu_state_reset": "if_required",
        }
    )
    for host in HOSTS:
        assert "MIG 1g" in on_host(host, "nvidia-smi -L")
        after = _started(host)
        # Stopped and started again, the engine first.
        assert after != started[host] and 0 not in after
        assert after[0] <= after[1]


def _started(host: str) -> tuple[int, int]:
    shown = on_host(host, f"systemctl show --property=ActiveEnterTimestampMonotonic --value nvidia-dcgm {EXPORTER}")
    engine, exporter = map(int, shown.split())
    return engine, exporter


def test_drift_is_found_and_repaired() -> None:
    drop_in = f"/etc/systemd/system/{EXPORTER}.d/zz-gpu-fleet.conf"
    for host in HOSTS:
        on_host(host, f"echo '[Service]' >{drop_in}; systemctl daemon-reload; systemctl disable --now nvidia-dcgm")
    result = site(DECLARED, "--check")
    assert f"{drop_in} was changed" in " ".join(result.output.split())
    site(DECLARED)
    for host in HOSTS:
        assert on_host(host, f"systemctl is-active nvidia-dcgm {EXPORTER}").split() == ["active", "active"]
        assert "--remote-hostengine-info" in on_host(host, f"cat {drop_in}")


def test_an_exporter_elsewhere_is_refused_before_a_change() -> None:
    on_host("dc-deb13", f"systemctl stop {EXPORTER}; systemd-run --unit=other /usr/bin/dcgm-exporter --address :9401")
    on_host("dc-deb13", "dpkg --purge --force-depends datacenter-gpu-manager-4-cuda13")
    result = play("playbooks/site.yml", DECLARED)
    assert result.status != 0
    text = " ".join(result.output.split())
    assert "dcgm-exporter runs in" in text and "or set nvidia_dcgm_exporter to false" in text
    on_host("dc-deb13", "systemctl stop other")
    site(DECLARED)


def test_without_the_exporter_its_package_goes_and_the_engine_stays() -> None:
    site({"nvidia_dcgm_version": "4.5.3"})
    for host in HOSTS:
        assert not any("exporter" in name for name in packages(host))
        assert on_host(host, f"systemctl is-active nvidia-dcgm {EXPORTER}").split() == ["active", "inactive"]


def test_a_removal_leaves_nothing() -> None:
    site(DECLARED)
    for check in (["--check"], []):
        gone = play("playbooks/decommission.yml", {"gpu_fleet_decommission_confirm": True}, *check)
        assert gone.status == 0, gone.output[-8000:]
    for host in HOSTS:
        assert packages(host) == set()
        found = "find /etc ! -path '*/group*' \\( -iname '*dcgm*' -o -name '*nvidia-cuda*' \\)"
        assert on_host(host, f"{found} -print") == ""
        assert "datacenter" not in on_host(host, "cat /etc/dnf/plugins/versionlock.list 2>/dev/null || true")
