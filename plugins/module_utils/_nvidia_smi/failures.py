# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reason and message for a failed call of nvidia-smi. Private to this collection."""

from __future__ import annotations

import errno
import os

from .._common.runner import CommandResult

# The exit status is an NVML status: https://docs.nvidia.com/deploy/nvidia-smi/ section "Return value".
_BY_STATUS = {
    4: "permission_denied",
    8: "insufficient_power",
    9: "not_loaded",
    12: "library_missing",
    15: "gpu_lost",
    18: "version_mismatch",
}
_BY_TEXT = (
    ("couldn't communicate with the nvidia driver", "not_loaded"),
    ("driver not loaded", "not_loaded"),
    ("version mismatch", "version_mismatch"),
    ("couldn't find libnvidia-ml", "library_missing"),
    ("nvml shared library", "library_missing"),
    ("insufficient permissions", "permission_denied"),
    ("insufficient external power", "insufficient_power"),
    ("insufficiently powered", "insufficient_power"),
    ("no devices were found", "no_gpu"),
    ("no devices found", "no_gpu"),
    ("no supported gpus", "no_gpu"),
    ("gpu is lost", "gpu_lost"),
)
_QUOTED_CHARACTERS = 500

FATAL = frozenset(("no_driver", "not_loaded", "library_missing", "version_mismatch", "permission_denied"))
"""Permanent reasons: another call of the same nvidia-smi has the same result."""


def explain(result: CommandResult) -> tuple[str, str]:
    """Why a call has no usable output: (reason, message that quotes its output)."""
    program = result.argv[0]
    if result.start_error == errno.ENOENT:
        return "no_driver", f"{program} is not installed"
    if result.start_error is not None:
        reason = "permission_denied" if result.start_error in (errno.EACCES, errno.EPERM) else "failed"
        return reason, f"{program} cannot be started: {os.strerror(result.start_error)}"
    if result.timed_out:
        return "timeout", f"{program} did not respond in {result.seconds:.1f} seconds and was ended"
    if result.too_large:
        return "too_large", f"{program} printed more than can be real and was ended"
    message = " ".join((result.text + " " + result.error_text).split())[:_QUOTED_CHARACTERS]
    named = reason_in(message)
    if named is not None:
        return named, message
    if result.rc in _BY_STATUS:
        return _BY_STATUS[result.rc], message
    return "failed", f"{program} ended with {result.rc}: {message or 'no output'}"


def reason_in(output: str) -> str | None:
    """The reason that an error message of nvidia-smi names; None where it names none."""
    lowered = output.lower()
    return next((reason for text, reason in _BY_TEXT if text in lowered), None)
