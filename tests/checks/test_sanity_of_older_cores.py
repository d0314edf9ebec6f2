# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity` with the older ansible-core versions here: the tests whose results depend on the version.

They run with the version's own Python, and with the oldest for target hosts, which the newest core may no longer
support; with all where GPU_FLEET_EFFORT is not quick.
"""

from __future__ import annotations

import pytest

from tests.checks.conftest import Reported
from tests.checks.controllers import Controller, controllers, target_pythons, version_of
from tests.checks.sanity import sanity, sanity_passes
from tests.conftest import EFFORT

DIFFERING = ("ansible-doc", "compile", "import", "runtime-metadata", "validate-modules")
OF_EACH_PYTHON = ("compile", "import")


def _run(controller: Controller) -> str:
    """Output of all runs of ansible-test with one ansible-core."""
    if EFFORT != "quick":
        return sanity(controller, DIFFERING)
    own, oldest = version_of(controller.python), min(target_pythons(controller.core))
    return sanity(controller, DIFFERING, own) + sanity(controller, OF_EACH_PYTHON, oldest)


@pytest.mark.parametrize("controller", controllers()[:-1], ids=lambda controller: f"core-{controller.core}")
def test_ansible_test_sanity(controller: Controller, reported: Reported) -> None:
    sanity_passes(controller.version, lambda: _run(controller), reported)
