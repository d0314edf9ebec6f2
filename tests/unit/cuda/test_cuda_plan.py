# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of the roles cuda and cudnn: what the package lists and the last run have to do with a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.branches import KNOWN_BRANCHES
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.cuda import DRIVER_OF_CUDA
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.distributions import PLATFORMS
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import CompatibilityRequest, fits
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import RequestError
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.cuda import plan as toolkits
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.cuda.packages import numbers
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.cudnn import (
    Host,
    Request,
    loader,
    plan,
    refusals_of_the_loader,
)

ROLES = Path(__file__).resolve().parents[3] / "roles"


def _load(role: str, part: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROLES / role / part / "main.yml").read_text(encoding="utf-8"))
    return loaded


CUDA_TABLES = _load("cuda", "vars")[toolkits.TABLES]
CUDNN_TABLE = _load("cudnn", "vars")["__cudnn_table"]
UBUNTU = {"distribution": "Ubuntu", "distribution_version": "24.04", "distribution_major_version": "24"}
DEBIAN = {"distribution": "Debian", "distribution_version": "13.1", "distribution_major_version": "13"}
EL = {"distribution": "Rocky", "distribution_version": "9.6", "distribution_major_version": "9", "os_family": "RedHat"}
H100 = {"name": "NVIDIA H100 80GB HBM3", "device_id": "0x2330"}


def cuda_host(facts: dict[str, Any], system: dict[str, str]) -> toolkits.Host:
    """A host of a distribution, with what is known of it: nothing, or what tasks have read."""
    record = {"inputs": "", "drift": [], "data": facts["recorded"]} if "recorded" in facts else {}
    smi = {"pci_gpus": facts.get("gpus", [])}
    host = toolkits.Host.of({**system, "nvidia_smi": smi, "gpu_fleet_managed": {"cuda": facts.get("record", record)}})
    if not {*facts} - {"recorded", "record", "fresh"}:
        return host
    driver = {"library_version": facts.get("driver"), "loaded_version": None}
    found = {
        "offers": {"stdout": facts.get("offered", ""), "rc": 0},
        "compiler": {"stdout": facts.get("compiler", "")},
        "lists": "fresh" if facts.get("fresh") else "cached",
        "simulation": facts.get("simulation"),
        "components": facts.get("components"),
        **({"packages": {}} if "installed" in facts else {}),
    }
    of_host = {"cuda": {"driver": driver}, "nvidia_smi": smi, "packages": facts.get("installed")}
    return host.observed(of_host, found)


def cuda(facts: dict[str, Any] | None = None, system: dict[str, str] | None = None, **variables: Any) -> dict[str, Any]:
    """The plan for toolkits with the defaults of the role."""
    given = {**_load("cuda", "defaults"), **variables}
    try:
        return toolkits.plan(
            toolkits.Request.read(given), cuda_host(facts or {}, system or UBUNTU), CUDA_TABLES
        ).as_dict()
    except RequestError as error:
        return {"refusals": [str(error)]}


def cudnn(
    facts: dict[str, Any] | None = None, system: dict[str, str] | None = None, **variables: Any
) -> dict[str, Any]:
    """The plan for libraries with the defaults of the role."""
    given = {**_load("cudnn", "defaults"), **variables}
    known = facts or {}
    record = {"inputs": "", "drift": [], "data": known["recorded"]} if "recorded" in known else {}
    offered = {"stdout": known["offered"], "rc": 0} if "offered" in known else None
    of_host: dict[str, Any] = {
        **(system or UBUNTU),
        "gpu_fleet_managed": {"cudnn": record, "cuda": known.get("cuda", {})},
        "nvidia_smi": {"pci_gpus": known.get("gpus"), "driver_version": known.get("driver")},
    }
    host = Host.of(of_host, offered, known.get("fresh", False))
    try:
        return plan(Request.read(given, CUDNN_TABLE, of_host["gpu_fleet_managed"]), host, CUDNN_TABLE).as_dict()
    except RequestError as error:
        return {"refusals": [str(error)]}


def offers(*names: str, version: str = "1-1") -> str:
    """What apt-cache madison prints for these packages."""
    return "".join(f" {name} | {version} | https://mirror.example.com Packages\n" for name in names)


V100 = {"name": "Tesla V100-SXM2-16GB", "device_id": "0x1db1"}


@pytest.mark.parametrize(
    ("driver", "gpu", "version"),
    [
        ("", None, "13.0"),
        ("580.178.04", H100, "13.0"),
        ("620.70.06", H100, "13.0"),
        # A branch, of a driver that is still to come.
        ("570", H100, "12.8"),
        ("570.133.20", H100, "12.8"),
        ("550.163.01", H100, "12.4"),
        ("535.161.08", H100, "12.2"),
        ("580.126.16", V100, "12.9"),
        ("", V100, "12.9"),
        ("450.80.02", {"name": "Tesla K80", "device_id": "0x102d"}, "11.0"),
        ("a runfile's", H100, "13.0"),
    ],
)
def test_the_default_is_the_newest_that_driver_and_gpus_run(driver: str, gpu: Any, version: str) -> None:
    facts = {"driver": driver, "gpus": [gpu] if gpu else [], "offered": ""}
    found = cuda_host(facts, UBUNTU)
    assert toolkits.Request.read(_load("cuda", "defaults")).on(found).versions == (version,)


@pytest.mark.parametrize("gpu", [None, H100, V100, {"name": "NVIDIA B200", "device_id": "0x2901"}], ids=str)
def test_the_default_fits_wherever_any_version_does(gpu: Any) -> None:
    drivers = [*map(str, KNOWN_BRANCHES), *DRIVER_OF_CUDA.values(), ""]
    for driver in drivers:
        found = cuda_host({"driver": driver, "gpus": [gpu] if gpu else [], "offered": ""}, UBUNTU)
        (version,) = toolkits.Request.read(_load("cuda", "defaults")).on(found).versions
        asked = CompatibilityRequest(found.gpus, driver or None)
        fitting = [one for one in fits(asked)["cuda"] if numbers(one) <= (13, 0)]
        assert version in (fitting or ["13.0"]), (driver, version)


def test_with_forward_compatibility_an_older_driver_gets_the_default() -> None:
    found = cuda({"driver": "570.133.20", "gpus": [H100], "offered": ""}, cuda_forward_compatibility=True)
    assert (found["versions"], found["forward"]) == (["13.0"], ["13.0"])


TOOLKITS = offers(*(f"cuda-toolkit-{version}" for version in ("12-8", "12-9", "13-0")))


@pytest.mark.parametrize(
    ("versions", "offered", "fresh", "refusal"),
    [
        # Before anything is read, only the form is checked: a converged host may have a version of a mirror.
        (["14.7"], None, False, ""),
        # Without package lists the tables decide.
        (["13.0"], "", False, ""),
        (["13.4"], "", False, ""),
        (["12.7"], "", False, "cuda_versions has 12.7, which is not a CUDA version that this collection knows"),
        (["13.9"], "", False, "cuda_versions has 13.9"),
        # Lists that may be old know all older versions, and what a mirror has.
        (["13.0"], TOOLKITS, False, ""),
        (["12.4"], TOOLKITS, False, "does not have toolkit; it has 12.8, 12.9, 13.0"),
        (["13.1"], TOOLKITS, False, ""),
        (["13.9"], TOOLKITS, False, "cuda_versions has 13.9, of which the repository for Ubuntu 24.04 does not have"),
        (["13.9"], TOOLKITS + offers("cuda-toolkit-13-9"), False, ""),
        # Fresh lists have all that there is.
        (["13.1"], TOOLKITS, True, "it has 12.8, 12.9, 13.0"),
        (["13.0"], "", True, "it has none of the known versions"),
        ([], offers("cuda-toolkit-12-9"), True, "cuda_versions names none, so it is 13.0 here, of which"),
    ],
)
def test_a_version_that_there_is_not(versions: list[str], offered: str | None, fresh: bool, refusal: str) -> None:
    facts: dict[str, Any] = {"fresh": fresh} | ({} if offered is None else {"offered": offered})
    found = cuda(facts, cuda_versions=versions)["refusals"]
    assert [refusal in text for text in found] == ([True] if refusal else [])


def test_every_package_of_the_components_has_to_be_there() -> None:
    facts = {"offered": offers("cuda-cudart-13-0", "cuda-cudart-12-9", "cuda-libraries-12-9")}
    requested: dict[str, Any] = {"cuda_versions": ["13.0"], "cuda_components": ["runtime", "libraries"]}
    # It may have come since the lists were read.
    assert cuda(facts, **requested)["refusals"] == []
    (refusal,) = cuda({**facts, "fresh": True}, **requested)["refusals"]
    assert "does not have runtime, libraries; it has 12.9" in refusal


def test_the_names_of_a_plan_are_those_that_decide() -> None:
    names = cuda(cuda_versions=["14.7"], cuda_components=["runtime"])["names"]
    assert {"cuda-cudart-14-7", "cuda-cudart-12-9"} <= set(names)
    assert cuda(cuda_source="distribution")["names"] == ["nvidia-cuda-toolkit"]
    assert "libcudnn9-cuda-12" in cudnn(cudnn_versions=[])["offers_commands"]["cached"]


@pytest.mark.parametrize("platform", [platform for platform in PLATFORMS if platform.cuda_version])
def test_no_version_is_that_of_the_distribution(platform: Any) -> None:
    system, version = platform.name.split()
    facts = {
        "distribution": system,
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
    }
    plan = cuda({}, facts, cuda_source="distribution")
    assert (plan["versions"], plan["default"], plan["refusals"]) == ([platform.cuda_version], platform.cuda_version, [])
    assert plan["has_directories"] is platform.cuda_of_nvidia
    assert cuda({}, facts)["versions"] == ["13.0"]


def test_the_archive_of_ubuntu_26_04_has_packages_of_nvidia() -> None:
    """https://packages.ubuntu.com/tenacious/cuda-toolkit-13-3 and, of resolute, the source of its row."""
    resolute = {"distribution": "Ubuntu", "distribution_version": "26.04", "distribution_major_version": "26"}
    plan = cuda({"driver": "590.48.01"}, resolute, cuda_source="distribution")
    assert (plan["names"], plan["packages"], plan["refusals"]) == (["cuda-toolkit-13-1"], ["cuda-toolkit-13-1"], [])
    (refusal,) = cuda({"compiler": "16.1.0"}, resolute, cuda_source="distribution")["refusals"]
    assert "gcc 16" in refusal and "the only version of Ubuntu 26.04" in refusal
    (refusal,) = cuda({}, resolute, cuda_source="distribution", cuda_components=["compiler"])["refusals"]
    assert "the source distribution has toolkit" in refusal


def test_versions_are_ordered_by_their_numbers() -> None:
    plan = cuda(cuda_versions=["12.10", "12.9", "11.8"])
    assert (plan["versions"], plan["default"]) == (["11.8", "12.9", "12.10"], "12.10")


@pytest.mark.parametrize(
    ("error", "offered", "fresh", "refused"),
    [
        ("cuda-toolkit-13-0 : Conflicts: gcc-12 but 12.2.0-14 is to be installed", TOOLKITS, False, True),
        # The distribution's own lists were never read, only NVIDIA's.
        ("nvidia-kernel-dkms : Depends: dkms but it is not installable", TOOLKITS, False, False),
        ("nvidia-kernel-dkms : Depends: dkms but it is not installable", TOOLKITS, True, True),
        # Nothing is known where no package list was ever read.
        ("Unable to locate package cuda-toolkit-13-0", "", False, False),
        ("", TOOLKITS, False, False),
    ],
)
def test_what_apt_cannot_install_is_refused_where_it_has_the_packages(
    error: str, offered: str, fresh: bool, refused: bool
) -> None:
    # Conflicts are what apt-get prints to stdout, and other errors to stderr.
    simulation = {
        "rc": 100 if error else 0,
        "stdout_lines": ["Reading package lists...", f" {error}"],
        "stderr_lines": [f"E: {error}"],
    }
    plan = cuda({"offered": offered, "fresh": fresh, "simulation": simulation})
    assert plan["refusals"] == ([f"apt cannot install cuda-toolkit-13-0: {error}"] if refused else [])


def test_what_dnf_cannot_install_is_refused() -> None:
    simulation = {"failed": True, "rc": 1, "msg": "Depsolve Error", "failures": ["nothing provides gcc >= 14"]}
    plan = cuda({"offered": "cuda-toolkit-13-0 | 13.0.2-1", "fresh": True, "simulation": simulation}, EL)
    assert plan["refusals"] == ["dnf cannot install cuda-toolkit-13-0: nothing provides gcc >= 14"]


def test_a_transaction_that_removes_something_else_is_refused() -> None:
    lines = ["Remv their-tool [1.0]", "Inst cuda-toolkit-13-0 (13.0.2-1 NVIDIA [amd64])"]
    (refusal,) = cuda({"offered": TOOLKITS, "simulation": {"rc": 0, "stdout_lines": lines}})["refusals"]
    assert "cuda-toolkit-13-0 would remove their-tool; nothing was installed" in refusal


@pytest.mark.parametrize(
    ("system", "lines"),
    [
        (UBUNTU, ["Inst cuda-drivers (580.95.05-1 NVIDIA [amd64])"]),
        (EL, ["Installed: cuda-drivers-3:580.95.05-1.el9.x86_64"]),
    ],
)
def test_a_transaction_that_brings_a_driver_is_refused(system: dict[str, str], lines: list[str]) -> None:
    (refusal,) = cuda({"simulation": {"rc": 0, "stdout_lines": lines, "results": lines}}, system)["refusals"]
    assert "would install, change or remove cuda-drivers, which belongs to a driver; nothing was installed" in refusal
    # That of an earlier plan of the host, where this one has no packages.
    runfiles = {"13.0": {"url": "https://mirror.example.com/cuda.run", "sha256": "0" * 64}}
    simulation = {"rc": 0, "stdout_lines": lines, "results": lines}
    assert cuda({"simulation": simulation}, system, cuda_source="runfile", cuda_runfiles=runfiles)["refusals"] == []


def test_forward_compatibility_comes_for_an_older_driver_and_goes_with_a_newer_one() -> None:
    older = cuda({"driver": "570.133.20", "gpus": [H100]}, cuda_forward_compatibility=True)
    assert (older["forward"], older["packages"]) == (["13.0"], ["cuda-toolkit-13-0", "cuda-compat-13-0"])
    recorded = {"source": "cuda_repository", "versions": ["13.0"], "packages": older["packages"]}
    newer = cuda({"driver": "580.95.05", "gpus": [H100], "recorded": recorded}, cuda_forward_compatibility=True)
    obsolete = newer["obsolete"]
    assert (newer["forward"], obsolete["versions"], obsolete["packages"]) == ([], [], ["cuda-compat-13-0"])


RECORDED = {
    "source": "cuda_repository",
    "versions": ["12.9", "13.0"],
    "packages": ["cuda-toolkit-12-9", "cuda-toolkit-13-0"],
}


@pytest.mark.parametrize(
    ("variables", "versions", "packages"),
    [
        ({"cuda_versions": ["13.0"]}, ["12.9"], ["cuda-toolkit-12-9"]),
        ({"cuda_versions": ["12.9", "13.0"]}, [], []),
        ({"cuda_source": "distribution"}, ["12.9", "13.0"], ["cuda-toolkit-12-9", "cuda-toolkit-13-0"]),
        ({"cuda_state": "absent"}, ["12.9", "13.0"], ["cuda-toolkit-12-9", "cuda-toolkit-13-0"]),
    ],
)
def test_what_is_no_longer_requested_is_removed(
    variables: dict[str, Any], versions: list[str], packages: list[str]
) -> None:
    plan = cuda({"recorded": RECORDED}, **variables)
    assert (plan["obsolete"]["versions"], plan["obsolete"]["packages"]) == (versions, packages)
    is_other_source = "cuda_source" in variables
    assert (plan["removes_first"], plan["removes_last"]) == (is_other_source, bool(versions) and not is_other_source)


HOPPER = [{"device_id": "0x2330"}]


@pytest.mark.parametrize(
    ("driver", "series", "runs"),
    [
        ("580.178.04", "13", True),
        ("570.211.01", "13", False),
        ("570.211.01", "12", True),
        ("570.211.01", "12.9", True),
        ("535.309.01", "13", False),
        # Unknown is no reason.
        (None, "13", True),
        ("simulated", "13", True),
        ("570.211.01", "14", True),
    ],
)
def test_a_library_is_for_a_cuda_that_the_driver_runs(driver: str | None, series: str, runs: bool) -> None:
    given = [{"library": "nccl", "version": "2.28.3", "cuda": series}]
    found = cudnn({"driver": driver, "gpus": HOPPER}, cudnn_versions=[], cudnn_additional_libraries=given)
    assert (found["refusals"] == []) is runs
    if not runs:
        (text,) = found["refusals"]
        assert f"nccl 2.28.3 for CUDA 13: CUDA 13.0 needs driver 580.65.06 or newer, not {driver}" in text
        assert "driver and GPUs run CUDA 11, 12: change cuda in cudnn_additional_libraries" in text


def test_the_default_is_compared_with_the_driver() -> None:
    """Without a declared CUDA it is for 13, as the role cuda's own default: what the one refuses, the other does."""
    facts = {"driver": "570.211.01", "gpus": HOPPER}
    (text,) = cudnn(facts)["refusals"]
    assert "change cuda in cudnn_versions, or cuda_versions, which auto follows" in text
    assert cudnn(facts, cuda_versions=["12.9"])["refusals"] == []
    forward = {"data": {"versions": ["13.0"], "packages": ["cuda-compat-13-0"]}}
    assert cudnn({**facts, "cuda": forward})["refusals"] == []


@pytest.mark.parametrize(
    ("declared", "recorded", "series"),
    [
        (None, [], "13"),
        ([], [], "13"),
        (["12.9"], [], "12"),
        (["12.9", "13.0"], [], "13"),
        # The role by itself, after the role cuda. What is declared now comes first.
        (None, ["12.8", "12.9"], "12"),
        ([], ["12.4"], "12"),
        (["13.0"], ["12.9"], "13"),
        # The role cuda refuses these.
        ("12.9", [], "13"),
        ([12.9, None], [], "13"),
    ],
)
def test_cudnn_is_for_the_cuda_of_the_host(declared: Any, recorded: list[str], series: str) -> None:
    variables = {} if declared is None else {"cuda_versions": declared}
    found = cudnn({"cuda": {"data": {"versions": recorded}}}, **variables)
    assert found["refusals"] == []
    assert found["packages"][0]["name"] == f"libcudnn9-cuda-{series}"
    # What a user has written counts.
    own = cudnn({}, **variables, cudnn_versions=[{"version": "9", "cuda": "13"}])
    assert own["packages"][0]["name"] == "libcudnn9-cuda-13"
    assert (own["inputs"] == found["inputs"]) == (series == "13"), "a host as it was has no work"


LIBRARIES = offers("libcudnn9-cuda-13", "libcudnn9-dev-cuda-13", "libcudnn9-headers-cuda-13", version="9.14.0.64-1")


@pytest.mark.parametrize(
    ("version", "offered", "fresh", "refusal"),
    [
        ("9", "", False, ""),
        ("9.14.0.64", LIBRARIES, False, ""),
        ("9.14", LIBRARIES, True, ""),
        ("9.13", LIBRARIES, False, "cudnn 9.13 for CUDA 13, of which the repository for Ubuntu 24.04 does not have"),
        ("9.14.0.63", LIBRARIES, False, "libcudnn9-cuda-13; it has 9.14.0.64-1"),
        # It may have come since the lists were read.
        ("9.15", LIBRARIES, False, ""),
        ("9.15", LIBRARIES, True, "it has 9.14.0.64-1"),
        ("9.40", LIBRARIES, False, "it has 9.14.0.64-1"),
        ("9.40", LIBRARIES.replace("9.14", "9.40"), False, ""),
        ("9.40", "", False, "cudnn_versions has 9.40, which is not a cuDNN that this collection knows"),
        ("10", "", False, "cudnn_versions has 10, which is not a cuDNN that this collection knows"),
        ("10", "", True, "does not have libcudnn10-cuda-13; it has none"),
    ],
)
def test_a_library_that_there_is_not(version: str, offered: str, fresh: bool, refusal: str) -> None:
    found = cudnn({"offered": offered, "fresh": fresh}, cudnn_versions=[{"version": version, "cuda": "13"}])["refusals"]
    assert [refusal in text for text in found] == ([True] if refusal else [])


def test_another_library_for_another_cuda_version_is_refused() -> None:
    offered = LIBRARIES + offers("libnccl2", "libnccl-dev", version="2.28.3-1+cuda13.0")
    nccl = {"library": "nccl", "version": "2.28.3", "cuda": "13.0"}
    assert cudnn({"offered": offered}, cudnn_additional_libraries=[nccl])["refusals"] == []
    (refusal,) = cudnn({"offered": offered}, cudnn_additional_libraries=[{**nccl, "cuda": "12.9"}])["refusals"]
    assert "cudnn_additional_libraries has nccl 2.28.3 for CUDA 12.9" in refusal and "2.28.3-1+cuda13.0" in refusal


ARCHIVE = {"version": "8.9.7.29", "cuda": "12", "archive": "/srv/x.tar.xz", "sha256": "a" * 64}


def test_archives_have_directories_and_packages_have_locks() -> None:
    plan = cudnn({}, EL, cudnn_versions=[{"version": "9.14", "cuda": "13"}, ARCHIVE], cudnn_development=False)
    data = plan["record"]["data"]
    assert data["directories"] == ["/usr/local/cudnn-8.9.7.29-cuda12"]
    assert plan["links"] == [{"path": "/usr/local/cudnn", "src": "/usr/local/cudnn-8.9.7.29-cuda12"}]
    assert plan["pins"] == [{"packages": "libcudnn9-cuda-13", "version": "9.14.*-*"}]
    assert data["version_locks"] == ["libcudnn9-cuda-13-0:9.14.*-*"]
    assert (plan["dnf"], plan["apt"]) == (["libcudnn9-cuda-13-9.14.*-*"], [])
    assert (plan["steps"], plan["would"]) == (
        ["install"],
        "install libcudnn9-cuda-13, /usr/local/cudnn-8.9.7.29-cuda12",
    )
    gone = cudnn({"recorded": data}, EL, cudnn_state="absent")
    assert (gone["packages"], gone["archives"], gone["steps"]) == ([], [], ["remove"])
    assert gone["obsolete"] == data
    assert gone["would"] == "remove libcudnn9-cuda-13, /usr/local/cudnn-8.9.7.29-cuda12"
    assert cudnn({}, EL, cudnn_state="absent")["steps"] == []
    other = cudnn({"recorded": data}, EL, cudnn_versions=[{**ARCHIVE, "version": "8.9.6"}])["record"]["intended"]
    assert other["directories"] == ["/usr/local/cudnn-8.9.7.29-cuda12", "/usr/local/cudnn-8.9.6-cuda12"]


@pytest.mark.parametrize(
    ("system", "variables"),
    [
        (DEBIAN, {}),
        (EL, {"cudnn_versions": []}),
        (EL, {"cudnn_versions": [{"version": "9.14", "cuda": "13"}, ARCHIVE], "cudnn_development": False}),
    ],
)
def test_a_host_that_has_what_is_requested_has_no_work(system: dict[str, str], variables: dict[str, Any]) -> None:
    def steps(record: dict[str, Any], **changed: Any) -> tuple[str, ...]:
        given = {**_load("cudnn", "defaults"), **variables, **changed}
        host = Host.of({**system, "gpu_fleet_managed": {"cudnn": record}})
        return plan(Request.read(given, CUDNN_TABLE), host, CUDNN_TABLE).steps

    record: dict[str, Any] = {"inputs": cudnn({}, system, **variables)["inputs"], "drift": [], "data": {}}
    assert steps(record) == ()
    assert steps({**record, "drift": [{"name": "x", "message": "x is missing"}]}) == ("install",)
    for name, value in {**CHANGED, "cudnn_development": not variables.get("cudnn_development", True)}.items():
        assert steps(record, **{name: value}) == (("remove",) if value == "absent" else ("install",)), name
    assert steps({"inputs": "other", "drift": [], "data": {}}) == ("install",)


CHANGED: dict[str, Any] = {
    "cudnn_state": "absent",
    "cudnn_versions": [{"version": "9.13", "cuda": "12"}],
    "cudnn_additional_libraries": [{"library": "tensorrt", "version": "10", "cuda": "12.9"}],
    "cudnn_development": False,
    "cudnn_directory": "/srv/libraries",
}


def test_every_public_variable_is_changed_above() -> None:
    assert set(CHANGED) == set(_load("cudnn", "defaults"))


def test_the_loader_has_to_find_the_first_archive_and_the_packages() -> None:
    given = {**_load("cudnn", "defaults"), "cudnn_versions": [ARCHIVE, {"version": "9", "cuda": "13"}]}
    request, host = Request.read(given, CUDNN_TABLE), Host.of({**UBUNTU, "gpu_fleet_managed": {}})
    unpacked = [{"libcudnn.so.8": "/a/lib/libcudnn.so.8"}, {"libcudnn.so.8": "/b/libcudnn.so.8"}]
    planned = loader(plan(request, host, CUDNN_TABLE), unpacked)
    assert planned["content"].splitlines()[1:] == ["/a/lib", "/b"]
    assert planned["libraries"] == unpacked[0]
    assert planned["files"] == [
        "/etc/ld.so.conf.d/gpu-fleet-cudnn.conf",
        "/etc/apt/preferences.d/gpu-fleet-cudnn",
        "/usr/local/cudnn",
        *(f"/usr/local/cudnn-8.9.7.29-cuda12{end}" for end in ("", "/.gpu-fleet-archive.json", "/*", "/*/*")),
        "/a/lib/*",
        "/b/*",
    ]
    cache = "2 libs found in cache `/etc/ld.so.cache'\n\tlibcudnn.so.9 (libc6,x86-64) => /usr/lib/libcudnn.so.9\n"
    of_archive = "\tlibcudnn.so.8 (libc6,x86-64) => /a/lib/libcudnn.so.8\n"
    of_others = "\tlibcudnn.so.8 (libc6,x86-64) => /b/libcudnn.so.8\n"
    found = {
        text: list(refusals_of_the_loader(request, planned["libraries"], text))
        for text in (cache + of_archive + of_others, cache + of_others + of_archive, of_archive, "")
    }
    assert [len(refusals) for refusals in found.values()] == [0, 1, 1, 2]
    assert (
        "uses /b/libcudnn.so.8 for libcudnn.so.8, not /a/lib/libcudnn.so.8" in found[cache + of_others + of_archive][0]
    )
    assert "does not find libcudnn.so.9 of cudnn 9;" in found[of_archive][0]
    assert "uses nothing for libcudnn.so.8" in found[""][0]


@pytest.mark.parametrize(
    "value", [float("nan"), True, b"13.0", object(), ["13.0\n"], [None], [True], {"a": [1] * 999}, "x" * 999]
)
@pytest.mark.parametrize("name", ["cuda_versions", "cuda_components", "cuda_runfiles", "cuda_default"])
def test_any_value_of_a_wrong_form_is_refused_in_one_line(name: str, value: object) -> None:
    (refusal,) = cuda({}, UBUNTU, **{name: value})["refusals"]
    assert name in refusal and "\n" not in refusal and len(refusal) < 300


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        True,
        b"9",
        object(),
        [[]],
        [None],
        {"a": [1] * 999},
        "x" * 999,
        [{}],
        [{"version": [], "cuda": {}}],
    ],
)
@pytest.mark.parametrize("name", ["cudnn_versions", "cudnn_additional_libraries"])
def test_any_library_of_a_wrong_form_is_refused_in_one_line(name: str, value: object) -> None:
    (refusal,) = cudnn({}, UBUNTU, **{name: value})["refusals"]
    assert name in refusal and "\n" not in refusal and len(refusal) < 300
