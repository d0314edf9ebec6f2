# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fleet_report. It runs on the controller, where what all hosts have registered is."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gpu.fleet.plugins.modules.fleet_report import ARGUMENT_SPEC
from ansible_collections.gpu.fleet.plugins.plugin_utils import _injected_facts
from ansible_collections.gpu.fleet.plugins.plugin_utils._report import inputs, output
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.model import Host


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core has no types
    """Read what the hosts of the play have registered, write the report."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The paths and the summary; fails where the directory cannot be written."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(ARGUMENT_SPEC)
        variables = task_vars or {}
        hosts: list[Host] = []
        warnings: list[str] = []
        for name in variables["ansible_play_hosts_all"]:
            raw = variables["hostvars"].raw_get(name)
            host, refusals = inputs.read_host(
                name, raw.get(options["facts"]), raw.get(options["health"]), self._evaluated(name, raw, warnings)
            )
            hosts.append(host)
            warnings += refusals
        directory = os.path.abspath(os.path.expanduser(options["directory"]))
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            written = output.write(directory, hosts, now, check_mode=self._task.check_mode)
        except OSError as error:
            raise AnsibleActionFail(
                f"the report cannot be written to {directory}: {error.strerror}; set the directory to one that this "
                "user can write to"
            ) from error
        # A report is no change of a host.
        return {**result, "changed": False, **written, "warnings": [*warnings, *written["warnings"]]}

    def _evaluated(self, host: str, raw: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
        """The variables of a host that the report reads, without those that cannot be evaluated, and none of a liar."""
        lies = _injected_facts.refusals(raw)
        if lies:
            warnings.append(f"{host}: its variables are left out: {'; '.join(lies)}")
            return {}
        self._templar.available_variables = raw
        values = {}
        for name in inputs.VARIABLES:
            if name in raw:
                try:
                    values[name] = self._templar.template(raw[name])
                except AnsibleError as error:
                    warnings.append(f"{host}: {name} cannot be evaluated: {' '.join(str(error).split())[:200]}")
        return values
