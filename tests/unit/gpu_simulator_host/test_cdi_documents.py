# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated nvidia-ctk's CDI documents, by version and naming, as the real one writes them.

The facts are those that nvidia-ctk 1.14.6, 1.17.8, 1.18.2, 1.19.1 and 1.20.0 wrote on a host with 2 H200, driver
580.159.04; all of them agree but where it is stated. Identifiers, paths of the driver and the order of nodes aside,
a part is as the real one or in SIMPLIFIED with the reason.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_simulator.containers import toolkit as container
from gpu_simulator.containers.toolkit_hooks import LIBRARIES

from tests.conftest import COUNT, ROOT
from tests.unit.gpu_simulator_host.support import SimulatedHost

VERSIONS = ("1.14.6", "1.17.8", "1.18.2", "1.19.1", "1.20.0")
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
    "1.19.1": ["NVIDIA_CTK_LIBCUDA_DIR=DRIVER", "NVIDIA_VISIBLE_DEVICES=void"],
    "1.20.0": ["NVIDIA_CTK_LIBCUDA_DIR=DRIVER", "NVIDIA_VISIBLE_DEVICES=void"],
}
BIND = ["ro", "nosuid", "nodev", "bind"]
RBIND = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
MOUNT_OPTIONS = {"1.14.6": BIND, "1.17.8": BIND, "1.18.2": RBIND, "1.19.1": RBIND, "1.20.0": RBIND}
COMMON_NODES = ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"]
MOUNTED_FILES = {"": 35, "--mode=management": 33}
# The links, to libraries of the driver, are left out.
LINKS, CACHE, COMPAT = (
    "create-symlinks --link",
    "update-ldcache --folder DRIVER",
    "enable-cuda-compat --host-driver-version=580.159.04",
)
NODES_STAY, PROFILE = "disable-device-node-modification", "update-application-profile"
HOOKS = {
    "": {
        "1.14.6": [CACHE],
        "1.17.8": [LINKS, LINKS, COMPAT, CACHE],
        "1.18.2": [LINKS, LINKS, COMPAT, CACHE, NODES_STAY],
        "1.19.1": [LINKS, LINKS, COMPAT, CACHE, NODES_STAY],
        "1.20.0": [LINKS, LINKS, COMPAT, CACHE, NODES_STAY, PROFILE],
    },
    "--mode=management": {
        "1.14.6": [CACHE],
        "1.17.8": [LINKS, CACHE],
        "1.18.2": [LINKS, CACHE],
        "1.19.1": [LINKS, CACHE],
        "1.20.0": [LINKS, COMPAT, CACHE],
    },
}
# Of the device itself.
CHMOD = "chmod --mode 755 --path /dev/nvidia-caps"
HOOKS_OF_MANAGEMENT = {"1.14.6": [CHMOD], "1.17.8": [CHMOD], "1.18.2": [], "1.19.1": [], "1.20.0": []}
Program = tuple[str, str, list[str], list[str]]
"""Point, path, first arguments and environment of a hook."""
CTK_HOOK: Program = ("createContainer", "/usr/bin/nvidia-ctk", ["nvidia-ctk", "hook"], [])
CDI_HOOK: Program = ("createContainer", "/usr/bin/nvidia-cdi-hook", ["nvidia-cdi-hook"], ["NVIDIA_CTK_DEBUG=false"])
PROGRAM = {"1.14.6": CTK_HOOK, "1.17.8": CDI_HOOK, "1.18.2": CDI_HOOK, "1.19.1": CDI_HOOK, "1.20.0": CDI_HOOK}
NUMBERED = {"path", "major", "minor", "fileMode", "permissions"}
KEYS_OF_NODES = {"1.19.1": NUMBERED, "1.20.0": NUMBERED, "": {"path"}}
SIMPLIFIED = {"mounted files": "The simulator is two directories and a program instead of the files of a driver."}


@pytest.fixture
def simulated(tmp_path: Path) -> SimulatedHost:
    made = SimulatedHost(tmp_path)
    made.run("up")
    # The host that was read had none.
    (tmp_path / "dev/nvidia-modeset").unlink()
    return made


def commands(hooks: list[dict[str, Any]], program: list[str]) -> list[str]:
    """The hooks' commands after the program: of links only the option, DRIVER for the directory of libraries."""
    words = [hook["args"][len(program) :] for hook in hooks]
    return [" ".join(one[:2] if one[0] in LINKS else one).replace(LIBRARIES, "DRIVER") for one in words]


def real_parts(version: str, arguments: str) -> dict[str, Any]:
    """Each part of a document by the real nvidia-ctk."""
    mode = arguments if arguments in HOOKS else ""
    is_management = mode != ""
    devices, cdi_version = REAL[arguments]
    hooks = [*HOOKS[mode][version], *(HOOKS_OF_MANAGEMENT[version] if is_management else [])]
    return {
        "version": cdi_version,
        "kind": "nvidia.com/gpu",
        "devices": devices.get(version, devices[""]),
        "devices are in order": True,
        "environment": ENVIRONMENT[version],
        "options of mounts": MOUNT_OPTIONS[version],
        "mounted files": MOUNTED_FILES[mode],
        "common nodes": [] if is_management else COMMON_NODES,
        "hooks": hooks,
        "programs of hooks": [PROGRAM[version]] * len(hooks),
        "keys of nodes": KEYS_OF_NODES.get(version, KEYS_OF_NODES[""]),
    }


def simulated_parts(document: dict[str, Any], uuids: dict[str, str], program: list[str]) -> dict[str, Any]:
    """The same parts of a document by the simulated one, whose hooks begin with the words of `program`."""
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
        "hooks": commands(hooks, program),
        "programs of hooks": [
            (one["hookName"], one["path"], one["args"][: len(program)], one.get("env", [])) for one in hooks
        ],
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
        found = simulated_parts(document, uuids, PROGRAM[version][2])
        differing = {part for part, value in found.items() if value != real[part]}
        assert differing <= set(SIMPLIFIED), arguments
        seen |= differing
        agreeing += len(real) - len(differing)
        simplified += len(differing)
    # Nothing is listed that is as the real one.
    assert seen == set(SIMPLIFIED)
    counts = {"versions and namings": len(REAL), "parts as the real ones": agreeing, "simplified parts": simplified}
    record_property(f"{COUNT}CDI documents", counts)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_configuration_is_that_of_the_version(
    version: str, simulated: SimulatedHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the real `nvidia-ctk config` of this version printed."""
    monkeypatch.setenv("GPU_SIMULATOR_TOOLKIT_VERSION", version)
    expected = (ROOT / "tests/unit/containers/fixtures/nvidia-ctk" / f"config-{version}.toml").read_text()
    # 1.19.1 was read on Debian, the others on Ubuntu.
    if "ldconfig.real" in expected:
        (simulated.root / "sbin").mkdir(exist_ok=True)
        (simulated.root / "sbin/ldconfig.real").touch()
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


# What the hooks do in a container


@pytest.fixture
def run_hook(
    simulated: SimulatedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[int, Path]]:
    """Run a hook as an engine does; returns its status and the root directory of the container."""
    bundle = tmp_path / "bundle"
    (bundle / "rootfs/dev/nvidia-caps").mkdir(parents=True, mode=0o700)
    (bundle / "config.json").write_text(json.dumps({"root": {"path": "rootfs"}}))

    def run(command: str) -> tuple[int, Path]:
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"id": "one", "pid": 1, "bundle": str(bundle)})))
        return container.main("nvidia-ctk", ["hook", *command.split()], str(simulated.root)), bundle / "rootfs"

    return run


@pytest.mark.parametrize("version", VERSIONS)
def test_each_hook_of_a_document_works(
    version: str,
    simulated: SimulatedHost,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    run_hook: Callable[[str], tuple[int, Path]],
) -> None:
    monkeypatch.setenv("GPU_SIMULATOR_TOOLKIT_VERSION", version)
    for arguments in REAL:
        command = ["cdi", "generate", "--format=json", *arguments.split()]
        assert container.main("nvidia-ctk", command, str(simulated.root)) == 0
        document = json.loads(capsys.readouterr().out)
        edits = [document["containerEdits"], *(device["containerEdits"] for device in document["devices"])]
        for hook in [hook for part in edits for hook in part.get("hooks", [])]:
            status, root = run_hook(" ".join(hook["args"][len(PROGRAM[version][2]) :]))
            assert status == 0, hook
            for link in [word for word in hook["args"] if "::" in word]:
                target, _separator, path = link.partition("::")
                assert (root / path[1:]).readlink() == Path(target)
            if "chmod" in hook["args"]:
                assert (root / "dev/nvidia-caps").stat().st_mode & 0o777 == 0o755


def test_a_hook_stays_in_its_container(
    run_hook: Callable[[str], tuple[int, Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _status, root = run_hook("update-ldcache --folder /usr/lib")
    (tmp_path / "outside").mkdir()
    (root / "escape").symlink_to(tmp_path / "outside")
    assert run_hook("create-symlinks --link libcuda.so.1::/escape/libcuda.so")[0] == 1
    assert "leads out of the container" in capsys.readouterr().err
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("command", ["", "create-links", "chmod --mode 755", "create-symlinks --link libcuda.so"])
def test_an_unknown_hook_fails(
    run_hook: Callable[[str], tuple[int, Path]], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_hook(command)[0] == 1
    assert capsys.readouterr().err
