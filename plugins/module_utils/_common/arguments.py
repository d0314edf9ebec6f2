# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of options that Ansible's own types do not make: paths. Private to this collection."""

from __future__ import annotations

import os

from .errors import ChangeError


def path_objection(path: str) -> str | None:
    """Why a string is not an absolute path, None when it is one; the reason is appended to the path in messages."""
    if not path.startswith("/"):
        return "is not an absolute path"
    if "\0" in path:
        return "has a NUL character, which no path has"
    try:
        os.fsencode(path)
    except UnicodeError:
        return "has characters that cannot be encoded"
    return None


def check_path(option: str, path: str) -> None:
    """Raise ChangeError with the option's name when its value is not an absolute path."""
    objection = path_objection(path)
    if objection:
        raise ChangeError(f"{option}: {shortened(path)} {objection}")


def shortened(text: str, longest: int = 200) -> str:
    """A string for an error message: quoted, unprintable characters escaped, truncated to `longest` characters."""
    return ascii(text) if len(text) <= longest else f"{text[:longest]!a}... ({len(text)} characters)"
