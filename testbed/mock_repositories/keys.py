# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signing keys: made once for each name and kept below a directory, so that hosts keep trusting them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class Key:
    """An OpenPGP key of a mock vendor."""

    def __init__(self, directory: Path, name: str) -> None:
        self.uid = f"Mock {name} <{name}@testbed.invalid>"
        self.environment = {**os.environ, "GNUPGHOME": str(directory / name)}
        if not (directory / name / "made").exists():
            (directory / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._gpg("--quick-gen-key", self.uid, "rsa2048", "sign", "never")
            (directory / name / "made").touch()

    def _gpg(self, *words: str | Path) -> bytes:
        argv = [
            "gpg",
            "--batch",
            "--yes",
            "--quiet",
            "--passphrase",
            "",
            "--pinentry-mode",
            "loopback",
            *map(str, words),
        ]
        return subprocess.run(argv, env=self.environment, check=True, stdout=subprocess.PIPE).stdout

    @property
    def fingerprint(self) -> str:
        """40 hexadecimal digits."""
        listing = self._gpg("--with-colons", "--list-keys", self.uid).decode()
        return next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))

    @property
    def armored(self) -> bytes:
        """The public key as vendors serve it."""
        return self._gpg("--armor", "--export", self.uid)

    @property
    def binary(self) -> bytes:
        """The public key as a keyring for apt's signed-by."""
        return self._gpg("--export", self.uid)

    def clearsign(self, source: Path, target: Path) -> None:
        """Write a clear-signed copy of a text (InRelease)."""
        self._gpg("--local-user", self.uid, "--output", target, "--clearsign", source)

    def sign(self, source: Path, target: Path) -> None:
        """Write a detached signature (Release.gpg, repomd.xml.asc)."""
        self._gpg("--local-user", self.uid, "--output", target, "--armor", "--detach-sign", source)
