# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the steps against an inventory, after the person has agreed, and report what each showed."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import settings
from testbed.progress import CommandError, report
from testbed.real_gpu.steps import READ, READ_AGAIN, Step, changed_settings, judge, refusals, steps

_HERE = Path(__file__).parent
# A program as it is in the environment of the checkout, so that the scenario itself needs no package.
_PROGRAM = settings.VENV / "bin" / "ansible-playbook"
_CHANGES = """
These hosts are changed: Docker and NVIDIA's Container Toolkit are installed or configured, containers run, and at the
end decommission.yml removes what was installed. What stays: images, lists of packages, logs, and what was there."""
_SETTINGS_STAY = "Settings of the GPUs (MIG, ECC, power, clocks, persistence) are read, and changed in check mode only."
_SETTINGS_CHANGE = (
    "Persistence mode and power limit of the GPUs are changed, and returned to their defaults at the end."
)


@dataclass(frozen=True)
class Runner:
    """How ansible-playbook is called; each step has its log and its result in a directory."""

    program: tuple[str, ...]
    arguments: tuple[str, ...]
    directory: Path

    def run(self, number: int, step: Step) -> list[str]:
        """Run a step; return why it is not as expected."""
        stem = f"{number:02}-{re.sub(r'[^a-z0-9]+', '-', step.title.lower()).strip('-')}"
        result, log = self.directory / f"{stem}.json", self.directory / f"{stem}.log"
        # Of an earlier scenario in this directory.
        result.unlink(missing_ok=True)
        began = time.monotonic()
        with log.open("w", encoding="utf-8") as output:
            status = subprocess.run(
                [*self.program, *self.arguments, *step.arguments, settings.ROOT / step.playbook],
                env=_environment(result),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        document = json.loads(result.read_text(encoding="utf-8")) if result.exists() else None
        reasons = judge(step, status, document)
        reasons += warnings_of(log.read_text(encoding="utf-8", errors="replace"))
        report(f"  {step.title:<62} {'FAILED' if reasons else 'ok':<6} {time.monotonic() - began:6.1f} s")
        for reason in reasons:
            report(f"      {reason}")
        if reasons:
            report(f"      output: {log}")
        return reasons


def warnings_of(output: str) -> list[str]:
    """Warnings of Ansible itself that a run of ours causes; warnings of modules and of ours name their host."""
    found = re.findall(r"^\[(?:DEPRECATION )?WARNING\]: (.+)$", output, re.MULTILINE)
    ours = ("already in use", "deprecated", "reserved name")
    # The second is of ansible-core 2.21 itself; how to turn the first off is part of every deprecation.
    not_ours = ("Deprecation warnings can be disabled", "PluginLoader with aliases")
    return [
        f"Ansible warns: {line}"
        for line in dict.fromkeys(found)
        if any(words in line for words in ours) and not line.startswith(not_ours[:1]) and not_ours[1] not in line
    ]


def _environment(result: Path) -> dict[str, str]:
    """The person's own settings of Ansible, with this checkout as gpu.fleet.

    Facts stay facts, as upgrade.yml and remediate.yml run commands of the site on the controller.
    """
    paths = [str(settings.COLLECTIONS), os.environ.get("ANSIBLE_COLLECTIONS_PATH", "~/.ansible/collections")]
    return {
        "ANSIBLE_INJECT_FACT_VARS": "false",
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": ":".join(paths),
        "ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.fleet_table,gpu.fleet.run_result",
        "ANSIBLE_NOCOLOR": "1",
        "GPU_FLEET_RESULT_FILE": str(result),
    }


def _read(runner: Runner, number: int, step: Step, name: str) -> tuple[list[str], dict[str, Any]]:
    directory = runner.directory / name
    directory.mkdir(exist_ok=True)
    for old in directory.glob("*.json"):
        old.unlink()
    extra = ("--extra-vars", json.dumps({"real_gpu_directory": str(directory)}))
    reasons = runner.run(number, Step(step.title, step.playbook, step.expected, extra))
    return reasons, {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))
    }


def _describe(hosts: Mapping[str, Any]) -> None:
    for name, facts in hosts.items():
        names = [gpu.get("name") or "GPU" for gpu in facts["gpus"]]
        kinds = ", ".join(f"{names.count(one)} x {one}" for one in dict.fromkeys(names))
        report(f"  {name}: {kinds}, driver {facts['driver_version']}")


def _agreed(change_gpus: bool, yes: bool) -> bool:
    report(_CHANGES)
    report(_SETTINGS_CHANGE if change_gpus else _SETTINGS_STAY)
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CommandError("nobody can be asked here, as there is no terminal; agree with --yes")
    return input("\nType yes to change these hosts: ").strip() == "yes"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m testbed real-gpu", description=__doc__)
    parser.add_argument(
        "-i", "--inventory", required=True, help="an inventory of hosts with real GPUs that may be changed"
    )
    parser.add_argument("-l", "--limit", help="the hosts of it, as ansible-playbook takes them; default: all")
    parser.add_argument("-e", "--extra-vars", action="append", default=[], help="as ansible-playbook takes them")
    parser.add_argument("--engine", action="append", choices=("docker", "podman"), help="default: docker")
    parser.add_argument("--computes", action="store_true", help="run gpu_workload_tests, which --extra-vars give")
    parser.add_argument("--change-gpus", action="store_true", help="change persistence mode and power limit too")
    parser.add_argument("--yes", action="store_true", help="change the hosts without a question")
    parser.add_argument("--directory", type=Path, default=settings.CACHE / "real-gpu", help="of logs and results")
    parser.add_argument("--ansible-playbook", default=str(_PROGRAM), help="the program, with its arguments")
    return parser


def run(arguments: Sequence[str]) -> bool:
    """Run the scenario; True where everything is as expected. A step that fails keeps none after it from running."""
    given = _parser().parse_args(arguments)
    given.directory.mkdir(parents=True, exist_ok=True)
    limit = ("--limit", given.limit) if given.limit else ()
    variables = [word for one in (f"@{_HERE / 'vars.yml'}", *given.extra_vars) for word in ("--extra-vars", one)]
    report_directory = json.dumps({"gpu_fleet_report_dir": str(given.directory / "report")})
    program = tuple(shlex.split(given.ansible_playbook))
    words = ("-i", given.inventory, *limit, *variables, "--extra-vars", report_directory)
    runner = Runner(program, words, given.directory)
    failed, before = _read(runner, 0, READ, "before")
    if failed or (failed := refusals(before)):
        raise CommandError("the scenario does not begin:\n  " + "\n  ".join(failed))
    _describe(before)
    if not _agreed(given.change_gpus, given.yes):
        report("nothing was changed")
        return False
    chosen = steps(given.engine or ["docker"], computes=given.computes, change_gpus=given.change_gpus)
    reasons: list[str] = []
    for number, step in enumerate(chosen, 1):
        # A failed step is a finding; the hosts are still to be returned.
        reasons += runner.run(number, step)
    failed, after = _read(runner, len(chosen) + 1, READ_AGAIN, "after")
    reasons += failed
    for name, facts in before.items():
        lines = changed_settings(facts, after[name]) if name in after else ["was not read again"]
        for line in lines:
            report(f"      {name}: {line}")
        reasons += lines
    if not given.computes:
        report("  not run: a framework, for want of --computes and gpu_workload_tests")
    report(f"\n{len(reasons)} reasons to look at" if reasons else "\neverything is as expected")
    return not reasons
