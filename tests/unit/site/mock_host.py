# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for playbook/site.yml without any host: a mock Python that returns a fixed result for each module.

Nothing of a module runs, so that a role which should have been refused cannot change the machine of the tests. What the
mock was started for is in its log: the module runs of a play.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.unit.plays import NATIVE, ansible_playbook

_PROGRAM = r"""#!{python} -IS
import json, os, re, sys
payload = open(sys.argv[-1]).read() if len(sys.argv) > 1 else sys.stdin.read()
module = re.search(r"(?:ansible_module|mod_name)='([a-z0-9_.]+)'", payload)[1].rpartition(".")[2]
with open({log!r}, "a") as log:
    log.write(module + "\n")
results = json.load(open({results!r}))
predicted = module + " in check mode"
if predicted in results and re.search(r'"_ansible_check_mode": true', payload):
    module = predicted
if "GPU_FLEET_MOCK_LOG" in os.environ:
    import ast
    parameters = re.search("^(?:params=| +ANSIBALLZ_PARAMS = )(.*?),?$", payload, re.M)[1]
    arguments = json.loads(ast.literal_eval(parameters))["ANSIBLE_MODULE_ARGS"]
    if arguments.get("argv", [])[:2] == ["env", "LC_ALL=C.UTF-8"]:
        del arguments["argv"][:2]
    command = " ".join([module, *(arguments.get("argv") or ())[:2]])
    module = command if command in results else module
    with open(os.environ["GPU_FLEET_MOCK_LOG"], "a+") as log:
        log.seek(0)
        earlier = [line.split("\t")[0] for line in log].count(module)
        log.write(module + "\t" + json.dumps(arguments) + "\n")
    if isinstance(results.get(module), list):
        results[module] = results[module][min(earlier, len(results[module]) - 1)]
if module == "host_facts" and '"reads"' in payload and module in results:
    import ast
    parameters = re.search("^(?:params=| +ANSIBALLZ_PARAMS = )(.*?),?$", payload, re.M)[1]
    needed = json.loads(ast.literal_eval(parameters))["ANSIBLE_MODULE_ARGS"].get("reads") or dict(files=[], commands=[])
    printed = results.get("printed", {{}})
    results[module]["readings"] = dict(
        files={{path: None for path in needed["files"]}},
        commands=[
            dict(argv=argv, stdout=next((text for name, text in printed.items() if name in " ".join(argv)), ""))
            for argv in needed["commands"]
        ],
    )
if module in results:
    print(json.dumps(results[module]))
else:
    print(json.dumps({{"failed": True, "msg": "the mock host has no result of " + module}}))
"""

DEBIAN_12: Mapping[str, Any] = {
    "ansible_distribution": "Debian",
    "ansible_distribution_version": "12.11",
    "ansible_distribution_major_version": "12",
    "ansible_distribution_release": "bookworm",
    "ansible_os_family": "Debian",
    "ansible_architecture": "x86_64",
    "ansible_kernel": "6.1.0-38-amd64",
    "ansible_user_id": "root",
    "ansible_effective_user_id": 0,
}
H200: Mapping[str, Any] = {"pci_bus_id": "00000000:18:00.0", "vendor_id": "10de", "device_id": "2335", "name": "H200"}
NO_DRIVER: Mapping[str, Any] = {
    "available": False,
    "reason": "no_driver",
    "message": "nvidia-smi is not installed",
    "driver_version": None,
    "gpu_count": 0,
    "gpus": [],
    "pci_gpus": [H200, H200],
    "unhealthy": [],
    "warnings": [],
}
NO_GPU: Mapping[str, Any] = {**NO_DRIVER, "reason": "no_gpu", "pci_gpus": []}
NO_CUDA: Mapping[str, Any] = {
    "driver": dict.fromkeys(
        ("library_version", "module_version", "loaded_version", "module_kind", "loaded_kind", "library_path")
    )
    | {"loaded": False, "reboot_required": False},
    "toolkits": [],
    "container_toolkit": {"installed": False, "cdi_specifications": []},
    "services": {},
}

DIRECTORIES = ("/boot", "/var/cache", "/var/lib", "/usr", "/usr/local", "/etc", "/var/lib/docker")
ROOM: Mapping[str, Any] = {
    "mount": "/",
    "device": 2049,
    "available_mib": 100_000,
    "read_only": False,
    "free_inodes": 6_000_000,
}


PRINTED: Mapping[str, str] = {
    "sysctl": "user.max_user_namespaces = 96365\nkernel.unprivileged_userns_clone = 1\n",
    "slurmd -C": "NodeName=gpu1 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1",
    "slurmd -V": "slurm 24.11.5",
    "lscpu": "0,0,0\n1,1,0",
    "ensurepip": "3.13.5",
    "docker info": '{"runc": {}, "nvidia": {}}',
}
"""What commands that planners need print, by a part of the command, where no role refuses anything."""


@dataclass(frozen=True)
class MockHost:
    """What the modules find. `results` are those of further modules; one without a result fails.

    A module that is named there with ` in check mode` has another result in it. Where the environment has
    GPU_FLEET_MOCK_LOG, all hosts write their modules with the arguments to that file as well; then the first words of a
    command may be named too (`command slurmd -G`), and a list has the results of one call after another.
    """

    system: Mapping[str, Any] = field(default_factory=lambda: DEBIAN_12)
    nvidia_smi: Mapping[str, Any] = field(default_factory=lambda: NO_DRIVER)
    cuda: Mapping[str, Any] = field(default_factory=lambda: NO_CUDA)
    packages: Mapping[str, str] = field(default_factory=lambda: {"dpkg": "1.21.22"})
    records: Mapping[str, Any] = field(default_factory=dict)
    missing_users: Sequence[str] = ()
    # By their mounts.
    file_systems: Mapping[str, Any] = field(default_factory=lambda: {"/": ROOM})
    initramfs_mib: int = 72
    operator: Mapping[str, bool] = field(default_factory=dict)
    fabric: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)

    def modules(self) -> dict[str, Any]:
        """Results by module."""
        facts = {
            "packages": {name: [{"name": name, "version": version}] for name, version in self.packages.items()},
            "nvidia_smi": self.nvidia_smi,
            "nvlink_fabric": self.fabric,
            "cuda": self.cuda,
            "gpu_fleet_managed": self.records,
        }
        state = self.results.get("gpu_state in check mode", self.results.get("gpu_state"))
        return {
            "setup": {"ansible_facts": self.system},
            "ping": {"ping": "pong"},
            "host_facts": {
                "ansible_facts": {**self.system, **facts},
                "missing_users": list(self.missing_users),
                "file_systems": {
                    name: max(
                        (system for system in self.file_systems.values() if name.startswith(system["mount"])),
                        key=lambda system: len(system["mount"]),
                    )
                    for name in DIRECTORIES
                },
                "initramfs_mib": self.initramfs_mib,
                "gpu_operator": dict(self.operator),
                "prediction": state if self.nvidia_smi["available"] else None,
            },
            "printed": PRINTED,
            **self.results,
        }


@dataclass(frozen=True)
class SiteRun:
    """A run of the playbook: exit status, output, and the modules that ran by host."""

    rc: int
    output: str
    modules: Mapping[str, Sequence[str]]

    def recap(self, host: str) -> str:
        """The host's counts at the end."""
        return next(line.partition(":")[2] for line in self.output.splitlines() if re.match(rf"{host} +: ok=", line))

    def failure(self, host: str) -> str:
        """The message of the host's last failure, which may explain the one of a module before it."""
        own, delegated = f"fatal: [{host}]", f"fatal: [{host} -> "
        lines = [line for line in self.output.splitlines() if line.startswith((own, delegated))]
        message: str = json.loads(lines[-1].partition("=> ")[2])["msg"] if lines else ""
        return message


def run_site(
    directory: Path,
    hosts: Mapping[str, tuple[MockHost, Mapping[str, Any]]],
    *arguments: str,
    playbook: Path = ROOT / "playbooks" / "site.yml",
    env: Mapping[str, str] | None = None,
) -> SiteRun:
    """Run the playbook on mock hosts, each with its variables."""
    inventory = {name: {**mock_variables(directory / name, host), **given} for name, (host, given) in hosts.items()}
    (directory / "inventory.json").write_text(json.dumps({"all": {"hosts": inventory}}))
    (directory / "ansible.cfg").touch()
    done = ansible_playbook(
        *arguments,
        "-i",
        directory / "inventory.json",
        playbook,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_HOME": str(directory),
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
            "ANSIBLE_INJECT_FACT_VARS": "false",
            **NATIVE,
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_NOCOLOR": "1",
            **(env or {}),
        },
    )
    logs = {name: directory / name / "modules" for name in hosts}
    return SiteRun(
        done.returncode,
        done.stdout + done.stderr,
        {name: log.read_text().split() if log.exists() else [] for name, log in logs.items()},
    )


def mock_variables(directory: Path, host: MockHost) -> dict[str, Any]:
    """The variables by which Ansible takes a mock host in a new directory for a host."""
    directory.mkdir()
    results, program = directory / "results.json", directory / "python3"
    results.write_text(json.dumps(host.modules()))
    program.write_text(
        _PROGRAM.format(python=os.path.realpath(sys.executable), log=str(directory / "modules"), results=str(results))
    )
    program.chmod(0o755)
    return {"ansible_connection": "local", "ansible_python_interpreter": str(program)}
