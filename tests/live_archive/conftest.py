# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive's lists, which are read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live_archive.archive import lists_of


@pytest.fixture(scope="session")
def lists(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of apt's lists, and where it is from."""
    return lists_of(tmp_path_factory.mktemp("lists"))
