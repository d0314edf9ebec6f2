# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cuda_facts on hosts made of files and small programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils._common import services as driver_services
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._cuda import containers
from ansible_collections.gpu.fleet.plugins.module_utils._cuda import driver as driver_files
from ansible_collections.gpu.fleet.plugins.module_utils._cuda import facts as cuda_state
from ansible_collections.gpu.fleet.plugins.modules import cuda_facts

from tests.unit.module_runs import disagreements
from tests.unit.nvidia_smi.facts_support import H200X8

LIB = "/usr/lib/x86_64-linux-gnu"
PROC_OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@)  \n"
    "GCC version:  gcc version 15.3.0 (GCC) \n"
)
PROC_PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\nGCC version:  gcc\n"
)
MODINFO_OPEN = """\
filename:       /lib/modules/6.12.0/updates/dkms/nvidia.ko.xz
alias:          char-major-195-*
version:        580.159.04
supported:      external
license:        Dual MIT/GPL
firmware:       nvidia/580.159.04/gsp_tu10x.bin
parm:           NVreg_EnableMSI:int
"""
SMI_VERSION = """\
NVIDIA-SMI version  : 580.159.04
NVML version        : 580.159
DRIVER version      : 580.159.04
CUDA Version        : 13.0
"""
SMI_VERSION_610 = """\
NVIDIA-SMI version  : 610.57.04
DRIVER version      : Deprecated, see "KMD version" instead
CUDA version        : Deprecated, see "CUDA UMD version" instead
KMD version         : 610.57.04
CUDA UMD version    : 13.3
"""
TENSORRT_HEADER = """\
#define NV_TENSORRT_MAJOR 10
#define NV_TENSORRT_MINOR 8
#define NV_TENSORRT_PATCH 0
"""
CONTAINERD = """\
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
"""
DOCKER = '{"default-runtime": "nvidia", "runtimes": {"nvidia": {}}, "features": {"cdi": true}}'
CRIO = """\
[crio]
[crio.runtime]
default_runtime = "nvidia"
[crio.runtime.runtimes.nvidia]
"""
PODMAN = """\
[engine]
runtime = "nvidia"
[engine.runtimes]
nvidia = ["/usr/bin/nvidia-container-runtime"]
"""
UNITS = """\
Id=nvidia-fabricmanager.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled

Id=nvidia-persistenced.service
LoadState=loaded
ActiveState=failed
UnitFileState=static

Id=nvidia-dcgm.service
LoadState=not-found
ActiveState=inactive
UnitFileState=

Id=dcgm.service
LoadState=loaded
ActiveState=inactive
UnitFileState=disabled

Id=nvidia-imex.service
LoadState=not-found
ActiveState=inactive
UnitFileState=
"""
CDI = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidia-modeset
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    hookName: createContainer
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: GPU-5ee00001-0000-4000-8000-000000000001
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia1
  name: all
kind: nvidia.com/gpu
"""
MIG_ACCESS = "DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"


class Host:
    """A host's files below a directory, and its programs."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = directory / "root"
        self._bin = directory / "bin"
        self._bin.mkdir()
        self.root.mkdir()
        monkeypatch.setenv("PATH", str(self._bin))
        monkeypatch.setattr(cuda_state, "_SBIN", ())

    def file(self, path: str, text: str = "") -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def link(self, path: str, target: str) -> None:
        link = self.root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)

    def program(self, name: str, output: str = "", status: int = 0) -> None:
        """Add a program that prints the same for all arguments."""
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n/bin/cat <<'END_OF_OUTPUT'\n{output}END_OF_OUTPUT\nexit {status}\n")
        path.chmod(0o755)

    def facts(self, **request: Any) -> dict[str, Any]:
        return cuda_state.gather(cuda_state.CudaFactsRequest(**request), HostFiles(str(self.root)))

    def driver(self) -> None:
        """Install and load driver 580.159.04."""
        self.file("/proc/driver/nvidia/version", PROC_OPEN)
        self.file("/sys/module/nvidia/version", "580.159.04\n")
        self.file(f"{LIB}/libnvidia-ml.so.580.159.04")
        self.link(f"{LIB}/libnvidia-ml.so.1", "libnvidia-ml.so.580.159.04")
        self.program("modinfo", MODINFO_OPEN)
        self.program("nvidia-smi", SMI_VERSION)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_a_bare_host(host: Host) -> None:
    facts = host.facts()
    assert facts["driver"] == {
        "loaded": False,
        "loaded_version": None,
        "loaded_kind": None,
        "module_version": None,
        "module_kind": None,
        "module_path": None,
        "library_version": None,
        "library_path": None,
        "cuda_version": None,
        "cuda_version_origin": None,
        "nouveau_loaded": False,
        "reboot_required": False,
    }
    assert facts["toolkits"] == []
    assert facts["libraries"] == {"cudnn": [], "nccl": [], "tensorrt": []}
    assert facts["container_toolkit"]["installed"] is False
    assert not any(service["installed"] for service in facts["services"].values())


def test_a_driver_that_is_loaded_and_on_disk(host: Host) -> None:
    host.driver()
    assert host.facts()["driver"] == {
        "loaded": True,
        "loaded_version": "580.159.04",
        "loaded_kind": "open",
        "module_version": "580.159.04",
        "module_kind": "open",
        "module_path": "/lib/modules/6.12.0/updates/dkms/nvidia.ko.xz",
        "library_version": "580.159.04",
        "library_path": f"{LIB}/libnvidia-ml.so.580.159.04",
        "cuda_version": "13.0",
        "cuda_version_origin": "nvidia_smi",
        "nouveau_loaded": False,
        "reboot_required": False,
    }


def test_the_recorded_proc_of_a_real_host(host: Host) -> None:
    host.file("/proc/driver/nvidia/version", H200X8.files["/proc/driver/nvidia/version"])
    driver = host.facts()["driver"]
    assert (driver["loaded_version"], driver["loaded_kind"]) == ("580.159.04", "open")


def test_a_driver_that_was_upgraded_under_a_running_one(host: Host) -> None:
    host.file("/proc/driver/nvidia/version", PROC_PROPRIETARY)
    host.file(f"{LIB}/libnvidia-ml.so.580.159.04")
    host.link(f"{LIB}/libnvidia-ml.so.1", "libnvidia-ml.so.580.159.04")
    host.program("modinfo", MODINFO_OPEN)
    host.program("nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch\n", 18)
    driver = host.facts()["driver"]
    assert (driver["loaded_version"], driver["loaded_kind"]) == ("470.256.02", "proprietary")
    assert (driver["module_version"], driver["module_kind"]) == ("580.159.04", "open")
    assert driver["reboot_required"] is True
    assert (driver["cuda_version"], driver["cuda_version_origin"]) == ("11.4", "driver_branch")


@pytest.mark.parametrize("part", ["module", "library"])
def test_either_part_on_disk_asks_for_a_reboot(host: Host, part: str) -> None:
    host.file("/proc/driver/nvidia/version", PROC_OPEN)
    if part == "module":
        host.program("modinfo", MODINFO_OPEN.replace("580.159.04", "580.173.02"))
    else:
        host.file(f"{LIB}/libcuda.so.580.173.02")
        host.link(f"{LIB}/libcuda.so.1", "libcuda.so.580.173.02")
    assert host.facts()["driver"]["reboot_required"] is True


def test_a_driver_on_disk_alone_needs_no_reboot(host: Host) -> None:
    host.program("modinfo", MODINFO_OPEN.replace("Dual MIT/GPL", "NVIDIA"))
    host.file("/sys/module/nouveau/initstate", "live\n")
    driver = host.facts()["driver"]
    assert (driver["loaded"], driver["module_kind"], driver["reboot_required"]) == (False, "proprietary", False)
    assert driver["nouveau_loaded"] is True


def test_a_module_without_proc_file(host: Host) -> None:
    host.file("/sys/module/nvidia/version", "535.183.01\n")
    driver = host.facts()["driver"]
    assert (driver["loaded"], driver["loaded_version"], driver["loaded_kind"]) == (True, "535.183.01", None)
    assert driver["cuda_version"] == "12.2"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (SMI_VERSION, "13.0"),
        (SMI_VERSION_610, "13.3"),
        ("CUDA Version        : Not Found\n", None),
        ("Failed to initialize NVML: Driver/library version mismatch\n", None),
        ("", None),
    ],
)
def test_cuda_version_of_nvidia_smi(text: str, version: str | None) -> None:
    assert driver_files.parse_cuda_version(text) == version


def test_cuda_version_of_recorded_outputs(corpus: Path | None) -> None:
    recorded = {"610.57.04": "13.3", "590.48.01": "13.1"}
    for path in (corpus / "text").glob("*-version.txt") if corpus else ():
        (expected,) = [cuda for driver, cuda in recorded.items() if driver in path.name]
        assert driver_files.parse_cuda_version(path.read_text()) == expected
        (driver,) = [driver for driver in recorded if driver in path.name]
        assert driver_files.cuda_of_branch(driver) == expected
    assert driver_files.cuda_of_branch("580.159.04") == "13.0"


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("340.24", "6.5"),
        ("430.26", "10.2"),
        ("536.40", "12.2"),
        ("570.148.08", "12.8"),
        ("304.137", None),
        ("700.1", None),
    ],
)
def test_cuda_version_of_a_branch(driver: str, cuda: str | None) -> None:
    assert driver_files.cuda_of_branch(driver) == cuda


def test_toolkits_side_by_side(host: Host) -> None:
    components = {"cuda": {"name": "CUDA SDK", "version": "12.4.131"}, "cuda_nvcc": {"version": "12.4.131"}}
    host.file("/usr/local/cuda-12.4/version.json", json.dumps(components))
    host.file("/usr/local/cuda-10.1/version.txt", "CUDA Version 10.1.243\n")
    host.file("/usr/local/cuda-9.2/bin/nvcc")
    nvcc = host.root / "usr/local/cuda-9.2/bin/nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 9.2, V9.2.148'\n")
    nvcc.chmod(0o755)
    host.file("/usr/local/cuda-8.0/README", "removed, but this was left")
    host.file("/shared/cuda/13.0/version.json", json.dumps({"cuda": {"version": "13.0.88"}}))
    host.link("/usr/local/cuda-12", "/etc/alternatives/cuda-12")
    host.link("/etc/alternatives/cuda-12", "/usr/local/cuda-12.4")
    host.link("/usr/local/cuda", "/etc/alternatives/cuda")
    host.link("/etc/alternatives/cuda", "/usr/local/cuda-10.1")
    facts = host.facts(toolkit_paths=("/shared/cuda/*",))
    assert [tuple(toolkit.values()) for toolkit in facts["toolkits"]] == [
        ("9.2.148", "/usr/local/cuda-9.2", "nvcc", False),
        ("10.1.243", "/usr/local/cuda-10.1", "version.txt", True),
        ("12.4.131", "/usr/local/cuda-12.4", "version.json", False),
        ("13.0.88", "/shared/cuda/13.0", "version.json", False),
    ]
    assert facts["default_toolkit"] == "/usr/local/cuda-10.1"
    assert facts["alternatives"] == {"cuda": "/usr/local/cuda-10.1", "cuda-12": "/usr/local/cuda-12.4"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cuda": 1}', '{"cuda": {"version": 12}}', "\x00\xff"])
def test_a_damaged_version_file_is_no_toolkit(host: Host, text: str) -> None:
    host.file("/usr/local/cuda-12.4/version.json", text)
    host.file("/usr/local/cuda-12.4/version.txt", "nothing")
    assert host.facts()["toolkits"] == []


def test_links_in_a_circle_end(host: Host) -> None:
    host.link("/usr/local/cuda", "/usr/local/cuda-a")
    host.link("/usr/local/cuda-a", "/usr/local/cuda")
    assert host.facts()["default_toolkit"] is None


CUDNN_HEADER = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 1\n#define CUDNN_PATCHLEVEL 0\n"


def test_libraries_of_packages_and_archives(host: Host) -> None:
    host.file(f"{LIB}/libcudnn.so.9.20.0")
    host.link(f"{LIB}/libcudnn.so.9", "libcudnn.so.9.20.0")
    host.file("/var/lib/dpkg/info/libcudnn9-cuda-13.list", f"/.\n/usr\n{LIB}/libcudnn.so.9.20.0\n")
    host.file("/usr/include/cudnn_version.h", CUDNN_HEADER.replace("MINOR 1", "MINOR 20"))
    host.file("/usr/local/cuda-12.4/version.txt", "CUDA Version 12.4.1\n")
    host.file("/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudnn.so.9.1.0")
    host.link("/usr/local/cuda-12.4/lib64", "targets/x86_64-linux/lib")
    host.file("/usr/local/cuda-12.4/targets/x86_64-linux/include/cudnn_version.h", CUDNN_HEADER)
    host.file("/usr/lib64/libnccl.so.2.27.5")
    host.file("/usr/local/include/NvInferVersion.h", TENSORRT_HEADER)
    host.program("rpm", "file is not owned by any package\nlibnccl\nfile is not owned by any package\n")
    libraries = host.facts()["libraries"]
    assert [tuple(item.values()) for item in libraries["cudnn"]] == [
        ("9.20.0", f"{LIB}/libcudnn.so.9.20.0", "package", "libcudnn9-cuda-13"),
        ("9.1.0", "/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudnn.so.9.1.0", "archive", None),
    ]
    assert [tuple(item.values()) for item in libraries["nccl"]] == [
        ("2.27.5", "/usr/lib64/libnccl.so.2.27.5", "package", "libnccl")
    ]
    assert [tuple(item.values()) for item in libraries["tensorrt"]] == [
        ("10.8.0", "/usr/local/include/NvInferVersion.h", "archive", None)
    ]


# As the header of TensorRT 10.13 begins, whose public macros are names of other macros.
ENTERPRISE_HEADER = """\
#define TRT_MAJOR_ENTERPRISE 10
#define TRT_MINOR_ENTERPRISE 13
#define TRT_PATCH_ENTERPRISE 3
#define TRT_BUILD_ENTERPRISE 9
#define NV_TENSORRT_MAJOR TRT_MAJOR_ENTERPRISE //!< TensorRT major version.
#define NV_TENSORRT_MINOR TRT_MINOR_ENTERPRISE //!< TensorRT minor version.
#define NV_TENSORRT_PATCH TRT_PATCH_ENTERPRISE //!< TensorRT patch version.
#define NV_TENSORRT_BUILD TRT_BUILD_ENTERPRISE //!< TensorRT build number.
"""


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        (ENTERPRISE_HEADER, ["10.13.3"]),
        (ENTERPRISE_HEADER.replace("\n", "\r\n"), ["10.13.3"]),
        (ENTERPRISE_HEADER.replace("#define", "#  define"), ["10.13.3"]),
        (
            ENTERPRISE_HEADER.replace("TRT_PATCH_ENTERPRISE 3", "TRT_PATCH_ENTERPRISE TRT_PATCH\n#define TRT_PATCH 4"),
            ["10.13.4"],
        ),
        # Macros that lead nowhere, or to each other, state no version.
        (ENTERPRISE_HEADER.replace("#define TRT_PATCH_ENTERPRISE 3\n", ""), []),
        (ENTERPRISE_HEADER.replace("TRT_PATCH_ENTERPRISE 3", "TRT_PATCH_ENTERPRISE NV_TENSORRT_PATCH"), []),
    ],
)
def test_a_header_may_define_its_version_by_other_macros(host: Host, text: str, versions: list[str]) -> None:
    host.file("/usr/include/x86_64-linux-gnu/NvInferVersion.h", text)
    assert [library["version"] for library in host.facts()["libraries"]["tensorrt"]] == versions


def test_the_package_of_a_link_is_not_that_of_the_library(host: Host) -> None:
    host.file(f"{LIB}/libnccl.so.2.28.3")
    host.link(f"{LIB}/libnccl.so", "libnccl.so.2.28.3")
    host.link("/lib", "usr/lib")
    host.file("/var/lib/dpkg/info/libnccl-dev.list", f"{LIB}/libnccl.so\n")
    host.file("/var/lib/dpkg/info/libnccl2.list", "/lib/x86_64-linux-gnu/libnccl.so.2.28.3\n")
    (nccl,) = host.facts()["libraries"]["nccl"]
    assert nccl["package"] == "libnccl2"


def test_daemons(host: Host) -> None:
    host.driver()
    host.program("systemctl", UNITS)
    host.program("nv-fabricmanager", "Fabric Manager version is : 580.126.09\n")
    host.program("nvidia-persistenced", "nvidia-persistenced:  version 580.159.04\n")
    host.program("nv-hostengine", "Version : 4.4.1\nBuild ID : 12\n")
    host.program("nvidia-imex", "IMEX version is: 580.159.04\n")
    services = {name: tuple(service.values()) for name, service in host.facts()["services"].items()}
    assert services == {
        "fabric_manager": (True, "580.126.09", "nvidia-fabricmanager.service", "active", "enabled", False),
        "persistenced": (True, "580.159.04", "nvidia-persistenced.service", "failed", "static", True),
        "dcgm": (True, "4.4.1", "dcgm.service", "inactive", "disabled", None),
        "imex": (True, "580.159.04", None, None, None, True),
    }


def test_units_without_systemd() -> None:
    message = (
        "System has not been booted with systemd as init system (PID 1). Can't operate.\nFailed to connect to bus\n"
    )
    assert driver_services.parse_units(message) == {}


def gpu_nodes(host: Host, count: int = 2) -> None:
    for number in range(count):
        host.file(f"/dev/nvidia{number}")
    host.file("/dev/nvidiactl")
    host.file("/dev/nvidia-uvm")


def test_specifications_of_kubernetes_plugins_are_not_the_toolkits(host: Host) -> None:
    """Those of the device plugin and the DRA driver on a host with two H200; only their plugins write them again."""
    gpu_nodes(host, 1)
    host.link("/var/run", "/run")
    specifications = sorted((Path(__file__).parent / "specifications").iterdir())
    for path in specifications:
        # Its indentation is not ours, so that no linter reads it.
        host.file(f"/run/cdi/{path.name.removesuffix('.txt')}", path.read_text())
    facts = host.facts()["container_toolkit"]
    assert len(specifications) == 2 and (facts["cdi_specifications"], facts["cdi_stale"]) == ([], False)
    as_of_the_toolkit = specifications[0].read_text().replace("k8s.device-plugin.nvidia.com/gpu", "nvidia.com/gpu")
    host.file("/run/cdi/nvidia.json", as_of_the_toolkit)
    assert "gpus" in host.facts()["container_toolkit"]["cdi_specifications"][0]["stale"]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("path", ["/etc/cdi/nvidia.yaml", "/run/cdi/nvidia.yaml"])
def test_a_cdi_specification_that_holds(host: Host, path: str, as_json: bool) -> None:
    host.driver()
    gpu_nodes(host)
    host.link("/var/run", "/run")
    host.file(path.replace("yaml", "json") if as_json else path, json.dumps(yaml.safe_load(CDI)) if as_json else CDI)
    host.program(
        "nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.4\ncommit: 9b69590c7428470a72f2ae05f826412976af1395\n"
    )
    facts = host.facts()["container_toolkit"]
    assert (facts["installed"], facts["version"], facts["cdi_stale"]) == (True, "1.17.4", False)
    (specification,) = facts["cdi_specifications"]
    assert specification["path"] == (path.replace("yaml", "json") if as_json else path)
    assert specification["kind"] == "nvidia.com/gpu"
    assert specification["devices"] == ("0", "GPU-5ee00001-0000-4000-8000-000000000001", "all")
    assert (specification["driver_version"], specification["stale"]) == ("580.159.04", ())
    assert specification["modified"] > 1_600_000_000


def mig_instance(host: Host) -> None:
    host.file("/proc/driver/nvidia/capabilities/gpu0/mig/gi2/access", MIG_ACCESS.format(minor=21))
    host.file("/proc/driver/nvidia/capabilities/gpu0/mig/gi2/ci0/access", MIG_ACCESS.format(minor=22))


def upgrade(host: Host) -> None:
    (host.root / f"{LIB}/libnvidia-ml.so.1".lstrip("/")).unlink()
    host.file(f"{LIB}/libcuda.so.610.57.04")
    host.link(f"{LIB}/libcuda.so.1", "libcuda.so.610.57.04")


# Changes of the host after its CDI specification was written, and what is stale then.
AFTERWARDS: dict[str, tuple[Callable[[Host], None], tuple[str, ...]]] = {
    "nothing": (gpu_nodes, ()),
    "driver upgraded": (upgrade, ("driver_version",)),
    "GPU added": (lambda host: gpu_nodes(host, 3), ("gpus",)),
    "MIG instance made": (mig_instance, ("mig_layout",)),
}


NODES = {
    "yaml, sorted": "  deviceNodes:\n  - major: {}\n    minor: 0\n    path: /dev/nvidia-uvm\n  - path: /dev/x\n",
    "yaml": "  deviceNodes:\n    - path: /dev/nvidia-uvm-tools\n      major: {}\n      type: c\n",
    "json": '"deviceNodes": [{{"path": "/dev/nvidiactl", "major": 195}}, {{"path": "/dev/nvidia-uvm", "major": {}}}]',
}


@pytest.mark.parametrize("form", NODES)
def test_a_specification_with_another_major_number_of_a_device_is_stale(host: Host, form: str) -> None:
    """After an update of the kernel a container would get the device of another driver."""
    host.driver()
    host.file("/proc/devices", "Character devices:\n  1 mem\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n")
    for major, stale in ((510, ()), (511, ("device_numbers",))):
        text = f"kind: nvidia.com/gpu\ncontainerEdits:\n{NODES[form].format(major)}devices:\n"
        text = f'{{"kind": "nvidia.com/gpu", {NODES[form].format(major)}}}' if form == "json" else text
        path = f"/etc/cdi/nvidia.{'json' if form == 'json' else 'yaml'}"
        host.file(path, text)
        assert [one["stale"] for one in host.facts()["container_toolkit"]["cdi_specifications"]] == [stale], major


def test_without_numbers_in_it_or_of_the_kernel_a_specification_is_not_stale(host: Host) -> None:
    host.driver()
    host.file("/etc/cdi/nvidia.yaml", f"kind: nvidia.com/gpu\n{NODES['yaml'].format(7)}")
    assert not host.facts()["container_toolkit"]["cdi_stale"]
    host.file("/proc/devices", "510 nvidia-uvm\n")
    host.file("/etc/cdi/nvidia.yaml", CDI)
    assert not host.facts()["container_toolkit"]["cdi_stale"]


@pytest.mark.parametrize("name", AFTERWARDS)
def test_a_cdi_specification_gets_stale(host: Host, name: str) -> None:
    happens, stale = AFTERWARDS[name]
    host.driver()
    gpu_nodes(host)
    host.file("/etc/cdi/nvidia.yaml", CDI)
    happens(host)
    facts = host.facts()["container_toolkit"]
    assert facts["cdi_specifications"][0]["stale"] == stale
    assert facts["cdi_stale"] is bool(stale)


@pytest.mark.parametrize(("version", "stale"), [("580.159.04", ()), ("580.95.05", ("driver_version",))])
def test_the_hook_of_a_cdi_specification_has_the_version_of_the_driver_too(
    host: Host, version: str, stale: tuple[str, ...]
) -> None:
    """As nvidia-ctk 1.17 and newer write it; a specification for agents that manage GPUs has no library of CUDA."""
    host.driver()
    hook = f"    - args: [nvidia-cdi-hook, enable-cuda-compat, --host-driver-version={version}]\n"
    host.file("/etc/cdi/nvidia.yaml", f"kind: nvidia.com/gpu\ncontainerEdits:\n  hooks:\n{hook}")
    (specification,) = host.facts()["container_toolkit"]["cdi_specifications"]
    assert (specification["driver_version"], specification["stale"]) == (version, stale)


def test_a_cdi_specification_of_the_mig_layout_that_is_there(host: Host) -> None:
    gpu_nodes(host)
    mig_instance(host)
    nodes = "    - path: /dev/nvidia-caps/nvidia-cap21\n    - path: /dev/nvidia-caps/nvidia-cap22\n"
    host.file(
        "/etc/cdi/nvidia.yaml", CDI.replace("    - path: /dev/nvidia0\n", f"    - path: /dev/nvidia0\n{nodes}", 1)
    )
    assert host.facts()["container_toolkit"]["cdi_specifications"][0]["stale"] == ()


def test_other_vendors_specifications_are_left_out(host: Host) -> None:
    host.file("/etc/cdi/other.yaml", CDI.replace("nvidia.com/gpu", "vendor.com/nic"))
    host.file("/etc/cdi/broken.json", "{")
    host.file("/etc/cdi/notes.txt", CDI)
    assert host.facts()["container_toolkit"]["cdi_specifications"] == []


# Engine, files, and (configured, default, cdi, path).
ENGINES: list[tuple[str, dict[str, str], tuple[Any, ...]]] = [
    ("docker", {}, (False, False, None, None)),
    (
        "docker",
        {"/etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'},
        (True, False, None, "/etc/docker/daemon.json"),
    ),
    (
        "docker",
        {"/etc/docker/daemon.json": DOCKER},
        (True, True, True, "/etc/docker/daemon.json"),
    ),
    ("docker", {"/etc/docker/daemon.json": "[1"}, (False, False, None, "/etc/docker/daemon.json")),
    ("docker", {"/etc/docker/daemon.json": '{"runtimes": []}'}, (False, False, None, "/etc/docker/daemon.json")),
    (
        "containerd",
        {
            "/etc/containerd/config.toml": 'imports = ["/etc/containerd/conf.d/*.toml"]\nversion = 2\n',
            "/etc/containerd/conf.d/99-nvidia.toml": CONTAINERD,
        },
        (True, True, True, "/etc/containerd/conf.d/99-nvidia.toml"),
    ),
    (
        "containerd",
        {"/etc/containerd/config.toml": "# [plugins.cri.containerd.runtimes.nvidia]\n#  enable_cdi = true\n"},
        (False, False, None, None),
    ),
    (
        "crio",
        {
            "/etc/crio/crio.conf.d/99-nvidia.toml": "",
            "/etc/crio/crio.conf.d/99-nvidia.conf": CRIO,
        },
        (True, True, None, "/etc/crio/crio.conf.d/99-nvidia.conf"),
    ),
    (
        "podman",
        {"/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json": "{}"},
        (True, False, None, "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"),
    ),
    (
        "podman",
        {"/etc/containers/containers.conf": PODMAN},
        (True, True, None, "/etc/containers/containers.conf"),
    ),
    ("podman", {"/etc/containers/containers.conf": '[engine]\n# runtime = "nvidia"\n'}, (False, False, None, None)),
]


@pytest.mark.parametrize(("engine", "files", "expected"), ENGINES)
def test_engines(host: Host, engine: str, files: dict[str, str], expected: tuple[Any, ...]) -> None:
    for path, text in files.items():
        host.file(path, text)
    host.program({"docker": "dockerd"}.get(engine, engine))
    runtimes = host.facts()["container_toolkit"]["runtimes"]
    found = runtimes[engine]
    assert tuple(found[name] for name in ("configured", "default", "cdi", "path")) == expected
    assert [name for name, item in runtimes.items() if item["installed"]] == [engine]


def test_a_hanging_program_costs_only_what_it_would_have_reported(host: Host) -> None:
    host.driver()
    (host.root.parent / "bin" / "nvidia-smi").write_text("#!/bin/sh\n/bin/sleep 60\n")
    facts = host.facts(timeout=1.5)
    assert facts["driver"]["loaded_version"] == "580.159.04"
    assert (facts["driver"]["cuda_version"], facts["driver"]["cuda_version_origin"]) == ("13.0", "driver_branch")


def documented() -> dict[str, Any]:
    returned: dict[str, Any] = yaml.safe_load(cuda_facts.RETURN)
    facts: dict[str, Any] = returned["ansible_facts"]["contains"]["cuda"]
    return facts


def run_module(**options: Any) -> dict[str, Any]:
    """Run the module as Ansible does, on the host that runs the tests."""
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *strings, **_more: printed.extend(map(str, strings)))
        with patch_module_args(options), pytest.raises(SystemExit) as ended:
            cuda_facts.main()
    result = json.loads(printed[-1])
    assert ended.value.code == 0, result
    assert set(result["ansible_facts"]) == {"cuda"}
    facts: dict[str, Any] = result["ansible_facts"]["cuda"]
    return facts


def test_return_is_what_comes_back_from_this_host() -> None:
    assert list(disagreements(documented(), run_module(), "cuda")) == []


def test_return_is_what_comes_back_from_a_full_host(host: Host) -> None:
    host.driver()
    gpu_nodes(host)
    host.file("/etc/cdi/nvidia.yaml", CDI)
    host.program("systemctl", UNITS)
    host.program("nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.4\n")
    host.program("nvidia-persistenced", "nvidia-persistenced:  version 580.159.04\n")
    host.file(f"{LIB}/libcudnn.so.9.20.0")
    host.file("/usr/local/cuda-12.4/version.txt", "CUDA Version 12.4.1\n")
    host.link("/usr/local/cuda", "cuda-12.4")
    facts = json.loads(json.dumps(host.facts()))
    assert list(disagreements(documented(), facts, "cuda")) == []
    assert facts["default_toolkit"] == "/usr/local/cuda-12.4"


@pytest.mark.parametrize("task", yaml.safe_load(cuda_facts.EXAMPLES), ids=lambda task: task["name"])
def test_examples_are_accepted_by_the_module(task: dict[str, Any]) -> None:
    assert "driver" in run_module(**(task["gpu.fleet.cuda_facts"] or {}))


@pytest.mark.parametrize(
    "text",
    [
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits: {}\n",
        "kind: nvidia.com/gpu\ndevices:\n  - name: all\n    containerEdits: {deviceNodes: [{path: /dev/null}]}\n",
        "kind: nvidia.com/gpu\ndevices:\n    - containerEdits: {}\n      name: 'all'\n",
        '{"kind": "nvidia.com/gpu", "devices": [{"name": "all"}]}',
    ],
    ids=["as nvidia-ctk indents it", "indented by hand", "the name last", "JSON"],
)
def test_devices_of_a_cdi_specification(text: str) -> None:
    """One that is not seen to have the device `all` would hide the right one."""
    assert containers._kind_and_devices(text) == ("nvidia.com/gpu", ("all",))
