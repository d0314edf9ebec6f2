# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated nvidia-ctk's CDI documents, by version and naming, as the real one writes them.

The facts are those that nvidia-ctk 1.14.6, 1.17.8, 1.18.2 and 1.20.0 wrote on a host with 2 H200, driver 580.159.04;
all four agree but where it is stated. Identifiers, paths of the driver and the order of nodes aside, a part is as the
real one or in SIMPLIFIED with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_simulator import container

from tests.conftest import COUNT, ROOT
from tests.unit.gpu_simulator_host.support import SimulatedHost

VERSIONS = ("1.14.6", "1.17.8", "1.18.2", "1.20.0")
NODES = {0: ["/dev/nvidia0"], 1: ["/dev/nvidia1"]}
BY_INDEX = {"0": NODES[0], "1": NODES[1]}
BY_UUID = {"GPU 0": NODES[0], "GPU 1": NODES[1]}
ALL = {"all": ["/dev/nvidia0", "/dev/nvidia1"]}
MANAGEMENT = [
    *("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"),
    *("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"),
]
# Arguments; devices, of the versions where these differ; version of CDI.
REAL = {
    "": ({"1.14.6": {**BY_INDEX, **ALL}, "": {**BY_INDEX, **BY_UUID, **ALL}}, "0.5.0"),
    "--device-name-strategy=index": ({"": {**BY_INDEX, **ALL}}, "0.5.0"),
    "--device-name-strategy=uuid": ({"": {**BY_UUID, **ALL}}, "0.3.0"),
    "--device-name-strategy=type-index": ({"": {**ALL, "gpu0": NODES[0], "gpu1": NODES[1]}}, "0.3.0"),
    "--mode=management": ({"": {"all": MANAGEMENT}}, "0.3.0"),
}
# What each container gets, whichever device it requests, by version. DRIVER is the directory of the driver's libraries.
ENVIRONMENT = {
    "1.14.6": [],
    "1.17.8": ["NVIDIA_VISIBLE_DEVICES=void"],
    "1.18.2": ["NVIDIA_CTK_LIBCUDA_DIR=DRIVER", "NVIDIA_VISIBLE_DEVICES=void"],
    "1.20.0": ["NVIDIA_CTK_LIBCUDA_DIR=DRIVER", "NVIDIA_VISIBLE_DEVICES=void"],
}
BIND = ["ro", "nosuid", "nodev", "bind"]
RBIND = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
MOUNT_OPTIONS = {"1.14.6": BIND, "1.17.8": BIND, "1.18.2": RBIND, "1.20.0": RBIND}
COMMON_NODES = ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"]
MOUNTED_FILES = {"": 35, "--mode=management": 33}
LINKS, CACHE, COMPAT = "create-symlinks", "update-ldcache", "enable-cuda-compat"
NODES_STAY, PROFILE = "disable-device-node-modification", "update-application-profile"
HOOKS = {
    "": {
        "1.14.6": [CACHE],
        "1.17.8": [LINKS, LINKS, COMPAT, CACHE],
        "1.18.2": [LINKS, LINKS, COMPAT, CACHE, NODES_STAY],
        "1.20.0": [LINKS, LINKS, COMPAT, CACHE, NODES_STAY, PROFILE],
    },
    "--mode=management": {
        "1.14.6": [CACHE],
        "1.17.8": [LINKS, CACHE],
        "1.18.2": [LINKS, CACHE],
        "1.20.0": [LINKS, COMPAT, CACHE],
    },
}
# Of the device itself.
HOOKS_OF_MANAGEMENT = {"1.14.6": ["chmod"], "1.17.8": ["chmod"], "1.18.2": [], "1.20.0": []}
KEYS_OF_NODES = {"1.20.0": {"path", "major", "minor", "fileMode", "permissions"}, "": {"path"}}
SIMPLIFIED = {
    "hooks": "The simulated nvidia-smi needs no links, no loader cache and no profile in a container.",
    "mounted files": "The simulator is two directories and a program instead of the files of a driver.",
    "keys of nodes": "The engine reads numbers and modes from the host, whose simulated nodes have those of the host.",
    "common nodes": "The host that was read had no /dev/nvidia-modeset; a simulated one has it.",
}


@pytest.fixture
def simulated(tmp_path: Path) -> SimulatedHost:
    made = SimulatedHost(tmp_path)
    made.run("up")
    return made


def names(hooks: list[dict[str, Any]]) -> list[str]:
    """The hooks by name: `nvidia-ctk hook NAME`, or `nvidia-cdi-hook NAME`."""
    return [hook["args"][2 if hook["args"][1] == "hook" else 1] for hook in hooks]


def real_parts(version: str, arguments: str) -> dict[str, Any]:
    """Each part of a document by the real nvidia-ctk."""
    mode = arguments if arguments in HOOKS else ""
    is_management = mode != ""
    devices, cdi_version = REAL[arguments]
    return {
        "version": cdi_version,
        "kind": "nvidia.com/gpu",
        "devices": devices.get(version, devices[""]),
        "devices are in order": True,
        "environment": ENVIRONMENT[version],
        "options of mounts": MOUNT_OPTIONS[version],
        "mounted files": MOUNTED_FILES[mode],
        "common nodes": [] if is_management else COMMON_NODES,
        "hooks": [*HOOKS[mode][version], *(HOOKS_OF_MANAGEMENT[version] if is_management else [])],
        "keys of nodes": KEYS_OF_NODES.get(version, KEYS_OF_NODES[""]),
    }


def simulated_parts(document: dict[str, Any], uuids: dict[str, str]) -> dict[str, Any]:
    """The same parts of a document by the simulated one."""
    edits = document["containerEdits"]
    devices = document["devices"]
    nodes = [node for device in devices for node in device["containerEdits"]["deviceNodes"]]
    named = {uuids.get(device["name"], device["name"]): device["containerEdits"] for device in devices}
    hooks = [hook for part in (edits, *named.values()) for hook in part.get("hooks", [])]
    (options,) = {tuple(mount["options"]) for mount in edits["mounts"]}
    return {
        "version": document["cdiVersion"],
        "kind": document["kind"],
        "devices": {name: [node["path"] for node in part["deviceNodes"]] for name, part in named.items()},
        "devices are in order": [one["name"] for one in devices] == sorted(one["name"] for one in devices),
        "environment": [text.replace(container.LIBRARY, "DRIVER") for text in edits.get("env", [])],
        "options of mounts": list(options),
        "mounted files": len(edits["mounts"]),
        "common nodes": sorted(node["path"] for node in edits.get("deviceNodes", [])),
        "hooks": names(hooks),
        "keys of nodes": {key for node in nodes for key in node},
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_documents_are_those_of_the_version(
    version: str,
    simulated: SimulatedHost,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, dict[str, int]], None],
) -> None:
    monkeypatch.setenv("GPU_SIMULATOR_TOOLKIT_VERSION", version)
    uuids = {gpu["uuid"]: f"GPU {index}" for index, gpu in enumerate(simulated.state()["gpus"])}
    agreeing = simplified = 0
    seen: set[str] = set()
    for arguments in REAL:
        command = ["cdi", "generate", "--format=json", *arguments.split()]
        assert container.main("nvidia-ctk", command, str(simulated.root)) == 0
        document = json.loads(capsys.readouterr().out)
        real = real_parts(version, arguments)
        differing = {part for part, found in simulated_parts(document, uuids).items() if found != real[part]}
        assert differing <= set(SIMPLIFIED), arguments
        seen |= differing
        agreeing += len(real) - len(differing)
        simplified += len(differing)
    # Nothing is listed that is as the real one.
    assert seen == set(SIMPLIFIED) - ({"keys of nodes"} if version != "1.20.0" else set())
    counts = {"versions and namings": len(REAL), "parts as the real ones": agreeing, "simplified parts": simplified}
    record_property(f"{COUNT}CDI documents", counts)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_configuration_is_that_of_the_version(
    version: str, simulated: SimulatedHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the real `nvidia-ctk config` of this version printed."""
    monkeypatch.setenv("GPU_SIMULATOR_TOOLKIT_VERSION", version)
    expected = (ROOT / "tests/unit/containers/fixtures/nvidia-ctk" / f"config-{version}.toml").read_text()
    for command in (["config"], ["config", "default"]):
        assert container.main("nvidia-ctk", command, str(simulated.root)) == 0
        assert capsys.readouterr().out == expected
    file = simulated.root / "etc/nvidia-container-runtime/config.toml"
    assert container.main("nvidia-ctk", ["config", "--in-place"], str(simulated.root)) == 0
    assert file.read_text() == expected
    # What is there is kept.
    file.write_text("disable-require = true\n")
    assert container.main("nvidia-ctk", ["config", "--in-place", f"--config-file={file}"], str(simulated.root)) == 0
    assert file.read_text() == "disable-require = true\n"
    assert container.main("nvidia-ctk", ["config"], str(simulated.root)) == 0
    assert capsys.readouterr().out == "disable-require = true\n"
    assert container.main("nvidia-ctk", ["config", "--set", "mode=cdi"], str(simulated.root)) == 1
    assert "does not know --set" in capsys.readouterr().err


def test_a_vendor_of_its_own(simulated: SimulatedHost, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cdi", "generate", "--format=json", "--mode=management", "--vendor=management.nvidia.com"]
    assert container.main("nvidia-ctk", command, str(simulated.root)) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "management.nvidia.com/gpu"


def test_an_unknown_naming_is_refused(simulated: SimulatedHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert container.main("nvidia-ctk", ["cdi", "generate", "--device-name-strategy=name"], str(simulated.root)) == 1
    assert "invalid device name strategy: name" in capsys.readouterr().err
