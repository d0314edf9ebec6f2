# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What both modules answered in check mode on a real host of four H200, driver 580: they still answer that.

The results were read on that host, identifiers replaced; the document is that of a host of the same kind.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _ecc_run, _settings_run
from ansible_collections.gpu.fleet.plugins.module_utils._access import Access
from ansible_collections.gpu.fleet.plugins.module_utils._errors import RunError
from ansible_collections.gpu.fleet.plugins.module_utils._memory import Memory
from ansible_collections.gpu.fleet.plugins.module_utils._smi import Patience, Smi

from tests.unit.plugins.facts_support import H200X4, Replay

ANSWERED = json.loads((Path(__file__).parent / "fixtures" / "h200x4-requests.json").read_text())
MODULES: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any]]] = {
    "ecc_mode": (_ecc_run.converge, dict(_ecc_run.DEFAULTS)),
    "gpu_settings": (_settings_run.converge, dict(_settings_run.DEFAULTS)),
}


@pytest.mark.parametrize(
    ("module", "request_", "answer"),
    [
        pytest.param(module, entry["request"], entry["result"], id=f"{module} {json.dumps(entry['request'])}")
        for module, entries in ANSWERED.items()
        for entry in entries
    ],
)
def test_check_mode_answers_as_on_the_real_host(
    tmp_path: Path, module: str, request_: dict[str, Any], answer: dict[str, Any]
) -> None:
    smi = Replay(tmp_path, {"-q -x": {"file": str(H200X4 / "q-x.out")}})
    host = Access(
        Smi(str(smi.path), Patience(timeout=30)),
        contextlib.nullcontext(),
        lambda _gpus: (),
        Memory(str(tmp_path / "memory.json"), is_read_only=True),
    )
    converge, defaults = MODULES[module]
    try:
        result = converge({**defaults, **request_}, host, True, False)
    except RunError as error:
        result = {"msg": str(error), **error.result}
    assert result.setdefault("warnings", []) == answer["warnings"]
    assert result == answer
