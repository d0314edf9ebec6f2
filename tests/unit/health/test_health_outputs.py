# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of gpu_health for other tools: JSON schema, JUnit, metrics. Run this file to print the schema again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter.health_junit import health_junit
from ansible_collections.gpu.fleet.plugins.filter.health_metrics import health_metrics
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import REMEDIES, VERDICTS
from ansible_collections.gpu.fleet.plugins.modules import gpu_health

from tests.unit.health.health_host import HealthHost
from tests.unit.module_runs import COMMON

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "health.schema.json"
TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array"}
ENUMS = {"verdict": list(VERDICTS), "remedy": list(REMEDIES)}
# Always there; anything else may be null.
PRESENT = frozenset(
    ("row", "message", "code", "count", "findings", "gpus", "xids", "changes", "rows", "time", "complete", "is_over")
)


def _schema_of(name: str, documented: Mapping[str, Any], present: frozenset[str]) -> dict[str, Any]:
    kind = TYPES[documented["type"]]
    schema: dict[str, Any] = {"description": _plain(documented["description"])}
    if name in ENUMS:
        return {**schema, "enum": ENUMS[name]}
    schema["type"] = kind if name in present or kind == "object" else [kind, "null"]
    if kind == "object":
        schema.update(schema_of_contents(documented.get("contains", {}), present))
    if kind == "array":
        is_object = documented["elements"] == "dict"
        schema["items"] = (
            {"type": "object", **schema_of_contents(documented["contains"], present)}
            if is_object
            else {"type": TYPES[documented["elements"]]}
        )
    return schema


def schema_of_contents(contains: Mapping[str, Any], present: frozenset[str] = PRESENT) -> dict[str, Any]:
    """The schema of a dictionary that RETURN describes by what it contains; all but what is `present` may be null."""
    return {
        "properties": {name: _schema_of(name, item, present) for name, item in contains.items()},
        "required": sorted(contains),
    }


def _plain(description: str | list[str]) -> str:
    """A description without the markup of Ansible's documentation."""
    text = " ".join([description] if isinstance(description, str) else description)
    return re.sub(r"\b[A-Z]{1,2}\((.*?)\)", r"\1", text)


def schema() -> str:
    """The schema that follows from RETURN."""
    documented = yaml.safe_load(gpu_health.RETURN)
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Result of gpu.fleet.gpu_health",
        "type": "object",
        **schema_of_contents(documented),
    }
    return json.dumps(whole, indent=1) + "\n"


def test_the_schema_is_that_of_the_documentation() -> None:
    assert SCHEMA.read_text() == schema()


@pytest.fixture(name="host")
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HealthHost:
    return HealthHost(tmp_path, monkeypatch)


def _break(host: HealthHost) -> None:
    host.check()
    for command in ("31 --pid 7 --name a", "79 --gpu 1", "999 --text new"):
        host.xid(command)
    host.log("NVRM: Xid (PCI:...): 137, RLW_RXPIPE", 'NVRM: Xid (PCI:0000:06:00): 13, pid=1, name=a"<b>\\, text')


def result(host: HealthHost, **options: Any) -> dict[str, Any]:
    return {name: value for name, value in host.check(**options).items() if name not in COMMON - {"changed"}}


def test_results_follow_the_schema(host: HealthHost) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    healthy = result(host)
    _break(host)
    for data in (healthy, result(host), result(host, kernel_log="none"), result(host, executable="/missing")):
        assert [(error.message, list(error.path)) for error in validator.iter_errors(data)] == []
    assert list(validator.iter_errors({**healthy, "verdict": "bad"}))
    assert list(validator.iter_errors({name: value for name, value in healthy.items() if name != "gpus"}))


def cases(report: str) -> dict[str, str]:
    """The outcome of each test case of a JUnit report."""
    suite = ElementTree.fromstring(report)
    return {
        case.attrib["name"].split()[0] + (" " + case.attrib["name"].split()[1] if " " in case.attrib["name"] else ""): (
            case[0].tag if len(case) else "passed"
        )
        for case in suite
    }


def test_junit(host: HealthHost) -> None:
    assert cases(health_junit(result(host), "node1")) == {"host": "passed", "GPU 0": "passed", "GPU 1": "passed"}
    _break(host)
    broken = result(host)
    assert cases(health_junit(broken, "node1")) == {"host": "failure", "GPU 0": "system-out", "GPU 1": "failure"}
    assert cases(health_junit(broken, "node1", "warn"))["GPU 0"] == "failure"
    assert set(cases(health_junit(broken, "node1", "never")).values()) == {"system-out"}
    suite = ElementTree.fromstring(health_junit(broken, "node<1>\x00"))
    assert {name: suite.attrib[name] for name in ("tests", "failures", "skipped")} == {
        "tests": "3",
        "failures": "2",
        "skipped": "0",
    }
    assert cases(health_junit(result(host, kernel_log="none", history=""), "node1"))["host"] == "skipped"


SAMPLE = re.compile(r'^(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (-?[0-9.e+]+)$')


def test_metrics(host: HealthHost) -> None:
    _break(host)
    text = health_metrics(result(host))
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in samples if not SAMPLE.match(line)] == []
    assert len({line.rpartition(" ")[0] for line in samples}) == len(samples)
    assert 'gpu_fleet_health_verdict{remedy="reboot"} 4' in samples
    uuid = host.gpu()["uuid"]
    assert f'gpu_fleet_gpu_xids{{gpu="{uuid}",code="31",row="xid_application",is_over="false"}} 1' in samples
    assert "gpu_fleet_health_time_seconds 1700003600" in samples
    described = re.findall(r"^# TYPE (\w+) gauge$", text, re.MULTILINE)
    assert {line.partition("{")[0].partition(" ")[0] for line in samples} == set(described)


@pytest.mark.parametrize("other", [{}, {"changed": False}, [], "text"])
def test_what_is_no_result(other: Any) -> None:
    with pytest.raises(AnsibleFilterError, match=r"takes the result of gpu\.fleet\.gpu_health"):
        health_junit(other, "node1")
    with pytest.raises(AnsibleFilterError, match=r"takes the result of gpu\.fleet\.gpu_health"):
        health_metrics(other)


if __name__ == "__main__":
    print(schema(), end="")


def test_a_lost_gpu_is_one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi lists it by its index alone, the kernel log by its place on the bus."""
    host = HealthHost(tmp_path, monkeypatch, gpus=[{"model": "a100_40gb", "count": 2}])
    host.xid("79 --gpu 1")
    result = host.check()
    assert [(gpu["index"], gpu["verdict"]) for gpu in result["gpus"]] == [(0, "ok"), (1, "fail")]
    assert {finding["gpu"] for finding in result["findings"] if finding["verdict"] == "fail"} == {
        result["gpus"][1]["uuid"]
    }
