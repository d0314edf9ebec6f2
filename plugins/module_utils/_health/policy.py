# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of the health policy, the orders of verdicts and remedies, a site's own rows. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Callable, Iterable, Mapping, Sequence

from .._common.bounds import shown
from .._common.errors import ChangeError

OK, INFO, UNKNOWN, WARN, FAIL = VERDICTS = ("ok", "info", "unknown", "warn", "fail")
"""From best to worst. Unknown is never ok, and better than a known problem."""

REMEDIES: Mapping[str, str] = {
    "none": "nothing to do",
    "restart_application": "restart the application",
    "configure": "correct the host's configuration",
    "restart_fabric_manager": "restart the Fabric Manager",
    "restart_imex": "restart IMEX on all hosts of its domain",
    "update_software": "update the driver, its firmware or its settings",
    "drain": "end the jobs that use peer-to-peer access to this GPU",
    "drain_and_reset": "wait until the jobs on this GPU have ended, then reset it",
    "reset_gpu": "reset the GPU",
    "reset_fabric": "reset all GPUs and NVSwitches together",
    "restart_vm": "restart the virtual machine",
    "reboot": "reboot the host",
    "power_cycle": "power-cycle the host",
    "inspect": "inspect the hardware: seating, cables, power, cooling",
    "field_diagnostic": "run NVIDIA's field diagnostic",
    "service": "have the GPU repaired or replaced",
}
"""From weakest to strongest: what a stronger one does includes or replaces the weaker ones."""
_STRENGTH = {remedy: place for place, remedy in enumerate(REMEDIES)}

ENDS: Mapping[str, str] = {
    "reading": "the reading is good again",
    "driver": "the driver was loaded",
    "boot": "the host was booted",
    "repair": "the host was repaired",
    "replaced": "another GPU is in its place",
    "reset": "the GPU was reset",
    "all_reset": "all GPUs were reset",
    "responds": "the GPU responds",
    "link_up": "the link came up again",
    "adapter": "the adapter's driver works again",
    "fabric_manager": "the Fabric Manager was started",
    "quiet": "24 hours passed without another",
    "hours": "its hours have passed",
}
"""What proves that a fault is over."""

OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "is": lambda reading, value: bool(reading == value),
    "is_not": lambda reading, value: bool(reading != value),
    "in": lambda reading, value: reading in value,
    "not_in": lambda reading, value: reading not in value,
    "has": lambda reading, value: value in reading,
    "at_least": lambda reading, value: bool(reading >= value),
    "above": lambda reading, value: bool(reading > value),
    "below": lambda reading, value: bool(reading < value),
}
"""A reading that is unknown fulfils none of them."""

_LISTS = ("in", "not_in")
_NUMBERS = ("at_least", "above", "below")


@dataclass(frozen=True)
class Row:
    """One symptom, how it is read, and what it means.

    One of these is how it is read: a `reading` of a GPU, or of the host where `scope` is `host`, compared with `value`;
    `xids`, `sxids` or `events` of the kernel log, restricted by `when`; `bursts` or `boots`, the repetition of one Xid
    within `hours`. `thresholds` replaces `value` for GPUs whose model contains a text. An empty `xids` of a repetition
    stands for all Xids that are fatal. `over` has keys of ENDS: what ends an event of the kernel log, besides what ends
    all of them.
    """

    id: str
    symptom: str
    verdict: str
    remedy: str
    source: str
    scope: str = "gpu"
    reading: str = ""
    operator: str = "is"
    value: Any = True
    thresholds: tuple[tuple[str, Any], ...] = ()
    xids: tuple[int, ...] = ()
    sxids: tuple[int, ...] = ()
    events: tuple[str, ...] = ()
    when: str = ""
    bursts: int = 0
    boots: int = 0
    hours: float = 0.0
    over: tuple[str, ...] = ()

    @property
    def ends(self) -> tuple[str, ...]:
        """Keys of ENDS: all that proves that what the row reports is over."""
        if self.reading:
            return ("reading",)
        if self.is_repetition:
            return ("hours", "repair")
        # The GPUs' driver has no part in faults of the host.
        return (*self.over, *(() if self.scope == "host" else ("driver",)), "boot", "repair")

    @property
    def is_repetition(self) -> bool:
        """Whether it is about the same Xid again and again."""
        return bool(self.bursts or self.boots)

    def threshold(self, model: str | None) -> Any:
        """The value for a GPU model; the longest text that the model contains decides."""
        name = (model or "").lower()
        found = [(len(text), value) for text, value in self.thresholds if text.lower() in name]
        return max(found, key=lambda item: item[0])[1] if found else self.value

    def holds(self, reading: Any, model: str | None = None) -> bool:
        """Whether a reading shows the symptom."""
        value = self.threshold(model)
        if reading is None or value is None:
            return False
        try:
            return OPERATORS[self.operator](reading, value)
        except TypeError:
            # A site's row that compares a word with a number.
            return False


def worst(verdicts: Iterable[str]) -> str:
    """The worst of some verdicts; `ok` for none."""
    return max(verdicts, key=VERDICTS.index, default=OK)


def strongest(remedies: Iterable[str]) -> str:
    """The strongest of some remedies; `none` for none."""
    return max(remedies, key=lambda remedy: _STRENGTH[remedy], default="none")


def remedy_of(findings: Iterable[tuple[str, str]]) -> str:
    """The remedy of findings, each a verdict and a remedy: the strongest of those with the worst verdict.

    A `warn` for a person next to a `fail` that a reboot ends is for after the reboot.
    """
    found = list(findings)
    decisive = worst(verdict for verdict, _remedy in found)
    return strongest(remedy for verdict, remedy in found if verdict == decisive)


_SITE_FIELDS = frozenset(field.name for field in fields(Row))
_HOW = ("reading", "xids", "sxids")


def with_site_rows(
    table: Sequence[Row], site: Sequence[Mapping[str, Any]], readings: frozenset[str]
) -> tuple[Row, ...]:
    """The table with a site's rows: one with a known id changes that row, any other comes first. Raises ChangeError."""
    rows = {row.id: row for row in table}
    added: dict[str, Row] = {}
    for entry in site:
        given = {name: value for name, value in entry.items() if value is not None and name in _SITE_FIELDS}
        name = given["id"]
        if name in rows:
            rows[name] = _checked(replace(rows[name], **_values(given)), readings)
        elif name in added:
            raise ChangeError(f"policy: the row {name} is given twice")
        else:
            added[name] = _new_row(given, readings)
    return (*added.values(), *rows.values())


def _new_row(given: Mapping[str, Any], readings: frozenset[str]) -> Row:
    name = given["id"]
    if sum(bool(given.get(how)) for how in _HOW) != 1:
        raise ChangeError(f"policy: the new row {name} needs one of reading, xids and sxids")
    if "verdict" not in given:
        raise ChangeError(f"policy: the new row {name} needs a verdict")
    defaults: dict[str, Any] = {"symptom": name.replace("_", " "), "remedy": "none", "source": "this site"}
    if not given.get("reading"):
        defaults["over"] = ("reset",) if given.get("xids") else ("all_reset", "fabric_manager")
    return _checked(Row(**{**defaults, **_values(given)}), readings)


def _values(given: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(given)
    for name in ("xids", "sxids"):
        if name in values:
            values[name] = tuple(values[name])
    if "thresholds" in values:
        values["thresholds"] = tuple(values["thresholds"].items())
    return values


def _checked(row: Row, readings: frozenset[str]) -> Row:
    if row.reading and row.reading not in readings:
        raise ChangeError(f"policy: {row.id}: there is no reading {row.reading}; see docs/health.md")
    for value in (row.value, *(value for _model, value in row.thresholds)) if row.reading else ():
        if row.operator in _LISTS and not isinstance(value, (list, tuple)):
            raise ChangeError(
                f"policy: {row.id}: the operator {row.operator} compares with a list, not with {shown(value)}"
            )
        if row.operator in _NUMBERS and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ChangeError(
                f"policy: {row.id}: the operator {row.operator} compares with a number, not with {shown(value)}"
            )
    return row
