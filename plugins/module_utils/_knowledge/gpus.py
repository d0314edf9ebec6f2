# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generations of GPUs, and their chips by PCI device id and by product name. Private to this collection.

Data only. A GPU that is not in here is unknown, which is never a reason to refuse.
"""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source

_MATRIX = Source(
    "https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html", "2026-11-21"
)
_LEGACY = Source("https://www.nvidia.com/en-us/drivers/unix/legacy-gpu/", "2026-11-21")
_PCI_IDS = Source("https://pci-ids.ucw.cz/read/PC/10de", "2026-11-22")
_PCI_IDS_2026_08 = Source("https://github.com/pciutils/pciids/blob/c1c12547/pci.ids", "2026-08-22")
_OPEN_615 = Source("https://github.com/NVIDIA/open-gpu-kernel-modules/tree/615.71.09", "2026-11-25")


@dataclass(frozen=True)
class Architecture:
    """A generation of GPUs: the last driver branch and CUDA version that support it, None while supported.

    `last_cuda` is a version, or a major version for all of its series. `kinds` are the kernel modules that drive it.
    """

    name: str
    kinds: tuple[str, ...]
    last_branch: int | None = None
    last_cuda: str | None = None
    source: Source = _MATRIX


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
    source: Source = _PCI_IDS


# Kernel modules: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html (open: Turing
# and newer) and https://developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules/
# (open only: Blackwell and Grace Hopper; Maxwell, Pascal and Volta: proprietary only).
ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("Tesla", ("proprietary",), last_branch=340, last_cuda="6.5", source=_LEGACY),
        Architecture("Fermi", ("proprietary",), last_branch=390, last_cuda="8.0", source=_LEGACY),
        Architecture("Kepler", ("proprietary",), last_branch=470, last_cuda="11"),
        Architecture("Maxwell", ("proprietary",), last_branch=580, last_cuda="12"),
        Architecture("Pascal", ("proprietary",), last_branch=580, last_cuda="12"),
        Architecture("Volta", ("proprietary",), last_branch=580, last_cuda="12"),
        Architecture("Turing", ("open", "proprietary")),
        Architecture("Ampere", ("open", "proprietary")),
        Architecture("Ada Lovelace", ("open", "proprietary")),
        Architecture("Hopper", ("open", "proprietary")),
        Architecture("Blackwell", ("open",)),
        Architecture("Rubin", ("open",), source=_OPEN_615),
    )
}

LAST_CUDA_OF_CAPABILITY = {"3.0": "10.2"}
"""Parts of an architecture that were dropped before the rest; same source."""

# The chip of each device id is from the source of the row.
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
    Chip("GK110", "Kepler", "3.5", 0x1300, 0x130F, 304, "5.0", source=_PCI_IDS_2026_08),
    Chip("GM108", "Maxwell", "5.0", 0x1340, 0x137F, 331, "6.0"),
    Chip("GM107", "Maxwell", "5.0", 0x1380, 0x13BF, 331, "6.0"),
    Chip("GM204", "Maxwell", "5.2", 0x13C0, 0x143F, 343, "6.5"),
    Chip("GM204", "Maxwell", "5.2", 0x1610, 0x167F, 343, "6.5"),
    Chip("GM108", "Maxwell", "5.0", 0x1740, 0x17BF, 331, "6.0"),
    Chip("GM200", "Maxwell", "5.2", 0x17C0, 0x17FF, 343, "6.5"),
    Chip("GP100", "Pascal", "6.0", 0x15C0, 0x15FF, 361, "8.0", data_center=True),
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
    # pci.ids of 2026-08-22 has 3000, 3021 and 3040 for GR100, the first and the third reserved as 3180 and 31c0 of
    # GB110 are. It has GR102 (30c0), GB112 and GB120, too, of which no capability was found. Of products, the sources
    # of driver 615.71.09 name none after GB300. Capability 10.7 is sm_107, which ptxas has since CUDA 13.4. Branches
    # from 615 on have open modules only.
    Chip("GR100", "Rubin", "10.7", 0x3000, 0x307F, 615, "13.4", data_center=True, source=_PCI_IDS_2026_08),
)

WITHOUT_CAPABILITY = ("GB112", "GB120", "GR102")
"""Chips that pci.ids has, and of which no source names the capability: GPUs with them are unknown."""

# For lists of product names without device ids. The first match counts.
# Names and capabilities: https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus
PRODUCT_CHIPS = (
    (r"\bV?R200\b|\bVera Rubin\b", "GR100"),
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
