# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mock modules of other collections, for plays of roles whose engine or operating system is not on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

_MODULE = """\
#!/usr/bin/python
# WANT_JSON: Ansible passes the name of a file with the arguments.
import json
import sys
from pathlib import Path

directory = Path({directory!r})
arguments = json.loads(Path(sys.argv[1]).read_text())
check_mode = arguments.get("_ansible_check_mode", False)
arguments = {{name: value for name, value in arguments.items() if not name.startswith("_ansible_")}}
with (directory / "calls").open("a") as calls:
    calls.write(json.dumps([{name!r}, arguments]) + "\\n")
result = {{"changed": False}}
{body}
print(json.dumps(result))
"""


def mock_modules(directory: Path, bodies: Mapping[str, str]) -> dict[str, str]:
    """Write mock modules by full name below `directory`; returns the environment in which Ansible takes them.

    The body of a module is Python: it reads `arguments`, `check_mode` and `directory`, and changes `result`. Where
    modules of gpu.fleet itself are mocked, all else of it is the real one.
    """
    root = directory / "mock_collections" / "ansible_collections"
    if any(full_name.startswith("gpu.fleet.") for full_name in bodies):
        _link_all_but_modules(root / "gpu" / "fleet")
    for full_name, body in bodies.items():
        namespace, collection, name = full_name.split(".")
        modules = root / namespace / collection / "plugins" / "modules"
        modules.mkdir(parents=True, exist_ok=True)
        (modules / f"{name}.py").unlink(missing_ok=True)
        (modules / f"{name}.py").write_text(_MODULE.format(directory=str(directory), name=name, body=body))
    return {"ANSIBLE_COLLECTIONS_PATH": f"{root.parent}:{ROOT / '.cache' / 'collections'}"}


def _link_all_but_modules(collection: Path) -> None:
    """The collection with directories of its own where its modules are, which may be replaced one by one."""
    modules = collection / "plugins" / "modules"
    modules.mkdir(parents=True, exist_ok=True)
    for ours in (modules, modules.parent, collection):
        for path in (ROOT / ours.relative_to(collection)).iterdir():
            link = ours / path.name
            if not link.exists() and path.name[0] not in "._":
                link.symlink_to(path)


def calls(directory: Path) -> list[tuple[str, dict[str, Any]]]:
    """Name and arguments of each call of a mock module so far."""
    path = directory / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    return list(map(json.loads, lines))
