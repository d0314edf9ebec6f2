# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The distribution's CUDA toolkit next to drivers, on the real indexes: which packages come, and that none goes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.packages import family

from tests.unit.plays import run_play
from tests.unit.real_indexes.apt_root import AptRoot, stanzas_of

pytestmark = pytest.mark.plays

RELEASES = {
    "noble": ("Ubuntu", "24.04", "12.0"),
    "jammy": ("Ubuntu", "22.04", "11.5"),
    "bookworm": ("Debian", "12.15", "11.8"),
    "trixie": ("Debian", "13.7", "12.4"),
}
# The excerpts lack the package that stands for the default compiler.
COMPILER = "Package: g++\nVersion: 4:14\nArchitecture: amd64\nComponent: main"
UBUNTU = {
    "no driver": (),
    "server driver": ("nvidia-driver-580-server-open",),
    "transitional driver": ("nvidia-driver-535-server-open",),
    "desktop driver": ("nvidia-driver-595-open",),
    "headless driver": ("nvidia-headless-580-server-open", "nvidia-utils-580-server"),
    "compute driver": ("libnvidia-compute-580-server", "nvidia-dkms-580-server-open", "nvidia-utils-580-server"),
}
DEBIAN = {
    "no driver": (),
    "driver": ("nvidia-driver",),
    "driver and its CUDA library": ("nvidia-driver", "libcuda1"),
}
HOSTS = {
    **{f"{release}, {name}": (release, names) for release in ("noble", "jammy") for name, names in UBUNTU.items()},
    **{f"{release}, {name}": (release, names) for release in ("bookworm", "trixie") for name, names in DEBIAN.items()},
}
# What comes with the toolkit where there is no driver: its libraries for programs, and the files that these need.
LIBRARIES = {
    "noble": {
        "libnvidia-compute-535",
        "libnvidia-compute-580",
        "nvidia-kernel-common-580",
        "nvidia-firmware-580-580.178.04",
    },
    "jammy": {
        "libnvidia-compute-495",
        "libnvidia-compute-580",
        "nvidia-kernel-common-580",
        "nvidia-firmware-580-580.178.04",
    },
    "bookworm": {"libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-alternative", "nvidia-support"},
    "trixie": {"libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-alternative", "nvidia-support"},
}
# Not of the toolkit's own archive: the driver that the toolkit would replace, and those of another version.
REFUSED: dict[str, tuple[str, tuple[str, ...], str, list[str]]] = {
    "jammy, an old driver": (
        "jammy",
        ("nvidia-driver-470",),
        "470.256.02",
        ["nvidia-cuda-toolkit would install, change or remove", "nvidia-driver-470", "which belongs to a driver"],
    ),
    "noble, an old driver": (
        "noble",
        ("nvidia-driver-470",),
        "470.256.02",
        ["CUDA 12.0 needs driver 525.60.13 or newer, not 470.256.02", "Ubuntu 24.04", "cuda_source"],
    ),
    "trixie, a driver from elsewhere": (
        "trixie",
        (),
        "580.159.04",
        ["nvidia-cuda-toolkit would install, change or remove", "libcuda1", "which belongs to a driver"],
    ),
    "noble, a driver from elsewhere": (
        "noble",
        (),
        "595.58.03",
        ["libnvidia-compute-580", "which belongs to a driver"],
    ),
}


def _driver(installed: dict[str, str]) -> str:
    """The version that the driver's files on disk have."""
    versions = (text for name, text in installed.items() if re.match(r"libnvidia-(compute-|cfg1|ml1)", name))
    return max((text.partition("-")[0] for text in versions), default="")


def _facts(release: str, driver: str) -> dict[str, Any]:
    distribution, version, _cuda = RELEASES[release]
    found = {"library_version": driver or None, "loaded_version": driver or None, "library_path": None}
    return {
        "distribution": distribution,
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
        "os_family": "Debian",
        "architecture": "x86_64",
        "gpu_fleet_managed": {},
        "nvidia_smi": {"pci_gpus": []},
        "cuda": {"driver": {**found, "loaded": driver != ""}, "alternatives": {}, "toolkits": []},
    }


def _run(
    directory: Path, hosts: dict[str, tuple[AptRoot, dict[str, Any]]], lists: str = "cached"
) -> dict[str, dict[str, Any]]:
    """The role's plan for each host in check mode, from one run of Ansible; or the error message as its refusal."""
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {
        f"host{number}": {**common, "facts": facts, "tools": root.environment}
        for number, (root, facts) in enumerate(hosts.values())
    }
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": inventory}}))
    role = {"name": "gpu.fleet.cuda", "public": True}
    again = {"role": "cuda", "facts": {"lists": "fresh"}}
    fresh = [{"gpu.fleet.role_plan": again, "register": "__cuda_plan"}] if lists == "fresh" else []
    play = {
        "hosts": "all",
        "gather_facts": False,
        "environment": "{{ tools }}",
        "vars": {
            "ansible_facts": "{{ facts }}",
            "__common_facts_are_read": True,
            "cuda_source": "distribution",
        },
        "tasks": [
            {
                "block": [
                    {"ansible.builtin.include_role": role},
                    *fresh,
                    {"ansible.builtin.set_fact": {"result": "{{ __cuda_plan }}"}},
                ],
                "rescue": [{"ansible.builtin.set_fact": {"result": {"refusals": "{{ [ansible_failed_result.msg] }}"}}}],
            },
            {
                "ansible.builtin.copy": {
                    "content": "{{ groups['all'] | map('extract', hostvars, 'result') | to_json }}",
                    "dest": str(directory / "results.json"),
                    "mode": "0644",
                },
                "check_mode": False,
                "run_once": True,
            },
        ],
    }
    run_play(directory, play, "--check", inventory=directory / "hosts.json")
    return dict(zip(hosts, json.loads((directory / "results.json").read_text()), strict=True))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[AptRoot, dict[str, Any]]]:
    """Each host with what is installed on it, and its facts."""
    roots = {name: AptRoot(tmp_path_factory.mktemp(name), [*stanzas_of(name), COMPILER]) for name in RELEASES}
    found = {}
    packages: Iterable[tuple[str, tuple[str, tuple[str, ...], str | None]]] = [
        *((name, (release, names, None)) for name, (release, names) in HOSTS.items()),
        *((name, (release, names, driver)) for name, (release, names, driver, _words) in REFUSED.items()),
    ]
    for name, (release, names, driver) in packages:
        root = roots[release].host(tmp_path_factory.mktemp("host"))
        installed = root.install(*names)
        found[name] = (root, _facts(release, _driver(installed) if driver is None else driver))
    return found


@pytest.fixture(scope="module")
def plans(
    hosts: dict[str, tuple[AptRoot, dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The plan of each host."""
    return _run(tmp_path_factory.mktemp("cuda"), hosts)


@pytest.mark.parametrize("name", HOSTS)
def test_the_toolkit_comes_and_nothing_goes(
    name: str, hosts: dict[str, tuple[AptRoot, dict[str, Any]]], plans: dict[str, dict[str, Any]]
) -> None:
    root, facts = hosts[name]
    plan = plans[name]
    assert plan["refusals"] == []
    assert plan["versions"] == [RELEASES[HOSTS[name][0]][2]]
    assert plan["packages"] == ["nvidia-cuda-toolkit"]
    # The plan has all that apt would do, and of that nothing touches a package that is there.
    simulated = root.run(["apt-get", "--simulate", "--no-install-recommends", "install", *plan["packages"], "g++"])
    lines = [line for line in simulated.text.splitlines() if re.match("Inst|Remv|Purg", line)]
    assert sorted(plan["changes"]) == sorted(line.split()[1] for line in lines)
    assert [line for line in lines if not re.match(r"Inst \S+ \(", line)] == []
    assert set(plan["changes"]) & set(root.installed) == set()
    assert {"nvidia-cuda-toolkit", "nvidia-cuda-dev", "nvidia-profiler", "libnvidia-ml-dev"} <= set(plan["changes"])
    of_driver = set(family(plan["changes"], {}))
    assert not {one for one in of_driver if re.search("dkms|driver|headless|kmod|persistenced|linux-modules", one)}
    if facts["cuda"]["driver"]["loaded"]:
        assert not of_driver or name.startswith(("bookworm", "trixie"))
    else:
        assert of_driver >= LIBRARIES[HOSTS[name][0]]


@pytest.mark.parametrize("name", REFUSED)
def test_a_toolkit_that_would_touch_the_driver_is_refused_in_check_mode(
    name: str, plans: dict[str, dict[str, Any]]
) -> None:
    (message,) = plans[name]["refusals"]
    assert [words for words in REFUSED[name][3] if words not in message] == []


def test_a_compiler_that_no_repository_has_is_named_and_nothing_else(tmp_path: Path) -> None:
    asked = ["apt-get", "--simulate", "--no-install-recommends", "install", "nvidia-cuda-toolkit", "g++"]
    # By itself apt-get takes the name for the pattern `g+`: it would install a driver, or reports conflicts of drivers.
    reported = {
        "bookworm": "Inst nvidia-tesla-470-alternative ",
        "noble": "xserver-xorg-video-nvidia-470 : Conflicts: ",
    }
    roots = {}
    for release, words in reported.items():
        (tmp_path / release).mkdir()
        roots[release] = AptRoot(tmp_path / release, stanzas_of(release))
        assert words in roots[release].run(asked).text
    hosts = {release: (root, _facts(release, "")) for release, root in roots.items()}
    plans = _run(tmp_path, hosts, lists="fresh")
    for number, (release, distribution) in enumerate((("bookworm", "Debian 12"), ("noble", "Ubuntu 24.04"))):
        (refusal,) = plans[release]["refusals"]
        assert refusal == (
            f"host{number}: no repository of this host has g++, the host compiler that nvcc needs, so "
            f"nvidia-cuda-toolkit was not installed; add the archive of {distribution}"
        )
    # Before the lists are refreshed it may be only these that lack it.
    assert [plan["refusals"] for plan in _run(tmp_path, hosts).values()] == [[], []]
