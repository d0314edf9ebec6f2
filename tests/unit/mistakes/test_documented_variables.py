# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each block of the guides that declares variables, as a user declares them: for a group of hosts, and by `-e @file`.

What comes from the command line is above what a playbook sets itself, and templates are evaluated where the playbook
reads them. Mock hosts, so that a run ends where a role would begin; what is shown is that everything before accepts it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import public_names
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import ROLES
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.variable_names import GIVEN

from tests.checks.tools import project_files
from tests.conftest import ROOT
from tests.unit.site.converged import CUDA, NVIDIA_SMI, PACKAGES, STATE
from tests.unit.site.mock_host import MockHost, SiteRun, run_site

pytestmark = pytest.mark.plays
NAMES = public_names().names
SHA256 = "5" * 64
OF_THE_READER: Mapping[str, Any] = {
    **dict.fromkeys(("vault_backend_ai_etcd_password", "vault_mok_password", "vault_ngc_api_key"), "a secret"),
    **dict.fromkeys(("vault_proxy_password", "vault_registry_password"), "another secret"),
    "the_checksum_that_nvidia_publishes": SHA256,
    "rack": "r1",
    "nvlink_domain": "all",
    "ansible_host": "10.0.0.7",
    "backend_ai_agent_version": "26.9.6",
    "backend_ai_agent_address": "10.0.0.7",
    "backend_ai_agent_etcd_addresses": ["etcd1:2379"],
}
"""Variables that the guides expect the reader to have."""
FILES = {
    "mig-parted.yaml": "version: v1\nmig-configs:\n  all-balanced:\n  - {devices: all, mig-enabled: false}\n",
    "ca.crt": "a certificate",
    "files/container-toolkit.asc": "-----BEGIN PGP PUBLIC KEY BLOCK-----",
    "files/deploy_key": "a key",
}
ELSEWHERE = (
    # What the mock host has no result of, and what only another host has: reached after everything was read.
    "the mock host has no result of",
    "gpu_fleet_expected_gpus is 8",
    "docker-ce would remove",
    "there is no GPU or MIG device ",
    "which this node does not have",
    "not by this role, and does not fit: version",
    "Could not find or access '/etc/gpu-fleet/kubeconfig'",
)


@dataclass(frozen=True)
class Block:
    """A block: its name, its variables, and its text as it is in the page."""

    name: str
    variables: Mapping[str, Any]

    @property
    def playbook(self) -> str:
        """The playbook that reads it."""
        for prefix, playbook in (("gpu_fleet_upgrade_", "upgrade"), ("gpu_fleet_pull_", "pull")):
            if any(name.startswith(prefix) for name in self.variables):
                return playbook
        return "site"


def _blocks() -> Iterator[Block]:
    for path in project_files(".md"):
        text = (ROOT / path).read_text(encoding="utf-8")
        for found in re.finditer(r"^( *)```ya?ml\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
            try:
                value = yaml.safe_load(re.sub(rf"^{found[1]}", "", found[2], flags=re.MULTILINE))
            except yaml.YAMLError:
                continue
            line = text[: found.start()].count("\n") + 1
            if isinstance(value, dict) and {*value} & NAMES - {*GIVEN}:
                yield Block(f"{path.as_posix().replace('/', '-').removesuffix('.md')}-{line}", value)


BLOCKS = list(_blocks())
PULLED = next(block.variables for block in BLOCKS if block.playbook == "pull")
"""The first block of that page, which the others go with."""


def _given(block: Block) -> dict[str, Any]:
    """The variables of a block, and the roles that read them."""
    of = [role for role in ROLES if any(name.startswith(f"{role}_") for name in block.variables)]
    repositories = any(name.startswith("nvidia_repository_") for name in block.variables)
    roles = [*(["nvidia_driver", "nvidia_container_toolkit"] if repositories else []), *of] or ["gpu_state"]
    return {"gpu_fleet_roles": list(dict.fromkeys(roles)), **block.variables}


def _host() -> MockHost:
    state = {**STATE, "changed": False}
    packages = {**PACKAGES, "containerd": "1.7.24", "podman": "5.4.2", "cri-o": "1.33.1"}
    return MockHost(nvidia_smi=NVIDIA_SMI, cuda=CUDA, packages=packages, results={"gpu_state": state})


def _run(directory: Path, playbook: str, hosts: Mapping[str, Mapping[str, Any]], *arguments: str) -> SiteRun:
    for name, content in FILES.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(content)
    path = ROOT / "playbooks" / f"{playbook}.yml"
    if playbook == "site":
        # What comes before the roles.
        path = directory / "observe.json"
        task = {"name": "Observe", "ansible.builtin.import_tasks": str(ROOT / "playbooks" / "tasks" / "observe.yml")}
        path.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    (directory / "groups.ini").write_text("[slurm]\n[rack7]\n")
    own = {"gpu_fleet_upgrade_directory": str(directory / "upgrade"), **(PULLED if playbook == "pull" else {})}
    mocks = {name: (_host(), {**OF_THE_READER, **own, **given}) for name, given in hosts.items()}
    return run_site(directory, mocks, "--check", "-i", str(directory / "groups.ini"), *arguments, playbook=path)


@pytest.fixture(scope="module")
def for_hosts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that runs the playbook of a block once, with a host for each of its blocks."""

    @cache
    def run_all(playbook: str) -> SiteRun:
        found = {block.name: _given(block) for block in BLOCKS if block.playbook == playbook}
        return _run(tmp_path_factory.mktemp("documented"), playbook, found)

    def run(block: Block) -> SiteRun:
        if block.playbook != "upgrade":
            return run_all(block.playbook)
        # The variables of an upgrade are those of its first host.
        return _run(tmp_path_factory.mktemp("documented"), "upgrade", {block.name: _given(block)})

    return run


def _is_accepted(done: SiteRun, host: str) -> bool:
    failure = done.failure(host)
    return (f"{host} " in done.output or f"[{host}]" in done.output) and (
        not failure or any(text in failure for text in ELSEWHERE)
    )


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_block_is_accepted_for_a_group(block: Block, for_hosts: Any) -> None:
    done = for_hosts(block)
    assert _is_accepted(done, block.name), done.failure(block.name) or done.output[-3000:]


def _together() -> list[list[Block]]:
    """Blocks of one playbook that set no variable twice, so that one file may have all of them."""
    packs: list[list[Block]] = []
    for block in BLOCKS:
        for pack in packs:
            taken = {name for other in pack for name in _given(other)}
            if pack[0].playbook == block.playbook and not taken & {*block.variables}:
                pack.append(block)
                break
        else:
            packs.append([block])
    return packs


@pytest.mark.parametrize("pack", _together(), ids=lambda pack: "+".join(block.name for block in pack)[:60])
def test_blocks_are_accepted_from_a_file_of_the_command_line(pack: list[Block], tmp_path: Path) -> None:
    given = {name: value for block in pack for name, value in block.variables.items()}
    given.setdefault("gpu_fleet_roles", [role for role in ROLES if any(n.startswith(f"{role}_") for n in given)])
    (tmp_path / "variables.yml").write_text(yaml.safe_dump(given))
    done = _run(tmp_path, pack[0].playbook, {"node": {}}, "-e", f"@{tmp_path / 'variables.yml'}")
    assert _is_accepted(done, "node"), done.failure("node") or done.output[-3000:]


def test_the_guides_have_blocks_for_each_of_the_playbooks() -> None:
    assert {block.playbook for block in BLOCKS} == {"site", "upgrade", "pull"}
    assert len(BLOCKS) > 40
