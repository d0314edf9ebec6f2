# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that no GPU has are no values: they are unreadable, and their text is kept."""

from __future__ import annotations

import re
import time
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import csv, messages, topology, vgpu
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import gpu as gpu_schema
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import values as readings
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.observe import Observation
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.pci import nvidia_gpus
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.xml import parse_document
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.nvidia_smi.facts_support import H200X8

DOCUMENT = H200X8.output("-q -x -i 0")
CENTURY = 100 * 365.25 * 24 * 60 * 60
# Unit, lowest and highest value.
KINDS: dict[str, tuple[str, int, int]] = {
    "count": ("", 0, 9_007_199_254_740_992),
    "number": (" bank(s)", 0, 4_294_967_294),
    "small": ("", 0, 65_534),
    "link": ("x", 0, 64),
    "mib": (" MiB", 0, 1_073_741_824),
    "gib": ("", 0, 1_048_576),
    "watt": (" W", 0, 100_000),
    "mhz": (" MHz", 0, 100_000),
    "celsius": (" C", -273, 1_000),
    "percent": (" %", 0, 1_000),
    "seconds": (" s", 0, int(CENTURY)),
    "milliseconds": (" ms", 0, int(CENTURY * 1_000)),
    "microseconds": (" us", 0, int(CENTURY * 1_000_000)),
    "kb_per_second": (" KB/s", 0, 100_000_000_000),
    "millivolt": (" mV", 0, 100_000),
    "gb_per_second": (" GB/s", 0, 100_000),
}
WITH_FRACTIONS = {"gib", "watt", "percent", "millivolt", "gb_per_second"}
# What NVML has for unknown, as an unsigned number of 32 and of 64 bits.
ALL_BITS_32, ALL_BITS_64 = 2**32 - 1, 2**64 - 1
NO_NUMBERS = ("-5", "1e3", "nan", "inf", "٣", "²", "0x10", "1 0", "1,0", "1_0")
IMPOSSIBLE = ("1" + 26 * "0", str(ALL_BITS_64), "9" * 5_000, *NO_NUMBERS)


def kind(name: str) -> readings.Kind:
    """The kind of reading with this name."""
    of: readings.Kind = getattr(readings, name)
    return of


def test_every_kind_of_number_has_bounds() -> None:
    made = {
        name for name, value in vars(readings).items() if getattr(value, "__qualname__", "").startswith("quantity.")
    }
    assert made == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_the_lowest_and_the_highest_value(name: str) -> None:
    unit, lowest, highest = KINDS[name]
    for number in (lowest, highest, lowest + 1, highest - 1, 1):
        found, reason = readings.interpret(f"{number}{unit}", kind(name))
        assert (found, reason) == (number, None)
        assert isinstance(found, float if name in WITH_FRACTIONS else int)
        assert readings.interpret(str(number), kind(name)) == (number, None)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_out_of_bounds_or_no_number_is_unreadable(name: str) -> None:
    unit, lowest, highest = KINDS[name]
    for text in {str(lowest - 1), str(highest + 1), *IMPOSSIBLE} - ({"-5"} if lowest < -5 else set()):
        assert readings.interpret(text + unit, kind(name)) == (None, "unreadable"), text
        assert readings.interpret(text, kind(name)) == (None, "unreadable"), text


# Kind, text, value; None is unreadable.
PARTS: list[tuple[str, str, float | None]] = [
    ("mib", "0 KiB", 0),
    ("mib", "-0 KiB", 0),
    ("mib", "5 KiB", None),
    ("mib", "1023 KiB", None),
    ("mib", "1024 KiB", 1),
    ("mib", "1536 KiB", 2),
    ("mib", "1.5 GiB", 1536),
    ("mib", "0.5 MiB", None),
    ("mib", "-5 MiB", None),
    ("mib", "-5 KiB", None),
    ("mib", "1048577 GiB", None),
    # 2^64 - 1 bytes.
    ("mib", "17592186044415 MiB", None),
    ("watt", "-5 W", None),
    ("watt", "-0.01 W", None),
    ("watt", "100000.01 W", None),
    ("watt", "5 mW", 0.005),
    ("watt", "-0.00 W", 0.0),
    ("kb_per_second", "0.5 MB/s", 500),
    ("kb_per_second", "0.0005 MB/s", None),
    ("kb_per_second", "0 MB/s", 0),
    ("microseconds", "0.0005 ms", None),
    ("microseconds", "0.5 ms", 500),
    ("millivolt", "0.9 V", 900.0),
    ("millivolt", "0.5 mV", 0.5),
    ("millivolt", "101 V", None),
    ("gb_per_second", "5 MB/s", 0.005),
    ("celsius", "-2 C", -2),
    ("celsius", "-274 C", None),
    ("percent", "0.5 %", 0.5),
    ("percent", "-0.5 %", None),
    ("count", "+5", 5),
    ("count", "007", 7),
    ("count", "1.0", None),
    # A counter of 64 bits may have this value.
    ("count", str(ALL_BITS_32), ALL_BITS_32),
    ("number", str(ALL_BITS_32), None),
    ("small", "65535", None),
    ("hexadecimal", "0x" + "f" * 33, None),
]


@pytest.mark.parametrize(("name", "text", "value"), PARTS)
def test_parts_of_a_unit_and_signs(name: str, text: str, value: float | None) -> None:
    found, reason = readings.interpret(text, kind(name))
    assert (found, reason) == (value, "unreadable" if value is None else None)
    assert not str(found).startswith("-0")


DECIMALS = st.from_regex(r"[+-]?[0-9]{1,30}(\.[0-9]{1,30})?", fullmatch=True)
UNITS = ("", *dict.fromkeys(unit for unit, _lowest, _highest in KINDS.values()), " KiB", " GiB", " mW", " V", " MB/s")


@given(st.sampled_from(sorted(KINDS)), DECIMALS | st.text(max_size=30), st.sampled_from(UNITS))
@example("mib", "-0.0", " KiB")
@example("watt", "0.00000000000000000001", " mW")
def test_any_text_is_a_value_within_bounds_or_has_a_reason(name: str, number: str, unit: str) -> None:
    value, reason = readings.interpret(number + unit, kind(name))
    if value is None:
        assert reason
        return
    _unit, lowest, highest = KINDS[name]
    assert reason is None
    assert lowest <= value <= highest
    # Zero is what has no other digit.
    assert value != 0 or not re.search("[1-9]", number)


@pytest.mark.parametrize("text", ["9" * 1_000_000, "5" + " " * 200_000 + "y", "0." + "9" * 1_000_000, "-" * 100_000])
def test_a_long_text_costs_nothing(text: str) -> None:
    start = time.process_time()
    for name in KINDS:
        assert readings.interpret(text, kind(name)) == (None, "unreadable")
    assert time.process_time() - start < 2


def with_text(path: str, text: str) -> str:
    """The document with another text of a reading."""
    container, name = path.split("/")
    pattern = rf"(<{container}>(?:(?!</{container}>).)*?<{name}>)[^<]*"
    found, changes = re.subn(pattern, lambda match: match[1] + text, DOCUMENT, count=1, flags=re.DOTALL)
    assert changes == 1
    return found


# Path, text, reading: those of the contract, and numbers of other kinds.
IN_A_DOCUMENT = [
    ("fb_memory_usage/used", "-5 MiB", "memory_used_mib"),
    ("gpu_power_readings/requested_power_limit", "-5 W", "power_limit_w"),
    ("fb_memory_usage/total", "1" + 26 * "0" + " MiB", "memory_total_mib"),
    ("fb_memory_usage/free", "5 KiB", "memory_free_mib"),
    ("pcie_gen/max_link_gen", "4294967295", "pci_link_gen_max"),
    ("link_widths/current_link_width", "160x", "pci_link_width_current"),
    ("temperature/gpu_temp", "-300 C", "temperature_gpu_c"),
    ("clocks/sm_clock", "4294967295 MHz", "clock_sm_mhz"),
    ("fabric/cliqueId", "4294967295", "fabric_clique_id"),
]


@pytest.mark.parametrize(("path", "text", "name"), IN_A_DOCUMENT)
def test_an_impossible_number_of_a_document_is_unreadable_and_its_text_is_kept(path: str, text: str, name: str) -> None:
    document = parse_document(with_text(path, text))
    (gpu,) = document.gpus
    facts = smi_facts.gpu_facts(gpu, Observation(gpus=document.gpus), frozenset(smi_facts.SUBSETS), explain=False)
    assert facts[name] is None
    assert facts["unknown"][name] == "unreadable"
    assert [(place, kept) for place, kept in facts["other"].items() if kept == text and place.endswith(path)]
    assert any(path.rpartition("/")[2] in warning for warning in document.warnings)
    # Nothing else is different.
    healthy = parse_document(DOCUMENT).gpus[0]
    changed = {
        item.name
        for section in gpu_schema.SECTIONS
        for item in fields(getattr(gpu, section))
        if getattr(getattr(gpu, section), item.name) != getattr(getattr(healthy, section), item.name)
    }
    assert changed == {name}


def test_no_total_is_zero_while_a_counter_is_unreadable() -> None:
    counter = "volatile/dram_uncorrectable"
    document = parse_document(with_text(counter, str(ALL_BITS_64)))
    (gpu,) = document.gpus
    facts = smi_facts.gpu_facts(gpu, Observation(gpus=document.gpus), frozenset(smi_facts.SUBSETS))
    assert facts["unknown"]["ecc_errors_volatile.dram_uncorrectable"] == "unreadable"
    assert facts["other"]["ecc_errors/" + counter] == str(ALL_BITS_64)
    assert facts["ecc_errors_volatile"]["uncorrected_total"] is None
    assert facts["ecc_errors_aggregate"]["uncorrected_total"] == 0


def test_a_graphics_clock_out_of_bounds_is_left_out_and_kept() -> None:
    first = re.search("<supported_graphics_clock>(.*?)</supported_graphics_clock>", DOCUMENT)
    assert first is not None
    text = DOCUMENT[: first.start(1)] + "-5 MHz" + DOCUMENT[first.end(1) :]
    whole, cut = parse_document(DOCUMENT).gpus[0].supported_clocks, parse_document(text).gpus[0]
    assert whole is not None
    assert cut.supported_clocks is not None
    assert cut.supported_clocks[0].graphics_mhz == whole[0].graphics_mhz[1:]
    assert dict(cut.unknown)["supported_clocks.0.graphics_mhz"] == "unreadable"
    assert dict(cut.other)["supported_clocks/supported_graphics_clock"] == "-5 MHz"


def test_processes_and_mig_devices_have_bounds() -> None:
    found = {
        (of.__name__, item.name): item.metadata["reading"].kind
        for of in (gpu_schema.Process, gpu_schema.AccountedProcess, gpu_schema.MigDevice, vgpu.VGpu)
        for item in fields(of)
        if item.metadata
    }
    assert found["Process", "pid"] is found["AccountedProcess", "pid"] is readings.number
    assert found["MigDevice", "gpu_instance_id"] is found["MigDevice", "index"] is readings.small
    assert found["VGpu", "vgpu_id"] is readings.number


def test_csv_has_the_same_bounds() -> None:
    row = dict.fromkeys(csv.BASIC_FIELDS, "N/A")
    gpu = csv.read_gpu({**row, "index": "3", "memory.total": "-5", "memory.used": "0"})
    assert (gpu.index, gpu.basics.memory_total_mib, gpu.basics.memory_used_mib) == (3, None, 0)
    assert dict(gpu.unknown)["memory_total_mib"] == "unreadable"
    assert dict(gpu.other) == {"fb_memory_usage/total": "-5"}
    for text in IMPOSSIBLE:
        gpu = csv.read_gpu({**row, "index": text})
        assert gpu.index is None
        assert (dict(gpu.unknown)["index"], dict(gpu.other)) == ("unreadable", {"index": text})
    assert csv.read_gpu(row).other == ()


HUGE = "1" + 26 * "0"
NVLINK = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n"


@pytest.mark.parametrize(
    ("line", "link"),
    [
        ("Link 0: 26.562 GB/s", topology.NvLink(0, True, 26.562)),
        ("Link 0: 1.2.3 GB/s", topology.NvLink(0)),
        (f"Link 0: {HUGE} GB/s", topology.NvLink(0)),
        (f"Link {HUGE}: 25 GB/s", None),
        ("Link ٣: 25 GB/s", None),
        (f"Link {'9' * 5_000}: 25 GB/s", None),
        ("Link 0: Replay Errors: 5", topology.NvLink(0, error_counters=(("replay_errors", 5),))),
        ("Link 0: Raw BER: 1.5e-15", topology.NvLink(0, error_counters=(("raw_ber", 1.5e-15),))),
        ("Link 0: Raw BER: 0.5", topology.NvLink(0, error_counters=(("raw_ber", 0.5),))),
        *(
            (f"Link 0: Replay Errors: {text}", topology.NvLink(0, error_counters=(("replay_errors", None),)))
            for text in (HUGE, str(ALL_BITS_64), "9" * 5_000, "-5", "1e999", "1e20", "nan", "1_0", "٣", "N/A")
        ),
        (
            f"Link 0: Remote Device 00000000:01:00.0: Link {HUGE}",
            topology.NvLink(0, remote_pci_bus_id="00000000:01:00.0"),
        ),
        ("Link 0: Remote Device 0:0.0: Link 1", topology.NvLink(0)),
    ],
)
def test_nvlinks_have_the_same_bounds(line: str, link: topology.NvLink | None) -> None:
    assert topology.parse_nvlinks(f"{NVLINK}\t {line}\n") == {"GPU-1": () if link is None else (link,)}


def test_vgpus_have_the_same_bounds() -> None:
    text = (
        "GPU 00000000:00:06.0\n    vGPU ID  : 3251637554\n        Placement ID  : -1\n        FB Memory Usage\n"
        f"            Total  : {HUGE} MiB\nGPU 0:0.0\n    vGPU ID  : 1\n"
    )
    found = vgpu.parse_vgpus(text)
    assert found is not None
    (vgpus,) = found.values()
    (only,) = vgpus.vgpus
    assert (only.vgpu_id, only.placement_id, only.memory_total_mib) == (3251637554, None, None)
    assert dict(vgpus.unknown)["vgpus.0.memory_total_mib"] == "unreadable"
    assert dict(vgpus.other) == {"vgpus.0.Placement ID": "-1", "vgpus.0.FB Memory Usage/Total": HUGE + " MiB"}
    (gpu,) = parse_document(DOCUMENT).gpus
    observation = Observation(gpus=(gpu,), vgpus={gpu.basics.pci_bus_id or "": vgpus})
    facts = smi_facts.gpu_facts(gpu, observation, frozenset(smi_facts.SUBSETS))
    assert facts["other"]["vgpus.0.Placement ID"] == "-1"


@pytest.mark.parametrize("index", [HUGE, "9" * 5_000, "٣"])
def test_messages_about_gpus_have_the_same_bounds(index: str) -> None:
    text = f"Unable to determine the device handle for GPU{index}: GPU is lost"
    assert messages.failed_gpus(text) == (messages.FailedGpu(None, None, "GPU is lost"),)


@pytest.mark.parametrize(("text", "node"), [("1", 1), ("-1", None), (HUGE, None), ("", None)])
def test_numa_nodes_have_the_same_bounds(text: str, node: int | None, pci: Any) -> None:
    pci("0000:00:06.0", numa_node=text)
    (device,) = nvidia_gpus()
    assert device.numa_node == node


def test_readings_with_numbers_have_a_kind_with_bounds() -> None:
    """A field that is a number is never declared with a kind of text."""
    bounded = {kind(name) for name in KINDS}

    def check(of: type) -> None:
        for item in fields(of):
            declared = item.metadata.get("reading")
            if declared is not None and re.match("int|float", str(item.type)):
                assert declared.kind in bounded, f"{of.__name__}.{item.name}"
            if "group" in item.metadata:
                check(item.metadata["group"][0])

    for section in gpu_schema.SECTIONS.values():
        assert is_dataclass(section)
        check(section)
    for of in (gpu_schema.Process, gpu_schema.AccountedProcess, gpu_schema.MigDevice, vgpu.VGpu):
        check(of)
