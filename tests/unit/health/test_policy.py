# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy: every row with what it finds, the orders of verdicts and remedies, and a site's own rows."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._health.active_tests import Diagnostics, Measured
from ansible_collections.gpu.fleet.plugins.module_utils._health.evaluate import Finding, Observed, Report, evaluate
from ansible_collections.gpu.fleet.plugins.module_utils._health.growth import Hour
from ansible_collections.gpu.fleet.plugins.module_utils._health.history import GpuHistory, History, XidRecord
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log import parse
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log_sources import KernelLog
from ansible_collections.gpu.fleet.plugins.module_utils._health.outcome import (
    CONFIGURATION,
    FAILED,
    UNKNOWN,
    WARNED,
    Outcome,
)
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import (
    REMEDIES,
    VERDICTS,
    Row,
    strongest,
    with_site_rows,
    worst,
)
from ansible_collections.gpu.fleet.plugins.module_utils._health.readings import NAMES, Declared, DeclaredGpu
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE
from ansible_collections.gpu.fleet.plugins.module_utils._health.vulnerabilities import of_driver
from ansible_collections.gpu.fleet.plugins.module_utils._health.xids import APPLICATION, DEPRECATED, FATAL_SXIDS
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import pci as pci_bus

from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable

NOW = 1_700_000_000.0
HOUR = 3600.0
SUBSETS = frozenset(smi_facts.SUBSETS) - {"supported_clocks", "topology"}


@pytest.fixture(scope="module", name="healthy")
def _healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The facts of a healthy host with two H200."""
    root = tmp_path_factory.mktemp("healthy")
    Host(root, gpus=[{"model": "h200", "count": 2}])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pci_bus, "DEVICES", str(root / "pci"))
        return smi_facts.gather(smi_facts.FactsRequest(str(executable(root)), SUBSETS))


@dataclass(frozen=True)
class Case:
    """What makes a row hold: readings of GPU 0, a problem of it, facts of the host, a log, earlier checks."""

    verdict: str
    remedy: str
    gpu: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)
    log: tuple[str, ...] = ()
    declared: Declared = field(default_factory=Declared)
    before: GpuHistory = field(default_factory=GpuHistory)
    models: tuple[str, ...] = ()
    tested: Diagnostics = field(default_factory=Diagnostics)


PLACE = "PCI:0000:06:00"
ON_BUS = "00000000:06:00.0"
GT_710 = "00000000:03:00.0"
INIT_FAILED = "NVRM: GPU 0000:06:00.0: RmInitAdapter failed!"
PROBE_FAILED = "NVRM: The NVIDIA probe routine failed for 1 device(s)."
UNSUPPORTED = (
    "NVRM: The NVIDIA GPU 0000:06:00.0 (PCI ID: 10de:25a0)",
    "NVRM: installed in this system is not supported by the",
    "NVRM: NVIDIA 520.56.06 driver release.",
)


# https://github.com/NixOS/nixos-hardware/issues/1828, of a card that is older than the driver.
LEGACY = (
    "NVRM: The NVIDIA NVIDIA GeForce GT 710 GPU installed in this system is",
    "NVRM:  supported through the NVIDIA 470.xx Legacy drivers. Please",
    "NVRM:  visit http://www.nvidia.com/object/unix.html for more",
    "NVRM:  information.  The 580.159.04 NVIDIA driver will ignore",
    "NVRM:  this GPU.  Continuing probe...",
)
PASSED = {"pci_bus_id": "00000000:0a:00.0", "driver": "vfio-pci", "passed_through": True}
EXCLUDED = {"pci_bus_id": "00000000:0b:00.0", "driver": "nvidia", "excluded": True}
NEXT_TO_GT_710 = {"unhealthy": [{"gpu": GT_710, "code": "gpu_unused", "message": "it has no driver"}]}


def of_card(log: tuple[str, ...]) -> tuple[str, ...]:
    """The lines about the display card instead of the first GPU."""
    return tuple(line.replace("06:00.0", "03:00.0") for line in log)


def xid(code: int, text: str = "text") -> str:
    return f"[ 10.0] NVRM: Xid ({PLACE}): {code}, pid=12, name=python3, {text}"


def sxid(code: int, text: str) -> str:
    return f"[ 10.0] nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): {code}, {text}"


def action(number: str, text: str = "text") -> str:
    return f"NVRM: Xid ({PLACE}): 154, GPU recovery action changed from 0x0 (None) to {number} ({text})"


def unavailable(reason: str) -> dict[str, Any]:
    return {"available": False, "reason": reason, "message": "it failed", "gpus": []}


def link(number: int, speed: float) -> dict[str, Any]:
    return {"link": number, "active": True, "speed_gb_per_second": speed}


def nvlink_74(*registers: int) -> str:
    return xid(74, f"NVLink: fatal error detected on link 14({', '.join(f'{number:#x}' for number in registers)})")


BLACKWELL = "(0x{:08x} 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)"


def hourly(*grown: dict[str, float]) -> GpuHistory:
    """A GPU with what grew in the last whole hour, in the one before it, and so on."""
    last = int(NOW // HOUR) - 1
    hours = tuple(Hour(last - place, each) for place, each in reversed(list(enumerate(grown))))
    return GpuHistory(checked=NOW - 60.0, hours=hours)


def repeated(*records: XidRecord) -> GpuHistory:
    return GpuHistory(xids=records)


def every(code: int, *hours_ago: float, boot: str = "b", unit: str = "", fatal: bool = True) -> tuple[XidRecord, ...]:
    return tuple(XidRecord(code, boot, NOW - hours * HOUR, unit, fatal) for hours in hours_ago)


CASES: dict[str, list[Case]] = {
    "recovery_reset": [
        Case("fail", "reset_gpu", {"recovery_action": name}) for name in ("reset", "gpu_reset", "bus_reset")
    ],
    "recovery_reboot": [
        Case("fail", "reboot", {"recovery_action": name}) for name in ("reboot", "node_reboot", "system_reboot")
    ],
    "recovery_drain_p2p": [Case("fail", "drain", {"recovery_action": "drain_p2p"})],
    "recovery_drain_and_reset": [Case("fail", "drain_and_reset", {"recovery_action": "drain_and_reset"})],
    "recovery_imex": [Case("fail", "restart_imex", {"recovery_action": "recover_imex_domain"})],
    "recovery_unknown": [Case("fail", "service", {"recovery_action": name}) for name in ("replace_gpu", "8")],
    "reset_required": [Case("fail", "reset_gpu", problem="reset_required")],
    "gpu_lost": [Case("fail", "reboot", problem="gpu_lost")],
    "gpu_missing": [Case("fail", "reboot", problem="gpu_missing")],
    "gpu_unused": [Case("warn", "configure", problem="gpu_unused")],
    "gpu_insufficient_power": [Case("fail", "inspect", problem="insufficient_power")],
    "vgpu_restricted": [
        Case("fail", "configure", {"virtualization_mode": "vgpu", "vgpu_license_status": "Unlicensed (Restricted)"})
    ],
    "vgpu_unlicensed": [
        Case("warn", "configure", {"virtualization_mode": "vgpu", "vgpu_license_status": state})
        for state in ("Unlicensed (Unrestricted)", "Unlicensed")
    ],
    "gpu_unknown": [Case("unknown", "none", problem="permission_denied")],
    "gpu_not_responding": [Case("fail", "reboot", problem="gpu_not_responding")],
    "gpu_unreadable": [Case("unknown", "none", problem="broken_xml")],
    "gpus_unreadable": [
        Case(
            "unknown",
            "none",
            facts={"unhealthy": [{"gpu": None, "code": "broken_xml", "message": "it counts 8 GPUs and describes 1"}]},
        )
    ],
    "inforom_corrupted": [Case("fail", "service", problem="inforom_corrupted")],
    "row_remap_failure": [Case("fail", "field_diagnostic", {"remapped_rows_failure": True})],
    "row_remap_pending": [Case("warn", "drain_and_reset", {"remapped_rows_pending": True})],
    "row_remapper_exhausted": [Case("warn", "none", {"remapped_rows_banks_none": 1})],
    "rows_remapped": [Case("info", "none", {"remapped_rows_uncorrectable": 1})],
    "ecc_repair_pending": [Case("warn", "drain_and_reset", problem="ecc_repair_pending")],
    "ecc_unrepairable_memory": [Case("fail", "service", {"ecc_unrepairable_memory": True})],
    "ecc_sram_threshold_exceeded": [Case("fail", "field_diagnostic", {"ecc_sram_threshold_exceeded": True})],
    "ecc_uncorrectable": [
        Case("fail", "reset_gpu", {"ecc_errors_volatile.uncorrected_total": 1, "recovery_action": None}),
        Case("fail", "reset_gpu", {"ecc_errors_volatile.uncorrected_total": 1, "remapped_rows_failure": None}),
    ],
    "ecc_uncorrectable_contained": [Case("warn", "none", {"ecc_errors_volatile.uncorrected_total": 1})],
    "ecc_uncorrectable_aggregate": [Case("info", "none", {"ecc_errors_aggregate.uncorrected_total": 1})],
    "ecc_sram_corrected": [Case("warn", "inspect", {"ecc_errors_volatile.sram_correctable": 10_001})],
    "ecc_dram_corrected": [Case("warn", "inspect", {"ecc_errors_volatile.dram_correctable": 20_000_001})],
    "page_retirement_pending": [Case("warn", "reboot", {"retired_pages_pending": True})],
    "retired_pages_many": [
        Case("warn", "field_diagnostic", {"retired_pages_single_bit_count": 48, "retired_pages_double_bit_count": 2})
    ],
    # https://docs.nvidia.com/deploy/dynamic-page-retirement/: 60 pages are a reason to replace the board.
    "retired_pages_full": [
        Case("fail", "service", {"retired_pages_double_bit_count": 64}),
        Case("fail", "service", {"retired_pages_single_bit_count": 58, "retired_pages_double_bit_count": 2}),
    ],
    "pcie_width": [
        # GPU 1 has 16 lanes.
        Case("warn", "inspect", {"pci_link_width_current": 8, "pci_link_width_max": 16}),
    ],
    "nvlink_inactive": [
        Case("fail", "reset_gpu", {"nvlinks": [{"link": number, "active": number > 0} for number in range(18)]}),
        Case("fail", "reset_gpu", {"nvlinks": []}),
    ],
    "nvlink_bridge": [
        Case(
            "warn",
            "inspect",
            {"name": "NVIDIA H100 NVL", "nvlinks": []},
            before=GpuHistory(pci_bus_id=ON_BUS, counters={"nvlinks_active": 12}),
        )
    ],
    "nvlink_errors": [Case("warn", "inspect", before=hourly({"nvlink_errors": 1.0}, {"nvlink_errors": 1.0}))],
    "nvlink_crc": [Case("warn", "inspect", before=hourly({"nvlink_crc_errors": 360_001.0}))],
    "pcie_generation": [
        Case(
            "warn",
            "inspect",
            {"pci_link_gen_current": 1, "utilization_gpu_percent": 50.0},
            before=GpuHistory(pci_bus_id=ON_BUS, counters={"pcie_slow_checks": 2}),
        )
    ],
    "pcie_replays": [Case("warn", "inspect", before=hourly({"pci_replay_count": 481.0}))],
    "nvlink_slow": [
        Case("fail", "reset_gpu", {"nvlinks": [link(0, 13.281), *(link(number, 26.562) for number in range(1, 18))]})
    ],
    "fabric_not_completed": [Case("fail", "restart_fabric_manager", problem="fabric_not_completed")],
    "fabric_failed": [
        Case("fail", "reset_gpu", {"name": "NVIDIA GB300"}, problem="fabric_failed"),
        Case("fail", "restart_fabric_manager", problem="fabric_failed"),
    ],
    "fabric_bandwidth": [Case("fail", "reset_fabric", {"fabric_health_bandwidth": "degraded"})],
    "fabric_route": [Case("fail", "reset_fabric", {"fabric_health_route_unhealthy": True})],
    "fabric_configuration": [
        Case("fail", "restart_fabric_manager", {"fabric_health_incorrect_configuration": "incompatible_gpu_firmware"})
    ],
    "fabric_summary": [Case("fail", "reset_fabric", {"fabric_health_summary": "limited_capacity"})],
    "slowdown_now": [
        Case("info", "none", {"slowdown_hw_thermal": True}),
        Case("info", "none", {"slowdown_sw_thermal": True}),
        Case("info", "none", {"slowdown_hw_power_brake": True}),
        # Older chips report nothing but this one.
        Case("info", "none", {"slowdown_hw": True, "slowdown_hw_thermal": None}),
    ],
    "thermal_slowdown": [
        Case("warn", "inspect", before=hourly({name: 301.0})) for name in ("slowdown_hw_thermal", "slowdown_sw_thermal")
    ],
    "thermal_slowdown_long": [
        Case("fail", "inspect", before=hourly(*[{"slowdown_hw_thermal": 2200.0}] * 3)),
    ],
    "power_brake_slowdown": [Case("warn", "inspect", before=hourly({"slowdown_hw_power_brake": 301.0}))],
    "power_brake_slowdown_long": [
        Case("fail", "inspect", before=hourly(*[{"slowdown_hw_power_brake": 2200.0}] * 3)),
    ],
    "power_draw_low": [Case("fail", "reset_gpu", {"name": "NVIDIA GB300", "power_draw_average_w": 64.9})],
    "power_draw_high": [Case("fail", "reset_gpu", {"name": "NVIDIA GB300", "power_draw_average_w": 1500.1})],
    "thermal_margin": [Case("warn", "inspect", {"temperature_gpu_tlimit_c": -3, "temperature_slowdown_tlimit_c": -2})],
    "ecc_mode_pending": [Case("warn", "reboot", problem="ecc_mode_pending")],
    "mig_mode_pending": [Case("warn", "drain_and_reset", problem="mig_mode_pending")],
    "operation_mode_pending": [Case("warn", "reboot", problem="operation_mode_pending")],
    "dram_encryption_pending": [Case("warn", "drain_and_reset", problem="dram_encryption_pending")],
    "persistence_mode": [Case("warn", "configure", declared=Declared(every=DeclaredGpu(persistence_mode=False)))],
    "ecc_mode": [Case("warn", "configure", declared=Declared(every=DeclaredGpu(ecc=False)))],
    "mig_layout": [Case("warn", "configure", declared=Declared(every=DeclaredGpu(mig=("1g.18gb",))))],
    "driver_missing": [
        Case("fail", "update_software", facts=unavailable(reason))
        for reason in ("no_driver", "no_nvidia_smi", "not_loaded", "library_missing")
    ],
    "driver_library_mismatch": [Case("fail", "reboot", facts=unavailable("version_mismatch"))],
    "nvidia_smi_failed": [Case("fail", "reboot", facts=unavailable(reason)) for reason in ("timeout", "failed")],
    "gpus_absent": [Case("fail", "inspect", facts={**unavailable("no_gpu"), "pci_gpus": []})],
    "gpus_unusable": [Case("fail", "reboot", facts={**unavailable("no_gpu"), "pci_gpus": [{"pci_bus_id": ON_BUS}]})],
    # https://docs.nvidia.com/deploy/nvidia-smi/, return value 8: power cables; of a host: tests/unit/nvidia_smi.
    "insufficient_power": [Case("fail", "inspect", facts=unavailable("insufficient_power"))],
    "gpus_unknown": [
        Case("unknown", "none", facts=unavailable(reason)) for reason in ("permission_denied", "too_large")
    ],
    "gpu_count": [
        Case("fail", "reboot", declared=Declared(gpu_count=8)),
        Case("fail", "reboot", models=("NVIDIA H200",) * 3),
    ],
    "gpu_count_withheld": [
        Case("warn", "configure", facts={"pci_gpus": [PASSED]}, declared=Declared(gpu_count=3)),
        Case("warn", "configure", facts={"pci_gpus": [PASSED, EXCLUDED]}, declared=Declared(gpu_count=3)),
    ],
    "gpus_passed_through": [Case("info", "none", facts={"pci_gpus": [PASSED]})],
    "gpus_excluded": [
        Case("info", "none", facts={"pci_gpus": [EXCLUDED]}),
        Case("info", "none", facts={"pci_gpus": [EXCLUDED]}, declared=Declared(gpu_count=3)),
    ],
    "gpu_model": [Case("fail", "inspect", declared=Declared(gpu_models=("H100", "A100")))],
    "driver_version": [
        Case("warn", "configure", declared=Declared(driver_version=version)) for version in ("570", "58", "580.95.05")
    ],
    "driver_vulnerable": [Case("warn", "update_software", host={"driver_vulnerable": of_driver("580.126.20")})],
    "kernel_log_unknown": [Case("unknown", "none", host={"kernel_log_unknown": "there is no journal"})],
    "kernel_log_incomplete": [Case("info", "none", host={"kernel_log_incomplete": "it begins later"})],
    "cdi_stale": [Case("warn", "configure", host={"cdi_stale": "/etc/cdi/nvidia.yaml"})],
    "boot_service_failed": [Case("fail", "configure", host={"boot_service_failed": "failed"})],
    "imex_inactive": [Case("fail", "restart_imex", host={"imex_inactive": "failed"})],
    "imex_unready": [Case("warn", "restart_imex", host={"imex_unready": "DEGRADED"})],
    "mps_inactive": [Case("fail", "configure", host={"mps_inactive": "failed"})],
    "mps_client_fault": [Case("info", "none", host={"mps_client_fault": "3 times"})],
    "boot_service_missed": [Case("warn", "configure", host={"boot_service_missed": "has not run"})],
    "clock_unsynchronized": [Case("warn", "configure", host={"clock_unsynchronized": "no"})],
    "cpus_offline": [Case("warn", "reboot", host={"cpus_offline": "71 of 72 CPUs are online, without 3"})],
    "gpu_unscheduled": [Case("info", "none", host={"gpu_unscheduled": "PID 42 of user 1000 on GPU 0"})],
    "file_system_full": [Case("warn", "configure", host={"file_system_full": "/var has 0 of 9000 MiB free"})],
    "file_system_read_only": [Case("warn", "inspect", host={"file_system_read_only": "/ (ext4)"})],
    "nic_count": [Case("fail", "inspect", host={"nic_count_differs": "mlx5_0 (0000:40:00.0) text"})],
    "nic_all_down": [Case("warn", "inspect", host={"nic_all_down": "mlx5_0 (0000:40:00.0) text"})],
    "nic_down": [Case("fail", "inspect", host={"nic_down": "mlx5_0 (0000:40:00.0) text"})],
    "nic_flapping": [Case("warn", "inspect", host={"nic_flapping": "mlx5_0 (0000:40:00.0) text"})],
    "nic_link_lost": [Case("info", "none", host={"nic_link_lost": "mlx5_0 (0000:40:00.0) text"})],
    "nic_slow": [Case("warn", "inspect", host={"nic_slow": "mlx5_0 (0000:40:00.0) text"})],
    "nic_errors": [Case("warn", "inspect", host={"nic_errors": "mlx5_0 (0000:40:00.0) text"})],
    "nic_nodes": [Case("warn", "configure", host={"nic_nodes_missing": "mlx5_0 (0000:40:00.0) text"})],
    "gpudirect": [Case("warn", "configure", host={"gpudirect_impossible": "mlx5_0 (0000:40:00.0) text"})],
    "gpudirect_unknown": [Case("unknown", "none", host={"gpudirect_unknown": "mlx5_0 (0000:40:00.0) text"})],
    "peermem_unbuilt": [Case("warn", "inspect", host={"peermem_unbuilt": "mlx5_0 (0000:40:00.0) text"})],
    "gpudirect_redirected": [Case("warn", "configure", host={"gpudirect_redirected": "mlx5_0 (0000:40:00.0) text"})],
    "test_failed": [
        Case("fail", "field_diagnostic", tested=Diagnostics((Outcome(FAILED, "dcgm_3: memory: Fail", 0),)))
    ],
    "test_failed_on_host": [Case("fail", "field_diagnostic", tested=Diagnostics((Outcome(FAILED, "nccl: wrong"),)))],
    "test_configuration": [Case("warn", "configure", tested=Diagnostics((Outcome(CONFIGURATION, "dcgm_1: off"),)))],
    "test_warned": [Case("warn", "inspect", tested=Diagnostics((Outcome(WARNED, "dcgm_1: software: Warn"),)))],
    "test_unknown": [Case("unknown", "none", tested=Diagnostics((Outcome(UNKNOWN, "nccl was not run"),)))],
    "host_bandwidth": [Case("warn", "inspect", tested=Diagnostics(measured=Measured(host={0: 30.0, 1: 55.0})))],
    "peer_bandwidth": [Case("warn", "inspect", tested=Diagnostics(measured=Measured(peer={0: 30.0, 1: 390.0})))],
    "nccl_bandwidth": [Case("warn", "inspect", tested=Diagnostics(measured=Measured(bus=300.0)))],
    "xid_application": [Case("info", "restart_application", log=(xid(code),)) for code in APPLICATION],
    "xid_informational": [Case("info", "none", log=(xid(code),)) for code in (14, 37, 38, 43, 44, 106, 141, 162, 171)],
    "xid_cleanup_alone": [Case("warn", "restart_fabric_manager", log=(xid(45, "Ch 00000001"),))],
    "xid_cleanup": [
        # Nothing connects these GPUs but PCIe, or switches elsewhere in the rack.
        Case("info", "none", {"fabric_state": None, "name": "NVIDIA L40S"}, log=(xid(45, "Ch 00000001"),)),
        Case("info", "none", {"name": "NVIDIA GB200"}, log=(xid(45, "Ch 00000001"),)),
        Case("info", "none", log=(xid(45, "Ch 00000001 caused by previous Xid 149"),)),
        Case("info", "none", log=(xid(43), xid(45, "Ch 00000001"))),
    ],
    "xid_reset": [
        Case("fail", "reset_gpu", log=(xid(code),))
        for code in (46, 48, 62, 64, 95, 109, 119, 120, 136, 140, 143, 156, 158, 166, 169)
    ],
    "xid_hardware": [Case("fail", "inspect", log=(xid(54),))],
    # https://docs.nvidia.com/deploy/xid-errors/, the table for Volta and older GPUs.
    "xid_microcontroller": [
        Case("fail", "reboot", {"architecture": name}, log=(xid(61),)) for name in ("turing", "volta", "kepler")
    ],
    "xid_row_remapped": [Case("info", "none", log=(xid(63),))],
    "xid_row_remapping": [Case("warn", "drain_and_reset", {"remapped_rows_pending": None}, log=(xid(63),))],
    "xid_link_fabric": [Case("fail", "reset_fabric", log=(nvlink_74(0, 0, 0, 1 << 18, 0, 0, 0),))],
    "xid_link_mechanics": [Case("fail", "inspect", log=(nvlink_74(1 << 8, 0, 0, 0, 0, 0, 0),))],
    "xid_link_signal": [Case("fail", "inspect", log=(nvlink_74(1 << 21, 0, 0, 0, 0, 0, 0),))],
    "xid_link_harmless": [Case("info", "none", log=(nvlink_74(1 << 23, 0, 0, 0, 1 << 20, 0, 0),))],
    "xid_link": [
        Case("fail", "reset_gpu", log=(nvlink_74(1 << 4, 0, 0, 0, 0, 0, 0),)),
        Case("fail", "reset_gpu", log=(nvlink_74(0, 0, 0x10000, 0, 0, 0, 0),)),
        Case("fail", "reset_gpu", log=(xid(74, "NVLink: fatal error detected on link 1"),)),
    ],
    "xid_software": [Case("warn", "update_software", log=(xid(code),)) for code in (78, 168)],
    "xid_off_the_bus": [
        Case("fail", "reboot", log=(xid(79),)),
        Case("fail", "reboot", log=(xid(167),)),
        Case("fail", "reboot", log=("NVRM: GPU 0000:06:00.0: GPU has fallen off the bus.",)),
    ],
    "xid_watch": [Case("warn", "none", log=(xid(code),)) for code in (92, 93, 121, 142, 160, 163, 170)],
    "xid_security": [Case("fail", "power_cycle", log=(xid(110),))],
    "xid_nvlink5_intended": [
        Case("info", "none", log=(xid(149, f"NETIR_LINK_EVT Fatal XC0 {BLACKWELL.format((0b100110 << 20) | 0x11)}"),))
    ],
    "xid_nvlink5_application": [
        Case("info", "restart_application", log=(xid(145, "RLW_REMAP Nonfatal XC0 i0 Link 02"),)),
        Case("info", "restart_application", log=(xid(145, f"RLW_SRC_TRACK Nonfatal XC1 {BLACKWELL.format(7)}"),)),
    ],
    "xid_nvlink5_nonfatal": [
        Case("info", "none", log=(xid(145, f"RLW_RXPIPE Nonfatal XC0 {BLACKWELL.format(0b00000110)}"),)),
        Case("info", "none", log=(xid(149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 01"),)),
    ],
    "xid_nvlink5_fatal": [
        Case("fail", "reset_gpu", log=(xid(149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01"),)),
        Case("fail", "reset_gpu", log=(xid(145, f"RLW_RXPIPE Nonfatal XC0 {BLACKWELL.format(0b10000110)}"),)),
        Case("fail", "reset_gpu", log=(xid(150, "no severity"),)),
    ],
    "xid_confidential": [Case("fail", "restart_vm", log=(xid(151),))],
    "xid_action_none": [Case("info", "none", {"recovery_action": None}, log=(action("0x0"),))],
    "xid_action_reset": [
        Case("fail", "reset_gpu", {"recovery_action": None}, log=(action("0x1", text),))
        for text in ("GPU Reset Required", "PF FLR")
    ],
    "xid_action_reboot": [Case("fail", "reboot", {"recovery_action": "reboot"}, log=(action("0x2"),))],
    "xid_action_drain_p2p": [Case("fail", "drain", {"recovery_action": None}, log=(action("0x3"),))],
    "xid_action_drain_and_reset": [Case("fail", "drain_and_reset", {"recovery_action": None}, log=(action("0x4"),))],
    "xid_action_imex": [Case("fail", "restart_imex", {"recovery_action": None}, log=(action("0x5"),))],
    "xid_action_bus_reset": [Case("fail", "reset_gpu", {"recovery_action": None}, log=(action("0x6"),))],
    "xid_action_system_reboot": [Case("fail", "reboot", {"recovery_action": None}, log=(action("0x7"),))],
    "xid_action_unknown": [Case("fail", "service", {"recovery_action": None}, log=(action("0x8"),))],
    "xid_c2c": [Case("fail", "reboot", log=(xid(173),))],
    "xid_sparing": [Case("warn", "drain_and_reset", log=(xid(185),))],
    "xid_link_down": [Case("warn", "drain_and_reset", log=(xid(155),))],
    "xid_service": [Case("warn", "service", log=(xid(code),)) for code in (157, 161, 164, 165)],
    "xid_interconnect": [Case("warn", "drain_and_reset", log=(xid(159),))],
    "xid_microcontroller_breakpoint": [Case("warn", "reboot", log=(xid(61),))],
    "xid_deprecated": [Case("warn", "none", log=(xid(code),)) for code in DEPRECATED],
    "xid_unknown": [Case("warn", "none", log=(xid(code),)) for code in (0, 174, 999, 100_000)],
    "sxid_partition": [Case("fail", "restart_fabric_manager", log=(sxid(11004, "Non-fatal, Link 1"),))],
    "sxid_traffic": [
        Case("fail", "reset_fabric", log=(sxid(12028, "Non-fatal, Link 32 egress"),)),
        Case("fail", "reset_fabric", log=(sxid(26006, "SOE HALTED"),)),
        Case("fail", "reset_fabric", log=(sxid(12028, "Data {0x000001c0}"),)),
    ],
    "sxid_mechanics": [Case("warn", "inspect", log=(sxid(20012, "Non-fatal, Link 1"),))],
    "sxid_watch": [Case("warn", "none", log=(sxid(20009, "Non-fatal, Link 28"),))],
    "sxid_fatal": [Case("fail", "reset_fabric", log=(sxid(code, "Severity 1 Engine"),)) for code in FATAL_SXIDS],
    "sxid_stated_fatal": [Case("fail", "reset_fabric", log=(sxid(99999, "Fatal, Link 1"),))],
    "sxid_stated_nonfatal": [Case("info", "none", log=(sxid(22013, "Non-fatal, Link 57"),))],
    "sxid_unknown": [Case("warn", "none", log=(sxid(99999, "what it is"),))],
    "firmware_missing": [
        Case(
            "fail",
            "update_software",
            facts={"gpus": []},
            log=(
                "NVRM: RmFetchGspRmImages: No firmware image found",
                "NVRM: GPU 0000:06:00.0: RmInitAdapter failed! (0x61:0x56:1770)",
            ),
        )
    ],
    "driver_not_ready": [
        Case("fail", "configure", facts={"gpus": []}, log=(*before, f"{INIT_FAILED} (0x63:0x0:1905)"))
        for before in ((), ("NVRM: Open nvidia.ko is only ready for use on Data Center GPUs.",))
    ],
    "display_unsupported": [
        Case("info", "none", facts=NEXT_TO_GT_710, log=of_card(log)) for log in (UNSUPPORTED, LEGACY)
    ],
    "driver_unsupported": [Case("fail", "update_software", facts={"gpus": []}, log=UNSUPPORTED)],
    "probe_unsupported": [Case("fail", "update_software", facts={"gpus": []}, log=(*UNSUPPORTED, PROBE_FAILED))],
    "driver_conflict": [
        Case("fail", "configure", problem="gpu_missing", log=(line, "NVRM: No NVIDIA graphics adapter probed!"))
        for line in (
            "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
            "NVRM: GPU 0000:06:00.0 is already bound to nouveau.",
        )
    ],
    "bar_invalid": [
        Case(
            "fail",
            "configure",
            facts={"gpus": []},
            log=(
                "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
                "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:06:00.0)",
                PROBE_FAILED,
            ),
        )
    ],
    "power_cables": [
        Case(
            "fail",
            "inspect",
            facts={"gpus": []},
            log=(
                "NVRM: GPU 0000:06:00.0: GPU does not have the necessary power cables connected.",
                f"{INIT_FAILED} (0x24:0x1c:1603)",
            ),
        )
    ],
    "init_failed": [
        Case(
            "fail",
            "reboot",
            facts={"gpus": []},
            log=("NVRM: GPU 0000:06:00.0: RmInitAdapter failed! (0x26:0x1a:1227)",),
        )
    ],
    "probe_failed": [
        Case("fail", "reboot", problem="gpu_missing", log=("NVRM: The NVIDIA probe routine failed for 1 device(s).",))
    ],
    "gsp_rate_limited": [
        Case(
            "info",
            "none",
            log=(f"NVRM: Rate limiting GSP RPC error prints for GPU at {PLACE} (printing 1 of every 30)",),
        )
    ],
    "driver_reset_required": [
        Case(
            "fail",
            "reset_gpu",
            log=(f"NVRM: {name}: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned",),
        )
        for name in ("nvAssertOkFailedNoLog", "GPU0 nvAssertOkFailedNoLog")
    ],
    "gsp_crashed": [
        Case("warn", "drain_and_reset", log=(f"NVRM: {name}{'*' * 30} GSP-CrashCat Report {'*' * 31}",))
        for name in ("", "kgspHealthCheck_TU102: ", "GPU0 kgspHealthCheck_TU102: ")
    ],
    "gsp_silent": [
        Case("warn", "drain_and_reset", log=(f"NVRM: GPU6 _kgspLogRpcTimeout: {'*' * 33} GSP Timeout {'*' * 34}",))
    ],
    "driver_assertion": [
        Case("info", "none", log=("NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: x @ mem.c:178",))
    ],
    "api_mismatch": [Case("info", "none", log=("NVRM: API mismatch: the client has the version 1, but",))],
    "nvlink_rx_detect": [
        Case("warn", "reboot", log=(f"NVRM: {text}",))
        for text in (
            "knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!",
            "knvlinkDiscoverPostRxDetLinks_GB100_REV2: Getting peer17 postRxDetLinkMask failed!",
            "GPU0 knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
        )
    ],
    "nvlink_init": [Case("warn", "none", log=("NVRM: knvlinkCoreAddDevice_IMPL: Failed to register device",))],
    "uvm_fatal": [
        Case(
            "fail",
            "reboot",
            log=(f"NVRM: {name}uvm encountered global fatal error 0x60, requiring os reboot to recover.",),
        )
        for name in ("", "nvGpuOpsReportFatalError: ", "GPU0 nvGpuOpsReportFatalError: ")
    ],
    "driver_oops": [
        Case("warn", "reboot", log=(begin, "Oops: 0000 [#1] SMP NOPTI", *between, f"{call} [{module}]"))
        for begin in (
            "BUG: kernel NULL pointer dereference, address: 0000000000000030",
            "BUG: unable to handle page fault for address: ffffa0a0a0a0a0a0",
            "kernel BUG at /var/lib/dkms/nvidia/nv.c:1!",
        )
        for between in ((), ("RIP: 0010:down+0x1f/0x50", "Call Trace:", " <TASK>", " ? up+0x58/0xa0 [nfs]"))
        for call, module in (
            ("RIP: 0010:nvidia_vma_access+0x1b/0x350", "nvidia"),
            (" uvm_va_space_destroy+0x40/0x90", "nvidia_uvm 0123456789abcdef0123456789abcdef01234567"),
        )
    ],
    "driver_stalled": [
        Case("warn", "reboot", log=(begin, "Call Trace:", f" {call}"))
        for begin in (
            "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]",
            "NMI watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [a b:2254956]",
            "watchdog: Watchdog detected hard LOCKUP on cpu 3",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
            "INFO: task nvidia-smi:4711 blocked for more than 120 seconds.",
        )
        for call in ("uvm_spin_loop+0xb2/0xe0 [nvidia_uvm]", "[<ffffffffa09c376e>] _nv011745rm+0x1f/0x170 [nvidia]")
    ],
    "gpu_locked": [
        Case(
            "warn",
            "drain_and_reset",
            log=(f"NVRM: {name}RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",),
        )
        for name in ("krcWatchdog_IMPL: ", "GPU0 krcWatchdog_IMPL: ")
    ],
    "nic_failed": [
        Case("warn", "reboot", log=(f"mlx5_core 0000:d2:00.0: {text}",))
        for text in (
            "poll_health:694:(pid 0): Fatal error 1 detected",
            "poll_health:709:(pid 0): device's health compromised - reached miss count",
            "print_health_info:383:(pid 0): synd 0x8: unrecoverable hardware error",
            "mlx5_health_try_recover:335:(pid 12): health recovery failed",
            "wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
            "cb_timeout_handler:877:(pid 9): cmd[3]: 2ERR_QP(0x507) Async, timeout. Will cause a leak of a command",
        )
    ],
    "host_hardware_error": [
        *(
            Case("warn", "inspect", log=(line,))
            for line in (
                "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0)",
                "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 7: be00000000800400",
                "mce: Uncorrected hardware memory error in user-access at 3f8a6c0000",
            )
        ),
        *(
            Case(
                "warn",
                "inspect",
                log=(
                    f"{{1}}[Hardware Error]:  Error 0, type: {severity}",
                    f"{{1}}[Hardware Error]:   section_type: {section}",
                ),
            )
            for severity in ("recoverable", "fatal")
            for section in ("memory error", "general processor error", "ARM processor error")
        ),
    ],
    "pcie_fatal": [Case("fail", "inspect", log=("nvidia 0000:06:00.0: AER: Uncorrected (Fatal) error received",))],
    "pcie_nonfatal": [
        Case("warn", "none", log=("nvidia 0000:06:00.0: AER: Uncorrectable (Non-Fatal) error message received",))
    ],
    "pcie_link_down": [
        Case("fail", "inspect", log=("pcieport 0000:06:00.0: pciehp: Slot(4): Link Down",)),
        Case("fail", "inspect", log=("pcieport 0000:06:00.0: DPC: containment event, status:0x1f01 source:0x0000",)),
    ],
    "pcie_inaccessible": [
        Case("fail", "reboot", facts={"gpus": [], "pci_gpus": [{"pci_bus_id": "00000000:06:00.0"}]}, log=(line,))
        for line in (
            "nvidia 0000:06:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            "nvidia 0000:06:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
        )
    ],
    "pcie_unrecovered": [
        Case("warn", "inspect", log=("nvidia 0000:06:00.0: AER: can't recover (no error_detected callback)",)),
        Case("warn", "inspect", log=("pcieport 0000:06:00.0: AER: device recovery failed",)),
    ],
    "pcie_other": [Case("info", "none", log=("nvidia 0000:06:00.0: AER: Corrected error received",))],
    "iommu_fault": [Case("warn", "none", log=("DMAR: [DMA Read] Request device [06:00.0] fault addr 0x7cd80000",))],
    "xid_repeated": [Case("fail", "service", before=repeated(*every(95, 1, 2, 3, 4, 5)))],
    "xid_after_reboots": [
        Case(
            "fail",
            "field_diagnostic",
            before=repeated(*(record for n in range(3) for record in every(119, 24.0 + n, boot=f"b{n}"))),
        )
    ],
    "xid_31_repeated": [Case("warn", "field_diagnostic", before=repeated(*every(31, 1, 5, fatal=False)))],
    "xid_13_repeated": [
        Case("warn", "field_diagnostic", before=repeated(*every(13, 1, 5, unit="GPC 1, TPC 3", fatal=False)))
    ],
}


def observed(healthy: Mapping[str, Any], case: Case) -> Observed:
    facts = copy.deepcopy(dict(healthy))
    gpu = facts["gpus"][0]
    for name, value in case.gpu.items():
        outer, _dot, inner = name.partition(".")
        if inner:
            gpu[outer][inner] = value
        else:
            gpu[name] = value
    if case.problem:
        facts["unhealthy"] = [{"gpu": gpu["uuid"], "code": case.problem, "message": f"GPU 0 (06): {case.problem}"}]
    return Observed(
        facts={**facts, **case.facts},
        declared=case.declared,
        log=KernelLog("journal", parse(case.log, NOW - HOUR)),
        history=History(case.models, {gpu["uuid"]: case.before}),
        host=case.host,
        boot="now",
        now=NOW,
        tested=case.tested,
    )


def test_a_healthy_host_has_no_finding(healthy: dict[str, Any]) -> None:
    assert evaluate(TABLE, observed(healthy, Case("ok", "none"))) == Report(())


@pytest.mark.parametrize(
    ("row", "case"),
    [(row, case) for row, cases in CASES.items() for case in cases],
    ids=[f"{row}-{number}" for row, cases in CASES.items() for number in range(len(cases))],
)
def test_row(row: str, case: Case, healthy: dict[str, Any]) -> None:
    found = {finding.row: finding for finding in evaluate(TABLE, observed(healthy, case)).findings}
    assert row in found
    assert (found[row].verdict, found[row].remedy) == (case.verdict, case.remedy)
    assert (REMEDIES[case.remedy] in found[row].message) == (case.remedy != "none")


def test_every_row_has_a_case() -> None:
    assert set(CASES) == {row.id for row in TABLE}
    assert len({row.id for row in TABLE}) == len(TABLE)


def test_every_row_is_complete() -> None:
    for row in TABLE:
        assert row.verdict in VERDICTS
        assert row.remedy in REMEDIES
        assert row.symptom
        assert row.source
        assert not row.reading or row.reading in NAMES
        how = (row.reading, row.xids or row.sxids or row.events, row.is_repetition)
        assert sum(map(bool, how)) == 1 or row.is_repetition, row.id


def test_no_xid_of_the_catalogue_is_unknown_and_none_has_two_rows() -> None:
    for code in (*range(1, 174), 185):
        rows = [row for row in TABLE if code in row.xids and not row.is_repetition]
        assert rows, code
        assert sum(not row.when for row in rows) == (0 if code == 0 else 1), code


# Of the same line the driver's branch decides the layout.
@pytest.mark.parametrize(
    ("driver", "row"), [("570.195.03", "xid_nvlink5_fatal"), ("580.159.04", "xid_nvlink5_nonfatal")]
)
def test_the_layout_of_an_nvlink_error_follows_the_driver(driver: str, row: str, healthy: dict[str, Any]) -> None:
    line = xid(145, f"RLW_RXPIPE Nonfatal XC0 {BLACKWELL.format(0b10011000010)}")
    case = Case("", "", facts={"driver_version": driver}, log=(line,))
    assert [finding.row for finding in evaluate(TABLE, observed(healthy, case)).findings] == [row]


# GPUs of the healthy host that respond, those that are withheld, what is declared, and the verdict about their number.
COUNTS: list[tuple[int, list[dict[str, Any]], int | None, str]] = [
    (2, [], 2, ""),
    (1, [], 2, "gpu_count fail"),
    (2, [], 1, "gpu_count fail"),
    (1, [PASSED], 2, "gpu_count_withheld warn"),
    (1, [EXCLUDED], 2, "gpu_count_withheld warn"),
    (0, [PASSED, EXCLUDED], 2, "gpu_count_withheld warn"),
    (1, [PASSED], 1, ""),
    (2, [PASSED], 2, ""),
    (1, [PASSED], 3, "gpu_count fail"),
    (2, [PASSED], 1, "gpu_count fail"),
    # Not declared: both were there at an earlier check.
    (2, [PASSED], None, ""),
    (1, [], None, "gpu_count fail"),
    (1, [PASSED], None, "gpu_count fail"),
    (1, [{**PASSED, "pci_bus_id": ON_BUS}], None, ""),
    (1, [{**EXCLUDED, "pci_bus_id": ON_BUS}], None, ""),
    (0, [{**PASSED, "pci_bus_id": ON_BUS}], None, "gpu_count fail"),
]


@pytest.mark.parametrize(("count", "withheld", "declared", "expected"), COUNTS)
def test_a_gpu_that_is_withheld_on_purpose_is_no_loss(
    count: int, withheld: list[dict[str, Any]], declared: int | None, expected: str, healthy: dict[str, Any]
) -> None:
    """GPU 0 was at ON_BUS at an earlier check; what is passed through at another address was never one of the host."""
    facts = {"gpus": healthy["gpus"][2 - count :], "pci_gpus": withheld}
    before = GpuHistory(pci_bus_id=ON_BUS)
    case = Case("", "", facts=facts, declared=Declared(declared), before=before, models=("NVIDIA H200",) * 2)
    found = evaluate(TABLE, observed(healthy, case)).findings
    assert [f"{each.row} {each.verdict}" for each in found if each.row.startswith("gpu_count")] == (
        [expected] if expected else []
    )


def test_a_declared_number_accepts_excluded_gpus(healthy: dict[str, Any]) -> None:
    case = Case("", "", facts={"pci_gpus": [EXCLUDED]}, declared=Declared(gpu_count=2))
    assert evaluate(TABLE, observed(healthy, case)) == Report(())


@pytest.mark.parametrize("reason", ["passed_through", "excluded"])
def test_a_host_that_keeps_no_gpu_for_itself_is_healthy(reason: str, healthy: dict[str, Any]) -> None:
    withheld = PASSED if reason == "passed_through" else EXCLUDED
    report = evaluate(TABLE, observed(healthy, Case("", "", facts={**unavailable(reason), "pci_gpus": [withheld]})))
    assert (report.verdict(), report.remedy()) == ("info", "none")


# An old display card next to the GPUs, by what the kernel log has of it and how many GPUs were there before.
@pytest.mark.parametrize(
    ("log", "recorded", "verdict"),
    [
        ((), 2, "warn"),
        # The driver states why.
        (UNSUPPORTED, 2, "info"),
        ((*LEGACY, PROBE_FAILED), 2, "info"),
        ((*UNSUPPORTED, PROBE_FAILED), 3, "fail"),
    ],
)
def test_an_old_display_card_fails_no_host(
    log: tuple[str, ...], recorded: int, verdict: str, healthy: dict[str, Any]
) -> None:
    case = Case("", "", facts=NEXT_TO_GT_710, log=of_card(log), models=("NVIDIA H200",) * recorded)
    assert evaluate(TABLE, observed(healthy, case)).verdict() == verdict


def test_a_line_without_address_is_about_a_gpu_that_is_missing(healthy: dict[str, Any]) -> None:
    unhealthy = [*NEXT_TO_GT_710["unhealthy"], {"gpu": "00000000:0c:00.0", "code": "gpu_missing", "message": "gone"}]
    case = Case("", "", facts={"unhealthy": unhealthy}, log=LEGACY)
    assert "driver_unsupported" in {finding.row for finding in evaluate(TABLE, observed(healthy, case)).findings}


# Healthy readings that look like a symptom.
HARMLESS = [
    {"other": {"addressing_mode": "Unknown Error"}},
    {"pci_link_gen_current": 1},
    {"pci_link_width_max": None},
    {"temperature_gpu_tlimit_c": 0, "temperature_slowdown_tlimit_c": -2},
    {"slowdown_sw_power_cap": True, "slowdown_gpu_idle": True},
    {"fabric_state": None, "fabric_health_summary": None},
    {"retired_pages_single_bit_count": None, "retired_pages_double_bit_count": None},
    # A vGPU knows nothing of the board, and needs a license; its host's GPU joins the fabric with a virtual machine.
    {
        "virtualization_mode": "vgpu",
        "vgpu_license_status": "Licensed (Expiry: 2026-12-31 0:0:0 GMT)",
        **dict.fromkeys(
            ("temperature_gpu_c", "power_draw_w", "power_limit_w", "pci_link_gen_current", "pci_link_width_current")
        ),
        **dict.fromkeys(("ecc_mode_current", "ecc_mode_pending", "fabric_state", "recovery_action", "serial")),
    },
    {"virtualization_mode": "host_vgpu", "host_vgpu_mode": "sr_iov", "fabric_state": "not_started"},
    # Only GB200 and GB300 have limits.
    {"power_draw_average_w": 20.0},
    *(
        {"name": "NVIDIA GB200", "power_draw_average_w": power, "nvlinks": [link(n, 53.125) for n in range(18)]}
        for power in (65.0, 1500.0, None)
    ),
]


@pytest.mark.parametrize("readings", HARMLESS)
def test_harmless_readings(readings: dict[str, Any], healthy: dict[str, Any]) -> None:
    assert evaluate(TABLE, observed(healthy, Case("", "", readings))).verdict() == "ok"


@pytest.mark.parametrize(("lanes", "verdict"), [(None, "ok"), (8, "ok"), (16, "warn")])
def test_a_narrow_slot_is_no_problem(lanes: int | None, verdict: str, healthy: dict[str, Any]) -> None:
    one = observed(healthy, Case("", "", {"pci_link_width_current": 8, "pci_link_width_max": 16}))
    gpu = one.facts["gpus"][0]
    slots = {} if lanes is None else {gpu["pci_bus_id"]: lanes}
    alone = Observed(**{**one.__dict__, "facts": {**one.facts, "gpus": [gpu]}, "slot_lanes": slots})
    assert evaluate(TABLE, alone).verdict() == verdict


# Events that are no problem any more, or not of a GPU.
OVER = [
    # The driver asked for a reset, and asks for nothing now.
    (xid(119), action("0x1")),
    (xid(119), action("0x1"), f"NVRM: Xid ({PLACE}): 154, GPU recovery action changed from 0x1 (x) to 0x0 (None)"),
    (xid(119), "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01"),
    # It responds now.
    ("NVRM: GPU 0000:06:00.0: RmInitAdapter failed! (0x26:0x1a:1227)",),
    ("NVRM: The NVIDIA probe routine failed for 1 device(s).",),
    # Another device.
    ("pcieport 0000:00:1b.4: AER: Uncorrected (Fatal) error received: 0000:00:1b.4",),
    ("DMAR: [DMA Read] Request device [00:02.0] fault addr 0x7cd80000",),
]


@pytest.mark.parametrize("log", OVER)
def test_what_is_over_is_no_problem(log: tuple[str, ...], healthy: dict[str, Any]) -> None:
    report = evaluate(TABLE, observed(healthy, Case("", "", log=log)))
    assert (report.verdict(), report.remedy()) in (("ok", "none"), ("info", "none"))


def test_an_xid_after_the_reset_counts(healthy: dict[str, Any]) -> None:
    log = (xid(119), action("0x1"), xid(46))
    report = evaluate(TABLE, observed(healthy, Case("", "", log=log)))
    assert [(count.code, count.is_over) for count in report.xids] == [(119, True), (154, True), (46, False)]
    assert report.verdict() == "fail"


def test_xids_are_counted_by_gpu_and_code(healthy: dict[str, Any]) -> None:
    other = "[ 20.0] NVRM: Xid (PCI:0000:07:00 GPU-I:05): 31, pid=7, name=a b, text"
    lost = ("NVRM: GPU 0000:06:00.0: GPU has fallen off the bus.", xid(79))
    report = evaluate(TABLE, observed(healthy, Case("", "", log=(xid(31), xid(31), other, *lost))))
    uuids = [gpu["uuid"] for gpu in healthy["gpus"]]
    assert {(count.gpu, count.code): count.count for count in report.xids} == {
        (uuids[0], 31): 2,
        (uuids[1], 31): 1,
        # One fall off the bus, logged twice.
        (uuids[0], 79): 1,
    }
    second = next(count for count in report.xids if count.gpu == uuids[1])
    assert (second.pid, second.process, second.gpu_instances) == (7, "a b", (5,))


def test_an_error_of_a_port_above_a_gpu_counts(healthy: dict[str, Any]) -> None:
    line = "pcieport 0000:00:1b.4: AER: Uncorrected (Fatal) error received: 0000:00:1b.4"
    at_port = observed(healthy, Case("", "", log=(line,)))
    ports = {"00000000:00:1b.0": (healthy["gpus"][0]["pci_bus_id"],)}
    (finding,) = evaluate(TABLE, Observed(**{**at_port.__dict__, "ports": ports})).findings
    assert (finding.row, finding.gpu) == ("pcie_fatal", None)


NO_REPETITION = [
    # One burst, bursts long ago, two boots, the same exception in another unit.
    every(95, 1, 1.01, 1.02, 1.03, 1.04),
    every(95, 30, 31, 32, 33, 34),
    (*every(119, 1, boot="a"), *every(119, 2, boot="b")),
    (*every(119, 1, boot="a"), *every(119, 2, boot="b"), *every(119, 24 * 8, boot="c")),
    (*every(13, 1, unit="GPC 1, TPC 3", fatal=False), *every(13, 5, unit="GPC 1, TPC 4", fatal=False)),
    every(43, 1, 2, 3, 4, 5, fatal=False),
]


@pytest.mark.parametrize("records", NO_REPETITION)
def test_no_repetition(records: tuple[XidRecord, ...], healthy: dict[str, Any]) -> None:
    assert evaluate(TABLE, observed(healthy, Case("", "", before=repeated(*records)))).verdict() == "ok"


def test_page_faults_of_several_gpus_are_the_application(healthy: dict[str, Any]) -> None:
    one = observed(healthy, Case("", "", before=repeated(*every(31, 1, 5, fatal=False))))
    gpus = {gpu["uuid"]: repeated(*every(31, 1, 5, fatal=False)) for gpu in healthy["gpus"]}
    both = Observed(**{**one.__dict__, "history": History((), gpus)})
    assert (evaluate(TABLE, one).verdict(), evaluate(TABLE, both).verdict()) == ("warn", "ok")


# Orders


def test_remedies_are_a_total_order() -> None:
    order = list(REMEDIES)
    assert order == [
        "none",
        "restart_application",
        "configure",
        "restart_fabric_manager",
        "restart_imex",
        "update_software",
        "drain",
        "drain_and_reset",
        "reset_gpu",
        "reset_fabric",
        "restart_vm",
        "reboot",
        "power_cycle",
        "inspect",
        "field_diagnostic",
        "service",
    ]
    for weaker, stronger in itertools.combinations(order, 2):
        assert strongest([weaker, stronger]) == strongest([stronger, weaker]) == stronger
    assert strongest([]) == "none"


def test_verdicts_are_a_total_order_in_which_unknown_is_never_ok() -> None:
    assert list(VERDICTS) == ["ok", "info", "unknown", "warn", "fail"]
    for better, bad in itertools.combinations(VERDICTS, 2):
        assert worst([better, bad]) == worst([bad, better]) == bad
    assert worst([]) == "ok"


def finding(verdict: str, remedy: str, gpu: str | None) -> Finding:
    return Finding("row", gpu, verdict, remedy, "", "")


def test_the_host_is_as_bad_as_its_worst_gpu() -> None:
    found = (
        finding("info", "restart_application", "a"),
        finding("warn", "inspect", "a"),
        finding("fail", "reset_gpu", "b"),
        finding("unknown", "none", None),
    )
    report = Report(found)
    assert (report.verdict(), report.remedy()) == ("fail", "reset_gpu")
    assert (report.verdict("a"), report.remedy("a")) == ("warn", "inspect")
    assert (report.verdict("b"), report.remedy("b")) == ("fail", "reset_gpu")
    assert (report.verdict("c"), report.remedy("c")) == ("ok", "none")
    assert Report(found[:1]).remedy() == "restart_application"


# Rows of a site


def site(*rows: dict[str, Any]) -> tuple[Row, ...]:
    return with_site_rows(TABLE, rows, NAMES)


def rows_found(healthy: dict[str, Any], case: Case, *rows: dict[str, Any]) -> dict[str, tuple[str, str]]:
    report = evaluate(site(*rows), observed(healthy, case))
    return {found.row: (found.verdict, found.remedy) for found in report.findings}


def test_a_site_changes_a_row(healthy: dict[str, Any]) -> None:
    case = Case("", "", {"remapped_rows_pending": True})
    changed = {"id": "row_remap_pending", "verdict": "fail", "remedy": "reboot"}
    assert rows_found(healthy, case, changed) == {"row_remap_pending": ("fail", "reboot")}


def test_a_site_changes_a_threshold_for_a_model(healthy: dict[str, Any]) -> None:
    case = Case("", "", {"ecc_errors_volatile.dram_correctable": 500})
    for thresholds, expected in (({"H200": 400}, 1), ({"A100": 400}, 0), ({"H200": 400, "NVIDIA H200": 600}, 0)):
        assert len(rows_found(healthy, case, {"id": "ecc_dram_corrected", "thresholds": thresholds})) == expected


def test_a_site_adds_rows(healthy: dict[str, Any]) -> None:
    hot = {
        "id": "hot",
        "reading": "temperature_gpu_c",
        "operator": "above",
        "value": 1,
        "verdict": "warn",
        "remedy": "inspect",
    }
    accepted = {"id": "accepted", "xids": [119], "verdict": "ok"}
    found = rows_found(healthy, Case("", "", {"temperature_gpu_c": 30}, log=(xid(119),)), hot, accepted)
    assert found == {"hot": ("warn", "inspect"), "accepted": ("ok", "none")}


IMPOSSIBLE = [
    ([{"id": "new", "verdict": "warn"}], "new needs one of reading, xids and sxids"),
    ([{"id": "new", "verdict": "warn", "xids": [1], "sxids": [1]}], "needs one of reading, xids and sxids"),
    ([{"id": "new", "xids": [1]}], "new needs a verdict"),
    ([{"id": "new", "reading": "heat", "verdict": "warn"}], "no reading heat"),
    ([{"id": "new", "xids": [1], "verdict": "warn"}] * 2, "given twice"),
    ([{"id": "row_remap_pending", "operator": "above", "value": "many"}], "compares with a number"),
    ([{"id": "ecc_dram_corrected", "thresholds": {"H200": "many"}}], "compares with a number"),
    ([{"id": "recovery_reset", "value": "reset"}], "compares with a list"),
]


@pytest.mark.parametrize(("rows", "message"), IMPOSSIBLE)
def test_impossible_rows_of_a_site(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ChangeError, match=re.escape(message)):
        site(*rows)


def test_fixture_lines_are_all_decided(healthy: dict[str, Any]) -> None:
    """No Xid of a real log is dropped."""
    lines = Path(__file__).with_name("fixtures").joinpath("kernel-log.txt").read_text().splitlines()
    log = [line for line in lines if not line.startswith((">", "@", "#"))]
    report = evaluate(TABLE, observed(healthy, Case("", "", log=tuple(log))))
    events = [event for event in parse(log) if event.kind == "xid"]
    assert {event.code for event in events} == {count.code for count in report.xids}
    assert sum(count.count for count in report.xids) >= len(events)
