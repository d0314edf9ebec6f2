# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which remedy a host gets: the ladder, its limit, the common cause, the budget of a group, whose drain it is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import REMEDIES
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.remedies import (
    STRONGER,
    Attempt,
    Finding,
    Options,
    Patient,
    not_healthy,
    read_options,
    treat,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.remedy_run import (
    NO_GROUP,
    plan_remedies,
    recorded,
    refusal,
    support_case,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_plan import RollingError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import gate
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import advance, read_state

NOW = "2026-05-04T09:00:00Z"
ALL = Options(commands={"power_cycle": ["ipmitool"]})


def found(remedy: str, verdict: str = "fail", row: str = "xid", gpu: str = "GPU-1") -> Finding:
    """A finding with this remedy."""
    return Finding(row, verdict, remedy, gpu, f"{gpu}: {row}")


def sick(*remedies: str, **given: Any) -> Patient:
    """A host with a finding for each remedy."""
    return Patient("node", "fail", tuple(map(found, remedies)), **given)


def tried(*remedies: str, outcome: str = "failed", day: int = 3, gpu: str = "GPU-1") -> tuple[Attempt, ...]:
    """Remedies of one day of the month, one after the other."""
    return tuple(
        Attempt(remedy, "run", f"2026-05-{day:02}T0{hour}:00:00Z", (gpu,), outcome)
        for hour, remedy in enumerate(remedies)
    )


def decide(patient: Patient, options: Options = ALL) -> tuple[str, str]:
    """What is done with one host, and the remedy."""
    decision = treat([patient], options, NOW).decisions[patient.name]
    return decision.action, decision.remedy


@pytest.mark.parametrize("scheduler", ["none", "commands", "kubernetes", "slurm"])
@pytest.mark.parametrize("is_drained", [False, True])
@pytest.mark.parametrize("health", [{"verdict": "fail"}, {"verdict": "warn", "remedy": "inspect"}, {"verdict": "ok"}])
def test_a_host_that_pulls_waits_for_a_controller_with_every_scheduler(
    scheduler: str, is_drained: bool, health: dict[str, str]
) -> None:
    """None of them grants a turn within the budget of a group, also not for a node that the check has drained."""
    finding = {"row": "xid", "gpu": "GPU-1", "remedy": "reset_gpu", "message": "Xid 119", **health}
    drain = {"is_out": True, "drain": "gpu.fleet.health check: Xid 119; remedy reset_gpu"} if is_drained else {}
    findings = [finding] if health["verdict"] != "ok" else []
    entry = {"health": {"verdict": health["verdict"], "findings": findings, "gpus": []}, **drain}
    variables: dict[str, Any] = {"gpu_fleet_upgrade_scheduler": scheduler, "gpu_fleet_upgrade_slurm_host": "ctl"}
    variables["gpu_fleet_upgrade_commands"] = {"drain": ["true"], "return": ["true"]}
    pulled = plan_remedies({"node": {**entry, "pulls": True}}, variables, [], {}, NOW, attempts=[])
    controlled = plan_remedies({"node": entry}, variables, [], {}, NOW, attempts=[])
    acts = health["verdict"] == "fail" or (health["verdict"] == "warn" and is_drained)
    assert pulled["order"] == [] and (controlled["order"] == ["node"]) == acts
    waits = [line for line in pulled["lines"] if line.startswith("node is not touched: it waits for a controller")]
    assert len(waits) == acts and all("neither the budget of its group nor a common cause" in line for line in waits)


@pytest.mark.parametrize("remedy", REMEDIES)
def test_every_remedy_is_carried_out_or_for_a_person(remedy: str) -> None:
    persons = ("restart_vm", "inspect", "field_diagnostic", "service", "restart_application", "none")
    expected = ("person", "inspect" if remedy == "none" else remedy) if remedy in persons else ("remedy", remedy)
    assert decide(sick(remedy, has_version=True)) == expected
    assert (remedy in STRONGER) == (expected[0] == "remedy")
    assert all(list(REMEDIES).index(next_one) > list(REMEDIES).index(one) for one, next_one in STRONGER.items())


@pytest.mark.parametrize(
    ("patient", "options", "expected"),
    [
        (Patient("node", "ok"), ALL, ("nothing", "none")),
        (Patient("node", "warn", (found("drain_and_reset", "warn", "row_remap_pending"),)), ALL, ("nothing", "none")),
        (
            Patient("node", "warn", (found("drain_and_reset", "warn", "row_remap_pending"),)),
            Options(on=("fail", "row_remap_pending")),
            ("remedy", "drain_and_reset"),
        ),
        (Patient("node", "unknown", (found("reboot", "unknown"),)), ALL, ("left", "none")),
        (Patient("node", ""), ALL, ("left", "none")),
        # The strongest of all findings, for a person as well.
        (sick("reset_gpu", "reboot"), ALL, ("remedy", "reboot")),
        (sick("reset_gpu", "service"), ALL, ("person", "service")),
        # What the site has not declared is for a person.
        (sick("power_cycle"), Options(), ("person", "power_cycle")),
        (sick("update_software"), ALL, ("person", "update_software")),
        # A drain of others, of the check, of another run.
        (sick("reboot", is_drained=True, drain="bad cable, call Ann"), ALL, ("left", "none")),
        (sick("reboot", is_drained=True, drain=""), ALL, ("left", "none")),
        (sick("reboot", is_drained=True, drain="gpu.fleet.health check: GPU 1"), ALL, ("remedy", "reboot")),
        # A run that was killed: before the remedy began, after it, and with a host that is healthy by now.
        (sick("reboot", is_ours=True), ALL, ("remedy", "reboot")),
        (sick("reboot", is_ours=True, attempts=tried("reboot", outcome="begun")), ALL, ("judge", "none")),
        (Patient("node", "unknown", is_ours=True, attempts=tried("reboot", outcome="begun")), ALL, ("judge", "none")),
        (Patient("node", "ok", is_ours=True), ALL, ("judge", "none")),
        # It was returned to service since: then it did not help.
        (sick("reset_gpu", attempts=tried("reset_gpu", outcome="begun")), ALL, ("remedy", "reboot")),
        # The ladder.
        (sick("reset_gpu", attempts=tried("reset_gpu")), ALL, ("remedy", "reboot")),
        (sick("reset_gpu", attempts=tried("reset_gpu", outcome="helped")), ALL, ("remedy", "reset_gpu")),
        (sick("reboot", attempts=tried("reboot")), ALL, ("remedy", "power_cycle")),
        (sick("reboot", attempts=tried("reboot")), Options(), ("person", "power_cycle")),
        (sick("power_cycle", attempts=tried("reset_gpu")), ALL, ("remedy", "power_cycle")),
        (sick("configure", attempts=tried("configure")), ALL, ("person", "inspect")),
        (sick("reset_gpu", attempts=tried("reset_gpu", "reboot")), Options(limit=9), ("person", "inspect")),
        # The limit: of a GPU, in some days, whether they helped or not.
        (sick("reset_gpu", attempts=tried("reset_gpu", "reset_gpu", outcome="helped")), ALL, ("person", "inspect")),
        (sick("reset_gpu", attempts=tried("reset_gpu", "reboot", gpu="GPU-2")), ALL, ("remedy", "reset_gpu")),
        (
            sick("reset_gpu", attempts=tried("reset_gpu", "reboot", day=1)),
            Options(limit_days=2),
            ("remedy", "reset_gpu"),
        ),
        # One that waits for a person does so whatever its verdict has become.
        (sick("service", is_ours=True, has_failed=True, is_reported=True), ALL, ("left", "none")),
        (Patient("node", "ok", is_ours=True, has_failed=True), ALL, ("left", "none")),
        (Patient("node", "ok", is_ours=True, has_failed=True), Options(retry_failed=True), ("judge", "none")),
        # The next remedy after one that did not help.
        (sick("reset_gpu", is_ours=True, has_failed=True, attempts=tried("reset_gpu")), ALL, ("remedy", "reboot")),
    ],
)
def test_the_decision_about_a_host(patient: Patient, options: Options, expected: tuple[str, str]) -> None:
    assert decide(patient, options) == expected


def test_a_remedy_of_the_host_counts_for_each_of_its_gpus() -> None:
    attempts = tuple(Attempt("reboot", "run", NOW, (), "helped") for _number in range(2))
    assert decide(sick("reset_gpu", attempts=attempts)) == ("person", "inspect")


def decided(patients: list[Patient], options: Options) -> list[tuple[str, str]]:
    """What is done with each of them."""
    return [(one.action, one.remedy) for one in treat(patients, options, NOW).decisions.values()]


def test_imex_is_restarted_on_all_hosts_of_a_domain_or_none() -> None:
    domain = [Patient(f"n{i}", "fail", (found("restart_imex"),), unit="d") for i in range(3)]
    options = Options(stop_at="100%")
    assert {one.action for one in treat(domain, options, NOW).decisions.values()} == {"remedy"}
    others = [*domain, Patient("n3", "ok", unit="d")]
    assert [one.action for one in treat(others, options, NOW).decisions.values()] == ["person"] * 3 + ["nothing"]
    # Where it does not run, no job depends on it: it is started there alone.
    idle = Finding("imex_inactive", "fail", "restart_imex", message="nvidia-imex.service is enabled and failed")
    one = [Patient("n4", "fail", (idle,), unit="d"), Patient("n5", "ok", unit="d")]
    assert decided(one, options) == [("remedy", "restart_imex"), ("nothing", "none")]
    both = [Patient("n4", "fail", (idle, found("restart_imex")), unit="d"), Patient("n5", "ok", unit="d")]
    assert decided(both, options) == [("person", "restart_imex"), ("nothing", "none")]


@pytest.mark.parametrize(
    ("number", "size", "stop_at", "is_common"),
    [
        (1, 1, "5%", False),
        (1, 10, "5%", False),
        # Two are a sick host and one that reports the same: of few hosts nothing can be concluded.
        (2, 2, "5%", False),
        (2, 8, "5%", False),
        (3, 3, "5%", True),
        (3, 8, "5%", True),
        (2, 39, "5%", False),
        (5, 100, "5%", False),
        (6, 100, "5%", True),
        (500, 10_000, "5%", False),
        (501, 10_000, "5%", True),
        (3, 10_000, 2, True),
        (10_000, 10_000, "100%", False),
    ],
)
def test_a_common_cause_stops_all(number: int, size: int, stop_at: str | int, is_common: bool) -> None:
    fleet = [Patient(f"n{i}", *(("fail", (found("reboot"),)) if i < number else ("ok",))) for i in range(size)]
    treatment = treat(fleet, Options(stop_at=stop_at), NOW)
    acted = [one for one in treatment.decisions.values() if one.action == "remedy"]
    assert (bool(treatment.common), len(acted)) == (is_common, 0 if is_common else number)
    # The hosts of an NVLink domain are one.
    domain = [Patient(one.name, one.verdict, one.findings, unit="d" if one.findings else "") for one in fleet]
    assert treat(domain, Options(stop_at=stop_at), NOW).common == ""


def health(remedy: str, verdict: str = "fail", gpu: str | None = "GPU-1", row: str = "xid") -> dict[str, Any]:
    """A result of the module gpu_health."""
    finding = {"row": row, "gpu": gpu, "verdict": verdict, "remedy": remedy, "message": f"{row}: {remedy}"}
    return {"verdict": verdict, "remedy": remedy, "findings": [finding], "gpus": []}


def gpu(uuid: str | None, address: str) -> dict[str, Any]:
    """A GPU in it."""
    placement = dict.fromkeys(("name", "fabric_cluster_uuid", "fabric_clique_id"))
    return {"uuid": uuid, "pci_bus_id": address, **placement}


HEALTHY: Mapping[str, Any] = {"verdict": "ok", "remedy": "none", "findings": [], "gpus": []}


def run(entries: Mapping[str, Any], *states: Any, previous: Mapping[str, Any] | None = None, **given: Any) -> Any:
    """The document of a run, with variables by their whole names."""
    attempts, seen = given.pop("attempts", []), given.pop("seen", None)
    variables = {"gpu_fleet_remediate_stop_at": "100%", **given}
    return plan_remedies(entries, variables, states, previous or {}, NOW, attempts=attempts, seen=seen)


def test_the_budget_of_a_group_counts_what_is_out_of_service_already() -> None:
    entries = {
        "sick": {"health": health("reboot"), "group": "a"},
        "drained": {"health": HEALTHY, "group": "a", "is_out": True, "drain": "Ann"},
        "other": {"health": health("reboot"), "group": "b"},
        "alone": {"health": health("reboot")},
        "gated": {"health": health("reboot"), "group": "c", "is_out": True, "drain": "gpu.fleet.health check: x"},
        "gone": {"is_missing": True, "group": "b2"},
        "next": {"health": health("reboot"), "group": "b2"},
    }
    plan = run(entries)
    found = gate(plan, {}, list(plan["states"].values()), plan["order"])
    assert set(plan["order"]) == {"sick", "other", "alone", "gated", "next"} and found.stop == ""
    assert set(found.postponed) == {"sick", "next"}
    assert "gpu_fleet_upgrade_max_unavailable is 1" in found.postponed["sick"]
    assert plan["hosts"]["alone"]["group"] == NO_GROUP


def test_a_domain_is_one_unit_of_the_budget() -> None:
    entries = {f"n{i}": {"health": health("reset_fabric"), "group": "rack", "unit": f"d{i // 4}"} for i in range(8)}
    plan = run(entries)
    assert [len(batch) for batch in plan["batches"]] == [4, 4]
    found = gate(plan, {}, list(plan["states"].values()), plan["order"])
    assert set(found.postponed) == {"n4", "n5", "n6", "n7"}


@pytest.mark.parametrize("seed", range(3))
def test_a_fleet_of_10000_hosts_never_loses_more_than_its_budget(seed: int) -> None:
    chance = random.Random(seed)
    remedies = list(REMEDIES)[1:]
    entries: dict[str, dict[str, Any]] = {}
    for number in range(10_000):
        is_sick, is_drained = chance.random() < 0.03, chance.random() < 0.01
        verdict = chance.choice(("fail", "fail", "unknown", "warn"))
        entries[f"n{number}"] = {
            "health": health(chance.choice(remedies), verdict, row=f"row{number % 97}") if is_sick else HEALTHY,
            "group": f"rack{number // 16}",
            "unit": f"domain{number // 4}" if number % 16 >= 12 else "",
            "is_out": is_drained,
            "drain": chance.choice(("Ann", "gpu.fleet.health check: x")) if is_drained else "",
        }
    plan = run(entries, gpu_fleet_upgrade_max_unavailable=2)
    assert plan["common"] == "" and plan["order"]
    for name, decision in plan["decisions"].items():
        verdict = entries[name]["health"]["verdict"]
        assert (decision["action"] in ("remedy", "person")) == (
            verdict == "fail" and entries[name]["drain"] in ("", "gpu.fleet.health check: x")
        )
        assert (decision["action"] in ("remedy", "person")) == (name in plan["order"])
    assert sorted(name for batch in plan["batches"] for name in batch) == sorted(plan["order"])
    begun = gate(plan, {"gpu_fleet_upgrade_max_unavailable": 2}, list(plan["states"].values()), plan["order"])
    already = {name for name, entry in entries.items() if entry["is_out"]}
    # What is for a person comes on top.
    persons = {name for name, decision in plan["decisions"].items() if decision["action"] == "person"}
    assert persons and persons.isdisjoint(begun.postponed)
    new = set(plan["order"]) - set(begun.postponed) - already - persons
    already -= persons
    place = {name: (entry["group"], entry["unit"] or name) for name, entry in entries.items()}
    before = Counter(group for group, _unit in {place[name] for name in already})
    after = Counter(group for group, _unit in {place[name] for name in already | new})
    assert all(number <= max(2, before[group]) for group, number in after.items())


def test_what_is_common_or_not_read_is_not_in_the_plan() -> None:
    entries = {f"n{i}": {"health": health("reboot"), "group": f"g{i}"} for i in range(4)}
    begun = {"host": "n0", "run": "r", "step": "drained", "history": []}
    plan = run(entries, begun, gpu_fleet_remediate_stop_at=3)
    assert plan["order"] == [] and "the cause is common" in plan["common"]
    assert "n0 is not touched: the cause is common" in plan["lines"]


def test_a_remedy_that_was_begun_is_not_in_the_plan_of_the_next_run() -> None:
    entries = {"node": {"health": health("reboot"), "is_out": True, "drain": ""}}
    first = run({"node": {"health": health("reboot")}})
    state = read_state(first["states"]["node"])
    for step in ("draining", "drained"):
        state = advance(state, step, NOW)
    attempts = [recorded({}, "node", "begun", decision=first["decisions"]["node"], run=first["run"], time=NOW)]
    second = run(entries, state.as_dict(), previous=first, attempts=attempts)
    assert second["run"] == first["run"] and second["order"] == ["node"]
    assert second["decisions"]["node"]["action"] == "judge"
    # It has not helped: the next run takes the next remedy, and the one after that none.
    attempts = [recorded(attempts[0], "node", "failed")]
    failed = advance(state, "failed", NOW, "still").as_dict()
    third = run(
        entries,
        failed,
        previous=second,
        attempts=attempts,
        gpu_fleet_remediate_commands={"power_cycle": ["ipmitool"]},
    )
    assert (third["order"], third["decisions"]["node"]["remedy"]) == (["node"], "power_cycle")
    assert third["steps"]["node"] == ["drained", "changed", "healthy", "in_service"]
    attempts = [recorded(attempts[0], "node", "begun", decision=third["decisions"]["node"], run=third["run"], time=NOW)]
    attempts = [recorded(attempts[0], "node", "failed")]
    fourth = run(entries, failed, previous=third, attempts=attempts)
    assert (fourth["order"], fourth["decisions"]["node"]["action"]) == (["node"], "person")
    # A person has the case once.
    attempts = [recorded(attempts[0], "node", "person")]
    fifth = run(entries, failed, previous=fourth, attempts=attempts)
    assert fifth["order"] == [] and fifth["failed"] == {"node": "still"}
    assert fifth["decisions"]["node"]["why"].startswith("it stays drained for a person: inspect: ")


def test_a_node_that_another_run_has_drained_is_held() -> None:
    drain = "gpu.fleet 20260504T080000Z_abc: upgrade"
    plan = run({"node": {"health": health("reboot"), "is_out": True, "drain": drain}})
    assert plan["order"] == [] and "the run 20260504T080000Z_abc of gpu.fleet has drained it" in plan["held"]["node"]


def test_a_node_of_the_check_that_is_healthy_again_is_left_to_the_check() -> None:
    plan = run({"node": {"health": HEALTHY, "is_out": True, "drain": "gpu.fleet.health check: GPU 1"}})
    assert plan["order"] == [] and plan["held"] == {}


def test_a_node_of_the_check_whose_verdict_is_a_warning_by_now_is_judged_and_returned() -> None:
    """The check returns only what is `ok`."""
    entry = {"health": health("update_software", "warn"), "is_out": True, "drain": "gpu.fleet.health check: GPU 1"}
    plan = run({"node": entry})
    assert (plan["order"], plan["decisions"]["node"]["action"], plan["held"]) == (["node"], "judge", {})
    assert plan["steps"]["node"] == ["drained", "changed", "healthy", "in_service"]
    assert run({"node": {**entry, "drain": "", "is_out": False}})["order"] == []


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (HEALTHY, ""),
        (health("none", "warn"), ""),
        (health("reboot"), "xid: reboot"),
        ({**HEALTHY, "verdict": "unknown"}, "the verdict is unknown"),
        ({}, "the verdict is missing"),
    ],
)
def test_only_what_is_known_to_be_healthy_returns(result: Mapping[str, Any], expected: str) -> None:
    assert refusal(result, {}) == expected


def test_a_failure_of_another_row_does_not_return_either() -> None:
    assert not_healthy("fail", (found("reboot", row="other"),), Options(on=("xid",))).startswith("the verdict is fail")


def test_a_support_case_has_serial_numbers_slots_evidence_and_history() -> None:
    gpu = {"index": 0, "uuid": "GPU-1", "serial": "165", "pci_bus_id": "0000:18:00.0", "name": "H200", "more": 1}
    plan = run({"node": {"health": health("service")}})
    result = {**health("service"), "gpus": [gpu], "changes": [{"verdict": "fail"}], "error_history": [{"xid": 48}]}
    case = support_case(
        "node", result, plan, document={"attempts": []}, reason="a\x1b[2J\nb", evidence={"directory": "/var/lib/x"}
    )
    assert case["gpus"][0]["serial"] == "165" and case["gpus"][0]["pci_bus_id"] == "0000:18:00.0"
    assert case["evidence"] == {"host": "node", "directory": "/var/lib/x"} and case["error_history"] == [{"xid": 48}]
    assert "\x1b" not in case["reason"] and "\n" not in case["reason"] and case["remedy"] == "service"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("onn", [], "gpu_fleet_remediate_onn is not a variable of remediate"),
        ("on", [], "gpu_fleet_remediate_on is ()"),
        ("on", "fail", "gpu_fleet_remediate_on is 'fail'; it takes a list"),
        ("on", ["unknown"], "a host whose verdict is another one gets no remedy"),
        ("limit", 0, "gpu_fleet_remediate_limit is 0; it takes a whole number from 1"),
        ("limit_days", True, "gpu_fleet_remediate_limit_days is True"),
        ("stop_at", "0%", "gpu_fleet_remediate_stop_at is '0%'"),
        ("stop_at", 1.5, "gpu_fleet_remediate_stop_at is 1.5"),
        ("stop_minimum", 0, "gpu_fleet_remediate_stop_minimum is 0; it takes a whole number from 1"),
        ("stop_window_hours", "1d", "gpu_fleet_remediate_stop_window_hours is '1d'; it takes a whole number from 1"),
        ("tests", ["dcgm_9"], "gpu_fleet_remediate_tests is ('dcgm_9',)"),
        ("tests", "container", "gpu_fleet_remediate_tests is 'container'"),
        ("retry_failed", "maybe", "gpu_fleet_remediate_retry_failed is 'maybe'; it takes true or false"),
        ("directory", 1, "gpu_fleet_remediate_directory is 1"),
        ("commands", {"reboot": ["x"]}, "it takes a mapping with power_cycle and ticket"),
        ("commands", {"ticket": "x"}, "gpu_fleet_remediate_commands.ticket is 'x'"),
        ("commands", {"ticket": []}, "gpu_fleet_remediate_commands.ticket is []"),
    ],
)
def test_bad_values_are_refused_by_name(name: str, value: object, message: str) -> None:
    with pytest.raises(RollingError) as error:
        read_options({f"gpu_fleet_remediate_{name}": value})
    assert message in str(error.value)


def test_values_of_the_command_line_are_read() -> None:
    given = {"limit": "3", "stop_at": "7", "stop_minimum": "4", "stop_window_hours": "48", "retry_failed": "yes"}
    options = read_options({f"gpu_fleet_remediate_{name}": value for name, value in given.items()})
    assert (options.limit, options.stop_at, options.retry_failed) == (3, 7, True)
    assert (options.stop_minimum, options.stop_window_hours) == (4, 48)


def test_a_reboot_counts_for_the_host_whichever_gpu_it_was_for() -> None:
    """Eight GPUs that fail in turn are no eight limits."""
    attempts: tuple[Attempt, ...] = ()
    rebooted = 0
    for gpu in range(8):
        patient = Patient("node", "fail", (found("reboot", gpu=f"GPU-{gpu}"),), attempts)
        if decide(patient)[0] == "remedy":
            rebooted += 1
            attempts += (Attempt("reboot", "run", "2026-05-03T00:00:00Z", (f"GPU-{gpu}",), "helped"),)
    assert rebooted == 2
    # One that did not help is not repeated for another GPU of the host either.
    failed = tried("reboot", gpu="GPU-7")
    assert decide(sick("reboot", attempts=failed)) == ("remedy", "power_cycle")
    assert decide(sick("reset_gpu", attempts=failed)) == ("remedy", "reset_gpu")


def test_a_gpu_is_one_by_its_uuid_and_by_its_address() -> None:
    address = "00000000:18:00.0"
    known = {"node": {"health": {**health("reset_gpu"), "gpus": [gpu("GPU-1", address)]}}}
    document: dict[str, Any] = {}
    names = ["GPU-1", address]
    for number in range(2):
        plan = run(known, attempts=[document] if document else [])
        assert plan["decisions"]["node"]["action"] == "remedy" and set(plan["decisions"]["node"]["names"]) == {*names}
        document = recorded(document, "node", "begun", decision=plan["decisions"]["node"], run=str(number), time=NOW)
        document = recorded(document, "node", "helped")
    # It is lost by now, and known by its address alone.
    lost = {"node": {"health": {**health("reset_gpu", gpu=address), "gpus": [gpu(None, address)]}}}
    assert run(lost, attempts=[document])["decisions"]["node"]["action"] == "person"
    other = {"node": {"health": health("reset_gpu", gpu="GPU-2")}}
    assert run(other, attempts=[document])["decisions"]["node"]["action"] == "remedy"


@pytest.mark.parametrize(
    ("now", "host", "expected"),
    [
        ("2026-05-04T09:00:00Z", "", "person"),
        ("2026-05-20T09:00:00Z", "", "remedy"),
        # The controller's clock has jumped ahead; the host's has not.
        ("2027-05-04T09:00:00Z", "2026-05-04T09:00:00Z", "person"),
        ("2026-05-20T09:00:00Z", "2026-05-20T09:00:00Z", "remedy"),
        # A host cannot end its own limit.
        ("2026-05-04T09:00:00Z", "2099-01-01T00:00:00Z", "person"),
        ("2026-05-04T09:00:00Z", "yesterday", "person"),
        # The clock is behind what it has recorded itself.
        ("2020-01-01T00:00:00Z", "", "person"),
    ],
)
def test_a_clock_that_jumps_does_not_end_the_limit(now: str, host: str, expected: str) -> None:
    patient = sick("reset_gpu", attempts=tried("reset_gpu", "reset_gpu", outcome="helped"), time=host)
    assert treat([patient], ALL, now).decisions["node"].action == expected


def test_ten_remedies_are_for_a_person_whatever_the_times_are() -> None:
    """Until one has repaired the host: two clocks that jump ahead together end no limit for ever."""
    once = Attempt("reset_gpu", "run", "", ("GPU-1",), "helped")
    years = tuple(replace(once, time=f"{year}-01-01T00:00:00Z") for year in range(2010, 2020))
    assert decide(sick("reset_gpu", attempts=years[:9])) == ("remedy", "reset_gpu")
    assert decide(sick("reset_gpu", attempts=years)) == ("person", "inspect")
    repaired = Attempt("none", "run", "2025-01-01T00:00:00Z", (), "repaired")
    assert decide(sick("reset_gpu", attempts=(*years, repaired))) == ("remedy", "reset_gpu")


def test_what_was_tried_before_a_repair_does_not_count() -> None:
    document = recorded({}, "node", "begun", decision={"remedy": "reboot", "gpus": ["GPU-1"]}, run="a", time=NOW)
    document = recorded(recorded(document, "node", "failed"), "node", "person")
    assert document["is_reported"]
    document = recorded(document, "node", "helped", decision={"is_repaired": True}, run="b", time=NOW)
    assert [one["outcome"] for one in document["attempts"]] == ["failed", "repaired"] and not document["is_reported"]
    plan = run({"node": {"health": health("reboot")}}, attempts=[document])
    assert (plan["decisions"]["node"]["action"], plan["decisions"]["node"]["remedy"]) == ("remedy", "reboot")


def test_the_check_drains_a_host_only_so_often_until_a_person_sees_it() -> None:
    entry = {"health": health("update_software", "warn"), "is_out": True, "drain": "gpu.fleet.health check: GPU 1"}
    document: dict[str, Any] = {}
    for _number in range(2):
        decision = run({"node": entry}, attempts=[document] if document else [])["decisions"]["node"]
        assert (decision["action"], decision["remedy"]) == ("judge", "drain")
        document = recorded(recorded(document, "node", "begun", decision=decision, time=NOW), "node", "helped")
    assert run({"node": entry}, attempts=[document])["decisions"]["node"]["action"] == "person"


def state(host: str, step: str, time: str = "2026-05-04T08:00:00Z") -> dict[str, Any]:
    """The state of a host that a run has taken out of service at this time."""
    return {"host": host, "run": "r", "step": step, "reason": "", "history": [{"step": "draining", "time": time}]}


def for_a_person(host: str) -> dict[str, Any]:
    """The record of a host whose case a person has."""
    return {"host": host, "is_reported": True, "attempts": []}


def common(number: int, size: int, *states: Mapping[str, Any], rows: int = 1, **given: Any) -> str:
    """Why a fleet of `size` hosts is not touched, of which `number` fail now."""
    entries = {
        f"n{i}": {"health": health("reboot", row=f"row{i % rows}") if i < number else HEALTHY} for i in range(size)
    }
    return str(run(entries, *states, **{"gpu_fleet_remediate_stop_at": "5%", **given})["common"])


def test_hosts_that_wait_for_a_person_or_that_others_have_drained_are_no_new_failures() -> None:
    """A fleet of 20, and one of 8, with hosts at repair is treated."""
    for size in (8, 20):
        entries: dict[str, Any] = {f"n{i}": {"health": HEALTHY} for i in range(size)}
        entries["n0"] = entries["n1"] = {"health": health("service")}
        entries["n2"] = entries["n3"] = {"health": health("reboot"), "is_out": True, "drain": "Ann"}
        entries["n4"] = {"health": health("reset_gpu")}
        long_ago = [state(name, "failed", "2026-05-01T00:00:00Z") for name in ("n0", "n1")]
        reported = [for_a_person(name) for name in ("n0", "n1")]
        plan = run(entries, *long_ago, attempts=reported, gpu_fleet_remediate_stop_at="5%")
        assert plan["common"] == "" and plan["order"] == ["n4"]


def test_all_new_failures_together_are_compared_not_each_row() -> None:
    assert common(5, 100, rows=4) == ""
    message = common(20, 100, rows=4)
    assert message.startswith("20 of 100 hosts (NVLink domains count as one) fail now or were taken out of service")
    assert "in the last 24 hours (row0 on 5, row1 on 5, row2 on 5, row3 on 5)" in message
    assert "gpu_fleet_remediate_stop_at is 5% = 5 hosts, and gpu_fleet_remediate_stop_minimum is 3" in message


def test_what_was_taken_out_of_service_within_the_window_counts() -> None:
    recent = [state(f"n{i}", "in_service") for i in range(90, 95)]
    assert common(1, 100, *recent).startswith("6 of 100")
    assert common(1, 100, *recent[1:]) == "" and common(0, 100, *recent) == ""
    old = [state(f"n{i}", "in_service", "2026-05-03T08:00:00Z") for i in range(90, 95)]
    assert common(1, 100, *old) == "" and common(1, 100, *old, gpu_fleet_remediate_stop_window_hours=48) != ""
    # One in the future counts: the clock is wrong.
    assert common(1, 100, *[state(f"n{i}", "in_service", "2030-01-01T00:00:00Z") for i in range(90, 95)]) != ""
    assert common(2, 8, gpu_fleet_remediate_stop_minimum=2).startswith("2 of 8")


def test_a_run_for_one_host_counts_the_fleet_of_its_directory() -> None:
    document: dict[str, Any] = {}
    states: list[dict[str, Any]] = []
    treated = []
    for number in range(60):
        name = f"n{number}"
        plan = plan_remedies({name: {"health": health("reboot")}}, {}, states, {}, NOW, attempts=[], seen=document)
        document = plan["seen"]
        if not plan["common"]:
            treated.append(name)
            states.append(state(name, "in_service"))
    assert treated == ["n0", "n1"]
    # With the fleet seen once, a fifth of a hundred is its size: 5, and no more.
    seen = plan_remedies({f"n{i}": {"health": HEALTHY} for i in range(100)}, {}, [], {}, NOW, attempts=[])["seen"]
    states, treated = [], []
    for number in range(60):
        name = f"n{number}"
        plan = plan_remedies({name: {"health": health("reboot")}}, {}, states, {}, NOW, attempts=[], seen=seen)
        seen = plan["seen"]
        if not plan["common"]:
            treated.append(name)
            states.append(state(name, "in_service"))
    assert treated == [f"n{number}" for number in range(5)]
    # What was not touched and is well by now counts no more.
    seen = plan_remedies({f"n{i}": {"health": HEALTHY} for i in range(100)}, {}, [], {}, NOW, attempts=[], seen=seen)[
        "seen"
    ]
    assert plan_remedies({"n9": {"health": health("reboot")}}, {}, [], {}, NOW, attempts=[], seen=seen)["common"] == ""


def test_records_of_attempts_alone_count_as_well() -> None:
    attempts = [
        {"host": f"m{i}", "is_reported": False, "attempts": [asdict(one) for one in tried("reboot", day=4)]}
        for i in range(2)
    ]
    plan = run({"node": {"health": health("reboot")}}, attempts=attempts, gpu_fleet_remediate_stop_at="5%")
    assert plan["common"].startswith("3 of 3 hosts")


def test_a_run_for_one_host_keeps_the_budget_of_its_group() -> None:
    fleet = {f"n{i}": {"health": HEALTHY, "group": "rack" if i < 4 else "other"} for i in range(8)}
    seen = run(fleet)["seen"]
    entries = {"n1": {"health": health("reboot"), "group": "rack"}}

    def postponed(host: str, step: str, *attempts: Any) -> list[str]:
        before = [state(host, step)]
        plan = run(entries, *before, attempts=list(attempts), seen=seen)
        return list(gate(plan, {}, [*before, *plan["states"].values()], plan["order"]).postponed)

    assert postponed("n0", "drained") == ["n1"] and postponed("n0", "failed") == ["n1"]
    assert postponed("n0", "in_service") == [] and postponed("n5", "drained") == []
    # One for a person comes on top.
    assert postponed("n0", "failed", for_a_person("n0")) == []


def test_what_is_for_a_person_holds_no_remedy_up() -> None:
    entries: dict[str, dict[str, Any]] = {
        "repair": {"health": health("service"), "group": "a"},
        "other": {"health": health("service"), "group": "a"},
        "reset": {"health": health("reset_gpu"), "group": "a"},
        "next": {"health": health("reset_gpu"), "group": "a"},
    }
    plan = run(entries)
    assert plan["batches"][0] == ["reset", "repair", "other"]
    found = gate(plan, {}, list(plan["states"].values()), plan["order"])
    assert list(found.postponed) == ["next"]
    # Now they are for a person, and unreachable.
    failed = [state(name, "failed") for name in ("repair", "other")]
    reported = [for_a_person(name) for name in ("repair", "other")]
    entries["repair"] = {"is_missing": True, "group": "a"}
    plan = run(entries, *failed, attempts=reported)
    assert plan["order"] == ["reset", "next"]
    assert list(gate(plan, {}, [*failed, *plan["states"].values()], ["reset"]).postponed) == []
    # One that a remedy has left unreachable has not been seen by anybody: it counts.
    plan = run(entries, *failed, attempts=reported[1:])
    assert list(gate(plan, {}, [*failed, *plan["states"].values()], ["reset"]).postponed) == ["reset"]


@pytest.mark.parametrize("document", [{"n": {}}, {"n": 1}, {"n": {"group": "", "place": "", "time": "", "rows": 1}}])
def test_another_record_of_a_fleet_is_refused(document: Any) -> None:
    with pytest.raises(RollingError, match="this is not a record of the hosts of a fleet"):
        run({"node": {"health": HEALTHY}}, seen=document)
