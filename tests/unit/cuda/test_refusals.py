# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles refuse by their plan is refused in check mode too, before any module runs, as by the site playbook."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import variables_of

from tests.unit.cuda.test_cuda_plan import cuda, cudnn
from tests.unit.plays import run_play
from tests.unit.site.known import check, known

pytestmark = pytest.mark.plays

PLANS = {"cuda": cuda, "cudnn": cudnn}

DISTRIBUTIONS = {
    "noble": {"distribution": "Ubuntu", "distribution_version": "24.04", "distribution_major_version": "24"},
    "trixie": {"distribution": "Debian", "distribution_version": "13.1", "distribution_major_version": "13"},
    "el9": {"distribution": "Rocky", "distribution_version": "9.6", "distribution_major_version": "9"},
    "fedora": {"distribution": "Fedora", "distribution_version": "42", "distribution_major_version": "42"},
}
H100 = {"name": "NVIDIA H100 80GB HBM3", "device_id": "0x2330", "pci_bus_id": "00000000:1B:00.0"}
V100 = {"name": "Tesla V100-SXM2-16GB", "device_id": "0x1db1", "pci_bus_id": "00000000:1B:00.0"}
CUDNN = {"version": "9.14.0.64", "cuda": "13"}
# Role, variables, host (suite, driver, GPU), and parts of the error message.
Case = tuple[str, dict[str, Any], tuple[str, str, dict[str, str] | None], list[str]]
NO_GPU = ("noble", "", None)

# A value of another form than documented: the variable and what it takes, in one short line.
FORMS: dict[str, Case] = {
    "unquoted": ("cuda", {"cuda_versions": [13.0]}, NO_GPU, ["cuda_versions has 13.0 without quotes", '"13.0"']),
    "unquoted among others": ("cuda", {"cuda_versions": ["13.0", 12.9]}, NO_GPU, ["cuda_versions has 12.9 without"]),
    "a string": ("cuda", {"cuda_versions": "13.0"}, NO_GPU, ["cuda_versions", "takes a list", '["12.9", "13.0"]']),
    "a number": ("cuda", {"cuda_versions": 13.0}, NO_GPU, ["cuda_versions is 13.0", "takes a list"]),
    "a dict": ("cuda", {"cuda_versions": {"13.0": {}}}, NO_GPU, ["cuda_versions", "takes a list"]),
    "a list of lists": ("cuda", {"cuda_versions": [["13.0"]]}, NO_GPU, ["cuda_versions", "major.minor"]),
    "null": ("cuda", {"cuda_versions": None}, NO_GPU, ["cuda_versions", "takes a list"]),
    "no minor version": ("cuda", {"cuda_versions": ["13"]}, NO_GPU, ["cuda_versions", "major.minor"]),
    "three numbers": ("cuda", {"cuda_versions": ["13.0.1"]}, NO_GPU, ["cuda_versions", "major.minor"]),
    "twice": ("cuda", {"cuda_versions": ["13.0", "13.0"]}, NO_GPU, ["cuda_versions", "once"]),
    "default unquoted": ("cuda", {"cuda_default": 13.0}, NO_GPU, ["cuda_default has 13.0 without quotes"]),
    "components as a string": ("cuda", {"cuda_components": "toolkit"}, NO_GPU, ["cuda_components", "takes a list"]),
    "no component": ("cuda", {"cuda_components": []}, NO_GPU, ["cuda_components", "takes a list"]),
    "runfiles as a list": (
        "cuda",
        {"cuda_source": "runfile", "cuda_runfiles": [{"version": "13.0"}]},
        NO_GPU,
        ["cuda_runfiles", "url and sha256 by version"],
    ),
    "runfile as a string": (
        "cuda",
        {"cuda_source": "runfile", "cuda_runfiles": {"13.0": "https://x/"}},
        NO_GPU,
        ["cuda_runfiles", "url and sha256 by version"],
    ),
    "runfile unquoted": (
        "cuda",
        {"cuda_source": "runfile", "cuda_runfiles": {13.0: {}}},
        NO_GPU,
        ["cuda_runfiles has 13.0 without quotes"],
    ),
    "libraries as a dict": ("cudnn", {"cudnn_versions": CUDNN}, NO_GPU, ["cudnn_versions", "takes a list", "version:"]),
    "libraries as a string": ("cudnn", {"cudnn_versions": "9.14"}, NO_GPU, ["cudnn_versions", "takes a list"]),
    "a library as a string": (
        "cudnn",
        {"cudnn_versions": ["9.14"]},
        NO_GPU,
        ["cudnn_versions", '"9.14"', "dictionary"],
    ),
    "version unquoted": (
        "cudnn",
        {"cudnn_versions": [{"version": 9.14, "cuda": "13"}]},
        NO_GPU,
        ["cudnn_versions has the version 9.14 without quotes"],
    ),
    "cuda unquoted": (
        "cudnn",
        {"cudnn_versions": [{"version": "9.14", "cuda": 13}]},
        NO_GPU,
        ["cudnn_versions has the cuda 13 without quotes"],
    ),
    "no cuda": ("cudnn", {"cudnn_versions": [{"version": "9.14"}]}, NO_GPU, ["cudnn_versions has no cuda in"]),
    "unknown key": (
        "cudnn",
        {"cudnn_versions": [{**CUDNN, "url": "https://x/"}]},
        NO_GPU,
        ["cudnn_versions", '"url"', "archive"],
    ),
    "no version": (
        "cudnn",
        {"cudnn_versions": [{"version": "latest", "cuda": "13"}]},
        NO_GPU,
        ["cudnn_versions", '"latest"', "9.14"],
    ),
    "unknown library": (
        "cudnn",
        {"cudnn_additional_libraries": [{"library": "cutlass", **CUDNN}]},
        NO_GPU,
        ["cudnn_additional_libraries", "nccl or tensorrt"],
    ),
    "additional libraries as a dict": (
        "cudnn",
        {"cudnn_additional_libraries": {"library": "nccl", **CUDNN}},
        NO_GPU,
        ["cudnn_additional_libraries", "takes a list"],
    ),
    "archive without a checksum": (
        "cudnn",
        {"cudnn_versions": [{**CUDNN, "archive": "https://x/"}]},
        NO_GPU,
        ["cudnn_versions", "sha256", "64"],
    ),
    "relative archive": (
        "cudnn",
        {"cudnn_versions": [{**CUDNN, "archive": "x.tar.xz", "sha256": "0" * 64}]},
        NO_GPU,
        ["absolute path"],
    ),
    "relative directory": ("cudnn", {"cudnn_directory": "opt"}, NO_GPU, ["cudnn_directory", "absolute path"]),
}
# A request that cannot be met on the host.
REFUSALS: dict[str, Case] = {
    "13.0 on 535": (
        "cuda",
        {"cuda_versions": ["13.0"]},
        ("noble", "535.261.03", H100),
        ["CUDA 13.0 needs driver 580.65.06 or newer, not 535.261.03", "these versions fit:", "12.9", "cuda_versions"],
    ),
    "13.0 on 535 of EL": (
        "cuda",
        {"cuda_versions": ["13.0"]},
        ("el9", "535.261.03", H100),
        ["CUDA 13.0 needs driver 580.65.06"],
    ),
    "13.0 on 535 from a runfile": (
        "cuda",
        {
            "cuda_source": "runfile",
            "cuda_versions": ["13.0"],
            "cuda_runfiles": {"13.0": {"url": "https://mirror.example.com/x.run", "sha256": "0" * 64}},
        },
        ("noble", "535.261.03", H100),
        ["CUDA 13.0 needs driver 580.65.06"],
    ),
    "13.0 on a V100": (
        "cuda",
        {"cuda_versions": ["12.9", "13.0"]},
        ("noble", "580.159.04", V100),
        ["CUDA 13.0 has no support for Tesla V100", "these versions fit:"],
    ),
    "unknown version": ("cuda", {"cuda_versions": ["14.7"]}, NO_GPU, ["cuda_versions has 14.7", "7.0 to 13.5"]),
    "unknown minor version": ("cuda", {"cuda_versions": ["12.7"]}, ("el9", "", None), ["cuda_versions has 12.7"]),
    "another version than the distribution's": (
        "cuda",
        {"cuda_source": "distribution", "cuda_versions": ["12.9"]},
        ("trixie", "", None),
        ["cuda_versions has 12.9", "Debian 13 has CUDA 12.4 only"],
    ),
    "distribution without a toolkit": (
        "cuda",
        {"cuda_source": "distribution"},
        ("el9", "", None),
        ["EL 9 has no CUDA toolkit", "cuda_source"],
    ),
    "component of another source": (
        "cuda",
        {"cuda_source": "distribution", "cuda_components": ["debugger"]},
        ("trixie", "", None),
        ['cuda_components has ["debugger"]', "distribution", "profilers"],
    ),
    "default that is not requested": (
        "cuda",
        {"cuda_versions": ["13.0"], "cuda_default": "12.9"},
        NO_GPU,
        ["cuda_default is 12.9", "13.0"],
    ),
    "no runfile": ("cuda", {"cuda_source": "runfile"}, NO_GPU, ["cuda_runfiles", "13.0", "sha256"]),
    "unsupported": ("cuda", {}, ("fedora", "", None), ["Fedora 42 is not supported", "Debian 13"]),
    "cuDNN 8.9 for CUDA 13": (
        "cudnn",
        {"cudnn_versions": [{"version": "8.9", "cuda": "13"}]},
        NO_GPU,
        ["cuDNN 8.9 is not made for CUDA 13.0", "these versions of cuDNN for CUDA 13 fit: 9.12", "cudnn_versions"],
    ),
    "cuDNN 8.9 for CUDA 13 from an archive": (
        "cudnn",
        {"cudnn_versions": [{"version": "8.9", "cuda": "13", "archive": "/x", "sha256": "0" * 64}]},
        NO_GPU,
        ["cuDNN 8.9 is not made for CUDA 13.0"],
    ),
    "cuDNN on a V100": (
        "cudnn",
        {"cudnn_versions": [CUDNN]},
        ("noble", "580.159.04", V100),
        ["(Volta): it needs compute capability 7.5 or newer", "these versions of cuDNN for CUDA 13 fit: none;"],
    ),
    "unknown cuDNN": (
        "cudnn",
        {"cudnn_versions": [{"version": "10.1", "cuda": "13"}]},
        NO_GPU,
        ["cudnn_versions has 10.1", "archive"],
    ),
    "packages that exclude each other": (
        "cudnn",
        {"cudnn_versions": [CUDNN, {"version": "9.13", "cuda": "12"}]},
        NO_GPU,
        ["cudnn 9", "only one of each major version"],
    ),
    "archives in one directory": (
        "cudnn",
        {"cudnn_versions": [{**CUDNN, "archive": "/x", "sha256": "0" * 64}] * 2},
        NO_GPU,
        ["same directory"],
    ),
    "cuDNN on an unsupported distribution": ("cudnn", {}, ("fedora", "", None), ["Fedora 42 is not supported"]),
    "version of Docker": ("docker", {"docker_version": "latest"}, NO_GPU, ["docker_version is latest"]),
    "empty password": (
        "docker",
        {"docker_registries": [{"registry": "r.example", "username": "ops", "password": ""}]},
        NO_GPU,
        ["docker_registries has neither username and password nor ca for r.example"],
    ),
    "proxy of another name": ("docker", {"docker_proxy": {"ftp": "x"}}, NO_GPU, ["docker_proxy has ftp"]),
    "mirror of Docker": (
        "docker",
        {"docker_repository_url": "ftp://ops:hunter2@mirror.example.com/", "docker_repository_key_fingerprint": "0EBF"},
        ("el9", "", None),
        ['docker_repository_url is "ftp://***@mirror.example.com"', "docker_repository_key_fingerprint"],
    ),
    "distribution without Docker": (
        "docker",
        {"docker_source": "distribution"},
        ("el9", "", None),
        ["EL 9 has no Docker of its own"],
    ),
    "key of the toolkit's repository": (
        "nvidia_container_toolkit",
        {
            "nvidia_container_toolkit_runtimes": ["k3s"],
            "nvidia_repository_container_toolkit": {"key_url": "http://mirror.example.com/gpgkey"},
        },
        NO_GPU,
        ["NVIDIA has not published the fingerprint of this key", 'not from "http://mirror.example.com/gpgkey"'],
    ),
    "version and engine of the toolkit": (
        "nvidia_container_toolkit",
        {
            "nvidia_container_toolkit_version": "latest",
            "nvidia_container_toolkit_runtimes": ["podman"],
            "nvidia_container_toolkit_source": "host",
            "nvidia_container_toolkit_mode": "legacy",
        },
        ("el9", "", None),
        [
            "podman is not installed",
            "podman supports GPUs through CDI only",
            "nvidia_container_toolkit_version is latest",
        ],
    ),
    "limit and variable of a container": (
        "gpu_containers",
        {
            "gpu_containers_declared": [
                {"name": "training", "image": "torch", "gpus": "all", "ulimits": {"stack": "big"}},
                {"name": "notebook", "image": "torch", "gpus": [0], "jupyter": True, "user": "jovyan"},
                {"name": "training", "image": "torch", "gpus": [0], "env": {"NVIDIA_VISIBLE_DEVICES": "all"}},
            ]
        },
        NO_GPU,
        [
            "gpu_containers_declared has training 2 times",
            "gpu_containers_declared[0]: the limit stack in ulimits is 'big'",
            "gpu_containers_declared[1]: user is 'jovyan', and jupyter is set",
            "gpu_containers_declared[2]: env has NVIDIA_VISIBLE_DEVICES",
        ],
    ),
    "policy of the health check": (
        "gpu_health",
        {"gpu_health_policy": [{"id": "ours", "reading": "temperature_c"}]},
        NO_GPU,
        ["gpu_health_policy: the new row ours needs a verdict"],
    ),
    "setting, GPUs and layout of the GPU state": (
        "gpu_state",
        {"gpu_state_compute_mode": "shared", "gpu_state_gpus": [0], "gpu_state_mig": {"gpus": [1], "profiles": []}},
        NO_GPU,
        ["gpu_state_compute_mode is one of default", "gpu_state_gpus is [0], and gpu_state_mig has gpus of its own"],
    ),
    "Docker on an unsupported distribution": ("docker", {}, ("fedora", "", None), ["Fedora 42 is not supported"]),
}
# Of the forms those that Ansible could refuse first, in words of its own: a value is not of the type.
TYPES = (
    "unquoted",
    "a string",
    "a number",
    "a dict",
    "runfiles as a list",
    "libraries as a dict",
    "no cuda",
    "a library as a string",
    "version unquoted",
    "additional libraries as a dict",
)
CASES = {**{name: FORMS[name] for name in TYPES}, **REFUSALS}
# Requests that are accepted: check mode previews them, and runs no module either.
ACCEPTED: dict[str, tuple[str, dict[str, Any], tuple[str, str, dict[str, str] | None], str]] = {
    "distribution": ("cuda", {"cuda_source": "distribution"}, NO_GPU, "would install nvidia-cuda-toolkit"),
    "distribution by its version": (
        "cuda",
        {"cuda_source": "distribution", "cuda_versions": ["12.4"], "cuda_default": "12.4"},
        ("trixie", "550.163.01", H100),
        "would install nvidia-cuda-toolkit",
    ),
    "runfile of an unknown version": (
        "cuda",
        {
            "cuda_source": "runfile",
            "cuda_versions": ["14.7"],
            "cuda_runfiles": {"14.7": {"url": "https://mirror.example.com/x.run", "sha256": "0" * 64}},
        },
        NO_GPU,
        "would install /usr/local/cuda-14.7",
    ),
    "archive": (
        "cudnn",
        {"cudnn_versions": [{"version": "10.1", "cuda": "14", "archive": "/x", "sha256": "0" * 64}]},
        NO_GPU,
        "would install /usr/local/cudnn-10.1-cuda14",
    ),
}


def _facts(suite: str, driver: str, gpu: dict[str, str] | None) -> dict[str, Any]:
    """What Ansible and the modules of facts find on a host."""
    found = {"library_version": driver or None, "loaded_version": driver or None, "library_path": None}
    return {
        **DISTRIBUTIONS[suite],
        "os_family": "RedHat" if suite in ("el9", "fedora") else "Debian",
        "architecture": "x86_64",
        "gpu_fleet_managed": {},
        "nvidia_smi": {"available": False, "pci_gpus": [gpu] if gpu else [], "gpus": []},
        "packages": {},
        "cuda": {
            "driver": {**found, "loaded": driver != ""},
            "alternatives": {},
            "toolkits": [],
            "container_toolkit": {"installed": False, "cdi_specifications": []},
        },
    }


def _run(directory: Path, cases: dict[str, tuple[str, dict[str, Any], Any, Any]], *arguments: str) -> dict[str, str]:
    """The error message of each case in one run of Ansible, or what the run printed about the host."""
    directory.mkdir()
    # No programs of apt or dnf, and an interpreter with which any module fails.
    common = {"ansible_python_interpreter": "/nonexistent", "ansible_connection": "local"}
    hosts = {
        f"host{number}": {**common, **variables, "facts": _facts(*host), "role": role}
        for number, (role, variables, host, _expected) in enumerate(cases.values())
    }
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"ansible_facts": "{{ facts }}", "__common_facts_are_read": True},
        "tasks": [
            {
                "block": [
                    {"ansible.builtin.include_role": {"name": "gpu.fleet.{{ role }}"}},
                    {"ansible.builtin.set_fact": {"message": "accepted"}},
                ],
                "rescue": [{"ansible.builtin.set_fact": {"message": "{{ ansible_failed_result.msg }}"}}],
            },
            {
                "ansible.builtin.copy": {
                    "content": "{{ groups['all'] | map('extract', hostvars, 'message') | to_json }}",
                    "dest": str(directory / "messages.json"),
                    "mode": "0644",
                },
                "check_mode": False,
                "run_once": True,
                "delegate_to": "localhost",
                "vars": {"ansible_python_interpreter": sys.executable},
            },
        ],
    }
    printed = run_play(directory, play, *arguments, inventory=directory / "hosts.json")
    messages = json.loads((directory / "messages.json").read_text())
    return {
        name: message if message != "accepted" else _printed_by(f"host{number}", printed)
        for number, (name, message) in enumerate(zip(cases, messages, strict=True))
    }


def _printed_by(host: str, printed: str) -> str:
    return " ".join(line for line in printed.splitlines() if f"{host}: would" in line)


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, dict[str, str]]:
    """The error message of each case, with check mode and without."""
    directory = tmp_path_factory.mktemp("refusals")
    return {
        True: _run(directory / "check", {**CASES, **ACCEPTED}, "--check"),
        False: _run(directory / "real", REFUSALS),
    }


@pytest.mark.parametrize(("name", "check"), [*((name, True) for name in CASES), *((name, False) for name in REFUSALS)])
def test_a_request_is_refused_before_any_module_runs(
    name: str, check: bool, messages: dict[bool, dict[str, str]]
) -> None:
    message = messages[check][name]
    assert [part for part in CASES[name][3] if part not in message] == []
    assert message.startswith("host")
    assert len(message) < 300 or name in REFUSALS


@pytest.mark.parametrize("name", FORMS)
def test_a_value_of_another_form_is_refused_in_one_short_line(name: str) -> None:
    role, variables, (suite, _driver, _gpu), words = FORMS[name]
    (message,) = PLANS[role](None, DISTRIBUTIONS[suite], **variables)["refusals"]
    assert [part for part in words if part not in message] == []
    assert "\n" not in message
    assert len(message) < 280


# Known by the variables and the distribution alone, before driver, GPUs and package lists.
OF_VARIABLES = (
    "another version than the distribution's",
    "distribution without a toolkit",
    "component of another source",
    "default that is not requested",
    "no runfile",
    "cuDNN 8.9 for CUDA 13",
    "packages that exclude each other",
    "archives in one directory",
    "version of Docker",
    "empty password",
    "proxy of another name",
    "mirror of Docker",
    "distribution without Docker",
    "key of the toolkit's repository",
    "version and engine of the toolkit",
    "limit and variable of a container",
    "policy of the health check",
    "setting, GPUs and layout of the GPU state",
)


@pytest.mark.parametrize("name", OF_VARIABLES)
def test_the_site_playbook_refuses_the_same_in_the_same_words(name: str, messages: dict[bool, dict[str, str]]) -> None:
    role, variables, (suite, _driver, _gpu), _words = REFUSALS[name]
    files = RoleData.read()
    host = known(_facts(suite, "", None), packages={})
    refusals = check([role], {**files.defaults(variables_of([role])), **variables}, host).refusals
    assert "; ".join(refusals) == messages[False][name].partition(": ")[2]


@pytest.mark.parametrize("name", ACCEPTED)
def test_check_mode_previews_what_fits(name: str, messages: dict[bool, dict[str, str]]) -> None:
    assert ACCEPTED[name][3] in messages[True][name]
