# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of the module mig_profile, from its options to its result. Private to this collection."""

from __future__ import annotations

from typing import Any, Mapping

from .._change.context import Access, access
from .._change.engine import locked
from .converge import ConvergeError, Convergence, MigOptions, Outcome
from .observe import Observer
from .report import report
from .rules import parse_rules

CACHE_FILE = "/run/gpu-fleet/mig.json"


def run(options: Mapping[str, Any], check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """Apply the module's `options`; raises RunError.

    Returns the module's result, with `warnings` for users in addition.
    """
    return converge(options, access(options, CACHE_FILE, check_mode), check_mode, with_diff)


def converge(options: Mapping[str, Any], host: Access, check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """The run on a given host; see `run`."""
    convergence: Convergence | None = None
    outcome = Outcome((), False, failed=True)

    def work() -> None:
        nonlocal convergence, outcome
        flags = MigOptions(
            check_mode=check_mode,
            force=options["force"],
            may_reset=options["reset"] == "if_required",
            skip_unsupported=options["on_unsupported"] == "skip",
        )
        observer = Observer(host.smi, host.cache)
        convergence = Convergence(parse_rules(options), host.smi, observer, host.find_blockers, flags)
        try:
            outcome = convergence.run()
        except ConvergeError as error:
            outcome = error.outcome
            raise

    def result() -> dict[str, Any]:
        warnings = list(convergence.warnings) if convergence is not None else []
        return {**report(outcome, host.smi.commands, check_mode, with_diff), "warnings": warnings}

    return locked(host, work, result)
