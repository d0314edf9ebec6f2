# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule scenario of examples/ops-team, run as its README states with the built and installed archive."""

from __future__ import annotations

import json
from pathlib import Path

from testbed import release, settings
from tests import ops_team
from tests.system.support import run


def test_the_scenario_of_the_example_passes(tmp_path: Path) -> None:
    archive = release.build_archive(settings.VENV / "bin" / "ansible-galaxy", tmp_path)
    directory = tmp_path / "ops-team"
    ops_team.install(archive, directory)
    inventory = directory / "molecule" / "default" / "inventory" / "hosts.yml"
    # The example's name of the host is also that of its container, which another checkout may have just now.
    inventory.write_text(inventory.read_text().replace("gpu-node-1", f"{settings.NETWORK}-gpu-node-1"))
    images = json.loads((settings.TESTBED / "images.json").read_text())
    env = {
        "TEST_IMAGE": images["trixie"],
        "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path / "molecule-state"),
        "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
        "NO_COLOR": "1",
    }
    result = run(["molecule", "test"], cwd=directory, env=env)
    assert result.status == 0, result.output[-6000:]
    assert "changed=0" in result.output, "the idempotence step has run"
