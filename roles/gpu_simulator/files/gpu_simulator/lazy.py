# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deferred imports: a call of nvidia-smi has to end within a few hundredths of a second."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(module: str) -> Any:
    """Import a module of this package now."""
    return __import__(f"{__package__}.{module}", fromlist=["*"])
