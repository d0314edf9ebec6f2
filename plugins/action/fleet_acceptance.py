# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fleet_acceptance. It runs on the controller, where what all hosts have registered is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line
from ansible_collections.gpu.fleet.plugins.modules.fleet_acceptance import ARGUMENT_SPEC
from ansible_collections.gpu.fleet.plugins.plugin_utils import _injected_facts
from ansible_collections.gpu.fleet.plugins.plugin_utils._ansible_core import evaluated
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet import acceptance
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.acceptance_matrix import as_svg
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.plain import plain
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.output import replace_file

_NAMES = tuple(acceptance.PREFIX + name for name in acceptance.VARIABLES)
_LONGEST_MESSAGE = 16_384


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core has no types
    """Read what the hosts of the play have registered; plan, or judge."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The rounds, or the verdict; fails where the hosts cannot take part or are not accepted."""
        result: dict[str, Any] = {**super().run(tmp, task_vars), "changed": False}
        _validation, options = self.validate_argument_spec(ARGUMENT_SPEC)
        variables = task_vars or {}
        planned = [(str(each["name"]), plain(each["groups"])) for each in options["rounds"]]
        rounds = tuple(acceptance.Round(name, tuple(map(tuple, groups))) for name, groups in planned)
        try:
            members = self._members(variables, options["gpus"], options["nics"])
            rounds = rounds or acceptance.plan(members)
        except acceptance.AcceptanceError as error:
            return {**result, "failed": True, "msg": one_line(str(error)[:_LONGEST_MESSAGE])}
        by_name = {member.name: member for member in members}
        if options["stage"] == "plan":
            shown = [
                {
                    "name": each.name,
                    "text": each.text,
                    "groups": [list(group) for group in each.groups],
                    "argv": {k: v for group in each.groups for k, v in acceptance.parts(group, by_name).items()},
                }
                for each in rounds
            ]
            return {
                **result,
                "rounds": shown,
                # PyTorch with gloo uses no GPU, and a host that takes no part has them in use.
                "tests": {
                    name: list(one.options.tests)
                    for name, one in by_name.items()
                    if one.options.tests and not one.refusal and one.options.backend == acceptance.NCCL
                },
                **acceptance.limits(members),
            }
        return {**result, **self._judged(rounds, by_name, variables, options)}

    def _members(self, variables: Mapping[str, Any], gpus: str, nics: str) -> list[acceptance.Member]:
        """The hosts of the play. One whose facts are named as variables takes no part, with the options of another."""
        known = {name: variables["hostvars"].raw_get(name) for name in variables["ansible_play_hosts_all"]}
        lies = {name: "; ".join(_injected_facts.refusals(raw)) for name, raw in known.items()}
        honest = {name: self._member(name, raw, gpus, nics) for name, raw in known.items() if not lies[name]}
        options = next((one.options for one in honest.values()), acceptance.Options())
        return [
            honest[name]
            if name in honest
            else replace(acceptance.read_member(name, raw.get(gpus), name, options), refusal=lies[name])
            for name, raw in known.items()
        ]

    def _member(self, name: str, raw: Mapping[str, Any], gpus: str, nics: str) -> acceptance.Member:
        self._templar.available_variables = raw
        given = {known: evaluated(self._templar, raw[known]) for known in (*_NAMES, "ansible_host") if known in raw}
        try:
            options = acceptance.read_options(given)
            address = str(given.get("ansible_host") or name)
            return acceptance.read_member(name, raw.get(gpus), address, options, raw.get(nics))
        except acceptance.AcceptanceError as error:
            raise acceptance.AcceptanceError(f"{name}: {error}") from None

    def _judged(
        self,
        rounds: tuple[acceptance.Round, ...],
        members: Mapping[str, acceptance.Member],
        variables: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> dict[str, Any]:
        taking = dict.fromkeys(name for each in rounds for group in each.groups for name in group)
        raw = {name: variables["hostvars"].raw_get(name) for name in taking}
        results, tests = (
            {name: of.get(options[of_each]) for name, of in raw.items()} for of_each in ("results", "tests")
        )
        runs = [
            acceptance.read_run(
                each.name, group, {name: acceptance.result_of(results[name], number) for name in group}, members
            )
            for number, each in enumerate(rounds)
            for group in each.groups
        ]
        lost = {
            name: one.refusal or "it was lost before the first round"
            for name, one in members.items()
            if name not in taking
        }
        found = acceptance.judge(runs, {name: members[name] for name in taking}, lost, tests)
        directory = os.path.abspath(os.path.expanduser(next(iter(members.values())).options.dir))
        paths = {"json": os.path.join(directory, "accept.json"), "picture": os.path.join(directory, "accept.svg")}
        if not self._task.check_mode:
            try:
                os.makedirs(directory, mode=0o755, exist_ok=True)
                replace_file(paths["picture"], as_svg(found, [*members]))
                replace_file(paths["json"], json.dumps(found.as_dict(), indent=1, sort_keys=True) + "\n")
            except OSError as error:
                raise AnsibleActionFail(
                    f"the report cannot be written to {directory}: {error.strerror}; set gpu_fleet_accept_dir to "
                    "one that this user can write to"
                ) from error
        # Each host that is not accepted fails by itself.
        return {**found.as_dict(), **paths, "msg": one_line(found.message()[:_LONGEST_MESSAGE])}
