# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that depend on the driver's version alone."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .shapes import Version

CUDA_VERSIONS = {
    535: "12.2",
    545: "12.3",
    550: "12.4",
    555: "12.5",
    560: "12.6",
    565: "12.7",
    570: "12.8",
    575: "12.9",
    580: "13.0",
    590: "13.1",
    595: "13.2",
    610: "13.3",
    615: "13.4",
}


def parse(version: str) -> Version:
    """Turn ``580.159.04`` into ``(580, 159, 4)``; raises ValueError for an invalid version."""
    return tuple(int(part) for part in version.split("."))


def cuda_version(version: str) -> str:
    """Return the CUDA version that a driver supports, as its nvidia-smi prints it."""
    branch = parse(version)[0]
    return CUDA_VERSIONS[max(known for known in CUDA_VERSIONS if known <= branch)]


def document_type(version: str, subject: str = "device") -> str:
    """Name the DTD of ``-q -x``; the subject is ``device`` or ``unit``."""
    return f"nvsmi_{subject}_v{13 if parse(version)[0] >= 580 else 12}.dtd"


def library_version(version: str) -> str:
    """Return the version that NVML reports of itself: without the last part."""
    return ".".join(version.split(".")[:2])


def versions(version: str) -> list[tuple[str, str]]:
    """Return the lines at the head of ``-q`` that name driver and CUDA; 610 renamed both and keeps the old names."""
    return [(label, value) for _tag, label, value in _version_elements(version)]


def version_tags(version: str) -> list[tuple[str, str]]:
    """Return the elements at the head of ``-q -x`` that name driver and CUDA: tag and value."""
    return [(tag, value) for tag, _label, value in _version_elements(version)]


def _version_elements(version: str) -> list[tuple[str, str, str]]:
    """List tag, label and value of each version at the head of the document."""
    cuda = cuda_version(version)
    old = [("driver_version", "Driver Version", version), ("cuda_version", "CUDA Version", cuda)]
    if parse(version) < (610,):
        return old
    new = [("kmd_version", "KMD Version", version), ("cuda_umd_version", "CUDA UMD Version", cuda)]
    note = "{} [Deprecated; will be removed in CUDA 14.0. Use {} instead]"
    deprecated = [
        (tag, label, note.format(value, label_now)) for (tag, label, value), (_tag, label_now, _same) in zip(old, new)
    ]
    return deprecated + new
