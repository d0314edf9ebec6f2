# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules and the simulated nvidia-smi as separate processes, which can be killed and run concurrently."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import COLLECTIONS, ROOT

SIMULATOR = ROOT / "roles" / "gpu_simulator" / "files"
_MODULE = """
import json, sys
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.modules import {name} as module
# As gpu.fleet's files in /run, but of this host only.
for name, other in list(sys.modules.items()):
    if name.startswith("ansible_collections.gpu.fleet."):
        for key, value in list(vars(other).items()):
            if key.isupper() and isinstance(value, str) and value.startswith("/run/gpu-fleet"):
                setattr(other, key, {root!r} + value)
with patch_module_args(json.loads(sys.argv[1])):
    module.main()
"""
_SMI = """#!{python}
import os, sys
sys.path.insert(0, {simulator!r})
with open({log!r}, "a") as log:
    log.write("called\\n")
from gpu_simulator import cli
sys.exit(cli.main(sys.argv[1:], {root!r}, root_user=True))
"""


@dataclass
class Run:
    """A process that runs a module."""

    process: subprocess.Popen[str]
    log: Path

    def result(self) -> dict[str, Any]:
        """The result that the module printed."""
        output, errors = self.process.communicate(timeout=300)
        if not output.strip():
            raise AssertionError(f"it printed nothing: {errors}")
        found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
        return found

    def kill(self, calls: int, luck: random.Random) -> bool:
        """Kill it a random time after it has made `calls` calls; return whether it was still running."""
        while self.process.poll() is None and self._calls() < calls:
            time.sleep(0.005)
        time.sleep(luck.uniform(0, 0.15))
        still_runs = self.process.poll() is None
        self.process.kill()
        self.process.communicate(timeout=60)
        return still_runs

    def _calls(self) -> int:
        return self.log.read_text().count("\n") if self.log.exists() else 0


def start(name: str, root: Path, options: dict[str, Any]) -> Run:
    """Start a module with the simulated GPUs below `root`."""
    log = root / "calls"
    log.unlink(missing_ok=True)
    smi = root / "nvidia-smi"
    text = _SMI.format(python=sys.executable, simulator=str(SIMULATOR), log=str(log), root=str(root))
    # Do not rewrite it: a concurrent run may be about to execute it.
    if not smi.exists():
        smi.write_text(text)
        smi.chmod(0o755)
    arguments = {"executable": str(smi), **options}
    script = _MODULE.format(name=name, root=str(root))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(COLLECTIONS), str(SIMULATOR)))}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, json.dumps(arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    return Run(process, log)


def module_options(options: dict[str, Any]) -> dict[str, Any]:
    """Convert the in-process tests' short form of a request's options to the module's options."""
    found = {name: value for name, value in options.items() if name != "reset"}
    return {**found, "reset": "if_required" if options.get("reset") else "never"}
