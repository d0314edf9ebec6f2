# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fault injection for the vendors' server, and its access log, for tests. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from testbed import settings

Fault = Literal["unavailable", "missing", "closed", "truncated", "damaged", "slow", "rotated"]
_FAULTS = settings.WORKSPACE_DIRECTORY / "faults.json"
_LOG = settings.WORKSPACE_DIRECTORY / "access.log"


@contextmanager
def fault(url: str, kind: Fault, *, clients: Sequence[str], seconds: float = 5) -> Iterator[None]:
    """Inject a fault, inside the block, into every URL with this prefix, for the clients with these addresses.

    Other tests use the vendors at the same time and must not notice. An address is given by its end, such as ".41".

    unavailable: status 503; missing: 404; closed: the connection ends without a response; truncated: half a file, then
    the end; damaged: the last byte differs; slow: a response after so many seconds; rotated: signed by an unknown key,
    which the key's URL serves as well.
    """
    before = _read()
    _write([{"url": url, "fault": kind, "clients": [*clients], "seconds": seconds}, *before])
    try:
        yield
    finally:
        _write(before)


@contextmanager
def requests() -> Iterator[list[dict[str, Any]]]:
    """Yield a list that gets, at the end of the block, the requests made in it: time, client, method, url, status."""
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
