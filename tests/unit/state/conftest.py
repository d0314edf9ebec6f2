# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of gpu_state share."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._state import service_files


@pytest.fixture(scope="session", autouse=True)
def _imports_parsed_once() -> Iterator[None]:
    """Let gpu_state parse each module of the boot program once: its source does not change between two runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service_files, "imported", functools.cache(service_files.imported))
        yield
