# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy of examples/ops-team with the built archive, installed as its README states."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.checks.tools import COLLECTIONS, ROOT, VENV, check, environment

EXAMPLE = ROOT / "examples" / "ops-team"


def install(archive: Path, directory: Path) -> None:
    """Copy the example to a new directory, and install the archive there, never the checkout."""
    shutil.copytree(EXAMPLE, directory)
    (directory / "archives").mkdir()
    shutil.copy2(archive, directory / "archives")
    # What Galaxy would give.
    installed = directory / "collections" / "ansible_collections"
    installed.mkdir(parents=True)
    for other in (COLLECTIONS / "ansible_collections").iterdir():
        if other.name != "gpu":
            (installed / other.name).symlink_to(other)
    requirements: list[str | Path] = ["-r", "requirements.yml", "-p", directory / "collections"]
    env = {name: value for name, value in environment().items() if name != "ANSIBLE_COLLECTIONS_PATH"}
    check(
        [VENV / "bin" / "ansible-galaxy", "collection", "install", "--offline", *requirements], cwd=directory, env=env
    )
    if (installed / "gpu" / "fleet").is_symlink():
        raise RuntimeError(f"{installed} has the checkout, not the archive")
