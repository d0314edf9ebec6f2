# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity`: all tests with the newest ansible-core here, the version-dependent ones with the others."""

from __future__ import annotations

import re

import pytest

from tests.checks.conftest import Reported
from tests.checks.controllers import Controller, controllers
from tests.checks.sanity import sanity
from tests.checks.tools import ROOT, ToolError

# Tests whose results depend on the ansible-core version.
DIFFERING = ("ansible-doc", "compile", "import", "runtime-metadata", "validate-modules")
NEWEST = controllers()[-1]


@pytest.mark.parametrize("controller", controllers(), ids=lambda controller: f"core-{controller.core}")
def test_ansible_test_sanity(controller: Controller, reported: Reported) -> None:
    failure = None
    try:
        output = sanity(controller, () if controller == NEWEST else DIFFERING)
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
