# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages of nvidia-smi, each produced on a simulated host."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from .hosts import Host, two_a100
from .reference import reference

MIG_ON = "-i 0 -mig 1"
SEVENTH = "00000000:07:00.0"
FIFTEENTH = "00000000:0F:00.0"


class Case(NamedTuple):
    """How to produce a message on a host of two GPUs, and the expected output and exit status."""

    kind: str
    command: str
    text: str
    status: int
    prepare: tuple[str, ...] = ()
    branch: int = 550
    model: str = "a100_40gb"
    root_user: bool = True
    virtualization: str = "None"


CASES = (
    Case("no_mig_enabled", "mig -lgi", "No MIG-enabled devices found.", 6, branch=535),
    Case("no_mig_enabled", "mig -lgi", "No MIG-enabled devices found.", 0),
    Case("no_mig_enabled", "mig -cgi 9 -C", "No MIG-enabled devices found.", 6, branch=535),
    Case("no_mig_enabled", "mig -cgi 9 -C", "No MIG-enabled devices found.", 0),
    Case("no_mig_enabled", "mig -cgi 9 -C", "No MIG-enabled devices found.", 0, branch=580),
    Case("no_mig_enabled", "mig -dci", "No MIG-enabled devices found.", 0, branch=610),
    Case("no_mig_supported", "mig -lgip", "No MIG-supported devices found.", 6, model="t4"),
    Case("no_mig_supported", "mig -cgi 9", "No MIG-supported devices found.", 6, model="l40s", branch=580),
    Case("no_mig_supported", "mig -lgip", "No MIG-enabled devices found.", 6, model="t4", branch=535),
    Case("lgip_not_enabled", "mig -lgip", "No MIG-enabled devices found.", 6, branch=535),
    Case("lgip_not_enabled", "mig -lgipp", "No MIG-enabled devices found.", 6, branch=535),
    *(
        Case("no_gi", f"mig {verb}", "No GPU instances found: Not Found", 6, (MIG_ON,), branch)
        for verb in ("-lgi", "-lci", "-lcip", "-lcipp", "-dci", "-dgi", "-cci")
        for branch in (535, 550, 580, 610, 615)
    ),
    Case("no_gi", "mig -lgi -gi 5", "No GPU instances found: Not Found", 6, (MIG_ON, "mig -cgi 9")),
    Case("no_ci", "mig -lci", "No compute instances found: Not Found", 6, (MIG_ON, "mig -cgi 9")),
    Case("no_ci", "mig -dci", "No compute instances found: Not Found", 6, (MIG_ON, "mig -cgi 9")),
    Case(
        "perm_list",
        "mig -lgi",
        "Failed to display GPU instances: Insufficient Permissions",
        4,
        (MIG_ON,),
        root_user=False,
    ),
    Case("perm_list_ci", "mig -lci", "No GPU instances found: Insufficient Permissions", 4, (MIG_ON,), root_user=False),
    Case(
        "created_gi",
        "mig -cgi 9",
        "Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.20gb (ID  9)",
        0,
        (MIG_ON,),
    ),
    *(
        Case(
            "created_ci",
            command,
            "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  2 "
            "using profile MIG 3g.20gb (ID  2)",
            0,
            prepare,
        )
        for command, prepare in (
            ("mig -cgi 9 -C", (MIG_ON,)),
            ("mig -cci", (MIG_ON, "mig -cgi 9")),
            ("mig -cci 2 -gi 2", (MIG_ON, "mig -cgi 9")),
            ("mig -cci 3g.20gb", (MIG_ON, "mig -cgi 9")),
        )
    ),
    Case(
        "insufficient",
        "mig -cgi 19,19,14,9",
        "Unable to create a GPU instance on GPU  0 using profile 9: Insufficient Resources\n"
        "Failed to create GPU instances: Insufficient Resources",
        23,
        (MIG_ON, "mig -cgi 19:0"),
    ),
    Case(
        "in_use_create",
        "mig -cgi 14 -C",
        "Unable to create a GPU instance on GPU  0 using profile 14: In use by another client\n"
        "Failed to create GPU instances: In use by another client",
        19,
        (MIG_ON, "!busy"),
    ),
    Case(
        "ci_fail_after_gi",
        "mig -cgi 9,9 -C",
        "Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.20gb (ID  9)\n"
        "Unable to create a compute instance on GPU  0 GPU instance ID  2 using profile default: Unknown Error\n"
        "Failed to create GPU instances: Unknown Error",
        255,
        (MIG_ON, "!fault compute-instance --times 1"),
    ),
    *(
        Case(
            "bad_profile",
            f"mig -cgi {name}",
            f"Unable to create a GPU instance on GPU  0 using profile {name}: Invalid Argument\n"
            "Failed to create GPU instances: Invalid Argument",
            2,
            (MIG_ON,),
        )
        for name in ("99", "1g.99gb", "3G.20GB")
    ),
    Case(
        "bad_placement_syntax",
        "mig -cgi :3",
        "Unable to create a GPU instace on GPU  0 using profile :3: invalid placement syntax\n"
        "Failed to create GPU instances: Invalid Argument",
        2,
        (MIG_ON,),
    ),
    Case(
        "dci_ok",
        "mig -dci",
        "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  7",
        0,
        (MIG_ON, "mig -cgi 19:0 -C"),
    ),
    Case("dgi_ok", "mig -dgi", "Successfully destroyed GPU instance ID  7 from GPU  0", 0, (MIG_ON, "mig -cgi 19:0")),
    Case(
        "dgi_in_use",
        "mig -dgi",
        "Unable to destroy GPU instance ID  3 from GPU  0: In use by another client\n"
        "Failed to destroy GPU instances: In use by another client",
        19,
        (MIG_ON, "mig -cgi 14:0 -C"),
    ),
    Case(
        "dci_in_use",
        "mig -dci",
        "Unable to destroy compute instance ID  0 from GPU  0 GPU instance ID  3: In use by another client\n"
        "Failed to destroy compute instances: In use by another client",
        19,
        (MIG_ON, "mig -cgi 14:0 -C", "!busy --gpu-instance 3"),
    ),
    Case("mode_on", MIG_ON, f"Enabled MIG Mode for GPU {SEVENTH}\nAll done.", 0, ("-pm 1",)),
    Case("mode_on", MIG_ON, f"Enabled MIG Mode for GPU {SEVENTH}\nAll done.", 0, ("-pm 1", MIG_ON)),
    Case("mode_on", MIG_ON, f"Enabled MIG Mode for GPU {SEVENTH}\nAll done.", 0, ("-pm 1",), model="h100_80gb"),
    Case("mode_off", "-i 0 -mig 0", f"Disabled MIG Mode for GPU {SEVENTH}\nAll done.", 0, ("-pm 1", MIG_ON)),
    *(
        Case(
            "pm_warning",
            command,
            f"\n\nWarning: persistence mode is disabled on device {SEVENTH}. See the Known Issues section of the "
            "nvidia-smi(1) man page for more information. Run with [--help | -h] switch to get more information on how "
            "to enable persistence mode.\nAll done.",
            0,
        )
        for command in (
            MIG_ON,
            "-i 0 -pl 300",
            "-i 0 -lgc 300,900",
            "-i 0 -ac 1215,1410",
            "-i 0 -am 1",
            "-i 0 -lmc 1215",
        )
    ),
    Case(
        "mode_pending_in_use",
        MIG_ON,
        f"Warning: MIG mode is in pending enable state for GPU {SEVENTH}:In use by another client\n"
        f"{SEVENTH} is currently being used by one or more other processes (e.g. CUDA application or a monitoring "
        "application such as another instance of nvidia-smi). Please first kill all processes using the device and "
        "retry the command or reboot the system to make MIG mode effective.\nAll done.",
        0,
        ("!busy",),
    ),
    Case(
        "mode_pending_vm",
        MIG_ON,
        f"Warning: MIG mode is in pending enable state for GPU {SEVENTH}:Not Supported\n"
        f"Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU {SEVENTH}\nAll done.",
        0,
        virtualization="Pass-Through",
    ),
    *(
        Case(
            "mode_unsupported",
            MIG_ON,
            f"Unable to enable MIG Mode for GPU {SEVENTH}: Not Supported\n"
            "Treating as warning and moving on.\nAll done.",
            0,
            model=model,
        )
        for model in ("t4", "l40s", "v100")
    ),
    Case(
        "mode_error",
        "-i 1 -mig 1",
        f"Unable to enable MIG Mode for GPU {FIFTEENTH}: In use by another client\n"
        "Terminating early due to previous errors.",
        19,
        ("!busy --gpu 1",),
        model="h100_80gb",
    ),
    Case(
        "ecc_set", "-i 0 -e 0", f"Disabled ECC support for GPU {SEVENTH}.\nAll done.\nReboot required.", 0, model="t4"
    ),
    Case("ecc_already", "-i 0 -e 1", f"ECC support is already Enabled for GPU {SEVENTH}.\nAll done.", 0),
    Case(
        "ecc_already", "-i 0 -e 0", f"ECC support is already Disabled for GPU {SEVENTH}.\nAll done.", 0, ("-i 0 -e 0",)
    ),
    Case(
        "ecc_unsupported",
        "-i 0 -e 1",
        f"ECC features not supported for GPU {SEVENTH}.\nTreating as warning and moving on.\nAll done.",
        0,
        model="geforce_rtx_3080",
    ),
    Case(
        "ecc_denied",
        "-i 1 -e 0",
        f"Unable to set ECC config for GPU {FIFTEENTH}: Insufficient Permissions\n"
        "Terminating early due to previous errors.",
        4,
        root_user=False,
    ),
    Case("ecc_bad_value", "-e 2", "Invalid ECC configuration code: 2\nTerminating early due to previous errors.", 2),
    Case("ecc_clear", "-i 0 -p 0", f"Reset volatile ECC errors to zero for GPU {SEVENTH}.\nAll done.", 0),
    Case(
        "two_settings",
        "-i 0 -pm 1 -e 0",
        "Invalid combination of input arguments. Only one device modification may be done at a time.",
        2,
    ),
    Case(
        "two_settings",
        "-i 0 -eow -e 1",
        "Invalid combination of input arguments. Only one device modification may be done at a time.",
        2,
        branch=535,
    ),
    Case("pm_set", "-pm 1", f"Enabled persistence mode for GPU {FIFTEENTH}.\nAll done.", 0),
    Case("pm_already", "-pm 1", f"Persistence mode is already Enabled for GPU {FIFTEENTH}.\nAll done.", 0, ("-pm 1",)),
    Case(
        "pl_set",
        "-i 0 -pl 250",
        f"Power limit for GPU {SEVENTH} was set to 250.00 W from 250.00 W.\nAll done.",
        0,
        ("-pm 1", "-pl 250"),
    ),
    Case(
        "pl_range",
        "-i 0 -pl 50",
        "Provided power limit 50.00 W is not a valid power limit which should be between 100.00 W and 400.00 W "
        f"for GPU {SEVENTH}\nTerminating early due to previous errors.",
        2,
    ),
    Case("cm_set", "-i 0 -c 3", f"Set compute mode to EXCLUSIVE_PROCESS for GPU {SEVENTH}.\nAll done.", 0),
    Case(
        "cm_already",
        "-i 0 -c 3",
        f"Compute mode is already set to EXCLUSIVE_PROCESS for GPU {SEVENTH}.\nAll done.",
        0,
        ("-c EXCLUSIVE_PROCESS",),
    ),
    Case(
        "lgc_set",
        "-i 0 -lgc 1000,1200",
        f'GPU clocks set to "(gpuClkMin 1000, gpuClkMax 1200)" for GPU {SEVENTH}\nAll done.',
        0,
        ("-pm 1",),
    ),
    Case("reset_ok", "-r -i 0", f"GPU {SEVENTH} was successfully reset.\nAll done.", 0),
    Case(
        "reset_in_use",
        "-r",
        f"The following GPUs could not be reset:\n  GPU {FIFTEENTH}: In use by another client",
        255,
        ("!busy --gpu 1",),
    ),
    Case(
        "reset_unsupported",
        "--gpu-reset",
        f"Resetting GPU {SEVENTH} is not supported.",
        3,
        virtualization="Pass-Through",
    ),
    *(
        Case("no_device", command, "No devices were found", 6, (MIG_ON,))
        for command in (
            "-i 9 -pm 1",
            "mig -i 9 -lgi",
            "mig -cgi 9 -i 9",
            "-i GPU-a0000009-4d4f-434b-8000-000000000009 -q",
            "-i MIG-8a1c778a-3905-5cdf-8ece-a9b2a68d0027 -q",
        )
    ),
)

NOT_REPRODUCED = {
    "created_ci_old": "the text of early R450; the oldest branch here is 535",
    "placement_unsupported": "R450 knew no explicit places; the oldest branch here is 535",
    "reset_nvlink": "needs to know which GPUs hang on one NVSwitch without Fabric Manager",
}

OF_THE_DRIVER = ("no_driver", "mismatch")
"""Kinds that need a host without a working driver; they have their own tests."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.command} ({case.branch}, {case.model})")
def test_message(case: Case, tmp_path: Path) -> None:
    text, status = result(case, tmp_path)
    assert case.text in text
    assert status == case.status


def result(case: Case, directory: Path) -> tuple[str, int]:
    gpus = [{"model": case.model, "bus_id": SEVENTH}, {"model": case.model, "bus_id": FIFTEENTH}]
    host = Host(directory, case.branch, gpus, virtualization=case.virtualization, persistence_mode=False)
    host.prepare(*case.prepare)
    return host.smi(case.command, case.root_user)


@pytest.mark.parametrize("command", ["", "-L", "-q -x", "mig -lgip", "-i 0 -mig 1"])
def test_without_a_driver_everything_exits_9(command: str, tmp_path: Path) -> None:
    host = two_a100(tmp_path, 550)
    host.driver(None)
    expected = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running.\n\n"
    )
    assert host.smi(command) == (expected, 9)


def test_another_driver_than_the_libraries_exits_18_until_the_reboot(tmp_path: Path) -> None:
    host = two_a100(tmp_path, 550)
    host.driver("550.54.15")
    expected = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.163\n"
    assert host.smi("-i 0 -mig 1") == (expected, 18)


class Known(NamedTuple):
    """One entry of the reference's list of messages."""

    kind: str
    text: str
    status: dict[str, int] | int | None


def known_messages() -> list[Known]:
    entries = json.loads(reference("mig/messages.json", otherwise="[]"))
    return [Known(entry["kind"], entry["text"], entry["rc"]) for entry in entries]


def same(text: str) -> str:
    """Mask bus IDs and profile names, to compare messages about different GPUs."""
    return re.sub(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0|3G\.20GB|1g\.99gb", "BUS", text)


def test_every_known_message_is_reproduced(capsys: pytest.CaptureFixture[str]) -> None:
    """Compare the messages and statuses above with the reference's list, entry by entry, and print the count."""
    known = known_messages()
    reproduced = 0
    for entry in known:
        if entry.kind in NOT_REPRODUCED:
            continue
        if entry.kind in OF_THE_DRIVER:
            reproduced += 1
            continue
        cases = [case for case in CASES if case.kind == entry.kind and same(entry.text) in same(case.text)]
        assert cases, f"no case for {entry.kind}: {entry.text}"
        for case in cases:
            expected = status_of(entry, case.branch)
            assert expected in (None, case.status), entry.kind
        reproduced += 1
    kinds = {case.kind for case in CASES} | set(OF_THE_DRIVER) | set(NOT_REPRODUCED)
    assert not known or kinds == {entry.kind for entry in known}
    assert reproduced == len(known) - sum(entry.kind in NOT_REPRODUCED for entry in known)
    with capsys.disabled():
        total = len(known) or len(kinds)
        print(f"\n{total - len(NOT_REPRODUCED)} of {total} known kinds of messages reproduced; not:")
        for kind, reason in NOT_REPRODUCED.items():
            print(f"  {kind}: {reason}")


def status_of(entry: Known, branch: int) -> int | None:
    """The exit status that the reference has for a branch; None if unknown."""
    if not isinstance(entry.status, dict):
        return entry.status
    for span, status in entry.status.items():
        first, _unused, last = span.partition("-")
        if int(first) <= branch <= int(last or first):
            return status
    return None
