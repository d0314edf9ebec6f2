# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/air-gapped.md, tried: hosts that reach a mirror and nothing else converge with the guide's variables.

What differs from the guide: the mirror's name and keys, and the image of the health check, which is a file on the host.
The distribution of the host with apt is a directory with what the roles install of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import settings
from testbed.mock_repositories import faults
from tests.system.support import Result, run

_DIRECTORY = "tests/system/air_gapped"
_GUIDE = settings.ROOT / "docs" / "air-gapped.md"
_EXAMPLE, _MIRROR = "mirror.example.com", "mirror.testbed.invalid"
_HOSTS = {"g-ubuntu24": "Ubuntu 24.04", "g-el9": "Enterprise Linux 9"}
_CLIENTS = (".45", ".46")
_KEYS = {"g-ubuntu24": ("cuda-ubuntu", "docker"), "g-el9": ("cuda-rhel", "docker-rpm")}
# What prepares the distribution's packages on a host, with those that the roles install of it.
_DISTRIBUTION: dict[str, tuple[str, ...]] = {
    "g-ubuntu24": ("distribution_apt.sh", "apparmor", "dkms", "iptables", "python3-apt", "python3-requests"),
    "g-el9": ("distribution_dnf.sh",),
}
_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 443), timeout=5).close()
    print("connected")
except OSError as error:
    print(type(error).__name__, error.errno)
"""


def _play(name: str, *words: str) -> Result:
    return run(
        ["ansible-playbook", "-i", f"{_DIRECTORY}/hosts.yml", name, *words],
        env={"GPU_FLEET_TESTBED_INVENTORY": "air_gapped"},
    )


def _on_host(host: str, *argv: str) -> str:
    done = run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", *argv])
    assert done.status == 0, done.output[-4000:]
    return done.output.strip()


def _script(host: str, name: str, *words: str) -> None:
    _on_host(host, "sh", "-c", (settings.ROOT / _DIRECTORY / name).read_text(encoding="utf-8"), name, *words)


def _of_the_guide(system: str) -> dict[str, Any]:
    """The block of the page that begins with `For SYSTEM:`, with the mirror of the testbed."""
    text = _GUIDE.read_text(encoding="utf-8")
    found = re.search(rf"[Ff]or {re.escape(system)}:\n\n```yaml\n(.*?)```", text, re.DOTALL)
    assert found, system
    block: dict[str, Any] = yaml.safe_load(found[1].replace(_EXAMPLE, _MIRROR))
    return block


def _variables(host: str) -> dict[str, Any]:
    """Those of the guide, the keys that the mirror signs with, and the image from a file."""
    facts = json.loads((settings.MOCK_REPOSITORIES / "vendors.json").read_text(encoding="utf-8"))
    keys: dict[str, str] = facts["fingerprints"]
    cuda, docker = _KEYS[host]
    given = _of_the_guide(_HOSTS[host])
    given["nvidia_repository_cuda"]["fingerprints"] = [keys[cuda]]
    given["nvidia_repository_container_toolkit"]["fingerprints"] = [keys["container-toolkit"]]
    return given | {
        "nvidia_driver_epel_fingerprint": keys["epel"],
        "docker_repository_key_fingerprint": keys[docker],
        "gpu_health_container_image": "localhost/gpu-fleet/demo:latest",
        "gpu_health_container_archive": "/opt/testbed/container.tar",
    }


def _addresses(value: object) -> list[str]:
    return re.findall(rf"https://{re.escape(_MIRROR)}/[^'\"\s]+", json.dumps(value))


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    """Bare hosts with GPUs that have lost every route but that to the mirror."""
    _play("testbed/playbooks/destroy.yml")
    try:
        for name in ("create", "simulate"):
            made = _play(f"testbed/playbooks/{name}.yml")
            assert made.status == 0, made.output[-4000:]
        for host, (script, *packages) in _DISTRIBUTION.items():
            _script(host, script, *packages)
            _script(host, "isolate.sh")
        yield
    finally:
        _play("testbed/playbooks/destroy.yml")


@pytest.mark.parametrize("host", _HOSTS)
def test_1_a_host_reaches_the_mirror_and_nothing_else(host: str) -> None:
    def connect(to: str) -> str:
        return _on_host(host, "python3", "-c", _CONNECT, to)

    assert connect(_MIRROR) == "connected"
    assert connect("192.0.2.1") == "OSError 101"  # the network is unreachable
    vendor = "developer.download.nvidia.com"
    assert connect(vendor).startswith("gaierror")
    (route,) = _on_host(host, "ip", "-oneline", "route").splitlines()
    assert " scope link " in route and not route.startswith("default")


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The variables of each host."""
    path = tmp_path_factory.mktemp("air_gapped") / "variables.json"
    path.write_text(json.dumps({"all": {"hosts": {host: _variables(host) for host in _HOSTS}}}), encoding="utf-8")
    return path


def test_2_bare_hosts_converge_and_fetch_from_the_mirror_alone(inventory: Path) -> None:
    with faults.requests() as requests:
        converged = _play("playbooks/site.yml", "-i", str(inventory))
    assert converged.status == 0, converged.output[-8000:]
    urls = [one["url"] for one in requests if one["client"].endswith(_CLIENTS)]
    assert [url for url in urls if not url.startswith(f"https://{_MIRROR}/")] == []
    used = [address for host in _HOSTS for address in _addresses(_of_the_guide(_HOSTS[host]))]
    assert used
    assert [address for address in used if not any(url.startswith(address) for url in urls)] == []
    for host in _HOSTS:
        row = rf"^{host} +2 x NVIDIA H200 .* 2 [(]cdi[)] +ok$"
        assert re.search(row, converged.output, re.MULTILINE), converged.output[-2000:]


def test_3_a_second_run_changes_nothing(inventory: Path) -> None:
    again = _play("playbooks/site.yml", "-i", str(inventory))
    assert again.status == 0, again.output[-8000:]
    assert again.changed == dict.fromkeys(_HOSTS, 0)
