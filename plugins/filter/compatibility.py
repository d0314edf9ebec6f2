# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check compatibility of GPUs, driver, CUDA, compiler and cuDNN, and list versions that fit, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: compatibility
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: Explain whether GPUs, driver, CUDA, compiler and cuDNN are compatible
description:
  - Explains the result of the test P(gpu.fleet.compatible#test), and lists the versions that fit.
  - The tables are part of the collection, with their sources; neither the network nor the host is accessed.
positional: with_fits
options:
  _input:
    description:
      - The combination, as for P(gpu.fleet.compatible#test).
    type: dict
    required: true
  with_fits:
    description:
      - Whether to list the versions that fit, which takes longer than the rest.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Report why a toolkit cannot be used, and which ones can
  vars:
    found: >-
      {{ {'cuda': '13.0', 'gpus': ['Tesla V100-SXM2-32GB'], 'driver': '580'} | gpu.fleet.compatibility }}
  ansible.builtin.assert:
    that: found.compatible
    fail_msg: "{{ found.reasons | join('; ') }}; these fit: {{ found.fits.cuda | join(', ') }}"

- name: Choose the newest driver branch for the GPUs of the host
  ansible.builtin.debug:
    msg: "{{ ({'gpus': ansible_facts['nvidia_smi']['pci_gpus']} | gpu.fleet.compatibility).fits.driver | last }}"
"""

RETURN = r"""
_value:
  description: The verdict on the combination.
  type: dict
  contains:
    compatible:
      description: Whether no incompatibility is known.
      type: bool
    certain:
      description: Whether everything in the combination is in the tables.
      type: bool
    reasons:
      description: Incompatibilities, one sentence each.
      type: list
      elements: str
    unknown:
      description: Facts that the tables do not have, one sentence each.
      type: list
      elements: str
    notes:
      description: Limitations, one sentence each.
      type: list
      elements: str
    forward_compatibility_package:
      description:
        - The package that replaces a newer driver, where that is allowed, needed and possible.
      type: str
    gpus:
      description:
        - The GPUs, each with C(name), C(chip), C(architecture), C(compute_capability), C(multiprocessors),
          C(cuda_cores), C(tensor_cores), C(memory_bandwidth_gb_per_second) and C(nvlink_bandwidth_gb_per_second) of
          the whole GPU, null where unknown.
      type: list
      elements: dict
    fits:
      description:
        - By C(driver), C(kernel_modules), C(cuda), C(compiler) and C(cudnn), the values that are compatible with the
          rest of the combination, oldest first.
      returned: when O(with_fits) is V(true)
      type: dict
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import (
    CompatibilityError,
    check,
    fits,
    read_request,
)


def compatibility(combination: Mapping[str, Any], with_fits: bool = True) -> dict[str, Any]:
    """Everything that the tables know about `combination`, whose keys are in the filter's documentation."""
    if not isinstance(combination, Mapping):
        raise AnsibleFilterError(f"gpu.fleet.compatibility takes a dictionary, but got {type(combination).__name__}")
    try:
        request = read_request(combination)
    except CompatibilityError as error:
        raise AnsibleFilterError(f"gpu.fleet.compatibility: {error}") from None
    found = check(request)
    return {
        "compatible": not found.reasons,
        "certain": not found.unknown,
        "reasons": found.reasons,
        "unknown": found.unknown,
        "notes": found.notes,
        "forward_compatibility_package": found.forward_package,
        "gpus": [
            {
                "name": gpu.name,
                "chip": gpu.chip.name if gpu.chip else None,
                "architecture": gpu.chip.architecture if gpu.chip else None,
                "compute_capability": gpu.chip.compute_capability if gpu.chip else None,
                **asdict(gpu.cores),
            }
            for gpu in request.gpus
        ],
        # Each value of the tables is checked for it, which takes far longer than the rest.
        **({"fits": fits(request)} if with_fits else {}),
    }


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"compatibility": compatibility}
