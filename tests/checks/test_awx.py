# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX needs: the execution environment, ansible-runner, by which AWX runs its jobs, and the files of examples/awx.

The image is not built. Its build context is made by ansible-builder, and the steps of that are carried out here: the
collections are installed as it requests, their Python packages are found by its own program, and playbooks run through
ansible-runner with just these. The base image and the packages of a distribution are not tried.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import read_variables

from tests.checks.test_examples import role_options
from tests.checks.tools import CACHE, COLLECTIONS, ROOT, VENV, check, environment, make_venv
from tests.unit.site.converged import WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import MockHost, mock_variables
from tests.unit.upgrade.test_upgrade_playbook import host as upgraded

EXAMPLES = ROOT / "examples"
BUILDER = "ansible-builder==3.2.0"
GALAXY_STEP = "ansible-galaxy collection install $ANSIBLE_GALAXY_CLI_COLLECTION_OPTS -r requirements.yml"


def _example(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / "awx" / name).read_text(encoding="utf-8"))


class Image(NamedTuple):
    """What the image has: `context` is what ansible-builder has made, `python` and `system` the packages that it found.

    The packages, Ansible and ansible-runner are in `venv`.
    """

    context: Path
    collections: Path
    python: list[str]
    system: list[str]
    venv: Path


@pytest.fixture(scope="module", name="image")
def _image(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The steps of the build context of the example, with the archive of the collection as its comment states."""
    directory = tmp_path_factory.mktemp("image")
    definition = _example("execution-environment.yml")
    definition["additional_build_files"] = [{"src": archive.name, "dest": "archives"}]
    definition["dependencies"]["galaxy"]["collections"] = [{"name": f"archives/{archive.name}", "type": "file"}]
    (directory / "execution-environment.yml").write_text(json.dumps(definition))
    shutil.copy2(archive, directory)
    context, collections = directory / "context", directory / "collections"
    builder = make_venv(CACHE / "venv-builder", VENV / "bin" / "python", [BUILDER]) / "bin"
    check([builder / "ansible-builder", "create", "--context", context], cwd=directory, env=environment())

    own = {**environment(), "ANSIBLE_COLLECTIONS_PATH": str(collections)}
    galaxy: list[str | Path] = [VENV / "bin" / "ansible-galaxy", "collection", "install", "--no-deps", "--offline"]
    check([*galaxy, "-r", "requirements.yml", "-p", collections], cwd=context / "_build", env=own)
    # What Galaxy would give as dependencies.
    (collections / "ansible_collections" / "community").symlink_to(COLLECTIONS / "ansible_collections" / "community")
    script = context / "_build" / "scripts" / "introspect.py"
    written = [f"--write-{name}={directory / name}" for name in ("pip", "bindep")]
    bindep = f"--user-bindep={context / '_build' / 'bindep.txt'}"
    check([builder / "python", script, "introspect", collections, bindep, *written], env=environment())
    python, system = ((directory / name).read_text().splitlines() for name in ("pip", "bindep"))
    packages = [line.partition("#")[0].strip() for line in python]
    # As the Containerfile installs them.
    refs = [definition["dependencies"][name]["package_pip"] for name in ("ansible_core", "ansible_runner")]
    venv = make_venv(CACHE / "venv-image", VENV / "bin" / "python", [*refs, *packages])
    return Image(context, collections, python, system, venv)


def test_the_build_context_has_what_the_definition_and_the_collections_name(image: Image) -> None:
    (containerfile,) = image.context.glob("*file")
    text = containerfile.read_text()
    definition = _example("execution-environment.yml")
    dependencies = definition["dependencies"]
    refs = f"{dependencies['ansible_core']['package_pip']} {dependencies['ansible_runner']['package_pip']}"
    assert f'ARG ANSIBLE_INSTALL_REFS="{refs}"' in text
    assert f'ARG EE_BASE_IMAGE="{definition["images"]["base_image"]["name"]}"' in text
    assert GALAXY_STEP in text and "introspect.py introspect" in text
    requested = [line for line in (ROOT / "meta" / "ee-requirements.txt").read_text().splitlines() if line[0] != "#"]
    found = [line.split("  # from collection ") for line in image.python]
    assert [name for name, collection in found if collection == "gpu.fleet"] == requested
    assert {collection for _name, collection in found} == {"gpu.fleet", "community.docker"}
    assert [line.partition("  #")[0] for line in image.system] == dependencies["system"]
    assert (image.collections / "ansible_collections" / "gpu" / "fleet" / "MANIFEST.json").is_file()


def _job(directory: Path, image: Image, playbook: str, hosts: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Run a playbook in check mode as a job of AWX; returns what was printed, and the events. It ends with 0 or 2."""
    for name in ("project", "inventory", "env"):
        (directory / name).mkdir()
    shutil.copy2(EXAMPLES / "ops-team" / playbook, directory / "project")
    (directory / "inventory" / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    variables = {
        "ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.fleet_table",
        "ANSIBLE_COLLECTIONS_PATH": str(image.collections),
        "ANSIBLE_INJECT_FACT_VARS": "false",
        "ANSIBLE_PIPELINING": "true",
    }
    (directory / "env" / "envvars").write_text(json.dumps(variables))
    runner = image.venv / "bin" / "ansible-runner"
    job: list[str | Path] = [runner, "run", directory, f"--playbook={playbook}", "--ident=job", "--cmdline=--check"]
    printed = check(["sh", "-c", '"$@"; test $? = 0 -o $? = 2', "sh", *job], env=environment(image.venv))
    events = (directory / "artifacts" / "job" / "job_events").glob("*.json")
    return printed, [json.loads(path.read_text()) for path in events]


def _stats(events: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    (stats,) = [event["event_data"] for event in events if event["event"] == "playbook_on_stats"]
    return {name: stats[name] for name in ("processed", "changed", "failures", "dark")}


def test_site_runs_through_ansible_runner(image: Image, tmp_path: Path) -> None:
    hosts = {
        "converged": {**mock_variables(tmp_path / "converged", converged(WITHOUT_CONTAINER)), **WITHOUT_CONTAINER},
        "refused": {**mock_variables(tmp_path / "refused", MockHost()), "docker_version": "latest"},
    }
    printed, events = _job(tmp_path, image, "site.yml", hosts)
    processed = {"converged": 1, "refused": 1}
    assert _stats(events) == {"processed": processed, "changed": {}, "failures": {"refused": 1}, "dark": {}}, printed
    (failed,) = [event["event_data"]["res"]["msg"] for event in events if event["event"] == "runner_on_failed"]
    assert failed.startswith("refused: docker_version is latest; it has to be a version")
    rows = [line.split() for line in printed.splitlines()]
    assert ["refused", "failed"] in [[row[0], row[-1]] for row in rows if len(row) > 2]


def test_the_plan_of_an_upgrade_runs_through_ansible_runner(image: Image, tmp_path: Path) -> None:
    variables = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(tmp_path / "states"),
    }
    hosts = {
        name: {**mock_variables(tmp_path / name, upgraded(changes)), **variables}
        for name, changes in (("due", True), ("done", False))
    }
    printed, events = _job(tmp_path, image, "upgrade.yml", hosts)
    assert "nothing to do on 1: done" in printed
    assert _stats(events)["failures"] == _stats(events)["dark"] == {}, printed
    assert json.loads((tmp_path / "states" / "check.json").read_text())["batches"] == [["due"]]


def test_the_job_templates_have_playbooks_and_variables_that_exist() -> None:
    templates = _example("job_templates.yml")["controller_templates"]
    options: dict[str, Any] = role_options()
    for template in templates:
        assert (EXAMPLES / "ops-team" / template["playbook"]).is_file()
        read_variables(template.get("extra_vars", {}))
        for question in template.get("survey_spec", {}).get("spec", []):
            option = options[question["variable"]]
            assert set(question.get("choices", [])) <= set(option.get("choices", question.get("choices", [])))
            assert not question.get("choices") or question["default"] in question["choices"]
    jobs = [(template["playbook"], template["job_type"]) for template in templates]
    assert sorted(jobs) == [(name, kind) for name in ("site.yml", "upgrade.yml") for kind in ("check", "run")]


def test_the_execution_environment_is_of_this_version_and_a_supported_ansible() -> None:
    definition = _example("execution-environment.yml")
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
    (collection,) = definition["dependencies"]["galaxy"]["collections"]
    assert (collection["name"], str(collection["version"])) == ("gpu.fleet", galaxy["version"])
    required = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))["requires_ansible"]
    lowest = required.removeprefix(">=").removesuffix(".0")
    taken = definition["dependencies"]["ansible_core"]["package_pip"].removeprefix("ansible-core>=").partition(",")[0]
    assert [*map(int, taken.split("."))] >= [*map(int, lowest.split("."))]
    assert definition["version"] == 3
