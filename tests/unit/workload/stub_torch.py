# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What framework_test.py calls of PyTorch, with GPUs as the variable STUB_TORCH describes them, in JSON.

A test writes this file as torch.py into a directory of PYTHONPATH. It behaves as PyTorch does for CUDA_VISIBLE_DEVICES,
and prints to the standard output while it is imported, as builds of frameworks in images do.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

_HOST = json.loads(os.environ.get("STUB_TORCH", "{}"))
_VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES")
_GPUS = [gpu for gpu in _HOST.get("gpus", []) if _VISIBLE is None or gpu["uuid"] in _VISIBLE.split(",")]
print('{"framework": "noise while it is imported"')
if _HOST.get("at_import") == "abort":
    os.abort()
if _HOST.get("at_import") == "hang":
    time.sleep(60)

__version__ = "2.5.1"
version = types.SimpleNamespace(cuda=_HOST.get("cuda", "12.4"))
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 90100))
float32, float64 = "float32", "float64"


class Tensor:
    """Rows of numbers, or numbers, on a device."""

    def __init__(self, data: list[Any], device: str) -> None:
        self.data, self.device = data, device

    def to(self, device: str, dtype: str) -> Tensor:
        """A copy."""
        return Tensor(self.data, device)

    def tolist(self) -> list[Any]:
        """Its numbers."""
        return self.data


def tensor(data: list[Any], dtype: str, device: str = "cpu") -> Tensor:
    """Numbers on a device, which has to exist."""
    gpu = _gpu(device)
    if gpu and gpu.get("error"):
        raise RuntimeError(f"{gpu['error']}\nCUDA kernel errors might be asynchronously reported")
    return Tensor(data, device)


def _gpu(device: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None if device == "cpu" else _GPUS[int(device.removeprefix("cuda:"))]
    return found


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """The product of two matrices, which is wrong on a GPU that is described so."""
    columns = list(zip(*right.data, strict=True))
    rows = [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in left.data]
    rows[0][0] += (_gpu(left.device) or {}).get("wrong_by", 0)
    return Tensor(rows, left.device)


def mv(left: Tensor, right: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    return Tensor([sum(a * b for a, b in zip(row, right.data, strict=True)) for row in left.data], left.device)


def full(size: tuple[int], value: float, device: str) -> Tensor:
    """Equal numbers."""
    return Tensor([value] * size[0], device)


def _init() -> None:
    raise RuntimeError(_HOST["unavailable"])


def _properties(index: int) -> Any:
    gpu = _GPUS[index]
    return types.SimpleNamespace(
        name="NVIDIA H200", uuid=gpu["uuid"].partition("-")[2], major=9, minor=0, total_memory=150_000_000_000
    )


cuda = types.SimpleNamespace(
    is_available=lambda: bool(_GPUS) and "unavailable" not in _HOST,
    init=_init if "unavailable" in _HOST else lambda: None,
    device_count=lambda: 0 if "unavailable" in _HOST else len(_GPUS),
    get_device_properties=_properties,
    get_arch_list=lambda: ["sm_80", "sm_90"],
    set_device=lambda index: None,
    nccl=types.SimpleNamespace(version=lambda: (2, 21, 5)),
)


class distributed:  # noqa: N801  # a module in PyTorch
    """Sums through files next to the meeting place."""

    state: dict[str, Any] = {}  # noqa: RUF012

    @staticmethod
    def is_available() -> bool:
        """Whether it was built in."""
        return True

    is_nccl_available = is_available

    @classmethod
    def init_process_group(cls, backend: str, init_method: str, rank: int, world_size: int, timeout: Any) -> None:
        """Join."""
        if _HOST.get("all_reduce") == "fails":
            raise RuntimeError("NCCL error in: ProcessGroupNCCL.cpp:2027, unhandled system error")
        cls.state = {"meeting": init_method.removeprefix("file://"), "rank": rank, "ranks": world_size}

    @classmethod
    def all_reduce(cls, numbers: Tensor) -> None:
        """Wait for all, and add."""
        places = [Path(f"{cls.state['meeting']}.{rank}") for rank in range(cls.state["ranks"])]
        places[cls.state["rank"]].touch()
        while not all(place.exists() for place in places):
            time.sleep(0.01)
        total = sum(range(1, len(places) + 1)) + (_HOST.get("all_reduce") == "wrong")
        numbers.data = [float(total)] * len(numbers.data)

    @staticmethod
    def destroy_process_group() -> None:
        """Leave."""


sys.modules["torch.distributed"] = distributed  # type: ignore[assignment]
