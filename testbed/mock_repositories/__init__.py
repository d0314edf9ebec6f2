# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mock repositories of the vendors: described in descriptions/, generated and served in a container.

README.md describes how to add a package. description.py reads the YAML, deb.py and rpm.py build packages and indexes,
generate.py runs both inside the container, server.py serves the result there; container.py starts them from outside.
"""
