# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a controller lacks: a newer ansible-core, other collections."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible_collections.gpu.fleet.plugins.plugin_utils import _ansible_core, _controller
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import RolePlanner
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import REGISTRY, collections_of

from tests.conftest import ROOT

_MODULE = re.compile(r"^ *((?:community|containers)\.\w+)\.\w+:", re.MULTILINE)


@pytest.mark.parametrize("version", ["2.15.13", "2.9.27", "2.15.0rc1"])
def test_an_ansible_core_that_is_too_old_is_named(version: str) -> None:
    with pytest.raises(
        AnsibleError, match=rf"ansible-core {version} is too old for gpu.fleet, which needs 2.16 or newer"
    ):
        _ansible_core.refuse_old_core(version)


@pytest.mark.parametrize("version", ["2.19.0", "2.21.3", "3.0.0", "2.22.0.dev0"])
def test_newer_ones_are_tried_whatever_is_set(version: str) -> None:
    _ansible_core.refuse_old_core(version, native=False)


@pytest.mark.parametrize("version", ["2.16.0", "2.18.19"])
def test_old_templating_has_to_return_types(version: str) -> None:
    _ansible_core.refuse_old_core(version, native=True)
    with pytest.raises(AnsibleError, match=r"set jinja2_native = true in the section \[defaults\] of ansible.cfg, or "):
        _ansible_core.refuse_old_core(version, native=False)


def test_the_oldest_one_is_that_of_the_collection() -> None:
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    assert runtime["requires_ansible"] == f">={'.'.join(map(str, _ansible_core.OLDEST_CORE))}.0"


def _used(role: str) -> Iterator[str]:
    for path in (ROOT / "roles" / role).rglob("*.yml"):
        yield from _MODULE.findall(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("role", REGISTRY, ids=lambda role: role.name)
def test_the_collections_of_a_role_are_those_of_its_tasks(role: RolePlanner) -> None:
    assert {*role.collections} == {*_used(role.name)}


def test_a_missing_collection_is_refused_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_controller, "_is_installed", lambda name: name != "community.docker")
    (text,) = _controller.missing_collections(collections_of(["docker", "gpu_health", "gpu_state"]))
    assert "lacks the collection community.docker, which tasks of the roles use; run `ansible-galaxy" in text
    assert not _controller.missing_collections(collections_of(["gpu_state", "nvidia_driver"]))


def test_installed_ones_are_found() -> None:
    assert _controller._is_installed("community.docker")
    assert not _controller._is_installed("community.no_such")
    assert not _controller._is_installed("no_such_namespace.at_all")
