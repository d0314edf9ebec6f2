# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule scenarios, as a team would run them: check on bare hosts, converge, idempotence, verify, real reboot."""

from __future__ import annotations

from bed import settings
from tests.bed.support import run


def test_every_scenario_passes() -> None:
    # Left-overs of an interrupted run would make molecule skip what it believes to be done.
    run(["molecule", "reset"])
    result = run(["molecule", "test", "--all", "--report"], env={"NO_COLOR": "1"})
    (settings.LOGS / "molecule.log").write_text(result.output, encoding="utf-8")
    assert result.status == 0, result.output[-6000:]
