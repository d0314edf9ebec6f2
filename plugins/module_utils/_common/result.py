# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Return a module's result, in failure with the changes made so far. Private to this collection."""

from __future__ import annotations

from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule

from . import connection
from .errors import RunError


def run_module(module: AnsibleModule, run: Callable[[dict[str, Any], bool, bool], dict[str, Any]]) -> None:
    """Return the result of `run`, which takes the options, check mode and diff mode, to Ansible."""
    connection.watch()
    try:
        result = run(module.params, module.check_mode, module._diff)
    except RunError as error:
        result = dict(error.result)
        _warn(module, result)
        # Without the exception: Ansible would add the message of each in its chain, each with the text of the former.
        module.fail_json(msg=str(error), **result)
    _warn(module, result)
    module.exit_json(**result)


def _warn(module: AnsibleModule, result: dict[str, Any]) -> None:
    for text in result.pop("warnings"):
        module.warn(text)
