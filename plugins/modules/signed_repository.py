#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Add a package repository whose key is known by its fingerprint, or remove it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: signed_repository
short_description: Add a package repository whose key is known by its fingerprint
version_added: 1.0.0
description:
  - Made for the roles P(gpu.fleet.nvidia_repository#role), P(gpu.fleet.docker#role) and
    P(gpu.fleet.nvidia_driver#role) of this collection; its options may change in any version.
  - Adds a repository to apt or dnf, with its key, which is trusted for this repository alone, or removes both.
  - Verifies the fingerprint of the key before apt or dnf get to see it, then reads the repository with this key alone.
    Nothing on the host has changed until both are right. Of a file with several keys it takes those that are accepted.
  - Entries of other files for the same repository go then, as apt fails on two entries with different keys. Other
    entries of such a file stay.
  - Installs C(gpg) and the certificates of authorities where the host lacks them.
  - The network is used where something differs, or the package manager has no lists of the repository.
    M(ansible.builtin.deb822_repository) and M(ansible.builtin.yum_repository) take any key that the server has.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - The network is not used. A key that is not on the host yet is shown by its fingerprint.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - V(absent) removes entry, key, preferences, and what the package manager has read of the repository. Of
        O(repository) it takes the names of the files, O(repository.id) or O(repository.url), and with dnf
        O(repository.fingerprints).
    type: str
    choices: [present, absent]
    default: present
  host:
    description: The host in error messages, which begin with it.
    type: str
    default: ""
  revoked:
    description:
      - Fingerprints of keys that neither apt nor rpm may trust any more, not for another repository either. The keys of
        the distributions' own files stay.
    type: list
    elements: str
    default: []
  repository:
    description: The repository.
    type: dict
    required: true
    suboptions:
      name:
        description: Its name in messages.
        type: str
        required: true
      role:
        description: The role that adds it, for the first line of its files.
        type: str
        default: ""
      id:
        description: Its name for dnf.
        type: str
        default: ""
      title:
        description: Its title.
        type: str
        default: ""
      url:
        description: Its URL, V(https://), V(http://) or V(file://). A password in it is not shown.
        type: str
        default: ""
      suite:
        description: The suite of apt; V(/) for a repository without directories of distributions.
        type: str
        default: /
      component:
        description: The component of apt.
        type: str
        default: ""
      architectures:
        description: The architectures that apt reads, separated by spaces; all of the host where it is empty.
        type: str
        default: ""
      key:
        description: The key itself, ASCII armored, instead of O(repository.key_url).
        type: str
      key_url:
        description: Where the key is, V(file://) for one on the host.
        type: str
        default: ""
      fingerprints:
        description: Fingerprints of the keys that are accepted, 40 hexadecimal digits in capitals each.
        type: list
        elements: str
        default: []
      key_sha256:
        description:
          - Instead of O(repository.fingerprints), the sha256 of the file of the key without its line C(Version).
        type: str
        default: ""
      gpgcheck:
        description: Whether dnf checks the signatures of the packages.
        type: bool
        default: true
      repo_gpgcheck:
        description: Whether dnf checks the signature of the repository.
        type: bool
        default: true
      include:
        description: The only packages that dnf takes from it.
        type: list
        elements: str
        default: []
      exclude:
        description: Packages that are not taken from it.
        type: list
        elements: str
        default: []
      priority:
        description:
          - Its priority, as apt or dnf counts it.
          - From -32768 to 32767.
        type: int
      source_file:
        description: The file of its entry, C(.sources) for apt and C(.repo) for dnf.
        type: str
        required: true
      key_file:
        description: The file of its key.
        type: str
        required: true
      preferences_file:
        description:
          - The file of apt's preferences for O(repository.exclude) and O(repository.priority). It is removed where
            neither is given.
        type: str
        default: ""
      old_line:
        description: Regular expression of a line of entries for the same repository.
        type: str
        default: ""
      entry_files:
        description: Files that may have such entries, with wildcards.
        type: list
        elements: str
        default: []
      old_packages:
        description: Packages of apt that would bring an old entry back with their next version. They are removed.
        type: list
        elements: str
        default: []
      old_files:
        description: Files that came with old entries. They are removed.
        type: list
        elements: str
        default: []
      attempts:
        description:
          - How often to try while the server does not respond, with growing pauses in between.
          - From 1 to 5.
        type: int
        default: 4
      url_option:
        description: The user's variable of the URL, for messages.
        type: str
        default: url
      key_url_option:
        description: The user's variable of the key's URL, for messages.
        type: str
        default: key_url
      fingerprints_option:
        description: The user's variable of the fingerprints, for messages.
        type: str
        default: fingerprints
seealso:
  - module: ansible.builtin.deb822_repository
  - module: ansible.builtin.yum_repository
"""

EXAMPLES = r"""
- name: Add a repository of a site
  gpu.fleet.signed_repository:
    repository:
      name: tools
      role: example
      id: tools
      title: Tools of the site
      url: https://mirror.example.com/tools/deb/
      key_url: https://mirror.example.com/tools/key.asc
      fingerprints: [0123456789ABCDEF0123456789ABCDEF01234567]
      source_file: /etc/apt/sources.list.d/tools.sources
      key_file: /etc/apt/keyrings/tools.asc

- name: Remove it
  gpu.fleet.signed_repository:
    state: absent
    repository:
      name: tools
      url: https://mirror.example.com/tools/deb/
      source_file: /etc/apt/sources.list.d/tools.sources
      key_file: /etc/apt/keyrings/tools.asc
"""

RETURN = r"""
fingerprints:
  description: Fingerprints of the accepted keys that the host has. In check mode those that it has already.
  returned: success
  type: list
  elements: str
  sample: [EB693B3035CD5710E231E123A4B469963BF863CC]
written:
  description: Files that were written, or would be in check mode.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: [/etc/apt/keyrings/nvidia-cuda.asc, /etc/apt/sources.list.d/nvidia-cuda.sources]
removed:
  description: Files that were removed, or would be in check mode.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: [/etc/apt/sources.list.d/cuda.list]
others:
  description:
    - What else was changed, or would be in check mode, as packages, rpm's keys, and what the package manager had read
      of the repository.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: [cuda-keyring]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import Number
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, result_of
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.masking import masked
from ansible_collections.gpu.fleet.plugins.module_utils._repository.run import run

HOST = HostFiles()
_TEXT: dict[str, Any] = {"type": "str", "default": ""}
_LIST: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "host": _TEXT,
    "revoked": _LIST,
    "repository": {
        "type": "dict",
        "required": True,
        "options": {
            **{name: {"type": "str", "required": True} for name in ("name", "source_file", "key_file")},
            **dict.fromkeys(("role", "id", "title", "url", "component", "architectures"), _TEXT),
            **dict.fromkeys(("preferences_file", "old_line"), _TEXT),
            # Keys that everybody may see.
            **{name: {**_TEXT, "no_log": False} for name in ("key_url", "key_sha256")},
            "key": {"type": "str", "no_log": False},
            **dict.fromkeys(("fingerprints", "include", "exclude", "entry_files", "old_packages", "old_files"), _LIST),
            **{name: {"type": "bool", "default": True} for name in ("gpgcheck", "repo_gpgcheck")},
            **{f"{name}_option": {"type": "str", "default": name} for name in ("url", "fingerprints")},
            "key_url_option": {"type": "str", "default": "key_url", "no_log": False},
            "suite": {"type": "str", "default": "/"},
            "priority": {"type": Number("int", -32_768, 32_767)},
            "attempts": {"type": Number("int", 1, 5), "default": 4},
        },
    },
}


def main() -> None:
    """Converge the repository and return; a URL may have a password."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    shown = {"module_args": masked(module.params)}
    try:
        result = run(module, HOST)
    except ChangeError as error:
        module.fail_json(msg=str(error), invocation=shown, **result_of(error))
    module.exit_json(invocation=shown, **result)


if __name__ == "__main__":
    main()
