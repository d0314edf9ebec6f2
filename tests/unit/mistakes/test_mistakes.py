# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes of mistakes.yml: the message to each, and that nothing was changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.unit.mistakes.mistaken_hosts import HOSTS
from tests.unit.site.mock_host import SiteRun, run_site

pytestmark = pytest.mark.plays
READING = {
    "host_facts",
    "setup",
    "command",
    "nvidia_smi_facts",
    "report_facts",
    "cuda_facts",
    "managed_facts",
    "gpu_health",
}
"""Modules that change no host."""
MESSAGE_LENGTH = 1000


@dataclass(frozen=True)
class Mistake:
    """A row of the file."""

    mistake: str
    message: str
    playbook: str = "site"
    host: str = "bare"
    variables: Mapping[str, Any] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its host."""
        return re.sub(r"[^a-z0-9]+", "-", self.mistake.lower())

    @property
    def run(self) -> tuple[object, ...]:
        """What hosts of one run of ansible-playbook share."""
        return (self.playbook, *self.arguments, *sorted(self.env.items()))


MISTAKES = [Mistake(**row) for row in yaml.safe_load(Path(__file__).with_name("mistakes.yml").read_text("utf-8"))]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that runs the playbook of a mistake once, on the hosts of all mistakes of that run."""

    @cache
    def run(shared: tuple[object, ...]) -> SiteRun:
        rows = [row for row in MISTAKES if row.run == shared]
        hosts = {row.name: (HOSTS[row.host], row.variables) for row in rows}
        playbook = ROOT / "playbooks" / f"{rows[0].playbook}.yml"
        directory = tmp_path_factory.mktemp("mistakes")
        return run_site(directory, hosts, *rows[0].arguments, playbook=playbook, env=rows[0].env)

    return run


@pytest.mark.parametrize("row", MISTAKES, ids=lambda row: row.name)
def test_the_message_is_right_and_nothing_changes(row: Mistake, runs: Any) -> None:
    done = runs(row.run)
    message = done.failure(row.name).removeprefix(f"{row.name}: ")
    expected = ".*".join(re.escape(part) for part in re.split(r" ?\.\.\. ?", row.message))
    assert re.fullmatch(expected, message, re.DOTALL), f"{message}\n{done.output[-3000:]}"
    assert len(message) < MESSAGE_LENGTH
    assert set(done.modules[row.name]) <= READING
    assert "changed=0" in done.recap(row.name)


def test_each_mistake_has_a_host_of_its_own() -> None:
    names = [row.name for row in MISTAKES]
    assert len(set(names)) == len(names)


def test_a_role_in_a_playbook_of_others_warns_of_a_misspelled_name_once(tmp_path: Path) -> None:
    """What begins each role where no playbook of ours has read the facts."""
    playbook = tmp_path / "playbook.json"
    task = {"name": "Read the facts", "gpu.fleet.host_facts": {}}
    playbook.write_text(f"[{{'hosts': 'all', 'gather_facts': false, 'tasks': [{task}]}}]".replace("'", '"'))
    mistaken: dict[str, Any] = {"docker_sate": "absent"}
    hosts: dict[str, dict[str, Any]] = {
        "one": mistaken,
        "two": mistaken,
        "lax": {"nvidia_driver_branch": "580", "gpu_fleet_strict_variables": False},
    }
    done = run_site(tmp_path, {name: (HOSTS["bare"], given) for name, given in hosts.items()}, playbook=playbook)
    assert done.rc == 0, done.output
    assert done.output.count("gpu.fleet has no variable docker_sate (for docker_state?)") == 1
    assert "nvidia_driver_branch" not in done.output


def test_there_are_more_than_a_hundred() -> None:
    assert len(MISTAKES) > 100


def test_a_refused_role_of_others_playbooks_prints_no_facts(tmp_path: Path) -> None:
    playbook = tmp_path / "playbook.json"
    playbook.write_text('[{"hosts": "all", "gather_facts": false, "roles": ["gpu.fleet.gpu_containers"]}]')
    mistaken = {"gpu_containers_declared": [{"name": "hold", "image": "cuda", "gpus": 1}]}
    done = run_site(tmp_path, {"one": (HOSTS["converged"], mistaken)}, playbook=playbook)
    assert "one: gpu_containers_declared[0]: gpus is 1; it takes all, none, or a list" in done.failure("one")
    assert "ansible_facts" not in done.output and len(done.output) < 4_000
