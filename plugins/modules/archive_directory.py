#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpack a verified archive as a directory."""

from __future__ import annotations

DOCUMENTATION = r"""
module: archive_directory
short_description: Unpack a verified archive into its own directory, completely or not at all
version_added: 1.0.0
description:
  - Made for the role P(gpu.fleet.cudnn#role) of this collection; its options may change in any version.
  - Downloads a tar archive, verifies its checksum, checks all of its members, and only then unpacks it next to O(path)
    and renames it into place. After any failure, such as a wrong checksum, a truncated archive or a full disk, the
    directory is unchanged, and no temporary files are left.
  - The archive must have one top-level directory, as archives of cuDNN, NCCL and TensorRT have; its content becomes
    O(path). An archive with absolute paths, paths or links out of that directory, device nodes or pipes is refused.
  - The directory gets a record of its content. With it a later run needs no download to verify the directory, and
    unpacks the archive again when a file is missing, changed or not part of it.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - The archive is not downloaded in check mode, so that a faulty one is not detected.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  path:
    description:
      - Absolute path of the directory. A directory that this module did not create is never changed.
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
      - V(absent) removes the directory.
    type: str
    choices: [present, absent]
    default: present
  timeout:
    description:
      - Seconds to wait for a server that sends nothing.
      - From 1 to 86400.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Unpack cuDNN into its own directory
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
  description: Why the directory was unpacked or removed.
  returned: success
  type: list
  elements: str
  sample: [lib/libcudnn.so.9 is missing]
libraries:
  description: Paths of the directory's libraries by the names that a loader looks for. Empty without a directory.
  returned: success
  type: dict
  sample: {libcudnn.so.9: /usr/local/cudnn-9.14.0.64-cuda13/lib/libcudnn.so.9}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import WHOLE_TIMEOUT
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, result_of
from ansible_collections.gpu.fleet.plugins.module_utils._files.archive_run import run

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "path": {"type": "path", "required": True},
    "src": {"type": "str"},
    "sha256": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "timeout": {"type": WHOLE_TIMEOUT, "default": 60},
}
REQUIRED_IF = [("state", "present", ("src", "sha256"))]


def main() -> None:
    """Unpack or remove the directory where it differs."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, required_if=REQUIRED_IF, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode)
    except ChangeError as error:
        module.fail_json(msg=str(error), **result_of(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
