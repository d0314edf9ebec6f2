# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Multiprocessors and bandwidths of products by their PCI device ids, and cores of a multiprocessor. Private to this
collection.

Data only. What is not in here is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source

_GUIDE = Source("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities", "2026-11-24")
_SAMPLES = Source("https://github.com/NVIDIA/cuda-samples/blob/master/Common/helper_cuda.h", "2026-11-24")
# What NVIDIA's sample deviceQuery prints on the product, in outputs that public repositories have.
_DEVICE_QUERY = Source(
    "https://github.com/NVIDIA/cuda-samples/tree/master/Samples/1_Utilities/deviceQuery", "2026-11-24"
)
# What `nvidia-smi mig -lgip` prints for the profile that takes the whole GPU, in recorded outputs.
_WHOLE_GPU_PROFILE = Source(
    "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html", "2026-11-24"
)
# Measured on the product: its texture processing clusters, of two multiprocessors each (66 on an H100 SXM, whose 132
# are published). 160 is what NVIDIA names for the full chip of B300 and GB300, not for the products.
_CLUSTERS = Source("https://github.com/SemiAnalysisAI/InferenceX/tree/main/ubenchX/gpc_query", "2026-11-25")
# A reprint of NVIDIA's table of Tesla K40 to V100, next to the PCIe cards.
_VOLTA = Source(
    "https://www.techrival.com/"
    "nvidia-volta-tesla-v100-cards-detailed-150w-single-slot-300w-dual-slot-gv100-powered-pcie-accelerators/",
    "2026-11-25",
)
_AMPERE = Source("https://developer.nvidia.com/blog/nvidia-ampere-architecture-in-depth/", "2026-11-24")


@dataclass(frozen=True)
class Multiprocessor:
    """Cores of one multiprocessor of a compute capability; tensor cores None where no source names them."""

    cuda_cores: int
    tensor_cores: int | None
    source: Source


MULTIPROCESSORS = {
    "6.0": Multiprocessor(64, 0, _SAMPLES),
    "6.1": Multiprocessor(128, 0, _SAMPLES),
    "7.0": Multiprocessor(64, 8, _GUIDE),
    "7.5": Multiprocessor(64, 8, _GUIDE),
    "8.0": Multiprocessor(64, 4, _GUIDE),
    "8.6": Multiprocessor(128, 4, _GUIDE),
    "8.9": Multiprocessor(128, 4, _GUIDE),
    "9.0": Multiprocessor(
        128, 4, Source("https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/", "2026-11-24")
    ),
    "10.0": Multiprocessor(128, None, _SAMPLES),
    "10.3": Multiprocessor(
        128,
        4,
        Source(
            "https://developer.nvidia.com/blog/inside-nvidia-blackwell-ultra-the-chip-powering-the-ai-factory-era",
            "2026-11-25",
        ),
    ),
    "12.0": Multiprocessor(128, None, _SAMPLES),
}


@dataclass(frozen=True)
class Bandwidth:
    """Bandwidths in GB/s as NVIDIA names them: of the memory, and of all NVLinks of a GPU in both directions together.

    `nvlink` is 0 where the source names PCIe as the only interconnect, None where it leaves it open, and that with the
    bridge where NVLink is an accessory.
    """

    memory: int
    nvlink: float | None
    source: Source


def _named(page: str, memory: int, nvlink: float | None) -> Bandwidth:
    return Bandwidth(memory, nvlink, Source(f"https://{page}", "2026-11-25"))


_NVIDIA = "www.nvidia.com/en-us/data-center"
_DGX = "resources.nvidia.com/en-us-dgx-systems"


@dataclass(frozen=True)
class Product:
    """A product: the names that nvidia-smi prints, its PCI device ids, which no other product has, the number of
    multiprocessors of the whole GPU, None where no source names it, and its bandwidths."""

    names: tuple[str, ...]
    device_ids: frozenset[int]
    multiprocessors: int | None
    source: Source = _DEVICE_QUERY
    bandwidth: Bandwidth | None = None


# Device ids: the list of supported GPUs in https://github.com/NVIDIA/open-gpu-kernel-modules (595.45.04), and
# https://pci-ids.ucw.cz/read/PC/10de. An id that several products share is left out, as 25b6 (A2 and A16).
# Bandwidths: NVIDIA's product pages and data sheets, as public documents quote them with the address. Where NVIDIA's
# documents differ the product page counts, or the data sheet of the DGX where there is none: a data sheet of the H200
# NVL has 4.2 TB/s, the README of https://github.com/NVIDIA/dgxc-benchmarking 7.7 TB/s for B200 and B300.
PRODUCTS = (
    Product(("Tesla P100-PCIE-16GB",), frozenset({0x15F8}), 56),
    Product(
        ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"),
        frozenset({0x1DB1, 0x1DB5}),
        80,
        _VOLTA,
        _named(f"{_NVIDIA}/v100/", 900, 300),
    ),
    Product(
        ("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"),
        frozenset({0x1DB4, 0x1DB6}),
        80,
        _VOLTA,
        _named(f"{_NVIDIA}/v100/", 900, 0),
    ),
    Product(("Tesla T4",), frozenset({0x1EB8}), 40, bandwidth=_named(f"{_NVIDIA}/tesla-t4/", 320, 0)),
    Product(("NVIDIA A100-SXM4-40GB",), frozenset({0x20B0}), 108, _AMPERE, _named(f"{_NVIDIA}/a100/", 1555, 600)),
    Product(("NVIDIA A100-PCIE-40GB",), frozenset({0x20F1}), 108, _AMPERE, _named(f"{_NVIDIA}/a100/", 1555, 600)),
    Product(("NVIDIA A100-SXM4-80GB",), frozenset({0x20B2}), 108, _AMPERE, _named(f"{_NVIDIA}/a100/", 2039, 600)),
    Product(("NVIDIA A100 80GB PCIe",), frozenset({0x20B5}), 108, _AMPERE, _named(f"{_NVIDIA}/a100/", 1935, 600)),
    Product(
        ("NVIDIA A30",),
        frozenset({0x20B7}),
        56,
        _WHOLE_GPU_PROFILE,
        _named(f"{_NVIDIA}/products/a30-gpu/", 933, 200),
    ),
    Product(("NVIDIA A40",), frozenset({0x2235}), 84, bandwidth=_named(f"{_NVIDIA}/a40/", 696, 112.5)),
    Product(("NVIDIA A10",), frozenset({0x2236}), 72, bandwidth=_named(f"{_NVIDIA}/products/a10-gpu/", 600, 0)),
    Product(("NVIDIA L4",), frozenset({0x27B8}), 58, bandwidth=_named(f"{_NVIDIA}/l4/", 300, 0)),
    # 18176 CUDA cores are on the same page.
    Product(
        ("NVIDIA L40",),
        frozenset({0x26B5}),
        142,
        Source(f"https://{_NVIDIA}/l40/", "2026-11-25"),
        _named(f"{_NVIDIA}/l40/", 864, 0),
    ),
    Product(("NVIDIA L40S",), frozenset({0x26B9}), 142, bandwidth=_named(f"{_NVIDIA}/l40s/", 864, 0)),
    Product(("NVIDIA H100 NVL",), frozenset({0x2321}), 132, _WHOLE_GPU_PROFILE, _named(f"{_NVIDIA}/h100/", 3900, 600)),
    Product(("NVIDIA H100 80GB HBM3",), frozenset({0x2330}), 132, bandwidth=_named(f"{_NVIDIA}/h100/", 3350, 900)),
    Product(("NVIDIA H100 PCIe",), frozenset({0x2331}), 114, bandwidth=_named(f"{_NVIDIA}/h100/", 2000, 600)),
    Product(("NVIDIA H200",), frozenset({0x2335}), 132, _WHOLE_GPU_PROFILE, _named(f"{_NVIDIA}/h200/", 4800, 900)),
    Product(("NVIDIA H200 NVL",), frozenset({0x233B}), None, bandwidth=_named(f"{_NVIDIA}/h200/", 4800, 900)),
    # With 96 GB of HBM3; the numbers in the names are of the memory of its Grace CPU.
    Product(
        ("NVIDIA GH200 120GB", "NVIDIA GH200 480GB"),
        frozenset({0x2342}),
        132,
        bandwidth=_named(f"{_NVIDIA}/grace-hopper-superchip/", 4000, None),
    ),
    # The data sheets of the DGX name 64 TB/s and 14.4 TB/s for eight GPUs, the pages of the NVL72 576 TB/s for 72.
    Product(("NVIDIA B200",), frozenset({0x2901}), 148, _CLUSTERS, _named(f"{_DGX}/dgx-b200-datasheet", 8000, 1800)),
    Product(("NVIDIA GB200",), frozenset({0x2941}), 152, _CLUSTERS, _named(f"{_NVIDIA}/gb200-nvl72/", 8000, 1800)),
    Product(
        ("NVIDIA B300 SXM6 AC",),
        frozenset({0x3182}),
        148,
        _CLUSTERS,
        _named(f"{_DGX}/dgx-b300-datasheet", 8000, 1800),
    ),
    Product(
        ("NVIDIA GB300",),
        frozenset({0x31C2, 0x31C3}),
        None,
        bandwidth=_named(f"{_NVIDIA}/gb300-nvl72/", 8000, 1800),
    ),
    Product(
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition",),
        frozenset({0x2BB5}),
        188,
        _WHOLE_GPU_PROFILE,
        _named(f"{_NVIDIA}/rtx-pro-6000-blackwell-server-edition/", 1597, 0),
    ),
)
