# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the repositories of a host offer, read from the output of apt-cache and dnf. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from .sources import source_at

_FIELD = re.compile(r"^(Package|Version|Depends|Source): *(.*)$", re.MULTILINE)
# What `apt-cache policy` prints: a package, a version with its priority, a place that has it, with its own.
_POLICY_NAME = re.compile(r"(\S+):")
_POLICY_VERSION = re.compile(r" (?:\*{3}| {3}) (\S+) (-?\d+)(?: .*)?")
_POLICY_PLACE = re.compile(r" {8,}(-?\d+) (\S+ .*)")
PINNED, EXCLUDED = 1001, -1
"""Priorities that the role itself gives versions: without its records, apt would take the priorities of the places.

A site may give the same ones, so the role's own are known by the records of its file.
"""
_INSTALLED = re.compile(r"^Status: ", re.MULTILINE)
# The first version in a package version: after an epoch, before a packager's revision.
_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d+)+)(?=$|[-+~])")
# What differs in the names of a transitional package and of the one that it installs.
_VARIANT = re.compile(r"-\d{3}(?:-server)?(?:-open)?(?=-|$)")
_CREDENTIALS = re.compile(r"//[^/@]*@")
QUERY_FORMATS = {False: "%{name} %{version}\n", True: "%{name} %{version}-%{release}\n%{files}\n"}
"""What `dnf repoquery` prints of a package, without and with its files: the directory of a module names its kernel."""
_MODULE_FILE = re.compile(r"(?:/usr)?/lib/modules/([^/]+)/.+\.ko(?:\.\w+)?$")


@dataclass(frozen=True)
class Offer:
    """A package in one version that a repository has.

    `becomes` is the package that a transitional one installs. `sources` are values of nvidia_driver_source, empty where
    it is not known which repositories have it. `priority` is apt's, `built_from` the source package, empty where it is
    not named. `kernels` are those that the package has modules of, as far as its files are known.
    """

    name: str
    version: str
    depends: str = ""
    becomes: str = ""
    sources: frozenset[str] = frozenset()
    priority: int = 500
    built_from: str = ""
    kernels: tuple[str, ...] = ()

    @property
    def upstream(self) -> str:
        """The driver's version without epoch and revision, empty when it is none."""
        return upstream(self.version)


def upstream(version: str) -> str:
    """The driver's version in the version of a package, empty when there is none."""
    found = _UPSTREAM.match(version)
    return found[1] if found else ""


def version_key(version: str) -> tuple[int, ...]:
    """Sorts versions of a driver by their numbers."""
    return tuple(int(part) for part in version.split("."))


def fits(version: str, desired: str) -> bool:
    """Whether an exact version satisfies the request: `newest`, a branch or an exact version."""
    return desired in ("newest", "recommended", "") or version == desired or version.startswith(f"{desired}.")


def parse_apt(
    shown: str,
    listed: str = "",
    repositories: Mapping[str, str] | None = None,
    pins: Sequence[Mapping[str, Any]] | None = None,
) -> tuple[Offer, ...]:
    """The packages in the output of `apt-cache show` and `apt-cache policy`, all versions of each, newest first.

    `repositories`: URLs by source, where they differ from the vendors' own. Without `listed` no source is known. `pins`
    are the records of the role's own file of preferences, None where that is not known.
    """
    # What is installed and in no repository has a status. It is not offered.
    offered = (stanza for stanza in re.split(r"\n\s*\n", shown) if listed.strip() or not _INSTALLED.search(stanza))
    stanzas = (dict(_FIELD.findall(stanza)) for stanza in offered)
    known = {(one["Package"], one.get("Version", "")): one for one in stanzas if "Package" in one}
    places = _parse_policy(listed, pins)
    return tuple(
        Offer(
            name,
            version,
            known.get((name, version), {}).get("Depends", ""),
            _becomes(name, known.get((name, version), {}).get("Depends", "")),
            frozenset(source_of(place, repositories or {}) for place in found[1]),
            found[0],
            known.get((name, version), {}).get("Source", "").partition(" ")[0],
        )
        for (name, version), found in (places if listed.strip() else dict.fromkeys(known, (500, ()))).items()
    )


def _is_own(name: str, version: str, priority: int, pins: Sequence[Mapping[str, Any]] | None) -> bool:
    """Whether a version has its priority from the role's preferences, of which the first record that fits counts."""
    if pins is None:
        return priority in (PINNED, EXCLUDED)
    fitting = (
        pin["priority"]
        for pin in pins
        if fnmatchcase(version, str(pin["pin"]).removeprefix("version "))
        and any(fnmatchcase(name, one) for one in str(pin["packages"]).split())
    )
    return next(fitting, None) == priority


def _parse_policy(
    listed: str, pins: Sequence[Mapping[str, Any]] | None
) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
    """Priority and places by name and version, of those that a repository has."""
    found: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}
    name, version, own, highest = "", "", 0, 0
    places: tuple[str, ...] = ()
    for line in listed.splitlines():
        if match := _POLICY_NAME.fullmatch(line):
            name, version = match[1], ""
        elif match := _POLICY_VERSION.fullmatch(line):
            version, own, places = match[1], int(match[2]), ()
        elif (match := _POLICY_PLACE.fullmatch(line)) and version and not match[2].startswith("/var/lib/dpkg/"):
            highest = max(highest, int(match[1])) if places else int(match[1])
            places = (*places, match[2])
            found[name, version] = (highest if _is_own(name, version, own, pins) else own, places)
    return found


def parse_dnf(text: str) -> tuple[Offer, ...]:
    """The packages in the output of `dnf repoquery` with a format of QUERY_FORMATS, in the order of dnf."""
    found: list[Offer] = []
    for line in text.splitlines():
        row = line.split()
        if len(row) == 2:
            found.append(Offer(row[0], row[1]))
        elif found and (match := _MODULE_FILE.match(line)) and match[1] not in found[-1].kernels:
            found[-1] = replace(found[-1], kernels=(*found[-1].kernels, match[1]))
    return tuple(found)


def source_of(place: str, repositories: Mapping[str, str]) -> str:
    """The source whose repository has this place: a URL, followed by a suite and more."""
    url = _CREDENTIALS.sub("//", place)
    for source, known in repositories.items():
        if known and f"{url.split()[0].rstrip('/')}/".startswith(f"{_CREDENTIALS.sub('//', known).rstrip('/')}/"):
            return source
    return source_at(url)


def _becomes(name: str, depends: str) -> str:
    """The package that `name` only leads to: its one dependency, unversioned, the same of another branch or kind."""
    only = re.fullmatch(r"[a-z0-9][a-z0-9+.-]*", depends.strip())
    return only[0] if only and only[0] != name and _shape(only[0]) == _shape(name) else ""


def _shape(name: str) -> str:
    return _VARIANT.sub("-N", name, count=1)


def end_of_transition(offer: Offer, offered: Iterable[Offer]) -> str:
    """The last package of a chain of transitional ones."""
    by_name = {one.name: one for one in reversed(tuple(offered))}
    seen = {offer.name}
    while offer.becomes in by_name and offer.becomes not in seen and by_name[offer.becomes].becomes:
        seen.add(offer.becomes)
        offer = by_name[offer.becomes]
    return offer.becomes
