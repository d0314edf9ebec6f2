# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the checkout importable as its users import it, whatever folder or Python path pytest was started with."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLLECTIONS = ROOT / ".cache" / "collections"


def _link_collection() -> None:
    """Ansible finds a collection by its place only: gpu.fleet must lie at ansible_collections/gpu/fleet."""
    link = COLLECTIONS / "ansible_collections" / "gpu" / "fleet"
    link.parent.mkdir(parents=True, exist_ok=True)
    # `make` may have made it before, or another pytest worker just now.
    with contextlib.suppress(FileExistsError):
        link.symlink_to("../../../..")


_link_collection()
# The simulator is a plain package that is copied to hosts, outside of ansible_collections.
for _path in (ROOT, COLLECTIONS, ROOT / "roles" / "gpu_simulator" / "files"):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))
