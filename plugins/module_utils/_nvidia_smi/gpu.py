# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings of one GPU, and where nvidia-smi reports them. Private to this collection.

Each reading is declared once: its name with the unit, its kind, and the paths below `<gpu>` that have held it, newest
first. Layouts changed with the driver and differ by chip, so every path is tried, whatever version the document states.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Mapping

from . import values as kind


@dataclass(frozen=True)
class Reading:
    """Where a field's value comes from: `paths` in the XML document, `csv` in `--query-gpu`."""

    kind: kind.Kind
    paths: tuple[str, ...]
    csv: str | None = None


def reading(of: kind.Kind, *paths: str, csv: str | None = None) -> Any:
    """Declare a field that is read from nvidia-smi, with None for unknown."""
    return field(default=None, metadata={"reading": Reading(of, paths, csv)})  # pylint: disable=invalid-field-call # used in dataclasses


def group(of: type, path: str) -> dict[str, tuple[type, str]]:
    """Metadata of a field that holds the readings of `of` below `path`."""
    return {"group": (of, path)}


@dataclass(frozen=True)
class Basics:
    """Identity, memory and modes: one CSV query has them with every driver."""

    uuid: str | None = reading(kind.plain, "uuid", csv="uuid")
    name: str | None = reading(kind.plain, "product_name", csv="name")
    serial: str | None = reading(kind.plain, "serial", csv="serial")
    pci_bus_id: str | None = reading(kind.bus_id, "pci/pci_bus_id", "@id", csv="pci.bus_id")
    memory_total_mib: int | None = reading(kind.mib, "fb_memory_usage/total", csv="memory.total")
    memory_used_mib: int | None = reading(kind.mib, "fb_memory_usage/used", csv="memory.used")
    memory_free_mib: int | None = reading(kind.mib, "fb_memory_usage/free", csv="memory.free")
    ecc_mode_current: str | None = reading(kind.enum, "ecc_mode/current_ecc", csv="ecc.mode.current")
    ecc_mode_pending: str | None = reading(kind.enum, "ecc_mode/pending_ecc", csv="ecc.mode.pending")
    mig_mode_current: str | None = reading(kind.enum, "mig_mode/current_mig", csv="mig.mode.current")
    mig_mode_pending: str | None = reading(kind.enum, "mig_mode/pending_mig", csv="mig.mode.pending")
    persistence_mode: str | None = reading(kind.enum, "persistence_mode", csv="persistence_mode")
    compute_mode: str | None = reading(kind.enum, "compute_mode", csv="compute_mode")
    power_limit_w: float | None = reading(
        kind.watt,
        "gpu_power_readings/requested_power_limit",
        "gpu_power_readings/gpu_ceiling_power_limit/requested_power_limit",
        "gpu_power_readings/gpu_ceiling_power_limit/current_power_limit",
        "power_readings/power_limit",
        csv="power.limit",
    )


@dataclass(frozen=True)
class Hardware:
    """Board, firmware, PCI link and modes that rarely change."""

    brand: str | None = reading(kind.plain, "product_brand")
    architecture: str | None = reading(kind.enum, "product_architecture")
    minor_number: int | None = reading(kind.small, "minor_number")
    pdi: str | None = reading(kind.hexadecimal, "pdi")
    vbios_version: str | None = reading(kind.plain, "vbios_version")
    gsp_firmware_version: str | None = reading(kind.plain, "gsp_firmware_version")
    multigpu_board: bool | None = reading(kind.flag, "multigpu_board")
    board_id: str | None = reading(kind.hexadecimal, "board_id")
    board_part_number: str | None = reading(kind.plain, "board_part_number")
    gpu_part_number: str | None = reading(kind.plain, "gpu_part_number")
    gpu_fru_part_number: str | None = reading(kind.plain, "gpu_fru_part_number")
    module_id: int | None = reading(kind.small, "platformInfo/module_id", "gpu_module_id")
    chassis_serial_number: str | None = reading(kind.plain, "platformInfo/chassis_serial_number")
    slot_number: int | None = reading(kind.small, "platformInfo/slot_number")
    tray_index: int | None = reading(kind.small, "platformInfo/tray_index")
    host_id: int | None = reading(kind.small, "platformInfo/host_id")
    peer_type: str | None = reading(kind.enum, "platformInfo/peer_type")
    gpu_fabric_guid: str | None = reading(kind.hexadecimal, "platformInfo/gpu_fabric_guid")
    inforom_image_version: str | None = reading(kind.plain, "inforom_version/img_version")
    inforom_oem_version: str | None = reading(kind.plain, "inforom_version/oem_object")
    inforom_ecc_version: str | None = reading(kind.plain, "inforom_version/ecc_object")
    inforom_power_version: str | None = reading(kind.plain, "inforom_version/pwr_object")
    inforom_flush_timestamp: str | None = reading(kind.plain, "inforom_bbx_flush/latest_timestamp")
    inforom_flush_duration_us: int | None = reading(kind.microseconds, "inforom_bbx_flush/latest_duration")
    inforom_time_run_s: int | None = reading(kind.seconds, "inforom_time_data/time_run")
    driver_model_current: str | None = reading(kind.enum, "driver_model/current_dm")
    driver_model_pending: str | None = reading(kind.enum, "driver_model/pending_dm")
    operation_mode_current: str | None = reading(kind.enum, "gpu_operation_mode/current_gom")
    operation_mode_pending: str | None = reading(kind.enum, "gpu_operation_mode/pending_gom")
    virtualization_mode: str | None = reading(kind.enum, "gpu_virtualization_mode/virtualization_mode")
    host_vgpu_mode: str | None = reading(kind.enum, "gpu_virtualization_mode/host_vgpu_mode")
    vgpu_heterogeneous_mode: str | None = reading(kind.enum, "gpu_virtualization_mode/vgpu_heterogeneous_mode")
    vgpu_product_name: str | None = reading(kind.plain, "vgpu_software_licensed_product/licensed_product_name")
    vgpu_license_status: str | None = reading(kind.plain, "vgpu_software_licensed_product/license_status")
    display_mode: str | None = reading(kind.enum, "display_mode")
    display_attached: bool | None = reading(kind.flag, "display_attached")
    display_active: str | None = reading(kind.enum, "display_active")
    addressing_mode: str | None = reading(kind.enum, "addressing_mode")
    c2c_mode: str | None = reading(kind.enum, "c2c_mode")
    egm: str | None = reading(kind.enum, "capabilities/egm")
    sparse_operation_mode: str | None = reading(kind.enum, "sparse_operation_mode")
    relaxed_ordering_mode: str | None = reading(kind.enum, "ibmnpu/relaxed_ordering_mode")
    accounting_mode: str | None = reading(kind.enum, "accounting_mode", csv="accounting.mode")
    accounting_buffer_size: int | None = reading(kind.number, "accounting_mode_buffer_size")
    recovery_action: str | None = reading(kind.enum, "gpu_recovery_action")
    reset_required: bool | None = reading(kind.flag, "gpu_reset_status/reset_required")
    drain_and_reset_recommended: bool | None = reading(kind.flag, "gpu_reset_status/drain_and_reset_recommended")
    pci_device_id: str | None = reading(kind.hexadecimal, "pci/pci_device_id")
    pci_subsystem_id: str | None = reading(kind.hexadecimal, "pci/pci_sub_system_id")
    pci_base_class: int | None = reading(kind.small, "pci/pci_base_class")
    pci_sub_class: int | None = reading(kind.small, "pci/pci_sub_class")
    pci_link_gen_current: int | None = reading(kind.link, "pci/pci_gpu_link_info/pcie_gen/current_link_gen")
    pci_link_gen_max: int | None = reading(kind.link, "pci/pci_gpu_link_info/pcie_gen/max_link_gen")
    pci_link_gen_device_current: int | None = reading(
        kind.link, "pci/pci_gpu_link_info/pcie_gen/device_current_link_gen"
    )
    pci_link_gen_device_max: int | None = reading(kind.link, "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen")
    pci_link_gen_host_max: int | None = reading(kind.link, "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen")
    pci_link_width_current: int | None = reading(kind.link, "pci/pci_gpu_link_info/link_widths/current_link_width")
    pci_link_width_max: int | None = reading(kind.link, "pci/pci_gpu_link_info/link_widths/max_link_width")
    pci_bridge_chip_type: str | None = reading(kind.plain, "pci/pci_bridge_chip/bridge_chip_type")
    pci_bridge_chip_firmware: str | None = reading(kind.plain, "pci/pci_bridge_chip/bridge_chip_fw")
    pci_replay_count: int | None = reading(kind.number, "pci/replay_counter")
    pci_replay_rollover_count: int | None = reading(kind.number, "pci/replay_rollover_counter")
    pci_atomic_caps_outbound: tuple[str, ...] | None = reading(kind.words, "pci/atomic_caps_outbound")
    pci_atomic_caps_inbound: tuple[str, ...] | None = reading(kind.words, "pci/atomic_caps_inbound")


@dataclass(frozen=True)
class Capability:
    """Readings that only a CSV query has. Their paths are not in any document."""

    compute_capability: str | None = reading(kind.plain, "@csv/compute_cap", csv="compute_cap")
    gsp_mode_current: str | None = reading(kind.enum, "@csv/gsp.mode.current", csv="gsp.mode.current")
    gsp_mode_default: str | None = reading(kind.enum, "@csv/gsp.mode.default", csv="gsp.mode.default")


@dataclass(frozen=True)
class Memory:
    """Memory readings in addition to those in `Basics`."""

    memory_reserved_mib: int | None = reading(kind.mib, "fb_memory_usage/reserved")
    bar1_total_mib: int | None = reading(kind.mib, "bar1_memory_usage/total")
    bar1_used_mib: int | None = reading(kind.mib, "bar1_memory_usage/used")
    bar1_free_mib: int | None = reading(kind.mib, "bar1_memory_usage/free")
    protected_memory_total_mib: int | None = reading(kind.mib, "cc_protected_memory_usage/total")
    protected_memory_used_mib: int | None = reading(kind.mib, "cc_protected_memory_usage/used")
    protected_memory_free_mib: int | None = reading(kind.mib, "cc_protected_memory_usage/free")
    dram_encryption_mode_current: str | None = reading(kind.enum, "dram_encryption_mode/current_dram_encryption")
    dram_encryption_mode_pending: str | None = reading(kind.enum, "dram_encryption_mode/pending_dram_encryption")


@dataclass(frozen=True)
class EccCounters:
    """Errors by memory: before Turing they are counted by bits and memory, later by SRAM and DRAM."""

    sram_correctable: int | None = reading(kind.count, "sram_correctable")
    sram_uncorrectable: int | None = reading(kind.count, "sram_uncorrectable")
    sram_uncorrectable_parity: int | None = reading(kind.count, "sram_uncorrectable_parity")
    sram_uncorrectable_secded: int | None = reading(kind.count, "sram_uncorrectable_secded")
    dram_correctable: int | None = reading(kind.count, "dram_correctable")
    dram_uncorrectable: int | None = reading(kind.count, "dram_uncorrectable")
    single_bit_device_memory: int | None = reading(kind.count, "single_bit/device_memory")
    single_bit_register_file: int | None = reading(kind.count, "single_bit/register_file")
    single_bit_l1_cache: int | None = reading(kind.count, "single_bit/l1_cache")
    single_bit_l2_cache: int | None = reading(kind.count, "single_bit/l2_cache")
    single_bit_texture_memory: int | None = reading(kind.count, "single_bit/texture_memory")
    single_bit_texture_shm: int | None = reading(kind.count, "single_bit/texture_shm")
    single_bit_cbu: int | None = reading(kind.count, "single_bit/cbu")
    single_bit_total: int | None = reading(kind.count, "single_bit/total")
    double_bit_device_memory: int | None = reading(kind.count, "double_bit/device_memory")
    double_bit_register_file: int | None = reading(kind.count, "double_bit/register_file")
    double_bit_l1_cache: int | None = reading(kind.count, "double_bit/l1_cache")
    double_bit_l2_cache: int | None = reading(kind.count, "double_bit/l2_cache")
    double_bit_texture_memory: int | None = reading(kind.count, "double_bit/texture_memory")
    double_bit_texture_shm: int | None = reading(kind.count, "double_bit/texture_shm")
    double_bit_cbu: int | None = reading(kind.count, "double_bit/cbu")
    double_bit_total: int | None = reading(kind.count, "double_bit/total")


@dataclass(frozen=True)
class RetiredPage:
    """A memory page that was retired; `cause` is `single_bit` or `double_bit`."""

    address: str
    cause: str
    timestamp: str | None = None


@dataclass(frozen=True)
class Ecc:
    """Memory errors, and the retired pages and remapped rows."""

    ecc_errors_volatile: EccCounters = field(
        default_factory=EccCounters, metadata=group(EccCounters, "ecc_errors/volatile")
    )
    ecc_errors_aggregate: EccCounters = field(
        default_factory=EccCounters, metadata=group(EccCounters, "ecc_errors/aggregate")
    )
    ecc_sram_threshold_exceeded: bool | None = reading(kind.flag, "ecc_errors/aggregate/sram_threshold_exceeded")
    ecc_sram_source_l2: int | None = reading(kind.count, "ecc_errors/aggregate_uncorrectable_sram_sources/sram_l2")
    ecc_sram_source_sm: int | None = reading(kind.count, "ecc_errors/aggregate_uncorrectable_sram_sources/sram_sm")
    ecc_sram_source_microcontroller: int | None = reading(
        kind.count, "ecc_errors/aggregate_uncorrectable_sram_sources/sram_microcontroller"
    )
    ecc_sram_source_pcie: int | None = reading(kind.count, "ecc_errors/aggregate_uncorrectable_sram_sources/sram_pcie")
    ecc_sram_source_other: int | None = reading(
        kind.count, "ecc_errors/aggregate_uncorrectable_sram_sources/sram_other"
    )
    ecc_channel_repair_pending: bool | None = reading(kind.flag, "ecc_errors/channel_repair_pending")
    ecc_tpc_repair_pending: bool | None = reading(kind.flag, "ecc_errors/tpc_repair_pending")
    ecc_unrepairable_memory: bool | None = reading(kind.flag, "ecc_errors/unrepairable_memory")
    retired_pages_single_bit_count: int | None = reading(
        kind.number, "retired_pages/multiple_single_bit_retirement/retired_count"
    )
    retired_pages_double_bit_count: int | None = reading(
        kind.number, "retired_pages/double_bit_retirement/retired_count"
    )
    # Drivers 430 to 436 have only the flag of the older name; where both exist, the newer one takes precedence.
    retired_pages_pending: bool | None = reading(
        kind.flag, "retired_pages/pending_retirement", "retired_pages/pending_blacklist"
    )
    remapped_rows_correctable: int | None = reading(kind.number, "remapped_rows/remapped_row_corr")
    remapped_rows_correctable_inactive: int | None = reading(kind.number, "remapped_rows/remapped_row_corr_inactive")
    remapped_rows_uncorrectable: int | None = reading(kind.number, "remapped_rows/remapped_row_unc")
    remapped_rows_uncorrectable_inactive: int | None = reading(kind.number, "remapped_rows/remapped_row_unc_inactive")
    remapped_rows_pending: bool | None = reading(kind.flag, "remapped_rows/remapped_row_pending")
    remapped_rows_failure: bool | None = reading(kind.flag, "remapped_rows/remapped_row_failure")
    remapped_rows_banks_max: int | None = reading(
        kind.number, "remapped_rows/row_remapper_histogram/row_remapper_histogram_max"
    )
    remapped_rows_banks_high: int | None = reading(
        kind.number, "remapped_rows/row_remapper_histogram/row_remapper_histogram_high"
    )
    remapped_rows_banks_partial: int | None = reading(
        kind.number, "remapped_rows/row_remapper_histogram/row_remapper_histogram_partial"
    )
    remapped_rows_banks_low: int | None = reading(
        kind.number, "remapped_rows/row_remapper_histogram/row_remapper_histogram_low"
    )
    remapped_rows_banks_none: int | None = reading(
        kind.number, "remapped_rows/row_remapper_histogram/row_remapper_histogram_none"
    )


def _base_power(which: str) -> Any:
    """One value of the base power, new in driver 610; its name differs between text and XML."""
    return reading(
        kind.watt,
        *(
            f"gpu_power_readings/{group_name}/{which}_{name}"
            for group_name in ("gpu_base_power", "gpu_base_power_limit", "gpu_base_power_readings")
            for name in ("base_power", "base_power_limit", "power_limit")
        ),
        f"gpu_power_readings/{which}_base_power",
        f"gpu_power_readings/{which}_base_power_limit",
    )


@dataclass(frozen=True)
class Power:
    """Power draw and limits, in watts, and what throttles the clocks."""

    power_draw_w: float | None = reading(
        kind.watt,
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
    )
    power_draw_average_w: float | None = reading(kind.watt, "gpu_power_readings/average_power_draw")
    power_draw_instant_w: float | None = reading(kind.watt, "gpu_power_readings/instant_power_draw")
    power_limit_enforced_w: float | None = reading(
        kind.watt,
        "gpu_power_readings/current_power_limit",
        "gpu_power_readings/gpu_ceiling_power_limit/current_power_limit",
        "power_readings/enforced_power_limit",
    )
    power_limit_default_w: float | None = reading(
        kind.watt,
        "gpu_power_readings/default_power_limit",
        "gpu_power_readings/gpu_ceiling_power_limit/default_power_limit",
        "power_readings/default_power_limit",
        csv="power.default_limit",
    )
    power_limit_min_w: float | None = reading(
        kind.watt,
        "gpu_power_readings/min_power_limit",
        "gpu_power_readings/gpu_ceiling_power_limit/min_power_limit",
        "power_readings/min_power_limit",
        csv="power.min_limit",
    )
    power_limit_max_w: float | None = reading(
        kind.watt,
        "gpu_power_readings/max_power_limit",
        "gpu_power_readings/gpu_ceiling_power_limit/max_power_limit",
        "power_readings/max_power_limit",
        csv="power.max_limit",
    )
    power_base_w: float | None = _base_power("requested")
    power_base_enforced_w: float | None = _base_power("current")
    power_base_default_w: float | None = _base_power("default")
    power_management: bool | None = reading(kind.flag, "power_readings/power_management")
    performance_state: str | None = reading(
        kind.plain, "performance_state", "gpu_power_readings/power_state", "power_readings/power_state"
    )
    memory_power_draw_average_w: float | None = reading(
        kind.watt, "gpu_memory_power_readings/average_power_draw", "gpu_memory_power_readings/power_draw"
    )
    memory_power_draw_instant_w: float | None = reading(kind.watt, "gpu_memory_power_readings/instant_power_draw")
    module_power_draw_w: float | None = reading(
        kind.watt,
        "module_power_readings/average_power_draw",
        "module_power_readings/instant_power_draw",
        "module_power_readings/power_draw",
    )
    module_power_draw_average_w: float | None = reading(kind.watt, "module_power_readings/average_power_draw")
    module_power_draw_instant_w: float | None = reading(kind.watt, "module_power_readings/instant_power_draw")
    module_power_limit_w: float | None = reading(kind.watt, "module_power_readings/requested_power_limit")
    module_power_limit_enforced_w: float | None = reading(kind.watt, "module_power_readings/current_power_limit")
    module_power_limit_default_w: float | None = reading(kind.watt, "module_power_readings/default_power_limit")
    module_power_limit_min_w: float | None = reading(kind.watt, "module_power_readings/min_power_limit")
    module_power_limit_max_w: float | None = reading(kind.watt, "module_power_readings/max_power_limit")
    edpp_multiplier_percent: float | None = reading(kind.percent, "edpp_multiplier")
    power_profiles_requested: str | None = reading(kind.plain, "power_profiles/power_profile_requested_profiles")
    power_profiles_enforced: str | None = reading(kind.plain, "power_profiles/power_profile_enforced_profiles")
    graphics_voltage_mv: float | None = reading(kind.millivolt, "voltage/graphics_volt")


def _slowdown(name: str) -> Any:
    """One reason for throttled clocks; the block was renamed from throttle to event in driver 535."""
    return reading(
        kind.flag,
        "clocks_event_reasons/clocks_event_reason_" + name,
        "clocks_throttle_reasons/clocks_throttle_reason_" + name,
    )


@dataclass(frozen=True)
class Clocks:
    """Clocks in MHz, and why they are throttled."""

    clock_graphics_mhz: int | None = reading(kind.mhz, "clocks/graphics_clock", csv="clocks.current.graphics")
    clock_sm_mhz: int | None = reading(kind.mhz, "clocks/sm_clock")
    clock_memory_mhz: int | None = reading(kind.mhz, "clocks/mem_clock", csv="clocks.current.memory")
    clock_video_mhz: int | None = reading(kind.mhz, "clocks/video_clock")
    clock_applications_graphics_mhz: int | None = reading(kind.mhz, "applications_clocks/graphics_clock")
    clock_applications_memory_mhz: int | None = reading(kind.mhz, "applications_clocks/mem_clock")
    clock_default_applications_graphics_mhz: int | None = reading(
        kind.mhz, "default_applications_clocks/graphics_clock"
    )
    clock_default_applications_memory_mhz: int | None = reading(kind.mhz, "default_applications_clocks/mem_clock")
    clock_deferred_memory_mhz: int | None = reading(kind.mhz, "deferred_clocks/mem_clock")
    clock_max_graphics_mhz: int | None = reading(kind.mhz, "max_clocks/graphics_clock", csv="clocks.max.graphics")
    clock_max_sm_mhz: int | None = reading(kind.mhz, "max_clocks/sm_clock")
    clock_max_memory_mhz: int | None = reading(kind.mhz, "max_clocks/mem_clock", csv="clocks.max.memory")
    clock_max_video_mhz: int | None = reading(kind.mhz, "max_clocks/video_clock")
    clock_max_customer_boost_graphics_mhz: int | None = reading(kind.mhz, "max_customer_boost_clocks/graphics_clock")
    clock_auto_boost: bool | None = reading(kind.flag, "clock_policy/auto_boost")
    clock_auto_boost_default: bool | None = reading(kind.flag, "clock_policy/auto_boost_default")
    slowdown_gpu_idle: bool | None = _slowdown("gpu_idle")
    slowdown_applications_clocks_setting: bool | None = _slowdown("applications_clocks_setting")
    slowdown_display_clocks_setting: bool | None = _slowdown("display_clocks_setting")
    slowdown_sync_boost: bool | None = _slowdown("sync_boost")
    slowdown_sw_power_cap: bool | None = _slowdown("sw_power_cap")
    slowdown_sw_thermal: bool | None = _slowdown("sw_thermal_slowdown")
    slowdown_hw: bool | None = _slowdown("hw_slowdown")
    slowdown_hw_thermal: bool | None = _slowdown("hw_thermal_slowdown")
    slowdown_hw_power_brake: bool | None = _slowdown("hw_power_brake_slowdown")
    slowdown_unknown: bool | None = _slowdown("unknown")
    slowdown_sw_power_cap_us: int | None = reading(
        kind.microseconds, "clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap"
    )
    slowdown_sync_boost_us: int | None = reading(
        kind.microseconds, "clocks_event_reasons_counters/clocks_event_reasons_counters_sync_boost"
    )
    slowdown_sw_thermal_us: int | None = reading(
        kind.microseconds, "clocks_event_reasons_counters/clocks_event_reasons_counters_sw_therm_slowdown"
    )
    slowdown_hw_thermal_us: int | None = reading(
        kind.microseconds, "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_therm_slowdown"
    )
    slowdown_hw_power_brake_us: int | None = reading(
        kind.microseconds, "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_power_brake"
    )


@dataclass(frozen=True)
class Temperature:
    """Temperatures and limits in degrees Celsius; T.Limit readings are the degrees left until the limit."""

    temperature_gpu_c: int | None = reading(kind.celsius, "temperature/gpu_temp")
    temperature_memory_c: int | None = reading(kind.celsius, "temperature/memory_temp")
    temperature_gpu_tlimit_c: int | None = reading(kind.celsius, "temperature/gpu_temp_tlimit")
    temperature_gpu_target_c: int | None = reading(
        kind.celsius,
        "temperature/gpu_target_temperature",
        "temperature/gpu_target_temperature_specification",
        "temperature/gpu_target_temp",
        "temperature/gpu_temp_target",
        "temperature/gpu_temp_target_threshold",
        "temperature/gpu_temp_target_specification",
    )
    temperature_shutdown_c: int | None = reading(kind.celsius, "temperature/gpu_temp_max_threshold")
    temperature_slowdown_c: int | None = reading(kind.celsius, "temperature/gpu_temp_slow_threshold")
    temperature_gpu_max_operating_c: int | None = reading(kind.celsius, "temperature/gpu_temp_max_gpu_threshold")
    temperature_memory_max_operating_c: int | None = reading(kind.celsius, "temperature/gpu_temp_max_mem_threshold")
    temperature_shutdown_tlimit_c: int | None = reading(kind.celsius, "temperature/gpu_temp_max_tlimit_threshold")
    temperature_slowdown_tlimit_c: int | None = reading(kind.celsius, "temperature/gpu_temp_slow_tlimit_threshold")
    temperature_gpu_max_operating_tlimit_c: int | None = reading(
        kind.celsius, "temperature/gpu_temp_max_gpu_tlimit_threshold"
    )
    temperature_memory_max_operating_tlimit_c: int | None = reading(
        kind.celsius, "temperature/gpu_temp_max_mem_tlimit_threshold"
    )
    temperature_target_min_c: int | None = reading(kind.celsius, "supported_gpu_target_temp/gpu_target_temp_min")
    temperature_target_max_c: int | None = reading(kind.celsius, "supported_gpu_target_temp/gpu_target_temp_max")
    fan_speed_percent: float | None = reading(kind.percent, "fan_speed")


@dataclass(frozen=True)
class Utilization:
    """Utilization of the engines and of the PCI link."""

    utilization_gpu_percent: float | None = reading(kind.percent, "utilization/gpu_util")
    utilization_memory_percent: float | None = reading(kind.percent, "utilization/memory_util")
    utilization_encoder_percent: float | None = reading(kind.percent, "utilization/encoder_util")
    utilization_decoder_percent: float | None = reading(kind.percent, "utilization/decoder_util")
    utilization_jpeg_percent: float | None = reading(kind.percent, "utilization/jpeg_util")
    utilization_ofa_percent: float | None = reading(kind.percent, "utilization/ofa_util")
    pci_tx_kb_per_second: int | None = reading(kind.kb_per_second, "pci/tx_util")
    pci_rx_kb_per_second: int | None = reading(kind.kb_per_second, "pci/rx_util")
    encoder_session_count: int | None = reading(kind.number, "encoder_stats/session_count")
    encoder_average_fps: int | None = reading(kind.number, "encoder_stats/average_fps")
    encoder_average_latency_us: int | None = reading(kind.microseconds, "encoder_stats/average_latency")
    fbc_session_count: int | None = reading(kind.number, "fbc_stats/session_count")
    fbc_average_fps: int | None = reading(kind.number, "fbc_stats/average_fps")
    fbc_average_latency_us: int | None = reading(kind.microseconds, "fbc_stats/average_latency")


@dataclass(frozen=True)
class Fabric:
    """Registration with the NVLink fabric of an NVSwitch system."""

    fabric_state: str | None = reading(kind.enum, "fabric/state")
    fabric_status: str | None = reading(kind.enum, "fabric/status")
    fabric_clique_id: int | None = reading(kind.number, "fabric/cliqueId")
    fabric_cluster_uuid: str | None = reading(kind.plain, "fabric/clusterUuid")
    fabric_health_summary: str | None = reading(kind.enum, "fabric/health/summary")
    fabric_health_bandwidth: str | None = reading(kind.enum, "fabric/health/bandwidth")
    fabric_health_route_recovery_in_progress: bool | None = reading(
        kind.flag, "fabric/health/route_recovery_in_progress"
    )
    fabric_health_route_unhealthy: bool | None = reading(kind.flag, "fabric/health/route_unhealthy")
    fabric_health_access_timeout_recovery: bool | None = reading(kind.flag, "fabric/health/access_timeout_recovery")
    fabric_health_incorrect_configuration: str | None = reading(kind.enum, "fabric/health/incorrect_configuration")
    fabric_health_partition_assigned: bool | None = reading(kind.flag, "fabric/health/partition_assigned")


@dataclass(frozen=True)
class Process:
    """A process on a GPU; `gpu_instance_id` and `compute_instance_id` are set only inside a MIG device."""

    pid: int | None = reading(kind.number, "pid")
    type: str | None = reading(kind.plain, "type")
    name: str | None = reading(kind.plain, "process_name")
    memory_used_mib: int | None = reading(kind.mib, "used_memory")
    gpu_instance_id: int | None = reading(kind.small, "gpu_instance_id")
    compute_instance_id: int | None = reading(kind.small, "compute_instance_id")


@dataclass(frozen=True)
class MigDevice:
    """A MIG device: a compute instance in a GPU instance. `uuid` and `profile` come from `nvidia-smi -L`, `placement_*`
    (in memory slices of the GPU) from `nvidia-smi mig -lgi`."""

    index: int | None = reading(kind.small, "index")
    uuid: str | None = None
    profile: str | None = None
    gpu_instance_id: int | None = reading(kind.small, "gpu_instance_id")
    compute_instance_id: int | None = reading(kind.small, "compute_instance_id")
    placement_start: int | None = None
    placement_size: int | None = None
    multiprocessor_count: int | None = reading(kind.small, "device_attributes/shared/multiprocessor_count")
    copy_engine_count: int | None = reading(kind.small, "device_attributes/shared/copy_engine_count")
    encoder_count: int | None = reading(kind.small, "device_attributes/shared/encoder_count")
    decoder_count: int | None = reading(kind.small, "device_attributes/shared/decoder_count")
    ofa_count: int | None = reading(kind.small, "device_attributes/shared/ofa_count")
    jpeg_count: int | None = reading(kind.small, "device_attributes/shared/jpg_count")
    ecc_volatile_sram_uncorrectable: int | None = reading(
        kind.count, "ecc_error_count/volatile_count/sram_uncorrectable"
    )
    memory_total_mib: int | None = reading(kind.mib, "fb_memory_usage/total")
    memory_reserved_mib: int | None = reading(kind.mib, "fb_memory_usage/reserved")
    memory_used_mib: int | None = reading(kind.mib, "fb_memory_usage/used")
    memory_free_mib: int | None = reading(kind.mib, "fb_memory_usage/free")
    bar1_total_mib: int | None = reading(kind.mib, "bar1_memory_usage/total")
    bar1_used_mib: int | None = reading(kind.mib, "bar1_memory_usage/used")
    bar1_free_mib: int | None = reading(kind.mib, "bar1_memory_usage/free")


@dataclass(frozen=True)
class SupportedClocks:
    """The graphics clocks supported with one memory clock, in MHz."""

    memory_mhz: int
    graphics_mhz: tuple[int, ...]


@dataclass(frozen=True)
class AccountedProcess:
    """A process recorded by accounting mode, running or ended."""

    pid: int | None = reading(kind.number, "pid")
    utilization_gpu_percent: float | None = reading(kind.percent, "gpu_util")
    utilization_memory_percent: float | None = reading(kind.percent, "memory_util")
    memory_max_mib: int | None = reading(kind.mib, "max_memory_usage")
    time_ms: int | None = reading(kind.milliseconds, "time")
    running: bool | None = reading(kind.flag, "is_running")


@dataclass(frozen=True)
class Gpu:
    """One GPU, from one document or CSV row.

    `unknown` has (reading, reason) for each reading without a value, `other` (path, text) of elements without a
    declared reading, `error` the error message in place of a GPU that cannot be read. `index` is nvidia-smi's.
    """

    index: int | None
    basics: Basics
    hardware: Hardware = field(default_factory=Hardware)
    capability: Capability = field(default_factory=Capability)
    memory: Memory = field(default_factory=Memory)
    ecc: Ecc = field(default_factory=Ecc)
    power: Power = field(default_factory=Power)
    clocks: Clocks = field(default_factory=Clocks)
    temperature: Temperature = field(default_factory=Temperature)
    utilization: Utilization = field(default_factory=Utilization)
    fabric: Fabric = field(default_factory=Fabric)
    retired_pages: tuple[RetiredPage, ...] = ()
    processes: tuple[Process, ...] | None = None
    accounted_processes: tuple[AccountedProcess, ...] | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    supported_clocks: tuple[SupportedClocks, ...] | None = None
    power_smoothing: tuple[tuple[str, str | None], ...] | None = None
    unknown: tuple[tuple[str, str], ...] = ()
    other: tuple[tuple[str, str], ...] = ()
    error: str | None = None

    @property
    def identity(self) -> str:
        """The argument for `-i`, stable across reboots."""
        return self.basics.uuid or self.basics.pci_bus_id or str(self.index)

    @property
    def label(self) -> str:
        """Its name in messages, with what is known of it."""
        known = ", ".join(filter(None, (self.basics.name, self.basics.pci_bus_id)))
        return f"GPU {self.index} ({known})" if known else f"GPU {self.index}"


@lru_cache(maxsize=None)
def _plan(of: type) -> tuple[tuple[str, Reading | None, tuple[type, str] | None], ...]:
    """The fields of `of` that are read from a document: (name, reading, group)."""
    return tuple(
        (item.name, item.metadata.get("reading"), item.metadata.get("group")) for item in fields(of) if item.metadata
    )


@dataclass
class Gaps:
    """Readings without a value: reasons by reading, and by path the strings that could not be converted and error
    messages."""

    reasons: dict[str, str] = field(default_factory=dict)
    strings: dict[str, str] = field(default_factory=dict)


def build(of: type, strings: Mapping[str, str], gaps: Gaps, prefix: str = "", name: str = "") -> Any:
    """Build an `of` from the strings of one element by path, and add to `gaps` why readings have no value.

    `prefix` is put before each declared path, `name` before each name of a reading.
    """
    values: dict[str, Any] = {}
    for field_name, declared, nested in _plan(of):
        if declared is not None:
            value, reason = _first_value(declared, strings, prefix)
            if reason is not None:
                gaps.reasons[name + field_name] = reason
                if reason in kind.VAGUE:
                    found = (prefix + path for path in declared.paths if prefix + path in strings)
                    gaps.strings.update((path if prefix else name + path, strings[path]) for path in found)
            values[field_name] = value
        elif nested is not None:
            inner, path = nested
            values[field_name] = build(inner, strings, gaps, prefix + path + "/", name + field_name + ".")
    return of(**values)


def _first_value(declared: Reading, strings: Mapping[str, str], prefix: str) -> tuple[Any, str | None]:
    """The value at the first path that has one; else the reason of the first path that exists."""
    first_reason: str | None = None
    for path in declared.paths:
        text = strings.get(prefix + path)
        if text is None:
            continue
        value, reason = kind.interpret(text, declared.kind)
        if reason is None:
            return value, None
        first_reason = first_reason or reason
    return None, first_reason or _container_reason(declared.paths, strings, prefix)


def _container_reason(paths: tuple[str, ...], strings: Mapping[str, str], prefix: str) -> str:
    """Why none of `paths` exists: an element that normally has children may hold a bare text such as N/A."""
    for path in paths:
        container = prefix + path
        while "/" in container:
            container = container.rpartition("/")[0]
            text = strings.get(container)
            if text is not None:
                return kind.interpret(text, kind.never)[1] or kind.ABSENT
    return kind.ABSENT


def declared_paths(of: type, prefix: str = "") -> frozenset[str]:
    """All paths that the readings of `of` use."""
    found: set[str] = set()
    for _name, declared, nested in _plan(of):
        if declared is not None:
            found.update(prefix + path for path in declared.paths)
        elif nested is not None:
            found |= declared_paths(nested[0], prefix + nested[1] + "/")
    return frozenset(found)


SECTIONS: Mapping[str, type] = {
    "basics": Basics,
    "hardware": Hardware,
    "capability": Capability,
    "memory": Memory,
    "ecc": Ecc,
    "power": Power,
    "clocks": Clocks,
    "temperature": Temperature,
    "utilization": Utilization,
    "fabric": Fabric,
}
"""The sections of `Gpu` that consist of readings, by field name."""
