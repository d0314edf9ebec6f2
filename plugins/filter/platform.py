# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The platform of a host from its facts, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: platform
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: The platform of a host, and whether the collection supports it
description:
  - Made for the roles of this collection; its arguments may change in any version.
  - Looks a host up in the one table of supported distributions that all roles of the collection use.
  - Debian is known by its major version, Ubuntu by the whole one, and every rebuild of Red Hat Enterprise Linux,
    such as Rocky Linux, as C(EL) with its major version.
positional: _input
options:
  _input:
    description:
      - C(ansible_facts) with the subset C(distribution).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Leave out hosts that the collection does not support
  ansible.builtin.meta: end_host
  when: not (ansible_facts | gpu.fleet.platform).supported
"""

RETURN = r"""
_value:
  description: The row of the table. Fields other than C(name), C(supported), C(reason) and C(known) are empty where
    it has none.
  type: dict
  contains:
    name:
      description: The name of the platform, such as V(Debian 13), V(Ubuntu 24.04) or V(EL 9).
      type: str
    supported:
      description: Whether the table has the host.
      type: bool
    reason:
      description:
        - Why no role of the collection can work on this release, where that is known, as for EL 8; else empty.
      type: str
    known:
      description: The names of all platforms in the table.
      type: list
      elements: str
    manager:
      description: The package manager, V(apt) or V(dnf).
      type: str
    cuda_repository:
      description: The directory of the platform in NVIDIA's CUDA repository.
      type: str
    cuda_key:
      description: The end of the fingerprint of the key that signs that repository.
      type: str
    cuda_version:
      description: The version of CUDA in the distribution's own toolkit.
      type: str
    cuda_of_nvidia:
      description: Whether that toolkit comes from NVIDIA's own packages, in NVIDIA's directories.
      type: bool
    docker_repository:
      description: The directory of the platform in Docker's repository.
      type: str
    docker_suite:
      description: The suite in Docker's repository, for apt.
      type: str
    docker_packages:
      description: The packages of the distribution's own Docker.
      type: list
      elements: str
    gcc:
      description: The major version of the distribution's compiler.
      type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.platforms import platform_of


def platform(facts: Any) -> dict[str, Any]:
    """Return the platform for `ansible_facts`; see the filter's documentation."""
    if not isinstance(facts, Mapping):
        raise AnsibleFilterError("gpu.fleet.platform: takes ansible_facts, a dictionary")
    return platform_of(facts)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"platform": platform}
