# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Multiprocessors of products by their PCI device ids, and cores of a multiprocessor. Private to this collection.

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
    "12.0": Multiprocessor(128, None, _SAMPLES),
}


@dataclass(frozen=True)
class Product:
    """A product: the names that nvidia-smi prints, its PCI device ids, which no other product has, and the number of
    multiprocessors of the whole GPU."""

    names: tuple[str, ...]
    device_ids: frozenset[int]
    multiprocessors: int
    source: Source = _DEVICE_QUERY


# Device ids: the list of supported GPUs in https://github.com/NVIDIA/open-gpu-kernel-modules (595.45.04), and
# https://pci-ids.ucw.cz/read/PC/10de. An id that several products share is left out, as 25b6 (A2 and A16).
PRODUCTS = (
    Product(("Tesla P100-PCIE-16GB",), frozenset({0x15F8}), 56),
    Product(("Tesla V100-SXM2-32GB",), frozenset({0x1DB5}), 80),
    Product(("Tesla T4",), frozenset({0x1EB8}), 40),
    Product(
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB"),
        frozenset({0x20B0, 0x20B2, 0x20B5, 0x20F1}),
        108,
        _AMPERE,
    ),
    Product(("NVIDIA A30",), frozenset({0x20B7}), 56, _WHOLE_GPU_PROFILE),
    Product(("NVIDIA A40",), frozenset({0x2235}), 84),
    Product(("NVIDIA A10",), frozenset({0x2236}), 72),
    Product(("NVIDIA L4",), frozenset({0x27B8}), 58),
    Product(("NVIDIA L40S",), frozenset({0x26B9}), 142),
    Product(("NVIDIA H100 NVL",), frozenset({0x2321}), 132, _WHOLE_GPU_PROFILE),
    Product(("NVIDIA H100 80GB HBM3",), frozenset({0x2330}), 132),
    Product(("NVIDIA H100 PCIe",), frozenset({0x2331}), 114),
    Product(("NVIDIA H200",), frozenset({0x2335}), 132, _WHOLE_GPU_PROFILE),
    Product(("NVIDIA GH200 120GB", "NVIDIA GH200 480GB"), frozenset({0x2342}), 132),
    Product(("NVIDIA RTX PRO 6000 Blackwell Server Edition",), frozenset({0x2BB5}), 188, _WHOLE_GPU_PROFILE),
)
