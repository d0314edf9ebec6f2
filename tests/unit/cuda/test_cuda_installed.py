# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role cuda decides while it installs: files, removals, records, and what does not work afterwards."""

from __future__ import annotations

import os
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Ask, Plan, Reading, command
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import PLANNERS
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.cuda.plan import TABLES, Host, unneeded_packages

from tests.unit.cuda.test_cuda_plan import CUDA_TABLES, DEBIAN, EL, ROLES, UBUNTU, _load, cuda

RUNFILES = {version: {"url": "https://mirror.example.com/cuda.run", "sha256": "A" * 64} for version in ("12.9", "13.0")}
OF_RUNFILES: dict[str, Any] = {"cuda_source": "runfile", "cuda_runfiles": RUNFILES, "cuda_versions": ["12.9", "13.0"]}
DRIVER = {"library_version": "580.178.04", "loaded_version": "580.178.04", "library_path": None, "loaded": True}
NAMES = {"profile": "/etc/profile.d/cuda.sh", "loader": "/etc/ld.so.conf.d/gpu-fleet-cuda.conf"}
CACHE = "\tlibcudart.so.{0} (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.{0}\n"
OF_HOST = [{"version": "13.0.2"}]
COMPONENTS = "/etc/apt/sources.list.d/gpu-fleet-cuda-non-free.sources"
OF_13 = {"cuda_versions": ["13.0"]}
LOCK = "cuda-toolkit-config-common-0:12.9.*"


def stage(
    name: str,
    found: dict[str, Any],
    system: dict[str, str] = DEBIAN,
    record: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    **variables: Any,
) -> Any:
    """What a stage returns, as the tasks get it."""
    of_host = {"driver": DRIVER, "alternatives": {}, "toolkits": []}
    known = {**system, "gpu_fleet_managed": {"cuda": record} if record else {}, "cuda": of_host, **(facts or {})}
    given = {**_load("cuda", "defaults"), **variables, TABLES: CUDA_TABLES}
    result = PLANNERS["cuda"].stages[name](given, known, found)
    if isinstance(result, Ask):
        return result
    assert isinstance(result, Plan)
    return list(result.refusals) or result.as_dict()


def verified(
    plan: dict[str, Any],
    system: dict[str, str] = DEBIAN,
    facts: dict[str, Any] | None = None,
    read: dict[str, Any] | None = None,
    **variables: Any,
) -> Any:
    """What the stage verify returns for a host whose compilers work, unless `read` has other readings."""
    given = {"compilers": plan["compilers"], "forward": plan["forward"], "files": plan["record"]["files"]}
    asked = stage("verify", given, system, facts=facts, **variables)
    assert isinstance(asked, Ask) and asked.readings["cache"] == command("ldconfig", "-p")
    versions = [one["version"] for one in plan["compilers"]]
    results = {
        "toolkits": {},
        "cache": {"stdout": "".join(map(CACHE.format, ("12", "13")))},
        "reported": {"results": [{"stdout": f"release {version}, V{version}"} for version in versions]},
        "programs": {"results": [{"stdout": version} for version in versions]},
    }
    toolkits = {"cuda": {"driver": DRIVER, "alternatives": {}, "toolkits": [{"version": one} for one in versions]}}
    assert results.keys() == asked.readings.keys()
    return stage(
        "verify", {**given, **results, **(read or {})}, system, facts={**toolkits, **(facts or {})}, **variables
    )


def removal(
    found: dict[str, Any], system: dict[str, str], record: dict[str, Any], packages: Any, **variables: Any
) -> Any:
    """Which installed packages go; the stage asks for them first."""
    found = {"which": "obsolete", **found}
    asked = stage("removal", found, system, record, **variables)
    assert asked.readings == {"packages": ("gpu.fleet.host_facts", {"gather": ["packages"]})}
    return stage("removal", {**found, "packages": {}}, system, record, {"packages": packages}, **variables)


def recorded(drift: tuple[str, ...] = (), **data: Any) -> dict[str, Any]:
    """A record of the last run, with paths that have changed since."""
    found = [{"name": name, "message": f"{name} is missing"} for name in drift]
    return {"inputs": "", "drift": found, "data": {"source": "cuda_repository", "versions": [], "packages": [], **data}}


@pytest.mark.parametrize("system", [DEBIAN, EL])
@pytest.mark.parametrize("variables", [{}, OF_RUNFILES])
def test_tasks_read_what_the_plan_has(system: dict[str, str], variables: dict[str, Any]) -> None:
    plan = cuda({}, system, **variables)
    known = {
        "plan": {**plan, "variables": dict.fromkeys(PLANNERS["cuda"].reads)},
        "verified": verified(plan, system, **variables),
        "packages": removal({"obsolete": plan["obsolete"]}, system, {}, [], **variables),
        "runfile": cuda({}, system, **OF_RUNFILES)["runfiles"][0],
    }
    files = [path.read_text() for path in (ROLES / "cuda" / "tasks").iterdir()]
    read = {found for text in files for found in re.findall(rf"__cuda_({'|'.join(known)})((?:[.][a-z0-9_]+)+)", text)}
    assert len(read) > 50
    for name, path in read:
        value = known[name]
        for part in path[1:].split("."):
            value = value[part]


def test_the_link_is_recorded_with_the_alternative_that_it_has() -> None:
    plan = cuda({}, DEBIAN)
    assert "/etc/alternatives/cuda" not in verified(plan)["files"]
    facts = {"cuda": {"driver": DRIVER, "alternatives": {"cuda": "/usr/local/cuda-13.0"}, "toolkits": OF_HOST}}
    assert "/etc/alternatives/cuda" in verified(plan, facts=facts)["files"]


@pytest.mark.parametrize(
    ("system", "variables", "found", "files"),
    [
        (
            DEBIAN,
            {"cuda_profile": False, "cuda_environment_d": True, "cuda_components": ["libraries"], **OF_13},
            {},
            {
                NAMES["loader"],
                "/etc/environment.d/50-gpu-fleet-cuda.conf",
                "/etc/apt/preferences.d/gpu-fleet-cuda",
                "/usr/local/cuda",
                "/usr/local/cuda-13.0",
                "/usr/local/cuda-13.0/lib64",
            },
        ),
        (
            EL,
            {"cuda_components": ["compiler"], **OF_13},
            {"forward": ["13.0"]},
            {
                *NAMES.values(),
                "/proc/driver/nvidia/version",
                "/usr/local/cuda",
                *(f"/usr/local/cuda-13.0{end}" for end in ("", "/bin", "/lib64")),
            },
        ),
        (
            DEBIAN,
            OF_RUNFILES,
            {},
            {
                *NAMES.values(),
                "/usr/local/cuda",
                *(f"/usr/local/cuda-{v}{end}" for v in RUNFILES for end in ("", "/bin", "/lib64", "/bin/nvcc")),
            },
        ),
        (DEBIAN, {"cuda_source": "distribution"}, {"components": {COMPONENTS: True}}, {COMPONENTS}),
        (DEBIAN, {"cuda_source": "distribution"}, {"components": {COMPONENTS: False}}, set()),
    ],
)
def test_the_files_that_a_later_run_compares(
    system: dict[str, str], variables: dict[str, Any], found: dict[str, Any], files: set[str]
) -> None:
    plan = {**cuda(found, system, **variables), **({"forward": found["forward"]} if "forward" in found else {})}
    assert {*verified(plan, system, **variables)["files"]} == files
    assert {*plan["stale_files"]} == {*plan["files"]} - files


def test_the_loader_searches_the_default_first_and_compatibility_before_it() -> None:
    older = {"driver": "570.133.20", "gpus": [{"name": "NVIDIA H100 80GB HBM3", "device_id": "0x2330"}]}
    variables = {"cuda_versions": ["12.8", "12.9", "13.0"], "cuda_default": "12.8", "cuda_forward_compatibility": True}
    assert cuda(older, DEBIAN, **variables)["loader"].splitlines()[1:] == [
        "/usr/local/cuda-13.0/compat",
        "/usr/local/cuda/lib64",
        "/usr/local/cuda-13.0/lib64",
        "/usr/local/cuda-12.9/lib64",
    ]


OF_12_9 = ["cuda-toolkit-12-9", "cuda-nvcc-12-9", "cuda-toolkit-12-9-config-common"]
OTHERS = ["cuda-toolkit-13-0", "cuda-toolkit-config-common", "cudnn9-cuda-12-9", "libcudnn9-cuda-12-9"]
INSTALLED: dict[str, Any] = {name: [{}] for name in (*OF_12_9, *OTHERS, "cuda-compat-13-0", "nano")}


@pytest.mark.parametrize(
    ("variables", "data", "packages"),
    [
        ({}, {"versions": ["12.9", "13.0"], "packages": ["cuda-toolkit-12-9", "cuda-toolkit-13-0"]}, OF_12_9),
        ({}, {"versions": ["13.0"], "packages": ["cuda-toolkit-13-0", "cuda-compat-13-0"]}, ["cuda-compat-13-0"]),
        ({}, {"versions": ["13.0"], "packages": ["cuda-toolkit-13-0"]}, []),
        ({"cuda_state": "absent"}, {"versions": ["12.9"]}, [*OF_12_9, "cuda-toolkit-config-common"]),
        # Its packages do not end in the version, and those that do are not of it.
        (
            {},
            {"source": "distribution", "versions": ["12.9"], "packages": ["nano"]},
            ["cuda-toolkit-config-common", "nano"],
        ),
    ],
)
def test_the_packages_of_what_is_no_longer_requested_go(
    variables: dict[str, Any], data: dict[str, Any], packages: list[str]
) -> None:
    record = recorded(**data)
    obsolete = cuda({"record": record}, DEBIAN, **variables)["obsolete"]
    assert removal({"obsolete": obsolete}, DEBIAN, record, INSTALLED, **variables)["removed"] == packages


@pytest.mark.parametrize(
    ("system", "simulation", "command"),
    [
        (
            DEBIAN,
            {"stdout_lines": ["Reading...", "Remv libcublas-12-9 [1]", "Purg libpci3 [1]", "Remv nano [1]"]},
            ["apt-get", "--yes", "--reinstall", "install"],
        ),
        (
            EL,
            {
                "results": [
                    "Removed: libcublas-12-9-12.9.1-1.x86_64",
                    "Removed: libpci3-1-1.x86_64",
                    "Removed: nano-1-1.x86_64",
                ]
            },
            ["dnf", "--assumeyes", "reinstall"],
        ),
    ],
)
def test_of_unneeded_packages_those_of_toolkits_go_and_damaged_ones_come_again(
    system: dict[str, str], simulation: dict[str, Any], command: list[str]
) -> None:
    record = recorded(("/usr/local/cuda-12.9/bin", "/usr/local/cuda-11.8", NAMES["profile"]), dependencies=["libpci3"])
    known = {"record": record, "installed": INSTALLED}
    assert cuda(known, system, cuda_versions=["12.9", "13.0"])["reinstallation"] == [*command, *OF_12_9]
    found = {"which": "unneeded"}
    manager = "apt" if system is DEBIAN else "dnf"
    asked = stage("removal", found, system, record)
    assert asked.readings == {"simulation": (manager, {"autoremove": True})}
    host = Host.of({**system, "gpu_fleet_managed": {"cuda": record}})
    assert unneeded_packages(host, simulation).tasks["removed"] == ["libcublas-12-9", "libpci3"]
    failed = stage("removal", {**found, "simulation": {"failed": True, "msg": "E: locked"}}, system, record)
    assert failed == [f"{manager} does not list the packages that are no longer needed: E: locked"]


def test_what_is_recorded_before_and_after_the_installation() -> None:
    record = recorded(versions=["12.9"], packages=["cuda-toolkit-12-9"], version_lock=LOCK, dependencies=["libpci3"])
    plan = cuda({"record": record}, EL)
    data = {
        "source": "cuda_repository",
        "versions": ["13.0"],
        "packages": ["cuda-toolkit-13-0"],
        "runfiles": {},
        "version_lock": LOCK.replace("12.9", "13.0"),
        "dependencies": ["libpci3"],
    }
    both = {"versions": ["12.9", "13.0"], "packages": ["cuda-toolkit-12-9", "cuda-toolkit-13-0"], "version_lock": LOCK}
    assert (plan["record"]["data"], plan["record"]["intended"]) == (data, {**data, **both})
    assert plan["pins"] == [{"packages": "cuda-toolkit-config-common", "version": "13.0.*"}]
    assert plan["record"]["lines"] == {"/etc/dnf/plugins/versionlock.list": [LOCK.replace("12.9", "13.0")]}
    assert plan["record"]["packages"][1:] == [
        *("gcc-c++", "cuda-toolkit-config-common", "python3-dnf-plugin-versionlock")
    ]
    assert plan["obsolete"]["version_locks"] == [LOCK]
    assert cuda({"record": record}, EL, cuda_versions=["12.9"])["obsolete"]["version_locks"] == []
    assert cuda({"record": record}, DEBIAN)["record"]["lines"] == {}


def test_what_comes_with_the_toolkit_of_the_distribution_is_recorded_before_it_comes() -> None:
    lines = ["Inst nvidia-cuda-toolkit (12.4 Debian [amd64])", "Inst libcupti12 (12.4 Debian [amd64])"]
    record = recorded(source="distribution", versions=["12.4"], dependencies=["libpci3"])
    known = {"offered": "", "simulation": {"rc": 0, "stdout_lines": lines}, "record": record}
    plan = cuda(known, DEBIAN, cuda_source="distribution")
    expected = ["libpci3", "nvidia-cuda-toolkit", "libcupti12"]
    assert plan["record"]["data"]["dependencies"] == plan["record"]["intended"]["dependencies"] == expected


def test_a_damaged_runfile_is_installed_again_and_an_intact_one_stays() -> None:
    both = dict.fromkeys(RUNFILES, "a" * 64)
    data: dict[str, Any] = {"source": "runfile", "versions": ["12.9", "13.0"], "runfiles": both}
    (damaged,) = cuda({"record": recorded(("/usr/local/cuda-12.9/bin/nvcc",), **data)}, DEBIAN, **OF_RUNFILES)[
        "runfiles"
    ]
    assert damaged == {
        "version": "12.9",
        "directory": "/usr/local/cuda-12.9",
        "sha256": "a" * 64,
        "source": "https://mirror.example.com/cuda.run",
        "is_ours": True,
    }
    plan = cuda({"record": recorded(("/usr/local/cuda-12.9/bin/nvcc",), **data)}, DEBIAN, **OF_RUNFILES)
    assert plan["record"]["intended"]["runfiles"] == {"13.0": "a" * 64}
    assert [one["is_ours"] for one in cuda({}, DEBIAN, **OF_RUNFILES)["runfiles"]] == [False, False]
    gone = cuda({"record": recorded(**data)}, DEBIAN)
    assert (gone["removes_first"], gone["obsolete"]["installer"]) == (True, "runfile")
    assert {"/usr/local/cuda-12.9", "/usr/local/cuda-13.0.work", "/var/log/cuda-installer.log"} <= {
        *gone["obsolete"]["files"]
    }


def test_a_password_in_the_address_of_a_runfile_is_not_in_the_plan() -> None:
    runfile = {"url": "https://ops:hunter2@mirror.example.com/cuda.run", "sha256": "0" * 64}
    assert "hunter2" not in str(cuda({}, DEBIAN, cuda_source="runfile", cuda_runfiles={"13.0": runfile}))


@pytest.mark.parametrize(
    ("variables", "would"),
    [
        ({}, "install cuda-toolkit-13-0 and remove 12.9, cuda-toolkit-12-9"),
        ({"cuda_versions": ["12.9"]}, "install cuda-toolkit-12-9"),
        ({"cuda_state": "absent"}, "remove the CUDA toolkits 12.9"),
        (OF_RUNFILES, "install /usr/local/cuda-12.9, /usr/local/cuda-13.0 and remove 12.9, cuda-toolkit-12-9"),
    ],
)
def test_check_mode_has_what_comes_and_goes(variables: dict[str, Any], would: str) -> None:
    record = recorded(versions=["12.9"], packages=["cuda-toolkit-12-9"])
    assert cuda({"record": record}, UBUNTU, **variables)["would"] == would


NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0"
BROKEN = {"failed": True, "rc": 1, "msg": "non-zero return code", "stderr": "nvcc fatal: no host compiler\n"}


@pytest.mark.parametrize(
    ("version", "reported", "program", "refusal"),
    [
        ("13.0", {"stdout": NVCC}, {"stdout": "13.0"}, ""),
        ("13.0", {"stdout": NVCC}, {"stdout": "13.1"}, ""),
        ("13.0", {"stdout": NVCC}, {"stdout": "12.9"}, "runs with CUDA 12.9"),
        ("12.9", {"stdout": NVCC}, {"stdout": "12.9"}, "/bin/nvcc reports Build cuda_13.0.r13.0, and a program"),
        ("13.0", {"stdout": NVCC}, BROKEN, "does not work: nvcc fatal: no host compiler"),
        ("13.0", {"failed": True, "rc": 127, "stderr": "env: no such file"}, BROKEN, "does not work: env: no such"),
    ],
)
def test_a_compiler_that_does_not_work_is_refused(
    version: str, reported: dict[str, Any], program: dict[str, Any], refusal: str
) -> None:
    variables: dict[str, Any] = {"cuda_versions": [version]}
    read = {"reported": {"results": [reported]}, "programs": {"results": [program]}}
    found = verified(cuda({}, DEBIAN, **variables), read=read, **variables)
    if not refusal:
        assert "files" in found
        return
    (text,) = found
    assert text.startswith(f"CUDA {version} is installed and does not work: ") and refusal in text


def test_the_program_is_compiled_and_run_with_the_compiler_alone_and_leaves_nothing(tmp_path: Path) -> None:
    asked = stage("verify", {"compilers": [{"nvcc": str(tmp_path / "nvcc"), "version": "13.0"}]})
    ((_module, arguments),) = asked.readings["programs"]
    (tmp_path / "nvcc").write_text(
        '#!/bin/sh\n[ "$1 $2 $3" = "-cudart shared -o" ] || exit 2\necho "nvcc warning"\n'
        'grep -q cudaRuntimeGetVersion "$5" && echo "echo 13.0" >"$4" && chmod 755 "$4"\n'
    )
    (tmp_path / "nvcc").chmod(0o755)
    (tmp_path / "scratch").mkdir()
    run = partial(subprocess.run, arguments["argv"], input=arguments["stdin"], capture_output=True, text=True)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    assert run(env=environment, check=True).stdout == "13.0\n"
    (tmp_path / "nvcc").write_text("#!/bin/sh\nexit 3\n")
    assert run(env=environment, check=False).returncode == 3
    assert not [*(tmp_path / "scratch").iterdir()]


@pytest.mark.parametrize(
    ("variables", "cache", "toolkits", "words"),
    [
        ({}, CACHE.format("13"), ["13.0.2"], []),
        ({}, "", ["13.0.2"], ["the loader does not find libcudart.so.13; see `ldconfig -p`"]),
        ({}, CACHE.format("13"), ["12.9.1"], ["CUDA 13.0 was installed, and gpu.fleet.cuda_facts finds only 12.9.1"]),
        ({}, "", [], ["libcudart.so.13", "finds only no toolkit"]),
        ({"cuda_versions": ["12.9", "13.0"]}, CACHE.format("13"), ["12.9.1", "13.0.2"], ["libcudart.so.12"]),
        ({"cuda_components": ["libraries"]}, CACHE.format("13"), [], []),
        ({"cuda_components": ["profilers"]}, "", [], []),
        ({"cuda_source": "distribution"}, "", ["12.4.131"], []),
    ],
)
def test_what_loader_and_facts_do_not_find_is_refused(
    variables: dict[str, Any], cache: str, toolkits: list[str], words: list[str]
) -> None:
    of_host = {"driver": DRIVER, "alternatives": {}, "toolkits": [{"version": version} for version in toolkits]}
    result = verified(
        cuda({}, DEBIAN, **variables), facts={"cuda": of_host}, read={"cache": {"stdout": cache}}, **variables
    )
    found = result if isinstance(result, list) else []
    assert len(found) == len(words) and all(word in text for word, text in zip(words, found, strict=True))


def reading(asked: Ask, name: str) -> Reading:
    found = asked.readings[name]
    assert isinstance(found, tuple)
    return found


def test_stages_ask_for_what_the_host_has() -> None:
    variables = {**_load("cuda", "defaults"), TABLES: CUDA_TABLES}
    cuda_facts = {"driver": DRIVER, "alternatives": {}, "toolkits": []}
    known = {**DEBIAN, "gpu_fleet_managed": {}, "cuda": cuda_facts, "nvidia_smi": {"pci_gpus": []}}
    given: dict[str, Any] = {"lists": "fresh"}
    asked = PLANNERS["cuda"].stages["plan"](variables, known, given)
    assert isinstance(asked, Ask) and asked.readings["compiler"] == command("g++", "-dumpversion")
    offered = "cuda-toolkit-13-0 | 13.0.2-1\n"
    read = {"compiler": {"rc": 127}, "offers": {"rc": 0, "stdout": offered}}
    simulated = PLANNERS["cuda"].stages["plan"](variables, known, {**given, **read})
    assert isinstance(simulated, Ask)
    _module, arguments = reading(simulated, "simulation")
    assert arguments["argv"][2:5] == ["apt-get", "--simulate", "--no-install-recommends"]
    damaged = {**known, "gpu_fleet_managed": {"cuda": recorded(("/usr/local/cuda-13.0/bin",))}}
    again = PLANNERS["cuda"].stages["plan"](variables, damaged, {**given, **read, "simulation": {"rc": 0}})
    assert isinstance(again, Ask)
    assert again.readings == {"packages": ("gpu.fleet.host_facts", {"gather": ["packages"]})}


def test_dnf_simulates_with_fresh_package_lists_only() -> None:
    variables = {**_load("cuda", "defaults"), TABLES: CUDA_TABLES}
    cuda_facts = {"driver": DRIVER, "alternatives": {}, "toolkits": []}
    known = {**EL, "gpu_fleet_managed": {}, "cuda": cuda_facts, "nvidia_smi": {"pci_gpus": []}}
    read = {"compiler": {"rc": 127}, "offers": {"rc": 0, "stdout": "cuda-toolkit-13-0 | 13.0.2-1"}}
    plan = PLANNERS["cuda"].stages["plan"]
    assert isinstance(plan(variables, known, {**read, "lists": "cached"}), Plan)
    simulated = plan(variables, known, {**read, "lists": "fresh"})
    assert isinstance(simulated, Ask)
    module, arguments = reading(simulated, "simulation")
    assert (module, arguments["name"]) == ("dnf", ["cuda-toolkit-13-0", "gcc-c++"])
