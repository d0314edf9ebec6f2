# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installed packages and their holds, read without the package manager's lock. Private to this collection."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Collection, Iterable

from .._common.host_files import HostFiles

_DPKG = "/var/lib/dpkg"
RPM_FORMAT = "%{NAME}\\t%{EPOCHNUM}\\t%{VERSION}\\t%{RELEASE}\\t%{ARCH}\\n"
"""Format for `rpm -q --queryformat`, one line for each package, parsed by parse_rpm."""

_PLUGIN_CONFIGURATION = "/etc/dnf/plugins/versionlock.conf"
_LOCK_LISTS = ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list")
_DNF5_LOCKS = "/etc/dnf/versionlock.toml"


@dataclass(frozen=True)
class Package:
    """One package by its requested name.

    `version` is as the package manager prints it, several joined by ", "; None when it is not installed. In that case
    `status` is dpkg's status word, for instance `half-configured`, or None.
    """

    name: str
    version: str | None
    status: str | None = None
    held: bool = False


def read_dpkg(files: HostFiles, names: Collection[str]) -> dict[str, Package]:
    """The packages of these names (`name` or `name:architecture`) from dpkg's status file; `held` is dpkg's hold."""
    journal = f"{_DPKG}/updates"
    # The journal, not yet merged into the status file because dpkg is running or was interrupted.
    updates = [f"{journal}/{name}" for name in files.names(journal) if name.isdigit()]
    stanzas: dict[tuple[str, str], dict[str, str]] = {}
    desired = {name.partition(":")[0] for name in names}
    for path in (f"{_DPKG}/status", *updates):
        for stanza in _stanzas(files.read(path) or "", desired):
            stanzas[stanza["Package"], stanza.get("Architecture", "")] = stanza
    return {name: _dpkg_package(name, stanzas) for name in names}


def _stanzas(text: str, desired: Collection[str]) -> Iterable[dict[str, str]]:
    for paragraph in text.split("\n\n"):
        first, _newline, rest = paragraph.strip("\n").partition("\n")
        if first.startswith("Package: ") and first[len("Package: ") :] in desired:
            fields = dict(re.findall(r"(?m)^(Status|Version|Architecture): (.*)$", rest))
            yield {"Package": first[len("Package: ") :], **fields}


def _dpkg_package(requested: str, stanzas: dict[tuple[str, str], dict[str, str]]) -> Package:
    name, _colon, architecture = requested.partition(":")
    found = [stanza for (package, of), stanza in stanzas.items() if package == name and architecture in ("", "any", of)]
    states = [(stanza.get("Status", "").split() or ["", "", ""]) for stanza in found]
    installed = [(stanza, state) for stanza, state in zip(found, states) if state[-1:] == ["installed"]]
    if not installed:
        left = [state[-1] for state in states if state[-1:] not in ([""], ["not-installed"], ["config-files"])]
        return Package(requested, None, left[0] if left else None)
    versions = sorted({stanza.get("Version", "") for stanza, _state in installed})
    return Package(requested, ", ".join(versions), None, all(state[0] == "hold" for _stanza, state in installed))


def parse_rpm(text: str, names: Collection[str], locks: Iterable[str]) -> dict[str, Package]:
    """Parse `rpm -q` with RPM_FORMAT for these names (any that rpm takes: `name`, `name-version`, `name.arch` ...).

    `locks` are the entries of the version locks, see read_version_locks.
    """
    rows = [row for row in (line.split("\t") for line in text.splitlines()) if len(row) == len(_COLUMNS)]
    found: dict[str, list[list[str]]] = {name: [] for name in names}
    for row in rows:
        for form in _forms(row):
            if form in found:
                found[form].append(row)
    entries = tuple(locks)
    packages = {}
    for name, installed in found.items():
        versions = sorted({_evr(row) for row in installed})
        held = bool(installed) and all(_is_locked(row, entries) for row in installed)
        packages[name] = Package(name, ", ".join(versions) or None, None, held)
    return packages


_COLUMNS = ("name", "epoch", "version", "release", "architecture")


def _evr(row: list[str]) -> str:
    _name, epoch, version, release, _architecture = row
    return f"{version}-{release}" if epoch in ("0", "(none)") else f"{epoch}:{version}-{release}"


def _forms(row: list[str]) -> set[str]:
    """The names that match one installed package."""
    name, epoch, version, release, architecture = row
    epoch = "0" if epoch == "(none)" else epoch
    forms = {name, f"{name}-{version}", f"{name}-{version}-{release}", f"{name}-{epoch}:{version}-{release}"}
    forms.add(f"{name}-{epoch}:{version}")
    forms.add(f"{epoch}:{name}-{version}-{release}")
    return forms | {f"{form}.{architecture}" for form in forms}


def _is_locked(row: list[str], entries: Iterable[str]) -> bool:
    """Whether an entry locks this version: an entry for the bare name, or for another version, does not."""
    unversioned = {row[0], f"{row[0]}.{row[4]}"}
    forms = _forms(row) - unversioned
    return any(
        fnmatch.fnmatchcase(form, entry)
        for entry in entries
        if not any(fnmatch.fnmatchcase(form, entry) for form in unversioned)
        for form in forms
    )


def read_version_locks(files: HostFiles) -> tuple[str, ...]:
    """Entries of dnf's version locks; none when the plugin is disabled, since they have no effect then.

    Entries that exclude a version (`!...`) are not locks.
    """
    locks = list(_dnf5_locks(files.read(_DNF5_LOCKS) or ""))
    if locks_disabled_by(files):
        return tuple(locks)
    for path in lock_lists(files):
        locks += [line for line in entries_of(files.read(path) or "") if not line.startswith("!")]
    return tuple(locks)


def locks_disabled_by(files: HostFiles) -> str:
    """The file that disables dnf's plugin for version locks, empty where none does."""
    off = {"/etc/dnf/dnf.conf": "plugins", _PLUGIN_CONFIGURATION: "enabled"}
    for path, option in off.items():
        if re.search(rf"(?mi)^[ \t]*{option}\s*=\s*(0|no|false|off)\s*$", files.read(path) or ""):
            return path
    return ""


def lock_lists(files: HostFiles) -> tuple[str, ...]:
    """The lists of locks that the plugin may read, the one to write first."""
    named = re.search(r"(?m)^[ \t]*locklist\s*=\s*(/\S+)\s*$", files.read(_PLUGIN_CONFIGURATION) or "")
    return (named[1],) if named else _LOCK_LISTS


def entries_of(text: str) -> tuple[str, ...]:
    """The entries of a list of locks, without its comments."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def _dnf5_locks(text: str) -> Iterable[str]:
    """Entries of dnf5's TOML file with `evr = ...`, in the layout that `dnf versionlock add` writes."""
    for block in re.split(r"(?m)^[ \t]*\[\[packages\]\]\s*$", text)[1:]:
        name = re.search(r'(?m)^[ \t]*name\s*=\s*"([^"]+)"', block)
        condition = re.search(r'(?ms)^[ \t]*key\s*=\s*"evr"\s+comparator\s*=\s*"="\s+value\s*=\s*"([^"]+)"', block)
        if name and condition:
            yield f"{name[1]}-{condition[1]}"
