#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a role. It is made on the controller, see plugins/action/role_plan.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: role_plan
short_description: Plan a role of this collection
version_added: 1.0.0
description:
  - Made for the roles of this collection; its options may change in any release.
  - Plans the role from its variables and the facts of the host, with the functions that the playbook C(gpu.fleet.site)
    calls before its first change. What the role cannot do fails here, in one message with all that is wrong.
  - A role has one or several stages. A later stage plans with what a task before it has found, which is given in
    O(facts), so that a plan changes only where a task asks for another one.
  - A stage may ask for what it has to know of the host, such as the versions that its repositories have. Modules that
    change nothing read it, in check mode as well, and the stage plans with their results. The task returns the facts
    that they have read.
  - A plan has no secret. What may have one, as the URL of a mirror with a password, is a stage of its own, and a task
    that asks for it without C(no_log) fails.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - It changes nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - It changes nothing.
options:
  role:
    description:
      - The role.
    type: str
    choices:
      - backend_ai_agent
      - cuda
      - cudnn
      - docker
      - enroot
      - gpu_containers
      - gpu_health
      - gpu_monitoring
      - gpu_state
      - gpu_workload
      - kubernetes_node
      - nvidia_container_toolkit
      - nvidia_dcgm
      - nvidia_driver
      - nvidia_repository
      - slurm_gres
      - windows_gpu
    required: true
  stage:
    description:
      - The stage to plan. Each role has V(plan), what it has to do by its variables and the facts of the host.
      - V(nvidia_repository) has V(definitions) as well, what the tasks need to add a repository, with its URLs, and
        V(packages), which sorts the files of repository packages.
      - V(cuda) has V(removal), which installed packages go, and V(verify), which refuses what does not work after the
        installation, and has the files to record.
      - V(cudnn) has V(loaded), which refuses what the loader does not find.
      - V(nvidia_dcgm) has V(verify), which refuses a host engine that does not list the GPUs.
      - The plans of these three need C(lists) in O(facts), V(cached) or V(fresh), to ask for what the repositories
        have.
      - V(nvidia_driver) has V(select), the driver by what the host has, V(change), what replaces it, by all package
        lists, V(sources), which has URLs, V(installed), which refuses other packages and modules than planned,
        V(configured), its files and its record, V(failure), what a rollback restores, V(activation), whether the driver
        has to be loaded, V(reboot), which refuses a reboot that does not load it, V(persistence), which refuses GPUs
        that are not kept initialised, and V(in_use), which refuses a removal while GPUs are in use. With C(reads) in
        O(facts) its plan has what is removed.
      - V(docker) has V(secrets), what may have a password, V(restart), whether the engine is restarted and why,
        V(containers), those to remove, V(images), those to load and to pull, and V(failed), which explains failures of
        engines. With C(asks) in O(facts) its plan asks for users and package lists.
      - V(nvidia_container_toolkit) has V(generated), the plan with the specification that C(nvidia-ctk) generates,
        V(record), what the role records, which refuses a specification of other GPUs, and V(smoke) and V(seen),
        containers of the smoke test and what they saw. Its plan needs C(step) in O(facts), V(first), V(installed) or
        V(refresh), to ask for what the host has.
      - V(enroot) has V(request), which refuses variables before the host is read, and V(plugin), the line of
        C(plugstack.conf).
      - V(gpu_containers) has V(host), the plan with what the engines list, or after the change what the role records
        and which containers are not as declared, and V(containers), the options of containers.
      - V(gpu_health) has V(engine), how the container is run, V(proof), what it has shown, V(result), the fact
        C(gpu_health_result) with its files and what is printed about it, and V(evidence), the files of a fault that are
        fetched. C(is_alone) in O(facts) is the plan of the verdict alone, which needs no facts.
      - V(gpu_monitoring) has V(prometheus), the files for the host of Prometheus.
      - V(gpu_state) has V(follow_up), what comes after a run of its module, with the hooks, and V(hooked), which
        refuses a host on which hooks have failed.
      - V(gpu_workload) has V(indexes), package indexes with their URLs, V(installed), which refuses requirements that
        cannot be installed, and V(results) of all tests.
      - V(kubernetes_node) has V(request), which refuses variables before the node is read, V(cluster), how the cluster
        is reached, V(cap), which nodes get no taint for their verdict, V(taint), the patch by which a node has it,
        V(check), which refuses a node that has not joined and manifests that may not be applied, and V(verify), which
        refuses a cluster that has something else.
      - V(slurm_gres) has V(changes), what differs from the plan on the hosts, which refuses a restart while jobs run
        and a file that slurmd reads differently.
      - V(backend_ai_agent) has V(secrets), the content of files that may have a password, V(installed), which refuses
        other packages than requested, V(checked), which refuses what the agent's checker does not take, and
        V(reported), which refuses an agent that does not have the resources of the host.
      - V(windows_gpu) has V(request), which refuses variables before the host is read.
    type: str
    default: plan
  observe:
    description:
      - What the host is read for before it is planned, as with O(gpu.fleet.host_facts#module:gather), with V(system)
        where distribution and architecture are not known yet. The task then returns these facts.
      - Nothing is read where the playbook has read all facts, as C(gpu.fleet.site) does, or where another role of this
        collection includes the role. A host whose packages Ansible cannot manage is refused, and one that lacks room or
        write access for the work of the role, with the messages of C(gpu.fleet.site).
      - V(readings) is what only this role needs, such as the version that a program prints. It is always read.
    type: list
    elements: str
    choices: [system, packages, gpus, cuda, managed, readings]
    default: []
  facts:
    description:
      - What tasks have found for this stage, by name. V(check_mode) is the mode of the task.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Plan the repositories
  gpu.fleet.role_plan:
    role: nvidia_repository
  register: planned
"""

RETURN = r"""
ansible_facts:
  description: As of M(gpu.fleet.host_facts), and of other modules that read facts for the stage.
  returned: where facts are read, as with O(observe)
  type: dict
variables:
  description: The public variables that the tasks of the role read, by name, evaluated. None of them is a secret.
  returned: always
  type: dict
  sample: {docker_users: [ops]}
steps:
  description: What the tasks of the role carry out, in their order. Next to it is what else these tasks read.
  returned: with O(stage=plan), unless something is refused, for a role with one plan
  type: list
  elements: str
has_work:
  description: Whether the role has steps.
  returned: with C(steps)
  type: bool
reasons:
  description: Why it has them.
  returned: with C(steps)
  type: list
  elements: str
inputs:
  description: A hash of what decides the state of the host, which the role records.
  returned: with C(steps)
  type: str
notes:
  description: What the role reports.
  returned: with C(steps)
  type: list
  elements: str
refusals:
  description: Empty, as refusals fail.
  returned: with C(steps)
  type: list
  elements: str
plans:
  description: The plan of each repository, with the keys above.
  returned: for O(role=nvidia_repository) with O(stage=plan), unless something is refused
  type: list
  elements: dict
definitions:
  description: What the tasks need to add each network repository.
  returned: for O(role=nvidia_repository) with O(stage=definitions)
  type: dict
keyrings:
  description: The keys among the files of repository packages.
  returned: for O(role=nvidia_repository) with O(stage=packages)
  type: list
  elements: str
files:
  description: Files that must not change, and that the role records.
  returned: for O(role=nvidia_repository) with O(stage=packages), for O(role=cuda) with O(stage=verify), for
    O(role=nvidia_container_toolkit) with O(stage=record)
  type: list
  elements: str
loader:
  description: What the loader is configured with, and which libraries it has to find.
  returned: for O(role=cudnn) with V(unpacked) in O(facts)
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "role": {
        "type": "str",
        "choices": [
            "backend_ai_agent",
            "cuda",
            "cudnn",
            "docker",
            "enroot",
            "gpu_containers",
            "gpu_health",
            "gpu_monitoring",
            "gpu_state",
            "gpu_workload",
            "kubernetes_node",
            "nvidia_container_toolkit",
            "nvidia_dcgm",
            "nvidia_driver",
            "nvidia_repository",
            "slurm_gres",
            "windows_gpu",
        ],
        "required": True,
    },
    "stage": {"type": "str", "default": "plan"},
    "observe": {
        "type": "list",
        "elements": "str",
        "choices": ["system", "packages", "gpus", "cuda", "managed", "readings"],
        "default": [],
    },
    "facts": {"type": "dict", "default": {}},
}


def main() -> None:
    """Refuse: Ansible runs the action of the same name instead."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(msg="role_plan runs on the controller, as a task of a role")


if __name__ == "__main__":
    main()
