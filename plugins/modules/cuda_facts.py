#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about driver, CUDA and containers on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_facts
short_description: Gather facts about the NVIDIA driver, CUDA and their companions
version_added: 1.0.0
description:
  - Reports the driver that is loaded and the one on disk, whether a reboot is required, and which CUDA toolkits, cuDNN,
    NCCL, TensorRT, NVIDIA Container Toolkit and daemons of the driver are installed.
  - Works without a GPU, without a driver, and while nvidia-smi fails.
  - Takes no lock of a package manager and uses no network.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes.facts
  - gpu.fleet.nvidia_smi
options:
  timeout:
    default: 30
  toolkit_paths:
    description:
      - Additional directories of CUDA toolkits, absolute paths with V(*) and V(?) in any component.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Read the installed software
  gpu.fleet.cuda_facts:

- name: Also find toolkits on a shared file system
  gpu.fleet.cuda_facts:
    toolkit_paths: [/shared/cuda/*]
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    cuda:
      description: Driver, CUDA and their companions.
      returned: always
      type: dict
      contains:
        driver:
          description: The NVIDIA driver.
          returned: always
          type: dict
          contains:
            loaded:
              description: Whether the kernel module is loaded.
              returned: always
              type: bool
            loaded_version:
              description: Version of the loaded kernel module.
              returned: always
              type: str
            loaded_kind:
              description: V(open) or V(proprietary).
              returned: always
              type: str
            module_version:
              description: Version of the kernel module on disk for the running kernel.
              returned: always
              type: str
            module_kind:
              description: V(open) or V(proprietary).
              returned: always
              type: str
            module_path:
              description: File of the kernel module.
              returned: always
              type: str
            library_version:
              description: Version of the driver's libraries on disk.
              returned: always
              type: str
            library_path:
              description: The library that states the version.
              returned: always
              type: str
            cuda_version:
              description: Highest CUDA version that the driver supports.
              returned: always
              type: str
            cuda_version_origin:
              description: V(nvidia_smi), or V(driver_branch) where nvidia-smi fails.
              returned: always
              type: str
            nouveau_loaded:
              description: Whether the kernel has nouveau loaded.
              returned: always
              type: bool
            reboot_required:
              description: Whether the loaded module differs from the module or the libraries on disk.
              returned: always
              type: bool
        toolkits:
          description: CUDA toolkits in the order of their versions.
          returned: always
          type: list
          elements: dict
          contains:
            version:
              description: Version.
              returned: always
              type: str
            path:
              description: Directory, links followed.
              returned: always
              type: str
            origin:
              description: Source of the version, V(version.json), V(version.txt) or V(nvcc).
              returned: always
              type: str
            default:
              description: Whether C(/usr/local/cuda) leads to it.
              returned: always
              type: bool
        default_toolkit:
          description: Directory of the toolkit to which C(/usr/local/cuda) leads.
          returned: always
          type: str
        alternatives:
          description: Directory to which each alternative leads, by its name, for instance C(cuda) and C(cuda-12).
          returned: always
          type: dict
        libraries:
          description: Libraries next to the toolkits.
          returned: always
          type: dict
          contains:
            cudnn: &library
              description: Installations of the library.
              returned: always
              type: list
              elements: dict
              contains:
                version:
                  description: Version.
                  returned: always
                  type: str
                path:
                  description: The shared library, or the header where only that exists.
                  returned: always
                  type: str
                origin:
                  description: V(package) or V(archive).
                  returned: always
                  type: str
                package:
                  description: Package that owns it.
                  returned: always
                  type: str
            nccl: *library
            tensorrt: *library
        container_toolkit:
          description: NVIDIA Container Toolkit and what it has configured.
          returned: always
          type: dict
          contains:
            installed:
              description: Whether C(nvidia-ctk) is installed.
              returned: always
              type: bool
            version:
              description: Its version.
              returned: always
              type: str
            cdi_stale:
              description: Whether any CDI specification is stale.
              returned: always
              type: bool
            cdi_specifications:
              description: CDI specifications of NVIDIA devices.
              returned: always
              type: list
              elements: dict
              contains:
                path:
                  description: File.
                  returned: always
                  type: str
                kind:
                  description: Kind, for instance V(nvidia.com/gpu).
                  returned: always
                  type: str
                devices:
                  description: Names of the devices.
                  returned: always
                  type: list
                  elements: str
                driver_version:
                  description: Driver version of the libraries that it mounts.
                  returned: always
                  type: str
                modified:
                  description: Time of the last change in seconds since 1970.
                  returned: always
                  type: float
                stale:
                  description:
                    - Changes since it was written, empty when it is current.
                    - V(driver_version), V(gpus) (other device files), V(mig_layout) (other MIG instances) or
                      V(device_numbers) (another major number of nvidia-uvm or of the MIG instances, as after a reboot).
                  returned: always
                  type: list
                  elements: str
            runtimes:
              description: Container engines.
              returned: always
              type: dict
              contains:
                docker: &engine
                  description: Configuration of the engine.
                  returned: always
                  type: dict
                  contains:
                    installed:
                      description: Whether the engine is installed.
                      returned: always
                      type: bool
                    configured:
                      description: Whether it has the nvidia runtime, or a hook in its place.
                      returned: always
                      type: bool
                    default:
                      description: Whether that runtime is its default.
                      returned: always
                      type: bool
                    cdi:
                      description: Whether CDI is enabled; null where that is left to the engine's version.
                      returned: always
                      type: bool
                    path:
                      description: File that configures it.
                      returned: always
                      type: str
                containerd: *engine
                crio: *engine
                podman: *engine
        services:
          description: Companion daemons of the driver.
          returned: always
          type: dict
          contains:
            fabric_manager: &service
              description: State of the daemon.
              returned: always
              type: dict
              contains:
                installed:
                  description: Whether its program or its unit exists.
                  returned: always
                  type: bool
                version:
                  description: Version of its program.
                  returned: always
                  type: str
                unit:
                  description: Name of its systemd unit.
                  returned: always
                  type: str
                state:
                  description: V(active), V(inactive), V(failed) or another state of systemd.
                  returned: always
                  type: str
                enabled:
                  description: V(enabled), V(disabled), V(static) or another unit file state of systemd.
                  returned: always
                  type: str
                matches_driver:
                  description: Whether its version is the driver's; null where it need not be, or is not known.
                  returned: always
                  type: bool
            persistenced: *service
            dcgm: *service
            imex: *service
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import TIMEOUT
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._cuda.facts import CudaFactsRequest, gather

ARGUMENT_SPEC = {
    "executable": {"type": "str", "default": "nvidia-smi"},
    "timeout": {"type": TIMEOUT, "default": 30.0},
    "toolkit_paths": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Gather and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    facts = gather(
        CudaFactsRequest(
            executable=module.params["executable"],
            toolkit_paths=tuple(module.params["toolkit_paths"]),
            timeout=module.params["timeout"],
        ),
        HostFiles(),
    )
    module.exit_json(ansible_facts={"cuda": facts})


if __name__ == "__main__":
    main()
