# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How each row of the health policy is shown end to end: faults of a simulated host, and the whole module on it.

`FAULTS` has the verdict and the remedy of the host for one fault, `SCENARIOS` many rows at once, each with its own
verdict and remedy. docs/health.md has `SHOWN`, which is made of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE

Commands = str | tuple[str, ...]
"""One command of gpu-simulator, or several."""


@dataclass(frozen=True)
class Fault:
    """Commands, with the verdict and the remedy of the host, and the row that decides (none: no finding is needed)."""

    commands: tuple[str, ...]
    verdict: str
    remedy: str
    row: str = ""
    branch: int = 580
    options: Mapping[str, Any] = field(default_factory=dict)


FAULTS: dict[str, Fault] = {
    "ok": Fault((), "ok", "none"),
    "fan": Fault(("fault field fan_speed",), "ok", "none"),
    "application": Fault(("fault xid 31 --pid 7",), "info", "restart_application", "xid_application"),
    "MIG instance": Fault(
        ("fault xid 94 --pid 7 --gpu-instance 5",), "info", "restart_application", "xid_application"
    ),
    "no kernel log": Fault((), "unknown", "none", options={"kernel_log": "none"}),
    "unknown Xid": Fault(("fault xid 999 --text new",), "warn", "none", "xid_unknown"),
    "ECC mode": Fault((), "warn", "configure", options={"expected": {"ecc": False}}),
    "solo cleanup": Fault(("fault xid 45",), "warn", "restart_fabric_manager", "xid_cleanup_alone"),
    "IMEX": Fault(
        ("fault recovery-action recover_imex_domain",), "fail", "restart_imex", "recovery_imex", branch=615
    ),
    "software": Fault(("fault xid 78 --text vGPU",), "warn", "update_software", "xid_software"),
    "peer jobs": Fault(("fault recovery-action drain_p2p",), "fail", "drain", "recovery_drain_p2p"),
    "row remapping": Fault(
        ("set remapped_rows.pending true", "fault recovery-action drain_and_reset"),
        "fail",
        "drain_and_reset",
        "row_remap_pending",
    ),
    "fatal NVLink": Fault(("fault xid 149 --action none",), "fail", "reset_gpu", "xid_nvlink5_fatal"),
    "GSP": Fault(("fault xid 119",), "fail", "reset_gpu", "recovery_reset"),
    "uncontained": Fault(("fault xid 95 --log-only",), "fail", "reset_gpu", "xid_reset"),
    "NVLinks": Fault(("fault nvlink 3 11",), "fail", "reset_gpu", "nvlink_inactive"),
    "NVSwitch": Fault(("fault sxid 24007",), "fail", "reset_fabric", "sxid_fatal"),
    "confidential": Fault(("fault xid 151 --text key",), "fail", "restart_vm", "xid_confidential"),
    "action reboot": Fault(("fault xid 154 --action reboot",), "fail", "reboot", "recovery_reboot"),
    "off the bus": Fault(("fault xid 79 --gpu 1",), "fail", "reboot", "xid_off_the_bus"),
    "lost": Fault(("fault lost --gpu 1",), "fail", "reboot", "gpu_lost"),
    "smi fails": Fault(("fault exit 255 --text broken",), "fail", "reboot", "nvidia_smi_failed"),
    "security": Fault(("fault xid 110 --text x",), "fail", "power_cycle", "xid_security"),
    "mechanics": Fault(("fault xid 54 --text x",), "fail", "inspect", "xid_hardware"),
    "remap failed": Fault(("set remapped_rows.failure true",), "fail", "field_diagnostic", "row_remap_failure"),
    "infoROM": Fault(
        ("fault field vbios_version --text 'Corrupted infoROM'",), "fail", "service", "inforom_corrupted"
    ),
    "new action": Fault(
        ("fault field gpu_recovery_action --text 'Replace GPU'",), "fail", "service", "recovery_unknown"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """Rows that one host shows at once.

    `commands` are those of gpu-simulator, by row. `conditions` are what else shows a row: an option of the module, a
    file or a program of the host. `earlier` checks come before the commands, then `checks`, an hour apart.
    """

    commands: Mapping[str, Commands] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    model: str = "h200"
    count: int = 2
    nics: int = 0
    branch: int = 580
    pci_bus: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    earlier: int = 0
    checks: int = 1

    @property
    def shown(self) -> dict[str, str]:
        """What shows each of its rows, for people."""
        commands = {row: _in_markdown(text) for row, text in self.commands.items()}
        both = {row: f"{commands[row]}, {text}" for row, text in self.conditions.items() if row in commands}
        return {**self.conditions, **commands, **both}


def _nvlink_74(row: str, registers: str) -> dict[str, str]:
    text = f"NVLink: fatal error detected on link 14({registers})"
    return {row: f"fault xid 74 --text '{text}' --log-only --gpu 2"}


# Rows that one Xid of any text shows. Another row decides about 63 on GPUs that count their remapped rows.
_XIDS: dict[str, Commands] = {
    row.id: f"fault xid {row.xids[0]} --text text --log-only"
    for row in TABLE
    if row.xids and not row.when and not row.is_repetition and row.id not in ("xid_row_remapping", "xid_action_unknown")
}
_NVBANDWIDTH = """Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.63     41.05

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    390.11
 1    300.25       N/A
"""
_NCCL = "# Out of bounds values : {}\n# Avg bus bandwidth    : 300.0\n"
_WARNING = {"name": "software", "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Warn"}]}
_DCGM = {"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [_WARNING]}]}}

_DRIVER_OPEN = {
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release\n"
}

_GT_710 = {
    f"/sys/bus/pci/devices/0000:03:00.0/{name}": f"{text}\n"
    for name, text in {"vendor": "0x10de", "device": "0x128b", "class": "0x030000"}.items()
}

SCENARIOS: dict[str, Scenario] = {
    "kernel log": Scenario(
        {
            **_XIDS,
            "xid_row_remapped": "fault xid 63 --log-only --gpu 2",
            **_nvlink_74("xid_link_fabric", "0x0, 0x0, 0x0, 0x40000, 0x0, 0x0, 0x0"),
            **_nvlink_74("xid_link_mechanics", "0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"),
            **_nvlink_74("xid_link_signal", "0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"),
            **_nvlink_74("xid_link_harmless", "0x800000, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0"),
            "xid_nvlink5_intended": "fault xid 149 --text 'NETIR_LINK_EVT Fatal XC0 (0x02600011 0x1)' --log-only",
            "xid_nvlink5_application": "fault xid 145 --text 'RLW_REMAP Nonfatal XC0 i0 Link 02'",
            "xid_nvlink5_nonfatal": "fault xid 149 --text 'NETIR_BER_EVENT Nonfatal XC0 i0 Link 01' --log-only",
            "xid_unknown": "fault xid 999 --text text",
            "sxid_partition": "fault sxid 11004 --text text",
            "sxid_traffic": "fault sxid 12028",
            "sxid_mechanics": "fault sxid 20012 --text text",
            "sxid_watch": "fault sxid 20009",
            "sxid_fatal": "fault sxid 24007 --switch 1",
            "sxid_stated_fatal": "fault sxid 99999 --text text --severity fatal",
            "sxid_stated_nonfatal": "fault sxid 22013",
            "sxid_unknown": "fault sxid 99998 --text text",
            "gsp_rate_limited": "fault log 'NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:06:00'",
            "driver_reset_required": (
                "fault log 'NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED]'"
            ),
            "gsp_silent": "fault log 'NVRM: GPU6 _kgspLogRpcTimeout: *** GSP Timeout ***'",
            "gsp_crashed": "fault log 'NVRM: kgspHealthCheck_TU102: *** GSP-CrashCat Report ***'",
            "driver_assertion": "fault log 'NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: x @ mem.c:178'",
            "api_mismatch": "fault log 'NVRM: API mismatch: the client has the version 1, but'",
            "nvlink_init": "fault log 'NVRM: knvlinkCoreAddDevice_IMPL: Failed to register device'",
            "nvlink_rx_detect": (
                'fault log "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0\'s postRxDetLinkMask failed!"'
            ),
            "uvm_fatal": "fault log 'NVRM: uvm encountered global fatal error 0x60, requiring os reboot to recover.'",
            "gpu_locked": "fault log 'NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!'",
            "driver_oops": (
                "fault log 'BUG: kernel NULL pointer dereference, address: 0000000000000030'",
                "fault log 'RIP: 0010:nvidia_vma_access+0x1b/0x350 [nvidia]'",
            ),
            "driver_stalled": (
                "fault log 'watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]'",
                "fault log 'RIP: 0010:uvm_spin_loop+0xb2/0xe0 [nvidia_uvm]'",
            ),
            "nic_failed": "fault log 'mlx5_core 0000:d2:00.0: poll_health:694:(pid 0): Fatal error 1 detected'",
            "host_hardware_error": "fault log 'EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0'",
            "iommu_fault": "fault log 'DMAR: [DMA Read] Request device [06:00.0] fault addr 0x7cd80000'",
        },
        count=3,
    ),
    "removed channel": Scenario({"xid_cleanup_alone": "fault xid 45 --gpu 1"}),
    "recovery actions": Scenario(
        {
            "recovery_reset": "fault xid 119",
            "recovery_reboot": "fault xid 154 --action reboot --gpu 1",
            "recovery_drain_p2p": "fault recovery-action drain_p2p --gpu 2",
            "recovery_drain_and_reset": "fault recovery-action drain_and_reset --gpu 3",
            "recovery_imex": "fault recovery-action recover_imex_domain --gpu 4",
            "recovery_unknown": "fault field gpu_recovery_action --text 'Replace GPU' --gpu 5",
            "xid_action_reset": "fault xid 154 --action reset",
            "xid_action_reboot": "fault xid 154 --action reboot --gpu 1",
            "xid_action_drain_p2p": "fault xid 154 --action drain_p2p --gpu 2",
            "xid_action_drain_and_reset": "fault xid 154 --action drain_and_reset --gpu 3",
            "xid_action_imex": "fault xid 154 --action recover_imex_domain --gpu 4",
            "xid_action_unknown": (
                "fault log 'NVRM: Xid (PCI:0000:0b:00): 154, GPU recovery action changed from 0x0 (None) to 0x8 (x)'"
            ),
            "xid_action_bus_reset": "fault xid 154 --action bus_reset --gpu 6",
            "xid_action_system_reboot": "fault xid 154 --action system_reboot --gpu 7",
            "xid_action_none": "fault xid 154 --action none --gpu 8",
        },
        count=9,
        branch=615,
    ),
    "readings": Scenario(
        {
            "row_remap_failure": "set remapped_rows.failure true",
            "row_remap_pending": "set remapped_rows.pending true",
            "row_remapper_exhausted": (
                "fault field remapped_rows/row_remapper_histogram/row_remapper_histogram_none --text '1 bank(s)'"
            ),
            "rows_remapped": "set remapped_rows.uncorrectable 1",
            "ecc_repair_pending": "fault field ecc_errors/channel_repair_pending --text Yes",
            "ecc_unrepairable_memory": "fault field ecc_errors/unrepairable_memory --text Yes",
            "ecc_sram_threshold_exceeded": "fault field ecc_errors/aggregate/sram_threshold_exceeded --text Yes",
            "ecc_uncorrectable_aggregate": "set ecc_errors.aggregate.dram_uncorrectable 1",
            "ecc_sram_corrected": "set ecc_errors.volatile.sram_correctable 20000",
            "ecc_dram_corrected": "set ecc_errors.volatile.dram_correctable 30000000",
            "ecc_uncorrectable_contained": "set ecc_errors.volatile.dram_uncorrectable 1 --gpu 1",
            "ecc_mode_pending": "set ecc_mode.pending false",
            "mig_mode_pending": "set mig_mode.pending true",
            "operation_mode_pending": (
                "fault field gpu_operation_mode/current_gom --text 'All On'",
                "fault field gpu_operation_mode/pending_gom --text Compute",
            ),
            "dram_encryption_pending": (
                "fault field dram_encryption_mode/current_dram_encryption --text Disabled",
                "fault field dram_encryption_mode/pending_dram_encryption --text Enabled",
            ),
            "pcie_width": "fault field pci/pci_gpu_link_info/link_widths/current_link_width --text 8x --gpu 1",
            "nvlink_inactive": "fault nvlink 3 11 --gpu 1",
            "nvlink_slow": "fault nvlink 4 --speed 13.281",
            "fabric_not_completed": "fault field fabric/state --text 'In Progress'",
            "fabric_failed": "fault field fabric/status --text Failure --gpu 1",
            "fabric_bandwidth": "fault field fabric/health/bandwidth --text Degraded",
            "fabric_route": "fault field fabric/health/route_unhealthy --text True",
            "fabric_configuration": (
                "fault field fabric/health/incorrect_configuration --text 'Incompatible GPU Firmware'"
            ),
            "fabric_summary": "fault field fabric/health/summary --text Unhealthy",
            "slowdown_now": "fault slowdown hw_power_brake",
            "thermal_margin": "fault field temperature/gpu_temp_tlimit --text '-3 C'",
            "inforom_corrupted": "fault field vbios_version --text 'Corrupted infoROM' --gpu 1",
            "gpu_not_responding": "fault field uuid --text 'Unknown Error' --gpu 2",
        },
        count=3,
    ),
    "power": Scenario(
        {
            "power_draw_low": "fault field gpu_power_readings/average_power_draw --text '40.00 W'",
            "power_draw_high": "fault field gpu_power_readings/average_power_draw --text '1600.00 W' --gpu 1",
        },
        model="gb200",
    ),
    "older GPUs": Scenario(
        {
            "reset_required": "fault field gpu_reset_status/reset_required --text Yes",
            "ecc_uncorrectable": "set ecc_errors.volatile.dram_uncorrectable 1",
            "page_retirement_pending": "fault field retired_pages/pending_retirement --text Yes",
            "retired_pages_many": "fault field retired_pages/multiple_single_bit_retirement/retired_count --text 62",
            "retired_pages_full": "fault field retired_pages/double_bit_retirement/retired_count --text 64 --gpu 1",
            "xid_row_remapping": "fault xid 63 --log-only",
            "xid_microcontroller": "fault xid 61 --text text --log-only",
        },
        model="v100",
        branch=535,
    ),
    "presence": Scenario(
        {
            "gpu_missing": "fault missing --gpu 1",
            "probe_failed": "fault log 'NVRM: The NVIDIA probe routine failed for 1 device(s).'",
            "init_failed": "fault log 'NVRM: GPU 0000:07:00.0: RmInitAdapter failed! (0x26:0x1a:1227)'",
            "firmware_missing": (
                "fault missing --gpu 2",
                "fault log 'NVRM: RmFetchGspRmImages: No firmware image found'",
                "fault log 'NVRM: GPU 0000:08:00.0: RmInitAdapter failed! (0x61:0x56:1770)'",
            ),
            "pcie_link_down": "fault log 'pcieport 0000:06:00.0: pciehp: Slot(4): Link Down'",
            "pcie_unrecovered": "fault log 'pcieport 0000:06:00.0: AER: device recovery failed'",
            "pcie_fatal": "fault log 'nvidia 0000:06:00.0: AER: Uncorrected (Fatal) error received'",
            "pcie_nonfatal": "fault log 'nvidia 0000:06:00.0: AER: Uncorrectable (Non-Fatal) error message received'",
            "pcie_other": "fault log 'nvidia 0000:06:00.0: AER: Corrected error received'",
        },
        count=3,
        pci_bus=True,
    ),
    "passed through": Scenario(
        {"gpus_passed_through": "fault passthrough --gpu 1"},
        {"gpu_count_withheld": "`fault passthrough --gpu 1`, `expected: {gpu_count: 2}`"},
        pci_bus=True,
        options={"expected": {"gpu_count": 2}},
    ),
    "excluded": Scenario(
        {"gpus_excluded": "fault missing --gpu 1"},
        {"gpus_excluded": "`NVreg_ExcludedGpus`"},
        pci_bus=True,
        files={
            "/proc/driver/nvidia/params": 'ExcludedGpus: "GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b"\n',
            "/proc/driver/nvidia/gpus/0000:06:00.0/information": "Device Minor: \t 0\nGPU Excluded:\t No\n",
            "/proc/driver/nvidia/gpus/0000:07:00.0/information": "Device Minor: \t 1\nGPU Excluded:\t Yes\n",
        },
    ),
    "display card": Scenario(
        {
            "display_unsupported": (
                "fault log 'NVRM: The NVIDIA GPU 0000:03:00.0 (PCI ID: 10de:128b)'",
                "fault log 'NVRM: installed in this system is not supported by the'",
            )
        },
        pci_bus=True,
        files=_GT_710,
    ),
    "display card that the driver does not name": Scenario(
        conditions={"gpu_unused": "a GT 710 without a driver"}, pci_bus=True, files=_GT_710
    ),
    "errors in place of GPUs": Scenario(
        {
            "gpu_insufficient_power": (
                "fault missing --gpu 1",
                (
                    "fault exit 8 --verb '-i 00000000:07:00.0' --text "
                    "'Unable to determine the device handle for GPU 0000:07:00.0: Insufficient External Power'"
                ),
            ),
            "gpu_unknown": (
                "fault missing --gpu 2",
                (
                    "fault exit 4 --verb '-i 00000000:08:00.0' --text "
                    "'Unable to determine the device handle for GPU 0000:08:00.0: Insufficient Permissions'"
                ),
            ),
        },
        count=3,
        pci_bus=True,
    ),
    "lost": Scenario({"gpu_lost": "fault lost --gpu 1", "gpu_count": "fault lost --gpu 1"}, earlier=1),
    "damaged document": Scenario({"gpu_unreadable": "fault truncate --share 0.9"}),
    "short document": Scenario({"gpus_unreadable": "fault truncate --share 0.5"}, count=4),
    "driver not loaded": Scenario(
        {"driver_missing": 'fault exit 9 --text "NVIDIA-SMI couldn\'t communicate with the NVIDIA driver."'}
    ),
    "other libraries": Scenario(
        {
            "driver_library_mismatch": (
                "fault exit 18 --text 'Failed to initialize NVML: Driver/library version mismatch'"
            )
        }
    ),
    "broken nvidia-smi": Scenario({"nvidia_smi_failed": "fault exit 255 --text broken"}),
    "no GPU": Scenario({"gpus_absent": "fault exit 6 --text 'No devices were found'"}),
    "unsupported GPU": Scenario(
        {
            "driver_unsupported": (
                "fault missing --gpu 1",
                "fault log 'NVRM: The NVIDIA GPU 0000:07:00.0 (PCI ID: 10de:1db5)'",
                "fault log 'NVRM: installed in this system is not supported by the'",
            ),
            "probe_unsupported": "fault log 'NVRM: The NVIDIA probe routine failed for 1 device(s).'",
        },
        pci_bus=True,
    ),
    "refused GPU": Scenario(
        {
            "driver_not_ready": (
                "fault missing --gpu 1",
                "fault log 'NVRM: GPU 0000:07:00.0: RmInitAdapter failed! (0x63:0x0:1905)'",
            )
        },
        pci_bus=True,
    ),
    "GPU without an address range": Scenario(
        {
            "bar_invalid": (
                "fault missing --gpu 1",
                "fault log 'NVRM: BAR1 is 0M @ 0x0 (PCI:0000:07:00.0)'",
            )
        },
        pci_bus=True,
    ),
    "GPU of another driver": Scenario(
        {
            "driver_conflict": (
                "fault missing --gpu 1",
                "fault log 'NVRM: GPU 0000:07:00.0 is already bound to nouveau.'",
            )
        },
        pci_bus=True,
    ),
    "GPU without power": Scenario(
        {
            "power_cables": (
                "fault missing --gpu 1",
                "fault log 'NVRM: GPU 0000:07:00.0: GPU does not have the necessary power cables connected.'",
            ),
            "pcie_inaccessible": (
                "fault log 'nvidia 0000:07:00.0: Unable to change power state from D3cold to D0, device inaccessible'"
            ),
        },
        pci_bus=True,
    ),
    "vulnerable driver": Scenario(conditions={"driver_vulnerable": "a simulated driver of branch 535"}, branch=535),
    "no usable GPU": Scenario({"gpus_unusable": "fault exit 6 --text 'No devices were found'"}, pci_bus=True),
    "no power": Scenario({"insufficient_power": "fault exit 8 --text 'Insufficient External Power'"}),
    "no permission": Scenario(
        {"gpus_unknown": "fault exit 4 --text 'Failed to initialize NVML: Insufficient Permissions'"}
    ),
    "declared": Scenario(
        conditions={
            "gpu_model": "`expected: {gpu_models: [H100]}`",
            "driver_version": "`expected: {driver_version: '570'}`",
            "persistence_mode": "`expected: {persistence_mode: false}`",
            "ecc_mode": "`expected: {ecc: false}`",
            "mig_layout": "`expected: {mig_profiles: [1g.18gb]}`",
        },
        options={
            "expected": {
                "gpu_models": ["H100"],
                "driver_version": "570",
                "persistence_mode": False,
                "ecc": False,
                "mig_profiles": ["1g.18gb"],
            }
        },
    ),
    "vGPUs without a licence": Scenario(
        {
            f"vgpu_{row}": (
                f"fault field gpu_virtualization_mode/virtualization_mode --text VGPU --gpu {gpu}",
                f"fault field vgpu_software_licensed_product/license_status --text '{status}' --gpu {gpu}",
            )
            for gpu, (row, status) in enumerate(
                {"restricted": "Unlicensed (Restricted)", "unlicensed": "Unlicensed (Unrestricted)"}.items()
            )
        }
    ),
    "no kernel log": Scenario(conditions={"kernel_log_unknown": "`kernel_log: none`"}, options={"kernel_log": "none"}),
    "software of the host": Scenario(
        conditions={
            "cdi_stale": "a specification of driver 570",
            "kernel_log_incomplete": "`dmesg` that begins 50 minutes after the boot",
            "clock_unsynchronized": "`timedatectl`",
            "cpus_offline": "a CPU that is not in `/sys/devices/system/cpu/online`",
            "file_system_read_only": "a file system in `/proc/self/mountinfo`",
        },
        options={"kernel_log": "dmesg"},
        files={
            "/etc/cdi/nvidia.yaml": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n# /usr/lib/libcuda.so.570.86.10\n",
            "/sys/devices/system/cpu/present": "0-143\n",
            "/sys/devices/system/cpu/online": "0-71,73-143\n",
            "/proc/self/mountinfo": "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 ro,errors=remount-ro\n",
        },
        programs={"dmesg": "[ 3000.000000] text\n", "timedatectl": "no\n"},
    ),
    "network": Scenario(
        {
            "nic_count": "fault nic missing --nic 7",
            "nic_down": "fault nic down",
            "nic_flapping": "fault nic flap --count 3 --nic 1",
            "nic_link_lost": "fault nic flap --nic 2",
            "nic_slow": "fault nic slow --nic 3",
            "nic_errors": "fault nic errors --count 1000 --nic 4",
            "nic_nodes": "fault nic nodes --nic 5",
        },
        nics=8,
        earlier=1,
        files={**_DRIVER_OPEN, "/proc/sys/kernel/osrelease": "6.8.0-52-generic\n"},
    ),
    "network without links": Scenario(
        {"nic_all_down": ("fault nic down", "fault nic down --nic 1")},
        nics=2,
        earlier=1,
        files={**_DRIVER_OPEN, "/proc/sys/kernel/osrelease": "6.8.0-52-generic\n"},
    ),
    "proprietary modules": Scenario(
        conditions={"gpudirect": "proprietary kernel modules without `nvidia_peermem`"},
        nics=2,
        files={"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04\n"},
    ),
    "kernel with parts of newer ones": Scenario(
        conditions={"gpudirect_unknown": "kernel 4.18 of Red Hat without `nvidia_peermem`"},
        nics=2,
        files={**_DRIVER_OPEN, "/proc/sys/kernel/osrelease": "4.18.0-553.el8_10.x86_64\n"},
    ),
    "slowdowns": Scenario(
        {
            "thermal_slowdown": "fault slowdown sw_thermal --seconds 600",
            "power_brake_slowdown": "fault slowdown hw_power_brake --seconds 600 --gpu 1",
        },
        earlier=1,
    ),
    "links with errors": Scenario(
        {
            "nvlink_crc": "fault nvlink 3 --errors 1000000 --counter CRC",
            "pcie_replays": "fault field pci/replay_counter --text 5000 --gpu 1",
        },
        earlier=1,
    ),
    "a user next to Slurm": Scenario(
        {"gpu_unscheduled": "busy --gpu 1 --pid 42"},
        files={
            "/proc/42/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n",
            "/sys/fs/cgroup/system.slice/slurmstepd.scope/cgroup.procs": "",
        },
    ),
    "a bridge": Scenario({"nvlink_bridge": "fault nvlink 3 11 --gpu 1"}, model="h100_nvl_94gb", earlier=1),
    "a busy GPU": Scenario(
        {
            "pcie_generation": (
                "fault field utilization/gpu_util --text '98 %'",
                "fault field pci/pci_gpu_link_info/pcie_gen/current_link_gen --text 1",
            )
        },
        checks=3,
    ),
    "tests": Scenario(
        conditions={
            "host_bandwidth": "a mock `nvbandwidth`",
            "peer_bandwidth": "a mock `nvbandwidth`",
            "nccl_bandwidth": "a mock `all_reduce_perf`",
            "test_warned": "a mock `dcgmi`",
        },
        count=8,
        options={"tests": ["dcgm_1", "nvbandwidth", "nccl"]},
        programs={"dcgmi": json.dumps(_DCGM), "nvbandwidth": _NVBANDWIDTH, "all_reduce_perf": _NCCL.format("0 OK")},
    ),
    "wrong sums": Scenario(
        conditions={"test_failed_on_host": "a mock `all_reduce_perf`"},
        options={"tests": ["nccl"]},
        programs={"all_reduce_perf": _NCCL.format("12 FAILED")},
    ),
}

# Commands, verdict, remedy, row, and how its message begins, with the test dcgm_2.
DCGM_RUNS: list[tuple[list[str], str, str, str, str]] = [
    ([], "ok", "none", "", ""),
    (
        ["fault dcgm memory --gpu 1 --text broken"],
        "fail",
        "field_diagnostic",
        "test_failed",
        "GPU 1 (00000000:07:00.0): dcgm_2: memory: broken",
    ),
    (["set persistence_mode false"], "warn", "configure", "test_configuration", "dcgm_2: software: Persistence Mode: "),
    (
        ["busy --gpu 0 --pid 42 --name train"],
        "unknown",
        "none",
        "test_unknown",
        "dcgm_2 was not run: GPU 0 is in use by train",
    ),
]

_WITH_TESTS_OF_THEIR_OWN: dict[str, str] = {
    "xid_repeated": "`fault xid 95 --log-only`, 5 times",
    "xid_after_reboots": "`fault xid 79 --gpu 1`, in 3 boots",
    "xid_31_repeated": "`fault xid 31`, twice",
    "xid_13_repeated": "`fault xid 13`, twice",
    "peermem_unbuilt": "a mock `ofed_info`",
    "gpudirect_redirected": "a mock PCI bridge",
    "boot_service_failed": "a mock systemd",
    "boot_service_missed": "a mock systemd",
    "imex_inactive": "a mock systemd",
    "imex_unready": "a mock `nvidia-imex-ctl`",
    "mps_inactive": "a mock systemd",
    "mps_client_fault": "a line of an H100",
    "file_system_full": "a mock `statvfs`",
    "thermal_slowdown_long": "`fault slowdown hw_thermal --seconds 12000`, in four hours",
    "power_brake_slowdown_long": "`fault slowdown hw_power_brake --seconds 12000`, in four hours",
    "nvlink_errors": "`fault nvlink 3 --errors 100`, in four hours",
}


def _in_markdown(commands: Commands) -> str:
    return ", ".join(f"`{command}`" for command in ((commands,) if isinstance(commands, str) else commands))


SHOWN: dict[str, str] = {
    **_WITH_TESTS_OF_THEIR_OWN,
    **{row: _in_markdown(commands[-1]) for commands, _verdict, _remedy, row, _message in DCGM_RUNS if row},
    **{row: text for scenario in SCENARIOS.values() for row, text in scenario.shown.items()},
}
"""What shows each row, for people."""
