# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply the saved plan to the GPUs at boot, with the code of the modules. Private to this collection.

The service runs this program without Ansible. A GPU that fails does not affect the others; what was done, and what
failed, is in the journal, one line each. The exit status is 0 only when everything was read back as saved. With
`--check`, for interactive use, it shows what it would do and changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterable, Mapping, Sequence, TextIO

from .._common import gpu_clients
from .._common.errors import ChangeError, HostError, RunError, is_hang, is_hang_of_host
from .._common.regular_file import text_of
from .._common.runner import find_executable
from .._common.systemd import Systemd, Unit
from .._mig import run as mig_run
from .._nvidia_smi.client import RetryPolicy, Smi
from .._nvidia_smi.gpu import Gpu
from .._nvidia_smi.remedies import unresponsive
from .._settings import run as settings_run
from . import plan as state_plan
from .plan import PlannedGpu, PlannedMig, StatePlan, place_of
from .request import MIG_DEFAULTS

_POLL_SECONDS = 2.0
_NEWS_SECONDS = 60.0
LOCK_SECONDS = 120.0
"""Time to wait for another run of the collection."""

WORK_SECONDS = 520.0
"""Time limit of the work, once the driver is ready: the service has a little more before systemd ends it."""
SETTINGS, MIG = "settings", "MIG"
_LEAST_SECONDS = {SETTINGS: 20.0, MIG: 120.0}
"""With less time left nothing of this kind begins: what is cut off leaves a GPU half changed."""
_OVERRUN_SECONDS = 10.0
"""How much longer than its time a kind of step may take: a call that is ended then takes a moment more."""
_MOST_HANGS = 2
"""So many GPUs in a row whose calls hang end a kind of step: each costs minutes, and MIG has to have its time."""
_ADVICE = "once nvidia-smi responds, run systemctl restart gpu-fleet-state.service"
_LAST_WAIT_SECONDS = 60.0
"""How long a last call may take after the time to wait for the driver."""

PLAN_FILE = "/var/lib/gpu-fleet/state/plan.json"
AS_SAVED, DIFFERS, FAILED = 0, 1, 2
"""Exit statuses of `--check`. The service itself ends with 0 or 1."""

# Priorities of the journal: syslog(3).
ERROR, WARNING, INFO = 3, 4, 6

Run = Callable[[Mapping[str, Any], bool, bool], Mapping[str, Any]]
Log = Callable[[str, int], None]
"""Logs a line with a priority."""


@dataclass
class Boot:
    """One run of the program. `problems` has a line for everything that differs from the plan and cannot be applied.

    `check_mode`: nothing is changed; `differences` has, by GPU label, the lines that a change would remove and add.
    `stopped` has the units that were, or would be, stopped meanwhile.
    """

    plan: StatePlan
    log: Log
    run_settings: Run = settings_run.run
    run_mig: Run = mig_run.run
    systemd: Systemd = field(default_factory=Systemd)
    check_mode: bool = False
    problems: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    differences: dict[str, list[str]] = field(default_factory=dict)
    stopped: tuple[str, ...] = ()
    clock: Callable[[], float] = time.monotonic
    _labels: dict[str, str] = field(default_factory=dict)
    _deadline: float = 0.0
    # Seconds that belong to a kind that is still to come.
    _reserved: float = 0.0
    # The GPUs whose settings hang, and those that were left out.
    _unset: set[str] = field(default_factory=set)

    def run(self, gpus: Sequence[Gpu]) -> None:
        """Apply the plan to `gpus`, which are all GPUs of the host. A failure of the host itself ends the run."""
        self._deadline = self.clock() + WORK_SECONDS
        with contextlib.suppress(_EndError):
            self._serve_all(self._present(gpus))

    def _serve_all(self, present: Sequence[PlannedGpu]) -> None:
        with_settings = [gpu for gpu in present if gpu.settings]
        with_mig = [gpu for gpu in present if gpu.mig is not None]
        self._reserved = _LEAST_SECONDS[MIG] + _OVERRUN_SECONDS if with_mig else 0.0
        self._serve(SETTINGS, with_settings, self._settings)
        self._reserved = 0.0
        changed = self._serve(MIG, with_mig, self._mig)
        if changed and not self.check_mode:
            # A change of MIG mode drops settings.
            self._serve(SETTINGS, [gpu for gpu in with_settings if gpu.uuid not in self._unset], self._settings)

    def _present(self, gpus: Sequence[Gpu]) -> list[PlannedGpu]:
        """The planned GPUs that are present; missing and unplanned ones are reported."""
        there = {gpu.basics.uuid: gpu for gpu in gpus}
        self._labels = {uuid: gpu.label for uuid, gpu in there.items() if uuid is not None}
        planned = {gpu.uuid for gpu in self.plan.gpus}
        new = {gpu.basics.pci_bus_id: gpu for gpu in gpus if gpu.basics.uuid not in planned}
        # A lost GPU may have nothing left but its error.
        nameless = new.get(None)
        found = []
        for gpu in self.plan.gpus:
            if gpu.uuid in there:
                found.append(gpu)
                self._check_ecc(gpu, there[gpu.uuid])
                continue
            successor = new.get(gpu.pci_bus_id, nameless)
            if successor is not None and successor.error is not None:
                self._note(unresponsive(gpu.label, successor.error))
            elif successor is not None:
                self._note(f"{gpu.label} was replaced by {successor.basics.uuid}; run gpu_state again")
            else:
                self._note(f"{gpu.label} has gone")
        for gpu_there in new.values():
            if gpu_there.error is None:
                self.log(f"{gpu_there.label}: not in the plan, left as it is", WARNING)
        return found

    def _check_ecc(self, planned: PlannedGpu, there: Gpu) -> None:
        """Compare ECC, which persists by itself and takes a reboot to change."""
        desired = None if planned.ecc is None else ("enabled" if planned.ecc else "disabled")
        if desired is not None and there.basics.ecc_mode_current != desired:
            self._note(
                f"{there.label}: ECC is {there.basics.ecc_mode_current}, declared {desired}; run gpu_state again"
            )

    def _serve(self, what: str, gpus: Sequence[PlannedGpu], run: Callable[[Sequence[PlannedGpu]], bool]) -> bool:
        """Apply to all GPUs at once, and one by one when that fails. Returns whether anything was changed."""
        if not gpus or self._lacks_time(what, gpus):
            return False
        error = self._attempt(what, gpus, run)
        if not isinstance(error, ChangeError):
            return error
        if len(gpus) == 1:
            self._note_failure(what, gpus[0], error)
            return True
        hanging: list[PlannedGpu] = []
        for place, gpu in enumerate(gpus):
            if self._lacks_time(what, gpus[place:]):
                break
            error = self._attempt(what, (gpu,), run)
            if isinstance(error, ChangeError):
                self._note_failure(what, gpu, error)
            hanging = [*hanging, gpu] if isinstance(error, ChangeError) and is_hang(error) else []
            if len(hanging) == _MOST_HANGS:
                self._leave_out(what, hanging, gpus[place + 1 :])
                break
        return True

    def _attempt(
        self, what: str, gpus: Sequence[PlannedGpu], run: Callable[[Sequence[PlannedGpu]], bool]
    ) -> bool | ChangeError:
        """Apply to these GPUs: whether anything was changed, or the error. A failure of the host ends the run."""
        try:
            return run(gpus)
        except ChangeError as error:
            if isinstance(error, RunError):
                self._describe(error.result)
            if isinstance(error.__cause__, HostError) or is_hang_of_host(error):
                self._note(f"{what} failed on the whole host: {error}", is_failure=True)
                raise _EndError from error
            return error

    def _note_failure(self, what: str, gpu: PlannedGpu, error: ChangeError) -> None:
        if what == SETTINGS and is_hang(error):
            self._unset.add(gpu.uuid)
        self._note(f"{self._labels[gpu.uuid]}: {what} failed: {error}", is_failure=True)

    def _leave_out(self, what: str, hanging: Sequence[PlannedGpu], left: Sequence[PlannedGpu]) -> None:
        """Leave the other GPUs as they are: the calls for them would most likely hang as well."""
        if left:
            self._note_left(what, left, f"nvidia-smi did not respond for {self._names(hanging)}, one after the other")

    def _lacks_time(self, what: str, gpus: Sequence[PlannedGpu]) -> bool:
        """Whether too little time is left for these GPUs, which is a problem then."""
        if self._left() >= _LEAST_SECONDS[what]:
            return False
        took = WORK_SECONDS - self._left() - self._reserved
        self._note_left(what, gpus, f"the earlier steps took {took:.0f} s, and the boot has to continue")
        return True

    def _note_left(self, what: str, gpus: Sequence[PlannedGpu], why: str) -> None:
        if what == SETTINGS:
            self._unset.update(gpu.uuid for gpu in gpus)
        self._note(f"{what} not applied to {self._names(gpus)}: {why}; {_ADVICE}", is_failure=True)

    def _names(self, gpus: Sequence[PlannedGpu]) -> str:
        return ", ".join(self._labels[gpu.uuid] for gpu in gpus)

    def _left(self) -> float:
        """The seconds that the present kind of step may take."""
        return self._deadline - self._reserved - self.clock()

    def _settings(self, gpus: Sequence[PlannedGpu]) -> bool:
        entries = [{"gpus": [gpu.uuid], **gpu.settings} for gpu in gpus]
        result = self.run_settings({"settings": entries, **self._common()}, self.check_mode, self.check_mode)
        self._describe(result)
        return bool(result["changed"])

    def _mig(self, gpus: Sequence[PlannedGpu]) -> bool:
        options = {
            **MIG_DEFAULTS,
            "layouts": [_layout(gpu.uuid, gpu.mig) for gpu in gpus if gpu.mig is not None],
            "reset": "if_required" if self.plan.reset else "never",
            **self._common(),
        }
        saved = {gpu.uuid: gpu.mig for gpu in gpus}
        blocking_units: Sequence[Unit] = ()
        try:
            expected = self.run_mig(options, True, True)
            if expected["changed"]:
                blocking_units = self._blocking_units(expected["gpus"], saved)
        except ChangeError as error:
            # The change itself reads everything again, and has a better error message.
            if self.check_mode or isinstance(error.__cause__, HostError):
                raise
        if self.check_mode:
            self._describe(expected)
            self.stopped = tuple(unit.name for unit in blocking_units if unit.is_active)
            for row in expected["gpus"]:
                if row["status"] == "pending":
                    self._note(f"{self._labels[row['uuid']]}: MIG is pending: {_why(row)}")
            return bool(expected["changed"])
        with gpu_clients.stopped(self.systemd, blocking_units, is_boot=True) as self.stopped:
            if self.stopped:
                self.log(f"stopped while GPUs change: {', '.join(self.stopped)}", INFO)
            result = self.run_mig(options, False, False)
        self._describe(result)
        for row in result["gpus"]:
            if row["status"] not in ("changed", "unchanged"):
                self._note(f"{self._labels[row['uuid']]}: MIG is {row['status']}: {_why(row)}")
                continue
            self._compare_devices(row, saved[row["uuid"]])
        # A restart of persistenced drops settings as well.
        return bool(result["changed"] or self.stopped)

    def _blocking_units(self, rows: Sequence[Mapping[str, Any]], saved: Mapping[str, PlannedMig | None]) -> list[Unit]:
        """The units that must be stopped for the coming changes, as in a run of the module."""
        units = self.systemd.show(gpu_clients.clients(self.plan.clients))
        modes = {uuid: "enabled" if mig is not None and mig.enabled else "disabled" for uuid, mig in saved.items()}
        moves = any(row["mig_mode_current"] != modes[row["uuid"]] for row in rows)
        destroys = any(row["destroyed"] for row in rows)
        return gpu_clients.blocking_units(units, self.plan.clients, moves, destroys)

    def _compare_devices(self, row: Mapping[str, Any], mig: PlannedMig | None) -> None:
        """Report instances that were created with another UUID, for users that refer to them by UUID."""
        if mig is None or mig.profiles is None:
            return
        label = self._labels[row["uuid"]]
        self.log(
            f"{label}: MIG {'enabled' if mig.enabled else 'disabled'}, {', '.join(mig.profiles) or 'no instances'}",
            INFO,
        )
        now = Counter((place_of(instance), instance["uuid"]) for instance in row["instances"])
        before = Counter((device.place, device.uuid) for device in mig.devices if device.uuid is not None)
        lost = before - now
        if lost:
            self.log(
                f"{label}: other UUIDs than before: {', '.join(str(uuid) for _place, uuid in sorted(lost))} are gone",
                WARNING,
            )

    def _common(self) -> dict[str, Any]:
        return {
            "executable": self.plan.executable,
            "timeout": self.plan.timeout,
            "lock_timeout": LOCK_SECONDS,
            "time_limit": self._left(),
        }

    def _describe(self, result: Mapping[str, Any]) -> None:
        """Log the calls that changed something, by GPU; in check mode collect what would be changed."""
        for command in result["commands"]:
            uuid = next((word for word in command.split() if word in self._labels), None)
            self.log(f"{self._labels[uuid]}: {command}" if uuid is not None else command, INFO)
        for warning in result.get("warnings", ()):
            self.log(warning, WARNING)
        if self.check_mode and "diff" in result:
            import difflib

            before, after = (_blocks(result["diff"][key], self._labels.values()) for key in ("before", "after"))
            for label in self._labels.values():
                lines = difflib.ndiff(before.get(label, []), after.get(label, []))
                self.differences.setdefault(label, []).extend(line for line in lines if line.startswith(("-", "+")))

    def _note(self, problem: str, is_failure: bool = False) -> None:
        self.problems.append(problem)
        if is_failure:
            self.failures.append(problem)
        if not self.check_mode:
            self.log(f"FAILED: {problem}", ERROR)


class _EndError(Exception):
    """The run cannot go on; the problem is noted."""


def _why(row: Mapping[str, Any]) -> str:
    return row["message"] or "MIG mode takes effect only after a reset of the GPU"


def _layout(uuid: str, mig: PlannedMig) -> dict[str, Any]:
    return {
        "gpus": [uuid],
        "enabled": mig.enabled,
        "profiles": None if mig.profiles is None else list(mig.profiles),
    }


def _blocks(text: str, labels: Iterable[str]) -> dict[str, list[str]]:
    """The text of a diff by GPU: the lines under each label, and the rest of the label's own line."""
    blocks: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        label = next((label for label in labels if line.startswith(label + ":")), None)
        if label is not None:
            lines = blocks.setdefault(label, [])
        rest = line[len(label or "") :].strip(": ")
        if rest:
            lines.append(rest)
    return blocks


def wait_for_gpus(
    plan: StatePlan,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    describe: Log = lambda _line, _priority: None,
) -> tuple[Gpu, ...]:
    """Wait for the driver; gives all GPUs of the host, or raises ChangeError after `plan.boot_timeout`."""
    if not os.path.exists(find_executable(plan.executable)):
        raise ChangeError(f"{plan.executable} is not there; install the driver, or run gpu_state again")
    began = now = clock()
    reported = None
    while True:
        # An attempt is several calls; a driver that hangs must not take more time than there is.
        limit = max(plan.boot_timeout - (now - began), min(plan.timeout, _LAST_WAIT_SECONDS))
        try:
            return Smi(plan.executable, RetryPolicy(timeout=plan.timeout), time_limit=limit).document().gpus
        except ChangeError as error:
            now = clock()
            if now - began >= plan.boot_timeout:
                raise ChangeError(f"the driver did not respond within {plan.boot_timeout} s: {error}") from error
            if reported is None or now - reported >= _NEWS_SECONDS:
                reported = now
                describe(f"waiting for the driver, {plan.boot_timeout - (now - began):.0f} s at most: {error}", WARNING)
        sleep(_POLL_SECONDS)


def log(line: str, priority: int = INFO) -> None:
    """Write a line to the journal, with its priority as in sd-daemon(3); to other outputs without it."""
    prefix = f"<{priority}>" if _is_journal(sys.stdout) else ""
    sys.stdout.write(f"{prefix}{' '.join(line.split())}\n")
    sys.stdout.flush()


def _is_journal(stream: TextIO) -> bool:
    """Whether a stream is connected to the journal, according to systemd."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def notify(status: str, address: str | None = None) -> None:
    """Set the status line of `systemctl status`, as sd_notify(3) does."""
    address = address or os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    # Optional: the journal has the same information.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
        stream.connect(address)
        stream.sendall(("STATUS=" + " ".join(status.split())).encode("utf-8", "replace"))


def serve(path: str) -> int:
    """Apply the plan in `path` to the GPUs; 0 when they are as saved, else 1."""
    problems: Sequence[str]

    def report_wait(line: str, priority: int) -> None:
        log(line, priority)
        notify(line)

    try:
        plan = _read(path)
        boot = Boot(plan, log)
        boot.run(wait_for_gpus(plan, describe=report_wait))
        problems = boot.problems
    except (ChangeError, OSError, UnicodeDecodeError) as error:
        problems = [str(error)]
        log(f"FAILED: {error}", ERROR)
    summary = "; ".join(problems)
    notify(summary or f"{len(plan.gpus)} GPUs are as declared")
    return 1 if summary else 0


def check(path: str) -> int:
    """Show what `serve` would change now, and change nothing: AS_SAVED, DIFFERS or FAILED."""
    try:
        plan = replace(_read(path), boot_timeout=0)
        boot = Boot(plan, log, check_mode=True)
        gpus = wait_for_gpus(plan)
        boot.run(gpus)
    except (ChangeError, OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"gpu-fleet-state: {error}\n")
        return FAILED
    planned = {gpu.uuid for gpu in plan.gpus}
    changed = {label: lines for label, lines in boot.differences.items() if lines}
    shown: list[str] = []
    for gpu in gpus:
        lines = changed.get(gpu.label, [])
        has_problem = any(problem.startswith(gpu.label) for problem in boot.problems)
        if gpu.basics.uuid in planned:
            shown.append(
                f"{gpu.label}: {'would be changed' if lines else 'not as saved' if has_problem else 'as saved'}"
            )
        shown += [f"  {line}" for line in lines]
    shown += [f"problem: {problem}" for problem in boot.problems]
    if boot.stopped:
        shown.append(f"stopped meanwhile and started again: {', '.join(boot.stopped)}")
    if changed and not boot.failures:
        shown.append("to apply it: systemctl restart gpu-fleet-state.service")
    sys.stdout.write("".join(f"{line}\n" for line in shown))
    if boot.failures:
        return FAILED
    return DIFFERS if changed or boot.problems else AS_SAVED


def _read(path: str) -> StatePlan:
    return state_plan.parse(text_of(path))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program as the service does, with the path of the plan, or interactively with `--check`."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="gpu-fleet-state",
        description="Bring the GPUs of this host to the state that gpu.fleet.gpu_state has saved, as at boot.",
        epilog=f"--check ends with {AS_SAVED} when all is as saved, {DIFFERS} when something differs, "
        f"{FAILED} when that cannot be found out. The service without it: 0 or 1.",
    )
    parser.add_argument("--check", action="store_true", help="show what would be changed, and change nothing")
    parser.add_argument("plan", nargs="?", help=f"the saved plan; with --check {PLAN_FILE} by default")
    options = parser.parse_args(arguments)
    if options.check:
        return check(options.plan or PLAN_FILE)
    if options.plan is None:
        parser.error("--check shows what would be changed; to apply it: systemctl restart gpu-fleet-state.service")
    return serve(options.plan)
