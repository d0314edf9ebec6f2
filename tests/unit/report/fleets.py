# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets for the tests of the report: simulated hosts, read by the modules, and copies of them under other names."""

from __future__ import annotations

import copy
import functools
import json
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.modules import report_facts
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.model import NOT_READ, READ, UNREACHABLE, Host

from tests.unit.health.health_host import HealthHost
from tests.unit.module_runs import COMMON, run_module

TIME = "2026-11-22T17:00:00Z"
HOSTILE = "</script><script>window.hostile = 1</script><img src=x onerror=window.hostile=1>"
"""A name of a host or a process that would run in the page, if it were not escaped."""

_DAY = 24 * 3600.0


def _dgx(host: HealthHost) -> None:
    """Eight GPUs: one in MIG mode with two processes, one that the driver wants to be reset, Xids, adapters."""
    host.prepare("-i 0 -mig 1", "mig -i 0 -cgi 9,14,19 -C")
    host.control("busy", "--gpu", "0", "--gpu-instance", "2", "--name", "python train.py")
    host.control("busy", "--gpu", "1", "--name", HOSTILE, "--memory-mib", "90000")
    host.control("fault", "recovery-action", "reset", "--gpu", "3")
    host.control("set", "remapped_rows.correctable", "2", "--gpu", "4")
    host.xid("31 --pid 7 --name a")
    for number in range(4):
        _nic(host, number, 400000)
    _nic(host, 9, 1000, rdma=False)
    host.write("/etc/os-release", 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\n')


def _pair(host: HealthHost) -> None:
    """Two GPUs, one of which waits for another ECC mode."""
    host.smi("-i 1 -e 0")
    host.write("/etc/os-release", "PRETTY_NAME='Debian GNU/Linux 12 (bookworm)'\n")
    host.write("/run/reboot-required", "")
    host.write("/run/reboot-required.pkgs", "linux-image-6.1.0\nlinux-image-6.1.0\n")


def _single(host: HealthHost) -> None:
    """One GPU, and nothing to report."""
    host.write("/etc/os-release", "PRETTY_NAME='Debian GNU/Linux 12 (bookworm)'\n")


_BASES: Mapping[str, tuple[dict[str, Any], Callable[[HealthHost], None]]] = {
    "dgx": ({"gpus": [{"model": "h200", "count": 8}]}, _dgx),
    "pair": ({"branch": 550, "gpus": [{"model": "a100_40gb", "count": 2}]}, _pair),
    "single": ({"driver_version": "535.309.01", "gpus": [{"model": "t4", "count": 1}]}, _single),
}


def _nic(host: HealthHost, number: int, speed: int, rdma: bool = True) -> None:
    """Add an adapter to sysfs."""
    device = f"/sys/devices/pci0000:00/0000:00:{number:02x}.0"
    host.write(f"{device}/numa_node", f"{number % 2}\n")
    _link(host, f"/sys/class/net/ens{number}", device, {"operstate": "up\n", "speed": f"{speed}\n"})
    if rdma:
        _link(host, f"/sys/class/infiniband/mlx5_{number}", device, {"ports/1/state": "4: ACTIVE\n"})


def _link(host: HealthHost, path: str, device: str, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        host.write(f"{path}/{name}", content)
    Path(f"{host.root}{path}/device").symlink_to(f"{host.root}{device}")


def read_host(
    directory: Path, prepare: Callable[[HealthHost], None], **description: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What report_facts and gpu_health return for a simulated host."""
    with pytest.MonkeyPatch.context() as patch:
        host = HealthHost(directory, patch, **description)
        # The history begins with a healthy host.
        host.now = datetime.fromisoformat(TIME).timestamp() - 40 * _DAY
        host.check()
        host.now += 30 * _DAY
        prepare(host)
        patch.setattr(report_facts, "HOST", HostFiles(host.root))
        facts = run_module(report_facts, patch, {"executable": str(host.path / "nvidia-smi")})
        health = host.check(check_mode=True)
    return facts["host"], {name: value for name, value in health.items() if name not in COMMON}


@functools.cache
def bases() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Facts and health of the simulated hosts by name, read once."""
    found = {}
    for name, (description, prepare) in _BASES.items():
        with tempfile.TemporaryDirectory() as directory:
            found[name] = read_host(Path(directory), prepare, **description)
    return found


def fleet(size: int) -> list[Host]:
    """A fleet with a host that cannot be reached, one that cannot be read, and copies of the simulated hosts."""
    hosts = [
        Host("lost1", UNREACHABLE, "Failed to connect to the host via ssh: No route to host"),
        Host(f"broken {HOSTILE}", NOT_READ, "runs as user ops, not as root"),
    ]
    kinds = list(bases())
    for number in range(size - len(hosts)):
        kind = kinds[number] if number < len(kinds) else "dgx"
        hosts.append(copied(kind, f"{kind}{number}", number))
    return hosts[-size:] if size < len(hosts) else hosts


def copied(kind: str, name: str, number: int = 0, **fields: Any) -> Host:
    """A copy of a simulated host with GPUs of its own. Every seventh of a kind is healthy."""
    facts, health = bases()[kind]
    text = json.dumps([facts, health])
    for gpu in facts["gpus"]:
        text = text.replace(gpu["uuid"], f"{gpu['uuid'][:-8]}{number:08x}")
    facts, health = json.loads(text)
    if number % 7 == 6:
        health = {**copy.deepcopy(health), "verdict": "ok", "remedy": "none", "findings": []}
        health["gpus"] = [{**gpu, "verdict": "ok", "remedy": "none"} for gpu in health["gpus"]]
    return Host(name, READ, rack=f"rack{number // 4}", facts=facts, health=health, **fields)
