# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity` on the whole checkout, our own tests included, with the newest ansible-core here."""

from __future__ import annotations

from tests.checks.conftest import Reported
from tests.checks.controllers import controllers
from tests.checks.sanity import sanity, sanity_passes

# They read plugins and modules only, which test_sanity.py has them do.
OF_PLUGINS = ("ansible-doc", "import", "validate-modules")


def test_ansible_test_sanity(reported: Reported) -> None:
    newest = controllers()[-1]
    sanity_passes(newest.version, lambda: sanity(newest, skipped=OF_PLUGINS), reported)
