# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real repositories and keys of OpenPGP: what a pusher can do to a host that pulls."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

IDENTITY = ("-c", "user.name=ops", "-c", "user.email=ops@example.com", "-c", "commit.gpgSign=false")


@dataclass(frozen=True)
class Keys:
    """A directory of gpg with keys that sign. Its path is short: gpg listens on a socket there."""

    home: Path

    @property
    def env(self) -> Mapping[str, str]:
        return {**os.environ, "GNUPGHOME": str(self.home)}

    def gpg(self, *words: str) -> bytes:
        argv = ["gpg", "--batch", "--no-tty", "--passphrase", "", "--pinentry-mode", "loopback", *words]
        return subprocess.run(argv, env=self.env, check=True, capture_output=True).stdout

    def make(self, name: str, *, at: str = "", expires: str = "never") -> str:
        """A key of `name`@example.com; returns its fingerprint."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        faked = [f"--faked-system-time={at}!"] if at else []
        self.gpg(*faked, "--quick-gen-key", f"{name}@example.com", "ed25519", "sign", expires)
        listed = self.gpg("--with-colons", "--fingerprint", f"{name}@example.com").decode()
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))

    def export(self, file: Path, *names: str) -> Path:
        file.write_bytes(self.gpg("--export", *(f"{name}@example.com" for name in names)))
        return file


@dataclass(frozen=True)
class Origin:
    """A repository as a pusher can change it."""

    directory: Path
    keys: Keys

    @property
    def url(self) -> str:
        return f"file://{self.directory}"

    def git(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        argv = ["git", *IDENTITY, "-C", str(self.directory), *words]
        done = subprocess.run(argv, env={**self.keys.env, **(env or {})}, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def start(self, *options: str) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main", *options)

    def commit(self, version: str, *, key: str = "", files: Mapping[str, str] | None = None) -> str:
        """Commit files, among them one with the version, signed by a key; returns the ID."""
        for name, text in {"version": version, **(files or {})}.items():
            (self.directory / name).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / name).write_text(text)
        self.git("add", "--all")
        signed = f"--gpg-sign={key}@example.com" if key else "--no-gpg-sign"
        self.git("commit", "--quiet", "--allow-empty", f"--message={version}", signed)
        return self.git("rev-parse", "HEAD")
