# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd_reload, run as Ansible runs it, on hosts made of files with mock engines."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.modules import systemd_reload

from tests.unit.managed.conftest import ManagedHost, Run

TRAINING, INFERENCE, WEB = "a" * 64, "b" * 64, "c" * 64
DOCKER = "0::/system.slice/docker-{}.scope"
PODMAN = "0::/machine.slice/libpod-{}.scope/container"
NERDCTL = "0::/system.slice/nerdctl-{}.scope"
CONTAINERD = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{}.scope"
CRIO = "0::/kubepods.slice/kubepods-pod1.slice/crio-{}.scope"
CGROUP_V1 = "12:devices:/system.slice/docker-{0}.scope\n1:name=systemd:/system.slice/docker-{0}.scope"
PODS = {
    "containers": [
        {
            "id": TRAINING,
            "metadata": {"name": "worker"},
            "labels": {"io.kubernetes.pod.namespace": "llm", "io.kubernetes.pod.name": "train-0"},
        }
    ]
}


def process(host: ManagedHost, number: int, cgroup: str, *devices: str) -> None:
    """A process of a container that sees these device files."""
    host.write(f"/proc/{number}/cgroup", f"{cgroup}\n")
    host.path(f"/proc/{number}/root/dev").mkdir(parents=True)
    for name in ("null", *devices):
        host.write(f"/proc/{number}/root/dev/{name}", "")


@pytest.fixture
def reload(run: Run, host: ManagedHost, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the module on a host where docker.service has changed; the engines know the container TRAINING."""
    monkeypatch.setenv("PATH", f"{host.programs}:/usr/bin:/bin")
    host.path("/run/systemd/system").mkdir(parents=True)
    host.program(
        "systemctl",
        """[ "$2" != daemon-reload ] || exit 0
shift 3
for unit; do
case "$unit" in docker.service) due=yes;; *) due=no;; esac
printf 'Id=%s\\nLoadState=loaded\\nActiveState=active\\nNeedDaemonReload=%s\\n\\n' "$unit" $due
done""",
    )
    for name in ("docker", "podman", "nerdctl"):
        host.program(name, f"printf '{TRAINING}\\ttraining\\n{WEB}\\tweb\\n'")
    host.program("crictl", f"echo '{json.dumps(PODS)}'")

    def call(check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        host.log.write_text("")
        return run(systemd_reload.main, check_mode, **arguments)

    return call


@pytest.mark.parametrize(
    ("cgroup", "socket", "expected"),
    [
        (DOCKER, "", "training (docker)"),
        (CGROUP_V1, "", "training (docker)"),
        (PODMAN, "", "training (podman)"),
        (NERDCTL, "", "training (nerdctl)"),
        (CONTAINERD, "/run/containerd/containerd.sock", "llm/train-0/worker (containerd)"),
        (CONTAINERD, "/run/k3s/containerd/containerd.sock", "llm/train-0/worker (containerd)"),
        (CRIO, "/run/crio/crio.sock", "llm/train-0/worker (CRI-O)"),
        # An engine that cannot be asked.
        (CRIO, "", "aaaaaaaaaaaa (CRI-O)"),
    ],
)
def test_a_running_container_with_gpus_is_named(
    cgroup: str, socket: str, expected: str, host: ManagedHost, reload: Run
) -> None:
    process(host, 100, "0::/init.scope", "nvidia0")
    process(host, 200, cgroup.format(TRAINING), "nvidiactl", "nvidia0")
    # Another one of the same container.
    process(host, 201, cgroup.format(TRAINING), "nvidiactl", "nvidia0")
    process(host, 300, cgroup.format(WEB))
    if socket:
        host.write(socket, "")
    for check_mode in (True, False):
        result = reload(check_mode, units=["docker.service"])
        (warning,) = result["warnings"]
        assert warning["event"]["msg"].endswith(f"With GPUs run: {expected}")
        assert [f"{one['name']} ({one['engine']})" for one in result["containers"]] == [expected]
        assert result["changed"] is True
        assert ("systemctl --no-pager daemon-reload" in host.calls()) is not check_mode
    assert set(yaml.safe_load(systemd_reload.RETURN)) <= set(result)


def test_the_first_drop_in_of_a_unit_is_read_although_systemd_sees_no_need(host: ManagedHost, reload: Run) -> None:
    """As systemd 252 printed it for a directory that it did not know: NeedDaemonReload=no and an empty DropInPaths."""
    assert reload(units=["nvidia.service"])["changed"] is False
    host.write("/etc/systemd/system/nvidia.service.d/masked.conf", "")
    assert reload(units=["nvidia.service"])["changed"] is False
    host.write("/etc/systemd/system/nvidia.service.d/gpu-fleet-proxy.conf", "[Service]\n")
    assert reload(units=["nvidia.service"])["changed"] is True
    assert "systemctl --no-pager daemon-reload" in host.calls()


@pytest.mark.parametrize(
    ("cgroup", "devices"),
    [
        (DOCKER, ()),
        (DOCKER, ("nvidia-uvm", "nvidiactl", "nvidia-modeset")),
        # The engine itself sets the rules of these.
        ("0::/docker/{}", ("nvidia0",)),
        ("0::/default/{}", ("nvidia0",)),
        # Users without privileges have no rules for devices.
        ("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{}.scope/container", ("nvidia0",)),
        ("0::/system.slice/docker.service", ("nvidia0",)),
        ("0::/machine.slice/libpod-conmon-{}.scope", ("nvidia0",)),
    ],
)
def test_without_such_a_container_there_is_no_warning(
    cgroup: str, devices: tuple[str, ...], host: ManagedHost, reload: Run
) -> None:
    process(host, 200, cgroup.format(TRAINING), *devices)
    result = reload()
    assert (result["changed"], result["containers"], result.get("warnings", [])) == (True, [], [])
    # No engine is asked.
    assert {call.split()[0] for call in host.calls()} == {"systemctl"}


def test_systemd_is_not_reloaded_where_no_unit_has_changed(host: ManagedHost, reload: Run) -> None:
    process(host, 200, DOCKER.format(TRAINING), "nvidia0")
    result = reload(units=["nvidia-persistenced.service", "nvidia-imex.service"])
    assert (result["changed"], result["containers"], result.get("warnings", [])) == (False, [], [])
    assert not any("daemon-reload" in call for call in host.calls())


def test_without_systemd_nothing_is_reloaded(host: ManagedHost, reload: Run) -> None:
    process(host, 200, DOCKER.format(TRAINING), "nvidia0")
    host.program("systemctl", "echo 'System has not been booted with systemd as init system' >&2; exit 1")
    host.path("/run/systemd/system").rmdir()
    assert reload()["changed"] is False
    # In a chroot it ignores the command.
    host.program("systemctl", "echo 'Running in chroot, ignoring command.' >&2")
    assert reload()["changed"] is False


@pytest.mark.parametrize("command", ["show", "daemon-reload"])
def test_a_failure_is_reported(command: str, host: ManagedHost, reload: Run) -> None:
    host.program(
        "systemctl",
        f"""case "$*" in *{command}*) echo 'Access denied' >&2; exit 1;; esac
printf 'Id=x\nLoadState=loaded\nNeedDaemonReload=yes\n'""",
    )
    assert "failed: Access denied" in reload()["msg"]


@pytest.mark.parametrize(("units", "changed"), [(["docker.service"], False), (["nvidia.service"], True), ([], True)])
def test_a_failed_reload_may_have_taken_effect(units: list[str], changed: bool, host: ManagedHost, reload: Run) -> None:
    """systemctl fails also where it has not waited long enough; the units show whether systemd has read them."""
    dropin = host.path("/etc/systemd/system/nvidia.service.d/10-new.conf")
    host.write(str(dropin.relative_to(host.root)), "[Service]\n")
    program = (host.programs / "systemctl").read_text()
    late = f"rm {dropin}; echo 'Connection timed out' >&2; exit 1"
    (host.programs / "systemctl").write_text(
        program.replace("!= daemon-reload ] || exit 0", f"!= daemon-reload ] || {{ {late}; }}")
    )
    result = reload(units=units)
    assert result["failed"] and "Connection timed out" in result["msg"]
    assert result["changed"] is changed
