# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gres.conf and the node line from facts, and what real versions of slurmd print about them."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Ask, Plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.slurm_gres import PLANNER, Device, GresPlan, gres_errors

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = [path.name for path in sorted(FIXTURES.iterdir()) if path.is_dir()]
MINORS = "config 1\nmonitor 2\n" + "".join(
    f"gpu1/gi{gi}/{path} {number + offset}\n"
    for gi, number in ((2, 21), (3, 30), (4, 39))
    for offset, path in enumerate(("access", "ci0/access"))
)
H200 = {"name": "NVIDIA H200", "mig_mode_current": "disabled", "mig_devices": []}
MIG = {"profile": "1g.18gb", "compute_instance_id": 0}


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    """A GPU of the facts."""
    return {**H200, "index": index, "minor_number": index, **changes}


def split(index: int, *instances: Any, profile: str = "1g.18gb") -> dict[str, Any]:
    """A GPU with these GPU instances, each of one MIG device."""
    devices = [{**MIG, "gpu_instance_id": number, "profile": profile} for number in instances]
    return gpu(index, mig_mode_current="enabled", mig_devices=devices)


def near(*affinities: Any) -> list[dict[str, Any]]:
    """The topology of GPUs next to these CPUs."""
    return [{"label": f"GPU{index}", "cpu_affinity": cpus} for index, cpus in enumerate(affinities)]


def cpus(*rows: tuple[int, int]) -> str:
    """What lscpu prints for CPUs of these cores and sockets."""
    return "# CPU,Core,Socket\n" + "".join(f"{cpu},{core},{socket}\n" for cpu, (core, socket) in enumerate(rows))


def planned(release: str = "24.11.5", detection: str = "explicit", **given: Any) -> dict[str, Any]:
    """The plan of a node."""
    request = {"node": "gpu1", "detection": detection, "types": {}, "node_parameters": {}, "directory": ""}
    found = {
        "gpus": [gpu(0), split(1, 2, 3)],
        "topology": near("0", "0-1"),
        "mig_minors": MINORS,
        "cpus": cpus((0, 0), (1, 0)),
        "hardware": (FIXTURES / release / "hardware.txt").read_text(),
        "version": (FIXTURES / release / "version.txt").read_text(),
    }
    assert given.keys() <= request.keys() | found.keys()
    variables = {f"slurm_gres_{name}": given.get(name, value) for name, value in request.items()}
    read = {name: given.get(name, value) for name, value in found.items()}
    printed = zip(PLANNER.needs(variables).commands, (read["hardware"], read["version"], read["cpus"]), strict=False)
    readings = {"commands": [{"argv": [*argv], "stdout": text} for argv, text in printed]}
    facts = {"nvidia_smi": {"gpus": read["gpus"], "topology": read["topology"]}}
    variables |= {"slurm_gres_file": "/etc/slurm/gres.conf", "slurm_gres_mig_minors": "/proc/mig-minors"}
    missing = {"failed": True, "msg": "File not found: /etc/slurm/gres.conf"}
    files = {"results": [missing, {"content": base64.b64encode(read["mig_minors"].encode()).decode()}]}
    return stage("plan", {"readings": readings, "gpus": {}, "files": files}, variables, facts)


def stage(
    name: str, found: dict[str, Any], variables: dict[str, Any] | None = None, facts: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What tasks register, or would without its refusals."""
    plan = PLANNER.stages[name](variables or {}, facts or {}, found)
    assert isinstance(plan, Plan)
    return plan.as_dict()


def slurm_gres_errors(plan: dict[str, Any], output: str) -> list[str]:
    """What slurmd reads differently."""
    devices = tuple(Device(one["type"], tuple(one["files"]), one["cores"]) for one in plan["devices"])
    return gres_errors(GresPlan(plan["detection"], devices, plan["gres"]), output)


LINES = [
    "Name=gpu Type=nvidia_h200 File=/dev/nvidia0 Cores=0",
    *(
        "Name=gpu Type=nvidia_h200_1g.18gb MultipleFiles="
        f"/dev/nvidia1,/dev/nvidia-caps/nvidia-cap{number},/dev/nvidia-caps/nvidia-cap{number + 1}"
        for number in (21, 30)
    ),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_slurmd_reads_is_what_was_planned(version: str) -> None:
    plan = planned(version)
    assert plan["gres_conf"].splitlines()[1:] == ["AutoDetect=off", *LINES]
    assert plan["node_line"] == (
        "NodeName=gpu1 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=24105 "
        "Gres=gpu:nvidia_h200:1,gpu:nvidia_h200_1g.18gb:2"
    )
    assert plan["controller_restart"] is (version == "22.05.8")
    assert slurm_gres_errors(plan, (FIXTURES / version / "gres_mig.txt").read_text()) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("output", "detection", "message"),
    [
        ("gres_of_another_type", "explicit", "slurmd has no GPU instead of gpu:nvidia_h200:1,"),
        ("gres_without_a_file", "explicit", "fatal: can't stat gres.conf file /dev/nvidia9"),
        ("gres_with_a_core_that_is_missing", "explicit", "Invalid GRES data for gpu, Cores=0-7"),
        ("gres_nvml_without_library", "nvml", " nvml functionality, but "),
        ("gres_nvidia_without_gpus", "nvml", "slurmd has no GPU instead of gpu:nvidia_h200:1,gpu:nvidia_h200_1g"),
    ],
)
def test_what_slurmd_reads_differently_is_an_error(version: str, output: str, detection: str, message: str) -> None:
    errors = slurm_gres_errors(planned(version, detection), (FIXTURES / version / f"{output}.txt").read_text())
    assert message in "\n".join(errors)
    assert not re.search(r"cgroup|spool|^slurmd\S*:|^\[", "\n".join(errors), re.MULTILINE)


def wired(*rows: Any) -> list[dict[str, Any]]:
    """The topology of GPUs with these paths to each other."""
    return [
        {"label": f"GPU{one}", "links": {f"GPU{other}": path for other, path in enumerate(row) if other != one}}
        for one, row in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("gpus", "topology", "links"),
    [
        (2, wired(("X", "NV18"), ("NV18", "X")), ["-1,18", "18,-1"]),
        # An A100 of PCI Express: bridges between pairs.
        (
            4,
            wired(
                ("X", "NV12", "SYS", "SYS"),
                ("NV12", "X", "SYS", "SYS"),
                ("SYS", "SYS", "X", "NV12"),
                ("SYS", "SYS", "NV12", "X"),
            ),
            ["-1,12,0,0", "12,-1,0,0", "0,0,-1,12", "0,0,12,-1"],
        ),
        (2, wired(("X", "PIX"), ("PIX", "X")), ["", ""]),
        (1, wired(("X",)), [""]),
        # Nothing but numbers of links of what a host reports.
        (2, wired(("X", "NV1\nPartitionName=x"), ("NV9999", "X")), ["", ""]),
        (2, [{"label": "GPU0", "links": "NV18"}, {"label": "GPU1"}], ["", ""]),
    ],
)
def test_nvlinks_are_in_gres_conf(gpus: int, topology: list[dict[str, Any]], links: list[str]) -> None:
    lines = planned(gpus=[gpu(index) for index in range(gpus)], topology=topology)["gres_conf"].splitlines()[2:]
    assert [line.partition(" Links=")[2] for line in lines] == links


def test_mig_devices_have_no_links() -> None:
    topology = wired(("X", "NV18"), ("NV18", "X"))
    assert "Links" not in planned(gpus=[gpu(0), split(1, 2)], topology=topology)["gres_conf"]


def test_slurmd_prints_links_behind_the_cores() -> None:
    """As slurmd 22.05.8 of Debian 12 prints them."""
    plan = planned(gpus=[gpu(0), gpu(1)], topology=wired(("X", "NV18"), ("NV18", "X")))
    printed = "".join(
        f"slurmd-gpu1: Gres Name=gpu Type=nvidia_h200 Count=1 Index={index} File=/dev/nvidia{index} Links={links}\n"
        for index, links in enumerate(("-1,18", "18,-1"))
    )
    assert slurm_gres_errors(plan, printed) == []
    assert (
        "Links=x"
        in slurm_gres_errors(plan, "slurmd-gpu1: error: gres.conf: Ignoring invalid Links=x for Name=gpu\n")[1]
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_one_device_less_than_in_the_node_line_is_an_error(version: str) -> None:
    plan = planned(version, gpus=[gpu(0), split(1, 2, 3, 4)])
    errors = slurm_gres_errors(plan, (FIXTURES / version / "gres_of_too_few.txt").read_text())
    assert errors[0].endswith("instead of gpu:nvidia_h200:1,gpu:nvidia_h200_1g.18gb:3")


@pytest.mark.parametrize("detection", ["nvml", "explicit"])
def test_detected_devices_are_counted_by_type(detection: str) -> None:
    plan = planned(detection=detection, gpus=[gpu(0), gpu(1)], topology=[])
    lines = "".join(
        f"slurmd-gpu1: Gres Name=gpu Type=nvidia_h200 Count=1 Index={index} ID=7696487 File=/dev/nvidia{index} "
        f"Links=-1,4 Flags=HAS_FILE\n"
        for index in (0, 1)
    )
    assert slurm_gres_errors(plan, lines) == []
    assert slurm_gres_errors(plan, lines.splitlines()[0])
    # With cores that only the topology of NVML names.
    with_cores = lines.replace(" Links", " Cores=0 CoreCnt=2 Links")
    assert bool(slurm_gres_errors(plan, with_cores)) is (detection == "explicit")


def test_a_message_about_other_things_is_no_error() -> None:
    output = (FIXTURES / "24.11.5" / "gres_mig.txt").read_text()
    assert slurm_gres_errors(planned(), output + "slurmd-gpu1: error: cannot read cgroup.conf\n") == []


@pytest.mark.parametrize(
    ("rows", "hardware", "affinity", "cores"),
    [
        # Two sockets of two cores without hyper-threading.
        ([(0, 0), (1, 0), (2, 1), (3, 1)], "SocketsPerBoard=2 CoresPerSocket=2", "2-3", "2-3"),
        # CPUs that alternate between the sockets.
        ([(0, 0), (1, 1), (2, 0), (3, 1)], "SocketsPerBoard=2 CoresPerSocket=2", "0,2", "0-1"),
        ([(0, 0), (1, 1), (2, 0), (3, 1)], "SocketsPerBoard=2 CoresPerSocket=2", "1,3", "2-3"),
        # Two threads a core, the second ones numbered after all first ones.
        ([(0, 0), (1, 0), (2, 1), (3, 1)] * 2, "SocketsPerBoard=2 CoresPerSocket=2", "2-3,6-7", "2-3"),
        # Core numbers that begin again in each socket, as lscpu has on some machines.
        ([(0, 0), (1, 0), (0, 1), (1, 1)], "SocketsPerBoard=2 CoresPerSocket=2", "3", "3"),
        # All cores, none known, and another number of cores than slurmd counts.
        ([(0, 0), (1, 0)], "SocketsPerBoard=1 CoresPerSocket=2", "0-1", ""),
        ([(0, 0), (1, 0)], "SocketsPerBoard=1 CoresPerSocket=2", "", ""),
        ([(0, 0), (1, 0)], "SocketsPerBoard=1 CoresPerSocket=4", "0", ""),
    ],
)
def test_cores_are_numbered_as_slurm_does(
    rows: list[tuple[int, int]], hardware: str, affinity: str, cores: str
) -> None:
    plan = planned(
        gpus=[gpu(0)], topology=near(affinity), cpus=cpus(*rows), hardware=f"NodeName=x CPUs=4 {hardware}\nUpTime=1\n"
    )
    assert [device["cores"] for device in plan["devices"]] == [cores]


@pytest.mark.parametrize(
    ("gpus", "types", "gres"),
    [
        ([gpu(0, name="NVIDIA H100 80GB HBM3"), gpu(1)], {}, "gpu:nvidia_h100_80gb_hbm3:1,gpu:nvidia_h200:1"),
        ([gpu(0), gpu(1)], {"NVIDIA H200": "h200"}, "gpu:h200:2"),
        ([split(1, 2, profile="1g.18gb+me")], {"NVIDIA H200": "h200"}, "gpu:h200_1g.18gb.me:1"),
        ([split(1, 2, profile="1c.3g.71gb")], {}, "gpu:nvidia_h200_1c.3g.71gb:1"),
        # In MIG mode without an instance there is nothing to request.
        ([split(0), gpu(1)], {}, "gpu:nvidia_h200:1"),
        ([split(0)], {}, ""),
        ([], {}, ""),
    ],
)
def test_types_and_counts(gpus: list[dict[str, Any]], types: dict[str, str], gres: str) -> None:
    plan = planned(gpus=gpus, types=types)
    assert plan["gres"] == gres
    assert plan["node_line"].endswith(f" Gres={gres}" if gres else "RealMemory=24105")


def test_the_device_file_is_that_of_the_minor_number() -> None:
    plan = planned(gpus=[gpu(0, minor_number=3), gpu(1, minor_number=0)], topology=near("0", "1"))
    assert [(device["files"], device["cores"]) for device in plan["devices"]] == [
        (["/dev/nvidia3"], "0"),
        (["/dev/nvidia0"], "1"),
    ]


def test_parameters_of_the_site_replace_those_of_the_hardware() -> None:
    hardware = "NodeName=gpu1 CPUs=2 RealMemory=24105 Gres=gpu:old:4\nFound gpu:old:4 with Autodetect=nvml\nUpTime=1\n"
    plan = planned(gpus=[gpu(0)], hardware=hardware, node_parameters={"RealMemory": 20000, "Feature": "h200"})
    assert plan["node_line"] == "NodeName=gpu1 CPUs=2 RealMemory=20000 Gres=gpu:nvidia_h200:1 Feature=h200"


@pytest.mark.parametrize(
    "more",
    ["Prolog=/tmp/x", "State=DOWN", "NodeAddr=10.0.0.1", "Feature=a,b", "\\", "# ", "TaskProlog=/tmp/x \\"],
)
def test_only_what_slurmd_counts_enters_the_node_line(more: str) -> None:
    hardware = f"NodeName=gpu9 {more} CPUs=2 RealMemory=24105 {more}\nNodeName=gpu8 CPUs=1\n"
    plan = planned(gpus=[gpu(0)], hardware=hardware)
    assert plan["node_line"] == "NodeName=gpu1 CPUs=2 RealMemory=24105 Gres=gpu:nvidia_h200:1"


def test_a_long_output_of_slurmd_is_not_searched() -> None:
    """In a time that grows with the square of its length."""
    plan = planned(gpus=[gpu(0)], topology=[])
    errors = slurm_gres_errors(plan, "slurmd: Gres Name=gpu Type=x Count=1 " * 200_000)
    assert errors == ["slurmd has no GPU instead of gpu:nvidia_h200:1"]
    line = "slurmd: Gres Name=gpu Type=nvidia_h200 Count={} Index=0 File=/dev/nvidia0 Links=(null)\n"
    assert slurm_gres_errors(plan, line.format(1)) == []
    assert slurm_gres_errors(plan, line.format("9" * 5000)) != []


def test_the_file_changes_with_the_devices_also_where_slurmd_detects_them() -> None:
    before, after = (planned(detection="auto", gpus=[split(1, *instances)]) for instances in ((2,), (3,)))
    assert (before["detection"], before["gres"]) == ("nvml", after["gres"])
    assert before["gres_conf"] != after["gres_conf"]
    lines = [line for line in before["gres_conf"].splitlines() if not line.startswith("#")]
    assert lines == ["AutoDetect=nvml"]
    assert planned(detection="auto", gpus=[gpu(0)])["detection"] == "nvidia"


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"gpus": [gpu(0), gpu(1, error="GPU is lost")]}, "GPU 1 does not respond: GPU is lost"),
        ({"gpus": [gpu(0, minor_number=None)]}, "GPU 0 has no minor number"),
        ({"mig_minors": ""}, "GPU 1: the driver's list of minor numbers (slurm_gres_mig_minors) has no MIG device"),
        ({"detection": "nvidia"}, "AutoDetect=nvidia detects no MIG devices"),
        ({"detection": "nvidia", "gpus": [], "version": "slurm 23.11.4"}, "Slurm 23.11 has no AutoDetect=nvidia"),
        ({"hardware": "slurmd: error: no\n"}, "slurmd -C printed no node line: slurmd: error: no"),
        ({"version": ""}, "slurmd -V printed no version: nothing"),
        ({"directory": "opt/slurm"}, "slurm_gres_directory is opt/slurm, and has to be an absolute path"),
        (
            {"hardware": ""},
            "slurmd cannot be run; slurm_gres_directory has to name the directory of Slurm if it is not in PATH",
        ),
        ({"hardware": "", "directory": "/opt/x"}, "/opt/x/sbin/slurmd cannot be run; slurm_gres_directory has to name"),
        ({"node_parameters": {"Gres": "gpu:1"}}, "slurm_gres_node_parameters has Gres"),
        ({"node_parameters": {"Weight 1": "2"}}, "slurm_gres_node_parameters has Weight 1"),
        ({"node_parameters": {"Reason": "a b"}}, "the value of Reason has a space"),
        ({"node_parameters": {"Feature": "a\nNodeName=b"}}, "the value of Feature has a space"),
        ({"types": {"NVIDIA H200": "H200 x"}}, "slurm_gres_types: H200 x of NVIDIA H200"),
        ({"node_parameters": {"Feature": "a\\"}}, "the value of Feature has a character out of"),
        ({"node_parameters": {"Feature": "a#b"}}, "the value of Feature has a character out of"),
        ({"node": "gpu1 Feature=x"}, "slurm_gres_node is 'gpu1 Feature=x'; it takes the name of one node"),
        # What a host that lies can report.
        ({"hardware": "NodeName=x CPUs=2,RealMemory=1\n"}, "slurmd -C printed no node line: NodeName=x CPUs=2,"),
        ({"hardware": "NodeName=x CPUs=65536\n"}, "slurmd -C printed no node line: "),
        ({"hardware": f"NodeName=x CPUs={'9' * 5000}\n"}, "slurmd -C printed no node line: "),
        ({"hardware": "NodeName=x CPUs=\u0663\n"}, "slurmd -C printed no node line: NodeName=x CPUs="),
        ({"version": f"slurm {'9' * 5000}.{'9' * 5000}"}, "slurmd -V printed no version: slurm 9999"),
        ({"topology": near("0-99999999999")}, "'GPU0' has the CPU affinity '0-99999999999'; it takes CPUs up to 65535"),
        ({"topology": near("0-65536")}, "'GPU0' has the CPU affinity '0-65536'; it takes CPUs up to 65535"),
        ({"topology": near("0-9,0-9")}, "'GPU0' has the CPU affinity '0-9,0-9'; it takes CPUs up to 65535"),
        ({"topology": near(["0"])}, "'GPU0' has the CPU affinity no text; it takes"),
        ({"topology": {"GPU0": 1}}, "the facts of its GPUs are not a list of up to 256 GPUs"),
        ({"gpus": [gpu(0)] * 257}, "the facts of its GPUs are not a list of up to 256 GPUs"),
        ({"gpus": ["GPU 0"]}, "the facts of its GPUs are not a list of up to 256 GPUs"),
        ({"gpus": [gpu(0, minor_number="0\nNodeName=x")]}, "GPU 0 have the minor_number '0\\nNodeName=x'"),
        ({"gpus": [gpu(0, minor_number=10**30)]}, "the facts of GPU 0 have the minor_number 1000000"),
        ({"gpus": [{**gpu(0), "index": "0"}]}, "the facts of GPU 0 have the index '0'"),
        ({"gpus": [gpu(0, name="H200\x1b[2J")]}, "the facts of GPU 0 have the product name 'H200\\x1b[2J'"),
        ({"gpus": [gpu(0, name="H" * 10**6)]}, "the facts of GPU 0 have the product name 'HHHH"),
        (
            {"gpus": [split(1, 2, profile="1g.18gb File=/dev/sda")]},
            "GPU 0 have the MIG profile '1g.18gb File=/dev/sda'",
        ),
        ({"gpus": [split(1, "2/../../x")]}, "GPU 0 have the gpu_instance_id '2/../../x'"),
        ({"gpus": [split(1, *range(65))]}, "mig_devices that are not a list of up to 64 MIG devices"),
        ({"gpus": [gpu(0, error="lost\x1b[2J\n" * 1000)]}, "GPU 0 does not respond: lost [2J lost"),
    ],
)
def test_what_cannot_be_configured_is_refused(given: dict[str, Any], refusal: str) -> None:
    plan = planned(**given)
    assert any(text.startswith(refusal) or refusal in text for text in plan["refusals"]), plan["refusals"]
    assert not plan.get("gres_conf")


VARIABLES = {
    **{f"slurm_gres_{name}": value for name, value in (("node", "gpu1"), ("detection", "explicit"), ("directory", ""))},
    **{"slurm_gres_types": {}, "slurm_gres_node_parameters": {}, "slurm_gres_running_jobs": "refuse"},
    "slurm_gres_file": "/etc/slurm/gres.conf",
}
UNCHANGED = {
    "lines": [],
    "planned": {"previous": base64.b64encode(b"a").decode(), "gres_conf": "a"},
    "restart": {"reason": ""},
    "check_mode": True,
}
OTHER = {**UNCHANGED["planned"], "gres_conf": "b"}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("found", "steps", "hosts", "warnings"),
    [
        ({}, [], [], []),
        ({"planned": OTHER}, ["write_gres_conf"], [], []),
        ({"lines": [{"item": "gpu1", "msg": ""}]}, [], [], []),
        (
            {"lines": [{"item": "gpu1", "msg": ""}, {"item": "gpu2", "msg": "line added"}]},
            ["write_node_line"],
            ["gpu1", "gpu2"],
            [],
        ),
        (
            {
                "lines": [
                    {"item": "gpu1", "msg": "line added"},
                    {"item": "gpu2", "unreachable": True, "msg": "no route"},
                ]
            },
            ["write_node_line"],
            ["gpu1"],
            ["the node line is not written on gpu2; run this again once they are reachable"],
        ),
        # An interrupted run has written the file, and slurmd has not read it: jobs may run.
        ({"restart": {"reason": "slurmd.service was started before the last change"}}, ["restart_slurmd"], [], []),
    ],
)
def test_what_is_to_be_changed(found: dict[str, Any], steps: list[str], hosts: list[str], warnings: list[str]) -> None:
    plan = stage("changes", {**UNCHANGED, **found}, VARIABLES)
    assert (plan["steps"], plan["line_hosts"], plan["warnings"]) == (steps, hosts, warnings)
    assert plan["has_work"] is bool(steps) and len(plan["reasons"]) == len(steps)


def changes(found: dict[str, Any], **variables: Any) -> Any:
    """What the stage returns or asks for outside check mode."""
    given = {**UNCHANGED, "check_mode": False, **found}
    return PLANNER.stages["changes"]({**VARIABLES, **variables}, {}, given)


NO_JOBS = {"rc": 1, "stdout": ""}


def test_a_file_that_slurmd_does_not_take_is_refused() -> None:
    found = {"planned": {**planned("24.11.5"), "previous": None}, "jobs": NO_JOBS}
    asked = changes(found)
    assert isinstance(asked, Ask) and [*asked.readings] == ["read"]
    printed = {"rc": 0, "stderr": "", "stdout": (FIXTURES / "24.11.5" / "gres_mig.txt").read_text()}
    assert changes({**found, "read": printed}).steps == ("write_gres_conf",)
    for wrong in ({"stdout": ""}, {"rc": 1, "stderr": "no"}):
        (refusal,) = changes({**found, "read": {**printed, **wrong}}).refusals
        assert refusal.startswith("slurmd -G rejects the new /etc/slurm/gres.conf: ")


def test_slurmd_reads_the_new_files_next_to_each_other_and_nothing_is_left(tmp_path: Path) -> None:
    slurmd = tmp_path / "sbin" / "slurmd"
    slurmd.parent.mkdir()
    slurmd.write_text('#!/bin/sh\n[ "$1 $2 $3 $4" = "-G -N gpu1 -f" ] && cat "$5" "${5%/*}/gres.conf"\nexit 3\n')
    slurmd.chmod(0o755)
    (tmp_path / "scratch").mkdir()
    plan = {**planned("24.11.5"), "previous": None}
    asked = changes({"planned": plan, "jobs": NO_JOBS}, slurm_gres_directory=str(tmp_path))
    _module, arguments = asked.readings["read"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    done = subprocess.run(
        arguments["argv"], input=arguments["stdin"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, plan["slurm_conf"] + plan["gres_conf"])
    assert not [*(tmp_path / "scratch").iterdir()]


def test_jobs_are_looked_for_where_slurmd_would_be_restarted() -> None:
    restart = {"restart": {"reason": "slurmd.service was started before the last change"}}
    asked = changes(restart)
    assert isinstance(asked, Ask) and [*asked.readings] == ["jobs"]
    assert changes({**restart, "jobs": NO_JOBS}).steps == ("restart_slurmd",)
    assert changes(restart, slurm_gres_running_jobs="keep").steps == ("restart_slurmd",)
    assert changes({}).steps == ()
    running = {"rc": 0, "stdout": "41 slurmstepd: [7.batch]\n43 slurmstepd: [8.0]"}
    (refusal,) = changes({**restart, "jobs": running}).refusals
    assert "while jobs run (7.batch, 8.0); drain the node first" in refusal
    (refusal,) = changes({**restart, "jobs": {"rc": 127, "failed": True, "stderr": "env: pgrep: not found"}}).refusals
    assert refusal == "pgrep does not list the jobs of the node: env: pgrep: not found"


def test_a_file_that_cannot_be_read_is_not_replaced() -> None:
    variables = {**VARIABLES, "slurm_gres_mig_minors": "/proc/mig-minors"}
    asked = PLANNER.stages["plan"](variables, {}, {})
    assert isinstance(asked, Ask) and [*asked.readings] == ["gpus", "files"]
    wrong = {"failed": True, "msg": "File is not readable: /etc/slurm/gres.conf"}
    given = {"gpus": {}, "files": {"results": [wrong, {"content": ""}]}}
    (refusal,) = stage("plan", given, variables, {"nvidia_smi": {}})["refusals"]
    assert refusal == "/etc/slurm/gres.conf cannot be read: File is not readable: /etc/slurm/gres.conf"
