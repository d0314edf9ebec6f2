# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_state: its options, a run, and its prediction for host_facts. Private to this collection."""

from __future__ import annotations

from typing import Any, Mapping

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from .._common.bounds import TIMEOUT, WAIT, WHOLE_TIMEOUT
from .._common.errors import RunError
from .._common.evidence_options import DIRECTORY, MODES, NEVER
from .run import StateRun

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "gpus": {"type": "list", "elements": "str", "default": ["all"]},
    "ecc": {"type": "bool"},
    "persistence_mode": {"type": "bool"},
    "compute_mode": {"type": "str"},
    "power_limit_w": {"type": "str"},
    "gpu_clocks_mhz": {"type": "raw"},
    "memory_clocks_mhz": {"type": "raw"},
    "accounting_mode": {"type": "bool"},
    "mig": {"type": "raw"},
    "mig_layouts": {"type": "dict"},
    "mps": {"type": "dict"},
    "clients": {"type": "list", "elements": "str", "default": []},
    "boot_timeout": {"type": WHOLE_TIMEOUT, "default": 1800},
    "reset": {"type": "str", "choices": ["never", "if_required"], "default": "never"},
    "evidence": {"type": "str", "choices": list(MODES), "default": NEVER},
    "evidence_directory": {"type": "str", "default": DIRECTORY},
    "evidence_kept": {
        "type": "dict",
        "options": {
            "directory": {"type": "str"},
            "files": {"type": "list", "elements": "str", "default": []},
            "notes": {"type": "list", "elements": "str", "default": []},
        },
    },
    "stop_for_reboot": {"type": "bool", "default": False},
    "on_unsupported": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
    "executable": {"type": "str", "default": "nvidia-smi"},
    "timeout": {"type": TIMEOUT, "default": 60.0},
    "lock_timeout": {"type": WAIT, "default": 300.0},
}


def predict(options: Mapping[str, Any]) -> dict[str, Any]:
    """The result that the module would have in check mode; a failure has `failed` and `msg`. Changes nothing."""
    checked = ArgumentSpecValidator(ARGUMENT_SPEC).validate(options)
    if checked.error_messages:
        return {"failed": True, "msg": "; ".join(checked.error_messages)}
    try:
        return run(checked.validated_parameters, check_mode=True, with_diff=False)
    except RunError as error:
        return {**error.result, "failed": True, "msg": str(error)}


def run(options: Mapping[str, Any], check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """Apply the module's `options`; raises RunError."""
    return StateRun(options, check_mode, with_diff).run()
