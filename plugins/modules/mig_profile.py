#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Declare the MIG layout of GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mig_profile
short_description: Declare the MIG layout of NVIDIA GPUs
version_added: 1.0.0
description:
  - Brings GPUs to exactly the MIG instances that are declared, with the smallest possible change.
    Instances that match stay untouched and keep their UUID, and so do the jobs in them.
  - Profiles and places are read from the host, so that any GPU and driver with MIG works.
  - Every GPU is planned before the first is changed. A layout that cannot be, or one that would destroy an instance
    that is in use, is refused before anything is touched.
  - The module reads changes back, and reports success only for what it has read. When something fails on a GPU, what
    was destroyed on it is restored at its former place, and nothing is removed that the run did not make.
  - No call of nvidia-smi is believed alone. Lists that contradict each other are read again, then refused.
  - Runs on one host wait for each other.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.nvidia_smi
attributes:
  check_mode:
    support: full
    details:
      - Until driver branch 535 nvidia-smi lists the profiles of a GPU only once its MIG mode is on.
        Before that the places of new instances are not known and V(null).
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  gpus:
    description:
      - GPUs to change, each by index, UUID, PCI bus id (with or without domain), or product name with V(*) and V(?).
        Each must match a GPU of the host.
      - No other GPU is touched or reported, whatever the entries of O(layouts) or O(config) name.
      - An index may mean another GPU after a reboot.
    type: list
    elements: str
    default: [all]
  enabled:
    description:
      - Whether MIG mode is on, which it is where this is left out. With V(false) all instances are destroyed first.
      - Refused together with O(layouts) or O(config), whose entries have their own.
    type: bool
  profiles:
    description:
      - The instances of each GPU, as a list of profile names or as a map of names to counts.
        An empty list destroys all instances, without this option the instances are left as they are.
      - V(3g.71gb) is a GPU instance with one compute instance for the whole of it. V(1c.3g.71gb) is a compute instance
        of one slice; instances of one profile share as few GPU instances as they can.
      - V(0c.3g.71gb) is a GPU instance without a compute instance, which no program can use until it has one.
      - V(1g.18gb:3) names the memory slice where the instance starts. Without it the place is chosen so that most of
        what exists can stay. Compute instances with the same start share one GPU instance.
      - Names are as C(nvidia-smi mig -lgip) prints them on the host; the same instance has other names with other
        drivers.
      - At most 1024 instances, which is far more than any GPU can hold.
    type: raw
  layouts:
    description:
      - Different layouts for different GPUs of a host. No GPU may be in two entries that differ.
      - An entry that matches no GPU of the host gives a warning, since one list often serves different hosts.
    type: list
    elements: dict
    suboptions:
      gpus:
        description: As O(gpus). Those that O(gpus) does not name are left out.
        type: list
        elements: str
        default: [all]
      enabled:
        description: As O(enabled).
        type: bool
      profiles:
        description: As O(profiles).
        type: raw
  config:
    description:
      - A configuration document of mig-parted, unchanged. Fields that mig-parted does not know are refused.
      - As with mig-parted, GPUs without MIG are left out where an entry is for all GPUs, and of several entries for one
        GPU the last counts. Entries that match no GPU of the host give a warning.
    type: dict
  selected:
    description:
      - The configuration of O(config) to apply. Can be left out where it has only one.
    type: str
  mode_only:
    description:
      - Apply only the MIG modes of what is declared and leave the instances as they are, as C(--mode-only) of
        mig-parted. The declared instances are checked no further than for mistakes in their names.
      - Turning MIG mode off destroys the instances of that GPU nevertheless.
    type: bool
    default: false
  reset:
    description:
      - V(if_required) resets a GPU when its MIG mode takes effect only then, as on Ampere. No other GPU is reset, and
        none that is in use.
      - GPUs that nvidia-smi resets only together, as A100 on an NVSwitch board where no Fabric Manager runs, are reset
        with one call when all of them are in the task, wait for a reset to the declared mode, have no MIG instances and
        are not in use. Else all of them stay pending, and the message names what is in the way.
      - With V(never) the mode stays pending, and the instances are made by the next run after a reset or a reboot.
    type: str
    choices: [never, if_required]
    default: never
  force:
    description:
      - Try to destroy instances that are in use. Processes are not ended, so the driver usually refuses.
    type: bool
    default: false
  on_unsupported:
    description:
      - What to do with a GPU that has no MIG, V(fail) before anything is changed or V(skip) it.
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
  retries:
    description:
      - How often to try again while an instance or a GPU is in use for a moment, as after the end of a job, and to read
        again lists that contradict each other.
      - The first pause is half a second, each further one twice as long.
      - From 0 to 10.
    type: int
    default: 5
  lock_timeout:
    description:
      - Seconds to wait for another run on the same host to end.
      - From 0 to 86400.
    type: float
    default: 300
seealso:
  - module: gpu.fleet.nvidia_smi_facts
  - name: mig-parted
    description: NVIDIA's tool of the same purpose, whose documents O(config) takes.
    link: https://github.com/NVIDIA/mig-parted
"""

EXAMPLES = r"""
- name: Divide every GPU of an H200 host in the same way
  gpu.fleet.mig_profile:
    profiles: [3g.71gb, 2g.35gb, 1g.18gb, 1g.18gb]

- name: Seven small instances on the first GPU, and a reset of it where the chip needs one
  gpu.fleet.mig_profile:
    gpus: ["0"]
    profiles: {1g.18gb: 7}
    reset: if_required

- name: Give two GPUs different layouts, one with fixed places and divided compute
  gpu.fleet.mig_profile:
    layouts:
      - gpus: ["00000000:06:00.0"]
        profiles: ["3g.71gb:4", "1g.18gb+me:0"]
      - gpus: ["00000000:07:00.0"]
        profiles: [1c.3g.71gb, 2c.3g.71gb, 4g.71gb]

- name: Turn MIG off where there is MIG
  gpu.fleet.mig_profile:
    enabled: false
    on_unsupported: skip

- name: Apply a configuration of mig-parted
  gpu.fleet.mig_profile:
    config: "{{ lookup('ansible.builtin.file', 'mig-parted.yaml') | from_yaml }}"
    selected: all-balanced

- name: Apply only the modes of that configuration, and leave a mode that takes a reset pending
  gpu.fleet.mig_profile:
    config: "{{ lookup('ansible.builtin.file', 'mig-parted.yaml') | from_yaml }}"
    selected: all-balanced
    mode_only: true
    reset: never

- name: Assert that a configuration is applied, without a change
  gpu.fleet.mig_profile:
    config: "{{ lookup('ansible.builtin.file', 'mig-parted.yaml') | from_yaml }}"
    selected: all-balanced
  check_mode: true
  register: mig
  failed_when: mig is failed or mig is changed or mig.reset_required
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
        - V(unchanged), V(changed) (in check mode, would be), V(pending) when the mode takes effect with the next reset
          or reboot and the layout is not what was declared, or V(skipped) for a GPU without MIG.
      type: str
      sample: changed
    message:
      description: Why the mode stayed pending, from nvidia-smi or, where it was not reset, with what is in the way.
      type: str
      sample: null
    mig_mode_current:
      description: MIG mode now, V(enabled) or V(disabled); V(null) for a GPU without MIG.
      type: str
      sample: enabled
    mig_mode_pending:
      description: MIG mode after the next reset.
      type: str
      sample: enabled
    instances:
      description: The instances as last read, one entry for each compute instance.
      type: list
      elements: dict
      contains: &instance
        profile:
          description: Name of the compute instance.
          type: str
          sample: 1c.3g.71gb
        gpu_instance_profile:
          description: Profile of its GPU instance.
          type: str
          sample: 3g.71gb
        gpu_instance_id:
          description: Id of the GPU instance; V(null) while it does not exist.
          type: int
          sample: 2
        compute_instance_id:
          description: Id of the compute instance in its GPU instance; V(null) for a GPU instance without any.
          type: int
          sample: 0
        placement_start:
          description: First memory slice of the GPU instance.
          type: int
          sample: 4
        placement_size:
          description: How many memory slices the GPU instance takes.
          type: int
          sample: 4
        uuid:
          description: UUID of the MIG device; V(null) while it does not exist.
          type: str
          sample: MIG-fe9057b7-7db1-5bdb-981c-949535a7394a
    profiles:
      description:
        - The same instances as O(profiles) takes them, each with its start, largest compute instance first in each GPU
          instance. V(null) for a GPU without MIG.
        - V(0c.3g.71gb:4) is a GPU instance without a compute instance.
      type: list
      elements: str
      sample: ["1c.3g.71gb:4", "1c.3g.71gb:4", "1g.18gb+me:0"]
    kept:
      description:
        - Instances that stay untouched. With RV(gpus[].created) these are all that is there afterwards, so a GPU
          instance that gets its missing compute instance is listed there only.
      type: list
      elements: dict
      contains: *instance
    destroyed:
      description: Instances that were, or in check mode would be, destroyed.
      type: list
      elements: dict
      contains: *instance
    created:
      description: Instances that were, or in check mode would be, created.
      type: list
      elements: dict
      contains: *instance
    reset_required:
      description: Whether the MIG mode is pending.
      type: bool
      sample: false
    reboot_required:
      description:
        - Whether the MIG mode is pending and a reset is known to be impossible for this task, as where the GPU is reset
          only together with GPUs that may not be.
      type: bool
      sample: false
    blockers:
      description:
        - What holds a GPU whose mode is pending, or one that is reset only together with it, and so keeps it from being
          reset.
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
  description: Whether the MIG mode of any of the GPUs is pending.
  returned: always
  type: bool
  sample: false
reboot_required:
  description: Whether the MIG mode of any of them is pending and a reset is known to be impossible.
  returned: always
  type: bool
  sample: false
layouts:
  description:
    - The layout after the run, in check mode before it, as input. With O(layouts) it asks for the same instances at the
      same places, so that it can be kept and given back later.
    - GPUs without MIG are left out. A mode that is pending counts as the present one, except that a GPU with instances
      has MIG mode on.
  returned: always
  type: list
  elements: dict
  contains:
    gpus:
      description: The UUID of the GPU, the only entry.
      type: list
      elements: str
      sample: [GPU-5ee00000-0000-4000-8000-000000000000]
    enabled:
      description: Whether MIG mode is on.
      type: bool
      sample: true
    profiles:
      description: As RV(gpus[].profiles).
      type: list
      elements: str
      sample: ["3g.71gb:4", "1g.18gb:0"]
mig_parted:
  description:
    - The same as a document of mig-parted, for O(config) and for mig-parted itself. It knows neither starts nor GPU
      instances without compute instances.
    - GPUs are named by their indexes, and those that are alike share an entry. GPUs without MIG have
      V(mig-enabled=false).
    - The document has one configuration with the name V(current).
  returned: always
  type: dict
  sample:
    version: v1
    mig-configs: {current: [{devices: [0], mig-enabled: true, mig-devices: {3g.71gb: 1, 1g.18gb: 1}}]}
commands:
  description: The calls that changed something, in order. Empty in check mode.
  returned: always
  type: list
  elements: str
  sample: [nvidia-smi mig -i GPU-5ee00000-0000-4000-8000-000000000000 -cgi 19:3 -C]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import RETRIES, TIMEOUT, WAIT
from ansible_collections.gpu.fleet.plugins.module_utils._common.result import run_module
from ansible_collections.gpu.fleet.plugins.module_utils._mig.run import run

_LAYOUT: dict[str, dict[str, Any]] = {
    "gpus": {"type": "list", "elements": "str", "default": ["all"]},
    "enabled": {"type": "bool"},
    "profiles": {"type": "raw"},
}
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    **_LAYOUT,
    "layouts": {"type": "list", "elements": "dict", "options": _LAYOUT},
    "config": {"type": "dict"},
    "selected": {"type": "str"},
    "mode_only": {"type": "bool", "default": False},
    "reset": {"type": "str", "choices": ["never", "if_required"], "default": "never"},
    "force": {"type": "bool", "default": False},
    "on_unsupported": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
    "executable": {"type": "str", "default": "nvidia-smi"},
    "timeout": {"type": TIMEOUT, "default": 60.0},
    "retries": {"type": RETRIES, "default": 5},
    "lock_timeout": {"type": WAIT, "default": 300.0},
}


def main() -> None:
    """Converge and return."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        mutually_exclusive=[("profiles", "layouts", "config")],
        required_by={"selected": ["config"]},
        supports_check_mode=True,
    )
    run_module(module, run)


if __name__ == "__main__":
    main()
