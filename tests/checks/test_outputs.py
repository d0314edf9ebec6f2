# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output that the guides show, against what the code prints in the same case."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.callback import fleet_table, progress
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.remedy_run import plan_remedies
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_plan import RollingPlan, plan_lines
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning import room
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import check_forms
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import DEFAULT_ROLES, variables_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.kubernetes_node import stages as kubernetes_node_stages
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.kubernetes_node.plan import Request as NodeRequest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.slurm_gres import Found, Request, slurm_gres

from testbed import fleet_picture, messages
from tests.checks.test_examples import BLOCKS
from tests.checks.tools import ROOT
from tests.unit.mig.mig_host import SimulatedHost
from tests.unit.site.known import check, known

OUTPUTS = [block for block in BLOCKS if block.kind == "text"]
REFUSED_KEY = Path("docs/repositories.md")


def refused_variables() -> list[str]:
    """What is wrong with the variables of a host that gets the roles of site.yml, in one line."""
    roles = DEFAULT_ROLES
    files = RoleData.read()
    given = {"gpu_state_power_limit": "900 W", "docker_version": "latest"}
    values = {**files.defaults(variables_of(roles)), **given}
    refusals = (*check_forms(roles, given, files.tables), *check(roles, values, known(packages={})).refusals)
    return [f"lab1 failed: {'; '.join(refusals)}"]


def table() -> list[str]:
    """The table of a fleet with one host of each status."""

    def read(model: str, count: int, driver: str, cuda: str, **readings: Any) -> dict[str, Any]:
        gpu = {"name": model, "ecc_mode_current": "enabled", "mig_mode_current": "disabled", **readings}
        return {"gpus": [gpu] * count, "driver_version": driver, "cuda_version": cuda}

    def judged(gpus: int, mode: str, verdict: str = "ok", remedy: str = "none", *reasons: str) -> dict[str, Any]:
        health = {"ok": verdict != "fail", "verdict": verdict, "remedy": remedy, "reasons": list(reasons)}
        return {**health, "containers": {"gpus": gpus, "mode": mode}}

    a100 = read("NVIDIA A100-SXM4-40GB", 2, "550.163.01", "12.4")
    user = "runs as user ops, not as root; add --become, or set ansible_become for this host"
    gone = {"msg": "Failed to connect to the host via ssh: No route to host"}
    memory = "GPU 1 (00000000:47:00.0): a memory row could not be remapped; run NVIDIA's field diagnostic"
    declared = "driver 580.178.04 is loaded, and 575 is declared; apply the declared configuration"
    record = fleet_table.HostRecord
    records = {
        "lab3": record(a100, judged(2, "legacy", "fail", "field_diagnostic", memory)),
        "lab1": record(reason=user, failed=True),
        "lab2": record(reason=fleet_table.unreachable_reason(gone), unreachable=True),
        "lab4": record(
            read("NVIDIA L40S", 1, "580.178.04", "13.0", mig_mode_current=None),
            judged(1, "cdi", "warn", "configure", declared),
        ),
        "dgx-h200": record(read("NVIDIA H200", 8, "580.178.04", "13.0"), judged(8, "cdi")),
        "dual-a100": record(a100, judged(2, "legacy")),
    }
    return fleet_table.render(records)


def refused_room() -> list[str]:
    """What is wrong with a host whose /boot is nearly full, in one line."""
    values = RoleData.read().defaults(variables_of(DEFAULT_ROLES))
    writable = {"read_only": False, "free_inodes": None}
    systems = {
        path: {"mount": "/", "device": 1, "available_mib": 100_000, **writable} for path in room.directories(values)
    }
    systems["/boot"] = {"mount": "/boot", "device": 2, "available_mib": 30, **writable}
    refusals = room.refusals(["nvidia_driver"], values, room.Found(systems, 72))
    return [f"lab1 failed: {'; '.join(refusals)}"]


def long_task() -> list[str]:
    """The line about a task that has run for two minutes."""
    hosts = [f"node{number}" for number in range(1, 201)]
    return [progress.line("gpu.fleet.nvidia_driver : Install the packages", hosts, 120)]


def upgrade_plan() -> list[str]:
    """The plan of a rolling upgrade, below the name of its run."""
    plan = RollingPlan(
        batches=(("node1",), ("node2", "node9")),
        canaries=("node1",),
        unchanged=("node3", "node6"),
        missing=("node5",),
        failed={"node4": "Judge the health of the GPUs: GPU 3 is lost"},
        reasons=dict.fromkeys(("node1", "node2", "node9"), ("nvidia_driver", "gpu_state")),
    )
    return ["run 20260504T090000Z_3f2a1b", *plan_lines(plan)]


def remedy_lines() -> list[str]:
    """The plan of remedies for a fleet: a reset, a repair, two healthy hosts, and one that another user has drained."""

    def found(row: str, remedy: str, gpu: int, address: str, message: str) -> dict[str, Any]:
        text = f"GPU {gpu} ({address}): {message}"
        finding = {"row": row, "gpu": f"GPU-{gpu}", "verdict": "fail", "remedy": remedy, "message": text}
        return {"health": {"verdict": "fail", "findings": [finding]}}

    silent = ("xid_119", "reset_gpu", 3, "00000000:9b:00.0", "Xid 119: the GSP does not respond; reset the GPU")
    failed = ("row_remap_failed", "service", 0, "00000000:18:00.0")
    well: dict[str, Any] = {"health": {"verdict": "ok", "findings": []}}
    entries: dict[str, dict[str, Any]] = {
        "node7": found(*silent),
        "node9": found(*failed, "row remapping has failed; have the GPU repaired or replaced"),
        "node1": well,
        "node2": well,
        "node4": {**found(*silent), "drain": "bad cable, Ann", "is_out": True},
    }
    variables = {"gpu_fleet_remediate_stop_at": 4, "gpu_fleet_upgrade_max_unavailable": 3}
    plan = plan_remedies(entries, variables, (), {}, "2026-05-04T09:00:00Z", attempts=(), token="3f2a1b")
    return list(plan["lines"])


def gres_files() -> list[str]:
    """gres.conf and the node line of a host with two H200, one of them with two MIG devices."""
    caps = (("gi1/access", 147), ("gi1/ci0/access", 148), ("gi2/access", 156), ("gi2/ci0/access", 157))
    devices = [{"profile": "1g.18gb", "gpu_instance_id": one, "compute_instance_id": 0} for one in (1, 2)]
    whole = {"index": 0, "name": "NVIDIA H200", "minor_number": 0}
    planned = slurm_gres(
        Request("gpu1", "explicit", {"NVIDIA H200": "h200"}, {}),
        Found(
            gpus=[
                whole,
                {**whole, "index": 1, "minor_number": 1, "mig_mode_current": "enabled", "mig_devices": devices},
            ],
            topology=[{"label": "GPU0", "cpu_affinity": "0-31"}, {"label": "GPU1", "cpu_affinity": "32-63"}],
            mig_minors="\n".join(f"gpu1/{name} {number}" for name, number in caps),
            cpus="\n".join(f"{cpu},{cpu},{cpu // 32}" for cpu in range(64)),
            hardware="NodeName=gpu1 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 "
            "RealMemory=2060000",
            version="slurm-wlm 24.11.5",
        ),
    )
    _header, *lines = planned.gres_conf.splitlines()
    titles = "# gres.conf of a node with two H200, the second one in MIG mode", "# its line in nodes.conf"
    return [titles[0], *lines, "", titles[1], planned.node_line]


def node_labels() -> list[str]:
    """The labels of a node with two H200, the second one in MIG mode."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        host = SimulatedHost.make(Path(directory), "h200", "h200", mig=False)
        host.call("-i", "1", "-mig", "1")
        host.call("mig", "-i", "1", "-cgi", "19,19,9", "-C")
        smi = {**host.facts(patch, "hardware", "mig"), "pci_gpus": [{"class_id": "0x030200"}]}
    variables = {**RoleData.read().defaults(["kubernetes_node"]), "kubernetes_node_name": "gpu1"}
    planned = kubernetes_node_stages.plan(NodeRequest.read(variables), kubernetes_node_stages.Host(smi))
    labels = planned.tasks["labels"]
    return [f"{key}: {value}" for key, value in labels.items() if not re.search("cuda[.](driver|runtime)[.]", key)]


def table_of_the_demo() -> list[str]:
    """The table that the demo ends with: three healthy hosts."""
    hosts = (
        ("dgx-h200", 8, "NVIDIA H200", "580.178.04", "13.0", "disabled", "cdi"),
        ("dual-a100", 2, "NVIDIA A100-SXM4-40GB", "550.163.01", "12.4", "disabled", "legacy"),
        ("edge-t4", 1, "Tesla T4", "535.309.01", "12.2", None, "legacy"),
    )
    records = {}
    for name, count, model, driver, cuda, mig, mode in hosts:
        gpu = {"name": model, "ecc_mode_current": "enabled", "mig_mode_current": mig}
        facts = {"gpus": [gpu] * count, "driver_version": driver, "cuda_version": cuda}
        judged = {"ok": True, "verdict": "ok", "remedy": "none", "reasons": []}
        records[name] = fleet_table.HostRecord(facts, {**judged, "containers": {"gpus": count, "mode": mode}})
    return fleet_table.render(records)


def test_the_picture_of_the_readme_is_current() -> None:
    """`make tables` draws it."""
    assert fleet_picture.TABLE.splitlines() == table_of_the_demo()
    assert fleet_picture.PICTURE.read_text(encoding="utf-8") == fleet_picture.picture()


PRINTED: dict[str, tuple[Callable[[], list[str]], ...]] = {
    "docs/kubernetes.md": (node_labels,),
    "docs/remediate.md": (remedy_lines,),
    "docs/site.md": (refused_variables, refused_room, table, long_task),
    "docs/upgrade-fleet.md": (upgrade_plan,),
    "roles/slurm_gres/README.md": (gres_files,),
}
"""By page, in its order."""


@pytest.mark.parametrize("page", PRINTED)
def test_a_guide_shows_what_is_printed(page: str) -> None:
    shown = [block.text.rstrip("\n").splitlines() for block in OUTPUTS if str(block.page) == page]
    assert shown == [printed() for printed in PRINTED[page]]


def test_a_refused_key_is_shown_as_the_module_reports_it() -> None:
    (shown,) = [" ".join(block.text.split()) for block in OUTPUTS if block.page == REFUSED_KEY]
    raised = messages.of_python(ROOT / "plugins" / "module_utils" / "_repository" / "keys.py")
    reported = [".+".join(map(re.escape, message.split("…"))) for message in raised]
    assert [pattern for pattern in reported if re.fullmatch(f"gpu7: {pattern}", shown)]


def test_no_output_is_left_out() -> None:
    assert {block.page for block in OUTPUTS} == {REFUSED_KEY, *map(Path, PRINTED)}
