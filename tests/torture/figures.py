# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of a torture run, for the table at its end, and its random seed."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter

from tests.conftest import EFFORT

IS_QUICK = EFFORT == "quick"
"""A run of a few seconds, as in `make test`."""


def size(quick: int, thorough: int, fuzz: int) -> int:
    """A number that depends on GPU_FLEET_EFFORT: for `make test`, `make test-long` or `make fuzz`."""
    return {"quick": quick, "thorough": thorough, "fuzz": fuzz}[EFFORT]


SEED = int(os.environ.get("GPU_FLEET_TORTURE_SEED") or (1 if IS_QUICK else random.SystemRandom().randrange(10**6)))
"""Printed with the figures; set GPU_FLEET_TORTURE_SEED to it to repeat a run."""

FIGURES: Counter[str] = Counter()


def chance(*name: object) -> random.Random:
    """A random generator for one test: the same for the same seed, independent of other tests."""
    return random.Random(f"{SEED} {name}")


class Defects:
    """Collects defects, so that a run continues to its end and its figures are complete."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def check(self, is_right: bool, text: str) -> bool:
        """Record a defect unless `is_right`."""
        if not is_right:
            FIGURES["defects"] += 1
            self.found.append(text)
        return is_right

    def report(self) -> None:
        """Fail with the first defects and the seed that reproduces them."""
        if self.found:
            print("\n".join(self.found[:10]), file=sys.stderr)
            raise AssertionError(f"{len(self.found)} defects with GPU_FLEET_TORTURE_SEED={SEED}:\n{self.found[0]}")
