# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that role_plan refuses before any module runs on the host, and converged hosts, on which none runs."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import variables_of

from tests.unit.plays import run_play
from tests.unit.repository.test_repository_variables import (
    DEBIAN12,
    DEBIAN13,
    ROCKY9,
    UBUNTU24,
    UBUNTU_KEY,
    facts_of,
    planned,
)
from tests.unit.site.known import check, known

pytestmark = pytest.mark.plays

EL10 = ("Rocky", "10.0", "x86_64")
OWN = {"fingerprints": ["0123456789ABCDEF0123456789ABCDEF01234567"]}
MIRROR = {"url": "https://mirror.example.com/x/", "key_url": "https://mirror.example.com/key", **OWN}

# Host, variables, and a part of the error message.
REFUSALS: dict[str, tuple[tuple[str, str, str], dict[str, Any], str]] = {
    "distribution": (
        ("Fedora", "42", "x86_64"),
        {},
        "no repository cuda is known for Fedora 42 on x86_64; supported: Debian 12",
    ),
    "architecture": (("Ubuntu", "24.04", "ppc64le"), {}, "on ppc64le; supported:"),
    "no fingerprint at all": (
        ("Ubuntu", "26.04", "x86_64"),
        {"nvidia_repository_cuda": {"key_url": "https://mirror.example.com/key", "fingerprints": []}},
        "this collection knows none",
    ),
    # Its checksum is a third party's.
    "key of Enterprise Linux 10 over http": (
        EL10,
        {"nvidia_repository_cuda": {"url": "http://mirror.example.com/x/", "key_url": "http://mirror.example.com/key"}},
        "has not published the fingerprint of this key, so it has to come over https",
    ),
    "no fingerprint": (
        DEBIAN12,
        {"nvidia_repository_cuda": {"fingerprints": ["3BF863CC"]}},
        "(these are not fingerprints: 3BF863CC)",
    ),
    "mirror without a key": (
        ("Fedora", "42", "x86_64"),
        {"nvidia_repository_cuda": {"url": "https://x/", **OWN}},
        'nvidia_repository_cuda.key_url is ""; it has to be a URL (https, http or file)',
    ),
    "url": (
        DEBIAN12,
        {"nvidia_repository_cuda": {"url": "ftp://x/"}},
        'nvidia_repository_cuda.url is "ftp://x/"; it has to be a URL',
    ),
    "Debian 13 with the URL for 12": (
        DEBIAN13,
        {
            "nvidia_repository_cuda": {
                "url": "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
            }
        },
        "Debian 13 rejects NVIDIA's key 3BF863CC since 2026-02-01",
    ),
    "Debian 13 with the mirrored URL for Ubuntu": (
        DEBIAN13,
        {"nvidia_repository_cuda": {"url": "https://mirror.example.com/repos/ubuntu2404/x86_64"}},
        "its self-signature was made with SHA-1",
    ),
    "Debian 13 with the key of 12": (
        DEBIAN13,
        {"nvidia_repository_cuda": {"fingerprints": [UBUNTU_KEY]}},
        "its self-signature was made with SHA-1",
    ),
    "unverified fingerprint over http": (
        ROCKY9,
        {"nvidia_repository_cuda": {"key_url": "http://mirror.example.com/D42D0685.pub"}},
        'it has to come over https or from a file, not from "http://mirror.example.com/D42D0685.pub"',
    ),
    "PPA on Debian": (
        DEBIAN12,
        {"nvidia_repository_repositories": ["graphics_drivers"], "nvidia_repository_needed_by": "nvidia_driver"},
        "the graphics-drivers PPA is for Ubuntu, and this is Debian 12",
    ),
    "no local package": (
        DEBIAN12,
        {"nvidia_repository_repositories": ["local"]},
        "nvidia_repository_local has to name at least one repository package",
    ),
    "local package with a wrong checksum": (
        DEBIAN12,
        {
            "nvidia_repository_repositories": ["local"],
            "nvidia_repository_local": [{"source": "/x.deb", "sha256": "ab"}],
        },
        "its sha256 of 64 hexadecimal digits",
    ),
    "attempts": (DEBIAN12, {"nvidia_repository_attempts": 9}, "nvidia_repository_attempts has to be 1 to 5, and is 9"),
    "unknown repository": (DEBIAN12, {"nvidia_repository_repositories": ["cuda11"]}, "cuda11"),
    "unknown option": (DEBIAN12, {"nvidia_repository_cuda": {"urls": "https://x/"}}, "urls"),
}
# Accepted requests: host, repository, variables. These hosts have a record that everything is done.
CONVERGED: dict[str, tuple[tuple[str, str, str], str, dict[str, Any]]] = {
    "apt": (DEBIAN12, "cuda", {}),
    "dnf": (ROCKY9, "container_toolkit", {}),
    "PPA": (UBUNTU24, "graphics_drivers", {}),
    "mirror of an unknown distribution": (("Fedora", "42", "x86_64"), "cuda", {"nvidia_repository_cuda": MIRROR}),
    "Debian 13 with a mirror that signs by itself": (
        DEBIAN13,
        "cuda",
        {"nvidia_repository_cuda": {"url": "https://mirror.example.com/repos/debian12/", **OWN}},
    ),
}


def _host(host: tuple[str, str, str], records: dict[str, Any], **variables: Any) -> dict[str, Any]:
    return {**variables, "ansible_facts": {**facts_of(host), "gpu_fleet_managed": records}}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The error message of the role on each host, from one run; empty if it succeeded."""
    directory = tmp_path_factory.mktemp("refusals")
    hosts = {name: _host(host, {}, **variables) for name, (host, variables, _message) in REFUSALS.items()}
    for name, (host, repository, variables) in CONVERGED.items():
        record = {"inputs": planned(host, repository, **variables).inputs, "drift": [], "data": {"needed_by": ["me"]}}
        desired = {"nvidia_repository_repositories": [repository], "nvidia_repository_needed_by": "me", **variables}
        hosts[name] = _host(host, {f"nvidia_repository.{repository}": record}, **desired)
    # Any module that runs fails with this interpreter.
    common = {"ansible_python_interpreter": "/nonexistent", "ansible_connection": "local"}
    names = {f"host{number}": name for number, name in enumerate(hosts)}
    inventory = {"all": {"hosts": {f"host{n}": {**common, "variables": hosts[name]} for n, name in enumerate(hosts)}}}
    (directory / "hosts.json").write_text(json.dumps(inventory))
    play = {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {
                "block": [
                    {
                        "ansible.builtin.include_role": {"name": "gpu.fleet.nvidia_repository"},
                        "vars": {
                            **{
                                name: f"{{{{ variables.{name} | default({json.dumps(default)}) }}}}"
                                for name, default in (
                                    ("nvidia_repository_repositories", ["cuda"]),
                                    ("nvidia_repository_cuda", {}),
                                    ("nvidia_repository_local", []),
                                    ("nvidia_repository_needed_by", ""),
                                    ("nvidia_repository_attempts", 4),
                                )
                            },
                            "__common_facts_are_read": True,
                            "ansible_facts": "{{ variables.ansible_facts }}",
                        },
                    },
                    {"ansible.builtin.set_fact": {"message": ""}},
                ],
                "rescue": [{"ansible.builtin.set_fact": {"message": "{{ ansible_failed_result.msg }}"}}],
            },
            {
                "ansible.builtin.copy": {
                    "content": "{{ groups['all'] | map('extract', hostvars, 'message') | to_json }}",
                    "dest": str(directory / "message.json"),
                    "mode": "0644",
                },
                "run_once": True,
                "delegate_to": "localhost",
                "vars": {"ansible_python_interpreter": sys.executable},
            },
        ],
    }
    run_play(directory, play, inventory=directory / "hosts.json")
    message = json.loads((directory / "message.json").read_text())
    return dict(zip((names[f"host{number}"] for number in range(len(message))), message, strict=True))


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_is_refused_by_name_before_anything_runs(name: str, reported: dict[str, str]) -> None:
    assert REFUSALS[name][2] in reported[name]


@pytest.mark.parametrize("name", CONVERGED)
def test_a_converged_host_runs_no_module(name: str, reported: dict[str, str]) -> None:
    assert reported[name] == ""


# In the playbook another check comes first: that of the distribution or of the form of the variables. No role of it has
# packages with a repository but the driver's, which names its own variables.
_OTHERS_FIRST = ("distribution", "mirror without a key", "unknown repository", "unknown option")
OF_SITE = [name for name in REFUSALS if name not in _OTHERS_FIRST and "local package" not in name]


@pytest.mark.parametrize("name", OF_SITE)
def test_the_site_playbook_refuses_the_same_in_the_same_words(name: str, reported: dict[str, str]) -> None:
    host, variables, _message = REFUSALS[name]
    of_ppa = "nvidia_repository_repositories" in variables
    role = "nvidia_driver" if of_ppa else "cuda"
    chosen = (
        {"nvidia_driver_source": "ppa"} if of_ppa else {"cuda_source": "cuda_repository", "cuda_versions": ["13.0"]}
    )
    files = RoleData.read()
    values = {**files.defaults(variables_of([role])), **chosen, **variables}
    refusals = check([role], values, known({**facts_of(host), "architecture": host[2]})).refusals
    assert "; ".join(refusals) == reported[name].partition(": ")[2]
