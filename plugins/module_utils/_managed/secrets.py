# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognise secrets without recording them: digests with a key of the host. Private to this collection."""

from __future__ import annotations

import hashlib
import hmac
import os

from .._common.atomic_write import atomic_write
from .._common.host_files import HostFiles
from .record import DIRECTORY

KEY_NAME = "key"
KEY_PATH = f"{DIRECTORY}/{KEY_NAME}"
"""The key of the digests. It never leaves the host, so that a digest alone cannot be used to guess a password."""

_KEY_BYTES = 32


def read_key(files: HostFiles) -> bytes:
    """The host's key, empty where there is none yet."""
    return files.read_bytes(KEY_PATH)


def ensure_key(files: HostFiles) -> bytes:
    """The host's key, created where there is none; raises OSError."""
    key = read_key(files)
    if len(key) != _KEY_BYTES:
        key = os.urandom(_KEY_BYTES)
        atomic_write(files.real(KEY_PATH), key, 0o600)
    return key


def digest(text: str, key: bytes) -> str:
    """The keyed digest of secrets as text; empty for none of them."""
    return f"hmac-sha256:{hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}" if text else ""


def matches(recorded: str, text: str, key: bytes) -> bool:
    """Whether these secrets are the recorded ones. Without the key nothing is known to match."""
    return hmac.compare_digest(recorded, digest(text, key)) if key or not text else False
