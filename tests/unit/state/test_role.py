# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role gpu_state decides: refusals, the options of its module, and what follows a run of that."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_state import PLANNER

from tests.unit.site.known import check, known

FILES = RoleData.read()
ROLE = ("gpu_state",)
DEFAULTS = FILES.defaults(ROLE)
HOOKS = {"gpu_state_hooks_before": ["/a.yml"], "gpu_state_hooks_after": ["/b.yml"]}
RUN = {
    **dict.fromkeys(("changed", "gpus_changed", "reboot_required", "reboot_tried", "awaits_reboot"), False),
    **dict.fromkeys(("mig_changed", "cdi_refresh"), False),
    "pending": [],
}
PENDING = {**RUN, "reboot_required": True, "pending": ["GPU-1", "GPU-2"]}


def planned(variables: dict[str, Any], **given: Any) -> Plan:
    found = PLANNER.stages["plan"]({**DEFAULTS, **variables}, {}, given)
    assert isinstance(found, Plan)
    return found


def followed(
    result: dict[str, Any], variables: dict[str, Any], facts: dict[str, Any] | None = None, **run: Any
) -> Plan:
    """What follows the result of a run whose plan had these variables."""
    own = {"run": planned(variables, **run).as_dict()["run"], "result": result}
    found = PLANNER.stages["follow_up"]({**DEFAULTS, **variables}, facts or {}, own)
    assert isinstance(found, Plan)
    return found


# By name: gpu_state_reboot, the run, the module's result, whether to reboot, and a part of the explanation.
REBOOTS: dict[str, tuple[str, dict[str, Any], dict[str, Any], bool, str]] = {
    "needed and allowed": ("if_required", {}, PENDING, True, ""),
    "not needed": ("if_required", {}, RUN, False, ""),
    "not allowed": ("never", {}, PENDING, False, "gpu_state_reboot is never"),
    "local": ("if_required", {"connection": "local"}, PENDING, False, "never rebooted over a local connection"),
    "local by full name": ("if_required", {"connection": "ansible.builtin.local"}, PENDING, False, "over a local"),
    "tried": ("if_required", {}, {**PENDING, "reboot_tried": True}, False, "a reboot for it did not help"),
    "after that of the driver": ("if_required", {"is_rebooted": True}, PENDING, False, "so run it again"),
}


@pytest.mark.parametrize("case", REBOOTS)
def test_a_host_is_rebooted_only_when_that_is_needed_allowed_and_of_use(case: str) -> None:
    reboot, run, result, reboots, why = REBOOTS[case]
    found = followed(result, {"gpu_state_reboot": reboot}, **run)
    assert found.steps == (("reboot",) if reboots else ("report",) if why else ())
    assert [why in note and "pending on GPU-1, GPU-2; " in note for note in found.notes] == ([True] if why else [])
    assert found.tasks["goes_on"] is bool(found.steps)


@pytest.mark.parametrize("case", REBOOTS)
@pytest.mark.parametrize("hooks", [{}, HOOKS])
def test_check_mode_is_followed_by_nothing(case: str, hooks: dict[str, Any]) -> None:
    reboot, run, result, _reboots, _why = REBOOTS[case]
    changed = {**result, "changed": True, "gpus_changed": True, "mig_changed": True}
    given = {"gpu_state_reboot": reboot, **hooks}
    assert followed(changed, given, {"nvidia_smi": {}}, check_mode=True, is_first=True, **run).steps == ()
    assert planned(given, check_mode=True, **run).tasks["predicts"] is True


def test_the_module_stops_for_a_reboot_only_where_the_role_makes_it() -> None:
    for reboot, run, _result, _reboots, _why in REBOOTS.values():
        options = planned({"gpu_state_reboot": reboot}, **run).tasks["options"]
        assert options["stop_for_reboot"] is (reboot == "if_required" and not run)


def test_with_hooks_the_first_run_predicts_and_the_others_apply() -> None:
    assert planned(HOOKS, is_first=True).steps == ("predict",)
    assert planned(HOOKS).steps == planned({}, is_first=True).steps == ("apply",)
    changed = {**RUN, "changed": True}
    # What is predicted has not happened yet.
    assert followed(changed, HOOKS, {"nvidia_smi": {}}, is_first=True).steps == ("hooks",)
    assert followed(changed, HOOKS, {"nvidia_smi": {}}).steps == ("read_gpus",)
    assert followed(PENDING, {**HOOKS, "gpu_state_reboot": "if_required"}, is_first=True).steps == ("hooks",)
    assert followed(PENDING, {**HOOKS, "gpu_state_reboot": "if_required"}).steps == ("reboot",)
    assert followed(PENDING, HOOKS, is_first=True).steps == ("report",)
    hooks = {"before": ["/a.yml"], "after": ["/b.yml"]}
    for result in (PENDING, {**RUN, "gpus_changed": True}):
        assert followed(result, HOOKS, is_first=True).tasks["hooks"] == hooks
    # Where only the boot service differs none runs.
    assert followed(changed, HOOKS, is_first=True).tasks["hooks"] == {key: [] for key in hooks}


@pytest.mark.parametrize(
    ("result", "variables", "steps"),
    [
        ({}, {}, ["read_gpus"]),
        ({"mig_changed": True}, {}, ["read_gpus", "generate_cdi"]),
        ({"mig_changed": True, "cdi_refresh": True}, {}, ["read_gpus", "restart_cdi_refresh"]),
        ({"mig_changed": True}, {"gpu_state_cdi_specification": ""}, ["read_gpus"]),
        ({"mig_changed": True, "awaits_reboot": True}, {}, []),
        ({"changed": False, "mig_changed": True}, {}, []),
        ({}, {"gpu_fleet_evidence_fetch_to": "/evidence"}, ["fetch_evidence", "read_gpus"]),
    ],
)
def test_later_roles_and_containers_get_what_has_changed(
    result: dict[str, Any], variables: dict[str, Any], steps: list[str]
) -> None:
    found = followed({**RUN, "changed": True, **result}, variables, {"nvidia_smi": {}})
    assert list(found.steps) == steps
    assert found.tasks["refreshes"] is bool({*steps} - {"fetch_evidence"})
    assert "read_gpus" not in followed({**RUN, "changed": True, **result}, variables).steps


def test_the_evidence_is_that_of_the_playbooks() -> None:
    options = planned({"gpu_fleet_evidence": "always", "gpu_fleet_evidence_directory": "/evidence"}).tasks["options"]
    assert (options["evidence"], options["evidence_directory"]) == ("always", "/evidence")
    assert planned({}).tasks["options"]["evidence"] == "when_unhealthy"


def test_hooks_that_failed_are_reasons_in_one_line() -> None:
    failures = [
        {"hook": "/a.yml", "task": "Start", "message": "no\n  such\x1b[2J unit"},
        {"hook": "/b.yml", "task": "Uncordon", "message": ""},
        {"hook": "/c.yml", "task": "Long", "message": "x" * 1000},
    ]
    found = PLANNER.stages["hooked"]({}, {}, {"failures": failures})
    assert isinstance(found, Plan)
    (refusal,) = found.refusals
    assert refusal.startswith("gpu_state_hooks_after: /a.yml: Start: no such [2J unit; /b.yml: Uncordon: it did not")
    assert len(refusal) < 420
    assert PLANNER.stages["hooked"]({}, {}, {"failures": []}) == Plan()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"gpu_state_power_limit": "much"}, "gpu_state_power_limit"),
    ({"gpu_state_compute_mode": "shared", "gpu_state_gpu_clocks": "fast"}, "gpu_state_compute_mode is one of"),
    ({"gpu_state_mig": ["nope"]}, "gpu_state_mig: "),
    ({"gpu_state_mig": "half"}, "gpu_state_mig: there is no layout named"),
    ({"gpu_state_gpus": [0], "gpu_state_mig": {"gpus": [1], "profiles": []}}, "gpu_state_mig has gpus of its own"),
    ({"gpu_state_mps": {"pinned_memory_limit": "much"}}, "gpu_state_mps: pinned_memory_limit"),
]


@pytest.mark.parametrize(("variables", "words"), REFUSED)
def test_the_site_playbook_refuses_the_same_in_the_same_words(variables: dict[str, Any], words: str) -> None:
    refusals = planned(variables, is_first=True).refusals
    assert words in "; ".join(refusals)
    assert refusals == check(ROLE, {**DEFAULTS, **variables}, known()).refusals


@pytest.mark.parametrize("value", [True, "true", "yes", 1, "1", "t", False, "off", "0", 0, "n"])
def test_booleans_are_what_the_module_takes_for_them(value: object) -> None:
    names = ("gpu_state_ecc", "gpu_state_persistence_mode", "gpu_state_accounting_mode")
    assert planned(dict.fromkeys(names, value)).refusals == ()


@pytest.mark.parametrize("value", [None, {}])
def test_no_mps_and_no_layouts_are_null_as_well(value: object) -> None:
    assert planned({"gpu_state_mps": value, "gpu_state_mig_layouts": value}).refusals == ()


def test_what_is_removed_is_not_looked_at() -> None:
    assert planned({"gpu_state_state": "absent", "gpu_state_mig": ["nope"]}).refusals == ()


def test_a_declared_state_that_cannot_be_read_is_no_state_without_mig() -> None:
    facts = {"nvidia_smi": {"gpus": [{"uuid": "GPU-0", "mig_mode_current": "enabled"}]}}
    stage = PLANNER.stages["mig_declared"]
    missing = stage({}, facts, {"file": {"failed": True, "msg": "File not found: /var/lib/gpu-fleet/state/plan.json"}})
    assert isinstance(missing, Plan) and (missing.refusals, missing.tasks["gpus"]) == ((), [])
    unread = stage({}, facts, {"file": {"failed": True, "msg": "File is not readable"}})
    assert isinstance(unread, Plan) and "plan.json cannot be read: File is not readable" in unread.refusals[0]
