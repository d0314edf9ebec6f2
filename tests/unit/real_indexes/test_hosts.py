# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role would do on hosts as people have them, by its own tasks and apt on Ubuntu's real index."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackagePlan
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.packages import family as driver_family

from tests.unit.plays import run_play
from tests.unit.real_indexes.apt_root import AptRoot

pytestmark = pytest.mark.plays

Roots = Callable[[str], AptRoot]
KERNEL = "6.8.0-151-generic"
# What was installed by hand, an image or ubuntu-drivers, before the role ever ran.
HOSTS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "server driver": ("nvidia-driver-580-server-open",),
    "desktop driver": ("nvidia-driver-580-open",),
    "proprietary driver": ("nvidia-driver-580-server",),
    "as ubuntu-drivers installs it": (
        "nvidia-driver-580-server-open",
        "linux-modules-nvidia-580-server-open-generic",
    ),
    "headless driver": ("nvidia-headless-580-server-open", "nvidia-utils-580-server"),
    "driver and CUDA of the distribution": ("nvidia-driver-580-server-open", "nvidia-cuda-toolkit"),
    "CUDA of the distribution alone": ("nvidia-cuda-toolkit", "libnvidia-compute-580-server"),
}


@dataclass
class Decision:
    """What the role decided: the driver stays as it is, or packages to install and remove."""

    keeps: bool
    install: list[str]
    remove: list[str]
    record: list[str]
    family: list[str]
    preferences: str


Case = tuple[str, str, bool]
"""A host, nvidia_driver_version and nvidia_driver_replace_unmanaged."""
KEPT: list[Case] = [(host, version, False) for host in HOSTS for version in ("580", "newest")]
REPLACED: list[Case] = [(host, "580", True) for host in ("server driver", "driver and CUDA of the distribution")]


def facts(installed: Mapping[str, str]) -> dict[str, Any]:
    """What Ansible and cuda_facts find on a host with these packages."""
    version = next((version.partition("-")[0] for name, version in installed.items() if "compute-" in name), None)
    kind = "open" if any(name.endswith("-open") for name in installed) else "proprietary"
    module = version if any(re.search("nvidia-dkms-|linux-modules-nvidia-", name) for name in installed) else None
    driver = {"library_version": version, "module_version": module, "loaded_version": module} | {
        "loaded": module is not None,
        "module_kind": kind if module else None,
        "loaded_kind": kind if module else None,
        "reboot_required": False,
    }
    return {
        "distribution": "Ubuntu",
        "distribution_version": "24.04",
        "distribution_major_version": "24",
        "os_family": "Debian",
        "architecture": "x86_64",
        "kernel": KERNEL,
        "packages": {name: [{"version": version}] for name, version in installed.items()},
        "nvidia_smi": {
            "pci_gpus": [{"device_id": "0x2335"}],
            "available": module is not None,
            "reason": None if module else "no_driver",
        },
        "cuda": {"driver": driver},
    }


def known_facts() -> dict[str, Any]:
    """A task that makes `found` of a host its facts."""
    found = {name: f"{{{{ found.{name} }}}}" for name in facts({})}
    managed = {"gpu_fleet_managed": "{{ found.gpu_fleet_managed | default({}) }}"}
    return {"ansible.builtin.set_fact": {**found, **managed, "cacheable": True}}


def variables(host: str, version: str, replace: bool, root: AptRoot) -> dict[str, Any]:
    """The variables of one host of the inventory."""
    return {
        "found": facts(root.installed),
        "tools": root.environment,
        "nvidia_driver_version": version,
        "nvidia_driver_replace_unmanaged": replace,
        "nvidia_driver_ubuntu_series": "desktop" if host == "desktop driver" else "server",
        "nvidia_driver_kernel_modules": "proprietary" if host == "proprietary driver" else "auto",
    }


@pytest.fixture(scope="module")
def decisions(roots: Roots, tmp_path_factory: pytest.TempPathFactory) -> dict[Case, tuple[AptRoot, Decision]]:
    """What the role's tasks that select the driver decide in each case, from one run of Ansible."""
    directory = tmp_path_factory.mktemp("hosts")
    hosts: dict[Case, AptRoot] = {}
    for number, case in enumerate([*KEPT, *REPLACED]):
        (directory / f"host{number}").mkdir()
        hosts[case] = roots("noble").host(directory / f"host{number}")
        hosts[case].install(*HOSTS[case[0]])
    names = {
        "keeps": "__nvidia_driver_selection.is_kept",
        "install": "__nvidia_driver_selection.install",
        "preferences": "__nvidia_driver_selection.preferences",
        "remove": "__nvidia_driver_selection.removals",
        "record": "__nvidia_driver_selection.unmanaged",
        "family": "__nvidia_driver_selection.family",
    }
    decided = "{{ {" + ", ".join(f"'{name}': {value}" for name, value in names.items()) + "} | to_json }}"
    output = str(directory / "{{ inventory_hostname }}.json")
    parts = ["plan.yml", "select/main.yml"]
    role = {"name": "gpu.fleet.nvidia_driver", "public": True}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "environment": "{{ tools }}",
        "vars": {"__common_facts_are_read": True},
        "tasks": [
            known_facts(),
            *({"ansible.builtin.include_role": {**role, "tasks_from": part}} for part in parts),
            {"ansible.builtin.copy": {"content": decided, "dest": output, "mode": "0644"}},
        ],
    }
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable} | {
        "nvidia_driver_source": "distribution",
        "nvidia_driver_boot_kernel": KERNEL,
        "nvidia_driver_preflight": False,
    }
    inventory = {
        f"host{number}": {**common, **variables(*case, root)} for number, (case, root) in enumerate(hosts.items())
    }
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": inventory}}))
    run_play(directory, play, inventory=directory / "hosts.json")
    outputs = [(directory / f"host{number}.json").read_text() for number in range(len(hosts))]
    return {
        case: (root, Decision(**json.loads(text))) for (case, root), text in zip(hosts.items(), outputs, strict=True)
    }


def transaction(root: AptRoot, decision: Decision) -> PackagePlan:
    """What package_transaction would do on this host, as apt does it."""
    found, installed, removed = root.transaction(decision.install, decision.remove, decision.preferences)
    assert isinstance(found, PackagePlan), found
    assert (dict(found.install), set(found.remove)) == (installed, set(removed))
    return found


@pytest.mark.parametrize("case", KEPT, ids=str)
def test_nothing_that_was_there_is_removed(case: Case, decisions: dict[Case, tuple[AptRoot, Decision]]) -> None:
    root, decision = decisions[case]
    assert decision.remove == []
    # All of them are recorded as unmanaged, so that no later run removes them either.
    assert decision.record == decision.family == driver_family(root.installed, sources(root))
    assert not (decision.keeps and case[0].startswith(("nothing", "CUDA"))), "libraries alone are no driver"
    if not decision.keeps:
        plan = transaction(root, decision)
        assert dict(plan.remove) == {}
        assert {name for name in plan.install if name in root.installed} == set()


@pytest.mark.parametrize("case", REPLACED, ids=str)
def test_what_is_removed_with_permission_is_named(case: Case, decisions: dict[Case, tuple[AptRoot, Decision]]) -> None:
    root, decision = decisions[case]
    assert "xserver-xorg-video-nvidia-580-server" in decision.remove
    assert not {"libnvidia-ml-dev", "nvidia-opencl-dev", "nvidia-cuda-toolkit"} & set(decision.remove)
    plan = transaction(root, decision)
    assert set(plan.remove) <= set(decision.remove)
    assert "libnvidia-compute-580-server" not in plan.remove
    assert decision.record == []


def sources(root: AptRoot) -> dict[str, str]:
    """The source package of each installed package."""
    listed = root.run(["dpkg-query", "--show", "--showformat", "${Package}\\t${source:Package}\\n"]).text
    return dict(line.split("\t") for line in listed.splitlines())


def test_the_family_is_the_driver_and_not_cuda(roots: Roots) -> None:
    """Every package of Ubuntu's CUDA and every one of its driver, also such as look like one another."""
    root = roots("noble")
    by_source = {}
    for stanza in root.stanzas:
        fields = dict(line.partition(": ")[::2] for line in stanza.splitlines())
        by_source[fields["Package"]] = fields.get("Source", fields["Package"]).partition(" ")[0]
    found = set(driver_family(by_source, by_source))
    of_driver = {name for name, source in by_source.items() if source.startswith("nvidia-graphics-drivers")}
    of_cuda = {name for name, source in by_source.items() if source == "nvidia-cuda-toolkit"}
    assert len(of_driver) > 500 and len(of_cuda) > 20
    assert of_driver <= found
    assert not of_cuda & found
    # By their names alone, as where dpkg's sources are not read.
    assert not {"libnvidia-ml-dev", "nvidia-opencl-dev", "nvidia-cuda-toolkit"} & set(driver_family(by_source, {}))


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("linux-modules-nvidia-fs-6.8.0-1020-nvidia", "linux-nvidia", False),
        ("linux-modules-nvidia-fs-6.8.0-1020-nvidia", "", False),
        ("nvidia-fs-dkms", "nvidia-fs", False),
        ("linux-modules-nvidia-580-server-open-generic", "linux-restricted-modules", True),
        ("linux-modules-nvidia-580-server-open-6.8.0-151-generic", "linux-restricted-signatures", True),
        ("libnvidia-container1", "libnvidia-container", False),
        ("nvidia-container-toolkit", "nvidia-container-toolkit", False),
        ("libnvidia-nscq-580", "libnvidia-nscq-580", True),
        ("nvidia-fabricmanager-580", "fabric-manager-580", True),
        # NVIDIA's own packages: their sources are not known, the names are.
        ("libnvidia-compute", "some-source", True),
        ("nvidia-driver-cuda", "", True),
        ("kmod-nvidia-open-dkms", "", True),
        ("cuda-toolkit-13-0", "", False),
        # A package without a field Source is its own source.
        ("cuda-drivers", "cuda-drivers", True),
        ("nvlsm", "nvlsm", True),
        (
            "linux-modules-nvidia-580-server-open-6.8.0-48-generic",
            "linux-modules-nvidia-580-server-open-6.8.0-48-generic",
            True,
        ),
        ("linux-modules-nvidia-fs-6.8.0-48-generic", "linux-modules-nvidia-fs-6.8.0-48-generic", False),
    ],
)
def test_family_by_source_and_name(name: str, source: str, expected: bool) -> None:
    assert driver_family([name], {name: source} if source else {}) == ([name] if expected else [])
