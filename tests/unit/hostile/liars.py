# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that lie: whatever module Ansible starts on them, their Python returns what they choose.

What a lie is to bring the controller to run, include, read or write is in one directory, the trap. A controller that
falls for it leaves a trace there.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import public_names
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import needs_of

from tests.conftest import ROOT
from tests.unit.site.known import read
from tests.unit.site.mock_host import MockHost

_PROGRAM = r"""#!{python} -IS
import json, re, sys
payload = open(sys.argv[-1]).read() if len(sys.argv) > 1 else sys.stdin.read()
module = re.search(r"(?:ansible_module|mod_name)='([a-z0-9_.]+)'", payload)[1].rpartition(".")[2]
with open({log!r}, "a+") as log:
    log.seek(0)
    is_honest = len(log.readlines()) < {honest_modules}
    log.write(module + "\n")
replies = json.load(open({replies!r}))["honest" if is_honest else "lies"]
print(replies.get(module, replies["*"]))
"""
_LARGEST_KIB = 10 << 10
# More than Python's parser of JSON follows; and as many as it follows, but not each that copies what it has read.
_LEVELS, _LEVELS_OF_JSON = 20_000, 450


@dataclass(frozen=True)
class Trap:
    """A directory with what a controller must not run, include, read or write by a host's word."""

    directory: Path

    @property
    def program(self) -> Path:
        return self.directory / "run"

    @property
    def tasks(self) -> Path:
        return self.directory / "tasks.yml"

    @property
    def written(self) -> Path:
        return self.directory / "written"

    def set(self) -> Trap:
        """Make it."""
        self.written.mkdir(parents=True)
        # Arguments and input do not matter: whoever runs it leaves the trace.
        self.program.write_text(f"#!/bin/sh\necho run >> {self.directory}/sprung\n")
        self.program.chmod(0o755)
        task = {"ansible.builtin.command": {"argv": [str(self.program)]}, "delegate_to": "localhost", "become": False}
        self.tasks.write_text(yaml.safe_dump([{"name": "Run what a host has named", **task}]))
        return self

    def found(self) -> list[str]:
        """What has come into it."""
        own = {self.program, self.tasks, self.written}
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path not in own)


def aimed(trap: Trap) -> dict[str, Any]:
    """The few variables with which a run goes on, until the controller runs and writes what the host has named."""
    commands = {action: [str(trap.program)] for action in ("drain", "wait", "return")}
    written = ("gpu_health_json", "gpu_fleet_evidence_fetch_to", "gpu_fleet_report_dir", "gpu_fleet_upgrade_directory")
    return {
        "gpu_fleet_upgrade_scheduler": "commands",
        "gpu_fleet_upgrade_commands": commands,
        "__upgrade_commands": commands,
        "gpu_fleet_upgrade_hooks": {"before_drain": [str(trap.tasks)]},
        **{name: str(trap.written) for name in written},
        "gpu_fleet_result_file": str(trap.written / "run.json"),
        # Of roles in a playbook of others.
        **{name: [str(trap.tasks)] for name in ("gpu_state_hooks_before", "gpu_state_hooks_after")},
        **dict.fromkeys(("kubernetes_node_api_host", "slurm_gres_controller"), "localhost"),
        "backend_ai_agent_requirements": str(trap.program),
    }


def variables(trap: Trap) -> dict[str, Any]:
    """A value for every variable of the collection, public and private, by which the controller would run or write."""
    names = {*public_names().names}
    for path in (*(ROOT / "playbooks").rglob("*.yml"), *(ROOT / "roles").rglob("*.yml")):
        names |= set(re.findall(r"\b(?:__[a-z]\w+|gpu_fleet_\w+|[a-z]+(?:_[a-z0-9]+)+)\b", path.read_text()))
    argv = [str(trap.program)]
    actions = ("drain", "wait", "force", "return", "fail", "check")
    steps = ("drain", "change", "health", "return")
    hooks = {f"{when}_{step}": [str(trap.tasks)] for when in ("before", "after") for step in steps}
    known = {
        "gpu_fleet_upgrade_scheduler": "commands",
        "__upgrade_scheduler": "commands",
        **dict.fromkeys(("gpu_fleet_upgrade_commands", "__upgrade_commands"), dict.fromkeys(actions, argv)),
        **dict.fromkeys(("gpu_fleet_upgrade_hooks", "__upgrade_hooks"), hooks),
        **{name: [str(trap.tasks)] for name in ("gpu_state_hooks_before", "gpu_state_hooks_after")},
        **{name: str(trap.written) for name in names if re.search("_(dir|directory|json|junit|to|file|path)$", name)},
        "gpu_fleet_upgrade_slurm_host": "localhost",
        **dict.fromkeys(("kubernetes_node_api_host", "slurm_gres_controller"), "localhost"),
    }
    private = {name: str(trap.tasks) for name in names if name.startswith("__")}
    public = dict.fromkeys(public_names().names, str(trap.written))
    # What ansible-core takes of a connection that it runs on the controller, and what it names hosts and files by.
    of_ansible = {
        **dict.fromkeys(("ansible_sftp_executable", "ansible_scp_executable"), str(trap.program)),
        **dict.fromkeys(("ansible_control_path_dir", "ansible_remote_tmp", "omit"), str(trap.written)),
        **dict.fromkeys(("inventory_hostname", "inventory_hostname_short"), "../../trap/planted"),
    }
    return {**public, **private, **known, **of_ansible}


def _each_string(value: Any, change: Callable[[str], Any]) -> Any:
    """The value with every text of it changed."""
    if isinstance(value, Mapping):
        return {name: _each_string(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [_each_string(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _lies(trap: Trap, kib: int) -> dict[str, Callable[[Any, Mapping[str, Any]], str]]:
    """By name: what such a host makes of the honest result of a module; the reply is text, which need not be JSON."""
    given = variables(trap)
    evil = f"x\n1|RUNNING|root\x1b]0;owned\x07\x1b[2J{{{{ lookup('ansible.builtin.pipe', '{trap.program}') }}}}"
    path = f"../../../../../../../..{trap.tasks.with_suffix('')}"

    def facts(result: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        return {**result, "ansible_facts": {**result.get("ansible_facts", {}), **more}}

    def named(result: Mapping[str, Any]) -> dict[str, Any]:
        return facts(result, {**given, "ansible_facts": given, "discovered_interpreter_python": str(trap.program)})

    # Keys by which actions of the controller, and only they, direct Ansible.
    control = {
        "add_host": {"host_name": "planted", "groups": ["gpu_fleet_upgrade"], "host_vars": given},
        "add_group": "gpu_fleet_upgrade",
        "_ansible_notify": ["x"],
        "_ansible_facts_cacheable": True,
        "_ansible_delegated_vars": {"ansible_host": "localhost", **given},
        "invocation": {"module_args": given},
        "exception": evil,
        "warnings": [evil, {}, 7],
        "ansible_stats": {"data": given, "per_host": False},
    }
    nested: Any = evil
    for _level in range(_LEVELS_OF_JSON):
        nested = {"x": [nested]}
    evidence = {"directory": f"{trap.directory}/..", "files": ["../written", "/../../written", evil]}
    # What many hosts are decided by: findings without a row, a domain, links and GPUs that nothing can have.
    findings = {
        **{"verdict": "fail", "remedy": "reboot", "gpus": [5], "tests": [{"name": "nccl", "evidence": [evil]}]},
        **{"findings": [{"verdict": "fail", "remedy": "reboot", "message": evil, "gpu": None}], "evidence": evidence},
    }
    gpu = {
        **{"index": 0, "name": "NVIDIA GB200", "uuid": "GPU-0", "pci_bus_id": "0", "mig_mode_current": "disabled"},
        **{"fabric_cluster_uuid": "1a7e1f0c-0000-4000-8000-0123456789ab", "fabric_clique_id": 10**400},
        **{"pci_link_width_current": 10**400, "nvlinks": [{"active": True, "speed_gb_per_second": 10**400}]},
    }
    imex = {"installed": True, "nodes_not_ready": [1], "domain_status": "DOWN", "channels": 10**400}

    def in_a_domain(result: Mapping[str, Any], system: Mapping[str, Any]) -> str:
        given = {**result.get("ansible_facts", {}), **system}
        smi, cuda = given.get("nvidia_smi", {}), given.get("cuda", {})
        given["nvidia_smi"] = {**smi, "gpus": [{**each, **gpu} for each in smi.get("gpus", ())] * 2000 or [gpu]}
        given["cuda"] = {**cuda, "services": {**cuda.get("services", {}), "imex": imex}}
        nics = [{"rdma": True, "up": True, "speed_gb_per_second": 10**400}]
        return json.dumps({**result, "ansible_facts": given, "host": {"nics": nics, "gpus": [5], "imex": imex}})

    return {
        "aimed": lambda result, system: json.dumps(facts(result, aimed(trap))),
        "variables": lambda result, system: json.dumps(named(result)),
        "control": lambda result, system: json.dumps({**named(result), **control}),
        "surrogates": lambda result, system: json.dumps(
            facts(_each_string(result, lambda string: string + "\ud800"), system)
        ),
        "strings": lambda result, system: json.dumps(
            facts(_each_string({**result, "evidence": evidence}, lambda _: evil), system)
        ),
        "paths": lambda result, system: json.dumps(
            facts(_each_string({**result, "evidence": evidence}, lambda _: path), system)
        ),
        "types": lambda result, system: json.dumps(
            facts(_each_string(result, lambda string: [{string: 10**400}]), system)
        ),
        "large": lambda result, system: json.dumps({**facts(result, {"large": "x" * (kib << 10)}), "msg": evil}),
        "deep": lambda result, system: (
            '{"changed": false, "ansible_facts": {"deep": ' + '{"x":' * _LEVELS + "1" + "}" * _LEVELS + "}}"
        ),
        "nested": lambda result, system: json.dumps(facts(result, {**system, "nested": nested})),
        "findings": lambda result, system: json.dumps(facts({**result, **findings}, system)),
        "domain": in_a_domain,
        "failing": lambda result, system: json.dumps(
            {"failed": True, "msg": evil, "module_stderr": evil, "jobs": [{"id": evil}]}
        ),
        "no_json": lambda result, system: f"\x1b[2J{evil.encode('unicode_escape').decode()} {path}",
        "list": lambda result, system: json.dumps([evil, given]),
    }


def kinds() -> tuple[str, ...]:
    """The names of the lies."""
    return tuple(_lies(Trap(Path("/trap")), 1))


def liar(
    directory: Path, kind: str, honest: MockHost, trap: Trap, *, kib: int = _LARGEST_KIB, honest_modules: int = 0
) -> dict[str, Any]:
    """The variables of a host that replies to every module with this lie, made in a new directory.

    The largest results have this size. To so many modules it replies as the honest host before.
    """
    directory.mkdir()
    lie = _lies(trap, kib)[kind]
    program, replies = directory / "python3", directory / "replies.json"
    results = {"*": {"changed": False, "rc": 0, "stdout": "x", "stderr": "x", "content": "eA==", "encoding": "base64"}}
    for name, result in honest.modules().items():
        results[name] = {**results["*"], **(result[-1] if isinstance(result, list) else result)}
    # What the roles of these playbooks ask for besides facts.
    results["host_facts"] = {**results.get("host_facts", {}), "readings": read(needs_of(("docker",), {}))}
    # A file of its own choice, wherever the controller fetches one.
    fetched = {"slurp": {**results["*"], "source": "/x"}, "stat": {"stat": {"exists": True, "isdir": False}}}
    named = fetched if kind == "variables" else {}
    lies = {name: lie(result, honest.system) for name, result in {**results, **named}.items()}
    replies.write_text(
        json.dumps({"lies": lies, "honest": {name: json.dumps(result) for name, result in results.items()}})
    )
    paths = {"log": str(directory / "modules"), "replies": str(replies)}
    program.write_text(_PROGRAM.format(python=os.path.realpath(sys.executable), honest_modules=honest_modules, **paths))
    program.chmod(0o755)
    return {"ansible_connection": "local", "ansible_python_interpreter": str(program)}
