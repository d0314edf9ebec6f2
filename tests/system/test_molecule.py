# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule scenarios as a team would run them: check on bare hosts, converge, idempotence, verify, real reboot."""

from __future__ import annotations

import pytest

from tests.system.support import molecule_test, scenarios


@pytest.mark.parametrize("scenario", scenarios())
def test_the_scenario_passes(scenario: str) -> None:
    result = molecule_test(scenario)
    assert result.status == 0, result.output[-6000:]
