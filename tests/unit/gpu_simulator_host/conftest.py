# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of the tests of the host."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: no power is cut during these tests, and it would take most of their time."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
