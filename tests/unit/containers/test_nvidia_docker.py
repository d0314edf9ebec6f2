# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The docker commands that nvidia-docker runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
COMMAND = ROOT / "roles" / "nvidia_container_toolkit" / "files" / "nvidia-docker"


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """A mock of docker that prints its arguments, one a line; CDI=1 in the environment makes it a newer version."""
    program = tmp_path / "docker"
    program.write_text(
        "#!/bin/sh\n"
        '[ "$1" != info ] || { [ -z "${CDI:-}" ] && echo null || echo \'["/etc/cdi","/var/run/cdi"]\'; exit; }\n'
        "printf '%s\\n' \"$@\"\n"
    )
    program.chmod(0o755)
    return program


def call(docker: Path, words: list[str], gpus: str | None = None, cdi: bool = True) -> list[str]:
    env = {"PATH": f"{docker.parent}:{os.environ['PATH']}"} | ({"CDI": "1"} if cdi else {})
    env |= {} if gpus is None else {"NV_GPU": gpus}
    done = subprocess.run([COMMAND, *words], env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


MIG = "MIG-c17fb1f7-eab0-50ac-8ca7-5a0f88ae4bfd"


@pytest.mark.parametrize(
    ("gpus", "cdi", "expected"),
    [
        (None, True, ["--device", "nvidia.com/gpu=all"]),
        ("0,3", True, ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=3"]),
        ("0 3", True, ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=3"]),
        (MIG, True, ["--device", f"nvidia.com/gpu={MIG}"]),
        ("1:0", True, ["--device", "nvidia.com/gpu=1:0"]),
        ("none", True, []),
        ("", True, []),
        (None, False, ["--gpus", "all"]),
        ("0,3", False, ["--gpus", '"device=0,3"']),
        ("0 3", False, ["--gpus", '"device=0,3"']),
        (MIG, False, ["--gpus", f'"device={MIG}"']),
        ("void", False, []),
    ],
)
@pytest.mark.parametrize("command", [["run"], ["create"], ["container", "run"], ["-H", "tcp://run:1", "--tls", "run"]])
def test_the_request_comes_right_behind_the_command(
    docker: Path, command: list[str], gpus: str | None, cdi: bool, expected: list[str]
) -> None:
    rest = ["-it", "-e", "A=b c", "image", "run", "--name", ""]
    assert call(docker, [*command, *rest], gpus, cdi) == [*command, *expected, *rest]


@pytest.mark.parametrize("words", [["ps", "-a"], ["image", "ls"], ["exec", "run", "create"], ["container", "ls"], []])
def test_all_else_goes_to_docker_as_it_is(docker: Path, words: list[str]) -> None:
    assert call(docker, words, "0") == (words or [""])


def test_a_bare_container_command_is_docker_s_to_explain(docker: Path) -> None:
    assert call(docker, ["container"]) == ["container"]
