# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts that are not in the XML document: vGPUs, compute capability, GSP mode, remote ends and errors of NVLinks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.topology import NvLink, parse_nvlinks
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.vgpu import VGpu, parse_vgpus

from tests.unit.nvidia_smi.facts_support import H200X8, Replay
from tests.unit.nvidia_smi.test_nvidia_smi_facts import CAPABILITY_CALL, NVLINK_CALL, h200x8, nvlinks, run_module

MakeReplay = Callable[[dict[str, dict[str, Any]]], Replay]
MakePci = Callable[..., Path]

# The format of a host with RTX Pro 6000 and of one with driver 525, with invented identifiers.
VGPUS = """\
GPU 00000000:00:06.0
    Active vGPUs                          : 2
    vGPU ID                               : 3251637554
        VM UUID                           : 083bc63f-0000-4000-8000-000000000001
        VM Name                           : instance : one
        vGPU Name                         : NVIDIA RTX Pro 6000 Blackwell DC-3Q
        vGPU Type                         : 1519
        vGPU UUID                         : c47a3625-0000-4000-8000-000000000001
        Guest Driver Version              : 580.159.04
        License Status                    : Licensed (Expiry: 2027-1-1 0:0:0 GMT)
        GPU Instance ID                   : N/A
        Placement ID                      : 0
        PCI
            Bus Id                        : 00000000:00:00.0
        FB Memory Usage
            Total                         : 3072 MiB
            Used                          : 128 MiB
            Free                          : 2944 MiB
        Utilization
            GPU                           : 12 %
            Memory                        : 0 %
        Encoder Stats
            Active Sessions               : 0
    vGPU ID                               : 3251637566
        VM UUID                           :
        VM Name                           : win10,debug-threads=on
        vGPU Type                         : 525
        MDEV UUID                         : 00000000-0000-0000-0000-000000000101
        Guest Driver Version              : Unknown Error
        ECC Mode                          : N/A
        FB Memory Usage
            Total                         : 2048 MiB
        Utilization
            Gpu                           : 0 %

GPU 00000000:00:07.0
    Active vGPUs                          : 0
"""


def test_vgpus() -> None:
    found = parse_vgpus(VGPUS)
    assert found is not None
    assert list(found) == ["00000000:00:06.0", "00000000:00:07.0"]
    first, second = found["00000000:00:06.0"].vgpus
    assert first == VGpu(
        vgpu_id=3251637554,
        uuid="c47a3625-0000-4000-8000-000000000001",
        name="NVIDIA RTX Pro 6000 Blackwell DC-3Q",
        type_id=1519,
        vm_uuid="083bc63f-0000-4000-8000-000000000001",
        vm_name="instance : one",
        guest_driver_version="580.159.04",
        license_status="Licensed (Expiry: 2027-1-1 0:0:0 GMT)",
        placement_id=0,
        memory_total_mib=3072,
        memory_used_mib=128,
        memory_free_mib=2944,
        utilization_gpu_percent=12.0,
        utilization_memory_percent=0.0,
    )
    assert (second.vgpu_id, second.vm_uuid, second.memory_total_mib) == (3251637566, None, 2048)
    reasons = dict(found["00000000:00:06.0"].unknown)
    assert reasons["vgpus.0.gpu_instance_id"] == "not_available"
    assert reasons["vgpus.1.vm_uuid"] == "empty"
    assert reasons["vgpus.1.guest_driver_version"] == "failed"
    assert found["00000000:00:07.0"].vgpus == ()


@pytest.mark.parametrize(
    ("text", "found"), [("No supported devices in vGPU mode\n", {}), ("", None), ("Failed\n", None), ("GPU x\n", None)]
)
def test_no_vgpus(text: str, found: dict[str, Any] | None) -> None:
    assert parse_vgpus(text) == found


def vgpu_host() -> dict[str, dict[str, Any]]:
    document = H200X8.output("-q -x").replace(">Pass-Through<", ">Host VGPU<")
    return {**h200x8(), "-q -x": {"out": document}, "vgpu -q": {"out": VGPUS}}


def test_vgpus_of_a_host(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    program = replay(vgpu_host())
    facts = run_module(program.path, gather_subset=["vgpu"])
    assert program.calls == ["-q -x", "vgpu -q"]
    assert [len(gpu["vgpus"]) for gpu in facts["gpus"]] == [2, 0, 0, 0, 0, 0, 0, 0]
    assert facts["gpus"][0]["vgpus"][1]["vm_name"] == "win10,debug-threads=on"
    assert facts["gpus"][0]["unknown"]["vgpus.1.guest_driver_version"] == "failed"


@pytest.mark.parametrize(
    ("result", "reason"),
    [({"rc": 1}, "failed"), ({"out": "Insufficient Permissions\n", "rc": 4}, "denied")],
)
def test_vgpus_that_cannot_be_listed_cost_only_themselves(
    replay: MakeReplay, pci: MakePci, result: dict[str, Any], reason: str
) -> None:
    pci()
    facts = run_module(replay({**vgpu_host(), "vgpu -q": result}).path, gather_subset=["vgpu"])
    assert facts["available"] is True
    assert facts["gpus"][0]["vgpus"] is None
    assert facts["gpus"][0]["unknown"]["vgpus"] == reason


def test_compute_capability_and_gsp_mode(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    facts = run_module(replay(h200x8()).path, gather_subset=["hardware"])
    for gpu in facts["gpus"]:
        assert (gpu["compute_capability"], gpu["gsp_mode_current"], gpu["gsp_mode_default"]) == (
            "9.0",
            "enabled",
            "enabled",
        )
    assert facts["timestamp"] == "Sat Nov 21 01:26:03 2026"


def test_a_driver_without_gsp_mode_still_has_the_compute_capability(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    older = "--query-gpu=uuid,compute_cap --format=csv,noheader,nounits"
    rows = "".join(
        f"GPU-5ee0000{number}-0000-4000-8000-00000000000{number}, {'[Unknown Error]' if number else '9.0'}\n"
        for number in range(7)
    )
    results = {
        **h200x8(),
        CAPABILITY_CALL: {"out": 'Field "gsp.mode.current" is not a valid field to query.\n\n', "rc": 2},
        older: {"out": rows},
    }
    facts = run_module(replay(results).path, gather_subset=["hardware"])
    first, second, *_others, last = facts["gpus"]
    assert (first["compute_capability"], first["gsp_mode_current"]) == ("9.0", None)
    assert (first["unknown"]["gsp_mode_current"], "compute_capability" in first["unknown"]) == ("absent", False)
    assert second["unknown"]["compute_capability"] == "failed"
    assert last["unknown"]["compute_capability"] == "failed"


@pytest.mark.parametrize("result", [{"rc": 1}, {"out": "<html>", "rc": 0}, {"err": "boom\n", "rc": 255}])
def test_optional_calls_that_fail_never_fail_the_facts(
    replay: MakeReplay, pci: MakePci, result: dict[str, Any]
) -> None:
    pci("0000:00:06.0", "0000:00:07.0")
    results = {**h200x8(), CAPABILITY_CALL: result, NVLINK_CALL: result, "topo -m": result}
    results["-q -x -i 00000000:00:06.0"] = results["-q -x"]
    results["-q -x -i 00000000:00:07.0"] = results["-q -x"]
    facts = run_module(replay(results).path)
    assert (facts["available"], facts["gpu_count"], facts["topology"]) == (True, 8, [])
    assert facts["gpus"][0]["nvlinks"] == []
    assert facts["gpus"][0]["unknown"]["compute_capability"] == "failed"
    assert [gpu["index"] for gpu in facts["gpus"]] == list(range(8))


def test_ends_and_errors_of_nvlinks() -> None:
    """Lines of a host with A100 and NVSwitches, of a guest with H200, and of a link that is down."""
    text = (
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n"
        "\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n\t Link 2: Unknown Error\n"
        "\t Link 0: Remote Device 00000008:00:00.0: Link 29\n\t Link 2: Remote Device FFFFFFFF:FF:FF.0: Link 0\n"
        "\t Link 0: Replay Errors: 0\n\t Link 0: Recovery Errors: 3\n\t Link 0: CRC Errors: N/A\n\n"
        "\t Link 2: Effective BER: 1.5e-254\n\t Link 2: Symbol Errors: nan\n"
    )
    zero, one, two = parse_nvlinks(text)["GPU-1"]
    assert zero == NvLink(
        0,
        True,
        25.0,
        "00000008:00:00.0",
        29,
        (("replay_errors", 0), ("recovery_errors", 3), ("crc_errors", None)),
    )
    assert one == NvLink(1, False)
    assert two == NvLink(2, None, None, None, None, (("effective_ber", 1.5e-254), ("symbol_errors", None)))


def test_nvlinks_of_a_host(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    facts = run_module(replay(h200x8()).path, gather_subset=["!all", "nvlink"])
    assert len(facts["gpus"]) == 8
    for gpu in facts["gpus"]:
        assert [link["link"] for link in gpu["nvlinks"]] == list(range(18))
        for link in gpu["nvlinks"]:
            assert link["error_counters"] == {"replay_errors": 0, "recovery_errors": 0, "crc_errors": 0}
            assert (link["remote_pci_bus_id"], link["remote_link"], link["active"]) == (None, None, True)


def test_a_driver_without_these_options_still_reports_the_state(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    results = {
        **h200x8(),
        NVLINK_CALL: {"out": 'Option "-R" is not recognized.\n', "rc": 2},
        "nvlink -s": {"out": H200X8.output("nvlink -s")},
    }
    facts = run_module(replay(results).path, gather_subset=["!all", "nvlink"])
    assert {link["active"] for gpu in facts["gpus"] for link in gpu["nvlinks"]} == {True}
    assert all(link["error_counters"] == {} for gpu in facts["gpus"] for link in gpu["nvlinks"])
    assert "Remote Device" in nvlinks()
