# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that work, as users and vendors have published them, are healthy (fixtures/published-healthy-hosts.yml).

Each goes through the whole check: a program in place of nvidia-smi prints its document, its list, its NVLinks and its
MIG instances, its PCI functions are in a sysfs with their ports and drivers, and its kernel log is a file. What a
source leaves out is that of a plain host without any fault: see `_PLAIN`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._health import run as health_run
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import gpu as gpu_schema
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import pci as pci_bus

FIXTURE = Path(__file__).with_name("fixtures") / "published-healthy-hosts.yml"
HOSTS: list[dict[str, Any]] = yaml.safe_load(FIXTURE.read_text(encoding="utf-8"))
NOW = 1_700_000_000.0
HOUR = 3600.0

# Elements of the document by the name that the fixture has for them, with their form: {0} is the whole value, {1} its
# first word.
_SHORT = {
    "name": "product_name={0}",
    "architecture": "product_architecture={0}",
    "virtualization": "gpu_virtualization_mode/virtualization_mode={0}",
    "recovery_action": "gpu_recovery_action={0}",
    "reset_required": "gpu_reset_status/reset_required={0}",
    "state": "performance_state={0}",
    "temperature": "temperature/gpu_temp={0} C",
    "memory_temperature": "temperature/memory_temp={0} C",
    "tlimit": "temperature/gpu_temp_tlimit={0} C",
    "slowdown_tlimit": "temperature/gpu_temp_slow_tlimit_threshold={0} C",
    "slowdown": "temperature/gpu_temp_slow_threshold={0} C",
    "operating": "temperature/gpu_temp_max_gpu_threshold={0} C",
    "draw": "gpu_power_readings/power_draw={0} W",
    "average_draw": "gpu_power_readings/average_power_draw={0} W",
    "instant_draw": "gpu_power_readings/instant_power_draw={0} W",
    "limit": "gpu_power_readings/current_power_limit={0} W",
    "total": "fb_memory_usage/total={0} MiB",
    "used": "fb_memory_usage/used={0} MiB",
    "gen": "pci/pci_gpu_link_info/pcie_gen/current_link_gen={0}",
    "gen_max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen={0}",
    "lanes": "pci/pci_gpu_link_info/link_widths/current_link_width={0}x",
    "lanes_max": "pci/pci_gpu_link_info/link_widths/max_link_width={0}x",
    "mig": "mig_mode/current_mig={0} mig_mode/pending_mig={0}",
    "fabric": "fabric/state={0}",
    "ecc_mode": "ecc_mode/current_ecc={0} ecc_mode/pending_ecc={0}",
    # Since the last reset corrected and uncorrectable, and the same in the life of the GPU.
    "ecc": "ecc_errors/volatile/dram_correctable={1} ecc_errors/volatile/dram_uncorrectable={2} "
    "ecc_errors/aggregate/dram_correctable={3} ecc_errors/aggregate/dram_uncorrectable={4}",
    # Remapped after corrected and uncorrectable errors, pending, failure, banks without spare rows.
    "rows": "remapped_rows/remapped_row_corr={1} remapped_rows/remapped_row_unc={2} "
    "remapped_rows/remapped_row_pending={3} remapped_rows/remapped_row_failure={4} "
    "remapped_rows/row_remapper_histogram/row_remapper_histogram_none={5}",
    "pages": "retired_pages/multiple_single_bit_retirement/retired_count={1} "
    "retired_pages/double_bit_retirement/retired_count={2} retired_pages/pending_retirement={3}",
    # Microseconds: power cap, heat by software and by hardware, power brake.
    "slowed": " ".join(
        f"clocks_event_reasons_counters/clocks_event_reasons_counters_{name}={{{number}}} us"
        for number, name in enumerate(("sw_power_cap", "sw_therm_slowdown", "hw_therm_slowdown", "hw_power_brake"), 1)
    ),
}
_REASONS = {
    "reason": "clocks_event_reasons/clocks_event_reason_",
    "old_reason": "clocks_throttle_reasons/clocks_throttle_reason_",
}
_LOWERED = ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
_NOT_IN_THE_DOCUMENT = frozenset(("at", "links", "mig_devices", "given", "slot", "device"))
_PLAIN = {
    "persistence_mode": "Disabled",
    "mig_mode/current_mig": "N/A",
    "mig_mode/pending_mig": "N/A",
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "4",
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "4",
    "pci/pci_gpu_link_info/link_widths/max_link_width": "16x",
    "pci/pci_gpu_link_info/link_widths/current_link_width": "16x",
    "fb_memory_usage/total": "16384 MiB",
    "fb_memory_usage/used": "1 MiB",
    "fb_memory_usage/free": "16000 MiB",
    "ecc_mode/current_ecc": "N/A",
    "ecc_mode/pending_ecc": "N/A",
    "retired_pages/pending_retirement": "N/A",
    "remapped_rows": "N/A",
    "temperature/gpu_temp": "35 C",
}


@dataclass(frozen=True)
class _Function:
    """A PCI function: address, class, device, driver (- without any), and of a virtual function the physical one."""

    at: str
    kind: str
    device: str
    driver: str
    physical: str = ""
    lanes: int = 16


class PublishedHost:
    """A host of the fixture at an earlier check (`time` 0), where it is published how it has changed, and now (1)."""

    def __init__(self, root: Path, host: dict[str, Any]) -> None:
        self.root = root
        self.host = host
        self.driver = str(host.get("driver", "580.95.05"))
        self.gpus: list[dict[str, Any]] = [
            {"at": f"{16 * index + 5:02x}:00.0", **host.get("all", {}), **gpu}
            for index, gpu in enumerate(host.get("gpus", ()))
        ]

    def show(self, time: int) -> None:
        """Have everything that the check reads."""
        self._write("/etc/machine-id", "0\n")
        self._write("/proc/sys/kernel/random/boot_id", "boot\n")
        self._write("/proc/stat", f"btime {int(NOW - 24 * HOUR)}\n")
        self._write("/kernel.log", f"[    0.000000] Linux version 6.8.0-52-generic\n{self.host.get('log', '')}")
        if not self.host.get("no_pci"):
            if self.gpus:
                self._write("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX Kernel Module  {self.driver}\n")
            for number, function in enumerate(self._functions(time)):
                self._pci(number, function)
            for index, gpu in self.listed(time):
                known = f"Model: \t\t {gpu['name']}\nGPU UUID: \t {_uuid(index, gpu)}\nGPU Excluded:\t No\n"
                self._write(f"/proc/driver/nvidia/gpus/{_address(gpu['at'])}/information", known)
        for path, text in self.host.get("files", {}).items():
            self._write(path, text)
        self._smi(time)

    def _write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def listed(self, time: int) -> list[tuple[int, dict[str, Any]]]:
        """The GPUs that nvidia-smi has: not those that were given to a virtual machine after the first check."""
        return [(index, gpu) for index, gpu in enumerate(self.gpus) if not (time and gpu.get("given"))]

    def _functions(self, time: int) -> Iterator[_Function]:
        for gpu in self.gpus:
            driver = "vfio-pci" if time and gpu.get("given") else "nvidia"
            lanes = gpu.get("slot", gpu.get("lanes", 16))
            yield _Function(_address(gpu["at"]), "0302", gpu.get("device", "20b0"), driver, lanes=lanes)
        for line in self.host.get("pci", ()):
            at, kind, device, driver, *physical = line.split()
            yield _Function(_address(at), kind, device, driver, _address(physical[0]) if physical else "")

    def _pci(self, number: int, function: _Function) -> None:
        """A PCI function below a port of its own. A virtual machine sees functions without ports."""
        domain, bus = function.at.split(":")[:2]
        port = "" if bus == "00" else f"{domain}:00:{number // 8 + 1:02x}.{number % 8}/"
        place = f"sys/devices/pci{domain}:00/{port}{function.at}"
        ids = {"vendor": "0x10de", "device": f"0x{function.device}", "class": f"0x{function.kind}00", "numa_node": "0"}
        for name, text in ids.items():
            self._write(f"{place}/{name}", f"{text}\n")
        if port:
            self._write(f"{place}/../max_link_width", f"{function.lanes}\n")
        self._link(f"sys/bus/pci/devices/{function.at}", f"../../../devices/pci{domain}:00/{port}{function.at}")
        self._link(f"{place}/driver", "" if function.driver == "-" else f"../../../bus/pci/drivers/{function.driver}")
        self._link(f"{place}/physfn", function.physical and f"../{function.physical}")

    def _link(self, path: str, target: str) -> None:
        """A symbolic link; none without a target."""
        link = self.root / path
        link.unlink(missing_ok=True)
        if target:
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)

    def _smi(self, time: int) -> None:
        """A program with the output of nvidia-smi in files by GPU."""
        directory = self.root / "nvidia-smi.d"
        directory.mkdir(exist_ok=True)
        for path in directory.iterdir():
            path.unlink()
        listed = self.listed(time)
        count = len(listed)
        head = f"<driver_version>{self.driver}</driver_version><attached_gpus>{count}</attached_gpus>"
        (directory / "head").write_text(f'<?xml version="1.0" ?>\n<nvidia_smi_log>\n{head}\n')
        for index, gpu in listed:
            (directory / f"gpu-{index:03}").write_text(_element(index, gpu, time))
            (directory / _smi_address(gpu["at"])).symlink_to(f"gpu-{index:03}")
        (directory / "list").write_text("".join(_list_line(index, gpu) for index, gpu in listed))
        (directory / "nvlink").write_text("".join(_links(index, gpu, time) for index, gpu in listed))
        (directory / "lgi").write_text(_instances(listed))
        failure = self.host.get("smi") or ({} if listed else {"rc": 6, "text": "No devices were found"})
        script = f"""#!/bin/sh
cd {directory}
{f"echo {failure['text']!r}; exit {failure['rc']}" if failure else ""}
case "$*" in
"-q -x") cat head gpu-*; echo "</nvidia_smi_log>" ;;
"-q -x -i "*) cat head; IFS=,; for gpu in $4; do cat "$gpu"; done; echo "</nvidia_smi_log>" ;;
-L) cat list ;;
"nvlink -s"*) cat nvlink ;;
"mig -lgi") cat lgi ;;
*) echo "Not supported"; exit 3 ;;
esac
"""
        program = self.root / "nvidia-smi"
        program.write_text(script)
        program.chmod(0o755)


def _address(at: str) -> str:
    """An address as sysfs has it."""
    return f"{'' if at.count(':') == 2 else '0000:'}{at}".lower()


def _smi_address(at: str) -> str:
    return f"0000{_address(at)}".upper()


def _uuid(index: int, gpu: dict[str, Any]) -> str:
    return str(gpu.get("uuid", f"GPU-00000000-0000-4000-8000-{index:012}"))


def _value(value: Any, time: int) -> Any:
    """A list has the values at the earlier check and now."""
    return value[time] if isinstance(value, list) else value


def _readings(index: int, gpu: dict[str, Any], time: int) -> dict[str, str]:
    """The text of each element by its path."""
    found = {**_PLAIN, "uuid": _uuid(index, gpu), "pci/pci_bus_id": _smi_address(gpu["at"])}
    found.update(
        dict.fromkeys(
            (_REASONS["old_reason" if "old_reason" in gpu else "reason"] + name for name in _LOWERED), "Not Active"
        )
    )
    for name, given in gpu.items():
        text = str(_value(given, time))
        if name in _REASONS:
            found.update({_REASONS[name] + reason: "Active" for reason in text.split()})
        elif name not in _NOT_IN_THE_DOCUMENT:
            forms = re.split(r" (?=\w+(?:/\w+)+=)", _SHORT.get(name, f"{name}={{0}}"))
            for path, form in (form.split("=") for form in forms):
                # Where nvidia-smi prints N/A, it prints no unit.
                found[path] = text if text.startswith(("N/A", "[")) else form.format(text, *text.split())
    return found


def _element(index: int, gpu: dict[str, Any], time: int) -> str:
    """One GPU of the document."""
    tree: dict[str, Any] = {}
    for path, text in _readings(index, gpu, time).items():
        *groups, leaf = path.split("/")
        place = tree
        for group in groups:
            if not isinstance(place.get(group), dict):
                place[group] = {}
            place = place[group]
        place[leaf] = text
    devices = "".join(
        f"<mig_device><index>{number}</index><gpu_instance_id>{number + 1}</gpu_instance_id>"
        f"<compute_instance_id>0</compute_instance_id></mig_device>"
        for number, _profile in enumerate(gpu.get("mig_devices", ()))
    )
    return f'<gpu id="{_smi_address(gpu["at"])}">\n{_xml(tree)}<mig_devices>{devices or "None"}</mig_devices>\n</gpu>\n'


def _xml(tree: dict[str, Any]) -> str:
    parts = (
        f"<{name}>{_xml(value) if isinstance(value, dict) else escape(value)}</{name}>\n"
        for name, value in tree.items()
    )
    return "".join(parts)


def _list_line(index: int, gpu: dict[str, Any]) -> str:
    devices = "".join(
        f"  MIG {profile}     Device  {number}: (UUID: MIG-00000000-0000-5000-8000-{index:06}{number:06})\n"
        for number, profile in enumerate(gpu.get("mig_devices", ()))
    )
    return f"GPU {index}: {gpu['name']} (UUID: {_uuid(index, gpu)})\n{devices}"


def _links(index: int, gpu: dict[str, Any], time: int) -> str:
    """NVLinks as `18 x 26.562`, with `<inactive>` where a further number is that of links without another end."""
    count, _by, speed, *inactive = str(_value(gpu.get("links", "0 x 0"), time)).split()
    states = [f"{speed} GB/s"] * int(count) + ["<inactive>"] * (int(inactive[0]) if inactive else 0)
    lines = "".join(f"\t Link {number}: {state}\n" for number, state in enumerate(states))
    return f"GPU {index}: {gpu['name']} (UUID: {_uuid(index, gpu)})\n{lines}"


def _instances(listed: list[tuple[int, dict[str, Any]]]) -> str:
    rows = [
        f"| {index:3}  MIG {profile:<14} {19:5} {number + 1:9} {number:10}:1     |"
        for index, gpu in listed
        for number, profile in enumerate(gpu.get("mig_devices", ()))
    ]
    frame = "+" + "-" * 55 + "+"
    return "\n".join((frame, "| GPU instances:" + " " * 40 + "|", frame, *rows, frame, ""))


def _changes(gpu: dict[str, Any]) -> bool:
    """Whether it is published how the GPU has changed since an earlier check."""
    return "given" in gpu or any(isinstance(value, list) for name, value in gpu.items() if name != "mig_devices")


_PARAMS = {
    # An old driver has vulnerabilities, which is no fault of the host.
    "policy": [{"id": "driver_vulnerable", "verdict": "ok", "remedy": "none"}],
    "ignore": [],
    "kernel_log": "/kernel.log",
    "history": "/history",
    "ignore_vulnerabilities": [],
    "evidence": "never",
    "evidence_directory": "/evidence",
    "tests": [],
    "pytorch_python": None,
    "timeout": 60.0,
}


IDS = [host["host"] for host in HOSTS]


def _checked(published: PublishedHost, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The result of the last check of a host; an hour before there is another one where the host has changed."""
    root = published.root
    monkeypatch.setattr(pci_bus, "DEVICES", str(root / "sys/bus/pci/devices"))
    monkeypatch.setattr(pci_bus, "DRIVEN", str(root / "proc/driver/nvidia/gpus"))
    monkeypatch.setattr(pci_bus, "PARAMETERS", str(root / "proc/driver/nvidia/params"), raising=False)
    monkeypatch.setattr(smi_facts, "LOADED_VERSION", str(root / "proc/driver/nvidia/version"))
    monkeypatch.setattr(health_run, "run_program", lambda argv, _timeout: CommandResult(tuple(argv), 1, b"", b"", 0.0))
    monkeypatch.setattr(health_run, "Systemd", lambda: Systemd(booted=str(root / "no-systemd")))
    params = {**_PARAMS, "expected": None, "executable": str(root / "nvidia-smi")}
    result: dict[str, Any] = {}
    for time in (0, 1) if any(map(_changes, published.gpus)) else (1,):
        published.show(time)
        result = health_run.run(params, False, NOW + time * HOUR, str(root))
    listed = [gpu for gpu in result["gpus"] if gpu["index"] is not None]
    assert len(listed) == len(published.listed(1))
    return result


def _findings(result: dict[str, Any]) -> dict[str, str]:
    return {finding["row"]: finding["message"] for finding in result["findings"] if finding["verdict"] != "ok"}


@pytest.mark.parametrize("host", HOSTS, ids=IDS)
def test_a_published_host(host: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = _checked(PublishedHost(tmp_path, host), monkeypatch)
    found = _findings(result)
    if host.get("verdict") == "ok or info":
        assert result["verdict"] in ("ok", "info"), found
    else:
        assert (result["verdict"], sorted(found)) == (host.get("verdict", "ok"), sorted(host.get("findings", []))), (
            found
        )


@pytest.mark.parametrize("host", [host for host in HOSTS if "gpus" in host], ids=lambda host: host["host"])
def test_the_same_host_with_a_fault(host: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its GPU that is listed last has fallen off the bus."""
    at = PublishedHost(tmp_path, host).listed(1)[-1][1]["at"]
    line = f"[80000.000000] NVRM: Xid (PCI:{_address(at)[:-2]}): 79, pid=0, GPU has fallen off the bus.\n"
    result = _checked(PublishedHost(tmp_path, {**host, "log": host.get("log", "") + line}), monkeypatch)
    assert result["verdict"] == "fail"
    assert "xid_off_the_bus" in _findings(result)


def test_all_elements_are_read() -> None:
    """A name of the fixture that the parser does not know would be no fact at all."""
    known = frozenset().union(*(gpu_schema.declared_paths(section) for section in gpu_schema.SECTIONS.values()))
    for host in HOSTS:
        for index, gpu in enumerate(PublishedHost(Path(), host).gpus):
            assert known.issuperset(_readings(index, gpu, 1).keys() - {"remapped_rows"}), host["host"]


def test_the_fixture() -> None:
    assert len(HOSTS) >= 90
    assert len({host["host"] for host in HOSTS}) == len(HOSTS)
    assert all(host["source"].startswith("https://") for host in HOSTS)
    # Only what is information may be found, and of GPUs that are well that they have no licence.
    licensed = [host for host in HOSTS if host.get("findings") != ["vgpu_unlicensed"]]
    assert len(licensed) == len(HOSTS) - 1
    assert {host.get("verdict", "ok") for host in licensed} <= {"ok", "info", "ok or info"}
    rows = {row.id: row.verdict for row in TABLE}
    assert {rows[name] for host in licensed for name in host.get("findings", ())} == {"info"}
