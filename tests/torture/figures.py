# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a torture run counted, for the table at its end; and where its chance comes from."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter

from tests.conftest import EFFORT

IS_QUICK = EFFORT == "quick"
"""A slice of seconds, as in `make test`."""

SEED = int(os.environ.get("GPU_FLEET_TORTURE_SEED") or (1 if IS_QUICK else random.SystemRandom().randrange(10**6)))
"""Printed with the figures; named in GPU_FLEET_TORTURE_SEED, a run does the same again."""

FIGURES: Counter[str] = Counter()


def chance(*name: object) -> random.Random:
    """A source of chance for one test: the same for the same seed, whatever other tests run."""
    return random.Random(f"{SEED} {name}")


class Defects:
    """Collects what is wrong, so that a run goes on to its end and the figures are whole."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def check(self, is_right: bool, text: str) -> bool:
        """Note a defect where something is not right."""
        if not is_right:
            FIGURES["defects"] += 1
            self.found.append(text)
        return is_right

    def report(self) -> None:
        """Fail with the first defects, and how to see them again."""
        if self.found:
            print("\n".join(self.found[:10]), file=sys.stderr)
            raise AssertionError(f"{len(self.found)} defects with GPU_FLEET_TORTURE_SEED={SEED}:\n{self.found[0]}")
