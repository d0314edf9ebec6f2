# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of the parts: each test belongs to one, each part to a make target, and what a run reports about them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import get_args

import pytest
import yaml

from testbed import __main__, hosts, images, parts, prerequisites, settings, suite
from testbed.progress import CommandError
from tests.checks.tools import ROOT, VENV, ToolError, project_files, run

FILES = [path for path in project_files(".py") if path.parts[0] == "tests" and path.name.startswith("test_")]
WORKFLOWS = [path for path in project_files(".yml") if path.parts[:2] == (".github", "workflows")]
# Those that run tests, and nothing else.
TESTING = [path for path in WORKFLOWS if path.name not in ("facts.yml", "release.yml")]
SPLIT = sorted({entry.partition("::")[0] for part in parts.PARTS for entry in part.tests if "::" in entry})
"""Files whose tests belong to different parts."""


def _parts(name: str) -> list[tuple[parts.Part, str]]:
    """Each part that runs a file, a directory above it, or tests of it, with the entry of the table that names them.

    Without `thorough`, which runs again what other parts run.
    """
    above = {name, *map(str, Path(name).parents)}
    return [
        (part, entry)
        for part in parts.PARTS
        if part.name != "thorough" and name not in part.without
        for entry in part.tests
        if entry in above or entry.partition("::")[0] == name
    ]


def _entries(name: str) -> list[str]:
    """The entries of the table that name a file, a directory above it, or tests of it, once for each part."""
    return [entry for _part, entry in _parts(name)]


def test_pytest_can_distinguish_files_of_one_name() -> None:
    """It imports those outside of packages by their name alone, and only one of each."""
    names = Counter(path.name for path in FILES if not (ROOT / path.parent / "__init__.py").exists())
    assert [name for name, number in names.items() if number > 1] == []


@pytest.mark.parametrize("path", [path for path in FILES if str(path) not in SPLIT], ids=str)
def test_each_file_of_tests_belongs_to_one_part(path: Path) -> None:
    """Of two parts, one runs the tests with a marker, and the other one those without it."""
    markers = {part.marked for part, _entry in _parts(str(path))}
    assert len(markers) == len(_parts(str(path)))
    marked = "pytest.mark.plays\n" in (ROOT / path).read_text(encoding="utf-8")
    assert markers in [{""}, {"plays", "not plays"}] or (markers == {"not plays"} and not marked)


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[1] == "unit"], ids=str)
def test_a_unit_test_that_runs_ansible_playbook_has_the_marker_of_plays(path: Path) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    runs = re.search(r"\b(run_play|run_site|ansible_playbook|site\.run)\(|\"ansible-playbook\"", text) is not None
    assert runs == ("pytest.mark.plays\n" in text)


@pytest.mark.parametrize("name", SPLIT)
def test_each_test_of_a_file_in_several_parts_belongs_to_one(name: str) -> None:
    printed = run([VENV / "bin" / "pytest", "--collect-only", "-p", "no:cacheprovider", name])
    collected = [line for line in printed.splitlines() if line.startswith(f"{name}::")]
    assert collected
    assert Counter(_entries(name)) == Counter(collected)


@pytest.mark.parametrize("part", parts.PARTS, ids=lambda part: part.name)
def test_each_part_has_tests_and_those_of_thorough_belong_to_another_part(part: parts.Part) -> None:
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


_TERMINATED = """
import sys
from testbed import hosts, parts, settings, suite
from pathlib import Path
directory = Path(sys.argv[1])
settings.LOGS = directory
hosts.remove_workspace = lambda name: (directory / "removed").write_text(name)
suite.command = lambda part, junit: ["sh", "-c", f"sleep 60 & echo $! > {directory}/started; wait"]
suite.run_parts([parts.Part("part", "test", ("tests/system",))], None)
"""


def test_a_run_that_is_terminated_removes_its_hosts_and_ends_what_it_has_started(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _TERMINATED, tmp_path], cwd=ROOT, stdout=subprocess.DEVNULL)
    started = tmp_path / "started"
    for _second in range(60):
        if started.exists() and started.read_text(encoding="ascii").strip():
            break
        time.sleep(0.5)
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    assert (tmp_path / "removed").read_text(encoding="ascii") == "part"
    of_sleep = Path("/proc", started.read_text(encoding="ascii").strip(), "cmdline")
    assert not of_sleep.exists() or b"sleep" not in of_sleep.read_bytes()


def test_the_names_of_parts_do_not_take_one_for_another() -> None:
    names = [part.name for part in parts.PARTS]
    assert len(set(names)) == len(names)
    # Names of hosts and networks begin with the part's name and a hyphen.
    assert all(re.fullmatch(r"[a-z_]+", name) for name in names)


def test_each_part_is_run_by_a_make_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    goals = re.search(r"^(.*): \| python$", makefile, re.MULTILINE)
    assert goals
    assert set(get_args(parts.Target)) <= set(goals[1].split())
    called = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert called == ["test-ci"]


def test_ci_runs_some_scenarios_on_fewer_hosts_and_the_night_on_all() -> None:
    inventory = yaml.safe_load((ROOT / "molecule" / "inventory" / "hosts.yml").read_text(encoding="utf-8"))
    groups = inventory["all"]["children"]["testbed_hosts"]["children"]
    limited = {part.name: part.ci_hosts for part in parts.parts_of("test-ci") if part.ci_hosts}
    assert limited
    assert not any(part.ci_hosts for part in parts.parts_of("test-long"))
    for name, group in limited.items():
        scenario = (ROOT / "molecule" / name / "molecule.yml").read_text(encoding="utf-8")
        everything = re.search(r"--limit=\$\{GPU_FLEET_TESTBED_HOSTS:-(\w+)\}", scenario)
        assert everything
        assert f"hosts: ansible://${{GPU_FLEET_TESTBED_HOSTS:-{everything[1]}}}" in scenario
        assert groups[group]["hosts"].keys() < groups[everything[1]]["hosts"].keys()


def test_the_workflows_run_every_part_but_the_downloads() -> None:
    called = {goal for path in TESTING for goal in re.findall(r"run: make ([a-z-]+)", (ROOT / path).read_text())}
    assert called == {"test", "test-long", "night"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=str)
def test_a_workflow_pins_its_actions_and_those_that_test_call_make_only(path: Path) -> None:
    jobs = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert all(re.fullmatch(r"actions/[a-z/-]+@[0-9a-f]{40}", step["uses"]) for step in steps if "uses" in step)
    commands = [
        step["run"] for step in steps if "run" in step and not step["run"].startswith(("apt-get ", ".ci/kubernetes "))
    ]
    assert commands
    assert path not in TESTING or {command.removeprefix("make ") for command in commands} <= {
        "night",
        *get_args(parts.Target),
    }


def _suites_of_a_scenario(scenario: str) -> set[str]:
    configuration = (ROOT / "molecule" / scenario / "molecule.yml").read_text(encoding="utf-8")
    (group,) = re.findall(r"--limit=(?:\$\{\w+:-)?(\w+)", configuration)
    inventory = yaml.safe_load((ROOT / "molecule/inventory/hosts.yml").read_text(encoding="utf-8"))
    groups = inventory["all"]["children"]["testbed_hosts"]["children"]
    described = {
        name: {**of.get("vars", {}), **host} for of in groups.values() for name, host in of["hosts"].items() if host
    }
    return {described[name]["testbed_suite"] for name in groups[group]["hosts"]}


def _suites_of_a_file(path: Path) -> set[str]:
    """Of the inventories that a file of tests on hosts names, or of the demo's, which a fixture creates, or its own."""
    text = path.read_text(encoding="utf-8")
    own = set(re.findall(r'Image\("host", "(\w+)"\)', text))
    named = {ROOT / name / "hosts.yml" for name in re.findall(r'"(tests/(?:system|full)/\w+)(?:/hosts\.yml)?"', text)}
    of_demo = "demo: Result" in text or "make demo" in text or 'images["trixie"]' in text
    named |= {ROOT / "inventories" / "demo" / "hosts.yml"} if of_demo else set()
    named |= {ROOT / "tests" / "full" / "hosts.yml"} if path.parts[-2] == "full" else set()
    return own | {
        suite
        for file in named
        if file.exists()
        for suite in re.findall(r"testbed_suite: (\w+)", file.read_text("utf-8"))
    }


@pytest.mark.parametrize("part", [part for part in parts.PARTS if part.on_hosts], ids=lambda part: part.name)
def test_a_part_has_the_images_of_its_hosts_and_no_others(part: parts.Part) -> None:
    if scenarios := re.findall(r"\[(.*)\]", " ".join(part.tests)):
        used = {suite for scenario in scenarios for suite in _suites_of_a_scenario(scenario)}
    else:
        paths = [ROOT / name for name in part.tests]
        files = [file for path in paths for file in (path.glob("test_*.py") if path.is_dir() else [path])]
        used = {suite for file in files for suite in _suites_of_a_file(file)}
    assert used
    assert set(part.suites) == used
    desired = __main__._images_of([part])
    assert {image.suite for image in desired if image.kind == "host"} == used
    assert {*images.SHARED_IMAGES} < {*desired}


def test_a_part_without_hosts_needs_no_images() -> None:
    assert all(not part.suites for part in parts.PARTS if not part.on_hosts)
    assert __main__._images_of(parts.parts_of("test-unit")) == ()


def test_each_change_is_tested_with_the_units_the_checks_and_all_roles_on_one_host() -> None:
    assert {part.name for part in parts.parts_of("test")} == {"one_host", "unit", "checks", "linters"}
    full, short = (
        yaml.safe_load((ROOT / "molecule" / name / "molecule.yml").read_text("utf-8")) for name in ("site", "one_host")
    )
    assert parts.CONTAINED == {"one_host": "site"}
    sequence = short["scenario"]["test_sequence"]
    # Converges, does so again without a change, and is verified by the same tests; CI runs all of it, and the rest.
    assert sequence[sequence.index("converge") :] == ["converge", "idempotence", "verify"]
    assert set(sequence) < set(full["scenario"]["test_sequence"])
    assert all(full["ansible"]["playbooks"][step] == what for step, what in short["ansible"]["playbooks"].items())
    assert short["verifier"]["directory"] == "../site/tests"
    assert _suites_of_a_scenario("one_host") < _suites_of_a_scenario("site")


def test_parts_of_ci_have_their_minutes_and_those_to_come_no_more_than_are_reserved() -> None:
    """Eight of forty minutes on two cores: a part that keeps one of them busy takes twice as long."""
    run_by_ci = {part.name: part for part in parts.parts_of("test-ci")}
    assert {part.name for part in parts.parts_of("test")} - {"one_host"} < {*run_by_ci}
    assert [name for name, part in run_by_ci.items() if not (part.minutes > 0 and part.cores > 0)] == []
    assert sum(parts.RESERVED.values()) <= 8
    came = {name: run_by_ci[name] for name in parts.RESERVED.keys() & run_by_ci.keys()}
    assert [name for name, part in came.items() if part.minutes * part.cores / 2 > parts.RESERVED[name]] == []


_LONG, _WAITING = (parts.Part(name, "test-ci", (), cores=cores, memory=2.0) for name, cores in (("a", 1.6), ("b", 0.3)))


@pytest.mark.parametrize(
    ("ready", "running", "processors", "memory", "begin"),
    [
        ([_LONG, _WAITING], [], 2, 8.0, [_LONG, _WAITING]),
        # Two that wait, next to one that computes; a third has no processor.
        ([_LONG, *[_WAITING] * 4], [], 2, 16.0, [_LONG, *[_WAITING] * 2]),
        # What does not fit is passed over.
        ([_LONG, _WAITING], [_LONG], 2, 16.0, [_WAITING]),
        ([_WAITING, _WAITING], [_WAITING], 16, 5.0, [_WAITING][:1]),
        # The last one runs on the smallest machine, alone.
        ([_LONG, _LONG], [], 1, 1.0, [_LONG]),
        ([_LONG], [_WAITING], 1, 1.0, []),
        ([], [_LONG], 2, 16.0, []),
    ],
)
def test_as_many_parts_begin_as_processors_and_memory_suffice_for(
    ready: list[parts.Part], running: list[parts.Part], processors: int, memory: float, begin: list[parts.Part]
) -> None:
    assert suite.chosen(ready, running, processors, memory) == begin


def test_the_memory_of_this_machine_is_known() -> None:
    assert 0 < suite.memory_available() < 100_000


@pytest.mark.parametrize("error", [None, CommandError("no podman")])
def test_parts_on_hosts_begin_when_these_are_prepared_and_the_longest_come_first(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    short, long = (parts.Part(f"unit_{minutes:.0f}", "test", ("tests/unit",), minutes=minutes) for minutes in (1, 9))
    on_hosts = parts.Part("on_hosts", "test", ("tests/system",), minutes=20)
    prepared: Future[None] = Future()
    begun: list[str] = []

    def command(part: parts.Part, _junit: Path) -> list[str]:
        begun.append(part.name)
        if part == long:
            prepared.set_exception(error) if error else prepared.set_result(None)
        return ["echo", "= 1 passed ="]

    monkeypatch.setattr(suite, "command", command)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr(hosts, "remove_workspace", lambda _name: None)
    monkeypatch.setattr(settings, "LOGS", tmp_path)
    if error:
        with pytest.raises(CommandError, match=r"^failed: on_hosts$"):
            suite.run_parts([short, long, on_hosts], prepared)
        assert begun == [long.name, short.name]
        assert "could not be prepared: no podman" in capsys.readouterr().out
    else:
        suite.run_parts([short, long, on_hosts], prepared)
        assert begun[0] == long.name
        assert sorted(begun[1:]) == [on_hosts.name, short.name]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["tests/system/test_molecule.py", "-k", "upgrade"], ["upgrade"]),
        (["tests/system/test_molecule.py::test_the_scenario_passes[cuda]"], ["cuda"]),
        (["tests/system/test_docker.py", "tests/checks/test_words.py"], ["checks", "docker"]),
        (["tests/checks/test_release.py"], ["release"]),
        (["tests/unit/no_such_directory"], []),
    ],
)
def test_tests_named_any_way_get_the_images_of_their_parts(arguments: list[str], names: list[str]) -> None:
    assert sorted(part.name for part in suite.parts_with(arguments) if part.effort == "quick") == names


def test_a_part_is_summed_up_with_its_tests_and_what_was_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_one(): pass\n"
        "def test_two(): pytest.skip('no IPv6 here')\n"
        "@pytest.mark.parametrize('number', range(3))\n"
        "def test_page(number): pytest.skip('no Chromium')\n"
        "def test_three(request): request.node.user_properties.append(('report: sanity', 'skipped: import on 3.7'))\n"
        "def test_four(): assert 2 + 2 == 5, 'of the host gpu1'\n"
        "def test_five(): assert {'gpu1': 'failed'} == {'gpu1': 'planned'}, 'TASK [Wait] ' * 999\n",
        encoding="utf-8",
    )
    junit = tmp_path / "junit.xml"
    part = parts.Part("some", "test", (str(tmp_path / "test_some.py"),))
    with pytest.raises(ToolError):
        run([*suite.command(part, junit), "-p", "no:cacheprovider"])
    tests, untested, failures = suite.read_results(junit)
    assert tests == 8
    skipped, same, reported = untested
    assert "test_two" in skipped
    assert "no IPv6 here" in skipped
    assert same.endswith("test_some, 3 tests: no Chromium")
    assert reported == "sanity: skipped: import on 3.7"
    lines = suite.summary([suite.Outcome(part, 1, 90.0, 30.0, "1 failed", tests, untested, failures)], 120.0)
    assert "some                      8      1.5     0.5  FAILED" in lines
    assert "all                       8      2.0     0.5" in lines
    assert lines[-3] == "tests that failed:" and all(line.startswith("  some: ") for line in lines[-2:])
    assert "test_some.test_four: AssertionError: of the host gpu1 assert (2 + 2) == 5" in lines[-2]
    assert "test_some.test_five: AssertionError: TASK" in lines[-1] and len(lines[-1]) < 800
    assert "{'gpu1': 'failed'} != {'gpu1': 'planned'}" in lines[-1]
    assert any("no IPv6 here" in line for line in lines[lines.index("not tested on this machine:") :])
    assert not any("longer" in line for line in lines)


def test_a_part_whose_tests_were_all_skipped_has_not_passed() -> None:
    part = parts.Part("kubelet", "test-long", ("tests/unit",))
    (line,) = suite.summary([suite.Outcome(part, 0, 60.0, 6.0, "5 skipped in 60.00s", 5, (), ())], 60.0)[2:3]
    assert line.split() == ["kubelet", "5", "1.0", "0.1", "skipped"]


@pytest.mark.parametrize(
    ("minutes", "noted"),
    [(4.0, []), (3.9, ["  some: 5.0 minutes, 3.9 in testbed/parts.py"]), (6.0, []), (0.0, [])],
    ids=["a quarter", "more", "less", "never measured"],
)
def test_a_part_that_takes_a_quarter_longer_than_in_the_table_is_named(minutes: float, noted: list[str]) -> None:
    part = parts.Part("some", "test", ("tests/unit",), minutes=minutes)
    lines = suite.summary([suite.Outcome(part, 0, 300.0, 30.0, "1 passed", 1, (), ())], 300.0)
    assert [line for line in lines if "in testbed/parts.py" in line] == noted
    assert ("took over a quarter longer than in the table of parts:" in lines) == bool(noted)


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
    monkeypatch.setattr(prerequisites, "OPTIONAL", {"Chromium": {"no-such-browser": "chromium"}})
    monkeypatch.setattr(prerequisites, "run", refuse)
    prerequisites.install_optional("Chromium")
    assert "no Chromium, so the tests with it are not run: apt-get install" in capsys.readouterr().out
