#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpack a verified archive as a directory."""

from __future__ import annotations

DOCUMENTATION = r"""
module: archive_directory
short_description: Unpack a checked archive into a folder of its own, whole or not at all
version_added: 0.1.0
description:
  - Fetches a tar archive, compares its checksum, looks at all of its members, and only then unpacks it next to O(path)
    and renames it into place. Whatever goes wrong, a wrong checksum, a truncated archive or a full disk, the folder is
    as it was before, and nothing else is left.
  - The archive must have one folder at its top, as those of cuDNN, NCCL and TensorRT have; what lies in it becomes
    O(path). An archive with absolute paths, paths or links out of that folder, device nodes or pipes is refused.
  - The folder gets a record of its content. With it a later run needs no download to find that all is as it was, and
    unpacks again when a file is missing, changed or does not belong there.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - The archive is not fetched then, so what is wrong with it is not predicted.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  path:
    description:
      - The folder, an absolute path. A folder that this module has not made is never touched.
    type: path
    required: true
  src:
    description:
      - The archive, an C(http), C(https) or C(ftp) URL, or an absolute path on the host.
      - Required with O(state=present).
    type: str
  sha256:
    description:
      - Checksum of the archive in hexadecimal. Required with O(state=present).
    type: str
  state:
    description:
      - V(absent) removes the folder.
    type: str
    choices: [present, absent]
    default: present
  timeout:
    description:
      - How long to wait for a server that sends nothing, in seconds.
      - From 1 to 86400.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Have cuDNN in a folder of its own
  gpu.fleet.archive_directory:
    path: /usr/local/cudnn-9.14.0.64-cuda13
    src: https://mirror.example.com/cudnn-linux-x86_64-9.14.0.64_cuda13-archive.tar.xz
    sha256: 3f1b0e9f2c7b8e0d1a5c4b3a2918f7e6d5c4b3a2918f7e6d5c4b3a2918f7e6d5

- name: Remove it
  gpu.fleet.archive_directory:
    path: /usr/local/cudnn-9.14.0.64-cuda13
    state: absent
"""

RETURN = r"""
differences:
  description: What made it necessary to unpack or remove the folder.
  returned: success
  type: list
  elements: str
  sample: [lib/libcudnn.so.9 is missing]
libraries:
  description: The names by which a loader looks for the folder's libraries, and their paths. Empty without a folder.
  returned: success
  type: dict
  sample: {libcudnn.so.9: /usr/local/cudnn-9.14.0.64-cuda13/lib/libcudnn.so.9}
"""

import os
import re
import shutil
from contextlib import contextmanager
from typing import IO, Iterator

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.gpu.fleet.plugins.module_utils._common.arguments import check_path, shortened
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import WHOLE_TIMEOUT
from ansible_collections.gpu.fleet.plugins.module_utils._files.archive import (
    RECORD,
    ArchiveError,
    checksum,
    differences,
    is_disk_full,
    loaded_names,
    observe,
    read_record,
    unpack,
)

ARGUMENT_SPEC = {
    "path": {"type": "path", "required": True},
    "src": {"type": "str"},
    "sha256": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "timeout": {"type": WHOLE_TIMEOUT, "default": 60},
}


@contextmanager
def opened(source: str, timeout: int) -> Iterator[IO[bytes]]:
    """The archive's bytes, from a URL or a file."""
    is_url = "://" in source
    with open_url(source, timeout=timeout, http_agent="gpu.fleet") if is_url else open(source, "rb") as stream:
        yield stream


def find_differences(path: str, sha256: str | None) -> tuple[str, ...]:
    """List how the directory differs from the archive with that checksum, or from being absent when there is none."""
    if not os.path.lexists(path):
        return (f"{path} is missing",) if sha256 else ()
    record = read_record(path)
    if record is None or os.path.islink(path):
        raise ArchiveError(f"{path} is there and has no {RECORD}: it was not made from an archive; move it away")
    if sha256 is None:
        return (f"{path} is there",)
    if record.archive != sha256:
        return (f"{path} is from another archive",)
    return differences(observe(path), record.contents)


def fetch_and_unpack(source: str, sha256: str, work: str, timeout: int) -> str:
    """Fetch the archive into the directory `work`, verify and unpack it there; returns the unpacked directory."""
    archive, directory = os.path.join(work, "archive"), os.path.join(work, "folder")
    with opened(source, timeout) as stream, open(archive, "wb") as file:
        found = checksum(stream, file)
    if found != sha256:
        raise ArchiveError(f"its sha256 is {found}, not {sha256}")
    record = unpack(archive, directory, sha256)
    wrong = differences(observe(directory), record.contents)
    if wrong:
        raise ArchiveError(f"read back after unpacking: {', '.join(wrong)}")
    return directory


def put_in_place(directory: str, path: str, old: str) -> None:
    """Rename the unpacked directory to `path`; the previous one is kept as `old` until the new one is in place."""
    if os.path.lexists(path):
        os.rename(path, old)
    try:
        os.rename(directory, path)
    except OSError:
        restore(path, old)
        raise


def restore(path: str, old: str) -> None:
    """Restore the old directory after an interrupted replacement."""
    if os.path.lexists(old) and not os.path.lexists(path):
        os.rename(old, path)


def work_paths(path: str) -> tuple[str, str]:
    """Directories for work and for the old directory: fixed names, so that a run cleans up after a killed one."""
    parent, name = os.path.split(path)
    return os.path.join(parent, f".{name}.new"), os.path.join(parent, f".{name}.old")


def clear(path: str) -> None:
    """Remove what a run has made next to the directory."""
    for left in work_paths(path):
        shutil.rmtree(left, ignore_errors=True)


def replace(path: str, source: str, sha256: str, timeout: int) -> None:
    """Replace the directory by the archive's content, completely or not at all."""
    work, old = work_paths(path)
    parent = os.path.dirname(path)
    os.makedirs(parent, mode=0o755, exist_ok=True)
    try:
        clear(path)
        os.mkdir(work, 0o700)
        put_in_place(fetch_and_unpack(source, sha256, work, timeout), path, old)
    except OSError as error:
        if is_disk_full(error):
            raise ArchiveError(f"there is no room left in {parent} for it") from error
        raise ArchiveError(f"it cannot be fetched or unpacked: {error}") from error
    finally:
        clear(path)


def remove(path: str) -> None:
    """Remove the directory: rename it first, then delete it file by file."""
    old = work_paths(path)[1]
    clear(path)
    os.rename(path, old)
    clear(path)


def main() -> None:
    """Compare; unpack or remove where something differs."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        required_if=[("state", "present", ("src", "sha256"))],
        supports_check_mode=True,
    )
    check_path(module, "path")
    path, source = os.path.normpath(module.params["path"]), module.params["src"] or ""
    desired = (module.params["sha256"] or "").lower() if module.params["state"] == "present" else None
    if os.path.basename(path) == "":
        module.fail_json(msg=f"path: {path} is not the absolute path of a folder with a name")
    if desired is not None and not re.fullmatch("[0-9a-f]{64}", desired):
        module.fail_json(
            msg=f"sha256: {shortened(module.params['sha256'] or '')} is not a sha256, 64 hexadecimal digits"
        )
    if desired is not None and (not re.match("(https?|ftp)://|/", source) or "\0" in source):
        module.fail_json(
            msg=f"src: {shortened(source)} is neither a URL (http, https, ftp) nor an absolute path on the host"
        )

    try:
        if not module.check_mode:
            restore(path, work_paths(path)[1])
        found = find_differences(path, desired)
        if found and not module.check_mode:
            if desired is None:
                remove(path)
            else:
                replace(path, source, desired, module.params["timeout"])
            left = find_differences(path, desired)
            if left:
                raise ArchiveError(f"{path} is not as it should be afterwards: {', '.join(left)}")
        record = read_record(path)
    except ArchiveError as error:
        module.fail_json(msg=f"{source or path}: {error}; {path} is as it was", exception=error)
    except (OSError, UnicodeError) as error:
        module.fail_json(msg=f"path: {path}: {error}", exception=error)

    libraries = loaded_names(record.contents) if record else {}
    module.exit_json(
        changed=bool(found),
        differences=list(found),
        libraries={name: f"{path}/{relative}" for name, relative in libraries.items()},
        diff={"before": "".join(f"{line}\n" for line in found), "after": ""},
    )


if __name__ == "__main__":
    main()
