# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands for nvidia-imex and nvidia-imex-ctl: a service with the port of IMEX, and whether all of them are reached.

What it prints has the form that services.parse_imex_domain states the source of.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

VERSION = "580.159.04"
DIRECTORY = Path("/etc/nvidia-imex")


def settings() -> dict[str, str]:
    """The settings of config.cfg."""
    lines = (DIRECTORY / "config.cfg").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def status(host: str, port: int) -> str:
    """Whether the service of a node replies."""
    try:
        with socket.create_connection((host, port), timeout=1) as node:
            return "READY" if node.recv(64) == VERSION.encode() else "VERSION_MISMATCH"
    except OSError:
        return "UNAVAILABLE"


def main() -> None:
    """Serve, or print the state of the domain."""
    if "--version" in sys.argv:
        print(f"IMEX version is: {VERSION}")
        return
    port = int(settings().get("SERVER_PORT", "50000"))
    names = (DIRECTORY / "nodes_config.cfg").read_text(encoding="utf-8").split()
    if sys.argv[0].endswith("ctl"):
        assert settings()["IMEX_CMD_ENABLED"] == "1"
        nodes = {str(number): {"status": status(name, port), "host": name} for number, name in enumerate(names)}
        is_up = all(node["status"] == "READY" for node in nodes.values())
        print(json.dumps({"nodes": nodes, "status": "UP" if is_up else "DEGRADED"}))
        return
    with socket.create_server(("", port)) as server:
        while True:
            with server.accept()[0] as client:
                client.sendall(VERSION.encode())


if __name__ == "__main__":
    main()
