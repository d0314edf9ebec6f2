# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compatibility tables of GPUs, drivers, CUDA, compilers and cuDNN, from NVIDIA's pages. Private to this collection.

Data only: what follows from it is in _compatibility.py. Each table names its source. A new GPU, driver branch or CUDA
version is one more line; what is not in here is unknown, which is never a reason to refuse.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """A generation of GPUs: the last driver branch and CUDA version that support it, None while supported.

    `last_cuda` is a version, or a major version for all of its series. `kinds` are the kernel modules that drive it.
    """

    name: str
    kinds: tuple[str, ...]
    last_branch: int | None = None
    last_cuda: str | None = None


@dataclass(frozen=True)
class Chip:
    """A chip by the PCI device ids that NVIDIA numbered for it, first and last included.

    `first_branch` and `first_cuda` are the first that support it. `data_center` is None where the same chip is sold in
    products of both kinds. `open_only` marks a chip without the choice of kernel modules that its architecture has.
    """

    name: str
    architecture: str
    compute_capability: str
    first_id: int
    last_id: int
    first_branch: int
    first_cuda: str
    data_center: bool | None = None
    open_only: bool = False


# Last driver and CUDA:
# https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html
# Kernel modules: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html (open: Turing
# and newer) and https://developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules/
# (open only: Blackwell and Grace Hopper; Maxwell, Pascal and Volta: proprietary only).
# Tesla and Fermi: https://www.nvidia.com/en-us/drivers/unix/legacy-gpu/
ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("Tesla", ("proprietary",), last_branch=340, last_cuda="6.5"),
        Architecture("Fermi", ("proprietary",), last_branch=390, last_cuda="8.0"),
        Architecture("Kepler", ("proprietary",), last_branch=470, last_cuda="11"),
        Architecture("Maxwell", ("proprietary",), last_branch=580, last_cuda="12"),
        Architecture("Pascal", ("proprietary",), last_branch=580, last_cuda="12"),
        Architecture("Volta", ("proprietary",), last_branch=580, last_cuda="12"),
        Architecture("Turing", ("open", "proprietary")),
        Architecture("Ampere", ("open", "proprietary")),
        Architecture("Ada Lovelace", ("open", "proprietary")),
        Architecture("Hopper", ("open", "proprietary")),
        Architecture("Blackwell", ("open",)),
    )
}

LAST_CUDA_OF_CAPABILITY = {"3.0": "10.2"}
"""Parts of an architecture that were dropped before the rest; same source."""

# Device ids: https://pci-ids.ucw.cz/read/PC/10de (version of 2026), which names the chip of each.
# Capabilities: https://developer.nvidia.com/cuda-gpus
# First CUDA: the matrix above, and the release notes of CUDA 11.1 (8.6), 12.8 (10.0, 12.0), 12.9 (10.3, 12.1) and 13.0
# (11.0).
# First branch: the driver of that CUDA version, or the earlier one whose release notes name the chip; Grace Hopper
# begins with branch 535.
CHIPS = (
    Chip("G98", "Tesla", "1.1", 0x06E0, 0x06FF, 173, "2.0"),
    Chip("C77", "Tesla", "1.1", 0x0840, 0x08AF, 173, "2.0"),
    Chip("GT21x", "Tesla", "1.2", 0x0A20, 0x0A7F, 190, "2.3"),
    Chip("GT215", "Tesla", "1.2", 0x0CA0, 0x0CBF, 190, "2.3"),
    Chip("GT218", "Tesla", "1.2", 0x10C0, 0x10DF, 190, "2.3"),
    Chip("GF100", "Fermi", "2.0", 0x06C0, 0x06DF, 260, "3.0"),
    Chip("GF106", "Fermi", "2.1", 0x0DC0, 0x0DFF, 260, "3.2"),
    Chip("GF104", "Fermi", "2.1", 0x0E22, 0x0E3F, 260, "3.2"),
    Chip("GF108", "Fermi", "2.1", 0x0F00, 0x0F0F, 260, "3.2"),
    Chip("GF119", "Fermi", "2.1", 0x1040, 0x107F, 260, "3.2"),
    Chip("GF110", "Fermi", "2.0", 0x1080, 0x109F, 260, "3.2"),
    Chip("GF117", "Fermi", "2.1", 0x1140, 0x115F, 295, "4.2"),
    Chip("GF114", "Fermi", "2.1", 0x1200, 0x125F, 260, "3.2"),
    Chip("GK107", "Kepler", "3.0", 0x0FC0, 0x0FFF, 295, "5.0"),
    Chip("GK110", "Kepler", "3.5", 0x1001, 0x103F, 304, "5.0"),
    Chip("GK104", "Kepler", "3.0", 0x1180, 0x11FF, 295, "5.0"),
    Chip("GK208", "Kepler", "3.5", 0x1280, 0x12BF, 319, "5.5"),
    Chip("GM108", "Maxwell", "5.0", 0x1340, 0x137F, 331, "6.0"),
    Chip("GM107", "Maxwell", "5.0", 0x1380, 0x13BF, 331, "6.0"),
    Chip("GM204", "Maxwell", "5.2", 0x13C0, 0x143F, 343, "6.5"),
    Chip("GM204", "Maxwell", "5.2", 0x1617, 0x167F, 343, "6.5"),
    Chip("GM108", "Maxwell", "5.0", 0x1740, 0x17BF, 331, "6.0"),
    Chip("GM200", "Maxwell", "5.2", 0x17C0, 0x17FF, 343, "6.5"),
    Chip("GP100", "Pascal", "6.0", 0x15F0, 0x15FF, 361, "8.0", data_center=True),
    Chip("GP100", "Pascal", "6.0", 0x1725, 0x172F, 361, "8.0", data_center=True),
    Chip("GP102", "Pascal", "6.1", 0x1B00, 0x1B7F, 361, "8.0"),
    Chip("GP104", "Pascal", "6.1", 0x1B80, 0x1BFF, 361, "8.0"),
    Chip("GP106", "Pascal", "6.1", 0x1C00, 0x1C7F, 361, "8.0"),
    Chip("GP107", "Pascal", "6.1", 0x1C80, 0x1CFF, 361, "8.0"),
    Chip("GP108", "Pascal", "6.1", 0x1D00, 0x1D7F, 361, "8.0"),
    Chip("GV100", "Volta", "7.0", 0x1D80, 0x1DFF, 384, "9.0"),
    Chip("TU102", "Turing", "7.5", 0x1E00, 0x1E7F, 410, "10.0"),
    Chip("TU104", "Turing", "7.5", 0x1E80, 0x1EFF, 410, "10.0"),
    Chip("TU106", "Turing", "7.5", 0x1F00, 0x1F7F, 410, "10.0"),
    Chip("TU117", "Turing", "7.5", 0x1F80, 0x1FFF, 418, "10.0"),
    Chip("TU116", "Turing", "7.5", 0x2180, 0x21FF, 418, "10.0"),
    Chip("GA100", "Ampere", "8.0", 0x2080, 0x20FF, 450, "11.0", data_center=True),
    Chip("GA102", "Ampere", "8.6", 0x2200, 0x227F, 455, "11.1"),
    Chip("GA103", "Ampere", "8.6", 0x2400, 0x247F, 455, "11.1"),
    Chip("GA104", "Ampere", "8.6", 0x2480, 0x24FF, 455, "11.1"),
    Chip("GA106", "Ampere", "8.6", 0x2500, 0x257F, 455, "11.1"),
    Chip("GA107", "Ampere", "8.6", 0x2580, 0x25FF, 455, "11.1"),
    Chip("GH100", "Hopper", "9.0", 0x2300, 0x2341, 520, "11.8", data_center=True),
    Chip("GH200", "Hopper", "9.0", 0x2342, 0x2348, 535, "11.8", data_center=True, open_only=True),
    Chip("GH100", "Hopper", "9.0", 0x2349, 0x23FF, 520, "11.8", data_center=True),
    Chip("AD102", "Ada Lovelace", "8.9", 0x2680, 0x26FF, 520, "11.8"),
    Chip("AD103", "Ada Lovelace", "8.9", 0x2700, 0x277F, 520, "11.8"),
    Chip("AD104", "Ada Lovelace", "8.9", 0x2780, 0x27FF, 520, "11.8"),
    Chip("AD106", "Ada Lovelace", "8.9", 0x2800, 0x287F, 520, "11.8"),
    Chip("AD107", "Ada Lovelace", "8.9", 0x2880, 0x28FF, 520, "11.8"),
    Chip("GB100", "Blackwell", "10.0", 0x2900, 0x297F, 570, "12.8", data_center=True),
    Chip("GB102", "Blackwell", "10.0", 0x2980, 0x29FF, 570, "12.8", data_center=True),
    Chip("GB10B", "Blackwell", "11.0", 0x2B00, 0x2B7F, 580, "13.0"),
    Chip("GB202", "Blackwell", "12.0", 0x2B80, 0x2BFF, 570, "12.8"),
    Chip("GB203", "Blackwell", "12.0", 0x2C00, 0x2C7F, 570, "12.8"),
    Chip("GB206", "Blackwell", "12.0", 0x2D00, 0x2D7F, 570, "12.8"),
    Chip("GB207", "Blackwell", "12.0", 0x2D80, 0x2DFF, 570, "12.8"),
    Chip("GB20B", "Blackwell", "12.1", 0x2E00, 0x2E7F, 575, "12.9"),
    Chip("GB205", "Blackwell", "12.0", 0x2F00, 0x2F7F, 570, "12.8"),
    Chip("GB110", "Blackwell", "10.3", 0x3180, 0x31FF, 575, "12.9", data_center=True),
)

# For lists of product names without device ids. The first match counts.
# Names and capabilities: https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus
PRODUCT_CHIPS = (
    (r"\bGB10\b", "GB20B"),
    (r"\bG?B300\b", "GB110"),
    (r"\bG?B[12]00\b", "GB100"),
    (r"\bRTX 50[5-9]0|\bRTX PRO \d+.*\bBlackwell|\bRTX 6000D\b|\bRTX PRO 6000\b", "GB202"),
    (r"\bGH200\b", "GH200"),
    (r"\bH(?:100|200|800|20)", "GH100"),
    (r"\bL(?:2|4|16|20|30|40)[SG]?\b|\bRTX 40[5-9]0|\bAda Generation\b|\bRTX TITAN Ada\b", "AD102"),
    (r"\bA(?:X?800|100|30)[TX]?\b|\bCMP 170HX\b", "GA100"),
    (
        r"\bA(?:2|10|16|40)[GM]?\b|\bRTX A\d{3,4}|\bRTX 30[5-9]0|\bRTX 2050\b|\bMX570|\bCMP [79]0HX\b",
        "GA102",
    ),
    (
        r"\bT(?:4G?|10|40|[456]00|550|1[02]00|2000)\b|\bRTX 20[6-8]0|\b(?:TITAN|Quadro) RTX\b|\bGTX 16\d0|\bMX[45]50",
        "TU102",
    ),
    (r"\bV100|\bTITAN V\b|\bGV100\b|\bCMP 100\b", "GV100"),
    (r"\bP100\b|\bGP100\b", "GP100"),
    (
        r"\bP(?:4|6|40)\b|\bGTX 10[5-8]0|\bGT 10[13]0|(?<!GTX )\bTITAN Xp?\b|\bQuadro P\d{3,4}|\bMX(?:150|[23][35]0)\b",
        "GP102",
    ),
    (
        r"\bM(?:4|6|10|40|60)\b|\bGTX (?:9[5-8]0|TITAN X\b|7[45]0\b)|\bQuadro (?:M\d{3,4}|K2200|K1200|K620)\b",
        "GM204",
    ),
    (r"\bK(?:20|40|80)[cmstx]*\b|\bGTX 780\b|\bGTX TITAN\b|\bQuadro K(?:5200|6000)\b", "GK110"),
    (r"\bK(?:8|10)\b|\bGTX 6[5-9]0\b|\bGTX 7[67]0\b|\bGRID K[12]\b|\bQuadro K\d{3,4}\b", "GK104"),
    (r"\b[CMS]20[57]\d\b|\bGTX [45][5-9]0\b", "GF100"),
)

# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html and the table "CUDA Toolkit and
# Corresponding Driver Versions" in https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/
# Up to CUDA 10 each version needs its own driver; from 11 on a whole series needs the driver of its first version.
DRIVER_OF_SERIES = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

DRIVER_OF_CUDA = {
    "7.0": "346.46",
    "7.5": "352.31",
    "8.0": "367.48",
    "9.0": "384.81",
    "9.1": "387.26",
    "9.2": "396.26",
    "10.0": "410.48",
    "10.1": "418.39",
    "10.2": "440.33",
    "11.0": "450.36.06",
    "11.1": "455.23",
    "11.2": "460.27.03",
    "11.3": "465.19.01",
    "11.4": "470.42.01",
    "11.5": "495.29.05",
    "11.6": "510.39.01",
    "11.7": "515.43.04",
    "11.8": "520.61.05",
    "12.0": "525.60.13",
    "12.1": "530.30.02",
    "12.2": "535.54.03",
    "12.3": "545.23.06",
    "12.4": "550.54.14",
    "12.5": "555.42.02",
    "12.6": "560.28.03",
    "12.8": "570.26",
    "12.9": "575.51.03",
    "13.0": "580.65.06",
    "13.1": "590.44.01",
    "13.2": "595",
    "13.3": "610",
    "13.4": "615",
    "13.5": "620",
}
"""The driver of each CUDA version (there was no 12.7) with which all of its functions work.

The branches of 13.2 to 13.4 are from the page on forward compatibility. That of 13.5 (on PyPI since 2026-11 as
nvidia-cuda-crt 13.5.37) is inferred from these: one branch for each version.
"""

# Those of the table above, and branches without a new CUDA version: https://www.nvidia.com/en-us/drivers/unix/
KNOWN_BRANCHES = frozenset({340, 390, 430, 565} | {int(driver.split(".")[0]) for driver in DRIVER_OF_CUDA.values()})

# The last month with updates, https://docs.nvidia.com/datacenter/tesla/drivers/ ("Supported drivers", read 2026-11-23:
# 580, 595 and 620 of edition 620; 535 and 610 of edition 615; 550 and 570 of the editions that still listed them).
END_OF_LIFE = {
    535: "2026-06",
    550: "2025-06",
    570: "2026-02",
    580: "2028-06",
    595: "2027-03",
    610: "2026-08",
    620: "2029-09",
}
# Of these, edition 620 of the same page names no end, but that they are short-lived.
NEW_FEATURE_BRANCHES = frozenset({545, 555, 560, 565, 575, 590, 615})


@dataclass(frozen=True)
class MigMinimum:
    """The oldest driver with MIG on products, by device ids and by a pattern of product names."""

    driver: str
    device_ids: frozenset[int]
    name: str


# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ ("Deployment Considerations"); GPUs of Ampere and the H100
# have MIG with every driver of branch 535 and newer. Device ids: https://pci-ids.ucw.cz/read/PC/10de
MIG_MINIMUMS = (
    MigMinimum("535.161.07", frozenset({0x230C, 0x232C}), r"\bH20\b"),
    MigMinimum("550.90.07", frozenset({0x2335, 0x233B}), r"\bH200\b"),
    MigMinimum("570.133.20", frozenset({0x2901, 0x2909, 0x2941}), r"\bG?B200\b"),
    MigMinimum("580.82.07", frozenset({0x3182}), r"\bB300\b"),
    # The guide (edition 620, read 2026-11-23) names the GB300 of the DGX Station only.
    MigMinimum("595.58.03", frozenset({0x31A1, 0x31C2, 0x31C3}), r"\bGB300\b"),
    MigMinimum("575.51.03", frozenset({0x2BB1, 0x2BB4, 0x2BB5}), r"\bRTX PRO 6000 Blackwell\b"),
    MigMinimum("575.57.08", frozenset({0x2BB3}), r"\bRTX PRO 5000(?: 72GB)? Blackwell(?! (?:Gen|Emb))\b"),
    MigMinimum("575.64", frozenset({0x2C31}), r"\bRTX PRO 4500 Blackwell\b"),
)

# https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html: a package cuda-compat-X-Y works on these
# branches when the branch is older than the one it was built from. Packages begin with 12.2 there.
FORWARD_COMPATIBLE_BRANCHES = (535, 570, 580, 590, 595, 610, 615, 620)
FIRST_FORWARD_COMPATIBLE_CUDA = "12.2"

# The open modules: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html
FIRST_OPEN_BRANCH = 515
FIRST_OPEN_BY_DEFAULT_BRANCH = 560

# The newest gcc that nvcc accepts: table "Host Compiler Support Policy" of
# https://docs.nvidia.com/cuda/archive/<version>/cuda-installation-guide-linux/ (11.4: as of its first update), as
# enforced in crt/host_config.h ("gcc versions later than N are not supported"); 13.4 and 13.5 from that file of
# nvidia-cuda-crt 13.4.92 and 13.5.37 on PyPI, read 2026-11-23.
NEWEST_GCC = {
    "8.0": 5,
    "9.0": 6,
    "9.1": 6,
    "9.2": 7,
    "10.0": 7,
    "10.1": 8,
    "10.2": 8,
    "11.0": 9,
    "11.1": 10,
    "11.2": 10,
    "11.3": 10,
    "11.4": 11,
    "11.5": 11,
    "11.6": 11,
    "11.7": 11,
    "11.8": 11,
    "12.0": 12,
    "12.1": 12,
    "12.2": 12,
    "12.3": 12,
    "12.4": 13,
    "12.5": 13,
    "12.6": 13,
    "12.8": 14,
    "12.9": 14,
    "13.0": 15,
    "13.1": 15,
    "13.2": 15,
    "13.3": 15,
    "13.4": 16,
    "13.5": 16,
}


@dataclass(frozen=True)
class Cudnn:
    """A range of cuDNN versions, both ends included: CUDA versions or series, and the oldest compute capability."""

    first: str
    last: str
    cuda: tuple[str, ...]
    oldest_capability: str


# https://docs.nvidia.com/deeplearning/cudnn/backend/latest/reference/support-matrix.html and its archive
# https://docs.nvidia.com/deeplearning/cudnn/archives/. The series of 8.8 and newer agree with what is published at
# https://pypi.org/project/nvidia-cudnn-cu11/ (until 9.10), -cu12 (from 8.8) and -cu13 (from 9.12).
CUDNN = (
    Cudnn("7.6", "7.6", ("9.0", "9.2", "10.0", "10.1", "10.2"), "3.0"),
    Cudnn("8.0", "8.0", ("10.1", "10.2", "11.0", "11.1"), "3.0"),
    Cudnn("8.1", "8.7", ("10.2", "11"), "3.0"),
    Cudnn("8.8", "8.9", ("11", "12"), "3.5"),
    Cudnn("9.0", "9.10", ("11", "12"), "5.0"),
    Cudnn("9.11", "9.11", ("12",), "7.5"),
    Cudnn("9.12", "9.28", ("12", "13"), "7.5"),
)

FIRST_CUDNN_OF_CAPABILITY = {"8.0": "8.0", "8.6": "8.0", "8.9": "8.6", "9.0": "8.6", "10.0": "9.7", "12.0": "9.7"}
"""Same source; other capabilities of Ampere and newer follow the nearest older one."""
