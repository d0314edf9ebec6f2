# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of modules on real GPU hosts, in check mode: RETURN documents them, and the modules still return them.

A recording has the output of nvidia-smi. Other sources of results (installed programs, units, the PCI bus, processes
that hold device files) are not recorded: modules that use them are only compared with their documentation.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._change import context as change_context
from ansible_collections.gpu.fleet.plugins.module_utils._change import locked_clocks
from ansible_collections.gpu.fleet.plugins.module_utils._ecc import run as ecc_run
from ansible_collections.gpu.fleet.plugins.module_utils._mig import run as mig_run

from tests.unit.module_runs import check_documented, run_module
from tests.unit.plugins.facts_support import Replay
from tests.unit.recordings.record import plain

RECORDINGS = sorted(Path(__file__).parent.glob("*.json"))
REPLAYED = ("mig_profile", "ecc_mode", "gpu_settings")
"""Modules whose results depend only on nvidia-smi."""

ROWS = {"ecc": "ecc_mode", "settings": "gpu_settings", "mig": "mig_profile"}
"""Lists of gpu_state whose rows are documented by other modules."""


def _cases(names: tuple[str, ...] = ()) -> list[Any]:
    return [
        pytest.param(path, name, entry, id=f"{path.stem} {name} {json.dumps(entry['request'])}")
        for path in RECORDINGS
        for name, entries in json.loads(path.read_text(encoding="utf-8"))["results"].items()
        for entry in entries
        if not names or name in names
    ]


def _module(name: str) -> Any:
    return importlib.import_module(f"ansible_collections.gpu.fleet.plugins.modules.{name}")


@pytest.mark.parametrize(("path", "name", "entry"), _cases())
def test_return_documents_what_a_real_host_gave(path: Path, name: str, entry: dict[str, Any]) -> None:
    documented = yaml.safe_load(_module(name).RETURN)
    for key, owner in ROWS.items() if name == "gpu_state" else ():
        documented[key]["contains"] = yaml.safe_load(_module(owner).RETURN)["gpus"]["contains"]
    always = {"changed", "failed", "msg", "warnings", "diff", "exception"}
    result = {key: value for key, value in entry["result"].items() if key not in always}
    if entry["result"].get("failed"):
        # A refusal before the GPUs were read has only a message.
        result = {key: value for key, value in result.items() if value}
        documented = {key: value for key, value in documented.items() if key in result}
    check_documented(result, {key: value for key, value in documented.items() if key not in always}, name)


@pytest.mark.parametrize(("path", "name", "entry"), _cases(REPLAYED))
def test_a_module_returns_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path, name: str, entry: dict[str, Any]
) -> None:
    recording = json.loads(path.read_text(encoding="utf-8"))
    for owner in (ecc_run, mig_run, locked_clocks):
        monkeypatch.setattr(owner, "CACHE_FILE", str(tmp_path / f"{owner.__name__}.json"))
    # No process held the GPUs of the recorded host; those of this machine must not count.
    for user in (change_context, mig_run):
        monkeypatch.setattr(user, "blockers_of", lambda _gpus: ())
    smi = Replay(tmp_path, recording["nvidia-smi"])
    result = plain(
        run_module(_module(name), monkeypatch, {"executable": str(smi.path), **entry["request"]}, check=True)
    )
    text = json.dumps(result).replace(str(smi.path), "nvidia-smi")
    assert json.loads(text) == entry["result"]
