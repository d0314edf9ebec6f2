# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the archive that Ansible sends for each module to a directory, and print the sizes of the payloads as JSON."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path

from ansible.executor.module_common import modify_module
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar

from tests.conftest import COLLECTIONS

_MODULES = COLLECTIONS / "ansible_collections" / "gpu" / "fleet" / "plugins" / "modules"


def payload(module: Path) -> bytes:
    """The program that Ansible sends for a module."""
    built = modify_module(
        module_name=f"gpu.fleet.{module.stem}",
        module_path=str(module),
        module_args={},
        templar=Templar(loader=DataLoader()),
        task_vars={"ansible_python_interpreter": "/usr/bin/python3"},
        module_compression="ZIP_DEFLATED",
    )
    data: bytes = built.b_module_data
    return data


def main() -> None:
    """Write and print all."""
    init_plugin_loader([str(COLLECTIONS)])
    sizes = {}
    for module in sorted(_MODULES.glob("*.py")):
        data = payload(module)
        archive = max(re.findall(rb"[A-Za-z0-9+/=]{500,}", data), key=len)
        (Path(sys.argv[1]) / f"{module.stem}.zip").write_bytes(base64.b64decode(archive))
        sizes[module.stem] = len(data)
    print(json.dumps(sizes))


if __name__ == "__main__":
    main()
