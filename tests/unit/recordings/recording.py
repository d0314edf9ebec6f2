# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recordings of real GPU hosts: one JSON file per host, described in README.md."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent
STREAMS = ("stdout", "stderr")


@dataclass(frozen=True)
class Call:
    """One call of nvidia-smi on a real host."""

    arguments: str
    """As typed in a shell, without the program's name."""
    stdout: str = ""
    stderr: str = ""
    rc: int = 0
    """Exit status; 124: the program ran until it was terminated."""
    user: str = "root"
    environment: dict[str, str] = field(default_factory=dict)
    """Variables set for this call only."""
    processes: int = 0
    """Number of compute processes that used GPU 0 at that time."""
    milliseconds: int | None = None
    """How long it took, or None if that was not measured."""

    @property
    def words(self) -> list[str]:
        """The arguments one by one."""
        return shlex.split(self.arguments)


@dataclass(frozen=True)
class Recording:
    """What one real host printed."""

    source: str
    host: dict[str, Any]
    """Driver and GPUs, as the simulator's `host.json` describes them."""
    calls: tuple[Call, ...]
    files: dict[str, str] = field(default_factory=dict)
    """Contents by path; for a directory, with a slash at its end, its recursive listing."""
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By module, the requests and what the module returned in check mode."""

    def output(self, arguments: str) -> str:
        """Standard output of the first call with these arguments; KeyError if it was not recorded."""
        for call in self.calls:
            if call.arguments == arguments:
                return call.stdout
        raise KeyError(arguments)

    def replies(self) -> dict[str, dict[str, Any]]:
        """By arguments, the first reply to root, in the form that Replay takes."""
        found: dict[str, dict[str, Any]] = {}
        for call in self.calls:
            if call.user == "root" and not call.environment:
                found.setdefault(call.arguments, {"out": call.stdout, "err": call.stderr, "rc": call.rc})
        return found

    def query_gpu(self) -> list[dict[str, str]]:
        """By GPU, the values of the largest recorded `--query-gpu`, with units, by the name of the field."""
        queries = [each for each in self.calls if each.arguments.startswith("--query-gpu=") and each.rc == 0]
        header, *lines = max(queries, key=lambda each: len(each.arguments)).stdout.splitlines()
        names = [name.partition(" ")[0] for name in header.split(", ")]
        return [dict(zip(names, line.split(", "), strict=True)) for line in lines]


@cache
def load(name: str) -> Recording:
    """Read the recording with this file name, without `.json`. It is shared: do not change its dictionaries."""
    return read(json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8")))


def read(document: dict[str, Any]) -> Recording:
    """Make a recording of the parsed JSON."""
    outputs = {number: "\n".join(lines) for number, lines in document["outputs"].items()}
    calls: Iterator[dict[str, Any]] = (
        {key: outputs[value] if key in STREAMS else value for key, value in call.items()} for call in document["calls"]
    )
    return Recording(
        source=document["source"],
        host=document["host"],
        calls=tuple(Call(**call) for call in calls),
        files={path: outputs[number] for path, number in document.get("files", {}).items()},
        results=document.get("results", {}),
    )


def dump(recording: Recording) -> str:
    """The JSON of a recording: one line per call, one per line of output, identical outputs stored once."""
    numbers: dict[str, str] = {"": ""}

    def number(text: str) -> str:
        return numbers.setdefault(text, str(len(numbers)))

    calls = []
    for call in recording.calls:
        values = {
            key: value
            for key, value in vars(call).items()
            if key == "arguments" or (value != _DEFAULTS.get(key) and value != {})
        }
        calls.append({key: number(value) if key in STREAMS else value for key, value in values.items()})
    files = {path: number(text) for path, text in recording.files.items()}
    del numbers[""]
    parts = {
        "source": json.dumps(recording.source, ensure_ascii=False),
        "host": _indented(recording.host),
        "calls": _one_per_line(calls),
        "files": _indented(files),
        "outputs": _indented({value: text.split("\n") for text, value in numbers.items()}),
        "results": _indented(recording.results),
    }
    kept = (f' "{key}": {text}' for key, text in parts.items() if text != "{}")
    return "{\n" + ",\n".join(kept) + "\n}\n"


_DEFAULTS = {"stdout": "", "stderr": "", "rc": 0, "user": "root", "processes": 0}


def _one_per_line(values: Iterable[Any]) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(value, ensure_ascii=False)}" for value in values) + "\n ]"


def _indented(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1).replace("\n", "\n ")
