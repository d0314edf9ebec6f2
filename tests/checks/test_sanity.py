# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity`: all tests with the newest ansible-core here, the version-dependent ones with the others.

The newest one runs the tests for each Python with every Python. The others run them with their own Python, and with
the oldest for target hosts, which the newest core may no longer support; with all where GPU_FLEET_EFFORT is not quick.
"""

from __future__ import annotations

import re

import pytest

from tests.checks.conftest import Reported
from tests.checks.controllers import Controller, controllers, target_pythons, version_of
from tests.checks.sanity import sanity
from tests.checks.tools import ROOT, ToolError
from tests.conftest import EFFORT

# Tests whose results depend on the ansible-core version.
DIFFERING = ("ansible-doc", "compile", "import", "runtime-metadata", "validate-modules")
OF_EACH_PYTHON = ("compile", "import")
NEWEST = controllers()[-1]


def _run(controller: Controller) -> str:
    """Output of all runs of ansible-test with one ansible-core."""
    if controller == NEWEST:
        return sanity(controller)
    if EFFORT != "quick":
        return sanity(controller, DIFFERING)
    own, oldest = version_of(controller.python), min(target_pythons(controller.core))
    return sanity(controller, DIFFERING, own) + sanity(controller, OF_EACH_PYTHON, oldest)


@pytest.mark.parametrize("controller", controllers(), ids=lambda controller: f"core-{controller.core}")
def test_ansible_test_sanity(controller: Controller, reported: Reported) -> None:
    failure = None
    try:
        output = _run(controller)
    except ToolError as error:
        failure = str(error)
    if failure is not None:
        findings = [line for line in failure.splitlines() if line.startswith("ERROR:")]
        pytest.fail("\n".join(findings or [failure]), pytrace=False)
    skipped = re.findall(r"Skipping sanity test (.*)", output)
    reported(f"ansible-test sanity {controller.version}", f"{output.count('Running sanity test')} tests passed")
    for test in skipped:
        reported(f"ansible-test sanity {controller.version}", f"skipped: {test}")
    # A missing Python is only reported; a missing tool fails the test, because its checks would be skipped.
    assert [test for test in skipped if "could not be found" not in test] == []


def test_no_sanity_test_is_ignored() -> None:
    assert list((ROOT / "tests" / "sanity").glob("ignore*")) == []
