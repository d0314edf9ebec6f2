# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries after changes: MIG devices, processes, pending modes, unhealthy GPUs, drivers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from gpu_simulator.state import store

from .conftest import Host, MakeHost

PACKAGE = Path(store.__file__).parents[2]


def instance(number: int, profile: int, start: int, size: int, *compute: tuple[int, int, int, int]) -> dict[str, Any]:
    """Make a GPU instance with compute instances (ID, profile, start, size)."""
    names = ("id", "profile_id", "start", "size")
    return {
        **dict(zip(names, (number, profile, start, size), strict=True)),
        "compute_instances": [dict(zip(names, each, strict=True)) for each in compute],
    }


def process(**given: Any) -> dict[str, Any]:
    """Make a process; the defaults are those of one outside MIG mode."""
    return {
        "pid": 10385,
        "name": "/tmp/loadgen",
        "type": "C",
        "used_memory_mib": 4188,
        "gpu_instance_id": None,
        "compute_instance_id": None,
        **given,
    }


@pytest.fixture
def mig_host(make_host: MakeHost) -> Host:
    """An H100 with a 3g.40gb and two 1g.10gb, a process in one of them, and one without MIG."""
    host = make_host("h100_80gb", "h100_80gb", driver="580.173.02")

    def change(state: Any) -> None:
        gpu = state["gpus"][0]
        gpu["mig_mode"] = {"current": True, "pending": True}
        gpu["gpu_instances"] = [
            instance(13, 19, 6, 1, (0, 0, 0, 1)),
            instance(11, 19, 4, 1, (0, 0, 0, 1)),
            instance(1, 9, 0, 4, (1, 0, 2, 1), (0, 1, 0, 2)),
        ]
        gpu["processes"] = [process(gpu_instance_id=11, compute_instance_id=0)]

    host.change(change)
    return host


def test_list_names_mig_devices_by_their_instances(mig_host: Host) -> None:
    lines = mig_host.smi("-L")[0].splitlines()
    assert [line.split(" (UUID")[0] for line in lines] == [
        "GPU 0: NVIDIA H100 80GB HBM3",
        "  MIG 2c.3g.40gb  Device  0:",
        "  MIG 1c.3g.40gb  Device  1:",
        "  MIG 1g.10gb     Device  2:",
        "  MIG 1g.10gb     Device  3:",
        "GPU 1: NVIDIA H100 80GB HBM3",
    ]
    uuids = [line.split("UUID: ")[1].rstrip(")") for line in lines]
    assert len(set(uuids)) == len(uuids)
    assert all(uuid.startswith("MIG-") for uuid in uuids[1:5])


def test_uuids_of_mig_devices_depend_on_gpu_and_instances(mig_host: Host) -> None:
    before = mig_host.smi("-L")[0].splitlines()

    def make_another(state: Any) -> None:
        state["gpus"][0]["gpu_instances"] = [instance(11, 20, 4, 1, (0, 0, 0, 1)), instance(7, 19, 0, 1, (0, 0, 0, 1))]

    mig_host.change(make_another)
    after = mig_host.smi("-L")[0].splitlines()
    assert after[2].split("UUID: ")[1] == before[3].split("UUID: ")[1]  # GPU instance 11 remained
    assert after[1].split("UUID: ")[1] not in "\n".join(before)


TABLE = """\
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:06:00.0 Off |                   On |
| N/A   29C    P0             68W /  700W |    4242MiB /  81559MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:07:00.0 Off |                    0 |
| N/A   29C    P0             68W /  700W |       0MiB /  81559MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  0    1   0   0  |              36MiB / 40448MiB    | 32      0 |  3   0    3    0    3 |
|                  |               0MiB / 24739MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
|  0    1   1   1  |              36MiB / 40448MiB    | 16      0 |  3   0    3    0    3 |
|                  |               0MiB / 24739MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
|  0   11   0   2  |            4197MiB /  9984MiB    | 16      0 |  1   0    1    0    1 |
|                  |               0MiB /  6184MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
|  0   13   0   3  |               9MiB /  9984MiB    | 16      0 |  1   0    1    0    1 |
|                  |               0MiB /  6184MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   11    0            10385      C   /tmp/loadgen                           4188MiB |
+-----------------------------------------------------------------------------------------+
"""


def test_table_shows_mig_devices(mig_host: Host) -> None:
    text, status = mig_host.smi()
    assert "\n".join(text.split("\n")[8:]) == TABLE
    assert status == 0


def test_table_shows_mig_mode_without_devices(make_host: MakeHost) -> None:
    host = make_host("h200")
    host.change(lambda state: state["gpus"][0].update(mig_mode={"current": True, "pending": True}))
    assert (
        "|==================+==================================+===========+=======================|\n"
        "|  No MIG devices found                                                                   |\n"
        "+-----------------------------------------------------------------------------------------+\n"
    ) in host.smi()[0]


def test_document_shows_mig_devices(mig_host: Host) -> None:
    gpus = ET.fromstring(mig_host.smi("-q", "-x")[0]).findall("gpu")
    assert (gpus[1].findtext("mig_devices") or "").strip() == "None"
    devices = gpus[0].findall("mig_devices/mig_device")
    reported = [
        tuple(
            device.findtext(path)
            for path in (
                "index",
                "gpu_instance_id",
                "compute_instance_id",
                "device_attributes/shared/multiprocessor_count",
                "fb_memory_usage/total",
                "bar1_memory_usage/total",
            )
        )
        for device in devices
    ]
    assert reported == [
        ("0", "1", "0", "32", "40448 MiB", "24739 MiB"),
        ("1", "1", "1", "16", "40448 MiB", "24739 MiB"),
        ("2", "11", "0", "16", "9984 MiB", "6184 MiB"),
        ("3", "13", "0", "16", "9984 MiB", "6184 MiB"),
    ]
    assert gpus[0].findtext("utilization/gpu_util") == "N/A"
    assert gpus[0].findtext("remapped_rows") == "N/A"
    info = gpus[0].find("processes/process_info")
    assert info is not None
    assert {child.tag: child.text for child in info} == {
        "gpu_instance_id": "11",
        "compute_instance_id": "0",
        "pid": "10385",
        "type": "C",
        "process_name": "/tmp/loadgen",
        "used_memory": "4188 MiB",
    }


def test_csv_in_mig_mode(mig_host: Host) -> None:
    fields = "utilization.gpu,remapped_rows.pending,remapped_rows.histogram.max,mig.mode.current"
    assert mig_host.smi(f"--query-gpu={fields}", "--format=csv,noheader") == (
        "[N/A], [N/A], 2560, Enabled\n0 %, No, 2560, Disabled\n",
        0,
    )
    assert mig_host.smi("--query-compute-apps=pid,name,used_memory", "--format=csv") == (
        "pid, process_name, used_gpu_memory [MiB]\n10385, /tmp/loadgen, 4188 MiB\n",
        0,
    )


def test_bar1_of_a_mig_device_under_an_old_driver(make_host: MakeHost) -> None:
    host = make_host("a30", driver="535.261.03")

    def change(state: Any) -> None:
        state["gpus"][0]["mig_mode"] = {"current": True, "pending": True}
        state["gpus"][0]["gpu_instances"] = [instance(3, 14, 0, 1, (0, 0, 0, 1))]

    host.change(change)
    assert (
        "|                  |               0MiB /  8191MiB  |           |                       |\n" in host.smi()[0]
    )


def test_nvlink_states_nothing_in_mig_mode(mig_host: Host) -> None:
    lines = mig_host.smi("nvlink", "-s")[0].splitlines()
    assert lines[1] == "Nvlink queries are not supported for Devices in MIG mode"
    assert lines[3] == "\t Link 0: 26.562 GB/s"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/usr/bin/python3", "/usr/bin/python3                       "),
        ("/usr/libexec/b/gnome-remote-desktop-daemon", "...b/gnome-remote-desktop-daemon       "),
    ],
)
def test_table_keeps_the_end_of_a_long_process_name(name: str, shown: str, make_host: MakeHost) -> None:
    host = make_host("t4")
    host.change(lambda state: state["gpus"][0]["processes"].append(process(name=name, type="C+G", used_memory_mib=410)))
    assert f"|    0   N/A  N/A           10385    C+G   {shown} 410MiB |\n" in host.smi()[0]


def test_table_shortens_a_long_product_name(make_host: MakeHost) -> None:
    assert "|   0  NVIDIA RTX PRO 6000 Blac...    On  |" in make_host("rtx_pro_6000_blackwell").smi()[0]


def test_graphics_processes_are_no_compute_apps(make_host: MakeHost) -> None:
    host = make_host("l40s")
    host.change(lambda state: state["gpus"][0]["processes"].append(process(type="G")))
    assert host.smi("--query-compute-apps=pid", "--format=csv,noheader") == ("", 0)


def test_clients_of_mps_are_shown_as_on_a_real_host(make_host: MakeHost) -> None:
    """What driver 580.159.04 printed on an H200 for two clients and their server."""
    clients = [process(pid=pid, name="probe", type="M+C", used_memory_mib=528) for pid in (20025, 20026)]
    server = process(pid=20030, name="nvidia-cuda-mps-server", used_memory_mib=66)
    host = make_host("h200")
    host.change(lambda state: state["gpus"][0]["processes"].extend([*clients, server]))
    rows = (
        "|    0   N/A  N/A           20025    M+C   probe                                   528MiB |",
        "|    0   N/A  N/A           20026    M+C   probe                                   528MiB |",
        "|    0   N/A  N/A           20030      C   nvidia-cuda-mps-server                   66MiB |",
    )
    assert "\n".join(rows) in host.smi()[0]
    listed = host.smi("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader")[0].splitlines()
    assert {*listed} == {"20030, nvidia-cuda-mps-server, 66 MiB", "20026, probe, 528 MiB", "20025, probe, 528 MiB"}
    monitored = host.smi("pmon", "-c", "1")[0].splitlines()
    assert [line[:22] for line in monitored if "probe" in line] == ["    0      20025   M+C", "    0      20026   M+C"]


def test_pending_modes(make_host: MakeHost) -> None:
    host = make_host("a100_40gb")

    def change(state: Any) -> None:
        state["gpus"][0].update(
            mig_mode={"current": False, "pending": True}, ecc_mode={"current": True, "pending": False}
        )

    host.change(change)
    fields = "mig.mode.current,mig.mode.pending,ecc.mode.current,ecc.mode.pending"
    assert host.smi(f"--query-gpu={fields}", "--format=csv,noheader") == ("Disabled, Enabled, Enabled, Disabled\n", 0)
    assert (
        "|                                         |                        |            Disabled* |\n" in host.smi()[0]
    )


@pytest.mark.parametrize(
    ("model", "on", "off"),
    [("t4", "15360 MiB, 14908 MiB", "16384 MiB, 15932 MiB"), ("l40s", "46068 MiB, 45472 MiB", "49140 MiB, 48520 MiB")],
)
def test_memory_grows_without_ecc(model: str, on: str, off: str, make_host: MakeHost) -> None:
    host = make_host(model)
    query = ("--query-gpu=memory.total,memory.free", "--format=csv,noheader")
    assert host.smi(*query) == (on + "\n", 0)
    host.change(lambda state: state["gpus"][0].update(ecc_mode={"current": False, "pending": False}))
    assert host.smi(*query) == (off + "\n", 0)
    assert "Off |\n| N/A" in host.smi()[0]
    assert host.smi("--query-gpu=ecc.errors.corrected.volatile.total", "--format=csv,noheader") == ("[N/A]\n", 0)


def test_a_gpu_without_ecc_and_mig(make_host: MakeHost) -> None:
    host = make_host("geforce_rtx_3080")
    fields = "ecc.mode.current,mig.mode.current,serial,clocks.applications.graphics"
    assert host.smi(f"--query-gpu={fields}", "--format=csv,noheader") == ("[N/A], [N/A], [N/A], [N/A]\n", 0)
    lines = host.smi()[0].splitlines()
    assert lines[8].endswith(" N/A |")
    assert lines[10].endswith(" N/A |")


def test_failed_readings(make_host: MakeHost) -> None:
    host = make_host("t4")

    def change(state: Any) -> None:
        failed = ("fan_speed", "gpu_power_readings/power_draw")
        state["gpus"][0]["overrides"] = dict.fromkeys(failed, "Unknown Error")

    host.change(change)
    assert "|ERR!   40C    P8            ERR! /   70W |" in host.smi()[0]
    assert host.smi("--query-gpu=fan.speed", "--format=csv,noheader") == ("[Unknown Error]\n", 0)
    assert "    Fan Speed                                          : Unknown Error\n" in host.smi("-q")[0]


def test_lost_gpu(make_host: MakeHost) -> None:
    host = make_host("a100_40gb", "a100_40gb")
    host.change(lambda state: state["gpus"][1].update(health="lost"))
    lost = "GPU is lost.  Reboot the system to recover this GPU\n\n\n"
    text, status = host.smi("-L")
    assert (text.splitlines()[0][:29], status) == ("GPU 0: NVIDIA A100-SXM4-40GB ", 15)
    assert text.endswith(f"Unable to determine the device handle for gpu 1: {lost}")
    for arguments in (("-q", "-x"), ("--query-gpu=index,name", "--format=csv"), ("-q",), ()):
        assert host.smi(*arguments) == (f"Unable to determine the device handle for GPU1: {lost}", 15)
    assert host.smi("--query-gpu=index", "--format=csv,noheader", "-i", "0") == ("0\n", 0)


def test_inforom_warning_follows_the_table(make_host: MakeHost) -> None:
    host = make_host("v100")
    host.change(lambda state: state["gpus"][0].update(health="inforom"))
    text, status = host.smi()
    assert (text.splitlines()[-1], status) == ("WARNING: infoROM is corrupted at gpu 0000:06:00.0", 14)
    assert host.smi("-q", "-x")[1] == 0


NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)


@pytest.mark.parametrize("arguments", [(), ("-L",), ("-q", "-x"), ("--version",), ("mig", "-lgip"), ("--nonsense",)])
def test_no_driver_and_wrong_driver(arguments: tuple[str, ...], make_host: MakeHost) -> None:
    host = make_host("h200")
    host.change(lambda state: state["driver"].update(loaded=None))
    assert host.smi(*arguments) == (NO_DRIVER, 9)
    host.change(lambda state: state["driver"].update(loaded="550.163.01"))
    mismatch = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.159\n"
    assert host.smi(*arguments) == (mismatch, 18)


def test_help_needs_no_driver(make_host: MakeHost) -> None:
    host = make_host("h200")
    host.change(lambda state: state["driver"].update(loaded=None))
    text, status = host.smi("-h")
    assert (text.splitlines()[0], status) == ("NVIDIA System Management Interface -- v580.159.04", 0)


def test_no_gpu(make_host: MakeHost) -> None:
    host = make_host()
    assert host.smi("-L") == ("No devices found.\n", 0)
    for arguments in ((), ("-q",), ("-q", "-x"), ("--query-gpu=index", "--format=csv"), ("mig", "-lgi")):
        assert host.smi(*arguments) == ("No devices were found\n", 6)


def test_ecc_counters(make_host: MakeHost) -> None:
    host = make_host("a100_40gb", "v100", "t4")

    def change(state: Any) -> None:
        for gpu in state["gpus"]:
            gpu["ecc_errors"]["volatile"].update(
                sram_uncorrectable_parity=1, sram_uncorrectable_secded=2, dram_correctable=5
            )

    host.change(change)
    gpus = ET.fromstring(host.smi("-q", "-x")[0]).findall("gpu")
    path = "ecc_errors/volatile/"
    assert [gpus[0].findtext(path + name) for name in ("sram_uncorrectable_secded", "dram_correctable")] == ["2", "5"]
    assert gpus[2].findtext(path + "sram_uncorrectable") == "3"
    old = ("single_bit/device_memory", "single_bit/total", "double_bit/register_file", "double_bit/cbu")
    assert [gpus[1].findtext(path + name) for name in old] == ["5", "5", "3", "0"]
    volatile = "ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total"
    assert host.smi(f"--query-gpu={volatile}", "--format=csv,noheader") == ("5, 3\n5, 3\n5, 3\n", 0)
    assert [line[-4:-2].strip() for line in host.smi()[0].splitlines()[8:20:4]] == ["3", "3", "3"]


def test_retired_pages(make_host: MakeHost) -> None:
    host = make_host("v100")
    page = {"address": "0x000000000044e99d", "cause": "double", "timestamp": "Wed Aug 21 23:34:06 2019"}
    host.change(lambda state: state["gpus"][0]["retired_pages"].append(page))
    fields = "retired_pages.address,retired_pages.cause"
    assert host.smi(f"--query-retired-pages={fields}", "--format=csv,noheader") == (
        "0x000000000044e99d, Double Bit ECC\n",
        0,
    )
    retired = ET.fromstring(host.smi("-q", "-x")[0]).find("gpu/retired_pages/double_bit_retirement")
    assert retired is not None
    assert retired.findtext("retired_count") == "1"
    assert retired.findtext("retired_pagelist/retired_page/retired_page_timestamp") == "Wed Aug 21 23:34:06 2019"


def test_clocks_and_limits_that_were_set(make_host: MakeHost) -> None:
    host = make_host("h200")
    host.change(
        lambda state: state["gpus"][0].update(
            power_limit_w=500.0,
            locked_gpu_clocks=[900, 1200],
            applications_clocks=[2201, 1500],
            compute_mode="Prohibited",
        )
    )
    fields = "power.limit,clocks.gr,clocks.applications.mem,clocks.default_applications.mem,compute_mode"
    assert host.smi(f"--query-gpu={fields}", "--format=csv,noheader") == (
        "500.00 W, 900 MHz, 2201 MHz, 3201 MHz, Prohibited\n",
        0,
    )


def test_output_goes_to_a_file(make_host: MakeHost) -> None:
    host = make_host("t4")
    file = Path(host.root, "out")
    assert host.smi("--query-gpu=index", "--format=csv,noheader", "-f", str(file)) == ("", 0)
    assert file.read_text() == "0\n"


def test_loop(make_host: MakeHost) -> None:
    host = make_host("t4")
    # A job in the background of a shell ignores the interrupt of a terminal, and so do its children.
    foreground = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{foreground}; import sys; from gpu_simulator import cli; sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--query-gpu=index", "--format=csv", "-lms", "20"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "GPU_SIMULATOR_ROOT": host.root}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert [running.stdout.readline() for _unused in range(4)] == ["index\n", "0\n", "0\n", "0\n"]
        # Python loses an interrupt that arrives in a finalizer: a user presses Ctrl+C again.
        while running.poll() is None:
            running.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(20)
        assert running.returncode == 130


def test_a_reader_that_stops_reading(make_host: MakeHost) -> None:
    host = make_host("h200", "h200", "h200", "h200")
    code = "import sys; from gpu_simulator import cli; sys.exit(cli.main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "GPU_SIMULATOR_ROOT": host.root}
    with subprocess.Popen(
        [sys.executable, "-c", code, "-q", "-x"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert (running.stderr.read(), running.wait(600)) == (b"", 141)
