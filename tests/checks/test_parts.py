# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of the parts: each test belongs to one, each part to a make target, and what a run reports about them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
import yaml

from testbed import hosts, images, parts, prerequisites, settings, suite
from testbed.progress import CommandError
from tests.checks.tools import ROOT, VENV, project_files, run

_NIGHTLY = {
    "backend_ai_agent",
    "cuda_refusals",
    "driver_sources",
    "pull",
    "sanity_of_tests",
    "thorough",
    "upgrade",
    "upgrade_fleet",
}
"""Parts that `.ci/run` leaves to the nightly workflow."""
_FEWER_HOSTS = {"nvidia_driver", "cuda", "nvidia_repository"}
"""Scenarios that `.ci/run` limits to one host of each package manager, and the nightly workflow does not."""

FILES = [path for path in project_files(".py") if path.parts[0] == "tests" and path.name.startswith("test_")]
WORKFLOWS = [path for path in project_files(".yml") if path.parts[:2] == (".github", "workflows")]
TESTING = [path for path in WORKFLOWS if path.name != "release.yml"]
SPLIT = sorted({entry.partition("::")[0] for part in parts.PARTS for entry in part.tests if "::" in entry})
"""Files whose tests belong to different parts."""


def _parts(name: str) -> list[tuple[parts.Part, str]]:
    """Each part that runs a file, a directory above it, or tests of it, with the entry of the table that names them."""
    above = {name, *map(str, Path(name).parents)}
    return [
        (part, entry)
        for part in parts.PARTS
        if part.effort == "quick" and name not in part.without
        for entry in part.tests
        if entry in above or entry.partition("::")[0] == name
    ]


def _entries(name: str) -> list[str]:
    """The entries of the table that name a file, a directory above it, or tests of it, once for each part."""
    return [entry for _part, entry in _parts(name)]


@pytest.mark.parametrize("path", [path for path in FILES if str(path) not in SPLIT], ids=str)
def test_each_file_of_tests_belongs_to_one_part(path: Path) -> None:
    """Of two parts, one runs the tests with a marker, and the other one those without it."""
    markers = {part.marked for part, _entry in _parts(str(path))}
    assert len(markers) == len(_parts(str(path)))
    marked = "pytestmark = pytest.mark.plays\n" in (ROOT / path).read_text(encoding="utf-8")
    assert markers in [{""}, {"plays", "not plays"}] or (markers == {"not plays"} and not marked)


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[1] == "unit"], ids=str)
def test_a_unit_test_that_runs_ansible_playbook_has_the_marker_of_plays(path: Path) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    runs = re.search(r"\b(run_play|run_site)\(|\"ansible-playbook\"", text) is not None
    assert runs == ("pytestmark = pytest.mark.plays\n" in text)


@pytest.mark.parametrize("name", SPLIT)
def test_each_test_of_a_file_in_several_parts_belongs_to_one(name: str) -> None:
    printed = run([VENV / "bin" / "pytest", "--collect-only", "-p", "no:cacheprovider", name])
    collected = [line for line in printed.splitlines() if line.startswith(f"{name}::")]
    assert collected
    assert Counter(_entries(name)) == Counter(collected)


@pytest.mark.parametrize("part", parts.PARTS, ids=lambda part: part.name)
def test_each_part_has_tests_and_more_effort_is_for_tests_that_another_part_has(part: parts.Part) -> None:
    for entry in part.tests:
        path = Path(entry.partition("::")[0])
        assert (ROOT / path).exists()
        below = [str(file) for file in FILES if path in (file, *file.parents)]
        assert below
        assert all(_entries(name) for name in below)


@pytest.mark.parametrize(("tests", "removed"), [("tests/unit", []), ("tests/system", ["part"])])
def test_only_a_part_on_hosts_removes_hosts(
    tests: str, removed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others run as any user, for whom podman may fail."""
    seen: list[str] = []
    monkeypatch.setattr(suite, "command", lambda _part, _junit: ["echo", "= 1 passed ="])
    monkeypatch.setattr(hosts, "remove_workspace", seen.append)
    monkeypatch.setattr(settings, "LOGS", tmp_path)
    outcome = suite._run(parts.Part("part", "test-unit", (tests,)), None)
    assert (outcome.status, outcome.closing, seen) == (0, "1 passed", removed)


def test_the_names_of_parts_do_not_take_one_for_another() -> None:
    names = [part.name for part in parts.PARTS]
    assert len(set(names)) == len(names)
    # Names of hosts and networks begin with the part's name and a hyphen.
    assert all(re.fullmatch(r"[a-z_]+", name) for name in names)


def test_each_part_is_run_by_a_make_target_and_ci_runs_all_but_those_of_the_night() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    goals = re.search(r"^(.*): \| python$", makefile, re.MULTILINE)
    assert goals
    assert set(get_args(parts.Target)) <= set(goals[1].split())
    called = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    run_by_ci = {part.name for target in get_args(parts.Target) if target in called for part in parts.parts_of(target)}
    assert {part.name for part in parts.PARTS} - run_by_ci == {"full", *_NIGHTLY}


def test_ci_runs_some_scenarios_on_fewer_hosts_and_the_night_on_all() -> None:
    inventory = yaml.safe_load((ROOT / "molecule" / "inventory" / "hosts.yml").read_text(encoding="utf-8"))
    groups = inventory["all"]["children"]["testbed_hosts"]["children"]
    limited = {part.name: part.ci_hosts for part in parts.parts_of("test-ci") if part.ci_hosts}
    assert limited.keys() == _FEWER_HOSTS
    assert not any(part.ci_hosts for part in parts.parts_of("test-long"))
    for name, group in limited.items():
        scenario = (ROOT / "molecule" / name / "molecule.yml").read_text(encoding="utf-8")
        everything = re.search(r"--limit=\$\{GPU_FLEET_TESTBED_HOSTS:-(\w+)\}", scenario)
        assert everything
        assert f"hosts: ansible://${{GPU_FLEET_TESTBED_HOSTS:-{everything[1]}}}" in scenario
        assert groups[group]["hosts"].keys() < groups[everything[1]]["hosts"].keys()


def test_the_workflows_run_every_part_but_the_downloads() -> None:
    called = {goal for path in TESTING for goal in re.findall(r"run: make ([a-z-]+)", (ROOT / path).read_text())}
    assert called == {"test", "test-long"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=str)
def test_a_workflow_pins_its_actions_and_those_that_test_call_make_only(path: Path) -> None:
    jobs = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]) for step in steps if "uses" in step)
    commands = [step["run"] for step in steps if "run" in step and not step["run"].startswith("apt-get ")]
    assert commands
    assert path not in TESTING or {command.removeprefix("make ") for command in commands} <= set(get_args(parts.Target))


@pytest.mark.parametrize("part", [part for part in parts.PARTS if part.debian_only], ids=lambda part: part.name)
def test_the_hosts_of_a_part_without_derivative_images_are_of_debian(part: parts.Part) -> None:
    (scenario,) = re.findall(r"\[(.*)\]", part.tests[0])
    configuration = (ROOT / "molecule" / scenario / "molecule.yml").read_text(encoding="utf-8")
    (group,) = re.findall(r"--limit=(\w+)", configuration)
    inventory = yaml.safe_load((ROOT / "molecule/inventory/hosts.yml").read_text(encoding="utf-8"))
    groups = inventory["all"]["children"]["testbed_hosts"]["children"]
    described = {
        name: {**of.get("vars", {}), **host} for of in groups.values() for name, host in of["hosts"].items() if host
    }
    suites = {described[name]["testbed_suite"] for name in groups[group]["hosts"]}
    assert suites
    assert suites <= {*part.suites, *(image.suite for image in images.HOST_IMAGES)}


def test_a_part_is_summed_up_with_its_tests_and_what_was_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_one(): pass\n"
        "def test_two(): pytest.skip('no IPv6 here')\n"
        "@pytest.mark.parametrize('number', range(3))\n"
        "def test_page(number): pytest.skip('no Chromium')\n"
        "def test_three(request): request.node.user_properties.append(('report: sanity', 'skipped: import on 3.7'))\n",
        encoding="utf-8",
    )
    junit = tmp_path / "junit.xml"
    part = parts.Part("some", "test", (str(tmp_path / "test_some.py"),))
    run([*suite.command(part, junit), "-p", "no:cacheprovider"])
    tests, untested = suite.read_results(junit)
    assert tests == 6
    skipped, same, reported = untested
    assert "test_two" in skipped
    assert "no IPv6 here" in skipped
    assert same.endswith("test_some, 3 tests: no Chromium")
    assert reported == "sanity: skipped: import on 3.7"
    lines = suite.summary([suite.Outcome(part, 1, 90.0, 30.0, "1 failed", tests, untested)], 120.0)
    assert "some                      6      1.5     0.5  FAILED" in lines
    assert "all                       6      2.0     0.5" in lines
    assert any("no IPv6 here" in line for line in lines[lines.index("not tested on this machine:") :])


def test_a_machine_that_has_no_package_of_chromium_runs_the_other_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Ubuntu, whose Chromium is a snap."""

    def refuse(argv: list[str], **_options: object) -> str:
        if argv[1] == "install":
            raise CommandError("apt-get install chromium failed:\nE: Package 'chromium' has no installation candidate")
        return ""

    (tmp_path / "apt-get").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(prerequisites, "BROWSER", {"no-such-browser": "chromium"})
    monkeypatch.setattr(prerequisites, "run", refuse)
    prerequisites.install_browser()
    assert "no Chromium, so the tests of pages in a browser are not run: apt-get install" in capsys.readouterr().out
