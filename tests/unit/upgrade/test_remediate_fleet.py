# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/remediate.yml on a fleet of mock hosts: where its breaker stops, and what a fault that comes back gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.site.mock_host import MockHost, SiteRun
from tests.unit.upgrade.test_remediate_playbook import HEALTHY, Site, host, sick

pytestmark = pytest.mark.plays

SIZE = 100
DEFAULTS = {"gpu_fleet_remediate_stop_at": "5%", "gpu_fleet_upgrade_max_unavailable": 1}
ADDRESS = "00000000:18:00.0"
RESET = sick("reset_gpu")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A controller."""
    return Site(tmp_path)


def fleet(*failing: str) -> dict[str, MockHost]:
    """The hosts of a fleet, of which the first ones fail with these rows."""
    results = [sick("reboot", row) for row in failing] + [HEALTHY] * (SIZE - len(failing))
    return {f"n{number}": MockHost(results={"gpu_health": result}) for number, result in enumerate(results)}


def touched(site: Site, done: SiteRun) -> list[str]:
    """What was done with any host but to judge it."""
    modules = {module for modules in done.modules.values() for module in modules}
    recorded = [path.name for place in ("hosts", "remedies") for path in (site.directory / "states" / place).iterdir()]
    return [*site.actions(), *recorded, *sorted(modules - {"gpu_health"})]


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (["driver_version"] * SIZE, "100 of 100 hosts"),
        ([row for row in ("xid", "nvlink_down", "ecc", "thermal") for _number in range(5)], "20 of 100 hosts"),
    ],
)
def test_a_fleet_with_a_common_cause_is_not_touched(site: Site, failing: list[str], message: str) -> None:
    """A false verdict on all hosts, and four rows on 5 % of them each."""
    done = site.run(fleet(*failing), **DEFAULTS)
    assert done.rc != 0 and message in done.output and "the cause is common" in done.output, done.output[-3000:]
    assert "gpu_fleet_remediate_stop_at is 5% = 5 hosts, and gpu_fleet_remediate_stop_minimum is 3" in done.output
    assert touched(site, done) == []


def test_hosts_that_come_one_by_one_are_counted_by_their_directory(site: Site) -> None:
    """An alert that starts a job for its host (gpu_fleet_targets): each run sees one host alone."""
    for name in ("n0", "n1"):
        done = site.run({name: host(RESET, RESET, HEALTHY)}, **DEFAULTS)
        assert done.rc == 0 and site.step(name) == "in_service" and len(site.calls("gpu_reset")) == 1, done.output
    before = site.actions()
    for number, name in enumerate(("n2", "n3"), 3):
        done = site.run({name: host(RESET, RESET, HEALTHY)}, **DEFAULTS)
        assert done.rc != 0 and f"{number} of {number} hosts" in done.output, done.output
        assert site.actions() == before
        assert site.calls("gpu_reset") == [] and not (site.directory / "states" / "hosts" / f"{name}.json").exists()
    # The cause was found, and n2 is well: it was never touched, and counts no more. Those of the window do.
    assert site.run({"n2": host(HEALTHY)}, **DEFAULTS).rc == 0
    done = site.run({"n3": host(RESET, RESET, HEALTHY)}, **{**DEFAULTS, "gpu_fleet_remediate_stop_minimum": 4})
    assert done.rc == 0 and site.step("n3") == "in_service", done.output


def test_what_was_tried_before_a_repair_counts_no_more(site: Site) -> None:
    """Neither for the ladder and its limit nor, by the option of gpu_health, for Xids of before."""
    site.run({"node": host(RESET, RESET, RESET)}, **DEFAULTS)
    assert site.step("node") == "failed" and all("repaired" not in call for call in site.calls("gpu_health"))
    # Not repaired: it stays drained, and nothing is lost of what was tried.
    done = site.run({"node": host(RESET, RESET)}, **DEFAULTS, gpu_fleet_remediate_retry_failed=True)
    assert done.rc != 0 and site.step("node") == "failed", done.output
    assert [one["outcome"] for one in site.file("remedies", "node")["attempts"]] == ["failed"]
    done = site.run({"node": host(RESET, HEALTHY)}, **DEFAULTS, gpu_fleet_remediate_retry_failed=True)
    assert done.rc == 0 and site.step("node") == "in_service", done.output
    # In the first play all hosts are judged, and none of them is known to be repaired.
    assert [call.get("repaired") for call in site.calls("gpu_health")] == [None, True]
    assert [one["outcome"] for one in site.file("remedies", "node")["attempts"]] == ["failed", "repaired"]
    # The next fault begins with its own remedy.
    done = site.run({"node": host(RESET, RESET, HEALTHY)}, **DEFAULTS)
    assert done.rc == 0 and len(site.calls("gpu_reset")) == 1, done.output
    assert all("repaired" not in call for call in site.calls("gpu_health"))


def test_a_fault_that_comes_and_goes_is_for_a_person_at_its_limit(site: Site) -> None:
    """Drained and returned twice without a remedy, the GPU named by its UUID and by its address."""
    lost: dict[str, Any] = sick("reset_gpu", gpu=ADDRESS)
    lost["gpus"] = [{**lost["gpus"][0], "uuid": None}]
    for number, found in enumerate((RESET, lost), 1):
        done = site.run({"node": host(found, HEALTHY, HEALTHY)}, **DEFAULTS)
        assert done.rc == 0 and site.step("node") == "in_service" and site.calls("gpu_reset") == [], done.output
        attempts = site.file("remedies", "node")["attempts"]
        assert [(one["remedy"], one["outcome"]) for one in attempts] == [("drain", "helped")] * number
    done = site.run({"node": host(RESET, HEALTHY, HEALTHY)}, **DEFAULTS)
    assert done.rc != 0 and site.step("node") == "failed" and site.calls("gpu_reset") == [], done.output
    assert "did not keep it healthy (gpu_fleet_remediate_limit is 2 in 7 days)" in site.file("hosts", "node")["reason"]
    assert site.actions()[-2:] == ["drain", "fail"]
