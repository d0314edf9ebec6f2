# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The removal of nvidia-docker 1 and 2: the mock packages have the layout of the real ones, the role's tasks remove it.

The facts about nvidia-docker 1 are those of build/rpm/SPECS/nvidia-docker.spec and build/deb/nvidia-docker.postinst of
NVIDIA/nvidia-docker 1.0.1; the text of its unit is not among them. nvidia-docker2 is /usr/bin/nvidia-docker and
daemon.json.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.mock_repositories.description import Package, read_places
from tests.conftest import ROOT
from tests.unit.containers.test_toolkit_plan import facts, stage
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

TASKS = ROOT / "roles" / "nvidia_container_toolkit" / "tasks"
VOLUME = "nvidia_driver_375.20"
DOCKER = f"""#!/bin/sh
echo "$*" >>"$(dirname "$0")/calls"
case "$*" in
    "volume ls") printf 'DRIVER VOLUME NAME\\nlocal data\\nnvidia-docker {VOLUME}\\n' ;;
    "volume ls --quiet --filter driver=nvidia-docker") echo {VOLUME} ;;
    "ps --all --quiet --filter volume={VOLUME}") printf '4711\\n4712\\n' ;;
esac
"""


def package(name: str) -> Package:
    places = [one for one in read_places() if one.id.startswith("container-toolkit/") and one.layout == "apt-flat"]
    return next(one for place in places for one in place.packages if one.name == name)


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """The calls of a mock of docker that has a volume of the plugin with two containers, and another one."""
    for name, text in (("docker", DOCKER), ("systemctl", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path / "calls"


def test_the_first_one_has_a_unit_a_plugin_and_a_directory() -> None:
    found = package("nvidia-docker")
    unit = "/usr/lib/systemd/system/nvidia-docker.service"
    assert set(found.files) == {"/usr/bin/nvidia-docker", "/usr/bin/nvidia-docker-plugin", unit}
    assert {"User=nvidia-docker", "WantedBy=multi-user.target"} <= set(found.files[unit].value.splitlines())
    for part in ("useradd -r -M -d /var/lib/nvidia-docker", "chown nvidia-docker: /var/lib/nvidia-docker"):
        assert part in found.scripts["postinst"]
    assert "userdel nvidia-docker" in found.scripts["postrm"]


def test_the_first_one_purges_its_volumes_when_it_is_removed(docker: Path, tmp_path: Path) -> None:
    (tmp_path / "lib/volumes/nvidia_driver/375.20").mkdir(parents=True)
    script = package("nvidia-docker").scripts["prerm"].replace("/var/lib/nvidia-docker", f"{tmp_path}/lib")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-euc", script, "prerm", "upgrade"], env=environment, check=True)
    assert not docker.exists()
    subprocess.run(["sh", "-euc", script, "prerm", "remove"], env=environment, check=True)
    assert docker.read_text().splitlines() == ["volume ls", f"volume rm {VOLUME}"]
    assert list((tmp_path / "lib").iterdir()) == []


def test_the_second_one_owns_daemon_json() -> None:
    assert set(package("nvidia-docker2").files) == {"/usr/bin/nvidia-docker", "/etc/docker/daemon.json"}


CONTAINERS_AND_VOLUMES = [
    "volume ls --quiet --filter driver=nvidia-docker",
    f"ps --all --quiet --filter volume={VOLUME}",
    "rm --force 4711",
    "rm --force 4712",
    f"volume rm --force {VOLUME}",
]


@pytest.mark.parametrize(
    ("installed", "arguments", "expected"),
    [
        ("nvidia-docker", (), CONTAINERS_AND_VOLUMES),
        # Containers of the second one need no volume: they stay.
        ("nvidia-docker2", (), []),
        ("nvidia-docker", ("--check",), []),
    ],
)
def test_the_role_removes_what_depends_on_the_plugin(
    installed: str, arguments: tuple[str, ...], expected: list[str], docker: Path, tmp_path: Path
) -> None:
    plan = stage("plan", host=facts("", {"docker.io": "26.1", installed: "1"}))
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "environment": {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        "vars": {
            "ansible_python_interpreter": sys.executable,
            "__nvidia_container_toolkit_plan": plan,
        },
        "tasks": [
            {"ansible.builtin.include_tasks": str(TASKS / f"{name}.yml")}
            for name in (one["name"] for one in plan["changes"] if one["name"] == "remove_old_volumes")
        ],
    }
    output = run_play(tmp_path, play, *arguments)
    assert (docker.read_text().splitlines() if docker.exists() else []) == expected
    assert (f"Would remove {installed}" in output) is bool(arguments)
