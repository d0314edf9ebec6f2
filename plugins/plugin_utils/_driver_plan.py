# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide branch and packages of a host's driver, from what its repositories offer. Private to this collection.

Pure: a request and the output of `apt-cache show` in, the plan out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ._driver_packages import NEWEST, DriverRequest, Packages, packages_for

_FIELD = re.compile(r"^(Package|Version|Depends): *(.*)$", re.MULTILINE)
# The first version in a package version: after an epoch, before a packager's revision.
_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d+)+)(?=$|[-+~])")
# What differs in the names of a transitional package and of the one that it installs.
_VARIANT = re.compile(r"-\d{3}(?:-server)?(?:-open)?(?=-|$)")


@dataclass(frozen=True)
class Offer:
    """A package in one version that a repository has. `becomes`: the package that a transitional one installs."""

    name: str
    version: str
    becomes: str = ""


@dataclass(frozen=True)
class DriverPlan:
    """The branch, empty where the offers do not decide it, and its packages; `refusals` are reasons against it."""

    branch: str
    packages: Packages
    refusals: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The dict that templates get."""
        return {"branch": self.branch, "packages": self.packages.as_dict(), "refusals": list(self.refusals)}


def parse_offers(text: str) -> tuple[Offer, ...]:
    """The packages in the output of `apt-cache show`, all versions of each."""
    stanzas = (dict(_FIELD.findall(stanza)) for stanza in re.split(r"\n\s*\n", text))
    return tuple(
        Offer(fields["Package"], fields.get("Version", ""), _becomes(fields["Package"], fields.get("Depends", "")))
        for fields in stanzas
        if "Package" in fields
    )


def _becomes(name: str, depends: str) -> str:
    """The package that `name` only leads to: its one dependency, unversioned, the same of another branch or kind."""
    only = re.fullmatch(r"[a-z0-9][a-z0-9+.-]*", depends.strip())
    return only[0] if only and only[0] != name and _shape(only[0]) == _shape(name) else ""


def _shape(name: str) -> str:
    return _VARIANT.sub("-N", name, count=1)


def plan_driver(
    request: DriverRequest, offered: Sequence[Offer], table: Sequence[Mapping[str, Any]], installed: str = ""
) -> DriverPlan:
    """Plan the driver for `request`; without offers only the table is known. Raises DriverRequestError as packages_for.

    The newest branch is `installed` where that is still real, else the highest whose packages are all real. A requested
    branch that is transitional, or of which a package is missing, is refused with the branches that are real.
    """
    packages = packages_for(request, table)
    if request.branch != NEWEST:
        problems = _problems(request, packages, offered) if offered else ()
        real = _real_branches(request, offered, table) if problems else ()
        return DriverPlan(str(request.branch), packages, _refusals(request, problems, real))
    real = _real_branches(request, offered, table)
    if not real:
        return DriverPlan("", packages)
    newest = replace(request, version=installed if installed in map(str, real) else str(real[-1]))
    return DriverPlan(newest.version, packages_for(newest, table))


def _real_branches(
    request: DriverRequest, offered: Sequence[Offer], table: Sequence[Mapping[str, Any]]
) -> tuple[int, ...]:
    """The branches of which every package of the request is offered and none is transitional, lowest first."""
    probe = packages_for(replace(request, version="newest"), table).probe
    pattern = re.compile(re.escape(probe).replace(r"\*", "([0-9]{3})"))
    branches = sorted(
        {int(match[1]) for offer in offered if (match := pattern.fullmatch(offer.name)) and match.groups()}
    )
    asked = [replace(request, version=str(branch)) for branch in branches]
    return tuple(one.branch for one in asked if not _problems(one, packages_for(one, table), offered))


def _problems(request: DriverRequest, packages: Packages, offered: Sequence[Offer]) -> tuple[str, ...]:
    """Why the packages cannot be had: those that lead to other packages, and those that are missing."""
    problems = []
    for name in (*packages.driver, *packages.others):
        exact = request.version if name in packages.driver else ""
        fitting = [offer for offer in offered if offer.name == name and _fits(offer.version, exact)]
        if not any(offer.name == name for offer in offered):
            problems.append(f"{name} does not exist")
        elif fitting and fitting[0].becomes:
            problems.append(f"{name} installs {_end(fitting[0], offered)}")
    return tuple(problems)


def _fits(version: str, exact: str) -> bool:
    """Whether a package version is of the exact driver version; a branch is in the package's name."""
    upstream = _UPSTREAM.match(version)
    return "." not in exact or bool(upstream and upstream[1] == exact)


def _end(offer: Offer, offered: Iterable[Offer]) -> str:
    """The last package of a chain of transitional ones."""
    by_name = {one.name: one for one in reversed(tuple(offered))}
    seen = {offer.name}
    while offer.becomes in by_name and offer.becomes not in seen and by_name[offer.becomes].becomes:
        seen.add(offer.becomes)
        offer = by_name[offer.becomes]
    return offer.becomes


def _refusals(request: DriverRequest, problems: Sequence[str], real: Sequence[int]) -> tuple[str, ...]:
    if not problems:
        return ()
    has = f"with {request.kind} kernel modules it has the branches {', '.join(map(str, real))}" if real else ""
    return (f"branch {request.branch} is not there as such: {', '.join(problems)}" + (f"; {has}" if has else ""),)
