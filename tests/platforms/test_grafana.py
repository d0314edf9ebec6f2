# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboard of the role gpu_monitoring, held to the models that Grafana Labs publishes of Grafana's own schemas.

The package grafana-foundation-sdk is generated from these; a version of it is for one release of Grafana.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.checks.tools import CACHE, ROOT, make_venv

DASHBOARD = json.loads((ROOT / "roles/gpu_monitoring/files/gpu_fleet_dashboard.json").read_text(encoding="utf-8"))
CHECKER = ROOT / "tests" / "platforms" / "grafana_models.py"
# Grafana's release, and the newest version of the package for it. `next` is Grafana's main branch of January 2026.
RELEASES = {"10.1": "1769699998!10.1.0", "next": "1769699241"}


def unknown_to_models(release: str, dashboards: Sequence[dict[str, Any]]) -> list[list[str]]:
    """What the models of a release do not have, by dashboard."""
    packages = [f"grafana-foundation-sdk=={RELEASES[release]}"]
    python = make_venv(CACHE / f"venv-grafana-{release}", Path(sys.executable), packages) / "bin" / "python"
    given = json.dumps(dashboards)
    done = subprocess.run([python, CHECKER], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout)
    return found


def _changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    dashboard: dict[str, Any] = copy.deepcopy(DASHBOARD)
    change(dashboard)
    return dashboard


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a key of a panel": (lambda all_: all_["panels"][3].update(titel="x"), ".panels[3].titel: no such key"),
    "a key of a query": (
        lambda all_: all_["panels"][0]["targets"][0].update(query="x"),
        ".panels[0].targets[0].query: no such key",
    ),
    "an option of a panel's kind": (
        lambda all_: all_["panels"][0]["options"].update(colorMode="backgrounds"),
        ".panels[0].options.color_mode: 'backgrounds' is no <enum 'BigValueColorMode'>",
    ),
    "a kind of panel": (lambda all_: all_["panels"][3].update(type="graphs"), "Utilization: no panel 'graphs'"),
    "a unit": (
        lambda all_: all_["panels"][3]["fieldConfig"]["defaults"].update(unit="watts"),
        "Utilization: no unit 'watts'",
    ),
    "a number as a string": (
        lambda all_: all_["panels"][3]["gridPos"].update(w="12"),
        ".panels[3].grid_pos.w: '12' is no <class 'int'>",
    ),
    "a transformation without its id": (
        lambda all_: all_["panels"][1]["transformations"][0].update(id=1),
        ".panels[1].transformations[0].id_val: 1 is no <class 'str'>",
    ),
    "a kind of mapping": (
        lambda all_: all_["panels"][0]["fieldConfig"]["defaults"]["mappings"][0].update(type="values"),
        "the models have no 'values'",
    ),
    "a kind of variable": (
        lambda all_: all_["templating"]["list"][1].update(type="queries"),
        ".templating.list_val[1].type_val: 'queries' is no <enum 'VariableType'>",
    ),
    "a data source": (
        lambda all_: all_["panels"][0]["targets"][0]["datasource"].update(type="prom"),
        "Hosts by worst verdict: no data source 'prom'",
    ),
}


@pytest.mark.parametrize("release", RELEASES)
def test_grafanas_models_have_all_of_the_dashboard(release: str) -> None:
    wrong = [_changed(change) for change, _line in WRONG.values()]
    found, *of_wrong = unknown_to_models(release, [DASHBOARD, *wrong])
    assert found == []
    assert dict(zip(WRONG, of_wrong, strict=True)) == {name: [line] for name, (_change, line) in WRONG.items()}
