#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about NVSwitches and NVLink 5 on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_facts
short_description: Find NVSwitches and the management devices of NVLink 5
version_added: 1.0.0
description:
  - Reads the PCI bus for what decides whether a host needs Fabric Manager and the NVLink subnet manager. Neither a
    driver nor any tool has to be installed.
  - NVSwitches up to Hopper are PCI devices of NVIDIA. NVSwitches of NVLink 5, as in HGX B200 and B300, are reached
    through ConnectX devices, whose vital product data contain C(SW_MNG).
  - The compute trays of GB200 and GB300 have neither, since their NVSwitches are managed elsewhere.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes.facts
options:
  imex_timeout:
    description:
      - With a number, wait at most so many seconds until the service IMEX reports its domain to be up.
        From 1 to 600.
      - Fails where the service does not run, or where the driver's option C(NVreg_CreateImexChannel0) has made no
        device node. Nodes of the domain that are not ready yet are warnings, since another run may start them.
    type: int
seealso:
  - module: gpu.fleet.cuda_facts
"""

EXAMPLES = r"""
- name: Find what connects the GPUs
  gpu.fleet.fabric_facts:

- name: Verify IMEX after its start
  gpu.fleet.fabric_facts:
    imex_timeout: 60

- name: Report a host with NVLink 5
  ansible.builtin.debug:
    msg: this host needs Fabric Manager and nvlsm
  when: ansible_facts['nvlink_fabric'].nvlink5_bridges | length > 0
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    nvlink_fabric:
      description: PCI addresses of what connects the GPUs by NVLink.
      returned: always
      type: dict
      contains:
        nvswitches:
          description: NVSwitches on the PCI bus, which need Fabric Manager.
          returned: always
          type: list
          elements: str
          sample: ["00000000:07:00.0"]
        nvlink5_bridges:
          description: ConnectX devices that lead to the NVSwitches of NVLink 5, which need Fabric Manager and nvlsm.
          returned: always
          type: list
          elements: str
          sample: []
        unreadable:
          description: ConnectX devices of which no vital product data can be read, so that their use is not known.
          returned: always
          type: list
          elements: str
          sample: []
        missing_modules:
          description: Kernel modules that NVLink 5 needs and the running kernel does not have.
          returned: always
          type: list
          elements: str
          sample: []
        ofed:
          description:
            - Version of DOCA-OFED or MLNX_OFED, V(unknown) where C(ofed_info -s) prints another form; empty for none.
          returned: always
          type: str
          sample: 24.10-1.1.4
        peermem:
          description:
            - V(built) where the module C(nvidia_peermem) of the running kernel was built with the interface of
              adapters, V(stub) where it was built without, as before DOCA-OFED was installed, and does not load; empty
              for none.
          returned: always
          type: str
          sample: built
        imex_nodes_exist:
          description: Whether the host has C(/etc/nvidia-imex/nodes_config.cfg).
          returned: always
          type: bool
        imex_in_pods:
          description: Whether Kubernetes runs IMEX in a pod of the host.
          returned: always
          type: bool
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import Number
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import run
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.nvlink_fabric import read_fabric, wait_for_imex

HOST = HostFiles()
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {"imex_timeout": {"type": Number("int", 1, 600, "seconds")}}


def main() -> None:
    """Read and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    if module.params["imex_timeout"] is not None:
        imex = wait_for_imex(module.params["imex_timeout"], HOST, Systemd(), run)
        for note in imex.notes:
            module.warn(note)
        if imex.problem:
            module.fail_json(msg=imex.problem)
    module.exit_json(ansible_facts={"nvlink_fabric": read_fabric(HOST).as_dict()})


if __name__ == "__main__":
    main()
