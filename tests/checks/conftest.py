# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive of the collection, and summary lines of the checks: versions used, what this machine could not test."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from testbed import release
from tests.checks.tools import VENV
from tests.conftest import REPORT


class Reported(Protocol):
    """Add a line to the summary at the end of the run, also from a worker of pytest-xdist."""

    def __call__(self, topic: str, text: str) -> None:
        """Add one line of text under this topic."""


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive that `make release` creates."""
    return release.build_archive(VENV / "bin" / "ansible-galaxy", tmp_path_factory.mktemp("archive"))


@pytest.fixture
def reported(request: pytest.FixtureRequest) -> Reported:
    """A function that adds to the summary what a test did or could not do."""

    def describe(topic: str, text: str) -> None:
        request.node.user_properties.append((REPORT + topic, text))

    return describe
