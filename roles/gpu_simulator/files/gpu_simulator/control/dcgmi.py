# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated ``dcgmi``: ``discovery -l``, ``diag -r N -j``, ``health -c`` and ``nvlink -e``.

The format of the diagnostics and the warning about persistence mode come from DCGM 4.2.3. The tests of a level,
other results of a test, and the output of ``health`` for an unhealthy GPU are modelled.
"""

from __future__ import annotations

import argparse
import json
import sys

from ..command_line import selection
from ..state import catalogue, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence, Tuple

    from ..command_line.selection import Selected
    from ..state.shapes import Gpu, Reply, State

    Result = Tuple[str, str]

VERSION = "4.2.3"
FAILED = 226
"""Exit status of dcgmi when a test fails: -30 as an unsigned byte."""
NO_CONNECTION = 255
NO_HOST_ENGINE = (
    "Error: unable to establish a connection to the specified host: localhost\n"
    "Error: Unable to connect to host engine. Host engine connection invalid/disconnected."
)
BAD_GPU = "Error: Unable to get NvLink error counts of GPU {}. Return: Bad parameter passed to function"
NOT_SIMULATED = 69

PASS, FAIL, WARN, SKIP, NOT_RUN = STATUSES = ("Pass", "Fail", "Warn", "Skip", "Not Run")

CATEGORIES: Mapping[str, tuple[tuple[str, int], ...]] = {
    "Deployment": (("software", 1),),
    "Integration": (("pcie", 2),),
    "Hardware": (("memory", 2), ("diagnostic", 3), ("memtest", 4), ("pulse_test", 4)),
    "Stress": (("memory_bandwidth", 3), ("targeted_power", 3), ("targeted_stress", 3)),
}
"""The tests of each category, and the lowest level that runs them."""
TESTS = tuple(test for tests in CATEGORIES.values() for test, _level in tests)
LEVELS = {"1": 1, "quick": 1, "short": 1, "2": 2, "medium": 2, "3": 3, "long": 3, "4": 4, "xlong": 4}

CODES: Mapping[str, tuple[int, int, int]] = {
    "persistence": (8, 29, 5),
    "memory": (10, 5, 6),
    "other": (8, 1, 4),
}
"""Category, id and severity of errors; the first was observed on a real host."""


def main(argv: Sequence[str], root: str | None = None) -> int:
    """Run one call; returns the exit status."""
    arguments = _parser().parse_args(argv)
    directory = store.root_of(root)
    state = store.read(directory)
    if state is None or state["driver"]["loaded"] != state["driver"]["installed"]:
        print(NO_HOST_ENGINE)
        return NO_CONNECTION
    text, status = arguments.run(arguments, state, selection.visible(state, directory))
    if status == NOT_SIMULATED:
        print(f"gpu-simulator: not simulated: {text}", file=sys.stderr)
    else:
        print(text)
    return int(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dcgmi", description="Simulated DCGM: a part of dcgmi.")
    parser.add_argument("-v", "--version", action="version", version=f"dcgmi  version: {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    discovery = commands.add_parser("discovery")
    discovery.add_argument("-l", "--list", action="store_true", required=True)
    discovery.set_defaults(run=_discovery)
    diag = commands.add_parser("diag")
    diag.add_argument("-r", "--run", dest="level", choices=list(LEVELS), required=True)
    diag.add_argument("-j", "--json", action="store_true")
    diag.add_argument("-i", "--entity-id")
    diag.add_argument("-p", "--parameters")
    diag.set_defaults(run=_diag)
    health = commands.add_parser("health")
    what = health.add_mutually_exclusive_group(required=True)
    what.add_argument("-c", "--check", action="store_true")
    what.add_argument("-s", "--set")
    health.add_argument("-g", "--group", default="0")
    health.add_argument("-j", "--json", action="store_true")
    health.set_defaults(run=_health)
    nvlink = commands.add_parser("nvlink")
    nvlink.add_argument("-e", "--errors", action="store_true", required=True)
    nvlink.add_argument("-g", "--gpuid", type=int, required=True)
    nvlink.add_argument("-j", "--json", action="store_true")
    nvlink.set_defaults(run=_nvlink)
    return parser


# discovery


def _discovery(arguments: argparse.Namespace, state: State, gpus: Selected) -> Reply:
    there = [(index, gpu) for index, gpu in gpus if gpu["health"] != "lost"]
    line = "+--------+" + "-" * 70 + "+"
    rows = [f"{len(there)} GPU{'' if len(there) == 1 else 's'} found.", line]
    rows += ["| GPU ID | {:<68} |".format("Device Information"), line]
    for index, gpu in there:
        facts = (
            "Name: " + catalogue.load(gpu["model"])["name"],
            "PCI Bus ID: " + gpu["bus_id"],
            "Device UUID: " + gpu["uuid"],
        )
        rows += [f"| {'' if number else index:<6} | {fact:<68} |" for number, fact in enumerate(facts)]
        rows.append(line)
    rows += ["0 NvSwitches found.", "+-----------+", "| Switch ID |", "+-----------+", "+-----------+"]
    rows += ["0 ConnectX found.", "+----------+", "| ConnectX |", "+----------+", "+----------+"]
    rows += ["0 CPUs found.", line, "| CPU ID | {:<68} |".format("Device Information"), line, line]
    return "\n".join(rows), 0


# diag


def _diag(arguments: argparse.Namespace, state: State, gpus: Selected) -> Reply:
    if not arguments.json:
        return "the text of dcgmi diag: use -j", NOT_SIMULATED
    if arguments.entity_id is not None:
        try:
            gpus = selection.select(gpus, arguments.entity_id.replace("gpu:", ""))
        except selection.UnparsableSelectorError:
            gpus = []
    level = LEVELS[arguments.level]
    categories: list[dict[str, Any]] = []
    for category, tests in CATEGORIES.items():
        run = [_test(name, state, gpus) for name, since in tests if since <= level]
        if run:
            categories.append({"category": category, "tests": run})
    entities = [
        {
            "device_id": catalogue.load(gpu["model"])["pci"]["device_id"][:4].lower(),
            "entity_id": index,
            "serial_num": gpu["serial"] if gpu["serial"] != "N/A" else "<<<NOT_SUPPORTED>>>",
        }
        for index, gpu in gpus
    ]
    document = {
        "DCGM Diagnostic": {"test_categories": categories},
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": {"Driver Version Detected": state["driver"]["installed"], "version": VERSION},
    }
    failed = any(test["test_summary"]["status"] == FAIL for each in categories for test in each["tests"])
    return json.dumps(document, indent=2), FAILED if failed else 0


def _test(name: str, state: State, gpus: Selected) -> dict[str, Any]:
    results = []
    for index, gpu in gpus:
        status, text, code = _result(name, index, gpu, state)
        result: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": index, "status": status}
        if text:
            category, number, severity = CODES[code]
            warning = {"error_category": category, "error_id": number, "error_severity": severity, "warning": text}
            result["warnings"] = [warning]
        results.append(result)
    found = {result["status"] for result in results}
    worst = next((status for status in (FAIL, WARN, PASS, SKIP, NOT_RUN) if status in found), SKIP)
    return {"name": name, "results": results, "test_summary": {"status": worst}}


def _result(name: str, index: int, gpu: Gpu, state: State) -> tuple[str, str, str]:
    """Return status, warning and kind of error of one test on one GPU; results that were set take precedence."""
    given = state.get("dcgm_results", {}).get(name, {}).get(str(index))
    if given:
        return given["status"], given["text"], "other"
    if gpu["health"] == "lost":
        return FAIL, f"GPU {index} is lost. Reboot the system to recover it.", "other"
    if name != "software":
        in_mig_mode = bool(gpu["mig_mode"] and gpu["mig_mode"]["current"])
        is_data_center = catalogue.load(gpu["model"])["brand"] not in ("GeForce", "Quadro")
        return (PASS if is_data_center and not in_mig_mode else SKIP), "", ""
    rows = gpu["remapped_rows"]
    if rows["failure"] or rows["pending"]:
        what = "had a failure" if rows["failure"] else "has a row that is pending"
        return FAIL, f"Page Retirement/Row Remap: GPU {index} {what} in row remapping.", "memory"
    if not gpu["persistence_mode"]:
        advice = 'Enable persistence mode by running "nvidia-smi -i <gpuId> -pm 1 " as root.'
        return FAIL, f"Persistence Mode: Persistence mode for GPU {index} is disabled. {advice}", "persistence"
    return PASS, "", ""


# health, nvlink


def _health(arguments: argparse.Namespace, state: State, gpus: Selected) -> Reply:
    if arguments.set is not None:
        return "Health monitor systems set successfully.", 0
    incidents = {f"GPU {index}": incident for index, gpu in gpus for incident in _incidents(gpu)}
    worst = next(
        (level for level in ("Failure", "Warning") if any(each[0] == level for each in incidents.values())), "Healthy"
    )
    if arguments.json:
        overall: dict[str, Any] = {"value": worst}
        if incidents:
            overall["children"] = {name: {"value": f"{level}: {text}"} for name, (level, text) in incidents.items()}
        return json.dumps({"body": {"Overall Health": overall}, "header": ["Health Monitor Report"]}, indent=2), 0
    line = "+---------------------------+" + "-" * 58 + "+"
    rows = [("Overall Health", worst), *((name, f"{level}: {text}") for name, (level, text) in incidents.items())]
    lines = [
        "| {:<84} |".format("Health Monitor Report"),
        line.replace("-", "="),
        *(f"| {name:<25} | {text:<56} |" for name, text in rows),
    ]
    return "\n".join([line, *lines, line]), 0


def _incidents(gpu: Gpu) -> list[Result]:
    """List the incidents that DCGM's watches report; like on real hosts, not the recovery action."""
    if gpu["health"] == "lost":
        return [("Failure", "the GPU is lost")]
    if gpu["remapped_rows"]["failure"]:
        return [("Failure", "row remapping failed")]
    if gpu["ecc_errors"]["volatile"]["dram_uncorrectable"]:
        return [("Failure", "volatile double bit errors")]
    if gpu["health"] == "inforom":
        return [("Warning", "the InfoROM is corrupted")]
    return []


COUNTERS = ("CRC FLIT Error", "CRC Data Error", "Replay Error", "Recovery Error")


def _nvlink(arguments: argparse.Namespace, state: State, gpus: Selected) -> Reply:
    if not arguments.json:
        return "the text of dcgmi nvlink -e: use -j", NOT_SIMULATED
    gpu = dict(gpus).get(arguments.gpuid)
    if gpu is None:
        return BAD_GPU.format(arguments.gpuid), NO_CONNECTION
    nvlink = catalogue.load(gpu["model"])["nvlink"]
    links = nvlink["links"] if nvlink and state["host"]["fabric"] else 0
    counts = {name: {"value": "0"} for name in COUNTERS}
    body = {f"Link {link}": {"children": counts} for link in range(links)}
    return json.dumps({"body": body, "header": ["NVLINK Error Counts", f"GPU {arguments.gpuid}"]}, indent=2), 0
