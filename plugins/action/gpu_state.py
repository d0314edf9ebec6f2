# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_state, with evidence of a fault kept before it resets GPUs.

The module gpu_health keeps it, in a run of its own: gpu_state would send all of its code to each host in each run, for
the few runs that reset a GPU. In the role the messages of gpu_state name the variables of the role.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action.normal import ActionModule as NormalActionModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.evidence_options import DIRECTORY
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_state import in_words_of_the_role

_NOTHING: dict[str, Any] = {"files": [], "notes": []}


class ActionModule(NormalActionModule):  # type: ignore[misc]  # ansible-core has no types
    """Run the module on the host."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of the module; in the role a failure is in the words of its user."""
        result = self._converged(tmp, task_vars)
        role = self._task._role
        if result.get("failed") and role is not None and role.get_name().rpartition(".")[2] == "gpu_state":
            result["msg"] = in_words_of_the_role(str(result.get("msg", "")))
        return result

    def _converged(self, tmp: Any, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """The result of the module, which ends before its first change where evidence has to be kept."""
        result: dict[str, Any] = {}
        # The result of a task in the background is known only when it is too late; a prediction takes no time.
        is_due = bool(self._task.async_val) and not self._task.check_mode and self._predicts_evidence(task_vars)
        if not is_due:
            result = super().run(tmp, task_vars)
            is_due = bool(result.get("failed") and result.get("evidence_due"))
        if is_due:
            given = self._task.args
            self._task.args = {**given, "evidence_kept": self._kept(task_vars)}
            try:
                result = super().run(tmp, task_vars)
            finally:
                self._task.args = given
        return result

    def _predicts_evidence(self, task_vars: dict[str, Any] | None) -> bool:
        """Whether the module would reset GPUs; where that cannot be predicted, the module itself reports why."""
        self._task.check_mode = True
        try:
            return bool(self._execute_module(task_vars=task_vars).get("evidence_due"))
        finally:
            self._task.check_mode = False

    def _kept(self, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """What gpu_health has kept on the host; a host that cannot be read has a note why."""
        options = {
            "evidence": self._task.args["evidence"],
            "evidence_directory": self._task.args.get("evidence_directory") or DIRECTORY,
            "history": "",
            **{name: self._task.args[name] for name in ("executable", "timeout") if self._task.args.get(name)},
        }
        result = self._execute_module("gpu.fleet.gpu_health", module_args=options, task_vars=task_vars)
        if result.get("failed"):
            reason = str(result.get("msg", "gpu_health failed"))
            return {**_NOTHING, "notes": [f"no evidence could be collected: {reason}"]}
        evidence = result.get("evidence")
        if not isinstance(evidence, dict):
            return {**_NOTHING, "notes": ["no evidence could be collected: gpu_health returned none"]}
        return {name: value for name, value in evidence.items() if value is not None}
