# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that decides over many hosts, with one of them that lies: it harms itself, and the others are decided as before.

The documents are those that the modules returned for simulated hosts. Each decider gets 500 of them with a lie.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleError, AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.action import host_facts, role_plan
from ansible_collections.gpu.fleet.plugins.callback import fleet_table
from ansible_collections.gpu.fleet.plugins.filter.health_junit import health_junit
from ansible_collections.gpu.fleet.plugins.filter.health_metrics import health_metrics
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet import acceptance
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.acceptance_matrix import as_svg
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.nvlink_domains import observed
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.remedy_run import (
    is_due,
    plan_remedies,
    refusal,
    support_case,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_plan import RollingError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import gate, plan_run
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import RequestError
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import needs_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import variables_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._report import inputs, output
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.model import READ
from ansible_collections.gpu.fleet.plugins.plugin_utils._run_result import HostRun, result_of_run

from tests.unit.hostile.lies import LIES, Lie, lies
from tests.unit.report.fleets import TIME, bases, read_host
from tests.unit.site.converged import HEALTH, STATE, WITHOUT_CONTAINER, converged
from tests.unit.site.known import read

NUMBER = 500
NOW = "2026-05-04T09:00:00Z"
LIAR = "liar"
CLUSTER = "1a7e1f0c-0000-4000-8000-0123456789ab"
IMEX = {
    **{"installed": True, "version": "580.159.04", "state": "active", "enabled": "enabled"},
    **{"domain_status": "DEGRADED", "nodes_not_ready": {"10.0.0.9": "UNAVAILABLE"}, "channels": 1},
}


@functools.cache
def tray() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Facts for the report and health of a simulated tray of GB200."""
    with tempfile.TemporaryDirectory() as directory:
        return read_host(Path(directory), lambda host: None, gpus=[{"model": "gb200", "count": 4}])


def written(document: Any) -> str:
    """The document as JSON for other programs, which has to have one."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=False)
    text.encode()
    assert len(text) < 1_000_000
    return text


def without(found: Mapping[str, Any]) -> dict[str, Any]:
    """The decisions of a plan about all hosts but the liar."""
    keep = ("order", "missing", "unchanged", "judged")
    by_name = ("held", "failed", "reasons", "states", "steps", "hosts", "decisions")
    return {
        **{name: [one for one in found[name] if one != LIAR] for name in keep},
        **{name: {key: value for key, value in found.get(name, {}).items() if key != LIAR} for name in by_name},
        "common": found.get("common", ""),
        "batches": [[name for name in batch if name != LIAR] for batch in found["batches"]],
    }


def held_and_named(found: Mapping[str, Any]) -> bool:
    """Whether the liar is taken for a missing host, with the reason."""
    is_missing = LIAR in found["missing"]
    assert (
        is_missing is (LIAR in found["held"]) is any(line.startswith(f"{LIAR} is refused: ") for line in found["lines"])
    )
    if is_missing:
        assert LIAR not in found["order"]
        assert re.search(r"no module of this collection returns that: check who changed the host$", found["held"][LIAR])
    return is_missing


VARIABLES = {"gpu_fleet_upgrade_canaries": 0, "gpu_fleet_upgrade_batch": "100%", "gpu_fleet_upgrade_max_unavailable": 4}


def placed(domain: str, name: str = "NVIDIA GB200") -> dict[str, Any]:
    """An honest host of the upgrade."""
    gpus = [{**gpu, "name": name, "fabric_cluster_uuid": CLUSTER} for gpu in tray()[0]["gpus"]]
    return {
        **{"needs": ["nvidia_driver"], "domain": domain, "group": domain or "servers", "gpus": 4},
        "nvlink": observed("580.159.04", gpus, IMEX),
    }


def test_an_upgrade() -> None:
    others = {f"tray{number}": placed("rack1") for number in range(4)} | {
        f"node{number}": placed("", "NVIDIA H200") for number in range(4)
    }
    mine = {**placed("", "NVIDIA H200"), "group": "other"}

    def plan(nvlink: Any) -> dict[str, Any]:
        return plan_run({**others, LIAR: {**mine, "nvlink": nvlink}}, VARIABLES, [], {}, NOW)

    honest = plan(mine["nvlink"])
    assert LIAR in honest["order"] and len(honest["order"]) == 9
    refused = 0
    for lie in lies(mine["nvlink"], NUMBER):
        found = plan(lie.document)
        assert without(found) == without(honest), lie.name
        refused += held_and_named(found)
        assert written(found) and gate(found, VARIABLES, [], ["node1"]).stop == "", lie.name
    assert refused > 0.6 * NUMBER


def test_a_liar_that_is_of_a_domain_holds_its_domain_only() -> None:
    """What it takes to be a missing member: the same as where it could not be reached."""
    others = {f"tray{number}": placed("rack1") for number in range(4)} | {"node": placed("", "NVIDIA H200")}
    mine = placed("rack1")

    def plan(**given: Any) -> dict[str, Any]:
        variables = {**VARIABLES, "gpu_fleet_upgrade_max_unavailable": 18}
        return plan_run({**others, LIAR: {**mine, **given}}, variables, [], {}, NOW)

    missing, honest = without(plan(is_missing=True)), without(plan())
    for lie in lies(mine["nvlink"], NUMBER, seed=2):
        found = plan(nvlink=lie.document)
        expected = missing if held_and_named(found) else honest
        # Another place is a contradiction, which holds the domain as well.
        assert without(found)["order"] in (expected["order"], ["node"]), lie.name
        assert "node" in found["order"]


@functools.cache
def sick() -> dict[str, Any]:
    """What gpu_health returned for a host with a GPU that has to be reset."""
    health = bases()["dgx"][1]
    assert (health["verdict"], health["remedy"]) == ("fail", "reset_gpu")
    return copy.deepcopy(health)


def test_remedies() -> None:
    well = {"verdict": "ok", "findings": [], "gpus": []}
    others: dict[str, dict[str, Any]] = {
        f"sick{number}": {"health": sick(), "group": f"g{number}"} for number in range(2)
    }
    others |= {f"well{number}": {"health": well} for number in range(12)}
    variables = {"gpu_fleet_remediate_stop_at": 10}

    def plan(health: Any) -> dict[str, Any]:
        entries = {**others, LIAR: {"health": health, "group": "other"}}
        return plan_remedies(entries, variables, [], {}, NOW, attempts=[])

    honest = plan(sick())
    assert len(honest["order"]) == 3 and honest["decisions"][LIAR]["remedy"] == "reset_gpu"
    refused = 0
    for lie in lies(sick(), NUMBER):
        found = plan(lie.document)
        assert without(found) == without(honest), lie.name
        refused += held_and_named(found) if lie.document not in (None, {}) else 0
        assert written(found)
        # What is asked of the host itself later, in its own run.
        for ask in (refusal, is_due):
            try:
                ask(lie.document, variables)
            except RollingError as error:
                assert "its health is not as gpu_health returns it" in str(error)
    assert refused > 0.15 * NUMBER
    # Where it decides by all values, by all of them.
    decisive = {key: sick()[key] for key in ("verdict", "findings", "driver_version")}
    refused = sum(
        held_and_named(plan(lie.document)) for lie in lies(decisive, NUMBER) if lie.document not in (None, {})
    )
    assert refused > 0.5 * NUMBER


@pytest.mark.parametrize(
    ("lie", "wrong"),
    [
        ({"findings": [{"verdict": "fail", "remedy": "reboot", "message": "x"}]}, "findings[0].row is missing"),
        ({"gpus": [5]}, "gpus[0] is 5, not a dictionary"),
        ({"findings": {"row": "x"}}, "findings is a dict, not a list"),
        ({"verdict": ["fail"]}, "verdict is a list, not text"),
        ({"gpus": [{}] * 65}, "gpus has 65 elements, more than 64"),
        ({"driver_version": 10**400}, "driver_version is a number, not text"),
    ],
)
def test_a_lie_that_ended_all_remedies_is_that_of_a_missing_host(lie: Mapping[str, Any], wrong: str) -> None:
    entries: dict[str, dict[str, Any]] = {
        "sick": {"health": sick()},
        LIAR: {"health": {**sick(), **lie}, "group": "other"},
    }
    found = plan_remedies(entries, {"gpu_fleet_remediate_stop_at": 10}, [], {}, NOW, attempts=[])
    assert found["order"] == ["sick"] and found["decisions"]["sick"]["action"] == "remedy"
    assert held_and_named(found)
    assert found["held"][LIAR].startswith(f"its health is not as gpu_health returns it: {wrong}")
    assert found["decisions"][LIAR] == {
        **{"action": "left", "remedy": "none", "gpus": (), "why": "its health was not read"},
        **{"text": "its health was not read", "stays_drained": False, "names": (), "is_repaired": False},
    }


# The acceptance

OPTIONS = acceptance.Options(iterations=3, tests=("nccl",))
NAMES = [f"n{number}" for number in range(5)]
GPUS = {
    "ansible_facts": {
        "nvidia_smi": {
            "gpus": [
                {
                    **{"index": number, "pci_bus_id": f"00000000:{number}8:00.0", "mig_mode_current": "disabled"},
                    **{"processes": [], "pci_link_gen_max": 5, "pci_link_width_current": 16},
                    **{"fabric_cluster_uuid": None, "fabric_clique_id": None},
                    "nvlinks": [{"active": True, "speed_gb_per_second": 26.562, "remote_pci_bus_id": None}] * 2,
                }
                for number in range(8)
            ]
        }
    }
}
NICS = {"host": {"nics": [{"rdma": True, "up": True, "speed_gb_per_second": 100.0}] * 2}}
TESTED = {
    "verdict": "ok",
    "findings": [{"row": "test_failed_on_host", "verdict": "fail", "remedy": "service", "message": "x", "gpu": None}],
    "tests": [{"name": "nccl", "evidence": "average bus bandwidth 481.879 GB/s, 0 wrong values"}],
}
SOUND = {**TESTED, "findings": []}


def member(name: str, **lies: Any) -> acceptance.Member:
    """A member of the acceptance; `lies` may have other `gpus` or `nics` than a sound one."""
    gpus, nics = lies.get("gpus", GPUS), lies.get("nics", NICS)
    return acceptance.read_member(name, gpus, f"{name}.example.com", OPTIONS, nics)


def end(world: int) -> dict[str, Any]:
    """The result of the task that waited for the program of a host."""
    printed = {"seconds": [0.01, 0.011, 0.012], "wrong": 0, "bytes": OPTIONS.size_mib << 20, "world": world}
    return {"rc": 0, "finished": 1, "stdout": json.dumps(printed), "stderr": "", "skipped": False}


def accepted(
    liar: acceptance.Member, result: Callable[[int], Any] = end, tests: Any = None, results: Any = None
) -> acceptance.Acceptance:
    """The acceptance with this liar; `results` is all that it has registered, `tests` what its tests found."""
    members = {name: member(name) for name in NAMES} | {LIAR: liar}
    rounds = acceptance.plan(list(members.values()))
    taking = {name for each in rounds for group in each.groups for name in group}
    assert taking >= {*NAMES}
    runs = []
    for number, each in enumerate(rounds):
        for group in each.groups:
            acceptance.parts(group, members)
            world = sum(members[name].gpus for name in group)
            found = {name: end(world) for name in group}
            if LIAR in group:
                mine = [[{}, result(world)] for _round in rounds] if results is None else results
                found[LIAR] = acceptance.result_of(mine, number)
            runs.append(acceptance.read_run(each.name, group, found, members))
    lost = {name: one.refusal for name, one in members.items() if name not in taking}
    judged = {name: one for name, one in members.items() if name in taking}
    verdict = acceptance.judge(
        runs, judged, lost, {**dict.fromkeys(NAMES, SOUND), LIAR: SOUND if tests is None else tests}
    )
    written(verdict.as_dict())
    as_svg(verdict, [*members]).encode()
    assert len(verdict.message()) < 5000 and not verdict.common
    assert not verdict.problems.keys() - {LIAR}, verdict.message()
    return verdict


def _parts() -> Iterator[tuple[str, Any, Callable[[Any], acceptance.Acceptance]]]:
    printed = json.loads(end(16)["stdout"])

    def part(document: Any) -> acceptance.Acceptance:
        return accepted(
            member(LIAR), lambda world: document if not isinstance(document, dict) else _of(document, world)
        )

    def _of(document: dict[str, Any], world: int) -> dict[str, Any]:
        own = end(world)
        return own if document == end(16) else {**document, "stdout": own["stdout"]} if _is_own(document) else document

    def _is_own(document: dict[str, Any]) -> bool:
        return bool(document.get("stdout") == end(16)["stdout"])

    def line(document: Any) -> acceptance.Acceptance:
        def stdout(world: int) -> Any:
            own = (
                {**document, "world": world} if isinstance(document, dict) and document.get("world") == 16 else document
            )
            return {**end(world), "stdout": json.dumps(own) if _is_json(own) else "1" * 5000}

        return accepted(member(LIAR), stdout)

    yield "GPUs", GPUS, lambda document: accepted(member(LIAR, gpus=document))
    yield "adapters", NICS, lambda document: accepted(member(LIAR, nics=document))
    yield "result of a task", end(16), part
    yield "what a program printed", printed, line
    yield "results", [[{}, end(16)]] * 4, lambda document: accepted(member(LIAR), results=document)
    yield "tests", TESTED, lambda document: accepted(member(LIAR), tests=document)


def _is_json(document: Any) -> bool:
    try:
        json.dumps(document)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


@pytest.mark.parametrize(("kind", "document", "judge"), [pytest.param(*one, id=one[0]) for one in _parts()])
def test_an_acceptance(kind: str, document: Any, judge: Callable[[Any], acceptance.Acceptance]) -> None:
    number = {"GPUs": 200, "adapters": 150, "what a program printed": 150}.get(kind, 100)
    blamed = sum(LIAR in judge(lie.document).problems for lie in lies(document, number))
    assert blamed > 0.4 * number


def test_a_million_gpus_of_one_host_cost_no_time() -> None:
    claimed = {"ansible_facts": {"nvidia_smi": {"gpus": GPUS["ansible_facts"]["nvidia_smi"]["gpus"] * 125_000}}}
    assert "gpus has 1000000 elements, more than 64" in member(LIAR, gpus=claimed).refusal


# What is written of all hosts


def test_a_report(tmp_path: Path) -> None:
    facts, health = bases()["dgx"]
    fleet = [inputs.read_host(f"honest{number}", {"host": facts}, health, {})[0] for number in range(2)]
    assert {host.state for host in fleet} == {READ}
    made = [(lie, {"host": lie.document}, health) for lie in lies(facts, NUMBER)]
    made += [(lie, {"host": facts}, lie.document) for lie in lies(health, NUMBER)]
    named = 0
    for number, (lie, of_facts, of_health) in enumerate(made):
        is_result = isinstance(of_health, dict)
        host, _refusals = inputs.read_host(f"{LIAR}{number}", of_facts, of_health if is_result else None, {})
        named += host.reason is not None
        assert (host.reason or "").isprintable() and len(host.reason or "") < 500, lie.name
        fleet.append(host)
    assert named > 0.6 * len(made)
    output.write(str(tmp_path), fleet, TIME, check_mode=False)
    data = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert [host["name"] for host in data["hosts"]] == [host.name for host in fleet]
    assert data["hosts"][0]["facts"] == facts and data["hosts"][0]["health"]["verdict"] == health["verdict"]
    # Numbers of a host that nothing can have do not become those of the fleet.
    assert data["summary"]["memory_used_mib"] < 2**31 * len(fleet)


def test_the_reports_of_health() -> None:
    """Each host has its own; a filter is refused for it alone, and its role fails it alone."""
    refused = 0
    for lie in lies(bases()["dgx"][1], NUMBER):
        for write in (health_metrics, functools.partial(health_junit, host=LIAR)):
            try:
                write(lie.document).encode()
            except AnsibleFilterError as error:
                refused += 1
                assert re.search(r"takes the result of gpu.fleet.gpu_health: \S+ ", str(error)), lie.name
        for stage in ("verdict", "reports"):
            try:
                role_plan.planned("gpu_health", stage, {}, {}, {"verdict": lie.document, "host": LIAR})
            except (RequestError, *role_plan._MALFORMED):
                pass
    assert refused > NUMBER


class _Site(host_facts.ActionModule):
    """The action plugin with what a host returned."""

    def __init__(self, returned: Any) -> None:
        self._returned = returned
        self._task = SimpleNamespace(check_mode=True, args={})
        self._loader = self._templar = None

    def _wrong_names(self, variables: Mapping[str, Any]) -> list[str]:
        return []

    def _gathered(self, roles: Any, values: Any, variables: Any) -> Any:
        return self._returned

    def _read(self, asked: Any, variables: Any) -> dict[str, Any]:
        return {}


def test_a_site() -> None:
    """Each host is planned by itself, from what its modules have returned: it fails alone, with one line."""
    roles = ("gpu_state", "docker", "nvidia_container_toolkit")
    host = converged(WITHOUT_CONTAINER)
    returned = {**host.modules()["host_facts"], "prediction": {**STATE, "changed": True}, "health": HEALTH}
    returned["ansible_facts"] = {**host.system, **returned["ansible_facts"]}
    values = {**host_facts._FILES.defaults(variables_of(roles)), **WITHOUT_CONTAINER}
    returned["readings"] = read(needs_of(roles, values))

    def plan(document: Any) -> Mapping[str, Any]:
        found: Mapping[str, Any] = _Site(document)._planned(LIAR, roles, values, [], {})
        return found

    honest = plan(returned)
    assert "plan" in honest, honest
    failed = 0
    for lie in lies(returned, NUMBER):
        try:
            found = plan(lie.document)
            failed += bool(found.get("failed"))
            assert "plan" in found or str(found["msg"]).isprintable(), lie.name
        except (AnsibleError, *host_facts._MALFORMED):
            failed += 1
    assert failed > 0.2 * NUMBER
    assert plan(returned) == honest


SMI = {
    **{"driver_version": "580.159.04", "cuda_version": "13.0", "reason": None, "pci_gpus": [{"pci_bus_id": "1"}]},
    "gpus": [
        {
            **{"index": 0, "name": "NVIDIA H200", "ecc_mode_current": "enabled", "ecc_mode_pending": "enabled"},
            **{"mig_mode_current": "enabled", "mig_mode_pending": "disabled", "mig_devices": [{"uuid": "MIG-1"}]},
        }
    ],
}
ROLE_HEALTH = {
    **{"ok": True, "verdict": "warn", "remedy": "none", "reasons": ["hot"], "unproved": [], "notes": ["old"]},
    "containers": {"gpus": 1, "mig_devices": 1, "mode": "cdi"},
    "findings": [{"row": "x", "verdict": "warn", "remedy": "none", "message": "hot", "gpu": None}],
}
RUN = {
    "changed": True,
    "reason": "docker.list differs",
    "commands": ["apt-get install x"],
    "plan": {"work": ["docker"], "notes": ["ends in June"]},
    **{"verdict": "warn", "remedy": "none", "findings": ROLE_HEALTH["findings"]},
    "ansible_facts": {
        "nvidia_smi": SMI,
        "packages": {"docker-ce": [{"name": "docker-ce", "version": "29.1"}]},
        "gpu_fleet_managed": {"docker": {"drift": [{"message": "x"}]}},
        "gpu_health_result": ROLE_HEALTH,
        "nvidia_container_toolkit_seen": {"gpus": 1, "mig_devices": 0, "mode": "cdi"},
        "cuda": {
            "driver": {"library_version": "580.1", "loaded_version": "580.1"},
            "toolkits": [{"version": "13.0"}],
            "libraries": {name: [{"version": "9"}] for name in ("cudnn", "nccl", "tensorrt")},
            "services": {"fabric_manager": {"version": "580.1"}},
            "container_toolkit": {"version": "1.18"},
        },
    },
}


def _result(document: Any, action: str) -> Any:
    """As a callback gets it."""
    task = SimpleNamespace(action=action, get_name=lambda: "gpu.fleet.docker : Read")
    return SimpleNamespace(result=document, task=task, host=SimpleNamespace(get_name=lambda: LIAR))


# Ansible itself takes only dictionaries for results.
def _of_runs() -> list[Lie]:
    return [lie for lie in lies(RUN, NUMBER + len(LIES)) if isinstance(lie.document, dict)][:NUMBER]


def test_the_table_of_the_fleet() -> None:
    records = {}
    for number, lie in enumerate(_of_runs()):
        callback = fleet_table.CallbackModule()
        for action in ("gpu.fleet.gpu_health", "gpu.fleet.host_facts"):
            callback.v2_runner_on_ok(_result(lie.document, action))
        assert len(callback._records) == 1
        records[f"{LIAR}{number}"] = next(iter(callback._records.values()))
    callback.v2_runner_on_ok(_result(RUN, "gpu.fleet.gpu_health"))
    honest = fleet_table.HostRecord(facts=SMI, health=ROLE_HEALTH, judged=RUN)
    lines = fleet_table.render({"honest": honest, **records}, fold_above=0)
    (alone,) = [
        line for line in fleet_table.render({"honest": honest}, 0) if line.startswith("honest ") and "13.0" in line
    ]
    (shown,) = [line for line in lines if line.startswith("honest ") and "13.0" in line]
    assert shown.split() == alone.split()
    rows = {line.split()[0]: line for line in lines[1 : lines.index("")]}
    assert rows.keys() == {"honest", *records} and all(line.isprintable() and len(line) < 5000 for line in lines)
    unreadable = [name for name, row in rows.items() if row.endswith("unreadable")]
    assert len(unreadable) > 0.2 * NUMBER
    assert all(any(line.startswith(f"{name} cannot be read: ") for line in lines) for name in unreadable)


def test_the_result_of_a_run() -> None:
    hosts = {"honest": HostRun()}
    hosts["honest"].add("gpu.fleet.docker : Read", "gpu.fleet.gpu_health", RUN)
    stats = {"ok": 1, "failures": 0, "unreachable": 0, "changed": 0}
    times: dict[str, Any] = {"playbook": "site.yml", "check_mode": False, "times": ("a", "b")}
    alone = result_of_run(dict(hosts), lambda _name: stats, **times)["hosts"]["honest"]
    assert (alone["status"], alone["versions"]["docker"]["after"]) == ("ok", "29.1")
    for number, lie in enumerate(_of_runs()):
        hosts[f"{LIAR}{number}"] = HostRun()
        hosts[f"{LIAR}{number}"].add("gpu.fleet.docker : Read", "gpu.fleet.gpu_health", lie.document)
    data = result_of_run(hosts, lambda _name: stats, **times)
    json.dumps(data, allow_nan=False, ensure_ascii=False).encode()
    assert data["hosts"]["honest"] == alone
    failed = [host for host in data["hosts"].values() if host["status"] == "failed"]
    assert len(failed) > 0.3 * NUMBER
    assert all("another form than its module documents" in host["message"] for host in failed)


def test_a_support_case_of_the_liar_harms_no_other() -> None:
    """It is written in the run of the host itself, whose rescue reports a failure."""
    plan = {"run": "r", "decisions": {LIAR: {"remedy": "inspect"}}}
    for lie in lies(sick(), NUMBER):
        with contextlib.suppress(AttributeError, TypeError):
            support_case(LIAR, lie.document, plan, document={}, reason="x", evidence={})
