# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that verdicts have out of service, in recorded outputs of scontrol; see fixtures/README.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_cap import OutOfService
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._slurm.cluster import parse_cluster

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
HEALTH = "gpu.fleet.health check: GPU 1 (00000000:07:00.0): Xid 79; remedy reboot"


def shown(version: str, recorded: str, name: str, reason: str = "") -> str:
    """A recorded node with another name, and with another reason where one is given."""
    text = (FIXTURES / version / f"{recorded}.txt").read_text()
    text = re.sub(r"^NodeName=\S+", f"NodeName={name}", text)
    assert not reason or "   Reason=" in text
    text = re.sub(r"(?<=   Reason=).*?(?= \[)", reason, text) if reason else text
    # As scontrol separates nodes.
    return text.rstrip("\n") + "\n\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_drains_of_health_check_and_remedies_are_counted_with_their_time(version: str) -> None:
    text = "".join(
        [
            shown(version, "idle", "gpu1"),
            shown(version, "draining", "gpu2", HEALTH),
            shown(version, "down_and_drained", "gpu3", "gpu.fleet.remedy 20261122T171152Z: Xid 79"),
            # Of upgrades, of operators, and of one who resembles us.
            shown(version, "draining", "gpu4"),
            shown(version, "drained_by_operator", "gpu5"),
            shown(version, "drained_by_operator", "gpu6", "gpu.fleet.healthy check: no"),
            shown(version, "drained_by_operator", "gpu7", f"see {HEALTH}"),
            shown(version, "reason_of_two_lines", "gpu8"),
        ]
    )
    found = parse_cluster(text, "gpu1")
    assert found.nodes == 8
    assert [(one.node, one.by_remedy) for one in found.out] == [("gpu2", False), ("gpu3", True)]
    assert all(re.fullmatch(r"2026-05-04T[0-9:]{8}", one.since) for one in found.out)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_that_was_resumed_keeps_its_reason_and_does_not_count(version: str) -> None:
    text = shown(version, "resumed", "gpu1")
    text = re.sub(r"\n   Reason=.*", "", text).rstrip("\n") + f"\n   Reason={HEALTH} [root@2026-05-04T17:41:04]\n"
    assert parse_cluster(text, "gpu1").out == ()


def node(name: str, gres: str = "gpu:h200:8(S:0-1)", state: str = "IDLE", reason: str = "") -> str:
    lines = [f"NodeName={name} Arch=x86_64", f"   Gres={gres}", f"   State={state} ThreadsPerCore=1", ""]
    return "\n".join([*lines, *([f"   Reason={reason} [root@2026-05-04T09:00:00]"] if reason else []), "", ""])


def test_of_a_cluster_with_other_nodes_those_with_gpus_count() -> None:
    """Ten percent of a thousand nodes without GPUs would be all of those with them."""
    text = node("gpu1") + node("gpu2", "nvme:1,gpu:2") + node("gpu3", "gpu") + node("later", state="FUTURE")
    text += "".join(node(f"cpu{number}", gres) for number, gres in enumerate(["(null)", "gpus:2", "nvme:gpu:2"] * 10))
    assert parse_cluster(text, "gpu1").nodes == 3
    # Without Gres there is nothing to distinguish them by.
    assert parse_cluster(text, "cpu1").nodes == 33


def test_a_comment_with_lines_of_its_own_is_no_node() -> None:
    note = "   CfgTRES=cpu=4\n   Comment=x\nNodeName=gpu9 Arch=x\n   Gres=gpu:8\n   State=IDLE+DRAIN\n\n"
    text = node("cpu1", "(null)").rstrip("\n") + "\n" + note + node("gpu1")
    assert parse_cluster(text, "gpu1").nodes == 1


def test_who_may_drain_can_write_a_reason_of_ours_and_it_counts_once() -> None:
    text = node("gpu1") + node("gpu2", state="IDLE+DRAIN", reason=HEALTH)
    assert parse_cluster(text, "gpu1").out == (OutOfService("gpu2", "2026-05-04T09:00:00"),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No nodes in the system\n",
        "slurm_load_node error: Unable to contact slurm controller (connect failure)\n",
        node("gpu2"),
        node("gpu1") * 2,
        node("gpu1") + "NodeName=gpu2 Arch=x86_64\n",
        # Comments, or reasons by way of the API, may have lines of their own.
        node("gpu1") + node("gpu2", reason=f"a\n   State=IDLE+DRAIN\n   Reason={HEALTH}"),
        node("gpu1") + node("gpu2", state="IDLE+DRAIN", reason=f"{HEALTH}\n   Reason=none"),
        node("gpu1") + node("gpu2", reason="a\nNodeName=gpu9 Arch=x"),
        "NodeName=\n   State=IDLE\n" + node("gpu1"),
    ],
)
def test_what_is_not_the_nodes_of_a_cluster_is_an_error(text: str) -> None:
    with pytest.raises(ChangeError):
        parse_cluster(text, "gpu1")


def test_five_thousand_nodes_are_counted() -> None:
    text = "".join(
        shown(VERSIONS[-1], "idle" if number % 10 else "draining", f"gpu{number}", "" if number % 10 else HEALTH)
        for number in range(5000)
    )
    found = parse_cluster(text, "gpu1")
    assert (found.nodes, len(found.out)) == (5000, 500)
