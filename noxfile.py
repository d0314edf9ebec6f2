# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sessions of antsibull-nox.toml, for the shared workflow of community collections. Our tests are `make test`."""

# /// script
# dependencies = ["nox>=2025.02.09", "antsibull-nox>=1.9.0"]
# ///

import nox

try:
    import antsibull_nox
except ImportError:
    raise SystemExit("noxfile.py: install antsibull-nox, or run it with pipx run nox") from None

antsibull_nox.load_antsibull_nox_toml()

if __name__ == "__main__":
    nox.main()
