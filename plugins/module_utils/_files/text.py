# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text files of a host. Private to this collection."""

from __future__ import annotations


def read_text(path: str, newline: str | None = None) -> str | None:
    """The content of a file, None when there is none; raises OSError, and UnicodeError for one that is not UTF-8.

    With `newline` empty the ends of lines are those of the file.
    """
    try:
        with open(path, encoding="utf-8", newline=newline) as file:
            return file.read()
    except FileNotFoundError:
        return None
