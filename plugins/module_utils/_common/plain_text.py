# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of hosts and users for a scheduler, a log or a terminal. Private to this collection."""

from __future__ import annotations

import unicodedata

# Control characters (also C1, so ESC and CSI) and separators of lines end words. Format characters, as those that turn
# the direction of writing, surrogates, and code points that are no characters are left out.
_ENDS_A_WORD = frozenset(("Cc", "Zl", "Zp", "Zs"))
_LEFT_OUT = frozenset(("Cf", "Cs", "Cn", "Co"))


def visible(text: str) -> str:
    """The text without control characters; spaces are as many as they were."""
    kinds = ((character, unicodedata.category(character)) for character in text)
    return "".join(" " if kind in _ENDS_A_WORD else character for character, kind in kinds if kind not in _LEFT_OUT)


def one_line(text: str, longest: int | None = None) -> str:
    """The text as one line of what is visible, of at most so many characters."""
    line = " ".join(visible(text).split())
    return line if longest is None or len(line) <= longest else f"{line[: max(longest - 3, 0)]}..."
