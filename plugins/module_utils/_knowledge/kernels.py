# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers whose kernel modules are known not to build on a kernel. Private to this collection.

Data only. A kernel or a driver that is not in here is tried: most of them build.
"""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source


@dataclass(frozen=True)
class KernelFailure:
    """A branch whose drivers before `fixed_in` do not build on kernels that begin with `kernel`; None: none does."""

    branch: int
    kernel: str
    fixed_in: str | None
    source: Source


KERNEL_FAILURES = (
    # 5.14 of Enterprise Linux 9.8, with what Red Hat took from later kernels; NVIDIA no longer changes 575.
    KernelFailure(
        575, "5.14.0-687.", None, Source("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1176", "2026-11-24")
    ),
    # 580.126.18 fails, 580.142 is in use on 7.0.12 (the source of the next row).
    KernelFailure(
        580, "7.0.", "580.142", Source("https://github.com/void-linux/void-packages/issues/60171", "2026-11-24")
    ),
    # 580.142 fails; NVIDIA's notes of 580.159.04 have the repair.
    KernelFailure(
        580, "7.1.", "580.159.04", Source("https://github.com/void-linux/void-packages/issues/61087", "2026-11-24")
    ),
    # The same VMA_LOCK_OFFSET in the first versions of 595; 595.58.03 asks for it. Ubuntu 26.04 has 580.178.04, 595 and
    # 615 for its kernel 7.0: https://packages.ubuntu.com/resolute/linux-modules-nvidia-580-generic, read 2026-11-29.
    KernelFailure(
        595, "7.0.", "595.58.03", Source("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1113", "2026-11-29")
    ),
    # 590.48.01 fails on 7.0-rc1 and on 7.0.0. Kernel 7.0 has no VMA_LOCK_OFFSET, which modules before 580.142 and
    # 595.58.03 use (issue 1113 there); NVIDIA no longer changes 590.
    KernelFailure(
        590, "7.0.", None, Source("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1041", "2026-11-25")
    ),
)
