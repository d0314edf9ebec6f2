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


def test_the_group_has_each_module_with_the_options_of_nvidia_smi() -> None:
    group = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))["action_groups"]["all"]
    sources = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "plugins" / "modules").glob("*.py")}
    assert group == sorted(name for name, text in sources.items() if "- gpu.fleet.nvidia_smi\n" in text)
    guide = GUIDE.read_text(encoding="utf-8").partition("## Options of all modules")[2].partition("\n## ")[0]
    assert [name for name in group if f"`{name}`" not in guide] == []


@pytest.mark.plays
def test_the_defaults_of_the_group_count_for_its_modules(tmp_path: Path) -> None:
    """Those with an action plugin of the same name as well."""
    tasks: list[dict[str, Any]] = [
        {"gpu.fleet.nvidia_smi_facts": {}},
        {"gpu.fleet.gpu_state": {"power_limit_w": 300}, "ignore_errors": True},
        {"gpu.fleet.cuda_facts": {"timeout": 5}},
    ]
    defaults = {"group/gpu.fleet.all": {"executable": str(tmp_path / "smi"), "timeout": 17}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "module_defaults": defaults}
    interpreter = f"ansible_python_interpreter={sys.executable}"
    (tmp_path / "play.yml").write_text(json.dumps([{**play, "check_mode": True, "tasks": tasks}]))
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
        "HOME": str(tmp_path),
    }
    done = ansible_playbook("-vvv", "-i", "localhost,", "-e", interpreter, "play.yml", env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    given = [(call["executable"], call["timeout"]) for call in _arguments(done.stdout)]
    assert given == [(str(tmp_path / "smi"), 17.0), (str(tmp_path / "smi"), 17.0), (str(tmp_path / "smi"), 5.0)]


def _arguments(output: str) -> list[dict[str, Any]]:
    """The arguments of each module, which its result has with -vvv."""
    found = re.findall(r'"module_args": (\{.*?\n        \})', output, re.DOTALL)
    return [json.loads(text) for text in found]


def test_every_code_and_reason_is_in_the_guide() -> None:
    text = GUIDE.read_text() + (ROOT / "docs" / "troubleshooting.md").read_text()
    codes = {code for code, _broken, _message in health._RULES}
    codes |= {"gpu_missing", "inforom_corrupted", "driver_library_mismatch"}
    assert [code for code in sorted(codes) if f"`{code}`" not in text] == []
    reasons = set(readings.REASONS.values()) | {readings.ABSENT, readings.UNREADABLE}
    common = reasons - {"empty", "not_found", "inforom_corrupted"}
    assert [reason for reason in sorted(common) if f"`{reason}`" not in text] == []
