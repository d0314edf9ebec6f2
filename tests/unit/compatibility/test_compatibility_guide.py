# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/compatibility.md agrees with the tables, and its examples run as written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.filter import compatibility
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.branches import END_OF_LIFE
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.cuda import CUDNN, DRIVER_OF_CUDA, NEWEST_GCC
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.gpus import ARCHITECTURES, CHIPS
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.mig import MIG_MINIMUMS
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.specifications import PRODUCTS
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import driver_needed_for, mig_driver_of, version
from ansible_collections.gpu.fleet.plugins.test import compatible

from tests.unit.plays import ansible_playbook

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """Cells of the first table after a heading, without its header row."""
    section = GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def series(text: str | None) -> str:
    return "" if text is None else text if "." in text else f"{text}.x"


def test_architectures() -> None:
    expected = []
    for name, architecture in ARCHITECTURES.items():
        chips = [chip for chip in CHIPS if chip.architecture == name]
        expected.append(
            [
                name,
                ", ".join(sorted({chip.compute_capability for chip in chips}, key=version)),
                str(min(chip.first_branch for chip in chips)),
                str(architecture.last_branch or ""),
                min((chip.first_cuda for chip in chips), key=version),
                series(architecture.last_cuda),
                ", ".join(architecture.kinds),
            ]
        )
    assert rows("Architectures") == expected[::-1]


def test_cuda_versions() -> None:
    expected = [
        [cuda, driver, driver_needed_for(cuda), str(NEWEST_GCC.get(cuda, ""))]
        for cuda, driver in DRIVER_OF_CUDA.items()
    ]
    assert rows("CUDA versions") == expected[::-1]


def test_ends_of_life() -> None:
    assert rows("End of life") == [[str(branch), END_OF_LIFE[branch]] for branch in sorted(END_OF_LIFE, reverse=True)]


def test_mig() -> None:
    assert [row[1] for row in rows("MIG")] == [row.driver for row in MIG_MINIMUMS]
    for names, driver in rows("MIG"):
        assert {mig_driver_of("", name) for name in names.split(", ")} == {driver}


def test_cudnn() -> None:
    expected = [
        [
            row.first if row.first == row.last else f"{row.first} to {row.last}",
            ", ".join(map(series, row.cuda)),
            row.oldest_capability,
        ]
        for row in CUDNN
    ]
    assert rows("cuDNN") == expected[::-1]


@pytest.mark.plays
def test_examples_run_in_a_play(tmp_path: Path) -> None:
    """The guide's tasks, and the plugin examples that need no role, run on the facts of a host."""
    tasks = [task for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) for task in yaml.safe_load(block)]
    for plugin in (compatibility, compatible):
        tasks += [task for task in yaml.safe_load(plugin.EXAMPLES) if "ansible.builtin.include_role" not in task]
    gpu = {"pci_bus_id": "00000000:06:00.0", "device_id": "0x2335", "class_id": "0x030200"}
    facts = {"nvidia_smi": {"pci_gpus": [gpu], "driver_version": "580.159.04"}}
    for task in tasks:
        # One example shows a refusal.
        if "V100" in json.dumps(task) and "ansible.builtin.assert" in task:
            task["register"] = "refused"
            task["failed_when"] = "'the last with it is 12.x; these fit: 9.0, ' not in refused.msg"
    give = {"ansible.builtin.set_fact": {**facts, "cacheable": True}}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [give, *tasks]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    (tmp_path / "ansible.cfg").touch()
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
        "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "HOME": str(tmp_path),
    }
    done = ansible_playbook("-c", "local", "-i", "localhost,", "play.yml", env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CUDA 13.0 has no support for Tesla V100-SXM2-32GB (Volta): the last with it is 12.x" in done.stdout
    assert re.search(r'"open",\s+"proprietary"', done.stdout)


def test_multiprocessors() -> None:
    counts = {product.multiprocessors for product in PRODUCTS if product.multiprocessors is not None}
    assert [int(count) for _names, count in rows("Cores of a GPU")] == sorted(counts, reverse=True)


def test_bandwidths() -> None:
    known = {(one.bandwidth.memory, one.bandwidth.nvlink) for one in PRODUCTS if one.bandwidth}
    shown = [
        (int(memory), None if nvlink == "unknown" else float(nvlink))
        for _names, memory, nvlink in rows("Bandwidths of a GPU")
    ]
    assert len(shown) == len(known)
    assert set(shown) == known
