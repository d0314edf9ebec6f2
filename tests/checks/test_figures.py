# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is decided in YAML gets less: the planners of roles decide in Python, see docs/architecture.md."""

from __future__ import annotations

import pytest

from tests.checks.figures import LOGIC, count

# Lower a limit with the change that makes less of it. A new playbook may add less than what went before it.
LIMITS = {"computed": 28, "conditional": 4, "long": 10, "logic": 133, "private filters": 6, "plans": 144}


def test_no_more_is_decided_in_yaml_than_before() -> None:
    found = count()
    assert {name: found[name] for name, limit in LIMITS.items() if found[name] > limit} == {}


@pytest.mark.parametrize(
    ("expression", "is_logic"),
    [
        ("{{ plan.packages }}", False),
        ("plan.has_work", False),
        ("{{ 'a' if plan.x else 'b' }}", True),
        ("{{ found | map(attribute='path') }}", True),
        ("{{ names | union(others) }}", True),
        ("found.version is version('12', '>=')", True),
        ("{{ the_map.select_this }}", False),
    ],
)
def test_decisions_are_found_by_their_names(expression: str, is_logic: bool) -> None:
    assert (LOGIC.search(expression) is not None) == is_logic
