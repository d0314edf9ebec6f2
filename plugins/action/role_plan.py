# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module role_plan. It runs on the controller, from the variables and the facts of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.gpu.fleet.plugins.action import managed_facts  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line
from ansible_collections.gpu.fleet.plugins.modules.role_plan import ARGUMENT_SPEC
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_repository import (
    Host,
    Request,
    define,
    files_of_packages,
    plan,
)

_REPOSITORY = "nvidia_repository"
_LONGEST_MESSAGE = 16_384
_MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core has no types
    """Plan a role, and refuse what it cannot do."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The plan; fails with all refusals in one message."""
        result: dict[str, Any] = {**super().run(tmp, task_vars), "changed": False}
        _validation, options = self.validate_argument_spec(ARGUMENT_SPEC)
        known = task_vars or {}
        host = known.get("inventory_hostname", "")
        try:
            return {**result, **self._repositories(host, options, known)}
        except _MALFORMED as error:
            raise AnsibleActionFail(
                f"{host}: the facts of the host have another form than modules document ({type(error).__name__}); "
                "check who changed the host"
            ) from error

    def _repositories(self, host: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        variables = {
            name: self._templar.template(value)
            for name, value in known.items()
            if name.startswith(f"{_REPOSITORY}_") or name == f"__{_REPOSITORY}_keys"
        }
        facts = known["ansible_facts"]
        on = Host.of(self._templar.template(facts) if isinstance(facts, str) else facts)
        keys = variables[f"__{_REPOSITORY}_keys"]
        if options["part"] == "packages":
            return files_of_packages(options["listed"], on.manager == "apt")
        requests = [Request.read(variables, name) for name in variables[f"{_REPOSITORY}_repositories"]]
        if options["part"] == "definitions":
            return {"definitions": {one.name: define(one, on, keys) for one in requests if one.is_signed}}
        plans = [plan(one, on, keys) for one in requests]
        refusals = dict.fromkeys(text for one in plans for text in one.refusals)
        if refusals:
            message = one_line(f"{host}: {'; '.join(refusals)}"[:_LONGEST_MESSAGE])
            return {"failed": True, "msg": message}
        return {"plans": [one.as_dict() for one in plans]}
