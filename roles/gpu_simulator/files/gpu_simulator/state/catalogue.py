# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU models: one data file each."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .shapes import Model

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")

DOCUMENT_TYPE = "nvsmi_device_v13.dtd"
"""The only DTD with a data file."""

_loaded: dict[str, Model] = {}


class UnknownModelError(Exception):
    """There is no data file of this name."""


def names() -> list[str]:
    """List the available models."""
    return sorted(name[:-5] for name in os.listdir(os.path.join(DATA, "gpus")) if name.endswith(".json"))


def read_data(*path: str) -> Any:
    """Read a JSON file below the data directory."""
    with open(os.path.join(DATA, *path), encoding="utf-8") as file:
        return json.load(file)


def read_text(*path: str) -> str:
    """Read a text file below the data directory."""
    with open(os.path.join(DATA, *path), encoding="utf-8") as file:
        return file.read()


def read_help(name: str) -> str:
    """Read a help text by name: ``help``, or ``help-`` and a subcommand or query."""
    return str(read_data("help", "strings.json")[name])


def load(name: str) -> Model:
    """Read a model; raises UnknownModelError."""
    if name not in _loaded:
        try:
            _loaded[name] = read_data("gpus", name + ".json")
        except FileNotFoundError:
            raise UnknownModelError("unknown GPU model {!r}; known are {}".format(name, ", ".join(names()))) from None
    return _loaded[name]
