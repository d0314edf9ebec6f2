# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt and dnf print about a repository that they cannot use. Private to this collection. Pure."""

from __future__ import annotations

import re

from .._common.runner import CommandResult

_SIGNATURE = re.compile(
    "NO_PUBKEY|EXPKEYSIG|REVKEYSIG|BADSIG|EXPSIG|is not signed|Missing key|Signing key|GPG signature"
    "|OpenPGP signature verification|signature could not|signatures were invalid|signatures couldn"
)
# "Not found" and what is refused are final; a server that is busy, down or does not respond is not.
_FINAL = re.compile(r"\b(404|403|401)\b|certificate|Malformed|Unknown repo", re.IGNORECASE)
_REASONS = (re.compile("GPG|signature|Curl error|Status code|Failed to fetch|Could not"), re.compile("^(E:|W:|Err)"))
_LOCKED = re.compile("Could not get lock")
# What dnf prints of each key that it takes, right or wrong.
_NO_REASON = "Importing GPG key"


def text_of(result: CommandResult) -> str:
    """All that a program has printed, errors first."""
    return f"{result.error_text}\n{result.text}"


def is_about_signature(text: str) -> bool:
    """Whether the repository is signed with another key, or not at all."""
    return _SIGNATURE.search(text) is not None


def is_retryable(result: CommandResult) -> bool:
    """Whether another attempt may help."""
    return result.rc is not None and _FINAL.search(text_of(result)) is None


def is_locked(result: CommandResult) -> bool:
    """Whether another apt is at work: without the library of Python apt-get does not wait for it."""
    return _LOCKED.search(text_of(result)) is not None


def error_message(result: CommandResult) -> str:
    """The first line with an error, preferably one with a reason."""
    lines = [line.strip() for line in text_of(result).splitlines() if line.strip() and _NO_REASON not in line]
    found = [line for reason in _REASONS for line in lines if reason.search(line)]
    nothing = "no reason given" if result.rc else result.ending
    return re.sub("^([EW]:|Error:|-) *", "", found[0]) if found else nothing
