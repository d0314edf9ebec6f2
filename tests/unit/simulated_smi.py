# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated nvidia-smi in this process; a call that was made before in the same state is not computed again.

A call's output, exit status and the state after it depend on its arguments, the state and the device nodes only (and on
the time of day, which no module reads). Tests that inject a fault into every call of a run repeat the calls before it
again and again: most of their time would be spent on rendering the same documents.
"""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Sequence
from pathlib import Path

from gpu_simulator import cli
from gpu_simulator.state import store

_Key = tuple[tuple[str, ...], bool | None, bytes, tuple[str, ...]]
_Reply = tuple[str, int, bytes | None]
"""Output, exit status, and the state after the call, None if it is unchanged."""

# Injected faults that do something besides changing the output and the state; as does `-f`, which writes a file.
_HAS_EFFECTS = re.compile(rb'"kind": "(hang|slow|kill)"')
_ENTRIES = 3_000
_cache: collections.OrderedDict[_Key, _Reply] = collections.OrderedDict()


def reply(arguments: Sequence[str], root: Path, root_user: bool | None) -> tuple[str, int]:
    """Output and exit status of a call on the simulated host below `root`, as `cli.reply` returns them."""
    path = Path(store.state_path(str(root)))
    before = _read(path)
    if before is None or "-f" in arguments or _HAS_EFFECTS.search(before):
        text, status = cli.reply(list(arguments), str(root), root_user)
        return text, status
    key = (tuple(arguments), root_user, before, _device_nodes(root))
    known = _cache.get(key)
    if known is None:
        text, status = cli.reply(list(arguments), str(root), root_user)
        after = _read(path)
        known = (text, status, None if after == before else after)
        _cache[key] = known
        if len(_cache) > _ENTRIES:
            _cache.popitem(last=False)
    elif known[2] is not None:
        path.write_bytes(known[2])
    return known[0], known[1]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _device_nodes(root: Path) -> tuple[str, ...]:
    """What decides which MIG devices a container sees."""
    found: list[str] = []
    for directory in ("dev", "dev/nvidia-caps"):
        try:
            found += sorted(os.listdir(root / directory))  # noqa: PTH208 (names only, on each call)
        except FileNotFoundError:
            continue
    return tuple(found)
