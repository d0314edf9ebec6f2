# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule scenarios as a team would run them: check on bare hosts, converge, idempotence, verify, real reboot."""

from __future__ import annotations

import pytest

from tests.checks.controllers import controllers
from tests.system.support import molecule, molecule_test, scenarios


@pytest.mark.parametrize("scenario", scenarios())
def test_the_scenario_passes(scenario: str) -> None:
    if scenario != "site":
        result = molecule_test(scenario)
        assert result.status == 0, result.output[-6000:]
        return
    # From bare hosts twice: until nothing changes with the oldest ansible-core that runs here, wholly with the newest.
    own, *others = controllers()
    oldest, newest = (others[0], others[-1]) if others else (own, own)
    result = molecule("converge", scenario, controller=oldest)
    assert result.status == 0, result.output[-6000:]
    result = molecule_test(scenario, newest)
    assert result.status == 0, result.output[-6000:]
