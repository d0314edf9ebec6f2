# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write files through Ansible. Private to this collection."""

from __future__ import annotations

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule


def temporary_file(content: str, directory: str, prefix: str = "", suffix: str = "") -> str:
    """Write a new file with mode 0600 and return its path."""
    handle, path = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=directory)
    with os.fdopen(handle, "wb") as file:
        file.write(content.encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())
    return path


def replace_file(module: AnsibleModule, path: str, content: str, mode: int | None = None) -> None:
    """Replace a file atomically, and make the directories that it lacks.

    By Ansible's atomic_move, which keeps owner and SELinux context of an existing file and gives a new one the context
    of its directory. `mode` None keeps the mode of an existing file; a new one has 0644.
    """
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    temporary = temporary_file(content, module.tmpdir)
    existed = os.path.exists(path)
    module.atomic_move(temporary, path)
    if mode is not None or not existed:
        os.chmod(path, 0o644 if mode is None else mode)
