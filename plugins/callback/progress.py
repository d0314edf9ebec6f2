# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports tasks that take long while they run: downloads, builds of kernel modules, reboots."""

from __future__ import annotations

DOCUMENTATION = r"""
name: progress
type: aggregate
short_description: Report tasks that take long while they run
version_added: 1.0.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - A download, a build of kernel modules or a reboot takes minutes in which Ansible prints nothing. This callback
    prints a line with the task, the time since it began and the hosts that are waited for, after a minute and again
    each minute.
  - Tasks that are done before that print nothing. It runs nothing on the hosts, and needs no terminal.
  - Where another callback than P(ansible.builtin.default#callback), or one that extends it, prints the run, the lines
    go to the standard error, and the standard output stays as it is.
options:
  interval:
    description: Seconds after which a task is reported, and then again. V(0) reports none.
    type: int
    default: 60
    env:
      - name: GPU_FLEET_PROGRESS_INTERVAL
    ini:
      - section: callback_progress
        key: interval
requirements:
  - enabled by C(callbacks_enabled = gpu.fleet.progress) in the section C([defaults]) of C(ansible.cfg), or by
    E(ANSIBLE_CALLBACKS_ENABLED)
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import visible
from ansible_collections.gpu.fleet.plugins.plugin_utils._ansible_core import of_task
from ansible_collections.gpu.fleet.plugins.plugin_utils._stdout import stdout_is_for_people

_HOSTS_SHOWN = 3
# Waiting for a person takes as long as the person does.
_NEVER_REPORTED = frozenset({"pause", "ansible.builtin.pause"})


@dataclass(frozen=True)
class Running:
    """A task that runs on a host. `since` is a monotonic time in seconds."""

    task: str
    name: str
    since: float


class Tasks:
    """The tasks that run now. A host runs one at a time, so another one ends it."""

    def __init__(self, interval: float) -> None:
        """`interval`: seconds between two lines about a task."""
        self._interval = interval
        self._running: dict[str, Running] = {}
        self._reported: dict[str, float] = {}
        self._lock = threading.Lock()

    def start(self, host: str, running: Running) -> None:
        """A task began on a host."""
        with self._lock:
            self._running[host] = running

    def end(self, hosts: Sequence[str]) -> None:
        """The tasks of these hosts are over."""
        with self._lock:
            for host in hosts:
                self._running.pop(host, None)

    def clear(self) -> None:
        """All tasks are over."""
        with self._lock:
            self._running.clear()
            self._reported.clear()

    def due(self, now: float) -> list[str]:
        """The lines that are to be printed at this time."""
        with self._lock:
            hosts: dict[str, list[str]] = {}
            for host, running in self._running.items():
                hosts.setdefault(running.task, []).append(host)
            self._reported = {task: at for task, at in self._reported.items() if task in hosts}
            lines = []
            for task, names in hosts.items():
                first = min((self._running[name] for name in names), key=lambda running: running.since)
                if now - self._reported.get(task, first.since) >= self._interval:
                    self._reported[task] = now
                    lines.append(line(first.name, names, now - first.since))
            return lines


def line(task: str, hosts: Sequence[str], seconds: float) -> str:
    """What is printed about a task."""
    more = f" and {len(hosts) - _HOSTS_SHOWN} more" if len(hosts) > _HOSTS_SHOWN else ""
    return f"still running after {elapsed(seconds)}: {task} ({', '.join(hosts[:_HOSTS_SHOWN])}{more})"


def elapsed(seconds: float) -> str:
    """A duration for people: `50 s`, `2 min`, `1 h 5 min`."""
    minutes, rest = divmod(int(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no types
    """Follows the tasks, and prints from a thread of its own while Ansible waits for them."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpu.fleet.progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._tasks = Tasks(0)
        self._over = threading.Event()

    def v2_playbook_on_start(self, playbook: Any) -> None:
        interval = self.get_option("interval")
        if interval <= 0:
            return
        self._tasks = Tasks(interval)
        stderr = not stdout_is_for_people(constants.DEFAULT_STDOUT_CALLBACK)
        # Ansible starts its workers while it holds the lock of the display, so that none inherits it from this thread.
        threading.Thread(target=self._report, args=(stderr,), daemon=True).start()

    def _report(self, stderr: bool) -> None:
        while not self._over.wait(1.0):
            for text in self._tasks.due(time.monotonic()):
                self._display.display(visible(text), stderr=stderr)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._tasks.clear()

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._tasks.end([host.get_name()])
        if task.action not in _NEVER_REPORTED:
            running = Running(task._uuid, " ".join(task.get_name().split()), time.monotonic())
            self._tasks.start(host.get_name(), running)

    def v2_playbook_on_include(self, included_file: Any) -> None:
        self._tasks.end([host.get_name() for host in included_file._hosts])

    def v2_runner_on_ok(self, result: Any) -> None:
        self._end(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._end(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._end(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._end(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._over.set()

    def _end(self, result: Any) -> None:
        self._tasks.end([of_task(result, "host").get_name()])
