# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the repositories of a host offer, read from the output of apt-cache and dnf. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_FIELD = re.compile(r"^(Package|Version|Depends): *(.*)$", re.MULTILINE)
_INSTALLED = re.compile(r"^Status: ", re.MULTILINE)
# The first version in a package version: after an epoch, before a packager's revision.
_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d+)+)(?=$|[-+~])")
# What differs in the names of a transitional package and of the one that it installs.
_VARIANT = re.compile(r"-\d{3}(?:-server)?(?:-open)?(?=-|$)")
_CREDENTIALS = re.compile(r"//[^/@]*@")
# Where repositories with drivers are, unless their URLs are given: NVIDIA's, the PPA, and NVIDIA's in one package.
_PLACES = {
    "cuda_repository": re.compile(r"/compute/cuda/repos/"),
    "ppa": re.compile(r"//ppa\.launchpad(?:content)?\.net/graphics-drivers/"),
    "local_repository": re.compile(r"/nvidia-driver-local-repo-"),
}
DISTRIBUTION = "distribution"


@dataclass(frozen=True)
class Offer:
    """A package in one version that a repository has.

    `becomes` is the package that a transitional one installs. `sources` are values of nvidia_driver_source, empty where
    it is not known which repositories have it.
    """

    name: str
    version: str
    depends: str = ""
    becomes: str = ""
    sources: frozenset[str] = frozenset()

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


def parse_apt(shown: str, listed: str = "", repositories: Mapping[str, str] | None = None) -> tuple[Offer, ...]:
    """The packages in the output of `apt-cache show` and `apt-cache madison`, all versions of each.

    `repositories`: URLs by source, where they differ from the vendors' own. Without `listed` no source is known.
    """
    # What is installed and in no repository has a status. It is not offered.
    offered = (stanza for stanza in re.split(r"\n\s*\n", shown) if listed.strip() or not _INSTALLED.search(stanza))
    stanzas = (dict(_FIELD.findall(stanza)) for stanza in offered)
    depends = {(one["Package"], one.get("Version", "")): one.get("Depends", "") for one in stanzas if "Package" in one}
    sources: dict[tuple[str, str], set[str]] = {}
    for line in listed.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and not cells[2].endswith("Sources"):
            sources.setdefault((cells[0], cells[1]), set()).add(source_of(cells[2], repositories or {}))
    keys = sources if listed.strip() else depends
    return tuple(
        Offer(
            name,
            version,
            depends.get((name, version), ""),
            _becomes(name, depends.get((name, version), "")),
            frozenset(sources.get((name, version), ())),
        )
        for name, version in keys
    )


def parse_dnf(text: str) -> tuple[Offer, ...]:
    """The packages in the output of `dnf repoquery` with the format `%{name} %{version}`."""
    rows = (line.split() for line in text.splitlines())
    return tuple(Offer(row[0], row[1]) for row in rows if len(row) == 2)


def source_of(place: str, repositories: Mapping[str, str]) -> str:
    """The source whose repository has this place: a URL, followed by a suite and more."""
    url = _CREDENTIALS.sub("//", place)
    for source, known in repositories.items():
        if known and f"{url.split()[0].rstrip('/')}/".startswith(f"{_CREDENTIALS.sub('//', known).rstrip('/')}/"):
            return source
    return next((source for source, pattern in _PLACES.items() if pattern.search(url)), DISTRIBUTION)


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
