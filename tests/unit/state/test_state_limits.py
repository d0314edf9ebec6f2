# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The `gpus` of gpu_state limit all declared state, now and in the plan for the next boot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._state.service_files import PLAN_FILE

from tests.unit.state.state_host import StateHost, in_this_process

DOCUMENT = {
    "version": "v1",
    "mig-configs": {"halves": [{"devices": "all", "mig-enabled": True, "mig-devices": {"3g.71gb": 2}}]},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "mig-parted": {"mig": DOCUMENT},
    "mig-parted by name": {"mig": "halves", "mig_layouts": DOCUMENT},
    "layouts for all": {"mig": [{"gpus": ["all"], "profiles": ["3g.71gb", "3g.71gb"]}]},
    "layouts for each": {"mig": [{"gpus": ["0"], "profiles": ["3g.71gb"] * 2}, {"gpus": ["1"], "enabled": False}]},
    "off": {"mig": [{"gpus": ["0", "1"], "enabled": False}]},
}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateHost]:
    """A host with two H200."""
    made = StateHost.with_gpus(tmp_path, "h200", "h200")
    with in_this_process(monkeypatch, made):
        yield made


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_no_instance_outside_of_the_limit_is_touched(host: StateHost, request_: dict[str, Any]) -> None:
    host.call("-i", "1", "-mig", "1")
    host.call("mig", "-i", "1", "-cgi", "9,14", "-C")
    before = host.gpu(1)
    for check in (True, False):
        run = host.state_run(check=check, gpus=["0"], **request_)
        assert run.error is None and [row["index"] for row in run.result["mig"]] == [0]
        assert host.gpu(1) == before
    uuids = [gpu["uuid"] for gpu in json.loads(host.path(PLAN_FILE).read_text())["gpus"]]
    assert uuids == [host.gpu(0)["uuid"]]


def test_a_converged_host_is_still_warned_of_entries_that_match_no_gpu(host: StateHost) -> None:
    declared: dict[str, Any] = {
        "persistence_mode": True,
        "mig": [{"gpus": ["0"], "profiles": []}, {"gpus": ["7"], "profiles": []}],
    }
    for _run in range(2):
        run = host.state_run(**declared)
        assert run.error is None
        assert [text for text in run.result["warnings"] if "'7'" in text] == run.result["warnings"] != []
        assert len(run.result["warnings"]) == 1


def test_an_empty_limit_is_refused_by_name(host: StateHost) -> None:
    before = host.snapshot()
    run = host.state_run(gpus=[], persistence_mode=True)
    assert run.error is not None and run.error.startswith("gpus is empty") and host.state == before
