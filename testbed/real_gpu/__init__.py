# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make real-gpu`: hosts with real GPUs are changed, tested and returned to what they were; see docs/real-gpu.md."""
