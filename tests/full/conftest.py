# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bare hosts for the long tests, created for each file of tests and removed after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed import hosts
from tests.system.support import playbook

INVENTORY = "tests/full/hosts.yml"


@pytest.fixture(scope="module", autouse=True)
def full_hosts() -> Iterator[None]:
    """full-deb12 and full-deb13, bare."""
    hosts.prepare_workspace()
    testbed = {"GPU_FLEET_TESTBED_INVENTORY": "full"}
    made = playbook("testbed/playbooks/create.yml", inventory=INVENTORY, env=testbed)
    assert made.status == 0, made.output[-4000:]
    yield
    removed = playbook("testbed/playbooks/destroy.yml", inventory=INVENTORY, env=testbed)
    assert removed.status == 0, removed.output[-4000:]
