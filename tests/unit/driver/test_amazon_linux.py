# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Amazon Linux 2023: a row of the table of distributions, with the driver's streams of EL 9 and kernels of its own."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning import platforms
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import nvidia_repository
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.kernel_packages import kernel_packages

from tests.unit.driver.plans import AMAZON, EL, chosen, facts
from tests.unit.site.test_variables import FILES


def select(system: dict[str, Any], **variables: Any) -> dict[str, Any]:
    return chosen(facts(system), **variables)


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_its_repository_is_nvidias(architecture: str) -> None:
    platform = platforms.platform_of(AMAZON)
    on = nvidia_repository.Host(platform, architecture, "dnf", "2023", {})
    asked = nvidia_repository.Request(nvidia_repository.CUDA)
    assert nvidia_repository.plan(asked, on, FILES.tables.keys).refusals == ()
    directory = {"x86_64": "x86_64", "aarch64": "sbsa"}[architecture]
    url = f"https://developer.download.nvidia.com/compute/cuda/repos/amzn2023/{directory}/"
    text = str(nvidia_repository.define(asked, on, FILES.tables.keys))
    assert url in text and f"{url}D42D0685.pub" in text


def test_it_is_no_rebuild_of_enterprise_linux() -> None:
    assert platforms.platform_of(AMAZON)["name"] == "Amazon Linux 2023"
    older = {**AMAZON, "distribution_version": "2", "distribution_major_version": "2"}
    assert platforms.platform_of(older)["supported"] is False
    assert platforms.platform_of(EL)["name"] == "EL 9"


@pytest.mark.parametrize(("version", "stream"), [("580", "580-open"), ("newest", "open-dkms")])
def test_the_driver_comes_from_a_stream_as_on_el_9(version: str, stream: str) -> None:
    found, on_el_9 = (select(system, nvidia_driver_version=version) for system in (AMAZON, EL))
    assert (found["refusals"], found["stream"]) == ([], f"nvidia-driver:{stream}")
    assert (found["install"], found["stream"]) == (on_el_9["install"], on_el_9["stream"])


def test_sources_that_it_has_not_are_refused() -> None:
    for source in ("ppa", "distribution"):
        (refusal,) = select(AMAZON, nvidia_driver_source=source)["refusals"]
        assert f"of {source} cannot be installed on Amazon Linux 2023" in refusal


def test_its_kernels_are_held_whatever_their_number() -> None:
    names = ("kernel6.12", "kernel6.12-devel", "kernel6.12-modules-extra", "kernel", "kernel-devel")
    others = ("kernel-headers", "kernel-tools", "kernel-livepatch-repo-s3", "kernelcare")
    assert kernel_packages((*names, *others), ["6.12.37-61.105.amzn2023.x86_64"]) == sorted(names)
