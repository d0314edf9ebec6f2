# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation that several modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of modules: check mode, diff mode, idempotence and platforms."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and report what would change without changing anything.
  diff_mode:
    description: Returns details on what has changed, or would change, in diff mode.
  idempotent:
    description: Running it again with the same options changes nothing more.
  platform:
    description: Target systems that it supports.
    platforms: linux
    support: full
"""

    FACTS = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and report what would change without changing anything.
    support: full
    details:
      - This action does not change anything.
  diff_mode:
    description: Returns details on what has changed, or would change, in diff mode.
    support: N/A
    details:
      - This action does not change anything.
  idempotent:
    description: Running it again with the same options changes nothing more.
    support: full
    details:
      - This action does not change anything.
  facts:
    description: Returns facts only.
    support: full
  platform:
    description: Target systems that it supports.
    platforms: linux
    support: full
"""
