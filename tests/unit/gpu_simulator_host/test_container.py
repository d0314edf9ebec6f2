# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs in containers: the CDI specification, the work of the hook, and the output of nvidia-smi inside."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._cuda.containers import cdi_specifications
from gpu_simulator import cli
from gpu_simulator.containers import capabilities
from gpu_simulator.containers import toolkit as container
from gpu_simulator.host import kernel as host

from tests.unit.gpu_simulator_host.support import RecordingKernel, SimulatedHost


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedHost:
    """Two A100, the first in MIG mode with a 3g and a 1g instance."""
    made = SimulatedHost(tmp_path)
    monkeypatch.setattr(host, "Kernel", lambda: made.kernel)
    made.run("up")
    made.smi("-mig 1 -i 0")
    made.reboot()
    assert made.smi("mig -i 0 -cgi 9,19 -C")[1] == 0
    return made


def ctk(simulated: SimulatedHost, command: str) -> int:
    return container.main("nvidia-ctk", command.split(), str(simulated.root))


def uuids(simulated: SimulatedHost) -> list[str]:
    """The UUIDs of the MIG devices of GPU 0 and of GPU 1, as -L prints them after GPU 0."""
    return [line.split("UUID: ")[1].rstrip(")") for line in simulated.smi("-L")[0].splitlines()[1:]]


def test_specification_names_every_device_by_index_and_uuid(simulated: SimulatedHost) -> None:
    large, small, second = uuids(simulated)
    specification = container.cdi_specification(simulated.state())
    nodes = {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in specification["devices"]
    }
    # mig-minors of a real host: "gpu0/gi1/access 12", "gpu0/gi1/ci0/access 13", "gpu0/gi2/access 21", in steps of 9.
    first = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]
    other = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"]
    assert nodes == {
        "0:0": first,
        large: first,
        "0:1": other,
        small: other,
        "1": ["/dev/nvidia1"],
        second: ["/dev/nvidia1"],
        "all": [*first, *other[1:], "/dev/nvidia1"],
    }
    assert specification["cdiVersion"] == "0.5.0"
    assert specification["kind"] == "nvidia.com/gpu"
    assert specification["containerEdits"]["env"][-1] == "NVIDIA_VISIBLE_DEVICES=void"
    assert {"ro" in mount["options"] for mount in specification["containerEdits"]["mounts"]} == {True}


def test_yaml_and_json_state_the_same_and_always_the_same(
    simulated: SimulatedHost, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for command in ("cdi generate", "cdi generate", "cdi generate --format=json", "cdi generate --format yaml"):
        assert ctk(simulated, command) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] == outputs[3]
    assert yaml.safe_load(outputs[0]) == json.loads(outputs[2]) == container.cdi_specification(simulated.state())
    # YAML reads an unquoted 0:1 as the sexagesimal number 1, and 0 as an integer; CDI requires strings as names.
    assert {type(device["name"]) for device in yaml.safe_load(outputs[0])["devices"]} == {str}


def test_a_mig_device_has_its_nodes_as_soon_as_it_is_created(simulated: SimulatedHost) -> None:
    """slurm_gres finds their numbers in the driver's list."""
    text = (simulated.root / "run/gpu-simulator/proc-driver/nvidia-caps/mig-minors").read_text()
    numbers = dict(line.rsplit(" ", 1) for line in text.splitlines())
    devices = [f"gpu0/gi{gpu_instance}/{end}" for gpu_instance in (2, 7) for end in ("access", "ci0/access")]
    made = {f"nvidia-cap{numbers[name]}" for name in ("config", "monitor", *devices)}
    assert made == {name for name in simulated.kernel.nodes if name.startswith("nvidia-cap")}


def test_a_mig_instance_is_in_proc_as_long_as_it_exists(simulated: SimulatedHost) -> None:
    """A specification without it is out of date, and so is one that still has it."""
    files = HostFiles(str(simulated.root / "host"))
    for name, source in (("proc/driver", "run/gpu-simulator/proc-driver"), ("dev", "dev"), ("etc/cdi", "etc/cdi")):
        (simulated.root / "host" / name).parent.mkdir(parents=True, exist_ok=True)
        (simulated.root / "host" / name).symlink_to(simulated.root / source)
    shown = simulated.root / "run/gpu-simulator/proc-driver/nvidia/capabilities/gpu0/mig"
    before = shown.stat()
    assert ctk(simulated, f"cdi generate --output={simulated.root}/etc/cdi/nvidia.yaml") == 0
    assert shown.stat() == before, "an ordinary user may generate one as well"
    stale = [cdi_specifications(files, None)[0].stale]
    for command in ("mig -i 0 -dci -gi 7", "mig -i 0 -dgi -gi 7", "mig -i 0 -cgi 19 -C"):
        assert simulated.smi(command)[1] == 0
        stale.append(cdi_specifications(files, None)[0].stale)
    assert stale == [(), ("mig_layout",), ("mig_layout",), ()]


def test_generated_file_is_listed_and_its_mig_nodes_exist(simulated: SimulatedHost) -> None:
    for number in (21, 67):
        (simulated.root / f"dev/nvidia-caps/nvidia-cap{number}").unlink()
    simulated.kernel.nodes.clear()
    assert ctk(simulated, f"cdi generate --output={simulated.root}/etc/cdi/nvidia.yaml") == 0
    assert simulated.kernel.nodes["nvidia-cap67"][:2] == (capabilities.MAJOR, 67)
    assert (simulated.root / "dev/nvidia-caps/nvidia-cap21").exists()
    assert ctk(simulated, f"cdi generate --output={simulated.root}/var/run/cdi/other.json") == 0


@pytest.mark.parametrize("name", ["nvidia.yaml", "nvidia.json"])
def test_list_finds_what_was_generated(simulated: SimulatedHost, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    ctk(simulated, f"cdi generate --output={simulated.root}/etc/cdi/{name}")
    capsys.readouterr()
    assert ctk(simulated, "cdi list") == 0
    captured = capsys.readouterr()
    large, small, second = uuids(simulated)
    names = ["0:0", "0:1", "1", second, small, large, "all"]
    assert captured.out.splitlines() == sorted(f"nvidia.com/gpu={name}" for name in names)
    assert captured.err == 'level=info msg="Found 7 CDI devices"\n'


def test_without_a_driver_there_is_nothing_to_specify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated = SimulatedHost(tmp_path, driver_installed=False)
    simulated.run("up")
    assert ctk(simulated, f"cdi generate --output={tmp_path}/etc/cdi/nvidia.yaml") == 1
    assert "failed to initialize NVML: Driver Not Loaded" in capsys.readouterr().err
    assert not (tmp_path / "etc/cdi").exists()


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, None),
        ("", None),
        ("void", None),
        ("none", ()),
        ("1", ("/dev/nvidia1",)),
        ("1,1", ("/dev/nvidia1",)),
        ("0:0,1", ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22", "/dev/nvidia1")),
    ],
)
def test_environment_asks_for_devices(
    simulated: SimulatedHost, variable: str | None, expected: tuple[str, ...] | None
) -> None:
    assert container.requested(variable, container.devices(simulated.state())) == expected


@pytest.mark.parametrize(
    ("variable", "unknown"), [("2", "2"), ("0:2", "0:2"), ("GPU-0", "GPU-0"), ("0", "0"), ("1,7", "7")]
)
def test_a_device_that_there_is_not_is_refused_by_name(simulated: SimulatedHost, variable: str, unknown: str) -> None:
    with pytest.raises(container.ContainerError, match=f"device error: {unknown}: unknown device"):
        container.requested(variable, container.devices(simulated.state()))


def bundle_of(directory: Path, *environment: str) -> Path:
    """An OCI bundle as Docker makes it, with an empty root file system."""
    (directory / "rootfs").mkdir(parents=True)
    config: dict[str, Any] = {"root": {"path": "rootfs"}, "process": {"env": ["PATH=/bin", *environment]}}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def prestart(simulated: SimulatedHost, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, RecordingKernel]:
    kernel = RecordingKernel()
    monkeypatch.setattr(host, "Kernel", lambda: kernel)
    monkeypatch.setattr(container, "_enter_mount_namespace", lambda pid: None)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"pid": 4711, "bundle": str(bundle)})))
    return container.main("nvidia-container-runtime-hook", ["prestart"], str(simulated.root)), kernel


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        ("1", ["GPU 0: NVIDIA A100-SXM4-40GB"]),
        ("0:1", ["GPU 0: NVIDIA A100-SXM4-40GB", "  MIG 1g.5gb      Device  0:"]),
        ("0", ["GPU 0: NVIDIA A100-SXM4-40GB", "  MIG 3g.20gb     Device  0:", "  MIG 1g.5gb      Device  1:"]),
        (
            "all",
            [
                "GPU 0: NVIDIA A100-SXM4-40GB",
                "  MIG 3g.20gb     Device  0:",
                "  MIG 1g.5gb      Device  1:",
                "GPU 1: NVIDIA A100-SXM4-40GB",
            ],
        ),
    ],
)
def test_hook_gives_a_container_its_gpus_and_no_others(
    simulated: SimulatedHost, tmp_path: Path, asked: str, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = bundle_of(tmp_path / "bundle", f"NVIDIA_VISIBLE_DEVICES={asked}")
    status, kernel = prestart(simulated, bundle, monkeypatch)
    assert status == 0
    rootfs = bundle / "rootfs"
    for place in ("usr/lib/gpu-simulator", "var/lib/gpu-simulator", "usr/bin/nvidia-smi"):
        assert str(rootfs / place) in kernel.mounted
    # The file that the bind mount of the state would show in the container.
    (rootfs / "var/lib/gpu-simulator/state.json").write_bytes(
        (simulated.root / "var/lib/gpu-simulator/state.json").read_bytes()
    )
    text, code = cli.reply(["-L"], str(rootfs), False)
    assert code == 0
    assert [line.partition(" (UUID")[0] for line in text.splitlines()] == seen


def test_hook_gives_a_gpu_in_mig_mode_without_instances(
    simulated: SimulatedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.reboot()
    bundle = bundle_of(tmp_path / "bundle", "NVIDIA_VISIBLE_DEVICES=all")
    assert prestart(simulated, bundle, monkeypatch)[0] == 0
    assert sorted(path.name for path in (bundle / "rootfs/dev").glob("nvidia[0-9]")) == ["nvidia0", "nvidia1"]


@pytest.mark.parametrize("environment", [(), ("NVIDIA_VISIBLE_DEVICES=void",)])
def test_hook_leaves_a_container_alone_that_asks_for_nothing(
    simulated: SimulatedHost, tmp_path: Path, environment: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = bundle_of(tmp_path / "bundle", *environment)
    status, kernel = prestart(simulated, bundle, monkeypatch)
    assert (status, kernel.mounted, list((bundle / "rootfs").iterdir())) == (0, [], [])


_OPTIONS = "accept-nvidia-visible-devices-"


@pytest.mark.parametrize(
    ("options", "privileged", "sees"),
    [
        ("", False, True),
        (f"#{_OPTIONS}envvar-when-unprivileged = false\n", False, True),
        (f"{_OPTIONS}envvar-when-unprivileged = true\n", False, True),
        (f"{_OPTIONS}envvar-when-unprivileged = false\n", False, False),
        (f"{_OPTIONS}envvar-when-unprivileged = false\n", True, True),
    ],
    ids=["no option", "a comment", "true", "false", "false, privileged"],
)
def test_hook_minds_whether_the_variable_counts(
    simulated: SimulatedHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    options: str,
    privileged: bool,
    sees: bool,
) -> None:
    directory = simulated.root / "etc/nvidia-container-runtime"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text(f"disable-require = false\n{options}")
    bundle = bundle_of(tmp_path / "bundle", "NVIDIA_VISIBLE_DEVICES=all")
    config = json.loads((bundle / "config.json").read_text())
    config["process"]["capabilities"] = {"bounding": ["CAP_SYS_ADMIN"] if privileged else ["CAP_CHOWN"]}
    (bundle / "config.json").write_text(json.dumps(config))
    status, kernel = prestart(simulated, bundle, monkeypatch)
    assert (status, bool(kernel.mounted)) == (0, sees)


@pytest.mark.parametrize("accepted", [False, True])
def test_hook_minds_whether_mounts_count(
    simulated: SimulatedHost, tmp_path: Path, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = simulated.root / "etc/nvidia-container-runtime"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text(f"{_OPTIONS}as-volume-mounts = {str(accepted).lower()}\n")
    bundle = bundle_of(tmp_path / "bundle")
    config = json.loads((bundle / "config.json").read_text())
    config["mounts"] = [{"source": "/dev/null", "destination": "/var/run/nvidia-container-devices/1"}]
    (bundle / "config.json").write_text(json.dumps(config))
    assert prestart(simulated, bundle, monkeypatch)[0] == 0
    nodes = sorted(path.name for path in (bundle / "rootfs").glob("dev/nvidia[0-9]"))
    assert nodes == (["nvidia1"] if accepted else [])


def test_hook_does_not_follow_an_image_out_of_its_root(
    simulated: SimulatedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(tmp_path / "bundle", "NVIDIA_VISIBLE_DEVICES=1")
    outside = tmp_path / "outside"
    outside.mkdir()
    (bundle / "rootfs/dev").symlink_to(outside)
    assert prestart(simulated, bundle, monkeypatch)[0] == 1
    assert "leads out of the container" in capsys.readouterr().err
    assert list(outside.iterdir()) == []


def test_runtime_adds_the_hook_once_and_hands_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(tmp_path / "bundle")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "runc").write_text("#!/bin/sh\n")
    (programs / "runc").chmod(0o755)
    called: list[list[str]] = []
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(os, "execv", lambda path, arguments: called.append(arguments))
    for arguments in (["create", "--bundle", str(bundle), "x"], ["create", f"--bundle={bundle}", "x"], ["start", "x"]):
        container.main("nvidia-container-runtime", arguments)
        assert called.pop() == [str(programs / "runc"), *arguments]
    hooks = json.loads((bundle / "config.json").read_text())["hooks"]["prestart"]
    assert [hook["args"] for hook in hooks] == [["nvidia-container-runtime-hook", "prestart"]]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert container.main("nvidia-container-runtime", ["start", "x"]) == 1
    assert "neither runc nor crun is installed" in capsys.readouterr().err


def test_configuring_docker_keeps_its_other_options(simulated: SimulatedHost) -> None:
    path = simulated.root / "etc/docker/daemon.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"log-driver": "journald", "features": {"buildkit": True}}))
    for time in ("first", "second"):
        assert ctk(simulated, "runtime configure --runtime=docker --set-as-default --cdi.enabled") == 0
        assert json.loads(path.read_text()) == {
            "log-driver": "journald",
            "features": {"buildkit": True, "cdi": True},
            "default-runtime": "nvidia",
            "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
        }, time


@pytest.mark.parametrize(
    "command",
    [
        "",
        "cdi",
        "cdi generate --mode=wsl",
        "cdi generate --format=toml",
        "runtime configure --runtime=crio",
        "config --set=a=b",
    ],
)
def test_what_is_not_simulated_is_reported_so(
    simulated: SimulatedHost, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ctk(simulated, command) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("level=error msg=")


def test_version_has_the_form_that_programs_read(simulated: SimulatedHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctk(simulated, "--version") == 0
    assert capsys.readouterr().out.startswith("NVIDIA Container Toolkit CLI version 1.")


def test_programs_start_without_site_packages(tmp_path: Path) -> None:
    """The launchers run an isolated Python: it can import only the standard library and the program's directory."""
    files = Path(container.__file__).resolve().parents[2]
    (tmp_path / "gpu_simulator").symlink_to(files / "gpu_simulator")
    (tmp_path / "__main__.py").write_bytes((files / "programs/__main__.py").read_bytes())
    for program, arguments, expected in (
        ("nvidia-smi", ["-L"], 9),
        ("gpu-simulator", ["modprobe"], 2),
        ("gpu-simulator", ["show"], 1),
        ("nvidia-ctk", ["--version"], 0),
        ("nvidia-container-runtime-hook", ["poststop"], 0),
    ):
        done = subprocess.run(
            [sys.executable, "-IS", str(tmp_path), program, *arguments],
            env={**os.environ, "GPU_SIMULATOR_ROOT": str(tmp_path / "root")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == expected, done
        assert "Traceback" not in done.stderr
