# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers of the tests of the facts: inputs, an nvidia-smi that replays them, and a second parser for documents."""

from __future__ import annotations

import json
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.unit.recordings.recording import load

H200X8 = load("h200x8-580.159.04")
H200X1 = load("h200x1-facts-580.159.04")
H200X4 = load("h200x4-facts-580.159.04")
WRITTEN = Path(__file__).resolve().parent / "fixtures" / "written"

_REPLAY = """\
import json, os, sys, time
table = json.load(open({table!r}))
arguments = " ".join(sys.argv[1:])
with open({log!r}, "a") as log:
    log.write(json.dumps({{"arguments": arguments, "LC_ALL": os.environ.get("LC_ALL"), "pid": os.getpid()}}) + "\\n")
reply = table.get(arguments) or table.get("*") or {{"out": "no reply for " + arguments, "rc": 2}}
if reply.get("child"):
    os.system("sleep 60 &")
time.sleep(reply.get("seconds", 0))
sys.stdout.buffer.write(open(reply["file"], "rb").read() if "file" in reply else reply.get("out", "").encode())
sys.stderr.write(reply.get("err", ""))
sys.stdout.flush()
sys.exit(reply.get("rc", 0))
"""


class Replay:
    """A program that replays a recorded nvidia-smi.

    `replies` has, by the joined arguments (`*` for all others), any of out (text), file (path), err, rc, seconds to
    wait before replying, and child (start a process that outlives the program).
    """

    def __init__(self, directory: Path, results: dict[str, dict[str, Any]]) -> None:
        self._log = directory / "calls.log"
        table = directory / "replies.json"
        self._table = table
        self.set(results)
        script = directory / "replay.py"
        script.write_text(_REPLAY.format(table=str(table), log=str(self._log)))
        self.path = directory / "nvidia-smi"
        # -S -E shortens the start of each call, -B writes no byte code.
        self.path.write_text(f'#!/bin/sh\nexec {sys.executable} -SEB {script} "$@"\n')
        self.path.chmod(0o755)

    def set(self, results: dict[str, dict[str, Any]]) -> None:
        """Replace the output, and clear the log of calls."""
        self._table.write_text(json.dumps(results))
        self._log.unlink(missing_ok=True)

    @property
    def calls(self) -> list[str]:
        """The arguments of each call so far."""
        return [entry["arguments"] for entry in self.entries]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The log entries of all calls so far."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []


def gpu_elements(document: str) -> list[str]:
    """The source text of each `<gpu>` in the last complete document."""
    start = document.rfind("<nvidia_smi_log>", 0, document.rfind("</nvidia_smi_log>"))
    return re.findall(r"<gpu id=.*?</gpu>", document[start:], re.DOTALL)


def leaf(text: str, path: str) -> str | None:
    """The text at `path` in one element's source, found by regular expressions, without an XML parser."""
    for name in path.split("/"):
        match = re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        if match is None:
            return None
        text = match[1]
    return text.strip()


@lru_cache(maxsize=64)
def children(gpu_text: str) -> dict[str, str]:
    """The source of each element directly below `<gpu>`, by name; of several, the first."""
    body = re.sub(r"<gpu id=[^>]*>|</gpu>", "", gpu_text)
    found: dict[str, str] = {}
    depth = start = 0
    for tag in re.finditer(r"<(/?)(\w+)[^>]*>", body):
        if not tag[1]:
            start = start if depth else tag.end()
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                found.setdefault(tag[2], body[start : tag.start()])
    return found


def leaf_of_gpu(gpu_text: str, path: str) -> str | None:
    """`leaf` for direct children of `<gpu>` only, not for elements of the same name deeper down."""
    name, _unused, rest = path.partition("/")
    inner = children(gpu_text).get(name)
    if inner is None or not rest:
        return inner.strip() if inner is not None else None
    return leaf(inner, rest)


def number(text: str) -> float:
    """The number at the start of a text: `143771 MiB`, `16x`, `-8 C`."""
    match = re.match(r"[+-]?\d+(\.\d+)?", text)
    if match is None:
        raise ValueError(text)
    return float(match[0])
