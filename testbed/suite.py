# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run parts of the tests side by side, each in a pytest process and a workspace of its own, and sum up."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from testbed import hosts, settings
from testbed.parts import Part
from testbed.progress import CommandError, report

# Hosts wait for packages and reboots, so one part more than there are cores keeps these busy.
_SIDE_BY_SIDE = (os.cpu_count() or 2) + 1
# Of tests/checks/conftest.py: the name of a test's property with a line for the end of the run.
_REPORTED = "report: "
_LOG_LINES = 400


@dataclass(frozen=True)
class Outcome:
    """What a part ended with. `closing` is pytest's last line; `untested` what this machine could not test.

    `seconds` are those of the clock, `cpu_seconds` those of its processes, without what its hosts compute.
    """

    part: Part
    status: int
    seconds: float
    cpu_seconds: float
    closing: str
    tests: int
    untested: tuple[str, ...]


def run_parts(parts: Sequence[Part], prepare_hosts: Callable[[], None]) -> None:
    """Run the parts, print the closing line of each and a table; raise CommandError if one failed.

    Parts without hosts begin while `prepare_hosts` builds what the others need.
    """
    began = time.monotonic()
    report(f"\n{len(parts)} parts, {_SIDE_BY_SIDE} at a time; output of each in {settings.LOGS}/part-NAME.log")
    with ThreadPoolExecutor(1) as preparing, ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        prepared = preparing.submit(prepare_hosts) if any(part.on_hosts for part in parts) else None
        outcomes = list(pool.map(lambda part: _run(part, prepared if part.on_hosts else None), parts))
    for line in summary(outcomes, time.monotonic() - began):
        report(line)
    failed = [outcome.part.name for outcome in outcomes if outcome.status]
    if failed:
        raise CommandError(f"failed: {', '.join(failed)}")


def command(part: Part, junit: Path) -> list[str]:
    """The command line of one part. Its test results are written to `junit`."""
    workers = ["-n", str(part.workers), "--dist", "loadscope", "--no-loadscope-reorder"] if part.workers else []
    pytest = str(settings.VENV / "bin" / "pytest")
    chosen = [*(["-m", part.marked] if part.marked else []), *(f"--ignore={path}" for path in part.without)]
    # Parts on hosts wait a good deal, and are the longest: they get the processors when they need them.
    first = [] if part.on_hosts else ["nice"]
    return [*first, pytest, *workers, *chosen, "--durations=5", f"--junitxml={junit}", *part.tests]


def _run(part: Part, prepared: Future[None] | None) -> Outcome:
    """Run a part, once its hosts' images are `prepared`; its own time begins then."""
    if prepared and (error := prepared.exception()):
        return Outcome(part, 1, 0.0, 0.0, f"not run, the hosts could not be prepared: {error}", 0, ())
    began = time.monotonic()
    settings.LOGS.mkdir(parents=True, exist_ok=True)
    log, junit = (settings.LOGS / f"part-{part.name}.{suffix}" for suffix in ("log", "xml"))
    junit.unlink(missing_ok=True)
    env = settings.environment() | {settings.WORKSPACE_VARIABLE: part.name, "GPU_FLEET_EFFORT": part.effort}
    if part.ci_hosts:
        env["GPU_FLEET_TESTBED_HOSTS"] = part.ci_hosts
    # Not subprocess.run: only wait4 gives the processor time of this one child.
    argv, devnull = command(part, junit), subprocess.DEVNULL
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            argv, cwd=settings.ROOT, env=env, stdin=devnull, stdout=file, stderr=subprocess.STDOUT
        ) as process,
    ):
        _pid, ended, usage = os.wait4(process.pid, 0)
        status = process.returncode = os.waitstatus_to_exitcode(ended)
    if part.on_hosts:
        hosts.remove_workspace(part.name)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    closing = lines[-1].strip("= ") if lines else "no output"
    tests, untested = read_results(junit) if junit.exists() else (0, ())
    cpu_seconds = usage.ru_utime + usage.ru_stime
    outcome = Outcome(part, status, time.monotonic() - began, cpu_seconds, closing, tests, untested)
    report(f"  {part.name:<20}{closing}")
    if status:
        shown = lines[-_LOG_LINES:]
        start = next((number for number, line in enumerate(shown) if " FAILURES " in line or " ERRORS " in line), 0)
        report("\n".join(shown[start:]))
    return outcome


def read_results(junit: Path) -> tuple[int, tuple[str, ...]]:
    """Number of tests in a JUnit file of pytest, and lines about what they could not test.

    Tests of one file that are skipped for the same reason are one line.
    """
    tests = 0
    skips: dict[tuple[str, str], list[str]] = {}
    reported: dict[str, None] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        tests += 1
        for skipped in case.iter("skipped"):
            key = case.get("classname") or "", skipped.get("message") or ""
            skips.setdefault(key, []).append(case.get("name") or "")
        for entry in case.iter("property"):
            if (entry.get("name") or "").startswith(_REPORTED) and "skipped: " in (entry.get("value") or ""):
                reported[f"{(entry.get('name') or '').removeprefix(_REPORTED)}: {entry.get('value')}"] = None
    skipped_tests = (
        f"{of}.{names[0]}: {why}" if len(names) == 1 else f"{of}, {len(names)} tests: {why}"
        for (of, why), names in skips.items()
    )
    return tests, (*skipped_tests, *reported)


def summary(outcomes: Sequence[Outcome], seconds: float) -> list[str]:
    """The lines at the end: a table of the parts, and what this machine could not test."""
    rows = [("part", "tests", "minutes", "of CPU", "result")]
    for outcome in outcomes:
        result = "passed" if outcome.status == 0 else "FAILED"
        minutes = f"{outcome.seconds / 60:.1f}", f"{outcome.cpu_seconds / 60:.1f}"
        rows.append((outcome.part.name, str(outcome.tests), *minutes, result))
    total = sum(outcome.tests for outcome in outcomes)
    cpu_minutes = sum(outcome.cpu_seconds for outcome in outcomes) / 60
    rows.append(("all", str(total), f"{seconds / 60:.1f}", f"{cpu_minutes:.1f}", ""))
    table = (f"{name:<20}{tests:>7}{minutes:>9}{of_cpu:>8}  {result}" for name, tests, minutes, of_cpu, result in rows)
    lines = ["", *(line.rstrip() for line in table)]
    untested = [f"  {outcome.part.name}: {line}" for outcome in outcomes for line in outcome.untested]
    return [*lines, "", "not tested on this machine:", *(untested or ["  nothing was left out"])]
