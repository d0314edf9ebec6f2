# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the order and the batches of a rolling upgrade, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: upgrade_plan
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: Plan the order and the batches of a rolling upgrade
description:
  - Made for the playbook C(gpu.fleet.upgrade) of this collection; its arguments may change in any version.
  - Decides which hosts are changed, in which order and in which batches. The playbook C(gpu.fleet.upgrade) carries
    it out.
  - Canaries come first, in a batch of their own. Hosts of a unit, such as an NVLink domain, are in the same batch,
    and no batch has more hosts of a group, such as a rack, than may be out of service at once.
  - A host that needs nothing is in no batch, unless an earlier run has left it out of service. Such hosts come first.
  - A run that has not finished is continued with its id and in its order.
positional: variables, states, previous, time, places, returns_refusal
options:
  _input:
    description:
      - By host, C(needs), the reasons for a change, and optionally C(group), C(unit), C(domain) and C(nvlink), its
        NVLink domain in the inventory and what it has of one. C(is_missing) is for a host that
        could not be reached.
    type: dict
    required: true
  variables:
    description: The variables C(gpu_fleet_upgrade_*) that are set, by name.
    type: dict
    required: true
  states:
    description: The states of hosts that earlier runs have recorded, as from P(gpu.fleet.upgrade_step#filter).
    type: list
    elements: dict
    required: true
  previous:
    description: The plan of the previous run, empty for none.
    type: dict
    required: true
  time:
    description: The time in UTC, of which the id of a new run is made.
    type: str
    required: true
  places:
    description:
      - By host, its variables, of which C(gpu_fleet_upgrade_group), C(gpu_fleet_upgrade_unit) and
        C(gpu_fleet_nvlink_domain) count where its entry has none itself.
    type: dict
  returns_refusal:
    description: Whether a variable that is refused is returned as C(refusal), for a task that fails with it in one
      line, and not raised.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Report the batches
  ansible.builtin.debug:
    msg: "{{ hosts | gpu.fleet.upgrade_plan({'gpu_fleet_upgrade_batch': '25%'}, [], {}, '2026-05-04T09:00:00Z') }}"
  vars:
    hosts:
      node1: {needs: [nvidia_driver], group: rack1}
      node2: {needs: [nvidia_driver], group: rack1}
      node3: {needs: []}
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    refusal:
      description: Why nothing is planned; with O(returns_refusal) and only then, and nothing else is returned.
      type: str
    run:
      description: The id of the run.
      type: str
    order:
      description: The hosts that are changed, in their order.
      type: list
      elements: str
    batches:
      description: The same in batches.
      type: list
      elements: list
    canaries:
      description: The hosts of the first batches that are canaries.
      type: list
      elements: str
    reasons:
      description: Why each of the hosts is changed.
      type: dict
    unchanged:
      description: Hosts that need nothing.
      type: list
      elements: str
    missing:
      description: Hosts that could not be reached or planned.
      type: list
      elements: str
    held:
      description: Hosts that another run has drained, with what to do.
      type: dict
    judged:
      description: Hosts whose health is judged after the change, those with GPUs.
      type: list
      elements: str
    failed:
      description: Hosts that failed in an earlier run and stay as they are, with the reasons.
      type: dict
    hosts:
      description: The input.
      type: dict
    states:
      description: The state of each of the hosts at the beginning.
      type: dict
    steps:
      description: The steps that each of the hosts has before it, of V(drained), V(changed), V(healthy) and
        V(in_service).
      type: dict
    lines:
      description: The plan for people.
      type: list
      elements: str
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_plan import RollingError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import placed, plan_run
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import StateError


def upgrade_plan(
    entries: Mapping[str, Mapping[str, Any]],
    variables: Mapping[str, Any],
    states: Sequence[Mapping[str, Any]],
    previous: Mapping[str, Any],
    time: str,
    *,
    places: Mapping[str, Mapping[str, Any]] | None = None,
    returns_refusal: bool = False,
) -> dict[str, Any]:
    """The plan for `entries`; see the filter's documentation."""
    try:
        return plan_run(placed(entries, places or {}), variables, states, previous, time, token=secrets.token_hex(3))
    except (RollingError, StateError) as error:
        if returns_refusal:
            return {"refusal": str(error)}
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"upgrade_plan": upgrade_plan}
