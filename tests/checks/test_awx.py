# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX needs: the playbook through ansible-runner, by which AWX runs its jobs, and the files of examples/awx."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.checks.test_examples import role_options
from tests.checks.tools import CACHE, ROOT, VENV, check, environment, make_venv
from tests.unit.site.converged import WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import MockHost, mock_variables

EXAMPLES = ROOT / "examples"
RUNNER = "ansible-runner==2.4.3"


def _example(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / "awx" / name).read_text(encoding="utf-8"))


def test_site_runs_through_ansible_runner(tmp_path: Path) -> None:
    for name in ("project", "inventory", "env"):
        (tmp_path / name).mkdir()
    shutil.copy2(EXAMPLES / "ops-team" / "site.yml", tmp_path / "project")
    hosts = {
        "converged": {**mock_variables(tmp_path / "converged", converged(WITHOUT_CONTAINER)), **WITHOUT_CONTAINER},
        "refused": {**mock_variables(tmp_path / "refused", MockHost()), "docker_version": "latest"},
    }
    (tmp_path / "inventory" / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    variables = {"ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.fleet_table", "ANSIBLE_PIPELINING": "true"}
    (tmp_path / "env" / "envvars").write_text(json.dumps(variables))
    runner = make_venv(CACHE / "venv-runner", VENV / "bin" / "python", [RUNNER]) / "bin" / "ansible-runner"
    job: list[str | Path] = [runner, "run", tmp_path, "--playbook=site.yml", "--ident=job", "--cmdline=--check"]
    # It ends with 2, as the playbook does, because one of the hosts is refused.
    printed = check(["sh", "-c", '"$@"; test $? = 2', "sh", *job], env=environment())
    events = [json.loads(path.read_text()) for path in (tmp_path / "artifacts" / "job" / "job_events").glob("*.json")]
    (stats,) = [event["event_data"] for event in events if event["event"] == "playbook_on_stats"]
    assert (stats["changed"], stats["failures"], stats["dark"]) == ({}, {"refused": 1}, {}), printed
    assert stats["processed"] == {"converged": 1, "refused": 1}
    (failed,) = [event["event_data"]["res"]["msg"] for event in events if event["event"] == "runner_on_failed"]
    assert failed.startswith("refused: docker_version is latest; it has to be a version")
    rows = [line.split() for line in printed.splitlines()]
    assert ["refused", "failed"] in [[row[0], row[-1]] for row in rows if len(row) > 2]


def test_the_job_templates_have_playbooks_and_variables_that_exist() -> None:
    templates = _example("job_templates.yml")["controller_templates"]
    options: dict[str, Any] = role_options()
    for template in templates:
        assert (EXAMPLES / "ops-team" / template["playbook"]).is_file()
        for question in template.get("survey_spec", {}).get("spec", []):
            option = options[question["variable"]]
            assert set(question.get("choices", [])) <= set(option.get("choices", question.get("choices", [])))
            assert not question.get("choices") or question["default"] in question["choices"]
    assert {template["job_type"] for template in templates} == {"check", "run"}


def test_the_execution_environment_is_of_this_version_and_a_supported_ansible() -> None:
    definition = _example("execution-environment.yml")
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
    (collection,) = definition["dependencies"]["galaxy"]["collections"]
    assert (collection["name"], str(collection["version"])) == ("gpu.fleet", galaxy["version"])
    required = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))["requires_ansible"]
    lowest = required.removeprefix(">=").removesuffix(".0")
    assert definition["dependencies"]["ansible_core"]["package_pip"].startswith(f"ansible-core>={lowest},")
    assert definition["version"] == 3
