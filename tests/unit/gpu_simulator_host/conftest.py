# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all tests of the host share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is cut during these tests: waiting for the disk at each write would be most of their time."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
