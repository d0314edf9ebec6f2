# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which remedy a host gets: the ladder, its limit, the common cause, the budget of a group, whose drain it is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
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
        (2, 10, "5%", True),
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


HEALTHY: Mapping[str, Any] = {"verdict": "ok", "remedy": "none", "findings": [], "gpus": []}


def run(entries: Mapping[str, Any], *states: Any, previous: Mapping[str, Any] | None = None, **given: Any) -> Any:
    """The document of a run, with variables by their whole names."""
    attempts = given.pop("attempts", [])
    variables = {"gpu_fleet_remediate_stop_at": "100%", **given}
    return plan_remedies(entries, variables, states, previous or {}, NOW, attempts=attempts)


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
    new = set(plan["order"]) - set(begun.postponed) - already
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
    given = {"limit": "3", "stop_at": "7", "retry_failed": "yes"}
    options = read_options({f"gpu_fleet_remediate_{name}": value for name, value in given.items()})
    assert (options.limit, options.stop_at, options.retry_failed) == (3, 7, True)
