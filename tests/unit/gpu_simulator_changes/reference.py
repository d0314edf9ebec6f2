# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reference material that is too big to ship: the directory GPU_FLEET_REFERENCE, or one next to the checkout."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DIRECTORY = Path(os.environ.get("GPU_FLEET_REFERENCE") or ROOT.parent / "shared" / "reference")


def reference(path: str, otherwise: str) -> str:
    """Read a file of the reference directory; return ``otherwise`` if the directory does not exist."""
    return (DIRECTORY / path).read_text(encoding="utf-8") if DIRECTORY.is_dir() else otherwise
