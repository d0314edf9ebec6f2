# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo` on bare hosts, repeated, in check mode, with other ansible-core versions, and its error messages."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import __main__, controllers, fleet_picture, settings
from tests.system.support import Result, playbook, run

_HOSTS = {"dgx-h200", "dual-a100", "edge-t4"}
_UNCHANGED = dict.fromkeys(_HOSTS, 0)
_MOST_TASKS = 98
_ERRORS = "tests/system/errors/hosts.yml"


def _table(output: str) -> dict[str, dict[str, str]]:
    """The fleet table: rows by host, each a dict by column. Columns are two blanks apart."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("host ") and "containers" in line)
    header, *rows = (re.split(r" {2,}", line.strip()) for line in lines[start:])
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows if len(row) == len(header)}


def _reason(output: str, host: str) -> str:
    """The one line that states why a host failed."""
    return next(line for line in output.splitlines() if re.match(rf"{host} (failed|is unreachable): ", line))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("dgx-h200", ("8 x NVIDIA H200", "580.178.04", "13.0", "enabled", "disabled", "8 (cdi)", "ok")),
        ("dual-a100", ("2 x NVIDIA A100-SXM4-40GB", "550.163.01", "12.4", "enabled", "disabled", "2 (legacy)", "ok")),
        ("edge-t4", ("1 x Tesla T4", "535.309.01", "12.2", "enabled", "n/a", "1 (legacy)", "ok")),
    ],
)
def test_the_demo_ends_with_the_table_of_the_fleet(demo: Result, host: str, expected: tuple[str, ...]) -> None:
    assert demo.status == 0, demo.output[-6000:]
    row = _table(demo.output)[host]
    columns = ("gpus", "driver", "cuda", "ecc", "mig", "containers", "health")
    assert tuple(row[column] for column in columns) == expected


def test_the_picture_of_the_readme_shows_what_the_demo_prints(demo: Result) -> None:
    assert fleet_picture.TABLE in demo.output


def test_the_first_demo_installs_on_every_host(demo: Result) -> None:
    assert demo.recap.keys() == _HOSTS
    assert all(counts.changed > 0 and counts.failed == 0 for counts in demo.recap.values())
    # Each task costs the controller a process for each host, also one that is skipped.
    assert demo.recap["dgx-h200"].ok + demo.recap["dgx-h200"].skipped <= _MOST_TASKS


def test_a_second_demo_changes_nothing_and_is_cheap(demo: Result) -> None:
    again = run(["make", "demo"])
    assert again.status == 0, again.output[-6000:]
    assert again.changed == _UNCHANGED
    # Module runs on a converged host; the budget is 8, with those that prove a container.
    assert again.module_runs.keys() == _HOSTS
    assert all(0 < runs <= 8 for runs in again.module_runs.values()), again.module_runs


def test_check_mode_predicts_nothing_on_converged_hosts(demo: Result) -> None:
    result = playbook("playbooks/site.yml", "--check")
    assert result.status == 0, result.output[-6000:]
    assert result.changed == _UNCHANGED


def test_the_installed_collection_agrees_that_there_is_nothing_to_do(demo: Result, tmp_path: Path) -> None:
    built = run(["ansible-galaxy", "collection", "build", "--output-path", str(tmp_path)])
    assert built.status == 0, built.output
    archive = next(tmp_path.glob("gpu-fleet-*.tar.gz"))
    elsewhere = {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    installed = run(["ansible-galaxy", "collection", "install", "--no-deps", str(archive)], env=elsewhere)
    assert installed.status == 0, installed.output
    # Link only the collection's dependencies: it must not need files from the checkout.
    for name in ("ansible", "community", "containers"):
        (tmp_path / "ansible_collections" / name).symlink_to(settings.COLLECTIONS / "ansible_collections" / name)
    command = ["ansible-playbook", "-i", str(settings.ROOT / "inventories" / "demo"), "gpu.fleet.site"]
    result = run(command, cwd=tmp_path, env=elsewhere)
    assert result.status == 0, result.output[-6000:]
    assert result.changed == _UNCHANGED


@pytest.mark.parametrize("core", controllers.CORES)
def test_newer_ansible_cores_agree_that_there_is_nothing_to_do(demo: Result, core: str) -> None:
    controllers.prepare(core)
    version = run(controllers.command(core, ["ansible-playbook", "--version"]))
    assert f"[core {core}]" in version.output
    result = run(controllers.command(core, ["ansible-playbook", "-i", "inventories/demo", "playbooks/site.yml"]))
    assert result.status == 0, result.output[-6000:]
    assert result.changed == _UNCHANGED
    assert "DEPRECATION" not in result.output


@pytest.fixture(scope="module")
def errors(demo: Result) -> Iterator[Result]:
    """Output of site.yml for the demo's hosts together with hosts on which it must fail."""
    testbed = {"GPU_FLEET_TESTBED_INVENTORY": "errors"}
    made = playbook("testbed/playbooks/create.yml", inventory=_ERRORS, env=testbed)
    assert made.status == 0, made.output
    try:
        unrelated = ["ssh", "-F", str(settings.SSH_CONFIG), "unsupported"]
        replaced = run([*unrelated, "printf 'ID=slackware\\nNAME=Slackware\\nVERSION_ID=15.0\\n' > /etc/os-release"])
        assert replaced.status == 0, replaced.output
        run([*unrelated, "rm -f /etc/debian_version /etc/lsb-release"])
        run([*unrelated, "echo 'Slackware 15.0' > /etc/slackware-version"])
        yield playbook("playbooks/site.yml", "-i", _ERRORS)
    finally:
        removed = playbook("testbed/playbooks/destroy.yml", inventory=_ERRORS, env=testbed)
        assert removed.status == 0, removed.output


def test_hosts_that_fail_do_not_stop_the_others(errors: Result) -> None:
    assert errors.status != 0
    assert {host: errors.recap[host].failed + errors.recap[host].unreachable for host in _HOSTS} == _UNCHANGED
    assert {_table(errors.output)[host]["health"] for host in _HOSTS} == {"ok"}


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("gone", ["unreachable", "127.0.0.1", "inventory"]),
        ("ordinary-user", ["root", "become"]),
        ("unsupported", ["Slackware", "Debian 12"]),
        ("typing-error", ["docker_state", "sideways", "present"]),
    ],
)
def test_an_error_is_one_line_with_what_where_and_what_to_do(errors: Result, host: str, words: list[str]) -> None:
    counts = errors.recap[host]
    assert counts.failed + counts.unreachable == 1
    line = _reason(errors.output, host)
    assert [word for word in words if word.lower() not in line.lower()] == []


def _as_a_person(command: str) -> Result:
    """Run what the demo proposes to a person, in a shell that has nothing of the testbed's environment."""
    program = f"cd {shlex.quote(str(settings.ROOT))} && {__main__.shell_for_a_person()} && {command}"
    plain = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    return run(["env", "-i", *(f"{name}={value}" for name, value in plain.items()), "bash", "-c", program])


@pytest.fixture(scope="module", name="tried")
def _tried(demo: Result) -> Iterator[dict[str, Result]]:
    """What each of the commands does with which the demo ends, in this order; afterwards the hosts are as before."""
    results = {title: _as_a_person(command) for title, command in __main__.TRY.items()}
    yield results
    restored = _as_a_person(
        "ansible -i inventories/demo dual-a100 -a 'gpu-simulator fault clear' && "
        "ansible-playbook -i inventories/demo playbooks/site.yml -e '{\"gpu_state_mig\": false}' -l dgx-h200 && "
        "ansible-playbook -i inventories/demo playbooks/site.yml -e gpu_state_state=absent -l dgx-h200"
    )
    assert restored.status == 0, restored.output[-6000:]


def test_the_demo_ends_with_three_commands_to_try(demo: Result) -> None:
    end = demo.output[demo.output.index("Try next") :]
    assert len(__main__.TRY) == 3
    assert [command for command in __main__.TRY.values() if f"    {command}\n" not in end] == []
    assert __main__.shell_for_a_person() in end


def test_the_layout_that_the_demo_proposes_is_there_afterwards(tried: dict[str, Result]) -> None:
    layout, _fault, _report = tried.values()
    assert layout.status == 0, layout.output[-6000:]
    listed = _as_a_person("ansible -i inventories/demo dgx-h200 -a 'nvidia-smi -L'")
    assert listed.output.count("MIG 1g.18gb") == 8 * 7
    (host,) = [line for line in layout.output.splitlines() if line.startswith("dgx-h200 ") and "MIG (cdi)" in line]
    assert host.split()[-1] == "ok", layout.output[-6000:]


def test_the_fault_that_the_demo_proposes_ends_with_the_verdict(tried: dict[str, Result]) -> None:
    _layout, fault, _report = tried.values()
    assert fault.status == 2, fault.output[-6000:]
    assert "dual-a100: fail, remedy reboot: GPU 1 " in fault.output
    assert fault.recap["dual-a100"].failed == 1
    # The picture's verdict, for a GPU whose place an earlier check knows.
    assert "GPU is lost" in fault.output and "Xid 79 (GPU has fallen off the bus)" in fault.output


def test_the_report_that_the_demo_proposes_has_the_layout_and_the_fault(tried: dict[str, Result]) -> None:
    *_others, report = tried.values()
    assert report.status == 0, report.output[-6000:]
    page = (settings.CACHE / "report" / "report.json").read_text(encoding="utf-8")
    assert "1g.18gb" in page
    assert json.loads(page)["hosts"]


@pytest.mark.parametrize("place", [0, 7])
def test_a_lost_gpu_of_eight_ends_no_run_and_the_others_are_served(demo: Result, place: int) -> None:
    """After the commands to try: the modules that change GPUs, and the verdict, on a host as operators have them."""
    host = "ansible -i inventories/demo dgx-h200 -o"
    others = [str(index) for index in range(8) if index != place]
    declared = shlex.quote(json.dumps({"gpus": others, "power_limit_w": "650"}))
    began = time.monotonic()
    assert _as_a_person(f"{host} -a 'gpu-simulator fault lost --gpu {place}'").status == 0
    try:
        changed = _as_a_person(f"{host} -m gpu.fleet.gpu_settings -a {declared}")
        assert changed.status == 0 and "CHANGED" in changed.output, changed.output[-6000:]
        mig = shlex.quote(json.dumps({"gpus": others, "enabled": False}))
        without_mig = _as_a_person(f"{host} -m gpu.fleet.mig_profile -a {mig}")
        assert without_mig.status == 0, without_mig.output[-6000:]
        refused = _as_a_person(f"{host} -m gpu.fleet.gpu_reset -a '{json.dumps({'gpus': [str(place)]})}'")
        assert refused.status == 2 and "lost" in refused.output, refused.output[-6000:]
        health = _as_a_person("ansible-playbook -i inventories/demo playbooks/health.yml -l dgx-h200")
        assert health.status == 2 and f"dgx-h200: fail, remedy reboot: GPU {place} " in health.output
    finally:
        assert _as_a_person(f"{host} -a 'gpu-simulator fault clear'").status == 0
    restored = shlex.quote(json.dumps({"power_limit_w": "default"}))
    assert _as_a_person(f"{host} -m gpu.fleet.gpu_settings -a {restored}").status == 0
    assert time.monotonic() - began < 240
