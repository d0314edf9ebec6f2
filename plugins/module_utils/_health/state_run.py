# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_state, which keeps evidence of a fault before it has a GPU reset. Private to this collection."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Mapping

from .._state.run import StateRun
from .evidence import NEVER
from .run import preserve


def run(options: Mapping[str, Any], check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """Apply the module's `options`; raises RunError."""

    def keep() -> Mapping[str, Any]:
        mode, directory = options["evidence"], options["evidence_directory"]
        return asdict(preserve(options["executable"], options["timeout"], mode, directory))

    state = StateRun(options, check_mode, with_diff)
    state.preserve = None if options["evidence"] == NEVER else keep
    return state.run()
