# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a fleet with hosts that return anything: each value of real and simulated facts replaced by another."""

from __future__ import annotations

import copy
import csv
import functools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._report.facts import condensed
from ansible_collections.gpu.fleet.plugins.plugin_utils._report import output
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.inputs import read_host
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.model import NOT_READ, READ, Host

from tests.conftest import ROOT
from tests.unit.report.fleets import TIME, bases

RECORDINGS = ROOT / "tests" / "unit" / "recordings"
CUDA = {
    "driver": {"loaded_version": "580.159.04", "loaded_kind": "open", "reboot_required": False},
    "container_toolkit": {"version": None},
    "services": {"imex": dict.fromkeys(("installed", "version", "state", "enabled"))},
}
MISSING = object()


def _deep() -> list[Any]:
    value: list[Any] = []
    for _level in range(100):
        value = [value]
    return value


HOSTILE: dict[str, Any] = {
    "missing": MISSING,
    "null": None,
    "true": True,
    "nothing": 0,
    "below zero": -1,
    "twenty million": 20_000_000,
    "more than 64 bits": 2**64,
    "400 digits": 10**400,
    "nearly infinite": 1.7e308,
    "infinite": math.inf,
    "no number": math.nan,
    "empty": "",
    "text": "much",
    "a version of 5,000 digits": "9" * 5000,
    "a version of other digits": "\u0665\u0668\u0660.1",
    "5 MB": "x" * 5_000_000,
    "half a character": "580.\udc80",
    "an escape": "\x1b[2J\x00\n\u202e",
    "markup": "</script><script>window.hostile = 1</script>",
    "a formula": "=cmd|'/C calc'!A0",
    "an empty list": [],
    "an empty dictionary": {},
    "a list of null": [None],
    "a list of text": ["a", "a"],
    "a list of half a character": ["\udc80"],
    "a long list": [0] * 20_000,
    "a dictionary": {"GPU0": "NV99999999999999999999", "\udc80": [1]},
    "deep": _deep(),
}


def _recorded(name: str, module: str) -> list[Any]:
    found = json.loads((RECORDINGS / f"{name}-580.159.04.json").read_text())["results"][module]
    return [entry["result"] for entry in found]


@functools.cache
def hosts() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Facts and health of hosts: simulated ones, and those of real H200 as far as they were recorded."""
    single = bases()["single"]
    smi = _recorded("h200x4-facts", "nvidia_smi_facts")[0]["ansible_facts"]["nvidia_smi"]
    real = condensed(smi, CUDA, HostFiles("/missing"))
    # Recorded before results had these.
    newer = {"fabric_cluster_uuid": None, "fabric_clique_id": None}
    health = {
        f"health{number}": (single[0], {**each, "gpus": [{**newer, **gpu} for gpu in each["gpus"]]})
        for number, each in enumerate(_recorded("h200x2-results", "gpu_health"))
    }
    return {**bases(), "h200x4": (real, single[1]), **health}


def test_real_and_simulated_hosts_are_read() -> None:
    for name, (facts, health) in hosts().items():
        host, _refusals = read_host(name, {"host": facts, "changed": False}, health, {})
        assert (host.state, host.reason, host.facts) == (READ, None, facts)
        assert {key: health[key] for key in host.health or {}} == host.health


def _places(value: Any, pattern: str = "", place: tuple[Any, ...] = ()) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Each value in it, of a list those of one element: its name, and how it is reached."""
    yield pattern, place
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, f"{pattern}.{key}", (*place, key))


def _with(value: Any, place: tuple[Any, ...], hostile: Any) -> Any:
    """A copy with another value at this place."""
    if not place:
        return {} if hostile is MISSING else hostile
    made = copy.copy(value)
    key, *rest = place
    if rest:
        made[key] = _with(made[key], tuple(rest), hostile)
    elif hostile is MISSING:
        del made[key]
    else:
        made[key] = hostile
    return made


@functools.cache
def places() -> dict[tuple[str, str], tuple[str, tuple[Any, ...]]]:
    """By facts or health and the name of a value: a host that has it."""
    found: dict[tuple[str, str], tuple[str, tuple[Any, ...]]] = {}
    for name, parts in hosts().items():
        for part, value in zip(("facts", "health"), parts, strict=True):
            for pattern, place in _places(value):
                found.setdefault((part, pattern), (name, place))
    return found


def _no_number(text: str) -> NoReturn:
    raise AssertionError(text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_one_host_returns_never_ends_the_report_of_all(kind: str, tmp_path: Path) -> None:
    assert len(places()) > 120
    fleet: list[Host] = []
    honest = {
        f"honest {name}": read_host(f"honest {name}", {"host": facts}, health, {})[0]
        for name, (facts, health) in hosts().items()
    }
    for (part, pattern), (base, place) in places().items():
        facts, health = hosts()[base]
        if part == "facts":
            facts = _with(facts, place, HOSTILE[kind])
        else:
            health = _with(health, place, HOSTILE[kind])
        host, refusals = read_host(f"{part}{pattern}", {"host": facts}, health if isinstance(health, dict) else {}, {})
        assert refusals == []
        assert len(host.reason or "") < 500
        assert (host.reason or "").isprintable()
        fleet.append(host)
    written = output.write(str(tmp_path), [*fleet, *honest.values()], TIME, check_mode=False)
    assert written["warnings"] == []
    data = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"), parse_constant=_no_number)
    by_name = {host["name"]: host for host in data["hosts"]}
    for name, host in honest.items():
        assert by_name[name]["facts"] == host.facts
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    unread = [host for host in fleet if host.state == NOT_READ]
    # Whatever is replaced by a list of 20,000 numbers is no longer what the module returns.
    assert len(unread) > 60 or kind != "a long list"
    assert all(host.name in page for host in unread)
    names = {row["host"] for row in csv.DictReader((tmp_path / "report.csv").open(encoding="utf-8", newline=""))}
    assert names == set(by_name)
    # The next report compares with this one.
    again = output.write(str(tmp_path), [*fleet, *honest.values()], TIME, check_mode=False)
    assert (again["warnings"], again["changes"]) == ([], 0)


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("gpus", 0, "power_draw_w"), "much", "gpus[0].power_draw_w is 'much', not a number"),
        (("gpus", 0, "name"), "H200\udc80", "gpus[0].name is 'H200\\udc80', which is not Unicode"),
        (
            ("driver_version",),
            "9" * 5000,
            "driver_version is '9999999999999999999999999999999999999999'..., which has 5000",
        ),
        (("gpus", 0, "instances"), 7, "gpus[0].instances is 7, not a list"),
        (("nics",), None, "nics is null, not a list"),
        (("system", "kernel"), MISSING, "system.kernel is missing"),
        (("gpus",), [{}] * 65, "gpus has 65 elements, more than 64"),
        (("reboot_reasons",), ["x" * 16_000] * 300, "there are more than 200000 values or 4 MiB of text"),
    ],
)
def test_a_host_that_cannot_be_read_is_shown_with_what_is_wrong(
    place: tuple[Any, ...], value: Any, reason: str
) -> None:
    facts, health = bases()["single"]
    host, _refusals = read_host("node", {"host": _with(facts, place, value)}, health, {})
    assert (host.state, host.facts, host.health) == (NOT_READ, None, None)
    assert (host.reason or "").startswith(f"its facts are not as report_facts returns them: {reason}")
    assert (host.reason or "").endswith("no module of this collection returns that: check who changed the host")


@pytest.mark.parametrize(("name", "value"), [("placement_size", 20_000_000), ("placement_start", -1)])
def test_a_mig_device_is_within_the_slices_of_a_gpu(name: str, value: int) -> None:
    facts, health = bases()["dgx"]
    host, _refusals = read_host("node", {"host": _with(facts, ("gpus", 0, "instances", 0, name), value)}, health, {})
    assert f"gpus[0].instances[0].{name} is {value}, which nothing can have, from 0 to 64" in (host.reason or "")


def test_a_verdict_that_cannot_be_read_leaves_the_facts_of_the_host() -> None:
    facts, health = bases()["single"]
    host, _refusals = read_host("node", {"host": facts}, {**health, "verdict": "<b>ok</b>"}, {})
    assert (host.state, host.facts, host.health) == (READ, facts, None)
    assert (host.reason or "").startswith(
        "its health could not be judged: it is not as gpu_health returns it: verdict is '<b>ok</b>', not one of ok, "
    )


@pytest.mark.parametrize("message", ["\udc80 lost\x1b[2J", ["\udc80 lost", 1], {"a": "lost"}, "lost " * 10**6])
def test_the_message_of_a_failed_task_is_one_printable_line(message: Any) -> None:
    host, _refusals = read_host("node", {"failed": True, "msg": message}, None, {})
    assert host.state == NOT_READ
    assert "lost" in (host.reason or "")
    assert (host.reason or "").isprintable()
    assert len(host.reason or "") <= 400
