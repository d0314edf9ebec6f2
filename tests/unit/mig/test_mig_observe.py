# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Joining nvidia-smi's lists, for driver behaviour that is not simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.boot_cache import BootCache
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._mig.converge import Convergence, MigOptions
from ansible_collections.gpu.fleet.plugins.module_utils._mig.observe import Observer, can_place
from ansible_collections.gpu.fleet.plugins.module_utils._mig.rules import parse_rules
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import RetryPolicy, Smi, explain, status

from tests.unit.mig.mig_host import NOTHING
from tests.unit.mig.test_mig_listing import PROFILES_450

UUID = "GPU-00000000-0000-4000-8000-00000000000a"
# Driver 450 has the mode in its document, and no MIG devices.
DOCUMENT = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">
<nvidia_smi_log>
<driver_version>450.80.02</driver_version>
<attached_gpus>1</attached_gpus>
<gpu id="00000000:07:00.0">
<product_name>A100-PCIE-40GB</product_name>
<uuid>{uuid}</uuid>
<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
<processes>{processes}</processes>
</gpu>
</nvidia_smi_log>
"""
PROCESS = """
<process_info><gpu_instance_id>{gpu}</gpu_instance_id><compute_instance_id>{compute}</compute_instance_id>
<pid>77</pid><type>C</type><process_name>train</process_name><used_memory>5 MiB</used_memory></process_info>
"""
INSTANCES = """
+----------------------------------------------------+
| GPU instances:                                     |
| GPU   Name          Profile  Instance   Placement  |
|                       ID       ID       Start:Size |
|====================================================|
|   0  MIG 1g.5gb       19        7          0:1     |
+----------------------------------------------------+
|   0  MIG 3g.20gb       9        2          4:4     |
+----------------------------------------------------+
"""
COMPUTE = """
+-------------------------------------------------------+
| Compute instances:                                    |
| GPU     GPU       Name             Profile   Instance |
|       Instance                       ID        ID     |
|         ID                                            |
|=======================================================|
|   0      7       MIG 1g.5gb           0         0     |
+-------------------------------------------------------+
|   0      2       MIG 1c.3g.20gb       0         0     |
+-------------------------------------------------------+
|   0      2       MIG 1c.3g.20gb       0         1     |
+-------------------------------------------------------+
"""
DEVICES = f"""\
GPU 0: A100-PCIE-40GB (UUID: {UUID})
  MIG 1c.3g.20gb Device 0: (UUID: MIG-{UUID}/2/0)
  MIG 1c.3g.20gb Device 1: (UUID: MIG-{UUID}/2/1)
  MIG 1g.5gb Device 2: (UUID: MIG-{UUID}/7/0)
"""


def _results(processes: str = "") -> dict[str, str]:
    return {
        "-q -x": DOCUMENT.format(uuid=UUID, processes=processes),
        "mig -lgi": INSTANCES,
        "mig -lci": COMPUTE,
        "-L": DEVICES,
        "mig -lgip": PROFILES_450,
        "mig -lgipp": "GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1\nGPU  1 Profile ID  0 Placement : {0}:8\n",
    }


def _smi(results: Mapping[str, str]) -> Smi:
    def run(commands: Sequence[Sequence[str]], timeout: float) -> list[CommandResult]:
        del timeout
        return [CommandResult(tuple(words), 0, results[" ".join(words[1:])].encode(), b"", 0.0) for words in commands]

    return Smi("nvidia-smi", RetryPolicy(5, 0, 0), run)


def test_driver_450_is_read(tmp_path: Path) -> None:
    host = Observer(_smi(_results()), BootCache(str(tmp_path / "memory.json"))).observe()
    (gpu,) = host.gpus
    assert [(item.profile, item.start, item.compute_sizes) for item in gpu.instances] == [
        ("1g.5gb", 0, (1,)),
        ("3g.20gb", 4, (1, 1)),
    ]
    uuids = [compute.uuid for item in gpu.instances for compute in item.compute]
    assert uuids == [f"MIG-{UUID}/7/0", f"MIG-{UUID}/2/0", f"MIG-{UUID}/2/1"]


def test_driver_450_is_left_alone_or_refused(tmp_path: Path) -> None:
    for profiles, refused in (
        (["1g.5gb", "1c.3g.20gb", "1c.3g.20gb"], False),
        (["1g.5gb", "1g.5gb"], True),
    ):
        smi = _smi(_results())
        observer = Observer(smi, BootCache(str(tmp_path / "memory.json")))
        rules = parse_rules({**NOTHING, "profiles": profiles})
        convergence = Convergence(rules, smi, observer, lambda _gpu: (), MigOptions())
        if refused:
            with pytest.raises(ChangeError, match="driver 460 or newer"):
                convergence.run()
        else:
            assert convergence.run().changed is False
    assert smi.commands == []


@pytest.mark.parametrize(
    ("version", "able"), [("450.80.02", False), ("460.32.03", True), ("610.57", True), (None, True)]
)
def test_places_need_driver_460(version: str | None, able: bool) -> None:
    assert can_place(version) is able


@pytest.mark.parametrize(
    ("gpu", "compute", "busy"),
    [
        ("2", "1", {(2, 1)}),
        ("2", "N/A", {(2, 0), (2, 1)}),
        # Its instance is unknown: all count as busy.
        ("N/A", "N/A", {(2, 0), (2, 1), (7, 0)}),
    ],
)
def test_processes_make_instances_busy(tmp_path: Path, gpu: str, compute: str, busy: set[tuple[int, int]]) -> None:
    results = _results(PROCESS.format(gpu=gpu, compute=compute))
    (state,) = Observer(_smi(results), BootCache(str(tmp_path / "memory.json"))).observe().gpus
    assert set(state.busy) == busy
    assert set(state.busy.values()) == {("train (PID 77)",)}


@pytest.mark.parametrize(
    ("rc", "text", "desired"),
    [
        (0, "In use by another client", 0),
        (19, "anything", 19),
        (255, "Unable to destroy: In use by another client", 19),
        (255, "Insufficient Resources", 23),
        (255, "Insufficient Permissions", 4),
        (255, "Unknown Error", 255),
        (-9, "", -9),
        (None, "", None),
    ],
)
def test_status_of_a_call(rc: int | None, text: str, desired: int | None) -> None:
    assert status(CommandResult(("nvidia-smi",), rc, text.encode(), b"", 0.0)) == desired


@pytest.mark.parametrize(
    ("result", "reported"),
    [
        (CommandResult(("x", "-L"), None, b"", b"", 0.0, start_error=2), "install the driver"),
        (CommandResult(("x", "-L"), None, b"", b"", 0.0, start_error=13), "Permission denied"),
        (CommandResult(("x", "-L"), None, b"", b"", 5.2, timed_out=True), "did not respond within 5 s"),
        (CommandResult(("x", "-L"), None, b"", b"", 0.0, too_large=True), "printed too much"),
        (CommandResult(("x", "-L"), -9, b"", b"", 0.0), "nvidia-smi -L: no output (ended by signal 9)"),
        (CommandResult(("x", "-L"), 4, b"No\n\nway", b"out", 0.0), "No way out (exit status 4); this needs root"),
    ],
)
def test_failed_calls_are_explained(result: CommandResult, reported: str) -> None:
    assert reported in explain(result)


def test_a_list_that_is_not_understood_is_quoted(tmp_path: Path) -> None:
    results = {**_results(), "mig -lgi": "Something else"}
    with pytest.raises(ChangeError, match="Something else"):
        Observer(_smi(results), BootCache(str(tmp_path / "memory.json"))).observe()
