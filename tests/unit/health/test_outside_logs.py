# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts on logs that others have published, on logs that a user has tampered with, and on logs of any length.

Lines with an address are quoted from there, with the PCI address of a GPU of the recorded host. Others are composed.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change import locked_clocks
from ansible_collections.gpu.fleet.plugins.module_utils._change.reset import Resetter
from ansible_collections.gpu.fleet.plugins.module_utils._common import resets
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult, stream
from ansible_collections.gpu.fleet.plugins.module_utils._health import history as histories
from ansible_collections.gpu.fleet.plugins.module_utils._health import kernel_log_sources
from ansible_collections.gpu.fleet.plugins.module_utils._health.evaluate import Observed, Report, evaluate
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log import parse
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log_sources import KernelLog, read_kernel_log
from ansible_collections.gpu.fleet.plugins.module_utils._health.run import refuse_vulnerabilities
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE
from ansible_collections.gpu.fleet.plugins.module_utils._health.vulnerabilities import of_driver
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.vulnerabilities import BULLETINS, DRIVER
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.topology import NvLink

from tests.conftest import ROOT
from tests.unit.health.test_real_hosts import EIGHT, LINKS, facts_of

NOW = 1_700_000_000.0
BOOT_TIME = NOW - 36_000


def host(**changes: Any) -> dict[str, Any]:
    """The recorded host with eight H200; `changes` are of its first GPU."""
    facts = facts_of(EIGHT.gpus, EIGHT.driver_version, LINKS)
    for gpu in facts["gpus"]:
        gpu["recovery_action"] = "none"
    facts["gpus"][0].update(changes)
    facts["pci_gpus"] = [{"pci_bus_id": gpu["pci_bus_id"]} for gpu in facts["gpus"]]
    return facts


FIRST = host()["gpus"][0]
GPU = str(FIRST["pci_bus_id"])[4:-2]
UUID = str(FIRST["uuid"])
PORT = "0000:97:02.0"
PORTS = {"00000000:97:02.0": (str(FIRST["pci_bus_id"]),)}
RESET_REQUIRED = "Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ a.c:2874"
XID = f"NVRM: Xid (PCI:{GPU}): 79, pid=0, GPU has fallen off the bus."


def judged(lines: list[str], facts: Mapping[str, Any] | None = None, **others: Any) -> Report:
    log = KernelLog("journal", parse(lines, BOOT_TIME))
    return evaluate(TABLE, Observed(facts or host(), log=log, now=NOW, ports=PORTS, **others))


# Lines of a log, with the verdict, the remedy and the row that they lead to, and where they were published.
PUBLISHED: list[tuple[str, list[str], str, str, str]] = [
    (
        "https://github.com/NVIDIA/cuda-samples/issues/48",
        [f"Sep 21 09:59:59 runtime kernel: nvidia {GPU}.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003]"],
        "warn",
        "none",
        "iommu_fault",
    ),
    (
        "https://github.com/ggml-org/llama.cpp/issues/21908",
        [
            "[ 7460.483909] amd_iommu_report_page_fault: 6 callbacks suppressed",
            f"[ 7460.483919] nvidia {GPU}.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x001c flags=0x0020]",
        ],
        "warn",
        "none",
        "iommu_fault",
    ),
    (
        "https://github.com/pcengines/apu2-documentation/issues/240",
        [
            "kernel: [  221.562629] AMD-Vi: Event logged [",
            f"kernel: [  221.565929] IO_PAGE_FAULT device={GPU[5:]}.0 domain=0x0012 address=0x0000 flags=0x0070]",
        ],
        "warn",
        "none",
        "iommu_fault",
    ),
    (
        "https://docs.kernel.org/arch/x86/iommu.html",
        [
            f"DMAR:[DMA Write] Request device [{GPU[5:]}.0] fault addr 6df084000",
            "DMAR:[fault reason 05] PTE Write access is not set",
        ],
        "warn",
        "none",
        "iommu_fault",
    ),
    (
        "https://lore.kernel.org/netdev, be2net: implement a shutdown handler",
        [f"DMAR: DMAR:[DMA read] Request device [{GPU[5:]}.0]fault addr fffff000"],
        "warn",
        "none",
        "iommu_fault",
    ),
    (
        "https://lore.kernel.org/linux-pci, arm-smmu-v3 490d0000.iommu",
        [
            "arm-smmu-v3 490d0000.iommu: event 0x10 received:",
            "arm-smmu-v3 490d0000.iommu:      0x0000001100000010",
            f"arm-smmu-v3 490d0000.iommu: event: F_TRANSLATION client: {GPU}.0 sid: 0x11 ssid: 0x0 iova: 0x9b0cc000",
        ],
        "warn",
        "none",
        "iommu_fault",
    ),
    (
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/230",
        [
            "[    3.513141] NVRM: Open nvidia.ko is only ready for use on Data Center GPUs.",
            "[    3.513144] NVRM: To force use of Open nvidia.ko on other GPUs, see the",
            f"[    3.824916] NVRM: GPU {GPU}.0: RmInitAdapter failed! (0x63:0x0:1905)",
            f"[    3.827920] NVRM: GPU {GPU}.0: rm_init_adapter failed, device minor number 0",
        ],
        "fail",
        "configure",
        "driver_not_ready",
    ),
    (
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/393",
        [
            f"[  +0.000421] nvidia: probe of {GPU}.0 failed with error -1",
            "[  +0.000012] NVRM: The NVIDIA probe routine failed for 1 device(s).",
            "[  +0.000001] NVRM: None of the NVIDIA devices were initialized.",
            f"[  +0.000005] NVRM: The NVIDIA GPU {GPU}.0 (PCI ID: 10de:25a0)",
            "              NVRM: installed in this system is not supported by the",
            "              NVRM: NVIDIA 520.56.06 driver release.",
            "              NVRM: Please see 'Appendix A - Supported NVIDIA GPU Products'",
        ],
        "fail",
        "update_software",
        "driver_unsupported",
    ),
    (
        "https://github.com/negativo17/nvidia-driver/issues/158",
        [
            f"kernel: NVRM: The NVIDIA GPU {GPU}.0 (PCI ID: 10de:1d01)",
            "             NVRM: installed in this system is not supported by open",
            "             NVRM: nvidia.ko because it does not include the required GPU",
            "             NVRM: System Processor (GSP).",
            "kernel: NVRM: The NVIDIA probe routine failed for 1 device(s).",
            "kernel: NVRM: None of the NVIDIA devices were initialized.",
        ],
        "fail",
        "update_software",
        "driver_unsupported",
    ),
    (
        "https://github.com/MrMEEE/bumblebee-Old-and-abbandoned/issues/583",
        [
            f"[  652.483304] NVRM: The NVIDIA GPU {GPU}.0 (PCI ID: 10de:1050) installed",
            "[  652.483305] NVRM: in this system is not supported by the 280.13 NVIDIA Linux",
            "[  652.483306] NVRM: graphics driver release.  Please see 'Appendix A -",
            "[  652.483347] NVRM: The NVIDIA probe routine failed for 1 device(s).",
        ],
        "fail",
        "update_software",
        "driver_unsupported",
    ),
    (
        "https://github.com/NixOS/nixos-hardware/issues/1828",
        [
            "Apr 13 16:41:14 nixos kernel: NVRM: The NVIDIA NVIDIA GeForce GTX 1050 GPU installed in this system is",
            "                              NVRM:  supported through the NVIDIA 580.xx Legacy drivers. Please",
            "                              NVRM:  visit http://www.nvidia.com/object/unix.html for more",
            "                              NVRM:  information.  The 595.58.03 NVIDIA driver will ignore",
            "                              NVRM:  this GPU.  Continuing probe...",
            "Apr 13 16:41:14 nixos kernel: NVRM: No NVIDIA GPU found.",
        ],
        "fail",
        "update_software",
        "driver_unsupported",
    ),
    (
        "https://github.com/leptonai/gpud/pull/46, https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1045",
        [
            "[Mon Jan  1 12:00:00 2024] NVRM: rpcRmApiAlloc_GSP: GspRmAlloc failed: status=0x00000062",
            "[Mon Jan  1 12:00:01 2024] NVRM: nvAssertOkFailedNoLog: " + RESET_REQUIRED,
        ],
        "fail",
        "reset_gpu",
        "driver_reset_required",
    ),
    (
        "https://github.com/NVIDIA/open-gpu-kernel-modules, kernel_gsp_tu102.c; a log of Fedora, driver 580",
        [
            f"Aug 19 21:36:23 fedora kernel: NVRM: kgspHealthCheck_TU102: {'*' * 30} GSP-CrashCat Report {'*' * 31}",
            "Aug 19 21:36:23 fedora kernel: NVRM: kgspPrintGspBinBuildId_IMPL: GSP bin buildId: 4f09703c5c7d57baa527",
        ],
        "warn",
        "drain_and_reset",
        "gsp_crashed",
    ),
    (
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1229",
        [
            f"nvidia {GPU}.0: AER: can't recover (no error_detected callback)",
            f"pcieport {PORT}: AER: device recovery failed",
        ],
        "warn",
        "inspect",
        "pcie_unrecovered",
    ),
    (
        "https://lore.kernel.org/linux-pci, pciehp: Skip DLLSC handling if DPC is triggered",
        [f"pcieport {PORT}: pciehp: Slot(4): Link Down"],
        "fail",
        "inspect",
        "pcie_link_down",
    ),
    (
        "https://lore.kernel.org/linux-pci, pciehp: Skip DLLSC handling if DPC is triggered",
        [
            f"pcieport {PORT}: DPC: containment event, status:0x1f01 source:0x0000",
            f"pcieport {PORT}: DPC: unmasked uncorrectable error detected",
        ],
        "fail",
        "inspect",
        "pcie_link_down",
    ),
    (
        "https://lore.kernel.org/linux-pci, PCI/AER: Report fatal errors of RCiEP and EP",
        [f"pcieport 0015:00:00.0: DPC: containment event, status:0x200d, ERR_FATAL received from {GPU}.0"],
        "fail",
        "inspect",
        "pcie_link_down",
    ),
    (
        "https://github.com/lnls-dig/bpm-gw/issues/73",
        [f"[Ter Set 19 06:01:41 2017] pciehp {PORT}:pcie24: slot(6): Link Down event"],
        "fail",
        "inspect",
        "pcie_link_down",
    ),
    (
        "https://github.com/ovro-lwa/lwa-issues/issues/117, the firmware's own report",
        [
            "[11219.196524] {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1",
            "[11219.196558] {1}[Hardware Error]: event severity: recoverable",
            "[11219.196576] {1}[Hardware Error]:  Error 0, type: recoverable",
            "[11219.196591] {1}[Hardware Error]:   section_type: PCIe error",
            "[11219.196606] {1}[Hardware Error]:   port_type: 0, PCIe end point",
            f"[11219.196653] {{1}}[Hardware Error]:   device_id: {GPU}.0",
            "[11219.196684] {1}[Hardware Error]:   vendor_id: 0x144d, device_id: 0xa808",
        ],
        "warn",
        "none",
        "pcie_nonfatal",
    ),
    (
        "https://lore.kernel.org/stable, tg3: Disable tg3 device on system reboot; the type of the error is fatal",
        [
            "[ 148.803731] {1}[Hardware Error]: event severity: recoverable",
            "[ 148.810191] {1}[Hardware Error]: Error 0, type: fatal",
            "[ 148.816088] {1}[Hardware Error]: section_type: PCIe error",
            f"[ 148.841140] {{1}}[Hardware Error]: device_id: {GPU}.0",
            f"[ 148.894823] nvidia {GPU}.0: AER: aer_status: 0x00100000, aer_mask: 0x00010000",
        ],
        "fail",
        "inspect",
        "pcie_fatal",
    ),
    (
        "https://lore.kernel.org/linux-kernel, 27 June 2020; corrected by the hardware",
        [
            "Jun 27 20:05:29 server kernel: {10}[Hardware Error]: event severity: corrected",
            "Jun 27 20:05:29 server kernel: {10}[Hardware Error]:  Error 0, type: corrected",
            "Jun 27 20:05:29 server kernel: {10}[Hardware Error]:   section_type: PCIe error",
            f"Jun 27 20:05:29 server kernel: {{10}}[Hardware Error]:   device_id: {PORT}",
        ],
        "info",
        "none",
        "pcie_other",
    ),
]


@pytest.mark.parametrize(
    ("lines", "verdict", "remedy", "row"),
    [case[1:] for case in PUBLISHED],
    ids=[f"{number}-{case[4]}" for number, case in enumerate(PUBLISHED)],
)
def test_a_published_log(lines: list[str], verdict: str, remedy: str, row: str) -> None:
    # A GPU that the driver refuses is not in nvidia-smi.
    facts = host()
    if row in ("driver_not_ready", "driver_unsupported"):
        lost = facts["gpus"].pop(0)
        facts["unhealthy"] = [{"gpu": lost["pci_bus_id"], "code": "gpu_missing", "message": "GPU: it is missing"}]
    report = judged(lines, facts)
    assert row in {finding.row for finding in report.findings}
    assert (report.verdict(), report.remedy()) == (verdict, remedy)


GRACE = "0009:01:00.0"


@pytest.mark.parametrize(
    ("lines", "row", "verdict"),
    [
        # As arm_smmu_dump_event() of Linux 6.14 prints it: https://github.com/torvalds/linux, arm-smmu-v3.c.
        (
            [
                f"arm-smmu-v3 arm-smmu-v3.9.auto: event: F_TRANSLATION client: {GRACE} sid: 0x10000 ssid: 0x1 iova: 0",
                'arm-smmu-v3 arm-smmu-v3.9.auto: unpriv data write s1 "Input address caused fault" stag: 0x0',
            ],
            "iommu_fault",
            "warn",
        ),
        ([f"arm-smmu-v3 arm-smmu-v3.9.auto: event: C_BAD_STE client: {GRACE} sid: 0x10000"], "iommu_fault", "warn"),
        # Of no device, of another one, and as older kernels print it, without a name.
        (["arm-smmu-v3 arm-smmu-v3.9.auto: event: F_TRANSLATION client: (unassigned sid) sid: 0x10000"], "", "ok"),
        (["arm-smmu-v3 arm-smmu-v3.9.auto: event: F_TRANSLATION client: 0008:01:00.0 sid: 0x10000"], "", "ok"),
        (
            [
                "arm-smmu-v3 arm-smmu-v3.9.auto: event 0x10 received:",
                "arm-smmu-v3 arm-smmu-v3.9.auto: \t0x0001000000000010",
            ],
            "",
            "ok",
        ),
        # The firmware's report of the PCIe root port, and NVIDIA's own section, which is about the CPU:
        # https://github.com/torvalds/linux, drivers/firmware/efi/cper.c.
        (
            [
                "{3}[Hardware Error]: event severity: fatal",
                "{3}[Hardware Error]:  Error 0, type: fatal",
                "{3}[Hardware Error]:   section_type: PCIe error",
                f"{{3}}[Hardware Error]:   device_id: {GRACE}",
            ],
            "pcie_fatal",
            "fail",
        ),
        (
            [
                "{1}[Hardware Error]: event severity: recoverable",
                "{1}[Hardware Error]:  Error 0, type: recoverable",
                "{1}[Hardware Error]:   section type: unknown, 6d5244f2-2712-11ec-bea7-cb3fdb95c786",
                "{1}[Hardware Error]:   section length: 0x238",
            ],
            "",
            "ok",
        ),
    ],
)
def test_a_host_with_grace(lines: list[str], row: str, verdict: str) -> None:
    facts = host(name="NVIDIA GB200", pci_bus_id=f"0000{GRACE}", nvlinks=links(18))
    report = judged([f"[  512.7{number}] {line}" for number, line in enumerate(lines)], facts)
    assert report.verdict() == verdict
    assert {(finding.row, finding.gpu) for finding in report.findings} == ({(row, UUID)} if row else set())


HARMLESS = [
    # At each boot of a healthy host.
    f"[    1.1] pcieport {PORT}: AER: enabled with IRQ 34",
    f"[    1.1] pcieport {PORT}: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+",
    f"[    1.1] pcieport {PORT}: pciehp: Slot #4 AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ Surprise+ Interlock-",
    f"[    1.1] pcieport {PORT}: pciehp: Slot(4): Card present",
    f"[    1.1] pcieport {PORT}: pciehp: Slot(21): Link Down/Up ignored",
    f"[    1.1] pcieport {PORT}: AER: device recovery successful",
    "[    1.1] DMAR: DRHD base: 0x000000fed90000 flags: 0x0",
    "[    1.1] AMD-Vi: Extended features (0x800290ad2, 0x0): PPR GT IA GA PC GA_vAPIC",
    "[    1.1] arm-smmu-v3 arm-smmu-v3.5.auto: option mask 0x0",
    "[    1.1] pcieport 0000:01:02.0: pciehp: Slot(4): Link Down",
]


def test_what_healthy_hosts_log_is_no_finding() -> None:
    assert judged(HARMLESS).findings == ()


def test_no_devices_though_they_are_on_the_bus() -> None:
    """https://github.com/NVIDIA/open-gpu-kernel-modules/issues/789"""
    facts = {**host(), "gpus": [], "available": False, "reason": "no_gpu", "message": "No devices were found"}
    lines = [
        "[  903.609564] NVRM: RmInitAdapter: Cannot initialize GSP firmware RM",
        f"[  903.610907] NVRM: GPU {GPU}.0: RmInitAdapter failed! (0x62:0x65:1792)",
        f"[  903.611884] NVRM: GPU {GPU}.0: rm_init_adapter failed, device minor number 0",
    ]
    report = judged(lines, facts)
    assert (report.verdict(), report.remedy()) == ("fail", "reboot")
    assert {finding.row for finding in report.findings} == {"gpus_unusable", "init_failed"}


# NVLinks


def links(active: int, listed: int = 18) -> list[dict[str, Any]]:
    return [{**asdict(NvLink(link=number, active=number < active)), "error_counters": {}} for number in range(listed)]


def board(name: str, *active: int) -> dict[str, Any]:
    """A host whose GPUs have another name and so many active links."""
    facts = host()
    facts["gpus"] = facts["gpus"][: len(active)]
    for gpu, count in zip(facts["gpus"], active, strict=True):
        gpu.update(name=name, nvlinks=links(count))
    return facts


# H800 with NV8: https://github.com/liguodongiot/llm-action, docs/llm-base/nvidia-smi.md; A800, with 8 of the 12 links:
# https://github.com/guevara/read-it-later/issues/11550; GB200: https://github.com/NVIDIA/k8s-test-infra/issues/371.
@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("NVIDIA H800", 8),
        ("NVIDIA A800-SXM4-80GB", 8),
        ("NVIDIA H20", 18),
        ("NVIDIA H20", 16),
        ("NVIDIA B200", 18),
        ("NVIDIA B200", 14),
        ("NVIDIA GB200", 18),
    ],
)
def test_the_board_reports_how_many_nvlinks_it_has(name: str, active: int) -> None:
    assert judged([], board(name, *[active] * 4)).verdict() == "ok"
    assert judged([], board(name, active, active, active - 1, active)).verdict() == "fail"


# Cards with bridges to some of the others, by links. Of the H100 NVL 12 of the 18 that nvidia-smi prints are up by
# design: https://github.com/Azure/azurehpc-health-checks/issues/162; an A100 without a bridge has none:
# https://github.com/NVIDIA/NVSentinel/pull/1481. A bridge joins two cards, from which the other numbers follow:
# https://www.nvidia.com/de-de/data-center/nvlink/.
CARDS = [
    ("NVIDIA A100 80GB PCIe", (12, 12, 0)),
    ("NVIDIA A100 80GB PCIe", (12, 12, 12, 12, 12, 12, 0, 0)),
    ("NVIDIA A100-PCIE-40GB", (12, 12, 8, 8, 4, 4)),
    ("NVIDIA H100 NVL", (12, 12, 0, 0)),
    ("NVIDIA H200 NVL", (18, 18, 18, 18, 0)),
    ("NVIDIA H100 PCIe", (12, 12, 0)),
    ("NVIDIA A30", (4, 4, 0)),
    ("NVIDIA RTX A6000", (4, 4, 0)),
    ("NVIDIA A800 40GB Active", (8, 8, 0)),
    ("NVIDIA H800 PCIe", (8, 8, 0)),
    ("Quadro GV100", (4, 4, 0)),
]


@pytest.mark.parametrize(("name", "active"), CARDS)
def test_a_card_has_the_bridges_that_it_had(name: str, active: tuple[int, ...]) -> None:
    before = board(name, *active)
    assert judged([], before).findings == ()
    known = histories.updated(histories.History(), histories.Check(NOW, before))
    assert judged([], before, history=known).findings == ()
    lost = board(name, 0, *active[1:])
    for check in range(2):
        report = judged([], lost, history=known)
        (finding,) = report.findings
        assert (finding.row, finding.verdict, finding.gpu) == ("nvlink_bridge", "warn", UUID), check
        known = histories.parse(histories.render(histories.updated(known, histories.Check(NOW + 60, lost))))
    assert judged([], before, history=known).findings == ()
    # In another slot it has other neighbors.
    lost["gpus"][0]["pci_bus_id"] = "00000000:ff:00.0"
    assert judged([], lost, history=known).findings == ()


def test_cards_on_a_host_with_a_board() -> None:
    facts = board("NVIDIA A100-SXM4-80GB", 12, 12)
    cards = board("NVIDIA A100 80GB PCIe", *[4] * 2, 0)["gpus"]
    for number, gpu in enumerate(cards):
        facts["gpus"].append({**gpu, "uuid": f"GPU-card-{number}", "pci_bus_id": f"00000000:{number:02x}:00.0"})
    assert judged([], facts).findings == ()
    facts["gpus"][1]["nvlinks"] = links(11)
    assert {finding.row for finding in judged([], facts).findings} == {"nvlink_inactive"}


def test_a_slow_link_of_a_card_is_one_that_was_faster() -> None:
    known = histories.History()
    for check, (speed, rows) in enumerate(((26.562, set()), (25.781, set()), (13.281, {"nvlink_slow"}))):
        facts = board("NVIDIA H100 NVL", 12)
        for each in facts["gpus"][0]["nvlinks"]:
            each["speed_gb_per_second"] = speed
        assert {finding.row for finding in judged([], facts, history=known).findings} == rows
        known = histories.updated(known, histories.Check(NOW + check, facts))


# https://docs.nvidia.com/health-validation/reference/checks/nvlink: 18 links, each with 53125 MB/s, of the H100 26562.
@pytest.mark.parametrize("name", ["NVIDIA GB200", "NVIDIA GB300", "NVIDIA H100 80GB HBM3"])
def test_a_link_that_all_gpus_of_a_known_board_lack(name: str) -> None:
    assert {finding.row for finding in judged([], board(name, 17, 17)).findings} == {"nvlink_inactive"}


@pytest.mark.parametrize(
    ("name", "speeds", "slow"),
    [
        ("NVIDIA GB300", (53.125, 53.125), []),
        ("NVIDIA GB300", (25.781, 25.781), [0, 1]),
        ("NVIDIA H100 80GB HBM3", (26.562, 25.0), [1]),
        ("NVIDIA A100-SXM4-80GB", (25.0, 12.5), [1]),
        # Of others, what most links have is usual, and of two neither is slow.
        ("NVIDIA B200", (50.0, 50.0, 25.0), [2]),
        ("NVIDIA H100 NVL", (26.562, 25.781), []),
        ("NVIDIA RTX A6000", (14.062, 14.062), []),
        ("NVIDIA B200", (50.0, 50.0, None), []),
    ],
)
def test_a_slow_link(name: str, speeds: tuple[float | None, ...], slow: list[int]) -> None:
    facts = board(name, *[18] * len(speeds))
    for gpu, speed in zip(facts["gpus"], speeds, strict=True):
        gpu["nvlinks"] = [{**link, "speed_gb_per_second": speed} for link in gpu["nvlinks"]]
    report = judged([], facts)
    assert {finding.row for finding in report.findings} == ({"nvlink_slow"} if slow else set())
    assert {finding.gpu for finding in report.findings} == {facts["gpus"][number]["uuid"] for number in slow}
    with_mig = [{**gpu, "mig_mode_current": "enabled"} for gpu in facts["gpus"]]
    assert judged([], {**facts, "gpus": with_mig}).verdict() == "ok"


def test_a_link_that_all_gpus_have_lost_since_the_last_check() -> None:
    before = board("NVIDIA H800", 8, 8)
    known = histories.updated(histories.History(), histories.Check(NOW, before))
    after = board("NVIDIA H800", 7, 7)
    for check in range(2):
        report = judged([], after, history=known)
        assert {finding.row for finding in report.findings} == {"nvlink_inactive"}, check
        # The history keeps what the board has had.
        known = histories.updated(known, histories.Check(NOW + 60, after))
        known = histories.parse(histories.render(known))


# Tampered logs

NAMES_IN_MESSAGES = [
    f"oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/user.slice/{XID},task=a,pid=1,uid=1000",
    f"usb 1-1: Product: {XID}",
    f"usb 1-1: Product: x\u2028{XID}",
    f"usb 1-1: Product: x\x0b{XID}",
    f"usb 1-1: Product: x\x85{XID}",
    f"usb 1-1: Product: x\r{XID}",
    f"audit: type=1400 comm={XID!r}",
    f"{XID[:15]}[123]: segfault at 0 ip 0 sp 0 error 4",
    "NVRM: Xid (): 7[123]: segfault at 0 ip 0 sp 0 error 4",
    f"usb 1-1: Product: nvidia {GPU}.0: AER: Uncorrected (Fatal) error received",
    f"usb 1-1: Product: pcieport {PORT}: pciehp: Slot(4): Link Down",
    "usb 1-1: Product: NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED]",
    f"usb 1-1: Product: nvidia-nvswitch3: SXid (PCI:{GPU}.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    f"evil: DMAR: [DMA Read] Request device [{GPU[5:]}.0] fault addr 0x7cd80000",
    f"usb 1-1: Product: [Hardware Error]: device_id: {GPU}.0",
]
FRAMES = ["[   12.345678] {}", "1700000001.000000 host1 kernel: {}", "May 10 22:25:01 host1 kernel: [   12.345678] {}"]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("text", NAMES_IN_MESSAGES)
def test_what_a_user_chooses_is_no_message_of_the_driver(text: str, frame: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(frame.format(text) + "\n", encoding="utf-8", newline="")
    log = read_kernel_log("/log", 5.0, HostFiles(str(tmp_path)))
    assert evaluate(TABLE, Observed(host(), log=log, now=NOW, ports=PORTS)).findings == ()


@pytest.mark.parametrize(
    "line",
    [
        # A line break in a name: dmesg and the journal indent what follows, syslog escapes it.
        f"                     {XID}",
        f"May 10 22:25:01 host1 kernel: usb 1-1: Product: x#012{XID}",
        # A program of a user in the same file.
        f"May 10 22:25:01 host1 logger: {XID}",
        f"May 10 22:25:01 host1 app[12]: kernel: {XID}",
        "May 10 22:25:01 host1 " + XID,
    ],
)
def test_other_lines_are_none_of_the_kernel(line: str) -> None:
    assert parse([line]) == ()


def test_the_same_message_from_the_driver_counts() -> None:
    for frame in FRAMES:
        assert judged([frame.format(XID)]).verdict() == "fail"


def test_a_name_of_a_process_decides_nothing() -> None:
    nonfatal = f"NVRM: Xid (PCI:{GPU}): 149, pid=1, name=a, Fatal XC0, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01"
    assert judged([nonfatal]).verdict() == "info"
    action = (
        f"NVRM: Xid (PCI:{GPU}): 154, pid=1, name=to 0x2 (x), GPU recovery action changed from 0x0 (None) to 0x0 (None)"
    )
    assert [event.action for event in parse([action])] == [(0, "None")]


def test_a_code_with_thousands_of_digits_is_no_xid() -> None:
    assert parse([f"NVRM: Xid (PCI:{GPU}): {'9' * 6000}, x"]) == ()


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: The NVIDIA GPU " + "NVRM: " * 10_000,
        f"NVRM: Xid (PCI:{GPU}): 154, " + "to 0x1 (" * 8000,
        f"NVRM: Xid (PCI:{GPU}): 74, " + "(0x0, " * 10_000,
        "NVRM: " + "nvAssert" * 8000,
        "NVRM: knvlink" + "x" * 60_000,
        "DMAR: [" + "Request device [" * 4000,
        "a " * 30_000 + "kernel: NVRM: Xid",
        "[" * 60_000,
        "[ " * 30_000,
        f"pcieport {PORT}: AER: " + "received: " * 6000,
    ],
)
def test_only_the_beginning_of_a_long_line_is_read(line: str) -> None:
    """The test hangs where a pattern tries all ways to divide the line."""
    assert judged([line, f"NVRM: Xid (PCI:{GPU}): 79, x"]).verdict() == "fail"


@pytest.mark.parametrize("stamp", ["[99999999999999999.000001]", "99999999999999999999.000001 host1 kernel:", "[0.0]"])
def test_an_xid_of_a_mig_instance_with_any_time(stamp: str) -> None:
    (event,) = parse([f"{stamp} NVRM: Xid (PCI:{GPU} GPU-I:05 GPU-CI:12): 94, pid=1, name=a, Contained: SM"], NOW)
    assert (event.code, event.gpu_instance, event.compute_instance) == (94, 5, 12)
    assert event.time in (None, NOW)
    assert judged([f"{stamp} {XID}"]).verdict() == "fail"


# Earlier boots, other GPUs, resets

KERNEL = "[    0.000000] Linux version 6.8.0-54-generic (buildd@lcy02) #56-Ubuntu SMP"


def test_the_log_of_an_earlier_boot_in_the_same_file() -> None:
    assert judged([f"[ 5000.1] {XID}", KERNEL, "[    1.0] usb 1-1: new"]).findings == ()
    assert judged([KERNEL, f"[ 5000.1] {XID}"]).verdict() == "fail"
    assert judged([f"[ 5000.1] usb 1-1: Product: {KERNEL[15:]}", f"[ 5000.1] {XID}"]).verdict() == "fail"


def test_the_errors_of_a_gpu_that_was_replaced_are_not_of_the_one_in_its_place() -> None:
    named = "NVRM: GPU at PCI:{}: GPU-00000000-0000-0000-0000-000000000001"
    report = judged([named.format(GPU), XID])
    assert (report.verdict(), report.verdict(UUID)) == ("info", "ok")
    (count,) = report.xids
    assert (count.gpu, count.is_over) == ("GPU-00000000-0000-0000-0000-000000000001", True)
    same = judged([f"NVRM: GPU at PCI:{GPU}: {UUID}", XID])
    assert same.verdict(UUID) == "fail"


# No line of these is followed by an Xid 154.
NEED_A_RESET = [48, 74, 119, 149]


@pytest.mark.parametrize("code", NEED_A_RESET)
def test_a_reset_by_this_collection_ends_the_finding(code: int) -> None:
    line = f"[ 100.0] NVRM: Xid (PCI:{GPU}): {code}, Fatal x"
    assert judged([line]).verdict() == "fail"
    assert judged([line], resets={UUID: BOOT_TIME + 50}).verdict() == "fail"
    report = judged([line], resets={UUID: BOOT_TIME + 150})
    assert (report.verdict(), report.remedy()) == ("info", "none")
    # The driver still asks for it.
    assert judged([line], host(recovery_action="reset"), resets={UUID: BOOT_TIME + 150}).verdict() == "fail"


@pytest.mark.parametrize("code", NEED_A_RESET)
def test_counters_that_begin_again_show_a_reset(code: int) -> None:
    line = f"[ 100.0] NVRM: Xid (PCI:{GPU}): {code}, Fatal x"
    busy = host(slowdown_sw_power_cap_us=5_000_000)
    known = histories.updated(histories.History(), histories.Check(BOOT_TIME + 200, busy))
    assert judged([line], busy, history=known).verdict() == "fail"
    after = host(slowdown_sw_power_cap_us=10)
    assert judged([line], after, history=known).verdict() == "info"
    # The next check still knows it; a later error counts.
    known = histories.parse(histories.render(histories.updated(known, histories.Check(BOOT_TIME + 900, after))))
    later = host(slowdown_sw_power_cap_us=9_000_000)
    assert judged([line], later, history=known).verdict() == "info"
    assert judged([line, f"[ 800.0] NVRM: Xid (PCI:{GPU}): {code}, Fatal x"], later, history=known).verdict() == "fail"


def test_the_driver_names_a_gpu_again_after_it_has_initialized_it() -> None:
    """krcReportXid of open-gpu-kernel-modules prints the UUID once for each time that the GPU is initialized."""
    named = f"NVRM: GPU at PCI:{GPU}: {UUID}"
    lines = [named, f"NVRM: Xid (PCI:{GPU}): 119, x", named, f"NVRM: Xid (PCI:{GPU}): 31, x"]
    assert judged(lines).verdict() == "info"
    assert judged(lines, host(recovery_action="reset")).verdict() == "fail"
    assert judged([*lines, f"NVRM: Xid (PCI:{GPU}): 119, x"]).verdict() == "fail"


def test_an_assertion_that_required_a_reset_is_over_after_it() -> None:
    line = "[ 100.0] NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062)"
    assert judged([line]).remedy() == "reset_gpu"
    assert judged([line], resets={UUID: BOOT_TIME + 150}).verdict() == "info"


def test_the_record_of_resets_is_of_this_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resets, "FILE", str(tmp_path / "resets.json"))
    assert resets.known([UUID], time.time()) == {}
    resets.record([UUID])
    assert resets.known([UUID, "GPU-other"], time.time()).keys() == {UUID}
    # The clock was set back.
    assert resets.known([UUID], NOW) == {}


def test_a_reset_that_nvidia_smi_reports_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resets, "FILE", str(tmp_path / "resets.json"))
    monkeypatch.setattr(locked_clocks, "CACHE_FILE", str(tmp_path / "clocks.json"))
    for status, recorded in ((1, set()), (0, {UUID})):
        smi: Any = SimpleNamespace(change=lambda *_arguments, rc=status: replace(MISSING, rc=rc, start_error=None))
        Resetter(smi, lambda _gpu: (), lambda: (), lambda _gpu: None).reset(EIGHT.gpus[:1])
        assert resets.known([UUID], time.time()).keys() == recorded


def test_a_port_whose_gpu_is_gone() -> None:
    """Below a port whose link is down there is no device any more."""
    known = histories.updated(
        histories.History(), histories.Check(NOW, host(), above={str(FIRST["pci_bus_id"]): ("00000000:97:02.0",)})
    )
    lines = [f"pcieport {PORT}: pciehp: Slot(4): Link Down"]
    log = KernelLog("journal", parse(lines))
    for history, verdict in ((histories.History(), "ok"), (known, "fail")):
        assert evaluate(TABLE, Observed(host(), log=log, now=NOW, history=history)).verdict() == verdict


# Logs of any length


def test_a_storm_of_equal_messages_is_one_event(tmp_path: Path) -> None:
    lines = [f"[{second}.0] NVRM: Xid (PCI:{GPU}): 45, pid={second}, name=a, Ch {second:08x}" for second in range(3000)]
    lines += [
        f"[{second}.0] NVRM: Xid (PCI:{GPU}): 31, pid={second}, name=a, Ch {second:08x}" for second in range(3000)
    ]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    log = read_kernel_log("/log", 5.0, HostFiles(str(tmp_path)))
    assert len(log.events) == 2
    for events in (log.events, parse(lines)):
        report = evaluate(TABLE, Observed(host(), log=KernelLog("journal", events), now=NOW))
        assert {count.code: count.count for count in report.xids} == {45: 3000, 31: 3000}
        assert len(report.records[UUID]) <= 400 or events is not log.events


def test_what_ends_an_event_stays_between_joined_events() -> None:
    asked = f"NVRM: Xid (PCI:{GPU}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    ended = f"NVRM: Xid (PCI:{GPU}): 154, GPU recovery action changed from 0x1 (x) to 0x0 (None)"
    fatal = f"NVRM: Xid (PCI:{GPU}): 119, x"
    for lines, counts in (
        ([fatal, fatal, asked, fatal], {(119, True): 2, (154, True): 1, (119, False): 1}),
        ([fatal, asked, ended, fatal, asked, ended], {(119, True): 2, (154, True): 4}),
        (
            [fatal, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01", fatal],
            {(119, True): 1, (119, False): 1},
        ),
    ):
        found: dict[tuple[int, bool], int] = {}
        for count in judged(lines).xids:
            found[count.code, count.is_over] = found.get((count.code, count.is_over), 0) + count.count
        assert found == counts


def test_thousands_of_devices_are_bounded() -> None:
    lines = [f"NVRM: Xid (PCI:{number:04x}:01:00): {number % 7 + 1}, x" for number in range(20_000)]
    report = judged(lines)
    assert sum(count.count for count in report.xids) == 20_000
    assert len(report.findings) < 10_000


def test_output_of_any_length_is_read_line_by_line() -> None:
    program = f"import sys; sys.stdout.write('[1.0] usb 1-1: new\\n' * 200000 + {('[2.0] ' + XID)!r} + '\\n')"
    read = kernel_log_sources._Lines(None)
    result = stream((os.environ.get("PYTHON", "python3"), "-c", program), 60.0, read.feed)
    log = read.log("journal", None)
    assert (result.rc, result.stdout, len(log.lines)) == (0, b"", 20_000)
    assert [event.code for event in log.events] == [79]


def test_a_journal_above_the_limit_of_other_programs_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "journalctl"
    program.write_text(
        "#!/bin/sh\nyes '1700000001.0 host1 kernel: usb 1-1: new' | head -n 60000\n"
        f"echo '1700000002.0 h kernel: {XID}'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("ansible_collections.gpu.fleet.plugins.module_utils._common.runner.MAX_OUTPUT_BYTES", 1 << 20)
    log = read_kernel_log("journal", 60.0, HostFiles(str(tmp_path)))
    assert (log.source, [event.code for event in log.events]) == ("journal", [79])


MISSING = CommandResult((), None, b"", b"", 0.0, start_error=errno.ENOENT)
CONTAINERS = {
    "proc/self/mountinfo": "1 2 0:3 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/containerd/"
    "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs\n",
    "proc/1/cgroup": "0::/kubepods.slice/cri-containerd-4711.scope\n",
    "proc/self/cgroup": "12:cpu:/kubepods/besteffort/pod1/4711\n",
    "proc/1/environ": "PATH=/bin\0KUBERNETES_SERVICE_HOST=10.0.0.1\0",
    "run/secrets/kubernetes.io/serviceaccount/namespace": "default\n",
}


@pytest.mark.parametrize("sign", [*CONTAINERS, "namespace"])
def test_a_container_of_containerd_does_not_read_dmesg(sign: str, tmp_path: Path) -> None:
    if sign == "namespace":
        (tmp_path / "proc/self/ns").mkdir(parents=True)
        (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532198]")
    else:
        (tmp_path / sign).parent.mkdir(parents=True)
        (tmp_path / sign).write_text(CONTAINERS[sign])
    dmesg = replace(MISSING, rc=0, stdout=f"[1.0] {XID}\n".encode(), start_error=None)
    programs = {"dmesg": dmesg}
    log = read_kernel_log(
        "auto", 5.0, HostFiles(str(tmp_path)), lambda argv, _: programs.get(Path(argv[0]).name, MISSING)
    )
    assert log.source is None
    assert "container" in (log.reason or "")


def test_a_host_is_no_container(tmp_path: Path) -> None:
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/docker.service\n")
    (tmp_path / "proc/self/mountinfo").write_text(
        "29 1 8:2 / / rw - ext4 /dev/sda2 rw\n99 29 0:5 / /var/lib/docker/overlay2/1/merged rw - overlay overlay rw\n"
    )
    assert not kernel_log_sources.is_container(HostFiles(str(tmp_path)))


# Vulnerable drivers


@pytest.mark.parametrize(
    "version",
    [
        "580.159.04",
        "580.126.20",
        "580.95.05",
        "570.195.03",
        "535.288.01",
        "550.54.14",
        "595.71.05",
        "610.57.03",
        "615.71.08",
        "470.239.06",
        "515.65.01",
        "525.125.06",
    ],
)
def test_a_driver_before_the_bulletin_is_named(version: str) -> None:
    assert f"driver {version} has known vulnerabilities" in of_driver(version)


@pytest.mark.parametrize(
    "version",
    ["580.178.04", "595.91.07", "610.57.04", "615.71.09", "535.309.01", "620.70.06", "", None, "580", "580.x.1"],
)
def test_a_fixed_or_unknown_driver_is_not(version: str | None) -> None:
    assert of_driver(version) == ""


def test_accepted_vulnerabilities_are_not_named() -> None:
    newest = next(one for one in BULLETINS if one.number == "5861")
    last = [name for name, without in newest.names.items() if "580" not in without]
    assert of_driver("580.159.04", last) == ""
    assert last[0] in of_driver("580.159.04", last[1:])
    assert last[1] not in of_driver("580.159.04", last[1:])
    assert of_driver("580.159.04", ["5861"]) == ""
    assert "bulletin 5821" in of_driver("580.126.20", ["5861"])


def test_the_guide_names_the_first_versions_without_the_newest_bulletin() -> None:
    newest = [one for one in BULLETINS if one.product == DRIVER][-1]
    guide = (ROOT / "docs" / "health.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"\| ([0-9]{3}) \| ([0-9.]+) \|", guide)) == newest.fixed_in
    assert f"bulletin {newest.number} (" in guide


def test_the_names_of_a_long_bulletin_are_counted() -> None:
    text = of_driver("580.159.04")
    assert (
        "bulletin 5861 of 2026-09-30: CVE-2026-47489, CVE-2026-47491, CVE-2026-47492, CVE-2026-47494 and 74 more"
        in text
    )
    assert "580.178.04 has none of them" in text


def test_what_the_table_has_not_is_not_accepted() -> None:
    refuse_vulnerabilities(["5861", "CVE-2026-24260"])
    with pytest.raises(ChangeError, match="CVE-2026-00000: it takes names such as"):
        refuse_vulnerabilities(["CVE-2026-00000"])


def test_the_table_of_bulletins_is_in_order() -> None:
    assert [bulletin.date for bulletin in BULLETINS] == sorted(bulletin.date for bulletin in BULLETINS)
    for bulletin in BULLETINS:
        assert bulletin.source.url.endswith(f"/{bulletin.number}.md")
        assert all(version.startswith(branch + ".") for branch, version in bulletin.fixed_in.items() if branch)
