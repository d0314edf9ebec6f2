#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report of a fleet shows of one host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: report_facts
short_description: Read what the report of the fleet shows of a host
version_added: 1.0.0
description:
  - Reads GPUs, what runs on them, how they are connected, driver, CUDA, network adapters and reasons for a reboot in
    one run on the host, for M(gpu.fleet.fleet_report). The result is small, about 10 kB of JSON for 8 GPUs, so that a
    controller can hold the facts of a thousand hosts.
  - For other purposes M(gpu.fleet.nvidia_smi_facts) and M(gpu.fleet.cuda_facts) have all readings.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes.facts
  - gpu.fleet.nvidia_smi
seealso:
  - module: gpu.fleet.fleet_report
  - module: gpu.fleet.gpu_health
"""

EXAMPLES = r"""
- name: Read what the report shows
  gpu.fleet.report_facts:
  register: example_facts

- name: Report a host that waits for a reboot
  ansible.builtin.debug:
    msg: "{{ example_facts.host.reboot_reasons | join('; ') }}"
  when: example_facts.host.reboot_reasons | length > 0
"""

RETURN = r"""
host:
  description: The host.
  returned: always
  type: dict
  contains:
    available:
      description: Whether any GPU responds.
      returned: always
      type: bool
    message:
      description: Why none does.
      returned: always
      type: str
    system:
      description: The operating system.
      returned: always
      type: dict
      contains:
        distribution:
          description: Its name and version.
          returned: always
          type: str
          sample: Ubuntu 24.04.3 LTS
        kernel:
          description: Release of the running kernel.
          returned: always
          type: str
    driver_version:
      description: Version of the loaded driver.
      returned: always
      type: str
    driver_kind:
      description: V(open) or V(proprietary).
      returned: always
      type: str
    cuda_version:
      description: Highest CUDA version that the driver supports.
      returned: always
      type: str
    container_toolkit_version:
      description: Version of the NVIDIA Container Toolkit.
      returned: always
      type: str
    reboot_reasons:
      description: Why the host is to be rebooted, or a GPU to be reset, each in one line; empty where it is not.
      returned: always
      type: list
      elements: str
    imex:
      description: The service IMEX, which NVLink between hosts needs.
      returned: always
      type: dict
      contains:
        installed:
          description: Whether it is installed.
          returned: always
          type: bool
        version:
          description: Its version.
          returned: always
          type: str
        state:
          description: State of its unit, for instance V(active).
          returned: always
          type: str
        enabled:
          description: Whether it is enabled, for instance V(enabled) or V(masked).
          returned: always
          type: str
        domain_status:
          description: Status of its domain by C(nvidia-imex-ctl), V(UP), V(DEGRADED) or V(DOWN).
          returned: always
          type: str
        nodes_not_ready:
          description: Nodes of the domain that are not ready, as this host knows, by address with their status.
          returned: always
          type: dict
        channels:
          description: Number of device nodes of channels.
          returned: always
          type: int
    pci_gpu_count:
      description: NVIDIA GPUs on the PCI bus.
      returned: always
      type: int
    gpus:
      description: The GPUs that nvidia-smi lists.
      returned: always
      type: list
      elements: dict
      contains:
        index:
          description: Index in nvidia-smi.
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
        error:
          description: Why it does not respond.
          returned: always
          type: str
        vbios_version:
          description: Version of its firmware.
          returned: always
          type: str
        memory_total_mib:
          description: Memory in MiB.
          returned: always
          type: int
        memory_used_mib:
          description: Memory in use in MiB.
          returned: always
          type: int
        power_draw_w:
          description: Power draw in watts.
          returned: always
          type: float
        power_limit_w:
          description: Enforced power limit in watts.
          returned: always
          type: float
        temperature_c:
          description: Temperature of the GPU in degrees Celsius.
          returned: always
          type: int
        utilization_percent:
          description: Use of the GPU.
          returned: always
          type: float
        persistence_mode:
          description: Persistence mode.
          returned: always
          type: str
        ecc_mode:
          description: ECC mode.
          returned: always
          type: str
        mig_mode:
          description: MIG mode.
          returned: always
          type: str
        remapped_rows_correctable:
          description: Rows of memory that were remapped because of correctable errors.
          returned: always
          type: int
        remapped_rows_uncorrectable:
          description: Rows of memory that were remapped because of uncorrectable errors.
          returned: always
          type: int
        remapped_rows_pending:
          description: Whether rows wait for a reset to be remapped.
          returned: always
          type: bool
        remapped_rows_failure:
          description: Whether a row could not be remapped.
          returned: always
          type: bool
        ecc_volatile_corrected:
          description: Corrected memory errors since the last reset.
          returned: always
          type: int
        ecc_volatile_uncorrected:
          description: Uncorrected memory errors since the last reset.
          returned: always
          type: int
        ecc_aggregate_corrected:
          description: Corrected memory errors over the life of the board.
          returned: always
          type: int
        ecc_aggregate_uncorrected:
          description: Uncorrected memory errors over the life of the board.
          returned: always
          type: int
        nvlinks_active:
          description: Active NVLinks.
          returned: always
          type: int
        nvlinks:
          description: NVLinks of which the state is known.
          returned: always
          type: int
        fabric_cluster_uuid:
          description: Cluster of its NVLink fabric, the same on all hosts of an NVLink domain.
          returned: always
          type: str
        fabric_clique_id:
          description: Clique in this cluster, of GPUs that reach each other.
          returned: always
          type: int
        instances:
          description: MIG GPU instances, null where they cannot be listed.
          returned: always
          type: list
          elements: dict
          contains:
            gpu_instance_id:
              description: Id.
              returned: always
              type: int
            profile:
              description: Profile.
              returned: always
              type: str
            placement_start:
              description: First memory slice.
              returned: always
              type: int
            placement_size:
              description: Number of memory slices.
              returned: always
              type: int
            compute_instances:
              description: Profiles of its compute instances.
              returned: always
              type: list
              elements: str
            memory_total_mib:
              description: Memory in MiB.
              returned: always
              type: int
            memory_used_mib:
              description: Memory in use in MiB.
              returned: always
              type: int
        processes:
          description: The first 32 processes.
          returned: always
          type: list
          elements: dict
          contains:
            pid:
              description: Process id.
              returned: always
              type: int
            name:
              description: Name, at most 120 characters.
              returned: always
              type: str
            memory_used_mib:
              description: GPU memory in MiB.
              returned: always
              type: int
            gpu_instance_id:
              description: MIG GPU instance that it uses.
              returned: always
              type: int
        process_count:
          description: Number of all processes.
          returned: always
          type: int
    nics:
      description: Network adapters on the PCI bus, one for each port, without virtual functions.
      returned: always
      type: list
      elements: dict
      contains:
        names:
          description: Its network interfaces and RDMA devices.
          returned: always
          type: list
          elements: str
          sample: [ens1np0, mlx5_0]
        pci_bus_id:
          description: PCI address.
          returned: always
          type: str
        rdma:
          description: Whether it has an RDMA device.
          returned: always
          type: bool
        speed_gb_per_second:
          description: Speed of its link in Gbit/s, null without a link.
          returned: always
          type: float
        up:
          description: Whether it has a link.
          returned: always
          type: bool
        numa_node:
          description: NUMA node.
          returned: always
          type: int
    topology:
      description: How GPUs and RDMA devices are connected, as C(nvidia-smi topo -m) has it.
      returned: always
      type: list
      elements: dict
      contains:
        label:
          description: Label, for instance V(GPU0) or V(NIC0).
          returned: always
          type: str
        name:
          description: Name of an RDMA device.
          returned: always
          type: str
        numa_affinity:
          description: NUMA node.
          returned: always
          type: str
        links:
          description: Kind of the path to each other device by its label, for instance V(NV18) or V(PIX).
          returned: always
          type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import TIMEOUT
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._report.facts import gather

HOST = HostFiles()
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "executable": {"type": "str", "default": "nvidia-smi"},
    "timeout": {"type": TIMEOUT, "default": 60.0},
}


def main() -> None:
    """Gather and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.exit_json(host=gather(module.params["executable"], module.params["timeout"], HOST))


if __name__ == "__main__":
    main()
