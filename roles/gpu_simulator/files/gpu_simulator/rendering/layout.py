# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of one GPU: every element in order, with its XML tag, its text label, and its GPUs and drivers.

``-q -x`` and ``-q`` are two renderings of this one description. The value of an element is looked up in the readings
under its path: the tags from the GPU down, joined by ``/`` (see readings.py); an element without a reading is ``N/A``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..state.shapes import Version

FOREVER = (10**6,)


class Element:
    """One element: a leaf, a group, or a block that is repeated (``repeats`` names the tag of one block).

    ``tag`` None: only in the text. ``label`` None: only in the XML. ``when``: a trait of the GPU (``!``: without it).
    ``display``: the word of ``-d`` that selects it. ``sampled``: printed by ``-d`` alone. ``prefix``: put before the
    value in the text. ``deeper``: indentation steps added in the text. ``path``: the reading, when not the tags' own.
    ``none_in``: the rendering, ``text`` or ``xml``, that prints ``None`` for a repeated block without occurrence.
    """

    __slots__ = (
        "children",
        "deeper",
        "display",
        "label",
        "none_in",
        "path",
        "prefix",
        "repeats",
        "sampled",
        "since",
        "tag",
        "until",
        "when",
    )

    def __init__(
        self,
        tag: str | None,
        label: str | None,
        *children: Element,
        since: Version = (),
        until: Version = FOREVER,
        when: str = "",
        display: str = "",
        sampled: bool = False,
        prefix: str = "",
        deeper: int = 0,
        path: str = "",
        repeats: str = "",
        none_in: str = "text",
    ) -> None:
        self.tag = tag
        self.label = label
        self.children = children
        self.since = since
        self.until = until
        self.when = when
        self.display = display
        self.sampled = sampled
        self.prefix = prefix
        self.deeper = deeper
        self.path = path
        self.repeats = repeats
        self.none_in = none_in

    def holds(self, version: Version, traits: frozenset[str]) -> bool:
        """Return whether a GPU with these traits has the element under this driver."""
        if not self.since <= version < self.until:
            return False
        if self.when.startswith("!"):
            return self.when[1:] not in traits
        return not self.when or self.when in traits


E = Element


def _current_pending(tag: str, label: str, suffix: str, **options: object) -> Element:
    children = (E("current_" + suffix, "Current"), E("pending_" + suffix, "Pending"))
    return E(tag, label, *children, **options)  # type: ignore[arg-type]


def _sessions(tag: str, label: str, display: str) -> Element:
    return E(
        tag,
        label,
        E("session_count", "Active Sessions"),
        E("average_fps", "Average FPS"),
        E("average_latency", "Average Latency"),
        display=display,
    )


def _samples(label: str, path: str, display: str, **options: object) -> Element:
    """Statistics of the latest samples: only in the text, only with ``-d``."""
    names = ("Duration", "Number of Samples", "Max", "Min", "Avg")
    leaves = (E(None, name, path="{}/{}".format(path, name.lower().replace(" ", "_"))) for name in names)
    return E(None, label, *leaves, display=display, sampled=True, **options)  # type: ignore[arg-type]


def _memory(tag: str, label: str, *, reserved: bool = False, **options: object) -> Element:
    leaves = [E("total", "Total"), E("used", "Used"), E("free", "Free")]
    if reserved:
        leaves.insert(1, E("reserved", "Reserved"))
    return E(tag, label, *leaves, **options)  # type: ignore[arg-type]


def _event_reasons() -> Element:
    reasons = (
        ("gpu_idle", "Idle", 0),
        ("applications_clocks_setting", "Applications Clocks Setting", 0),
        ("sw_power_cap", "SW Power Cap", 0),
        ("hw_slowdown", "HW Slowdown", 0),
        ("hw_thermal_slowdown", "HW Thermal Slowdown", 1),
        ("hw_power_brake_slowdown", "HW Power Brake Slowdown", 1),
        ("sync_boost", "Sync Boost", 0),
        ("sw_thermal_slowdown", "SW Thermal Slowdown", 0),
        ("display_clocks_setting", "Display Clock Setting", 0),
    )
    leaves = (E("clocks_event_reason_" + tag, label, deeper=deeper) for tag, label, deeper in reasons)
    return E("clocks_event_reasons", "Clocks Event Reasons", *leaves, display="PERFORMANCE")


def _event_counters() -> Element:
    counters = (
        ("sw_power_cap", "SW Power Capping"),
        ("sync_boost", "Sync Boost"),
        ("sw_therm_slowdown", "SW Thermal Slowdown"),
        ("hw_therm_slowdown", "HW Thermal Slowdown"),
        ("hw_power_brake", "HW Power Braking"),
    )
    leaves = (E("clocks_event_reasons_counters_" + tag, label) for tag, label in counters)
    return E(
        "clocks_event_reasons_counters", "Clocks Event Reasons Counters", *leaves, since=(575,), display="PERFORMANCE"
    )


def _ecc_counts(tag: str, label: str, *more: Element) -> Element:
    """Turing and newer count SRAM and DRAM separately; Ampere and newer split SRAM errors since driver 550."""
    return E(
        tag,
        label,
        E("sram_correctable", "SRAM Correctable"),
        E("sram_uncorrectable", "SRAM Uncorrectable", when="!sram_split"),
        E("sram_uncorrectable_parity", "SRAM Uncorrectable Parity", when="sram_split"),
        E("sram_uncorrectable_secded", "SRAM Uncorrectable SEC-DED", when="sram_split"),
        E("dram_correctable", "DRAM Correctable"),
        E("dram_uncorrectable", "DRAM Uncorrectable"),
        *more,
    )


def _old_ecc_counts(tag: str, label: str) -> Element:
    """Pascal and Volta count by number of bits and location."""
    places = (
        ("device_memory", "Device Memory"),
        ("register_file", "Register File"),
        ("l1_cache", "L1 Cache"),
        ("l2_cache", "L2 Cache"),
        ("texture_memory", "Texture Memory"),
        ("texture_shm", "Texture Shared"),
        ("cbu", "CBU"),
        ("total", "Total"),
    )
    bits = (("single_bit", "Single Bit"), ("double_bit", "Double Bit"))
    # nvidia-smi prints the spaces after the label.
    groups = (E(bit, f"{name:<22}", *(E(place, words) for place, words in places)) for bit, name in bits)
    return E(tag, label, *groups)


def _remapped_rows() -> Element:
    histogram = (
        E("row_remapper_histogram_" + name.lower(), name) for name in ("Max", "High", "Partial", "Low", "None")
    )
    return E(
        "remapped_rows",
        "Remapped Rows",
        E("remapped_row_corr", "Correctable Error"),
        E("remapped_row_corr_inactive", "Inactive Correctable Error", since=(580, 159)),
        E("remapped_row_unc", "Uncorrectable Error"),
        E("remapped_row_unc_inactive", "Inactive Uncorrectable Error", since=(580, 159)),
        E("remapped_row_pending", "Pending"),
        E("remapped_row_failure", "Remapping Failure Occurred"),
        E("row_remapper_histogram", "Bank Remap Availability Histogram", *histogram),
        display="ROW_REMAPPER",
    )


def _power(tag: str, label: str, *, ceiling: bool = False) -> Element:
    """Power draw and limits; 610 moved the limits of the GPU into a group, and adds a base power."""
    limits = (
        ("current_power_limit", "Current Power Limit"),
        ("requested_power_limit", "Requested Power Limit"),
        ("default_power_limit", "Default Power Limit"),
    )
    flat_until = (610,) if ceiling else FOREVER
    grouped = (
        E("gpu_ceiling_power_limit", "GPU Ceiling Power Limit", *(E(*limit) for limit in limits), since=(610,)),
        E("gpu_base_power", "GPU Base Power", *(E(*power) for power in _BASE_POWERS), since=(610,)),
    )
    return E(
        tag,
        label,
        E("power_state", None),
        E("power_draw", "Power Draw", until=(560,)),
        E("average_power_draw", "Average Power Draw", since=(560,)),
        E("instant_power_draw", "Instantaneous Power Draw", since=(560,)),
        *(E(name, words, until=flat_until) for name, words in limits),
        *(grouped if ceiling else ()),
        E("min_power_limit", "Min Power Limit"),
        E("max_power_limit", "Max Power Limit"),
        display="POWER",
    )


_BASE_POWERS = (
    ("current_base_power", "Current Base Power"),
    ("requested_base_power", "Requested Base Power"),
    ("default_base_power", "Default Base Power"),
)


def _clocks(tag: str, label: str, *kinds: str) -> Element:
    leaves = {
        "graphics": E("graphics_clock", "Graphics"),
        "sm": E("sm_clock", "SM"),
        "mem": E("mem_clock", "Memory"),
        "video": E("video_clock", "Video"),
    }
    return E(tag, label, *(leaves[kind] for kind in kinds), display="CLOCK")


def _mig_devices() -> Element:
    shared = (
        ("multiprocessor_count", "Multiprocessor count"),
        ("copy_engine_count", "Copy Engine count"),
        ("encoder_count", "Encoder count"),
        ("decoder_count", "Decoder count"),
        ("ofa_count", "OFA count"),
        ("jpg_count", "JPG count"),
    )
    return E(
        "mig_devices",
        "MIG Device",
        E("index", "Index"),
        E("gpu_instance_id", "GPU Instance ID"),
        E("compute_instance_id", "Compute Instance ID"),
        E("device_attributes", "Device Attributes", E("shared", "Shared", *(E(tag, label) for tag, label in shared))),
        E(
            "ecc_error_count",
            "ECC Errors",
            E("volatile_count", "Volatile", E("sram_uncorrectable", "SRAM Uncorrectable")),
        ),
        _memory("fb_memory_usage", "Shared FB Memory Usage", reserved=True),
        _memory("bar1_memory_usage", "Shared BAR1 Memory"),
        repeats="mig_device",
        none_in="xml",
    )


def _retired_pages() -> Iterator[Element]:
    """The XML lists the pages; the text has the counts."""

    def cause(tag: str) -> Element:
        page = (E("retired_page_address", None), E("retired_page_timestamp", None))
        return E(tag, None, E("retired_count", None), E("retired_pagelist", None, *page, repeats="retired_page"))

    yield E(
        "retired_pages",
        None,
        cause("multiple_single_bit_retirement"),
        cause("double_bit_retirement"),
        E("pending_blacklist", None),
        E("pending_retirement", None),
    )
    yield E(
        None,
        "Retired Pages",
        E(None, "Single Bit ECC", path="retired_pages/multiple_single_bit_retirement/retired_count"),
        E(None, "Double Bit ECC", path="retired_pages/double_bit_retirement/retired_count"),
        E(None, "Pending Page Blacklist", path="retired_pages/pending_blacklist"),
        display="PAGE_RETIREMENT",
    )


def _temperature() -> Element:
    """Hopper, Ada and newer report margins to the limit, older GPUs the limits; 610 prints "Specification"."""
    words = (
        ("gpu_temp", "GPU Current Temp", "GPU Current Temp", ""),
        ("gpu_temp_tlimit", "GPU T.Limit Temp", "GPU Current T.Limit Temp", ""),
        ("gpu_temp_max_threshold", "GPU Shutdown Temp", None, "!tlimit"),
        ("gpu_temp_slow_threshold", "GPU Slowdown Temp", None, "!tlimit"),
        ("gpu_temp_max_gpu_threshold", "GPU Max Operating Temp", None, "!tlimit"),
        ("gpu_temp_max_tlimit_threshold", "GPU Shutdown T.Limit Temp", None, "tlimit"),
        ("gpu_temp_slow_tlimit_threshold", "GPU Slowdown T.Limit Temp", None, "tlimit"),
        ("gpu_temp_max_gpu_tlimit_threshold", "GPU Max Operating T.Limit Temp", None, "tlimit"),
        ("gpu_target_temperature", "GPU Target Temperature", None, ""),
        ("memory_temp", "Memory Current Temp", "Memory Current Temp", ""),
        ("gpu_temp_max_mem_threshold", "Memory Max Operating Temp", None, "!tlimit"),
        ("gpu_temp_max_mem_tlimit_threshold", "Memory Max Operating T.Limit Temp", None, "tlimit"),
    )
    leaves = []
    for tag, label, label_610, when in words:
        leaves.append(E(tag, label, when=when, until=(610,)))
        leaves.append(E(tag, label_610 or label + " Specification", when=when, since=(610,)))
    return E("temperature", "Temperature", *leaves, display="TEMPERATURE")


def _pci() -> Element:
    return E(
        "pci",
        "PCI",
        E("pci_bus", "Bus", prefix="0x"),
        E("pci_device", "Device", prefix="0x"),
        E("pci_domain", "Domain", prefix="0x"),
        E("pci_base_class", "Base Classcode", prefix="0x", since=(545,)),
        E("pci_sub_class", "Sub Classcode", prefix="0x", since=(545,)),
        E("pci_device_id", "Device Id", prefix="0x"),
        E("pci_bus_id", "Bus Id"),
        E("pci_sub_system_id", "Sub System Id", prefix="0x"),
        E(
            "pci_gpu_link_info",
            "GPU Link Info",
            E(
                "pcie_gen",
                "PCIe Generation",
                E("max_link_gen", "Max"),
                E("current_link_gen", "Current"),
                E("device_current_link_gen", "Device Current"),
                E("max_device_link_gen", "Device Max"),
                E("max_host_link_gen", "Host Max"),
            ),
            E("link_widths", "Link Width", E("max_link_width", "Max"), E("current_link_width", "Current")),
        ),
        E("pci_bridge_chip", "Bridge Chip", E("bridge_chip_type", "Type"), E("bridge_chip_fw", "Firmware")),
        E("replay_counter", "Replays Since Reset"),
        E("replay_rollover_counter", "Replay Number Rollovers"),
        E("tx_util", "Tx Throughput"),
        E("rx_util", "Rx Throughput"),
        E("atomic_caps_inbound", "Atomic Caps Inbound", until=(560,)),
        E("atomic_caps_outbound", "Atomic Caps Outbound"),
        E("atomic_caps_inbound", "Atomic Caps Inbound", since=(560,)),
    )


def _fabric() -> Element:
    health = E(
        "health",
        "Health",
        E("summary", "Summary", since=(580,)),
        E("bandwidth", "Bandwidth"),
        E("route_recovery_in_progress", "Route Recovery in progress", since=(570,)),
        E("route_unhealthy", "Route Unhealthy", since=(570,)),
        E("access_timeout_recovery", "Access Timeout Recovery", since=(570,)),
        E("incorrect_configuration", "Incorrect Configuration", since=(580,)),
        E("partition_assigned", "Partition Assigned", since=(580, 159), until=(590,)),
        E("partition_assigned", "Partition Assigned", since=(595,)),
        since=(545,),
    )
    return E(
        "fabric",
        "Fabric",
        E("state", "State"),
        E("status", "Status"),
        E("cliqueId", "CliqueId", since=(545,)),
        E("clusterUuid", "ClusterUUID", since=(545,)),
        health,
    )


def _processes() -> Element:
    return E(
        "processes",
        "Processes",
        E("gpu_instance_id", "GPU instance ID"),
        E("compute_instance_id", "Compute instance ID"),
        E("pid", "Process ID"),
        E("type", "Type", deeper=1),
        E("process_name", "Name", deeper=1),
        E("used_memory", "Used GPU Memory", deeper=1),
        display="PIDS",
        repeats="process_info",
    )


def _supported_clocks() -> Element:
    return E(
        "supported_clocks",
        "Supported Clocks",
        E("value", "Memory"),
        E("supported_graphics_clock", "Graphics", deeper=1),
        display="SUPPORTED_CLOCKS",
        sampled=True,
        repeats="supported_mem_clock",
    )


GPU: tuple[Element, ...] = (
    E("product_name", "Product Name"),
    E("product_brand", "Product Brand"),
    E("product_architecture", "Product Architecture"),
    E("display_mode", "Display Mode"),
    E("display_attached", "Display Attached", since=(575,)),
    E("display_active", "Display Active"),
    E("persistence_mode", "Persistence Mode"),
    E("addressing_mode", "Addressing Mode"),
    _current_pending("mig_mode", "MIG Mode", "mig"),
    _mig_devices(),
    E("accounting_mode", "Accounting Mode", display="ACCOUNTING"),
    E("accounting_mode_buffer_size", "Accounting Mode Buffer Size", display="ACCOUNTING"),
    _current_pending("driver_model", "Driver Model", "dm"),
    E("serial", "Serial Number"),
    E("uuid", "GPU UUID"),
    E("pdi", "GPU PDI", since=(580,)),
    E("minor_number", "Minor Number"),
    E("vbios_version", "VBIOS Version"),
    E("multigpu_board", "MultiGPU Board"),
    E("board_id", "Board ID"),
    E("board_part_number", "Board Part Number"),
    E("gpu_part_number", "GPU Part Number"),
    E("gpu_fru_part_number", "FRU Part Number"),
    E("gpu_module_id", "Module ID", until=(570,)),
    E(
        "platformInfo",
        "Platform Info",
        E("chassis_serial_number", "Chassis Serial Number"),
        E("slot_number", "Slot Number"),
        E("tray_index", "Tray Index"),
        E("host_id", "Host ID"),
        E("peer_type", "Peer Type"),
        E("module_id", "Module Id"),
        E("gpu_fabric_guid", "GPU Fabric GUID"),
        since=(570,),
    ),
    E(
        "inforom_version",
        "Inforom Version",
        E("img_version", "Image Version"),
        E("oem_object", "OEM Object"),
        E("ecc_object", "ECC Object"),
        E("pwr_object", "Power Management Object"),
    ),
    E(
        "inforom_bbx_flush",
        "Inforom BBX Object Flush",
        E("latest_timestamp", "Latest Timestamp"),
        E("latest_duration", "Latest Duration"),
        since=(535, 104),
    ),
    E("inforom_time_data", "Inforom Time Data", E("time_run", "Time Run"), since=(610,)),
    _current_pending("gpu_operation_mode", "GPU Operation Mode", "gom"),
    E("gsp_firmware_version", "GSP Firmware Version", until=(545,), display="GSP_FIRMWARE_VERSION"),
    E("c2c_mode", "GPU C2C Mode", since=(545,)),
    E(
        "gpu_virtualization_mode",
        "GPU Virtualization Mode",
        E("virtualization_mode", "Virtualization Mode"),
        E("host_vgpu_mode", "Host VGPU Mode"),
        E("vgpu_heterogeneous_mode", "vGPU Heterogeneous Mode", since=(545,)),
    ),
    E(
        "vgpu_software_licensed_product",
        "vGPU Software Licensed Product",
        E("licensed_product_name", "Product Name"),
        E("license_status", "License Status"),
        when="vgpu",
    ),
    E(
        "gpu_reset_status",
        "GPU Reset Status",
        E("reset_required", "Reset Required"),
        E("drain_and_reset_recommended", "Drain and Reset Recommended"),
        until=(580,),
        display="RESET_STATUS",
    ),
    E("gpu_recovery_action", "GPU Recovery Action", since=(570,)),
    E("gsp_firmware_version", "GSP Firmware Version", since=(545,), display="GSP_FIRMWARE_VERSION"),
    E("ibmnpu", "IBMNPU", E("relaxed_ordering_mode", "Relaxed Ordering Mode")),
    _pci(),
    E("fan_speed", "Fan Speed"),
    E("performance_state", "Performance State", display="PERFORMANCE"),
    _event_reasons(),
    _event_counters(),
    E("sparse_operation_mode", "Sparse Operation Mode", since=(545,), display="PERFORMANCE"),
    _memory("fb_memory_usage", "FB Memory Usage", reserved=True, display="MEMORY"),
    _memory("bar1_memory_usage", "BAR1 Memory Usage", display="MEMORY"),
    _memory("cc_protected_memory_usage", "Conf Compute Protected Memory Usage", display="MEMORY"),
    E("compute_mode", "Compute Mode", display="COMPUTE"),
    E(
        "utilization",
        "Utilization",
        E("gpu_util", "Gpu", until=(560,)),
        E("gpu_util", "GPU", since=(560,)),
        E("memory_util", "Memory"),
        E("encoder_util", "Encoder"),
        E("decoder_util", "Decoder"),
        E("jpeg_util", "JPEG"),
        E("ofa_util", "OFA"),
        display="UTILIZATION",
    ),
    _samples("GPU Utilization Samples", "samples/utilization", "UTILIZATION"),
    _samples("Memory Utilization Samples", "samples/utilization", "UTILIZATION"),
    _samples("ENC Utilization Samples", "samples/utilization", "UTILIZATION"),
    _samples("DEC Utilization Samples", "samples/utilization", "UTILIZATION"),
    _samples("JPG Utilization Samples", "samples/utilization", "UTILIZATION", since=(545,)),
    _samples("OFA Utilization Samples", "samples/utilization", "UTILIZATION", since=(545,)),
    _sessions("encoder_stats", "Encoder Stats", "ENCODER_STATS"),
    _sessions("fbc_stats", "FBC Stats", "FBC_STATS"),
    _current_pending("dram_encryption_mode", "DRAM Encryption Mode", "dram_encryption", since=(570,)),
    _current_pending("ecc_mode", "ECC Mode", "ecc", display="ECC"),
    E(
        "ecc_errors",
        "ECC Errors",
        _ecc_counts("volatile", "Volatile"),
        _ecc_counts(
            "aggregate",
            "Aggregate",
            E("sram_threshold_exceeded", "SRAM Threshold Exceeded", when="sram_split"),
        ),
        E(
            "aggregate_uncorrectable_sram_sources",
            "Aggregate Uncorrectable SRAM Sources",
            E("sram_l2", "SRAM L2"),
            E("sram_sm", "SRAM SM"),
            E("sram_microcontroller", "SRAM Microcontroller"),
            E("sram_pcie", "SRAM PCIE"),
            E("sram_other", "SRAM Other"),
            when="sram_split",
        ),
        E("channel_repair_pending", "Channel Repair Pending", since=(580,), when="sram_split"),
        E("tpc_repair_pending", "TPC Repair Pending", since=(580,), when="sram_split"),
        E("unrepairable_memory", "Unrepairable Memory", since=(580, 159), when="sram_split"),
        when="!ecc_by_bits",
        display="ECC",
    ),
    E(
        "ecc_errors",
        "ECC Errors",
        _old_ecc_counts("volatile", "Volatile"),
        _old_ecc_counts("aggregate", "Aggregate"),
        when="ecc_by_bits",
        display="ECC",
    ),
    *_retired_pages(),
    _remapped_rows(),
    _temperature(),
    E(
        "supported_gpu_target_temp",
        "Supported GPU_TARGET_TEMP",
        E("gpu_target_temp_min", "Min"),
        E("gpu_target_temp_max", "Max"),
        display="SUPPORTED_GPU_TARGET_TEMP",
        sampled=True,
    ),
    _power("gpu_power_readings", "GPU Power Readings", ceiling=True),
    _samples("Power Samples", "samples/power", "POWER"),
    E(
        "gpu_memory_power_readings",
        "GPU Memory Power Readings ",
        E("power_draw", "Power Draw", until=(560,)),
        E("average_power_draw", "Average Power Draw", since=(560,)),
        E("instant_power_draw", "Instantaneous Power Draw", since=(560,)),
        since=(545,),
        display="POWER",
    ),
    _power("module_power_readings", "Module Power Readings"),
    E("power_smoothing", "Power Smoothing", since=(570,), display="POWER_SMOOTHING"),
    E(
        "power_profiles",
        "Workload Power Profiles",
        E("power_profile_requested_profiles", "Requested Profiles"),
        E("power_profile_enforced_profiles", "Enforced Profiles"),
        since=(570,),
        display="POWER_PROFILES",
    ),
    E("edpp_multiplier", "EDPp Multiplier", since=(590,)),
    _clocks("clocks", "Clocks", "graphics", "sm", "mem", "video"),
    _clocks("applications_clocks", "Applications Clocks", "graphics", "mem"),
    _clocks("default_applications_clocks", "Default Applications Clocks", "graphics", "mem"),
    _clocks("deferred_clocks", "Deferred Clocks", "mem"),
    _clocks("max_clocks", "Max Clocks", "graphics", "sm", "mem", "video"),
    _clocks("max_customer_boost_clocks", "Max Customer Boost Clocks", "graphics"),
    _samples("SM Clock Samples", "samples/clocks", "CLOCK"),
    _samples("Memory Clock Samples", "samples/clocks", "CLOCK"),
    E(
        "clock_policy",
        "Clock Policy",
        E("auto_boost", "Auto Boost"),
        E("auto_boost_default", "Auto Boost Default"),
        display="CLOCK",
    ),
    E("voltage", "Voltage", E("graphics_volt", "Graphics"), until=(580,), display="VOLTAGE"),
    _fabric(),
    _supported_clocks(),
    _processes(),
    E(
        "accounted_processes",
        "Accounted Processes",
        display="ACCOUNTING",
        sampled=True,
        repeats="accounted_process_info",
    ),
    E("capabilities", "Capabilities", E("egm", "EGM"), since=(570,)),
)
