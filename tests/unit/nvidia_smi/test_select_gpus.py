# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter select_gpus, alone and in Ansible's own templates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter import select_gpus as module
from ansible_collections.gpu.fleet.plugins.filter.select_gpus import select_gpus

ROOT = Path(__file__).resolve().parents[3]
H200 = {"uuid": "GPU-1", "index": 0, "name": "NVIDIA H200", "memory_total_mib": 143771, "mig_capable": True}
T4 = {"uuid": "GPU-2", "index": 0, "name": "Tesla T4", "memory_total_mib": 15360, "mig_capable": False}
P4 = {"uuid": "GPU-3", "index": 1, "name": "Tesla P4", "memory_total_mib": None, "mig_capable": None}


def host_with(*gpus: Mapping[str, Any]) -> dict[str, Any]:
    return {"inventory_hostname": "x", "ansible_facts": {"nvidia_smi": {"available": True, "gpus": list(gpus)}}}


HOSTVARS = {"a": host_with(H200), "b": host_with(T4, P4), "c": {"ansible_facts": {}}, "d": {"inventory_hostname": "d"}}

# Facts, query, result.
FOUND: list[tuple[Any, str, Any]] = [
    ([H200, T4, P4], "[?memory_total_mib > `40000` && mig_capable].uuid", ["GPU-1"]),
    ([H200, T4, P4], "[?memory_total_mib < `40000`].uuid", ["GPU-2"]),
    ([H200, T4, P4], "[?memory_total_mib == null].uuid", ["GPU-3"]),
    ([H200, T4, P4], "[?mig_capable == `false`].uuid", ["GPU-2"]),
    ([H200, T4, P4], "[?starts_with(name, 'Tesla')].index", [0, 1]),
    ([H200, T4, P4], "length(@)", 3),
    ([H200, T4, P4], "max_by([?memory_total_mib], &memory_total_mib).name", "NVIDIA H200"),
    ([], "[?mig_capable].uuid", []),
    ((H200,), "[].uuid", ["GPU-1"]),
    ({"gpus": [T4]}, "[].name", ["Tesla T4"]),
    ({"nvidia_smi": {"gpus": [T4]}}, "[].name", ["Tesla T4"]),
    (host_with(T4), "[].name", ["Tesla T4"]),
    (HOSTVARS, "[].[host, index]", [["a", 0], ["b", 0], ["b", 1]]),
    (HOSTVARS, "[?host == 'b' && memory_total_mib].uuid", ["GPU-2"]),
    ({}, "[]", []),
]


@pytest.mark.parametrize(("data", "query", "expected"), FOUND)
def test_found(data: Any, query: str, expected: Any) -> None:
    assert select_gpus(data, query) == expected


# Query, position of its error (from 1), part of the reason.
FAULTS = [
    ("[?memory_total_mib > 40000].uuid", 22, "backticks: `40000`"),
    ("[?memory_total_mib > `40000` & mig_capable].uuid", 30, "expref"),
    ("[?mig_capable", 14, ""),
    ("[?mig_capable].", 16, ""),
    ("[?name == 'NVIDIA].uuid", 11, ""),
    ("[?memory_total_mib # `4`]", 20, ""),
    ("", 1, ""),
    ("[].{uuid}", 9, ""),
    ("nothing(@)", 1, "Unknown function"),
    ("[?begins_with(name, 'T')]", 3, "Unknown function"),
    ("[?starts_with(name)]", 3, "Expected 2 arguments"),
    ("[?starts_with(index, 'T')]", 3, "invalid type"),
    ("[?name > `4`]", 8, "a number is compared with text"),
    ("[?index < `4` && 'A' <= name].{a: index >= name} | [?a < `2`]", 41, "a number is compared with text"),
    ("[?index < `4`].[index, uuid < `2`]", 29, "a number is compared with text"),
    ("[?contains(name, `4`)]", 3, "written in single quotes"),
    ("[::0]", 4, "the step of a slice cannot be 0"),
    ("[].name[1:0:0]", 13, "the step of a slice cannot be 0"),
    ("ceil(`1e400`)", 1, "In function ceil(), cannot convert float infinity"),
    ("values(@)", 1, "invalid type for value: [{"),
]


@pytest.mark.parametrize(("query", "position", "reason"), FAULTS)
def test_a_wrong_expression_names_its_position(query: str, position: int, reason: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        select_gpus([H200, T4], query)
    first, line, mark = str(caught.value).splitlines()
    assert first.startswith(f"wrong GPU query at position {position}: ")
    assert reason in first
    assert line == f"  {query}"
    assert mark == " " * (position + 1) + "^"


@pytest.mark.parametrize("query", ["[" * 3000, "(" * 3000 + "@" + ")" * 3000, "!" * 5000 + "@", "[?" * 3000])
def test_an_expression_that_is_nested_too_deeply_is_no_error_of_python(query: str) -> None:
    with pytest.raises(
        AnsibleFilterError, match=r"^wrong GPU query at position [0-9]+: it is nested too deeply"
    ) as caught:
        select_gpus([H200], query)
    assert len(str(caught.value)) < 400


def test_a_message_has_no_more_than_the_beginning_of_a_value() -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        select_gpus([{**H200, "index": number} for number in range(1000)], "values(@)")
    assert len(str(caught.value)) < 300
    assert select_gpus([H200, T4], "[1:0:-1].index") == [0]


def test_the_line_of_a_long_expression_is_shown() -> None:
    with pytest.raises(AnsibleFilterError, match=r"position 21: .*\n    && &\]\n        \^"):
        select_gpus([H200], "[?mig_capable\n  && &]")


@pytest.mark.parametrize("data", [7, "text", None, {"a": 1}])
def test_other_data_is_refused(data: Any) -> None:
    with pytest.raises(AnsibleFilterError, match=r"takes a list of GPUs.*but got"):
        select_gpus(data, "[]")


# Facts with null values, and what the message names.
NULLS: list[tuple[Any, str]] = [
    (None, "but got NoneType; have the facts been gathered"),
    ({"gpus": None}, "but got NoneType as gpus"),
    ({"nvidia_smi": None}, "but got NoneType as nvidia_smi"),
    ({"ansible_facts": None}, "but got NoneType as ansible_facts"),
    ({"ansible_facts": {"nvidia_smi": {"gpus": None}}}, "but got NoneType as gpus"),
    ({"a": host_with(H200), "b": {"ansible_facts": None}}, "ansible_facts of host b is null"),
    ({"b": {"ansible_facts": {"nvidia_smi": None}}}, "nvidia_smi of host b is null"),
    ({"b": {"ansible_facts": {"nvidia_smi": {"gpus": None}}}}, "gpus of host b is null"),
    ({"b": {"ansible_facts": {"nvidia_smi": "text"}}}, "nvidia_smi of host b is of type str"),
]


@pytest.mark.parametrize(("data", "part"), NULLS)
def test_null_facts_are_named(data: Any, part: str) -> None:
    with pytest.raises(AnsibleFilterError, match=part):
        select_gpus(data, "[]")


@pytest.mark.parametrize("query", [None, 7, ["[]"]])
def test_a_query_that_is_no_text(query: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="takes its query as a string, but got"):
        select_gpus([H200], query)
    with pytest.raises(AnsibleFilterError, match="takes its query as a string, but got"):
        select_gpus([H200])


# Query, position of the wrong name (from 1), and the hint.
NAMES = [
    ('[?name == "NVIDIA H200"].uuid', 11, "a string is written in single quotes: 'NVIDIA H200'"),
    ("[?memory_total_mib == None].uuid", 23, "in backticks: `null`"),
    ("[?mig_capable == True].uuid", 18, "in backticks: `true`"),
    ("[?mig_capable == false].uuid", 18, "in backticks: `false`"),
    ("[?memory_total > `40000`].uuid", 3, "do you mean memory_total_mib"),
    ("[].uid", 4, "do you mean uuid"),
    ("[?ecc_mode == 'enabled'].uuid", 3, "ecc_mode_current"),
    ("[].{host: host, model: naem}", 24, "do you mean name"),
    ("sort_by(@, &pci_busid)[].name", 13, "pci_bus_id"),
    ("[?starts_with(product, 'T')]", 15, "product is not a reading of a GPU"),
    ("[].mig_devices[].profil", 18, "do you mean profile"),
]


@pytest.mark.parametrize(("query", "position", "reason"), NAMES)
def test_a_name_that_no_gpu_has_is_refused(query: str, position: int, reason: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        select_gpus([H200, T4], query)
    first, line, mark = str(caught.value).splitlines()
    assert first.startswith(f"wrong GPU query at position {position}: ")
    assert reason in first
    assert (line, mark) == (f"  {query}", " " * (position + 1) + "^")


# Valid names that the given GPUs do not have.
RIGHT = [
    "[?power_limit_w > `300`].uuid",
    '[]."uuid"',
    "[].unknown.fan_speed_percent",
    '[].unknown."mig_devices.0.uuid"',
    '[].other."optical_links/active"',
    "[].nvlinks[].speed_gb_per_second",
    "[].gpu_instances[].compute_instances[].profile_id",
    "[].processes[?memory_used_mib > `1`].pid[]",
    "[].ecc_errors_volatile.uncorrected_total",
    "[].{a: name, b: uuid}[?a == 'x'].b",
    "[?name == null]",
]


@pytest.mark.parametrize("query", RIGHT)
def test_a_reading_that_was_not_gathered_is_none_that_is_wrong(query: str) -> None:
    select_gpus([H200, T4], query)
    select_gpus([{**H200, "site": "north"}], "[?site == 'north'].uuid")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JMESPATH_MISSING", ImportError("no jmespath"))
    with pytest.raises(
        AnsibleFilterError, match="needs the Python library jmespath on the controller: pip install jmespath"
    ):
        select_gpus([], "[]")


def test_in_templates_with_hostvars_and_the_documented_examples(tmp_path: Path) -> None:
    """Real templating has its own types for strings, lists and hostvars."""
    examples = yaml.safe_load(module.EXAMPLES)
    gpu = {**H200, "ecc_mode_current": "enabled", "ecc_mode_pending": "disabled"}
    inventory = {"all": {"hosts": {"a": {"given": {"nvidia_smi": {"gpus": [gpu]}}}, "b": {"given": {}}}}}
    (tmp_path / "inventory.yml").write_text(json.dumps(inventory))
    tasks = [
        {
            "ansible.builtin.set_fact": {"nvidia_smi": "{{ given.nvidia_smi }}", "cacheable": True},
            "when": "given | length > 0",
        }
    ]
    play = {"hosts": "all", "gather_facts": False, "tasks": tasks + [{**task, "run_once": True} for task in examples]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal",
        # Not the configuration of the test run: its callbacks would print next to the results.
        "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "HOME": str(tmp_path),
    }
    (tmp_path / "ansible.cfg").touch()
    command = [sys.executable, "-m", "ansible", "playbook", "-c", "local", "-i", "inventory.yml", "play.yml"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    message = [json.loads(part.split("=> ", 1)[1])["msg"] for part in done.stdout.split("\na | ") if '"msg"' in part]
    assert message == [["GPU-1"], [["a", 0]], [{"host": "a", "name": "NVIDIA H200"}]]
