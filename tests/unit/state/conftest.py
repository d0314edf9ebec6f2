# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the boot program share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.state.state_host import DECLARED, StateHost, in_this_process


@pytest.fixture(params=DECLARED)
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateHost]:
    """A newly booted host with two GPUs and a saved plan; the boot program has not run yet."""
    made = StateHost.with_gpus(tmp_path, request.param, request.param)
    with in_this_process(monkeypatch, made):
        run = made.state_run(reset="if_required", **DECLARED[request.param])
        assert run.error is None, run.error
        made.calls = []
        yield made
