# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes the role cuda work on a host that it has set up: each variable that decides what the host has."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.unit.cuda.test_cuda_plan import DEBIAN, EL, cuda

ROLE = ROOT / "roles" / "cuda"
OPTIONS = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
RUNFILE = {"url": "https://mirror.example.com/cuda.run", "sha256": "0" * 64}

BY_RUNFILE: dict[str, Any] = {"cuda_source": "runfile", "cuda_runfiles": {"13.0": RUNFILE}}
# Values that make no work, as the host has the same with them.
SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"cuda_versions": ["13.0"]}),
    ({}, {"cuda_default": "13.0"}),
    ({}, {"cuda_runfiles": {"13.0": RUNFILE}}),
    (BY_RUNFILE, {"cuda_runfiles": {"13.0": {**RUNFILE, "url": "file:///srv/cuda.run"}}}),
    (BY_RUNFILE, {"cuda_runfiles": {"13.0": RUNFILE, "12.9": RUNFILE}}),
    ({"cuda_versions": ["12.9", "13.0"]}, {"cuda_versions": ["13.0", "12.9"]}),
]


def steps(inputs: str, system: dict[str, str], variables: dict[str, Any], drift: tuple[Any, ...] = ()) -> list[str]:
    """What is to be done on a host with such a record."""
    record = {"inputs": inputs, "drift": drift, "data": {"source": variables.get("cuda_source", "cuda_repository")}}
    plan = cuda({"record": record}, system, **variables)
    assert plan["refusals"] == []
    found: list[str] = plan["steps"]
    return found


@pytest.mark.parametrize(
    ("system", "variables"),
    [
        (DEBIAN, {}),
        (EL, {"cuda_versions": ["13.0", "12.9"], "cuda_default": "12.9", "cuda_environment_d": True}),
        (DEBIAN, {"cuda_source": "distribution", "cuda_debian_mirror": "https://mirror.example.com/debian"}),
        (EL, {"cuda_source": "runfile", "cuda_runfiles": {"13.0": {**RUNFILE, "sha256": "A" * 64}, "12.9": RUNFILE}}),
        # A truth value on the command line is text.
        (DEBIAN, {"cuda_profile": "true"}),
    ],
)
def test_a_host_that_has_what_is_requested_has_no_work(system: dict[str, str], variables: dict[str, Any]) -> None:
    recorded = cuda({}, system, **variables)["inputs"]
    assert steps(recorded, system, variables) == []
    assert steps(recorded, system, variables, ({"name": "x", "message": "x is missing"},)) == ["install"]
    for name in ("cuda_environment_d", "cuda_forward_compatibility"):
        assert steps(recorded, system, {**variables, name: not variables.get(name, OPTIONS[name]["default"])})
    assert steps(recorded, system, {**variables, "cuda_profile": False}) == ["install"]
    assert steps("other", system, variables) == ["install"]


@pytest.mark.parametrize(("before", "after"), SAME)
def test_a_value_that_leaves_the_host_as_it_is_makes_no_work(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert steps(cuda({}, DEBIAN, **before)["inputs"], DEBIAN, {**before, **after}) == []


def test_another_distribution_is_work_and_a_record_that_is_gone_as_well() -> None:
    inputs = cuda({}, DEBIAN)["inputs"]
    assert steps(inputs, EL, {}) == ["install"]
    assert cuda({}, DEBIAN)["steps"] == ["install"]
    assert cuda({}, DEBIAN, cuda_state="absent")["steps"] == []


def test_a_host_that_is_as_requested_keeps_what_could_no_longer_be_had() -> None:
    known = {
        "driver": "535.261.03",
        "offered": " cuda-toolkit-12-9 | 1-1 | https://mirror.example.com\n",
        "fresh": True,
    }
    of_13 = {"cuda_versions": ["13.0"]}
    record = {"inputs": cuda({}, DEBIAN, **of_13)["inputs"], "drift": [], "data": {}}
    assert len(cuda(known, DEBIAN, **of_13)["refusals"]) == 2
    assert cuda({**known, "record": record}, DEBIAN, **of_13)["refusals"] == []
