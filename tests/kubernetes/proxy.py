# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTPS on the loopback address with the certificate of the API server: a proxy before it, and a webhook behind it.

The proxy keeps what was asked, and lets a test act exactly at a request: before it is forwarded or before its reply.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.kubernetes.control_plane import ControlPlane

_OF_THE_CONNECTION = ("connection", "transfer-encoding", "content-length", "host", "accept-encoding")


class CutError(Exception):
    """Raised by what a test does at a request: the connection ends without a reply."""


@dataclass(frozen=True)
class Request:
    """A request, and the status of its reply; 0 before there is one."""

    method: str
    path: str
    body: Any
    status: int = 0

    def is_patch_of(self, node: str, *, cordon: bool) -> bool:
        """Whether it cordons a node, or returns it to service."""
        spec = self.body.get("spec", {}) if isinstance(self.body, dict) else {}
        at_node = self.path.partition("?")[0] == f"/api/v1/nodes/{node}"
        return self.method == "PATCH" and at_node and spec.get("unschedulable") is cordon

    def is_eviction_of(self, pod: str) -> bool:
        """Whether it asks for the eviction of a pod."""
        return self.method == "POST" and self.path.endswith(f"/pods/{pod}/eviction")


@contextmanager
def https_server(cluster: ControlPlane, handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve as long as the block lasts; returns the address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cluster.certificate, cluster.certificate.with_suffix(".key"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Proxy:
    """What was asked of an API server, and what is done at each request."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.requests: list[Request] = []
        self.lost: list[str] = []
        self.before: Callable[[Request], None] = lambda _request: None
        self.after: Callable[[Request], None] = lambda _request: None
        self.url = ""
        self._cluster = cluster

    @contextmanager
    def noting(self, path: str) -> Iterator[None]:
        """Note a request for which the API server was not there; its connection ends as well."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            self.lost.append(f"{path}: {error!r}")

    def evictions(self, pod: str) -> int:
        """How many evictions of a pod the API server has accepted."""
        return sum(one.is_eviction_of(pod) for one in self.requests if one.status in (200, 201))

    def patches(self, *nodes: str, cordon: bool) -> int:
        """How often it has cordoned nodes, or returned them to service."""
        accepted = [one for one in self.requests if one.status == 200]
        return sum(one.is_patch_of(node, cordon=cordon) for one in accepted for node in nodes)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Forward requests."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_arguments: Any) -> None:
                pass

            def do_GET(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.close_connection = True
                with suppress(CutError), proxy.noting(self.path):
                    status, kind, reply = proxy.forward(self.command, self.path, dict(self.headers), sent)
                    self.send_response(status)
                    self.send_header("Content-Type", kind)
                    self.send_header("Content-Length", str(len(reply)))
                    # Else a client may send its next request just when this one is closed.
                    self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.write(reply)

            do_POST = do_PATCH = do_DELETE = do_PUT = do_GET  # noqa: N815 - the names of http.server

        with https_server(self._cluster, Handler) as self.url:
            yield

    def forward(self, method: str, path: str, headers: dict[str, str], sent: bytes) -> tuple[int, str, bytes]:
        """Status, type and body of the reply of the API server."""
        body = None
        with suppress(ValueError):
            body = json.loads(sent)
        self.before(Request(method, path, body))
        context = ssl.create_default_context(cafile=str(self._cluster.certificate))
        server = http.client.HTTPSConnection(urlsplit(self._cluster.url).netloc, context=context)
        try:
            kept = {name: value for name, value in headers.items() if name.lower() not in _OF_THE_CONNECTION}
            server.request(method, path, sent or None, kept)
            reply = server.getresponse()
            read = reply.read()
        finally:
            server.close()
        done = Request(method, path, body, reply.status)
        self.requests.append(done)
        self.after(done)
        return reply.status, reply.headers.get("Content-Type", ""), read


def by_way_of(proxy: Proxy, cluster: ControlPlane, directory: Path, token: str) -> dict[str, Any]:
    """The variables of hosts that reach the API server by the proxy."""
    return {"kubernetes_kubeconfig": str(cluster.kubeconfig(directory / "by-proxy", proxy.url, token=token))}


def back_after(cluster: ControlPlane, seconds: float) -> None:
    """Start the API server again after some time."""

    def start() -> None:
        time.sleep(seconds)
        cluster.start("kube-apiserver")

    threading.Thread(target=start, daemon=True).start()
