# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checks say at the end of a run: which versions they used, and what this machine could not test."""

from __future__ import annotations

from typing import Protocol

import pytest
from _pytest.terminal import TerminalReporter

_PREFIX = "told: "


class Told(Protocol):
    """Say something of a topic at the end of the run, also from a worker of pytest-xdist."""

    def __call__(self, topic: str, text: str) -> None:
        """Keep one line of text for this topic."""


@pytest.fixture
def told(request: pytest.FixtureRequest) -> Told:
    """A function to tell, at the end of the run, what a test did or could not do."""

    def tell(topic: str, text: str) -> None:
        request.node.user_properties.append((_PREFIX + topic, text))

    return tell


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print what the tests have told."""
    lines = {
        f"{name[len(_PREFIX) :]}: {text}"
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name.startswith(_PREFIX)
    }
    if lines:
        terminalreporter.section("checks")
        for line in sorted(lines):
            terminalreporter.line(line)
