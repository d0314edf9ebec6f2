# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of the demo, created once for all tests that use them."""

from __future__ import annotations

import pytest

from testbed import hosts
from tests.system.support import Result, run


@pytest.fixture(scope="session", autouse=True)
def _workspace() -> None:
    """The directories of this part's workspace."""
    hosts.prepare_workspace()


@pytest.fixture(scope="session")
def demo() -> Result:
    """The first `make demo`, on newly created hosts."""
    removed = run(["ansible-playbook", "-i", "inventories/demo", "testbed/playbooks/destroy.yml"])
    assert removed.status == 0, removed.output
    return run(["make", "demo"])
