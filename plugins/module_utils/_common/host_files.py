# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read files of a host, or of an image mounted at another root. Private to this collection."""

from __future__ import annotations

import fnmatch
import os
from typing import Container

from .regular_file import MOST_BYTES, decoded, open_regular, read_bytes

_MAX_LINKS = 40


class HostFiles:
    """Files below `root`; all paths are absolute within it. A missing file gives None, a missing directory ()."""

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/")

    def real(self, path: str) -> str:
        """The path including the root."""
        return self.root + path

    def read(self, path: str) -> str | None:
        """The content of a text file, with undecodable bytes replaced; None for what is no regular file as well."""
        try:
            return decoded(read_bytes(self.real(path)), "replace")
        except (OSError, ValueError):
            return None

    def read_bytes(self, path: str) -> bytes:
        """The content of a file up to the first error, or a limit: a device may have no end."""
        content = b""
        try:
            with open_regular(self.real(path)) as stream:
                while len(content) < MOST_BYTES:
                    part = stream.read(4096)
                    if not part:
                        break
                    content += part
                return content
        except (OSError, ValueError):
            return content

    def names(self, directory: str) -> tuple[str, ...]:
        """The sorted entries of a directory."""
        try:
            return tuple(sorted(os.listdir(self.real(directory))))
        except OSError:
            return ()

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The sorted paths that match a pattern, with wildcards in any component."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            if any(character in part for character in "*?["):
                found = [
                    f"{base}/{name}"
                    for base in found
                    for name in self.names(base or "/")
                    if fnmatch.fnmatch(name, part)
                ]
            else:
                found = [f"{base}/{part}" for base in found if self.exists(f"{base}/{part}")]
        return tuple(sorted(found))

    def exists(self, path: str) -> bool:
        """Whether the path exists; a dangling symbolic link counts."""
        return os.path.lexists(self.real(path))

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a symbolic link."""
        return os.path.islink(self.real(path))

    def is_directory(self, path: str) -> bool:
        """Whether the path leads to a directory."""
        return os.path.isdir(self.real(self.resolve(path)))

    def modified(self, path: str) -> float | None:
        """Time of last modification in seconds since 1970."""
        try:
            return os.stat(self.real(path)).st_mtime
        except OSError:
            return None

    def resolve(self, path: str, ends: Container[str] = ()) -> str:
        """Follow symbolic links, absolute ones within the root; with a link loop the path is given unchanged.

        Nothing at or below `ends` is looked at: a path that leads there ends there.
        """
        done, left = "", path.strip("/").split("/")
        for _link in range(_MAX_LINKS):
            while left:
                part = left.pop(0)
                if part in ("", "."):
                    continue
                if part == "..":
                    done = done.rpartition("/")[0]
                    continue
                if f"{done}/{part}" in ends:
                    return f"{done}/{part}"
                if self.is_link(f"{done}/{part}"):
                    break
                done = f"{done}/{part}"
            else:
                return done or "/"
            target = os.readlink(self.real(f"{done}/{part}"))
            if target.startswith("/"):
                done = ""
            left = target.strip("/").split("/") + left
        return path
