# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents of every layout, compared with values that are read from the same file without an XML parser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import gpu as gpu_schema
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.observe import Observation
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.xml import Document, parse_document
from ansible_collections.gpu.fleet.plugins.modules import nvidia_smi_facts

from tests.unit.nvidia_smi.facts_support import H200X4, H200X8, WRITTEN, gpu_elements, leaf, leaf_of_gpu, number

SHIPPED = {
    "8 x H200": H200X8.output("-q -x"),
    "the first of 8 x H200": H200X8.output("-q -x -i 0"),
    "4 x H200": H200X4.output("-q -x"),
    **{path.name: path.read_text(encoding="utf-8") for path in sorted(WRITTEN.glob("*.xml"))},
}
"""Documents by their origin."""

# Reading, kind of its text (number, text as it is, lower-case word, or yes/no), and the element paths that have held
# it, by priority. Derived from the documents, not from the collection.
EXPECTED = """
uuid text uuid
name text product_name
serial text serial
brand text product_brand
architecture word product_architecture
minor_number number minor_number
vbios_version text vbios_version
gsp_firmware_version text gsp_firmware_version
board_part_number text board_part_number
gpu_part_number text gpu_part_number
module_id number platformInfo/module_id gpu_module_id
peer_type word platformInfo/peer_type
slot_number number platformInfo/slot_number
inforom_image_version text inforom_version/img_version
inforom_ecc_version text inforom_version/ecc_object
inforom_flush_duration_us number inforom_bbx_flush/latest_duration
persistence_mode word persistence_mode
compute_mode word compute_mode
accounting_mode word accounting_mode
accounting_buffer_size number accounting_mode_buffer_size
addressing_mode word addressing_mode
c2c_mode word c2c_mode
relaxed_ordering_mode word ibmnpu/relaxed_ordering_mode
virtualization_mode word gpu_virtualization_mode/virtualization_mode
driver_model_current word driver_model/current_dm
recovery_action word gpu_recovery_action
display_active word display_active
display_attached yes display_attached
multigpu_board yes multigpu_board
reset_required yes gpu_reset_status/reset_required
drain_and_reset_recommended yes gpu_reset_status/drain_and_reset_recommended
mig_mode_current word mig_mode/current_mig
mig_mode_pending word mig_mode/pending_mig
ecc_mode_current word ecc_mode/current_ecc
ecc_mode_pending word ecc_mode/pending_ecc
memory_total_mib number fb_memory_usage/total
memory_reserved_mib number fb_memory_usage/reserved
memory_used_mib number fb_memory_usage/used
memory_free_mib number fb_memory_usage/free
bar1_total_mib number bar1_memory_usage/total
bar1_used_mib number bar1_memory_usage/used
protected_memory_total_mib number cc_protected_memory_usage/total
pci_link_gen_current number pci/pci_gpu_link_info/pcie_gen/current_link_gen
pci_link_gen_max number pci/pci_gpu_link_info/pcie_gen/max_link_gen
pci_link_gen_device_max number pci/pci_gpu_link_info/pcie_gen/max_device_link_gen
pci_link_width_current number pci/pci_gpu_link_info/link_widths/current_link_width
pci_link_width_max number pci/pci_gpu_link_info/link_widths/max_link_width
pci_replay_count number pci/replay_counter
pci_tx_kb_per_second number pci/tx_util
pci_rx_kb_per_second number pci/rx_util
fan_speed_percent number fan_speed
performance_state text performance_state gpu_power_readings/power_state power_readings/power_state
utilization_gpu_percent number utilization/gpu_util
utilization_memory_percent number utilization/memory_util
utilization_encoder_percent number utilization/encoder_util
utilization_ofa_percent number utilization/ofa_util
encoder_session_count number encoder_stats/session_count
fbc_session_count number fbc_stats/session_count
ecc_errors_volatile.single_bit_device_memory number ecc_errors/volatile/single_bit/device_memory
ecc_errors_volatile.single_bit_total number ecc_errors/volatile/single_bit/total
ecc_errors_volatile.double_bit_total number ecc_errors/volatile/double_bit/total
ecc_errors_aggregate.single_bit_total number ecc_errors/aggregate/single_bit/total
ecc_errors_aggregate.single_bit_texture_shm number ecc_errors/aggregate/single_bit/texture_shm
ecc_errors_aggregate.double_bit_device_memory number ecc_errors/aggregate/double_bit/device_memory
ecc_errors_aggregate.double_bit_total number ecc_errors/aggregate/double_bit/total
ecc_errors_volatile.sram_correctable number ecc_errors/volatile/sram_correctable
ecc_errors_volatile.sram_uncorrectable number ecc_errors/volatile/sram_uncorrectable
ecc_errors_volatile.sram_uncorrectable_parity number ecc_errors/volatile/sram_uncorrectable_parity
ecc_errors_volatile.dram_uncorrectable number ecc_errors/volatile/dram_uncorrectable
ecc_errors_aggregate.sram_uncorrectable_secded number ecc_errors/aggregate/sram_uncorrectable_secded
ecc_errors_aggregate.dram_correctable number ecc_errors/aggregate/dram_correctable
ecc_sram_threshold_exceeded yes ecc_errors/aggregate/sram_threshold_exceeded
ecc_sram_source_microcontroller number ecc_errors/aggregate_uncorrectable_sram_sources/sram_microcontroller
ecc_channel_repair_pending yes ecc_errors/channel_repair_pending
ecc_unrepairable_memory yes ecc_errors/unrepairable_memory
retired_pages_single_bit_count number retired_pages/multiple_single_bit_retirement/retired_count
retired_pages_double_bit_count number retired_pages/double_bit_retirement/retired_count
retired_pages_pending yes retired_pages/pending_retirement retired_pages/pending_blacklist
remapped_rows_correctable number remapped_rows/remapped_row_corr
remapped_rows_uncorrectable number remapped_rows/remapped_row_unc
remapped_rows_uncorrectable_inactive number remapped_rows/remapped_row_unc_inactive
remapped_rows_pending yes remapped_rows/remapped_row_pending
remapped_rows_failure yes remapped_rows/remapped_row_failure
remapped_rows_banks_max number remapped_rows/row_remapper_histogram/row_remapper_histogram_max
remapped_rows_banks_none number remapped_rows/row_remapper_histogram/row_remapper_histogram_none
temperature_gpu_c number temperature/gpu_temp
temperature_memory_c number temperature/memory_temp
temperature_gpu_tlimit_c number temperature/gpu_temp_tlimit
temperature_shutdown_c number temperature/gpu_temp_max_threshold
temperature_slowdown_c number temperature/gpu_temp_slow_threshold
temperature_shutdown_tlimit_c number temperature/gpu_temp_max_tlimit_threshold
temperature_slowdown_tlimit_c number temperature/gpu_temp_slow_tlimit_threshold
temperature_gpu_max_operating_tlimit_c number temperature/gpu_temp_max_gpu_tlimit_threshold
temperature_gpu_target_c number temperature/gpu_target_temperature
temperature_target_max_c number supported_gpu_target_temp/gpu_target_temp_max
power_limit_w number gpu_power_readings/requested_power_limit power_readings/power_limit
power_limit_enforced_w number gpu_power_readings/current_power_limit power_readings/enforced_power_limit
power_limit_default_w number gpu_power_readings/default_power_limit power_readings/default_power_limit
power_limit_min_w number gpu_power_readings/min_power_limit power_readings/min_power_limit
power_limit_max_w number gpu_power_readings/max_power_limit power_readings/max_power_limit
power_draw_average_w number gpu_power_readings/average_power_draw
power_draw_instant_w number gpu_power_readings/instant_power_draw
power_management yes power_readings/power_management
memory_power_draw_average_w number gpu_memory_power_readings/average_power_draw
module_power_limit_w number module_power_readings/requested_power_limit
module_power_draw_average_w number module_power_readings/average_power_draw
graphics_voltage_mv number voltage/graphics_volt
clock_graphics_mhz number clocks/graphics_clock
clock_sm_mhz number clocks/sm_clock
clock_memory_mhz number clocks/mem_clock
clock_applications_graphics_mhz number applications_clocks/graphics_clock
clock_default_applications_memory_mhz number default_applications_clocks/mem_clock
clock_max_graphics_mhz number max_clocks/graphics_clock
clock_max_sm_mhz number max_clocks/sm_clock
clock_max_memory_mhz number max_clocks/mem_clock
clock_max_customer_boost_graphics_mhz number max_customer_boost_clocks/graphics_clock
clock_auto_boost yes clock_policy/auto_boost
slowdown_gpu_idle yes clocks_event_reasons/clocks_event_reason_gpu_idle clocks_throttle_reasons/clocks_throttle_reason_gpu_idle
slowdown_sw_power_cap yes clocks_event_reasons/clocks_event_reason_sw_power_cap clocks_throttle_reasons/clocks_throttle_reason_sw_power_cap
slowdown_hw yes clocks_event_reasons/clocks_event_reason_hw_slowdown clocks_throttle_reasons/clocks_throttle_reason_hw_slowdown
slowdown_hw_thermal yes clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown clocks_throttle_reasons/clocks_throttle_reason_hw_thermal_slowdown
slowdown_sw_thermal yes clocks_event_reasons/clocks_event_reason_sw_thermal_slowdown clocks_throttle_reasons/clocks_throttle_reason_sw_thermal_slowdown
slowdown_sw_thermal_us number clocks_event_reasons_counters/clocks_event_reasons_counters_sw_therm_slowdown
slowdown_hw_power_brake_us number clocks_event_reasons_counters/clocks_event_reasons_counters_hw_power_brake
fabric_state word fabric/state
fabric_status word fabric/status
fabric_clique_id number fabric/cliqueId
fabric_cluster_uuid text fabric/clusterUuid
fabric_health_summary word fabric/health/summary
fabric_health_bandwidth word fabric/health/bandwidth
fabric_health_route_unhealthy yes fabric/health/route_unhealthy
"""  # noqa: E501 a table, one reading a line

NO_VALUE = re.compile(
    r"\[?(N/A|Not Supported|Requested functionality has been deprecated|Insufficient Permissions|GPU is lost"
    r"|Unknown Error|Function Not Found|)\]?"
)
YES = {"Yes", "Active", "On", "Enabled", "Supported", "True"}
NO = {"No", "Not Active", "Off", "Disabled", "False"}


HOST_BYTES = 40_000
"""Most JSON of a host with 8 GPUs."""


def documents(corpus: Path | None) -> Iterator[tuple[str, str, Document]]:
    """Origin, text and content of the shipped documents, and of those of the corpus if it exists."""
    for origin, text in SHIPPED.items():
        yield origin, text, parse_document(text)
    for path in sorted((corpus / "xml").glob("*.xml")) if corpus else ():
        text = path.read_text(encoding="utf-8")
        yield path.name, text, parse_document(text)


def plain(gpu: gpu_schema.Gpu) -> dict[str, Any]:
    """One GPU as the module returns it, with all subsets."""
    return smi_facts.gpu_facts(gpu, Observation(), frozenset(smi_facts.SUBSETS))


def look_up(facts: dict[str, Any], name: str) -> Any:
    for part in name.split("."):
        facts = facts[part]
    return facts


def understood(text: str | None, how: str) -> Any:
    """The value of a text in the document; None if it has no value."""
    if text is None or NO_VALUE.fullmatch(text):
        return None
    if how == "number":
        return number(text)
    if how == "yes":
        return text in YES if text in YES | NO else None
    return text if how == "text" else re.sub(r"[ -]", "_", text.lower())


def test_every_reading_of_every_document(corpus: Path | None) -> None:
    compared = 0
    for origin, text, document in documents(corpus):
        parts = gpu_elements(text)
        assert len(document.gpus) == len(parts), origin
        for gpu, part in zip(document.gpus, parts, strict=True):
            facts = plain(gpu)
            for line in EXPECTED.strip().splitlines():
                name, how, *places = line.split()
                found = [understood(leaf_of_gpu(part, place), how) for place in places]
                expected = next((value for value in found if value is not None), None)
                if origin == "v14-unknown-layout.xml" and name in ("memory_total_mib", "power_draw_instant_w"):
                    continue  # Units that no driver has used; covered by test_unknown_layout.
                assert look_up(facts, name) == expected, (origin, name, places)
                assert (name in facts["unknown"]) == (expected is None), (origin, name)
                compared += expected is not None
    assert compared > 900


def test_a_gpu_of_a_power_host_has_its_domain_and_the_reading_of_its_npu() -> None:
    (gpu,) = map(plain, parse_document(SHIPPED["v10-418-power9.xml"]).gpus)
    expected = {
        "name": "Tesla V100-SXM2-32GB",
        # Each GPU has a PCI domain of its own, and hangs on NVLink: of PCIe there are two lanes.
        "pci_bus_id": "00000004:04:00.0",
        "pci_link_width_current": 2,
        "relaxed_ordering_mode": "disabled",
        "ecc_mode_current": "enabled",
        "power_limit_w": 300.0,
        "clock_max_graphics_mhz": 1530,
    }
    assert {name: gpu[name] for name in expected} == expected


def test_eight_gpus_of_every_document_fit_into_a_fact_cache(corpus: Path | None) -> None:
    """As a task without options returns them, on a host that has the largest GPU of the document eight times.

    A host of superchips, as GB200, has four at the most.
    """
    options: dict[str, Any] = nvidia_smi_facts.ARGUMENT_SPEC
    subsets = smi_facts.chosen_subsets(options["gather_subset"]["default"])
    for origin, _text, document in documents(corpus):
        gpus = [smi_facts.gpu_facts(gpu, Observation(), subsets, explain=False) for gpu in document.gpus]
        number = 4 if any(re.search(r"\bG[BH][23]00", gpu["name"] or "") for gpu in gpus) else 8
        assert number * max((len(json.dumps(gpu)) for gpu in gpus), default=0) <= HOST_BYTES, origin


def test_every_identity_and_order(corpus: Path | None) -> None:
    for origin, text, document in documents(corpus):
        assert document.driver_version == (leaf(text, "kmd_version") or leaf(text, "driver_version")), origin
        cuda = leaf(text, "cuda_version") or leaf(text, "cuda_umd_version")
        assert document.cuda_version == (None if cuda == "Not Found" else cuda), origin
        assert document.attached_gpus == int(leaf(text, "attached_gpus") or "0"), origin
        ids = re.findall(r'<gpu id="([^"]+)">', text)
        assert [gpu.index for gpu in document.gpus] == list(range(len(ids))), origin
        addresses = [identity.lower().rjust(16, "0") for identity in ids]
        assert [gpu.basics.pci_bus_id for gpu in document.gpus] == addresses, origin


def test_every_process(corpus: Path | None) -> None:
    compared = 0
    for origin, text, document in documents(corpus):
        for gpu, part in zip(document.gpus, gpu_elements(text), strict=True):
            blocks = re.findall(r"<process_info>.*?</process_info>", part, re.DOTALL)
            assert len(gpu.processes or ()) == len(blocks), origin
            for process, block in zip(gpu.processes or (), blocks, strict=True):
                assert process.pid == int(leaf(block, "pid") or ""), origin
                assert process.type == leaf(block, "type"), origin
                name = leaf(block, "process_name")
                assert process.name == (name.replace("&amp;", "&") if name else None), origin
                assert process.memory_used_mib == understood(leaf(block, "used_memory"), "number"), origin
                assert process.gpu_instance_id == understood(leaf(block, "gpu_instance_id"), "number"), origin
                compared += 1
    assert compared >= 2


def test_every_supported_clock(corpus: Path | None) -> None:
    compared = 0
    for origin, text, document in documents(corpus):
        for gpu, part in zip(document.gpus, gpu_elements(text), strict=True):
            blocks = re.findall(r"<supported_mem_clock>(.*?)</supported_mem_clock>", part, re.DOTALL)
            assert (gpu.supported_clocks is None) == (not blocks), origin
            for clocks, block in zip(gpu.supported_clocks or (), blocks, strict=True):
                assert clocks.memory_mhz == number(leaf(block, "value") or ""), origin
                graphics = re.findall(r"<supported_graphics_clock>(\d+) MHz", block)
                assert clocks.graphics_mhz == tuple(map(int, graphics)), origin
                compared += len(graphics)
    assert compared > 1000


def test_every_retired_page(corpus: Path | None) -> None:
    compared = 0
    for origin, text, document in documents(corpus):
        for gpu, part in zip(document.gpus, gpu_elements(text), strict=True):
            addresses = re.findall(r"<retired_page_address>\s*(0x[0-9a-f]+)", part)
            assert [page.address for page in gpu.retired_pages] == addresses, origin
            compared += len(addresses)
    assert compared >= 1


def test_every_mig_device(corpus: Path | None) -> None:
    compared = 0
    for origin, text, document in documents(corpus):
        for gpu, part in zip(document.gpus, gpu_elements(text), strict=True):
            blocks = re.findall(r"<mig_device>.*?</mig_device>", part, re.DOTALL)
            assert len(gpu.mig_devices) == len(blocks), origin
            for device, block in zip(gpu.mig_devices, blocks, strict=True):
                assert device.index == int(leaf(block, "index") or ""), origin
                assert device.gpu_instance_id == int(leaf(block, "gpu_instance_id") or ""), origin
                assert device.compute_instance_id == int(leaf(block, "compute_instance_id") or ""), origin
                sm_count = leaf(block, "device_attributes/shared/multiprocessor_count")
                assert device.multiprocessor_count == understood(sm_count, "number"), origin
                assert device.memory_total_mib == understood(leaf(block, "fb_memory_usage/total"), "number"), origin
                assert device.memory_used_mib == understood(leaf(block, "fb_memory_usage/used"), "number"), origin
                assert device.bar1_total_mib == understood(leaf(block, "bar1_memory_usage/total"), "number"), origin
                compared += 1
    assert compared >= 2


def test_no_known_document_has_unknown_elements(corpus: Path | None) -> None:
    for origin, text, document in documents(corpus):
        if origin == "v14-unknown-layout.xml":
            continue
        redacted = "[REDACTED]" in text
        unknown = [line for line in document.warnings if "unknown layout" in line]
        assert bool(unknown) == redacted, origin


# The CSV output of the same host: CSV field, reading. Volatile readings are left out.
CSV_TWIN = """
uuid uuid
name name
serial serial
pci.bus_id pci_bus_id
pci.device_id pci_device_id
pci.sub_device_id pci_subsystem_id
pcie.link.gen.current pci_link_gen_current
pcie.link.gen.gpucurrent pci_link_gen_device_current
pcie.link.gen.max pci_link_gen_max
pcie.link.gen.gpumax pci_link_gen_device_max
pcie.link.gen.hostmax pci_link_gen_host_max
pcie.link.width.current pci_link_width_current
pcie.link.width.max pci_link_width_max
display_mode display_mode
display_active display_active
persistence_mode persistence_mode
addressing_mode addressing_mode
accounting.mode accounting_mode
accounting.buffer_size accounting_buffer_size
driver_model.current driver_model_current
vbios_version vbios_version
inforom.img inforom_image_version
inforom.oem inforom_oem_version
inforom.ecc inforom_ecc_version
inforom.pwr inforom_power_version
gpu_recovery_action recovery_action
gom.current operation_mode_current
fan.speed fan_speed_percent
pstate performance_state
clocks_event_reasons_counters.sw_power_cap slowdown_sw_power_cap_us
clocks_event_reasons_counters.sync_boost slowdown_sync_boost_us
clocks_event_reasons_counters.sw_thermal_slowdown slowdown_sw_thermal_us
clocks_event_reasons_counters.hw_thermal_slowdown slowdown_hw_thermal_us
clocks_event_reasons_counters.hw_power_brake_slowdown slowdown_hw_power_brake_us
memory.total memory_total_mib
memory.reserved memory_reserved_mib
memory.used memory_used_mib
memory.free memory_free_mib
compute_mode compute_mode
encoder.stats.sessionCount encoder_session_count
encoder.stats.averageFps encoder_average_fps
encoder.stats.averageLatency encoder_average_latency_us
dramEncryption.mode.current dram_encryption_mode_current
ecc.mode.current ecc_mode_current
ecc.mode.pending ecc_mode_pending
ecc.errors.corrected.volatile.dram ecc_errors_volatile.dram_correctable
ecc.errors.corrected.volatile.sram ecc_errors_volatile.sram_correctable
ecc.errors.corrected.volatile.total ecc_errors_volatile.corrected_total
ecc.errors.corrected.aggregate.total ecc_errors_aggregate.corrected_total
ecc.errors.uncorrected.volatile.dram ecc_errors_volatile.dram_uncorrectable
ecc.errors.uncorrected.volatile.total ecc_errors_volatile.uncorrected_total
ecc.errors.uncorrected.aggregate.total ecc_errors_aggregate.uncorrected_total
ecc.errors.uncorrected.volatile.sram.parity ecc_errors_volatile.sram_uncorrectable_parity
ecc.errors.uncorrected.aggregate.sram.secded ecc_errors_aggregate.sram_uncorrectable_secded
ecc.errors.uncorrected.aggregate.sram.thresholdExceeded ecc_sram_threshold_exceeded
ecc.errors.uncorrected.aggregate.sram.l2 ecc_sram_source_l2
ecc.errors.uncorrected.aggregate.sram.mcu ecc_sram_source_microcontroller
retired_pages.single_bit_ecc.count retired_pages_single_bit_count
retired_pages.double_bit.count retired_pages_double_bit_count
retired_pages.pending retired_pages_pending
remapped_rows.correctable remapped_rows_correctable
remapped_rows.correctable_inactive remapped_rows_correctable_inactive
remapped_rows.uncorrectable remapped_rows_uncorrectable
remapped_rows.uncorrectable_inactive remapped_rows_uncorrectable_inactive
remapped_rows.pending remapped_rows_pending
remapped_rows.failure remapped_rows_failure
remapped_rows.histogram.max remapped_rows_banks_max
remapped_rows.histogram.high remapped_rows_banks_high
remapped_rows.histogram.partial remapped_rows_banks_partial
remapped_rows.histogram.low remapped_rows_banks_low
remapped_rows.histogram.none remapped_rows_banks_none
power.limit power_limit_w
enforced.power.limit power_limit_enforced_w
power.default_limit power_limit_default_w
power.min_limit power_limit_min_w
power.max_limit power_limit_max_w
module.power.limit module_power_limit_w
clocks.max.graphics clock_max_graphics_mhz
clocks.max.sm clock_max_sm_mhz
clocks.max.memory clock_max_memory_mhz
clocks.applications.graphics clock_applications_graphics_mhz
clocks.default_applications.memory clock_default_applications_memory_mhz
mig.mode.current mig_mode_current
mig.mode.pending mig_mode_pending
c2c.mode c2c_mode
protected_memory.total protected_memory_total_mib
fabric.state fabric_state
fabric.status fabric_status
fabric.cliqueId fabric_clique_id
fabric.clusterUuid fabric_cluster_uuid
fabric.health.summary fabric_health_summary
fabric.health.bandwidth fabric_health_bandwidth
platform.module_id module_id
platform.chassis_serial_number chassis_serial_number
"""


def test_document_agrees_with_the_csv_of_the_same_host() -> None:
    document = parse_document(H200X8.output("-q -x"))
    rows = H200X8.query_gpu()
    assert len(rows) == len(document.gpus) == 8
    for gpu, by_field in zip(document.gpus, rows, strict=True):
        facts = plain(gpu)
        assert gpu.index == int(by_field["index"])
        for line in CSV_TWIN.strip().splitlines():
            csv_field, name = line.split()
            value = look_up(facts, name)
            text = by_field[csv_field]
            if NO_VALUE.fullmatch(text):
                # CSV has counters for memories that the chip does not count separately.
                assert value is None, (name, text)
            elif isinstance(value, bool):
                assert value == (text in YES), (name, text)
            elif isinstance(value, (int, float)):
                assert value == number(text), (name, text)
            else:
                assert value is not None, (name, text)
                assert str(value).lower().replace("_", " ") == text.lower().replace("_", " "), (name, text)


# Label in `nvidia-smi -q`, with the headings above it, and the reading.
TEXT_TWIN = {
    "Product Brand": "brand",
    "Product Architecture": "architecture",
    "Minor Number": "minor_number",
    "GPU PDI": "pdi",
    "MultiGPU Board": "multigpu_board",
    "Board Part Number": "board_part_number",
    "GPU Part Number": "gpu_part_number",
    "GPU Virtualization Mode/Virtualization Mode": "virtualization_mode",
    "GSP Firmware Version": "gsp_firmware_version",
    "Sparse Operation Mode": "sparse_operation_mode",
    "PCI/Base Classcode": "pci_base_class",
    "PCI/Sub Classcode": "pci_sub_class",
    "PCI/Replays Since Reset": "pci_replay_count",
    "BAR1 Memory Usage/Total": "bar1_total_mib",
    "BAR1 Memory Usage/Used": "bar1_used_mib",
    "FBC Stats/Active Sessions": "fbc_session_count",
    "ECC Errors/Channel Repair Pending": "ecc_channel_repair_pending",
    "ECC Errors/TPC Repair Pending": "ecc_tpc_repair_pending",
    "ECC Errors/Unrepairable Memory": "ecc_unrepairable_memory",
    "Temperature/GPU Shutdown T.Limit Temp": "temperature_shutdown_tlimit_c",
    "Temperature/GPU Slowdown T.Limit Temp": "temperature_slowdown_tlimit_c",
    "Temperature/GPU Max Operating T.Limit Temp": "temperature_gpu_max_operating_tlimit_c",
    "Temperature/Memory Max Operating T.Limit Temp": "temperature_memory_max_operating_tlimit_c",
    "GPU Power Readings/Requested Power Limit": "power_limit_w",
    "GPU Power Readings/Current Power Limit": "power_limit_enforced_w",
    "Max Clocks/Video": "clock_max_video_mhz",
    "Max Customer Boost Clocks/Graphics": "clock_max_customer_boost_graphics_mhz",
    "Clocks Event Reasons/Idle": "slowdown_gpu_idle",
    "Clocks Event Reasons/SW Power Cap": "slowdown_sw_power_cap",
    "Clocks Event Reasons/HW Slowdown": "slowdown_hw",
    "Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown": "slowdown_hw_thermal",
    "Clocks Event Reasons/SW Thermal Slowdown": "slowdown_sw_thermal",
    "Fabric/State": "fabric_state",
}


def text_readings(text: str) -> list[dict[str, str]]:
    """`nvidia-smi -q` as one dictionary per GPU, keyed by the labels from the outermost heading on."""
    gpus: list[dict[str, str]] = []
    headings: list[str] = []
    for line in text.splitlines():
        if re.match(r"GPU [0-9A-F:.]+$", line):
            gpus.append({})
        elif gpus and line.startswith("    "):
            depth = (len(line) - len(line.lstrip())) // 4 - 1
            label, _unused, value = line.partition(" : ")
            del headings[depth:]
            headings.append(label.strip())
            if value:
                gpus[-1].setdefault("/".join(headings), value.strip())
    return gpus


def test_document_agrees_with_the_text_of_the_same_host() -> None:
    document = parse_document(H200X8.output("-q -x"))
    twins = text_readings(H200X8.output("-q"))
    assert len(twins) == 8
    for gpu, twin in zip(document.gpus, twins, strict=True):
        facts = plain(gpu)
        for label, name in TEXT_TWIN.items():
            value, text = facts[name], twin[label]
            if isinstance(value, bool):
                assert value == (text in YES), (name, text)
            elif isinstance(value, str):
                assert re.sub(r"[ _-]", " ", value.lower()) == re.sub(r"[ _-]", " ", text.lower()), (name, text)
            else:
                assert value == (int(text, 16) if text.startswith("0x") else number(text)), (name, text)
