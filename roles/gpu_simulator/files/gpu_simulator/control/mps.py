# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated ``nvidia-cuda-mps-control``: its daemon with ``-f``, and the commands that a shell writes to it.

Replies, log lines and exit statuses come from 580.159.04 on an H100. A model: there is no server of its own, and its
clients are the simulated processes on the GPUs in CUDA_VISIBLE_DEVICES; ``quit`` does not wait for them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time

from ..state import store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Sequence

    from ..state.shapes import Process

DEFAULT_DIRECTORY = "/tmp/nvidia-mps"
VERSION = "CUDA MPS Control for Linux/Unix/QNX. Binary version: 13000"
NO_DAEMON = "Cannot find MPS control daemon process"
IS_RUNNING = "An instance of this daemon is already running"
NOT_SIMULATED = 69

_COLUMNS = "{:<10}{:<10}{:<15}{:<26}{:<15}{:<15}"
_LONGEST_UUID = 22
_NAMESPACE = "4026531836"


def main(argv: Sequence[str], root: str | None = None) -> int:
    """Run one call; returns the exit status."""
    path = os.path.join(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or DEFAULT_DIRECTORY, "control")
    if "--version" in argv:
        print(VERSION)
        return 0
    if set(argv) - {"-f", "-M"}:
        print(f"gpu-simulator: not simulated: {' '.join(argv)}", file=sys.stderr)
        return NOT_SIMULATED
    if argv:
        return Daemon(path, store.root_of(root)).run()
    return _ask(path, sys.stdin)


def _ask(path: str, lines: Iterable[str]) -> int:
    for line in lines:
        reply = _reply(path, line.strip())
        if reply is None:
            print(NO_DAEMON)
            return 1
        sys.stdout.write(reply)
    return 0


def _reply(path: str, command: str) -> str | None:
    """What the daemon replies; None where there is none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(path)
            connection.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    except OSError:
        return None


class Daemon:
    """The daemon, with the limits that it was given."""

    def __init__(self, path: str, root: str) -> None:
        self._path = path
        self._root = root
        self._devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        self._percentage = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") or 100)
        self._memory: dict[str, str] = {}
        self._ends = False

    def run(self) -> int:
        """Serve until `quit`."""
        if _reply(self._path, "get_server_list") is not None:
            print(IS_RUNNING)
            return 1
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(self._path)
            os.chmod(self._path, 0o666)
            listener.listen()
            self._log(f"Starting control daemon using socket {self._path}")
            while not self._ends:
                connection = listener.accept()[0]
                # A client may go away at any time.
                with connection, contextlib.suppress(OSError, UnicodeDecodeError), connection.makefile(
                    "rb"
                ) as received:
                    command = received.readline().decode().strip()
                    self._log(f"Cmd:{command}")
                    connection.sendall(self.reply(command).encode())
        self._log("Exit with status 0")
        return 0

    def reply(self, command: str) -> str:
        """The reply to one command. What it refuses it only logs."""
        verb, *words = command.split() or [""]
        found = ""
        if verb == "quit":
            self._ends = True
        elif verb == "get_server_list":
            found = str(os.getpid()) if self._clients() else ""
        elif verb == "ps":
            found = "\n".join(self._rows()) or "Server not found"
        elif verb == "get_default_active_thread_percentage":
            found = f"{self._percentage:.1f}"
        elif verb == "set_default_active_thread_percentage":
            self._percentage = _percentage(words, self._percentage)
            found = f"{self._percentage:.1f}"
        elif verb == "set_default_device_pinned_mem_limit" and len(words) == 2:
            self._memory[words[0]] = words[1]
        elif verb == "get_default_device_pinned_mem_limit" and len(words) == 1:
            found = self._memory.get(words[0], "")
        else:
            found = f'Unknown command "{command}"'
        return f"{found}\n" if found else ""

    def _clients(self) -> list[tuple[str, Process]]:
        state = store.read(self._root)
        visible = self._devices.split(",") if self._devices else []
        gpus = [] if state is None else state["gpus"]
        return [
            (gpu["uuid"], process)
            for index, gpu in enumerate(gpus)
            if not visible or gpu["uuid"] in visible or str(index) in visible
            for process in gpu["processes"]
        ]

    def _rows(self) -> list[str]:
        clients = self._clients()
        head = _COLUMNS.format("PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND")
        rows = [
            _COLUMNS.format(process["pid"], number, os.getpid(), uuid[:_LONGEST_UUID], _NAMESPACE, _command(process))
            for number, (uuid, process) in enumerate(clients, 1)
        ]
        return [head, *rows] if rows else []

    @staticmethod
    def _log(text: str) -> None:
        print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}.000 Control {os.getpid():5}] {text}", flush=True)


def _percentage(words: Sequence[str], before: float) -> float:
    try:
        (value,) = map(float, words)
    except ValueError:
        return before
    return value if 0 < value <= 100 else before


def _command(process: Process) -> str:
    return os.path.basename(process["name"])[:14]
