#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage a set of text files on a host as one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: file_set
short_description: Make a whole set of text files be as declared
version_added: 0.1.0
description:
  - Writes the files of a set that differ, leaves those that do not, and removes what an earlier run of the same set
    wrote and the set no longer has.
  - For many small files that belong together. With M(ansible.builtin.copy) each of them costs two module runs, even
    when nothing is to do; this module is one run for all of them.
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
  files:
    description:
      - The files of the set, absolute path to content. They get mode C(0644); folders that are missing are made.
      - With neither O(files) nor O(programs) everything that the set had is removed.
    type: dict
    default: {}
  programs:
    description:
      - Files of the set that can be executed, absolute path to content. They get mode C(0755).
    type: dict
    default: {}
  record:
    description:
      - Where the module keeps the list of what it wrote for this set. The file belongs to the set.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Lay out a service
  gpu.fleet.file_set:
    record: /var/lib/example/files.json
    files:
      /etc/systemd/system/example.service: "{{ lookup('ansible.builtin.template', 'example.service.j2') }}"
      /etc/example.conf: |
        colour = green
    programs:
      /usr/local/bin/example: "{{ lookup('ansible.builtin.file', 'example.sh', rstrip=false) }}"

- name: Remove what the set had
  gpu.fleet.file_set:
    record: /var/lib/example/files.json
"""

RETURN = r"""
written:
  description: The files that were written, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/example.conf]
removed:
  description: The files that were removed, or would be.
  returned: success
  type: list
  elements: str
  sample: []
"""

import json
import os
import stat
import tempfile
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.arguments import check_path, path_objection, shortened

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "files": {"type": "dict", "default": {}},
    "programs": {"type": "dict", "default": {}},
    "record": {"type": "path", "required": True},
}
_NAMED = 5


@dataclass(frozen=True)
class File:
    """An observed or a desired file."""

    content: str
    mode: int


@dataclass(frozen=True)
class Step:
    """One file to write, or to remove when ``after`` is None."""

    path: str
    before: File | None
    after: File | None


def plan(observed: dict[str, File | None], desired: dict[str, File]) -> tuple[Step, ...]:
    """Return the steps from the observed to the desired files; an observed file that is not desired is removed."""
    steps = [Step(path, observed[path], desired.get(path)) for path in sorted(observed)]
    return tuple(step for step in steps if step.before != step.after)


def observe(path: str) -> File | None:
    """Read a file. A link is not managed: it counts as absent and is replaced."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        with open(path, "rb") as file:
            content = file.read().decode("utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return File(content, stat.S_IMODE(status.st_mode))


def render_record(desired: dict[str, File], directories: list[str]) -> File:
    """Return the record of a set: its files, and the directories that were made for them."""
    return File(json.dumps({"files": sorted(desired), "folders": sorted(directories)}, indent=1) + "\n", 0o644)


def missing_directories(paths: list[str]) -> list[str]:
    """List the missing directories of these files."""
    missing = set()
    for path in paths:
        directory = os.path.dirname(path)
        while directory not in missing and not os.path.isdir(directory):
            missing.add(directory)
            directory = os.path.dirname(directory)
    return sorted(missing)


def apply(module: AnsibleModule, steps: tuple[Step, ...], emptied: list[str]) -> None:
    """Apply the steps, then remove the empty directories of the set, innermost first."""
    for step in steps:
        if step.after is None:
            if os.path.lexists(step.path):
                os.unlink(step.path)
            continue
        os.makedirs(os.path.dirname(step.path), mode=0o755, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "wb") as file:
            file.write(step.after.content.encode("utf-8"))
        module.atomic_move(temporary, step.path)
        os.chmod(step.path, step.after.mode)
    for directory in sorted(emptied, reverse=True):
        if os.path.isdir(directory) and not os.listdir(directory):
            os.rmdir(directory)


def read_record(path: str) -> tuple[list[str], list[str]]:
    """Read which files and directories an earlier run made; none if the record is unreadable."""
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        found: tuple[list[str], list[str]] = (list(record["files"]), list(record["folders"]))
        is_ours = all(isinstance(path, str) and path_objection(path) is None for paths in found for path in paths)
        return found if is_ours else ([], [])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return [], []


def unusable_as(path: str, content: object) -> str | None:
    """Why a file of the set cannot be written, None when it can; a message to follow the path."""
    if not isinstance(content, str):
        return "has a content that is not a text"
    try:
        content.encode()
    except UnicodeError:
        return "has a content with characters that cannot be encoded"
    return path_objection(path)


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    check_path(module, "record")
    record = module.params["record"]
    unusable = [
        f"{option}: {shortened(path)} {objection}"
        for option in ("files", "programs")
        for path, content in sorted(module.params[option].items())
        for objection in (unusable_as(path, content),)
        if objection
    ]
    if unusable:
        more = f"; and {len(unusable) - _NAMED} more" if len(unusable) > _NAMED else ""
        module.fail_json(msg="; ".join(unusable[:_NAMED]) + more)
    desired = {path: File(content, 0o644) for path, content in module.params["files"].items()}
    desired.update({path: File(content, 0o755) for path, content in module.params["programs"].items()})

    try:
        files, directories = read_record(record)
        if desired:
            directories = sorted({*directories, *missing_directories([*desired, record])})
            desired[record] = render_record(desired, directories)
        observed = {path: observe(path) for path in {*desired, *files, record}}
        steps = plan(observed, desired)
        if not module.check_mode:
            apply(module, steps, [] if desired else directories)
            left = plan({path: observe(path) for path in observed}, desired)
            if left:
                module.fail_json(msg=f"not as declared after writing: {', '.join(step.path for step in left)}")
    except (OSError, UnicodeError) as error:
        module.fail_json(msg=f"cannot lay out the files of the set, record: {record}: {error}", exception=error)

    module.exit_json(
        changed=bool(steps),
        written=[step.path for step in steps if step.after],
        removed=[step.path for step in steps if step.before and not step.after],
        diff=[
            {
                "before_header": step.path,
                "after_header": step.path,
                "before": step.before.content if step.before else "",
                "after": step.after.content if step.after else "",
            }
            for step in steps
        ],
    )


if __name__ == "__main__":
    main()
