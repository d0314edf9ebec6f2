# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health policy: one row for each symptom. Private to this collection.

Sources: `catalogue` is NVIDIA's Xid-Catalog.xlsx, `old catalogue` its Xid table for older GPUs; `events` NVIDIA's GPU
Operational Events; `bulletins` its security bulletins; `memory` NVIDIA's GPU Memory Error Management; `NVML` its change
log; `driver` what the driver's own line states; `validation` NVIDIA's Health Validation; `fabric` NVIDIA's Fabric
Manager User Guide; `GPUDirect` and `NCCL` NVIDIA's guides to these; `DCGM` its documentation; `IMEX` NVIDIA's IMEX
Service for NVLink Networks; `Azure`, `Oracle`, `NVSentinel`, `gpud` and `soperator` the health checks that these
publish; `vGPU` NVIDIA's guides to its licences, with the states that DCGM's source names; `NVRx` the checks of NVIDIA's
Resiliency Extension, `Canonical` the alerts of its exporter of DCGM; `own` is a choice of this collection.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .._nvidia_smi.remedies import REMEDIES as PROBLEM_REMEDIES
from . import xids
from .policy import FAIL, INFO, UNKNOWN, WARN, Row

KNOWN_RECOVERY_ACTIONS = (
    "none",
    "reset",
    "gpu_reset",
    "reboot",
    "node_reboot",
    "system_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
)

# What the rows below have in common: the columns id, verdict, remedy, source and symptom, and how the symptom is read.


def _gpu(name: str, verdict: str, remedy: str, source: str, symptom: str, *how: Any) -> Row:
    """A reading of a GPU: a flag, or with an operator, a value and the values of some models."""
    columns = dict(zip(("reading", "operator", "value", "thresholds"), how))
    return Row(name, symptom, verdict, remedy, source, **columns)


def _host(*columns: Any) -> Row:
    """The same, of the host."""
    return replace(_gpu(*columns), scope="host")


def _gpu_text(name: str, verdict: str, remedy: str, source: str, symptom: str, *reading: str) -> Row:
    """A reading of a GPU that is a text about the problem, empty where there is none; mostly with the row's name."""
    return _gpu(name, verdict, remedy, source, symptom, *(reading or (name,)), "is_not", "")


def _host_text(*columns: str) -> Row:
    """The same, of the host."""
    return replace(_gpu_text(*columns), scope="host")


def _problem(name: str, verdict: str, remedy: str, source: str, symptom: str) -> Row:
    """A code of `unhealthy` of nvidia_smi_facts, which the row has as its name."""
    return _gpu(name, verdict, remedy, source, symptom, "problems", "has", name)


def _xid(name: str, verdict: str, remedy: str, source: str, symptom: str, *codes: int, **how: Any) -> Row:
    """Xids, where `when` is given only with this qualifier. A reset of the GPU ends them, or what `over` names."""
    return Row(name, symptom, verdict, remedy, source, xids=codes, **{"over": ("reset",), **how})


def _sxid(name: str, verdict: str, remedy: str, source: str, symptom: str, *codes: int) -> Row:
    """SXids of NVSwitches, which are reset together with all GPUs."""
    over = ("all_reset", *(("fabric_manager",) if remedy == "restart_fabric_manager" else ()))
    return Row(name, symptom, verdict, remedy, source, sxids=codes, over=over)


def _event(name: str, verdict: str, remedy: str, source: str, symptom: str, *kinds: str, **how: Any) -> Row:
    """Kinds of events of the kernel log, where `when` is given only with this qualifier, and what ends them."""
    return Row(name, symptom, verdict, remedy, source, events=kinds, **{"over": ("reset",), **how})


def _repeated(name: str, verdict: str, remedy: str, source: str, symptom: str, *codes: int, **how: Any) -> Row:
    """The same Xid in some bursts or boots within some hours; of any fatal one without codes."""
    return Row(name, symptom, verdict, remedy, source, xids=codes, **how)


# fmt: off
_RECOVERY = (
    _gpu("recovery_reset", FAIL, "reset_gpu", "NVML", "the driver asks for a reset",
         "recovery_action", "in", ("reset", "gpu_reset", "bus_reset")),
    _gpu("recovery_reboot", FAIL, "reboot", "NVML", "the driver asks for a reboot",
         "recovery_action", "in", ("reboot", "node_reboot", "system_reboot")),
    _gpu("recovery_drain_p2p", FAIL, "drain", "NVML", "the driver asks for the end of peer-to-peer jobs",
         "recovery_action", "is", "drain_p2p"),
    _gpu("recovery_drain_and_reset", FAIL, "drain_and_reset", "NVML, memory",
         "the driver asks for a reset after the jobs", "recovery_action", "is", "drain_and_reset"),
    _gpu("recovery_imex", FAIL, "restart_imex", "NVML", "the driver asks for a recovery of the IMEX domain",
         "recovery_action", "is", "recover_imex_domain"),
    _gpu("recovery_unknown", FAIL, "service", "own", "the driver asks for an action that is new to this collection",
         "recovery_action", "not_in", KNOWN_RECOVERY_ACTIONS),
    _problem("reset_required", FAIL, "reset_gpu", "NVML", "the GPU requires a reset"),
)

_PRESENCE = (
    _problem("gpu_lost", FAIL, "reboot", "catalogue", "nvidia-smi reports the GPU as lost"),
    _problem("gpu_missing", FAIL, "reboot", "Azure, Oracle", "a GPU on the PCI bus is not in nvidia-smi"),
    _problem("gpu_unused", WARN, "configure", "own",
             "a display card of another model than the GPUs at work has no driver"),
    _gpu("gpu_insufficient_power", FAIL, "inspect", "NVML", "the GPU lacks external power",
         "problems", "has", "insufficient_power"),
    _gpu("gpu_unknown", UNKNOWN, "none", "own", (
        "no permission to "
        "read the GPU"
    ), "problems", "has", "permission_denied"),
    _problem("gpu_not_responding", FAIL, "reboot", "real vGPU guest",
             "nvidia-smi printed an error instead of the GPU, or of its UUID, name, memory or temperature"),
    _gpu("gpu_unreadable", UNKNOWN, "none", "own", "nvidia-smi printed a damaged document about the GPU",
         "problems", "has", "broken_xml"),
    _problem("inforom_corrupted", FAIL, "service", "DCGM", "the infoROM is corrupted"),
)

_MEMORY = (
    _gpu("row_remap_failure", FAIL, "field_diagnostic", "memory", "a memory row could not be remapped",
         "remapped_rows_failure"),
    _gpu("row_remap_pending", WARN, "drain_and_reset", "memory", "memory rows wait for a reset to be remapped",
         "remapped_rows_pending"),
    _gpu("row_remapper_exhausted", WARN, "none", "own", "memory banks without spare rows",
         "remapped_rows_banks_none", "above", 0),
    _gpu("rows_remapped", INFO, "none", "memory", "memory rows that were remapped after uncorrectable errors",
         "remapped_rows_uncorrectable", "above", 0),
    _problem("ecc_repair_pending", WARN, "drain_and_reset", "memory",
             "a repair of a memory channel or TPC waits for a reset"),
    _gpu("ecc_unrepairable_memory", FAIL, "service", "memory", "memory that cannot be repaired",
         "ecc_unrepairable_memory"),
    _gpu("ecc_sram_threshold_exceeded", FAIL, "field_diagnostic", "memory",
         "more uncorrectable SRAM errors than the threshold for replacement", "ecc_sram_threshold_exceeded"),
    _gpu("ecc_uncorrectable", FAIL, "reset_gpu", "memory",
         "uncorrectable errors since the last reset, and no sign that they are repaired",
         "uncorrectable_unrepaired", "above", 0),
    _gpu("ecc_uncorrectable_contained", WARN, "none", "memory, gpud",
         "uncorrectable errors since the last reset; the driver asks for nothing",
         "uncorrectable_contained", "above", 0),
    _gpu("ecc_uncorrectable_aggregate", INFO, "none", "memory", "uncorrectable errors in the life of the GPU",
         "ecc_errors_aggregate.uncorrected_total", "above", 0),
    _gpu("ecc_sram_corrected", WARN, "inspect", "Azure", "many corrected SRAM errors since the last reset",
         "ecc_errors_volatile.sram_correctable", "above", 10_000),
    _gpu("ecc_dram_corrected", WARN, "inspect", "Azure", "many corrected DRAM errors since the last reset",
         "ecc_errors_volatile.dram_correctable", "above", 20_000_000),
    _gpu("page_retirement_pending", WARN, "reboot", "memory", "memory pages wait for a reboot to be retired",
         "retired_pages_pending"),
    _gpu("retired_pages_many", WARN, "field_diagnostic", "own",
         "nearly as many retired pages as NVIDIA replaces a board for", "retired_pages_total", "at_least", 50),
    _gpu("retired_pages_full", FAIL, "service", "memory", "as many retired pages as NVIDIA replaces a board for",
         "retired_pages_total", "at_least", 60),
)

_LINKS = (
    _gpu("pcie_width", WARN, "inspect", "Oracle", "PCIe has fewer lanes than GPU and slot can have",
         "pcie_lanes_missing", "above", 0),
    _gpu("pcie_generation", WARN, "inspect", "own",
         "PCIe has a lower generation than GPU and slot can have, at checks of the busy GPU in a row",
         "pcie_slow_checks", "at_least", 3),
    _gpu("pcie_replays", WARN, "inspect", "DCGM", "PCIe packets that were sent again in an hour, more than 8 a minute",
         "pcie_replays", "above", 480),
    _gpu("nvlink_inactive", FAIL, "reset_gpu", "validation, Oracle", "NVLinks that are down",
         "nvlinks_missing", "above", 0),
    _gpu("nvlink_bridge", WARN, "inspect", "own", "NVLinks of a card's bridge that were up before are down",
         "bridge_links_missing", "above", 0),
    _gpu("nvlink_slow", FAIL, "reset_gpu", "validation, Oracle", "NVLinks that are slower than the board's",
         "nvlinks_slow", "above", 0),
    _gpu("nvlink_errors", WARN, "inspect", "DCGM, NVRx",
         "NVLinks sent packets again or were trained again, in hours in a row", "nvlink_error_hours", "at_least", 2),
    _gpu("nvlink_crc", WARN, "inspect", "DCGM", "wrong checksums of NVLinks in an hour, more than 100 a second",
         "nvlink_crc_errors", "above", 360_000),
    _problem("fabric_not_completed", FAIL, "restart_fabric_manager", "fabric, gpud",
             "the GPU is not in the NVLink fabric"),
    _problem("fabric_failed", FAIL, "restart_fabric_manager", "fabric",
             "the GPU's registration with the NVLink fabric failed"),
    _gpu("fabric_bandwidth", FAIL, "reset_fabric", "gpud", "the bandwidth of the NVLink fabric is degraded",
         "fabric_health_bandwidth", "is", "degraded"),
    _gpu("fabric_route", FAIL, "reset_fabric", "gpud", "a route of the NVLink fabric is unhealthy",
         "fabric_health_route_unhealthy"),
    _gpu("fabric_configuration", FAIL, "restart_fabric_manager", "gpud", "the NVLink fabric is configured wrongly",
         "fabric_health_incorrect_configuration", "not_in", ("none", "no", "false", "not_supported")),
    _gpu("fabric_summary", FAIL, "reset_fabric", "gpud", "the NVLink fabric is not healthy",
         "fabric_health_summary", "not_in", ("healthy", "not_supported")),
)

_CLOCKS = (
    _gpu("slowdown_now", INFO, "none", "own", "clocks are lowered by heat or the power brake at this moment",
         "slowdown_now"),
    _gpu("thermal_slowdown", WARN, "inspect", "gpud, own", "clocks lowered by heat, in seconds of an hour",
         "slowdown_thermal_seconds", "above", 300),
    _gpu("thermal_slowdown_long", FAIL, "inspect", "gpud, own",
         "clocks lowered by the hardware because of heat for most of several hours in a row",
         "slowdown_thermal_hours", "at_least", 3),
    _gpu("power_brake_slowdown", WARN, "inspect", "Canonical, own",
         "clocks lowered by the power brake, in seconds of an hour", "slowdown_power_brake_seconds", "above", 300),
    _gpu("power_brake_slowdown_long", FAIL, "inspect", "NVSentinel, gpud",
         "clocks lowered by the power brake for most of several hours in a row",
         "slowdown_power_brake_hours", "at_least", 3),
    _gpu("power_draw_low", FAIL, "reset_gpu", "validation", "the GPU draws less power than an idle one, in W",
         "power_draw_average_w", "below", 0, (("GB200", 65), ("GB300", 65))),
    _gpu("power_draw_high", FAIL, "reset_gpu", "validation", "the GPU draws more power than it can, in W",
         "power_draw_average_w", "above", 10_000, (("GB200", 1500), ("GB300", 1500))),
    _gpu("thermal_margin", WARN, "inspect", "NVSentinel, own", "degrees above the temperature that lowers the clocks",
         "degrees_above_slowdown", "above", 0),
)

_PENDING = (
    _problem("ecc_mode_pending", WARN, "reboot", "own", "another ECC mode waits for a reboot"),
    _problem("mig_mode_pending", WARN, "drain_and_reset", "own", "another MIG mode waits for a reset"),
    _problem("operation_mode_pending", WARN, "reboot", "own", "another GPU operation mode waits for a reboot"),
    _problem("dram_encryption_pending", WARN, "drain_and_reset", "own",
             "another mode of DRAM encryption waits for a reset"),
)

_HOST = (
    _host("driver_missing", FAIL, "update_software", "own", "the driver or a part of it is not installed or not loaded",
          "unavailable", "in", ("no_driver", "no_nvidia_smi", "not_loaded", "library_missing")),
    _host("driver_library_mismatch", FAIL, "reboot", "own", "the loaded driver and its libraries differ",
          "unavailable", "is", "version_mismatch"),
    _host("nvidia_smi_failed", FAIL, "reboot", "own", "nvidia-smi fails or does not end",
          "unavailable", "in", ("timeout", "failed")),
    _host("gpus_absent", FAIL, "inspect", "own", "neither nvidia-smi nor the PCI bus has an NVIDIA GPU",
          "unavailable", "is", "no_gpu"),
    _host("gpus_unusable", FAIL, "reboot", "real hosts", "nvidia-smi lists none of the GPUs on the PCI bus",
          "unavailable", "is", "gpus_unusable"),
    _host("insufficient_power", FAIL, "inspect", "NVML", "GPUs lack external power",
          "unavailable", "is", "insufficient_power"),
    _host("gpus_unknown", UNKNOWN, "none", "own", "no permission to read the GPUs",
          "unavailable", "in", ("permission_denied", "too_large")),
    _host("gpus_unreadable", UNKNOWN, "none", "own", "nvidia-smi counts other GPUs than it describes",
          "problems", "has", "broken_xml"),
    _host_text("gpu_count", FAIL, "reboot", "Azure, own", "fewer GPUs than declared or recorded", "gpu_count_differs"),
    _host_text("gpu_count_withheld", WARN, "configure", "own",
               "fewer GPUs than declared, since others are passed through or excluded"),
    _host_text("gpus_passed_through", INFO, "none", "own", "GPUs that are passed through to virtual machines"),
    _host_text("gpus_excluded", INFO, "none", "own",
               "the driver's parameters exclude GPUs, and fewer are not declared"),
    _host_text("gpu_model", FAIL, "inspect", "own", "other GPUs than declared", "gpu_model_differs"),
    _host_text("driver_version", WARN, "configure", "own", "another driver than declared", "driver_version_differs"),
    _host_text("driver_vulnerable", WARN, "update_software", "bulletins", "the driver has known vulnerabilities"),
    _host_text("kernel_log_unknown", UNKNOWN, "none", "own", "the kernel log cannot be read"),
    _host_text("kernel_log_incomplete", INFO, "none", "own", "the kernel log does not reach back to the boot"),
    _host_text("cdi_stale", WARN, "configure", "own", "a CDI specification is older than the driver or the GPUs"),
    _host_text("boot_service_failed", FAIL, "configure", "own",
               "the service that applies the GPU state at boot failed"),
    _host_text("boot_service_missed", WARN, "configure", "own",
               "the service that applies the GPU state at boot has not run"),
    _host_text("imex_inactive", FAIL, "restart_imex", "IMEX", "IMEX is enabled on the host and does not run"),
    _host_text("imex_unready", WARN, "restart_imex", "IMEX", "IMEX does not reach all nodes of its NVLink domain"),
    _host_text("mps_inactive", FAIL, "configure", "own", "the MPS daemon of gpu_state_mps does not run"),
    _host_text("mps_client_fault", INFO, "none", "own", "a fault of a client ended all clients of MPS on its GPU"),
    _host_text("clock_unsynchronized", WARN, "configure", "own", "the clock of the host is not synchronized"),
    _host_text("cpus_offline", WARN, "reboot", "validation, own", "CPUs of the host are offline"),
    _host_text("gpu_unscheduled", INFO, "none", "soperator, own",
               "users run processes on GPUs next to the scheduler's jobs"),
    _host_text("file_system_full", WARN, "configure", "own", "a file system of the host is full"),
    _host_text("file_system_read_only", WARN, "inspect", "own",
               "the kernel made a file system of the host read-only because of errors"),
)

_DECLARED = (
    _gpu_text("persistence_mode", WARN, "configure", "DCGM", "another persistence mode than declared",
              "persistence_mode_differs"),
    _gpu_text("ecc_mode", WARN, "configure", "own", "another ECC mode than declared", "ecc_mode_differs"),
    _gpu_text("mig_layout", WARN, "configure", "own", "another MIG layout than declared", "mig_layout_differs"),
)

# 20 minutes after its start a vGPU without a licence computes at an idle level, as NVIDIA's guide states.
_LICENCE = (
    _gpu("vgpu_restricted", FAIL, "configure", "vGPU",
         "the vGPU has no licence, and the driver slows it down until nvidia-gridd gets one",
         "vgpu_license", "is", "Unlicensed (Restricted)"),
    _gpu("vgpu_unlicensed", WARN, "configure", "vGPU", "the vGPU has no licence, and will be slowed down without one",
         "vgpu_license", "in", ("Unlicensed (Unrestricted)", "Unlicensed")),
)

_NETWORK = (
    _host_text("nic_count", FAIL, "inspect", "own", "fewer ports of the GPUs' network than declared or recorded",
               "nic_count_differs"),
    _host_text("nic_down", FAIL, "inspect", "NVSentinel, gpud",
               "a port of the GPUs' network has no link, and its siblings have one"),
    _host_text("nic_all_down", WARN, "inspect", "own",
               "no port of the GPUs' network has a link any more; earlier checks found links"),
    _host_text("nic_flapping", WARN, "inspect", "NVSentinel, own",
               "a port of the GPUs' network lost its link again and again within 24 hours"),
    _host_text("nic_link_lost", INFO, "none", "own",
               "a port of the GPUs' network lost its link once since the last check"),
    _host_text("nic_slow", WARN, "inspect", "own", "a port of the GPUs' network is slower than its siblings"),
    _host_text("nic_errors", WARN, "inspect", "NVSentinel",
               "a port of the GPUs' network has more errors than InfiniBand allows since the last check"),
    _host_text("nic_nodes", WARN, "configure", "own",
               "an adapter of the GPUs' network lacks the device files that programs need", "nic_nodes_missing"),
    _host_text("gpudirect", WARN, "configure", "GPUDirect", "adapters cannot reach the memory of GPUs",
               "gpudirect_impossible"),
    _host_text("gpudirect_unknown", UNKNOWN, "none", "GPUDirect",
               "whether adapters can reach the memory of GPUs is not known"),
    _host_text("peermem_unbuilt", WARN, "inspect", "GPUDirect",
               "nvidia_peermem was built before DOCA-OFED or MLNX_OFED"),
    _host_text("gpudirect_redirected", WARN, "configure", "NCCL",
               "traffic between adapters and GPUs goes through the CPU"),
)

_TESTS = (
    _gpu_text("test_failed", FAIL, "field_diagnostic", "DCGM", "a test of the GPU failed"),
    _host_text("test_failed_on_host", FAIL, "field_diagnostic", "DCGM", "a test of the host failed",
               "host_test_failed"),
    _host_text("test_configuration", WARN, "configure", "DCGM", "a test found a wrong configuration"),
    _host_text("test_warned", WARN, "inspect", "DCGM", "a test ended with a warning"),
    _host_text("test_unknown", UNKNOWN, "none", "own", "a test that was requested has no result"),
    _gpu("host_bandwidth", WARN, "inspect", "Azure", "copies between host and GPU are slow, in GB/s",
         "host_bandwidth_gbps", "below", 0, (("V100", 9), ("A100", 21), ("H100", 48), ("H200", 48))),
    # Cards have bridges between some of them, or none.
    _gpu("peer_bandwidth", WARN, "inspect", "Azure", "copies between GPUs are slow, in GB/s",
         "peer_bandwidth_gbps", "below", 0,
         (("A100-SXM", 235), ("H100 80GB HBM3", 335), ("H200", 335), ("H200 NVL", 0))),
    _host("nccl_bandwidth", WARN, "inspect", "Azure, Oracle",
          "an all-reduce over eight GPUs is slow, in GB/s of bus bandwidth",
          "nccl_bandwidth_gbps", "below", 0,
          (("V100", 110), ("A100-SXM", 185), ("H100 80GB HBM3", 440), ("H200", 431), ("H200 NVL", 0), ("B200", 440),
           ("GB200", 0), ("B300", 700), ("GB300", 0))),
)

_XIDS = (
    _xid("xid_application", INFO, "restart_application", "catalogue", "an application failed, the GPU is usable",
         *xids.APPLICATION),
    _xid("xid_informational", INFO, "none", "catalogue", "logged for information",
         14, 37, 38, 43, 44, 66, 67, 106, 107, 108, 141, 152, 153, 162, 171, 172),
    _xid("xid_cleanup_alone", WARN, "restart_fabric_manager", "catalogue", "a channel was removed without another Xid",
         45, when="solo", over=("fabric_manager", "quiet", "reset")),
    _xid("xid_cleanup", INFO, "none", "catalogue", "a channel was removed because of another Xid", 45),
    _xid("xid_reset", FAIL, "reset_gpu", "catalogue", "the GPU needs a reset",
         46, 48, 62, 64, 95, 109, 119, 120, 136, 140, 143, 156, 158, 166, 169),
    _xid("xid_hardware", FAIL, "inspect", "catalogue", "auxiliary power is not connected", 54),
    _xid("xid_microcontroller", FAIL, "reboot", "old catalogue", "a microcontroller of an old GPU stopped",
         61, when="before_ampere", over=()),
    _xid("xid_microcontroller_breakpoint", WARN, "reboot", "gpud",
         "a microcontroller reported an error; the catalogue has no current meaning", 61),
    _xid("xid_row_remapped", INFO, "none", "catalogue, memory",
         "memory rows were marked for remapping; their state is read", 63, when="rows_are_known"),
    _xid("xid_row_remapping", WARN, "drain_and_reset", "catalogue, memory", "memory rows were marked for remapping",
         63),
    _xid("xid_link_fabric", FAIL, "reset_fabric", "catalogue", "an NVLink error that needs a reset of the fabric",
         74, when="fabric"),
    _xid("xid_link_mechanics", FAIL, "inspect", "catalogue", "an NVLink error of connectors or cables",
         74, when="mechanics"),
    _xid("xid_link_signal", FAIL, "inspect", "catalogue", "an NVLink error of signal integrity", 74, when="signal"),
    _xid("xid_link_harmless", INFO, "none", "catalogue", "an NVLink error that is only counted", 74, when="harmless"),
    _xid("xid_link", FAIL, "reset_gpu", "catalogue", "an NVLink error", 74),
    _xid("xid_software", WARN, "update_software", "catalogue", "driver, firmware or settings do not fit", 78, 168),
    _xid("xid_off_the_bus", FAIL, "reboot", "catalogue", "the GPU is off the bus, or PCIe failed", 79, 167),
    _xid("xid_c2c", FAIL, "reboot", "events", "a fatal error of the link between CPU and GPU", 173, over=()),
    _xid("xid_watch", WARN, "none", "catalogue", "a sign of wear or of a corrected error",
         92, 93, 121, 142, 160, 163, 170),
    _xid("xid_security", FAIL, "power_cycle", "catalogue", "a security fault that needs a cold reset", 110, over=()),
    _xid("xid_nvlink5_intended", INFO, "none", "catalogue", "an NVLink was taken down on purpose or by the other end",
         *xids.NVLINK_5, when="intended"),
    _xid("xid_nvlink5_application", INFO, "restart_application", "catalogue",
         "an NVLink error of an application, or as its Xid 154 decides", *xids.NVLINK_5, when="application"),
    _xid("xid_nvlink5_nonfatal", INFO, "none", "catalogue", "an NVLink error that is not fatal",
         *xids.NVLINK_5, when="nonfatal"),
    _xid("xid_nvlink5_fatal", FAIL, "reset_gpu", "catalogue", "a fatal NVLink error", *xids.NVLINK_5),
    _xid("xid_confidential", FAIL, "restart_vm", "catalogue", "the key of confidential computing was not renewed", 151,
         over=()),
    _xid("xid_action_none", INFO, "none", "catalogue", "the driver asks for nothing any more", 154, when="0x0"),
    _xid("xid_action_reset", FAIL, "reset_gpu", "catalogue", "the driver asks for a reset", 154, when="0x1"),
    _xid("xid_action_reboot", FAIL, "reboot", "catalogue", "the driver asks for a reboot", 154, when="0x2"),
    _xid("xid_action_drain_p2p", FAIL, "drain", "catalogue", "the driver asks for the end of peer-to-peer jobs",
         154, when="0x3"),
    _xid("xid_action_drain_and_reset", FAIL, "drain_and_reset", "catalogue",
         "the driver asks for a reset after the jobs", 154, when="0x4"),
    _xid("xid_action_imex", FAIL, "restart_imex", "NVML", "the driver asks for a recovery of the IMEX domain",
         154, when="0x5"),
    _xid("xid_action_bus_reset", FAIL, "reset_gpu", "NVML", "the driver asks for a reset of the PCI bus",
         154, when="0x6"),
    _xid("xid_action_system_reboot", FAIL, "reboot", "NVML", "the driver asks for a reboot", 154, when="0x7"),
    _xid("xid_action_unknown", FAIL, "service", "own", "the driver asks for an action that is new to this collection",
         154),
    _xid("xid_sparing", WARN, "drain_and_reset", "events", "a spare resource came into use, or waits for a reset", 185),
    _xid("xid_link_down", WARN, "drain_and_reset", "catalogue", "an NVLink was taken down by software", 155),
    _xid("xid_service", WARN, "service", "catalogue", "no spare resource is left", 157, 161, 164, 165, over=()),
    _xid("xid_interconnect", WARN, "drain_and_reset", "catalogue", "an error between CPU and GPU", 159),
    _xid("xid_deprecated", WARN, "none", "catalogue", "a code without a current meaning", *xids.DEPRECATED),
    _event("xid_unknown", WARN, "none", "own", "a code that is new to this collection", "xid"),
)

_SXIDS = (
    _sxid("sxid_partition", FAIL, "restart_fabric_manager", "fabric",
          "an NVSwitch error of the partitions' configuration", 11004),
    _sxid("sxid_traffic", FAIL, "reset_fabric", "fabric",
          "an NVSwitch error that stops traffic, whatever the line states", 12028, 19084, 26006, 26007, 26008),
    _sxid("sxid_mechanics", WARN, "inspect", "fabric", "an NVSwitch is too hot, or a link is broken", 10004, 20012),
    _sxid("sxid_watch", WARN, "none", "fabric", "an NVSwitch error that is counted",
          10001, 10002, 10005, 12033, 20001, 20009, 28002, 28006),
    _sxid("sxid_fatal", FAIL, "reset_fabric", "fabric", "a fatal NVSwitch error", *xids.FATAL_SXIDS),
    _event("sxid_stated_fatal", FAIL, "reset_fabric", "fabric", "an NVSwitch error that the line states to be fatal",
           "sxid", when="stated_fatal", over=("all_reset",)),
    _event("sxid_stated_nonfatal", INFO, "none", "fabric", "an NVSwitch error that the line states not to be fatal",
           "sxid", when="stated_nonfatal", over=("all_reset",)),
    _event("sxid_unknown", WARN, "none", "own", "a code that is new to this collection", "sxid", "sxid_detail",
           over=("all_reset",)),
)

_EVENTS = (
    _event("firmware_missing", FAIL, "update_software", "real host", "the driver has not found its firmware",
           "init_failed", when="firmware_missing", over=("responds",)),
    _event("driver_not_ready", FAIL, "configure", "real hosts",
           "the open kernel module refuses this GPU without OpenRmEnableUnsupportedGpus",
           "init_failed", when="not_ready", over=("responds",)),
    _event("display_unsupported", INFO, "none", "own", "the driver does not support a display card, and has other GPUs",
           "unsupported", when="unused"),
    _event("driver_unsupported", FAIL, "update_software", "real hosts", "the driver does not support this GPU",
           "unsupported", over=("responds",)),
    _event("driver_conflict", FAIL, "configure", "real hosts", "another driver, such as nouveau, holds GPUs",
           "conflict", over=("responds",)),
    _event("bar_invalid", FAIL, "configure", "real hosts",
           "firmware or hypervisor gave the GPU no address range (BAR)", "bar_invalid", over=("responds",)),
    _event("power_cables", FAIL, "inspect", "real hosts", "power cables of the GPU are not connected", "power_cables",
           over=("responds",)),
    _event("init_failed", FAIL, "reboot", "real hosts", "the driver could not initialize the GPU", "init_failed",
           over=("responds",)),
    _event("probe_unsupported", FAIL, "update_software", "real hosts",
           "the driver could not use a GPU that it does not support", "probe_failed", when="unsupported",
           over=("responds",)),
    _event("probe_failed", FAIL, "reboot", "real hosts", "the driver could not use some GPU", "probe_failed",
           over=("responds",)),
    _event("gsp_rate_limited", INFO, "none", "real hosts", "the driver omits further errors of the GSP firmware",
           "rate_limited"),
    _event("driver_reset_required", FAIL, "reset_gpu", "real hosts", "the driver refuses a GPU until it is reset",
           "assertion", when="reset_required"),
    _event("gsp_crashed", WARN, "drain_and_reset", "real hosts", "the GSP firmware of a GPU crashed", "gsp_crash"),
    _event("gsp_silent", WARN, "drain_and_reset", "real hosts", "the GSP firmware of a GPU did not respond",
           "gsp_silent"),
    _event("driver_assertion", INFO, "none", "real hosts", "an assertion failed in the driver", "assertion"),
    _event("api_mismatch", INFO, "none", "real hosts", "a program had libraries of another driver version",
           "api_mismatch"),
    _event("nvlink_rx_detect", WARN, "reboot", "gpud", "the driver could not find out which NVLinks have a partner",
           "nvlink_init", when="rx_detect"),
    _event("nvlink_init", WARN, "none", "own", "the driver could not set up NVLinks", "nvlink_init"),
    _event("uvm_fatal", FAIL, "reboot", "driver", "no program can use CUDA any more until the host is restarted",
           "uvm_fatal", over=()),
    _event("driver_oops", WARN, "reboot", "own", "the kernel found an error in the driver and ended the thread",
           "driver_oops", over=()),
    _event("driver_stalled", WARN, "reboot", "real hosts", "a thread hung in the driver", "driver_stalled"),
    _event("gpu_locked", WARN, "drain_and_reset", "own", "the driver's watchdog found that the GPU did not respond",
           "watchdog"),
    _event("pcie_link_down", FAIL, "inspect", "own", "a PCIe port above a GPU went down or stopped all traffic",
           "link_down", over=("link_up", "reset")),
    _event("pcie_inaccessible", FAIL, "reboot", "own", "the kernel could not reach the GPU on the PCI bus",
           "inaccessible", over=("responds", "reset")),
    _event("pcie_fatal", FAIL, "inspect", "own", "a fatal PCIe error of the GPU or of a port above it",
           "aer", when="fatal"),
    _event("pcie_nonfatal", WARN, "none", "own", "PCIe errors of the GPU or of a port above it",
           "aer", when="nonfatal"),
    _event("pcie_unrecovered", WARN, "inspect", "own",
           "a PCIe error of the GPU or of a port above it from which the kernel could not recover",
           "aer", when="unrecovered"),
    _event("pcie_other", INFO, "none", "own", "PCIe errors of the GPU that were corrected", "aer"),
    _event("iommu_fault", WARN, "none", "own", "the IOMMU blocked a memory access of the GPU", "iommu"),
    _event("nic_failed", WARN, "reboot", "NVSentinel",
           "the firmware of a network adapter did not respond or reported a fatal error",
           "nic_failed", scope="host", over=("adapter",)),
    _event("host_hardware_error", WARN, "inspect", "own",
           "uncorrected errors of the memory or the processors of the host", "host_error", scope="host", over=()),
)

_REPETITIONS = (
    _repeated("xid_repeated", FAIL, "service", "NVSentinel", "the same fatal Xid in 5 bursts within 24 hours",
              bursts=5, hours=24),
    _repeated("xid_after_reboots", FAIL, "field_diagnostic", "gpud, own",
              "the same fatal Xid after two reboots within 7 days", boots=3, hours=168),
    _repeated("xid_31_repeated", WARN, "field_diagnostic", "NVSentinel, catalogue",
              "page faults of only this GPU, twice within 24 hours", 31, when="one_gpu", bursts=2, hours=24),
    _repeated("xid_13_repeated", WARN, "field_diagnostic", "NVSentinel, catalogue",
              "exceptions of the same unit of this GPU, twice within 24 hours", 13, bursts=2, hours=24),
)
# fmt: on

TABLE: tuple[Row, ...] = (
    *_RECOVERY,
    *_PRESENCE,
    *_MEMORY,
    *_LINKS,
    *_CLOCKS,
    *_PENDING,
    *_DECLARED,
    *_LICENCE,
    *_HOST,
    *_NETWORK,
    *_TESTS,
    *_XIDS,
    *_SXIDS,
    *_EVENTS,
    *_REPETITIONS,
)
"""In the kernel log the first row that fits decides; of the other rows, each that holds is a finding."""

CAUSES = frozenset(
    ("firmware_missing", "driver_not_ready", "driver_unsupported", "driver_conflict", "bar_invalid", "power_cables")
)
"""Rows of the kernel log that state why the driver does not use a GPU."""
CONSEQUENCES = frozenset(("gpu_missing", "gpus_unusable", "gpu_count", "init_failed", "probe_failed"))
"""Rows that follow from it, and then have the remedy of the cause."""

STATES_OF_SOFTWARE = frozenset(
    row.id
    for row in (
        *(*_PENDING, *_DECLARED, *_LICENCE, *_HOST),
        *(row for row in _NETWORK if row.remedy in ("configure", "none")),
    )
) - {
    "nvidia_smi_failed",
    "gpu_count",
    "gpus_unusable",
    "insufficient_power",
    "cpus_offline",
    "file_system_read_only",
}
"""Rows about modes that wait for a reset or a reboot, about what is declared, and about software of the host."""

PROBLEMS = tuple(code for code in PROBLEM_REMEDIES if code not in ("no_gpu", "version_mismatch"))
"""The codes of `unhealthy` of nvidia_smi_facts; the other two are reasons why it reads no GPU."""

_ROWS_OF_PROBLEMS = {
    "broken_xml": ("gpu_unreadable", "gpus_unreadable"),
    "ecc_uncorrectable": ("ecc_uncorrectable", "ecc_uncorrectable_contained"),
    "fabric_unhealthy": ("fabric_bandwidth", "fabric_route", "fabric_configuration", "fabric_summary"),
    "failed": ("nvidia_smi_failed",),
    "hardware_slowdown": ("slowdown_now",),
    "insufficient_power": ("insufficient_power", "gpu_insufficient_power"),
    "library_missing": ("driver_missing",),
    "no_driver": ("driver_missing",),
    "no_nvidia_smi": ("driver_missing",),
    "not_loaded": ("driver_missing",),
    "permission_denied": ("gpus_unknown", "gpu_unknown"),
    "power_brake_slowdown": ("slowdown_now", "power_brake_slowdown", "power_brake_slowdown_long"),
    "recovery_required": tuple(row.id for row in _RECOVERY),
    "thermal_slowdown": (
        "slowdown_now",
        "thermal_slowdown",
        "thermal_slowdown_long",
        "thermal_margin",
    ),
    "timeout": ("nvidia_smi_failed",),
    "too_large": ("gpus_unknown",),
}


def rows_of(problem: str) -> tuple[str, ...]:
    """The ids of the rows about a code of `unhealthy` of nvidia_smi_facts; most have the code's name."""
    return _ROWS_OF_PROBLEMS.get(problem, (problem,))
