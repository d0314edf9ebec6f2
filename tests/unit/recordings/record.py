# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record a real GPU host: `python3 -m tests.unit.recordings.record FILE`, as root, from the root of the checkout.

Runs every module in check mode, which changes nothing, and writes one JSON file, which README.md describes: by module
the requests with their results, and all output of nvidia-smi. UUIDs, serial numbers and other identifiers are replaced
by made-up ones, consistently. Needs ansible-core, pytest, pytest-xdist and hypothesis.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.module_runs import run_module
from tests.unit.recordings.recording import Call, Recording, dump

WRAPPER = """#!{python} -SEB
import json, subprocess, sys
done = subprocess.run(["nvidia-smi", *sys.argv[1:]], stdin=subprocess.DEVNULL, capture_output=True)
out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
with open({log!r}, "a") as log:
    entry = {{"arguments": " ".join(sys.argv[1:]), "stdout": out, "stderr": err, "rc": done.returncode}}
    log.write(json.dumps(entry) + "\\n")
sys.stdout.buffer.write(done.stdout)
sys.stderr.buffer.write(done.stderr)
sys.exit(done.returncode)
"""

REQUESTS: dict[str, list[dict[str, Any]]] = {
    "nvidia_smi_facts": [
        {},
        {"gather_subset": ["all"], "explain": True},
        {"gather_subset": ["min"]},
        {"gpus": ["0"]},
        {"gpus": ["9"]},
    ],
    "cuda_facts": [{}],
    "mig_profile": [
        {"profiles": []},
        {"profiles": ["3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"]},
        {"profiles": {"1g.18gb": 7}},
        {"profiles": ["1g.18gb:3", "1g.18gb+me"]},
        {"profiles": ["1c.3g.71gb", "2c.3g.71gb"]},
        {"profiles": ["4g.71gb", "4g.71gb"]},
        {"profiles": ["9g.999gb"]},
        {"profiles": {"1g.18gb": 1000000}},
        {"gpus": ["0"], "layouts": [{"gpus": ["all"], "profiles": {"1g.18gb": 7}}]},
        {
            "gpus": ["0"],
            "config": {
                "version": "v1",
                "mig-configs": {"a": [{"devices": "all", "mig-enabled": True, "mig-devices": {"3g.71gb": 2}}]},
            },
            "selected": "a",
        },
        {"enabled": False},
        {"gpus": ["NVIDIA H100*"], "enabled": True},
        {"gpus": []},
    ],
    "ecc_mode": [
        {"enabled": True},
        {"enabled": False},
        {"enabled": False, "gpus": ["0"], "reset": "if_required"},
        {"clear_counters": "volatile"},
        {"clear_counters": "aggregate", "on_unsupported": "skip"},
        {"enabled": True, "gpus": ["9"]},
        {"modes": [{"enabled": True, "gpus": ["*H200*"]}, {"clear_counters": "volatile", "gpus": ["0"]}]},
        {"gpus": ["0"], "modes": [{"enabled": False}]},
    ],
    "gpu_settings": [
        {"persistence_mode": True},
        {
            "accounting_mode": True,
            "compute_mode": "exclusive_process",
            "gpu_clocks_mhz": "1000-1500",
            "memory_clocks_mhz": "default",
            "persistence_mode": False,
            "power_limit_w": "80%",
        },
        {"compute_mode": "default", "gpu_clocks_mhz": "default", "power_limit_w": "default"},
        {"power_limit_w": "10000"},
        {"power_limit_w": "10%"},
        {"gpu_clocks_mhz": "100-99999"},
        {"memory_clocks_mhz": 3201},
        {"memory_clocks_mhz": 1000},
        {"compute_mode": "exclusive_thread"},
        {
            "settings": [
                {"accounting_mode": False, "persistence_mode": True},
                {"gpu_clocks_mhz": 1500, "gpus": ["0"], "power_limit_w": 500},
            ]
        },
        {"gpus": ["0"], "settings": [{"power_limit_w": 500}]},
    ],
    "gpu_state": [
        {},
        {"ecc": True, "persistence_mode": True},
        {"ecc": False},
        {"ecc": False, "mig": ["1g.18gb", "1g.18gb"]},
        {"gpu_clocks_mhz": "1000-1500", "mig": {"1g.18gb": 7}, "power_limit_w": "80%"},
        {
            "compute_mode": "default",
            "mig": [{"gpus": ["0"], "profiles": ["3g.71gb", "2g.35gb"]}, {"enabled": False, "gpus": ["1"]}],
        },
        {"mig": ["9g.999gb"]},
        {"power_limit_w": "9999"},
        {"accounting_mode": True, "mig": False},
        {"mps": {"gpus": ["9"]}},
        {"mps": {"gpus": ["0"], "pinned_memory_limit": "900G"}},
        {"mps": {"gpus": ["0"]}, "compute_mode": "prohibited"},
        {"state": "absent"},
    ],
    "driver_reload": [{}],
    "fabric_facts": [{}],
    "managed_facts": [{}],
    "gpu_health": [
        {},
        {"expected": {"ecc": True, "gpu_models": ["H200"], "mig_profiles": [], "persistence_mode": True}},
        {"expected": {"driver_version": "595", "gpu_count": 16}},
        {"policy": [{"id": "hot", "operator": "above", "reading": "temperature_gpu_c", "value": 1, "verdict": "warn"}]},
    ],
    "report_facts": [{}],
    "systemd_reload": [{}],
    "host_facts": [
        {"gather": ["gpus", "cuda", "managed"], "users": ["root", "no-such-user"]},
        {"gather": ["gpus"], "gpu_state": {"accounting_mode": True, "mig": False}},
    ],
}
"""Requests by module: without changes on most hosts, with changes, and refused ones."""


def record(directory: Path, modules: Sequence[str]) -> Recording:
    """Run the requests of `modules` on this host; of several calls with the same arguments, the last is kept."""
    log = directory / "log"
    log.touch()
    wrapper = directory / "nvidia-smi"
    wrapper.write_text(WRAPPER.format(python=sys.executable, log=str(log)))
    wrapper.chmod(0o755)
    results: dict[str, list[dict[str, Any]]] = {}
    for name in modules:
        requests = REQUESTS[name]
        module = importlib.import_module(f"ansible_collections.gpu.fleet.plugins.modules.{name}")
        for request in requests:
            options = {"executable": str(wrapper)} if "executable" in module.ARGUMENT_SPEC else {}
            started = time.monotonic()
            with pytest.MonkeyPatch.context() as patch:
                result = plain(run_module(module, patch, {**options, **request}, check=True))
            print(f"{name:18} {time.monotonic() - started:6.2f} s  {json.dumps(request)[:90]}", flush=True)
            results.setdefault(name, []).append({"request": request, "result": result})
    logged = [Call(**json.loads(line)) for line in log.read_text().splitlines()]
    calls = {call.arguments: call for call in logged}
    # Some modules ask for each GPU apart.
    documents = [describe(call.stdout) for call in logged if "<nvidia_smi_log>" in call.stdout]
    gpus = {gpu["uuid"]: gpu for document in documents for gpu in document["gpus"]}
    host = {**documents[0], "gpus": sorted(gpus.values(), key=lambda gpu: str(gpu["bus_id"]))}
    source = (
        f"A real host with {len(host['gpus'])} GPUs, driver {host['driver_version']}, {time.strftime('%B %Y')}: "
        f"results of {', '.join(modules)} in check mode, and all output of nvidia-smi that they read. "
        "Identifiers are replaced by made-up ones, the same throughout."
    )
    return Recording(source, host, tuple(calls[arguments] for arguments in sorted(calls)), results=results)


def describe(document: str) -> dict[str, Any]:
    """Driver and GPUs of an XML document as the simulator's `host.json` has them; `model` is None if it has none."""
    # Not importable before tests.conftest is.
    catalogue = importlib.import_module("gpu_simulator.state.catalogue")
    root = ET.fromstring(document)
    models = {catalogue.load(name)["name"]: name for name in catalogue.names()}
    gpus = [
        {
            "model": models.get(gpu.findtext("product_name", "")),
            "uuid": gpu.findtext("uuid"),
            "serial": gpu.findtext("serial"),
            "bus_id": gpu.get("id"),
            "pdi": gpu.findtext("pdi"),
        }
        for gpu in root.iter("gpu")
    ]
    return {"driver_version": root.findtext("driver_version"), "gpus": gpus}


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a module without Ansible's internal keys, and with warnings as strings."""
    warnings = [item["event"]["msg"] if isinstance(item, dict) else item for item in result.pop("warnings", [])]
    left = {key: value for key, value in result.items() if key not in ("invocation", "exception")}
    return {**left, "warnings": warnings} if warnings else left


IDENTIFIERS = (
    # (pattern of the identifier, format of its replacement)
    (r"\bGPU-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", "5ee00000-0000-4000-8000-{:012d}"),
    (r"<serial>(\d+)<", "1655{:09d}"),
    (r"<pdi>(0x[0-9a-f]{8,16})<", "0x5{:015d}"),
    (r"<cluster_?[uU]uid>([^<]*[1-9a-f][^<]*)<", "00000000-0000-0000-0000-{:012d}"),
    (r"<chassis_serial_number>([^<]*\d[^<]*)<", "1650{:09d}"),
)


def replace_identifiers(text: str) -> str:
    """Replace hardware identifiers in the text of a recording, each by the same value throughout."""
    for pattern, made_up in IDENTIFIERS:
        for number, found in enumerate(dict.fromkeys(re.findall(pattern, text))):
            text = text.replace(found, made_up.format(number))
    return text


def main() -> None:
    """Write the recording of this host."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("modules", nargs="*", default=list(REQUESTS), help="default: all that have requests")
    arguments = parser.parse_args()
    path: Path = arguments.file
    # gpu_state refuses a program in a directory that others can write to.
    with tempfile.TemporaryDirectory(dir=Path.home()) as directory:
        text = dump(record(Path(directory), arguments.modules)).replace(
            str(Path(directory) / "nvidia-smi"), "nvidia-smi"
        )
    path.write_text(replace_identifiers(text), encoding="utf-8")


if __name__ == "__main__":
    main()
