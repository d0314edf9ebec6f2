# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers for tests on real hosts: run project commands as a user would, parse Ansible's recap."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from testbed import settings
from tests.callbacks import module_runs
from tests.checks.controllers import Controller


@dataclass(frozen=True)
class Recap:
    """Counts of one host in Ansible's recap."""

    ok: int
    changed: int
    unreachable: int
    failed: int
    skipped: int


@dataclass(frozen=True)
class Result:
    """Output and exit status of a command, and the module runs of its last playbook by host."""

    status: int
    output: str
    module_runs: Mapping[str, int] = field(default_factory=dict)

    @property
    def recap(self) -> dict[str, Recap]:
        """Recap by host; empty when the run ended before its recap."""
        counted = " +".join(rf"{name}=(\d+)" for name in ("ok", "changed", "unreachable", "failed", "skipped"))
        rows = re.findall(rf"^(\S+)\s+: {counted}", self.output, re.MULTILINE)
        return {host: Recap(*map(int, counts)) for host, *counts in rows}

    @property
    def changed(self) -> dict[str, int]:
        """Number of changed tasks by host."""
        return {host: counts.changed for host, counts in self.recap.items()}


def run(
    argv: Sequence[str], *, env: dict[str, str] | None = None, cwd: Path = settings.ROOT, log: Path | None = None
) -> Result:
    """Run a command in the testbed's environment; stdout and stderr are merged, and can be followed in `log`."""
    with tempfile.TemporaryDirectory() as scratch:
        counts, output = Path(scratch) / "module-runs.json", log or Path(scratch) / "output"
        with output.open("w", encoding="utf-8") as file:
            status = subprocess.run(
                argv,
                cwd=cwd,
                env=settings.environment() | {module_runs.VARIABLE: str(counts)} | (env or {}),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=5400,
                check=False,
            ).returncode
        runs = json.loads(counts.read_text(encoding="utf-8")) if counts.exists() else {}
        return Result(status, output.read_text(encoding="utf-8", errors="replace"), runs)


def playbook(name: str, *extra: str, inventory: str = "inventories/demo", env: dict[str, str] | None = None) -> Result:
    """Run a playbook of the checkout with an inventory."""
    return run(["ansible-playbook", "-i", inventory, name, *extra], env=env)


def scenarios() -> list[str]:
    """Names of all molecule scenarios except the one that creates the hosts."""
    found = (path.parent.name for path in (settings.ROOT / "molecule").glob("*/molecule.yml"))
    return sorted(name for name in found if name != "default")


def molecule(step: str, scenario: str, *arguments: str, controller: Controller | None = None) -> Result:
    """Run a sequence of molecule for a scenario, with the ansible-core of a controller or else of this environment."""
    env = {"NO_COLOR": "1"}
    if controller:
        env |= {"PATH": f"{controller.ensure()}:{settings.environment()['PATH']}", **controller.settings}
    # Its state of an earlier or interrupted run would make it skip steps.
    run(["molecule", "reset"])
    log = settings.LOGS / f"molecule-{scenario}{'-' * (step != 'test')}{step.removeprefix('test')}.log"
    result = run(["molecule", step, "--scenario-name", scenario, *arguments], env=env, log=log)
    # Molecule passes over a step whose playbook it does not know, and still succeeds.
    return replace(result, status=result.status or int("Missing playbook" in result.output))


def molecule_test(scenario: str, controller: Controller | None = None) -> Result:
    """Run one scenario from the creation of its hosts on."""
    return molecule("test", scenario, "--report", controller=controller)
