# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs and MIG devices visible in containers, per container engine, and the state of the installed packages."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest

_IMAGE = "localhost/gpu-fleet/demo:latest"
_RUN = "run --rm --network none"


@pytest.fixture
def name(host: Any) -> str:
    found: str = host.check_output("hostname")
    return found


@pytest.fixture
def listing(host: Any) -> str:
    found: str = host.check_output("nvidia-smi -L")
    return found


def _uuids(text: str) -> list[str]:
    """UUIDs in the output of `nvidia-smi -L`; of a GPU in MIG mode, only those of its MIG devices."""
    found: list[str] = []
    for line in text.splitlines():
        uuid = re.search(r"UUID: ([\w-]+)", line)
        if uuid and uuid[1].startswith("MIG-") and found and found[-1].startswith("GPU-"):
            found.pop()
        if uuid:
            found.append(uuid[1])
    return found


def _whole(listing: str, index: int) -> str:
    match = re.search(rf"^GPU {index}: .*UUID: ([\w-]+)", listing, re.MULTILINE)
    assert match
    return match[1]


def _first_mig(listing: str) -> str:
    return next(uuid for uuid in _uuids(listing) if uuid.startswith("MIG-"))


def _requests(listing: str) -> dict[str, tuple[list[str], list[str]]]:
    """By name: the requested devices, and the UUIDs that the container must see."""
    mig = _first_mig(listing)
    return {
        "all": (["all"], _uuids(listing)),
        "a list": (["0", "3"], [_whole(listing, 0), _whole(listing, 3)]),
        "a UUID": ([_whole(listing, 2)], [_whole(listing, 2)]),
        "a MIG device": ([mig], [mig]),
        "a MIG device by number": (["1:1"], [_uuids(listing)[2]]),
    }


def _options(engine: str, host_name: str, asked: list[str]) -> str:
    if engine == "docker" and host_name == "m-deb12":
        return "--gpus all" if asked == ["all"] else f"--gpus '\"device={','.join(asked)}\"'"
    return " ".join(f"--device nvidia.com/gpu={device}" for device in asked)


@pytest.fixture(params=["docker", "podman"])
def engine(request: Any, name: str, host: Any) -> str:
    """Each engine of the host. On hosts without podman, docker runs again as an unprivileged member of its group."""
    if request.param == "podman" and name != "m-deb13":
        return "runuser -u ordinary -- docker"
    if request.param == "podman":
        host.check_output("podman load --quiet --input /opt/testbed/container.tar")
    return str(request.param)


@pytest.mark.parametrize("what", ["all", "a list", "a UUID", "a MIG device", "a MIG device by number"])
def test_a_container_sees_exactly_what_was_asked_for(
    host: Any, name: str, listing: str, engine: str, what: str
) -> None:
    asked, expected = _requests(listing)[what]
    options = _options("podman" if engine == "podman" else "docker", name, asked)
    inside = host.check_output(f"{engine} {_RUN} {options} {_IMAGE} nvidia-smi -L")
    assert sorted(_uuids(inside)) == sorted(expected)


def test_a_container_without_a_request_sees_none(host: Any, engine: str) -> None:
    assert host.run(f"{engine} {_RUN} {_IMAGE} nvidia-smi -L").rc != 0
    assert "nvidia" not in host.check_output(f"{engine} {_RUN} {_IMAGE} sh -c 'echo /dev/*'")


@pytest.mark.parametrize("what", ["all", "a list", "a MIG device"])
def test_the_old_command_asks_for_the_same(host: Any, listing: str, what: str) -> None:
    asked, expected = _requests(listing)[what]
    variable = "" if what == "all" else f"NV_GPU={','.join(asked)} "
    inside = host.check_output(f"{variable}nvidia-docker {_RUN} {_IMAGE} nvidia-smi -L")
    assert sorted(_uuids(inside)) == sorted(expected)


def test_the_old_command_leaves_others_alone(host: Any) -> None:
    assert host.run(f"NV_GPU=none nvidia-docker {_RUN} {_IMAGE} nvidia-smi -L").rc != 0
    assert host.check_output("nvidia-docker version --format '{{.Server.Version}}'")


def test_options_of_others_stay_next_to_ours(host: Any, name: str) -> None:
    options = json.loads(host.file("/etc/docker/daemon.json").content_string)
    assert options["live-restore"] is True
    assert options["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    if name == "m-deb12":
        assert (options["mtu"], options["runtimes"]["kata"]) == (1400, {"path": "/opt/kata"})
        assert options["features"] == {"buildkit": True}
        assert host.file("/etc/docker/daemon.json").mode == 0o600
    else:
        assert options["features"]["cdi"] is True
    assert "default-runtime" not in options


def test_the_packages_are_pinned_and_held(host: Any, name: str) -> None:
    if name == "m-el9":
        locks = host.check_output("dnf versionlock list")
        assert all(f"{package}-" in locks for package in ("docker-ce", "libnvidia-container1"))
        return
    engine = "docker.io" if name.startswith("m-deb") else "docker-ce"
    toolkit = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools")
    names = {engine, *toolkit, "libnvidia-container1"}
    assert names <= set(host.check_output("apt-mark showhold").split())
    for package in names:
        policy = host.check_output(f"apt-cache policy {package}")
        installed, candidate = (re.search(rf"{word}: (\S+)", policy) for word in ("Installed", "Candidate"))
        assert installed and candidate and installed[1] == candidate[1]
        assert re.search(r" 1000$", policy, re.MULTILINE)


def test_there_is_one_specification(host: Any, name: str) -> None:
    there = [path for path in ("/etc/cdi/nvidia.yaml", "/run/cdi/nvidia.yaml") if host.file(path).exists]
    expected = {"m-deb12": [], "m-deb13": ["/etc/cdi/nvidia.yaml"]}.get(name, ["/run/cdi/nvidia.yaml"])
    assert there == expected
    if expected == ["/run/cdi/nvidia.yaml"]:
        assert host.service("nvidia-cdi-refresh.path").is_enabled
        assert host.service("nvidia-cdi-refresh.service").is_enabled


def test_containerd_has_the_runtime_and_all_that_it_had(host: Any, name: str) -> None:
    if name != "m-deb13":
        assert not host.file("/etc/containerd/conf.d/99-nvidia.toml").exists
        return
    dump = host.check_output("containerd config dump")
    assert 'sandbox_image = "registry.example.com/pause:3"' in dump
    assert dump.count("SystemdCgroup = true") == 2, "of runc, and of the runtime that is made after it"
    assert 'BinaryName = "/usr/bin/nvidia-container-runtime"' in dump
    assert host.service("containerd").is_running


def test_crio_has_the_runtime(host: Any, name: str) -> None:
    drop_in = host.file("/etc/crio/crio.conf.d/99-nvidia.conf")
    assert drop_in.exists == (name == "m-ubuntu24")
    if drop_in.exists:
        runtime = tomllib.loads(drop_in.content_string)["crio"]["runtime"]
        assert runtime["runtimes"]["nvidia"]["runtime_path"] == "/usr/bin/nvidia-container-runtime"
        assert runtime["runtimes"]["nvidia"]["monitor_path"] == "/usr/libexec/crio/conmon"
        assert list(runtime) == ["runtimes"], "all else is as CRI-O's own files have it"
        config = tomllib.loads(host.file("/etc/nvidia-container-runtime/config.toml").content_string)
        assert config["nvidia-container-runtime"]["runtimes"][-1] == "/usr/libexec/crio/crun"
        assert host.service("crio").is_running, "restarted with it"


def test_old_stacks_are_gone(host: Any) -> None:
    for path in ("/etc/apt/sources.list.d/nvidia-docker.list", "/usr/share/keyrings/nvidia-docker-keyring.gpg"):
        assert not host.file(path).exists
    assert not host.file("/usr/bin/nvidia-docker").exists
    containers = host.check_output("docker ps --all --format '{{.Names}}'").split()
    assert "old" not in containers, "it hung on a volume that nothing can mount any more"
    assert host.check_output("docker volume ls --quiet --filter driver=nvidia-docker") == ""


def test_the_user_may_use_docker_and_docker_stays(host: Any) -> None:
    assert "docker" in host.user("ordinary").groups
    docker = host.service("docker")
    assert docker.is_running and docker.is_enabled
