#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Declare the ECC mode of GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ecc_mode
short_description: Declare the ECC mode of NVIDIA GPUs and clear their error counters
version_added: 1.0.0
description:
  - Turns the error correction (ECC) of GPU memory on or off, and clears error counters that are not zero.
  - nvidia-smi only notes a new ECC mode. It takes effect with the next reboot of the host, or on some GPUs with a reset
    of the GPU. The module compares with the mode that is noted, so that a second run before the reboot changes nothing,
    and reports with RV(reboot_required) that the reboot is still to come.
  - The module reads changes back, and reports success only for what it has read.
  - With ECC the memory size changes on most GPUs, and with that the names of their MIG profiles. The module warns of
    it when it changes the mode.
  - Runs on one host wait for each other, and for runs of M(gpu.fleet.mig_profile) and M(gpu.fleet.gpu_settings).
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.nvidia_smi
attributes:
  check_mode:
    support: full
    details:
      - The result is what would be there before a reset. Whether a reset brings the mode into effect, and whether the
        driver can clear a GPU's counters, only shows when it is tried.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  gpus:
    description:
      - GPUs to change, each by index, UUID, PCI bus id (with or without domain), or product name with V(*) and V(?).
        Each must match a GPU of the host.
      - No other GPU is touched or reported, whatever the entries of O(modes) name.
      - An index may mean another GPU after a reboot.
    type: list
    elements: str
    default: [all]
  enabled:
    description:
      - Whether ECC is on. Without this option it stays as it is.
      - Taking back a change that has not taken effect needs no reboot, although nvidia-smi asks for one.
    type: bool
  clear_counters:
    description:
      - Set the counters of V(volatile) errors, those since the driver was loaded, or of V(aggregate) errors, those over
        the life of the GPU, to zero. Counters that are zero stay untouched.
      - Drivers clear V(aggregate) counters only of GPUs older than Ampere, and none in MIG mode.
      - While ECC is off a GPU shows no counters, and there is nothing to clear.
    type: str
    choices: [volatile, aggregate]
  modes:
    description:
      - Different modes for different GPUs of a host. Entries may overlap where they agree.
    type: list
    elements: dict
    suboptions:
      gpus:
        description: As O(gpus), which limits them. An entry that matches no GPU of the host gives a warning.
        type: list
        elements: str
        default: [all]
      enabled:
        description: As O(enabled).
        type: bool
      clear_counters:
        description: As O(clear_counters).
        type: str
        choices: [volatile, aggregate]
  reset:
    description:
      - V(if_required) resets a GPU whose declared mode is not in effect, and looks whether that did it. Where it did
        not, as on many GPUs, the result reports that a reboot is needed, and no other reset is tried before it.
      - GPUs that nvidia-smi resets only together are reset with one call, when all of them are in the task and wait
        for a reset to the declared mode. Else none of them is, and the message names what is in the way.
      - No other GPU is reset, none that is in use, and none with MIG instances. A reset also undoes what
        M(gpu.fleet.gpu_settings) sets, except persistence mode and accounting, and ends MIG mode on Hopper and newer.
    type: str
    choices: [never, if_required]
    default: never
  on_unsupported:
    description:
      - What to do with a GPU that has no ECC, or cannot clear the counters. V(fail), before anything is changed where
        the GPU reports it beforehand, or V(skip) it, which the result reports.
    type: str
    choices: [fail, skip]
    default: fail
  timeout:
    description:
      - Seconds after which a call of nvidia-smi and its children are ended. Resetting a GPU takes several seconds.
      - All calls of a run together take at most half an hour, or ten times this where that is longer.
      - From 0.1 to 86400.
    type: float
    default: 60
  lock_timeout:
    description:
      - Seconds to wait for another run on the same host to end.
      - From 0 to 86400.
    type: float
    default: 300
seealso:
  - module: gpu.fleet.gpu_settings
  - module: gpu.fleet.mig_profile
  - module: gpu.fleet.nvidia_smi_facts
"""

EXAMPLES = r"""
- name: Turn ECC on wherever there is ECC
  gpu.fleet.ecc_mode:
    enabled: true
    on_unsupported: skip
  register: ecc

- name: Reboot hosts on which the mode has not taken effect
  ansible.builtin.reboot:
  when: ecc.reboot_required

- name: Turn ECC off on the first GPU, with a reset of it where that does
  gpu.fleet.ecc_mode:
    gpus: ["0"]
    enabled: false
    reset: if_required

- name: Give two kinds of GPUs different modes
  gpu.fleet.ecc_mode:
    modes:
      - gpus: ["NVIDIA A100*"]
        enabled: true
      - gpus: [Tesla T4]
        enabled: false

- name: Start counting errors again
  gpu.fleet.ecc_mode:
    clear_counters: volatile
"""

RETURN = r"""
gpus:
  description: The chosen GPUs in the order of their indexes.
  returned: always
  type: list
  elements: dict
  contains:
    index:
      description: Number that nvidia-smi gives it.
      type: int
      sample: 0
    uuid:
      description: UUID of the GPU.
      type: str
      sample: GPU-5ee00000-0000-4000-8000-000000000000
    pci_bus_id:
      description: PCI bus id in lower case.
      type: str
      sample: "00000000:06:00.0"
    name:
      description: Product name.
      type: str
      sample: NVIDIA H200
    status:
      description:
        - V(unchanged), V(changed) (in check mode, would be), V(skipped), or V(pending) when the mode takes effect with
          the next reboot.
      type: str
      sample: pending
    changed:
      description: Whether something of this GPU was, or in check mode would be, changed.
      type: bool
      sample: true
    message:
      description: Why a GPU was skipped or not reset, or what it does not support; else V(null).
      type: str
      sample: the ECC mode is not in effect after a reset; reboot the host
    ecc_mode_current:
      description: ECC mode now, V(enabled) or V(disabled); V(null) for a GPU without ECC.
      type: str
      sample: enabled
    ecc_mode_pending:
      description: ECC mode after the next reboot.
      type: str
      sample: disabled
    errors_volatile:
      description: Errors counted since the driver was loaded; V(null) where the GPU shows no counters.
      type: int
      sample: 0
    errors_aggregate:
      description: Errors counted over the life of the GPU; V(null) where the GPU shows no counters.
      type: int
      sample: 3
    errors_cleared:
      description: How many counted errors were, or in check mode would be, cleared.
      type: int
      sample: 0
    reset_required:
      description: Whether the mode is not in effect and a reset of the GPU may bring it into effect.
      type: bool
      sample: true
    reboot_required:
      description: Whether the mode is not in effect. A reboot brings it into effect.
      type: bool
      sample: true
    blockers:
      description: What holds a GPU whose mode is not in effect, and so keeps it from being reset.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the process or of the kernel module.
          type: str
          sample: nv-hostengine
        pid:
          description: Process id; V(null) for a kernel module.
          type: int
          sample: 1234
        device:
          description: What it holds.
          type: str
          sample: /dev/nvidia0
        stop:
          description: What to stop, where that is known.
          type: str
          sample: nvidia-dcgm.service
reset_required:
  description: Whether the mode of any of the GPUs is not in effect and a reset of it may bring it into effect.
  returned: always
  type: bool
  sample: true
reboot_required:
  description: Whether the mode of any of them is not in effect.
  returned: always
  type: bool
  sample: true
commands:
  description: The calls that changed something, in order. Empty in check mode.
  returned: always
  type: list
  elements: str
  sample: [nvidia-smi -i GPU-5ee00000-0000-4000-8000-000000000000 -e 0]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import TIMEOUT, WAIT
from ansible_collections.gpu.fleet.plugins.module_utils._common.result import run_module
from ansible_collections.gpu.fleet.plugins.module_utils._ecc.run import run

_MODE: dict[str, dict[str, Any]] = {
    "gpus": {"type": "list", "elements": "str", "default": ["all"]},
    "enabled": {"type": "bool"},
    "clear_counters": {"type": "str", "choices": ["volatile", "aggregate"]},
}
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    **_MODE,
    "modes": {"type": "list", "elements": "dict", "options": _MODE},
    "reset": {"type": "str", "choices": ["never", "if_required"], "default": "never"},
    "on_unsupported": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
    "executable": {"type": "str", "default": "nvidia-smi"},
    "timeout": {"type": TIMEOUT, "default": 60.0},
    "lock_timeout": {"type": WAIT, "default": 300.0},
}


def main() -> None:
    """Converge and return."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        mutually_exclusive=[("enabled", "modes"), ("clear_counters", "modes")],
        required_one_of=[("enabled", "clear_counters", "modes")],
        supports_check_mode=True,
    )
    run_module(module, run)


if __name__ == "__main__":
    main()
