# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the kernel's entries out of what `journalctl --output=json`, `export` and `verbose` print, as lines. Private to
this collection.

They also have entries of programs, which may claim anything in their message; only the journal itself writes
`_TRANSPORT`. The formats are in systemd's JOURNAL_EXPORT_FORMATS and its output_verbose().
"""

from __future__ import annotations

import re
from typing import Any, Callable, Mapping

from .._common.json_text import parse_json

Feed = Callable[[bytes], None]

# The journal's own limit of a message is 48 KiB; a message of the driver is far shorter.
_LONGEST_ENTRY = 256 << 10
_MESSAGE, _TRANSPORT, _TIME = "MESSAGE", "_TRANSPORT", "__REALTIME_TIMESTAMP"
# 0 is the kernel: what a program has written into the kernel's log has another one.
_FACILITY = "SYSLOG_FACILITY"
# The first line of an entry: a date, and the cursor, in which t is the time.
_VERBOSE = re.compile(rb"\S[^\[\]]{1,80} \[s=[0-9a-f]{1,32};(?:[a-z]=[0-9a-f]{1,32};){1,8}[a-z]=[0-9a-f]{1,32}\]")
_CURSOR_TIME = re.compile(rb";t=([0-9a-f]{1,16})[;\]]")

_UNREADABLE = (
    (b"\x1f\x8b", "it is compressed (gzip)"),
    (b"\xfd7zXZ", "it is compressed (xz)"),
    (b"\x28\xb5\x2f\xfd", "it is compressed (zstd)"),
    (b"BZh", "it is compressed (bzip2)"),
    (b"LPKSHHRH", "it is a file of the journal itself; journalctl --file prints it"),
    (b"\x1e{", "its form is not known; use --output=json or short-unix of journalctl"),
    (b"{\n", "its form is not known; use --output=json or short-unix of journalctl"),
)


def why_unreadable(beginning: bytes) -> str | None:
    """Why a file that begins like this has no lines."""
    return next((reason for sign, reason in _UNREADABLE if beginning.startswith(sign)), None)


def feed_for(beginning: bytes, feed: Feed) -> Feed:
    """What takes the parts of a file that begins like this, and gives `feed` its lines."""
    if beginning.startswith(b"__CURSOR="):
        return Export(feed)
    lines = (line.rstrip() for line in beginning.split(b"\n", 3)[:3])
    first = next((line for line in lines if not line.startswith(b"-- ")), b"")
    if _VERBOSE.fullmatch(first):
        return Verbose(feed)
    if first.startswith(b"{") and first.endswith(b"}") and isinstance(_object(first), dict):
        return Json(feed)
    return feed


class Json:
    """Takes entries of a line each."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._rest = b""

    def __call__(self, part: bytes) -> None:
        lines = (self._rest + part).split(b"\n")
        self._rest = lines.pop()[:_LONGEST_ENTRY]
        for line in lines:
            fields = _object(line) if b"kernel" in line else None
            if isinstance(fields, dict):
                _give(fields, self._feed)


class Verbose:
    """Takes entries of an indented line for each field; further lines of a value are indented more."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._rest = b""
        self._fields: dict[str, Any] = {}
        self._name = ""

    def __call__(self, part: bytes) -> None:
        lines = (self._rest + part).split(b"\n")
        self._rest = lines.pop()[:_LONGEST_ENTRY]
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        if not line.startswith(b" "):
            _give(self._fields, self._feed)
            self._fields, self._name = {}, ""
            time = _CURSOR_TIME.search(line) if _VERBOSE.fullmatch(line.rstrip()) else None
            if time is not None:
                self._fields[_TIME] = str(int(time[1], 16))
        elif line[:4].isspace() and line[4:5] not in (b" ", b""):
            name, _equals, value = line[4:].decode("utf-8", "replace").partition("=")
            self._name = name
            if name in (_MESSAGE, _TRANSPORT, _FACILITY):
                self._fields[name] = value
        elif self._name == _MESSAGE and len(self._fields[_MESSAGE]) < _LONGEST_ENTRY:
            self._fields[_MESSAGE] += "\n" + line.decode("utf-8", "replace")


class Export:
    """Takes entries of a line for each field, with an empty line after each. A value that is no text follows its name
    and its size, and may hold anything, also what looks like other entries."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._buffer = bytearray()
        self._fields: dict[str, Any] = {}
        self._skipped = 0
        self._in_long_line = False

    def __call__(self, part: bytes) -> None:
        self._buffer += part
        while self._take():
            pass

    def _take(self) -> bool:
        """Take the next field; whether there was one."""
        if self._skipped:
            size = min(self._skipped, len(self._buffer))
            del self._buffer[:size]
            self._skipped -= size
            return self._skipped == 0
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > _LONGEST_ENTRY:
                self._buffer.clear()
                self._in_long_line = True
            return False
        line = bytes(self._buffer[:end])
        name, is_text, value = line.partition(b"=")
        if self._in_long_line or not line or is_text:
            if not line and not self._in_long_line:
                _give(self._fields, self._feed)
                self._fields = {}
            elif not self._in_long_line:
                self._keep(name, value)
            self._in_long_line = False
            del self._buffer[: end + 1]
            return True
        start = end + 9
        if len(self._buffer) < start:
            return False
        size = int.from_bytes(self._buffer[end + 1 : start], "little")
        if size > _LONGEST_ENTRY:
            self._skipped = size + 1
            del self._buffer[:start]
            return True
        if len(self._buffer) < start + size + 1:
            return False
        self._keep(name, bytes(self._buffer[start : start + size]))
        del self._buffer[: start + size + 1]
        return True

    def _keep(self, name: bytes, value: bytes) -> None:
        field = name.decode("utf-8", "replace")
        if field in (_MESSAGE, _TRANSPORT, _TIME, _FACILITY):
            self._fields[field] = value.decode("utf-8", "replace")


def _object(line: bytes) -> object:
    try:
        return parse_json(line)
    except ValueError:
        return None


def _give(fields: Mapping[str, Any], feed: Feed) -> None:
    """Give the lines of an entry in the form short-unix; nothing for an entry that is not the kernel's."""
    if fields.get(_TRANSPORT) != "kernel" or str(fields.get(_FACILITY, "0")) != "0":
        return
    message = fields.get(_MESSAGE)
    if isinstance(message, list):
        # The journal prints what is no UTF-8 as numbers.
        message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
            "utf-8", "replace"
        )
    time = str(fields.get(_TIME) or "")
    if not isinstance(message, str):
        return
    # Further lines of a message are indented, as journalctl does it.
    text = message.replace("\n", "\n  ")
    stamp = f"{time[:-6]}.{time[-6:]} " if time.isdigit() and time.isascii() and 15 <= len(time) <= 20 else ""
    feed(f"{stamp}kernel: {text}\n".encode("utf-8", "replace"))
