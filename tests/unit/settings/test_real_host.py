# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results in check mode of a real host of four H200, driver 580: the modules still return them.

The fixture has the output of nvidia-smi and the results of the modules, with identifiers replaced.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change import context as change_context
from ansible_collections.gpu.fleet.plugins.module_utils._change import locked_clocks
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import RunError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._ecc import run as ecc_run
from ansible_collections.gpu.fleet.plugins.module_utils._mig import run as mig_run
from ansible_collections.gpu.fleet.plugins.module_utils._settings import run as settings_run
from ansible_collections.gpu.fleet.plugins.module_utils._state import run as state_module
from ansible_collections.gpu.fleet.plugins.modules import gpu_state

from tests.unit.plugins.facts_support import Replay

RECORD = json.loads((Path(__file__).parent / "fixtures" / "h200x4-requests.json").read_text())


def _no_units(commands: Any, _timeout: float) -> list[CommandResult]:
    """A systemd that has none of the queried units, as on that host."""
    return [CommandResult(tuple(command), 0, b"", b"", 0.01) for command in commands]


def _result(module: str, options: dict[str, Any], root: Path) -> dict[str, Any]:
    if module == "ecc_mode":
        return ecc_run.run(options, True, False)
    if module == "gpu_settings":
        return settings_run.run(options, True, False)
    defaults = {name: option.get("default") for name, option in gpu_state.ARGUMENT_SPEC.items()}
    return state_module.StateRun({**defaults, **options}, True, False, Systemd(_no_units, str(root)), str(root)).run()


@pytest.mark.parametrize(
    ("module", "request_", "reply"),
    [
        pytest.param(module, entry["request"], entry["result"], id=f"{module} {json.dumps(entry['request'])}")
        for module, entries in RECORD["answers"].items()
        for entry in entries
    ],
)
def test_check_mode_replies_as_on_the_real_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, request_: dict[str, Any], reply: dict[str, Any]
) -> None:
    for owner in (ecc_run, mig_run, locked_clocks, state_module):
        monkeypatch.setattr(owner, "CACHE_FILE", str(tmp_path / f"{owner.__name__}.json"))
    # No process held the GPUs of the recorded host; those of this machine must not count.
    for user in (change_context, mig_run):
        monkeypatch.setattr(user, "blockers_of", lambda _gpus: ())
    python = tmp_path / "usr" / "bin" / "python3.11"
    python.parent.mkdir(parents=True)
    python.write_text("")
    python.chmod(0o755)
    (python.parent / "python3").symlink_to("python3.11")
    smi = Replay(tmp_path, RECORD["nvidia-smi"])
    try:
        result = _result(module, {"executable": str(smi.path), **request_}, tmp_path)
    except RunError as error:
        result = {"msg": str(error), **error.result}
    result.setdefault("warnings", [])
    assert _recorded(_without_program(json.loads(json.dumps(result))), reply) == _without_program(reply)


def _without_program(result: dict[str, Any]) -> dict[str, Any]:
    """The result without the names of this collection's own files, which do not depend on the host."""
    if "service" not in result:
        return result
    files = [path for path in result["service"]["files"] if not path.startswith("/usr/")]
    return {**result, "service": {**result["service"], "files": files}}


def _recorded(result: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    """The result with only the recorded keys; later versions have more."""
    rows = [
        {key: row[key] for key in row if key in recorded}
        for row, recorded in zip(result.get("mig") or (), reply.get("mig") or (), strict=True)
    ]
    return {key: rows if key == "mig" and rows else result[key] for key in result if key in reply or key == "msg"}
