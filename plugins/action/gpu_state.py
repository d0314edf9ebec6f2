# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_state, run as any module. In the role its messages name the variables of the role."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action.normal import ActionModule as NormalActionModule
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_state import in_words_of_the_role


class ActionModule(NormalActionModule):  # type: ignore[misc]  # ansible-core has no types
    """Run the module on the host."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of the module; in the role a failure is in the words of its user."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        role = self._task._role
        if result.get("failed") and role is not None and role.get_name().rpartition(".")[2] == "gpu_state":
            result["msg"] = in_words_of_the_role(str(result.get("msg", "")))
        return result
