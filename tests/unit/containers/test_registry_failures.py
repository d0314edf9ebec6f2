# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of engines that could not pull an image, as they are in public reports, and messages about anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._registry_failures import registry_failure

MESSAGES = yaml.safe_load((Path(__file__).parent / "fixtures" / "registry_failures.yml").read_text("utf-8"))


@pytest.mark.parametrize(("cause", "message"), [(cause, one) for cause, found in MESSAGES.items() for one in found])
def test_what_kept_an_engine_from_an_image_is_recognised(message: str, cause: str) -> None:
    assert registry_failure(message) == cause
    if cause:
        assert registry_failure(f"Error pulling a - code: None message: {message}") == cause
