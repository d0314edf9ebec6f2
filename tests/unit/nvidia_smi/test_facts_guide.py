# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks of docs/facts.md, run as written."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import health
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import values as readings

from tests.unit.nvidia_smi.facts_support import Replay
from tests.unit.nvidia_smi.test_nvidia_smi_facts import h200x8
from tests.unit.plays import ansible_playbook

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs" / "facts.md"


def plays() -> list[dict[str, Any]]:
    """Each indented block of YAML in the guide, in order; blocks of tasks are wrapped in a play."""
    found: list[dict[str, Any]] = []
    for block in re.findall(r"(?:^    .*\n|^\n)+", GUIDE.read_text(), re.MULTILINE):
        text = textwrap.dedent(block)
        if text.lstrip().startswith("- hosts:"):
            found += yaml.safe_load(text)
        elif text.lstrip().startswith("- name:"):
            found.append({"hosts": "gpu", "gather_facts": False, "tasks": yaml.safe_load(text)})
    return found


@pytest.mark.plays
def test_every_playbook_of_the_guide_runs(
    replay: Callable[[dict[str, dict[str, Any]]], Replay], tmp_path: Path
) -> None:
    written = plays()
    assert len(written) >= 8
    program = replay({**h200x8(), "*": h200x8()["-q -x"]})
    node = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"gpu": {"hosts": {"node1": node}}}
    (tmp_path / "inventory.yml").write_text(json.dumps(inventory))
    (tmp_path / "play.yml").write_text(json.dumps([{**play, "gather_facts": False} for play in written]))
    environment = {
        **os.environ,
        "PATH": f"{program.path.parent}:{os.environ['PATH']}",
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
        "ANSIBLE_NOCOLOR": "1",
        "HOME": str(tmp_path),
    }
    done = ansible_playbook("-i", "inventory.yml", "play.yml", env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "node1 has healthy H200s" in done.stdout
    lines = (tmp_path / "gpus.csv").read_text().splitlines()
    assert len(lines) == 9
    assert lines[8] == "node1,7,NVIDIA H200,GPU-5ee00007-0000-4000-8000-000000000007,580.159.04,143771,"


def test_every_code_and_reason_is_in_the_guide() -> None:
    text = GUIDE.read_text()
    codes = {code for code, _broken, _message in health._RULES}
    codes |= {"gpu_missing", "inforom_corrupted", "driver_library_mismatch"}
    assert [code for code in sorted(codes) if f"`{code}`" not in text] == []
    reasons = set(readings.REASONS.values()) | {readings.ABSENT, readings.UNREADABLE}
    common = reasons - {"empty", "not_found", "inforom_corrupted"}
    assert [reason for reason in sorted(common) if f"`{reason}`" not in text] == []
