# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test whether GPUs, driver, CUDA, compiler and cuDNN are compatible, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: compatible
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: Whether GPUs, driver, CUDA, compiler and cuDNN are compatible
description:
  - Looks a combination up in the collection's compatibility tables, on the controller.
  - The test is true unless an incompatibility is known. A GPU, driver branch or CUDA version that is not in the tables
    counts as compatible.
  - The filter P(gpu.fleet.compatibility#filter) takes the same input and returns the reasons and the versions that fit.
options:
  _input:
    description:
      - The combination. Keys that are omitted, empty, or V(newest) are left open.
      - C(gpus), a list of GPUs, C(pci_gpus) or C(gpus) of M(gpu.fleet.nvidia_smi_facts), or strings, each a PCI
        device id such as C(0x2335) or a product name such as C(NVIDIA H200).
      - C(driver), a branch such as C(580) or a version such as C(580.178.04).
      - C(kernel_modules), C(open), C(proprietary) or C(auto).
      - C(cuda), the version of a toolkit such as C(13.0).
      - C(compiler), the host compiler such as C(gcc 13).
      - C(cudnn), a version such as C(9.12).
      - C(today), a date such as C(2026-11-22), for notes on the end of life of the driver's branch.
      - C(forward_compatibility), C(true) to accept a package C(cuda-compat-13-0) instead of a newer driver.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Refuse a driver that does not support the GPUs
  ansible.builtin.assert:
    that:
      - "{'driver': '580', 'gpus': ansible_facts['nvidia_smi']['pci_gpus']} is gpu.fleet.compatible"

- name: Install CUDA 13.0 where it works
  ansible.builtin.include_role:
    name: gpu.fleet.cuda
  when: >-
    {'cuda': '13.0', 'driver': ansible_facts['nvidia_smi']['driver_version'],
     'gpus': ansible_facts['nvidia_smi']['pci_gpus']} is gpu.fleet.compatible
"""

RETURN = r"""
_value:
  description: Whether no incompatibility is known.
  type: bool
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import CompatibilityError, check, read_request


def compatible(combination: Mapping[str, Any]) -> bool:
    """Whether no known incompatibility exists in `combination`, whose keys are in the documentation."""
    if not isinstance(combination, Mapping):
        raise AnsibleFilterError(f"gpu.fleet.compatible takes a dictionary, but got {type(combination).__name__}")
    try:
        return not check(read_request(combination)).reasons
    except CompatibilityError as error:
        raise AnsibleFilterError(f"gpu.fleet.compatible: {error}") from None


class TestModule:
    """Entry point of the test plugin."""

    def tests(self) -> dict[str, Callable[..., bool]]:
        """Return the tests by name."""
        return {"compatible": compatible}
