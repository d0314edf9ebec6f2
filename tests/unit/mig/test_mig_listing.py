# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsing of nvidia-smi's MIG lists, in the formats of drivers 450 to 610."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import listing
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.listing import ListingError
from gpu_simulator.state import catalogue

from tests.unit.mig.mig_host import DRIVERS, SimulatedHost, mig_models
from tests.unit.recordings.recording import load

H200X8 = load("h200x8-580.159.04")

# Column widths of driver 450 (74), which has neither +me nor 1g with double memory.
PROFILES_450 = """
+--------------------------------------------------------------------------+
| GPU instance profiles:                                                   |
| GPU   Name          ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                           Free/Total   GiB              CE    JPEG  OFA  |
|==========================================================================|
|   0  MIG 1g.5gb     19     7/7        4.75       No     14     0     0   |
|                                                          1     0     0   |
+--------------------------------------------------------------------------+
|   1  MIG 7g.40gb     0     0/1        N/A        Yes    98     5     0   |
|                                                          7     1     1   |
+--------------------------------------------------------------------------+
"""
# Early 450 lists no placements of compute instances.
COMPUTE_450 = """
+-------------------------------------------------------+
| Compute instances:                                    |
| GPU     GPU       Name             Profile   Instance |
|       Instance                       ID        ID     |
|         ID                                            |
|=======================================================|
|   0      7       MIG 1g.5gb           0         0     |
+-------------------------------------------------------+
|   0     11       MIG 1c.3g.20gb       0         1     |
+-------------------------------------------------------+
"""
COMPUTE_PROFILES_535 = """
+--------------------------------------------------------------------------------------+
| Compute instance profiles:                                                           |
| GPU     GPU       Name             Profile  Instances   Exclusive       Shared       |
|       Instance                       ID     Free/Total     SM       DEC   ENC   OFA  |
|         ID                                                          CE    JPEG       |
|======================================================================================|
|   0      2       MIG 1c.2g.12gb       0      0/2           14        2     0     0   |
|                                                                      2     0         |
+--------------------------------------------------------------------------------------+
|   0      2       MIG 2g.12gb          1*     0/1           28        2     0     0   |
|                                                                      2     0         |
+--------------------------------------------------------------------------------------+
"""
DEVICES_450 = """\
GPU 0: A100-PCIE-40GB (UUID: GPU-00000000-0000-4000-8000-00000000000a)
  MIG 1g.5gb Device 0: (UUID: MIG-GPU-00000000-0000-4000-8000-00000000000a/7/0)
  MIG 1c.3g.20gb Device 1: (UUID: MIG-GPU-00000000-0000-4000-8000-00000000000a/2/1)
GPU 1: A100 (PCIe) (UUID: GPU-00000000-0000-4000-8000-00000000000b)
Unable to determine the device handle for gpu 2: GPU is lost.  Reboot the system to recover this GPU
"""


def test_profiles_of_driver_450() -> None:
    first, second = listing.parse_gpu_instance_profiles(PROFILES_450)
    assert (first.gpu, first.name, first.profile_id, first.free, first.total) == (0, "1g.5gb", 19, 7, 7)
    assert (first.memory_gib, first.multiprocessors, first.decoders, first.copy_engines) == (4.75, 14, 0, 1)
    assert (second.memory_gib, second.jpegs, second.ofas, second.free) == (None, 1, 1, 0)


def test_compute_instances_of_driver_450() -> None:
    found = listing.parse_compute_instances(COMPUTE_450)
    assert [(item.gpu_instance_id, item.name, item.compute_instance_id, item.start, item.size) for item in found] == [
        (7, "1g.5gb", 0, None, None),
        (11, "1c.3g.20gb", 1, None, None),
    ]


def test_compute_instance_profiles() -> None:
    found = listing.parse_compute_instance_profiles(COMPUTE_PROFILES_535)
    assert [(item.name, item.profile_id, item.default, item.total, item.multiprocessors) for item in found] == [
        ("1c.2g.12gb", 0, False, 2, 14),
        ("2g.12gb", 1, True, 1, 28),
    ]


def test_devices_with_and_without_ids_in_their_uuid() -> None:
    first, second = listing.parse_devices(DEVICES_450)
    assert [(item.index, item.name, item.gpu_instance_id, item.compute_instance_id) for item in first.mig_devices] == [
        (0, "1g.5gb", 7, 0),
        (1, "1c.3g.20gb", 2, 1),
    ]
    assert (second.index, second.name, second.mig_devices) == (1, "A100 (PCIe)", ())


def test_captured_host_with_eight_gpus() -> None:
    profiles = listing.parse_gpu_instance_profiles(H200X8.output("mig -lgip"))
    places = listing.parse_placements(H200X8.output("mig -lgipp"))
    assert [item.gpu for item in profiles] == [gpu for gpu in range(8) for _row in range(7)]
    assert [item.name for item in profiles[:7]] == [
        "1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"
    ]  # fmt: skip
    assert [(item.profile_id, item.starts, item.size) for item in places[-3:]] == [
        (9, (0, 4), 4), (5, (0,), 4), (0, (0,), 8)
    ]  # fmt: skip
    assert len(listing.parse_devices(H200X8.output("-L"))) == 8


@pytest.mark.parametrize("model", mig_models())
@pytest.mark.parametrize("driver", DRIVERS)
def test_tables_of_every_gpu_and_branch(tmp_path: Path, model: str, driver: str) -> None:
    """The parsed lists match the GPU's data file."""
    host = SimulatedHost.make(tmp_path, model, driver=driver)
    mig = catalogue.load(model)["mig"]
    since = int(driver.split(".", maxsplit=1)[0])
    desired = {item["id"]: item for item in mig["profiles"] if since >= item.get("since", 0)}
    profiles = listing.parse_gpu_instance_profiles(host.call("mig", "-lgip")[0])
    assert {item.profile_id: (item.name, item.total, item.multiprocessors, item.ofas) for item in profiles} == {
        number: (item["name"], item["max"], item["sm"], item["engines"]["ofa"]) for number, item in desired.items()
    }
    places = listing.parse_placements(host.call("mig", "-lgipp")[0])
    assert {item.profile_id: (list(item.starts), item.size) for item in places} == {
        number: (item["starts"], item["size"]) for number, item in desired.items()
    }


@pytest.mark.parametrize("driver", DRIVERS)
def test_instances_of_every_branch(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", driver=driver)
    assert host.call("mig", "-i", "0", "-cgi", "9:4,14:0", "-C")[1] == 0
    instances = listing.parse_gpu_instances(host.call("mig", "-lgi")[0])
    assert {(item.name, item.start, item.size) for item in instances} == {("3g.20gb", 4, 4), ("2g.10gb", 0, 2)}
    compute = listing.parse_compute_instances(host.call("mig", "-lci")[0])
    assert {(item.name, item.start, item.size) for item in compute} == {("3g.20gb", 0, 3), ("2g.10gb", 0, 2)}
    places = listing.parse_placements(host.call("mig", "-lcipp")[0])
    assert {item.gpu_instance_id for item in places} == {item.gpu_instance_id for item in instances}
    (gpu,) = listing.parse_devices(host.call("-L")[0])
    assert [item.name for item in gpu.mig_devices] == ["3g.20gb", "2g.10gb"]


PARSERS: list[Callable[[str], tuple[object, ...]]] = [
    listing.parse_gpu_instance_profiles,
    listing.parse_gpu_instances,
    listing.parse_compute_instance_profiles,
    listing.parse_compute_instances,
    listing.parse_placements,
]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "No MIG-enabled devices found.\n",
        "No MIG-supported devices found.\n",
        "No GPU instances found: Not Found\n",
        "No compute instances found: Not Found\n",
        "\nWarning: persistence mode is disabled on device 00000000:01:00.0.\n",
    ],
)
def test_none_is_an_reply(parse: Callable[[str], tuple[object, ...]], text: str) -> None:
    assert parse(text) == ()


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "text",
    [
        "Failed to display GPU instances: Insufficient Permissions\n",
        "No GPU instances found: Insufficient Permissions\n",
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        'Option "-lcipp" is not recognized.\n',
    ],
)
def test_other_sentences_are_errors(parse: Callable[[str], tuple[object, ...]], text: str) -> None:
    with pytest.raises(ListingError) as caught:
        parse(text)
    assert text.strip() in str(caught.value)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.95])
@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (listing.parse_gpu_instance_profiles, PROFILES_450),
        (listing.parse_compute_instances, COMPUTE_450),
        (listing.parse_compute_instance_profiles, COMPUTE_PROFILES_535),
    ],
)
def test_a_table_that_is_cut_off_is_an_error(parse: Callable[[str], object], text: str, share: float) -> None:
    with pytest.raises(ListingError):
        parse(text[: int(len(text) * share)])


HUGE = ("1" + 26 * "0", "65535", "9" * 300, "\N{ARABIC-INDIC DIGIT THREE}")


def table(text: str, old: str, new: str) -> str:
    """A table with another row, whose frame is as wide."""
    assert old in text
    wide = text.replace(old, new)
    width = max(map(len, wide.splitlines()))
    return "\n".join(line[:-1] + (width - len(line)) * line[-2] + line[-1] for line in wide.split("\n") if line)


@pytest.mark.parametrize("number", HUGE)
def test_an_impossible_number_makes_a_row_unreadable(number: str) -> None:
    wide = table(COMPUTE_450, "|   0      7       MIG 1g.5gb           0         0  ", f"| 0 7 MIG 1g.5gb 0 {number}")
    with pytest.raises(ListingError, match=r"not understood: 0 7 MIG 1g\.5gb"):
        listing.parse_compute_instances(wide)
    found = listing.list_compute_instances(wide)
    assert [row.gpu_instance_id for row in found.rows] == [11]
    assert list(found.unread) == [0]
    wide = table(COMPUTE_450, "0         0     |", f"0 0 {number}:1 |")
    assert [row.gpu_instance_id for row in listing.list_compute_instances(wide).rows] == [11]
    wide = table(PROFILES_450, "MIG 1g.5gb     19 ", f"MIG 1g.5gb {number} ")
    assert [row.name for row in listing.parse_gpu_instance_profiles(wide)] == ["7g.40gb"]
    wide = table(COMPUTE_PROFILES_535, "|   0      2       MIG 1c.2g.12gb ", f"| 0 {number} MIG 1c.2g.12gb ")
    assert [row.name for row in listing.parse_compute_instance_profiles(wide)] == ["2g.12gb"]


@pytest.mark.parametrize("number", HUGE)
def test_an_impossible_number_in_a_cell_is_not_known(number: str) -> None:
    wide = table(PROFILES_450, "4.75       No     14     0 ", f"{number}0 No {number} 0 ")
    first = listing.parse_gpu_instance_profiles(wide)[0]
    assert (first.name, first.multiprocessors, first.decoders) == ("1g.5gb", None, 0)
    assert first.memory_gib is None or first.memory_gib == 655350


@pytest.mark.parametrize("number", HUGE)
def test_placements_with_an_impossible_number_are_left_out(number: str) -> None:
    good = "GPU  0 Profile ID 19 Placements: {0,1}:1\n"
    for line in (
        f"GPU  {number} Profile ID 14 Placements: {{0}}:2",
        f"GPU  0 GI {number} Profile ID 14 Placements: {{0}}:2",
        f"GPU  0 Profile ID {number} Placements: {{0}}:2",
        f"GPU  0 Profile ID 14 Placements: {{0,{number}}}:2",
        f"GPU  0 Profile ID 14 Placements: {{0}}:{number}",
    ):
        (only,) = listing.parse_placements(good + line + "\n")
        assert only.profile_id == 19


@pytest.mark.parametrize("number", HUGE)
def test_a_device_with_an_impossible_number_is_an_error(number: str) -> None:
    for old, new in (("GPU 1:", f"GPU {number}:"), ("Device 1:", f"Device {number}:"), ("a/2/1)", f"a/{number}/1)")):
        assert old in DEVICES_450
        with pytest.raises(ListingError, match="not understood: "):
            listing.parse_devices(DEVICES_450.replace(old, new))


def test_a_row_of_many_digits_costs_nothing() -> None:
    wide = table(COMPUTE_450, "MIG 1g.5gb           0         0  ", "MIG " + "1" * 100_000)
    with pytest.raises(ListingError, match="Compute instances"):
        listing.list_compute_instances(wide)


def test_another_table_is_an_error() -> None:
    with pytest.raises(ListingError, match="GPU instances"):
        listing.parse_gpu_instances(COMPUTE_450)


def test_listings_of_other_hosts(corpus: Path | None) -> None:
    """Outputs of many hosts: as many devices as lines with a UUID."""
    outputs = [DEVICES_450, H200X8.output("-L")]
    outputs += [path.read_text() for path in sorted((corpus / "text").glob("*L*.txt"))] if corpus else []
    for text in outputs:
        gpus = listing.parse_devices(text)
        lines = [line for line in text.splitlines() if "(UUID:" in line]
        assert len(gpus) + sum(len(gpu.mig_devices) for gpu in gpus) == len(lines)
        assert all(item.uuid in text for gpu in gpus for item in gpu.mig_devices)
