# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command sequences with the output of nvidia-smi: a shipped one, and whole transcripts if they are available.

The transcripts come from nvidia-smi's own argument handling and messages, on a model of the driver library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.recordings.recording import load

from .hosts import Host, two_a100
from .reference import DIRECTORY

H200X8 = load("h200x8-580.159.04")


class Step(NamedTuple):
    """One command with the expected output and exit status."""

    command: str
    text: str
    status: int = 0


GPU_INSTANCES = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.5gb          19        9          2:1     |
+-------------------------------------------------------+
|   0  MIG 1g.5gb          19       10          3:1     |
+-------------------------------------------------------+
|   0  MIG 2g.10gb         14        3          0:2     |
+-------------------------------------------------------+
|   0  MIG 3g.20gb          9        2          4:4     |
+-------------------------------------------------------+
"""

GPU_INSTANCES_WIDE = """\
+---------------------------------------------------------+
| GPU instances:                                          |
| GPU   Name               Profile  Instance   Placement  |
|                            ID       ID       Start:Size |
|=========================================================|
|   0  MIG 1g.5gb            19        9          2:1     |
+---------------------------------------------------------+
|   0  MIG 1g.5gb            19       10          3:1     |
+---------------------------------------------------------+
|   0  MIG 2g.10gb           14        3          0:2     |
+---------------------------------------------------------+
|   0  MIG 3g.20gb            9        2          4:4     |
+---------------------------------------------------------+
"""

COMPUTE_INSTANCES = """\
+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   0      9       MIG 1g.5gb           0         0          0:1     |
+--------------------------------------------------------------------+
|   0     10       MIG 1g.5gb           0         0          0:1     |
+--------------------------------------------------------------------+
|   0      3       MIG 2g.10gb          1         0          0:2     |
+--------------------------------------------------------------------+
|   0      2       MIG 3g.20gb          2         0          0:3     |
+--------------------------------------------------------------------+
"""

CREATED = """\
Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.20gb (ID  9)
Successfully created compute instance ID  0 on GPU  0 GPU instance ID  2 using profile MIG 3g.20gb (ID  2)
Successfully created GPU instance ID  3 on GPU  0 using profile MIG 2g.10gb (ID 14)
Successfully created compute instance ID  0 on GPU  0 GPU instance ID  3 using profile MIG 2g.10gb (ID  1)
Successfully created GPU instance ID  9 on GPU  0 using profile MIG 1g.5gb (ID 19)
Successfully created compute instance ID  0 on GPU  0 GPU instance ID  9 using profile MIG 1g.5gb (ID  0)
Successfully created GPU instance ID 10 on GPU  0 using profile MIG 1g.5gb (ID 19)
Successfully created compute instance ID  0 on GPU  0 GPU instance ID 10 using profile MIG 1g.5gb (ID  0)
"""

PLACEMENTS = """\
GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID 20 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID 15 Placements: {0,2,4,6}:2
GPU  0 Profile ID 14 Placements: {0,2,4}:2
GPU  0 Profile ID  9 Placements: {0,4}:4
GPU  0 Profile ID  5 Placement : {0}:4
GPU  0 Profile ID  0 Placement : {0}:8
"""


def story(branch: int) -> list[Step]:
    """The life cycle of MIG on one A100 with a driver branch."""
    none_enabled = Step("mig -i 1 -lgi", "No MIG-enabled devices found.\n", 6 if branch < 550 else 0)
    return [
        none_enabled,
        Step("-i 0 -pm 1", "Enabled persistence mode for GPU 00000000:07:00.0.\nAll done.\n"),
        Step("-i 0 -mig 1", "Enabled MIG Mode for GPU 00000000:07:00.0\nAll done.\n"),
        Step("mig -lgipp -i 0", PLACEMENTS),
        Step("mig -i 0 -lgi", "No GPU instances found: Not Found\n", 6),
        Step("mig -i 0 -cgi 9,14,19,19 -C", CREATED),
        Step("mig -lgi", GPU_INSTANCES if branch < 575 else GPU_INSTANCES_WIDE),
        Step("mig -lci", COMPUTE_INSTANCES),
        Step(
            "mig -i 0 -cgi 9 -C",
            "Unable to create a GPU instance on GPU  0 using profile 9: Insufficient Resources\n"
            "Failed to create GPU instances: Insufficient Resources\n",
            23,
        ),
        Step(
            "mig -dgi -gi 2",
            "Unable to destroy GPU instance ID  2 from GPU  0: In use by another client\n"
            "Failed to destroy GPU instances: In use by another client\n",
            19,
        ),
        Step(
            "mig -dci -gi 2 -ci 0",
            "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  2\n",
        ),
        Step("mig -dgi -gi 2", "Successfully destroyed GPU instance ID  2 from GPU  0\n"),
        Step(
            "mig -dci",
            "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID 10\n"
            "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  9\n"
            "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  3\n",
        ),
        Step(
            "mig -dgi",
            "Successfully destroyed GPU instance ID 10 from GPU  0\n"
            "Successfully destroyed GPU instance ID  9 from GPU  0\n"
            "Successfully destroyed GPU instance ID  3 from GPU  0\n",
        ),
        Step(
            "mig -cgi 3g.20gb:0",
            "Successfully created GPU instance ID  1 on GPU  0 using profile MIG 3g.20gb (ID  9)\n",
        ),
        Step(
            "mig -cgi 14:2",
            "Unable to create a GPU instance on GPU  0 using profile 14:2: Insufficient Resources\n"
            "Failed to create GPU instances: Insufficient Resources\n",
            23,
        ),
        Step(
            "mig -cgi 019:x,19:-1,19:",
            "Successfully created GPU instance ID 13 on GPU  0 using profile MIG 1g.5gb (ID 19)\n"
            "Successfully created GPU instance ID 11 on GPU  0 using profile MIG 1g.5gb (ID 19)\n"
            "Successfully created GPU instance ID 12 on GPU  0 using profile MIG 1g.5gb (ID 19)\n",
        ),
        Step("mig --create-gpu-instance=", ""),
        Step(
            "mig -cci 0,1c.3g.20gb -gi 1",
            "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  1 "
            "using profile MIG 1c.3g.20gb (ID  0)\n"
            "Successfully created compute instance ID  1 on GPU  0 GPU instance ID  1 "
            "using profile MIG 1c.3g.20gb (ID  0)\n",
        ),
        Step(
            "mig -cci 1 -gi 1",
            "Unable to create a compute instance on GPU  0 GPU instance ID  1 using profile 1: Insufficient Resources\n"
            "Failed to create compute instances: Insufficient Resources\n",
            23,
        ),
        Step("mig -lcipp -gi 11", "GPU  0 GI 11 Profile ID  0 Placement : {0}:1\n"),
        Step("-i 0 -mig 2", "Invalid MIG Mode: 2\nTerminating early due to previous errors.\n", 2),
        Step("mig -i 7 -lgi", "No devices were found\n", 6),
        Step("mig --nonsense", 'Option "--nonsense" is not recognized.\n', 2),
    ]


@pytest.mark.parametrize("branch", [535, 550, 580, 610, 615])
def test_the_life_of_mig(branch: int, tmp_path: Path) -> None:
    host = two_a100(tmp_path, branch)
    for step in story(branch):
        assert host.smi(step.command) == (step.text, step.status), step.command


EXCEPTIONS = {
    **{
        (f"set-{branch}.txt", branch, command, 0): reason
        for branch in ("535", "550")
        for command, reason in (
            ("topo -m", "the model library has no NVLink between its GPUs, a host with two A100-SXM4 has"),
            ("nvlink -s", "the model library has no NVLink, an A100-SXM4 has"),
        )
    },
    ("faults.txt", "535", "-L", 18): "the library that the transcript names is not the one of its nvidia-smi",
    ("faults.txt", "550", "(as an ordinary user) -r -i 1", 0): "a reset needs root; the model library let it pass",
    ("faults.txt", "535", "(as an ordinary user) -r -i 1", 0): "a reset needs root; the model library let it pass",
    ("faults.txt", "550", "(as an ordinary user) mig -lgip", 141): "cut by the reader of the transcript",
    ("faults.txt", "535", "(as an ordinary user) mig -lgip", 0): "cut by the reader of the transcript",
}
"""Commands of the transcripts that are not reproduced: (file, branch, command, exit status) -> reason."""


class Line(NamedTuple):
    """One command of a transcript with the host that it runs on."""

    file: str
    branch: str
    command: str
    text: str
    status: int
    host: Host


def test_the_transcripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduced, differing = 0, []
    for line in lines(tmp_path):
        command = line.command.replace("(as an ordinary user) ", "")
        found, status = line.host.smi(command, root_user=command == line.command)
        if (without_mig_uuids(found), status) == (without_mig_uuids(line.text), line.status):
            reproduced += 1
        else:
            differing.append((line.file, line.branch, line.command, line.status))
    total = reproduced + len(differing)
    with capsys.disabled():
        print(f"\n{reproduced} of {total} commands of the transcripts reproduced (MIG UUIDs masked); not:")
        for name in differing:
            print("  {} ({}) {} [{}]: {}".format(*name, EXCEPTIONS.get(name, "UNEXPLAINED")))
    assert set(differing) == (set(EXCEPTIONS) if DIRECTORY.is_dir() else set())


def without_mig_uuids(text: str) -> str:
    """Mask MIG UUIDs, which the model library computes differently."""
    return re.sub(r"MIG-[0-9a-f]{8}-[0-9a-f-]{27}", "MIG-...", text)


def commands(text: str) -> Iterator[tuple[str, str, int]]:
    """Split a transcript into command, output and exit status."""
    for found in re.finditer(r"^\$ (.*)\n((?:.*\n)*?)\[rc=(\d+)\]$", text, re.MULTILINE):
        yield re.sub(r"^nvidia-smi ?", "", found.group(1)), found.group(2), int(found.group(3))


def lines(directory: Path) -> Iterator[Line]:
    """Read every transcript, with a host for each; the shipped one if the directory does not exist."""
    transcripts = DIRECTORY / "nvidia-smi-transcripts"
    for path in sorted(transcripts.glob("*-5[35][05].txt")):
        branch = path.stem[-3:]
        host = two_a100(directory / path.stem, int(branch))
        for command, text, status in commands(path.read_text(encoding="utf-8")):
            yield Line(path.name, branch, command, text, status, host)
    if transcripts.is_dir():
        yield from fault_lines(directory, (transcripts / "faults.txt").read_text(encoding="utf-8"))
        return
    for number in (535, 550):
        host = two_a100(directory / str(number), number)
        for step in story(number):
            yield Line("shipped", str(number), step.command, step.text, step.status, host)


def fault_lines(directory: Path, transcript: str) -> Iterator[Line]:
    """Read the transcript of faults: sections by branch and fault, each on its own host."""
    for half in re.split(r"^#+ (?=(?:driver )?\d{3}$)", transcript, flags=re.MULTILINE)[1:]:
        branch = half.splitlines()[0][-3:]
        for number, section in enumerate(half.split("\n--- ")[1:]):
            title = section.splitlines()[0]
            host = two_a100(directory / f"faults-{branch}-{number}", int(branch))
            breaks = BROKEN[title](host)
            for command, text, status in commands(section):
                next(breaks, None)
                yield Line("faults.txt", branch, command, text, status, host)


def arm(*errors: str, operation: str, before: str = "") -> Callable[[Host], Iterator[None]]:
    """Fail a driver operation with a different error for each command."""

    def steps(host: Host) -> Iterator[None]:
        host.prepare(*filter(None, [before]))
        for error in errors:
            host.control("fault", "driver", operation, "--error", error, "--times", "1")
            yield

    return steps


def once(change: Callable[[Host], object]) -> Callable[[Host], Iterator[None]]:
    """Break a host once, before its first command."""

    def steps(host: Host) -> Iterator[None]:
        change(host)
        yield

    return steps


BROKEN = {
    "no state file": once(lambda host: host.driver(None)),
    "version mismatch at init": once(lambda host: host.driver("550.54.15")),
    "no GPUs": once(Host.hide_gpus),
    "SetMigMode faults": arm(
        "in_use",
        "no_permission",
        "not_supported",
        "unknown",
        "gpu_is_lost",
        "invalid_argument",
        operation="set_mig_mode",
    ),
    "SetEcc fault 3,4": arm("not_supported", "no_permission", "unknown", operation="set_ecc_mode"),
    "Create faults": arm(
        "insufficient_resources",
        "insufficient_memory",
        "not_supported",
        "no_permission",
        "unknown",
        "invalid_argument",
        operation="create_gpu_instance",
        before="-i 0 -mig 1",
    ),
    "CI fault once after GI made": arm("unknown", operation="create_compute_instance", before="-i 0 -mig 1"),
    "lost gpu": once(lambda host: host.control("fault", "lost", "--gpu", "1")),
    "non-root": once(lambda host: host.prepare("-i 0 -mig 1", "-i 1 -pm 1")),
}


SAMPLES = (
    ("real-r535/a30-lgip.txt", "a30", 535, ("-mig 1",), "mig -lgip"),
    ("real-r535/a30-lgipp.txt", "a30", 535, ("-mig 1",), "mig -lgipp"),
    ("real-r535/a30-lgi-empty.txt", "a30", 535, ("-mig 1",), "mig -lgi"),
    ("real-r535/a30-cgi-14.txt", "a30", 535, ("-mig 1",), "mig -cgi 14 -C"),
    ("real-r535/a30-cgi-5.txt", "a30", 535, ("-mig 1", "mig -cgi 14,14"), "mig -cgi 5 -C"),
    ("real-r535/a30-lgi-3.txt", "a30", 535, ("-mig 1", "mig -cgi 14,14,5"), "mig -lgi"),
    ("real-r535/a30-lcip-gi2.txt", "a30", 535, ("-mig 1", "mig -cgi 14,14,5 -C"), "mig -lcip -gi 2"),
    ("real-r580/h100-default-20260729/mig-profiles.txt", "h100_80gb", 580, (), "mig -lgip"),
    ("real-r580/h100-default-20260729/mig-gi.txt", "h100_80gb", 580, (), "mig -lgi"),
    ("real-r580/h100-default-20260729/mig-ci.txt", "h100_80gb", 580, (), "mig -lci"),
    *(
        (f"real-r580/h100-mig-20260729/{name}", "h100_80gb", 580, ("-mig 1", "mig -cgi 19,19 -C"), command)
        for name, command in (
            ("mig-profiles.txt", "mig -lgip"),
            ("mig-gi.txt", "mig -lgi"),
            ("mig-ci.txt", "mig -lci"),
        )
    ),
    ("real-r580/rtx-pro-6000-maxq-lgip.txt", "rtx_pro_6000_blackwell", 580, (), "mig -lgip"),
)
"""Outputs of real GPUs: file, model, branch, preceding commands, command."""


def test_what_real_gpus_printed(tmp_path: Path) -> None:
    h200 = Host(tmp_path / "h200", gpus=[{"model": "h200", "count": 8}])
    for verb in ("lgip", "lgipp", "lgi", "lci", "lcip"):
        for command in (f"mig -{verb}", f"mig -{verb} -i 0"):
            assert h200.smi(command) == (H200X8.output(command), 0)
    directory = DIRECTORY / "mig" / "samples"
    for number, (name, model, branch, before, command) in enumerate(SAMPLES if directory.is_dir() else ()):
        host = Host(tmp_path / str(number), branch, [{"model": model}])
        host.prepare(*before)
        assert host.smi(command)[0] == (directory / name).read_text(encoding="utf-8"), name
