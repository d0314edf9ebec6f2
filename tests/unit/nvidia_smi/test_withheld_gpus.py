# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI functions that nvidia-smi is not to show: of virtual machines, excluded by the driver, for the console."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import failures
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import pci as pci_bus
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.remedies import REMEDIES, unresponsive

from tests.unit.nvidia_smi.test_facts_rules import NVML_ERRORS
from tests.unit.nvidia_smi.test_nvidia_smi_facts import (
    ADDRESSES,
    MakePci,
    MakeReplay,
    call_for,
    part,
    run_module,
)

NO_DEVICES = {"out": "No devices were found\n", "rc": 6}
# An A40 with 32 virtual functions, as lspci lists them: https://github.com/martins3/martins3.github.io.
A40 = "0000:51:00.0"
FUNCTIONS = [f"0000:51:{number // 8:02x}.{number % 8}" for number in range(4, 36)]


def one_gpu(address: str) -> dict[str, Any]:
    """The replies of a host where nvidia-smi has one GPU."""
    document = part(ADDRESSES[0]).replace(ADDRESSES[0].upper(), address.upper()).replace(ADDRESSES[0], address)
    document = document.replace("<attached_gpus>8<", "<attached_gpus>1<")
    return {"*": NO_DEVICES, "-q -x": {"out": document}, call_for(address): {"out": document}}


def share(devices: Path, physical: str) -> None:
    for address in FUNCTIONS:
        (devices / address / "physfn").symlink_to(f"../{physical}")


@pytest.mark.parametrize("driver", ["nvidia", "vfio-pci", "nvidia-vgpu-vfio-pci", None])
def test_virtual_functions_are_no_gpus(replay: MakeReplay, pci: MakePci, driver: str | None) -> None:
    devices = pci(A40, device="0x2235")
    pci(*FUNCTIONS, driver=driver, device="0x2235")
    share(devices, A40)
    program = replay(one_gpu(A40))
    facts = run_module(program.path, gather_subset=["memory"])
    assert (facts["gpu_count"], facts["unhealthy"]) == (1, [])
    assert [gpu["pci_bus_id"] for gpu in facts["pci_gpus"]] == ["00000000:51:00.0"]
    # Nor is nvidia-smi asked for them.
    assert program.calls == ["-q -x"]


def test_a_function_in_a_virtual_machine_is_a_gpu(replay: MakeReplay, pci: MakePci) -> None:
    pci(A40, FUNCTIONS[0])
    facts = run_module(replay(one_gpu(A40)).path, gather_subset=["memory"])
    assert [problem["code"] for problem in facts["unhealthy"]] == ["gpu_missing"]


# https://github.com/torvalds/linux, drivers/vfio/pci with its variants, which are named like their modules,
# drivers/pci, drivers/xen/xen-pciback and drivers/uio; of vGPUs https://lore.kernel.org/all/20250903221111.3866249-1-zhiw@nvidia.com/.
PASSTHROUGH = [
    "vfio-pci",
    "nvgrace-gpu-vfio-pci",
    "nvgrace_gpu_vfio_pci",
    "nvidia-vgpu-vfio-pci",
    "nvidia-vgpu-vfio",
    "nvidia_vgpu_vfio",
    "mlx5-vfio-pci",
    "pci-stub",
    "pci-pf-stub",
    "pciback",
    "xen-pciback",
    "xen_pciback",
    "uio_pci_generic",
    "igb_uio",
]
FAULTS = ["nouveau", "NovaCore", "nova_core", "nvidiafb", "nvidia", None]


@pytest.mark.parametrize("driver", [*PASSTHROUGH, *FAULTS])
def test_drivers_that_keep_a_gpu_for_a_virtual_machine(replay: MakeReplay, pci: MakePci, driver: str | None) -> None:
    pci(ADDRESSES[0])
    pci(ADDRESSES[1], driver=driver)
    facts = run_module(replay(one_gpu(ADDRESSES[0])).path, gather_subset=["memory"])
    is_kept = driver in PASSTHROUGH
    assert [gpu["passed_through"] for gpu in facts["pci_gpus"]] == [False, is_kept]
    assert [problem["code"] for problem in facts["unhealthy"]] == ([] if is_kept else ["gpu_missing"])


@pytest.mark.parametrize(
    "reply",
    [
        None,
        NO_DEVICES,
        {"out": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "rc": 9},
        {"out": "Failed to initialize NVML: Driver/library version mismatch\n", "rc": 18},
        {"rc": 1},
    ],
    ids=["no driver", "no devices", "not loaded", "mismatch", "silence"],
)
@pytest.mark.parametrize("subset", ["all", "min"])
def test_a_host_that_keeps_no_gpu_needs_no_driver(
    replay: MakeReplay, pci: MakePci, reply: dict[str, Any] | None, subset: str
) -> None:
    """Nodes of KubeVirt, and of Proxmox: all GPUs are of guests."""
    pci(*ADDRESSES[:2], driver="vfio-pci")
    path = Path("/nonexistent/nvidia-smi") if reply is None else replay({"*": reply}).path
    facts = run_module(path, gather_subset=[subset])
    assert (facts["available"], facts["reason"], facts["unhealthy"]) == (False, "passed_through", [])
    assert facts["message"] == "the PCI bus shows 2 NVIDIA GPUs, passed through to virtual machines by vfio-pci"


def test_one_gpu_that_the_host_keeps_needs_a_driver(pci: MakePci) -> None:
    pci(ADDRESSES[0], driver="vfio-pci")
    pci(ADDRESSES[1], driver=None)
    facts = run_module(Path("/nonexistent/nvidia-smi"))
    assert (facts["reason"], [problem["code"] for problem in facts["unhealthy"]]) == ("no_driver", ["no_driver"])


# Parameters as nvidia prints them, and of a GPU `GPU Excluded`, with older drivers `Blacklisted`:
# https://github.com/NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c.
PARAMETERS = 'RmMsg: ""\nGpuBlacklist: "{}"\nTemporaryFilePath: ""\nExcludedGpus: "{}"\n'
UUID = "GPU-edfee158-11c1-52b8-0517-92f30e7fac88"
EXCLUSIONS = {
    "excluded": (PARAMETERS.format("", UUID), "GPU Excluded:\t Yes\n", True),
    "older driver": (f'GpuBlacklist: "{UUID}"\n', "Blacklisted:\t Yes\n", True),
    "all": ("ExcludeAllGpus: 1\n", "GPU Excluded:\t Yes\n", True),
    "another one": (PARAMETERS.format("", UUID), "GPU Excluded:\t No\n", False),
    "none": (PARAMETERS.format("", ""), "GPU Excluded:\t Yes\n", False),
    "unreadable": (None, "GPU Excluded:\t Yes\n", False),
    "not shown": (PARAMETERS.format("", UUID), None, False),
}


@pytest.fixture(name="driver")
def _driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the driver shows of itself."""
    monkeypatch.setattr(pci_bus, "DRIVEN", str(tmp_path / "driver/gpus"))
    monkeypatch.setattr(pci_bus, "PARAMETERS", str(tmp_path / "driver/params"))
    return tmp_path / "driver"


def show(driver: Path, parameters: str | None, information: dict[str, str | None]) -> None:
    driver.mkdir()
    if parameters is not None:
        (driver / "params").write_text(parameters)
    for address, text in information.items():
        (driver / "gpus" / address).mkdir(parents=True)
        if text is not None:
            (driver / "gpus" / address / "information").write_text("Model: \t\t NVIDIA H200\n" + text)


@pytest.mark.parametrize("name", EXCLUSIONS)
def test_gpus_that_parameters_exclude(replay: MakeReplay, pci: MakePci, driver: Path, name: str) -> None:
    parameters, information, excluded = EXCLUSIONS[name]
    pci(*ADDRESSES[:2])
    show(driver, parameters, {ADDRESSES[0]: "GPU Excluded:\t No\n", ADDRESSES[1]: information})
    facts = run_module(replay(one_gpu(ADDRESSES[0])).path, gather_subset=["memory"])
    assert [gpu["excluded"] for gpu in facts["pci_gpus"]] == [False, excluded]
    assert [problem["code"] for problem in facts["unhealthy"]] == ([] if excluded else ["gpu_missing"])
    # Nor has the driver an index for it.
    assert len(pci_bus.driven_gpus()) == (1 if excluded else 2)


def test_a_host_whose_gpus_are_all_excluded(replay: MakeReplay, pci: MakePci, driver: Path) -> None:
    pci(ADDRESSES[0])
    show(driver, "ExcludeAllGpus: 1\n", {ADDRESSES[0]: "GPU Excluded:\t Yes\n"})
    facts = run_module(replay({"*": NO_DEVICES}).path)
    assert (facts["available"], facts["reason"], facts["unhealthy"]) == (False, "excluded", [])


# A GT 710, a Quadro K620: https://pci-ids.ucw.cz/read/PC/10de.
@pytest.mark.parametrize("device", ["0x128b", "0x13bb"])
@pytest.mark.parametrize(
    ("works", "changes"),
    [
        (True, {}),
        # It is not one of the GPUs that are at work, no 3D controller, and has no driver.
        (True, {"device": "0x2335"}),
        (True, {"class": "0x030200"}),
        (True, {"driver": "nvidia"}),
        (True, {"driver": "nouveau"}),
        (False, {}),
    ],
)
def test_a_display_card_next_to_gpus_at_work(
    replay: MakeReplay, pci: MakePci, device: str, works: bool, changes: dict[str, str]
) -> None:
    pci(ADDRESSES[0])
    card: dict[str, Any] = {"driver": None, "device": device, "class": "0x030000", **changes}
    pci(ADDRESSES[1], **card)
    facts = run_module(replay(one_gpu(ADDRESSES[0]) if works else {"*": NO_DEVICES}).path, gather_subset=["memory"])
    found = {problem["gpu"]: problem["code"] for problem in facts["unhealthy"]}
    assert found.pop("00000000:00:07.0") == ("gpu_unused" if works and not changes else "gpu_missing")
    assert set(found.values()) == (set() if works else {"gpu_missing"})


HANDLE = "Unable to determine the device handle for GPU"
CODES = {
    4: "permission_denied",
    8: "insufficient_power",
    14: "inforom_corrupted",
    15: "gpu_lost",
    16: "reset_required",
    17: "permission_denied",
}


@pytest.mark.parametrize("status", NVML_ERRORS)
def test_each_error_of_nvml_has_one_code(replay: MakeReplay, pci: MakePci, status: int) -> None:
    """In place of one of two GPUs; in the facts, and in the message of a module that was to change it."""
    error = NVML_ERRORS[status]
    code = CODES.get(status, "gpu_not_responding")
    assert failures.code_of(error) == code
    assert unresponsive("GPU 1", error) == f"GPU 1 does not respond: {error.rstrip('.')}; {REMEDIES[code]}"
    pci(*ADDRESSES[:2])
    failed = {"out": f"{HANDLE} {ADDRESSES[1]}: {error}\n", "rc": status % 256}
    facts = run_module(replay({**one_gpu(ADDRESSES[0]), "-q -x": failed, call_for(ADDRESSES[1]): failed}).path)
    assert [(problem["gpu"], problem["code"]) for problem in facts["unhealthy"]] == [("00000000:00:07.0", code)]


@pytest.mark.parametrize("status", [16, 255])
def test_the_only_gpu_requires_a_reset(replay: MakeReplay, pci: MakePci, status: int) -> None:
    pci(ADDRESSES[0])
    failed = {"out": f"{HANDLE}{ADDRESSES[0]}: GPU requires reset\n", "rc": status}
    facts = run_module(replay({"*": failed}).path)
    assert (facts["available"], facts["reason"]) == (False, "reset_required")
    assert facts["message"].endswith(REMEDIES["reset_required"])
    assert [(problem["gpu"], problem["code"]) for problem in facts["unhealthy"]] == [
        ("00000000:00:06.0", "reset_required")
    ]
