# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner of the role gpu_health: when a container is run, what it is expected to see, and what is reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Plan, as_lists
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_health import plan as gpu_health
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_health.plan import (
    CONTAINER,
    JUDGE,
    REPORTS,
    Host,
    Proof,
)

from tests.conftest import ROOT

TASKS = ROOT / "roles" / "gpu_health" / "tasks"
DEFAULTS = RoleData.read().defaults(["gpu_health"])
IMAGE = DEFAULTS["gpu_health_container_image"]
WHOLE, PARENT, EMPTY, FIRST, SECOND = (
    f"{kind}-c17fb1f{number}-eab0-50ac-8ca7-5a0f88ae4bfd" for number, kind in enumerate(["GPU"] * 3 + ["MIG"] * 2)
)
GPUS = [
    {"uuid": WHOLE, "mig_mode_current": "disabled", "mig_devices": []},
    {"uuid": PARENT, "mig_mode_current": "enabled", "mig_devices": [{"uuid": FIRST}, {"uuid": SECOND}]},
    {"uuid": EMPTY, "mig_mode_current": "enabled", "mig_devices": []},
    # One that does not respond.
    {"uuid": None, "mig_mode_current": None, "mig_devices": []},
]
SMI = {"available": True, "driver_version": "580.159.04", "gpus": GPUS, "pci_gpus": [{"device_id": "0x2335"}]}
FACTS: Mapping[str, Any] = {
    "nvidia_smi": SMI,
    "cuda": {"container_toolkit": {"version": "1.20.0", "cdi_specifications": [{"path": "/etc/cdi/nvidia.yaml"}]}},
}
DOCKER: Mapping[str, Any] = {"host_info": {"CDISpecDirs": ["/etc/cdi"]}, "images": [{"Id": "a"}]}
HEALTHY: Mapping[str, Any] = {"verdict": "ok", "remedy": "none", "findings": []}
ALONE = {"is_alone": True}
SEEN = {"gpus": 2, "mig_devices": 2, "mode": "cdi", "proved": "2026-11-22T10:00:00Z"}


def stage(name: str, found: Mapping[str, Any], facts: Mapping[str, Any] | None = None, **variables: Any) -> Any:
    """What a task gets of this stage; `variables` are those of the role without prefix."""
    given = {f"gpu_health_{key}": value for key, value in variables.items()}
    planned = gpu_health.PLANNER.stages[name]({**DEFAULTS, **given}, FACTS if facts is None else facts, found)
    return as_lists(planned) if isinstance(planned, Mapping) else planned


def recorded(plan: Plan, **record: Any) -> dict[str, Any]:
    """The facts of the host after the container of this plan has worked."""
    return {
        **FACTS,
        "gpu_fleet_managed": {"gpu_health": {"inputs": plan.inputs, "data": {"containers": SEEN}, **record}},
    }


def printed(*uuids: str) -> dict[str, Any]:
    """The result of a container that saw these UUIDs."""
    return {"status": 0, "container": {"Output": "".join(f"GPU: NVIDIA H200 (UUID: {uuid})\n" for uuid in uuids)}}


# When a container is run


def test_a_container_is_run_until_it_has_proved_that_it_reaches_the_gpus() -> None:
    first: Plan = stage("plan", {})
    assert first.steps == (CONTAINER, JUDGE)
    facts = recorded(first)
    kept: Plan = stage("plan", {}, facts)
    assert (kept.steps, kept.tasks["proved"]) == ((JUDGE,), SEEN)
    assert stage("plan", {}, recorded(first, drift=[{"message": "Docker was started again"}])).steps == first.steps
    assert stage("plan", {}, facts, container_proof="each_run").steps == first.steps
    # The facts are those of before another role's change, unless the playbook knows that there was none.
    assert stage("plan", {"facts_are_read": True, "is_converged": False}, facts).steps == first.steps
    assert stage("plan", {"facts_are_read": True, "is_converged": True}, facts).steps == (JUDGE,)


@pytest.mark.parametrize(
    "variables", [{"container_image": "registry.example.com/base:2"}, {"container_mode": "legacy"}], ids=str
)
def test_what_the_proof_depends_on_is_an_input(variables: Mapping[str, Any]) -> None:
    assert stage("plan", {}, **variables).inputs != stage("plan", {}).inputs


@pytest.mark.parametrize(
    ("check_mode", "available", "image"), [(True, True, "a:1"), (False, False, "a:1"), (False, True, "")]
)
def test_a_host_that_cannot_run_a_container_has_none(check_mode: bool, available: bool, image: str) -> None:
    facts = {**FACTS, "nvidia_smi": {**SMI, "available": available}}
    assert stage("plan", {"check_mode": check_mode}, facts, container_image=image).steps == (JUDGE,)


def test_the_module_runs_alone_where_nothing_else_is_to_be_done() -> None:
    kept: Plan = stage("plan", {}, recorded(stage("plan", {})))
    assert gpu_health.judges_alone(kept)
    assert not gpu_health.judges_alone(stage("plan", {}))
    assert not gpu_health.judges_alone(stage("plan", {}, container_image="", tests=["dcgm_1"]))
    reports = stage("plan", {}, container_image="", json="/reports")
    assert (reports.steps, gpu_health.judges_alone(reports)) == ((JUDGE, REPORTS), False)


def test_the_task_gives_the_module_each_option_of_the_plan() -> None:
    """The playbook, which runs the module itself, gives it the whole of them."""
    task = yaml.safe_load((TASKS / "judge.yml").read_text(encoding="utf-8"))[0]
    options = task["gpu.fleet.gpu_health"]
    planned = stage("plan", ALONE, {}).tasks["options"]
    # A playbook alone knows that a person has repaired the host.
    assert options.pop("repaired") == "{{ __gpu_health_repaired | default(false) or omit }}"
    assert options == {name: f"{{{{ __gpu_health_plan.options.{name} }}}}" for name in planned}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({}, {}),
        ({"gpu_fleet_expected_gpus": 8, "nvidia_driver_version": "580"}, {"gpu_count": 8, "driver_version": "580"}),
        ({"nvidia_driver_version": "newest"}, {}),
        ({"nvidia_driver_version": None}, {}),
        ({"nvidia_driver_version": "575", "gpu_health_expected": {"driver_version": "580"}}, {"driver_version": "580"}),
    ],
)
def test_what_other_roles_declare_is_expected(others: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    request = gpu_health.Request.read({**DEFAULTS, **others})
    assert request.options["expected"] == expected


def test_types_of_rows_are_those_of_the_module() -> None:
    """It takes a number for a list of them, as every module does."""
    assert stage("plan", ALONE, {}, policy=[{"id": "ours", "verdict": "warn", "xids": 79}]).refusals == ()
    (refusal,) = stage("plan", ALONE, {}, policy=[{"id": "ours", "xids": [79]}]).refusals
    assert refusal == "gpu_health_policy: the new row ours needs a verdict"


# The container


@pytest.mark.parametrize(
    ("modes", "engine", "requests"),
    [
        ({}, DOCKER, {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]}),
        ({}, {"host_info": {"CDISpecDirs": None}}, {"count": -1, "capabilities": [["gpu"]]}),
        ({"nvidia_container_toolkit_mode": "legacy"}, DOCKER, {"count": -1, "capabilities": [["gpu"]]}),
        (
            {"nvidia_container_toolkit_mode": "legacy", "gpu_health_container_mode": "cdi"},
            DOCKER,
            {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]},
        ),
    ],
)
def test_gpus_are_requested_as_the_toolkit_gives_them(
    modes: Mapping[str, Any], engine: Mapping[str, Any], requests: Mapping[str, Any]
) -> None:
    found: Any = gpu_health.PLANNER.stages["engine"]({**DEFAULTS, **modes}, {}, {"engine": engine})
    assert (found["responds"], found["device_requests"]) == (True, [requests])


def test_the_image_is_loaded_where_the_engine_lacks_it() -> None:
    found = [
        stage("engine", {"engine": engine}, {}, container_archive=archive)["loads_image"]
        for engine in (DOCKER, {**DOCKER, "images": []}, {"msg": "no socket"})
        for archive in ("", "/image.tar")
    ]
    assert found == [False, False, False, True, False, False]


@pytest.mark.parametrize(
    ("image", "name"),
    [("docker.io/library/ubuntu", "ubuntu"), ("docker.io/a/b:1", "a/b:1"), ("nvcr.io/a:1", "nvcr.io/a:1")],
)
def test_the_image_is_looked_for_by_the_name_that_the_engine_has(image: str, name: str) -> None:
    assert stage("plan", {}, container_image=image).tasks["image_reference"] == name


@pytest.mark.parametrize(
    ("seen", "reasons"),
    [
        ([WHOLE, PARENT, FIRST, SECOND], []),
        ([WHOLE, PARENT, EMPTY, FIRST, SECOND], []),
        ([WHOLE, PARENT, FIRST], [f"does not see {SECOND}"]),
        ([WHOLE, PARENT], [f"does not see {FIRST}, {SECOND}"]),
        ([PARENT, FIRST, SECOND], [f"does not see {WHOLE}"]),
        ([WHOLE, PARENT, FIRST, SECOND, "MIG-0"], ["sees MIG-0, which the host does not have"]),
        ([WHOLE, PARENT, FIRST, SECOND, "GPU-0"], ["sees GPU-0, which the host does not have"]),
        ([FIRST, SECOND, "GPU-0"], [f"does not see {WHOLE}, {PARENT}", "sees GPU-0, which the host does not have"]),
    ],
)
def test_gpus_and_mig_devices_of_the_host_are_expected(seen: list[str], reasons: list[str]) -> None:
    found = stage("proof", {"engine": DOCKER, "probe": printed(*seen), "loaded": []})
    assert found["shown"]["reasons"] == [f"a container with all GPUs {reason}" for reason in reasons]
    assert found["state"] == ("absent" if reasons else "present")
    counts = [sum(one.startswith(kind) for one in seen) for kind in ("GPU", "MIG")]
    assert [found["shown"]["seen"][name] for name in ("gpus", "mig_devices", "mode")] == [*counts, "cdi"]


SERVER = 'Error pulling image a:b - 500 Server Error ("Get "https://nvcr.io/v2/": dial tcp: i/o timeout")'


@pytest.mark.parametrize(
    ("probe", "reason", "unproved"),
    [
        (
            {"msg": SERVER},
            "",
            (
                "no container was run, so there is no verdict about the GPUs: the registry cannot be reached, and the "
                f'image {IMAGE} was not pulled (Get "https://nvcr.io/v2/": dial tcp: i/o timeout); set gpu_health_'
            ),
        ),
        (
            {"msg": "Error starting container: driver rpc error: timed out"},
            "a container with all GPUs failed: Error starting container: driver rpc error: timed out",
            "",
        ),
        # An image prints what it likes.
        (
            {"status": 1, "msg": SERVER, "container": {"Output": "a\nError pulling /v2/: i/o timeout\n"}},
            "a container with all GPUs failed: Error pulling /v2/: i/o timeout",
            "",
        ),
        ({"status": 1, "container": {"Output": ""}}, "a container with all GPUs failed: no reason given", ""),
    ],
)
def test_an_image_that_cannot_be_pulled_is_no_reason_against_gpus(
    probe: Mapping[str, Any], reason: str, unproved: str
) -> None:
    found = stage("proof", {"engine": DOCKER, "probe": probe, "loaded": []})
    shown = found["shown"]
    assert (shown["reasons"], found["state"]) == ([reason] if reason else [], "absent")
    assert [text.startswith(unproved) for text in shown["unproved"]] == [True] * bool(unproved)
    assert shown["seen"] == dict.fromkeys(SEEN)


def test_an_archive_with_another_image_is_named() -> None:
    """Docker would ask a registry for the image, which knows nothing of the archive."""
    given = {"engine": DOCKER, "probe": {"msg": SERVER}, "loaded": ["localhost/probe:1", "localhost/probe:2"]}
    found = stage("proof", given, container_archive="/srv/probe.tar")["shown"]
    (reason,) = found["unproved"]
    assert (
        f"the archive /srv/probe.tar has localhost/probe:1, localhost/probe:2 and not the image {IMAGE}; set" in reason
    )


def test_an_engine_that_does_not_respond_is_a_reason() -> None:
    found = stage("proof", {"engine": {"failed": True, "msg": "no socket"}, "probe": {"skipped": True}, "loaded": []})
    reason = "Docker cannot be queried: no socket; start it, or run the role gpu.fleet.docker"
    assert (found["shown"]["reasons"], found["shown"]["ran"], found["state"]) == ([reason], False, "absent")


def test_what_an_image_requires_of_the_driver_does_not_fail_the_probe() -> None:
    tasks = yaml.safe_load((TASKS / "container.yml").read_text(encoding="utf-8"))
    probes = [
        task["community.docker.docker_container"] for task in tasks if "community.docker.docker_container" in task
    ]
    assert [probe["env"] for probe in probes] == [{"NVIDIA_DISABLE_REQUIRE": "1"}]


# The result


def result(facts: Mapping[str, Any] | None = None, proof: Proof | None = None, **variables: Any) -> dict[str, Any]:
    """The fact gpu_health_result of a host on which the module has found nothing."""
    plan = stage("plan", {}, facts, **variables).as_dict()
    plan["steps"] = [JUDGE] if proof is None else [CONTAINER, JUDGE]
    # A proof of an earlier run of the role, which a play keeps, does not count.
    shown = proof or Proof(ran=True, reasons=("stale",))
    given = {
        "plan": plan,
        "proof": {"shown": as_lists(vars(shown))},
        "verdict": HEALTHY,
        "host": "gpu1",
        "check_mode": False,
    }
    health: dict[str, Any] = stage("result", given, facts, **variables)["health"]
    return health


def test_the_last_proof_is_shown_until_another_container_ran() -> None:
    facts = recorded(stage("plan", {}))
    assert result(facts)["containers"] == SEEN
    assert result(facts, Proof(ran=True, worked=True, seen={**SEEN, "gpus": 1}))["containers"]["gpus"] == 1
    assert result(facts, Proof(reasons=("no engine",)))["containers"] == SEEN
    assert result(facts, Proof(ran=True, reasons=("failed",)))["containers"] == dict.fromkeys(SEEN)
    assert result()["containers"] == dict.fromkeys(SEEN)
    assert (result()["ok"], result(proof=Proof(reasons=("no engine",)))["reasons"]) == (True, ["no engine"])


@pytest.mark.parametrize(
    ("version", "ignored", "reason"),
    [
        ("1.19.1", [], ""),
        ("", [], ""),
        (
            "1.19.0",
            [],
            "1.19.0 has known vulnerabilities (NVIDIA's security bulletin 5850 of 2026-06-30: CVE-2026-24260); 1.19.1",
        ),
        ("1.17.4", ["5850"], "2025-07-15: CVE-2025-23266, CVE-2025-23267); 1.17.8 and newer have none of them"),
        ("1.19.0", ["CVE-2026-24260"], ""),
    ],
)
def test_a_toolkit_with_known_vulnerabilities_fails_unless_they_are_accepted(
    version: str, ignored: list[str], reason: str
) -> None:
    facts = {**FACTS, "cuda": {"container_toolkit": {"version": version or None}}}
    health = result(facts, ignore_vulnerabilities=ignored)
    assert health["ok"] is (reason == "")
    assert reason in "".join(health["reasons"])


def test_a_dcgm_with_known_vulnerabilities_is_a_note() -> None:
    def notes(version: str, **given: Any) -> tuple[str, ...]:
        plan: Plan = stage("plan", {}, {**FACTS, "cuda": {"services": {"dcgm": {"version": version}}}}, **given)
        return tuple(plan.notes)

    (note,) = notes("4.5.2")
    assert note.startswith(
        "DCGM 4.5.2 has known vulnerabilities (NVIDIA's security bulletin 5857 of 2026-07-28: CVE-2026-"
    )
    assert "4.5.3 and newer have none of them" in note
    assert notes("4.5.3") == notes("") == notes("4.5.2", ignore_vulnerabilities=["5857"]) == ()


FINDINGS = [
    {"verdict": verdict, "message": f"it is {verdict}"} for verdict in ("ok", "info", "unknown", "warn", "fail")
]


@pytest.mark.parametrize(
    ("fail_on", "reasons"), [("never", []), ("fail", ["it is fail"]), ("warn", ["it is warn", "it is fail"])]
)
def test_the_variable_decides_which_verdicts_are_reasons(fail_on: str, reasons: list[str]) -> None:
    verdict = {"verdict": "fail", "remedy": "reboot", "findings": FINDINGS}
    alone = {"plan": stage("plan", ALONE, {}).as_dict(), "proof": {}, "host": "gpu1", "check_mode": False}
    found = stage("result", {**alone, "verdict": verdict}, {}, fail_on=fail_on)
    assert (found["health"]["ok"], found["health"]["reasons"]) == (not reasons, reasons)
    assert found["lines"] == ["fail, remedy reboot:", "it is info", "it is unknown", "it is warn", "it is fail"]
    assert found["unhealthy"] == "fail, remedy reboot: it is info; it is unknown; it is warn; it is fail"
    assert stage("result", {**alone, "verdict": HEALTHY}, {}, fail_on=fail_on)["lines"] == []


def test_what_is_reported_and_refused() -> None:
    health = {**result(), "reasons": ["one"], "unproved": ["two"], "notes": ["three", "four"], "ok": False}
    reported = gpu_health.report(health, False, FACTS)
    assert [reported[name] for name in ("lines", "notes", "refusal")] == [[], "three; four", "one; two"]
    bare = {"nvidia_smi": {"available": False}}
    assert gpu_health.report(health, False, bare)["refusal"] == "one; two"
    # The driver may be still to be installed by this run.
    assert gpu_health.report(health, True, bare)["refusal"] == ""
    assert [gpu_health.has_report({**result(), name: ["a"]}) for name in ("notes", "unproved")] == [True, True]
    assert not gpu_health.has_report(result())
    assert gpu_health.has_report({**result(), "findings": FINDINGS[1:2]})


def test_the_reports_are_written_where_they_are_requested() -> None:
    verdict = {**HEALTHY, "failed": False, "warnings": [], "gpus": [], "time": "2026-11-22T10:00:00Z"}
    planned = stage("plan", ALONE, {}).as_dict()
    given = {"verdict": verdict, "host": "node1", "plan": planned, "proof": {}, "check_mode": False}
    found = stage("result", given, json="/reports", junit="/junit")
    paths = [one["path"] for one in found["on_controller"]]
    assert (paths, found["on_host"]) == (["/reports/node1.json", "/junit/node1.xml"], [])
    written = json.loads(found["on_controller"][0]["content"])
    assert written == {name: item for name, item in verdict.items() if name not in ("failed", "warnings")}
    unwritten = stage("result", given)
    assert (unwritten["on_controller"], unwritten["on_host"]) == ([], [])


# https://docs.nvidia.com/datacenter/tesla/drivers/, ends of life of branches.
@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("535.54.03", ["driver branch 535 reached its end of life in June 2026", "MIG of GH100"]),
        ("595.91.07", ["driver branch 595 reaches its end of life in March 2027"]),
        ("580.159.04", []),
        ("", []),
        ("built by hand", []),
    ],
)
def test_the_notes_name_what_limits_the_driver(driver: str, expected: list[str]) -> None:
    host = replace(Host.of(FACTS), smi={**SMI, "driver_version": driver})
    run = gpu_health.Run(today="2026-11-22")
    notes = gpu_health.plan(gpu_health.Request.read(DEFAULTS), host, run).notes
    assert len(notes) == len(expected)
    assert all(part in note for part, note in zip(expected, notes, strict=True))
