#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge options into Docker's daemon.json, which several tools write."""

from __future__ import annotations

DOCUMENTATION = r"""
module: daemon_json
short_description: Merge options into Docker's daemon.json
version_added: 0.1.0
description:
  - Merges options into the file and leaves every other key as it is, at every depth. A file that is not a JSON object
    is refused and left untouched.
  - The new text is checked by C(dockerd --validate), where the engine has that (23 and newer), then written atomically.
    A backup is kept next to it. What another process writes in between is read again and kept.
  - Docker itself is not restarted.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  options:
    description:
      - The options, as in C(daemon.json). Objects are merged, lists and values replaced.
    type: dict
    default: {}
  earlier:
    description:
      - The options that an earlier run has merged. Those that are no longer in O(options) are taken out again, where
        they still have this value.
    type: dict
    default: {}
  on_conflict:
    description:
      - What to do where somebody else has set another value than O(options). A value of O(earlier) is no conflict.
      - V(ours) replaces it.
      - V(fail) names it, and leaves the file untouched.
    type: str
    choices: [ours, fail]
    default: ours
  path:
    description:
      - The file. Links are followed.
    type: path
    default: /etc/docker/daemon.json
  executable:
    description:
      - The engine that checks the file. One that is not there, or too old to check, is not asked.
    type: str
    default: dockerd
"""

EXAMPLES = r"""
- name: Let containers run on while Docker restarts
  gpu.fleet.daemon_json:
    options:
      live-restore: true

- name: Set a mirror, but do not fight over it
  gpu.fleet.daemon_json:
    options:
      registry-mirrors: [https://mirror.example.com]
    on_conflict: fail

- name: Take an option out again
  gpu.fleet.daemon_json:
    earlier:
      live-restore: true
"""

RETURN = r"""
options:
  description: All options of the file, those of others too.
  returned: success
  type: dict
  sample: {"live-restore": true}
conflicts:
  description: Where somebody else had set another value, dotted.
  returned: success
  type: list
  elements: str
  sample: []
created:
  description: Whether there was no file before.
  returned: success
  type: bool
  sample: false
backup_file:
  description: The file as it was before.
  returned: when a file was there and has changed
  type: str
  sample: /etc/docker/daemon.json.4711.2026-01-31@12:00:00~
"""

import json
import os
import stat
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.arguments import check_path
from ansible_collections.gpu.fleet.plugins.module_utils._files.daemon_json import (
    OptionsError,
    conflicts,
    merge,
    parse,
    render,
    same,
)

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "options": {"type": "dict", "default": {}},
    "earlier": {"type": "dict", "default": {}},
    "on_conflict": {"type": "str", "choices": ["ours", "fail"], "default": "ours"},
    "path": {"type": "path", "default": "/etc/docker/daemon.json"},
    "executable": {"type": "str", "default": "dockerd"},
}

_ATTEMPTS = 5


def read(path: str) -> str | None:
    """The content of the file, None when there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def error_message(module: AnsibleModule, path: str) -> str | None:
    """The engine's error message about a file; None when it is valid or cannot be validated."""
    engine = module.get_bin_path(module.params["executable"])
    if engine is None:
        return None
    status, _out, error = module.run_command([engine, "--validate", "--config-file", path])
    if status == 0 or "unknown flag: --validate" in error:
        return None
    # "unable to configure the Docker daemon with file PATH: ..."; the path is our temporary file.
    message = str(error).strip()
    return message.partition(f"with file {path}: ")[2] or message


def write(module: AnsibleModule, path: str, before: str | None, after: str) -> dict[str, str] | None:
    """Replace the file; returns `backup_file` if there was one, None if another process wrote it since it was read."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".daemon.json.", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        reported = error_message(module, temporary)
        if reported is not None:
            raise OptionsError(f"was left as it is, its new text cannot be used: {reported}")
        if read(path) != before:
            return None
        result = {} if before is None else {"backup_file": module.backup_local(path)}
        os.chmod(temporary, 0o644 if before is None else stat.S_IMODE(os.stat(path).st_mode))
        module.atomic_move(temporary, path)
        return result
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def converge(module: AnsibleModule, path: str) -> dict[str, Any]:
    """Merge, read back and return the module's result."""
    desired, earlier = module.params["options"], module.params["earlier"]
    for _attempt in range(_ATTEMPTS):
        before = read(path)
        found = parse(before or "")
        clashes = conflicts(found, desired, earlier)
        if clashes and module.params["on_conflict"] == "fail":
            raise OptionsError(f"has options of somebody else: {'; '.join(map(str, clashes))}")
        options = merge(found, desired, earlier)
        result: dict[str, Any] = {
            "changed": not same(options, found),
            "options": options,
            "conflicts": [clash.place for clash in clashes],
            "created": before is None and not same(options, found),
            "diff": {"before_header": path, "after_header": path, "before": before or "", "after": before or ""},
        }
        if not result["changed"]:
            return result
        after = render(options)
        result["diff"]["after"] = after
        if module.check_mode:
            return result
        written = write(module, path, before, after)
        if written is not None:
            if read(path) != after:
                raise OptionsError("was written by somebody else at the same moment; run again")
            return {**result, **written}
    raise OptionsError(f"was changed by somebody else each of {_ATTEMPTS} times; stop what writes it, then run again")


def json_objection(options: dict[str, Any]) -> str | None:
    """Why options cannot be written as JSON in UTF-8, None when they can."""
    try:
        json.dumps(options, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        return f"what JSON cannot have: {error}"
    return None


def main() -> None:
    """Converge and return."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    check_path(module, "path")
    for option in ("options", "earlier"):
        objection = json_objection(module.params[option])
        if objection:
            module.fail_json(msg=f"{option}: {objection}")
    path = os.path.realpath(module.params["path"])
    try:
        result = converge(module, path)
    except OptionsError as error:
        module.fail_json(msg=f"{path} {error}", exception=error)
    except (OSError, UnicodeError) as error:
        module.fail_json(msg=f"path: {path} cannot be read or written: {error}", exception=error)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
