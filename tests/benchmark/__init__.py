# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measured figures: `make bench`. Each part yields tables."""

from tests import conftest

# It makes the collection and the simulator importable.
__all__ = ("conftest",)
