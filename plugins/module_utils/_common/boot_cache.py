# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cache of strings between runs, valid until the next boot. Private to this collection.

The file belongs below /run, so that a reboot removes it along with the state it describes.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Sequence

from .atomic_write import atomic_write
from .errors import ChangeError
from .json_text import parse_json
from .regular_file import text_of

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class BootCache:
    """Strings by name. An unreadable or invalid file counts as an empty cache."""

    def __init__(self, path: str, is_read_only: bool = False, boot_id_path: str = BOOT_ID) -> None:
        self._path = path
        self._is_read_only = is_read_only
        self._boot_id_path = boot_id_path
        # Entries invalidated by this run, also where the file cannot be written.
        self._invalid: set[str] = set()

    def get(self, names: Sequence[str], key: object) -> tuple[str, ...] | None:
        """Get the strings of `names` if all of them were put under `key`, else None."""
        entries = self._read()
        found = [entries.get(name) for name in names if name not in self._invalid]
        strings = [
            entry.get("text") for entry in found if isinstance(entry, dict) and entry.get("key") == self._key(key)
        ]
        if len(strings) != len(names) or any(not isinstance(text, str) for text in strings):
            return None
        return tuple(str(text) for text in strings)

    def put(self, names: Sequence[str], key: object, strings: Sequence[str]) -> None:
        """Put `strings` under `key`, valid until the next boot."""
        entries = self._read()
        if not self._is_read_only:
            self._invalid.difference_update(names)
        entries.update({name: {"key": self._key(key), "text": text} for name, text in zip(names, strings)})
        self._write(entries)

    def invalidate(self, names: Sequence[str]) -> None:
        """Invalidate `names` before a change makes them stale. Raises ChangeError where they cannot be removed."""
        self._invalid.update(names)
        entries = self._read()
        left = {name: entry for name, entry in entries.items() if name not in names}
        if left != entries:
            self._write(left)
            if not self._is_read_only and any(name in self._read() for name in names):
                raise ChangeError(
                    f"{self._path} cannot be written or removed, and what it has would be out of date after the change"
                )

    def _key(self, key: object) -> Any:
        try:
            with open(self._boot_id_path, encoding="ascii") as stream:
                boot_id = stream.read().strip()
        except OSError:
            boot_id = None
        # Normalised through JSON: a key read from the file has lists where tuples were put.
        return json.loads(json.dumps([boot_id, key]))

    def _read(self) -> dict[str, Any]:
        try:
            entries = parse_json(text_of(self._path))
        except (OSError, ValueError):
            return {}
        return entries if isinstance(entries, dict) else {}

    def _write(self, entries: dict[str, Any]) -> None:
        """Replace the file atomically; an interrupted run leaves the previous one.

        Nothing depends on the file: if it cannot be written it is removed, and the next run reads the GPUs instead. The
        previous file must not stay, since it may be stale.
        """
        if self._is_read_only:
            return
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            atomic_write(self._path, json.dumps(entries).encode(), 0o600)
        except (OSError, RecursionError):
            with contextlib.suppress(OSError):
                os.unlink(self._path)
