# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network of the GPUs: which ports belong to it, what is wrong with them, and what is not."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._health import history as histories
from ansible_collections.gpu.fleet.plugins.module_utils._health.network import (
    KEPT_SECONDS,
    MOST_PORTS,
    Before,
    Port,
    PortHistory,
    acs_redirects,
    bridges_between,
    gpudirect,
    judged,
    network_of_gpus,
    serves_gpus,
    updated,
)
from ansible_collections.gpu.fleet.plugins.module_utils._health.network_sources import read_network

from tests.unit.health.health_host import HealthHost

NOW = 1_700_000_000.0
HOUR = 3600.0
CX7, CX6, CX6_DX, CX6_LX, CX4_LX = "0x15b3:0x1021", "0x15b3:0x101b", "0x15b3:0x101d", "0x15b3:0x101f", "0x15b3:0x1015"
UP = {"state": 4, "physical_state": 5, "physical_text": "LinkUp"}
POLLING = {"state": 1, "physical_state": 2, "physical_text": "Polling", "rate": 10.0}
DISABLED = {"state": 1, "physical_state": 3, "physical_text": "Disabled", "rate": 40.0}


def port(number: int = 0, **fields: Any) -> Port:
    return Port(
        **{
            "key": f"guid-{number}/1",
            "name": f"mlx5_{number}",
            "place": f"0000:{0x40 + number:02x}:00.0",
            "model": CX7,
            "rate": 400.0,
            "counters": {"link_downed": 0, "symbol_error": 0, "local_link_integrity_errors": 0},
            **UP,
            **fields,
        }
    )


def eight(**changed: Port) -> tuple[Port, ...]:
    """Eight ports, with those that are given by name in place of theirs."""
    return tuple(changed.get(f"mlx5_{number}", port(number)) for number in range(8))


def before(*ports: Port, hours: float = 1.0) -> Before:
    """An earlier check of the same boot that found `ports`, or eight healthy ones."""
    return Before(updated(ports or eight(), Before({}, "boot", NOW - hours * HOUR)), "boot", NOW)


def found(ports: tuple[Port, ...], earlier: Before | None = None, declared: int | None = None) -> dict[str, str]:
    """What is not well."""
    readings = judged(ports, before() if earlier is None else earlier, declared)
    return {name: text for name, text in readings.items() if text}


def several(first: int, count: int, **fields: Any) -> list[Port]:
    return [port(number, **fields) for number in range(first, first + count)]


ROCE: dict[str, Any] = {"link_layer": "Ethernet"}
# Hosts that are healthy or had another problem: states and rates of ports as the source lists them. What it leaves out,
# such as PCI addresses and nearness, is composed: of Imbue's also the states, of Mooncake's 8 of the 10 ports.
PUBLISHED: dict[str, list[Port]] = {
    # Of the interfaces of InfiniBand it shows that they are down, since nothing uses IP there.
    "https://github.com/imbue-ai/cluster-health/issues/4": [
        *several(0, 8, near=True),
        port(8, model=CX6_DX, functions=2, near=True, rate=100.0, **ROCE),
        port(9, model=CX6_DX, functions=2, near=True, **ROCE, **DISABLED),
        port(10, model=CX6_DX, functions=2, near=True, rate=100.0, **ROCE),
        port(11, model=CX6_DX, functions=2, near=True, **ROCE, **DISABLED),
    ],
    # An unused adapter of the kind that the GPUs' network has.
    "https://github.com/NVIDIA/nccl-tests/issues/128": [
        port(0, model=CX6, rate=200.0),
        port(1, model=CX6, **{**DISABLED, "rate": 10.0}),
        port(2, model=CX4_LX, rate=25.0, **ROCE),
    ],
    # Four of the adapters are used.
    "https://github.com/deepseek-ai/DeepEP/issues/60": [
        port(0, **{**POLLING, "physical_text": ""}),
        *(port(number, near=False) for number in (1, 7, 9, 13)),
        port(6, model="0x15b3:0x1017", functions=2, rate=25.0, **ROCE),
        port(12, model=CX6_DX, functions=2, **ROCE, **DISABLED),
    ],
    "https://github.com/kvcache-ai/Mooncake/issues/1999": [
        *several(0, 10, functions=2, rate=200.0, **ROCE),
        port(10, model=CX6_DX, **ROCE, **DISABLED),
    ],
    "https://github.com/sgl-project/sglang/issues/6823": [
        port(0, model=CX6_DX, functions=2, **ROCE, **DISABLED),
        port(1, model=CX6_DX, functions=2, **ROCE, **DISABLED),
        port(10),
    ],
    # Bonds.
    "https://github.com/deepseek-ai/DeepEP/issues/150": [
        port(number, name=f"mlx5_bond_{number}", functions=2, rate=200.0, **ROCE) for number in range(4)
    ],
    # Storage has two rates.
    "https://github.com/NVIDIA/nccl/issues/1505": [
        *several(0, 4, model=CX6, near=True, rate=200.0, pcie_speed=16.0, pcie_lanes=16),
        port(4, model=CX6, functions=2, rate=200.0, pcie_speed=16.0, pcie_lanes=16),
        port(5, model=CX6, functions=2, rate=100.0, pcie_speed=16.0, pcie_lanes=16),
    ],
    "https://github.com/NVIDIA/nccl/issues/1412": [
        *several(0, 3, model=CX6, rate=200.0),
        port(3, model=CX4_LX, rate=40.0, **ROCE),
    ],
    "https://github.com/NVIDIA/nccl/issues/1866": several(0, 3, model=CX6_DX, functions=2, rate=100.0, **ROCE),
    # Guests of Azure: adapters of a fabric that is not yet set up, and one of the guest's own network.
    "https://github.com/Azure/azhpc-diagnostics/issues/59": [
        *several(0, 8, model="0x15b3:0x101c", state=2, rate=200.0),
        port(8, name="mlx5_an0", model="0x15b3:0x101a", rate=40.0, **ROCE),
    ],
    "https://github.com/stackhpc/ansible-slurm-appliance/pull/988": [port(0, rate=100.0), port(1, rate=100.0)],
}


@pytest.mark.parametrize("source", PUBLISHED)
def test_hosts_that_others_have_published_have_no_row(source: str) -> None:
    ports = tuple(PUBLISHED[source])
    assert found(ports, Before({}, "boot", NOW)) == {}
    assert found(ports, before(*ports)) == {}


def test_a_port_that_others_have_published_as_broken() -> None:
    # https://github.com/leptonai/gpud/pull/482
    broken = port(7, **POLLING)
    assert found(eight(mlx5_7=broken)) == {
        "nic_down": "mlx5_7 (0000:47:00.0) has no link (Polling), and 7 of its siblings have a link"
    }
    # https://github.com/ROCm/rccl/issues/1423, between two states
    broken = port(7, **{**POLLING, "physical_state": 5, "physical_text": "LinkUp"})
    assert "has a link that no subnet manager has made active" in found(eight(mlx5_7=broken))["nic_down"]


# Which ports


@pytest.mark.parametrize(
    ("ports", "names"),
    [
        (eight(), [f"mlx5_{number}" for number in range(8)]),
        # Only those below a switch with a GPU, where some are.
        ((port(0, near=True), port(1), port(2, near=True)), ["mlx5_0", "mlx5_2"]),
        # Slower kinds are for storage and management.
        ((port(0), port(1, model=CX6_LX, rate=200.0, **ROCE)), ["mlx5_0"]),
        ((port(0, rate=25.0), port(1, rate=25.0)), []),
        ((), []),
    ],
)
def test_the_network_of_gpus(ports: tuple[Port, ...], names: list[str]) -> None:
    assert [each.name for each in network_of_gpus(ports, {})] == names


# Ports without a link


@pytest.mark.parametrize("state", [POLLING, DISABLED])
def test_a_port_that_had_a_link(state: dict[str, Any]) -> None:
    assert set(found(eight(mlx5_3=port(3, **state)))) == {"nic_down"}
    roce = [port(number, **ROCE, enabled=True) for number in range(4)]
    assert set(found((*roce[:3], port(3, **ROCE, enabled=True, **state)), before(*roce))) == {"nic_down"}


@pytest.mark.parametrize("sign", [{"had_link": True}, {"physical_state": 5}])
def test_a_port_that_had_a_link_before_the_first_check(sign: dict[str, Any]) -> None:
    broken = port(3, **{**POLLING, **sign})
    assert set(found(eight(mlx5_3=broken), Before({}, "boot", NOW))) == {"nic_down"}


def near(number: int, **fields: Any) -> Port:
    return port(number, near=True, **fields)


# As NVSentinel compares cards: docs/nic-health-monitor/link-state-detection.md of https://github.com/NVIDIA/NVSentinel.
@pytest.mark.parametrize(
    ("ports", "missed"),
    [
        ([*(near(number) for number in range(7)), near(7, **POLLING)], "mlx5_7"),
        ([near(0), near(1), near(2, **DISABLED)], "mlx5_2"),
        ([*(near(number, **ROCE, enabled=True) for number in range(3)), near(3, **ROCE, **DISABLED)], "mlx5_3"),
        # Taken down; half of them; nobody knows which of two is right; for something else than GPUs.
        ([*(near(number, **ROCE) for number in range(3)), near(3, **ROCE, **DISABLED, enabled=False)], ""),
        ([near(0), near(1), near(2, **POLLING), near(3, **POLLING)], ""),
        ([near(0), near(1, **POLLING)], ""),
        ([port(0), port(1), port(2), port(3, **POLLING)], ""),
        # Of each card one port is connected, or of one none.
        (
            [
                near(4 * card + half, place=f"0000:{0x40 + card}:00.{half}", functions=2, **(POLLING if half else {}))
                for card in range(4)
                for half in (0, 1)
            ],
            "",
        ),
        (
            [
                near(
                    4 * card + half,
                    place=f"0000:{0x40 + card}:00.{half}",
                    functions=2,
                    **(POLLING if half or not card else {}),
                )
                for card in range(4)
                for half in (0, 1)
            ],
            "mlx5_0",
        ),
    ],
)
def test_a_port_near_a_gpu_that_never_had_a_link(ports: list[Port], missed: str) -> None:
    text = found(tuple(ports), Before({}, "boot", NOW)).get("nic_down", "")
    assert text.startswith(f"{missed} (") if missed else text == ""
    # What is declared is accepted.
    assert "nic_down" not in found(tuple(ports), Before({}, "boot", NOW), sum(each.is_active for each in ports))


def test_a_new_adapter_in_place_of_one_that_had_a_link() -> None:
    assert set(found(eight(mlx5_3=port(3, key="guid-new/1", **POLLING)))) == {"nic_down"}


@pytest.mark.parametrize(
    ("ports", "earlier"),
    [
        # It never had one.
        (eight(mlx5_3=port(3, **POLLING)), Before({}, "boot", NOW)),
        # Its interface was taken down.
        (
            tuple(
                port(number, **ROCE, **(DISABLED if number == 3 else {}), enabled=number != 3) for number in range(8)
            ),
            before(*several(0, 8, **ROCE)),
        ),
        # The last time is too long ago.
        (eight(mlx5_3=port(3, **POLLING)), replace(before(), known={})),
    ],
)
def test_a_port_that_is_not_missed(ports: tuple[Port, ...], earlier: Before) -> None:
    assert found(ports, earlier) == {}


@pytest.mark.parametrize("state", [POLLING, DISABLED])
def test_all_ports_are_down(state: dict[str, Any]) -> None:
    """The switch, or on purpose: whether a host has to be in a network its site knows."""
    down = tuple(port(number, **state) for number in range(8))
    text = found(down)["nic_all_down"]
    assert set(found(down)) == {"nic_all_down"}
    assert text.startswith("mlx5_0 (") and text.endswith("if that is on purpose, declare nic_count")
    # The only port of a host, and all of one kind, next to one that is not missed.
    assert set(found((port(0, **state),), before(port(0)))) == {"nic_all_down"}
    mixed = (*several(0, 4), *(port(number, model=CX6, **state) for number in (4, 5)))
    assert set(found(mixed, before(*several(0, 4), *several(4, 2, model=CX6)))) == {"nic_all_down"}
    # What is declared decides.
    assert set(found(down, declared=8)) == {"nic_count_differs"}
    assert found(down, declared=0) == {}
    # No earlier check, or too long ago; the interfaces were taken down.
    assert found(down, Before({}, "boot", NOW)) == {}
    roce = [port(number, **ROCE, enabled=True) for number in range(4)]
    taken_down = tuple(port(number, **ROCE, **DISABLED, enabled=False) for number in range(4))
    assert found(taken_down, before(*roce)) == {}


def test_the_declared_number() -> None:
    one_down = eight(mlx5_3=port(3, **POLLING))
    assert found(eight(), declared=8) == {}
    assert found(one_down, Before({}, "boot", NOW), 8) == {
        "nic_count_differs": "7 ports of the GPUs' network have a link, and 8 are declared; without one: "
        "mlx5_3 (0000:43:00.0)"
    }
    assert set(found(one_down, declared=8)) == {"nic_count_differs", "nic_down"}
    # What is declared is accepted.
    assert found(one_down, declared=7) == {}
    # With more than declared, one that was lost is lost.
    assert set(found(one_down, declared=6)) == {"nic_down"}
    assert found((), Before(), 8)["nic_count_differs"].startswith("0 ports")
    assert found((port(0, rate=25.0),), Before(), 1) == {}
    assert found((), Before(), 0) == {}


def test_an_adapter_that_is_gone() -> None:
    gone = before().known["guid-3/1"]
    text = judged(eight()[:3], before(), None, [gone])["nic_count_differs"]
    assert text.startswith("mlx5_3 (0000:43:00.0) is gone") and "declare nic_count" in text
    assert judged(eight()[:3], before(), 3, [gone])["nic_count_differs"] == ""


# Links that are lost, errors, slow ports


def counting(number: int, **counters: int) -> Port:
    each = port(number)
    return replace(each, counters={**each.counters, **counters})


def test_a_link_that_was_lost_once_and_one_that_flaps() -> None:
    once = eight(mlx5_1=counting(1, link_downed=1))
    assert found(once) == {"nic_link_lost": "mlx5_1 (0000:41:00.0) lost its link once since the last check"}
    often = eight(mlx5_1=counting(1, link_downed=4))
    assert found(often) == {"nic_flapping": "mlx5_1 (0000:41:00.0) lost its link 4 times within 24 hours"}


def test_losses_are_added_up_for_a_day() -> None:
    earlier = before()
    known = updated(eight(mlx5_1=counting(1, link_downed=1)), earlier)
    for hours, expected in ((1, {"nic_flapping"}), (23, {"nic_flapping"}), (25, {"nic_link_lost"})):
        again = Before(known, "boot", NOW + hours * HOUR)
        assert set(found(eight(mlx5_1=counting(1, link_downed=2)), again)) == expected
    assert found(eight(mlx5_1=counting(1, link_downed=1)), Before(known, "boot", NOW + HOUR)) == {}


def test_carriers_count_for_ethernet_only() -> None:
    for layer, expected in (("Ethernet", {"nic_flapping"}), ("InfiniBand", set())):
        ports = [replace(counting(number, carrier_downs=0 if number else 3), link_layer=layer) for number in range(4)]
        earlier = before(*(replace(counting(number, carrier_downs=0), link_layer=layer) for number in range(4)))
        assert set(found(tuple(ports), earlier)) == expected


def test_a_restart_of_the_switches_is_no_flapping() -> None:
    assert found(tuple(counting(number, link_downed=3) for number in range(8))) == {}


@pytest.mark.parametrize("name", ["link_downed", "symbol_error", "local_link_integrity_errors"])
def test_counters_of_another_boot_or_driver_are_not_compared(name: str) -> None:
    ports = eight(mlx5_1=counting(1, **{name: 5000}))
    earlier = before()
    assert found(ports, earlier)
    assert found(ports, replace(earlier, boot="next")) == {}
    # The driver was reloaded, or the counters were cleared.
    assert found(ports, before(*eight(mlx5_1=counting(1, **{name: 60000})))) == {}


def test_errors() -> None:
    few, many = eight(mlx5_1=counting(1, symbol_error=120)), eight(mlx5_1=counting(1, symbol_error=121))
    assert found(few) == {}
    assert found(many) == {"nic_errors": "mlx5_1 (0000:41:00.0) had 121 symbol errors in 60 minutes"}
    assert found(many, before(hours=24)) == {}
    integrity = eight(mlx5_1=counting(1, local_link_integrity_errors=1))
    assert "1 local link integrity errors" in found(integrity)["nic_errors"]


def test_a_port_slower_than_its_siblings() -> None:
    assert found(eight(mlx5_2=port(2, rate=200.0))) == {
        "nic_slow": "mlx5_2 (0000:42:00.0) has 200 Gbit/s, and its siblings have 400 Gbit/s"
    }
    lanes = [port(number, pcie_lanes=8 if number == 1 else 16, pcie_speed=32.0) for number in range(4)]
    assert found(tuple(lanes))["nic_slow"].endswith("has 8 PCIe lanes, and its siblings have 16 PCIe lanes")
    speeds = [port(number, pcie_speed=8.0 if number == 1 else 32.0) for number in range(4)]
    assert "PCIe with 8 GT/s" in found(tuple(speeds))["nic_slow"]
    # All are alike, or of different kinds, or nobody knows which of two is right.
    assert found(tuple(port(number, rate=200.0) for number in range(8))) == {}
    assert found((port(0), port(1, rate=200.0))) == {}
    assert found((*several(0, 4), port(4, functions=2, rate=200.0))) == {}


def test_nodes_are_missed_of_active_ports() -> None:
    lacking = {"missing_nodes": ("/dev/infiniband/uverbs*", "/dev/infiniband/umad*")}
    assert found(eight(mlx5_1=port(1, **lacking))) == {
        "nic_nodes_missing": "mlx5_1 (0000:41:00.0) has no /dev/infiniband/uverbs* and no /dev/infiniband/umad*"
    }
    assert found(eight(mlx5_1=port(1, **lacking, **POLLING)), Before()) == {}


def test_messages_are_bounded() -> None:
    ports = tuple(port(number, **(POLLING if number else {})) for number in range(60))
    text = found(ports, before(*(port(number) for number in range(60))))["nic_down"]
    assert text.count("mlx5_") == 8
    assert text.endswith("and 51 more")


# The history


def test_the_history_is_bounded_and_ends() -> None:
    many = updated(tuple(port(number) for number in range(MOST_PORTS + 40)), Before({}, "boot", NOW))
    assert len(many) == MOST_PORTS
    assert updated((), Before(many, "boot", NOW + KEPT_SECONDS - 1)) == many
    assert updated((), Before(many, "boot", NOW + KEPT_SECONDS + 1)) == {}
    # A port that was never active is not kept.
    assert set(updated(eight(mlx5_1=port(1, **POLLING)), Before({}, "boot", NOW))) == {
        f"guid-{number}/1" for number in range(8) if number != 1
    }


def test_the_history_keeps_when_a_port_was_last_active() -> None:
    known = updated(eight(mlx5_1=port(1, **POLLING)), before())["guid-1/1"]
    assert (known.active, known.checked, known.rate) == (NOW - HOUR, NOW, 400.0)


def test_the_history_survives_its_file() -> None:
    earlier = before(*eight(mlx5_1=counting(1, link_downed=1)))
    ports = updated(eight(mlx5_1=counting(1, link_downed=3)), earlier)
    text = histories.render(histories.History(ports=ports))
    assert histories.parse(text).ports == ports
    assert histories.parse(text.replace('"losses": [', '"losses": [1,')) == histories.History()


# GPUDirect

UBUNTU, RHEL8 = "6.8.0-52-generic", "4.18.0-553.el8_10.x86_64"


@pytest.mark.parametrize(
    ("peer", "kind", "release", "impossible", "unknown"),
    [
        (True, "proprietary", "4.4.0", "", ""),
        (False, "open", UBUNTU, "", ""),
        (False, "open", "5.12.0", "", ""),
        (False, "open", "5.4.0-216-generic", "kernel 5.4.0-216-generic is older than 5.12", ""),
        (False, "proprietary", UBUNTU, "the proprietary kernel modules have no DMA-BUF", ""),
        (False, None, UBUNTU, "", "is not known"),
        (False, "open", RHEL8, "", "is not known"),
        (False, "open", "new", "", "the version of the kernel is not known"),
        (False, "open", "5.1\x1b[31m" + "x" * 9000, "kernel 5.1?[31mxxx", ""),
    ],
)
def test_gpudirect(peer: bool, kind: str | None, release: str, impossible: str, unknown: str) -> None:
    found_impossible, found_unknown = gpudirect(peer, kind, release)
    assert impossible in found_impossible and bool(impossible) == bool(found_impossible)
    assert unknown in found_unknown and bool(unknown) == bool(found_unknown)
    assert len(found_impossible) < 300


def config(control: int, first: bool = False) -> bytes:
    """The configuration space of a bridge with two extended capabilities, one of them ACS."""
    acs = struct.pack("<IHH", 0x000D | 1 << 16 | (0x140 << 20 if first else 0), 0x1F, control)
    other = struct.pack("<II", 0x0001 | 1 << 16 | (0 if first else 0x140 << 20), 0)
    at_100, at_140 = (acs, other) if first else (other, acs)
    return (b"\0" * 0x100 + at_100).ljust(0x140, b"\0") + at_140.ljust(0x40, b"\0")


@pytest.mark.parametrize(
    ("content", "redirects"),
    [
        (config(0x1D), True),
        (config(0x04, first=True), True),
        (config(0x08), True),
        (config(0x11), False),
        (config(0x00), False),
        # What is translated already goes directly.
        (config(0x5D), False),
        # What others than root read; nothing; a list that ends in itself.
        (config(0x1D)[:64], False),
        (b"", False),
        (b"\0" * 0x100 + struct.pack("<II", 0x0001 | 1 << 16 | 0x100 << 20, 0), False),
        (b"\xff" * 4096, False),
    ],
)
def test_acs(content: bytes, redirects: bool) -> None:
    assert acs_redirects(content) is redirects


def test_the_bridges_between_two_devices() -> None:
    switch = ["sys", "devices", "pci0000:15", "0000:15:01.0", "0000:16:00.0"]
    gpu, nic = [*switch, "0000:17:00.0", "0000:18:00.0"], [*switch, "0000:17:01.0", "0000:19:00.0"]
    assert bridges_between(nic, gpu) == ("0000:17:01.0", "0000:17:00.0")


# Reading sysfs


class Sysfs:
    """A host with GPUs and adapters below PCI switches: one of each below a switch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write(
            "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n"
        )
        self.write("/proc/sys/kernel/osrelease", UBUNTU + "\n")
        for number in range(4):
            self.add_gpu(number)
            self.add_nic(number)

    def write(self, path: str, content: str | bytes) -> None:
        target = Path(f"{self.root}{path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape"))

    def link(self, path: str, target: str) -> None:
        place = Path(f"{self.root}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def device(self, number: int, slot: int) -> str:
        """A device below the switch of a number; the directory of its bridge comes first."""
        bus = 0x10 + 0x10 * number
        above = f"/sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0"
        port = f"{above}/0000:{bus + 2:02x}:{slot:02x}.0"
        return f"{port}/0000:{bus + 3 + slot:02x}:00.0"

    def on_bus(self, path: str) -> None:
        self.link(f"/sys/bus/pci/devices/{path.rpartition('/')[2]}", f"../../../..{path}")

    def add_gpu(self, number: int) -> None:
        path = self.device(number, 0)
        self.write(f"{path}/vendor", "0x10de\n")
        self.on_bus(path)
        bridge = path.rpartition("/")[0]
        self.write(f"{bridge}/config", config(0))
        self.on_bus(bridge)

    def add_nic(self, number: int, **content: str) -> None:
        path, name = self.device(number, 1), f"mlx5_{number}"
        self.on_bus(path)
        self.on_bus(path.rpartition("/")[0])
        self.write(f"{path.rpartition('/')[0]}/config", config(0))
        device = f"/sys/class/infiniband/{name}"
        self.link(f"{device}/device", f"../../../..{path}")
        self.link(f"{path}/driver", "../../../../../../bus/pci/drivers/mlx5_core")
        lines = {
            f"{path}/vendor": "0x15b3",
            f"{path}/device": "0x1021",
            f"{path}/current_link_speed": "32.0 GT/s PCIe",
            f"{path}/current_link_width": "16",
            f"{device}/node_guid": f"58a2:e103:00da:e62{number}",
            f"{device}/ports/1/state": "4: ACTIVE",
            f"{device}/ports/1/phys_state": "5: LinkUp",
            f"{device}/ports/1/rate": "400 Gb/sec (4X NDR)",
            f"{device}/ports/1/link_layer": "InfiniBand",
            f"{device}/ports/1/counters/link_downed": "0",
            f"{device}/ports/1/counters/symbol_error": "0",
            f"{device}/ports/1/counters/port_rcv_data": "4711",
            f"/sys/class/infiniband_verbs/uverbs{number}/ibdev": name,
            f"/sys/class/infiniband_mad/umad{number}/ibdev": name,
            f"/sys/class/infiniband_mad/umad{number}/port": "1",
            f"/dev/infiniband/uverbs{number}": "",
            f"/dev/infiniband/umad{number}": "",
            **{f"{device}/{where}": text for where, text in content.items()},
        }
        for where, text in lines.items():
            self.write(where, text + "\n")

    def port(self, number: int, name: str, text: str) -> None:
        """Change a file of a port."""
        self.write(f"/sys/class/infiniband/mlx5_{number}/ports/1/{name}", text + "\n")

    def remove(self, path: str) -> None:
        Path(f"{self.root}{path}").unlink()

    def check(
        self, known: Mapping[str, PortHistory] | None = None, declared: int | None = None, **gpu: Any
    ) -> tuple[dict[str, str], dict[str, PortHistory]]:
        addresses = [f"0000{self.device(number, 0).rpartition('/')[2]}" for number in range(4)]
        facts = {
            "available": True,
            "gpus": [{"name": "NVIDIA H200", "virtualization_mode": "none", **gpu}],
            "pci_gpus": [{"pci_bus_id": address} for address in addresses],
        }
        earlier = Before(known or {}, "boot", NOW)
        readings, ports = read_network(facts, HostFiles(str(self.root)), earlier, declared)
        return {name: text for name, text in readings.items() if text}, ports


@pytest.fixture(name="sysfs")
def _sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path)


def test_a_healthy_host(sysfs: Sysfs) -> None:
    findings, ports = sysfs.check(declared=4)
    assert findings == {}
    assert {known.name: (known.place, known.rate, known.model) for known in ports.values()} == {
        f"mlx5_{number}": (sysfs.device(number, 1).rpartition("/")[2], 400.0, CX7) for number in range(4)
    }
    assert sysfs.check(ports)[0] == {}


def test_a_host_without_adapters(tmp_path: Path) -> None:
    facts = {"available": True, "gpus": [], "pci_gpus": []}
    readings, ports = read_network(facts, HostFiles(str(tmp_path)), Before(), None)
    assert (set(readings.values()), ports) == ({""}, {})


def test_a_broken_cable(sysfs: Sysfs) -> None:
    _nothing, known = sysfs.check()
    sysfs.port(2, "state", "1: DOWN")
    sysfs.port(2, "phys_state", "2: Polling")
    sysfs.port(2, "rate", "10 Gb/sec (4X SDR)")
    findings, _ports = sysfs.check(known)
    assert findings == {"nic_down": "mlx5_2 (0000:34:00.0) has no link (Polling), and 3 of its siblings have a link"}


def test_a_cable_that_was_broken_before_the_boot(sysfs: Sysfs) -> None:
    sysfs.port(2, "state", "1: DOWN")
    sysfs.port(2, "phys_state", "2: Polling")
    sysfs.port(2, "counters/port_rcv_data", "0")
    assert set(sysfs.check()[0]) == {"nic_down"}
    assert sysfs.check(declared=3)[0] == {}


def test_storage_and_management_are_not_compared(sysfs: Sysfs) -> None:
    # Below no switch of a GPU, of the same model.
    path = "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"
    sysfs.link("/sys/class/infiniband/mlx5_9/device", f"../../../..{path}")
    sysfs.write(f"{path}/vendor", "0x15b3\n")
    sysfs.write(f"{path}/device", "0x1021\n")
    for name, text in {"state": "4: ACTIVE", "rate": "100 Gb/sec (4X EDR)", "link_layer": "InfiniBand"}.items():
        sysfs.port(9, name, text)
    assert sysfs.check()[0] == {}


def test_virtual_functions_are_left_out(sysfs: Sysfs) -> None:
    sysfs.port(1, "state", "1: DOWN")
    sysfs.link(f"{sysfs.device(1, 1)}/physfn", "../0000:24:00.1")
    assert sysfs.check()[0] == {}
    assert len(sysfs.check()[1]) == 3


def test_adapters_that_manage_switches_are_left_out(sysfs: Sysfs) -> None:
    sysfs.port(1, "rate", "100 Gb/sec (1X NDR)")
    sysfs.write(f"{sysfs.device(1, 1)}/vpd", b"\x82\x10\x00ConnectX-7\x90V0SMDL=SW_MNG\x79")
    assert set(sysfs.check(name="NVIDIA H200")[0]) == {"nic_slow"}
    assert sysfs.check(name="NVIDIA B200")[0] == {}


def test_nodes_that_are_missing(sysfs: Sysfs) -> None:
    sysfs.remove("/dev/infiniband/uverbs1")
    sysfs.remove("/sys/class/infiniband_mad/umad2/ibdev")
    findings, _ports = sysfs.check()
    assert findings == {
        "nic_nodes_missing": "mlx5_1 (0000:24:00.0) has no /dev/infiniband/uverbs*; "
        "mlx5_2 (0000:34:00.0) has no /dev/infiniband/umad*"
    }
    # The devices of a container are what it was given.
    sysfs.write("/run/.containerenv", "")
    assert sysfs.check()[0] == {}


def test_an_adapter_that_is_not_on_the_bus(sysfs: Sysfs) -> None:
    _nothing, known = sysfs.check()
    sysfs.remove("/sys/class/infiniband/mlx5_1/device")
    # A guest has it.
    assert sysfs.check(known)[0] == {}
    sysfs.remove("/sys/bus/pci/devices/0000:24:00.0")
    findings, after = sysfs.check(known)
    assert findings["nic_count_differs"].startswith("mlx5_1 (0000:24:00.0) is gone")
    assert sysfs.check(after, declared=3)[0] == {}
    # It has another address.
    moved = {key: replace(entry, place="0000:99:00.0") for key, entry in known.items() if entry.name != "mlx5_1"}
    assert sysfs.check(moved)[0] == {}


def test_a_service_with_a_network_of_its_own_sees_nothing(sysfs: Sysfs) -> None:
    _nothing, known = sysfs.check()
    for number in range(4):
        sysfs.remove(f"/sys/class/infiniband/mlx5_{number}/device")
    sysfs.link("/proc/1/ns/net", "net:[1]")
    sysfs.link("/proc/self/ns/net", "net:[2]")
    assert sysfs.check(known, declared=4) == ({}, known)


def test_gpudirect_of_a_host(sysfs: Sysfs) -> None:
    sysfs.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04\n")
    assert set(sysfs.check()[0]) == {"gpudirect_impossible"}
    # It was built before DOCA-OFED was there.
    sysfs.write("/proc/sys/kernel/osrelease", "6.8.0-87-generic\n")
    sysfs.write("/lib/modules/6.8.0-87-generic/modules.dep", "updates/dkms/nvidia-peermem.ko:\n")
    assert set(sysfs.check()[0]) == {"gpudirect_impossible"}
    sysfs.write("/usr/bin/ofed_info", "")
    assert set(sysfs.check()[0]) == {"gpudirect_impossible", "peermem_unbuilt"}
    sysfs.write("/sys/module/nvidia_peermem/initstate", "live\n")
    assert sysfs.check()[0] == {}


@pytest.mark.parametrize(
    ("ports", "gpus", "expected"),
    [
        (several(0, 8), 8, True),
        (several(0, 4), 8, True),
        (several(0, 1, near=True), 8, True),
        # The network of the host itself.
        ([port(0), port(1, place="0000:40:00.1")], 1, False),
        (several(0, 2), 8, False),
        ([], 0, False),
    ],
)
def test_a_network_that_is_there_for_gpus(ports: list[Port], gpus: int, expected: bool) -> None:
    assert serves_gpus(ports, gpus, is_declared=False) is expected
    assert serves_gpus(ports, gpus, is_declared=True) is bool(ports)


def test_amazons_adapters_need_no_module(sysfs: Sysfs) -> None:
    sysfs.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04\n")
    for number in range(4):
        sysfs.write(f"{sysfs.device(number, 1)}/vendor", "0x1d0f\n")
    assert sysfs.check()[0] == {}


def test_acs_between_gpu_and_adapter(sysfs: Sysfs) -> None:
    sysfs.write(f"{sysfs.device(1, 0).rpartition('/')[0]}/config", config(0x1D))
    findings, _ports = sysfs.check()
    assert findings == {
        "gpudirect_redirected": "ACS of PCI bridge 0000:22:00.0 (between mlx5_1 (0000:24:00.0) and GPU "
        "00000000:23:00.0) sends traffic between GPUs and adapters through the CPU; disable it in the firmware"
    }
    # What a guest sees of the bus is not the bus.
    assert sysfs.check(virtualization_mode="pass_through")[0] == {}


def test_a_port_of_ethernet_by_its_interface(sysfs: Sysfs) -> None:
    for number in range(4):
        sysfs.port(number, "link_layer", "Ethernet")
        sysfs.link(f"/sys/class/net/eth{number}/device", f"../../../..{sysfs.device(number, 1)}")
        sysfs.write(f"/sys/class/net/eth{number}/flags", "0x1003\n")
        sysfs.write(f"/sys/class/net/eth{number}/carrier_changes", "2\n")
    _nothing, known = sysfs.check()
    sysfs.write("/sys/class/net/eth1/carrier_changes", "9\n")
    assert set(sysfs.check(known)[0]) == {"nic_flapping"}
    sysfs.port(1, "state", "1: DOWN")
    assert "nic_down" in sysfs.check(known)[0]
    sysfs.write("/sys/class/net/eth1/flags", "0x1002\n")
    assert "nic_down" not in sysfs.check(known)[0]


HOSTILE = ["", "\n", "-1", "4", ": ", "9" * 5000, "\udcff\udcfe", "4: \x1b[2J", "²: ACTIVE", "nan Gb/sec", "{}", "\0"]


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_a_file_has(text: str, sysfs: Sysfs) -> None:
    for name in ("state", "phys_state", "rate", "link_layer", "counters/link_downed", "counters/symbol_error"):
        sysfs.port(1, name, text)
    for name in ("vendor", "device", "current_link_speed", "current_link_width"):
        sysfs.write(f"{sysfs.device(1, 1)}/{name}", text)
    sysfs.write("/sys/class/infiniband/mlx5_1/node_guid", text)
    findings, ports = sysfs.check(sysfs.check()[1], declared=4)
    assert all(message.isprintable() and message.isascii() for message in findings.values())
    assert histories.parse(histories.render(histories.History(ports=ports))).ports == ports


def test_names_are_made_printable(sysfs: Sysfs) -> None:
    name = "mlx\x1b[31m\u202e" + "x" * 200
    Path(f"{sysfs.root}/sys/class/infiniband/mlx5_1").rename(f"{sysfs.root}/sys/class/infiniband/{name}")
    sysfs.write("/sys/class/infiniband_verbs/uverbs1/ibdev", "other\n")
    text = sysfs.check()[0]["nic_nodes_missing"]
    assert text.startswith("mlx?[31m?xxx") and text.isascii() and len(text) < 300


def test_it_reads_a_few_files_and_runs_nothing(sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = HostFiles.read

    def counted(files: HostFiles, path: str) -> str | None:
        read.append(path)
        return original(files, path)

    monkeypatch.setattr(HostFiles, "read", counted)
    monkeypatch.setattr("subprocess.Popen", None)
    sysfs.check()
    assert len(read) < 40 * 4


# The whole module


def test_a_cable_that_breaks_over_a_reboot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = HealthHost(tmp_path, monkeypatch, nics=8)
    host.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n")
    host.write("/proc/sys/kernel/osrelease", UBUNTU + "\n")
    assert host.check()["verdict"] == "ok"
    host.start_boot()
    host.control("fault", "nic", "down", "--nic", "3")
    result = host.check()
    assert (result["verdict"], result["remedy"]) == ("fail", "inspect")
    assert [finding["row"] for finding in result["findings"]] == ["nic_down"]
    assert host.check(expected={"nic_count": 7})["verdict"] == "ok"
    assert host.check(policy=[{"id": "nic_down", "verdict": "warn"}])["verdict"] == "warn"
    host.control("fault", "clear")
    assert host.check()["verdict"] == "ok"
