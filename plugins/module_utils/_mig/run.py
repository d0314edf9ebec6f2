# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of the module mig_profile, from its options to its result. Private to this collection."""

from __future__ import annotations

import contextlib
from typing import Any, Mapping

from .._common.boot_cache import BootCache
from .._common.errors import ChangeError, RunError
from .._common.lock import LOCK, host_lock
from .._nvidia_smi.blockers import blockers_of
from .._nvidia_smi.client import RetryPolicy, Smi
from .converge import ConvergeError, Convergence, Options, Outcome
from .observe import Observer
from .report import report
from .rules import parse_rules

CACHE_FILE = "/run/gpu-fleet/mig.json"


def run(options: Mapping[str, Any], check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """Apply the module's `options`; raises RunError.

    Returns the module's result, with `warnings` for users in addition.
    """
    retry_policy = RetryPolicy(timeout=options["timeout"], retries=options["retries"])
    smi = Smi(options["executable"], retry_policy)
    convergence: Convergence | None = None
    outcome = Outcome((), False, failed=True)
    failure: ChangeError | None = None
    try:
        convergence = Convergence(
            rules=parse_rules(options),
            smi=smi,
            # Check mode writes nothing, not even the cache.
            observer=Observer(smi, BootCache(CACHE_FILE, is_read_only=check_mode)),
            find_blockers=blockers_of,
            options=Options(
                check_mode=check_mode,
                force=options["force"],
                may_reset=options["reset"] == "if_required",
                skip_unsupported=options["on_unsupported"] == "skip",
            ),
        )
        lock = contextlib.nullcontext() if check_mode else host_lock(LOCK, options["lock_timeout"])
        with lock:
            outcome = convergence.run()
    except ConvergeError as error:
        failure, outcome = error, error.outcome
    except ChangeError as error:
        failure = error
    result = report(outcome, smi.commands, check_mode, with_diff)
    result["warnings"] = list(convergence.warnings) if convergence is not None else []
    if failure is not None:
        raise RunError(str(failure), result) from failure
    return result
