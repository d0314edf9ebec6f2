# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles need to know of the system, by Ansible's own collectors. Private to this collection."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.facts.system.distribution import DistributionFactCollector
from ansible.module_utils.facts.system.platform import PlatformFactCollector
from ansible.module_utils.facts.system.user import UserFactCollector

_COLLECTORS = (PlatformFactCollector, DistributionFactCollector, UserFactCollector)


def system_facts(module: AnsibleModule) -> dict[str, Any]:
    """The facts of ansible.builtin.setup about platform, distribution and user, with its prefix `ansible_`."""
    facts: dict[str, Any] = {}
    for collector in _COLLECTORS:
        facts.update(collector().collect(module=module, collected_facts=facts))
    return {f"ansible_{name}": value for name, value in facts.items()}
