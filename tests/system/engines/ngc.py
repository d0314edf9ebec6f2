# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in front of a registry as nvcr.io does: TLS, and a token service on the same host.

Below /v2/ a request needs a token, which /proxy_auth gives: for repositories of NVIDIA's to everybody, for others to
the user $oauthtoken with an API key. The registry behind verifies the tokens. Runs on the test host, with its Python
and openssl: https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

DIRECTORY = Path(sys.argv[1])
API_KEY = sys.argv[2]
USER = "$oauthtoken"
PUBLIC = "nvidia/"
REGISTRY = ("127.0.0.1", 5000)
_CHUNK = 1 << 20


def encoded(content: bytes) -> str:
    """base64 as in a JSON web token."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def token(access: list[dict[str, object]]) -> str:
    """A JSON web token, signed with the key of the service's certificate."""
    certificate = ssl.PEM_cert_to_DER_cert((DIRECTORY / "token.crt").read_text())
    header = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(certificate).decode()]}
    now = int(time.time())
    claims = {
        "iss": "ngc",
        "aud": "nvcr.io",
        "sub": "",
        "access": access,
        "nbf": now - 60,
        "iat": now,
        "exp": now + 300,
    }
    signed = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
    sign = ["openssl", "dgst", "-sha256", "-sign", str(DIRECTORY / "token.key")]
    signature = subprocess.run(sign, input=signed.encode(), capture_output=True, check=True).stdout
    return f"{signed}.{encoded(signature)}"


def granted(scopes: list[str], is_user: bool) -> list[dict[str, object]]:
    """What a token is for: scopes are type:name:actions. Nobody but the user may push or read what is private."""
    access: list[dict[str, object]] = []
    for scope in scopes:
        kind, name, actions = scope.rsplit(":", 2)
        allowed = [each for each in actions.split(",") if is_user or (each == "pull" and name.startswith(PUBLIC))]
        access.append({"type": kind, "name": name, "actions": allowed})
    return access


class Front(BaseHTTPRequestHandler):
    """One connection of an engine."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Give a token, or pass the request on."""
        url = urlsplit(self.path)
        if url.path == "/proxy_auth":
            self.give_token(parse_qs(url.query).get("scope", []))
        else:
            self.pass_on()

    def give_token(self, scopes: list[str]) -> None:
        """Respond with a token; with another user or key than NGC's with 401."""
        scheme, _blank, credentials = (self.headers.get("Authorization") or "").partition(" ")
        given = base64.b64decode(credentials).decode() if scheme == "Basic" else ""
        is_user = given == f"{USER}:{API_KEY}"
        status, body = (401, {}) if given and not is_user else (200, {"token": token(granted(scopes, is_user))})
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def pass_on(self) -> None:
        """Send the request to the registry, and its response back, a part at a time."""
        upstream = http.client.HTTPConnection(*REGISTRY)
        # Engines name the kinds of manifests that they accept in headers of the same name.
        headers = {name: ", ".join(self.headers.get_all(name, [])) for name in self.headers if name != "Connection"}
        body = self.chunks() if "chunked" in (self.headers.get("Transfer-Encoding") or "") else None
        length = int(self.headers.get("Content-Length") or 0)
        upstream.request(self.command, self.path, body or self.rfile.read(length), headers, encode_chunked=bool(body))
        response = upstream.getresponse()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("connection", "date", "server"):
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            shutil.copyfileobj(response, self.wfile, _CHUNK)
        upstream.close()

    def chunks(self) -> Iterator[bytes]:
        """The parts of a body of unknown length."""
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815


class Server(ThreadingHTTPServer):
    """With TLS by a certificate for nvcr.io."""

    daemon_threads = True

    def get_request(self) -> tuple[ssl.SSLSocket, Any]:
        """The handshake belongs to the connection's thread, so that a slow client stops no other."""
        connection, address = super().get_request()
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(DIRECTORY / "nvcr.crt", DIRECTORY / "nvcr.key")
Server(("", 443), Front).serve_forever()
