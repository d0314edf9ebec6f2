# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The combinations of MIG profiles that fill a GPU, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: mig_combinations
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: All combinations of MIG profiles that fill a GPU
description:
  - Lists for each GPU of a host the combinations of profiles to which no further instance can be added, wherever the
    instances are placed. Every layout that M(gpu.fleet.mig_profile) accepts is one of them, or a part of one.
  - Made of the places that the driver lists, by the search that M(gpu.fleet.mig_profile) plans with.
  - The facts of M(gpu.fleet.nvidia_smi_facts) do not have the profiles, and are refused.
  - Until driver branch 535 nvidia-smi lists profiles only where the MIG mode is on.
positional: placements
options:
  _input:
    description: The output of C(nvidia-smi mig -lgip).
    type: str
    required: true
  placements:
    description: The output of C(nvidia-smi mig -lgipp).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: List the profiles
  ansible.builtin.command:
    argv: [nvidia-smi, mig, -lgip]
  become: true
  register: profiles
  changed_when: false

- name: List their places
  ansible.builtin.command:
    argv: [nvidia-smi, mig, -lgipp]
  become: true
  register: places
  changed_when: false

- name: Show what the first GPU can be divided into
  ansible.builtin.debug:
    msg: "{{ (profiles.stdout | gpu.fleet.mig_combinations(places.stdout) | first).combinations }}"
"""

RETURN = r"""
_value:
  description:
    - An entry for each GPU that lists profiles, with V(gpu), its index, and V(combinations), a list of lists of
      profiles, each as the option O(gpu.fleet.mig_profile#module:profiles) takes it.
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.module_utils._mig.explain import full_layouts
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import tables
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import listing

# The most that any GPU has so far is 12 profiles of 12 memory slices; all layouts of them are tried.
MOST_PROFILES = 16
MOST_UNITS = 16


def mig_combinations(profiles: Any, placements: Any = None) -> list[dict[str, Any]]:
    """The combinations of each GPU in the output of `-lgip` and `-lgipp`; see the filter's documentation."""
    if not isinstance(profiles, str) or not isinstance(placements, str):
        given = f"{type(profiles).__name__} and {'nothing' if placements is None else type(placements).__name__}"
        raise AnsibleFilterError(
            "gpu.fleet.mig_combinations: it takes the output of nvidia-smi mig -lgip and of -lgipp, as in "
            f"profiles.stdout | gpu.fleet.mig_combinations(places.stdout), but got {given}; facts "
            "do not have the profiles"
        )
    try:
        found = tables(listing.parse_gpu_instance_profiles(profiles), listing.parse_placements(placements))
    except listing.ListingError as error:
        raise AnsibleFilterError(f"gpu.fleet.mig_combinations: nvidia-smi's list is not understood: {error}") from None
    for gpu, table in found.items():
        without = [profile.name for profile in table.profiles if not profile.starts]
        if without:
            raise AnsibleFilterError(
                f"gpu.fleet.mig_combinations: GPU {gpu}: -lgipp has no place of {', '.join(without)}"
            )
        if len(table.profiles) > MOST_PROFILES or table.units > MOST_UNITS:
            raise AnsibleFilterError(
                f"gpu.fleet.mig_combinations: GPU {gpu} lists {len(table.profiles)} profiles of {table.units} memory "
                f"slices; no GPU has more than {MOST_PROFILES} of {MOST_UNITS}"
            )
    return [
        {"gpu": gpu, "combinations": [list(names) for names in full_layouts(table)]} for gpu, table in found.items()
    ]


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"mig_combinations": mig_combinations}
