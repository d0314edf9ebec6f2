# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for nvidia-docker-plugin: a volume driver for Docker, on /run/docker/plugins/nvidia-docker.sock."""

from __future__ import annotations

import json
import socketserver
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

SOCKET = "/run/docker/plugins/nvidia-docker.sock"
volumes: set[str] = set()


def result(method: str, name: str) -> dict[str, Any]:
    """What Docker's volume plugin protocol wants to hear (docs.docker.com/engine/extend/plugins_volume)."""
    if method == "Create":
        volumes.add(name)
    if method == "Remove":
        volumes.discard(name)
    place = {"Name": name, "Mountpoint": "/srv"}
    results: dict[str, dict[str, Any]] = {
        "Activate": {"Implements": ["VolumeDriver"]},
        "Capabilities": {"Capabilities": {"Scope": "local"}},
        "Get": {"Volume": place} if name in volumes else {"Err": "no such volume"},
        "List": {"Volumes": [{"Name": each, "Mountpoint": "/srv"} for each in sorted(volumes)]},
    }
    return {"Err": "", "Mountpoint": "/srv", **results.get(method, {})}


class Plugin(BaseHTTPRequestHandler):
    """One request of Docker."""

    def do_POST(self) -> None:
        """Respond to a method of the protocol."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        text = json.dumps(result(self.path.rpartition(".")[2], (body or {}).get("Name", ""))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.docker.plugins.v1.1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def address_string(self) -> str:
        """A socket has no address to be logged."""
        return SOCKET


Path(SOCKET).parent.mkdir(parents=True, exist_ok=True)
socketserver.ThreadingUnixStreamServer(SOCKET, Plugin).serve_forever()
