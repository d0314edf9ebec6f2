# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When and where evidence of a fault is kept: options of gpu_health and gpu_state. Private to this collection."""

from __future__ import annotations

WHEN_UNHEALTHY, ALWAYS, NEVER = MODES = ("when_unhealthy", "always", "never")
DIRECTORY = "/var/lib/gpu-fleet/evidence"
