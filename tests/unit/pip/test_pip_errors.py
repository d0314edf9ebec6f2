# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pip printed where it failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._pip import pip_errors

FIXTURES = Path(__file__).parent / "fixtures"
"""Outputs of pip 25.1.1, Debian 13's."""


@pytest.mark.parametrize(
    ("output", "errors"),
    [
        ("hash", ["six==1.17.0 has another hash than the one in the requirements"]),
        (
            "certificate",
            [
                "Could not fetch URL https://pypi.org/simple/six/: There was a problem confirming the ssl certificate",
                "No matching distribution found for six==1.17.0",
            ],
        ),
        ("version", ["No matching distribution found for six==99.0"]),
    ],
)
def test_why_pip_failed_is_named(output: str, errors: list[str]) -> None:
    assert pip_errors((FIXTURES / f"{output}.txt").read_text()) == tuple(errors)


def test_the_requirements_have_the_name_of_the_variable() -> None:
    errors = pip_errors((FIXTURES / "hash.txt").read_text(), "backend_ai_agent_requirements")
    assert errors == ("six==1.17.0 has another hash than the one in backend_ai_agent_requirements",)
