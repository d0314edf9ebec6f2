# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether the next batch of a rolling upgrade may begin, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: upgrade_gate
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: Decide whether the next batch of a rolling upgrade may begin
description:
  - Made for the playbook C(gpu.fleet.upgrade) of this collection; its arguments may change in any version.
  - Stops a run with more failures than C(gpu_fleet_upgrade_max_failures), and postpones hosts of a group of which
    too many are out of service by now.
positional: variables, states, batch
options:
  _input:
    description: The plan of P(gpu.fleet.upgrade_plan#filter).
    type: dict
    required: true
  variables:
    description: The variables C(gpu_fleet_upgrade_*) that are set, by name.
    type: dict
    required: true
  states:
    description: The states of hosts as they are now.
    type: list
    elements: dict
    required: true
  batch:
    description: The hosts of the batch.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Stop after too many failures
  ansible.builtin.fail:
    msg: "{{ gate.stop }}"
  when: gate.stop != ''
  vars:
    gate: "{{ plan | gpu.fleet.upgrade_gate({}, states, ['node2']) }}"
"""

RETURN = r"""
_value:
  description: The decision.
  type: dict
  contains:
    stop:
      description: Why no more hosts are changed, empty where the run goes on.
      type: str
    postponed:
      description: Hosts of the batch that may not be drained now, with the reason.
      type: dict
    unchanged_canaries:
      description: Canaries that were left for another run, which is a failure, with the message.
      type: dict
    lines:
      description: Where all hosts of the plan are, for people.
      type: list
      elements: str
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_plan import RollingError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import gate
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import StateError


def upgrade_gate(
    plan: Mapping[str, Any],
    variables: Mapping[str, Any],
    states: Sequence[Mapping[str, Any]],
    batch: Sequence[str],
) -> dict[str, Any]:
    """The decision about `batch`; see the filter's documentation."""
    try:
        return asdict(gate(plan, variables, states, batch))
    except (RollingError, StateError) as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"upgrade_gate": upgrade_gate}
