# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report_facts: what the report shows of a host, and the network adapters in sysfs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._health import history
from ansible_collections.gpu.fleet.plugins.module_utils._report.facts import condensed
from ansible_collections.gpu.fleet.plugins.module_utils._report.nics import Nic, read_nics
from ansible_collections.gpu.fleet.plugins.modules import fleet_report, report_facts

from tests.unit.module_runs import check_options, disagreements, run_module
from tests.unit.report.fleets import HOSTILE, bases
from tests.unit.report.test_report_hostile import CUDA, RECORDINGS

RETURN = yaml.safe_load(report_facts.RETURN)


@pytest.mark.parametrize("name", ["dgx", "pair", "single"])
def test_the_result_is_as_documented(name: str) -> None:
    facts, _health = bases()[name]
    assert list(disagreements(RETURN["host"], facts, "host")) == []


def test_options_are_as_documented() -> None:
    fragment = {"executable", "timeout"}
    assert set(report_facts.ARGUMENT_SPEC) == fragment
    check_options(yaml.safe_load(fleet_report.DOCUMENTATION)["options"], fleet_report.ARGUMENT_SPEC)


def test_a_host_with_eight_gpus_is_small_and_complete() -> None:
    facts, _health = bases()["dgx"]
    assert len(json.dumps(facts)) < 15_000
    assert facts["system"] == {"distribution": "Ubuntu 24.04.3 LTS", "kernel": None}
    assert (facts["driver_version"], facts["cuda_version"], len(facts["gpus"])) == ("580.159.04", "13.0", 8)
    divided, busy = facts["gpus"][:2]
    placed = [(item["profile"], item["placement_start"], item["placement_size"]) for item in divided["instances"]]
    assert sorted(placed, key=lambda item: item[1]) == [("2g.35gb", 0, 2), ("1g.18gb", 2, 1), ("3g.71gb", 4, 4)]
    assert [(item["name"], item["gpu_instance_id"]) for item in divided["processes"]] == [("python train.py", 2)]
    assert [(item["name"], item["memory_used_mib"]) for item in busy["processes"]] == [(HOSTILE, 90_000)]
    assert (busy["nvlinks_active"], busy["nvlinks"]) == (18, 18)
    assert facts["gpus"][4]["remapped_rows_correctable"] == 2
    assert facts["topology"][0]["links"]["GPU7"] == "NV18"


def test_reasons_for_a_reboot() -> None:
    assert bases()["pair"][0]["reboot_reasons"] == [
        "GPU 1: ecc mode enabled -> disabled",
        "the distribution requests it for linux-image-6.1.0",
    ]
    assert bases()["single"][0]["reboot_reasons"] == []


@pytest.mark.parametrize("moved", [False, True])
def test_a_lost_gpu_has_the_identity_of_the_history_and_no_links(tmp_path: Path, moved: bool) -> None:
    """Unless the GPU that was seen there responds in another slot."""
    recorded = json.loads((RECORDINGS / "h200x4-facts-580.159.04.json").read_text())["results"]["nvidia_smi_facts"]
    smi = recorded[0]["result"]["ansible_facts"]["nvidia_smi"]
    gpu = smi["gpus"][1]
    assert gpu["uuid"], "the recording has it"
    uuid = smi["gpus"][0]["uuid"] if moved else gpu["uuid"]
    earlier = history.GpuHistory(serial="1650000000001", name=gpu["name"], pci_bus_id=gpu["pci_bus_id"], checked=1.0)
    files = {f"{history.DIRECTORY}/{history.FILE}"[1:]: history.render(history.History(gpus={uuid: earlier}))}
    smi["gpus"][1] = {**gpu, "uuid": None, "serial": None, "name": None, "error": "GPU is lost"}
    facts = condensed(smi, CUDA, _write(tmp_path, files))
    found = [facts["gpus"][1][name] for name in ("uuid", "serial", "name", "error")]
    assert found == ([None] * 3 if moved else [uuid, "1650000000001", gpu["name"]]) + ["GPU is lost"]
    linked = {device["label"]: [*device["links"]] for device in facts["topology"]}
    assert linked["GPU0"]
    assert linked["GPU1"] == [] and not any("GPU1" in links for links in linked.values())


def _write(root: Path, files: dict[str, Any]) -> HostFiles:
    """A sysfs: a text is a file, a path that begins with -> a link."""
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("->"):
            target.symlink_to(content[2:])
        else:
            target.write_text(content)
    return HostFiles(str(root))


PORT = "sys/devices/pci0000:15/0000:15:01.0/0000:17:00.0"


def test_a_port_of_infiniband_without_a_network_interface(tmp_path: Path) -> None:
    files = {
        f"{PORT}/numa_node": "1\n",
        "sys/class/infiniband/mlx5_0/device": f"->../../../../{PORT}",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    }
    assert read_nics(_write(tmp_path, files)) == (Nic(("mlx5_0",), "0000:17:00.0", True, 400.0, True, 1),)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, Nic(("ens1",), "0000:17:00.0", False, None, None, None)),
        ({"speed": "25000\n", "operstate": "up\n"}, Nic(("ens1",), "0000:17:00.0", False, 25.0, True, None)),
        # The last speed of a port without a link may still be there; the kernel's unknown speed is -1.
        ({"speed": "25000\n", "operstate": "down\n"}, Nic(("ens1",), "0000:17:00.0", False, None, False, None)),
        ({"speed": "-1\n", "operstate": "up\n"}, Nic(("ens1",), "0000:17:00.0", False, None, True, None)),
    ],
)
def test_an_interface_by_its_link(extra: dict[str, str], expected: Nic, tmp_path: Path) -> None:
    files = {
        f"{PORT}/numa_node": "-1\n",
        "sys/class/net/ens1/device": f"->../../../../{PORT}",
        **{f"sys/class/net/ens1/{name}": content for name, content in extra.items()},
    }
    assert read_nics(_write(tmp_path, files)) == (expected,)


def test_what_is_no_adapter_of_the_host_is_left_out(tmp_path: Path) -> None:
    function = "sys/devices/pci0000:15/0000:17:00.1"
    files = {
        "sys/class/net/lo/operstate": "unknown\n",
        "sys/class/net/usb0/device": "->../../../../sys/devices/pci0000:00/usb1/1-1:1.0",
        f"{function}/physfn": "->../0000:17:00.0",
        "sys/class/net/ens1v0/device": f"->../../../../{function}",
    }
    assert read_nics(_write(tmp_path, files)) == ()


def test_the_module_fleet_report_is_no_program_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_module(fleet_report, monkeypatch, {"directory": "/tmp", "facts": "a", "health": "b"})
    assert "runs on the controller" in result["msg"]
