#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about the GPUs of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_smi_facts
short_description: Gather facts about NVIDIA GPUs
version_added: 1.0.0
description:
  - Reads everything that nvidia-smi knows of a host's GPUs into typed facts, with any driver from branch 340 on.
  - Succeeds without a GPU and without a driver too, with RV(ansible_facts.nvidia_smi.available=false) and the reason.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes.facts
  - gpu.fleet.nvidia_smi
options:
  gather_subset:
    description:
      - Parts to gather, as in M(ansible.builtin.setup). A part with V(!) before it is left out.
      - V(min) is always gathered and costs one CSV query when it is all that is asked for.
      - V(!all) leaves nothing but V(min).
      - By default everything but clocks and wiring, which are large and seldom asked for.
    type: list
    elements: str
    default: ["!clocks", "!supported_clocks", "!nvlink", "!topology"]
    choices:
      - all
      - min
      - hardware
      - memory
      - ecc
      - power
      - clocks
      - supported_clocks
      - temperature
      - utilization
      - mig
      - vgpu
      - processes
      - fabric
      - nvlink
      - topology
      - "!all"
      - "!hardware"
      - "!memory"
      - "!ecc"
      - "!power"
      - "!clocks"
      - "!supported_clocks"
      - "!temperature"
      - "!utilization"
      - "!mig"
      - "!vgpu"
      - "!processes"
      - "!fabric"
      - "!nvlink"
      - "!topology"
  gpus:
    description:
      - GPUs to return, each by index, UUID, PCI bus id (with or without domain), or product name with V(*) and V(?).
      - One that is not there is reported in RV(ansible_facts.nvidia_smi.warnings).
    type: list
    elements: str
    default: [all]
  explain:
    description:
      - Whether readings that a GPU does not have with this driver are returned too, as null, and their reasons in
        RV(ansible_facts.nvidia_smi.gpus[].unknown), V(absent), V(not_available), V(not_supported) and V(deprecated).
      - Without it they are left out, because they would fill half of a fact cache. Readings of O(gather_subset=min) and
        in lists are always returned; readings that should be there but cannot be read are null and have their reason.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Know the GPUs
  gpu.fleet.nvidia_smi_facts:

- name: Know everything about the GPUs, also which readings they do not have
  gpu.fleet.nvidia_smi_facts:
    gather_subset: [all]
    explain: true

- name: Know what GPUs there are, with one quick query
  gpu.fleet.nvidia_smi_facts:
    gather_subset: [min]
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    nvidia_smi:
      description: What nvidia-smi knows of the host.
      returned: always
      type: dict
      contains:
        available:
          description: Whether at least one GPU responds. A GPU that is lost does not, though some readings stay known.
          returned: always
          type: bool
        reason:
          description:
            - Why no GPU responds; null when one does.
            - V(no_gpu), V(no_driver), V(no_nvidia_smi) (the driver is loaded, but the program is missing),
              V(not_loaded), V(version_mismatch) (driver and library differ until a reboot), V(library_missing),
              V(insufficient_power) (of GPUs), V(permission_denied), V(gpu_lost), V(reset_required), V(timeout),
              V(broken_xml), V(too_large) or V(failed).
            - V(passed_through) (all GPUs of the host, to virtual machines) and V(excluded) (all, by parameters of the
              driver) are no problem, whether there is a driver or not.
          returned: always
          type: str
        message:
          description: The same as a sentence, with the output of nvidia-smi.
          returned: always
          type: str
        driver_version:
          description: Version of the loaded driver.
          returned: always
          type: str
        cuda_version:
          description: Highest CUDA version that the driver supports; not known from V(min) alone.
          returned: always
          type: str
        timestamp:
          description: When nvidia-smi read the document, as it prints that, in the host's time; null from V(min) alone.
          returned: always
          type: str
        gpu_count:
          description: Number of GPUs that nvidia-smi lists, those that fail among them, whatever O(gpus) picks.
          returned: always
          type: int
        gathered:
          description: Parts that were gathered.
          returned: always
          type: list
          elements: str
        warnings:
          description: Lines that nvidia-smi printed around its output, and what could not be understood.
          returned: always
          type: list
          elements: str
        pci_gpus:
          description:
            - NVIDIA GPUs on the PCI bus, with or without a driver.
            - SR-IOV virtual functions, such as functions of vGPUs, are parts of one, and not in the list.
          returned: always
          type: list
          elements: dict
          contains:
            pci_bus_id:
              description: PCI bus id.
              returned: always
              type: str
            device_id:
              description: PCI device id.
              returned: always
              type: str
            class_id:
              description: PCI class.
              returned: always
              type: str
            driver:
              description: Kernel driver that is bound to it, null if none.
              returned: always
              type: str
            numa_node:
              description: NUMA node, null where the firmware names none.
              returned: always
              type: int
            passed_through:
              description:
                - Whether it is kept for a virtual machine. Its driver is V(vfio-pci), a variant of that, or one of
                  another hypervisor.
              returned: always
              type: bool
            excluded:
              description:
                - Whether the parameters of the driver, such as C(NVreg_ExcludedGpus), have it ignore this GPU.
              returned: always
              type: bool
        unhealthy:
          description:
            - What makes the host unfit for GPU work, empty when all is well.
            - "V(ecc_uncorrectable), V(ecc_sram_threshold_exceeded), V(ecc_repair_pending),
              V(ecc_unrepairable_memory), V(page_retirement_pending), V(row_remap_pending), V(row_remap_failure),
              V(row_remapper_exhausted): memory errors since the last reset and their repair."
            - V(gpu_lost), V(gpu_not_responding) (nothing, or an error instead of UUID, name, memory or temperature),
              V(gpu_missing) (on the PCI bus, but not in nvidia-smi), V(broken_xml) (its part of the document is
              damaged), V(reset_required), V(recovery_required), V(inforom_corrupted).
            - V(fabric_not_completed), V(fabric_failed), V(fabric_unhealthy).
            - "V(ecc_mode_pending), V(mig_mode_pending), V(operation_mode_pending), V(dram_encryption_pending): a
              change that waits."
            - V(thermal_slowdown), V(power_brake_slowdown), V(hardware_slowdown).
            - V(driver_library_mismatch), and the other values of RV(ansible_facts.nvidia_smi.reason) where no GPU
              responds.
          returned: always
          type: list
          elements: dict
          contains:
            gpu:
              description: UUID of the GPU, its PCI bus id where it has none, null for the whole host.
              returned: always
              type: str
            code:
              description: The reason as a word.
              returned: always
              type: str
            message:
              description: The reason as a sentence.
              returned: always
              type: str
        topology:
          description: How the GPUs and network cards are wired, a row of C(nvidia-smi topo -m) each.
          returned: when O(gather_subset) has V(topology)
          type: list
          elements: dict
          contains:
            label:
              description: V(GPU0), V(NIC0) or the name of a network card.
              returned: always
              type: str
            name:
              description: Device name of a network card.
              returned: always
              type: str
            links:
              description:
                - Class of the path to each other device by its label, for instance V(NV18), V(PIX), V(PXB), V(PHB),
                  V(NODE) or V(SYS).
              returned: always
              type: dict
            cpu_affinity:
              description: Nearest CPUs.
              returned: always
              type: str
            numa_affinity:
              description: Nearest NUMA node.
              returned: always
              type: str
            gpu_numa_id:
              description: NUMA node of the memory of the GPU itself.
              returned: always
              type: str
        gpus:
          description:
            - The GPUs in the order of their index, those that do not respond among them.
            - Readings that a GPU does not have are left out, or null with O(explain=true).
          returned: always
          type: list
          elements: dict
          contains:
            index:
              description: Index of nvidia-smi; it may change at a reboot.
              returned: always
              type: int
            error:
              description: Error message of a GPU that does not respond, null for one that does.
              returned: always
              type: str
            unknown:
              description:
                - Why a reading is null, by the name of the reading; names within lists and groups are joined by dots.
                - V(not_available), V(not_supported), V(not_found), V(deprecated), V(denied), V(empty), V(lost),
                  V(reset_required), V(failed), V(inforom_corrupted), V(broken_xml) (its part of the document is
                  damaged), V(absent) (this driver or GPU has no such reading) or V(unreadable) (a text of a new form,
                  or a number that no GPU has).
                - V(absent), V(not_available), V(not_supported) and V(deprecated) only with O(explain=true).
              returned: always
              type: dict
            mig_capable:
              description: Whether the GPU has a MIG mode; null while that cannot be determined.
              returned: always
              type: bool
            uuid:
              description: UUID, the name that stays the same over reboots.
              returned: always
              type: str
            name:
              description: Product name.
              returned: always
              type: str
            serial:
              description: Serial number of the board.
              returned: always
              type: str
            pci_bus_id:
              description: PCI bus id in lower case with a domain of eight digits, whatever the driver prints.
              returned: always
              type: str
            memory_total_mib:
              description: Memory of the GPU in MiB; ECC and the driver's reserve change it.
              returned: always
              type: int
            memory_used_mib:
              description: Memory in use in MiB.
              returned: always
              type: int
            memory_free_mib:
              description: Free memory in MiB.
              returned: always
              type: int
            ecc_mode_current:
              description: ECC mode that is in force.
              returned: always
              type: str
            ecc_mode_pending:
              description: ECC mode after the next reboot.
              returned: always
              type: str
            mig_mode_current:
              description: MIG mode that is in force.
              returned: always
              type: str
            mig_mode_pending:
              description: MIG mode after the next reset.
              returned: always
              type: str
            persistence_mode:
              description: Whether the driver stays loaded without clients.
              returned: always
              type: str
            compute_mode:
              description:
                - Who may use the GPU, V(default), V(exclusive_process), V(exclusive_thread) or V(prohibited).
              returned: always
              type: str
            power_limit_w:
              description: Power limit that was asked for, in watts.
              returned: always
              type: float
            brand:
              description: Product brand.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            architecture:
              description: Chip generation.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            minor_number:
              description: Number of the device file C(/dev/nvidiaN), which is not the index.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pdi:
              description: Per-device identifier.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            vbios_version:
              description: Version of the video BIOS.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            gsp_firmware_version:
              description: Version of the GSP firmware.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            compute_capability:
              description: CUDA compute capability, for instance V(9.0).
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            multiprocessors:
              description:
                - Streaming multiprocessors of the whole GPU, from a table by the PCI device id. Null where the product
                  is not in it.
              returned: when O(gather_subset) has V(hardware)
              type: int
            cuda_cores:
              description: CUDA cores of the whole GPU, in the same way.
              returned: when O(gather_subset) has V(hardware)
              type: int
            tensor_cores:
              description: Tensor cores of the whole GPU, in the same way.
              returned: when O(gather_subset) has V(hardware)
              type: int
            memory_bandwidth_gb_per_second:
              description:
                - Bandwidth of the memory in GB/s as NVIDIA names it for the product, in the same way. An upper limit,
                  no measurement.
              returned: when O(gather_subset) has V(hardware)
              type: int
            nvlink_bandwidth_gb_per_second:
              description:
                - Bandwidth of all NVLinks of the GPU in both directions together, in GB/s, in the same way; of a card
                  that is sold without a bridge, what it has with one. V(0) for a product without NVLink.
                - C(nvlinks) has the links that the host really has.
              returned: when O(gather_subset) has V(hardware)
              type: float
            gsp_mode_current:
              description: Whether the GSP firmware is at work, V(enabled) or V(disabled).
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            gsp_mode_default:
              description: Whether it is by default.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            multigpu_board:
              description: Whether the board carries several GPUs.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: bool
            board_id:
              description: Id of the board, the same for GPUs on one board.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            board_part_number:
              description: Part number of the board.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            gpu_part_number:
              description: Part number of the GPU.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            gpu_fru_part_number:
              description: Part number of the field-replaceable unit.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            module_id:
              description: Place of the module in the baseboard.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            chassis_serial_number:
              description: Serial number of the chassis.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            slot_number:
              description: Slot in the rack.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            tray_index:
              description: Tray in the rack.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            host_id:
              description: Host within the tray.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            peer_type:
              description: How the GPU reaches its peers over NVLink.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            gpu_fabric_guid:
              description: GUID in the NVLink fabric.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            inforom_image_version:
              description: Version of the infoROM image.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            inforom_oem_version:
              description: Version of the infoROM's OEM object.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            inforom_ecc_version:
              description: Version of the infoROM's ECC object.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            inforom_power_version:
              description: Version of the infoROM's power object.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            inforom_flush_timestamp:
              description: When the black box was last flushed.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            inforom_flush_duration_us:
              description: How long that took, in microseconds.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            inforom_time_run_s:
              description: Seconds that the board has run, as the infoROM counts them (drivers from 610 on).
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            driver_model_current:
              description: Driver model in force, on Windows only.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            driver_model_pending:
              description: Driver model after the next reboot, on Windows only.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            operation_mode_current:
              description: GPU operation mode in force.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            operation_mode_pending:
              description: GPU operation mode after the next reboot.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            virtualization_mode:
              description: V(none), V(pass_through), V(vgpu), V(host_vgpu) or V(host_vsga).
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            host_vgpu_mode:
              description: Mode of a vGPU host.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            vgpu_heterogeneous_mode:
              description: Whether a vGPU host mixes sizes.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            vgpu_product_name:
              description: Licensed vGPU product.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            vgpu_license_status:
              description: State of that licence.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            display_mode:
              description: Whether a display could be connected.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            display_attached:
              description: Whether a display is connected.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: bool
            display_active:
              description: Whether a display is in use.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            addressing_mode:
              description: V(none), V(hmm) or V(ats).
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            c2c_mode:
              description: Chip-to-chip mode of superchips.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            egm:
              description: Extended GPU memory of superchips.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            sparse_operation_mode:
              description: Sparse operation mode.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            relaxed_ordering_mode:
              description: Relaxed ordering on POWER systems.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            accounting_mode:
              description: Whether processes are accounted.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            accounting_buffer_size:
              description: Number of processes that accounting keeps.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            recovery_action:
              description:
                - What the driver asks for, V(none) when all is well.
                - V(reset), V(reboot), V(drain_p2p), V(drain_and_reset), V(recover_imex_domain), V(bus_reset),
                  V(system_reboot), or what newer drivers have; any of them makes the GPU unhealthy.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            reset_required:
              description: Whether the GPU needs a reset (drivers 535 to 575).
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: bool
            drain_and_reset_recommended:
              description: Whether the GPU should be drained and reset (drivers 535 to 575).
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: bool
            pci_device_id:
              description: PCI device and vendor id.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            pci_subsystem_id:
              description: PCI subsystem id.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            pci_base_class:
              description: PCI base class.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_sub_class:
              description: PCI sub-class.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_link_gen_current:
              description: PCIe generation in use.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_link_gen_max:
              description: Highest PCIe generation of GPU and system together.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_link_gen_device_current:
              description: PCIe generation that the GPU uses.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_link_gen_device_max:
              description: Highest PCIe generation of the GPU.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_link_gen_host_max:
              description: Highest PCIe generation of the host.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_link_width_current:
              description: PCIe lanes in use.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_link_width_max:
              description: Most PCIe lanes of GPU and system together.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_bridge_chip_type:
              description: Bridge chip on the board.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            pci_bridge_chip_firmware:
              description: Firmware of the bridge chip.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: str
            pci_replay_count:
              description: PCIe replays since the last reset.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_replay_rollover_count:
              description: Overflows of the replay counter.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: int
            pci_atomic_caps_outbound:
              description: Atomic operations towards the host.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: list
              elements: str
            pci_atomic_caps_inbound:
              description: Atomic operations from the host.
              returned: when O(gather_subset) has V(hardware) and the GPU has this reading
              type: list
              elements: str
            other:
              description:
                - Strings by their path in the document of readings that this collection does not know yet, and of those
                  that stand in place of a value and that RV(ansible_facts.nvidia_smi.gpus[].unknown) calls V(failed) or
                  V(unreadable).
              returned: when O(gather_subset) has V(hardware)
              type: dict
            memory_reserved_mib:
              description: Memory that driver and firmware keep, in MiB.
              returned: when O(gather_subset) has V(memory) and the GPU has this reading
              type: int
            bar1_total_mib:
              description: Size of the BAR1 window in MiB.
              returned: when O(gather_subset) has V(memory) and the GPU has this reading
              type: int
            bar1_used_mib:
              description: Mapped part of the BAR1 window in MiB.
              returned: when O(gather_subset) has V(memory) and the GPU has this reading
              type: int
            bar1_free_mib:
              description: Unmapped part of the BAR1 window in MiB.
              returned: when O(gather_subset) has V(memory) and the GPU has this reading
              type: int
            protected_memory_total_mib:
              description: Memory protected for confidential computing, in MiB.
              returned: when O(gather_subset) has V(memory) and the GPU has this reading
              type: int
            protected_memory_used_mib:
              description: Used part of it in MiB.
              returned: when O(gather_subset) has V(memory) and the GPU has this reading
              type: int
            protected_memory_free_mib:
              description: Free part of it in MiB.
              returned: when O(gather_subset) has V(memory) and the GPU has this reading
              type: int
            dram_encryption_mode_current:
              description: DRAM encryption in force.
              returned: when O(gather_subset) has V(memory) and the GPU has this reading
              type: str
            dram_encryption_mode_pending:
              description: DRAM encryption after the next reset.
              returned: when O(gather_subset) has V(memory) and the GPU has this reading
              type: str
            ecc_errors_volatile:
              description: Memory errors since the last reset or driver load, in the counters that the chip has.
              returned: when O(gather_subset) has V(ecc)
              type: dict
              contains:
                sram_correctable:
                  description: Corrected errors in SRAM (Turing and later).
                  returned: when the GPU has this reading
                  type: int
                sram_uncorrectable:
                  description: Uncorrectable errors in SRAM (Turing, and later chips until driver 550).
                  returned: when the GPU has this reading
                  type: int
                sram_uncorrectable_parity:
                  description: Uncorrectable errors in SRAM with parity (Ampere and later).
                  returned: when the GPU has this reading
                  type: int
                sram_uncorrectable_secded:
                  description: Uncorrectable errors in SRAM with SEC-DED (Ampere and later).
                  returned: when the GPU has this reading
                  type: int
                dram_correctable:
                  description: Corrected errors in DRAM (Turing and later).
                  returned: when the GPU has this reading
                  type: int
                dram_uncorrectable:
                  description: Uncorrectable errors in DRAM (Turing and later).
                  returned: when the GPU has this reading
                  type: int
                single_bit_device_memory:
                  description: Corrected errors in device memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_register_file:
                  description: Corrected errors in the register file (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_l1_cache:
                  description: Corrected errors in the L1 cache (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_l2_cache:
                  description: Corrected errors in the L2 cache (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_texture_memory:
                  description: Corrected errors in texture memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_texture_shm:
                  description: Corrected errors in texture shared memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_cbu:
                  description: Corrected errors in the convergence barrier unit (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_total:
                  description: Corrected errors in all memories (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_device_memory:
                  description: Uncorrectable errors in device memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_register_file:
                  description: Uncorrectable errors in the register file (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_l1_cache:
                  description: Uncorrectable errors in the L1 cache (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_l2_cache:
                  description: Uncorrectable errors in the L2 cache (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_texture_memory:
                  description: Uncorrectable errors in texture memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_texture_shm:
                  description: Uncorrectable errors in texture shared memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_cbu:
                  description: Uncorrectable errors in the convergence barrier unit (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_total:
                  description: Uncorrectable errors in all memories (before Turing).
                  returned: when the GPU has this reading
                  type: int
                corrected_total:
                  description:
                    - Corrected errors of all memories, in either layout.
                    - Null instead of 0 while a counter is unknown.
                  returned: always
                  type: int
                uncorrected_total:
                  description:
                    - Uncorrectable errors of all memories, in either layout.
                    - Null instead of 0 while a counter is unknown.
                  returned: always
                  type: int
            ecc_errors_aggregate:
              description: Memory errors over the life of the board, in the counters that the chip has.
              returned: when O(gather_subset) has V(ecc)
              type: dict
              contains:
                sram_correctable:
                  description: Corrected errors in SRAM (Turing and later).
                  returned: when the GPU has this reading
                  type: int
                sram_uncorrectable:
                  description: Uncorrectable errors in SRAM (Turing, and later chips until driver 550).
                  returned: when the GPU has this reading
                  type: int
                sram_uncorrectable_parity:
                  description: Uncorrectable errors in SRAM with parity (Ampere and later).
                  returned: when the GPU has this reading
                  type: int
                sram_uncorrectable_secded:
                  description: Uncorrectable errors in SRAM with SEC-DED (Ampere and later).
                  returned: when the GPU has this reading
                  type: int
                dram_correctable:
                  description: Corrected errors in DRAM (Turing and later).
                  returned: when the GPU has this reading
                  type: int
                dram_uncorrectable:
                  description: Uncorrectable errors in DRAM (Turing and later).
                  returned: when the GPU has this reading
                  type: int
                single_bit_device_memory:
                  description: Corrected errors in device memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_register_file:
                  description: Corrected errors in the register file (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_l1_cache:
                  description: Corrected errors in the L1 cache (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_l2_cache:
                  description: Corrected errors in the L2 cache (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_texture_memory:
                  description: Corrected errors in texture memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_texture_shm:
                  description: Corrected errors in texture shared memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_cbu:
                  description: Corrected errors in the convergence barrier unit (before Turing).
                  returned: when the GPU has this reading
                  type: int
                single_bit_total:
                  description: Corrected errors in all memories (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_device_memory:
                  description: Uncorrectable errors in device memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_register_file:
                  description: Uncorrectable errors in the register file (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_l1_cache:
                  description: Uncorrectable errors in the L1 cache (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_l2_cache:
                  description: Uncorrectable errors in the L2 cache (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_texture_memory:
                  description: Uncorrectable errors in texture memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_texture_shm:
                  description: Uncorrectable errors in texture shared memory (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_cbu:
                  description: Uncorrectable errors in the convergence barrier unit (before Turing).
                  returned: when the GPU has this reading
                  type: int
                double_bit_total:
                  description: Uncorrectable errors in all memories (before Turing).
                  returned: when the GPU has this reading
                  type: int
                corrected_total:
                  description:
                    - Corrected errors of all memories, in either layout.
                    - Null instead of 0 while a counter is unknown.
                  returned: always
                  type: int
                uncorrected_total:
                  description:
                    - Uncorrectable errors of all memories, in either layout.
                    - Null instead of 0 while a counter is unknown.
                  returned: always
                  type: int
            ecc_sram_threshold_exceeded:
              description: Whether SRAM had more uncorrectable errors than allowed.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: bool
            ecc_sram_source_l2:
              description: Uncorrectable SRAM errors in the L2 cache.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            ecc_sram_source_sm:
              description: Uncorrectable SRAM errors in the multiprocessors.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            ecc_sram_source_microcontroller:
              description: Uncorrectable SRAM errors in microcontrollers.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            ecc_sram_source_pcie:
              description: Uncorrectable SRAM errors in the PCIe unit.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            ecc_sram_source_other:
              description: Uncorrectable SRAM errors elsewhere.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            ecc_channel_repair_pending:
              description: Whether a memory channel waits for a reset to be repaired.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: bool
            ecc_tpc_repair_pending:
              description: Whether a TPC waits for a reset to be repaired.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: bool
            ecc_unrepairable_memory:
              description: Whether memory is beyond repair.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: bool
            retired_pages_single_bit_count:
              description: Memory pages retired after repeated single-bit errors (before Ampere).
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            retired_pages_double_bit_count:
              description: Memory pages retired after a double-bit error (before Ampere).
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            retired_pages_pending:
              description: Whether pages wait for a reboot to be retired.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: bool
            remapped_rows_correctable:
              description: Memory rows remapped because of corrected errors (Ampere and later).
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            remapped_rows_correctable_inactive:
              description: Such rows that no longer count.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            remapped_rows_uncorrectable:
              description: Memory rows remapped because of uncorrectable errors.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            remapped_rows_uncorrectable_inactive:
              description: Such rows that no longer count.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            remapped_rows_pending:
              description: Whether rows wait for a reset to be remapped.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: bool
            remapped_rows_failure:
              description: Whether a row could not be remapped.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: bool
            remapped_rows_banks_max:
              description: Memory banks with all spare rows left.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            remapped_rows_banks_high:
              description: Memory banks with most spare rows left.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            remapped_rows_banks_partial:
              description: Memory banks with some spare rows left.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            remapped_rows_banks_low:
              description: Memory banks with few spare rows left.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            remapped_rows_banks_none:
              description: Memory banks with no spare row left.
              returned: when O(gather_subset) has V(ecc) and the GPU has this reading
              type: int
            retired_pages:
              description: Retired memory pages (before Ampere).
              returned: when O(gather_subset) has V(ecc)
              type: list
              elements: dict
              contains:
                address:
                  description: Address of the page.
                  returned: always
                  type: str
                cause:
                  description: V(single_bit) or V(double_bit).
                  returned: always
                  type: str
                timestamp:
                  description: When it was retired, in local time of the host.
                  returned: always
                  type: str
            power_draw_w:
              description: Power draw in watts, averaged over a second where the chip can.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_draw_average_w:
              description: Average power draw in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_draw_instant_w:
              description: Last power draw in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_limit_enforced_w:
              description: Power limit in force, the lowest of several limiters, in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_limit_default_w:
              description: Power limit after the driver is loaded, in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_limit_min_w:
              description: Lowest limit that can be asked for, in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_limit_max_w:
              description: Highest limit that can be asked for, in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_base_w:
              description:
                - Base power that was asked for, in watts (driver 610 and newer). Up to it the GPU needs no power that
                  another component, such as the CPU of its module, leaves to it.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_base_enforced_w:
              description: Base power in force, in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_base_default_w:
              description: Base power after the driver is loaded, in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_management:
              description: Whether power is managed (drivers before 535).
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: bool
            performance_state:
              description: Performance state, V(P0) is the highest.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: str
            memory_power_draw_average_w:
              description: Average power draw of the memory in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            memory_power_draw_instant_w:
              description: Last power draw of the memory in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            module_power_draw_w:
              description: Power draw of a superchip in watts, averaged over a second where it can.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            module_power_draw_average_w:
              description: Average power draw of a superchip in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            module_power_draw_instant_w:
              description: Last power draw of a superchip in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            module_power_limit_w:
              description: Power limit of a superchip that was asked for, in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            module_power_limit_enforced_w:
              description: Power limit of a superchip in force, in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            module_power_limit_default_w:
              description: Power limit of a superchip after the driver is loaded, in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            module_power_limit_min_w:
              description: Lowest limit of a superchip in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            module_power_limit_max_w:
              description: Highest limit of a superchip in watts.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            edpp_multiplier_percent:
              description: Peak power multiplier.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_profiles_requested:
              description: Workload power profiles that were asked for.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: str
            power_profiles_enforced:
              description: Workload power profiles in force.
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: str
            graphics_voltage_mv:
              description: Voltage of the graphics unit in millivolts (drivers 470 to 575).
              returned: when O(gather_subset) has V(power) and the GPU has this reading
              type: float
            power_smoothing:
              description: Settings of power smoothing by their name in the document, as strings, null where unknown.
              returned: when O(gather_subset) has V(power)
              type: dict
            clock_graphics_mhz:
              description: Graphics clock in MHz.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_sm_mhz:
              description: Clock of the multiprocessors in MHz.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_memory_mhz:
              description: Memory clock in MHz.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_video_mhz:
              description: Clock of the video units in MHz.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_applications_graphics_mhz:
              description: Graphics clock set for applications (drivers before 590).
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_applications_memory_mhz:
              description: Memory clock set for applications (drivers before 590).
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_default_applications_graphics_mhz:
              description: Its default (drivers before 590).
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_default_applications_memory_mhz:
              description: Its default (drivers before 590).
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_deferred_memory_mhz:
              description: Memory clock after the next driver load.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_max_graphics_mhz:
              description: Highest graphics clock.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_max_sm_mhz:
              description: Highest clock of the multiprocessors.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_max_memory_mhz:
              description: Highest memory clock.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_max_video_mhz:
              description: Highest clock of the video units.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_max_customer_boost_graphics_mhz:
              description: Highest graphics clock that users may ask for.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            clock_auto_boost:
              description: Whether clocks are boosted automatically.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            clock_auto_boost_default:
              description: Its default.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_gpu_idle:
              description: Clocks are low because nothing runs.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_applications_clocks_setting:
              description: Clocks are held by the applications clocks setting.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_display_clocks_setting:
              description: Clocks are held by the display clocks setting.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_sync_boost:
              description: Clocks are held by a sync boost group.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_sw_power_cap:
              description: Clocks are held by the power limit.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_sw_thermal:
              description: Clocks are held because the GPU is warmer than its target.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_hw:
              description: Clocks are held by the hardware, thermal and power brake together.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_hw_thermal:
              description: Clocks are held by the hardware because of the temperature.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_hw_power_brake:
              description: Clocks are held by the hardware because the system asked for it.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_unknown:
              description: Clocks are held for another reason (drivers up to 375).
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: bool
            slowdown_sw_power_cap_us:
              description: Time so held, in microseconds.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            slowdown_sync_boost_us:
              description: Time so held, in microseconds.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            slowdown_sw_thermal_us:
              description: Time so held, in microseconds.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            slowdown_hw_thermal_us:
              description: Time so held, in microseconds.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            slowdown_hw_power_brake_us:
              description: Time so held, in microseconds.
              returned: when O(gather_subset) has V(clocks) and the GPU has this reading
              type: int
            supported_clocks:
              description: Clocks that can be set.
              returned: when O(gather_subset) has V(supported_clocks)
              type: list
              elements: dict
              contains:
                memory_mhz:
                  description: Memory clock in MHz.
                  returned: always
                  type: int
                graphics_mhz:
                  description: Graphics clocks that go with it, in MHz.
                  returned: always
                  type: list
                  elements: int
            temperature_gpu_c:
              description: Temperature of the GPU in degrees Celsius.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_memory_c:
              description: Temperature of the memory in degrees Celsius.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_gpu_tlimit_c:
              description: Degrees left until the GPU slows down.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_gpu_target_c:
              description: Temperature that the driver aims at.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_shutdown_c:
              description: Temperature at which the GPU shuts down.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_slowdown_c:
              description: Temperature at which the hardware slows down.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_gpu_max_operating_c:
              description: Temperature at which the driver slows down.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_memory_max_operating_c:
              description: Memory temperature at which the driver slows down.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_shutdown_tlimit_c:
              description: The same as degrees left until the limit (Ada, Hopper and later).
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_slowdown_tlimit_c:
              description: The same as degrees left until the limit (Ada, Hopper and later).
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_gpu_max_operating_tlimit_c:
              description: The same as degrees left until the limit (Ada, Hopper and later).
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_memory_max_operating_tlimit_c:
              description: The same as degrees left until the limit (Ada, Hopper and later).
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_target_min_c:
              description: Lowest target temperature.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            temperature_target_max_c:
              description: Highest target temperature.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: int
            fan_speed_percent:
              description: Fan speed that the driver asks for.
              returned: when O(gather_subset) has V(temperature) and the GPU has this reading
              type: float
            utilization_gpu_percent:
              description: Share of time in which a kernel ran.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: float
            utilization_memory_percent:
              description: Share of time in which memory was read or written.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: float
            utilization_encoder_percent:
              description: Use of the video encoder.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: float
            utilization_decoder_percent:
              description: Use of the video decoder.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: float
            utilization_jpeg_percent:
              description: Use of the JPEG decoder.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: float
            utilization_ofa_percent:
              description: Use of the optical flow unit.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: float
            pci_tx_kb_per_second:
              description: Data sent over PCIe.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: int
            pci_rx_kb_per_second:
              description: Data received over PCIe.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: int
            encoder_session_count:
              description: Encoding sessions.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: int
            encoder_average_fps:
              description: Their average frames per second.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: int
            encoder_average_latency_us:
              description: Their average latency in microseconds.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: int
            fbc_session_count:
              description: Frame buffer capture sessions.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: int
            fbc_average_fps:
              description: Their average frames per second.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: int
            fbc_average_latency_us:
              description: Their average latency in microseconds.
              returned: when O(gather_subset) has V(utilization) and the GPU has this reading
              type: int
            mig_devices:
              description: MIG devices.
              returned: when O(gather_subset) has V(mig)
              type: list
              elements: dict
              contains:
                index:
                  description: Place among the MIG devices of the GPU.
                  returned: always
                  type: int
                uuid:
                  description: UUID of the MIG device.
                  returned: always
                  type: str
                profile:
                  description: Profile, for instance V(1g.18gb) or V(1c.3g.71gb).
                  returned: always
                  type: str
                gpu_instance_id:
                  description: Id of the GPU instance.
                  returned: always
                  type: int
                compute_instance_id:
                  description: Id of the compute instance in it.
                  returned: always
                  type: int
                placement_start:
                  description: First memory slice of the GPU instance.
                  returned: always
                  type: int
                placement_size:
                  description: Number of memory slices of the GPU instance.
                  returned: always
                  type: int
                multiprocessor_count:
                  description: Multiprocessors.
                  returned: always
                  type: int
                copy_engine_count:
                  description: Copy engines.
                  returned: always
                  type: int
                encoder_count:
                  description: Video encoders.
                  returned: always
                  type: int
                decoder_count:
                  description: Video decoders.
                  returned: always
                  type: int
                ofa_count:
                  description: Optical flow units.
                  returned: always
                  type: int
                jpeg_count:
                  description: JPEG decoders.
                  returned: always
                  type: int
                ecc_volatile_sram_uncorrectable:
                  description: Uncorrectable errors in SRAM since the last reset.
                  returned: always
                  type: int
                memory_total_mib:
                  description: Memory in MiB.
                  returned: always
                  type: int
                memory_reserved_mib:
                  description: Reserved memory in MiB.
                  returned: always
                  type: int
                memory_used_mib:
                  description: Used memory in MiB.
                  returned: always
                  type: int
                memory_free_mib:
                  description: Free memory in MiB.
                  returned: always
                  type: int
                bar1_total_mib:
                  description: BAR1 window in MiB.
                  returned: always
                  type: int
                bar1_used_mib:
                  description: Mapped part in MiB.
                  returned: always
                  type: int
                bar1_free_mib:
                  description: Unmapped part in MiB.
                  returned: always
                  type: int
            gpu_instances:
              description:
                - GPU instances, also those without a compute instance, which are no MIG devices; null where they may
                  not be listed.
              returned: when O(gather_subset) has V(mig)
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
                profile_id:
                  description: Id of the profile on this chip.
                  returned: always
                  type: int
                placement_start:
                  description: First memory slice.
                  returned: always
                  type: int
                placement_size:
                  description: Number of memory slices.
                  returned: always
                  type: int
                compute_instances:
                  description: Compute instances in it.
                  returned: always
                  type: list
                  elements: dict
                  contains:
                    compute_instance_id:
                      description: Id.
                      returned: always
                      type: int
                    profile:
                      description: Profile.
                      returned: always
                      type: str
                    profile_id:
                      description: Id of the profile.
                      returned: always
                      type: int
                    placement_start:
                      description: First compute slice.
                      returned: always
                      type: int
                    placement_size:
                      description: Number of compute slices.
                      returned: always
                      type: int
            processes:
              description: Processes that use the GPU; null where nvidia-smi cannot list them.
              returned: when O(gather_subset) has V(processes)
              type: list
              elements: dict
              contains:
                pid:
                  description: Process id.
                  returned: always
                  type: int
                type:
                  description: V(C) computes, V(G) draws, V(C+G) does both, as nvidia-smi prints it.
                  returned: always
                  type: str
                name:
                  description: Name of the program, with arguments where nvidia-smi shows them.
                  returned: always
                  type: str
                memory_used_mib:
                  description: GPU memory in MiB.
                  returned: always
                  type: int
                gpu_instance_id:
                  description: GPU instance that it uses.
                  returned: always
                  type: int
                compute_instance_id:
                  description: Compute instance that it uses.
                  returned: always
                  type: int
            accounted_processes:
              description: Processes that accounting mode has recorded.
              returned: when O(gather_subset) has V(processes)
              type: list
              elements: dict
              contains:
                pid:
                  description: Process id.
                  returned: always
                  type: int
                utilization_gpu_percent:
                  description: Use of the GPU over its life.
                  returned: always
                  type: float
                utilization_memory_percent:
                  description: Use of the memory over its life.
                  returned: always
                  type: float
                memory_max_mib:
                  description: Most memory that it used, in MiB.
                  returned: always
                  type: int
                time_ms:
                  description: Time on the GPU in milliseconds.
                  returned: always
                  type: int
                running:
                  description: Whether it still runs.
                  returned: always
                  type: bool
            fabric_state:
              description: V(completed) when the GPU is in the NVLink fabric, V(not_started) or V(in_progress) before.
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: str
            fabric_status:
              description: How the registration ended.
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: str
            fabric_clique_id:
              description: Clique of GPUs that reach each other.
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: int
            fabric_cluster_uuid:
              description: Cluster of the fabric.
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: str
            fabric_health_summary:
              description: V(healthy), V(unhealthy) or V(limited_capacity).
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: str
            fabric_health_bandwidth:
              description: V(full) or V(degraded).
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: str
            fabric_health_route_recovery_in_progress:
              description: Whether routes are being recovered.
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: bool
            fabric_health_route_unhealthy:
              description: Whether a route is unhealthy.
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: bool
            fabric_health_access_timeout_recovery:
              description: Whether an access timeout is being recovered.
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: bool
            fabric_health_incorrect_configuration:
              description: Wrong configuration.
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: str
            fabric_health_partition_assigned:
              description: Whether a partition is assigned.
              returned: when O(gather_subset) has V(fabric) and the GPU has this reading
              type: bool
            nvlinks:
              description: NVLinks.
              returned: when O(gather_subset) has V(nvlink)
              type: list
              elements: dict
              contains:
                link:
                  description: Number of the link.
                  returned: always
                  type: int
                active:
                  description: Whether it is up, null where nvidia-smi does not report it.
                  returned: always
                  type: bool
                speed_gb_per_second:
                  description: Speed in GB/s, null while it is down.
                  returned: always
                  type: float
                remote_pci_bus_id:
                  description: PCI bus id of the GPU or NVSwitch at the other end, null where it cannot be seen.
                  returned: always
                  type: str
                remote_link:
                  description: Number of the link there.
                  returned: always
                  type: int
                error_counters:
                  description:
                    - Error counters of the link by name, for instance C(replay_errors), C(recovery_errors) and
                      C(crc_errors) on Hopper and older; newer GPUs have others.
                  returned: always
                  type: dict
            vgpus:
              description: vGPUs that virtual machines on this host use.
              returned: when O(gather_subset) has V(vgpu)
              type: list
              elements: dict
              contains:
                vgpu_id:
                  description: Id of the vGPU.
                  returned: always
                  type: int
                uuid:
                  description: UUID of the vGPU.
                  returned: always
                  type: str
                name:
                  description: Name of its type.
                  returned: always
                  type: str
                type_id:
                  description: Number of its type.
                  returned: always
                  type: int
                vm_uuid:
                  description: UUID of the virtual machine, or its id.
                  returned: always
                  type: str
                vm_name:
                  description: Name of the virtual machine.
                  returned: always
                  type: str
                mdev_uuid:
                  description: UUID of the mediated device.
                  returned: always
                  type: str
                guest_driver_version:
                  description: Driver in the virtual machine.
                  returned: always
                  type: str
                license_status:
                  description: Status of its licence.
                  returned: always
                  type: str
                gpu_instance_id:
                  description: GPU instance that it uses.
                  returned: always
                  type: int
                placement_id:
                  description: Place in the memory of the GPU.
                  returned: always
                  type: int
                ecc_mode:
                  description: ECC mode.
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
                memory_free_mib:
                  description: Free memory in MiB.
                  returned: always
                  type: int
                utilization_gpu_percent:
                  description: Use of the GPU.
                  returned: always
                  type: float
                utilization_memory_percent:
                  description: Use of the memory.
                  returned: always
                  type: float
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import TIMEOUT
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.cores import specified
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.facts import (
    SUBSETS,
    FactsRequest,
    chosen_subsets,
    gather,
)

ARGUMENT_SPEC = {
    "gather_subset": {
        "type": "list",
        "elements": "str",
        "default": ["!clocks", "!supported_clocks", "!nvlink", "!topology"],
        "choices": ["all", *SUBSETS, "!all", *("!" + name for name in SUBSETS if name != "min")],
    },
    "gpus": {"type": "list", "elements": "str", "default": ["all"]},
    "explain": {"type": "bool", "default": False},
    "executable": {"type": "str", "default": "nvidia-smi"},
    "timeout": {"type": TIMEOUT, "default": 60.0},
}


def main() -> None:
    """Gather and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    facts = gather(
        FactsRequest(
            executable=module.params["executable"],
            subsets=chosen_subsets(module.params["gather_subset"]),
            gpus=tuple(module.params["gpus"]),
            timeout=module.params["timeout"],
            explain=module.params["explain"],
        ),
        specified,
    )
    module.exit_json(ansible_facts={"nvidia_smi": facts})


if __name__ == "__main__":
    main()
