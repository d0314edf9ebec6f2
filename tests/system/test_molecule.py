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
    # The scenario of all roles runs with the newest ansible-core here, the others with that of this environment.
    result = molecule_test(scenario, controllers()[-1]) if scenario == "site" else molecule_test(scenario)
    assert result.status == 0, result.output[-6000:]


@pytest.mark.parametrize("scenario", ["site"])
def test_the_scenario_converges_with_the_oldest_ansible_core(scenario: str) -> None:
    """From bare hosts until nothing changes."""
    own, *others = controllers()
    result = molecule("converge", scenario, controller=others[0] if others else own)
    assert result.status == 0, result.output[-6000:]
