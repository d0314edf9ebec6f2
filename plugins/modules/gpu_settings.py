#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Declare the volatile settings of GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_settings
short_description: Declare persistence mode, compute mode, power limit, clocks and accounting of NVIDIA GPUs
version_added: 1.0.0
description:
  - Gives GPUs the declared settings and leaves the others as they are.
  - Every GPU is looked at before the first is changed. A value outside of the limits that a GPU reports, and settings
    that exclude each other, are refused before anything is touched.
  - The module reads changes back, and reports success only for what it has read. Locked clocks are the exception, since
    nvidia-smi does not show them; see O(gpu_clocks_mhz).
  - None of these settings survives a reboot. The role P(gpu.fleet.gpu_state#role) brings them back.
  - Runs on one host wait for each other, and for runs of M(gpu.fleet.mig_profile) and M(gpu.fleet.ecc_mode).
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.nvidia_smi
attributes:
  check_mode:
    support: full
    details:
      - That a GPU does not support a setting shows for some settings only when it is tried.
  diff_mode:
    support: full
  idempotent:
    support: partial
    details:
      - Clocks are set again when it is not known that they still are as declared; see O(gpu_clocks_mhz).
options:
  gpus:
    description:
      - GPUs to change, each by index, UUID, PCI bus id (with or without domain), or product name with V(*) and V(?).
        Each must match a GPU of the host.
      - No other GPU is touched or reported, whatever the entries of O(settings) name.
      - An index may mean another GPU after a reboot.
    type: list
    elements: str
    default: [all]
  persistence_mode:
    description:
      - Whether the driver keeps its state of a GPU while nothing uses it. Without that it drops power limit, clocks
        and accounting when the last program ends.
      - While nvidia-persistenced runs nvidia-smi asks it to change the mode, otherwise the driver's own, older
        persistence mode is changed. To change the mode for good, configure that service.
    type: bool
  compute_mode:
    description:
      - V(default) lets any number of programs compute on a GPU, V(exclusive_process) one, V(prohibited) none.
      - The deprecated mode C(exclusive_thread) is refused; use V(exclusive_process).
      - In MIG mode a GPU is always in the mode V(default), so that another one is refused.
    type: str
  power_limit_w:
    description:
      - The most power that the GPU may draw, as a number of watts, as a percentage of its default like V(80%), which is
        rounded to whole watts, or V(default).
    type: str
  gpu_clocks_mhz:
    description:
      - The range in which the GPU clock stays, like V(1000-1500) or V([1000, 1500]), one clock for both ends, or
        V(default) to let it free. The driver takes the clock next to it that the GPU has.
      - nvidia-smi does not show locked clocks. The module relies on what nvidia-smi confirms, and stores that in
        C(/run/gpu-fleet/clocks.json) until the next boot, load of the driver, start of nvidia-persistenced, or reset
        or change of the MIG mode by this collection. It sets the clocks again when nothing is cached, when
        persistence mode is off, or when the GPU runs faster than the locked clocks. Another program's change to the
        locked clocks is otherwise not noticed.
    type: raw
  memory_clocks_mhz:
    description:
      - The same for the memory clock, on GPUs that can lock it.
    type: raw
  accounting_mode:
    description:
      - Whether the driver keeps accounts of processes. Refused on a GPU in MIG mode, which keeps none.
    type: bool
  settings:
    description:
      - Different settings for different GPUs of a host. Entries may overlap where they agree, so that one for all GPUs
        can have what they share.
    type: list
    elements: dict
    suboptions:
      gpus:
        description: As O(gpus), which limits them. An entry that matches no GPU of the host gives a warning.
        type: list
        elements: str
        default: [all]
      persistence_mode:
        description: As O(persistence_mode).
        type: bool
      compute_mode:
        description: As O(compute_mode).
        type: str
      power_limit_w:
        description: As O(power_limit_w).
        type: str
      gpu_clocks_mhz:
        description: As O(gpu_clocks_mhz).
        type: raw
      memory_clocks_mhz:
        description: As O(memory_clocks_mhz).
        type: raw
      accounting_mode:
        description: As O(accounting_mode).
        type: bool
  on_unsupported:
    description:
      - What to do with a GPU that does not support a setting. V(fail), before anything is changed where the GPU reports
        so beforehand, or V(skip) the setting there, which the result reports.
      - Values that a GPU cannot have, and settings that exclude each other, always fail.
    type: str
    choices: [fail, skip]
    default: fail
  timeout:
    description:
      - Seconds after which a call of nvidia-smi and its children are ended.
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
  - module: gpu.fleet.ecc_mode
  - module: gpu.fleet.mig_profile
  - module: gpu.fleet.nvidia_smi_facts
"""

EXAMPLES = r"""
- name: Keep the driver loaded and let one program at a time compute on each GPU
  gpu.fleet.gpu_settings:
    persistence_mode: true
    compute_mode: exclusive_process

- name: Save power where that can be done
  gpu.fleet.gpu_settings:
    power_limit_w: 80%
    on_unsupported: skip

- name: Lock the clocks for a measurement
  gpu.fleet.gpu_settings:
    gpus: ["0"]
    persistence_mode: true
    gpu_clocks_mhz: 1200-1500

- name: Give back what was set before
  gpu.fleet.gpu_settings:
    power_limit_w: default
    gpu_clocks_mhz: default
    compute_mode: default

- name: Give GPUs different settings in one run
  gpu.fleet.gpu_settings:
    settings:
      - persistence_mode: true
        accounting_mode: true
      - gpus: ["0", "1"]
        power_limit_w: 500
      - gpus: ["2"]
        gpu_clocks_mhz: 1500
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
      description: V(unchanged), V(changed) (in check mode, would be), or V(skipped) when nothing of it is supported.
      type: str
      sample: changed
    persistence_mode:
      description: V(enabled) or V(disabled), as last read, as are the others; in check mode as it would be.
      type: str
      sample: enabled
    compute_mode:
      description: V(default), V(exclusive_process) or V(prohibited).
      type: str
      sample: default
    power_limit_w:
      description: Power limit in watts.
      type: float
      sample: 560.0
    power_limit_default_w:
      description: Power limit that the GPU has by itself.
      type: float
      sample: 700.0
    power_limit_min_w:
      description: Lowest limit that it takes.
      type: float
      sample: 200.0
    power_limit_max_w:
      description: Highest limit that it takes.
      type: float
      sample: 700.0
    gpu_clocks_mhz:
      description: What nvidia-smi last confirmed, a range or V(default); V(null) when that is not known.
      type: str
      sample: 1200-1500
    memory_clocks_mhz:
      description: The same for the memory clock.
      type: str
      sample: null
    accounting_mode:
      description: V(enabled) or V(disabled).
      type: str
      sample: disabled
    changed_settings:
      description: The settings that were, or in check mode would be, changed.
      type: list
      elements: str
      sample: [power_limit_w, gpu_clocks_mhz]
    confirmed_only:
      description: The declared settings that nvidia-smi confirms but does not show, so that they were not read back.
      type: list
      elements: str
      sample: [gpu_clocks_mhz]
    skipped:
      description: The declared settings that this GPU does not support.
      type: list
      elements: dict
      contains:
        setting:
          description: Name of the option.
          type: str
          sample: memory_clocks_mhz
        reason:
          description: What the GPU lacks, or what nvidia-smi printed.
          type: str
          sample: GPU 0 (Tesla T4, 00000000:06:00.0) has no range of clocks (not available)
commands:
  description: The calls that changed something, in order. Empty in check mode.
  returned: always
  type: list
  elements: str
  sample: [nvidia-smi -i GPU-5ee00000-0000-4000-8000-000000000000 -pl 560]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import TIMEOUT, WAIT
from ansible_collections.gpu.fleet.plugins.module_utils._common.result import run_module
from ansible_collections.gpu.fleet.plugins.module_utils._settings.run import run

_SETTINGS: dict[str, dict[str, Any]] = {
    "persistence_mode": {"type": "bool"},
    "compute_mode": {"type": "str"},
    "power_limit_w": {"type": "str"},
    "gpu_clocks_mhz": {"type": "raw"},
    "memory_clocks_mhz": {"type": "raw"},
    "accounting_mode": {"type": "bool"},
}
_GPUS: dict[str, Any] = {"type": "list", "elements": "str", "default": ["all"]}
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "gpus": _GPUS,
    **_SETTINGS,
    "settings": {"type": "list", "elements": "dict", "options": {"gpus": _GPUS, **_SETTINGS}},
    "on_unsupported": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
    "executable": {"type": "str", "default": "nvidia-smi"},
    "timeout": {"type": TIMEOUT, "default": 60.0},
    "lock_timeout": {"type": WAIT, "default": 300.0},
}


def main() -> None:
    """Converge and return."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        mutually_exclusive=[(name, "settings") for name in _SETTINGS],
        required_one_of=[(*_SETTINGS, "settings")],
        supports_check_mode=True,
    )
    run_module(module, run)


if __name__ == "__main__":
    main()
