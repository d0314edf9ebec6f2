# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity` with the newest ansible-core here: all tests, those for each Python with every Python.

Our own tests are left to test_sanity_of_tests.py.
"""

from __future__ import annotations

from tests.checks.conftest import Reported
from tests.checks.controllers import controllers
from tests.checks.sanity import sanity, sanity_passes
from tests.checks.tools import ROOT


def test_ansible_test_sanity(reported: Reported) -> None:
    newest = controllers()[-1]
    sanity_passes(newest.version, lambda: sanity(newest, without_tests=True), reported)


def test_no_sanity_test_is_ignored() -> None:
    assert list((ROOT / "tests" / "sanity").glob("ignore*")) == []
