# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings, rules of health and the choice of GPUs, each as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _facts, _gpu, _health, _readings, _selection
from ansible_collections.gpu.fleet.plugins.module_utils._document import parse_document
from ansible_collections.gpu.fleet.plugins.module_utils._pci import PciDevice

from tests.unit.plugins.facts_support import H200X8

HEALTHY = parse_document((H200X8 / "q-x-i0.out").read_text()).gpus[0]

# Kind, text, value.
VALUES: list[tuple[_readings.Kind, str, Any]] = [
    (_readings.mib, "143771 MiB", 143771),
    (_readings.mib, "143771", 143771),
    (_readings.mib, "512 MB", 512),
    (_readings.mib, "2 GiB", 2048),
    (_readings.watt, "165.93 W", 165.93),
    (_readings.watt, "700.00", 700.0),
    (_readings.mhz, "1980 MHz", 1980),
    (_readings.celsius, "46 C", 46),
    (_readings.celsius, "-8 C", -8),
    (_readings.percent, "26 %", 26.0),
    (_readings.percent, "04 %", 4.0),
    (_readings.percent, "10.3 %", 10.3),
    (_readings.percent, "100.00%", 100.0),
    (_readings.count, "16x", 16),
    (_readings.count, "512 bank(s)", 512),
    (_readings.count, "0", 0),
    (_readings.kb_per_second, "0 KB/s", 0),
    (_readings.microseconds, "2354613 us", 2354613),
    (_readings.microseconds, "2 ms", 2000),
    (_readings.seconds, "13572765 seconds", 13572765),
    (_readings.millivolt, "912.500 mV", 912.5),
    (_readings.flag, "Yes", True),
    (_readings.flag, "Not Active", False),
    (_readings.flag, "On", True),
    (_readings.flag, "False", False),
    (_readings.enum, "Exclusive_Process", "exclusive_process"),
    (_readings.enum, "Pass-Through", "pass_through"),
    (_readings.enum, "In Progress", "in_progress"),
    (_readings.enum, "None", "none"),
    (_readings.plain, "610.43.02 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]", "610.43.02"),
    (_readings.plain, "worker [gpu 3]", "worker [gpu 3]"),
    (_readings.enum, "Ada Lovelace", "ada_lovelace"),
    (_readings.plain, "96.00.A5.00.1A", "96.00.A5.00.1A"),
    (_readings.hexadecimal, "0x000000000044E99D", "0x000000000044e99d"),
    (_readings.hexadecimal, "233510DE", "0x233510de"),
    (_readings.words, "FETCHADD_32 SWAP_64", ("FETCHADD_32", "SWAP_64")),
    (_readings.words, "None", ()),
    (_readings.bus_id, "0000:0D:00.0", "00000000:0d:00.0"),
    (_readings.bus_id, "00001580:00:00.0", "00001580:00:00.0"),
    (_readings.bus_id, "07:00.0", "00000000:07:00.0"),
    (_readings.bus_id, "00000001:C5:1E.7", "00000001:c5:1e.7"),
]

# Kind, text (None: no such element), reason.
NO_VALUES: list[tuple[_readings.Kind, str | None, str]] = [
    (_readings.mib, None, "absent"),
    (_readings.mib, "", "empty"),
    (_readings.mib, " \n\t", "empty"),
    (_readings.mib, "N/A", "not_available"),
    (_readings.mib, "[N/A]", "not_available"),
    (_readings.mib, "None", "not_available"),
    (_readings.enum, "Not Supported", "not_supported"),
    (_readings.enum, "[Not Supported]", "not_supported"),
    (_readings.enum, "[Function Not Found]", "not_supported"),
    (_readings.plain, "Not Found", "not_found"),
    (_readings.plain, "Requested functionality has been deprecated", "deprecated"),
    (_readings.plain, "[Requested functionality has been deprecated]", "deprecated"),
    (_readings.plain, 'Deprecated, see "KMD version" instead', "deprecated"),
    (_readings.watt, "[Insufficient Permissions]", "denied"),
    (_readings.flag, "GPU is lost", "lost"),
    (_readings.count, "[GPU requires reset]", "reset_required"),
    (_readings.count, "[Unknown Error]", "failed"),
    (_readings.plain, "ERR!", "failed"),
    (_readings.plain, "Deprecated; see KMD Version", "deprecated"),
    (_readings.plain, "GPU is lost.  Reboot the system to recover this GPU", "lost"),
    (_readings.enum, "Corrupted infoROM", "inforom_corrupted"),
    (_readings.enum, "NVML_ERROR_TIMEOUT", "failed"),
    (_readings.mib, "12 apples", "unreadable"),
    (_readings.mib, "1.5 MiB", "unreadable"),
    (_readings.mib, "MiB", "unreadable"),
    (_readings.watt, "9" * 400 + " W", "unreadable"),
    (_readings.flag, "Perhaps", "unreadable"),
    (_readings.bus_id, "N0:00.0", "unreadable"),
    (_readings.hexadecimal, "[REDACTED]", "unreadable"),
]


# What nvmlErrorString() returns for each error, by its number, as the headers and bindings of NVML have it.
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
@pytest.mark.parametrize("kind", [_readings.enum, _readings.plain, _readings.words, _readings.mib, _readings.flag])
def test_an_error_of_nvml_is_never_a_value(kind: _readings.Kind, number: int, form: str) -> None:
    value, reason = _readings.interpret(form.format(NVML_ERRORS[number]), kind)
    assert value is None
    assert reason in set(_readings.REASONS.values())


@pytest.mark.parametrize(("kind", "text", "value"), VALUES)
def test_values(kind: _readings.Kind, text: str, value: Any) -> None:
    found, reason = _readings.interpret(f" {text}\n", kind)
    assert (found, reason) == (value, None)
    assert type(found) is type(value)


@pytest.mark.parametrize(("kind", "text", "reason"), NO_VALUES)
def test_reasons_instead_of_values(kind: _readings.Kind, text: str | None, reason: str) -> None:
    assert _readings.interpret(text, kind) == (None, reason)


def changed(section: str, **readings: Any) -> _gpu.Gpu:
    """The healthy GPU with other readings in one section."""
    return replace(HEALTHY, **{section: replace(getattr(HEALTHY, section), **readings)})


def counted(**counters: int) -> _gpu.Gpu:
    return changed("ecc", ecc_errors_volatile=_gpu.EccCounters(**counters))


# GPU, and the codes of what is wrong with it.
PROBLEMS: dict[str, tuple[_gpu.Gpu, list[str]]] = {
    "healthy": (HEALTHY, []),
    "nothing known": (_gpu.Gpu(0, _gpu.Basics()), []),
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
    "lost": (_gpu.Gpu(1, _gpu.Basics(), error="GPU is lost.  Reboot the system"), ["gpu_lost"]),
    **{
        f"error instead of {name}": (replace(HEALTHY, unknown=((name, "failed"),)), ["gpu_not_answering"])
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
        _gpu.Gpu(1, _gpu.Basics(), error="mismatched tag", unknown=(("uuid", "broken_xml"),)),
        ["broken_xml"],
    ),
    "silent": (_gpu.Gpu(1, _gpu.Basics(), error="did not answer in 5.0 seconds"), ["gpu_not_answering"]),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_rules(name: str) -> None:
    gpu, codes = PROBLEMS[name]
    problems = _health.gpu_problems([gpu])
    assert [problem.code for problem in problems] == codes
    for problem in problems:
        assert problem.gpu == gpu.basics.uuid
        assert problem.message.startswith(f"GPU {gpu.index} (")
        assert "None" not in problem.message or gpu.basics.pci_bus_id is None


# Temperatures and limits, and what the message says is hot.
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
    gpu = replace(hot, temperature=_gpu.Temperature(**readings))
    (problem,) = _health.gpu_problems([gpu])
    assert words in problem.message
    assert "None" not in problem.message


def test_a_recovery_action_is_explained() -> None:
    (problem,) = _health.gpu_problems([changed("hardware", recovery_action="recover_imex_domain")])
    assert "recover_imex_domain (restart IMEX" in problem.message
    (problem,) = _health.gpu_problems([changed("hardware", recovery_action="replace_me")])
    assert "replace_me (one that is new" in problem.message


def test_every_rule_is_in_the_table() -> None:
    tested = {code for _gpu_in_table, codes in PROBLEMS.values() for code in codes}
    assert tested == {code for code, _broken, _message in _health._RULES}


def test_real_bad_gpus(corpus: Path | None) -> None:
    """The one GPU of the corpus that its owner called bad, and healthy ones."""
    if corpus is None:
        gpus = parse_document((H200X8 / "q-x.out").read_text()).gpus
        assert _health.gpu_problems(gpus) == ()
        return
    bad = parse_document((corpus / "xml" / "pai-v100-sxm3-dgx2-410.xml").read_text()).gpus
    assert {problem.code for problem in _health.gpu_problems(bad)} == {"ecc_uncorrectable", "page_retirement_pending"}
    for name in ("nvk8s-hw-b200.xml", "nvk8s-hw-h100.xml", "nvk8s-hw-gb200.xml", "nvk8s-hw-a100.xml"):
        assert _health.gpu_problems(parse_document((corpus / "xml" / name).read_text()).gpus) == (), name


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
    problems = _health.missing_gpus([HEALTHY], bus)
    assert [problem.gpu for problem in problems] == ["00000000:00:07.0", "00000000:00:08.0", "00000000:00:09.0"]
    assert {problem.code for problem in problems} == {"gpu_missing"}


def test_counters_of_either_layout_add_up() -> None:
    assert _health.uncorrected(_gpu.EccCounters()) is None
    assert _health.corrected(_gpu.EccCounters()) is None
    assert _health.uncorrected(_gpu.EccCounters(sram_uncorrectable=2, dram_uncorrectable=8)) == 10
    newest = _gpu.EccCounters(sram_uncorrectable_parity=1, sram_uncorrectable_secded=2, dram_uncorrectable=4)
    assert _health.uncorrected(newest) == 7
    assert _health.uncorrected(_gpu.EccCounters(double_bit_total=0)) == 0
    assert _health.corrected(_gpu.EccCounters(sram_correctable=1, dram_correctable=4)) == 5
    assert _health.corrected(_gpu.EccCounters(single_bit_total=34)) == 34


def test_an_unmatched_selector_tells_what_there_is() -> None:
    with pytest.raises(_selection.SelectionError, match=r"no GPU matches '\*B200\*'; this host has: 0 = GPU-5ee00000"):
        _selection.select([HEALTHY], ["*B200*"])
    assert _selection.select([], ["all"]) == ()
    assert _selection.select([HEALTHY], ["all", "0", "NVIDIA H?00"]) == (HEALTHY,)


@pytest.mark.parametrize(
    ("wanted", "left_out"),
    [
        (["all"], set()),
        ([], set()),
        (["!topology"], {"topology"}),
        (["all", "!topology", "!ecc"], {"topology", "ecc"}),
        (["!all"], set(_facts.SUBSETS) - {"min"}),
        (["min"], set(_facts.SUBSETS) - {"min"}),
        (["!all", "ecc"], set(_facts.SUBSETS) - {"min", "ecc"}),
        (["ecc", "power", "!power"], set(_facts.SUBSETS) - {"min", "ecc"}),
    ],
)
def test_subsets_as_in_setup(wanted: list[str], left_out: set[str]) -> None:
    assert _facts.chosen_subsets(wanted) == frozenset(set(_facts.SUBSETS) - left_out)
