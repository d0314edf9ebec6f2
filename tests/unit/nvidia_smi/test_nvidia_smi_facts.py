# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole module nvidia_smi_facts, with programs that replay recorded hosts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils._host.facts import GPU_SUBSETS
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.modules import nvidia_smi_facts

from tests.unit.module_runs import disagreements
from tests.unit.nvidia_smi.facts_support import H200X1, H200X4, H200X8, WRITTEN, Replay, gpu_elements
from tests.unit.recordings.recording import Recording

Replies = dict[str, dict[str, Any]]
MakeReplay = Callable[[Replies], Replay]
MakePci = Callable[..., Path]

ROOT = Path(__file__).resolve().parents[3]
H200 = H200X8.output("-q -x")
ADDRESSES = tuple(f"0000:00:{number:02x}.0" for number in range(6, 14))
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n\n"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.163\n"
LOST = "Unable to determine the device handle for GPU0000:00:07.0: GPU is lost.  Reboot the system to recover\n"
MIN_FIELDS = (
    "index,driver_version,uuid,name,serial,pci.bus_id,memory.total,memory.used,memory.free,ecc.mode.current,"
    "ecc.mode.pending,mig.mode.current,mig.mode.pending,persistence_mode,compute_mode,power.limit"
)
MIN_CALL = f"--query-gpu={MIN_FIELDS} --format=csv,noheader,nounits"
GPU_LIST = H200X8.output("-L")


OPTIONS: dict[str, Any] = nvidia_smi_facts.ARGUMENT_SPEC
DEFAULTS = {name: OPTIONS[name]["default"] for name in ("gather_subset", "explain")}


def run_module(executable: object, **options: Any) -> dict[str, Any]:
    """Run the module as Ansible does and return its facts; the result must be JSON with nothing but facts.

    Everything is gathered and explained, unless the options differ; DEFAULTS are those that a task without options has.
    """
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *strings, **_more: printed.extend(map(str, strings)))
        arguments = {"executable": str(executable), "gather_subset": ["all"], "explain": True, **options}
        with patch_module_args(arguments), pytest.raises(SystemExit) as ended:
            nvidia_smi_facts.main()
    result = json.loads(printed[-1])
    assert ended.value.code == 0, result
    assert set(result) - {"invocation"} == {"ansible_facts"}
    assert set(result["ansible_facts"]) == {"nvidia_smi"}
    facts: dict[str, Any] = result["ansible_facts"]["nvidia_smi"]
    return facts


def part(*addresses: str) -> str:
    """The 8-GPU document as `-i` with `addresses` prints it."""
    desired = {address.upper() for address in addresses}
    blocks = [block for block in gpu_elements(H200) if re.search(r'id="0000(.*?)"', block)[1] in desired]  # type: ignore[index]
    head = H200[: H200.index("<gpu id=")]
    return head + "\n".join(blocks) + "\n</nvidia_smi_log>\n"


def min_rows(fields: str = MIN_FIELDS) -> str:
    """CSV output for `fields` on the 8-GPU host, taken from its recorded query for all fields."""
    rows = (
        [row[field].replace(" MiB", "").replace(" W", "") for field in fields.split(",")] for row in H200X8.query_gpu()
    )
    return "".join(", ".join(row) + "\n" for row in rows)


CAPABILITY_CALL = "--query-gpu=uuid,compute_cap,gsp.mode.current,gsp.mode.default --format=csv,noheader,nounits"
NVLINK_CALL = "nvlink -s -e -R"


def nvlinks() -> str:
    """Output of a host with H200 for state, remote ends and errors of its links, in this order."""
    printed = []
    for block in re.findall(r"GPU \d+: .*\n(?:\t.*\n)+", H200X8.output("nvlink -s")):
        numbers = re.findall(r"Link (\d+):", block)
        counters = ("Replay", "Recovery", "CRC")
        remote = (f"\t Link {number}: Remote Device FFFFFFFF:FF:FF.0: Link 0\n" for number in numbers)
        errors = (
            "".join(f"\t Link {number}: {counter} Errors: 0\n" for counter in counters) + "\n" for number in numbers
        )
        printed += [block, *remote, *errors]
    return "".join(printed)


def h200x8(*absent: str) -> Replies:
    """All output of the 8-GPU host: the groups that the module queries, single GPUs, lists."""
    results: Replies = {
        "-q -x": {"out": H200X8.output("-q -x")},
        "-L": {"out": H200X8.output("-L")},
        "topo -m": {"out": H200X8.output("topo -m")},
        NVLINK_CALL: {"out": nvlinks()},
        CAPABILITY_CALL: {"out": min_rows("uuid,compute_cap,gsp.mode.current,gsp.mode.default")},
        MIN_CALL: {"out": min_rows()},
    }
    groups = [ADDRESSES[start::3] for start in range(3)]
    for group in (*groups, *((address,) for address in ADDRESSES)):
        names = ",".join(f"0000{address}".upper() for address in group)
        results[f"-q -x -i {names}"] = {"out": part(*group)}
    return {call: reply for call, reply in results.items() if call not in absent}


def group_of(address: str) -> str:
    """The call for the group that contains `address`."""
    return next(call for call in h200x8() if call.startswith("-q -x -i ") and "," in call and address.upper() in call)


def call_for(address: str) -> str:
    """The call for a single GPU."""
    return f"-q -x -i 0000{address}".upper().replace("-Q -X -I", "-q -x -i")


def test_all_of_an_8_gpu_host(replay: MakeReplay, pci: MakePci) -> None:
    pci(*ADDRESSES)
    program = replay(h200x8())
    facts = run_module(program.path)
    assert sorted(program.calls) == sorted(
        [*(group_of(address) for address in ADDRESSES[:3]), CAPABILITY_CALL, NVLINK_CALL, "topo -m"]
    )
    assert (facts["available"], facts["reason"], facts["message"]) == (True, None, None)
    assert (facts["driver_version"], facts["cuda_version"], facts["gpu_count"]) == ("580.159.04", "13.0", 8)
    assert [gpu["index"] for gpu in facts["gpus"]] == list(range(8))
    assert [gpu["uuid"] for gpu in facts["gpus"]] == re.findall(r"UUID: (GPU-[^)]+)", GPU_LIST)
    assert facts["unhealthy"] == facts["warnings"] == []
    assert [gpu["pci_bus_id"] for gpu in facts["pci_gpus"]] == [f"0000{address}" for address in ADDRESSES]
    assert facts["topology"][3]["links"] == {f"GPU{number}": "NV18" for number in range(8) if number != 3}
    assert len(facts["gpus"][5]["nvlinks"]) == 18
    assert all(link["active"] and link["speed_gb_per_second"] == 26.562 for link in facts["gpus"][5]["nvlinks"])
    assert facts["gpus"][0]["processes"] == facts["gpus"][0]["mig_devices"] == []


def test_the_parts_lose_nothing_of_the_whole(replay: MakeReplay, pci: MakePci) -> None:
    whole = run_module(replay(h200x8()).path)
    pci(*ADDRESSES)
    parts = run_module(replay(h200x8()).path)
    assert parts["gpus"] == whole["gpus"]
    assert parts["topology"] == whole["topology"]


def test_every_call_is_in_the_c_locale(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    program = replay(h200x8())
    run_module(program.path)
    assert {entry["LC_ALL"] for entry in program.entries} == {"C"}


# Requested subsets, and the calls on a host with one GPU, which is on the PCI bus.
SUBSET_CALLS: dict[str, tuple[list[str], list[str]]] = {
    "min": (["min"], [MIN_CALL]),
    "!all": (["!all"], [MIN_CALL]),
    "topology": (["topology"], [MIN_CALL, "topo -m"]),
    "nvlink": (["!all", "nvlink"], [MIN_CALL, NVLINK_CALL]),
    "ecc": (["ecc"], ["-q -x"]),
    "mig without MIG mode": (["mig"], ["-q -x"]),
    "several parts": (["ecc", "power", "clocks", "processes"], ["-q -x"]),
    "hardware": (["hardware"], [CAPABILITY_CALL, "-q -x"]),
    "vgpu without vGPUs": (["vgpu"], ["-q -x"]),
    "all": (["all"], [CAPABILITY_CALL, "-q -x", NVLINK_CALL, "topo -m"]),
    "not topology": (["!topology"], [CAPABILITY_CALL, "-q -x", NVLINK_CALL]),
    "all but two": (["all", "!topology", "!nvlink"], [CAPABILITY_CALL, "-q -x"]),
    "all but three": (["all", "!topology", "!nvlink", "!hardware"], ["-q -x"]),
}


@pytest.mark.parametrize("name", SUBSET_CALLS)
def test_calls_of_a_subset(replay: MakeReplay, pci: MakePci, name: str) -> None:
    subset, calls = SUBSET_CALLS[name]
    pci(ADDRESSES[0])
    program = replay(h200x8())
    facts = run_module(program.path, gather_subset=subset)
    assert sorted(program.calls) == calls
    assert facts["available"] is True
    assert facts["gathered"] == sorted(smi_facts.chosen_subsets(subset))


def test_min_agrees_with_the_document(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    program = replay(h200x8())
    quick = run_module(program.path, gather_subset=["min"])
    full = run_module(program.path)
    for less, more in zip(quick["gpus"], full["gpus"], strict=True):
        assert {name: more[name] for name in less if name != "unknown"} == {
            name: less[name] for name in less if name != "unknown"
        }
    assert quick["driver_version"] == full["driver_version"]


def test_excluded_parts_are_not_there(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    facts = run_module(replay(h200x8()).path, gather_subset=["!topology", "!clocks", "!processes"])
    gpu = facts["gpus"][0]
    assert facts["topology"] is None
    assert not {"processes", "clock_sm_mhz", "slowdown_hw"} & set(gpu)
    assert gpu["temperature_gpu_c"] == 34
    assert not {name for name in gpu["unknown"] if name.startswith(("clock_", "processes"))}


def test_a_driver_without_mig_still_replies_min(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    older = MIN_FIELDS.replace("mig.mode.current,mig.mode.pending,", "")
    program = replay(
        {
            MIN_CALL: {"out": 'Field "mig.mode.current" is not a valid field to query.\n\n', "rc": 2},
            f"--query-gpu={older} --format=csv,noheader,nounits": {"out": min_rows(older)},
        }
    )
    facts = run_module(program.path, gather_subset=["min"])
    assert len(program.calls) == 2
    gpu = facts["gpus"][7]
    assert (gpu["memory_total_mib"], gpu["mig_mode_current"], gpu["mig_capable"]) == (143771, None, False)
    assert gpu["unknown"]["mig_mode_current"] == "absent"


def test_unknown_in_csv_has_its_reason(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    row = (
        "0, 610.57.04, GPU-1, NVIDIA GeForce RTX 2080 SUPER, [N/A], 00000000:0C:00.0, 8192, 211, [GPU requires reset], "
        "[N/A], N/A, [N/A], [Not Supported], Disabled, [Unknown Error], [Insufficient Permissions]\n"
    )
    facts = run_module(replay({MIN_CALL: {"out": row}}).path, gather_subset=["min"])
    (gpu,) = facts["gpus"]
    assert gpu["unknown"] == {
        "serial": "not_available",
        "memory_free_mib": "reset_required",
        "ecc_mode_current": "not_available",
        "ecc_mode_pending": "not_available",
        "mig_mode_current": "not_available",
        "mig_mode_pending": "not_supported",
        "compute_mode": "failed",
        "power_limit_w": "denied",
    }
    assert all(gpu[name] is None for name in gpu["unknown"])
    assert [problem["code"] for problem in facts["unhealthy"]] == ["reset_required"]


# Output of nvidia-smi, whether the bus has GPUs, and the reason. None: nvidia-smi is not installed.
NO_REPLY: dict[str, tuple[dict[str, Any] | None, bool, str]] = {
    "nothing at all": (None, False, "no_gpu"),
    "driver not installed": (None, True, "no_driver"),
    "driver not loaded": ({"out": NO_DRIVER, "rc": 9}, True, "not_loaded"),
    "driver newer than library": ({"out": MISMATCH, "rc": 18}, True, "version_mismatch"),
    "no GPU": ({"out": "No devices were found\n", "rc": 6}, False, "no_gpu"),
    "no GPU that the driver takes": ({"out": "No devices were found\n", "rc": 6}, True, "no_gpu"),
    "not allowed": (
        {"out": "Failed to initialize NVML: Insufficient Permissions\n", "rc": 4},
        True,
        "permission_denied",
    ),
    "container without devices": ({"out": "Failed to initialize NVML: Unknown Error\n", "rc": 255}, True, "failed"),
    "library missing": (
        {"out": "NVIDIA-SMI couldn't find libnvidia-ml.so library\n", "rc": 12},
        True,
        "library_missing",
    ),
    "silence": ({"rc": 1}, True, "failed"),
    "something else": ({"out": "<html>proxy error</html>", "rc": 0}, True, "failed"),
    "document cut in its first GPU": ({"out": H200[:20_000], "rc": 0}, True, "broken_xml"),
}


@pytest.mark.parametrize("name", NO_REPLY)
@pytest.mark.parametrize(("subset", "gpus"), [("all", 1), ("all", 8), ("min", 8)])
def test_no_reply(replay: MakeReplay, pci: MakePci, name: str, subset: str, gpus: int) -> None:
    reply, on_bus, reason = NO_REPLY[name]
    pci(*ADDRESSES[: gpus if on_bus else 0])
    path = Path("/nonexistent/nvidia-smi") if reply is None else replay({"*": reply}).path
    if subset == "min" and reason == "broken_xml":
        reason = "failed"
    facts = run_module(path, gather_subset=[subset])
    assert (facts["available"], facts["reason"]) == (False, reason)
    assert facts["message"]
    assert (facts["gpu_count"], facts["driver_version"]) == (0, None)
    assert len(facts["pci_gpus"]) == (gpus if on_bus else 0)
    codes = {problem["code"] for problem in facts["unhealthy"]}
    if reason == "no_gpu":
        assert codes == ({"gpu_missing"} if on_bus else set())
    elif reason == "version_mismatch":
        assert codes == {"driver_library_mismatch"}
    else:
        assert reason in codes


def test_a_loaded_driver_without_nvidia_smi(tmp_path: Path, pci: MakePci, monkeypatch: pytest.MonkeyPatch) -> None:
    pci(ADDRESSES[0])
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n")
    monkeypatch.setattr(smi_facts, "LOADED_VERSION", str(version))
    assert run_module(tmp_path / "missing")["reason"] == "no_nvidia_smi"


def test_a_hanging_nvidia_smi_is_ended(replay: MakeReplay, pci: MakePci) -> None:
    pci(ADDRESSES[0])
    program = replay({"*": {"seconds": 60, "child": True}})
    facts = run_module(program.path, timeout=1.5)
    assert (facts["available"], facts["reason"]) == (False, "timeout")
    assert "did not respond" in facts["message"]
    assert [problem["code"] for problem in facts["unhealthy"]] == ["timeout"]


def test_one_hanging_gpu_does_not_hide_the_others(replay: MakeReplay, pci: MakePci) -> None:
    pci(*ADDRESSES)
    results = h200x8()
    for call in (group_of(ADDRESSES[1]), call_for(ADDRESSES[1])):
        results[call] = {"seconds": 60}
    facts = run_module(replay(results).path, timeout=8)
    assert facts["available"] is True
    assert len(facts["gpus"]) == 8
    failed = [gpu for gpu in facts["gpus"] if gpu["error"]]
    assert [gpu["pci_bus_id"] for gpu in failed] == ["00000000:00:07.0"]
    assert "did not respond" in failed[0]["error"]
    assert failed[0]["memory_total_mib"] is None
    assert [(problem["gpu"], problem["code"]) for problem in facts["unhealthy"]] == [
        ("00000000:00:07.0", "gpu_not_responding")
    ]
    assert sorted(gpu["index"] for gpu in facts["gpus"] if not gpu["error"]) == [0, 2, 3, 4, 5, 6, 7]


SPELLINGS = [
    "Unable to determine the device handle for GPU0000:00:07.0: GPU is lost.  Reboot the system to recover this GPU\n",
    "Unable to determine the device handle for GPU 0000:00:07.0: GPU is lost.  Reboot the system to recover this GPU\n",
    "Unable to determine the device handle for GPU1: 0000:00:07.0: GPU is lost.  Reboot the system to recover\n",
    "Unable to determine the device handle for gpu 0000:00:07.0: GPU is lost.  Reboot the system to recover\n",
    "Unable to determine the device handle for GPU1: GPU is lost.  Reboot the system to recover this GPU\n",
]


@pytest.mark.parametrize("line", SPELLINGS)
def test_a_lost_gpu_that_takes_its_group_along(replay: MakeReplay, pci: MakePci, line: str) -> None:
    pci(*ADDRESSES)
    results = h200x8()
    for call in (group_of(ADDRESSES[1]), call_for(ADDRESSES[1]), NVLINK_CALL, "-q -x", MIN_CALL):
        results[call] = {"out": line, "rc": 15}
    results["-L"] = {"out": re.sub(r"GPU 1: .*\n", line, GPU_LIST), "rc": 15}
    facts = run_module(replay(results).path)
    assert len(facts["gpus"]) == 8
    lost = [gpu for gpu in facts["gpus"] if gpu["error"]]
    assert [gpu["pci_bus_id"] for gpu in lost] == ["00000000:00:07.0"]
    assert "GPU is lost" in lost[0]["error"]
    assert [(problem["gpu"], problem["code"]) for problem in facts["unhealthy"]] == [("00000000:00:07.0", "gpu_lost")]
    assert {gpu["index"]: gpu["pci_bus_id"] for gpu in facts["gpus"] if not gpu["error"]} == {
        number: f"0000{address}" for number, address in enumerate(ADDRESSES) if number != 1
    }


def test_a_lost_gpu_in_min_leaves_the_others(replay: MakeReplay, pci: MakePci) -> None:
    pci(*ADDRESSES)
    rows = min_rows().splitlines(keepends=True)
    uuids = re.findall(r"UUID: (GPU-[^)]+)", GPU_LIST)
    others = ",".join(uuid for number, uuid in enumerate(uuids) if number != 1)
    program = replay(
        {
            MIN_CALL: {"out": LOST, "rc": 15},
            "-L": {"out": re.sub(r"GPU 1: .*\n", LOST, GPU_LIST), "rc": 15},
            f"{MIN_CALL} -i {others}": {"out": "".join(rows[:1] + rows[2:])},
        }
    )
    facts = run_module(program.path, gather_subset=["min"])
    assert facts["available"] is True
    assert len(facts["gpus"]) == 8
    assert [gpu["pci_bus_id"] for gpu in facts["gpus"] if gpu["error"]] == ["00000000:00:07.0"]


def test_a_lost_gpu_that_the_document_leaves_out(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    kept = [address for number, address in enumerate(ADDRESSES) if number != 1]
    program = replay(
        {
            "-q -x": {"out": LOST + part(*kept), "rc": 15},
            "-L": {"out": re.sub(r"GPU 1: .*\n", LOST, GPU_LIST), "rc": 15},
        }
    )
    facts = run_module(program.path, gather_subset=["ecc"])
    assert [gpu["index"] for gpu in facts["gpus"] if not gpu["error"]] == [0, 2, 3, 4, 5, 6, 7]
    assert [gpu["pci_bus_id"] for gpu in facts["gpus"] if gpu["error"]] == ["00000000:00:07.0"]
    assert LOST.strip() in facts["warnings"]


def test_the_only_gpu_is_lost(replay: MakeReplay, pci: MakePci) -> None:
    pci(ADDRESSES[1])
    facts = run_module(replay({"*": {"out": LOST, "rc": 15}}).path)
    assert (facts["available"], facts["reason"], facts["gpu_count"]) == (False, "gpu_lost", 1)
    assert [(problem["gpu"], problem["code"]) for problem in facts["unhealthy"]] == [("00000000:00:07.0", "gpu_lost")]


def test_a_container_that_is_given_one_gpu_of_eight(replay: MakeReplay, pci: MakePci) -> None:
    pci(*ADDRESSES)
    one = part(ADDRESSES[2]).replace("<attached_gpus>8<", "<attached_gpus>1<")
    program = replay(
        {
            "*": {"out": "No devices were found\n", "rc": 6},
            "-q -x": {"out": one},
            call_for(ADDRESSES[2]): {"out": one},
            "-q -x -i GPU-5ee00002-0000-4000-8000-000000000002": {"out": one},
            "-L": {"out": "GPU 0: NVIDIA H200 (UUID: GPU-5ee00002-0000-4000-8000-000000000002)\n"},
        }
    )
    facts = run_module(program.path, gather_subset=["memory"])
    assert [(gpu["index"], gpu["pci_bus_id"], gpu["error"]) for gpu in facts["gpus"]] == [(0, "00000000:00:08.0", None)]
    assert {problem["code"] for problem in facts["unhealthy"]} == {"gpu_missing"}


@pytest.mark.parametrize("subset", ["all", "memory"])
def test_a_document_that_counts_more_gpus_than_it_describes_is_a_problem(
    replay: MakeReplay, pci: MakePci, subset: str
) -> None:
    pci(ADDRESSES[0])
    document = part(ADDRESSES[0]).replace("<attached_gpus>8<", "<attached_gpus>2<")
    device = H200X8.output("-L").splitlines(keepends=True)[0]
    replies: Replies = {
        "*": {"out": "No devices were found\n", "rc": 6},
        "-q -x": {"out": document},
        "-L": {"out": device},
    }
    facts = run_module(replay(replies).path, gather_subset=[subset])
    ((code, message),) = ((problem["code"], problem["message"]) for problem in facts["unhealthy"])
    assert code == "broken_xml" and "it counts 2 GPUs and describes 1" in message


def test_a_gpu_given_to_a_virtual_machine_is_not_missing(replay: MakeReplay, pci: MakePci) -> None:
    pci(*ADDRESSES[:7])
    pci(ADDRESSES[7], driver="vfio-pci")
    kept = part(*ADDRESSES[:7]).replace("<attached_gpus>8<", "<attached_gpus>7<")
    results = h200x8()
    for call in (call for call in results if call.startswith("-q -x")):
        results[call] = {"out": results[call].get("out", kept).replace("attached_gpus>8<", "attached_gpus>7<")}
    results[group_of(ADDRESSES[7])] = results[call_for(ADDRESSES[7])] = {"out": "No devices were found\n", "rc": 6}
    facts = run_module(replay(results).path)
    assert facts["gpu_count"] == 7
    assert facts["unhealthy"] == []


def test_inforom_warning_after_the_table(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    line = "WARNING: infoROM is corrupted at gpu 0000:00:09.0"
    results = h200x8()
    results["-q -x"] = {"out": f"{H200}{line}\n", "rc": 14}
    facts = run_module(replay(results).path)
    assert facts["available"] is True
    assert facts["warnings"] == [line]
    assert [(problem["gpu"], problem["code"]) for problem in facts["unhealthy"]] == [
        ("GPU-5ee00003-0000-4000-8000-000000000003", "inforom_corrupted")
    ]


def test_standard_error_does_not_spoil_the_document(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    results = h200x8()
    results["-q -x"] = {**results["-q -x"], "err": "dlopen: no version information available\n"}
    facts = run_module(replay(results).path)
    assert facts["gpu_count"] == 8
    assert facts["warnings"] == ["dlopen: no version information available"]


MIG_LIST = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-bbbbbbbb-0000-0000-0000-000000000001)
  MIG 3g.40gb     Device  0: (UUID: MIG-00000000-0000-0000-0000-000000000000)
  MIG 1g.10gb     Device  1: (UUID: MIG-00000001-0000-0000-0000-000000000001)
"""
MIG_INSTANCES = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb         19        9          2:1     |
+-------------------------------------------------------+
|   0  MIG 2g.20gb         14        5          0:2     |
+-------------------------------------------------------+
|   0  MIG 3g.40gb          9        2          4:4     |
+-------------------------------------------------------+
"""
MIG_COMPUTE = """\
+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   0      2       MIG 3g.40gb          2         0          0:3     |
+--------------------------------------------------------------------+
|   0      9       MIG 1g.10gb          0         0          0:1     |
+--------------------------------------------------------------------+
"""


def mig_results() -> Replies:
    return {
        "-q -x": {"file": str(WRITTEN / "v12-535-mig-a100.xml")},
        "-L": {"out": MIG_LIST},
        "mig -lgi": {"out": MIG_INSTANCES},
        "mig -lci": {"out": MIG_COMPUTE},
    }


def test_mig_devices_are_joined_with_their_lists(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    program = replay(mig_results())
    facts = run_module(program.path, gather_subset=["mig"])
    assert sorted(program.calls) == ["-L", "-q -x", "mig -lci", "mig -lgi"]
    (gpu,) = facts["gpus"]
    names = ("index", "uuid", "profile", "gpu_instance_id", "compute_instance_id", "placement_start", "placement_size")
    assert [tuple(device[name] for name in names) for device in gpu["mig_devices"]] == [
        (0, "MIG-00000000-0000-0000-0000-000000000000", "3g.40gb", 2, 0, 4, 4),
        (1, "MIG-00000001-0000-0000-0000-000000000001", "1g.10gb", 9, 0, 2, 1),
    ]
    assert gpu["mig_devices"][0]["memory_total_mib"] == 40192
    assert gpu["mig_devices"][1]["memory_used_mib"] is None
    assert gpu["unknown"]["mig_devices.1.memory_used_mib"] == "not_available"
    instances = {item["gpu_instance_id"]: item for item in gpu["gpu_instances"]}
    assert {number: len(item["compute_instances"]) for number, item in instances.items()} == {2: 1, 5: 0, 9: 1}
    assert instances[2]["compute_instances"][0] == {
        "compute_instance_id": 0,
        "profile": "3g.40gb",
        "profile_id": 2,
        "placement_start": 0,
        "placement_size": 3,
    }


def test_an_ordinary_user_sees_mig_devices_without_placement(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    results = mig_results()
    results["mig -lgi"] = {"out": "Failed to display GPU instances: Insufficient Permissions\n", "rc": 4}
    results["mig -lci"] = {"out": "No GPU instances found: Insufficient Permissions\n", "rc": 4}
    facts = run_module(replay(results).path, gather_subset=["mig", "power"])
    (gpu,) = facts["gpus"]
    assert [device["uuid"] for device in gpu["mig_devices"]] == re.findall(r"UUID: (MIG-[^)]+)", MIG_LIST)
    assert [device["placement_start"] for device in gpu["mig_devices"]] == [None, None]
    assert gpu["unknown"]["mig_devices.0.placement_start"] == "denied"
    assert gpu["unknown"]["gpu_instances"] == "denied"
    assert gpu["unknown"]["power_smoothing"] == "denied"
    assert any("Insufficient Permissions" in line for line in facts["warnings"])


# Selectors, and the indexes of the selected GPUs out of 8; None: a warning.
SELECTORS: list[tuple[list[str], list[int] | None]] = [
    (["all"], [0, 1, 2, 3, 4, 5, 6, 7]),
    (["3"], [3]),
    (["5", "2", "5"], [2, 5]),
    (["GPU-5ee00004-0000-4000-8000-000000000004"], [4]),
    (["gpu-5EE00004-0000-4000-8000-000000000004"], [4]),
    (["00000000:00:0A.0"], [4]),
    (["0000:00:0a.0", "00:06.0"], [0, 4]),
    (["NVIDIA H2*"], [0, 1, 2, 3, 4, 5, 6, 7]),
    (["nvidia h200"], [0, 1, 2, 3, 4, 5, 6, 7]),
    (["8"], None),
    (["*A100*"], None),
    (["0000:01:06.0"], None),
]


@pytest.mark.parametrize(("selectors", "indexes"), SELECTORS)
def test_gpus_can_be_chosen(replay: MakeReplay, pci: MakePci, selectors: list[str], indexes: list[int] | None) -> None:
    pci()
    facts = run_module(replay(h200x8()).path, gather_subset=["min"], gpus=selectors)
    assert [gpu["index"] for gpu in facts["gpus"]] == (indexes or [])
    assert facts["gpu_count"] == 8
    assert len(facts["warnings"]) == (indexes is None)
    if indexes is None:
        assert selectors[0] in facts["warnings"][0]


def test_problems_of_other_gpus_are_not_shown(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    program = replay({"-q -x": {"file": str(WRITTEN / "v6-340-gtx.xml")}})
    codes = {"ecc_uncorrectable", "page_retirement_pending", "ecc_mode_pending"}
    everything = run_module(program.path, gather_subset=["ecc"])
    assert {problem["code"] for problem in everything["unhealthy"]} == codes
    assert run_module(program.path, gather_subset=["ecc"], gpus=["1"])["unhealthy"] == []


# --- results match RETURN ------------------------------------------------------------------------------------------


def documented_facts() -> dict[str, Any]:
    returned: dict[str, Any] = yaml.safe_load(nvidia_smi_facts.RETURN)
    facts: dict[str, Any] = returned["ansible_facts"]["contains"]["nvidia_smi"]
    return facts


RESULTS: dict[str, Callable[[], Replies]] = {
    "8 H200": h200x8,
    "MIG": mig_results,
    "old": lambda: {"-q -x": {"file": str(WRITTEN / "v6-340-gtx.xml")}},
    "unknown": lambda: {"-q -x": {"file": str(WRITTEN / "v14-unknown-layout.xml")}},
    "lost": lambda: {"*": {"out": LOST, "rc": 15}},
    "none": lambda: {"*": {"out": NO_DRIVER, "rc": 9}},
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("subset", ["all", "min"])
def test_return_is_what_comes_back(replay: MakeReplay, pci: MakePci, name: str, subset: str) -> None:
    pci("0000:00:06.0", numa_node="1")
    facts = run_module(replay(RESULTS[name]()).path, gather_subset=[subset])
    assert list(disagreements(documented_facts(), facts, "nvidia_smi")) == []


HOST_BYTES = 40_000
IF_THE_GPU_HAS = " and the GPU has this reading"
MISSING = ("absent", "not_available", "not_supported", "deprecated")


def test_facts_of_eight_gpus_are_small(replay: MakeReplay, pci: MakePci) -> None:
    """Those of a task without options, and those that the roles read."""
    pci(*ADDRESSES)
    program = replay(h200x8())
    facts = run_module(program.path, **DEFAULTS)
    assert set(facts["gathered"]) == set(smi_facts.SUBSETS) - {"clocks", "supported_clocks", "nvlink", "topology"}
    assert len(json.dumps(facts)) <= HOST_BYTES
    subsets = smi_facts.chosen_subsets(GPU_SUBSETS)
    facts = smi_facts.gather(smi_facts.FactsRequest(str(program.path), subsets, explain=False))
    assert facts["gpu_count"] == len(ADDRESSES)
    assert len(json.dumps(facts)) <= HOST_BYTES


@pytest.mark.parametrize("name", ["8 H200", "MIG", "old", "unknown"])
def test_only_readings_that_a_gpu_does_not_have_are_left_out(replay: MakeReplay, pci: MakePci, name: str) -> None:
    pci("0000:00:06.0")
    program = replay(RESULTS[name]()).path
    explained, plain = run_module(program), run_module(program, explain=False)
    documented = documented_facts()["contains"]["gpus"]["contains"]
    for with_reasons, without in zip(explained["gpus"], plain["gpus"], strict=True):
        reasons = with_reasons.pop("unknown")
        missing = {reading for reading, reason in reasons.items() if reason in MISSING}
        assert without.pop("unknown") == {reading: reasons[reading] for reading in reasons.keys() - missing}
        for group in ("ecc_errors_volatile", "ecc_errors_aggregate"):
            inner = with_reasons[group]
            with_reasons[group] = {item: inner[item] for item in inner if f"{group}.{item}" not in missing}
        optional = {key for key in missing & documented.keys() if documented[key]["returned"].endswith(IF_THE_GPU_HAS)}
        assert all(with_reasons.pop(key) is None for key in optional)
        assert without == with_reasons
    assert any(gpu.keys() != documented.keys() for gpu in plain["gpus"])


def test_whole_gpus_before_a_cut_are_used(replay: MakeReplay, pci: MakePci) -> None:
    """The document is cut off in the third of four GPUs; of single queries for the last two, one succeeds."""
    pci(*(address for address in ADDRESSES[:4]))
    cut = [match.start() for match in re.finditer("</gpu>", H200)][2] - 500
    results: Replies = {
        "-q -x": {"out": H200[:cut].replace("attached_gpus>8<", "attached_gpus>4<")},
        "-L": {"out": "".join(GPU_LIST.splitlines(keepends=True)[:4])},
        "*": {"out": "no reply", "rc": 1},
        call_for(ADDRESSES[3]): {"out": part(ADDRESSES[3]).replace("attached_gpus>8<", "attached_gpus>4<")},
    }
    pci_calls = [call for call in h200x8() if call.startswith("-q -x")]
    results.update({call: results["-q -x"] for call in pci_calls if call not in results})
    results.update(
        {f"-q -x -i {','.join(f'0000{a}' for a in ADDRESSES[n:4:2]).upper()}": results["-q -x"] for n in (0, 1)}
    )
    results[call_for(ADDRESSES[2])] = {"out": "no reply", "rc": 1}
    facts = run_module(replay(results).path, gather_subset=["memory"])
    assert (facts["available"], facts["reason"], facts["gpu_count"]) == (True, None, 4)
    assert [gpu["memory_total_mib"] for gpu in facts["gpus"] if gpu["error"] is None] == [143771] * 3
    (broken,) = (gpu for gpu in facts["gpus"] if gpu["error"] is not None)
    assert broken["pci_bus_id"] == f"0000{ADDRESSES[2]}"
    assert "without </nvidia_smi_log>" in broken["error"]
    assert broken["unknown"]["memory_total_mib"] == broken["unknown"]["uuid"] == "broken_xml"
    assert broken["mig_capable"] is None
    assert [problem["code"] for problem in facts["unhealthy"]] == ["broken_xml"]
    assert any("without </nvidia_smi_log>" in line for line in facts["warnings"])


def test_a_damaged_gpu_is_asked_for_again(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    damaged = H200.replace("<fb_memory_usage>", "<fb_memory_usage", 1)
    facts = run_module(replay({"-q -x": {"out": damaged}, "-L": {"out": GPU_LIST}}).path, gather_subset=["memory"])
    assert (facts["available"], facts["gpu_count"]) == (True, 8)
    assert [gpu["index"] for gpu in facts["gpus"]] == list(range(8))
    assert [problem["code"] for problem in facts["unhealthy"]] == ["broken_xml"]
    assert facts["gpus"][0]["unknown"]["uuid"] == "broken_xml"
    assert facts["gpus"][1]["memory_total_mib"] == 143771
    pci(ADDRESSES[0])
    results = {"-q -x": {"out": damaged}, "-L": {"out": GPU_LIST}, call_for(ADDRESSES[0]): {"out": part(ADDRESSES[0])}}
    again = run_module(replay(results).path, gather_subset=["memory"])
    assert [gpu["index"] for gpu in again["gpus"]] == list(range(8))
    assert again["gpus"][0]["memory_total_mib"] == 143771
    assert again["unhealthy"] == []


# Readings that change between two calls.
VOLATILE = re.compile(r"(temperature|power_draw|memory_power|utilization|clock|slowdown)_|pci_[rt]x_")


# Keys that are newer than the recordings, and than that on 4 GPUs.
NEW = re.compile(r"nvidia_smi\.pci_gpus\.(passed_through|excluded): documented, .*")
LATER = re.compile(
    r"nvidia_smi\.(timestamp|gpus\.nvlinks\.(remote_pci_bus_id|remote_link|error_counters)): documented, .*"
)


@pytest.mark.parametrize("number", [0, 1], ids=["all", "min"])
@pytest.mark.parametrize("recording", [H200X1, H200X4], ids=["h200x1", "h200x4"])
def test_the_facts_of_a_run_on_real_gpus(replay: MakeReplay, pci: MakePci, recording: Recording, number: int) -> None:
    """Facts gathered on real hosts match RETURN, and a replay of the same host."""
    everything = number == 0
    real = recording.results["nvidia_smi_facts"][number]["result"]["ansible_facts"]["nvidia_smi"]
    wrong = [line for line in disagreements(documented_facts(), real, "nvidia_smi") if not NEW.fullmatch(line)]
    assert [line for line in wrong if recording is H200X1 or not LATER.fullmatch(line)] == []
    pci()
    replies = recording.replies()
    # That version of the module asked for the state of the links only.
    if "nvlink -s" in replies:
        replies[NVLINK_CALL] = replies["nvlink -s"]
    replayed = run_module(replay(replies).path)
    assert [gpu["uuid"] for gpu in real["gpus"]] == [gpu["uuid"] for gpu in replayed["gpus"]]
    for found, again in zip(real["gpus"], replayed["gpus"], strict=True):
        stable = {key for key in set(found) & set(again) - {"unknown"} if not VOLATILE.match(key)}
        known = [{key: link[key] for key in ("link", "active", "speed_gb_per_second")} for link in again["nvlinks"]]
        again["nvlinks"] = known
        assert {key: found[key] for key in stable} == {key: again[key] for key in stable}
    if everything:
        assert real["topology"] == replayed["topology"]
    if recording is H200X1 and everything:
        # From a table, that the module did not have then.
        tabled = {
            "multiprocessors": 132,
            "cuda_cores": 16896,
            "tensor_cores": 528,
            "memory_bandwidth_gb_per_second": 4800,
            "nvlink_bandwidth_gb_per_second": 900.0,
        }
        assert {name: replayed["gpus"][0].pop(name) for name in tabled} == tabled
        assert (set(real), set(real["gpus"][0])) == (set(replayed), set(replayed["gpus"][0]))
        assert (real["gpus"][0]["compute_capability"], real["gpus"][0]["gsp_mode_current"]) == ("9.0", "enabled")


def test_every_documented_key_comes_back_with_all(replay: MakeReplay, pci: MakePci) -> None:
    pci("0000:00:06.0")
    facts = run_module(replay(h200x8()).path)
    documented = documented_facts()["contains"]
    assert set(facts) == set(documented)
    assert set(facts["gpus"][0]) == set(documented["gpus"]["contains"])
    for group in ("ecc_errors_volatile", "ecc_errors_aggregate"):
        assert set(facts["gpus"][0][group]) == set(documented["gpus"]["contains"][group]["contains"])
    mig = run_module(replay(mig_results()).path)["gpus"][0]
    assert set(mig["mig_devices"][0]) == set(documented["gpus"]["contains"]["mig_devices"]["contains"])
    assert set(mig["gpu_instances"][0]) == set(documented["gpus"]["contains"]["gpu_instances"]["contains"])
    assert set(mig["processes"][0]) == set(documented["gpus"]["contains"]["processes"]["contains"])


def test_each_key_comes_with_the_subset_that_return_names(replay: MakeReplay, pci: MakePci) -> None:
    pci("0000:00:06.0")
    program = replay(h200x8())
    keys = documented_facts()["contains"]["gpus"]["contains"]
    always = {name for name, entry in keys.items() if entry["returned"] == "always"}
    for subset in smi_facts.SUBSETS:
        facts = run_module(program.path, gather_subset=["!all", subset])
        expected = {
            name
            for name, entry in keys.items()
            if entry["returned"].removesuffix(IF_THE_GPU_HAS) == f"when O(gather_subset) has V({subset})"
        }
        assert set(facts["gpus"][0]) == always | expected, subset


def test_a_wrong_return_would_be_noticed() -> None:
    documented = {"type": "dict", "contains": {"a": {"type": "int", "returned": "always"}}}
    assert list(disagreements(documented, {"a": 1}, "x")) == []
    assert list(disagreements(documented, {"a": True}, "x")) == ["x.a: True is no int"]
    assert list(disagreements(documented, {"a": "1"}, "x")) == ["x.a: '1' is no int"]
    assert list(disagreements(documented, {"b": 1}, "x")) == [
        "x.b: not documented",
        "x.a: documented, but not returned",
    ]


def test_examples_are_accepted_by_the_module(replay: MakeReplay, pci: MakePci) -> None:
    pci()
    program = replay(h200x8())
    tasks = [task for task in yaml.safe_load(nvidia_smi_facts.EXAMPLES) if "gpu.fleet.nvidia_smi_facts" in task]
    assert tasks
    for task in tasks:
        assert run_module(program.path, **(task["gpu.fleet.nvidia_smi_facts"] or {}))["available"] is True


def test_facts_go_through_setup_and_the_cache(replay: MakeReplay, tmp_path: Path) -> None:
    """Through `ansible_facts_modules` in one run, and from the fact cache in the next, which gathers nothing."""
    program = replay({**h200x8(), "*": h200x8()["-q -x"]})
    environment = {
        "PATH": f"{program.path.parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
        "ANSIBLE_FACTS_MODULES": "ansible.builtin.setup,gpu.fleet.nvidia_smi_facts",
        "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "cache"),
        "ANSIBLE_NOCOLOR": "1",
    }
    playbook = tmp_path / "play.yml"
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local"]
    # One after the other: modules side by side are asynchronous jobs to Ansible, whose polling fails on a busy machine.
    command += ["-e", f"ansible_python_interpreter={sys.executable} ansible_facts_parallel=false", str(playbook)]
    message = []
    for gather in (True, False):
        playbook.write_text(
            f"""
- hosts: all
  gather_facts: {str(gather).lower()}
  tasks:
    - ansible.builtin.debug:
        msg: >-
          found {{{{ ansible_facts['nvidia_smi']['gpus'][7]['name'] }}}}
          {{{{ ansible_facts['distribution'] is defined }}}}
"""
        )
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        message.append(done.stdout + done.stderr)
        assert done.returncode == 0, message
    assert [text.count("found NVIDIA H200 True") for text in message] == [1, 1]
    assert len(program.calls) == len(set(program.calls))
