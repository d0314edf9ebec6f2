# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans for real documents of many GPUs and drivers: possible settings depend only on what they report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change.assignment import UnsupportedError
from ansible_collections.gpu.fleet.plugins.module_utils._change.locked_clocks import LockedClocks
from ansible_collections.gpu.fleet.plugins.module_utils._common.boot_cache import BootCache
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import decode
from ansible_collections.gpu.fleet.plugins.module_utils._ecc import plan as ecc_plan
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.gpu import Gpu
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.xml import DocumentError, parse_document
from ansible_collections.gpu.fleet.plugins.module_utils._settings import plan as settings_plan
from ansible_collections.gpu.fleet.plugins.module_utils._settings.request import Clocks, PowerLimit

from tests.unit.settings.settings_host import SettingsHost, models

SHIPPED = sorted((Path(__file__).parents[1] / "nvidia_smi" / "fixtures").rglob("*"))


def _gpus(corpus: Path | None, directory: Path) -> Iterator[Gpu]:
    """The GPUs of all documents: shipped ones, simulated ones, and those of the corpus if it exists."""
    documents = [decode(path.read_bytes()) for path in SHIPPED if path.is_file()]
    assert documents
    documents += [decode(path.read_bytes()) for path in sorted(corpus.rglob("*")) if path.is_file()] if corpus else []
    documents += [SettingsHost.with_gpus(directory / model, model).call("-q", "-x")[0] for model in models()]
    for text in documents:
        try:
            document = parse_document(text)
        except DocumentError:
            continue
        yield from (gpu for gpu in document.gpus if gpu.error is None)


@pytest.fixture(scope="module")
def gpus(corpus: Path | None, tmp_path_factory: pytest.TempPathFactory) -> list[Gpu]:
    """All available GPUs."""
    return list(_gpus(corpus, tmp_path_factory.mktemp("models")))


def _is_possible(gpu: Gpu, setting: str, desired: object) -> bool | None:
    """Whether a requested value is accepted; None for a GPU that lacks the setting."""
    try:
        settings_plan.resolve(gpu, setting, desired)
    except UnsupportedError:
        return None
    except ChangeError:
        return False
    return True


def test_there_are_many(gpus: list[Gpu]) -> None:
    assert len({gpu.basics.name for gpu in gpus}) >= len(models())


def test_power_limits_end_where_the_gpu_states(gpus: list[Gpu]) -> None:
    seen = set()
    for gpu in gpus:
        low, high = gpu.power.power_limit_min_w, gpu.power.power_limit_max_w
        if gpu.basics.power_limit_w is None or low is None or high is None:
            assert _is_possible(gpu, "power_limit_w", PowerLimit(watts=100.0)) is None, gpu.label
            continue
        for watts, possible in ((low, True), (high, True), (low - 1, False), (high + 1, False)):
            assert _is_possible(gpu, "power_limit_w", PowerLimit(watts=watts)) is possible, (gpu.label, watts)
        target = settings_plan.resolve(gpu, "power_limit_w", PowerLimit())
        assert float(target.value) == gpu.power.power_limit_default_w
        seen.add((low, high))
    assert len(seen) >= 8


def test_clocks_end_where_the_gpu_states(gpus: list[Gpu]) -> None:
    seen = set()
    for gpu in gpus:
        highest = gpu.clocks.clock_max_graphics_mhz
        supported = [clock for item in gpu.supported_clocks or () for clock in item.graphics_mhz]
        if highest is None and not supported:
            assert _is_possible(gpu, "gpu_clocks_mhz", Clocks(1000, 1000)) is None, gpu.label
            continue
        top = max([*supported, *([highest] if highest else [])])
        assert _is_possible(gpu, "gpu_clocks_mhz", Clocks(top, top)) is True
        assert _is_possible(gpu, "gpu_clocks_mhz", Clocks(top, top + 1)) is False
        assert _is_possible(gpu, "gpu_clocks_mhz", Clocks()) is True
        if supported:
            assert _is_possible(gpu, "gpu_clocks_mhz", Clocks(min(supported) - 1, top)) is False
        seen.add(top)
    assert len(seen) >= 8


def test_ecc_is_there_exactly_where_a_mode_is_shown(gpus: list[Gpu]) -> None:
    found = {True: 0, False: 0}
    for gpu in gpus:
        shown = gpu.basics.ecc_mode_current is not None
        found[shown] += 1
        try:
            ecc_plan.check(gpu, {"enabled": True, "clear_counters": "volatile"})
        except UnsupportedError:
            assert not shown, gpu.label
        else:
            assert shown, gpu.label
            steps = ecc_plan.plan(gpu, {"enabled": gpu.basics.ecc_mode_pending != "enabled"})
            assert [step.arguments[2] for step in steps] == ["-e"], gpu.label
            assert ecc_plan.plan(gpu, {"enabled": gpu.basics.ecc_mode_pending == "enabled"}) == ()
    assert found[True] >= 10 and found[False] >= 1


def test_no_document_is_changed_by_what_it_already_has(gpus: list[Gpu], tmp_path: Path) -> None:
    for gpu in gpus:
        values = settings_plan.read(gpu, LockedClocks(BootCache(str(tmp_path / "nothing"))))
        desired_instances = {
            "persistence_mode": gpu.basics.persistence_mode == "enabled",
            "compute_mode": gpu.basics.compute_mode,
            "accounting_mode": gpu.hardware.accounting_mode == "enabled",
            "power_limit_w": PowerLimit(watts=gpu.basics.power_limit_w),
        }
        for setting, desired in desired_instances.items():
            if values[setting] is not None and _is_possible(gpu, setting, desired):
                target = settings_plan.resolve(gpu, setting, desired)
                assert settings_plan.plan([target], values) == (), gpu.label
