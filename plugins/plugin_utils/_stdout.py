# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reads the standard output of a run. Private to this collection."""

from __future__ import annotations

from ansible.plugins.loader import callback_loader


def stdout_is_for_people(callback: str) -> bool:
    """Whether this stdout callback prints what `ansible.builtin.default` does, so that more lines may follow."""
    found = callback_loader.get(callback, class_only=True)
    return any(base.__module__ == "ansible.plugins.callback.default" for base in getattr(found, "__mro__", ()))
