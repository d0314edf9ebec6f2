# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of mistakes.yml, by name."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.site.converged import WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import DEBIAN_12, NO_GPU, MockHost

HOSTS: Mapping[str, MockHost] = {
    "bare": MockHost(),
    "without_gpu": MockHost(nvidia_smi=NO_GPU),
    "converged": converged(WITHOUT_CONTAINER),
    "ordinary_user": MockHost(system={**DEBIAN_12, "ansible_user_id": "ops", "ansible_effective_user_id": 1000}),
    "alpine": MockHost(
        system={
            **DEBIAN_12,
            "ansible_distribution": "Alpine",
            "ansible_distribution_version": "3.20",
            "ansible_distribution_major_version": "3",
            "ansible_os_family": "Alpine",
        }
    ),
}
