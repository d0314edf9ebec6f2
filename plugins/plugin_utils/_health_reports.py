# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of gpu_health in the forms of other tools. Private to this collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from ansible_collections.gpu.fleet.plugins.module_utils._health.metrics import clean, identity
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import VERDICTS

Health = Mapping[str, Any]


def junit(health: Health, host: str, fail_on: str) -> str:
    """A JUnit report: a test case for the host and one for each GPU; what is `fail_on` or worse is a failure."""
    suite = ElementTree.Element("testsuite", name=f"gpu_health {clean(host)}", timestamp=health["time"].rstrip("Z"))
    counts = {"tests": 0, "failures": 0, "skipped": 0}
    for name, subject in (("host", None), *((_label(gpu), identity(gpu)) for gpu in health["gpus"])):
        findings = [finding for finding in health["findings"] if finding["gpu"] == subject]
        verdict = max((finding["verdict"] for finding in findings), key=VERDICTS.index, default="ok")
        case = ElementTree.SubElement(suite, "testcase", classname=clean(host), name=clean(name))
        lines = clean("\n".join(f"{finding['verdict']}: {finding['message']}" for finding in findings))
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


def _label(gpu: Mapping[str, Any]) -> str:
    return f"GPU {gpu['index']} {identity(gpu)}" if gpu["index"] is not None else f"GPU {identity(gpu)}"
