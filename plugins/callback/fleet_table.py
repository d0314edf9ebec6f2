# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints the fleet at the end of a run: a line for each host, and for each failed host a line with the reason."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_table
type: aggregate
short_description: A table of the GPU fleet at the end of a run
version_added: 1.0.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Prints one line for each host of the run, with its GPUs, driver, CUDA, ECC, MIG, containers and health. After the
    table come what limits a driver, such as the end of life of its branch, and one line for each host that failed or
    could not be reached, with the reason.
  - It shows what the run itself read with P(gpu.fleet.nvidia_smi_facts#module), P(gpu.fleet.gpu_health#module), the
    role P(gpu.fleet.gpu_health#role) and the smoke test of P(gpu.fleet.nvidia_container_toolkit#role), and queries no
    host. A run that read no GPUs and had no failure prints no table.
  - >-
    Hosts with a problem come first, as V(unhealthy) (the health check found a reason), V(failed) (a task failed) or
    V(unreachable), then those that returned what none of these modules returns (V(unreadable)), then those whose
    verdict is V(warn) or V(unknown). The verdict is followed by the remedy of
    P(gpu.fleet.gpu_health#module), for instance C(unhealthy: reset_gpu).
  - Where C(display_ok_hosts) is off, Ansible hides what a playbook or role of this collection reports, such as the plan
    of C(upgrade.yml --check). This callback prints it then, each message once; what P(gpu.fleet.gpu_health#role)
    reports is in the table.
  - A playbook of this collection that has run no task on any host is reported as such, and ends with status 1; Ansible
    ends it with 0. Callbacks that C(callbacks_enabled) has after this one do not see the end of such a run.
  - Where another callback than P(ansible.builtin.default#callback), or one that extends it, prints the run, such as the
    JSON of C(ansible.posix.json), the table goes to the standard error, and the standard output stays as it is.
options:
  show:
    description: Whether the table is printed.
    type: bool
    default: true
    env:
      - name: GPU_FLEET_TABLE
    ini:
      - section: callback_fleet_table
        key: show
  fold_above:
    description:
      - In a run of more hosts than this, hosts without a problem whose readings are the same take one line together,
        and so do equal reasons. Hosts with the same note share its line in any run. V(0) gives each host its lines.
    type: int
    default: 30
    env:
      - name: GPU_FLEET_TABLE_FOLD_ABOVE
    ini:
      - section: callback_fleet_table
        key: fold_above
requirements:
  - enabled by C(callbacks_enabled = gpu.fleet.fleet_table) in the section C([defaults]) of C(ansible.cfg), or by
    E(ANSIBLE_CALLBACKS_ENABLED)
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins.callback import CallbackBase
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line, visible
from ansible_collections.gpu.fleet.plugins.plugin_utils._ansible_core import of_task
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.documents import (
    WHAT_TO_DO,
    FormError,
    Judged,
    Listed,
    ListedGpu,
    RoleHealth,
    Seen,
    Work,
    read,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._stdout import stdout_is_for_people

_COLLECTION = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..")) + os.sep
_IN_THE_TABLE = os.path.join(_COLLECTION, "roles", "gpu_health", "")
_UNKNOWN = "-"
_NOT_APPLICABLE = "n/a"

_FOLD_ABOVE = 30
# In the order of the table, with the verb of the line that states the reason.
_VERB = {
    "unhealthy": "is unhealthy",
    "failed": "failed",
    "unreachable": "is unreachable",
    "unreadable": "cannot be read",
    "warn": "needs attention",
    "unknown": "cannot be judged",
}
_STATES = tuple(_VERB)
# Each host with a problem keeps its line in the table.
_PROBLEMS = ("unhealthy", "failed", "unreachable", "unreadable", "warn")
_LONGEST_CELL = 80
_LONGEST_LINE = 4000
_NAMED_HOSTS = 8

_Line = TypeVar("_Line", str, tuple[str, ...])

# What Ansible puts before the message of a module, a template or a plugin.
_OPENING_WORDS = re.compile(
    r"^(?:(?:Task|Action|Module) failed: |Finalization of task args for \S+ failed: "
    r"|Error while resolving value for \S+: |The \w+ plugin \S+ failed: )+"
)

_UNTOUCHED = (
    "no task has run on any host: see gpu_fleet_targets, --limit, --tags, --start-at-task and the inventory; with "
    "host_pattern_mismatch = error in the section [inventory] of ansible.cfg a pattern without hosts is a failure"
)
# Once in full below the table, and in short at each host.
_UNMANAGED_NOTE = "the driver was installed by "
_UNMANAGED = " (unmanaged)"

_HEADER = ("host", "gpus", "driver", "cuda", "ecc", "mig", "containers", "health")


@dataclass
class HostRecord:
    """What a run reported about one host.

    facts: RETURN of nvidia_smi_facts, None when not read. health: the fact gpu_health_result, None when not set.
    judged: RETURN of gpu_health, None when the module did not run.
    containers: what containers saw, the fact nvidia_container_toolkit_seen, None when not set.
    notes: plan.notes of host_facts.
    reason: why the last failed task failed, one line. failed and unreachable: the host's final status.
    """

    facts: Mapping[str, Any] | None = None
    health: Mapping[str, Any] | None = None
    judged: Mapping[str, Any] | None = None
    containers: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()
    reason: str = ""
    failed: bool = False
    unreachable: bool = False


def render(records: Mapping[str, HostRecord], fold_above: int = _FOLD_ABOVE) -> list[str]:
    """The lines to print for these records, by host name; none when there is nothing to report.

    fold_above: number of hosts above which equal lines of several hosts become one; 0 for never.
    """
    if not any(record.facts or record.judged or record.failed or record.unreachable for record in records.values()):
        return []
    shown = {host: _shown(record) for host, record in records.items()}
    hosts = sorted(shown.items(), key=lambda item: (_urgency(item[1].state), _natural(item[0])))
    fold = 0 < fold_above < len(hosts)
    rows = _folded(
        ((host, line.cells) for host, line in hosts),
        lambda cells: fold and cells[-1].partition(":")[0] not in _PROBLEMS,
    )
    reasons = _folded(
        (
            (host, f" {_VERB[line.state]}: {line.reason.removeprefix(host + ': ')}")
            for host, line in hosts
            if line.state in _STATES
        ),
        lambda _reason: fold,
    )
    # A note is a state that lasts, and no problem: each run has it once, however few hosts share it.
    notes = _folded(
        ((host, f": {note}") for host, line in hosts for note in line.notes),
        lambda _note: fold_above > 0,
        _NAMED_HOSTS,
    )
    lines = align([_HEADER, *((hosts_named, *cells) for hosts_named, cells in rows)])
    for following in (notes, reasons):
        lines += ["", *(hosts_named + text for hosts_named, text in following)] if following else []
    return lines


@dataclass(frozen=True)
class _Shown:
    """What is printed of a host."""

    state: str
    cells: tuple[str, ...]
    reason: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Host:
    """A record whose parts have passed: what its modules returned is as they document it."""

    record: HostRecord
    facts: Listed | None = None
    health: RoleHealth | None = None
    judged: Judged | None = None
    seen: tuple[Seen, ...] = ()
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> str | None:
        """Of the role, or of the module where that ran alone; the role may judge by other means alone."""
        if self.health is not None:
            return self.health.verdict or "ok"
        return self.judged.verdict if self.judged else None

    @property
    def remedy(self) -> str:
        """Of the verdict."""
        found = self.health or self.judged
        return (found.remedy if found else None) or "none"

    @property
    def is_refused(self) -> bool:
        """Whether the health check refuses it."""
        if self.health is not None and self.health.ok is not None:
            return not self.health.ok
        return self.verdict == "fail"


def _read(record: HostRecord) -> _Host:
    """Raises FormError."""
    health = None if record.health is None else read(RoleHealth, record.health)
    work = read(Work, {"notes": [] if record.notes == () else record.notes})
    seen = None if record.containers is None else read(Seen, record.containers)
    return _Host(
        record,
        None if record.facts is None else read(Listed, record.facts),
        health,
        None if record.judged is None else read(Judged, record.judged),
        tuple(filter(None, (health.containers if health else None, seen))),
        # The health check and the plan of the roles may have found the same.
        tuple(dict.fromkeys([*((health.notes if health else None) or ()), *work.notes])),
    )


def _shown(record: HostRecord) -> _Shown:
    """What is printed of a host. It may have returned anything, which must not leave the others without a line."""
    try:
        host = _read(record)
    except FormError as error:
        state = "unreachable" if record.unreachable else "failed" if record.failed else "unreadable"
        found = record.reason or f"its result has another form than its modules document: {error}; {WHAT_TO_DO}"
        cells = (*(_UNKNOWN for _column in _HEADER[2:]), state)
        return _Shown(state, cells, one_line(found, _LONGEST_LINE), ())
    return _Shown(
        _state(host),
        tuple(one_line(cell, _LONGEST_CELL) for cell in _cells(host)),
        one_line(_reason(host), _LONGEST_LINE),
        tuple(one_line(note, _LONGEST_LINE) for note in host.notes),
    )


def _folded(
    lines: Iterable[tuple[str, _Line]], may_fold: Callable[[_Line], bool], named: int = 1
) -> list[tuple[str, _Line]]:
    """Lines of hosts, in their order. Equal ones that may be folded become one, at the place of the first.

    Up to `named` hosts of a line are named; of more, their number and the first.
    """
    groups: dict[tuple[str, _Line], list[str]] = {}
    for host, line in lines:
        groups.setdefault(("" if may_fold(line) else host, line), []).append(host)
    return [
        (", ".join(hosts) if len(hosts) <= named else f"{len(hosts)} hosts such as {hosts[0]}", line)
        for (_host, line), hosts in groups.items()
    ]


def _urgency(state: str) -> int:
    return _STATES.index(state) if state in _STATES else len(_STATES)


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns two spaces apart, each as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _natural(host: str) -> list[tuple[int, str]]:
    """Natural sort key: node2 before node10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", host)]


def _cells(host: _Host) -> tuple[str, ...]:
    """The cells of a host after its name."""
    gpus = (host.facts.gpus if host.facts else None) or ()
    found = host.facts or host.judged
    return (
        _gpus(host),
        ((found.driver_version if found else None) or _UNKNOWN) + (_UNMANAGED if _is_unmanaged(host) else ""),
        (host.facts.cuda_version if host.facts else None) or _UNKNOWN,
        _summary([_mode(gpu.ecc_mode_current, gpu.ecc_mode_pending) for gpu in gpus]),
        _mig(gpus),
        _containers(host),
        _health(host),
    )


def _is_unmanaged(host: _Host) -> bool:
    """Whether a note of the role nvidia_driver is that the driver is not its own."""
    return any(note.startswith(_UNMANAGED_NOTE) for note in host.notes)


def _gpus(host: _Host) -> str:
    """GPU count by model, from nvidia-smi, or from the PCI bus when nvidia-smi gives none."""
    if host.facts and host.facts.reason == "no_gpu":
        return "no GPU"
    found = host.facts or host.judged
    names = [gpu.name or "unknown" for gpu in (found.gpus if found else None) or ()]
    on_bus = len((host.facts.pci_gpus if host.facts else None) or ())
    return _numbered(Counter(names)) if names else f"{on_bus} on PCI" if on_bus else _UNKNOWN


def _summary(values: Sequence[str]) -> str:
    """Equal values once, different ones with their counts: `enabled`, or `7 x enabled, 1 x disabled`."""
    counts = Counter(values)
    return _numbered(counts) if len(counts) > 1 else next(iter(counts), _UNKNOWN)


def _numbered(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {value}" for value, count in counts.items())


def _mode(current: str | None, pending: str | None) -> str:
    """Current mode of a GPU, with the pending one after the next reset or reboot where they differ."""
    if current is None:
        return _NOT_APPLICABLE
    return current if pending in (None, current) else f"{current} -> {pending}"


def _mig(gpus: Sequence[ListedGpu]) -> str:
    devices = sum(len(gpu.mig_devices or ()) for gpu in gpus)
    modes = _summary([_mode(gpu.mig_mode_current, gpu.mig_mode_pending) for gpu in gpus])
    return modes + (f" ({devices} devices)" if devices else "")


def _containers(host: _Host) -> str:
    for seen in host.seen:
        if seen.gpus is not None:
            devices = f" + {seen.mig_devices} MIG" if seen.mig_devices else ""
            return f"{seen.gpus}{devices} ({seen.mode})"
    return _UNKNOWN


def _health(host: _Host) -> str:
    """The state of a host, and the remedy of its verdict."""
    state = _state(host)
    return state if host.remedy == "none" or state in ("failed", "unreachable") else f"{state}: {host.remedy}"


def _state(host: _Host) -> str:
    if host.record.unreachable:
        return "unreachable"
    # A host that the health check refuses has failed as well; its tasks have not.
    if host.is_refused:
        return "unhealthy"
    return "failed" if host.record.failed else host.verdict or _UNKNOWN


def _reason(host: _Host) -> str:
    """Why a host has a problem. In check mode the health check finds reasons and refuses nothing."""
    state = _state(host)
    if state in ("failed", "unreachable"):
        return host.record.reason
    found = host.health or host.judged
    reasons = (host.health.reasons if host.health else None) or [
        finding.message
        for finding in (found.findings if found else None) or ()
        if finding.verdict == (host.verdict if state == "unhealthy" else state)
    ]
    return "; ".join(reasons) or host.record.reason


def failure_reason(result: Mapping[str, Any]) -> str:
    """Why a task failed, in one line: Ansible's message, and what to do where Ansible does not state it."""
    items = result.get("results")
    failed = [item for item in items if isinstance(item, Mapping) and _has_failed(item)] if items else []
    errors = [error for part in (result, *failed) for error in part.get("argument_errors") or []]
    if errors:
        return message_line("; ".join(errors)) + "; correct the variable in the inventory or with -e"
    if failed:
        return "; ".join(dict.fromkeys(map(failure_reason, failed)))
    message, output = (message_line(str(result.get(key) or "")) for key in ("msg", "stderr"))
    parts = [message] if output in message else [message, output]
    return ": ".join(filter(None, parts)) or _hidden(result) or "the task reports no reason"


def _has_failed(item: Mapping[str, Any]) -> bool:
    """Whether an item of a loop has failed; with ansible-core 2.21 only its exception shows it."""
    return bool(item.get("failed") or ("exception" in item and item.get("failed_when_result", True)))


def _hidden(result: Mapping[str, Any]) -> str:
    """That Ansible hides the reason, and what to do; empty where it does not."""
    if "censored" not in result:
        return ""
    if constants.DEFAULT_NO_LOG:
        return "no_log hides the reason; run again without ANSIBLE_NO_LOG, or no_log in ansible.cfg"
    return "no_log of the task hides the reason, as it may have secrets"


def unreachable_reason(result: Mapping[str, Any]) -> str:
    """Why a host could not be reached, in one line, with what to check."""
    message = message_line(str(result.get("msg") or _hidden(result) or "no connection"))
    return f"{message}; check that the host is up, and its address, user and key in the inventory"


def message_line(text: str) -> str:
    """The text as one line that can be seen, without Ansible's opening words and the final full stop."""
    return _OPENING_WORDS.sub("", one_line(text)).rstrip(".")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _hides_ok() -> bool:
    """Whether the standard output is for people and has no results that are ok."""
    callback = constants.DEFAULT_STDOUT_CALLBACK
    if not stdout_is_for_people(callback):
        return False
    try:
        shows = constants.config.get_config_value("display_ok_hosts", plugin_type="callback", plugin_name=callback)
    except AnsibleError:
        return False
    return not shows


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no types
    """Collects the records of the hosts during the run and prints them at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpu.fleet.fleet_table"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, HostRecord] = {}
        self._printed: set[str] = set()
        self._is_ours = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._is_ours = os.path.realpath(getattr(playbook, "_file_name", "") or "").startswith(_COLLECTION)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._report(result)
        record, found, action = self._record(result), of_task(result, "result"), of_task(result, "task").action
        facts = _mapping(found.get("ansible_facts"))
        record.facts = facts.get("nvidia_smi", record.facts)
        record.health = facts.get("gpu_health_result", record.health)
        if action in ("gpu.fleet.gpu_health", "gpu_health"):
            record.judged = found
        record.containers = facts.get("nvidia_container_toolkit_seen", record.containers)
        if action in ("gpu.fleet.host_facts", "host_facts"):
            record.notes = _mapping(found.get("plan")).get("notes", ())

    def v2_runner_item_on_ok(self, result: Any) -> None:
        self._report(result)

    def _report(self, result: Any) -> None:
        """Print what a task of ours reports and Ansible hides as a result that is ok."""
        found, task = of_task(result, "result"), of_task(result, "task")
        if task.action not in ("ansible.builtin.debug", "debug") or found.get("changed") or "results" in found:
            return
        path = os.path.realpath((task.get_path() or "").rpartition(":")[0])
        if not path.startswith(_COLLECTION) or path.startswith(_IN_THE_TABLE) or not _hides_ok():
            return
        given = found.get("msg")
        host = "" if task.run_once else of_task(result, "host").get_name()
        for line in given if isinstance(given, list) else [given]:
            text = one_line(str(line), _LONGEST_LINE)
            text = text if host in text else f"{host}: {text}"
            if text not in self._printed:
                self._printed.add(text)
                self._display.display(visible(text))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._record(result).reason = failure_reason(of_task(result, "result"))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._record(result).reason = unreachable_reason(of_task(result, "result"))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        for host, record in self._records.items():
            summary = stats.summarize(host)
            record.failed, record.unreachable = summary["failures"] > 0, summary["unreachable"] > 0
        lines = render(self._records, self.get_option("fold_above")) if self.get_option("show") else []
        is_untouched = self._is_ours and not stats.processed
        lines += [_UNTOUCHED] if is_untouched else []
        if lines:
            for_program = not stdout_is_for_people(constants.DEFAULT_STDOUT_CALLBACK)
            self._display.display("\n" + "\n".join(map(visible, lines)), stderr=for_program)
        if is_untouched:
            # Ansible would end with 0, and what a callback raises otherwise is no more than a warning of it.
            raise SystemExit(1)

    def _record(self, result: Any) -> HostRecord:
        return self._records.setdefault(of_task(result, "host").get_name(), HostRecord())
