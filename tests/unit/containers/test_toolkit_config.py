# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's options in the toolkit's config.toml, merged into the file that each version of it writes."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_container_toolkit.plan import ENVVAR, MOUNTS

from tests.unit.containers.test_toolkit_plan import facts, stage
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

# What `nvidia-ctk config` of these versions printed on a host of NVIDIA's GPUs.
DEFAULTS = sorted((Path(__file__).parent / "fixtures" / "nvidia-ctk").glob("config-*.toml"))
ENGINES = {"docker.io": "26.1.5", "containerd": "1.7.24"}
ROLE = "nvidia_container_toolkit"


def configure(directory: Path, *requests: dict[str, Any]) -> tuple[Path, list[bool]]:
    """Run the tasks once for each request; the file, and whether each run changed it."""
    path = directory / "config.toml"
    tasks: list[dict[str, Any]] = []
    for number, request in enumerate(requests):
        planned = stage("plan", {"runtimes": ["containerd"], **request}, facts("1.18.2", ENGINES))
        tasks.append(
            {
                "ansible.builtin.include_role": {"name": f"gpu.fleet.{ROLE}", "tasks_from": "config.yml"},
                "vars": {f"__{ROLE}_config_file": str(path), f"__{ROLE}_plan": planned},
            }
        )
        tasks.append(
            {"ansible.builtin.debug": {"msg": f"{number}:{{{{ __nvidia_container_toolkit_options.changed }}}}"}}
        )
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": tasks,
    }
    printed = run_play(directory, play)
    return path, [f'"{number}:True"' in printed for number in range(len(requests))]


@pytest.mark.parametrize("default", DEFAULTS, ids=lambda path: path.stem)
def test_options_are_merged_and_nothing_else_changes(default: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(default.read_text())
    path, changed = configure(tmp_path, {"accept_volume_mounts": "always"}, {})
    found = tomllib.loads(path.read_text())
    assert found.pop(ENVVAR) is False
    # Of the second run, which no longer requests mounts.
    assert MOUNTS not in found
    assert found == tomllib.loads(default.read_text())
    assert changed == [True, True]


def test_a_second_run_changes_nothing_and_removal_restores_the_file(tmp_path: Path) -> None:
    default = DEFAULTS[0].read_text()
    (tmp_path / "config.toml").write_text(default)
    path, changed = configure(tmp_path, {}, {}, {"state": "absent"})
    assert changed == [True, False, True]
    assert path.read_text() == default


def test_without_the_file_only_an_option_that_differs_creates_it(tmp_path: Path) -> None:
    path, changed = configure(tmp_path, {"accept_envvar": "always"})
    assert (path.exists(), changed) == (False, [False])
    path, _result = configure(tmp_path, {})
    assert tomllib.loads(path.read_text()) == {ENVVAR: False}
