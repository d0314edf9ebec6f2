# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of CUDA and cuDNN, and what they need. Private to this collection.

Data only. A version that is not in here is unknown, which is never a reason to refuse.
"""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source

_RELEASE_NOTES = Source("https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/", "2026-11-21")
_FORWARD = Source("https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html", "2026-11-21")
_REDISTRIBUTED = Source(
    "https://developer.download.nvidia.com/compute/nvidia-driver/redist/redistrib_620.70.06.json", "2026-11-24"
)
_CUDNN_MATRIX = Source(
    "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/reference/support-matrix.html", "2026-11-21"
)


@dataclass(frozen=True)
class Cuda:
    """A version of CUDA: the driver with which all of its functions work, and the newest gcc that its nvcc accepts."""

    version: str
    driver: str
    gcc: int | None = None
    source: Source = _RELEASE_NOTES


# Drivers: the table "CUDA Toolkit and Corresponding Driver Versions" of the release notes (there was no 12.7). The
# branches of 13.2 to 13.4 are from the page on forward compatibility, that of 13.5 is the one whose cuda_compat is for
# 13.5.
# gcc: table "Host Compiler Support Policy" of
# https://docs.nvidia.com/cuda/archive/<version>/cuda-installation-guide-linux/ (11.4: as of its first update), as
# enforced in crt/host_config.h ("gcc versions later than N are not supported"); 13.4 and 13.5 from that file of
# nvidia-cuda-crt 13.4.92 and 13.5.37 on PyPI, read 2026-11-23.
CUDA = (
    Cuda("7.0", "346.46"),
    Cuda("7.5", "352.31"),
    Cuda("8.0", "367.48", 5),
    Cuda("9.0", "384.81", 6),
    Cuda("9.1", "387.26", 6),
    Cuda("9.2", "396.26", 7),
    Cuda("10.0", "410.48", 7),
    Cuda("10.1", "418.39", 8),
    Cuda("10.2", "440.33", 8),
    Cuda("11.0", "450.36.06", 9),
    Cuda("11.1", "455.23", 10),
    Cuda("11.2", "460.27.03", 10),
    Cuda("11.3", "465.19.01", 10),
    Cuda("11.4", "470.42.01", 11),
    Cuda("11.5", "495.29.05", 11),
    Cuda("11.6", "510.39.01", 11),
    Cuda("11.7", "515.43.04", 11),
    Cuda("11.8", "520.61.05", 11),
    Cuda("12.0", "525.60.13", 12),
    Cuda("12.1", "530.30.02", 12),
    Cuda("12.2", "535.54.03", 12),
    Cuda("12.3", "545.23.06", 12),
    Cuda("12.4", "550.54.14", 13),
    Cuda("12.5", "555.42.02", 13),
    Cuda("12.6", "560.28.03", 13),
    Cuda("12.8", "570.26", 14),
    Cuda("12.9", "575.51.03", 14),
    Cuda("13.0", "580.65.06", 15),
    Cuda("13.1", "590.44.01", 15),
    Cuda("13.2", "595", 15, source=_FORWARD),
    Cuda("13.3", "610", 15, source=_FORWARD),
    Cuda("13.4", "615", 16, source=_FORWARD),
    Cuda("13.5", "620", 16, source=_REDISTRIBUTED),
)

DRIVER_OF_CUDA = {cuda.version: cuda.driver for cuda in CUDA}
NEWEST_GCC = {cuda.version: cuda.gcc for cuda in CUDA if cuda.gcc is not None}

# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
# Up to CUDA 10 each version needs its own driver; from 11 on a whole series needs the driver of its first version.
DRIVER_OF_SERIES = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

FIRST_FORWARD_COMPATIBLE_CUDA = "12.2"
"""The first in the table of packages cuda-compat-X-Y: the page on forward compatibility."""


@dataclass(frozen=True)
class Cudnn:
    """A range of cuDNN versions, both ends included: CUDA versions or series, and the oldest compute capability."""

    first: str
    last: str
    cuda: tuple[str, ...]
    oldest_capability: str
    source: Source = _CUDNN_MATRIX


# Older ones: https://docs.nvidia.com/deeplearning/cudnn/archives/. The series of 8.8 and newer agree with what is
# published at https://pypi.org/project/nvidia-cudnn-cu11/ (until 9.10), -cu12 (from 8.8) and -cu13 (from 9.12).
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
