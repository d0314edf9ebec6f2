# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of what root runs by units: files that only root can change, and the system's own Python. Private."""

from __future__ import annotations

import os
import pwd
import re
import stat
from dataclasses import dataclass
from typing import Iterator, Sequence

from . import runner
from .errors import ChangeError

PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python")
"""The distributions' own names of their Python, which are stable across version upgrades."""

# Where those are missing or too old, as on Enterprise Linux 8 and SLES 15: the newest versioned name.
_VERSIONED = "/usr/bin"
_VERSION_NAME = re.compile(r"python3\.([0-9]+)$")
OLDEST = (3, 8)

_MOST_LINKS = 40
_SECONDS = 60.0


@dataclass(frozen=True)
class Place:
    """One directory, link or file on the way to a path."""

    path: str
    status: os.stat_result

    @property
    def is_link(self) -> bool:
        """Whether it is a symlink, whose mode has no meaning."""
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def fault(self) -> str | None:
        """Why users other than root could change it, and what to do about it; None where they cannot."""
        if self.status.st_uid not in (0, os.geteuid()):
            return f"{self.path} belongs to {_user(self.status.st_uid)}: run chown -h root {self.path}"
        if not self.is_link and self.status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            mode = stat.filemode(self.status.st_mode)
            # A directory with the sticky bit is shared on purpose, like /tmp: the location is wrong, not its mode.
            shared = stat.S_ISDIR(self.status.st_mode) and self.status.st_mode & stat.S_ISVTX
            remedy = "install it where only root can write" if shared else f"run chmod go-w {self.path}"
            return f"{self.path} is writable by others than root ({mode}): {remedy}"
        return None


def refuse(paths: Sequence[str], what: str, root: str = "") -> None:
    """Raise ChangeError for paths that users other than root could change, directly or through a parent directory.

    A path that does not exist is checked by its existing parents. `root` is a prefix of all paths, for tests.
    """
    faults: list[str] = []
    for path in paths:
        for place in places(path, root):
            leads = "" if path == place.path or path.startswith(place.path + "/") else f" (where {path} leads)"
            if place.fault is not None and place.fault + leads not in faults:
                faults.append(place.fault + leads)
    if faults:
        raise ChangeError(f"root runs {what} at each boot, and others could change it: {'; '.join(faults)}")


def places(path: str, root: str = "") -> Iterator[Place]:
    """All components of an absolute path, including symlinks and their targets, as far as they exist."""
    here, links = "", 0
    waiting = path.split("/")
    yield Place("/", os.stat(root or "/"))
    while waiting:
        name = waiting.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            here = here.rpartition("/")[0]
            continue
        here = f"{here}/{name}"
        try:
            place = Place(here, os.lstat(root + here))
            target = os.readlink(root + here) if place.is_link else None
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise ChangeError(f"{here} cannot be looked at: {error.strerror}") from error
        except ValueError as error:
            # A NUL, or an unpaired surrogate.
            raise ChangeError(f"{here!a} is no path: {error}") from error
        yield place
        if target is not None:
            links += 1
            if links > _MOST_LINKS:
                raise ChangeError(f"{path} is a loop of symlinks")
            here = "" if target.startswith("/") else here.rpartition("/")[0]
            waiting[:0] = target.split("/")


def resolve(path: str, root: str = "") -> str | None:
    """The regular file that an absolute path resolves to; None where there is none."""
    *_directories, last = places(path, root)
    return last.path if stat.S_ISREG(last.status.st_mode) else None


def system_python(root: str = "") -> str:
    """The system's Python, by its stable name; raises ChangeError when there is none that root may run."""
    unfit: list[str] = []
    for path in (*PYTHONS, *_versioned(root)):
        program = resolve(path, root)
        if program is None:
            unfit.append(f"{path} is not there")
            continue
        refuse((path,), path, root)
        version = _version(program, root)
        if version is not None and version >= OLDEST:
            return path
        message = "does not run" if version is None else f"is Python {version[0]}.{version[1]}"
        unfit.append(f"{path} {message}")
    raise ChangeError(
        f"the boot service needs the system's Python, {OLDEST[0]}.{OLDEST[1]} or newer: {', '.join(unfit)}; install "
        "the distribution's package python3"
    )


def _versioned(root: str) -> Iterator[str]:
    """Pythons with a version in their name, newest first."""
    try:
        matches = [_VERSION_NAME.match(name) for name in os.listdir(root + _VERSIONED)]
    except OSError:
        return
    for match in sorted((match for match in matches if match), key=lambda match: -int(match[1])):
        yield f"{_VERSIONED}/{match[0]}"


def _version(program: str, root: str) -> tuple[int, int] | None:
    """The version of a Python, from its name or else from its output."""
    match = _VERSION_NAME.search(program)
    if match:
        return 3, int(match[1])
    query = "import sys; print('%d.%d' % sys.version_info[:2])"
    result = runner.run((root + program, "-I", "-S", "-c", query), _SECONDS)
    found = re.match(r"([0-9]+)\.([0-9]+)$", result.text.strip()) if result.rc == 0 else None
    return (int(found[1]), int(found[2])) if found else None


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
