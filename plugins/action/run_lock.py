# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module run_lock. It runs on the controller, where the process of the run is."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.gpu.fleet.plugins.modules.run_lock import ARGUMENT_SPEC
from ansible_collections.gpu.fleet.plugins.plugin_utils._run_lock import acquire, process_of, release

_FILE = "lock"


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core has no types
    """Lock a directory for the run, or unlock it."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Nothing but the result of every task; fails while another run has the directory."""
        result: dict[str, Any] = {**super().run(tmp, task_vars), "changed": False}
        _validation, options = self.validate_argument_spec(ARGUMENT_SPEC)
        directory = os.path.abspath(os.path.expanduser(options["directory"]))
        path = os.path.join(directory, _FILE)
        # A task has a process of its own, whose parent is the process of the run.
        mine = process_of(os.getppid())
        if self._task.check_mode:
            return result
        try:
            if options["state"] == "absent":
                release(path, mine)
                return result
            os.makedirs(directory, mode=0o700, exist_ok=True)
            other = acquire(path, mine)
        except OSError as error:
            raise AnsibleActionFail(
                f"{path} cannot be written: {error.strerror}; set the directory to one that this user can write to"
            ) from error
        if other is not None:
            raise AnsibleActionFail(
                f"another run, process {other.pid} on {other.host[:253]!a}, has {directory}; wait for its end, or "
                f"remove {path} if that run has ended"
            )
        return result
