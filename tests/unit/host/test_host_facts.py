# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""host_facts: the facts of setup, and the prediction of gpu_state, in its one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.facts import ansible_collector, default_collectors
from ansible_collections.gpu.fleet.plugins.module_utils._host import facts
from ansible_collections.gpu.fleet.plugins.module_utils._state import module as state_module
from ansible_collections.gpu.fleet.plugins.modules import gpu_state, host_facts

from tests.unit.module_runs import run_module
from tests.unit.state.state_host import StateHost, in_this_process

SUBSETS = ["!all", "!min", "distribution", "platform", "user"]
"""The parts of setup that module_utils/_host/system.py states."""


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A simulated host for gpu_state."""
    host = StateHost.with_gpus(tmp_path, "h200", "h200")
    with in_this_process(monkeypatch, host):
        yield


def test_the_facts_about_the_system_are_those_of_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_module(host_facts, monkeypatch, {"gather": ["system"]})["ansible_facts"]
    collector = ansible_collector.get_ansible_collector(
        all_collector_classes=default_collectors.collectors, gather_subset=SUBSETS
    )
    # None of these starts a program on Linux, which would need a module.
    expected: dict[str, Any] = collector.collect(module=SimpleNamespace())
    # What was gathered is a fact of setup as well, so that a later play may leave it out; these are too few for that.
    assert set(expected) - {name.removeprefix("ansible_") for name in found} == {"gather_subset", "module_setup"}
    assert found == {f"ansible_{name}": expected[name] for name in expected if f"ansible_{name}" in found}
    assert found["ansible_effective_user_id"] is not None and found["ansible_os_family"]


def test_a_failure_names_what_is_known_of_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host that cannot be read may be one that is not supported."""
    monkeypatch.setattr(host_facts, "HOST", type(host_facts.HOST)(str(tmp_path)))
    monkeypatch.setenv("PATH", str(tmp_path))
    failed = run_module(host_facts, monkeypatch, {"gather": ["system", "packages"]})
    assert failed["failed"] and failed["ansible_facts"]["ansible_distribution"]


@pytest.mark.usefixtures("gpus")
def test_the_prediction_is_the_result_of_gpu_state_in_check_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"power_limit_w": "600", "persistence_mode": True}
    expected = run_module(gpu_state, monkeypatch, options, check=True)
    assert expected["changed"]
    for common in ("diff", "invocation"):
        expected.pop(common, None)
    assert state_module.predict(options) == {**expected, "warnings": []}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"power_limit_w": "9000"}, "power_limit_w: 9000 W is not possible on GPU 0"),
        ({"reset": "always"}, "value of reset must be one of: never, "),
    ],
)
@pytest.mark.usefixtures("gpus")
def test_what_gpu_state_refuses_is_in_the_prediction(options: dict[str, Any], message: str) -> None:
    predicted = state_module.predict(options)
    assert predicted["failed"] and message in predicted["msg"]


@pytest.mark.parametrize(("available", "predicted"), [(True, {"changed": True}), (False, None)])
def test_only_a_driver_that_works_is_asked(
    monkeypatch: pytest.MonkeyPatch, available: bool, predicted: dict[str, Any] | None
) -> None:
    monkeypatch.setattr(facts, "gather", lambda *_arguments: ({"nvidia_smi": {"available": available}}, []))
    monkeypatch.setattr(state_module, "predict", lambda options: {"changed": options == {"ecc": True}})
    found = run_module(host_facts, monkeypatch, {"gather": ["gpus"], "gpu_state": {"ecc": True}})
    assert found["prediction"] == predicted
    assert run_module(host_facts, monkeypatch, {"gather": ["gpus"]})["prediction"] is None
