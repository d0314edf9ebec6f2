# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role windows_gpu against mock modules of ansible.windows, whose options and results are the documented ones."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.unit.mock_modules import calls, mock_modules
from tests.unit.plays import run_play
from tests.unit.windows.test_windows_gpu_plan import CHECKSUM, L40S, document, header, nvcc, part

pytestmark = pytest.mark.plays

MODULES = ROOT / ".cache" / "collections" / "ansible_collections" / "ansible" / "windows" / "plugins" / "modules"

# A host in a file: `devices`, the `installed` and the `running` driver, `cuda` by nvcc's path, `cudnn` by a header's.
_HOST = 'host = json.loads((directory / "host.json").read_text())\n'
_KEEP = '(directory / "host.json").write_text(json.dumps(host))\n'
_COMMAND = """
program = arguments["argv"][0]
output = host["smi"].get(host["running"]) if program == "nvidia-smi.exe" else host["cuda"].get(program)
if output is None:
    result.update(failed=True, rc=2, msg=f"Failed to run: {program}: The system cannot find the file specified")
else:
    result.update(changed=True, rc=0, stdout=output, stderr="", stdout_lines=output.splitlines(), stderr_lines=[])
"""
WINDOWS = {
    "win_powershell": 'result.update(changed=True, output=host["devices"], error=[], result={})',
    "win_reg_stat": """
result.update(exists=bool(host["installed"]))
if host["installed"]:
    result.update(value=host["installed"], raw_value=host["installed"], type="REG_SZ")
""",
    "win_command": _COMMAND,
    "win_find": """
files = [{"path": path, "filename": "cudnn_version.h", "exists": True} for path in host["cudnn"]]
result.update(files=files, matched=len(files), examined=len(files))
""",
    "slurp": """
import base64
content = base64.b64encode(host["cudnn"][arguments["src"]].encode()).decode()
result.update(content=content, encoding="base64", source=arguments["src"])
""",
    "win_package": f"""
done = host["installers"][arguments["path"]]
# A return code that is expected is no failure, which Ansible would otherwise take it for: the real module returns that.
result.update(changed=True, failed=False, rc=done["rc"], reboot_required=False, checksum=arguments["checksum"])
for name, value in done["leaves"].items():
    host[name] = {{**host[name], **value}} if isinstance(value, dict) else value
{_KEEP}""",
    "win_reboot": f"""
host["running"] = host["installed"]
result.update(changed=True, rebooted=True, elapsed=90.5)
{_KEEP}""",
}
MOCKS = {f"ansible.windows.{name}": f"{_HOST}{body}" for name, body in WINDOWS.items()}
NVCC = r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.9\bin\nvcc.exe"
HEADER = r"C:\Program Files\NVIDIA\CUDNN\v9.12\include\12.9\cudnn_version.h"
OLD_HEADER = r"C:\Program Files\NVIDIA\CUDNN\v9.5\include\12.6\cudnn_version.h"
DECLARED = {
    "windows_gpu_driver": part("580.88"),
    "windows_gpu_cuda": part("12.9", "cuda", components=["cudart"]),
    "windows_gpu_cudnn": part("9.12.0", "cudnn"),
}


def bare() -> dict[str, Any]:
    """A host with a GPU, an older driver and cuDNN, and what the installers leave."""
    return {
        "devices": [L40S],
        "installed": "551.61",
        "running": "551.61",
        "smi": {"551.61": document("551.61", "12.4"), "580.88": document()},
        "cuda": {},
        "cudnn": {OLD_HEADER: header("9.5.1")},
        "installers": {
            r"C:\installers\driver.exe": {"rc": 1, "leaves": {"installed": "580.88"}},
            r"C:\installers\cuda.exe": {"rc": 0, "leaves": {"cuda": {NVCC: nvcc("12.9")}}},
            r"C:\installers\cudnn.exe": {"rc": 0, "leaves": {"cudnn": {HEADER: header("9.12.0")}}},
        },
    }


def role(**variables: Any) -> dict[str, Any]:
    return {"ansible.builtin.include_role": {"name": "gpu.fleet.windows_gpu"}, "vars": {**DECLARED, **variables}}


def caught(task: dict[str, Any]) -> dict[str, Any]:
    """The task, whose failure is printed."""
    shown = {"ansible.builtin.debug": {"msg": "caught: {{ ansible_failed_result.msg }}"}}
    return {"block": [task], "rescue": [shown]}


def run(directory: Path, *tasks: dict[str, Any], arguments: tuple[str, ...] = (), family: str = "Windows") -> str:
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_facts": {"os_family": family}},
        "tasks": list(tasks),
    }
    return run_play(directory, play, *arguments, env=mock_modules(directory, MOCKS))


def called(directory: Path, *names: str) -> list[tuple[str, Any]]:
    """The calls of modules that change something: their names, and the path of an installer."""
    return [(name, given.get("path")) for name, given in calls(directory) if name in names]


def documented(name: str, part_of_it: str) -> Any:
    """DOCUMENTATION or RETURN of a module of ansible.windows."""
    path = MODULES / f"{name}.yml"
    if path.exists():
        return yaml.safe_load(path.read_text(encoding="utf-8"))[part_of_it]
    tree = ast.parse((MODULES / f"{name}.py").read_text(encoding="utf-8"))
    text = next(
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == part_of_it
    )
    return yaml.safe_load(ast.literal_eval(text))


def test_a_host_converges_reboots_once_and_stays(tmp_path: Path) -> None:
    state = tmp_path / "host.json"
    state.write_text(json.dumps(bare()))
    run(tmp_path, role(windows_gpu_reboot="if_required"), role(windows_gpu_reboot="if_required"))
    assert called(tmp_path, "win_package", "win_reboot") == [
        ("win_package", r"C:\installers\driver.exe"),
        ("win_package", r"C:\installers\cuda.exe"),
        ("win_package", r"C:\installers\cudnn.exe"),
        ("win_reboot", None),
    ]
    driver = next(given for name, given in calls(tmp_path) if name == "win_package")
    assert driver == {
        "path": r"C:\installers\driver.exe",
        "provider": "registry",
        "arguments": ["-s", "-noreboot"],
        "checksum": CHECKSUM,
        "checksum_algorithm": "sha256",
        "expected_return_code": [0, 1, 3010],
    }
    for name, given in calls(tmp_path):
        options = documented(name, "DOCUMENTATION")["options"]
        assert given.keys() <= options.keys(), name


def test_results_of_the_mock_modules_are_documented(tmp_path: Path) -> None:
    """They may have what the module documents, and what Ansible itself reads of each result."""
    (tmp_path / "host.json").write_text(json.dumps({**bare(), "running": "580.88"}))
    mock_modules(tmp_path, MOCKS)
    given: dict[str, dict[str, Any]] = {
        "win_command": {"argv": ["nvidia-smi.exe"]},
        "slurp": {"src": OLD_HEADER},
        "win_package": {"path": r"C:\installers\driver.exe", "checksum": CHECKSUM},
    }
    for name in WINDOWS:
        (tmp_path / "arguments").write_text(json.dumps(given.get(name, {})))
        (program,) = tmp_path.rglob(f"modules/{name}.py")
        done = subprocess.run(
            [sys.executable, program, tmp_path / "arguments"], capture_output=True, text=True, check=True
        )
        result = json.loads(done.stdout)
        assert result.keys() <= {*documented(name, "RETURN"), "changed", "failed", "msg", "rc"}, name


def test_check_mode_shows_the_installers_and_runs_none(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text(json.dumps(bare()))
    output = run(tmp_path, role(), arguments=("--check",))
    assert r"driver 551.61 -> 580.88: C:\\installers\\driver.exe -s -noreboot" in output
    assert "cuda none -> 12.9" in output
    assert "changed=1" in output
    assert called(tmp_path, "win_package", "win_reboot") == []


def test_failures_and_refusals_name_the_host(tmp_path: Path) -> None:
    broken = bare()
    broken["installers"][r"C:\installers\cuda.exe"]["leaves"] = {}
    (tmp_path / "host.json").write_text(json.dumps(broken))
    output = run(
        tmp_path,
        caught(role(windows_gpu_driver=part("528.33"), windows_gpu_cuda={}, windows_gpu_cudnn={})),
        caught(role()),
        caught(role(windows_gpu_driver={"version": "580.88"})),
    )
    first, second, third = [line for line in output.splitlines() if "caught:" in line]
    assert "localhost: driver 551.61 is installed, and 528.33 is older; set windows_gpu_downgrade" in first
    # The driver is installed and not running; CUDA's installer has done nothing.
    assert "localhost: driver 580.88 is installed, and driver 551.61 still runs; reboot the host" in second
    assert "CUDA 12.9 is not there, but none; run the installer by hand" in second
    assert "localhost: windows_gpu_driver has no installer, checksum" in third


def test_a_controller_without_the_collection_is_refused_by_the_command_that_installs_it(tmp_path: Path) -> None:
    # Nothing but this collection is there, as after `pip install ansible-core`.
    only = tmp_path / "only" / "ansible_collections" / "gpu"
    only.mkdir(parents=True)
    (only / "fleet").symlink_to(ROOT)
    for given in (DECLARED, {}):
        play = {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {"ansible_facts": {"os_family": "Windows"}},
            "tasks": [caught({"ansible.builtin.include_role": {"name": "gpu.fleet.windows_gpu"}, "vars": given})],
        }
        output = run_play(tmp_path, play, env={"ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "only")})
        (line,) = [line for line in output.splitlines() if "caught:" in line]
        assert (
            "localhost: the controller lacks the collection ansible.windows, which tasks of the roles use; run "
            "`ansible-galaxy collection install ansible.windows`, or correct ANSIBLE_COLLECTIONS_PATH"
        ) in line


def test_a_host_that_is_not_windows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text(json.dumps(bare()))
    output = run(tmp_path, caught(role()), family="Debian")
    assert "localhost: this is Debian, and gpu.fleet.windows_gpu works on Windows only" in output
    assert calls(tmp_path) == []


def test_roles_of_linux_refuse_windows_and_name_the_role_for_it(tmp_path: Path) -> None:
    # The connection is never opened.
    windows = {"ansible_connection": "local", "ansible_shell_type": "powershell"}
    facts = {
        "os_family": "Windows",
        "distribution": "Microsoft Windows Server 2022 Standard",
        "distribution_version": "10.0.20348.0",
        "distribution_major_version": "10",
        "architecture": "64-bit",
    }
    output = run_play(
        tmp_path,
        {
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [
                {**caught({"gpu.fleet.host_facts": {"roles": ["docker"]}}), "vars": windows},
                {
                    **caught({"ansible.builtin.include_role": {"name": "gpu.fleet.docker"}}),
                    "vars": {"ansible_connection": "local", "ansible_facts": facts, "docker_users": []},
                },
            ],
        },
    )
    found = [line for line in output.splitlines() if "caught:" in line]
    assert len(found) == 2
    assert all("on Windows only the role gpu.fleet.windows_gpu works; run gpu.fleet.windows" in line for line in found)
