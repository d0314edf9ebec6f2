# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role enroot with enroot, pyxis, slurmctld and slurmd: containers of a user in jobs. The tests run in order.

enroot and pyxis are built from their sources, which GPU_FLEET_ENROOT names: a directory with checkouts of
https://github.com/NVIDIA/enroot and https://github.com/NVIDIA/pyxis by these names. nvidia-container-cli is a script
that notes its arguments, as there is no GPU.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import settings
from tests.system.support import Result, run

DIRECTORY = "tests/system/enroot"
NAME = f"gpu-fleet-{settings.TESTBED_ID}-en-slurm"
SOURCES = Path(os.environ.get("GPU_FLEET_ENROOT", "/nonexistent"))
MIG_LIST = """GPU 0: NVIDIA H200 (UUID: GPU-5d2c1b0a)
  MIG 1g.18gb     Device  0: (UUID: MIG-aaaa)
"""

pytestmark = pytest.mark.skipif(not SOURCES.is_dir(), reason="GPU_FLEET_ENROOT names no sources of enroot and pyxis")


def play(name: str, *extra: str) -> Result:
    return run(
        ["ansible-playbook", "-i", f"{DIRECTORY}/hosts.yml", name, *extra],
        env={"GPU_FLEET_TESTBED_INVENTORY": "enroot"},
    )


def on_host(*argv: str) -> str:
    return run(["podman", "exec", NAME, *argv]).output.strip()


def role(*extra: str, enroot: str = "/srv/enroot.deb") -> Result:
    """Run the role with what the host has made: the package or the source of enroot, and the source of pyxis."""
    package, source = (
        {"url": f"file://{name}", "sha256": on_host("sha256sum", name).split()[0]} for name in (enroot, PYXIS)
    )
    given = {
        "enroot_packages": [package],
        "enroot_pyxis": source,
        "enroot_pyxis_options": {"container_scope": "job"},
        "enroot_settings": {"ENROOT_DATA_PATH": "/tmp/enroot-data-$(id -u)"},
        "enroot_hooks": ["50-slurm-pmi.sh"],
    }
    return play(f"{DIRECTORY}/enroot.yml", "--extra-vars", json.dumps(given), *extra)


PYXIS = "/srv/pyxis.tar.gz"


def in_container(*options: str) -> tuple[str, str]:
    """The GPUs that a user's container is given in a job, and what nvidia-container-cli is called with."""
    on_host("truncate", "--size=0", "/run/container-cli")
    command = f"cd /tmp; timeout 120 srun {' '.join(options)} --container-image=/srv/image.sqsh /usr/bin/env"
    output = on_host("su", "ordinary", "-c", command)
    devices = [line.partition("=")[2] for line in output.splitlines() if line.startswith("NVIDIA_VISIBLE_DEVICES=")]
    called = [word for word in on_host("cat", "/run/container-cli").split() if word.startswith("--device=")]
    return (devices or [output])[0], (called or [""])[0]


@pytest.fixture(scope="module", autouse=True)
def _host() -> Iterator[None]:
    play("testbed/playbooks/create.yml")
    on_host("mkdir", "--parents", "/srv/sources")
    for name in ("enroot", "pyxis"):
        run(["podman", "cp", str(SOURCES / name), f"{NAME}:/srv/sources/{name}"])
    run(["podman", "cp", f"{DIRECTORY}/prepare.sh", f"{NAME}:/srv/prepare.sh"])
    prepared = run(["podman", "exec", NAME, "sh", "/srv/prepare.sh"])
    assert prepared.status == 0, prepared.output[-3000:]
    yield
    play("testbed/playbooks/destroy.yml")


def test_check_mode_predicts_the_installation_and_installs_nothing() -> None:
    result = role("--check")
    assert result.status == 0, result.output[-3000:]
    assert "changed=1 " in result.output
    assert "write /etc/enroot/enroot.conf.d/50-gpu-fleet.conf" in result.output
    assert "restart slurmd.service" in result.output
    assert "enroot" not in on_host("ls", "/etc")


def test_the_role_converges() -> None:
    result = role()
    assert result.status == 0, result.output[-3000:]
    assert "container-image" in on_host("srun", "--help")
    # It reads cgroups of version 1, of which a host in a container sees a part.
    on_host("rm", "--force", "/etc/enroot/hooks.d/10-cgroups.sh")


@pytest.mark.parametrize("mode", [(), ("--check",)], ids=["again", "check"])
def test_a_second_run_changes_nothing(mode: tuple[str, ...]) -> None:
    result = role(*mode)
    assert result.status == 0, result.output[-3000:]
    assert "changed=0 " in result.output


@pytest.mark.parametrize(
    ("options", "devices", "called"),
    [
        ((), "void", ""),
        (("--gres=gpu:1",), "0", "--device=0"),
        (("--gres=gpu:2",), "0,1", "--device=0,1"),
    ],
    ids=["none", "one", "two"],
)
def test_a_container_has_the_gpus_of_its_job(options: tuple[str, ...], devices: str, called: str) -> None:
    assert in_container(*options) == (devices, called)


def test_a_container_has_the_mig_device_of_its_job() -> None:
    on_host("sh", "-c", f"printf '#!/bin/sh\\ncat <<EOF\\n{MIG_LIST}EOF\\n' >/usr/bin/nvidia-smi")
    on_host("chmod", "755", "/usr/bin/nvidia-smi")
    assert in_container("--gres=gpu:1") == ("MIG-aaaa", "--device=MIG-aaaa")
    refused, called = in_container("--gres=gpu:2")
    assert "set ConstrainDevices=yes in cgroup.conf" in refused
    assert called == ""


def test_enroot_of_its_source_runs_a_container_as_well() -> None:
    on_host("apt-get", "-qq", "purge", "-y", "enroot")
    on_host("rm", "-rf", "/etc/enroot")
    source = "/srv/enroot.tar.gz"
    predicted = role("--check", enroot=source)
    assert predicted.status == 0 and "build enroot" in predicted.output, predicted.output[-3000:]
    first = role(enroot=source)
    assert first.status == 0, first.output[-3000:]
    on_host("rm", "--force", "/etc/enroot/hooks.d/10-cgroups.sh")
    again = role(enroot=source)
    assert (again.status, "changed=0 " in again.output) == (0, True), again.output[-3000:]
    assert in_container("--gres=gpu:1") == ("MIG-aaaa", "--device=MIG-aaaa")


def test_no_node_is_drained_by_a_container_that_does_not_start() -> None:
    assert on_host("sinfo", "--noheader", "--list-reasons") == ""
