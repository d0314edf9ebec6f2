# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the health of the host and write it for node_exporter, as a systemd timer does. Private to this collection.

A copy of this file and of all that it imports is the program of gpu-fleet-health.service of the role gpu_monitoring.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Mapping, Sequence

from .._common.atomic_write import atomic_write
from .._common.errors import ChangeError
from .._common.evidence_options import DIRECTORY, NEVER
from .._common.json_text import parse_json
from .._common.regular_file import text_of
from .active_tests import DEFAULT_PYTHON
from .announcement import document, held
from .metrics import held_verdicts, metrics, readings
from .run import gathered, run

DEFAULTS: Mapping[str, Any] = {
    "expected": None,
    "ignore": (),
    "ignore_vulnerabilities": (),
    "tests": (),
    "pytorch_python": DEFAULT_PYTHON,
    "evidence": NEVER,
    "evidence_directory": DIRECTORY,
    "executable": "nvidia-smi",
    "timeout": 60.0,
}
"""Options of the module gpu_health that the options of the program need not have."""


def export(options: Mapping[str, Any], now: float) -> tuple[str, dict[str, Any]]:
    """The metrics, and the verdict for those that ask on the host.

    `options` belong to the module gpu_health; `interval` is seconds between two checks; raises ChangeError for
    impossible ones.
    """
    params = {**DEFAULTS, **options}
    facts = gathered(params)
    health = run(params, False, now, facts=facts)
    return metrics(health) + readings(facts["gpus"]), document(health, params["interval"], now)


def main(arguments: Sequence[str]) -> int:
    """Write the files that the options in a JSON file name; the exit status."""
    try:
        options = parse_json(text_of(arguments[0]))
        textfile, announced = options.pop("textfile"), options.pop("verdict")
        text, verdict = export(options, time.time())
        text += held_verdicts(held(verdict["verdict"], announced))
        # Each for itself: a scheduler is not to wait for node_exporter's directory.
        atomic_write(announced, f"{json.dumps(verdict)}\n".encode(), 0o644)
        atomic_write(textfile, text.encode(), 0o644)
    except (ChangeError, OSError, ValueError) as error:
        sys.stderr.write(f"the health of the GPUs cannot be written: {error}\n")
        return 1
    return 0
