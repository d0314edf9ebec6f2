# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one container by the Container Runtime Interface, as Kubernetes' kubelet does, and print what it prints.

Debian has no crictl. Runs on the test host with its Python and python3-h2: a call is gRPC, a message of protobuf over
HTTP/2. The numbers of the fields are those of https://github.com/kubernetes/cri-api/blob/v0.31.0/pkg/apis/runtime/v1/api.proto
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, TrailersReceived

# As crictl has it, but a path.
SOCKET = os.environ.get("CONTAINER_RUNTIME_ENDPOINT", "/run/containerd/containerd.sock")
# Of NamespaceMode. The host's network, so that no network plugin is needed; processes as by Kubernetes' default.
CONTAINER, NODE = 1, 2
EXITED = 2  # of ContainerState

Message = dict[int, Any]
"""Values by number of the field: numbers, strings, messages, and lists of them."""


def encode(message: Message) -> bytes:
    """A message of protobuf."""
    encoded = b""
    for number, field in message.items():
        for value in field if isinstance(field, list) else [field]:
            if isinstance(value, int):
                encoded += varint(number << 3) + varint(value)
            else:
                content = encode(value) if isinstance(value, dict) else value.encode()
                encoded += varint(number << 3 | 2) + varint(len(content)) + content
    return encoded


def varint(value: int) -> bytes:
    """A number of protobuf: seven bits a byte, the lowest first."""
    rest = value >> 7
    return bytes([value & 127 | 128]) + varint(rest) if rest else bytes([value])


def decode(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message; nested messages as bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(content):
        key = number()
        value = number()
        if key & 7 == 2:
            at += value
            yield key >> 3, content[at - value : at]
        else:
            yield key >> 3, value


def call(method: str, message: Message) -> dict[int, int | bytes]:
    """Call a method of the runtime service; exits with the service's message when it fails."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(SOCKET)
        http = H2Connection(H2Configuration(header_encoding="utf-8"))
        http.initiate_connection()
        path = f"/runtime.v1.RuntimeService/{method}"
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        http.send_headers(1, [*headers, ("content-type", "application/grpc"), ("te", "trailers")])
        body = encode(message)
        http.send_data(1, b"\0" + len(body).to_bytes(4, "big") + body, end_stream=True)
        result, status = b"", {}
        ended = False
        while not ended:
            connection.sendall(http.data_to_send())
            for event in http.receive_data(connection.recv(65536)):
                if isinstance(event, DataReceived):
                    result += event.data
                    http.acknowledge_received_data(event.flow_controlled_length, 1)
                elif isinstance(event, (ResponseReceived, TrailersReceived)):
                    status.update(dict(event.headers))
                ended = ended or isinstance(event, StreamEnded)
    if status.get("grpc-status") != "0":
        sys.exit(f"{method}: {status.get('grpc-message')}")
    return dict(decode(result[5:]))


def text(value: int | bytes) -> str:
    """A field that is a string."""
    return value.decode() if isinstance(value, bytes) else str(value)


def run(image: str, command: list[str], runtime: str, environment: list[str], devices: list[str]) -> int:
    """Run the command in a pod of its own, print its output, return its exit status."""
    with tempfile.TemporaryDirectory() as logs:
        name = Path(logs).name
        namespaces: Message = {1: NODE, 2: CONTAINER}
        pod: Message = {1: {1: name, 2: name, 3: "default"}, 3: logs, 8: {2: {1: namespaces}}}
        sandbox = text(call("RunPodSandbox", {1: pod, 2: runtime})[1])
        try:
            container: Message = {
                **{1: {1: name}, 2: {1: image, 18: image}, 3: command, 11: "log", 15: {2: {3: namespaces}}},
                6: [{1: item.partition("=")[0], 2: item.partition("=")[2]} for item in environment],
                17: [{1: device} for device in devices],
            }
            made = text(call("CreateContainer", {1: sandbox, 2: container, 3: pod})[1])
            call("StartContainer", {1: made})
            status: dict[int, int | bytes] = {}
            while status.get(3) != EXITED:
                time.sleep(0.05)
                found = call("ContainerStatus", {1: made})[1]
                status = dict(decode(found if isinstance(found, bytes) else b""))
            # Each line of the log is: time, stream, tag, text.
            for line in (Path(logs) / "log").read_text(encoding="utf-8").splitlines():
                print(line.split(" ", 3)[3])
            return int(status.get(7, 0))
        finally:
            call("StopPodSandbox", {1: sandbox})
            call("RemovePodSandbox", {1: sandbox})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime", default="", help="name of the runtime: a RuntimeClass's handler")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--device", action="append", default=[], help="a CDI device")
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    sys.exit(run(given.image, given.command, given.runtime, given.env, given.device))
