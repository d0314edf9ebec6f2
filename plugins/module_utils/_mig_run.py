# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of the module mig_profile, from its options to its result. Private to this collection."""

from __future__ import annotations

import contextlib
from typing import Any, Mapping, Sequence

from ._mig_converge import ConvergeError, Convergence, Options, Outcome
from ._mig_holders import Holder, holders
from ._mig_lock import host_lock
from ._mig_memory import Memory
from ._mig_observe import Observer
from ._mig_profiles import MigError
from ._mig_report import report
from ._mig_rules import parse_rules
from ._mig_smi import Patience, Smi
from ._mig_state import GpuState

LOCK = "/run/gpu-fleet/mig.lock"
MEMORY = "/run/gpu-fleet/mig.json"


class RunError(MigError):
    """A failure with the result to return beside the message."""

    def __init__(self, message: str, result: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.result = result


def run(options: Mapping[str, Any], check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """Do what the module's `options` ask for; raises RunError."""
    patience = Patience(timeout=options["timeout"], retries=options["retries"])
    smi = Smi(options["executable"], patience)
    outcome = Outcome((), False, failed=True)
    try:
        rules = parse_rules(options)
        convergence = Convergence(
            rules=rules,
            smi=smi,
            # Check mode leaves no trace, not even a remembered list.
            observer=Observer(smi, Memory(MEMORY, is_read_only=check_mode)),
            find_holders=find_holders,
            options=Options(
                check_mode=check_mode,
                force=options["force"],
                may_reset=options["reset"] == "if_required",
                skip_unsupported=options["unsupported"] == "skip",
            ),
        )
        lock = contextlib.nullcontext() if check_mode else host_lock(LOCK, options["lock_timeout"])
        with lock:
            outcome = convergence.run()
    except ConvergeError as error:
        raise RunError(str(error), report(error.outcome, smi.commands, check_mode, with_diff)) from error
    except MigError as error:
        raise RunError(str(error), report(outcome, smi.commands, check_mode, with_diff)) from error
    return report(outcome, smi.commands, check_mode, with_diff)


def find_holders(gpu: GpuState) -> Sequence[Holder]:
    """What holds the device file of a GPU, or is known to nvidia-smi as its process."""
    processes = ((item.pid, item.name or "a process") for item in gpu.gpu.processes or () if item.pid is not None)
    return holders(gpu.gpu.hardware.minor_number, processes)
