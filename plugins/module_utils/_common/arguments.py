# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible's own check of options leaves open: texts that are no path. Private to this collection."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule


def path_objection(path: str) -> str | None:
    """Why a text is not the absolute path of a file or folder, None when it is one; goes on after the path."""
    if not path.startswith("/"):
        return "is not an absolute path"
    if "\0" in path:
        return "has a NUL character, which no path has"
    try:
        os.fsencode(path)
    except UnicodeError:
        return "has characters that cannot be encoded"
    return None


def check_path(module: AnsibleModule, option: str) -> None:
    """Fail by the name of the option when its value is not an absolute path."""
    objection = path_objection(module.params[option])
    if objection:
        module.fail_json(msg=f"{option}: {shortened(module.params[option])} {objection}")


def shortened(text: str, longest: int = 200) -> str:
    """A text for an error message: quoted, with escapes for what cannot be printed, and of a long one its beginning."""
    return ascii(text) if len(text) <= longest else f"{text[:longest]!a}... ({len(text)} characters)"
