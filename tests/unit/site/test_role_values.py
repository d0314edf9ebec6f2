# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan of a host evaluates, against Ansible's own evaluation of the same variables."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._role_files import RoleFiles

from tests.conftest import COLLECTIONS
from tests.unit.site.converged import WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import DEBIAN_12, NO_GPU, MockHost

ROCKY_9: Mapping[str, Any] = {
    **DEBIAN_12,
    "ansible_distribution": "Rocky",
    "ansible_distribution_version": "9.6",
    "ansible_distribution_major_version": "9",
    "ansible_distribution_release": "Blue Onyx",
    "ansible_os_family": "RedHat",
    "ansible_kernel": "5.14.0-570.el9.x86_64",
}

# In a process of its own, in which Ansible finds the collection's filters.
_PROGRAM = """
import json, sys
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar

init_plugin_loader([sys.argv[1]])
from ansible_collections.gpu.fleet.plugins.action.host_facts import _COMPILED, _FILES
from ansible_collections.gpu.fleet.plugins.plugin_utils._role_values import CompiledVariables

def outcome(evaluate, name):
    try:
        return evaluate(name)
    except AnsibleError:
        return "an error"

def differences(known):
    ours = _COMPILED.of_host(known, {}.__getitem__)
    variables = {**_FILES.variables(), **known}
    templar = Templar(DataLoader(), variables=variables)
    theirs = lambda name: templar.template(variables[name])
    found = {name: (outcome(ours.value, name), outcome(theirs, name)) for name in variables if name in ours}
    return len(found), {name: list(map(repr, both)) for name, both in found.items() if both[0] != both[1]}

def small(text):
    known = {"items": [{"name": "a"}], "nothing": None}
    compiled = CompiledVariables({"it": text, "inner": "{{ missing.part }}", "broken": "{{ 1 // 0 }}"}, ["it"])
    return outcome(compiled.of_host(known, {"given": "{{ text }}"}.__getitem__).value, "it")

given = json.load(sys.stdin)
json.dump({"hosts": list(map(differences, given["hosts"])), "small": list(map(small, given["small"]))}, sys.stdout)
"""

SMALL: list[tuple[Any, Any]] = [
    ("plain", "plain"),
    ("{{ nothing }}", None),
    ("{{ given }}", "{{ text }}"),
    ("{{ items | map(attribute='name') }}", ["a"]),
    ("{{ {1: 2}.keys() }}", [1]),
    ("a{{ 1 }}b", "a1b"),
    ("{{ '1' }}", "1"),
    ("{{ 'x' | regex_replace('(x)', '\\1\\1') }}", "xx"),
    (["{{ 1 }}", {"a": "{{ [2] }}"}], [1, {"a": [2]}]),
    # A variable that is not needed may be impossible.
    ("{{ 1 if items else inner + broken }}", 1),
    ("{{ inner | default(3) }}", 3),
    ("{{ inner.more | length | default(3) }}", 3),
    ("{{ inner }}", "an error"),
    # No default hides an error.
    ("{{ broken | default(3) }}", "an error"),
    ("{{ it }}", "an error"),
]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    host = converged(WITHOUT_CONTAINER)
    hosts = [host, MockHost(), MockHost(system=ROCKY_9, nvidia_smi=NO_GPU), replace(host, records={})]
    known = []
    for one in hosts:
        facts = one.modules()["host_facts"]["ansible_facts"]
        system = {name.removeprefix("ansible_"): value for name, value in one.system.items()}
        known.append({"ansible_check_mode": False, "ansible_facts": {**system, **facts}})
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(COLLECTIONS)],
        input=json.dumps({"hosts": known, "small": [text for text, _expected in SMALL]}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_every_variable_of_a_plan_has_the_value_that_it_has_in_a_role(found: dict[str, Any]) -> None:
    for count, differences in found["hosts"]:
        assert count > 20
        assert differences == {}


@pytest.mark.parametrize("number", range(len(SMALL)))
def test_templates_are_evaluated_as_by_ansible(found: dict[str, Any], number: int) -> None:
    text, expected = SMALL[number]
    assert found["small"][number] == expected, text


def test_the_options_of_gpu_state_depend_on_no_fact() -> None:
    """So that the run which reads the facts of a host can predict its GPU state."""
    files = RoleFiles.read()
    variables, due, known = files.variables(), ["__gpu_state_arguments"], set()
    while due:
        name = due.pop()
        known.add(name)
        text = str(variables[name])
        assert "ansible_facts" not in text, f"{name}: {text}"
        due += [word for word in re.findall(r"\w+", text) if word in variables and word not in known]
    assert {"gpu_state_power_limit", "__gpu_state_reboot"} <= known
