# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU models: complete data, and MIG tables as in the reference."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from gpu_simulator.mig import profiles as mig_profiles
from gpu_simulator.state import catalogue

from .conftest import MakeHost

NAMED = [
    "a30",
    "a100_40gb",
    "a100_80gb",
    "h100_80gb",
    "h100_nvl_94gb",
    "gh200",
    "h200",
    "b200",
    "gb200",
    "rtx_pro_6000_blackwell",
    "l40s",
    "t4",
    "v100",
    "p100",
    "geforce_rtx_3080",
]


def test_all_named_models_are_there() -> None:
    assert catalogue.names() == sorted(NAMED)


@pytest.mark.parametrize("branch", ["535.261.03", "550.163.01", "580.159.04", "610.43.02"])
@pytest.mark.parametrize("model", NAMED)
def test_every_model_replies_every_query(model: str, branch: str, make_host: MakeHost) -> None:
    host = make_host(model, model, driver=branch)
    document = ET.fromstring(host.smi("-q", "-x")[0])
    assert len(document.findall("gpu")) == 2
    for arguments in ((), ("-L",), ("-q",), ("topo", "-m"), ("nvlink", "-s"), ("--version",)):
        text, status = host.smi(*arguments)
        assert status == 0
        assert "{" not in text
    for words in ("ECC", "POWER,CLOCK", "SUPPORTED_CLOCKS", "MEMORY,UTILIZATION", "ROW_REMAPPER,PAGE_RETIREMENT"):
        assert host.smi("-q", "-d", words)[1] == 0


@pytest.mark.parametrize("model", NAMED)
def test_models_state_what_is_verified(model: str) -> None:
    data = catalogue.load(model)
    assert set(data["verified"]) == {"document", "mig", "ecc_off"}
    if data["mig"]:
        assert set(data["mig"]["verified"]) == {"ids", "placements", "memory", "engines"}


@pytest.mark.parametrize("model", [name for name in NAMED if catalogue.load(name)["mig"]])
def test_profiles_fit_the_gpu(model: str) -> None:
    mig = catalogue.load(model)["mig"]
    ids = [profile["id"] for profile in mig["profiles"]]
    assert len(set(ids)) == len(ids)
    for profile in mig["profiles"]:
        assert all(start + profile["size"] <= mig["units"] for start in profile["starts"])
        assert profile["max"] <= len(profile["starts"])
        assert profile["slices"] in mig_profiles.COMPUTE_SLICES
        assert 0 < profile["memory_mib"] <= catalogue.load(model)["memory"]["ecc_on"]["total"]


# GPU model, GPU instance profile -> compute instance profiles (id, name, multiprocessors, maximum, default).
COMPUTE = [
    ("a100_40gb", 19, [(0, "1g.5gb", 14, 1, True)]),
    ("a100_40gb", 14, [(0, "1c.2g.10gb", 14, 2, False), (1, "2g.10gb", 28, 1, True)]),
    (
        "a100_40gb",
        9,
        [(0, "1c.3g.20gb", 14, 3, False), (1, "2c.3g.20gb", 28, 1, False), (2, "3g.20gb", 42, 1, True)],
    ),
    ("h100_nvl_94gb", 15, [(7, "1g.24gb", 26, 1, True)]),
    ("a30", 5, [(0, "1c.2g.12gb", 14, 2, False), (1, "2g.12gb", 28, 1, True)]),
]


@pytest.mark.parametrize(("model", "profile_id", "expected"), COMPUTE)
def test_compute_profiles(model: str, profile_id: int, expected: list[tuple[int, str, int, int, bool]]) -> None:
    data = catalogue.load(model)
    found = mig_profiles.compute_profiles(data, mig_profiles.gpu_profile(data, profile_id))
    assert [(each["id"], each["name"], each["sm"], each["max"], each["default"]) for each in found] == expected


@pytest.mark.parametrize(("branch", "count"), [(460, 5), (470, 6), (535, 7)])
def test_profiles_that_an_old_driver_has_not(branch: int, count: int) -> None:
    assert len(mig_profiles.gpu_profiles(catalogue.load("a100_40gb"), (branch,))) == count
