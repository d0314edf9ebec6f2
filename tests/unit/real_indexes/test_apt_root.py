# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The private root resolves Ubuntu's index as a host does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.real_indexes.apt_root import AptRoot

Roots = Callable[[str], AptRoot]


@pytest.mark.parametrize("release", ["noble", "jammy"])
def test_a_transitional_package_installs_another_branch(release: str, roots: Roots) -> None:
    found = roots(release).simulate("nvidia-driver-535-server-open")
    assert found["nvidia-driver-580-server-open"].startswith("580.178.04-")
    assert found["nvidia-driver-535-server-open"].startswith("535.309.01-")


def test_the_metapackage_of_modules_satisfies_the_driver_without_dkms(roots: Roots) -> None:
    found = roots("noble").simulate("linux-modules-nvidia-580-server-open-generic", "nvidia-driver-580-server-open")
    assert not {name for name in found if "dkms" in name}


def test_installed_packages_are_those_of_the_root(roots: Roots) -> None:
    root = roots("noble")
    assert root.run(["dpkg-query", "--show"]).text == ""
    installed = root.install("nvidia-utils-580-server")
    listed = root.run(["dpkg-query", "--show", "--showformat", "${Package}=${Version}\\n"]).text.split()
    assert sorted(listed) == sorted(f"{name}={version}" for name, version in installed.items())
    assert root.simulate("nvidia-utils-580-server") == {}
