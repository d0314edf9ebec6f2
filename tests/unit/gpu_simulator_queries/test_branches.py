# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Differences between driver branches and architectures; expected values from outputs of real drivers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.recordings.recording import load

from .conftest import MakeHost

TABLES = Path(__file__).parent / "fixtures" / "tables"
VERSIONS = {535: "535.261.03", 550: "550.163.01", 580: "580.159.04", 610: "610.43.02", 615: "615.71.09"}

HEADER_610 = (
    "+-----------------------------------------------------------------------------------------+\n"
    "| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |\n"
    "+-----------------------------------------+------------------------+----------------------+\n"
)
VERSION_610 = """\
NVIDIA-SMI version  : 610.43.02
NVML version        : 610.43
DRIVER version      : Deprecated, see "KMD version" instead
CUDA version        : Deprecated, see "CUDA UMD version" instead
KMD version         : 610.43.02
CUDA UMD version    : 13.3
"""


@pytest.mark.parametrize("branch", [535, 550])
def test_table(branch: int, make_host: MakeHost) -> None:
    text, status = make_host("a100_40gb", driver=VERSIONS[branch]).smi()
    assert text.split("\n", 1)[1] == (TABLES / f"a100-{branch}.txt").read_text()
    assert status == 0


def test_610_renames_versions(make_host: MakeHost) -> None:
    host = make_host("h200", driver=VERSIONS[610])
    assert host.smi()[0].split("\n", 1)[1].startswith(HEADER_610)
    assert host.smi("--version") == (VERSION_610, 0)
    head = host.smi("-q")[0].split("\n")[4:8]
    old = "[Deprecated; will be removed in CUDA 14.0. Use"
    assert head == [
        f"Driver Version                                         : 610.43.02 {old} KMD Version instead]",
        f"CUDA Version                                           : 13.3 {old} CUDA UMD Version instead]",
        "KMD Version                                            : 610.43.02",
        "CUDA UMD Version                                       : 13.3",
    ]


@pytest.mark.parametrize(("branch", "cuda"), [(610, "13.3"), (615, "13.4")])
def test_610_and_newer_rename_versions_in_xml(branch: int, cuda: str, make_host: MakeHost) -> None:
    document = ET.fromstring(make_host("h200", driver=VERSIONS[branch]).smi("-q", "-x")[0])
    note = "[Deprecated; will be removed in CUDA 14.0. Use"
    assert [(each.tag, each.text) for each in document[1:5]] == [
        ("driver_version", f"{VERSIONS[branch]} {note} KMD Version instead]"),
        ("cuda_version", f"{cuda} {note} CUDA UMD Version instead]"),
        ("kmd_version", VERSIONS[branch]),
        ("cuda_umd_version", cuda),
    ]


def test_610_groups_power_limits_and_states_specification(make_host: MakeHost) -> None:
    text = make_host("h200", driver=VERSIONS[610]).smi("-q", "-d", "POWER,TEMPERATURE")[0]
    assert (
        "        GPU Ceiling Power Limit\n"
        "            Current Power Limit                        : 700.00 W\n"
        "            Requested Power Limit                      : 700.00 W\n"
        "            Default Power Limit                        : 700.00 W\n"
        "        GPU Base Power\n"
        "            Current Base Power                         : N/A\n"
        "            Requested Base Power                       : N/A\n"
        "            Default Base Power                         : N/A\n"
        "        Min Power Limit                                : 200.00 W\n"
        "        Max Power Limit                                : 700.00 W\n"
    ) in text
    assert "        Memory Max Operating T.Limit Temp Specification: 0 C\n" in text


@pytest.mark.parametrize(
    ("branch", "count", "has", "has_not"),
    [
        (535, 141, "reset_status.reset_required", "gpu_recovery_action"),
        (550, 144, "c2c.mode", "fabric.health.bandwidth"),
        (580, 214, "gpu_recovery_action", "reset_status.reset_required"),
        (610, 241, "bbx.time_run", "reset_status.reset_required"),
    ],
)
def test_fields(branch: int, count: int, has: str, has_not: str, make_host: MakeHost) -> None:
    host = make_host("h200", driver=VERSIONS[branch])
    listed = re.findall(r'^"([^"]+)"(?: or "[^"]+")*$', host.smi("--help-query-gpu")[0], re.MULTILINE)
    assert len(listed) == count
    text, status = host.smi("--query-gpu=" + ",".join(listed), "--format=csv")
    assert status == 0
    assert [len(line.split(", ")) for line in text.splitlines()] == [count, count]
    assert host.smi(f"--query-gpu={has}", "--format=csv")[1] == 0
    assert host.smi(f"--query-gpu={has_not}", "--format=csv") == (
        f'Field "{has_not}" is not a valid field to query.\n\n',
        2,
    )


ONLY_IN_XML = re.compile(
    r"mig_devices|retired_pages/(.*/retired_pagelist|pending_retirement)|supported_gpu_target_temp/.*|.*/power_state"
    r"|accounted_processes|supported_clocks/.*"
)


def text_readings(text: str) -> list[tuple[str, str]]:
    """Labels, from the outermost heading on, and values of the first GPU of `nvidia-smi -q`, in order."""
    found: list[tuple[str, str]] = []
    headings: list[str] = []
    for line in re.split(r"^GPU [0-9A-F:.]+\n", text, flags=re.MULTILINE)[1].splitlines():
        label, colon, value = line.partition(": ")
        headings[(len(label) - len(label.lstrip())) // 4 - 1 :] = [label.strip()]
        if colon:
            found.append(("/".join(headings), value.strip()))
    return found


def xml_readings(text: str) -> list[tuple[str, str]]:
    """Paths and values of the elements of the first GPU that the text has as well, in order."""
    gpu = ET.fromstring(text).find("gpu")
    assert gpu is not None

    def leaves(element: ET.Element, path: str) -> Iterator[tuple[str, str]]:
        for child in element:
            if len(child):
                yield from leaves(child, f"{path}{child.tag}/")
            elif not ONLY_IN_XML.fullmatch(path + child.tag):
                yield path + child.tag, (child.text or "").strip()

    return list(leaves(gpu, ""))


def twins(text: str, document: str) -> dict[str, str]:
    """Paths of the elements by the labels of the same readings; each value must be the same in both."""
    found = {}
    for (label, value), (path, twin) in zip(text_readings(text), xml_readings(document), strict=True):
        # The text of a number of the PCI bus begins with 0x; a list without entries is None there.
        assert value in (twin, f"0x{twin}" if label.startswith("PCI/") else twin or "None"), (label, path)
        assert label not in found
        found[label] = path
    return found


@pytest.mark.parametrize("branch", VERSIONS)
@pytest.mark.parametrize("model", ["h200", "a100_40gb", "a30", "t4", "v100", "p100", "geforce_rtx_3080", "l40s"])
def test_xml_and_text_state_the_same(branch: int, model: str, make_host: MakeHost) -> None:
    """Text and XML of a GPU have the same values in the same order, under the labels and elements of a real one."""
    host = make_host(model, driver=VERSIONS[branch])
    found = twins(host.smi("-q")[0], host.smi("-q", "-x")[0])
    recording = load("h200x8-580.159.04")
    real = dict(zip(
        (label for label, _value in text_readings(recording.output("-q"))),
        (path for path, _value in xml_readings(recording.output("-q -x"))),
        strict=True,
    ))  # fmt: skip
    common = found.keys() & real.keys()
    assert len(common) > 100
    assert {label: found[label] for label in common} == {label: real[label] for label in common}


# Element paths below <gpu> that exist only with certain architectures or branches.
LAYOUTS = [
    (535, "a100_40gb", "gpu_power_readings/power_draw", "gpu_power_readings/average_power_draw"),
    (535, "a100_40gb", "ecc_errors/volatile/sram_uncorrectable", "ecc_errors/volatile/sram_uncorrectable_parity"),
    (535, "a100_40gb", "gpu_module_id", "platformInfo"),
    (535, "a100_40gb", "gpu_reset_status/reset_required", "gpu_recovery_action"),
    (550, "a100_40gb", "ecc_errors/volatile/sram_uncorrectable_parity", "ecc_errors/channel_repair_pending"),
    (550, "a100_40gb", "fabric/health/bandwidth", "fabric/health/summary"),
    (550, "v100", "ecc_errors/volatile/single_bit/device_memory", "ecc_errors/volatile/dram_correctable"),
    (550, "a100_40gb", "voltage/graphics_volt", "pdi"),
    (580, "a100_40gb", "temperature/gpu_temp_max_threshold", "temperature/gpu_temp_max_tlimit_threshold"),
    (580, "h200", "temperature/gpu_temp_max_tlimit_threshold", "temperature/gpu_temp_max_threshold"),
    (580, "t4", "ecc_errors/volatile/sram_uncorrectable", "ecc_errors/volatile/sram_uncorrectable_parity"),
    (580, "h200", "gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw"),
    (580, "h200", "gpu_recovery_action", "gpu_reset_status"),
    (610, "h200", "edpp_multiplier", "voltage"),
    *(
        (branch, model, f"gpu_power_readings/gpu_ceiling_power_limit/{limit}", f"gpu_power_readings/{limit}")
        for branch in (610, 615)
        for model in ("h200", "t4")
        for limit in ("current_power_limit", "requested_power_limit", "default_power_limit")
    ),
    (615, "h200", "gpu_power_readings/min_power_limit", "gpu_power_readings/gpu_ceiling_power_limit/min_power_limit"),
    (610, "h200", "gpu_power_readings/gpu_base_power/default_base_power", "gpu_base_power"),
    (580, "h200", "gpu_power_readings/current_power_limit", "gpu_power_readings/gpu_ceiling_power_limit"),
]


@pytest.mark.parametrize(("branch", "model", "has", "has_not"), LAYOUTS)
def test_layout(branch: int, model: str, has: str, has_not: str, make_host: MakeHost) -> None:
    gpu = ET.fromstring(make_host(model, driver=VERSIONS[branch]).smi("-q", "-x")[0]).find("gpu")
    assert gpu is not None
    assert gpu.find(has) is not None
    assert gpu.find(has_not) is None


@pytest.mark.parametrize(("branch", "dtd"), [(535, "v12"), (550, "v12"), (580, "v13"), (610, "v13"), (615, "v13")])
def test_document_type(branch: int, dtd: str, make_host: MakeHost) -> None:
    lines = make_host("h200", driver=VERSIONS[branch]).smi("-q", "-x")[0].split("\n")
    assert lines[:2] == [
        '<?xml version="1.0" ?>',
        f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_{dtd}.dtd">',
    ]


# Documents of real GPUs: file, model, driver.
REAL = [
    ("nvk8s-hw-a100.xml", "a100_40gb", "570.148.08"),
    ("nvk8s-hw-b200.xml", "b200", "580.105.08"),
    ("nvk8s-hw-gb200.xml", "gb200", "580.173.02"),
    ("nvk8s-hw-h100.xml", "h100_80gb", "580.105.08"),
    ("telegraf-a100-sxm4-v12.xml", "a100_80gb", "535.54.03"),
    ("telegraf-rtx-3080-v13.xml", "geforce_rtx_3080", "595.58.03"),
]


def paths(element: ET.Element, parent: str = "") -> list[str]:
    """Paths of all elements, in order, repeated blocks once."""
    found: list[str] = []
    for child in element:
        path = f"{parent}/{child.tag}"
        found.extend(each for each in (path, *paths(child, path)) if each not in found)
    return found


def test_elements_are_those_of_real_documents(corpus: Path | None, make_host: MakeHost) -> None:
    """Same elements in the same order as the documents of real GPUs, except for MIG devices and processes."""
    documents = [(load("h200x8-580.159.04").output("-q -x -i 0"), "h200", "580.159.04")]
    if corpus:
        documents += [
            ((corpus / "xml" / name).read_text(encoding="utf-8"), model, driver) for name, model, driver in REAL
        ]
    left_out = ("/mig_devices/", "/processes/", "/remapped_rows/")
    for document, model, driver in documents:
        real = ET.fromstring(document).find("gpu")
        mine = ET.fromstring(make_host(model, driver=driver).smi("-q", "-x")[0]).find("gpu")
        assert real is not None
        assert mine is not None
        expected = [path for path in paths(real) if not path.startswith(left_out)]
        assert len(expected) > 150
        assert [path for path in paths(mine) if not path.startswith(left_out)] == expected, (model, driver)
