# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generates the repositories in a container, so that this machine needs none of the tools."""

from __future__ import annotations

import json

from testbed import settings
from testbed.images import PAYLOAD_IMAGES, VENDORS_IMAGE
from testbed.progress import run


def generate() -> None:
    """Build what has changed in testbed/mock_repositories/descriptions; takes a second when nothing has."""
    settings.MOCK_REPOSITORIES.mkdir(parents=True, exist_ok=True)
    payloads = {image.suite: image.name for image in PAYLOAD_IMAGES}
    mounts = [f"--mount=type=image,source={name},destination=/debian/{suite}" for suite, name in payloads.items()]
    run(
        [
            *("podman", "run", "--rm", f"--label={settings.LABEL}", "--network=none"),
            *(
                f"--volume={settings.ROOT}/testbed:/usr/src/testbed:ro",
                f"--volume={settings.MOCK_REPOSITORIES}:/testbed",
                *mounts,
            ),
            *("--env=PYTHONPATH=/usr/src", "--env=PYTHONDONTWRITEBYTECODE=1", "--env=LC_ALL=C.UTF-8"),
            *(
                VENDORS_IMAGE.name,
                "python3",
                "-m",
                "testbed.mock_repositories.generate",
                "/testbed",
                json.dumps(payloads),
            ),
        ],
        log="vendors",
    )
