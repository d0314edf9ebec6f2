# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a run as JSON: what real runs write, by the schema, and what never gets into it."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._run_result import (
    STATUSES,
    HostRun,
    result_of_run,
)

from tests.conftest import ROOT
from tests.unit.plays import ansible_playbook, run_play, unreachable
from tests.unit.site.converged import STATE, WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import MockHost, run_site

pytestmark = pytest.mark.plays

ENABLED = {"ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.run_result"}
SCHEMA = json.loads((ROOT / "docs" / "run-result.schema.json").read_text())
LOCAL = {"ansible_python_interpreter": sys.executable}
NO_TASKS = dict.fromkeys(("ok", "failures", "unreachable", "changed", "skipped", "rescued", "ignored"), 0)


def _strict(schema: Any) -> Any:
    """The schema without room for a property that it does not describe."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("required"), list) else {}
    return {**closed, **{name: _strict(item) for name, item in schema.items()}}


def _read(path: Path) -> dict[str, Any]:
    """The file of a run, which has to follow the schema."""
    data: dict[str, Any] = json.loads(path.read_text())
    validator = pytest.importorskip("jsonschema").Draft202012Validator(_strict(SCHEMA))
    assert [(error.message, list(error.path)) for error in validator.iter_errors(data)] == []
    return data


@pytest.fixture(scope="module", name="results")
def _results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run in check mode over hosts of every kind."""
    directory = tmp_path_factory.mktemp("run")
    host = converged(WITHOUT_CONTAINER)
    drift = [{"kind": "file", "name": "/etc/example", "message": "/etc/example was changed"}]
    observed = {"stat": {"stat": {"exists": False}}, "command": {"rc": 0, "stdout": ""}}
    records = {**host.records, "docker": {**host.records["docker"], "drift": drift}}
    drifted = replace(host, records=records, results={**host.results, **observed})
    set_power = {**STATE, "changed": True, "gpus_changed": True, "commands": ["nvidia-smi -i GPU-0 -pl 560"]}
    hosts: dict[str, tuple[MockHost, Mapping[str, Any]]] = {
        "same": (host, WITHOUT_CONTAINER),
        "drifted": (drifted, WITHOUT_CONTAINER),
        "state": (replace(host, results={**host.results, "gpu_state": set_power}), WITHOUT_CONTAINER),
        "wrong": (host, {**WITHOUT_CONTAINER, "docker_version": "latest"}),
        "away": (host, unreachable(directory, "connect: No route to host")),
    }
    target = directory / "reports" / "run.json"
    done = run_site(directory, hosts, "--check", "-e", f"gpu_fleet_result_file={target}", env=ENABLED)
    assert target.is_file(), done.output
    return _read(target)


def test_a_run_names_what_changed_and_why(results: dict[str, Any]) -> None:
    assert (results["playbook"], results["check_mode"]) == ("site.yml", True)
    assert {name: host["status"] for name, host in results["hosts"].items()} == {
        "same": "ok",
        "drifted": "failed",  # the mock host has no results of what repairs it
        "state": "ok",
        "wrong": "failed",
        "away": "unreachable",
    }
    assert results["totals"] == {
        "hosts": 5,
        "changed": 2,
        "ok": 2,
        "not_run": 0,
        "unhealthy": 0,
        "failed": 2,
        "unreachable": 1,
    }
    same, drifted, state = (results["hosts"][name] for name in ("same", "drifted", "state"))
    assert (same["changed"], same["changes"], same["message"]) == (False, [], None)
    assert drifted["reasons"]["docker"] == ["/etc/example was changed"]
    assert drifted["changes"][0]["role"] == "gpu.fleet.docker"
    (change,) = state["changes"]
    assert (change["role"], change["module"]) == ("gpu.fleet.gpu_state", "gpu.fleet.gpu_state")
    assert change["commands"] == ["nvidia-smi -i GPU-0 -pl 560"]
    assert state["reasons"]["gpu_state"] == ["each run compares the host with what is declared"]


def test_a_run_names_versions_gpus_and_health(results: dict[str, Any]) -> None:
    same = results["hosts"]["same"]
    assert same["versions"]["driver"] == {"before": "580.95.05", "after": "580.95.05"}
    assert same["versions"]["docker"]["after"] == "20.10.24+dfsg1-1"
    assert same["gpus"] == [{"index": 0, "name": "NVIDIA H200"}, {"index": 1, "name": "NVIDIA H200"}]
    assert same["health"] == {"ok": True, "verdict": "ok", "remedy": "none", "reasons": [], "notes": []}


def test_hosts_that_failed_and_that_are_away_have_their_reason(results: dict[str, Any]) -> None:
    wrong, away = results["hosts"]["wrong"], results["hosts"]["away"]
    assert wrong["message"].startswith("wrong: docker_version is latest; it has to be a version")
    assert "No route to host; check that the host is up" in away["message"]
    for host in (wrong, away):
        assert (host["changed"], host["gpus"], host["health"]) == (False, [], None)
        assert host["versions"]["driver"] == {"before": None, "after": None}


def _play(directory: Path, *tasks: Mapping[str, Any], variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    target = directory / "result.json"
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        # A template, as that of a user may be.
        "vars": {"gpu_fleet_result_file": "{{ target }}", "target": str(target), **LOCAL, **(variables or {})},
        "tasks": tasks,
    }
    run_play(directory, play, env=ENABLED)
    return _read(target)


def test_versions_before_and_after(tmp_path: Path) -> None:
    def cuda(driver: str, *toolkits: str) -> Mapping[str, Any]:
        found = {"driver": {"library_version": driver}, "toolkits": [{"version": version} for version in toolkits]}
        return {"ansible.builtin.set_fact": {"cuda": found}}

    (host,) = _play(tmp_path, cuda("570.1"), cuda("575.2", "12.9"), cuda("580.3", "12.9", "13.0"))["hosts"].values()
    assert host["versions"]["driver"] == {"before": "570.1", "after": "580.3"}
    assert host["versions"]["cuda_toolkits"] == {"before": [], "after": ["12.9", "13.0"]}
    assert host["versions"]["docker"] == {"before": None, "after": None}


def test_no_secret_gets_into_the_file(tmp_path: Path) -> None:
    secret = "hunter2"
    copy = {"content": "{{ secret }}", "dest": f"{tmp_path}/{{{{ item }}}}"}
    echo = {"argv": ["echo", "{{ secret }}"]}
    data = _play(
        tmp_path,
        {"name": "Write it", "ansible.builtin.copy": copy, "loop": ["a"], "diff": True},
        {"name": "Write it unseen", "ansible.builtin.copy": copy, "loop": ["b"], "no_log": True},
        {"name": "Pass it", "ansible.builtin.command": echo, "loop": ["{{ secret }}"]},
        {"name": "Fail with it", "ansible.builtin.command": {"argv": ["false", secret]}, "ignore_errors": True},
        variables={"secret": secret},
    )
    (host,) = data["hosts"].values()
    assert [change["task"] for change in host["changes"]] == ["Write it", "Write it unseen", "Pass it", "Fail with it"]
    assert secret not in json.dumps(data)


def test_without_a_path_nothing_is_written(tmp_path: Path) -> None:
    run_play(tmp_path, {"hosts": "all", "gather_facts": False, "tasks": []}, env=ENABLED)
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["play.json"]


def test_a_host_without_a_task_is_listed(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    play = {"hosts": "all", "gather_facts": False, "vars": {"gpu_fleet_result_file": str(target)}}
    run_play(tmp_path, {**play, "pre_tasks": [], "tasks": []}, env=ENABLED)
    assert _read(target)["hosts"]["localhost"]["status"] == "not_run"


@pytest.mark.parametrize("fact", ["other", "gpu_fleet_result_file"])
def test_with_injected_facts_a_host_does_not_name_the_file(tmp_path: Path, fact: str) -> None:
    files = {name: tmp_path / f"{name}.json" for name in ("own", "trap", "hosts", "plays")}
    (tmp_path / "library").mkdir()
    module = tmp_path / "library" / "lie"
    reply = json.dumps({"ansible_facts": {fact: str(files["trap"])}})
    module.write_text(f"#!/bin/sh\n# WANT_JSON\necho '{reply}'\n")
    host = {"gpu_fleet_result_file": str(files["own"]), "ansible_connection": "local", **LOCAL}
    files["hosts"].write_text(json.dumps({"all": {"hosts": {"gpu1": host}}}))
    actions = ("lie", "ansible.builtin.debug")
    plays = [{"hosts": "all", "gather_facts": False, "tasks": [{action: {}}]} for action in actions]
    files["plays"].write_text(json.dumps(plays))
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
        "ANSIBLE_LIBRARY": str(tmp_path / "library"),
        "ANSIBLE_HOME": str(tmp_path),
        "ANSIBLE_INJECT_FACT_VARS": "true",
        **ENABLED,
    }
    done = ansible_playbook("-i", files["hosts"], files["plays"], env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    # Of the first play it is known, before the host has returned anything.
    assert (files["own"].exists(), files["trap"].exists()) == (True, False)
    assert ("gpu1 has a fact of that name" in done.stderr) == (fact == "gpu_fleet_result_file")


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.debug": {}}]}
    env = {**ENABLED, "GPU_FLEET_RESULT_FILE": str(tmp_path / "file" / "run.json")}
    assert "failed=0" in run_play(tmp_path, play, env=env)


HEALTHY = {"ok": True, "reasons": [], "notes": ["driver branch 535 is old"], "containers": {}}
FINDINGS = [{"verdict": "fail", "message": "GPU 0 is lost"}, {"verdict": "info", "message": "rows were remapped"}]


@pytest.mark.parametrize(
    ("results", "stats", "status", "message"),
    [
        ([], {}, "not_run", None),
        ([{}], {"ok": 1}, "ok", None),
        ([{"ansible_facts": {"gpu_health_result": HEALTHY}}], {"ok": 1}, "ok", None),
        ([{"ansible_facts": {"gpu_health_result": HEALTHY}}], {"failures": 1}, "failed", "the last message"),
        (
            [{"ansible_facts": {"gpu_health_result": {**HEALTHY, "ok": False, "reasons": ["a", "b"]}}}],
            {"failures": 1},
            "unhealthy",
            "a; b",
        ),
        ([{"verdict": "fail", "remedy": "reboot", "findings": FINDINGS}], {"ok": 1}, "unhealthy", "GPU 0 is lost"),
        ([{"verdict": "warn", "remedy": "inspect", "findings": []}], {"ok": 1}, "ok", None),
        ([], {"unreachable": 1}, "unreachable", "the last message"),
    ],
)
def test_status(results: list[dict[str, Any]], stats: Mapping[str, int], status: str, message: str | None) -> None:
    host = HostRun(message="the last message")
    for result in results:
        host.add("a task", "gpu.fleet.gpu_health", result)
    data = host.as_data({**NO_TASKS, **stats})
    assert (data["status"], data["message"]) == (status, message)


def test_the_verdict_of_the_module_is_the_health() -> None:
    host = HostRun()
    host.add("a task", "gpu.fleet.gpu_health", {"verdict": "fail", "remedy": "reboot", "findings": FINDINGS})
    assert host.as_data(NO_TASKS)["health"] == {
        "ok": False,
        "verdict": "fail",
        "remedy": "reboot",
        "reasons": ["GPU 0 is lost"],
        "notes": ["rows were remapped"],
    }


@pytest.mark.parametrize(
    ("records", "reasons"),
    [
        (None, ["the run has not read what drifted"]),
        ({}, ["no earlier run has recorded this role on the host"]),
        ({"docker": {"drift": []}}, ["the variables, or what they depend on, differ from the last run"]),
        (
            {"docker": {"drift": [{"message": "a was changed"}, {"message": "b is gone"}]}},
            ["a was changed", "b is gone"],
        ),
        ({"docker.x": {"drift": [{"message": "a was changed"}]}, "docker": {"drift": []}}, ["a was changed"]),
    ],
)
def test_reasons_of_a_role(records: Mapping[str, Any] | None, reasons: list[str]) -> None:
    host = HostRun()
    if records is not None:
        host.add("Observe", "gpu.fleet.host_facts", {"ansible_facts": {"gpu_fleet_managed": records}})
    host.add("gpu.fleet.docker : Configure", "ansible.builtin.copy", {"changed": True})
    host.add("other : Configure", "ansible.builtin.copy", {"changed": True})
    assert host.as_data(NO_TASKS)["reasons"] == {"docker": reasons}


def test_the_statuses_are_those_of_the_schema() -> None:
    assert SCHEMA["properties"]["hosts"]["additionalProperties"]["properties"]["status"]["enum"] == list(STATUSES)


def test_the_example_of_the_guide_follows_the_schema(tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "run-result.md").read_text(), re.DOTALL)
    (tmp_path / "example.json").write_text(block)
    _read(tmp_path / "example.json")


def test_a_message_is_one_line_of_visible_characters() -> None:
    data = HostRun(message="no space\n\x1b[2J left\u202egnp.exe").as_data({**NO_TASKS, "failures": 1})
    assert data["message"] == "no space [2J leftgnp.exe"


HOSTILE = [
    None,
    True,
    7,
    2**64,
    math.nan,
    "text",
    "\udc80",
    "\x1b[2J",
    "x" * 100_000,
    [],
    [None],
    [7],
    ["\udc80"],
    {},
    {"a": 1},
]
GPU_FACTS = {"gpus": [{"index": 0, "name": "NVIDIA H200"}]}
CUDA = {"driver": {"library_version": "580.1", "loaded_version": "580.1"}, "toolkits": [{"version": "13.0"}]}


def _hostile_results(hostile: Any) -> list[dict[str, Any]]:
    """Results of tasks, each with another value at one place."""
    health = {**HEALTHY, "verdict": "ok", "remedy": "none"}
    managed = {"docker": {"drift": [{"message": hostile}]}}
    found = {"verdict": "ok", "remedy": "none", "findings": hostile}
    gpu = GPU_FACTS["gpus"][0]
    return [
        *({"ansible_facts": value} for value in (hostile, {"nvidia_smi": hostile}, {"nvidia_smi": {"gpus": hostile}})),
        *({"ansible_facts": {"nvidia_smi": {"gpus": [{**gpu, key: hostile}]}}} for key in ("index", "name")),
        *({"ansible_facts": value} for value in ({"cuda": hostile}, {"cuda": {**CUDA, "driver": hostile}})),
        {"ansible_facts": {"cuda": {**CUDA, "driver": {"library_version": hostile, "loaded_version": None}}}},
        *({"ansible_facts": {"cuda": {**CUDA, "toolkits": value}}} for value in (hostile, [{"version": hostile}])),
        *({"ansible_facts": {"packages": value}} for value in (hostile, {"docker-ce": hostile})),
        *({"ansible_facts": {"gpu_health_result": {**health, key: hostile}}} for key in health),
        *({"ansible_facts": {"gpu_health_result": hostile}}, {"plan": hostile}, {"plan": {"work": hostile}}),
        *({"verdict": hostile, "remedy": hostile, "findings": FINDINGS}, found),
        *({"changed": True, key: hostile} for key in ("reason", "commands", "results")),
        {"changed": hostile, "ansible_facts": {"gpu_fleet_managed": hostile}, "plan": {"work": ["docker"]}},
        {"ansible_facts": {"gpu_fleet_managed": managed}, "plan": {"work": ["docker"]}},
    ]  # fmt: skip


def test_what_one_host_returned_never_ends_the_result_of_all(tmp_path: Path) -> None:
    results = [result for hostile in HOSTILE for result in _hostile_results(hostile)]
    hosts = {"honest": HostRun()}
    hosts["honest"].add("Read", "gpu.fleet.host_facts", {"ansible_facts": {"nvidia_smi": GPU_FACTS, "cuda": CUDA}})
    for number, result in enumerate(results):
        hosts[f"host{number}"] = HostRun()
        hosts[f"host{number}"].add("Read", "gpu.fleet.gpu_health", result)
    data = result_of_run(
        hosts, lambda _name: {**NO_TASKS, "ok": 1}, playbook="site.yml", check_mode=False, times=("a", "b")
    )
    (tmp_path / "run.json").write_bytes(json.dumps(data, allow_nan=False, ensure_ascii=False).encode())
    read = _read(tmp_path / "run.json")["hosts"]
    assert read.keys() == hosts.keys()
    assert (read["honest"]["status"], read["honest"]["versions"]["driver"]["after"]) == ("ok", "580.1")
    failed = [host["message"] for host in read.values() if host["status"] == "failed"]
    assert len(failed) > 100
    form = r"Read: its result has another form than its module documents: \S.*; no module of this collection .*"
    assert all(re.fullmatch(form, message) for message in failed)
