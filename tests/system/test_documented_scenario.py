# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule project of docs/testing-without-a-gpu.md, run as documented."""

from __future__ import annotations

import json
import re
from pathlib import Path

from testbed import settings
from tests.system.support import run

DOCUMENT = settings.ROOT / "docs" / "testing-without-a-gpu.md"


def documented_files() -> dict[str, str]:
    """Files of the page: a line with only a file name in backticks, and the code block after it."""
    return dict(re.findall(r"^`(\S+)`\n\n```yaml\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL))


def test_no_block_of_the_page_is_left_out() -> None:
    assert len(documented_files()) == DOCUMENT.read_text().count("```yaml")
    assert "molecule/default/molecule.yml" in documented_files()


def test_the_documented_scenario_passes(tmp_path: Path) -> None:
    for name, text in documented_files().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # The page's name of the host is also that of its container, which another checkout may have just now.
        path.write_text(text.replace("gpu-node-1", f"{settings.NETWORK}-gpu-node-1"))
    images = json.loads((settings.TESTBED / "images.json").read_text())
    # A separate state directory: the scenarios of this project share one.
    env = {
        "TEST_IMAGE": images["trixie"],
        "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path / "molecule-state"),
        "NO_COLOR": "1",
    }
    result = run(["molecule", "test"], cwd=tmp_path, env=env)
    assert result.status == 0, result.output[-6000:]
    assert "changed=0" in result.output, "the idempotence step has run"
