# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of repositories: read, accepted by fingerprint or checksum, and exported alone. Private to this collection."""

from __future__ import annotations

import hashlib
import re
import tempfile
from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

from .._common.errors import ChangeError
from .._common.masking import masked
from .._common.runner import CommandResult, find_executable
from .request import Request

Run = Callable[[Sequence[str]], CommandResult]

# A primary key of `gpg --show-keys --with-colons` and its fingerprint, which is the first below it.
_PRIMARY = re.compile(r"^pub:([^:]*):.*\n(?:(?!pub:|fpr:).*\n)*fpr:(?:[^:]*:){8}([0-9A-F]+):", re.MULTILINE)
_OVER = ("r", "e")
# Of the program that exported the key; it is left out, as in the images of the vendor.
_VERSION = re.compile(rb"^Version.*\n", re.MULTILINE)


@dataclass(frozen=True)
class Key:
    """A primary key; `validity` is gpg's letter, r for a revoked and e for an expired one."""

    validity: str
    fingerprint: str


def parse_keys(text: str) -> tuple[Key, ...]:
    """The primary keys in gpg's output."""
    return tuple(Key(*found) for found in _PRIMARY.findall(text))


def is_over(key: Key) -> bool:
    """Whether the key is revoked or has expired."""
    return key.validity in _OVER


def accepted(request: Request, found: Iterable[Key], content: bytes) -> tuple[str, ...]:
    """The fingerprints of the keys that are trusted, of those found in a file with this content."""
    if request.key_sha256 and hashlib.sha256(_VERSION.sub(b"", content)).hexdigest() == request.key_sha256:
        return tuple(key.fingerprint for key in found)
    return tuple(key.fingerprint for key in found if key.fingerprint in request.fingerprints)


def refuse(request: Request, found: Sequence[Key], trusted: Sequence[str]) -> None:
    """Raise ChangeError where none of the keys found is trusted, or one that is trusted is over."""
    if not trusted:
        has = ", ".join(key.fingerprint for key in found) or "no key at all"
        known = ", ".join(request.fingerprints) or f"the one with the sha256 {request.key_sha256}"
        raise ChangeError(
            request.message(
                f"the key of the repository {request.name} is not trusted: {masked(request.key_origin)} has {has}; "
                f"accepted: {known}; when the vendor has announced a new key, set its fingerprint in "
                f"{request.fingerprints_option}; nothing was changed"
            )
        )
    if any(is_over(key) and key.fingerprint in trusted for key in found):
        raise ChangeError(
            request.message(
                f"the key {', '.join(trusted)} of the repository {request.name} is revoked or has expired; find the "
                f"vendor's new key and set its fingerprint in {request.fingerprints_option}; nothing was changed"
            )
        )


class Keyring:
    """gpg with a directory of its own below `scratch`: nothing of the user's is read or written."""

    def __init__(self, scratch: str, run: Run) -> None:
        self._scratch = scratch
        self._run = run

    def keys(self, path: str) -> tuple[Key, ...]:
        """The keys in a file; none where it is no keyring, or gpg is missing."""
        result = self._gpg(self._home(), "--with-colons", "--show-keys", path)
        return parse_keys(result.text)

    def exported(self, path: str, fingerprints: Sequence[str], is_armored: bool = True) -> bytes:
        """Those keys of a file alone: it may have others."""
        home = self._home()
        imported = self._gpg(home, "--import", path)
        result = self._gpg(home, *(["--armor"] if is_armored else []), "--export", *fingerprints)
        if result.rc != 0 or not result.stdout.strip():
            failed = result if result.rc != 0 else imported
            reason = " ".join(failed.error_text.split()) or failed.ending
            raise ChangeError(f"gpg cannot export the keys of {path}: {reason}")
        return result.stdout

    def _home(self) -> str:
        return tempfile.mkdtemp(dir=self._scratch, prefix="gnupg-")

    def _gpg(self, home: str, *arguments: str) -> CommandResult:
        return self._run([find_executable("gpg"), "--homedir", home, "--batch", "--no-autostart", *arguments])
