# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fabric_facts: NVSwitches and NVLink 5 on the PCI bus, by vital product data as ConnectX devices have them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.nvlink_fabric import (
    is_nvlink5_bridge,
    ofed_version,
    peermem,
    read_fabric,
    wait_for_imex,
)

# Tags of the PCI Local Bus Specification 3.0, appendix I: identifier, read-only and read-write fields, end.
IDENTIFIER, READ_ONLY, READ_WRITE, END = 0x82, 0x90, 0x91, b"\x78"
BRIDGE = b"MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL=C7X:SMDL=SW_MNG"
ADAPTER = b"MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL=CX75510AAS-NEAT"


def vpd(vendor: bytes, checksum: int = 0xC3, end: bytes = END + b"\xff" * 32) -> bytes:
    """Vital product data of a ConnectX-7, whose checksum byte and length of 0x80 and more are not UTF-8."""
    fields = {
        b"PN": b"692-9X766-00N4-QX0",
        b"EC": b"A3",
        b"V2": b"692-9X766-00N4-QX0",
        b"SN": b"MT2430XZ0ABC",
        b"V3": b"7c3bf8003f03739de09d0000e09d7303",
        b"VA": vendor,
        b"V0": b"PCIeGen5 x16",
        b"RV": bytes((checksum, 0, 0)),
    }
    read_only = b"".join(name + bytes((len(value),)) + value for name, value in fields.items())
    return _resource(IDENTIFIER, b"NVIDIA ConnectX-7 mezz module") + _resource(READ_ONLY, read_only) + end


def _resource(tag: int, data: bytes) -> bytes:
    return struct.pack("<BH", tag, len(data)) + data


def device(root: Path, address: str, ids: str, kind: str, data: bytes | None = None) -> Path:
    """A PCI device below `root` with vendor and device `ids`, and these vital product data."""
    vendor, device_id = (f"0x{part}" for part in ids.split(":"))
    path = root / "sys/bus/pci/devices" / address
    path.mkdir(parents=True)
    for name, text in (("vendor", vendor), ("device", device_id), ("class", kind)):
        (path / name).write_text(f"{text}\n")
    if data is not None:
        (path / "vpd").write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (vpd(BRIDGE), True),
        (vpd(ADAPTER), False),
        (vpd(BRIDGE, checksum=0x80), True),
        (vpd(BRIDGE, end=_resource(READ_WRITE, b"RW\x00" + b"\x00" * 300) + END), True),
        (vpd(BRIDGE)[:200], True),
        (vpd(BRIDGE)[:40], False),
        (b"\xff" * 512, False),
        (b"", False),
    ],
    ids=["bridge", "adapter", "bad checksum", "writable part", "cut off", "cut off before", "erased", "empty"],
)
def test_a_bridge_is_known_by_its_vital_product_data(data: bytes, expected: bool) -> None:
    assert is_nvlink5_bridge(data) is expected


def test_the_data_are_no_text() -> None:
    with pytest.raises(UnicodeDecodeError):
        vpd(BRIDGE).decode()


def test_an_hgx_b200(tmp_path: Path) -> None:
    device(tmp_path, "0000:1b:00.0", "10de:2901", "0x030200")
    device(tmp_path, "0000:05:00.0", "15b3:1021", "0x020700", vpd(BRIDGE))
    device(tmp_path, "0000:05:00.1", "15b3:1021", "0x020700", vpd(BRIDGE))
    device(tmp_path, "0000:18:00.0", "15b3:1021", "0x020700", vpd(ADAPTER))
    function = device(tmp_path, "0000:18:00.2", "15b3:101e", "0x020700", b"")
    (function / "physfn").mkdir()
    assert read_fabric(HostFiles(str(tmp_path))).as_dict() == {
        "nvswitches": [],
        "nvlink5_bridges": ["00000000:05:00.0", "00000000:05:00.1"],
        "unreadable": [],
        "missing_modules": [],
        "imex_in_pods": False,
        "imex_nodes_exist": False,
        "ofed": "",
        "peermem": "",
    }


@pytest.mark.parametrize("device_id", ["1ac2", "1af1", "22a3", "2fff"])
def test_nvswitches_on_the_bus(device_id: str, tmp_path: Path) -> None:
    device(tmp_path, "0000:07:00.0", f"10de:{device_id}", "0x068000")
    device(tmp_path, "0000:00:1f.0", "8086:a1c1", "0x068000")
    device(tmp_path, "0000:1b:00.0", "10de:2330", "0x030200")
    device(tmp_path, "0000:1b:00.1", "10de:22bc", "0x040300")
    found = read_fabric(HostFiles(str(tmp_path)))
    assert (found.nvswitches, found.nvlink5_bridges) == (("00000000:07:00.0",), ())


def test_an_nvswitch_is_known_by_its_device_id_whatever_its_class(tmp_path: Path) -> None:
    device(tmp_path, "0000:07:00.0", "10de:22a3", "0x0b4000")
    assert read_fabric(HostFiles(str(tmp_path))).nvswitches == ("00000000:07:00.0",)


def test_data_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    device(tmp_path, "0000:05:00.0", "15b3:1021", "0x020700", b"")
    (device(tmp_path, "0000:06:00.0", "15b3:1021", "0x020700") / "vpd").mkdir()
    device(tmp_path, "0000:07:00.0", "15b3:1015", "0x020000")
    found = read_fabric(HostFiles(str(tmp_path)))
    assert (found.nvlink5_bridges, found.unreadable) == ((), ("00000000:05:00.0", "00000000:06:00.0"))


def test_a_host_without_a_pci_bus(tmp_path: Path) -> None:
    assert read_fabric(HostFiles(str(tmp_path))).as_dict() == {
        "nvswitches": [],
        "nvlink5_bridges": [],
        "unreadable": [],
        "missing_modules": [],
        "imex_in_pods": False,
        "imex_nodes_exist": False,
        "ofed": "",
        "peermem": "",
    }


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ({}, ()),
        ({"modules.dep": "kernel/drivers/net/virtio_net.ko: \n"}, ("mlx5_ib", "ib_umad")),
        (
            {
                "modules.dep": "kernel/drivers/infiniband/core/ib_umad.ko.zst: kernel/x/ib_core.ko.zst\n",
                "modules.builtin": "kernel/fs/ext4/ext4.ko\n",
            },
            ("mlx5_ib",),
        ),
        # DOCA-OFED has them elsewhere; another kernel builds them in.
        ({"modules.dep": "updates/dkms/mlx5_ib.ko:\nupdates/dkms/ib_umad.ko:\n"}, ()),
        ({"modules.builtin": "kernel/x/mlx5_ib.ko\nkernel/x/ib_umad.ko\n", "modules.dep": ""}, ()),
    ],
)
def test_modules_that_the_running_kernel_does_not_have(
    files: dict[str, str], missing: tuple[str, ...], tmp_path: Path
) -> None:
    _write(tmp_path / "proc/sys/kernel/osrelease", "6.8.0-87-generic\n")
    for name, text in files.items():
        _write(tmp_path / "lib/modules/6.8.0-87-generic" / name, text)
    assert read_fabric(HostFiles(str(tmp_path))).missing_modules == missing


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/kubepods.slice/kubepods-besteffort.slice/cri-containerd-1.scope\n", True),
        ("0::/system.slice/nvidia-imex.service\n", False),
    ],
)
def test_imex_of_a_pod_is_not_that_of_the_host(cgroup: str, expected: bool, tmp_path: Path) -> None:
    for name, text in (("comm", "nvidia-imex\n"), ("cgroup", cgroup)):
        _write(tmp_path / "proc/4711" / name, text)
    _write(tmp_path / "proc/uptime", "1")
    assert read_fabric(HostFiles(str(tmp_path))).imex_in_pods is expected


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        # Of MLNX_OFED 23.10 and of DOCA-OFED 23.07 and 24.10, as public guides show them.
        ("MLNX_OFED_LINUX-23.10-5.1.4.0:\n", "23.10-5.1.4.0"),
        ("OFED-internal-23.07-0.5.0:\n", "23.07-0.5.0"),
        ("OFED-internal-24.10-1.1.4:\n", "24.10-1.1.4"),
        ("/usr/bin/ofed_info: cannot execute\n", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_version_of_ofed(printed: str, expected: str, tmp_path: Path) -> None:
    files = HostFiles(str(tmp_path))
    assert ofed_version(files) == ""
    _write(tmp_path / "usr/bin/ofed_info", "")
    result = CommandResult((), 0, printed.encode(), b"", 0.0)
    assert ofed_version(files, lambda _argv, _timeout: result) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("updates/dkms/nvidia-peermem.ko: kernel/drivers/infiniband/core/ib_core.ko updates/dkms/nvidia.ko\n", "built"),
        (
            "extra/nvidia-peermem.ko.xz: extra/ofa_kernel/drivers/infiniband/core/ib_core.ko.xz extra/nvidia.ko.xz\n",
            "built",
        ),
        ("updates/dkms/nvidia-peermem.ko:\n", "stub"),
        ("updates/dkms/nvidia-peermem.ko: updates/dkms/nvidia.ko\n", "stub"),
        ("updates/dkms/nvidia.ko: kernel/drivers/infiniband/core/ib_core.ko\n", ""),
    ],
)
def test_whether_nvidia_peermem_was_built_for_adapters(line: str, expected: str, tmp_path: Path) -> None:
    _write(tmp_path / "proc/sys/kernel/osrelease", "6.8.0-87-generic\n")
    assert peermem(HostFiles(str(tmp_path))) == ""
    _write(tmp_path / "lib/modules/6.8.0-87-generic/modules.dep", f"kernel/fs/ext4/ext4.ko:\n{line}kernel/x.ko:\n")
    assert peermem(HostFiles(str(tmp_path))) == expected


# The form of NVIDIA's validation suite, see test_nvlink_domains.py.
UP, DEGRADED = (
    {"nodes": {"0": {"status": "READY", "host": "10.0.0.1"}, "1": {"status": one, "host": "10.0.0.2"}}, "status": whole}
    for one, whole in (("READY", "UP"), ("UNAVAILABLE", "DEGRADED"))
)


@pytest.mark.parametrize(
    ("replies", "expected", "waited"),
    [
        ([("active", UP)], ("", ""), 0),
        ([("inactive", None), ("active", UP)], ("", ""), 2),
        # The others of the batch start meanwhile.
        ([("active", DEGRADED)] * 2 + [("active", UP)], ("", ""), 4),
        ([("active", DEGRADED)], ("", "the IMEX domain is DEGRADED: 10.0.0.2 is UNAVAILABLE, 60 s after"), 60),
        ([("active", None)], ("", "cannot be read by nvidia-imex-ctl"), 60),
        ([("active", DEGRADED), ("failed", None)], ("nvidia-imex.service is failed after its start", ""), 2),
        ([("inactive", UP)], ("nvidia-imex.service is inactive after its start", ""), 60),
    ],
)
def test_imex_is_read_back_within_a_bounded_time(
    replies: list[tuple[str, Any]], expected: tuple[str, str], waited: int, tmp_path: Path
) -> None:
    slept: list[float] = []

    def now() -> tuple[str, Any]:
        return replies[min(len(slept), len(replies) - 1)]

    def show(_commands: object, _timeout: float) -> list[CommandResult]:
        unit = f"Id=nvidia-imex.service\nLoadState=loaded\nActiveState={now()[0]}\n"
        return [CommandResult((), 0, unit.encode(), b"", 0.0)]

    def reply(_argv: object, _timeout: float) -> CommandResult:
        text = now()[1]
        return CommandResult((), 0 if text else 1, json.dumps(text).encode(), b"", 0.0)

    found = wait_for_imex(60, HostFiles(str(tmp_path)), Systemd(show, booted=str(tmp_path)), reply, slept.append)
    for text, part in zip((found.problem, " ".join(found.notes)), expected, strict=True):
        assert part in text and bool(text) is bool(part)
    assert sum(slept) == waited


@pytest.mark.parametrize(
    ("parameters", "channel", "is_wrong"),
    [("CreateImexChannel0: 1\n", False, True), ("CreateImexChannel0: 1\n", True, False), ("", False, False)],
)
def test_a_channel_that_the_driver_was_to_make_is_there(
    parameters: str, channel: bool, is_wrong: bool, tmp_path: Path
) -> None:
    _write(tmp_path / "proc/driver/nvidia/params", f"ImexChannelCount: 2048\n{parameters}")
    if channel:
        _write(tmp_path / "dev/nvidia-caps-imex-channels/channel0", "")
    unit = CommandResult((), 0, b"Id=nvidia-imex.service\nLoadState=loaded\nActiveState=active\n", b"", 0.0)
    up = CommandResult((), 0, json.dumps(UP).encode(), b"", 0.0)
    systemd = Systemd(lambda _commands, _timeout: [unit], booted=str(tmp_path))
    found = wait_for_imex(60, HostFiles(str(tmp_path)), systemd, lambda _argv, _timeout: up)
    assert ("NVreg_CreateImexChannel0 is set" in found.problem) is is_wrong


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
