#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Declare the state of a host's GPUs, now and after every boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_state
short_description: Declare the state of NVIDIA GPUs, also after the next reboot
version_added: 1.0.0
description:
  - Brings ECC, settings and MIG layout of the GPUs to what is declared, in the order in which they depend on each
    other, with the work of M(gpu.fleet.ecc_mode), M(gpu.fleet.gpu_settings) and M(gpu.fleet.mig_profile). Undeclared
    settings stay as they are.
  - Saves the result, with the place of every MIG instance, and lays out the service C(gpu-fleet-state.service), which
    brings the GPUs to it at each boot with the same code. It is enabled, and started once to prove that it works.
  - Units that hold GPUs are stopped only while a GPU is reset, changes its MIG mode or loses MIG instances, and are
    started again as they were, also when something fails.
  - A host that is as declared costs one run that reads. The role P(gpu.fleet.gpu_state#role) adds the reboot and what
    depends on the layout.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.nvidia_smi
attributes:
  check_mode:
    support: full
    details:
      - Without a driver it is not known what the GPUs need, nor what MIG profiles they have with another ECC mode.
        Then the result is changed and has a warning.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - V(absent) removes the service, its program and the plan, and returns the settings that the plan has to their
        defaults. ECC and MIG instances stay, MIG instances until the next reboot.
    type: str
    choices: [present, absent]
    default: present
  gpus:
    description:
      - GPUs that the declaration is for, each by index, UUID, PCI bus id, or product name with V(*) and V(?). Each must
        match a GPU of the host.
      - No other GPU is touched, now or at boot, whatever the layouts and documents in O(mig) name. Entries of them that
        match no GPU of the host give a warning.
    type: list
    elements: str
    default: [all]
  ecc:
    description: As O(gpu.fleet.ecc_mode#module:enabled).
    type: bool
  persistence_mode:
    description: As O(gpu.fleet.gpu_settings#module:persistence_mode).
    type: bool
  compute_mode:
    description: As O(gpu.fleet.gpu_settings#module:compute_mode). Other modes than V(default) exclude MIG.
    type: str
  power_limit_w:
    description: As O(gpu.fleet.gpu_settings#module:power_limit_w).
    type: str
  gpu_clocks_mhz:
    description: As O(gpu.fleet.gpu_settings#module:gpu_clocks_mhz).
    type: raw
  memory_clocks_mhz:
    description: As O(gpu.fleet.gpu_settings#module:memory_clocks_mhz).
    type: raw
  accounting_mode:
    description: As O(gpu.fleet.gpu_settings#module:accounting_mode). Excludes MIG.
    type: bool
  mig:
    description:
      - The MIG layout, as a list of profiles or a map of profiles to counts for all of O(gpus); as a list of C(gpus),
        C(enabled) and C(profiles), one for each kind of GPU; as V(false) for no MIG; as the name of a layout in
        O(mig_layouts); or as a mig-parted document with one configuration.
      - For profiles and places see O(gpu.fleet.mig_profile#module:profiles).
    type: raw
  mig_layouts:
    description:
      - Layouts by name, each in any form that O(mig) takes, or a mig-parted document.
    type: dict
  mps:
    description:
      - MPS, by which several processes, also of containers, use a GPU at the same time. C(gpu-fleet-mps.service) runs
        its daemon on the chosen GPUs, which get the compute mode V(exclusive_process).
      - GPUs in MIG mode are refused, and so is each change that would end clients.
      - Empty, the service is removed, and its GPUs return to the compute mode V(default).
    type: dict
    suboptions:
      gpus:
        description: As O(gpus), by default those. Each must be among them.
        type: list
        elements: str
      pinned_memory_limit:
        description: Memory of a GPU that a client can allocate, with V(M) or V(G), such as V(8G).
        type: str
      active_thread_percentage:
        description: Share of the multiprocessors that a client can use, from 1 to 100.
        type: float
      user:
        description: The user whose processes may connect. By default the processes of all users may.
        type: str
      multi_user:
        description: Whether several users are clients at the same time. By default one user waits for another.
        type: bool
  clients:
    description:
      - Further units that hold GPUs, and have to let go of them while a GPU is reset, changes its MIG mode or loses MIG
        instances. C(nvidia-persistenced), DCGM, NVSM and the known exporters need not be named.
    type: list
    elements: str
    default: []
  boot_timeout:
    description:
      - Seconds that the boot service waits for the driver. From 1 to 86400.
      - A kernel module may have to be built first, after an upgrade of the kernel. What uses GPUs starts only when the
        service has ended.
    type: int
    default: 1800
  reset:
    description:
      - V(if_required) resets a GPU when its ECC or MIG mode takes effect only then, no other GPU, and none that is in
        use.
    type: str
    choices: [never, if_required]
    default: never
  evidence:
    description:
      - As O(gpu.fleet.gpu_health#module:evidence), before the first GPU is reset or changes its MIG mode. A failure to
        collect it is a warning, and takes three minutes at most.
    type: str
    choices: [when_unhealthy, always, never]
    default: never
  evidence_directory:
    description: As O(gpu.fleet.gpu_health#module:evidence_directory).
    type: str
    default: /var/lib/gpu-fleet/evidence
  evidence_kept:
    description:
      - What M(gpu.fleet.gpu_health) has kept before this run, which then keeps no more and has it in RV(evidence).
      - The controller sets it. The module itself keeps nothing; where evidence is due, it ends before the first change,
        M(gpu.fleet.gpu_health) runs on the host, and then the module again.
    type: dict
    suboptions:
      directory:
        description: Directory on the host; left out where nothing was kept.
        type: str
      files:
        description: Names of the files in it.
        type: list
        elements: str
        default: []
      notes:
        description: What could not be kept, and why.
        type: list
        elements: str
        default: []
  stop_for_reboot:
    description:
      - Whether to stop before settings and MIG when a reboot has to bring the ECC mode into effect first, because the
        caller is about to reboot the host and to run the module again; see RV(awaits_reboot).
      - This module never reboots.
    type: bool
    default: false
  on_unsupported:
    description:
      - What to do with a GPU that does not have what is declared, V(fail) before anything is changed or V(skip) it.
    type: str
    choices: [fail, skip]
    default: fail
  lock_timeout:
    description:
      - Seconds to wait for another run on the same host to end.
      - From 0 to 86400.
    type: float
    default: 300
seealso:
  - module: gpu.fleet.ecc_mode
  - module: gpu.fleet.gpu_settings
  - module: gpu.fleet.mig_profile
"""

EXAMPLES = r"""
- name: Keep the GPUs of a training host as they are to be
  gpu.fleet.gpu_state:
    ecc: true
    persistence_mode: true
    power_limit_w: 90%

- name: Divide all GPUs in the same way, now and after each reboot
  gpu.fleet.gpu_state:
    persistence_mode: true
    mig: [3g.71gb, 2g.35gb, 1g.18gb, 1g.18gb]
    reset: if_required

- name: Apply a configuration of mig-parted
  gpu.fleet.gpu_state:
    mig: all-balanced
    mig_layouts: "{{ lookup('ansible.builtin.file', 'mig-parted.yaml') | from_yaml }}"

- name: Share the first GPU between processes, each with a quarter of it
  gpu.fleet.gpu_state:
    mps:
      gpus: [0]
      pinned_memory_limit: 20G
      active_thread_percentage: 25

- name: Leave the GPUs to themselves
  gpu.fleet.gpu_state:
    state: absent
"""

RETURN = r"""
ecc:
  description: The GPUs as RV(gpu.fleet.ecc_mode#module:gpus); V(null) when O(ecc) is not declared.
  returned: always
  type: list
  elements: dict
settings:
  description: The GPUs as RV(gpu.fleet.gpu_settings#module:gpus); V(null) when no setting is declared.
  returned: always
  type: list
  elements: dict
mig:
  description: The GPUs as RV(gpu.fleet.mig_profile#module:gpus); V(null) when O(mig) is not declared.
  returned: always
  type: list
  elements: dict
gpus_changed:
  description:
    - Whether the GPUs themselves were, or would be, changed. V(false) where only the boot service differs.
  returned: always
  type: bool
  sample: true
interrupts:
  description:
    - Whether a GPU is, or would be, reset, changes its MIG mode or loses MIG instances, so that what uses it has to let
      go of it first.
  returned: always
  type: bool
  sample: false
mig_changed:
  description:
    - Whether MIG modes or instances were, or would be, changed, so that whoever lists MIG devices must look again.
  returned: always
  type: bool
  sample: false
pending:
  description: UUIDs of the GPUs with an ECC or MIG mode that waits for a reset or a reboot.
  returned: always
  type: list
  elements: str
  sample: []
reset_required:
  description: Whether a reset may bring what is pending into effect.
  returned: always
  type: bool
  sample: false
reboot_required:
  description: Whether a reboot brings what is pending into effect.
  returned: always
  type: bool
  sample: false
reboot_tried:
  description:
    - Whether the host has been rebooted because of just this and it is still pending. Another reboot will not help.
  returned: always
  type: bool
  sample: false
awaits_reboot:
  description: Whether this run stopped before settings and MIG, because of O(stop_for_reboot).
  returned: always
  type: bool
  sample: false
commands:
  description: The calls of nvidia-smi that changed something, in order. Empty in check mode.
  returned: always
  type: list
  elements: str
  sample: [nvidia-smi -i GPU-5ee00000-0000-4000-8000-000000000000 -pm 1]
stopped:
  description: The units that were stopped meanwhile and started again, in check mode those that would be.
  returned: always
  type: list
  elements: str
  sample: [nvidia-dcgm.service, nvidia-persistenced.service]
evidence:
  description: The evidence that was kept for an analysis of a fault, see O(evidence).
  returned: always
  type: dict
  contains:
    directory:
      description: Directory on the host, V(null) where nothing was kept.
      type: str
      sample: /var/lib/gpu-fleet/evidence/20260504T090000Z
    files:
      description: Names of the files in it.
      type: list
      elements: str
      sample: [facts.json, health.json, kernel.log, nvidia-bug-report.log.gz]
    notes:
      description: What could not be kept, and why.
      type: list
      elements: str
      sample: []
evidence_due:
  description: In check mode, whether GPUs would be reset, so that evidence would be kept first as O(evidence) states.
  returned: always
  type: bool
  sample: false
service:
  description: The boot service.
  returned: always
  type: dict
  contains:
    name:
      description: Its unit.
      type: str
      sample: gpu-fleet-state.service
    was:
      description: What it was when the run began, in systemd's words. V(failed) means that the last boot failed.
      type: str
      sample: active
    status:
      description: Its status message of the last run.
      type: str
      sample: 8 GPUs are as declared
    files:
      description: Its files that were, or would be, written or removed.
      type: list
      elements: str
      sample: []
    commands:
      description: The commands of systemctl that were, or would be, run.
      type: list
      elements: str
      sample: []
mps:
  description: The service of O(mps).
  returned: always
  type: dict
  contains:
    name:
      description: Its unit.
      type: str
      sample: gpu-fleet-mps.service
    gpus:
      description: UUIDs of its GPUs.
      type: list
      elements: str
      sample: [GPU-5ee00000-0000-4000-8000-000000000000]
    pipe_directory:
      description: What clients need as C(CUDA_MPS_PIPE_DIRECTORY); V(null) when MPS is not declared.
      type: str
      sample: /run/gpu-fleet-mps
    files:
      description: Its files that were, or would be, written or removed.
      type: list
      elements: str
      sample: []
    commands:
      description: The commands of systemctl that were, or would be, run.
      type: list
      elements: str
      sample: []
cdi_refresh:
  description: Whether the host has C(nvidia-cdi-refresh.service) of NVIDIA Container Toolkit.
  returned: always
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.result import run_module
from ansible_collections.gpu.fleet.plugins.module_utils._state.module import ARGUMENT_SPEC, run


def main() -> None:
    """Converge and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    run_module(module, run)


if __name__ == "__main__":
    main()
