# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The quick check of a converged host: it agrees with the XML document, and is abandoned in case of doubt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change.locked_clocks import LockedClocks
from ansible_collections.gpu.fleet.plugins.module_utils._change.quick_check import FIELDS, quick_check
from ansible_collections.gpu.fleet.plugins.module_utils._common.boot_cache import BootCache
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._ecc.plan import counters, errors
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import RetryPolicy, Smi
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.gpu import Gpu
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.xml import parse_document
from ansible_collections.gpu.fleet.plugins.module_utils._settings.plan import read

from tests.unit.faults import Reply
from tests.unit.recordings.recording import load
from tests.unit.settings.settings_host import DRIVERS, SettingsHost, models

READINGS = {
    "basics": (
        "uuid",
        "name",
        "pci_bus_id",
        "ecc_mode_current",
        "ecc_mode_pending",
        "mig_mode_current",
        "compute_mode",
    ),
    "hardware": ("accounting_mode",),
    "power": ("power_limit_default_w", "power_limit_min_w", "power_limit_max_w"),
    "clocks": ("clock_graphics_mhz", "clock_memory_mhz", "clock_max_graphics_mhz", "clock_max_memory_mhz"),
}


def _quick_check(text: str, status: int = 0, error: str = "") -> tuple[Gpu, ...] | None:
    def result(commands: Sequence[Sequence[str]], timeout: float) -> list[CommandResult]:
        del timeout
        return [CommandResult(tuple(command), status, text.encode(), error.encode(), 0.1) for command in commands]

    return quick_check(Smi("nvidia-smi", RetryPolicy(1, 0, 0), result))


def _query(host: SettingsHost) -> str:
    return host.call("--query-gpu=" + ",".join(FIELDS), "--format=csv,noheader,nounits")[0]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("model", models())
def test_it_states_what_the_document_states(tmp_path: Path, model: str, driver: str) -> None:
    host = SettingsHost.with_gpus(tmp_path, model, "t4", driver=driver)
    host.count_errors(0, "volatile", dram_correctable=4, sram_uncorrectable_parity=1)
    host.count_errors(0, "aggregate", dram_uncorrectable=2)
    quick_checked = _quick_check(_query(host))
    document = parse_document(host.call("-q", "-x")[0]).gpus
    assert quick_checked is not None and [gpu.index for gpu in quick_checked] == [0, 1]
    clocks = LockedClocks(BootCache(str(tmp_path / "nothing")))
    for quick, whole in zip(quick_checked, document, strict=True):
        for section, names in READINGS.items():
            for name in names:
                quick_value, value = (getattr(getattr(gpu, section), name) for gpu in (quick, whole))
                assert quick_value == value, (section, name)
        assert read(quick, clocks) == read(whole, clocks)
        for kind in ("volatile", "aggregate"):
            assert errors(counters(quick, kind)) == errors(counters(whole, kind)), kind


@pytest.mark.parametrize("gpus", [1, 8])
def test_it_reads_a_real_host(gpus: int) -> None:
    rows = load(f"h200x{gpus}-580.159.04").query_gpu()
    quick_checked = _quick_check("\n".join(", ".join(row[name] for name in FIELDS) for row in rows))
    assert quick_checked is not None and len(quick_checked) == gpus
    for gpu in quick_checked:
        assert gpu.basics.name == "NVIDIA H200" and gpu.power.power_limit_max_w == 700.0
        assert gpu.hardware.accounting_mode == "disabled" and errors(counters(gpu, "volatile")) == 0


@pytest.mark.parametrize(
    ("intercept", "why"),
    [
        (lambda text: "", "nothing"),
        (lambda text: text.splitlines()[0] + "\n", "one GPU of two"),
        (lambda text: text + "Unable to determine the device handle for GPU1\n", "a line that is no row"),
        (lambda text: text[: len(text) * 2 // 3], "cut off"),
    ],
)
def test_a_doubt_gives_it_up(tmp_path: Path, intercept: Any, why: str) -> None:
    text = _query(SettingsHost.with_gpus(tmp_path, "t4", "t4"))
    assert _quick_check(text) is not None
    assert _quick_check(intercept(text)) is None, why
    assert _quick_check(text, status=2) is None and _quick_check(text, error="warning") is None


def test_without_it_results_are_the_same(tmp_path: Path) -> None:
    host = SettingsHost.with_gpus(tmp_path, "t4", "a100_40gb", "geforce_rtx_3080")

    def refuses(arguments: Sequence[str], result: Reply) -> CommandResult:
        message = result()
        if not arguments[0].startswith("--query-gpu"):
            return message
        return CommandResult(message.argv, 2, b'Field "accounting.mode" is not a valid field to query.\n', b"", 0.0)

    desired = {
        "power_limit_w": "default",
        "gpu_clocks_mhz": "500-1000",
        "persistence_mode": True,
        "compute_mode": "default",
    }
    assert host.settings(**desired).error is None  # type: ignore[arg-type]
    quick, slow = host.settings(**desired), host.settings(refuses, **desired)  # type: ignore[arg-type]
    assert quick.result == slow.result and [len(run.calls) for run in (quick, slow)] == [1, 2]
    quick, slow = (host.ecc(intercept, gpus=["0", "1"], enabled=True) for intercept in (None, refuses))
    assert quick.result == slow.result and [len(run.calls) for run in (quick, slow)] == [1, 2]
