# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy on documents of real hosts: the healthy ones are, the others have exactly their problems."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._health import history as histories
from ansible_collections.gpu.fleet.plugins.module_utils._health.evaluate import Observed, Report, evaluate
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log_sources import KernelLog
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import health as smi_health
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import topology
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.gpu import Gpu
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.observe import Observation
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.xml import parse_document

from tests.unit.nvidia_smi.facts_support import H200X8
from tests.unit.recordings.recording import load

SUBSETS = frozenset(smi_facts.SUBSETS)

# Rows that hold on real hosts, by document; all other hosts are ok.
PROBLEMS: dict[str, tuple[str, set[str]]] = {
    "pai-v100-sxm3-dgx2-410.xml": (
        "fail",
        {"ecc_uncorrectable", "page_retirement_pending", "ecc_uncorrectable_aggregate"},
    ),
    "pai-k80x4-out-of-order.xml": ("info", {"ecc_uncorrectable_aggregate"}),
}


def facts_of(gpus: tuple[Gpu, ...], driver: str | None, nvlinks: Any = None) -> dict[str, Any]:
    observation = Observation(nvlinks=nvlinks or {})
    return {
        "available": True,
        "reason": None,
        "message": None,
        "driver_version": driver,
        "gpus": [smi_facts.gpu_facts(gpu, observation, SUBSETS) for gpu in gpus],
        "pci_gpus": [],
        "unhealthy": [asdict(problem) for problem in smi_health.gpu_problems(gpus)],
    }


def judged(facts: dict[str, Any]) -> Report:
    return evaluate(TABLE, Observed(facts, log=KernelLog("journal")))


def documents(corpus: Path | None) -> Iterator[tuple[str, str]]:
    """Name and text of every document of a real host."""
    for path in sorted((corpus / "xml").glob("*.xml")) if corpus else ():
        yield path.name, path.read_text(encoding="utf-8")
    for name in ("h200x8-580.159.04", "h200x1-580.159.04", "h200x2-580.159.04"):
        yield name, load(name).output("-q -x")


def test_documents_of_real_hosts(corpus: Path | None) -> None:
    for name, text in documents(corpus):
        document = parse_document(text)
        report = judged(facts_of(document.gpus, document.driver_version))
        found = (report.verdict(), {finding.row for finding in report.findings})
        assert found == PROBLEMS.get(name, ("ok", set())), name


def test_documents_of_real_hosts_at_check_after_check(corpus: Path | None) -> None:
    """What counts over time is none on them either: their lives' slowdowns and replays, links of idle GPUs."""
    for name, text in documents(corpus):
        document = parse_document(text)
        facts = facts_of(document.gpus, document.driver_version)
        known = histories.History()
        for check in range(4):
            report = evaluate(TABLE, Observed(facts, log=KernelLog("journal"), history=known, now=check * 3600.0))
            assert report.verdict() == PROBLEMS.get(name, ("ok", set()))[0], name
            known = histories.updated(known, histories.Check(check * 3600.0, facts))


EIGHT = parse_document(H200X8.output("-q -x"))
LINKS = topology.parse_nvlinks(H200X8.output("nvlink -s"))
COUNTED = topology.parse_nvlinks(load("h200x2-580.159.04").output("nvlink -s -e -R"))


def test_eight_gpus_with_all_their_nvlinks() -> None:
    facts = facts_of(EIGHT.gpus, EIGHT.driver_version, LINKS)
    assert {len(gpu["nvlinks"]) for gpu in facts["gpus"]} == {18}
    assert judged(facts).verdict() == "ok"
    assert {sum(link.error_counters[0][1] or 0 for link in links) for links in COUNTED.values()} == {0}


def test_one_gpu_lost_a_link_or_all_of_them() -> None:
    gpu = EIGHT.gpus[3]
    uuid = str(gpu.basics.uuid)
    down = (replace(LINKS[uuid][0], active=False), *LINKS[uuid][1:])
    for links in ({**LINKS, uuid: down}, {**LINKS, uuid: ()}):
        report = judged(facts_of(EIGHT.gpus, EIGHT.driver_version, links))
        assert [(finding.row, finding.gpu) for finding in report.findings] == [("nvlink_inactive", uuid)]


def test_one_gpu_has_half_of_the_lanes_of_the_others() -> None:
    gpu = EIGHT.gpus[3]
    narrow = replace(gpu, hardware=replace(gpu.hardware, pci_link_width_current=8))
    gpus = tuple(narrow if other is gpu else other for other in EIGHT.gpus)
    report = judged(facts_of(gpus, EIGHT.driver_version, LINKS))
    assert [(finding.row, finding.gpu) for finding in report.findings] == [("pcie_width", gpu.basics.uuid)]


def with_errors(document: str, *paths: str) -> Report:
    """The verdict where nvidia-smi prints Unknown Error in some elements of the first GPU."""
    for path in paths:
        document, count = re.subn(f"<{path}>[^<]*</{path}>", f"<{path}>Unknown Error</{path}>", document, count=1)
        assert count == 1
    gpus = parse_document(document).gpus
    return judged(facts_of(gpus, "580.159.04"))


@pytest.mark.parametrize("path", ["uuid", "product_name", "total", "gpu_temp"])
def test_an_error_in_a_vital_reading_is_a_failure(path: str) -> None:
    report = with_errors(H200X8.output("-q -x"), path)
    assert (report.verdict(), report.remedy()) == ("fail", "reboot")
    assert [finding.row for finding in report.findings] == ["gpu_not_responding"]


@pytest.mark.parametrize("path", ["addressing_mode", "max_host_link_gen", "fan_speed", "vbios_version"])
def test_an_error_in_another_reading_is_none(path: str) -> None:
    assert with_errors(H200X8.output("-q -x"), path).verdict() == "ok"
