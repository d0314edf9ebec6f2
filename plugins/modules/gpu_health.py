#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of a host's GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_health
short_description: Judge the health of NVIDIA GPUs, with a remedy for each problem
version_added: 1.0.0
description:
  - Reads the GPUs, the kernel log since the boot and what the host needs for its GPUs, and compares them with a policy,
    a table of symptoms with verdicts and remedies. It is in the guide on health of this collection.
  - Reports a verdict and a remedy for the host and for each GPU as data. It never fails for a GPU that is not healthy;
    a playbook can branch on RV(verdict) and RV(remedy).
  - Changes nothing on the GPUs, and runs a workload on them only as O(tests). It keeps a history of its verdicts, so
    that it notices what comes again after a reboot.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.nvidia_smi
attributes:
  check_mode:
    support: full
    details:
      - In check mode the history is read and not written.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  expected:
    description:
      - The declaration of the host. Omitted keys are not compared.
      - ECC mode, persistence mode and MIG layout that M(gpu.fleet.gpu_state) applies at boot are compared in any case.
    type: dict
    suboptions:
      gpu_count:
        description:
          - Number of GPUs that have to respond. Without it, there must not be fewer than at an earlier check.
        type: int
      gpu_models:
        description:
          - Models that the GPUs may have, as strings that their names contain.
        type: list
        elements: str
      driver_version:
        description:
          - Version or branch of the driver, for instance V(580) or V(580.178.04).
        type: str
      nic_count:
        description:
          - Number of ports of the GPUs' network, InfiniBand or RoCE, that have to have a link. Without it, a port that
            has had a link has to have one as long as others of its kind do.
        type: int
      persistence_mode:
        description:
          - Whether persistence mode is on.
        type: bool
      ecc:
        description:
          - Whether ECC is on.
        type: bool
      mig_profiles:
        description:
          - The profiles of the MIG devices of each GPU, in any order. An empty list stands for MIG mode off.
        type: list
        elements: str
  policy:
    description:
      - Rows that change the policy. One with the O(policy[].id) of a row replaces the parts that it has; any other is a
        new row, which decides before the rows of the policy.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: Name of the row.
        type: str
        required: true
      symptom:
        description: What it is about, for messages.
        type: str
      verdict:
        description: What it means.
        type: str
        choices: [ok, info, unknown, warn, fail]
      remedy:
        description: What to do.
        type: str
        choices:
          - none
          - restart_application
          - configure
          - restart_fabric_manager
          - restart_imex
          - update_software
          - drain
          - drain_and_reset
          - reset_gpu
          - reset_fabric
          - restart_vm
          - reboot
          - power_cycle
          - inspect
          - field_diagnostic
          - service
      source:
        description: Where the row comes from.
        type: str
      reading:
        description: Reading of a GPU that is compared, for instance V(temperature_memory_c).
        type: str
      operator:
        description:
          - How it is compared with O(policy[].value). In a new row V(is) is the default.
        type: str
        choices: [is, is_not, in, not_in, has, at_least, above, below]
      value:
        description:
          - What the reading is compared with. In a new row V(true) is the default.
        type: raw
      thresholds:
        description:
          - Other values for GPU models, by a text that the name contains, for instance V({"H200"&#58; 90}).
        type: dict
      xids:
        description: Codes of Xids in the kernel log.
        type: list
        elements: int
      sxids:
        description: Codes of SXids in the kernel log.
        type: list
        elements: int
      bursts:
        description: For a row about repetition, the number of bursts within O(policy[].hours).
        type: int
      boots:
        description: For a row about repetition, the number of boots within O(policy[].hours).
        type: int
      hours:
        description: For a row about repetition, how far back it looks.
        type: float
  ignore:
    description:
      - Codes in C(unhealthy) of M(gpu.fleet.nvidia_smi_facts) that are known and accepted on this host. The rows of the
        policy about them are V(ok).
    type: list
    elements: str
    choices:
      - broken_xml
      - dram_encryption_pending
      - driver_library_mismatch
      - ecc_mode_pending
      - ecc_repair_pending
      - ecc_sram_threshold_exceeded
      - ecc_uncorrectable
      - ecc_unrepairable_memory
      - fabric_failed
      - fabric_not_completed
      - fabric_unhealthy
      - failed
      - gpu_lost
      - gpu_missing
      - gpu_not_responding
      - gpu_unused
      - hardware_slowdown
      - inforom_corrupted
      - insufficient_power
      - library_missing
      - mig_mode_pending
      - no_driver
      - no_nvidia_smi
      - not_loaded
      - operation_mode_pending
      - page_retirement_pending
      - permission_denied
      - power_brake_slowdown
      - recovery_required
      - reset_required
      - row_remap_failure
      - row_remap_pending
      - row_remapper_exhausted
      - thermal_slowdown
      - timeout
      - too_large
    default: []
  ignore_vulnerabilities:
    description:
      - Vulnerabilities of the driver that are known and accepted on this host, by their CVE names, or all of a bulletin
        of NVIDIA by its number, such as V(5861).
    type: list
    elements: str
    default: []
  tests:
    description:
      - Tests to run on the GPUs, one after another. They take a GPU for minutes, and V(dcgm_3) for up to hours. A test
        is run only where all GPUs are known to be idle and without MIG mode, and its program is in C(PATH).
      - V(dcgm_1), V(dcgm_2) and V(dcgm_3) are C(dcgmi diag -r 1) to C(3), V(nvbandwidth) measures copies, and V(nccl)
        an all-reduce over all GPUs with C(all_reduce_perf) of nccl-tests. Bandwidths have thresholds for some models.
      - V(pytorch) is the test that the role P(gpu.fleet.gpu_workload#role) installs on the host, which computes on each
        GPU and over all of them. It is run by O(pytorch_python); where that has no PyTorch, it has no result.
      - A test that has no result makes the host V(unknown), with the reason; one that passed is no finding. Check mode
        runs none.
    type: list
    elements: str
    choices: [dcgm_1, dcgm_2, dcgm_3, nvbandwidth, nccl, pytorch]
    default: []
  pytorch_python:
    description:
      - Interpreter on the host that has PyTorch, for the test V(pytorch); a name in C(PATH) or an absolute path.
    type: str
    default: python3
  kernel_log:
    description:
      - Where the kernel log is read. V(auto) takes the journal, or else C(dmesg); where the journal does not reach back
        to the boot, it takes from C(dmesg) what came before. In containers C(dmesg) is not read. V(journal), V(dmesg)
        and V(none) select one, an absolute path a file in the form of either.
      - Where it cannot be read, the host is V(unknown) at best.
    type: str
    default: auto
  evidence:
    description:
      - Whether the kernel log, the facts, this result and the output of C(nvidia-bug-report.sh), which gets three
        minutes, are kept in a directory below O(evidence_directory) that only root can read. Run it so before
        a reset or a reboot, which destroy what they show.
      - V(when_unhealthy) keeps them where a finding is V(warn) or V(fail) and not about modes that wait for a reset or
        a reboot, about what is declared, or about software of the host.
      - The newest five collections are kept, of 256 MiB together. Check mode keeps none.
    type: str
    choices: [when_unhealthy, always, never]
    default: never
  evidence_directory:
    description:
      - Directory of the collections. It is created for root only; one that exists keeps its mode.
    type: str
    default: /var/lib/gpu-fleet/evidence
  history:
    description:
      - Directory of the history, below which a file is kept that only root can read. An empty string keeps none.
    type: str
    default: /var/lib/gpu-fleet/health
  repaired:
    description:
      - Whether a person has repaired the host since the last check. From then on nothing older counts, be it errors in
        the kernel log, repeated Xids, or GPUs, NVLinks and ports that were there before. The O(history) keeps the time.
      - Check mode judges so and keeps nothing.
    type: bool
    default: false
seealso:
  - module: gpu.fleet.nvidia_smi_facts
  - ref: gpu.fleet.gpu_health role <ansible_collections.gpu.fleet.gpu_health_role>
    description: Proves in addition that a container sees the GPUs.
"""

EXAMPLES = r"""
- name: Judge the health of the GPUs
  gpu.fleet.gpu_health:
    expected:
      gpu_count: 8
  register: health

- name: Reboot where that is the remedy
  ansible.builtin.reboot:
  when: health.verdict == 'fail' and health.remedy == 'reboot'

- name: Judge with a stricter limit of the memory's temperature, and accept one Xid
  gpu.fleet.gpu_health:
    policy:
      - id: memory_is_hot
        symptom: the memory is hotter than we like
        reading: temperature_memory_c
        operator: above
        value: 85
        thresholds: {H200: 90}
        verdict: warn
        remedy: inspect
      - id: our_simulation_raises_it
        xids: [13]
        verdict: ok
"""

RETURN = r"""
schema_version:
  description: Version of this result's form. Additions do not change it.
  returned: success
  type: int
  sample: 1
time:
  description: Time of the check in UTC.
  returned: success
  type: str
  sample: "2026-05-04T09:00:00Z"
verdict:
  description:
    - The worst verdict of the host and all its GPUs, V(ok), V(info), V(unknown), V(warn) or V(fail).
  returned: success
  type: str
  sample: fail
remedy:
  description: The strongest remedy of the findings with the worst verdict, V(none) where there is none.
  returned: success
  type: str
  sample: reset_gpu
driver_version:
  description: Version of the driver, V(null) where it is unknown.
  returned: success
  type: str
  sample: 580.178.04
findings:
  description: The rows of the policy that hold, the worst first.
  returned: success
  type: list
  elements: dict
  contains:
    row:
      description: Id of the row.
      returned: always
      type: str
      sample: row_remap_pending
    gpu:
      description: UUID of the GPU, its PCI bus id where that is unknown, V(null) for the whole host.
      returned: always
      type: str
    verdict:
      description: Its verdict.
      returned: always
      type: str
    remedy:
      description: Its remedy.
      returned: always
      type: str
    message:
      description: One line with what was found, where, and what to do.
      returned: always
      type: str
      sample: >-
        GPU 3 (00000000:9b:00.0): memory rows wait for a reset; wait until the jobs on this GPU have ended,
        then reset it
    source:
      description: Where the row comes from.
      returned: always
      type: str
gpus:
  description: All GPUs, also those that do not respond.
  returned: success
  type: list
  elements: dict
  contains:
    index:
      description: Index in nvidia-smi, V(null) where it is not listed.
      returned: always
      type: int
    uuid:
      description: UUID.
      returned: always
      type: str
    serial:
      description: Serial number.
      returned: always
      type: str
    pci_bus_id:
      description: PCI bus id.
      returned: always
      type: str
    name:
      description: Model.
      returned: always
      type: str
    fabric_cluster_uuid:
      description: Cluster of its NVLink fabric, the same on all hosts of an NVLink domain.
      returned: always
      type: str
    fabric_clique_id:
      description: Clique in this cluster, of GPUs that reach each other.
      returned: always
      type: int
    verdict:
      description: Its worst verdict.
      returned: always
      type: str
    remedy:
      description: The strongest remedy of its findings with the worst verdict.
      returned: always
      type: str
tests:
  description: What the O(tests) that had a result ran and measured. What did not pass is among the RV(findings).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the test.
      returned: always
      type: str
      sample: pytorch
    evidence:
      description: One line with what was run and measured.
      returned: always
      type: str
      sample: "PyTorch 2.11.0+cu130, CUDA 13.0: matrix products on 2 GPUs, 0 of 1024 rows wrong"
kernel_log:
  description: What the kernel log has since the boot.
  returned: success
  type: dict
  contains:
    source:
      description: V(journal), V(dmesg), V(journal and dmesg) or a path; V(null) where it could not be read.
      returned: always
      type: str
    reason:
      description: Why it could not be read.
      returned: always
      type: str
    complete:
      description: Whether it reaches back to the boot.
      returned: always
      type: bool
    boot_time:
      description: Time of the boot in UTC.
      returned: always
      type: str
    xids:
      description: Xids by GPU and code.
      returned: always
      type: list
      elements: dict
      contains:
        gpu:
          description: UUID or PCI bus id of the GPU; V(null) where the line has no address.
          returned: always
          type: str
        pci_bus_id:
          description: PCI bus id.
          returned: always
          type: str
        code:
          description: Number of the Xid.
          returned: always
          type: int
        name:
          description: Its name.
          returned: always
          type: str
        count:
          description: How often it was logged.
          returned: always
          type: int
        row:
          description: Id of the row that decides it.
          returned: always
          type: str
        verdict:
          description: Its verdict.
          returned: always
          type: str
        is_over:
          description: Whether something that ends it has happened since then, such as a reset of the GPU.
          returned: always
          type: bool
        text:
          description: Text of the last one.
          returned: always
          type: str
        pid:
          description: Process id that the last one names.
          returned: always
          type: int
        process:
          description: Name of that process.
          returned: always
          type: str
        gpu_instances:
          description: Ids of the MIG GPU instances that are named.
          returned: always
          type: list
          elements: int
        first_time:
          description: Time of the first one in UTC, V(null) where the log has no complete time.
          returned: always
          type: str
        last_time:
          description: Time of the last one.
          returned: always
          type: str
evidence:
  description: The evidence that was kept for an analysis of a fault.
  returned: success
  type: dict
  contains:
    directory:
      description: Directory on the host, V(null) where nothing was kept.
      returned: always
      type: str
      sample: /var/lib/gpu-fleet/evidence/20260504T090000Z
    files:
      description: Names of the files in it.
      returned: always
      type: list
      elements: str
      sample: [facts.json, health.json, kernel.log, nvidia-bug-report.log.gz]
    notes:
      description: What could not be kept, and why.
      returned: always
      type: list
      elements: str
changes:
  description: The newest changes of verdicts in the history, the newest first.
  returned: success
  type: list
  elements: dict
  contains:
    gpu:
      description: UUID of the GPU.
      returned: always
      type: str
    serial:
      description: Its serial number.
      returned: always
      type: str
    time:
      description: Time in UTC.
      returned: always
      type: str
    verdict:
      description: Verdict since then.
      returned: always
      type: str
    remedy:
      description: Remedy since then.
      returned: always
      type: str
    rows:
      description: Ids of the rows that held.
      returned: always
      type: list
      elements: str
error_history:
  description:
    - The newest memory errors and Xids in the history, of at most 90 days, the newest first. Xids are by code and day,
      memory errors are by how many a count has risen from one check to the next.
  returned: success
  type: list
  elements: dict
  contains:
    gpu:
      description: UUID of the GPU, its PCI bus id where that is unknown.
      returned: always
      type: str
    serial:
      description: Its serial number.
      returned: always
      type: str
    time:
      description: Time in UTC of the last one, or of the check.
      returned: always
      type: str
    kind:
      description:
        - V(xid), V(ecc_corrected), V(ecc_uncorrected), V(remapped_rows_correctable) or V(remapped_rows_uncorrectable).
      returned: always
      type: str
    xid:
      description: Number of the Xid, V(null) of memory errors.
      returned: always
      type: int
    count:
      description: How many.
      returned: always
      type: int
repaired:
  description: Time in UTC at which a person last had repaired the host, see O(repaired), V(null) without one.
  returned: success
  type: str
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import COUNT, HOURS, TIMEOUT
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.evidence_options import DIRECTORY as EVIDENCE_DIRECTORY
from ansible_collections.gpu.fleet.plugins.module_utils._common.evidence_options import MODES, NEVER
from ansible_collections.gpu.fleet.plugins.module_utils._health.active_tests import DEFAULT_PYTHON, TOOLS
from ansible_collections.gpu.fleet.plugins.module_utils._health.history import DIRECTORY
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import OPERATORS, REMEDIES, VERDICTS
from ansible_collections.gpu.fleet.plugins.module_utils._health.run import run
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import PROBLEMS

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "expected": {
        "type": "dict",
        "options": {
            "gpu_count": {"type": COUNT},
            "gpu_models": {"type": "list", "elements": "str"},
            "driver_version": {"type": "str"},
            "nic_count": {"type": COUNT},
            "persistence_mode": {"type": "bool"},
            "ecc": {"type": "bool"},
            "mig_profiles": {"type": "list", "elements": "str"},
        },
    },
    "policy": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "id": {"type": "str", "required": True},
            "symptom": {"type": "str"},
            "verdict": {"type": "str", "choices": list(VERDICTS)},
            "remedy": {"type": "str", "choices": list(REMEDIES)},
            "source": {"type": "str"},
            "reading": {"type": "str"},
            "operator": {"type": "str", "choices": list(OPERATORS)},
            "value": {"type": "raw"},
            "thresholds": {"type": "dict"},
            "xids": {"type": "list", "elements": COUNT},
            "sxids": {"type": "list", "elements": COUNT},
            "bursts": {"type": COUNT},
            "boots": {"type": COUNT},
            "hours": {"type": HOURS},
        },
    },
    "ignore": {"type": "list", "elements": "str", "choices": list(PROBLEMS), "default": []},
    "ignore_vulnerabilities": {"type": "list", "elements": "str", "default": []},
    "tests": {"type": "list", "elements": "str", "choices": list(TOOLS), "default": []},
    "pytorch_python": {"type": "str", "default": DEFAULT_PYTHON},
    "kernel_log": {"type": "str", "default": "auto"},
    "evidence": {"type": "str", "choices": list(MODES), "default": NEVER},
    "evidence_directory": {"type": "str", "default": EVIDENCE_DIRECTORY},
    "history": {"type": "str", "default": DIRECTORY},
    "repaired": {"type": "bool", "default": False},
    "executable": {"type": "str", "default": "nvidia-smi"},
    "timeout": {"type": TIMEOUT, "default": 60.0},
}


def main() -> None:
    """Judge and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode, time.time())
    except ChangeError as error:
        module.fail_json(msg=str(error))
    for text in result.pop("warnings"):
        module.warn(text)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
