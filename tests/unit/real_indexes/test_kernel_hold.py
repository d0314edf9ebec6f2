# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia_driver_hold_kernel by the role's own tasks, with a newer kernel in Ubuntu's real index."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.installation import kernel_exclusion
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.kernel_packages import kernel_packages

from tests.unit.driver.plans import UBUNTU, facts
from tests.unit.plays import run_play
from tests.unit.real_indexes.apt_root import AptRoot

pytestmark = pytest.mark.plays

Roots = Callable[[str], AptRoot]
KERNEL = "6.8.0-150-generic"
METAPACKAGES = ["linux-image-generic"]


@pytest.fixture
def host(roots: Roots, tmp_path: Path) -> AptRoot:
    """A host whose kernel is one version behind."""
    (tmp_path / "dpkg").mkdir()
    root = roots("noble").host(tmp_path / "dpkg")
    root.install_older(METAPACKAGES, {"6.8.0-151": "6.8.0-150", "6.8.0.151": "6.8.0.150"})
    return root


def pin(root: AptRoot, directory: Path, hold: bool, held_before: list[str]) -> None:
    """Run the role's tasks."""
    packages = {name: [{"version": version}] for name, version in root.installed.items()}
    managed = {"nvidia_driver": {"inputs": "", "drift": [], "data": {"kernel_held": held_before}}}
    packages_held = kernel_packages(root.installed, [KERNEL]) if hold else []
    variables: dict[str, Any] = {
        "ansible_facts": facts(UBUNTU, "580.95.05", packages=packages, gpu_fleet_managed=managed),
        "__nvidia_driver_plan": {"manager": "apt"},
        "__nvidia_driver_installation": {"kernel_exclusion": kernel_exclusion(packages_held)},
        "__nvidia_driver_kernel_held": packages_held,
        "__nvidia_driver_kernel_locks": held_before,
        "__nvidia_driver_kernel_exclusion_file": str(directory / "51kernel"),
    }
    include = {"name": "gpu.fleet.nvidia_driver", "tasks_from": "pin/kernel.yml"}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "environment": root.environment,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [{"ansible.builtin.include_role": include, "vars": variables}],
    }
    run_play(directory, play)


def moved(root: AptRoot) -> list[str]:
    """The packages that an upgrade of everything would change."""
    return re.findall(r"^(?:Inst|Remv) (\S+)", root.run(["apt-get", "--simulate", "dist-upgrade"]).text, re.MULTILINE)


def held(root: AptRoot) -> list[str]:
    return root.run(["apt-mark", "showhold"]).text.split()


def test_the_kernel_stays_and_is_released(host: AptRoot, tmp_path: Path) -> None:
    assert "linux-image-6.8.0-151-generic" in moved(host)
    kernel = [name for name in host.installed if re.match(r"linux-(?!base$|firmware)", name)]

    pin(host, tmp_path, hold=True, held_before=[])
    assert sorted(held(host)) == sorted(kernel)
    assert set(moved(host)) & set(kernel) == set()
    assert "linux-image-6.8.0-151-generic" not in moved(host)
    exclusion = (tmp_path / "51kernel").read_text()
    patterns = re.findall(r'^  "(.*)";$', exclusion, re.MULTILINE)
    assert len(patterns) == len(kernel)
    # unattended-upgrades compares from the start of a name.
    assert all(any(re.match(pattern, name) for pattern in patterns) for name in kernel)
    assert not any(re.match(pattern, "linux-libc-dev") for pattern in patterns)
    parsed = host.run(["apt-config", "-c", str(tmp_path / "51kernel"), "dump", "Unattended-Upgrade"])
    assert parsed.text.count("Package-Blacklist::") == len(kernel), parsed.error_text

    pin(host, tmp_path, hold=False, held_before=kernel)
    assert held(host) == []
    assert not (tmp_path / "51kernel").exists()
    assert "linux-image-6.8.0-151-generic" in moved(host)
