# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run parts of the tests side by side, each in a pytest process and a workspace of its own, and sum up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from testbed import hosts, settings
from testbed.parts import PARTS, Part
from testbed.progress import CommandError, report

# Parts wait for a good part of their time, for hosts that boot and for each other's locks, so those that run together
# may want this many more processors than there are.
_OVERLAP = 1.2
_MEMORY_KEPT_FREE = 1.0  # GiB
_LATE = 1.25
# Of tests/checks/conftest.py: the name of a test's property with a line for the end of the run.
_REPORTED = "report: "
_LOG_LINES = 400
_REASON_START, _REASON_END = 120, 480

_PROCESSES: set[subprocess.Popen[bytes]] = set()
_ENDING = threading.Event()


@dataclass(frozen=True)
class Outcome:
    """What a part ended with. `closing` is pytest's last line; `untested` what this machine could not test.

    `failures` are tests that failed, each with both ends of its reason. `seconds` are by the clock,
    `cpu_seconds` of its processes, without its hosts.
    """

    part: Part
    status: int
    seconds: float
    cpu_seconds: float
    closing: str
    tests: int
    untested: tuple[str, ...]
    failures: tuple[str, ...]

    @property
    def result(self) -> str:
        """A part of which every test was skipped has proved nothing, and did not pass."""
        if self.status:
            return "FAILED"
        return "passed" if "passed" in self.closing else "skipped"


def run_parts(
    parts: Sequence[Part], prepared: Future[None] | None, ended: Callable[[Outcome], None] = lambda _outcome: None
) -> None:
    """Run the parts, print the closing line of each and a table; raise CommandError if one failed.

    `ended` is called with the outcome of each part, one after the other.

    The longest begin first, as many as the processors and the memory of this machine suffice for. Parts without hosts
    begin while what the others need is still being made.
    """
    began = time.monotonic()
    report(f"\n{len(parts)} parts; output of each in {settings.LOGS}/part-NAME.log")
    waiting = sorted(parts, key=lambda part: part.expected, reverse=True)
    running: dict[Future[Outcome], Part] = {}
    outcomes: list[Outcome] = []
    memory = memory_available() - _MEMORY_KEPT_FREE
    with _removing_hosts_when_terminated(), ThreadPoolExecutor(len(parts)) as pool, _ending_processes():
        while waiting or running:
            ready = [part for part in waiting if not (part.on_hosts and prepared and not prepared.done())]
            for part in chosen(ready, list(running.values()), os.cpu_count() or 2, memory):
                waiting.remove(part)
                running[pool.submit(_run, part, prepared if part.on_hosts else None)] = part
            _until_one_is_done([*running, *([prepared] if prepared and not prepared.done() else [])])
            for future in [future for future in running if future.done()]:
                del running[future]
                outcomes.append(future.result())
                ended(outcomes[-1])
    outcomes.sort(key=lambda outcome: parts.index(outcome.part))
    for line in summary(outcomes, time.monotonic() - began):
        report(line)
    failed = [outcome.part.name for outcome in outcomes if outcome.status]
    if failed:
        raise CommandError(f"failed: {', '.join(failed)}")


@contextmanager
def _removing_hosts_when_terminated() -> Iterator[None]:
    """`kill` ends the run as Ctrl-C does: the threads of the parts remove their hosts."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _ending_processes() -> Iterator[None]:
    try:
        yield
    except BaseException:
        _ENDING.set()
        for process in tuple(_PROCESSES):
            _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """End pytest with all that it has started, in its own group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def chosen(ready: Sequence[Part], running: Sequence[Part], processors: int, memory: float) -> list[Part]:
    """The parts that begin now, in this order, next to those that run; one where none of them would fit."""
    begin: list[Part] = []
    for part in ready:
        together = [*running, *begin, part]
        fits = sum(one.cores for one in together) <= processors * _OVERLAP
        if len(together) == 1 or (fits and sum(one.memory for one in together) <= memory):
            begin.append(part)
    return begin


def memory_available() -> float:
    """GiB that programs can have now, without swapping."""
    (line,) = re.findall(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return int(line) / 2**20


def _until_one_is_done(futures: Sequence[Future[Any]]) -> None:
    wait(futures, return_when=FIRST_COMPLETED)


def parts_with(arguments: Sequence[str]) -> list[Part]:
    """The parts of the tests that pytest would choose with these arguments; none where it cannot collect them."""
    command = [str(settings.VENV / "bin" / "pytest"), "--collect-only", "-p", "no:cacheprovider", *arguments]
    printed = subprocess.run(
        command, cwd=settings.ROOT, env=settings.environment(), capture_output=True, text=True, check=False
    ).stdout
    tests = [line for line in printed.splitlines() if line.startswith("tests/") and "::" in line]
    return [part for part in PARTS if any(has_test(part, test) for test in tests)]


def has_test(part: Part, test: str) -> bool:
    """Whether a test, given by its node id, is one of the part's; markers and effort aside."""
    path = test.partition("::")[0]
    below = any(entry in (test, path) or path.startswith(f"{entry}/") for entry in part.tests)
    return below and path not in part.without


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
        closing = f"not run, the hosts could not be prepared: {error}"
        report(f"  {part.name:<20}{closing}")
        return Outcome(part, 1, 0.0, 0.0, closing, 0, (), ())
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
            argv, cwd=settings.ROOT, env=env, stdin=devnull, stdout=file, stderr=subprocess.STDOUT, process_group=0
        ) as process,
    ):
        _PROCESSES.add(process)
        if _ENDING.is_set():
            _end(process)
        _pid, ended, usage = os.wait4(process.pid, 0)
        status = process.returncode = os.waitstatus_to_exitcode(ended)
        _PROCESSES.discard(process)
    if part.on_hosts:
        hosts.remove_workspace(part.name)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    closing = lines[-1].strip("= ") if lines else "no output"
    tests, untested, failures = read_results(junit) if junit.exists() else (0, (), ())
    cpu_seconds = usage.ru_utime + usage.ru_stime
    outcome = Outcome(part, status, time.monotonic() - began, cpu_seconds, closing, tests, untested, failures)
    report(f"  {part.name:<20}{closing}")
    if status:
        shown = lines[-_LOG_LINES:]
        start = next((number for number, line in enumerate(shown) if " FAILURES " in line or " ERRORS " in line), 0)
        report("\n".join(shown[start:]))
    return outcome


def read_results(junit: Path) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Number of tests in a JUnit file of pytest, lines about what they could not test, and about those that failed.

    Tests of one file that are skipped for the same reason are one line.
    """
    tests = 0
    skips: dict[tuple[str, str], list[str]] = {}
    reported: dict[str, None] = {}
    failures: list[str] = []
    for case in ElementTree.parse(junit).iter("testcase"):
        tests += 1
        for skipped in case.iter("skipped"):
            key = case.get("classname") or "", skipped.get("message") or ""
            skips.setdefault(key, []).append(case.get("name") or "")
        for failed in (*case.iter("failure"), *case.iter("error")):
            # The text and not the message, which pytest shortens: a playbook's output, and behind it what differs.
            marked = [line[1:] for line in (failed.text or "").splitlines() if line.startswith("E ")]
            reason = " ".join(" ".join(marked or [failed.get("message") or ""]).split())
            if len(reason) > _REASON_START + _REASON_END:
                reason = f"{reason[:_REASON_START]} ... {reason[-_REASON_END:]}"
            failures.append(f"{case.get('classname')}.{case.get('name')}: {reason}")
        for entry in case.iter("property"):
            if (entry.get("name") or "").startswith(_REPORTED) and "skipped: " in (entry.get("value") or ""):
                reported[f"{(entry.get('name') or '').removeprefix(_REPORTED)}: {entry.get('value')}"] = None
    skipped_tests = (
        f"{of}.{names[0]}: {why}" if len(names) == 1 else f"{of}, {len(names)} tests: {why}"
        for (of, why), names in skips.items()
    )
    return tests, (*skipped_tests, *reported), tuple(failures)


def summary(outcomes: Sequence[Outcome], seconds: float) -> list[str]:
    """The lines at the end: a table of the parts, those that took long, what was not tested here, and what failed."""
    rows = [("part", "tests", "minutes", "of CPU", "result")]
    for outcome in outcomes:
        minutes = f"{outcome.seconds / 60:.1f}", f"{outcome.cpu_seconds / 60:.1f}"
        rows.append((outcome.part.name, str(outcome.tests), *minutes, outcome.result))
    total = sum(outcome.tests for outcome in outcomes)
    cpu_minutes = sum(outcome.cpu_seconds for outcome in outcomes) / 60
    rows.append(("all", str(total), f"{seconds / 60:.1f}", f"{cpu_minutes:.1f}", ""))
    table = (f"{name:<20}{tests:>7}{minutes:>9}{of_cpu:>8}  {result}" for name, tests, minutes, of_cpu, result in rows)
    lines = ["", *(line.rstrip() for line in table)]
    untested = [f"  {outcome.part.name}: {line}" for outcome in outcomes for line in outcome.untested]
    late = [
        f"  {outcome.part.name}: {outcome.seconds / 60:.1f} minutes, {outcome.part.minutes:.1f} in testbed/parts.py"
        for outcome in outcomes
        if outcome.part.minutes and outcome.seconds / 60 > _LATE * outcome.part.minutes
    ]
    lines += ["", "took over a quarter longer than in the table of parts:", *late] if late else []
    lines += ["", "not tested on this machine:", *(untested or ["  nothing was left out"])]
    # Last, since of the output of a CI job it is the end that is kept.
    failures = [f"  {outcome.part.name}: {line}" for outcome in outcomes for line in outcome.failures]
    return [*lines, *(["", "tests that failed:", *failures] if failures else [])]
