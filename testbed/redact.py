# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace what identifies a site in output that is attached to an issue, the same by the same."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass

_HEX = "[0-9a-fA-F]"


@dataclass(frozen=True)
class Kind:
    """A kind of identifier: the group `found` of the pattern is replaced by `made_up` with a number.

    holds: whether what the pattern has found is one.
    """

    pattern: re.Pattern[str]
    made_up: str
    holds: Callable[[str], bool] = lambda _text: True


def _is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


# In this order: a password may have anything in it, and an address may be part of a host name.
_KINDS = (
    Kind(re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----(?P<found>.+?)-----END"), " (private key {}) "),
    Kind(re.compile(r"\w+://(?P<found>[^/\s:@]+:[^/\s@]+)@"), "user{}:password"),
    Kind(
        re.compile(
            r"""(?ix)(?:pass(?:word|wd|phrase)?|secret|token|api_?key|authorization|auth) ["']? \s* [:=] \s*
            (?:basic\s+|bearer\s+)? ["']? (?P<found>[^\s"',}{]{3,})"""
        ),
        "secret{}",
    ),
    Kind(re.compile(rf"(?P<found>{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})"), "00000000-0000-0000-0000-{:012}"),
    Kind(re.compile(r"(?i)serial(?:_?number| number)?[\"']?(?:\s*[:=]\s*|>)[\"']?(?P<found>[0-9A-Z]{5,})"), "S{:09}"),
    Kind(re.compile(rf"(?<![\w:])(?P<found>{_HEX}{{2}}(?::{_HEX}{{2}}){{5}})(?![\w:])"), "02:00:00:00:00:{:02x}"),
    Kind(re.compile(r"(?<![\w.-])(?P<found>\d{1,3}(?:\.\d{1,3}){3})(?![\w.+-])"), "192.0.2.{}", _is_address),
    Kind(
        re.compile(rf"(?<![\w:.])(?P<found>(?:{_HEX}{{0,4}}:){{2,7}}{_HEX}{{0,4}})(?![\w:.])"),
        "2001:db8::{:x}",
        _is_address,
    ),
    Kind(re.compile(r"(?<![\w:.+-])(?P<found>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"), "user{}@example.com"),
    Kind(re.compile(r"/(?:home|Users)/(?P<found>[\w.-]+)"), "user{}"),
    # As Ansible prints hosts: `ok: [node1]`, `node1 : ok=3`.
    Kind(
        re.compile(r"(?m)^(?:ok|changed|fatal|failed|skipping|unreachable|included): \[(?P<found>[^\]\s]+)"), "host{}"
    ),
    Kind(re.compile(r"(?m)^(?P<found>\S+)\s+: ok=\d"), "host{}"),
)


def redact(text: str) -> str:
    """The text with made-up identifiers. Whatever else identifies a site has to be found by reading the result."""
    for kind in _KINDS:
        found = {match["found"]: None for match in kind.pattern.finditer(text) if kind.holds(match["found"])}
        numbers = {name: number for number, name in enumerate(found, 1)}
        # Elsewhere as well, but not within a longer word. The longest first: one may be a part of another.
        for name in sorted(numbers, key=len, reverse=True):
            whole = re.compile(rf"(?<![\w]){re.escape(name)}(?![\w])")
            text = whole.sub(kind.made_up.format(numbers[name]), text)
    return text
