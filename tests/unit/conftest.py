# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures shared by the unit tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def corpus() -> Path | None:
    """Outputs of many GPUs and drivers, too big to ship: the directory GPU_FLEET_CORPUS, or one next to the checkout.

    None if it does not exist. A test that reads it also reads shipped fixtures, so that it always tests something.
    """
    named = os.environ.get("GPU_FLEET_CORPUS")
    directory = Path(named) if named else ROOT.parent / "shared" / "corpus"
    if named and not directory.is_dir():
        raise pytest.UsageError(f"GPU_FLEET_CORPUS is {named}, which is not a directory")
    return directory if directory.is_dir() else None
