# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules killed with SIGKILL at random moments, and concurrent runs on one host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.torture.figures import FIGURES, Defects, chance, size
from tests.torture.processes import module_options, start
from tests.torture.requests import Requests, is_reached, mark, marks
from tests.unit.mig.mig_host import SimulatedHost, mig_models
from tests.unit.settings.settings_host import SettingsHost

DRIVER = "580.159.04"
KILLS = size(1, 12, 40)
CONFLICTS = size(1, 6, 20)


def _protected(host: SimulatedHost, options: dict[str, Any]) -> dict[int, set[int]]:
    """Numbers of the instances that a run with these options keeps, by GPU."""
    kept: dict[int, set[int]] = {}
    for gpu in host.run(check=True, **options).result["gpus"]:
        numbers = marks(host, gpu["index"])
        places = [(row["gpu_instance_id"], row["compute_instance_id"]) for row in gpu["kept"]]
        kept[gpu["index"]] = {number for place in places if (number := numbers[place]) is not None}
    return kept


def _lost(host: SimulatedHost, kept: dict[int, set[int]]) -> dict[int, set[int]]:
    """Those of the instances to keep that no longer exist, by GPU."""
    found = {index: numbers - set(marks(host, index).values()) for index, numbers in kept.items()}
    return {index: numbers for index, numbers in found.items() if numbers}


def test_killed_changes_of_mig_lose_nothing_and_the_next_run_goes_on(tmp_path: Path) -> None:
    defects, luck = Defects(), chance("kills")
    for number in range(KILLS):
        model = luck.choice(mig_models())
        where = f"kill {number}, {model}"
        host = SimulatedHost.make(tmp_path / str(number), model, model, driver=DRIVER)
        requests = Requests(model, DRIVER, 2, luck)
        first, second = requests.next(), requests.next()
        made = host.run(**first.options)
        if not defects.check(made.error is None, f"{where}, {first}: {made.error}"):
            continue
        mark(host)
        kept = _protected(host, second.options)
        killed = start("mig_profile", host.root, module_options(second.options))
        FIGURES["kills"] += killed.kill(luck.randint(1, 14), luck)
        defects.check(not _lost(host, kept), f"{where}: lost by a killed run: {_lost(host, kept)}, {second}")
        # Start immediately: nvidia-smi of the killed run may still be running.
        result = start("mig_profile", host.root, module_options(second.options)).result()
        defects.check(not result.get("failed"), f"{where}: the next run: {result.get('msg')}, {second}")
        defects.check(is_reached(host, second), f"{where}: the next run left {host.layout()}, {second}")
        defects.check(not _lost(host, kept), f"{where}: lost by the next run: {_lost(host, kept)}, {second}")
    defects.report()


def test_killed_changes_of_settings_are_made_by_the_next_run(tmp_path: Path) -> None:
    defects, luck = Defects(), chance("kills of settings")
    for number in range(KILLS):
        host = SettingsHost.with_gpus(tmp_path / str(number), "a100_40gb", "a100_40gb", driver=DRIVER)
        name, options = luck.choice(
            (
                ("gpu_settings", {"power_limit_w": luck.choice(("200", "50%")), "compute_mode": "prohibited"}),
                ("gpu_settings", {"persistence_mode": True, "accounting_mode": True, "gpu_clocks_mhz": "1000-1200"}),
                ("ecc_mode", {"enabled": False, "reset": "if_required"}),
                ("ecc_mode", {"enabled": False}),
            )
        )
        where = f"kill {number}, {name} {options}"
        killed = start(name, host.root, options)
        FIGURES["kills"] += killed.kill(luck.randint(1, 7), luck)
        result = start(name, host.root, options).result()
        defects.check(not result.get("failed"), f"{where}: the next run: {result.get('msg')}")
        again = start(name, host.root, options).result()
        is_idle = not again.get("failed") and not again["changed"]
        defects.check(is_idle, f"{where}: the run after it: {again.get('msg')}, {again.get('commands')}")
        for index in (0, 1):
            there = {**host.there(index), "enabled": host.ecc_modes(index)[1]}
            if "power_limit_w" in options:
                defects.check(there["power_limit_w"] == 200.0, f"{where}: {there}")
            if "enabled" in options:
                defects.check(there["enabled"] is False, f"{where}: {there}")
    defects.report()


def test_runs_at_the_same_moment_come_one_after_the_other(tmp_path: Path) -> None:
    defects, luck = Defects(), chance("conflicts")
    for number in range(CONFLICTS):
        model = luck.choice(mig_models())
        host = SimulatedHost.make(tmp_path / str(number), model, model, driver=DRIVER)
        requests = Requests(model, DRIVER, 2, luck)
        desired = [requests.next() for _run in range(3)]
        waits = number % 2 == 0
        retry_policy = {"lock_timeout": 120 if waits else 0}
        runs = [start("mig_profile", host.root, {**module_options(one.options), **retry_policy}) for one in desired]
        results = [run.result() for run in runs]
        FIGURES["conflicts"] += len(runs)
        where = f"conflict {number}, {model}, {'; '.join(map(str, desired))}"
        failed = [result["msg"] for result in results if result.get("failed")]
        is_reported = all("another run (PID" in message for message in failed)
        defects.check(is_reported and not (waits and failed), f"{where}: {failed}")
        done = [one for one, result in zip(desired, results, strict=True) if not result.get("failed")]
        # Each successful run verified its own layout, and that of the last one must still be in place.
        defects.check(any(is_reached(host, one) for one in done), f"{where}: none of them is there: {host.layout()}")
        last = start("mig_profile", host.root, module_options(desired[0].options)).result()
        defects.check(not last.get("failed") and is_reached(host, desired[0]), f"{where}: {last.get('msg')}")
    defects.report()
