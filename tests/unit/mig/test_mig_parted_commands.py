# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Equivalents of mig-parted's --mode-only, --skip-reset and assert, with documents in its format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.modules import mig_profile
from gpu_simulator.state import store
from jinja2 import Environment

from tests.unit.mig.mig_host import DRIVERS, SimulatedHost, names

ROOT = Path(__file__).resolve().parents[3]


def _document(*entries: tuple[Any, bool, dict[str, int]]) -> dict[str, Any]:
    fields = ("devices", "mig-enabled", "mig-devices")
    return {"version": "v1", "mig-configs": {"one": [dict(zip(fields, entry, strict=True)) for entry in entries]}}


def _modes(host: SimulatedHost) -> list[tuple[bool, bool]]:
    return [(gpu["mig_mode"]["current"], gpu["mig_mode"]["pending"]) for gpu in host.state["gpus"]]


def _in_passthrough(host: SimulatedHost) -> None:
    with store.transaction(str(host.root)) as state:
        state["host"]["virtualization"] = "Pass-Through"


@pytest.mark.parametrize("driver", DRIVERS)
def test_mode_only_leaves_the_instances_as_they_are(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", "h100_80gb", "h100_80gb", "t4", driver=driver, mig=False)
    host.run(gpus=["0", "2"], profiles={"1g.10gb": 3})
    before = [host.layout(0), host.layout(2)]
    document = _document(([0], True, {"3g.40gb": 2}), ([1], True, {"1g.10gb": 7}), ([2], False, {}), ([3], False, {}))
    predicted = host.run(config=document, mode_only=True, check=True)
    assert predicted.error is None and predicted.changes == [] and [host.layout(0), host.layout(2)] == before
    run = host.run(config=document, mode_only=True)
    assert run.error is None, run.error
    assert [gpu["status"] for gpu in run.result["gpus"]] == ["unchanged", "changed", "changed", "skipped"]
    assert [gpu["status"] for gpu in predicted.result["gpus"]] == [gpu["status"] for gpu in run.result["gpus"]]
    assert [gpu["mig_mode"] and gpu["mig_mode"]["current"] for gpu in host.state["gpus"]] == [True, True, False, None]
    # Disabling the mode destroys the instances; enabling it creates none.
    assert [host.layout(index) for index in range(3)] == [before[0], {}, {}]
    assert host.run(config=document, mode_only=True).changes == []
    # The layout of the document has not been applied yet.
    assert host.run(config=document, check=True).result["changed"] is True
    assert host.run(config=document).error is None and names(host.layout(1)) == {"1g.10gb": 7}


@pytest.mark.parametrize(
    "request_",
    [{"profiles": ["3g.71gb"] * 2}, {"layouts": [{"gpus": ["0"], "enabled": True, "profiles": ["7g.141gb"]}]}],
)
def test_mode_only_works_with_our_own_layouts(tmp_path: Path, request_: dict[str, Any]) -> None:
    host = SimulatedHost.make(tmp_path, "h200", mig=False)
    host.run(profiles={"1g.18gb": 2})
    before = host.layout()
    run = host.run(mode_only=True, **request_)
    assert run.error is None and run.changes == [] and host.layout() == before
    host.run(enabled=False)
    run = host.run(mode_only=True, **request_)
    assert run.error is None and _modes(host) == [(True, True)] and not host.layout()


def test_mistakes_of_the_document_are_found_all_the_same(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200", mig=False)
    run = host.run(config=_document(("all", True, {"3g": 1})), mode_only=True)
    assert run.error is not None and "'3g'" in run.error and run.changes == []


def test_never_is_skip_reset_from_a_document(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", "a100_40gb", mig=False)
    _in_passthrough(host)
    document = _document(("all", True, {"1g.5gb": 2}))
    for changed, mode_only in ((True, True), (False, True), (False, False)):
        run = host.run(config=document, mode_only=mode_only)
        assert run.error is None and run.result["changed"] is changed
        assert not any("--gpu-reset" in call for call in run.calls)
        assert [gpu["status"] for gpu in run.result["gpus"]] == ["pending"] * 2 and run.result["reset_required"]
    assert _modes(host) == [(False, True)] * 2
    with store.transaction(str(host.root)) as state:
        for gpu in state["gpus"]:
            gpu["mig_mode"] = {"current": True, "pending": True}
    assert host.run(config=document).error is None
    assert [names(host.layout(index)) for index in (0, 1)] == [{"1g.5gb": 2}] * 2


def test_if_required_resets_what_a_document_left_pending(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", "a100_40gb", "a100_40gb", mig=False)
    with store.transaction(str(host.root)) as state:
        for gpu in state["gpus"][1:]:
            gpu["mig_mode"] = {"current": False, "pending": True}
    document = _document(([0, 1], True, {"1g.5gb": 2}))
    run = host.run(config=document, mode_only=True, reset=True)
    assert run.error is None
    assert [call for call in run.calls if "--gpu-reset" in call] == [
        ["--gpu-reset", "-i", host.state["gpus"][1]["uuid"]]
    ]
    assert _modes(host) == [(True, True), (True, True), (False, True)]
    assert not any(host.layout(index) for index in range(3))


def _is_failed(condition: str, run: Any) -> bool:
    """Evaluate the condition as Ansible does."""
    result = {**run.result, "failed": run.error is not None}
    environment = Environment(autoescape=False)
    environment.tests.update(failed=lambda item: item["failed"], changed=lambda item: item["changed"])
    return bool(environment.compile_expression(condition)(mig=result))


def _conditions() -> list[str]:
    """The condition of each documented assertion."""
    (example,) = (task for task in yaml.safe_load(mig_profile.EXAMPLES) if "failed_when" in task)
    assert example["check_mode"] is True and example["register"] == "mig"
    found = re.findall(r"failed_when: (.*)", (ROOT / "docs" / "mig.md").read_text(encoding="utf-8"))
    assert found
    return [example["failed_when"], *found]


@pytest.mark.parametrize("condition", _conditions())
def test_assertion_of_a_layout(tmp_path: Path, condition: str) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", "a100_40gb", "t4")
    document = _document(("all", True, {"1g.5gb": 2, "2g.10gb": 1}))
    asked: dict[str, Any] = {"config": document, "check": True}
    assert _is_failed(condition, host.run(**asked))
    host.run(config=document)
    blank = host.snapshot()
    assert not _is_failed(condition, host.run(**asked))
    # Also if only the mode is requested.
    assert not _is_failed(condition, host.run(**asked, mode_only=True))
    host.call("mig", "-i", "1", "-dci")
    assert _is_failed(condition, host.run(**asked))
    host.call("mig", "-i", "1", "-dgi")
    assert _is_failed(condition, host.run(**asked))
    assert not _is_failed(condition, host.run(**asked, mode_only=True))
    host.restore(blank)
    with store.transaction(str(host.root)) as state:
        state["gpus"][0]["gpu_instances"] = []
        state["gpus"][0]["mig_mode"] = {"current": False, "pending": True}
    # Nothing to change, but the mode is not in effect yet.
    assert host.run(**asked, mode_only=True).result["changed"] is False
    assert _is_failed(condition, host.run(**asked, mode_only=True))
    assert _is_failed(condition, host.run(config=_document(("all", True, {"9g.5gb": 1})), check=True))
    assert host.run(**asked).changes == []
