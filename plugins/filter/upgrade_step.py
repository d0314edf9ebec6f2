# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record a step of a rolling upgrade in the state of a host, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: upgrade_step
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: Record a step of a rolling upgrade in the state of a host
description:
  - Made for the playbook C(gpu.fleet.upgrade) of this collection; its arguments may change in any version.
  - Refuses a step that cannot follow.
positional: step, time, reason
options:
  _input:
    description: The state of the host, as in C(states) of P(gpu.fleet.upgrade_plan#filter).
    type: dict
    required: true
  step:
    description: The step. V(draining) is recorded before it is done, V(planned) where the host is given up for this
      run.
    type: str
    choices: [planned, draining, drained, changed, healthy, in_service, failed]
    required: true
  time:
    description: The time in UTC.
    type: str
    required: true
  reason:
    description: Why the host has failed or is given up.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Record that the host was drained
  ansible.builtin.copy:
    content: "{{ state | gpu.fleet.upgrade_step('drained', '2026-05-04T09:00:00Z') | to_nice_json }}"
    dest: state.json
    mode: "0600"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description: The state.
  type: dict
  contains:
    host:
      description: The host.
      type: str
    run:
      description: The id of the run that has drained it.
      type: str
    step:
      description: The last step.
      type: str
    reason:
      description: Why it has failed or was given up.
      type: str
    history:
      description: All steps with their times, and reasons where they have one.
      type: list
      elements: dict
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import StateError, advance, read_state


def upgrade_step(state: Mapping[str, Any], step: str, time: str, reason: str = "") -> dict[str, Any]:
    """The state after `step`; see the filter's documentation."""
    try:
        return advance(read_state(state), step, time, reason).as_dict()
    except StateError as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"upgrade_step": upgrade_step}
