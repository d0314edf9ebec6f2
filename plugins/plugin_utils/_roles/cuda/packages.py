# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of CUDA toolkits and of the libraries next to them, from a table. Private to this collection.

Pure: no Ansible, no file access. The tables are in vars/main.yml of the roles cuda and cudnn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

from ..._planning.contract import Ask, Plan, Read, RequestError, Stage, command, unread
from ..nvidia_driver.packages import family

MANAGERS = ("apt", "dnf")
CACHED, FRESH = "cached", "fresh"
"""The package lists that a role plans with: those that the host has, or those that a task has just read."""
LOCK_FILE, LOCK_PLUGIN = "/etc/dnf/plugins/versionlock.list", "python3-dnf-plugin-versionlock"
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_PLACE = re.compile(r"<(\w+)>")
# A line of `apt-cache madison` (name | version | source), or of `dnf repoquery` in the same form.
_OFFER = re.compile(r"^ *([^ |\n]+) *\| *([^ |\n]+)", re.MULTILINE)
# apt's "Inst name [old] (new ...)" and "Remv name [old]".
_APT_CHANGE = re.compile(r"(Inst|Remv|Purg) ([^ ]+)( \[[^]]*\])?(?: \(([^ ]+))?")
# dnf's "Installed: name-version-release.architecture".
_DNF_CHANGE = re.compile(r"([A-Za-z]+): *([^ ]+)-([^- ]+)-[^- ]+$")
# The driver's version in a package's version.
_UPSTREAM = re.compile(r"(?:[0-9]+:)?([0-9.]+)")

# Dependencies of Debian's and Ubuntu's toolkits: the driver's user-space libraries with the files that they need, no
# kernel modules. They may be installed on a host without a driver, and are removed with the toolkit.
# https://packages.debian.org/bookworm/nvidia-cuda-dev, https://packages.debian.org/bookworm/libcuda1,
# https://packages.ubuntu.com/noble/libnvidia-compute-580
_DRIVER_LIBRARIES = re.compile(
    r"libcuda1|libnvidia-(compute-[0-9].*|ml1|ptxjitcompiler1|pkcs11-openssl3)"
    r"|nvidia-(alternative|legacy-check|support|installer-cleanup|(kernel-common|firmware)-[0-9].*)"
    r"|glx-alternative-(nvidia|mesa)|glx-diversions|update-glx"
)

Table = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class CudaPackage:
    """A package: `version` is a pattern with `*`, empty for any; `kind` is the package's purpose in the table."""

    name: str
    version: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Offer:
    """A package in one version that a repository has."""

    name: str
    version: str


@dataclass(frozen=True)
class Change:
    """What a package manager would do to a package: `install` a new one, `change` or `remove` an installed one."""

    name: str
    action: str
    version: str = ""


def packages_for(part: str, version: str, cuda: str, table: Table, manager: str) -> Iterator[CudaPackage]:
    """The packages of one part in one version; raises RequestError when there are none."""
    if manager not in MANAGERS:
        raise RequestError(f"{manager!r} is none of {', '.join(MANAGERS)}")
    if part not in table:
        raise RequestError(f"{part} is none of {', '.join(table)}")
    if not _VERSION.fullmatch(version) or not (cuda == "" or _VERSION.fullmatch(cuda)):
        raise RequestError(f"{part}: {version!r} for CUDA {cuda!r} is no version, as 13.0 is")
    rows = [
        row for row in table[part] if _reaches(version, row.get("since")) and not _passes(version, row.get("until"))
    ]
    if not rows:
        raise RequestError(f"there are no packages of {part} {version}")
    for row in rows:
        values = {
            "version": version.replace(".", "-"),
            "major": version.partition(".")[0],
            "cuda": cuda.partition(".")[0],
            "pin": version + ("-*" if len(numbers(version)) >= int(row.get("numbers", 0)) else ".*-*"),
            "cuda_pin": cuda if "." in cuda else f"{cuda}.*",
        }
        yield CudaPackage(
            name=_filled(row.get(manager, row.get("name", "")), values),
            version=_filled(row.get(f"{manager}_versions", row.get("versions", "")), values),
            kind=row.get("kind", ""),
        )


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: values[place[1]], text)


def _reaches(version: str, since: str | None) -> bool:
    return since is None or numbers(version) >= numbers(since)


def _passes(version: str, until: str | None) -> bool:
    """Whether a version is newer than the last one; `until: 8` includes all of 8."""
    return until is not None and numbers(version)[: len(numbers(until))] > numbers(until)


def numbers(version: str) -> tuple[int, ...]:
    """A version, or the part of a package's version before its revision, for comparisons."""
    return tuple(int(number) for number in re.findall("[0-9]+", re.split("[-+~]", version)[0]))


def offers_command(manager: str, *, fresh: bool) -> list[str]:
    """A command that prints name | version for each package that a repository has; dnf's locks would hide versions."""
    if manager == "apt":
        return ["apt-cache", "madison"]
    cached = [] if fresh else ["--cacheonly"]
    # Without the epoch 0, as apt-cache prints it.
    query = ["repoquery", "--queryformat", "%{name} | %{evr}"]
    return ["dnf", "--quiet", "--disableplugin=versionlock", *cached, *query]


def parse_offers(text: str) -> tuple[Offer, ...]:
    """The packages in the output of `apt-cache madison`, or of `dnf repoquery` in the same form."""
    return tuple(dict.fromkeys(Offer(*found) for found in _OFFER.findall(text)))


def refused_by_lists(
    plan: Stage, variables: Mapping[str, Any], facts: Mapping[str, Any], read: Read, **known: Any
) -> Sequence[str]:
    """What a role refuses by the package lists that the host has."""
    known = {"lists": CACHED, **known}
    found = plan(variables, facts, known)
    if isinstance(found, Ask):
        found = plan(variables, facts, {**known, **read(found)})
    return cast("Plan", found).refusals


def offers_of(found: Plan, given: Mapping[str, Any]) -> Ask | None:
    """The question for what the repositories have, by the host's package lists, where the plan needs them."""
    reading = command(*found.tasks["offers_commands"][given["lists"]])
    return unread(given, {"offers": reading} if found.tasks["needs_repository"] else {}, found)


def is_offered(package: CudaPackage, offers: Iterable[Offer]) -> bool:
    """Whether there is a version of the package that will do."""
    return any(offer.name == package.name and fnmatchcase(offer.version, package.version or "*") for offer in offers)


def parse_changes(lines: Iterable[str], manager: str) -> tuple[Change, ...]:
    """The changes in the output of `apt-get --simulate`, or in the results of dnf."""
    return tuple(dict.fromkeys(filter(None, map(_apt_change if manager == "apt" else _dnf_change, lines))))


def _apt_change(line: str) -> Change | None:
    match = _APT_CHANGE.match(line)
    if match is None:
        return None
    action = "remove" if match[1] != "Inst" else "change" if match[3] else "install"
    return Change(match[2], action, match[4] or "")


def _dnf_change(line: str) -> Change | None:
    match = _DNF_CHANGE.match(line)
    if match is None:
        return None
    return Change(match[2], {"Installed": "install", "Removed": "remove"}.get(match[1], "change"), match[3])


def driver_changes(changes: Iterable[Change], driver: str, *, libraries_allowed: bool) -> tuple[str, ...]:
    """The changed packages that belong to a driver.

    Where its user-space libraries are allowed, they do not count on a host without a driver. On one with a driver those
    do not count that are missing and of its version.
    """
    changes = tuple(changes)
    of_driver = set(family((change.name for change in changes), {}))
    return tuple(
        change.name
        for change in changes
        if change.name in of_driver and not (libraries_allowed and _is_library(change, driver))
    )


def _is_library(change: Change, driver: str) -> bool:
    if change.action == "remove" or not _DRIVER_LIBRARIES.fullmatch(change.name):
        return False
    upstream = _UPSTREAM.match(change.version)
    return driver == "" or (change.action == "install" and upstream is not None and upstream[1] == driver)
