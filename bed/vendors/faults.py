# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of the vendors' server, for tests, and what it was asked for. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from bed import settings

Fault = Literal["unavailable", "missing", "closed", "truncated", "damaged", "slow", "rotated"]
_FAULTS = settings.VENDORS / "faults.json"
_LOG = settings.VENDORS / "access.log"


@contextmanager
def fault(url: str, kind: Fault, *, clients: Sequence[str], seconds: float = 5) -> Iterator[None]:
    """Inside the block, every URL that begins with this one has the fault, for the clients with these addresses.

    Others use the vendors at the same time, so nobody else may notice. An address is given by its end, such as ".41".

    unavailable: status 503; missing: 404; closed: the connection ends without an answer; truncated: half a file, then
    the end; damaged: the last byte is another; slow: an answer after so many seconds; rotated: signed by a key that
    nobody knows, which is also what the key's URL gives.
    """
    before = _read()
    _write([{"url": url, "fault": kind, "clients": [*clients], "seconds": seconds}, *before])
    try:
        yield
    finally:
        _write(before)


@contextmanager
def requests() -> Iterator[list[dict[str, Any]]]:
    """Fills the list, at the end of the block, with what was asked meanwhile: time, client, method, url, status."""
    start = _LOG.stat().st_size if _LOG.exists() else 0
    seen: list[dict[str, Any]] = []
    try:
        yield seen
    finally:
        if _LOG.exists():
            with _LOG.open(encoding="utf-8") as log:
                log.seek(start)
                seen.extend(json.loads(line) for line in log)


def _read() -> list[dict[str, Any]]:
    faults: list[dict[str, Any]] = json.loads(_FAULTS.read_text(encoding="utf-8")) if _FAULTS.exists() else []
    return faults


def _write(faults: list[dict[str, Any]]) -> None:
    new = _FAULTS.with_suffix(".new")
    new.write_text(json.dumps(faults), encoding="utf-8")
    new.rename(_FAULTS)
