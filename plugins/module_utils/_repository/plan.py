# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps from a host's repository to the requested one, as pure functions. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterator, Mapping

from .._common.file_steps import File, FileStep, write_step
from .keys import Key, is_over
from .request import Request, preferences_text, source_text, without_entries


@dataclass(frozen=True)
class Observed:
    """Readings of a host.

    `files`: the files of the repository and the old ones, None for one that is not there. `entries`: other files of
    sources. `keys`: in the installed key file. `trusted`: by file, the keys that apt takes for each repository.
    `rpm_keys`: versions of rpm's packages gpg-pubkey, the end of a fingerprint in small letters. `packages`: the
    `old_packages` that are installed. `missing`: packages that reading a key over https needs. `lists`: the package
    manager's cache of the repository. `owner`: user and group of files that this run writes.
    """

    files: Mapping[str, File | None]
    entries: Mapping[str, File]
    keys: tuple[Key, ...] = ()
    trusted: Mapping[str, tuple[Key, ...]] | None = None
    rpm_keys: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    owner: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Plan:
    """The steps, in this order: packages that are needed, then, once key and repository are verified, all others.

    `is_verified`: the network has to be asked first, also where no file changes. `revoked`: by file, the keys that stay
    in it. `lists`: what to remove of the package manager's cache.
    """

    is_verified: bool = False
    install: tuple[str, ...] = ()
    old: tuple[FileStep, ...] = ()
    purge: tuple[str, ...] = ()
    revoked: Mapping[str, tuple[str, ...]] | None = None
    erased_keys: tuple[str, ...] = ()
    files: tuple[FileStep, ...] = ()
    imported_keys: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[str, ...]:
        """What differs from the request, in words, without the packages that are needed; a read back has none."""
        return (
            *(step.path for step in (*self.old, *self.files)),
            *self.purge,
            *(self.revoked or {}),
            *(f"gpg-pubkey-{version}" for version in self.erased_keys),
            *(f"gpg-pubkey-{fingerprint[-8:].lower()}" for fingerprint in self.imported_keys),
            *self.lists,
        )


@dataclass(frozen=True)
class Verified:
    """The keys that were accepted: their fingerprints, and the text of these keys alone."""

    fingerprints: tuple[str, ...]
    text: bytes


def plan(request: Request, observed: Observed, verified: Verified | None = None) -> Plan:
    """The steps to the request; before its keys are `verified`, those that can be known without the network."""
    return _present(request, observed, verified) if request.is_present else _absent(request, observed)


def _present(request: Request, observed: Observed, verified: Verified | None) -> Plan:
    keys = verified or _installed(request, observed)
    own = (
        _written(request.key_file, keys.text, observed),
        _written(request.source_file, source_text(request, request.key_file).encode(), observed),
        *_preferences(request, observed),
    )
    found = Plan(
        install=observed.missing,
        old=(*_old_entries(request, observed), *_removals(observed, request.old_files)),
        purge=observed.packages,
        revoked={
            path: tuple(one.fingerprint for one in others if one.fingerprint not in request.revoked)
            for path, others in (observed.trusted or {}).items()
            if any(one.fingerprint in request.revoked for one in others)
        },
        erased_keys=() if request.uses_apt else _versions(observed, request.revoked),
        files=tuple(step for step in own if step is not None),
        imported_keys=()
        if request.uses_apt
        else tuple(one for one in keys.fingerprints if not _versions(observed, (one,))),
    )
    # One that is known by its checksum alone has to be read again, and of several the vendor may have them all by now.
    is_known = {*keys.fingerprints} == {*request.fingerprints}
    return replace(found, is_verified=bool(found.changes) or not is_known or not observed.lists)


def _installed(request: Request, observed: Observed) -> Verified:
    """The keys in the installed file, where it has only accepted ones; else words in place of their text."""
    file, found = observed.files[request.key_file], tuple(key.fingerprint for key in observed.keys)
    is_trusted = bool(found) and ({*found} <= {*request.fingerprints} or not request.fingerprints)
    if file is not None and is_trusted and not any(is_over(key) for key in observed.keys):
        return Verified(found, file.content)
    words = ", ".join(request.fingerprints) or f"the one with the sha256 {request.key_sha256}"
    return Verified(request.fingerprints, f"(the key {words})\n".encode())


def _absent(request: Request, observed: Observed) -> Plan:
    paths = (request.source_file, request.key_file, *([request.preferences_file] if request.preferences_file else []))
    erased = _versions(observed, () if request.uses_apt else request.fingerprints)
    return Plan(files=tuple(_removals(observed, paths)), erased_keys=erased, lists=observed.lists)


def _old_entries(request: Request, observed: Observed) -> Iterator[FileStep]:
    if not request.old_line:
        return
    for path, file in observed.entries.items():
        text = file.content.decode("utf-8", "surrogateescape")
        kept = without_entries(path, text, request.old_line)
        if kept != text:
            yield FileStep(path, file.content, None if kept is None else kept.encode("utf-8", "surrogateescape"), True)


def _preferences(request: Request, observed: Observed) -> Iterator[FileStep | None]:
    if request.has_preferences:
        yield _written(request.preferences_file, preferences_text(request).encode(), observed)
    elif request.preferences_file:
        yield from _removals(observed, (request.preferences_file,))


def _written(path: str, content: bytes, observed: Observed) -> FileStep | None:
    return write_step(path, observed.files[path], content, observed.owner)


def _removals(observed: Observed, paths: tuple[str, ...]) -> Iterator[FileStep]:
    for path in paths:
        file = observed.files[path]
        if file is not None:
            yield FileStep(path, file.content, None)


def _versions(observed: Observed, fingerprints: tuple[str, ...]) -> tuple[str, ...]:
    """The versions of rpm's packages of these keys."""
    return tuple(version for version in observed.rpm_keys if any(one.lower().endswith(version) for one in fingerprints))
