# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of gpu_health in the forms of other tools. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import VERDICTS

Health = Mapping[str, Any]

# Neither in XML nor in the text format of Prometheus.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def junit(health: Health, host: str, fail_on: str) -> str:
    """A JUnit report: a test case for the host and one for each GPU; what is `fail_on` or worse is a failure."""
    suite = ElementTree.Element("testsuite", name=f"gpu_health {_clean(host)}", timestamp=health["time"].rstrip("Z"))
    counts = {"tests": 0, "failures": 0, "skipped": 0}
    for name, subject in (("host", None), *((_label(gpu), _identity(gpu)) for gpu in health["gpus"])):
        findings = [finding for finding in health["findings"] if finding["gpu"] == subject]
        verdict = max((finding["verdict"] for finding in findings), key=VERDICTS.index, default="ok")
        case = ElementTree.SubElement(suite, "testcase", classname=_clean(host), name=_clean(name))
        lines = _clean("\n".join(f"{finding['verdict']}: {finding['message']}" for finding in findings))
        counts["tests"] += 1
        if fail_on != "never" and VERDICTS.index(verdict) >= VERDICTS.index(fail_on):
            counts["failures"] += 1
            ElementTree.SubElement(case, "failure", message=verdict).text = lines
        elif verdict == "unknown":
            counts["skipped"] += 1
            ElementTree.SubElement(case, "skipped", message=lines)
        elif lines:
            ElementTree.SubElement(case, "system-out").text = lines
    suite.attrib.update({name: str(count) for name, count in counts.items()})
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _identity(gpu: Mapping[str, Any]) -> str:
    """The name of a GPU in findings."""
    return str(gpu["uuid"] or gpu["pci_bus_id"] or f"index {gpu['index']}")


def _label(gpu: Mapping[str, Any]) -> str:
    return f"GPU {gpu['index']} {_identity(gpu)}" if gpu["index"] is not None else f"GPU {_identity(gpu)}"


def _clean(text: str) -> str:
    return _CONTROL.sub("\ufffd", text)


_METRICS = (
    ("gpu_fleet_health_time_seconds", "Time of the last check, in seconds since 1970."),
    ("gpu_fleet_health_verdict", "Verdict of the host: 0 ok, 1 info, 2 unknown, 3 warn, 4 fail."),
    ("gpu_fleet_gpu_health_verdict", "Verdict of a GPU: 0 ok, 1 info, 2 unknown, 3 warn, 4 fail."),
    ("gpu_fleet_health_finding", "A row of the health policy that holds."),
    ("gpu_fleet_gpu_xids", "Xids since the boot, by GPU and code."),
)


def metrics(health: Health) -> str:
    """The text format of Prometheus, for the textfile collector of node_exporter."""
    time = datetime.fromisoformat(health["time"].replace("Z", "+00:00")).timestamp()
    samples: dict[str, list[tuple[Mapping[str, Any], float]]] = {
        "gpu_fleet_health_time_seconds": [({}, time)],
        "gpu_fleet_health_verdict": [({"remedy": health["remedy"]}, VERDICTS.index(health["verdict"]))],
        "gpu_fleet_gpu_health_verdict": [
            (
                {"gpu": _identity(gpu), "serial": gpu["serial"], "index": gpu["index"], "remedy": gpu["remedy"]},
                VERDICTS.index(gpu["verdict"]),
            )
            for gpu in health["gpus"]
        ],
        "gpu_fleet_health_finding": [
            ({name: finding[name] for name in ("row", "gpu", "verdict", "remedy")}, 1) for finding in health["findings"]
        ],
        "gpu_fleet_gpu_xids": [
            ({"gpu": xid["gpu"], "code": xid["code"], "row": xid["row"], "is_over": xid["is_over"]}, xid["count"])
            for xid in health["kernel_log"]["xids"]
        ],
    }
    return "".join(_metric(name, text, samples[name]) for name, text in _METRICS)


def _metric(name: str, text: str, samples: Iterable[tuple[Mapping[str, Any], float]]) -> str:
    """One metric. Equal labels are added up, since a series may be there only once."""
    total: dict[str, float] = {}
    for labels, value in samples:
        inner = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
        key = f"{name}{{{inner}}}" if inner else name
        total[key] = total.get(key, 0) + value if name == "gpu_fleet_gpu_xids" else value
    lines = [f"# HELP {name} {text}", f"# TYPE {name} gauge", *(f"{key} {value:.15g}" for key, value in total.items())]
    return "\n".join(lines) + "\n"


def _escaped(value: object) -> str:
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return _clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
