# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a module in a process of its own: reads {"module": ..., "options": ...} and prints the result, as JSON."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from tests.unit.module_runs import run_module

request = json.load(sys.stdin)
module = importlib.import_module(f"ansible_collections.gpu.fleet.plugins.modules.{request['module']}")
with pytest.MonkeyPatch.context() as patch:
    print(json.dumps(run_module(module, patch, request["options"])))
