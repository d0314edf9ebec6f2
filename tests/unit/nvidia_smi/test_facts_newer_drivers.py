# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of drivers 610 and 615, applied to the document of a real H200 host with driver 580.159.04."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import health
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.xml import parse_document
from ansible_collections.gpu.fleet.plugins.module_utils._settings import plan as settings_plan
from ansible_collections.gpu.fleet.plugins.module_utils._settings.request import PowerLimit

from tests.unit.nvidia_smi.facts_support import H200X8, Replay
from tests.unit.nvidia_smi.test_nvidia_smi_facts import MIN_CALL, MIN_FIELDS, min_rows, run_module

H200 = H200X8.output("-q -x -i 0")
NOTE = "[Deprecated; will be removed in CUDA 14.0. Use {} Version instead]"


def grouped(text: str) -> str:
    """The document with the power limits at the paths of driver 610, and its new base power."""

    def group(match: re.Match[str]) -> str:
        return (
            f"<gpu_ceiling_power_limit>{match[0]}</gpu_ceiling_power_limit><gpu_base_power>"
            "<current_base_power>450.00 W</current_base_power><requested_base_power>460.00 W</requested_base_power>"
            "<default_base_power>470.00 W</default_base_power></gpu_base_power>"
        )

    limits = "<current_power_limit>.*?</default_power_limit>"
    return re.sub(limits, group, text.replace(">700.00 W</current", ">650.00 W</current"), count=1, flags=re.DOTALL)


def test_power_limits_of_610() -> None:
    document = parse_document(grouped(H200))
    (gpu,) = document.gpus
    power = gpu.power
    assert (gpu.basics.power_limit_w, power.power_limit_enforced_w, power.power_limit_default_w) == (
        700.0,
        650.0,
        700.0,
    )
    assert (power.power_limit_min_w, power.power_limit_max_w) == (200.0, 700.0)
    assert (power.power_base_enforced_w, power.power_base_w, power.power_base_default_w) == (450.0, 460.0, 470.0)
    assert document.warnings == ()
    assert gpu.other == parse_document(H200).gpus[0].other
    assert dict(parse_document(H200).gpus[0].unknown)["power_base_w"] == "absent"


def test_gpu_settings_takes_a_power_limit_with_610() -> None:
    (gpu,) = parse_document(grouped(H200)).gpus
    assert settings_plan.resolve(gpu, "power_limit_w", PowerLimit(watts=500.0)).value == "500.00"
    assert settings_plan.resolve(gpu, "power_limit_w", PowerLimit(percent=50.0)).value == "350.00"


# Elements of both versions, and the expected driver and CUDA versions.
OLDER, NEWER = ("driver_version", "cuda_version"), ("kmd_version", "cuda_umd_version")
NOTES = [NOTE.format("KMD"), NOTE.format("CUDA UMD")]


def elements(names: tuple[str, str], *values: str) -> str:
    return "".join(f"<{name}>{text}</{name}>" for name, text in zip(names, values, strict=True))


VERSIONS = [
    (elements(OLDER, "610.43.02", "13.3"), "610.43.02", "13.3"),
    (elements(OLDER, f"610.43.02 {NOTES[0]}", f"13.3 {NOTES[1]}"), "610.43.02", "13.3"),
    (elements(OLDER, *NOTES) + elements(NEWER, "615.71.09", "13.4"), "615.71.09", "13.4"),
    (elements(OLDER, f"615.71 {NOTES[0]}", "13.3") + elements(NEWER, "615.71.09", "13.4"), "615.71.09", "13.4"),
    (elements(NEWER, "700.10", "14.0"), "700.10", "14.0"),
    (elements(OLDER, "Unknown Error", "Timeout"), None, None),
]


@pytest.mark.parametrize(("values", "driver", "cuda"), VERSIONS)
def test_versions_of_the_document(values: str, driver: str | None, cuda: str | None) -> None:
    document = parse_document(re.sub("<driver_version>.*</cuda_version>", values, H200, count=1, flags=re.DOTALL))
    assert (document.driver_version, document.cuda_version) == (driver, cuda)
    assert document.warnings == ()


# Output of the query for driver_version, and whether the newer field name is queried as well.
CSV_VERSIONS = [
    (f"580.159.04 {NOTE.format('KMD')}", "580.159.04", False),
    ('Deprecated, see "KMD version" instead', "615.71.09", True),
    ("[Unknown Error]", None, False),
]
NEWER_FIELDS = MIN_FIELDS.replace("driver_version", "kmd_version")
NEWER_CALL = f"--query-gpu={NEWER_FIELDS} --format=csv,noheader,nounits"


@pytest.mark.parametrize(("text", "driver", "again"), CSV_VERSIONS)
def test_version_of_the_csv(
    text: str,
    driver: str | None,
    again: bool,
    replay: Callable[[dict[str, dict[str, Any]]], Replay],
    pci: Callable[..., Path],
) -> None:
    pci()
    rows = min_rows()
    results = {
        MIN_CALL: {"out": rows.replace("580.159.04", text)},
        NEWER_CALL: {"out": rows.replace("580.159.04", "615.71.09")},
    }
    program = replay(results)
    facts = run_module(program.path, gather_subset=["min"])
    assert facts["driver_version"] == driver
    assert facts["gpu_count"] == 8
    assert facts["warnings"] == []
    assert program.calls == ([MIN_CALL, NEWER_CALL] if again else [MIN_CALL])


def test_a_driver_that_has_dropped_the_older_name(
    replay: Callable[[dict[str, dict[str, Any]]], Replay], pci: Callable[..., Path]
) -> None:
    pci()
    program = replay(
        {
            MIN_CALL: {"out": 'Field "driver_version" is not a valid field to query.\n\n', "rc": 2},
            NEWER_CALL: {"out": min_rows().replace("580.159.04", "700.10")},
        }
    )
    facts = run_module(program.path, gather_subset=["min"])
    assert (facts["driver_version"], facts["gpu_count"]) == ("700.10", 8)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("None", "none"),
        ("Reset", "reset"),
        ("Bus Reset", "bus_reset"),
        ("System Reboot", "system_reboot"),
        ("Recover IMEX Domain", "recover_imex_domain"),
        ("RECOVER_IMEX_DOMAIN", "recover_imex_domain"),
        ("Something New", "something_new"),
    ],
)
def test_recovery_actions(text: str, action: str) -> None:
    (gpu,) = parse_document(H200.replace("recovery_action>None<", f"recovery_action>{text}<")).gpus
    assert gpu.hardware.recovery_action == action
    codes = [problem.code for problem in health.gpu_problems([gpu])]
    assert codes == ([] if action == "none" else ["recovery_required"])


# Name of an element, its reading, and the path of its text.
ERRORS = [
    ("addressing_mode", "addressing_mode", "addressing_mode"),
    ("product_name", "name", "product_name"),
    ("uuid", "uuid", "uuid"),
    ("gpu_temp", "temperature_gpu_c", "temperature/gpu_temp"),
    ("current_ecc", "ecc_mode_current", "ecc_mode/current_ecc"),
    ("max_host_link_gen", "pci_link_gen_host_max", "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen"),
]


@pytest.mark.parametrize("error", ["Unknown Error", "Invalid Argument", "Insufficient Size", "Timeout"])
@pytest.mark.parametrize(("element", "name", "path"), ERRORS)
def test_errors_of_nvml_in_a_document(element: str, name: str, path: str, error: str) -> None:
    document = parse_document(re.sub(f"<{element}>.*?</{element}>", f"<{element}>{error}</{element}>", H200, count=1))
    (gpu,) = document.gpus
    assert dict(gpu.unknown)[name] == "failed"
    assert dict(gpu.other)[path] == error
    assert document.warnings == ()
    codes = {problem.code for problem in health.gpu_problems([gpu])}
    assert codes == ({"gpu_not_responding"} if name in ("uuid", "name", "temperature_gpu_c") else set())


@pytest.mark.parametrize("container", ["remapped_rows", "power_smoothing", "supported_clocks", "processes"])
def test_errors_of_nvml_in_place_of_a_container(container: str) -> None:
    text = re.sub(f"<{container}>.*?</{container}>", f"<{container}>Timeout</{container}>", H200, flags=re.DOTALL)
    (gpu,) = parse_document(text).gpus
    assert dict(gpu.other)[container] == "Timeout"
    reasons = {reason for name, reason in gpu.unknown if name.startswith(container)}
    assert reasons == {"failed"}


def test_errors_of_nvml_in_power_smoothing() -> None:
    smoothing = "<power_smoothing><enabled>Yes</enabled><floor>Insufficient Size</floor></power_smoothing>"
    text = re.sub("<power_smoothing>.*?</power_smoothing>", smoothing, H200, flags=re.DOTALL)
    (gpu,) = parse_document(text).gpus
    assert gpu.power_smoothing == (("enabled", "Yes"), ("floor", None))
    assert dict(gpu.unknown)["power_smoothing.floor"] == "failed"
    assert dict(gpu.other)["power_smoothing/floor"] == "Insufficient Size"


@pytest.mark.parametrize("count", [1, 2])
def test_a_gpu_lost_inside_the_document(
    count: int, replay: Callable[[dict[str, dict[str, Any]]], Replay], pci: Callable[..., Path]
) -> None:
    """The document of a lost GPU: identity stays, hardware readings state that it is lost."""
    pci()
    lost = re.sub(r"<(gpu_temp|total|used|free|fan_speed)>[^<]*<", r"<\1>GPU is lost<", H200)
    block = H200[H200.index("<gpu ") : H200.index("</gpu>") + len("</gpu>")]
    other = block.replace("00:06.0", "00:07.0").replace("GPU-5ee00000", "GPU-5ee00001")
    lost = lost.replace("attached_gpus>8<", f"attached_gpus>{count}<")
    text = lost if count == 1 else lost.replace("</nvidia_smi_log>", other + "</nvidia_smi_log>")
    facts = run_module(replay({"-q -x": {"out": text}}).path, gather_subset=["memory", "temperature"])
    assert facts["gpus"][0]["error"] == "GPU is lost"
    assert facts["gpus"][0]["unknown"]["memory_total_mib"] == "lost"
    assert [problem["code"] for problem in facts["unhealthy"]] == ["gpu_lost"]
    if count == 1:
        assert (facts["available"], facts["reason"]) == (False, "gpu_lost")
        assert "GPU 0 (00000000:00:06.0) is lost" in facts["message"]
    else:
        assert (facts["available"], facts["reason"]) == (True, None)
        assert facts["gpus"][1]["error"] is None


def test_a_corrupted_inforom_is_reported_once(
    replay: Callable[[dict[str, dict[str, Any]]], Replay], pci: Callable[..., Path]
) -> None:
    pci()
    text = re.sub("<img_version>.*?<", "<img_version>Corrupted infoROM<", H200)
    text = text.replace("<attached_gpus>8<", "<attached_gpus>1<")
    text += "WARNING: infoROM is corrupted at gpu 0000:00:06.0\n"
    facts = run_module(replay({"-q -x": {"out": text, "rc": 14}}).path, gather_subset=["hardware"])
    assert [problem["code"] for problem in facts["unhealthy"]] == ["inforom_corrupted"]
    assert facts["gpus"][0]["unknown"]["inforom_image_version"] == "inforom_corrupted"
