#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that the roles of the collection decide from, in one run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_facts
short_description: Read all that the roles decide from, check their variables and plan them
version_added: 1.0.0
description:
  - Reads installed packages, GPUs, driver, CUDA, containers and drift in one run on the host, where
    M(ansible.builtin.package_facts), M(gpu.fleet.nvidia_smi_facts), M(gpu.fleet.cuda_facts) and
    M(gpu.fleet.managed_facts) are four.
  - Needs nothing on the host and installs nothing. Packages are read with C(dpkg-query) or C(rpm).
  - With O(roles) it also reads the system, checks all variables of these roles, and returns which of them have work.
    All that is wrong is in one message, and nothing on the host has been changed. The variables are read on the
    controller, as the host has them in the inventory and on the command line.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes.facts
options:
  gather:
    description:
      - What to read, in this order the facts RV(ansible_facts.packages), RV(ansible_facts.nvidia_smi),
        RV(ansible_facts.cuda) and RV(ansible_facts.gpu_fleet_managed).
      - V(system) reads before them what M(ansible.builtin.setup) reads about platform, distribution and user. Of a
        distribution that no NVIDIA driver is for, such as OpenWrt, it may have the name in C(/etc/os-release) instead.
    type: list
    elements: str
    choices: [system, packages, gpus, cuda, managed]
    default: [packages, gpus, cuda, managed]
  secrets:
    description:
      - As of M(gpu.fleet.managed_facts).
    type: dict
    default: {}
  users:
    description:
      - Users of which RV(missing_users) names those that do not exist on the host.
    type: list
    elements: str
    default: []
  directories:
    description:
      - Directories, by their absolute paths, of which RV(file_systems) has the room that is left.
    type: list
    elements: path
    default: []
  reads:
    description:
      - What else the plans of roles need, which is then in RV(readings).
    type: dict
    suboptions:
      files:
        description:
          - Absolute paths.
        type: list
        elements: str
        default: []
      commands:
        description:
          - Programs that only read, each a list of its name and its arguments. All of them together get 60 seconds.
        type: list
        elements: list
        default: []
  gpu_state:
    description:
      - Options of M(gpu.fleet.gpu_state), whose result in check mode is then in RV(prediction). Nothing is changed.
      - Left out on a host whose driver does not work, and where V(gpus) is not gathered.
    type: dict
  roles:
    description:
      - Roles of this collection to check and to plan, of V(nvidia_driver), V(gpu_state), V(cuda), V(cudnn), V(docker),
        V(slurm_gres), V(nvidia_container_toolkit), V(nvidia_dcgm), V(gpu_health), V(gpu_monitoring), V(gpu_workload),
        V(gpu_containers), V(enroot), V(backend_ai_agent) and V(kubernetes_node). O(gather), O(users), O(directories),
        O(reads) and O(gpu_state) are then chosen as the roles need them.
      - V(default) are those that C(gpu.fleet.site) runs where nothing else is declared, V(removed) those that
        C(gpu.fleet.decommission) removes.
      - With V(none) only the names of the host's variables are checked. Nothing runs on the host, which may be one with
        Windows.
      - Where facts become variables (C(inject_facts_as_vars)), a host whose facts are named as variables of this
        collection, or as options of Ansible's connections, is refused, with and without this option.
      - A name with a prefix of this collection that is no variable of it is refused, and so is one that differs from
        one of ours by a letter or two, unless C(gpu_fleet_strict_variables) is V(false). Without O(roles) it is a
        warning.
      - The variables C(gpu_fleet_hosts_without_gpu) and C(gpu_fleet_expected_gpus) decide about a host without a GPU.
      - Where P(gpu.fleet.nvidia_driver#role) has no work, M(gpu.fleet.gpu_state) then predicts in check mode whether
        P(gpu.fleet.gpu_state#role) has work, in the same run on the host. What it refuses is refused here.
      - It is handled on the controller and not passed to the host.
    type: raw
  judge:
    description:
      - With O(roles), whether M(gpu.fleet.gpu_health) judges the GPUs of a host on which no role has work. Then
        RV(health) has the result, and P(gpu.fleet.gpu_health#role) is in RV(plan.work) only to report something.
      - Where the role does more than that, such as running a container, tests, or writing a report, the role judges.
      - It is handled on the controller and not passed to the host.
    type: bool
    default: false
  variables:
    description:
      - With O(roles), public variables of this collection to return in RV(variables). A task that read them itself
        could get a fact of the host.
      - It is handled on the controller and not passed to the host.
    type: list
    elements: str
    default: []
  host:
    description:
      - With O(roles=none), another host of the inventory whose O(variables) are returned, with what its templates have
        there, such as one that cannot be reached any more.
      - It is handled on the controller and not passed to the host.
    type: str
seealso:
  - module: gpu.fleet.nvidia_smi_facts
  - module: gpu.fleet.cuda_facts
  - module: gpu.fleet.managed_facts
"""

EXAMPLES = r"""
- name: Read packages, GPUs, driver, CUDA and drift
  gpu.fleet.host_facts:

- name: Check the variables of two roles before anything is changed, and plan them
  gpu.fleet.host_facts:
    roles: [docker, nvidia_container_toolkit]
  register: example_host

- name: Run the role that has work
  ansible.builtin.include_role:
    name: gpu.fleet.docker
  when: "'docker' in example_host.plan.work"
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts); with V(system) in O(gather) the facts of M(ansible.builtin.setup) as
    well.
  returned: always
  type: dict
  contains:
    packages:
      description: Installed packages by name, each a list of versions, as of M(ansible.builtin.package_facts).
      returned: when V(packages) is gathered
      type: dict
      sample:
        nvidia-container-toolkit:
          - name: nvidia-container-toolkit
            version: 1.18.0-1
            arch: amd64
            source: apt
    gpu_fleet_unfinished_packages:
      description: Names of the packages that dpkg has unpacked and not configured.
      returned: when V(packages) is gathered
      type: list
      elements: str
      sample: [nvidia-kernel-dkms]
    nvidia_smi:
      description:
        - As of M(gpu.fleet.nvidia_smi_facts), of each GPU the parts V(min), V(ecc), V(mig) and V(fabric). At most
          40 kB of JSON for 8 GPUs.
      returned: when V(gpus) is gathered
      type: dict
    nvlink_fabric:
      description: As of M(gpu.fleet.fabric_facts).
      returned: when V(gpus) is gathered
      type: dict
    imex_domain:
      description:
        - Addresses of the hosts with the C(gpu_fleet_nvlink_domain) of this host, in the order of the inventory, each
          the host's C(nvidia_driver_imex_address), else its C(ansible_host), else its name.
      returned: where C(gpu_fleet_nvlink_domain) is set
      type: list
      elements: str
      sample: [10.0.7.1, 10.0.7.2]
    cuda:
      description: As of M(gpu.fleet.cuda_facts).
      returned: when V(cuda) is gathered
      type: dict
    gpu_fleet_managed:
      description: As of M(gpu.fleet.managed_facts).
      returned: when V(managed) is gathered
      type: dict
    gpu_fleet_machine:
      description:
        - A machine that does not use a driver of its distribution. V(virtualization) is V(wsl), V(lxc), V(jetson),
          V(proxmox) for a host of Proxmox VE, or empty, V(dgx_os) the version of DGX OS or empty. V(vgpu) is V(host)
          with NVIDIA's Virtual GPU Manager, V(guest) in a virtual machine with a vGPU, with or without its driver, or
          empty.
      returned: when V(managed) is gathered
      type: dict
      sample: {virtualization: "", dgx_os: 7.2.3, vgpu: ""}
missing_users:
  description: Users of O(users) who do not exist on the host.
  returned: always
  type: list
  elements: str
  sample: []
gpu_operator:
  description: Which parts of NVIDIA's GPU Operator run on the host, by what they leave in C(/run/nvidia).
  returned: always
  type: dict
  contains:
    driver:
      description: Whether the driver comes from its driver container.
      type: bool
      sample: false
    container_toolkit:
      description: Whether it has configured the container engine.
      type: bool
      sample: false
    device_plugin:
      description: Whether its device plugin offers the GPUs.
      type: bool
      sample: false
file_systems:
  description:
    - The file system of each of O(directories), by its path; of one that does not exist yet, the file system of its
      parent. A file system that cannot be read is left out. A remote one, as NFS, is not looked at, since its server
      may not reply.
  returned: with O(directories)
  type: dict
  contains:
    mount:
      description: Where it is mounted.
      type: str
      sample: /var
    device:
      description: Its number in the kernel, the same for directories that share it.
      type: int
      sample: 66306
    available_mib:
      description: Room that is left, in MiB; V(null) of a remote file system.
      type: int
      sample: 20480
    read_only:
      description: Whether it is mounted read-only.
      type: bool
      sample: false
    free_inodes:
      description:
        - How many files can be created; V(null) where nothing limits them, as on Btrfs, and of a remote file system.
      type: int
      sample: 1310720
initramfs_mib:
  description: Size of the largest initramfs in C(/boot) in MiB, rounded up; 0 without any.
  returned: with O(directories)
  type: int
  sample: 72
readings:
  description: What O(reads) asks for.
  returned: with O(reads)
  type: dict
  contains:
    files:
      description:
        - By path the SHA-256 of a file, empty for what is no regular file or cannot be read, and V(null) where there is
          nothing.
      type: dict
      sample: {/usr/bin/enroot: null}
    commands:
      description: Of each command RV(ignore:argv), RV(ignore:rc), RV(ignore:stdout) and RV(ignore:stderr).
      type: list
      elements: dict
      sample:
        - {argv: [slurmd, -V], rc: 0, stdout: "slurm 24.11.5\n", stderr: ""}
variables:
  description: Of the variables in O(variables) those that are set, evaluated, by name.
  returned: when O(roles) is given
  type: dict
  sample: {gpu_fleet_upgrade_on_busy: wait}
plan:
  description: The plan, with O(roles).
  returned: when O(roles) is given
  type: dict
  contains:
    roles:
      description: The roles that are requested and possible on this host, in their order.
      type: list
      elements: str
      sample: [nvidia_driver, gpu_state, docker, nvidia_container_toolkit, gpu_health]
    without_gpu:
      description: Requested roles that are left out because the host has no GPU.
      type: list
      elements: str
      sample: []
    work:
      description: Roles of RV(plan.roles) that have work, or whose state only the role itself can find.
      type: list
      elements: str
      sample: [docker, gpu_health]
    disruptive:
      description:
        - Roles of RV(plan.work) that a job on the host would notice, for which a rolling upgrade drains it.
          P(gpu.fleet.gpu_state#role) is one of them where the prediction changes a GPU or needs a reboot.
      returned: always
      type: list
      elements: str
      sample: [docker]
    loop:
      description:
        - Roles that run one after the other, in their order, each with those before it. In check mode on a host without
          a driver, those that read the GPUs are left out.
      type: dict
      contains:
        first:
          description: Roles of RV(plan.work) that run before all others.
          type: list
          elements: dict
          sample:
            - {name: nvidia_driver, after: []}
            - {name: gpu_state, after: [nvidia_driver]}
        with_work:
          description: Roles of RV(plan.work) that run after these, without what is judged in RV(health).
          type: list
          elements: dict
          sample:
            - {name: docker, after: []}
        all:
          description: Roles of RV(plan.roles), for a run in which an earlier role has changed something.
          type: list
          elements: dict
          sample:
            - {name: docker, after: []}
            - {name: nvidia_container_toolkit, after: [docker]}
    nvlink:
      description: What the host has of an NVLink domain, driver, GPUs and IMEX, for C(gpu.fleet.upgrade).
      type: dict
    removal:
      description:
        - Roles of RV(plan.work) that are removed one after the other, in the reverse order, each with those before it.
      type: list
      elements: dict
      sample: []
    modules:
      description: The modules that ran on the host for this result.
      type: list
      elements: str
      sample: [host_facts, gpu_health]
    notes:
      description:
        - What roles without work would report, such as the end of life of the driver's branch.
          P(gpu.fleet.fleet_table#callback) shows them.
      type: list
      elements: str
      sample: []
prediction:
  description:
    - The result of M(gpu.fleet.gpu_state) in check mode; V(null) where there is none.
  returned: always
  type: dict
  sample: null
health:
  description:
    - The fact C(gpu_health_result) of the role P(gpu.fleet.gpu_health#role), which the caller sets; V(null) where the
      GPUs were not judged. See O(judge).
  returned: when O(roles) is given
  type: dict
  sample: null
report:
  description:
    - What the role reports of RV(health), and why it refuses the host; V(null) where the GPUs were not judged.
  returned: when O(roles) is given
  type: dict
  sample: null
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._host.facts import PARTS, SYSTEM, run
from ansible_collections.gpu.fleet.plugins.module_utils._host.system import system_facts

HOST = HostFiles()
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "gather": {"type": "list", "elements": "str", "choices": [SYSTEM, *PARTS], "default": list(PARTS)},
    "secrets": {"type": "dict", "default": {}, "no_log": True},
    "users": {"type": "list", "elements": "str", "default": []},
    "directories": {"type": "list", "elements": "path", "default": []},
    "reads": {
        "type": "dict",
        "options": {
            "files": {"type": "list", "elements": "str", "default": []},
            "commands": {"type": "list", "elements": "list", "default": []},
        },
    },
    "gpu_state": {"type": "dict"},
    "roles": {"type": "raw"},
    "judge": {"type": "bool", "default": False},
    "variables": {"type": "list", "elements": "str", "default": []},
    "host": {"type": "str"},
}


def main() -> None:
    """Gather and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    system = system_facts(HOST) if SYSTEM in module.params["gather"] else {}
    try:
        result, warnings = run(module.params, HOST)
    except ChangeError as error:
        # With what is known of the system: that may be the reason.
        module.fail_json(msg=str(error), ansible_facts=system)
    for warning in warnings:
        module.warn(warning)
    result["ansible_facts"].update(system)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
