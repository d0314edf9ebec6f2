# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of a host's packages as a whole, and its rollback. Private to this collection."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Callable, Mapping, Sequence

from .._common.runner import CommandResult

Run = Callable[[Sequence[str]], CommandResult]
_LONGEST_REASON = 8
"""Lines."""
# https://github.com/dell/dkms prints `Error! `, and then where its log is; rpm `%prein(a-1.0-1) scriptlet failed`.
_SCRIPT = re.compile(r"^Error! |^Consult /|scriptlet failed|^error: .*: (?:install|erase) failed")

ROLLBACKS = ("required", "if_possible", "ignore")
"""What to do for a rollback before the change: save the packages that go, and refuse the change where that fails."""


class PackageError(Exception):
    """A change that is impossible or failed; one line for the user. `begun`: the host may already be changed."""

    def __init__(self, message: str, begun: bool = False) -> None:
        super().__init__(message)
        self.begun = begun


class RefusedError(PackageError):
    """A change that this host's own packages rule out, whatever the repositories have.

    `unavailable` are the packages without which no rollback is possible, where that is the reason.
    """

    def __init__(self, message: str, unavailable: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.unavailable = tuple(unavailable)


@dataclass(frozen=True)
class PackageRequest:
    """What to install and what to remove.

    A package of another architecture than the host's has it in its name, as apt or dnf writes it: `name:i386`,
    `name.i686`. `install` has `name` or `name=version`, where the version may have wildcards. Packages in `remove` are
    removed unless `install` needs them; with `purge`, apt removes their configuration too. `stream` is `module:stream`
    of dnf; without one, `module` is the name of a module whose stream is reset. Holds of `release_holds` are ours to
    change. `upgrade` moves installed packages to the newest version that `install` allows. `repair` continues although
    packages are half installed. `rollback` is one of ROLLBACKS, `save_directory` where packages are saved for it,
    `sources` are paths of such packages, which are there in addition to the repositories. `preferences` is the
    directory of apt's preferences, empty for the host's own. `lock_timeout` is in seconds.
    """

    install: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    purge: bool = True
    stream: str = ""
    module: str = ""
    release_holds: tuple[str, ...] = ()
    upgrade: bool = False
    repair: bool = False
    rollback: str = "ignore"
    save_directory: str = ""
    sources: tuple[str, ...] = ()
    preferences: str = ""
    lock_timeout: int = 120

    @property
    def desired(self) -> dict[str, str]:
        """The requested versions by name; empty where any version will do."""
        return {name: version for name, _equals, version in (item.partition("=") for item in self.install)}


@dataclass(frozen=True)
class PackagePlan:
    """A planned change: versions by name. `before` has the versions of the installed packages.

    `along` has dependencies that have to change with the requested packages, in the format of the request's `install`.
    `unavailable` are the names of packages that change and that no repository has any more in the installed version,
    `saved` the files that were made of them.
    """

    install: Mapping[str, str] = field(default_factory=dict)
    remove: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    stream: str = ""
    stream_before: str = ""
    along: tuple[str, ...] = ()
    unavailable: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()

    @property
    def previous(self) -> dict[str, str]:
        """What a rollback installs again: versions by name. Packages that were half installed are not restored."""
        return {name: self.before[name] for name in (*self.install, *self.remove) if name in self.before}

    @property
    def changes(self) -> bool:
        """Whether there is anything to change."""
        return bool(self.install or self.remove or self.stream != self.stream_before)

    def done(self, after: Mapping[str, str]) -> PackagePlan:
        """The change that was made; `after` has the versions of the packages that are installed now."""
        there = {**self.remove, **self.before}
        return PackagePlan(
            install={name: version for name, version in after.items() if self.before.get(name) != version},
            remove={name: version for name, version in there.items() if name not in after},
            before=self.before,
            stream=self.stream,
            stream_before=self.stream_before,
            unavailable=self.unavailable,
            saved=self.saved,
        )

    def undo(self, specification: str = "{name}={version}") -> dict[str, object]:
        """The options of a change that undoes this one."""
        return {
            "install": [
                specification.format(name=name, version=version) for name, version in sorted(self.previous.items())
            ],
            "remove": sorted(name for name in self.install if name not in self.before),
            "stream": self.stream_before,
            "release_holds": sorted({*self.install, *self.remove}),
            "repair": True,
            **({"sources": list(self.saved)} if self.saved else {}),
        }


def output_of(result: CommandResult, explain: Callable[[str], str], begun: bool = False) -> str:
    """The output of a command that succeeded; raises PackageError for one that failed, see error_message."""
    if result.rc != 0:
        raise PackageError(error_message(result, explain), begun)
    return result.text


def error_message(result: CommandResult, explain: Callable[[str], str]) -> str:
    """Why a command failed and what to do, in one line; `explain` reads what it has printed."""
    if result.start_error is not None:
        return f"{result.argv[0]} cannot be started; check that it is installed on the host"
    if result.timed_out:
        return f"{result.argv[0]} timed out; check the host's package manager, then run again"
    return explain(result.error_text + "\n" + result.text)


def unreachable(line: str) -> str:
    """The error message for a repository that cannot be reached; `line` is what the package manager has printed."""
    return f"a repository cannot be reached: {line}; check the host's network and the repository's URL, then run again"


def refuse_unrelated_removals(plan: PackagePlan, allowed: Sequence[str]) -> None:
    """Raise PackageError when unrelated packages would be removed."""
    unrelated = sorted(set(plan.remove) - set(allowed))
    if unrelated:
        raise PackageError(
            f"{', '.join(unrelated)} would have to be removed, which was not requested; nothing was changed: remove "
            "it yourself if it is not needed, or request another version"
        )


def unmet(request: PackageRequest, installed: Mapping[str, str], matches: Callable[[str, str], bool]) -> list[str]:
    """Differences from the request, one string each; `matches` compares an installed version with a requested one."""
    found = []
    for name, version in request.desired.items():
        if name not in installed:
            found.append(f"{name} is not installed")
        elif version and not matches(installed[name], version):
            found.append(f"{name} is {installed[name]}, not {version}")
    return found


def matches_deb(installed: str, desired: str) -> bool:
    """Whether a dpkg version matches the requested one, as apt understands `name=version`."""
    return fnmatch.fnmatchcase(installed, desired)


def first_line(text: str, *patterns: str) -> str:
    """The first line that matches any of the patterns, which are tried in order, else the last line.

    The lines below it that it announces belong to it.
    """
    lines = [line.expandtabs() for line in text.splitlines() if line.strip()]
    for pattern in patterns:
        for number, line in enumerate(lines):
            if re.search(pattern, line.strip()):
                return " ".join([line.strip(), *_announced(line, lines[number + 1 :])])
    return lines[-1].strip() if lines else "no reason was reported"


def _announced(line: str, below: Sequence[str]) -> list[str]:
    """The lines below one with a colon at its end, or one of dnf's problems, that are further to the right."""
    if not line.rstrip().endswith(":") and not line.lstrip().startswith("Problem"):
        return []
    inner = takewhile(lambda one: _indent(one) > _indent(line), below)
    return [one.strip() for one in islice(inner, _LONGEST_REASON)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def with_scripts(reason: str, text: str) -> str:
    """The reason, with what the scripts of packages have printed of it: DKMS, and rpm of its scriptlets."""
    found = (line.strip() for line in text.splitlines() if _SCRIPT.search(line.strip()))
    return "; ".join(islice(dict.fromkeys([reason, *found]), _LONGEST_REASON))
