# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""End of life of driver branches, and the oldest drivers with MIG; expected values from NVIDIA's pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter.compatibility import compatibility

from tests.unit.driver.plans import DEBIAN, driver_plan, facts, stage
from tests.unit.plays import run_play, without_verdict

pytestmark = pytest.mark.plays


@pytest.mark.parametrize(
    ("driver", "today", "expected"),
    [
        (
            "535.309.01",
            "2026-11-22",
            "branch 535 reached its end of life in June 2026; branch 620 gets updates until September 2029",
        ),
        ("535", "2026-07-01", "branch 535 reached its end of life in June 2026"),
        ("535", "2026-06-30", "branch 535 reaches its end of life in June 2026"),
        ("610", "2026-11-22", "branch 610 reached its end of life in August 2026"),
        ("595", "2026-11-22", "branch 595 reaches its end of life in March 2027"),
        ("595", "2026-09-01", None),
        ("580", "2026-11-22", None),
        ("580", "2028-07-01", "branch 580 reached its end of life in June 2028"),
        ("550.163.01", "2026-11-23", "branch 550 reached its end of life in June 2025"),
        ("570", "2026-11-23", "branch 570 reached its end of life in February 2026"),
        ("590", "2026-11-23", "branch 590 is a new feature branch, short-lived, and newer ones have followed"),
        ("620", "2026-11-23", None),
        (
            "595",
            "2027-04-01",
            "branch 595 reached its end of life in March 2027; branch 620 gets updates until September 2029",
        ),
        # No branch with later updates is known.
        ("615", "2030-01-01", "branch 615 is a new feature branch"),
        # No end is known.
        ("470", "2026-11-23", None),
        ("535", None, None),
        (None, "2026-11-22", None),
    ],
)
def test_end_of_life(driver: str | None, today: str | None, expected: str | None) -> None:
    found = compatibility({"driver": driver, "today": today})
    assert found["compatible"]
    assert len(found["notes"]) == (expected is not None)
    assert (expected or "") in "".join(found["notes"])
    request = {"source": "runfile", "version": driver}
    facts = {"system": "Debian", "release": "12", "architecture": "x86_64", "kernel": "6.1.0-38-amd64"}
    plan = driver_plan(request, {**facts, "gpus": ["0x1eb8"], "today": today}, {}, [])
    assert plan["notes"] == found["notes"]


@pytest.mark.parametrize("today", ["November", "2026-13-01", "22.11.2026"])
def test_a_date_that_is_none_is_refused(today: str) -> None:
    with pytest.raises(AnsibleFilterError, match=r"today is '.*', which is not a date"):
        compatibility({"driver": "580", "today": today})


# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/, deployment considerations: GPU by name and by device id.
@pytest.mark.parametrize(
    ("name", "device_id", "first"),
    [
        ("NVIDIA H20", "0x232c", "535.161.07"),
        ("NVIDIA H200", "0x2335", "550.90.07"),
        ("NVIDIA B200", "0x2901", "570.133.20"),
        ("NVIDIA GB200", "0x2941", "570.133.20"),
        ("NVIDIA B300 SXM6 AC", "0x3182", "580.82.07"),
        ("NVIDIA GB300", "0x31c2", "595.58.03"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "0x2bb5", "575.51.03"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "0x2bb4", "575.51.03"),
        ("NVIDIA RTX PRO 5000 Blackwell", "0x2bb3", "575.57.08"),
        ("NVIDIA RTX PRO 4500 Blackwell", "0x2c31", "575.64"),
    ],
)
def test_the_oldest_driver_with_mig(name: str, device_id: str, first: str) -> None:
    branch, *rest = first.split(".")
    older = ".".join([branch, str(int(rest[0]) - 1), *rest[1:]])
    for gpu in (name, device_id, {"device_id": device_id, "pci_bus_id": "00000000:06:00.0"}):
        notes = {driver: compatibility({"gpus": [gpu], "driver": driver})["notes"] for driver in (older, first, branch)}
        assert f"needs driver {first} or newer, not {older}" in notes[older][0]
        # A branch stands for its newest version.
        assert [note for note in (*notes[first], *notes[branch]) if note.startswith("MIG")] == []


def test_a_known_defect_of_a_driver_is_a_note_with_its_source_on_gpus_that_have_it() -> None:
    (note,) = compatibility({"gpus": ["NVIDIA B200"], "driver": "570.133.20"})["notes"]
    assert note.startswith("driver 570.133.20 on NVIDIA B200: nvidia-smi hangs after 66 days and 12 hours"), note
    assert "set nvidia_driver_version" in note and "open-gpu-kernel-modules/issues/971" in note
    for gpu, driver in (("NVIDIA H200", "570.133.20"), ("NVIDIA B200", "570.195.03"), ("NVIDIA B200", "570")):
        assert compatibility({"gpus": [gpu], "driver": driver})["notes"] == [], (gpu, driver)


@pytest.mark.parametrize(
    "name", ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "Tesla T4", "NVIDIA GeForce RTX 5090"]
)
def test_gpus_with_mig_by_every_driver_or_without_it_have_no_note(name: str) -> None:
    assert compatibility({"gpus": [name], "driver": "570.86.15"})["notes"] == []


def test_the_role_names_what_limits_its_driver() -> None:
    """On a host with an H200 and a driver of a branch whose end has passed."""
    (note, *others) = stage("plan", facts(DEBIAN, "535.54.03"), nvidia_driver_version="535.54.03")["notes"]
    assert note.startswith("driver branch 535 reached its end of life in June 2026; branch 620 gets updates until")
    assert "MIG of GH100" in others[0], others


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("535.54.03", ["driver branch 535 reached its end of life in June 2026", "MIG of GH100"]),
        ("", []),
    ],
)
def test_the_health_check_names_what_limits_the_driver(driver: str, expected: list[str], tmp_path: Path) -> None:
    """The whole role on a healthy host: the notes are reported, and nothing fails."""
    smi = {"available": True, "driver_version": driver, "pci_gpus": [{"device_id": "0x2335"}], "gpus": []}
    variables = {
        "ansible_facts": {"nvidia_smi": {**smi, "unhealthy": [], "message": None}},
        "__common_facts_are_read": True,
        "gpu_health_container_image": "",
        **without_verdict(),
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.include_role": {"name": "gpu.fleet.gpu_health"}, "vars": variables},
            {"ansible.builtin.debug": {"msg": "<{{ gpu_health_result.ok }} {{ gpu_health_result.notes | length }}>"}},
        ],
    }
    printed = run_play(tmp_path, play)
    assert f"<True {len(expected)}>" in printed
    assert all(note in printed for note in expected)
    assert ("Report the health of the GPUs" in printed) and (("localhost: driver branch" in printed) is bool(expected))
