# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves the repositories under their real host names over https and http, in a container: `server.py DIRECTORY STATE`.

Standard library only. STATE/faults.json is read at each request (see faults.py), STATE/access.log gets a line of JSON
for each, with the request and its status: each workspace of the testbed has a server and a state of its own.
"""

from __future__ import annotations

import http.server
import json
import signal
import ssl
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

DIRECTORY, STATE = Path(sys.argv[1]), Path(sys.argv[2])
MIRROR = "mirror.testbed.invalid"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves www/HOST/PATH, or what an injected fault demands."""

    protocol_version = "HTTP/1.1"
    scheme = "https"
    cut_off = False
    # Keep idle connections open, but no longer than a minute.
    timeout = 60

    def do_GET(self) -> None:
        self._result()

    def do_HEAD(self) -> None:
        self._result()

    @property
    def _host(self) -> str:
        return str(self.headers.get("Host", "")).split(":", 1)[0]

    def translate_path(self, path: str) -> str:
        """The file that a path stands for: the one served normally, or its replacement while a key is rotated."""
        relative = Path(super().translate_path(path)).relative_to(Path.cwd())
        below = relative if self._host == MIRROR else Path(self._host) / relative
        if self._fault().get("fault") == "rotated" and (DIRECTORY / "rotated" / below).is_file():
            return str(DIRECTORY / "rotated" / below)
        return str(DIRECTORY / "www" / below)

    def _fault(self) -> dict[str, Any]:
        url = f"https://{self._host}{self.path}"
        try:
            faults = json.loads((STATE / "faults.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        # A fault without clients, as written by a scenario that has the vendors to itself, applies to all clients.
        ours = (fault for fault in faults if self.client_address[0].endswith(tuple(fault.get("clients", [""]))))
        return next((fault for fault in ours if url.startswith(fault["url"])), {})

    def _result(self) -> None:
        fault = self._fault()
        kind = fault.get("fault")
        if kind:
            # No client may continue with what it fetched before the fault.
            del self.headers["If-Modified-Since"]
        if kind == "slow":
            time.sleep(fault.get("seconds", 5))
        self.cut_off = kind in ("closed", "truncated")
        if kind == "closed":
            self.log_request("closed")
            self.close_connection = True
        elif kind == "unavailable":
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
        elif kind == "missing":
            self.send_error(HTTPStatus.NOT_FOUND)
        elif kind in ("truncated", "damaged") and Path(self.translate_path(self.path)).is_file():
            self._send_wrong(kind)
        elif self.command == "HEAD":
            super().do_HEAD()
        else:
            super().do_GET()

    def _send_wrong(self, kind: str) -> None:
        data = bytearray(Path(self.translate_path(self.path)).read_bytes())
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if kind == "truncated":
            data = data[: len(data) // 2]
            self.close_connection = True
        elif data:
            data[-1] ^= 0xFF
        if self.command == "GET":
            self.wfile.write(data)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Write the line of JSON that tests read."""
        entry = {
            "time": time.time(),
            "client": self.client_address[0],
            "method": self.command,
            "url": f"{self.scheme}://{self._host}{self.path}",
            "status": int(code) if isinstance(code, int) else str(code),
        }
        with (STATE / "access.log").open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")

    def log_message(self, *_words: Any) -> None:
        """Print nothing: the access log has it all."""


class PlainHandler(Handler):
    """The same without encryption."""

    scheme = "http"


class Server(http.server.ThreadingHTTPServer):
    """Does each TLS handshake in its connection's thread, so that a silent client does not block the others."""

    daemon_threads = True
    request_queue_size = 64
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.context is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(Handler.timeout)
        with self.context.wrap_socket(request, server_side=True) as encrypted:
            handler = Handler(encrypted, client_address, self)
            if not handler.cut_off:
                # Without a TLS close_notify some clients treat a complete response as truncated.
                encrypted.settimeout(1)
                encrypted.unwrap()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connection errors: clients close at any time, and faults make the server do so."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handle_error(request, client_address)


def main() -> None:
    """Serve until the container is stopped."""
    # PID 1 of a container ignores signals that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_words: sys.exit())
    encrypted = Server(("", 443), Handler)
    encrypted.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    encrypted.context.load_cert_chain(DIRECTORY / "ca" / "server.crt", DIRECTORY / "ca" / "server.key")
    threading.Thread(target=encrypted.serve_forever, daemon=True).start()
    Server(("", 80), PlainHandler).serve_forever()


if __name__ == "__main__":
    main()
