# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps from a host's holds, locks and preferences to the requested ones. Private to this collection. Pure."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, Sequence

from .._common.arguments import shortened
from .._common.errors import ChangeError
from .._common.file_steps import File, FileStep, write_step
from .._common.plain_text import one_line
from .._managed.packages import Package, entries_of

PRIORITY = 1000
"""From it on apt installs a version although that is a downgrade. Ansible's apt module gives 1001 to a version that a
task requests, so that a task can leave the pin of the last run for an older version."""
PLUGIN = "python3-dnf-plugin-versionlock"

# Lines of files that root's package manager reads: none may begin another line, field or comment.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9+._:-]*[A-Za-z0-9+._])?"
_GLOB = r"[A-Za-z0-9*?\[](?:[A-Za-z0-9+._:*?\[\]-]*)"
_VERSION = r"[A-Za-z0-9*?\[][A-Za-z0-9+._:~^*?\[\]-]*"
_FORMS = {
    "role": (r"(?:[a-z][a-z0-9_]*)?", "the name of a role"),
    "hold": (_NAME, "the name of a package"),
    "release": (_VERSION, "the name of a package, or a lock of dnf"),
    "packages": (rf"{_GLOB}(?: {_GLOB})*", "names of packages, with spaces between them"),
    "version": (_VERSION, "a version"),
    "preferences_file": (r"(?:/etc/apt/preferences\.d/[\w-]+)?", "a file of /etc/apt/preferences.d"),
}
"""By option: the form of its values, and that in words."""
_MOST_STARS = 4
_LONGEST = 200
_ARCHITECTURE = re.compile(r"\.(i[3-6]86|x86_64|aarch64|noarch)$")


@dataclass(frozen=True)
class Pin:
    """The version of packages that the package manager may install. `packages`: names, with spaces between them."""

    packages: str
    version: str
    priority: int = PRIORITY

    def __str__(self) -> str:
        return f"Package: {self.packages}\nPin: version {self.version}\nPin-Priority: {self.priority}\n"


@dataclass(frozen=True)
class Request:
    """What is requested. `hold`: installed packages; `release`: what earlier runs may have held or locked."""

    uses_apt: bool
    host: str = ""
    role: str = ""
    hold: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    release: tuple[str, ...] = ()
    preferences_file: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All names of packages, and patterns of them."""
        return tuple(dict.fromkeys((*self.hold, *(name for pin in self.pins for name in pin.packages.split()))))

    @property
    def needs_locks(self) -> bool:
        """Whether dnf has to lock anything."""
        return not self.uses_apt and bool(self.hold or self.pins)

    def message(self, text: str) -> str:
        """The text, with the host before it."""
        return f"{self.host}: {text}" if self.host else text


@dataclass(frozen=True)
class Observed:
    """Readings of a host.

    `packages`: the installed ones by name, with apt all of them, and whether their version is held or locked; of a
    name of dnf all versions, joined by ", ". `held`: all that apt holds. `path` and `file`: apt's preferences, or
    dnf's list of locks. `others`: the other files of preferences. `missing`: packages that are needed.
    `disabled`: the file that disables dnf's locks. `owner`: user and group of files that this run writes.
    """

    packages: Mapping[str, Package]
    held: tuple[str, ...] = ()
    path: str = ""
    file: File | None = None
    others: Mapping[str, str] | None = None
    missing: tuple[str, ...] = ()
    disabled: str = ""
    owner: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Plan:
    """The steps, in this order. `others` are holds, locks and preferences that are not ours; they stay."""

    install: tuple[str, ...] = ()
    files: tuple[FileStep, ...] = ()
    release: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[str, ...]:
        """What differs from the request; a read back has nothing."""
        return (*self.install, *(step.path for step in self.files), *self.release, *self.hold)


def parse_request(params: Mapping[str, Any], uses_apt: bool) -> Request:
    """The request in the options; raises ChangeError by the name of an option."""
    for option in ("role", "hold", "release", "preferences_file"):
        _check(option, params[option] if isinstance(params[option], list) else [params[option]])
    for name in ("packages", "version"):
        _check(name, [pin[name] for pin in params["pins"]], "pins.")
    pins = tuple(Pin(pin["packages"], pin["version"], pin["priority"]) for pin in params["pins"])
    hold, release = (tuple(dict.fromkeys(params[name])) for name in ("hold", "release"))
    if params["state"] == "absent":
        locks = () if uses_apt else tuple(_locks_of(pins))
        hold, pins, release = (), (), tuple(dict.fromkeys((*release, *hold, *locks)))
    return Request(uses_apt, params["host"], params["role"], hold, pins, release, params["preferences_file"])


def _check(option: str, values: Iterable[str], place: str = "") -> None:
    form, meant = _FORMS[option]
    for text in values:
        if not re.fullmatch(form, text, re.ASCII):
            raise ChangeError(f"{place}{option}: {shortened(text)} is not {meant}")


def plan(request: Request, observed: Observed) -> Plan:
    """The steps to the request."""
    return _apt(request, observed) if request.uses_apt else _dnf(request, observed)


def refusal(request: Request, observed: Observed) -> str:
    """Why the request has no effect on this host, empty where it has."""
    absent = [name for name in request.hold if _versions(name, observed) == ()]
    if absent:
        return request.message(f"{', '.join(absent)} cannot be held, as it is not installed")
    if request.needs_locks and observed.disabled:
        locked = ", ".join(request.names)
        return request.message(f"dnf would not keep the version of {locked}: {observed.disabled} disables the locks")
    return ""


def _versions(name: str, observed: Observed) -> tuple[str, ...]:
    """The installed versions of a package."""
    found = observed.packages.get(name)
    return tuple(found.version.split(", ")) if found is not None and found.version else ()


# apt


def _apt(request: Request, observed: Observed) -> Plan:
    step = _preferences(request, observed)
    return Plan(
        files=() if step is None else (step,),
        release=tuple(
            name
            for name in request.release
            if name in observed.held and name in observed.packages and name not in request.hold
        ),
        hold=tuple(name for name in request.hold if name not in observed.held),
        others=(
            *(f"hold of {name}" for name in observed.held if name not in (*request.hold, *request.release)),
            *_other_preferences(request, observed.others or {}),
        ),
    )


def _preferences(request: Request, observed: Observed) -> FileStep | None:
    if not request.preferences_file:
        return None
    installed = (Pin(name, version) for name in request.hold for version in _versions(name, observed))
    pins = (*request.pins, *installed)
    if pins:
        who = f"the role gpu.fleet.{request.role}" if request.role else "gpu.fleet.package_pin"
        text = "\n".join((f"# Written by {who}, which alone changes these versions.\n{pins[0]}", *map(str, pins[1:])))
        return write_step(observed.path, observed.file, text.encode(), observed.owner)
    return None if observed.file is None else FileStep(observed.path, observed.file.content, None)


def _other_preferences(request: Request, files: Mapping[str, str]) -> Iterator[str]:
    """Records of other files about the same packages by name; those about all packages are of repositories."""
    for path, text in files.items():
        for record in records(text):
            names = [name for name in record.get("package", "").split() if name != "*"]
            found = [name for name in names if any(_is_about(name, other) for other in request.names)]
            if found:
                priority = record.get("pin-priority", "none")
                about = f"{' '.join(found)}, {record.get('pin', 'no pin')}, priority {priority}"
                yield f"{path}: {one_line(about, _LONGEST)}"


def records(text: str) -> tuple[dict[str, str], ...]:
    """The records of apt's preferences: fields by their names in small letters, the first of a name."""
    found = []
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for paragraph in re.split(r"\n[ \t]*\n", lines):
        record: dict[str, str] = {}
        # A line that begins with a space continues the field above it.
        for line in re.sub(r"\n[ \t]+", " ", paragraph).splitlines():
            name, colon, value = line.partition(":")
            if colon and name.strip():
                record.setdefault(name.strip().lower(), value.strip())
        if record:
            found.append(record)
    return tuple(found)


def _is_about(pattern: str, name: str) -> bool:
    """Whether a pattern of preferences is about a package or a glob: a name, a glob, `/expression/`, or `src:name`.

    What takes long to match, as an expression may, is compared by its words.
    """
    if pattern.startswith("/") or pattern.count("*") > _MOST_STARS:
        return any(word in name for word in re.findall(r"[A-Za-z0-9]{4,}", pattern))
    one, other = (text.replace("src:", "", 1).partition(":")[0] for text in (pattern, name))
    return fnmatch.fnmatchcase(other, one) or fnmatch.fnmatchcase(one, other)


# dnf


def _dnf(request: Request, observed: Observed) -> Plan:
    text = "" if observed.file is None else observed.file.content.decode("utf-8", "surrogateescape")
    desired = [*_locks_of(request.pins)]
    # An entry of the user may lock the same version.
    found = {name: observed.packages.get(name) for name in request.hold}
    desired += [
        entry
        for name, package in found.items()
        for entry in _entries(name, _versions(name, observed))
        if package is None or not package.held or entry in entries_of(text)
    ]
    gone = [entry for entry in entries_of(text) if entry not in desired and _is_ours(entry, request)]
    missing = [entry for entry in dict.fromkeys(desired) if entry not in entries_of(text)]
    after = _edited(text, gone, missing).encode("utf-8", "surrogateescape")
    before = None if observed.file is None else observed.file.content
    kept = [entry for entry in entries_of(text) if entry not in (*gone, *desired)]
    return Plan(
        install=observed.missing,
        files=(FileStep(observed.path, before, after, keeps=True),) if after != (before or b"") else (),
        hold=tuple(name for name in request.hold if not _versions(name, observed)),
        others=tuple(
            f"lock {one_line(one)[:_LONGEST]}" for one in kept if any(_locks(one, name) for name in request.names)
        ),
    )


def _base(name: str) -> str:
    return _ARCHITECTURE.sub("", name)


def _locks_of(pins: Iterable[Pin]) -> Iterator[str]:
    """The entries of versions that may not be there yet."""
    return (f"{name}-{_epoch(pin.version)}" for pin in pins if pin.priority > 0 for name in pin.packages.split())


def _epoch(version: str) -> str:
    """A version with its epoch, which is 0 where it has none."""
    return version if ":" in version else f"0:{version}"


def _entries(name: str, versions: Sequence[str]) -> Iterator[str]:
    """What dnf writes to lock the installed versions of a package."""
    return (f"{_base(name)}-{_epoch(version)}.*" for version in versions)


def _is_ours(entry: str, request: Request) -> bool:
    """Whether an entry is one to release, or locks a package in the form that dnf writes: others' have other forms."""
    names = {_base(name) for name in (*request.hold, *request.release)}
    written = re.fullmatch(r"(.+)-[0-9]+:[^-:*?\[]+-[^-:*?\[]+\.\*", entry)
    return entry in request.release or (written is not None and written[1] in names)


def _locks(entry: str, name: str) -> bool:
    """Whether an entry, a lock or with ! an exclusion, is about a package."""
    return re.match(rf"!?(?:[0-9]+:)?{re.escape(_base(name))}(?:$|[-.](?:[0-9]|[*?\[]))", entry) is not None


def _edited(text: str, gone: Sequence[str], missing: Sequence[str]) -> str:
    """A list of locks without the lines of some entries, and with others at its end."""
    kept = "".join(line for line in text.splitlines(keepends=True) if line.strip() not in gone)
    end = "\n" if missing and kept and not kept.endswith("\n") else ""
    return kept + end + "".join(f"{entry}\n" for entry in missing)
