# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the result of a whole run as JSON: per host what changed and why, versions before and after, health."""

from __future__ import annotations

DOCUMENTATION = r"""
name: run_result
type: notification
short_description: The result of a whole run as JSON
version_added: 1.0.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Writes one JSON file at the end of a run, with each host of it, those included that failed, could not be reached or
    had no task. It has what changed and why, versions before and after, and what the health check found.
  - It reports what the run itself read and did, and queries no host. Versions come from P(gpu.fleet.host_facts#module)
    and the other facts modules of the collection; without them they are V(null).
  - The schema is C(docs/run-result.schema.json) in the collection.
  - No parameters of tasks, differences of files, output of programs or items of loops are in it. Names of tasks and
    messages of failures are, as the output of the run has them.
  - The file is replaced as a whole, and its directory is created. Where it cannot be written, the run ends as it would
    without it, with a warning.
options:
  path:
    description:
      - The file to write. Without it, none is written.
      - The variable C(gpu_fleet_result_file) is used before it, from the command line, the play or the inventory as the
        first host of the play has it; not from the inventory where this host has a fact of that name, which
        C(inject_facts_as_vars) would make the variable.
      - A relative path is one below the directory in which the run was started.
    type: path
    env:
      - name: GPU_FLEET_RESULT_FILE
    ini:
      - section: callback_run_result
        key: path
requirements:
  - enabled by C(callbacks_enabled = gpu.fleet.run_result) in the section C([defaults]) of C(ansible.cfg), or by
    E(ANSIBLE_CALLBACKS_ENABLED)
"""

import json
import os
from datetime import datetime, timezone
from typing import Any

from ansible import constants, context
from ansible.plugins.callback import CallbackBase
from ansible.template import Templar
from ansible_collections.gpu.fleet.plugins.callback.fleet_table import failure_reason, unreachable_reason
from ansible_collections.gpu.fleet.plugins.module_utils._common.atomic_write import atomic_write
from ansible_collections.gpu.fleet.plugins.plugin_utils._ansible_core import evaluated, of_task
from ansible_collections.gpu.fleet.plugins.plugin_utils._run_result import HostRun, result_of_run

VARIABLE = "gpu_fleet_result_file"


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no types
    """Collects what happens to each host and writes it at the end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gpu.fleet.run_result"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._hosts: dict[str, HostRun] = {}
        self._playbook = ""
        self._started = _now()
        self._variable = ""

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._playbook = os.path.basename(str(playbook._file_name))

    def v2_playbook_on_play_start(self, play: Any) -> None:
        variables = play.get_variable_manager().get_vars(play=play)
        hosts = variables["ansible_play_hosts_all"]
        for host in hosts:
            self._host(host)
        # What the inventory has is known by host only; each costs time, and the file is one for all.
        known = variables["hostvars"][hosts[0]] if hosts else {}
        found = known.get(VARIABLE)
        if found and constants.INJECT_FACTS_AS_VARS and VARIABLE in known["ansible_facts"]:
            self._display.warning(
                f"{VARIABLE} is not taken from the inventory, since {hosts[0]} has a fact of that name and "
                "inject_facts_as_vars is true: a host must not set variables"
            )
            found = None
        of_play = variables.get(VARIABLE)
        self._variable = str(found or evaluated(Templar(play.get_loader(), variables), of_play) or self._variable)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._add(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        # It may have changed something before.
        self._add(result)
        self._host(of_task(result, "host").get_name()).message = failure_reason(of_task(result, "result"))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._host(of_task(result, "host").get_name()).message = unreachable_reason(of_task(result, "result"))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        path = self._variable or self.get_option("path")
        if not path:
            return
        data = result_of_run(
            self._hosts,
            stats.summarize,
            playbook=self._playbook,
            check_mode=bool(context.CLIARGS["check"]),
            times=(self._started, _now()),
        )
        try:
            atomic_write(os.path.abspath(os.path.expanduser(path)), (json.dumps(data, indent=1) + "\n").encode())
        except OSError as error:
            self._display.warning(
                f"{VARIABLE}: the result of the run cannot be written to {path}: {error.strerror}; name a file that "
                "you may write"
            )

    def _add(self, result: Any) -> None:
        task = of_task(result, "task")
        self._host(of_task(result, "host").get_name()).add(task.get_name(), task.action, of_task(result, "result"))

    def _host(self, name: str) -> HostRun:
        return self._hosts.setdefault(name, HostRun())


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
