#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of a node of Kubernetes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_evict
short_description: Evict the pods of a node of Kubernetes once, and report which are left
version_added: 1.0.0
description:
  - Evicts the pods of a node and reports whether it is idle, that is, whether none is left that was to end and none
    that has GPUs. One that cannot be evicted does not keep the others from it.
  - Pods of DaemonSets, static pods and pods that have finished stay.
  - A pod has GPUs where it requests C(nvidia.com/*), or by a ResourceClaim whose devices are of NVIDIA's drivers (DRA).
    A claim that cannot be found counts as one of GPUs.
  - It does not cordon the node, and does not wait; a task can do so with C(until) and RV(idle).
  - It finds the cluster as the modules of C(kubernetes.core) do, by the same environment variables, and needs that
    collection on the controller.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
requirements:
  - the Python package C(kubernetes) on the host that runs the module
options:
  name:
    description: Name of the node.
    type: str
    required: true
  pods:
    description:
      - V(evict) respects each PodDisruptionBudget. V(delete) ends the pods whatever their budgets are.
    type: str
    choices: [evict, delete]
    default: evict
  pod_selectors:
    description: Labels of the pods to evict, as C(kubectl drain --pod-selector) takes them. Without it all of them.
    type: list
    elements: str
    default: []
  delete_emptydir_data:
    description: Whether pods with C(emptyDir) volumes are evicted, whose data is lost.
    type: bool
    default: false
  delete_unmanaged_pods:
    description: Whether pods without a controller are evicted, which nothing creates again.
    type: bool
    default: false
  kubeconfig:
    description: File by which the cluster is found.
    type: path
  context:
    description: Context of that file.
    type: str
  timeout:
    description:
      - Seconds that each request to the API server may take.
      - From 0.1 to 86400.
    type: float
    default: 30
seealso:
  - name: API-initiated eviction
    description: What an eviction is, and which are refused.
    link: https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

EXAMPLES = r"""
- name: Evict the pods until the node is idle
  gpu.fleet.kubernetes_evict:
    name: gpu1
    delete_emptydir_data: true
  delegate_to: localhost
  register: pods
  until: pods.idle
  retries: 120
  delay: 30
"""

RETURN = r"""
exists:
  description: Whether the cluster has the node. Without it the module fails.
  returned: when the API server has replied
  type: bool
idle:
  description: Whether no pod is left on the node that was to end or that has GPUs.
  returned: success
  type: bool
msg:
  description: In short, the pods in RV(remaining), for a task that treats them as a failure.
  returned: success
  type: str
evicted:
  description: The pods whose eviction was accepted, as C(NAMESPACE/NAME), or would be asked for in check mode.
  returned: success, and a failure after changes
  type: list
  elements: str
remaining:
  description: The pods for which the node is not idle.
  returned: success
  type: list
  elements: dict
  contains:
    pod:
      description: C(NAMESPACE/NAME).
      returned: always
      type: str
    reason:
      description:
        - V(evicted) or V(ending); V(refused) or V(terminating_namespace), with the message of the API server;
          V(emptydir) or V(unmanaged), for want of O(delete_emptydir_data) or O(delete_unmanaged_pods).
        - V(paused) is an operand of NVIDIA's GPU Operator that the labels of the node do not select any more.
        - With GPUs also V(daemon_set), V(static), and V(selector) where O(pod_selectors) leave it to its end.
      returned: always
      type: str
    message:
      description: What the API server has replied.
      returned: always
      type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import TIMEOUT
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, result_of
from ansible_collections.gpu.fleet.plugins.module_utils._kubernetes.api import connect
from ansible_collections.gpu.fleet.plugins.module_utils._kubernetes.evict import run

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "pods": {"type": "str", "choices": ["evict", "delete"], "default": "evict"},
    "pod_selectors": {"type": "list", "elements": "str", "default": []},
    "delete_emptydir_data": {"type": "bool", "default": False},
    "delete_unmanaged_pods": {"type": "bool", "default": False},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
    "timeout": {"type": TIMEOUT, "default": 30},
}


def main() -> None:
    """Evict, and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode, connect(module, module.params["timeout"]))
    except ChangeError as error:
        module.fail_json(msg=str(error), **result_of(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
