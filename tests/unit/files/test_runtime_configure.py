# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role writes for the engines, next to what `nvidia-ctk runtime configure` of four versions writes.

The fixture has, by version, the settings that the real nvidia-ctk changed: of containerd's CRI plugin, from the dumps
in fixtures/containerd and from no file; of CRI-O and daemon.json, from no file. It ran on a host with two H200.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._files import containerd, crio, daemon_json

from tests.unit.containers.test_toolkit_plan import facts, stage

FIXTURES = Path(__file__).parent / "fixtures"
CONFIGURED = json.loads((FIXTURES / "nvidia-ctk-runtime-configure.json").read_text())
VERSIONS = list(CONFIGURED)
CASES = ("1.6-packaged", "1.7-packaged", "2.1-packaged")
CRI = {"1": "io.containerd.grpc.v1.cri", "2": "io.containerd.cri.v1.runtime"}
BINARY = "/usr/bin/nvidia-container-runtime"

Settings = dict[str, Any]

REASONS = {
    ("containerd", "enable_cdi", "1.6"): "containerd 1.6 has no such setting, and ignores it",
    ("containerd", "enable_cdi", "2.1"): "containerd 2 has it on by default",
    (
        "crio",
        "monitor_path",
    ): "nvidia-ctk reads crio.conf alone; upstream packages have none, and conmon is not in PATH",
    ("crio", "runtime_root"): "as monitor_path: of the copied runtime",
    ("crio", "allowed_annotations"): "as monitor_path: of the copied runtime",
    ("crio", "privileged_without_host_devices"): "as monitor_path: of the copied runtime",
}
"""Why what we write differs."""

REFUSED = {("1.14.6", "2.1-packaged"): "unsupported config version: 3"}
"""What nvidia-ctk itself cannot configure."""


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{name}/{key}" if name else key)
    else:
        yield name, value


def _compare(title: str, ours: Settings, theirs: Settings) -> set[str]:
    """Print the counts; return the settings that differ."""
    same = {key for key in ours if key in theirs and theirs[key] == ours[key]}
    differing = (ours.keys() | theirs.keys()) - same
    print(f"{title}: {len(same)} settings the same, {len(differing)} differ {sorted(differing) or ''}")
    assert same, "nothing was compared"
    return differing


def _plugin(case: str, name: str) -> Settings:
    document = tomllib.loads((FIXTURES / "containerd" / case / name).read_text())
    return dict(_flat(document["plugins"][CRI[case[0]]]))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", VERSIONS)
def test_containerd_has_the_settings_that_nvidia_ctk_makes(version: str, case: str) -> None:
    configured = CONFIGURED[version]["containerd"]
    if isinstance(configured[case], str):
        assert configured[case].endswith(REFUSED[version, case])
        return
    theirs = {**configured[case], "enable_cdi": configured["no file, --cdi.enabled"]["enable_cdi"]}
    before, after = _plugin(case, "dump.toml"), _plugin(case, "merged.toml")
    ours = {key: value for key, value in after.items() if before.get(key) != value or key not in before}
    differing = _compare(f"nvidia-ctk {version}, containerd {case}", ours, theirs)
    assert differing == {key for engine, key, *of in REASONS if engine == "containerd" and of == [case[:3]]}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_default_runtime_is_set_as_by_nvidia_ctk(version: str) -> None:
    configured = CONFIGURED[version]["containerd"]
    without, with_default = configured["no file"], configured["no file, --set-as-default"]
    added = {key: value for key, value in with_default.items() if key not in without}
    dump = (FIXTURES / "containerd" / "2.1-packaged" / "dump.toml").read_text()
    chosen, other = (
        dict(_flat(tomllib.loads(containerd.drop_in(dump, "", containerd.Runtime("nvidia", BINARY, True, default)))))
        for default in (True, False)
    )
    ours = {key.split(CRI["2"] + "/")[1]: value for key, value in chosen.items() if key not in other}
    assert _compare(f"nvidia-ctk {version}, --set-as-default", ours, added) == set()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("default", [False, True])
def test_crio_has_in_addition_what_its_default_runtime_has(version: str, default: bool) -> None:
    dump = (FIXTURES / "crio" / "upstream.toml").read_text()
    written = tomllib.loads(crio.drop_in(dump, containerd.Runtime("nvidia", BINARY, True, default)))["crio"]
    ours, theirs = dict(_flat(written)), dict(_flat(CONFIGURED[version]["crio"]["default" if default else "plain"]))
    differing = _compare(f"nvidia-ctk {version}, CRI-O{', --set-as-default' if default else ''}", ours, theirs)
    assert differing == {f"runtime/runtimes/nvidia/{key}" for engine, key, *_case in REASONS if engine == "crio"}


VARIANTS: dict[str, Settings] = {
    "plain": {"mode": "legacy"},
    "cdi": {},
    "default": {"mode": "legacy", "default_runtime": True},
}


@pytest.fixture(scope="module")
def options() -> dict[str, Settings]:
    """The role's options for daemon.json by variant."""
    programs = {"files": [{"path": BINARY}, {"path": f"{BINARY}-hook"}]}
    return {
        name: stage("plan", variables, facts(), step="installed", facts={}, units={}, programs=programs)[
            "docker_options"
        ]
        for name, variables in VARIANTS.items()
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_daemon_json_has_what_nvidia_ctk_writes(version: str, options: dict[str, Settings]) -> None:
    theirs = CONFIGURED[version]["docker"]
    for name, ours in options.items():
        title = f"nvidia-ctk {version}, daemon.json {name}"
        assert _compare(title, dict(_flat(ours)), dict(_flat(theirs[name]))) == set()
    there = {"log-driver": "journald", "runtimes": {"x": {"path": "/x"}}}
    assert daemon_json.merge(there, options["plain"], {}) == theirs["merge"]
