# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One root of apt for each release; a test sets the packages that its host has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.real_indexes.apt_root import AptRoot, stanzas_of


@pytest.fixture(scope="session")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], AptRoot]:
    """The root of apt for a release, made on first use; without installed packages."""
    known: dict[str, AptRoot] = {}

    def root(release: str) -> AptRoot:
        if release not in known:
            known[release] = AptRoot(tmp_path_factory.mktemp(release), stanzas_of(release))
        known[release].install()
        return known[release]

    return root
