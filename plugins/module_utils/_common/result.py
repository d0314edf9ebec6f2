# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Return a module's result, in failure with the changes made so far. Private to this collection."""

from __future__ import annotations

from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule

from .errors import RunError


def run_module(module: AnsibleModule, run: Callable[[dict[str, Any], bool, bool], dict[str, Any]]) -> None:
    """Return the result of `run`, which takes the options, check mode and diff mode, to Ansible."""
    failure: RunError | None = None
    try:
        result = run(module.params, module.check_mode, module._diff)
    except RunError as error:
        failure, result = error, dict(error.result)
    for text in result.pop("warnings"):
        module.warn(text)
    if failure is not None:
        module.fail_json(msg=str(failure), exception=failure, **result)
    module.exit_json(**result)
