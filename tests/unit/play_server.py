# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that has imported Ansible and this collection, and forks for each run of ansible-playbook.

To import both again for each run is most of its time: Ansible keeps no bytecode of what belongs to a collection. A run
is a process of its own as ever, with the command line, environment, directory and files that it is given; what is
shared is what Ansible reads from its configuration, see plays.py, and the code of compiled templates. Reads a request
per line from stdin, as JSON; writes the exit status of each.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
from importlib import import_module
from typing import Any

from ansible.cli.playbook import PlaybookCLI
from ansible.plugins import loader

_IN_EVERY_PLAY = (
    "ansible_collections.gpu.fleet.plugins.action.managed_facts",
    *(f"ansible.executor.{name}" for name in ("process.worker", "task_executor")),
    *(f"ansible.plugins.action.{name}" for name in ("assert", "copy", "debug", "set_fact", "validate_argument_spec")),
    *(f"ansible.plugins.{name}" for name in ("callback.default", "connection.local", "shell.sh", "strategy.linear")),
)


def _run(request: dict[str, Any]) -> None:
    """In the fork: become ansible-playbook."""
    atexit._clear()  # the directory for temporary files is the server's, which removes it
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for name, number in (("stdout", 1), ("stderr", 2)):
        handle = os.open(request[name], os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv = request["argv"]
    PlaybookCLI.cli_executor(sys.argv)


def main() -> None:
    """Serve until stdin ends."""
    loader.init_plugin_loader([])
    for name in _IN_EVERY_PLAY:
        import_module(name)
    # Either loads all that Ansible has.
    loader.filter_loader.get("ansible.builtin.bool")
    loader.test_loader.get("ansible.builtin.defined")
    # The forks have it already, and would be warned of that.
    loader._configure_collection_loader = lambda _paths=None: None
    replies = os.dup(1)
    os.set_inheritable(replies, False)
    gc.freeze()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            os.close(replies)
            # Until it ends, as an exception does in a script.
            _run(json.loads(line))
        _process, status = os.waitpid(process, 0)
        os.write(replies, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    main()
