# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of a user's variables: what is refused, and that everything that is documented passes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.remedies import PREFIX as REMEDIATE_PREFIX
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import PREFIX
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import public_names
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.variable_names import GIVEN, OF_PLAYBOOKS, STRICT

from tests.checks.tools import project_files
from tests.conftest import ROOT

NAMES = public_names()
OF_OTHERS = (
    *("cuda_home", "docker_edition", "docker_compose_version", "docker_daemon_log_driver", "cudnn_archive"),
    *("nvidia_smi_path", "gpu_count", "gpus", "state_gpu", "driver_version", "kubernetes_version", "slurm_version"),
    # Roles with names of one word, which others use as well.
    *("common", "cuda", "cudnn", "docker", "enroot"),
    *(
        "ansible_user",
        "ansible_nvidia_driver_verison",
        "__gpu_state_powerlimit",
        "_gpu_fleet_site",
        "inventory_hostname",
    ),
)
"""Names in an inventory that are none of ours, and not meant for us."""


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("nvidia_driver_verison", "nvidia_driver_version"),
        ("gpu_state_powerlimit", "gpu_state_power_limit"),
        ("gpu_fleet_targts", "gpu_fleet_targets"),
        ("docker_sate", "docker_state"),
        ("cuda_version", "cuda_versions"),
        ("nvida_driver_version", "nvidia_driver_version"),
        ("gpu_flet_roles", "gpu_fleet_roles"),
        ("gpu_fleet_upgrade_max_unavail", "gpu_fleet_upgrade_max_unavailable"),
        ("run_container_imgae", "run_container_image"),
        ("windows_gpu_driver_versions", None),
        ("nvidia_driver_branch", None),
        ("kubernetes_node_x", None),
    ],
)
def test_a_misspelled_name_is_refused_with_the_nearest_one(name: str, nearest: str | None) -> None:
    found = NAMES.unknown(["cuda_home", name, *NAMES.names])
    assert list(found) == [name]
    if nearest:
        assert found[name] == nearest


@pytest.mark.parametrize("name", OF_OTHERS)
def test_a_name_of_others_passes(name: str) -> None:
    assert NAMES.unknown([name]) == {}


@pytest.mark.parametrize("prefix", NAMES.prefixes)
def test_a_bare_name_is_refused_with_a_variable_that_there_is(prefix: str) -> None:
    bare = prefix.removesuffix("_")
    meant = NAMES.unknown([bare])[bare]
    assert meant in NAMES.names
    assert meant.startswith(prefix)
    [refusal] = NAMES.refusals([bare])
    assert refusal.startswith(
        f"gpu.fleet has no variable {bare} (for {meant}, or another one that begins with {prefix}?); correct or remove"
    )


def test_one_short_refusal_has_all_names_and_how_it_is_turned_off() -> None:
    [refusal] = NAMES.refusals(["docker_sate", "gpu_state_foo"])
    assert refusal.startswith("gpu.fleet has no variable docker_sate (for docker_state?), gpu_state_foo")
    assert refusal.endswith(
        "correct or remove it, or set gpu_fleet_strict_variables to false if something else reads it"
    )
    many = [f"gpu_fleet_{'x' * 400}{number}" for number in range(200)]
    assert len(NAMES.refusals(many)[0]) < 1500
    assert " and 190 more" in NAMES.refusals(many)[0]


@pytest.mark.parametrize("strict", [False, "false", "False", "no", 0])
def test_it_can_be_turned_off(strict: object) -> None:
    assert NAMES.refusals(["nvidia_driver_branch"], strict) == ()


@pytest.mark.parametrize("strict", [None, "maybe", [], {}])
def test_a_value_that_is_neither_true_nor_false_is_refused(strict: object) -> None:
    [refusal] = NAMES.refusals([], strict)
    assert refusal.startswith(f"{STRICT} is ")


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (key for key in value if isinstance(key, str))
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _keys(item)


def _documents() -> Iterator[tuple[str, str]]:
    """YAML of the tree that users run or copy, by where it is."""
    for path in project_files(".yml", ".yaml", ".md"):
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.suffix == ".md":
            blocks = re.findall(r"^( *)```ya?ml\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
            yield from ((str(path), re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)) for indent, block in blocks)
        elif path.parts[0] in ("inventories", "examples", "molecule", "playbooks", "testbed", "roles", "tests"):
            yield str(path), text


def test_all_names_in_playbooks_inventories_examples_and_pages_pass() -> None:
    found: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    for place, text in _documents():
        if place.startswith("tests/unit/mistakes/"):
            continue
        try:
            keys = {key for document in yaml.safe_load_all(text) for key in _keys(document)}
        except yaml.YAMLError:  # Ansible's own tags, or a block that is no document
            keys = set(re.findall(r"^[ -]*(\w+):", text, re.MULTILINE))
        seen |= keys
        if NAMES.unknown(keys):
            found[place] = NAMES.unknown(keys)
    assert found == {}
    assert {"gpu_fleet_roles", "nvidia_driver_version", "gpu_fleet_pull_repository", "docker_users"} <= seen


def test_each_variable_of_playbooks_is_read_by_one_and_documented() -> None:
    pages = [(ROOT / path).read_text(encoding="utf-8") for path in project_files(".md")]
    code = [
        (ROOT / path).read_text(encoding="utf-8")
        for path in project_files(".yml", ".py")
        if path.parts[0] in ("playbooks", "roles", "plugins") and path.name != "variable_names.py"
    ]
    short = {name: re.sub("^gpu_fleet_(accept|upgrade|remediate)_", "", name) for name in OF_PLAYBOOKS}
    # No longer read, and what only the table at the end reads.
    inner = ("gpu_fleet_pull_packages", "nvidia_container_toolkit_seen")
    documented = [name for name in (*OF_PLAYBOOKS, *GIVEN) if name not in inner]
    assert [name for name in documented if not any(name in page for page in pages)] == []
    assert [name for name in (*short, *GIVEN) if not any(short.get(name, name) in text for text in code)] == []


@pytest.mark.parametrize(("parts", "prefix"), [(("upgrade",), PREFIX), (("upgrade", "remediate"), REMEDIATE_PREFIX)])
def test_upgrade_and_remediate_read_all_their_variables(parts: tuple[str, ...], prefix: str) -> None:
    given: dict[str, list[str]] = {}
    for part in parts:
        given |= yaml.safe_load((ROOT / "playbooks" / f"{part}_tasks" / "vars.yml").read_text())
    lists = [names for key, names in given.items() if key.endswith(("_read", "_read_later"))]
    read = [name for names in lists for name in names if name.startswith(prefix)]
    assert sorted(read) == sorted(name for name in OF_PLAYBOOKS if name.startswith(prefix))
