# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An NVLink domain of 18 simulated compute trays with 72 GB200: what is wrong in it is found before any change."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.services import parse_imex_domain
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.documents import Placement, read
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.nvlink_domains import (
    Domain,
    Fabric,
    domain_lines,
    domains_of,
    member_of,
    observed,
    undeclared,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.remedy_run import plan_remedies
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import placed, plan_run
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import advance, begin
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.variable_names import OF_PLAYBOOKS
from ansible_collections.gpu.fleet.plugins.plugin_utils._report import sections
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.inputs import read_host as read_report

from tests.unit.health.health_host import HealthHost
from tests.unit.report.fleets import read_host

NOW = "2026-05-04T09:00:00Z"
CLUSTER, OTHER = (f"{number}a7e1f0c-0000-4000-8000-0123456789ab" for number in (1, 2))
ZERO = "00000000-0000-0000-0000-000000000000"
NAMES = tuple(f"tray{number:02}" for number in range(1, 19))
RUNNING = {"installed": True, "version": "580.159.04", "state": "active", "enabled": "enabled"}


@functools.cache
def tray() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Facts for the report and health of a simulated tray, read by the modules."""
    with tempfile.TemporaryDirectory() as directory:
        return read_host(Path(directory), lambda host: None, gpus=[{"model": "gb200", "count": 4}])


def rack(changed: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """The entry of each tray for the planners; `changed` are by tray what it has in another way than the others."""
    entries = {}
    for name in NAMES:
        own: dict[str, Any] = {"cluster": CLUSTER, "clique": 2, "driver": "580.159.04", "imex": {}, "domain": "rack7"}
        own.update((changed or {}).get(name, {}))
        gpus = [
            {**gpu, "fabric_cluster_uuid": own["cluster"], "fabric_clique_id": own["clique"]}
            for gpu in tray()[0]["gpus"]
        ]
        nvlink = observed(own["driver"], gpus, {**RUNNING, **own["imex"]})
        entries[name] = {
            "needs": ["nvidia_driver"],
            "domain": own["domain"],
            "nvlink": nvlink,
            "gpus": 4,
            **own.get("entry", {}),
        }
    return entries


def judged(entries: Mapping[str, Mapping[str, Any]]) -> tuple[Domain, ...]:
    """The domains of these entries."""
    return domains_of(
        [
            member_of(name, one["domain"], read(Placement, one.get("nvlink", {})), is_read=not one.get("is_missing"))
            for name, one in entries.items()
        ]
    )


def rows(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """The hosts of each finding."""
    return {finding.row: [*finding.messages] for domain in judged(entries) for finding in domain.findings}


def plan(entries: Mapping[str, Any], **variables: Any) -> dict[str, Any]:
    """The upgrade of these hosts."""
    given = {f"gpu_fleet_upgrade_{name}": value for name, value in variables.items()}
    return plan_run(entries, {"gpu_fleet_upgrade_canaries": 0, **given}, [], {}, NOW)


def test_the_modules_read_the_place_of_a_tray() -> None:
    facts, health = tray()
    assert {gpu["name"] for gpu in facts["gpus"]} == {"NVIDIA GB200"}
    for gpu in (*facts["gpus"], *health["gpus"]):
        assert (gpu["fabric_cluster_uuid"], gpu["fabric_clique_id"]) == (ZERO, 2)
    nothing = {"installed": False, "version": None, "state": None, "enabled": None}
    assert facts["imex"] == {**nothing, "domain_status": None, "nodes_not_ready": {}, "channels": 0}


@pytest.mark.parametrize(("model", "has_one"), [("gb200", False), ("h200", True)])
def test_a_tray_without_a_fabric_manager_is_not_sent_to_one(model: str, has_one: bool, tmp_path: Path) -> None:
    def break_fabric(host: HealthHost) -> None:
        host.control("fault", "field", "fabric/state", "--text", "In Progress")

    _facts, health = read_host(tmp_path, break_fabric, gpus=[{"model": model, "count": 4}])
    (finding, *_others) = [one for one in health["findings"] if one["row"] == "fabric_not_completed"]
    assert ("abric Manager" in finding["message"] or "fabricmanager" in finding["message"]) is has_one
    assert (finding["remedy"] == "restart_fabric_manager") is has_one


def test_a_rack_in_order_has_no_finding_and_is_one_batch() -> None:
    assert rows(rack()) == {}
    assert plan(rack())["batches"] == [[*NAMES]]
    assert "gpu_fleet_nvlink_domain" in OF_PLAYBOOKS


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"tray05": {"cluster": ZERO}}, {"nvlink_domain_unset": ["tray05"]}),
        ({"tray05": {"clique": 0}}, {"nvlink_domain_unset": ["tray05"]}),
        ({"tray05": {"cluster": OTHER}}, {"nvlink_domain_cluster": ["tray05"]}),
        ({"tray05": {"clique": 3}}, {"nvlink_domain_clique": ["tray05"]}),
        ({"tray05": {"driver": "580.126.09"}}, {"nvlink_domain_driver": ["tray05"]}),
        ({"tray05": {"imex": {"version": "580.126.09"}}}, {"nvlink_domain_imex": ["tray05"]}),
        ({"tray05": {"imex": {"state": "failed"}}}, {"nvlink_domain_service": ["tray05"]}),
        (
            {"tray05": {"imex": {"domain_status": "DEGRADED", "nodes_not_ready": {"10.0.0.9": "UNAVAILABLE"}}}},
            {"nvlink_domain_state": ["tray05"]},
        ),
        ({"tray05": {"imex": {"channels": 0}}}, {"nvlink_domain_channels": ["tray05"]}),
        # One that Kubernetes has, and others that the host has.
        ({"tray05": {"imex": {"state": "inactive", "enabled": "masked"}}}, {"nvlink_domain_service": ["tray05"]}),
        ({"tray05": {"imex": {"installed": False, "state": None}}}, {"nvlink_domain_service": ["tray05"]}),
        ({"tray05": {"entry": {"is_missing": True}}}, {"nvlink_domain_incomplete": ["tray05"]}),
        ({"tray05": {"domain": ""}}, {"nvlink_domain_undeclared": ["tray05"]}),
        # Without a majority all of them.
        ({name: {"driver": "580.126.09"} for name in NAMES[:9]}, {"nvlink_domain_driver": [*NAMES]}),
    ],
)
def test_a_wrong_member_is_found(changed: Mapping[str, Mapping[str, Any]], expected: dict[str, list[str]]) -> None:
    entries = rack(changed)
    assert rows(entries) == expected
    lines = domain_lines(judged(entries))
    assert len(lines) == 1
    assert ("tray05: " in lines[0]) and "restart the Fabric Manager" not in lines[0]


# The form that the suite https://github.com/NVIDIA/ai-cloud-validation states to have seen with driver
# 580.95.05. Its isvctl/tests/providers/aws/test_aws_network_scripts.py has documents of a live domain of two hosts
# in September 2026, with other names: one that is up, and one with another version on a host. The others are a model.
def live(domain: str, node: str, connection: str) -> str:
    """The document of a live domain; each node has the state of its connections, which is not read."""
    addresses = ("10.0.0.1", "10.0.0.2")
    connections = {
        str(number): {"host": host, "status": connection, "changed": domain == "UP"}
        for number, host in enumerate(addresses)
    }
    nodes = {
        str(number): {"status": node, "host": host, "hostName": f"node{number}", "connections": connections}
        for number, host in enumerate(addresses)
    }
    return json.dumps({"nodes": nodes, "timestamp": "9/4/2026 00:00:00.000", "status": domain})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (live("UP", "READY", "CONNECTED"), ("UP", {})),
        (
            live("DOWN", "UNAVAILABLE", "INVALID"),
            ("DOWN", {"10.0.0.1": "UNAVAILABLE", "10.0.0.2": "UNAVAILABLE"}),
        ),
        (
            '{"nodes": {"0": {"status": "READY", "host": "10.0.0.1", "version": "580.95.05"}}, "status": "UP"}',
            ("UP", {}),
        ),
        (
            '{"nodes": {"0": {"status": "READY"}, "1": {"status": "UNAVAILABLE", "host": "b"}}, "status": "DOWN"}',
            ("DOWN", {"b": "UNAVAILABLE"}),
        ),
        ("", (None, {})),
        ("[]", (None, {})),
        ('{"nodes": {"0": 1}, "status": "UP"}', (None, {})),
        ("[" * 100_000, (None, {})),
    ],
)
def test_the_state_of_an_imex_domain(text: str, expected: tuple[str | None, dict[str, str]]) -> None:
    assert parse_imex_domain(text) == expected


def test_imex_of_kubernetes_runs_on_no_host() -> None:
    masked = {"imex": {"state": "inactive", "enabled": "masked"}}
    assert rows(rack(dict.fromkeys(NAMES, masked))) == {}


def test_what_a_host_did_not_report_is_unknown_and_no_finding() -> None:
    entries = rack(
        {"tray05": {"cluster": None, "clique": None, "driver": None, "imex": {"state": None, "version": None}}}
    )
    assert rows(entries) == {}
    # What is no UUID becomes no name of a unit.
    wrong = [{"name": "GB200", "fabric_cluster_uuid": "../../rack7", "fabric_clique_id": 2}]
    assert member_of("tray05", "", read(Placement, observed("580", wrong))).fabrics == ()


def test_hosts_that_the_inventory_does_not_name_are_proposed_by_their_place() -> None:
    entries = rack({name: {"domain": "", "cluster": OTHER if name > "tray09" else CLUSTER} for name in NAMES})
    found = judged(entries)
    assert [(domain.name, domain.is_proposed) for domain in found] == [(f"{CLUSTER}.2", True), (f"{OTHER}.2", True)]
    # GPUs that are in no fabric, and those of one host, are no domain.
    assert judged(rack({name: {"domain": "", "cluster": ZERO} for name in NAMES})) == ()
    assert judged({"tray01": rack({"tray01": {"domain": ""}})["tray01"]}) == ()


def test_a_proposed_domain_is_shown_and_no_unit() -> None:
    """A tray whose domain the inventory does not name waits by its own report, whatever another host claims."""
    entries = rack({name: {"domain": ""} for name in NAMES})
    found = plan(entries)
    assert found["order"] == [] and found["held"].keys() == {*NAMES}
    assert f"a tray of the NVLink domain {CLUSTER}.2, by its own report" in found["held"]["tray01"]
    assert found["lines"][1].endswith("proposed and not acted on; name it by gpu_fleet_nvlink_domain")
    assert {host["unit"] for host in found["hosts"].values()} == {""}
    # A unit that a user has named is as good.
    assert plan({name: {**entry, "unit": "row1"} for name, entry in entries.items()})["batches"] == [[*NAMES]]


def test_a_host_that_claims_the_place_of_others_holds_none_of_them() -> None:
    """18 servers without a domain, which are no trays; a liar repeats the place that one of them reports."""
    servers = rack({name: {"domain": ""} for name in NAMES})
    for entry in servers.values():
        entry["nvlink"] = {**entry["nvlink"], "gpus": [{**gpu, "name": "H200"} for gpu in entry["nvlink"]["gpus"]]}
    honest = plan(servers, batch="100%")
    liar = {**rack({"tray01": {"domain": ""}})["tray01"], "group": "other"}
    for claims in (
        {},
        {"is_missing": True},
        {"nvlink": {**liar["nvlink"], "gpus": servers["tray01"]["nvlink"]["gpus"]}},
    ):
        found = plan({"liar": {**liar, **claims}, **servers}, batch="100%")
        assert [name for name in found["order"] if name != "liar"] == honest["order"] == [*NAMES]
        assert not found["held"].keys() & {*NAMES}


def test_a_host_does_not_join_what_the_inventory_names_by_its_own_word() -> None:
    entries = rack({"tray05": {"domain": ""}})
    members = [member_of(name, one["domain"], read(Placement, one["nvlink"])) for name, one in entries.items()]
    assert members[4].place == Fabric(CLUSTER, 2)
    assert [one.host for one in members if undeclared(one)] == ["tray05"]
    found = plan(entries)
    assert found["batches"] == [[name for name in NAMES if name != "tray05"]]
    assert [*found["held"]] == ["tray05"]


def test_what_is_not_one_domain_is_held_and_named_and_the_others_are_served() -> None:
    """Fifty racks, of which one has a swapped tray."""
    entries = {
        f"{number:02}{name}": {**entry, "domain": f"rack{number:02}"}
        for number in range(50)
        for name, entry in rack({"tray05": {"cluster": OTHER}} if number == 7 else {}).items()
    }
    assert len(entries) == 900
    found = plan(entries)
    held = {name for name in entries if name.startswith("07")}
    assert found["held"].keys() == held and {*found["order"]} == {*entries} - held
    why = found["held"]["07tray01"]
    assert re.match(r"gpu_fleet_nvlink_domain rack07: 07tray05: cluster 2a7e1f0c.*17 of 18 have", why)
    assert "correct gpu_fleet_nvlink_domain in the inventory" in why
    # What needs nothing is not held, and a run that was interrupted there stays as it is.
    idle = {name: {**entry, "needs": []} for name, entry in entries.items()}
    assert plan(idle)["held"] == {}
    states = [advance(begin("07tray01", found["run"], NOW, None, True), "draining", NOW).as_dict()]
    again = plan_run(entries, {"gpu_fleet_upgrade_canaries": 0}, states, found, NOW)
    assert again["run"] == found["run"] and again["held"].keys() == held


@pytest.mark.parametrize(
    ("imex", "wrong"),
    [
        ({"nodes_not_ready": [1]}, "imex.nodes_not_ready is a list, not a dictionary"),
        ({"nodes_not_ready": {"\ud800": "x"}}, "imex.nodes_not_ready has '\\ud800', not text of up to 64 characters"),
        ({"channels": 10**400}, "imex.channels is a number, which nothing can have"),
        ({"version": ["580"]}, "imex.version is a list, not text"),
        ({"state": {"a": 1}}, "imex.state is a dict, not text"),
    ],
)
def test_a_report_of_another_form_is_that_of_a_missing_host(imex: Mapping[str, Any], wrong: str) -> None:
    entries = {**rack(), "liar": {**rack({"tray01": {"domain": "", "imex": imex}})["tray01"], "group": "other"}}
    found = plan(entries)
    assert found["batches"] == plan(rack())["batches"]
    assert found["missing"] == ["liar"] and [*found["held"]] == ["liar"]
    assert f"what it reports of its NVLink domain cannot be used: {wrong}" in found["held"]["liar"]
    json.dumps(found, allow_nan=False)


def test_the_plan_of_an_upgrade_has_the_findings_first() -> None:
    lines = plan(rack({"tray05": {"cluster": ZERO}}))["lines"]
    assert lines[1].startswith("NVLink domain rack7: a cluster UUID or clique of zero (tray05: cluster 00000000-")
    assert lines[2].startswith("batch 1, 18 hosts:")


def test_an_upgrade_that_was_interrupted_with_two_versions_goes_on_as_one_unit() -> None:
    first = plan(rack())
    states = [begin(name, first["run"], NOW, None, True) for name in NAMES]
    done = [advance(advance(advance(state, "draining", NOW), "drained", NOW), "changed", NOW) for state in states[:7]]
    # One of the others has no driver that reports its fabric at the moment.
    later = rack({name: {"driver": "590.48.01"} for name in NAMES if name < "tray08"})
    for name in NAMES[:7]:
        later[name]["needs"] = []
    later["tray12"]["nvlink"] = {}
    again = plan_run(
        later, {"gpu_fleet_upgrade_canaries": 0}, [one.as_dict() for one in (*done, *states[7:])], first, NOW
    )
    assert again["run"] == first["run"]
    assert again["batches"] == [[*NAMES]]
    assert {host["unit"] for host in again["hosts"].values()} == {"rack7"}
    assert any("different driver versions" in line for line in again["lines"])


@pytest.mark.parametrize("broken", [{"is_missing": True}, {"drain": "gpu.fleet 20260504T080000Z: x"}])
def test_a_domain_without_one_of_its_trays_is_not_changed(broken: Mapping[str, Any]) -> None:
    entries = rack()
    entries["tray05"] = {**entries["tray05"], **broken}
    found = plan(entries)
    others = set(NAMES) - {"tray05"}
    assert found["batches"] == [] and others <= found["held"].keys()
    assert "the hosts of rack7 are changed together, and tray05 could not be reached" in found["held"]["tray01"]
    assert plan({name: entries[name] for name in others})["batches"] == [[*others]]


def test_a_domain_that_its_group_may_not_lose_is_held_and_the_others_are_served() -> None:
    entries = {name: {**entry, "group": "row3"} for name, entry in rack().items()}
    found = plan({**entries, "node": {"needs": ["nvidia_driver"]}})
    assert found["batches"] == [["node"]] and found["held"].keys() == {*NAMES}
    assert "unit rack7 has 18 hosts of group row3 to change together" in found["held"]["tray01"]
    assert plan(entries, max_unavailable=18)["batches"] == [[*NAMES]]


@pytest.mark.parametrize("domain", ["rack7", ""])
def test_a_named_domain_is_one_unit_in_the_budget_of_remedies(domain: str) -> None:
    finding = {"row": "xid_reset", "gpu": "", "verdict": "fail", "remedy": "reboot", "message": "Xid 119"}
    health = {
        **tray()[1],
        "verdict": "fail",
        "findings": [finding],
        "gpus": [{**gpu, "fabric_cluster_uuid": CLUSTER} for gpu in tray()[1]["gpus"]],
    }
    entries = {name: {"domain": domain, "group": "row3", "health": health} for name in NAMES[:4]}
    well = {**tray()[1], "verdict": "ok", "findings": [], "gpus": []}
    entries.update({f"node{number}": {"health": well, "group": "row3"} for number in range(9)})
    found = plan_remedies(entries, {}, [], {}, NOW, attempts=[])
    assert bool(found["common"]) is (domain == "")
    assert found["batches"] == ([[*NAMES[:4]]] if domain else [])
    assert any("by the facts" in line for line in found["lines"]) is (domain == "")


@pytest.mark.parametrize(
    ("domain", "row", "action"),
    [
        ("", "imex_unready", "person"),
        ("", "imex_inactive", "remedy"),
        ("rack7", "imex_unready", "remedy"),
    ],
)
def test_imex_of_a_tray_without_a_named_domain_is_for_a_person(domain: str, row: str, action: str) -> None:
    finding = {"row": row, "gpu": None, "verdict": "fail", "remedy": "restart_imex", "message": "IMEX"}
    gpus = [{**gpu, "fabric_cluster_uuid": CLUSTER} for gpu in tray()[1]["gpus"]]
    health = {**tray()[1], "verdict": "fail", "findings": [finding], "gpus": gpus}
    found = plan_remedies({"tray01": {"domain": domain, "health": health}}, {}, [], {}, NOW, attempts=[])
    assert found["decisions"]["tray01"]["action"] == action


def test_the_report_shows_domains_and_what_needs_action() -> None:
    facts, health = tray()
    hosts = []
    for name in NAMES[:3]:
        host, refusals = read_report(name, {"host": facts}, health, {"gpu_fleet_nvlink_domain": "rack7"})
        assert refusals == []
        hosts.append(host)
    (domain,) = sections.nvlink_domains(hosts)
    assert (domain.name, domain.hosts) == ("rack7", NAMES[:3])
    (action,) = [one for one in sections.actions(hosts) if one.row == "nvlink_domain_unset"]
    assert [host.host for host in action.hosts] == [*NAMES[:3]]
    assert "no host has a Fabric Manager here" in action.what_to_do


def test_a_host_without_an_entry_of_its_own_has_its_place_by_the_inventory() -> None:
    """One that was refused or could not be reached."""
    entries: dict[str, dict[str, Any]] = {
        "a": {"needs": ["nvidia_driver"]},
        "b": {"is_missing": True},
        "c": {"is_missing": True, "domain": "d"},
    }
    variables = {"gpu_fleet_nvlink_domain": "rack1", "gpu_fleet_upgrade_on_busy": "skip"}
    found = placed(entries, {"a": variables, "b": variables, "c": variables})
    assert found == {
        "a": {"needs": ["nvidia_driver"], "domain": "rack1"},
        "b": {"is_missing": True, "domain": "rack1"},
        "c": {"is_missing": True, "domain": "d"},
    }
    assert plan_run(found, {"gpu_fleet_upgrade_canaries": 0}, [], {}, NOW)["order"] == []
