# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kept a container engine from pulling an image: network, proxy, certificates or the registry. Private.

The words come from Docker 1.9 to 29, podman, containerd and nerdctl in public reports, read in 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Words of an engine that pulls; "connection refused" alone may come from anything in a container.
_PULL = re.compile(
    r"error pulling|pulling (image|repository)|/v[12]/|docker://|registry|resolve reference|failed to do request"
    r"|failed open|anonymous token|failed to authorize|toomanyrequests|pull access denied|manifest (for|unknown)"
)
# The first that matches: a proxy or a resolver that refuses connections is not the registry.
_CAUSES: Mapping[str, str] = {
    "the registry limits the number of pulls": r"toomanyrequests|pull rate limit|too many requests",
    "the engine's proxy refuses the connection": r"proxyconnect|connecting to proxy|proxy authentication required",
    "the name of the registry is not resolved": (
        r"no such host|name resolution|server misbehaving|lookup \S+ on \S+: |dial tcp: lookup"
    ),
    "there is no TLS connection that the engine trusts": (
        r"x509: |certificate|tls: |tls handshake|response to https client"
    ),
    "the registry cannot be reached": (
        r"i/o timeout|timed out|client\.timeout|deadline exceeded|request canceled|connection (refused|reset)"
        r"|network is unreachable|no route to host|\beof\b"
    ),
    "the registry refuses access": r"unauthorized|authentication required|access denied|denied: |authorization failed",
    "the registry does not have the image": r"manifest unknown|name unknown|not found",
    "the registry reports an error of its own": (
        r"bad gateway|service unavailable|gateway time-?out|unexpected (http )?status"
    ),
}


def registry_failure(message: str) -> str:
    """Why an image could not be pulled, by the message of an engine; empty where that is not what it is about."""
    text = message.lower()
    if not _PULL.search(text):
        return ""
    return next((cause for cause, pattern in _CAUSES.items() if re.search(pattern, text)), "")
