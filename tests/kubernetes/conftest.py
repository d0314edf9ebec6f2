# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control plane that the tests of this directory share."""

from __future__ import annotations

import compileall
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.kubernetes.control_plane import ControlPlane, control_plane, programs
from tests.kubernetes.nodes import RULES
from tests.kubernetes.proxy import Proxy


@pytest.fixture(name="plane", scope="session")
def _plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    missing = programs()
    if missing:
        pytest.skip(f"no control plane of Kubernetes: {missing}")
    # Hundreds of files, which each run of a module imports: compiled they take half of the time.
    for path in getattr(find_spec("kubernetes"), "submodule_search_locations", ()):
        compileall.compile_dir(path, quiet=2)
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as plane:
        yield plane


@pytest.fixture(name="token", scope="session")
def _token(plane: ControlPlane) -> str:
    """Of an account with the documented rights alone."""
    return plane.account("upgrade", RULES)


@pytest.fixture(name="cluster")
def _cluster(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane without nodes."""
    yield plane
    plane.clear()


@pytest.fixture(name="proxy")
def _proxy(cluster: ControlPlane) -> Iterator[Proxy]:
    proxy = Proxy(cluster)
    with proxy.serving():
        yield proxy
