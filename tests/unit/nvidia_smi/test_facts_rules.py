# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of readings, health rules and GPU selection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import gpu as gpu_schema
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import health, selection
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import values as readings
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.pci import PciDevice
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.xml import parse_document

from tests.unit.nvidia_smi.facts_support import H200X8

HEALTHY = parse_document(H200X8.output("-q -x -i 0")).gpus[0]

# Kind, text, value.
VALUES: list[tuple[readings.Kind, str, Any]] = [
    (readings.mib, "143771 MiB", 143771),
    (readings.mib, "143771", 143771),
    (readings.mib, "512 MB", 512),
    (readings.mib, "2 GiB", 2048),
    (readings.watt, "165.93 W", 165.93),
    (readings.watt, "700.00", 700.0),
    (readings.mhz, "1980 MHz", 1980),
    (readings.celsius, "46 C", 46),
    (readings.celsius, "-8 C", -8),
    (readings.percent, "26 %", 26.0),
    (readings.percent, "04 %", 4.0),
    (readings.percent, "10.3 %", 10.3),
    (readings.percent, "100.00%", 100.0),
    (readings.link, "16x", 16),
    (readings.number, "512 bank(s)", 512),
    (readings.count, "0", 0),
    (readings.kb_per_second, "0 KB/s", 0),
    (readings.microseconds, "2354613 us", 2354613),
    (readings.microseconds, "2 ms", 2000),
    (readings.seconds, "13572765 seconds", 13572765),
    (readings.millivolt, "912.500 mV", 912.5),
    (readings.flag, "Yes", True),
    (readings.flag, "Not Active", False),
    (readings.flag, "On", True),
    (readings.flag, "False", False),
    (readings.enum, "Exclusive_Process", "exclusive_process"),
    (readings.enum, "Pass-Through", "pass_through"),
    (readings.enum, "In Progress", "in_progress"),
    (readings.enum, "None", "none"),
    (readings.plain, "610.43.02 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]", "610.43.02"),
    (readings.plain, "worker [gpu 3]", "worker [gpu 3]"),
    (readings.enum, "Ada Lovelace", "ada_lovelace"),
    (readings.plain, "96.00.A5.00.1A", "96.00.A5.00.1A"),
    (readings.hexadecimal, "0x000000000044E99D", "0x000000000044e99d"),
    (readings.hexadecimal, "233510DE", "0x233510de"),
    (readings.words, "FETCHADD_32 SWAP_64", ("FETCHADD_32", "SWAP_64")),
    (readings.words, "None", ()),
    (readings.bus_id, "0000:0D:00.0", "00000000:0d:00.0"),
    (readings.bus_id, "00001580:00:00.0", "00001580:00:00.0"),
    (readings.bus_id, "07:00.0", "00000000:07:00.0"),
    (readings.bus_id, "00000001:C5:1E.7", "00000001:c5:1e.7"),
]

# Kind, text (None: no such element), reason.
NO_VALUES: list[tuple[readings.Kind, str | None, str]] = [
    (readings.mib, None, "absent"),
    (readings.mib, "", "empty"),
    (readings.mib, " \n\t", "empty"),
    (readings.mib, "N/A", "not_available"),
    (readings.mib, "[N/A]", "not_available"),
    (readings.mib, "None", "not_available"),
    (readings.enum, "Not Supported", "not_supported"),
    (readings.enum, "[Not Supported]", "not_supported"),
    (readings.enum, "[Function Not Found]", "not_supported"),
    (readings.plain, "Not Found", "not_found"),
    (readings.plain, "Requested functionality has been deprecated", "deprecated"),
    (readings.plain, "[Requested functionality has been deprecated]", "deprecated"),
    (readings.plain, 'Deprecated, see "KMD version" instead', "deprecated"),
    (readings.watt, "[Insufficient Permissions]", "denied"),
    (readings.flag, "GPU is lost", "lost"),
    (readings.count, "[GPU requires reset]", "reset_required"),
    (readings.count, "[Unknown Error]", "failed"),
    (readings.plain, "ERR!", "failed"),
    (readings.plain, "Deprecated; see KMD Version", "deprecated"),
    (readings.plain, "GPU is lost.  Reboot the system to recover this GPU", "lost"),
    (readings.enum, "Corrupted infoROM", "inforom_corrupted"),
    (readings.enum, "NVML_ERROR_TIMEOUT", "failed"),
    (readings.mib, "12 apples", "unreadable"),
    (readings.mib, "1.5 MiB", "unreadable"),
    (readings.mib, "MiB", "unreadable"),
    (readings.watt, "9" * 400 + " W", "unreadable"),
    (readings.flag, "Perhaps", "unreadable"),
    (readings.bus_id, "N0:00.0", "unreadable"),
    (readings.hexadecimal, "[REDACTED]", "unreadable"),
]


# Strings of nvmlErrorString() by error number, as in the headers and bindings of NVML.
NVML_ERRORS = {
    1: "Uninitialized",
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    5: "Already Initialized",
    6: "Not Found",
    7: "Insufficient Size",
    8: "Insufficient External Power",
    9: "Driver Not Loaded",
    10: "Timeout",
    11: "Interrupt Request Issue",
    12: "NVML Shared Library Not Found",
    13: "Function Not Found",
    14: "Corrupted infoROM",
    15: "GPU is lost",
    16: "GPU requires reset",
    17: "The operating system has blocked the request.",
    18: "Driver/library version mismatch",
    19: "In use by another client",
    20: "Insufficient Memory",
    21: "No data",
    22: "The requested vgpu operation is not available on target device, because ECC is enabled",
    23: "Insufficient Resources",
    24: "Frequency not supported",
    25: "Argument version mismatch",
    26: "Requested functionality has been deprecated",
    27: "System is not in ready state",
    28: "GPU not found",
    29: "Invalid state",
    30: "Reset type not supported",
    999: "Unknown Error",
}


@pytest.mark.parametrize("form", ["{}", "[{}]", "{}."])
@pytest.mark.parametrize("number", NVML_ERRORS)
@pytest.mark.parametrize("kind", [readings.enum, readings.plain, readings.words, readings.mib, readings.flag])
def test_an_error_of_nvml_is_never_a_value(kind: readings.Kind, number: int, form: str) -> None:
    value, reason = readings.interpret(form.format(NVML_ERRORS[number]), kind)
    assert value is None
    assert reason in set(readings.REASONS.values())


@pytest.mark.parametrize(("kind", "text", "value"), VALUES)
def test_values(kind: readings.Kind, text: str, value: Any) -> None:
    found, reason = readings.interpret(f" {text}\n", kind)
    assert (found, reason) == (value, None)
    assert type(found) is type(value)


@pytest.mark.parametrize(("kind", "text", "reason"), NO_VALUES)
def test_reasons_instead_of_values(kind: readings.Kind, text: str | None, reason: str) -> None:
    assert readings.interpret(text, kind) == (None, reason)


def changed(section: str, **readings: Any) -> gpu_schema.Gpu:
    """The healthy GPU with other readings in one section."""
    return replace(HEALTHY, **{section: replace(getattr(HEALTHY, section), **readings)})


def counted(**counters: int) -> gpu_schema.Gpu:
    return changed("ecc", ecc_errors_volatile=gpu_schema.EccCounters(**counters))


# GPU, and the codes of its problems.
PROBLEMS: dict[str, tuple[gpu_schema.Gpu, list[str]]] = {
    "healthy": (HEALTHY, []),
    "nothing known": (gpu_schema.Gpu(0, gpu_schema.Basics()), []),
    "DRAM error": (counted(dram_uncorrectable=1), ["ecc_uncorrectable"]),
    "SRAM parity error": (counted(sram_uncorrectable_parity=1, dram_uncorrectable=0), ["ecc_uncorrectable"]),
    "SRAM error of Turing": (counted(sram_uncorrectable=2), ["ecc_uncorrectable"]),
    "double-bit error": (counted(double_bit_total=3), ["ecc_uncorrectable"]),
    "corrected errors only": (counted(sram_correctable=5, dram_correctable=7, single_bit_total=9), []),
    "SRAM threshold": (changed("ecc", ecc_sram_threshold_exceeded=True), ["ecc_sram_threshold_exceeded"]),
    "channel repair": (changed("ecc", ecc_channel_repair_pending=True), ["ecc_repair_pending"]),
    "TPC repair": (changed("ecc", ecc_tpc_repair_pending=True), ["ecc_repair_pending"]),
    "beyond repair": (changed("ecc", ecc_unrepairable_memory=True), ["ecc_unrepairable_memory"]),
    "page pending": (changed("ecc", retired_pages_pending=True), ["page_retirement_pending"]),
    "pages retired long ago": (changed("ecc", retired_pages_double_bit_count=4, retired_pages_pending=False), []),
    "row pending": (changed("ecc", remapped_rows_pending=True), ["row_remap_pending"]),
    "row failed": (changed("ecc", remapped_rows_failure=True), ["row_remap_failure"]),
    "rows exhausted": (changed("ecc", remapped_rows_banks_none=1), ["row_remapper_exhausted"]),
    "rows remapped": (changed("ecc", remapped_rows_uncorrectable=1, remapped_rows_pending=False), []),
    "fabric starting": (changed("fabric", fabric_state="in_progress"), ["fabric_not_completed"]),
    "fabric not started": (changed("fabric", fabric_state="not_started"), ["fabric_not_completed"]),
    "fabric for virtual machines": (
        replace(
            changed("fabric", fabric_state="in_progress"),
            hardware=replace(HEALTHY.hardware, virtualization_mode="host_vgpu"),
        ),
        [],
    ),
    "no fabric": (changed("fabric", fabric_state=None, fabric_status=None), []),
    "fabric failed": (changed("fabric", fabric_status="insufficient_resources"), ["fabric_failed"]),
    "fabric degraded": (changed("fabric", fabric_health_bandwidth="degraded"), ["fabric_unhealthy"]),
    "fabric route": (changed("fabric", fabric_health_route_unhealthy=True), ["fabric_unhealthy"]),
    "fabric healthy": (changed("fabric", fabric_health_summary="healthy"), []),
    "fabric misconfigured": (
        changed("fabric", fabric_health_incorrect_configuration="incorrect_system_guid"),
        ["fabric_unhealthy"],
    ),
    "fabric configured well": (changed("fabric", fabric_health_incorrect_configuration="none"), []),
    "fabric error of NVML": (
        replace(
            changed("fabric", fabric_state="completed", fabric_status=None), unknown=(("fabric_status", "failed"),)
        ),
        ["fabric_failed"],
    ),
    "ECC pending": (changed("basics", ecc_mode_pending="disabled"), ["ecc_mode_pending"]),
    "MIG pending": (changed("basics", mig_mode_pending="enabled"), ["mig_mode_pending"]),
    "ECC unknown": (changed("basics", ecc_mode_current=None), []),
    "operation mode": (
        changed("hardware", operation_mode_current="compute", operation_mode_pending="all_on"),
        ["operation_mode_pending"],
    ),
    "encryption": (
        changed("memory", dram_encryption_mode_current="disabled", dram_encryption_mode_pending="enabled"),
        ["dram_encryption_pending"],
    ),
    "hot": (changed("clocks", slowdown_hw=True, slowdown_hw_thermal=True), ["thermal_slowdown"]),
    "warm": (changed("clocks", slowdown_sw_thermal=True), ["thermal_slowdown"]),
    "power brake": (changed("clocks", slowdown_hw=True, slowdown_hw_power_brake=True), ["power_brake_slowdown"]),
    "old chip slowed down": (changed("clocks", slowdown_hw=True, slowdown_hw_thermal=None), ["hardware_slowdown"]),
    "at its power limit": (changed("clocks", slowdown_sw_power_cap=True), []),
    "drain and reset": (changed("hardware", recovery_action="drain_and_reset"), ["recovery_required"]),
    **{
        f"recovery action {action}": (changed("hardware", recovery_action=action), ["recovery_required"])
        for action in (
            "reset",
            "reboot",
            "drain_p2p",
            "bus_reset",
            "system_reboot",
            "recover_imex_domain",
            "replace_me",
        )
    },
    "reset required": (changed("hardware", reset_required=True), ["reset_required"]),
    "drain recommended": (changed("hardware", drain_and_reset_recommended=True), ["reset_required"]),
    "reading asks for reset": (replace(HEALTHY, unknown=(("memory_free_mib", "reset_required"),)), ["reset_required"]),
    "lost readings": (replace(HEALTHY, unknown=(("processes", "lost"),)), ["gpu_lost"]),
    "lost": (gpu_schema.Gpu(1, gpu_schema.Basics(), error="GPU is lost.  Reboot the system"), ["gpu_lost"]),
    **{
        f"error instead of {name}": (replace(HEALTHY, unknown=((name, "failed"),)), ["gpu_not_responding"])
        for name in ("uuid", "name", "memory_total_mib", "memory_used_mib", "memory_free_mib", "temperature_gpu_c")
    },
    "error instead of what healthy GPUs lack": (
        replace(HEALTHY, unknown=(("addressing_mode", "failed"), ("pci_link_gen_host_max", "failed"))),
        [],
    ),
    "corrupted infoROM": (
        replace(HEALTHY, unknown=(("inforom_image_version", "inforom_corrupted"),)),
        ["inforom_corrupted"],
    ),
    "damaged block": (
        gpu_schema.Gpu(1, gpu_schema.Basics(), error="mismatched tag", unknown=(("uuid", "broken_xml"),)),
        ["broken_xml"],
    ),
    **{
        f"{error} in its place": (gpu_schema.Gpu(1, gpu_schema.Basics(), error=error), [code])
        for error, code in (
            ("GPU requires reset", "reset_required"),
            ("Insufficient External Power", "insufficient_power"),
            ("Insufficient Permissions", "permission_denied"),
            ("Corrupted infoROM", "inforom_corrupted"),
            ("Unknown Error", "gpu_not_responding"),
        )
    },
    "silent": (gpu_schema.Gpu(1, gpu_schema.Basics(), error="did not respond in 5.0 seconds"), ["gpu_not_responding"]),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_rules(name: str) -> None:
    gpu, codes = PROBLEMS[name]
    problems = health.gpu_problems([gpu])
    assert [problem.code for problem in problems] == codes
    for problem in problems:
        assert problem.gpu == gpu.basics.uuid
        assert problem.message.startswith(f"GPU {gpu.index} (")
        assert "None" not in problem.message or gpu.basics.pci_bus_id is None


# Temperatures and limits, and the sensor that the message names.
HEAT: list[tuple[dict[str, int | None], str]] = [
    (
        {"temperature_gpu_c": 92, "temperature_gpu_max_operating_c": 87, "temperature_memory_c": 70},
        "of the GPU (GPU 92 C",
    ),
    (
        {"temperature_gpu_c": 60, "temperature_memory_c": 97, "temperature_memory_max_operating_c": 95},
        "of the memory (GPU 60 C, memory 97 C)",
    ),
    ({"temperature_gpu_c": 60, "temperature_memory_c": 97}, "the temperature (GPU 60 C, memory 97 C)"),
    ({"temperature_gpu_c": 80, "temperature_gpu_tlimit_c": 0, "temperature_memory_c": None}, "of the GPU (GPU 80 C)"),
    ({"temperature_gpu_c": None, "temperature_memory_c": 97}, "the temperature (memory 97 C)"),
    ({"temperature_gpu_c": None, "temperature_memory_c": None}, "which is not known"),
]


@pytest.mark.parametrize(("readings", "words"), HEAT)
def test_the_message_names_what_is_hot(readings: dict[str, int | None], words: str) -> None:
    hot = changed("clocks", slowdown_sw_thermal=True)
    gpu = replace(hot, temperature=gpu_schema.Temperature(**readings))
    (problem,) = health.gpu_problems([gpu])
    assert words in problem.message
    assert "None" not in problem.message


def test_a_recovery_action_is_explained() -> None:
    (problem,) = health.gpu_problems([changed("hardware", recovery_action="recover_imex_domain")])
    assert "recover_imex_domain (restart IMEX" in problem.message
    (problem,) = health.gpu_problems([changed("hardware", recovery_action="replace_me")])
    assert "replace_me (one that is new" in problem.message


def test_every_rule_is_in_the_table() -> None:
    tested = {code for _gpu_in_table, codes in PROBLEMS.values() for code in codes}
    assert tested == {code for code, _broken, _message in health._RULES}


def test_real_bad_gpus(corpus: Path | None) -> None:
    """The one GPU of the corpus that its owner reported as bad, and healthy ones."""
    if corpus is None:
        gpus = parse_document(H200X8.output("-q -x")).gpus
        assert health.gpu_problems(gpus) == ()
        return
    bad = parse_document((corpus / "xml" / "pai-v100-sxm3-dgx2-410.xml").read_text()).gpus
    assert {problem.code for problem in health.gpu_problems(bad)} == {"ecc_uncorrectable", "page_retirement_pending"}
    for name in ("nvk8s-hw-b200.xml", "nvk8s-hw-h100.xml", "nvk8s-hw-gb200.xml", "nvk8s-hw-a100.xml"):
        assert health.gpu_problems(parse_document((corpus / "xml" / name).read_text()).gpus) == (), name


def test_gpus_that_only_the_bus_shows() -> None:
    def device(address: str, driver: str | None) -> PciDevice:
        return PciDevice(address, "0x2335", "0x030200", driver, None)

    bus = [
        device("00000000:00:06.0", "nvidia"),
        device("00000000:00:07.0", "nvidia"),
        device("00000000:00:08.0", None),
        device("00000000:00:09.0", "nouveau"),
        device("00000000:00:0a.0", "vfio-pci"),
    ]
    problems = health.missing_gpus([HEALTHY], bus)
    assert [problem.gpu for problem in problems] == ["00000000:00:07.0", "00000000:00:08.0", "00000000:00:09.0"]
    assert {problem.code for problem in problems} == {"gpu_missing"}


def test_counters_of_either_layout_add_up() -> None:
    assert health.uncorrected(gpu_schema.EccCounters()) is None
    assert health.corrected(gpu_schema.EccCounters()) is None
    assert health.uncorrected(gpu_schema.EccCounters(sram_uncorrectable=2, dram_uncorrectable=8)) == 10
    newest = gpu_schema.EccCounters(sram_uncorrectable_parity=1, sram_uncorrectable_secded=2, dram_uncorrectable=4)
    assert health.uncorrected(newest) == 7
    assert health.uncorrected(gpu_schema.EccCounters(double_bit_total=0)) == 0
    assert health.corrected(gpu_schema.EccCounters(sram_correctable=1, dram_correctable=4)) == 5
    assert health.corrected(gpu_schema.EccCounters(single_bit_total=34)) == 34


def test_an_unmatched_selector_reports_what_there_is() -> None:
    with pytest.raises(selection.SelectionError, match=r"no GPU matches '\*B200\*'; this host has: 0 = GPU-5ee00000"):
        selection.select([HEALTHY], ["*B200*"])
    assert selection.select([], ["all"]) == ()
    assert selection.select([HEALTHY], ["all", "0", "NVIDIA H?00"]) == (HEALTHY,)


@pytest.mark.parametrize(
    ("desired", "left_out"),
    [
        (["all"], set()),
        ([], set()),
        (["!topology"], {"topology"}),
        (["all", "!topology", "!ecc"], {"topology", "ecc"}),
        (["!all"], set(smi_facts.SUBSETS) - {"min"}),
        (["min"], set(smi_facts.SUBSETS) - {"min"}),
        (["!all", "ecc"], set(smi_facts.SUBSETS) - {"min", "ecc"}),
        (["ecc", "power", "!power"], set(smi_facts.SUBSETS) - {"min", "ecc"}),
    ],
)
def test_subsets_as_in_setup(desired: list[str], left_out: set[str]) -> None:
    assert smi_facts.chosen_subsets(desired) == frozenset(set(smi_facts.SUBSETS) - left_out)
