# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation that several modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of every module that runs nvidia-smi, and the group of these modules."""

    DOCUMENTATION = r"""
options:
  executable:
    description:
      - The nvidia-smi to run, a name that is looked up in E(PATH) or an absolute path.
    type: str
    default: nvidia-smi
  timeout:
    description:
      - Seconds after which nvidia-smi and its children are ended; holds for all its calls together.
      - From 0.1 to 86400.
    type: float
    default: 60
attributes:
  action_group:
    description: Use C(group/gpu.fleet.all) in C(module_defaults) to set the options that these modules share.
    support: full
    membership:
      - gpu.fleet.all
"""
