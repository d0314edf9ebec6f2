# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lost GPU at each place of a simulated host: every module that changes GPUs ends, and serves the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change import reset_run
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import RunError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._ecc import run as ecc_run
from ansible_collections.gpu.fleet.plugins.module_utils._mig import run as mig_run
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import pci as pci_bus
from ansible_collections.gpu.fleet.plugins.module_utils._settings import run as settings_run
from ansible_collections.gpu.fleet.plugins.modules import ecc_mode, gpu_reset, gpu_settings, mig_profile
from gpu_simulator.control import command as control
from gpu_simulator.state import reset, store

from tests.unit.nvidia_smi.test_lost_gpus import FORMS, PROBLEM, TooManyCallsError
from tests.unit.state.state_host import StateHost, in_this_process

COUNT = 8
MOST_CALLS = 150
Work = Callable[[Mapping[str, Any], bool, bool], dict[str, Any]]
MODULES: dict[str, tuple[Any, Work, dict[str, Any]]] = {
    "mig_profile": (mig_profile, mig_run.run, {"profiles": ["1g.18gb", "1g.18gb"]}),
    "gpu_settings": (gpu_settings, settings_run.run, {"power_limit_w": "500", "persistence_mode": True}),
    "ecc_mode": (ecc_mode, ecc_run.run, {"enabled": False}),
    "gpu_reset": (gpu_reset, reset_run.run, {}),
}


class Lines:
    """What nvidia-smi prints about lost GPUs, and no more calls than there may be."""

    def __init__(self, form: str) -> None:
        self.calls = 0
        self._form = form

    def __call__(self, arguments: Sequence[str], reply: Callable[[], CommandResult]) -> CommandResult:
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise TooManyCallsError
        result = reply()
        if self._form != PROBLEM:
            return result
        index = arguments[-1] if arguments[-2:-1] == ["-i"] and arguments[-1].isdecimal() else None
        text = result.text
        if index is not None and int(index) >= COUNT:
            text = f"Problem with GPU {index}: GPU is lost\n"
        elif result.rc == 15:
            text = text.replace("Unable to determine the device handle for GPU", "Problem with GPU ")
            text = text.replace("Unable to determine the device handle for gpu", "Problem with GPU")
        else:
            return result
        return CommandResult(result.argv, 255, text.encode(), b"", 0.01)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateHost]:
    """A host with eight GPUs, on which this process runs modules."""
    monkeypatch.setattr(pci_bus, "DRIVEN", str(tmp_path / "none"))
    made = StateHost.with_gpus(tmp_path, *["h200"] * COUNT)
    with in_this_process(monkeypatch, made):
        yield made


def lose(host: StateHost, place: int) -> None:
    assert control.main(["fault", "lost", "--gpu", str(place)], str(host.root)) == 0


def options_of(module: Any, **given: Any) -> dict[str, Any]:
    """The options of a module as Ansible hands them over."""
    defaults = {name: option.get("default") for name, option in module.ARGUMENT_SPEC.items()}
    return {**defaults, **given}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("place", range(COUNT))
def test_a_module_ends_and_serves_the_others(
    host: StateHost, monkeypatch: pytest.MonkeyPatch, form: str, name: str, place: int
) -> None:
    module, run, declared = MODULES[name]
    monkeypatch.setattr(Systemd, "show", lambda _self, _names: {})
    healthy = [host.gpu(index)["uuid"] for index in range(COUNT) if index != place]
    lost = host.gpu(place)["uuid"]
    lose(host, place)
    others = options_of(module, gpus=healthy, **declared)
    host.intercept = lines = Lines(form)
    result = run(others, False, False)
    assert result["changed"] and lines.calls <= MOST_CALLS
    if name != "gpu_reset":
        host.intercept = Lines(form)
        assert not run(others, False, False)["changed"]
    for index in (index for index in range(COUNT) if index != place):
        gpu = host.gpu(index)
        if name == "mig_profile":
            assert len(gpu["gpu_instances"]) == 2
        elif name == "gpu_settings":
            assert (gpu["power_limit_w"], gpu["persistence_mode"]) == (500, True)
        elif name == "ecc_mode":
            assert gpu["ecc_mode"]["pending"] is False
    # The lost one itself is refused by name, and nothing else is touched.
    before = host.snapshot()
    for chosen in ([lost], [str(place)], ["all"]):
        host.intercept = Lines(form)
        with pytest.raises(RunError, match=r"lost|no GPU|matches no") as refused:
            run(options_of(module, gpus=chosen, **declared), False, False)
        assert refused.value.result["changed"] is False
    assert host.snapshot() == before


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [0, 3, COUNT - 1])
def test_gpu_state_and_the_boot_program_serve_the_others(host: StateHost, form: str, place: int) -> None:
    declared: dict[str, Any] = {"power_limit_w": "500", "mig": {"1g.18gb": 1}}
    assert host.state_run(**declared).error is None
    healthy = [index for index in range(COUNT) if index != place]
    with store.transaction(str(host.root)) as state:
        reset.boot(state)
        state["gpus"][place]["health"] = "lost"
    host.intercept = Lines(form)
    assert host.boot_program() == 1
    assert host.gpu(place)["uuid"] in host.status
    assert all(host.gpu(index)["uuid"] not in host.status for index in healthy)
    assert [len(host.gpu(index)["gpu_instances"]) for index in healthy] == [1] * len(healthy)
    assert [host.gpu(index)["power_limit_w"] for index in healthy] == [500] * len(healthy)
    outcome = host.state_run(Lines(form), gpus=[host.gpu(index)["uuid"] for index in healthy], **declared)
    assert outcome.error is None and [row["index"] for row in outcome.result["mig"]] == healthy
    refused = host.state_run(Lines(form), **{**declared, "power_limit_w": "450"})
    assert refused.error is not None and "GPU is lost" in refused.error and refused.result["changed"] is False
