# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of the demo, made once for all tests on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bed.support import Result, run


# First, because xdist reads the marks in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on real hosts run one after another, on one worker: two at a time would change each other's hosts."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("bed"))


@pytest.fixture(scope="session")
def demo() -> Result:
    """The first `make demo`, on hosts that did not exist before."""
    removed = run(["ansible-playbook", "-i", "inventories/demo", "bed/playbooks/destroy.yml"])
    assert removed.status == 0, removed.output
    return run(["make", "demo"])
