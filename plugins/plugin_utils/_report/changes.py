# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has changed since the last report. Private to this collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .model import Change, Host, gpus, name_of, status
from .sections import natural

_KINDS = ("status", "verdict", "gpu", "host", "errors", "xid", "driver", "cuda")
_ERRORS: Mapping[str, str] = {
    "ecc_aggregate_uncorrected": "uncorrected ECC errors",
    "remapped_rows_uncorrectable": "rows remapped after uncorrectable errors",
    "remapped_rows_correctable": "rows remapped after correctable errors",
}
_ABSENT, _PRESENT = "not there", "there"


def changes(previous: Sequence[Host], current: Sequence[Host]) -> tuple[Change, ...]:
    """The differences, health first."""
    before, after = ({host.name: host for host in hosts} for hosts in (previous, current))
    found = [Change("host", name, None, _PRESENT, _ABSENT) for name in before if name not in after]
    found += [Change("host", name, None, _ABSENT, _PRESENT) for name in after if name not in before]
    for name in before.keys() & after.keys():
        found += _of_host(before[name], after[name])
    return tuple(
        sorted(
            found, key=lambda change: (_KINDS.index(change.kind), natural(change.host), change.gpu or "", change.before)
        )
    )


def _of_host(before: Host, after: Host) -> Iterator[Change]:
    if status(before) != status(after):
        yield Change("status", after.name, None, status(before), status(after))
    # Of a host that could not be read, nothing is known to have changed.
    if before.health and after.health:
        yield from _of_verdicts(before, after)
    if before.facts is None or after.facts is None:
        return
    for kind, reading in (("driver", "driver_version"), ("cuda", "cuda_version")):
        if before.facts[reading] != after.facts[reading]:
            yield Change(kind, after.name, None, before.facts[reading] or "none", after.facts[reading] or "none")
    known, listed = ({name_of(gpu): gpu for gpu in gpus(host)} for host in (before, after))
    for name in known.keys() | listed.keys():
        if name not in listed or name not in known:
            there = name in listed
            yield Change("gpu", after.name, name, _ABSENT if there else _PRESENT, _PRESENT if there else _ABSENT)
        else:
            yield from _of_errors(after.name, name, known[name], listed[name])


def _of_verdicts(before: Host, after: Host) -> Iterator[Change]:
    known, listed = (
        {name_of(gpu): gpu["verdict"] for gpu in host.health["gpus"]} for host in (before, after) if host.health
    )
    for name, verdict in listed.items():
        if known.get(name, verdict) != verdict:
            yield Change("verdict", after.name, name, known[name], verdict)
    xids, new = (
        {(xid["gpu"], xid["code"]): xid["count"] for xid in host.health["kernel_log"]["xids"]}
        for host in (before, after)
        if host.health
    )
    # After a reboot the log is empty, and its numbers begin again.
    for (gpu, code), number in new.items():
        if number > xids.get((gpu, code), 0):
            yield Change("xid", after.name, gpu, f"Xid {code}: {xids.get((gpu, code), 0)}", f"Xid {code}: {number}")


def _of_errors(host: str, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for reading, text in _ERRORS.items():
        old, new = before[reading] or 0, after[reading] or 0
        if new != old:
            yield Change("errors", host, name, f"{text}: {old}", f"{text}: {new}")
