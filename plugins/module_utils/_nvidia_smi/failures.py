# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reason and message for a failed call of nvidia-smi. Private to this collection."""

from __future__ import annotations

import errno
import os

from .._common.runner import CommandResult

# Exit status of nvidia-smi, which is an NVML status, messages in lower case, and what both mean, of a whole call or in
# place of one GPU; the first that fits counts. Statuses: https://docs.nvidia.com/deploy/nvidia-smi/ section "Return
# value"; messages: nvmlErrorString() of https://docs.nvidia.com/deploy/nvml-api/.
_ERRORS: tuple[tuple[int | None, tuple[str, ...], str], ...] = (
    (9, ("couldn't communicate with the nvidia driver", "driver not loaded"), "not_loaded"),
    (18, ("library version mismatch", "rm version mismatch"), "version_mismatch"),
    (12, ("couldn't find libnvidia-ml", "nvml shared library"), "library_missing"),
    (4, ("insufficient permissions",), "permission_denied"),
    # Of a container or WSL: https://docs.nvidia.com/deploy/nvml-api/, NVML_ERROR_OPERATING_SYSTEM.
    (17, ("blocked by the operating system", "operating system has blocked"), "permission_denied"),
    (8, ("insufficient external power", "insufficiently powered"), "insufficient_power"),
    (None, ("no devices were found", "no devices found", "no supported gpus"), "no_gpu"),
    (15, ("gpu is lost",), "gpu_lost"),
    (16, ("gpu requires reset",), "reset_required"),
)
_BY_STATUS = {status: reason for status, _messages, reason in _ERRORS if status is not None}
STATUS_BY_TEXT = tuple(
    (message, status) for status, messages, _reason in _ERRORS if status is not None for message in messages
)
"""NVML's number of an error by its message, in lower case."""
_OF_GPUS = ("insufficient_power", "permission_denied", "reset_required")
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
    return next((reason for _status, known, reason in _ERRORS if any(message in lowered for message in known)), None)


def code_of(error: str) -> str:
    """The code of `unhealthy` for the error that nvidia-smi prints in place of a GPU."""
    lowered = error.lower()
    if "lost" in lowered:
        return "gpu_lost"
    if "corrupted inforom" in lowered:
        return "inforom_corrupted"
    reason = reason_in(lowered)
    return reason if reason in _OF_GPUS else "gpu_not_responding"
