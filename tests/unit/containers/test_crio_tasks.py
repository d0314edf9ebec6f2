# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks of nvidia_container_toolkit for CRI-O, on a directory with CRI-O's upstream files and a mock of it."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.unit.containers.test_toolkit_plan import facts, stage
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

ROLE = ROOT / "roles" / "nvidia_container_toolkit"
CONFIG = '[nvidia-container-runtime]\nmode = "auto"\nruntimes = ["runc", "crun"]\n\n[nvidia-ctk]\npath = "nvidia-ctk"\n'
PACKAGED = """\
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "{libexec}/crun"
monitor_path = "{libexec}/conmon"
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    programs = {
        "libexec/conmon": "",
        "libexec/crun": "",
        "bin/nvidia-container-runtime": "",
        "bin/crio": 'cat "$2"/*',
        "bin/nvidia-ctk": f"""[ "$*" = "config --in-place --config-file={tmp_path}/config.toml" ] || exit 1
cat >{tmp_path}/config.toml <<END\n{CONFIG}END""",
        "bin/systemctl": f"""[ "$1" = show ] || exec touch {tmp_path}/restarted
if [ -e {tmp_path}/restarted ]; then started=9000000000000000; else started=1; fi
printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n'
echo ExecMainStartTimestampMonotonic=$started""",
    }
    for name, text in programs.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    (tmp_path / "crio.conf.d").mkdir()
    (tmp_path / "crio.conf.d" / "10-crio.conf").write_text(PACKAGED.format(libexec=tmp_path / "libexec"))
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path


def _run(host: Path, tasks: str, recorded: str = "") -> str:
    drop_in = f"{host}/crio.conf.d/99-nvidia.conf"
    record = {"data": {"runtimes": ["crio"], "crio_program": recorded}} if recorded else {}
    state = "absent" if recorded else "present"
    plan = stage("plan", {"runtimes": ["crio"], "state": state}, facts(record=record))
    engine = plan["unconfigure" if recorded else "configure"][0]
    assert f"{engine['tasks']}.yml" == tasks
    read = [str(host / "crio.conf.d")] if recorded else [drop_in]
    runtime = {"executable": f"{host}/bin/crio", "binary": f"{host}/bin/nvidia-container-runtime"}
    variables = {
        "__nvidia_container_toolkit_plan": plan,
        "__nvidia_container_toolkit_engine": {**engine, "started_after": read},
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "environment": {"PATH": f"{host}/bin:{os.environ['PATH']}"},
        "module_defaults": {"gpu.fleet.crio_runtime": {"drop_in": drop_in, "config": f"{host}/none", **runtime}},
        "vars_files": [str(ROLE / "defaults" / "main.yml"), str(ROLE / "vars" / "main.yml")],
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [{"ansible.builtin.include_tasks": str(ROLE / "tasks" / tasks), "vars": variables}],
    }
    return run_play(host, play, "-e", f"__nvidia_container_toolkit_config_file={host}/config.toml")


def _runtimes(host: Path) -> list[str]:
    config = tomllib.loads((host / "config.toml").read_text())
    found: list[str] = config["nvidia-container-runtime"]["runtimes"]
    return found


def test_nvidias_runtime_finds_the_programs_of_the_upstream_packages(host: Path) -> None:
    crun = f"{host}/libexec/crun"
    assert "changed=3" in _run(host, "crio.yml")
    assert _runtimes(host) == ["runc", "crun", crun]
    assert (host / "restarted").exists()
    assert f'monitor_path = "{host}/libexec/conmon"' in (host / "crio.conf.d" / "99-nvidia.conf").read_text()
    assert "changed=0" in _run(host, "crio.yml")

    _run(host, "unconfigure_crio.yml", recorded=crun)
    assert (host / "config.toml").read_text() == CONFIG
    assert [path.name for path in (host / "crio.conf.d").iterdir()] == ["10-crio.conf"]


def test_options_of_nvidias_runtime_are_written_where_there_are_none(host: Path) -> None:
    (host / "config.toml").unlink()
    assert "changed=4" in _run(host, "crio.yml")
    assert _runtimes(host) == ["runc", "crun", f"{host}/libexec/crun"]
    assert "changed=0" in _run(host, "crio.yml")
